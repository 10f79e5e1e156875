// Package ponostask tests ponos-task: with programs in place of Slurm's, and in
// jobs of a real Slurm.
package ponostask
