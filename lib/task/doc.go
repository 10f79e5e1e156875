// Package task has the types that all packages share: a task, its state, the actions that the queue
// requests, and the JSON lines between the tools.
//
// It imports no other package of the project. Ids, slugs and records come from outside and are
// checked here, before they become paths, arguments or lines of a log.
package task
