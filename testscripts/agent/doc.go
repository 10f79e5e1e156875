// Package agent holds the end-to-end tests of the agent's tools: local/ with the
// runner for this machine, fake/ with programs in place of Slurm's, slurm/ with the
// real one.
package agent
