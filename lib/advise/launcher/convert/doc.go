// Package convert writes launchers.yaml from the output of Slurm, with identical nodes in
// groups and their GPUs, CPUs, memory and time limits. The file can be used without changes.
package convert
