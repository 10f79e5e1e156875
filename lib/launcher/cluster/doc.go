// Package cluster asks Slurm what a cluster has and what a user may use of it, and
// keeps the answer in a file for a few minutes, so that a shell loop of requests
// does not become a load on the controller.
//
// A Snapshot is what was asked, as Slurm reported it, with alike nodes in groups. What
// follows from it is decided by lib/launcher.
package cluster
