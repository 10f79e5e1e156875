// Package pilot is what the jobs share that give a pool its nodes.
//
// A pilot is a job that gives its nodes to the pool for its time. In the run directory, which all
// nodes see, the directory pilots holds:
//
//	pool.json     what is run, and how jobs are submitted
//	input         the tasks, if they came from standard input
//	JOB@NODE.json a node of a running pilot, and where it accepts connections
//	JOB.leave     the scheduler does not need that job any more
//	retry         the next scheduler is to run failed tasks again
//	over          the exit status of the run, once it has ended
//	submit.lock   held while jobs are counted and submitted
//	JOB.log       the output of a job
//
// Who puts tasks into the run has files of its own there: lib/agent/runner/slurm.
//
// One of the pilots runs the scheduler: the one that holds the lock of the run directory. When it
// ends, another one takes its place. The scheduler reaches a node through a bridge, which is a job
// step that srun starts there. The bridge passes its standard streams to the pilot, over a socket
// that only the user can open, and the pilot starts a worker with them. So nothing listens on the
// network, Slurm controls access, and the worker is not part of the step: it continues when the step
// ends with its scheduler.
//
// What is to be done with each job, and how many are to be submitted, a [Fleet] decides, which is pure. [Jobs] and the
// functions on files carry it out.
package pilot
