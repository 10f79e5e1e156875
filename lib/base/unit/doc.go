// Package unit reads and writes durations and sizes as people type them: in flags, in
// ponos.yaml and launchers.yaml, in lists of tasks and in resource requests.
//
// A size is a number of bytes: "G" and "GB" are powers of 1000, "Gi" and "GiB" powers
// of 1024, so that a feature named GPUM24G and a request for 24G mean the same. A
// duration has units, as words ("4 days", "1h 30m", "2w", "10min") or in Go's form
// ("1h30m", "500ms"), or is in a form of Slurm's --time with ":" or "-". A number
// alone is bytes or seconds, where it is taken at all: sbatch would read megabytes
// and minutes.
//
// What Slurm's commands print is read by lib/slurm, as Slurm means it.
package unit
