// Package unit reads and writes the sizes and durations of launcher files and
// resource requests.
//
// A size is a number of bytes: "G" and "GB" are powers of 1000, "Gi" and "GiB"
// powers of 1024, in both places, so that a feature named GPUM24G and a request
// for 24G mean the same. A duration has an explicit unit, or the form that
// Slurm's --time takes.
package unit
