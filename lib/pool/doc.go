// Package pool shares the CPUs, GPUs and memory of several nodes among tasks.
//
// It is pure arithmetic: it starts nothing, waits for nothing and has no clock. A
// caller pushes tasks and adds nodes, takes placements with [Pool.Next] until
// there are none, and gives each back with [Pool.Release].
//
// # Order
//
// Tasks are taken by priority and then by their number. The first one that fits
// nowhere reserves the node that will suit it soonest. What is behind it may start
// on other nodes, and on that node as far as it fits beside the reservation; so a
// wide task waits only for what was running when its turn came, and no CPU idles
// while something fits that does not delay it.
//
// # Cost
//
// Tasks that want the same are kept in one line, so that a decision costs as many
// steps as there are different wishes, not tasks. Nodes are kept in buckets by
// their free CPUs.
//
// The packages below it are the rest of jobpool: core (what a scheduler decides), wire
// (what scheduler and worker tell each other), worker, scheduler, journal, names, input, machine, transport and control.
package pool
