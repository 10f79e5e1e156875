// Package worker is the part of jobpool that runs on a node: it starts the tasks that the scheduler
// sends, and reports how they ended.
//
// A lock guards all state. Three goroutines take it: the one that reads from the scheduler, the one
// that sees a program start or end and starts the next at once, and the timer. Processes are an
// interface, so that all of it can be tested without any.
//
// A worker runs below a supervisor (see [Supervise]), which ends what is left over when the worker is
// killed.
package worker
