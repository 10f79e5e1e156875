// Package rented runs each task on a machine of its own, rented on Vast.ai for as long as the task
// takes, and then destroyed.
//
// Each order is recorded before it is placed, in a file for each attempt of a task. A label marks the
// instance with its order. If the answer to a create request is lost, the instance is looked up by
// that label before another one is ordered. An instance that the agent does not know to be wanted is
// destroyed, and a destroyed instance is watched until it is gone.
//
//	intended ── id known ──► boots ──► runs ──► ended        (End)
//	    │                      │ fault   │ loss
//	    │ no success           ▼         ▼
//	    └─────────────────► given up: to be destroyed        (Doomed)
//	                           │ seen running: a loss, if it was not one
//	                           └ gone: a list lacks it, and by its id there is none ──► intended, with the next number
//
// While an instance is given up, its task has no other one. Where nothing follows, as the task has
// ended, it is gone when two lists lack it.
package rented
