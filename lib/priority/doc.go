// Package priority is the arithmetic behind a queue: where a job's priority
// comes from, how fair share is ranked and decays, in which order jobs are
// considered, and where the backfill scheduler leaves holes.
//
// It is pure: no I/O, no clock, no Slurm. The formulas are those of Slurm's
// documents "Multifactor Priority Plugin", "Classic Fairshare Algorithm" and
// "Fair Tree Fairshare Algorithm", and of the page "sched_config" for backfill; the
// tests compare them with what Slurm itself says.
package priority
