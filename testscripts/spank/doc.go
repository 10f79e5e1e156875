// Package spank tests the SPANK plugin with the clients of a real Slurm.
package spank
