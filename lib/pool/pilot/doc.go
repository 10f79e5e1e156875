// Package pilot is what the jobs of a pool share that gets its own nodes.
//
// A pilot is a job that gives its nodes to the pool for its time. In the run directory,
// which all nodes see, the directory pilots holds:
//
//	pool.json     what is run, and how jobs are submitted
//	input         the tasks, if they came from standard input
//	JOB@NODE.json a node of a pilot that runs, and where it takes connections
//	JOB.leave     the scheduler does not need that job any more
//	retry         the next scheduler runs again what has failed
//	over          the status with which the run has ended
//	submit.lock   held while jobs are counted and submitted
//	JOB.log       what a job has printed
//
// One of the pilots runs the scheduler: the one that holds the lock of the run directory.
// When that one goes, another takes its place. The scheduler reaches a node by a job step
// that srun starts there, a bridge: it hands its standard streams to the pilot, over a
// socket of the node that nobody but the user can open, and the pilot starts a worker with
// them. So nothing listens on the network and Slurm says who may come, and a worker is not
// part of the step and goes on when that ends with its scheduler.
package pilot
