// Package registry asks a registry of container images what an image runs by itself:
// its entrypoint and its command. It reads no layer.
package registry
