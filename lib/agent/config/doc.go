// Package config reads ponos.yaml. One struct has all keys with their defaults; decoding is strict,
// and all problems of a file are reported together, as file:line: key: problem.
package config
