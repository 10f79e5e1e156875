// Package rented runs each task on a machine of its own, rented on Vast.ai for as long as the task
// takes, and then destroyed.
//
// Each order is recorded before it is placed, in a file for each attempt of a task. A label marks the
// instance with its order. If the answer to a create request is lost, the instance is looked up by
// that label before another one is ordered. An instance that the agent does not know to be wanted is
// destroyed, and a destroyed instance is watched until it is gone.
//
// Where an order stands, and what follows from what is heard of it, is decided by lib/market/life; this package asks,
// carries out what follows, and records it.
package rented
