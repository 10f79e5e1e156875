// Package convert writes launchers.yaml from the output of Slurm: alike
// nodes in groups, with their GPUs, CPUs, memory and time limits. What it writes is
// a file as it is.
package convert
