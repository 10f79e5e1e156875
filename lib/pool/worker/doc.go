// Package worker is the part of jobpool that sits on a node: it starts the tasks
// the scheduler sends, and tells how they ended.
//
// A lock guards all state. Whoever has news takes it: the goroutine that reads from
// the scheduler, the thread that sees a program start or end, which starts the next at
// once, and the clock. Processes are an interface, so that all of it can be tested
// without any.
//
// A worker runs below a supervisor (see [Supervise]), which ends what is left
// over when the worker is killed.
package worker
