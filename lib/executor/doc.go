// Package executor is to start, limit, watch and end the command of a task. It has no code of its own.
//
// So far only the limit of memory is here. Five places start commands themselves: the job script of
// agent (protocol.sh), agent/runner/local, agent/runner/pack, pool/worker, and the wrapper of
// market/rented.
//
// # Face
//
// A [github.com/ponos-tools/ponos/lib/executor/cgroup] is made for a command, and removed when it has
// ended. agent/runner/local, agent/runner/pack and pool/worker use it.
//
// # Packages
//
//	cgroup     the kernel's limits on memory, where a cgroup is delegated to this process
//
// # Files
//
// None but directories of the kernel, below the process's own in /sys/fs/cgroup.
//
// # Promises, and the tests that hold them
//
//	A command that takes more memory than it may is killed, and nothing beside it
//	    lib/executor/cgroup/cgroup_test.go:TestKilled
//	    lib/agent/runner/local/cgroup_test.go:TestMemoryIsLimitedByTheKernel
//	    testscripts/jobpool/memory_test.go:TestMemoryIsLimitedByTheKernel
package executor
