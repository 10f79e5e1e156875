// Package agent is one agent between a queue and a runner: it polls, starts and stops tasks.
//
// The runner is authoritative for what runs, the queue for what should run. The state directory is
// a cache of both, plus what was already reported; after a kill between any two system calls, the
// next turn rebuilds it. table.go decides on jobs and request.go on starts and stops, without side effects; the other files do what
// they say.
//
// # Face
//
// assembly.Load makes an agent of a configuration; poll, stop and start are turns of it. What all
// others see of an agent are the lines between the tools (lib/task) and the files of a spool.
//
// # Packages
//
//	assembly            an agent put together: queue, runner, state, logs, guard, daemon job
//	code/archive        .tar.gz and .tar.zst, unpacked within a directory
//	code/environment    checkouts and virtual environments, prepared once and shared
//	code/kept           what a task has written to its working directory
//	code/source         the source of a task, made of a directory or a repository as it is
//	code/transfer       artifacts in both directions, models and data sets
//	config              ponos.yaml: one struct, strict decoding, every problem at once
//	guard               one agent at most for a configuration, on all hosts
//	metrics             numbers that a task writes of itself
//	program             the program that runs tasks in jobs of Slurm, and how their scripts find it
//	queue/arkindex      tasks of an Arkindex instance
//	queue/spool         tasks in a directory
//	record              who runs a task, that its command has begun, and how it has ended
//	runner/local        tasks as processes of this machine
//	runner/slurm        tasks as batch jobs; short ones in the runs of pools
//	sweep               tables of parameters, and templates
//	tasklist            the tasks of a spool that a user selects
//
// # Files
//
// In the state directory, DATA/state:
//
//	turn.lock       held during a turn
//	tracked.jsonl   of the records of all tasks that have jobs, what turns read and change (Tracked)
//	tasks/ID/       a task that has not ended (Dir)
//	done/ID/        a task that has ended
//	submitted/ID    a task that was submitted and has not ended, even if it has removed its directory
//	arrays/         links from elements of job arrays to the directories of their tasks
//
// Beside it are DATA/environments, DATA/files and DATA/data (code), and DATA/bin (program). A spool has files of its own, see
// ponos-records(7).
//
// # Promises, and the tests that hold them
//
//	No task is lost and none runs twice, whatever is killed between two system calls
//	    lib/agent/explore_test.go:TestEveryInterleaving
//	    testscripts/chaos/calls_test.go:TestKilledAtEachSystemCall
//	    testscripts/chaos/chaos_test.go:TestChaos
//	A command that has ended is not run again
//	    lib/agent/record/model_test.go:TestEveryInterleaving
//	    lib/agent/record/exec_test.go:TestExecAgain
//	A journal that was cut off is read as far as it goes
//	    lib/agent/record/journal_test.go:TestParseRun
//	A turn makes as many calls of Slurm for many tasks as for one
//	    testscripts/bench/poll_test.go:TestOneCallEach
//	An empty list of jobs is not believed
//	    lib/agent/runner/slurm/runner_test.go:TestJobsDoesNotBelieveAnEmptyList
//	An outcome that is not known is looked for before anything is repeated
//	    lib/agent/runner/slurm/array_test.go:TestArrayOfUnknownFate
//	    lib/agent/queue/arkindex/task_test.go:TestReportWithLostAnswer
//	Every state of Slurm has a meaning
//	    lib/agent/runner/slurm/state_test.go:TestEveryStateHasAMeaning
//	Secrets are in files of mode 0600 and in environments only
//	    testscripts/agent/local/secrets.txtar
//	A spool of another user is refused
//	    testscripts/agent/owner_test.go:TestSpoolOfAnotherUser
//	One bad file or task hinders no other
//	    lib/agent/queue/spool/spool_test.go:TestOneFileDoesNotHinderTheOthers
//	Links of a task are not followed
//	    testscripts/agent/local/planted.txtar
package agent
