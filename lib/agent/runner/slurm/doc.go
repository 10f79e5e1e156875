// Package slurm runs tasks as batch jobs of a Slurm cluster.
//
// A job is marked by its comment, PONOS_TASK=<task id>, so that it is found again
// by any agent of the same user, whatever was lost on the way. A job is matched by
// id and comment, as ids are reused.
package slurm
