// Package task holds the words that everyone shares: a task, its state, what the
// queue wants done with it, and the JSON lines that go between the tools.
//
// It imports nothing of ours. Ids, slugs and records come from outside and are
// checked here, before they become paths, arguments or lines of a log.
package task
