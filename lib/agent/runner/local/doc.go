// Package local runs tasks as processes of this machine, a bounded number at once.
//
// Jobs outlive the tools. A pending job is a ticket, a file named after its submission time. Workers
// take the oldest ticket for which there is room, as a pool of one node places its tasks, run the job
// and take the next. A worker is a process that holds one of the slots, one for each job that may run
// at once, and that ends when no ticket is left. So no process runs without work, and no daemon is
// needed.
//
// Locks show what is alive, as the kernel releases them with their holder. The job inherits the locks
// of the slot and of the job, so a job whose worker was killed still occupies its slot and is still
// seen as running.
//
//	DIR/slots/N         locked by a worker and its job
//	DIR/waiting/TICKET  a pending job: the directory of its task
//	DIR/taken/TICKET    a job that a worker has taken
//	DIR/running/TASK    locked by a worker and its job: the ticket and the process
//	DIR/worker.err      why the last worker failed
//
// In the task's directory: local.json (the ticket), job.err (why its worker failed) and cancelled.JOB.
package local
