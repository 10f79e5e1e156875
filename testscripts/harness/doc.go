// Package harness is what the end-to-end tests of all tools share: the real
// binaries on PATH, programs that stand in for others, commands for the scripts,
// and the real Slurm cluster.
package harness
