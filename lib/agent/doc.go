// Package agent is one agent between a queue and a runner: it polls, starts and
// stops tasks.
//
// The truth about what runs is kept by the runner, the truth about what should run
// by the queue. The state directory is a cache of both, plus what was already
// reported; whatever is killed between two system calls, the next turn finds
// everything again. decide.go says what follows from what is seen, and does
// nothing itself; everything else does, and decides nothing.
//
// The state directory:
//
//	turn.lock       held during a turn
//	known.jsonl     the tasks that have jobs, and what was reported of them
//	tasks/ID/       a task that is not over (Dir)
//	done/ID/        one that is
//	arrays/         links by which elements of job arrays find the directory of their task
package agent
