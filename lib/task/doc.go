// Package task has the types that all packages share: a task, its state, the actions that the queue
// requests, and the JSON lines between the tools. The component has the faces of queues and runners
// beside them.
//
// Ids, slugs and records come from outside and are checked here, before they become paths, arguments
// or lines of a log.
//
// # Face
//
// [Task], [State], [Action] and the lines between tools; queue.Queue, from which tasks come, and
// runner.Runner, on which they run. An implementation is in agent/queue, agent/runner or
// market/rented, and only agent/assembly knows which one an agent has.
//
// # Packages
//
//	need       what a task says of its needs: options of sbatch, a resource request, rules of retries; pure
//	queue      where tasks come from: the interfaces of agents and of the tools that fill it
//	runner     where tasks run: the interface
//
// # Files
//
//	DATA/state/tasks/ID/run.JOB.N    the journal of start N of a job, which the job writes; see lib/agent/record
//
// # Promises, and the tests that hold them
//
//	Ids and names from outside are checked before they become paths
//	    lib/task/task_test.go:TestParseID
//	Lines of others pass unchanged; a bad line costs that line
//	    lib/task/task_test.go:TestParseLine
//	    testscripts/agent/local/records.txtar
//	Control characters in names become blanks
//	    lib/task/task_test.go:TestClean
//	What is not seen once is not gone
//	    lib/task/absence_test.go:TestAbsence
//	A task says what it needs in one language, and bad needs are refused before a job is submitted
//	    lib/task/need/need_test.go:TestOptions
package task
