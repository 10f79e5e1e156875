// Package journal keeps what became of the tasks of a run, so that another run
// can go on where it ended.
//
// A run directory holds:
//
//	journal.ndjson  what happened, a JSON object a line; only appended to
//	joblog          the ends of tasks, in the form of GNU parallel's --joblog
//	run.json        command line, version, host and process of the scheduler
//	lock            held while a scheduler runs
//	lease           until when workers may have tasks running without a scheduler
//	logs, nodes     output of the tasks, and of the connections to the nodes
//	spool           results of workers that outlived their scheduler
//	added           tasks that were added to the run, an object of package input a line
//	ctl.sock        for jobpool ctl and call
//
// A task ends exactly once: its "end" is written one time, whatever happens. What
// a task did before is told by "send" (it was handed to a node, and may run from
// then on) and "try" (an attempt that was not the last). Locks and append are as
// good as the file system is: on NFS, a lock may not keep another host away.
package journal
