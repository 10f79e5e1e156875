// Package worker is the part of jobpool that sits on a node: it starts the tasks
// the head sends, and tells how they ended.
//
// One goroutine owns all state; connection, processes and clock reach it over
// channels. Processes are an interface, so that all of it can be tested without
// any.
//
// A worker runs below a supervisor (see [Supervise]), which ends what is left
// over when the worker is killed.
package worker
