// Package registry asks registries of container images, as docker does, what an image runs by itself, and which programs it
// has.
//
// It does not use google/go-containerregistry. That would replace about 160 of its 500 lines: names of images, tokens, manifests.
// What layers hold, logins as the market takes them, which answers are final, limits, and to whom a password may go would stay. It
// brings eight modules, docker/cli and logrus among them, and adds 1 MB to each program that reads images (measured with v0.22.1).
package registry
