// Package scheduler is the part of jobpool that hands tasks to the nodes and keeps
// the journal.
//
// One goroutine, in [Run], owns all state. Connections, input, requests, signals
// and the printing of output are goroutines of their own that never hold it up.
// What it sends to a node leaves only after the journal has it, so that no task
// runs of which the next run would not know.
package scheduler
