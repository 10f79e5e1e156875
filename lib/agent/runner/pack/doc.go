// Package pack runs short tasks inside pilot jobs: one job of the scheduler for hundreds of tasks.
//
// A pending task has a ticket, an empty file whose name says what the task needs. A pilot takes a
// ticket by renaming it into a directory of its own, and runs the job script of the task. The script
// claims the task by its owner link as that of any job does, so a command begins only once, even if
// tickets are lost or duplicated. Records do not name pilots: each pilot takes the tickets that fit.
// While the script runs, a file beside the ticket shows it, as the task may remove its own directory.
// A pilot that is lost leaves its tickets, and the owners and journals in the directories of tasks,
// from which the agent sees what to do.
package pack
