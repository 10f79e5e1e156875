// Package pack runs short tasks inside pilot jobs: one job of the scheduler for hundreds of
// tasks.
//
// A task that waits has a ticket, which is an empty file whose name says what the task needs.
// A pilot takes a ticket by renaming it into a directory of its own, and runs the job script of
// the task, which claims the task by its owner link as that of any job does: whatever becomes
// of tickets, a command begins once. Pilots have no names in records: each takes what fits, and
// one that is lost leaves the tickets that it had, and owners and journals in the directories
// of tasks, by which the agent sees what is to follow.
package pack
