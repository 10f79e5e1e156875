// Package journal records the tasks of a run, so that another run can continue it.
//
// A run directory holds:
//
//	journal.ndjson  events, one JSON object per line; appended to, and now and then replaced by a shorter one: see [Cut]
//	joblog          the ends of tasks, in the form of GNU parallel's --joblog
//	run.json        command line, version, host and process of the scheduler
//	lock            held while a scheduler runs
//	lease           when the leases of workers expire if there is no scheduler
//	logs, nodes     output of the tasks, and of the connections to the nodes
//	spool           results of workers that outlived their scheduler
//	in, in.closing  tasks that were added and are not taken yet: see package input
//	added           those that were
//	ctl.sock        for jobpool ctl and call
//
// A task ends exactly once: its "end" is written once, whatever happens. Earlier events of a task are
// "send" (it was sent to a node, and may run from then on) and "try" (an attempt that was not the
// last). Locks and appends are only as reliable as the file system: on NFS, a lock may not exclude
// another host.
package journal
