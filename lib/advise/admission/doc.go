// Package admission is a model of what Slurm says of a job before it looks for
// nodes: the rules of partitions, associations, QoS and licenses for one user. It
// is pure: a Cluster is what Slurm answered, and Check a function of it and a job.
//
// The answer is yes (no findings), no (with the reason, and whose rule it is), or
// unknown, where what a rule depends on could not be asked. A job that Slurm accepts
// and then never starts is a no, too; such a finding has Waits set.
//
// The rules are those of slurm.conf(5), sacctmgr(1) and resource_limits, and are
// held against a real slurmctld by a test with random clusters and jobs
// (testscripts/admission).
package admission
