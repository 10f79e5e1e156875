// Package memory holds the end-to-end tests of jobs whose memory is limited by cgroups: on a
// real Slurm that has them.
package memory
