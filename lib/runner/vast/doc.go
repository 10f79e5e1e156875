// Package vast runs each task on a machine of its own, rented on Vast.ai for as long
// as the task takes, and destroyed then.
//
// What is ordered is written down before it is ordered, in a file for each task's
// attempt, and marked by a label that tells whose it is. A create whose answer was
// lost is looked up by that label before another one is made; an instance of which
// the agent cannot say that it is wanted is destroyed; an instance that was
// destroyed is watched until two lists do not show it any more.
package vast
