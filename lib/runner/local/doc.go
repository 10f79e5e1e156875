// Package local runs tasks as processes of this machine, a bounded number at once.
//
// Jobs outlive the tools. A job waits as a ticket, a file named by the time of its
// submission; workers take the oldest ticket, run the job and take the next. A
// worker is a process that holds one of the slots, of which there are as many as
// jobs may run at once, and that ends when no ticket is left. So nothing runs when
// nothing is to be done, and nothing has to be kept running.
//
// Locks say what is alive, as they end with their holder: the slot's and the job's
// lock are inherited by the job, so a worker that is killed leaves a job that still
// counts and is still seen.
//
//	DIR/slots/N         locked by a worker and its job
//	DIR/waiting/TICKET  a job that waits: the directory of its task
//	DIR/taken/TICKET    a job that a worker has taken
//
// In the task's directory: local.json (Job), job.lock, job.pid, exit.JOB and
// cancelled.JOB.
package local
