// Package config reads ponos.yaml. All keys with their defaults stand in one
// struct; decoding is strict, and every problem of a file is reported at once, as
// file:line: key: problem.
package config
