// Package forecast replays Slurm's scheduling: from what is known of a cluster it
// computes which jobs start now, where the others are planned, and what keeps those
// back that are not.
//
// It is pure: a World is what Slurm answered, Plan is one turn of the
// backfill scheduler over it, and Replay lets time pass. The rules are those of
// slurm.conf(5) (SchedulerParameters), resource_limits and reservations; where those
// documents leave room, what slurmctld does decides:
//
//   - a job that is planned keeps whole nodes, in steps of bf_resolution;
//   - a job that is at a limit of its QoS or association is not planned and keeps
//     nothing, and neither does one below bf_min_prio_reserve;
//   - bf_max_job_test counts rows, which are jobs in one partition, and each task of
//     an array that is tried.
//
// Times are seconds since 1970, memory is in MiB.
package forecast
