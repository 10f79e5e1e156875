// Package cluster queries Slurm for the resources of a cluster and the rights of a user, and
// caches the answer in a file for a few minutes, so that a shell loop of requests puts no load
// on the controller.
//
// A Snapshot contains Slurm's answers, with identical nodes in groups. Conclusions from it are
// the task of lib/advise/launcher.
package cluster
