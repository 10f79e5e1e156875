// Package executor starts, limits, watches and ends commands on one machine: in this process, with nothing
// on disk. Nothing else does.
//
// # A command
//
//	Waiting ──Start──► Starting ──────► Running ──End, time limit──► Asked ──grace──► Killed
//	   ▲                  │                │                           │ SIGTERM        │ SIGKILL, again
//	   └──cannot start────┘                ├───────End at once, memory─┼───────────────►│ each second
//	                                       ▼                           ▼                ▼
//	                                     Ended ◄──────────its process has ended─────────┘
//
// The first reason for which a command is ended counts. One that is to end before it runs gets its signal
// as soon as it does. When its process has ended, what it has left is killed before its owner is told: its
// process group, and processes elsewhere that have its marks in their environment. An end is not a success if
// there is a reason for it. Signals that reach a command beside the executor are the owner's to know of; see
// package outside.
//
// Time in which this process, and with it the commands, was suspended does not count: see Postpone.
//
// # Face
//
// An [Executor] has commands, on one of two systems. A [Spawner] starts thousands in a second, without a
// file, a thread or a process more for each, and has the process to itself: pool/worker and market/entry. [Programs] starts
// few, beside whatever else the process does, and they may outlive it: agent/runner/local.
// [Supervise] is the process above one that executes commands, and ends what is left
// when that is killed.
//
// The program of a job (lib/agent/record), which Slurm limits and ends, runs a command of its own.
//
// # Packages
//
//	cgroup     the kernel's limits on memory, where a cgroup is delegated to this process
//	outside    which ends a signal from outside has cut off
//	proc       processes, as the kernel shows them
//
// # Files
//
// None but directories of the kernel, below the process's own in /sys/fs/cgroup.
//
// # Promises, and the tests that hold them
//
//	A command is asked before it is killed, is killed if it does not end, and its first reason counts
//	    lib/executor/life_test.go:TestLife
//	An end beside a signal from outside is no success
//	    lib/executor/outside/outside_test.go:TestHeard
//	    lib/agent/record/exec_test.go:TestExecIsWarned
//	The limit of a command does not pass while it is suspended, nor fire when it is resumed
//	    lib/executor/executor_test.go:TestSuspended
//	    lib/executor/life_test.go:TestLife
//	In a job of Slurm nothing but Slurm limits and ends a command, whose output is the file of the log itself
//	    lib/agent/record/exec_test.go:TestExecLimitsNothing
//	    lib/agent/record/exec_test.go:TestMaxLog
//	Nothing is left of an ended command, whatever session it has gone to
//	    lib/executor/executor_test.go:TestLeft
//	A command that takes more memory than it may is killed, and nothing beside it
//	    lib/executor/cgroup/cgroup_test.go:TestKilled
//	    lib/agent/runner/local/cgroup_test.go:TestMemoryIsLimitedByTheKernel
//	    testscripts/jobpool/memory_test.go:TestMemoryIsLimitedByTheKernel
package executor
