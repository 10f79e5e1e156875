// Package scheduler hands tasks to the nodes and keeps the journal.
//
// What to do is decided by package core. This package is what is around it: the
// connections to the workers, the journal, the printer of output, the input, and
// the requests of programs. One goroutine, in [Run], owns the core; the others send
// it events and never hold it up. What is sent to a node leaves only after the
// journal has it, so that no task runs of which the next run would not know.
package scheduler
