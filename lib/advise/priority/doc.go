// Package priority is the arithmetic behind a queue: where a job's priority
// comes from, and how fair share is ranked and decays.
//
// It is pure: no I/O, no clock, no Slurm. The formulas are those of Slurm's
// documents "Multifactor Priority Plugin", "Classic Fairshare Algorithm" and
// "Fair Tree Fairshare Algorithm"; the tests compare them with what Slurm itself says.
package priority
