// Package core decides what a scheduler does: which task runs where, what the end of an attempt
// means, when a node is not to be trusted, and when the run has ended.
//
// It is pure. [Core.Handle] takes an event and the time, changes the state, and returns the effects
// in the order in which they must take place. It starts no goroutine, reads no clock, and opens
// neither file nor connection; package scheduler is the shell around it that does, with connections,
// journal, printer and input.
//
// It has four parts, each of which calls only those below it. What concerns several of them, [Core] decides: an event goes to the
// parts, and what they answer to others.
//
//	Core      events in, effects out: connections, losses, nodes that come and go, the run's end
//	tasks     what waits, runs and has ended; the queue, dependencies, retries, tasks of several nodes
//	nodes     where: workers, what fits, which nodes can be trusted
//	orphans   workers whose connections have ended, and what they may still run
//	ending    how far the end of the run has come, and its verdict
//	base      configuration, the pool with its slots, the time, and the effects so far
//
// A task is run by attempts. An attempt is at a [Worker], which is one process at a [Node], from the
// first try to reach it until nothing of it is left. The loss protocol, in loss.go, handles the tasks
// of a worker whose connection ends.
//
// A task ends as succeeded, failed, timed out or cancelled, and what no node of the pool could ever
// run is refused. All other tasks are left, with the reason, for a run that resumes.
package core
