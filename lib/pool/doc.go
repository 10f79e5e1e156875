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
// # Face
//
// jobpool is the component's tool. Others see the files of a run directory: agent/runner/slurm puts short tasks into runs, and reads
// their journals. agent/runner/local uses this package and machine to give GPUs and CPUs to its tasks.
//
// # Packages
//
//	control      the socket for requests to a running scheduler
//	core         what a scheduler decides; pure
//	input        tasks from lines, JSON lines or arguments
//	journal      the record of a run, by which another run continues it
//	machine      the CPUs, memory and GPUs of this node
//	names        the results of named tasks, in little memory
//	pilot        what the jobs share that give a pool its nodes
//	scheduler    the shell around core: connections, journal, printer, input
//	transport    connections to workers: ssh, srun, a pipe, any command
//	wire         the protocol between scheduler and worker
//	worker       the part on a node: starts tasks, reports their ends
//
// # Files
//
// The run directory, of which package journal names the files, and RUN/pilots, of which package pilot
// does. On a node, a worker has a directory in the directory for temporary files.
//
// # Promises, and the tests that hold them
//
//	A task ends exactly once, and is started again only if its node was lost
//	    lib/pool/core/model_test.go:TestModel
//	    lib/pool/worker/worker_test.go:TestTaskThatHasEndedDoesNotRunAgain
//	    testscripts/jobpool/pilots_chaos_test.go:TestChaos
//	A node is not lost because it is silent: its lease must have expired
//	    lib/pool/scheduler/loss_test.go:TestLostTaskWaitsForTheLease
//	Output that is lost is a failure
//	    testscripts/jobpool/promise_test.go:TestOutputOnAFullDisk
//	A bad node or task reaches no other
//	    lib/pool/scheduler/nodes_test.go:TestBlackHole
//	    testscripts/jobpool/promise_test.go:TestTaskThatKillsItsWorker
//	A wide task is not starved
//	    lib/pool/pool_test.go:TestWideTaskIsNotStarved
//	Nothing listens on the network, and what a node sends is bounded
//	    testscripts/jobpool/hostile.txtar
//	    lib/pool/wire/wire_test.go:TestLongLines
package pool
