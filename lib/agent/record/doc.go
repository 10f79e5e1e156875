// Package record is the record of a task's starts: which job owns the task, when a start of the job has begun
// the command, and how that has ended. [Start] decides, and has no effects; [Exec] is the program of a job that
// carries its decisions out.
//
//	Claim ──another job owns the task──► Exit 0: refused
//	  │     the link is there, or ours already: adopted
//	  ▼
//	Look ◄──1 s── what began before may still run
//	  │ └──it has ended before──► Exit with its code: answered
//	  ▼
//	Prepare ──► Open ──► Begin ──► Confirm ──► Execute ──► End ──► Settle ──► Seal ──► Exit with the command's code
//	  └─asked─► Exit 143           as Look │              ▲ └─asked, or 0─────────────────┘
//	                                       └─asked────────┘
//
// A step that fails is tried again, as long as the job is not asked to end and the task's directory is not gone
// for 10 minutes. Until Begin has succeeded the command has not begun; from there on it may have run. Nothing
// says that it has ended but a whole line of a journal.
//
// The command writes to the file of the log itself. With a limit it writes to a pipe, from which Exec takes it to the log;
// the command is killed with Exec.
//
// # Files
//
// In the directory of a task:
//
//	owner.ATTEMPT    a symbolic link whose target is the job that runs the attempt
//	run.JOB.RESTART  the journal of one start; see Parse
//	work/            where the command runs: a copy of its source, which stays after a restart
//
// Exec writes them. Where it was killed, the worker of mode local or the pilot above it adds the end that it
// has seen.
package record
