// Package scheduler hands tasks to the nodes and keeps the journal.
//
// Package core makes the decisions. This package is the shell around it: the connections to the
// workers, the journal, the printer of output, the input, and the requests of programs. One
// goroutine, in [Run], owns the core; the others send it events and never block it. Messages for a
// node are sent only after the journal is written, so that no task runs of which the next run would
// not know.
package scheduler
