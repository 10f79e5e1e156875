// Package pool shares the CPUs, GPUs and memory of several nodes among tasks.
//
// It is pure arithmetic: it starts nothing, waits for nothing and has no clock. A caller pushes tasks
// and adds nodes, takes placements with [Pool.Next] until there are none, and gives each back with
// [Pool.Release].
//
// # Order
//
// Tasks are taken by priority and then by their number. The first one that fits nowhere reserves the
// node that will have room for it first. Tasks behind it may start on other nodes, and on that node
// if they fit beside the reservation. So a wide task waits only for the tasks that were running when
// its turn came, and no CPU is idle while a task fits that does not delay it.
//
// # Cost
//
// Tasks with equal needs are kept in one line, so that a decision takes as many steps as there are
// different needs, not tasks. Nodes are kept in buckets by their free CPUs.
//
// The packages below it are the rest of jobpool: core (what a scheduler decides), wire (the protocol
// between scheduler and worker), worker, scheduler, journal, names, input, machine, transport and
// control.
package pool
