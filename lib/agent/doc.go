// Package agent is one agent between a queue and a runner: it polls, starts and stops tasks.
//
// The runner is authoritative for what runs, the queue for what should run. The state directory is
// a cache of both, plus what was already reported; after a kill between any two system calls, the
// next turn rebuilds it. decide.go decides and has no side effects; the other files act on its
// decisions.
//
// The state directory:
//
//	turn.lock       held during a turn
//	tracked.jsonl     the tasks that have jobs, and what was reported of them
//	tasks/ID/       a task that has not ended (Dir)
//	done/ID/        a task that has ended
//	submitted/ID    a task that was submitted and has not ended, even if it has removed its directory
//	arrays/         links from elements of job arrays to the directories of their tasks
package agent
