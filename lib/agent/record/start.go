package record

import (
	"fmt"
	"strings"
	"time"
)

// A Step is what a start of a job does next.
type Step int

// The steps, in their order; see the drawing of the package.
const (
	Claim   Step = iota // make the link of the owner
	Look                // read the journals of the job, and see which of its starts are alive
	Prepare             // read the files of the task, and go to its copy of the source
	Open                // the journal of this start
	Begin               // add Line to it
	Confirm             // look again: what had not begun before may have by now
	Execute             // the command, to its end
	End                 // bring back what the task has removed of its record, and add Line
	Settle              // see whether the job is asked to end
	Seal                // add Line
	Exit                // with Code
)

// Do is a step, after a pause that a request to end cuts short.
type Do struct {
	Step  Step
	After time.Duration
	Line  string // of the journal, without its end
	Code  int
	Say   string // for the log of the task; "": nothing
}

// Saw is the result of a step.
type Saw struct {
	Err  error // it has failed, and may succeed
	Gone bool  // the directory of the task is not there
	// Owner is the job that owns the task, after Claim.
	Owner string
	// Run is what counts of the starts of the job, and Begun has all of them, after Look.
	Run   Run
	Begun []Begun
	// Damaged says, after Prepare, that the files of the task are not whole.
	Damaged bool
	Code    int           // of the command
	Open    time.Duration // for which its end may prove to be by a signal, whatever the code: the job was warned
}

// Begun is a start of a job that has begun its command, or is about to.
type Begun struct {
	Restart int
	Host    string
	Process
	Alive bool // the process runs; only known on this host
}

// Process is a process of a host.
type Process struct {
	PID     int
	Started uint64 // in the kernel's unit; a process id is used again
}

// A Start is one start of a job that is to run a task: a state machine, whose states are steps.
type Start struct {
	Job     string
	Restart int
	Tried   int // attempts before this one
	Host    string
	Process // of this start

	step   Step
	tries  int           // failures of the step in a row
	gone   time.Duration // for which the directory has been away
	waited int           // seconds, for what began before
	code   int           // of the command
	open   time.Duration // of its end
	word   string        // what was noted of its end
}

const (
	terminated = 143 // the exit code of a job that was asked to end
	// away is how long the directory of a task may be away: NFS shows a new one late, and automounters take their time.
	away = 10 * time.Minute
	// elsewhere is how long in seconds a start is waited for that began on another host under the same restart count.
	// Slurm ends it when that node registers, and NFS shows within 60 s what it has written.
	elsewhere = 65
	damages   = 6 // how often the files of a task are read
	// settling is how long after a failed command its job may learn that it was asked to end: Slurm signals one
	// process after the other.
	settling = 300 * time.Millisecond
)

// First is the first step.
func (s *Start) First() Do { return Do{Step: Claim} }

// Next returns what follows on the result of the last step. Asked says that the job was asked to end.
func (s *Start) Next(saw Saw, asked bool) Do {
	if saw.Err != nil {
		return s.again(saw, asked)
	}
	s.gone = 0
	if !saw.Damaged {
		s.tries = 0
	}
	switch s.step {
	case Claim:
		if saw.Owner != s.Job {
			return s.exit(0, fmt.Sprintf("job %s: the task is run by job %s", s.Job, saw.Owner))
		}
		return s.to(Do{Step: Look})
	case Look, Confirm:
		return s.looked(saw, asked)
	case Prepare:
		switch s.tries++; {
		case asked: // the command would not hear of it, and run beside or before that of the next start
			return s.exit(terminated, "")
		case !saw.Damaged:
			s.tries = 0
			return s.to(Do{Step: Open})
		case s.tries == damages:
			return s.exit(1, fmt.Sprintf("job %s: the files of the task are damaged", s.Job))
		default:
			return s.to(Do{Step: Prepare, After: 5 * time.Second})
		}
	case Open:
		return s.to(Do{Step: Begin, Line: fmt.Sprintf("begun %s %d %d", s.Host, s.PID, s.Started)})
	case Begin:
		return s.to(Do{Step: Confirm})
	case Execute:
		s.open = saw.Open
		return s.ended(saw.Code, asked)
	case End:
		return s.noted()
	case Settle:
		s.word = "ended"
		if asked {
			s.word = "cut"
		}
		return s.to(Do{Step: Seal, Line: fmt.Sprintf("%s %d", s.word, s.code)})
	default:
		return s.exit(s.code, "")
	}
}

func (s *Start) to(do Do) Do {
	s.step = do.Step
	return do
}

func (s *Start) exit(code int, say string) Do { return s.to(Do{Step: Exit, Code: code, Say: say}) }

// looked decides whether the command is to be run. Two starts may have looked before either had begun: of those
// that find each other afterwards one goes on.
func (s *Start) looked(saw Saw, asked bool) Do {
	other, yield := s.other(saw.Begun)
	if saw.Run.Ended && (saw.Run.Closed || other == nil) { // or it may still be found that it was cut short
		say := fmt.Sprintf("job %s: the command has ended before, with exit code %d; it is not run again", s.Job, saw.Run.Code)
		if s.step == Look {
			return s.exit(saw.Run.Code, say)
		}
		do := s.ended(saw.Run.Code, false)
		s.word, do.Line, do.Say = "ended", fmt.Sprintf("ended %d", s.code), say
		return do
	}
	switch {
	case other == nil && s.step == Look:
		s.waited = 0 // others may have begun since
		return s.to(Do{Step: Prepare, Say: s.greeting()})
	case other == nil && asked:
		return s.ended(terminated, asked)
	case other == nil:
		return s.to(Do{Step: Execute})
	case asked, yield:
		return s.exit(terminated, "")
	}
	do := Do{Step: s.step, After: time.Second}
	if s.waited++; s.waited == 1 {
		do.Say = fmt.Sprintf("job %s: it has begun before, on %s", s.Job, other.Host)
	}
	return s.to(do)
}

// greeting tells in the log of the task that it has begun before.
func (s *Start) greeting() (say string) {
	if s.Restart > 0 {
		say = fmt.Sprintf("job %s: restart %d on %s", s.Job, s.Restart, s.Host)
	}
	if s.Tried > 0 {
		say = strings.TrimLeft(fmt.Sprintf("%s\njob %s: attempt %d on %s", say, s.Job, s.Tried+1, s.Host), "\n")
	}
	return say
}

// other returns a start that may run the command, or nil. Yield says that this one is not to wait for it.
//
// Slurm's controller, restarted, may begin a job that it does not remember to have begun: of the starts with the
// same restart count, which share a journal, the first in that goes on. And where processes are not confined, those
// of a start may outlive it on the node: the later one waits for what has begun, and the earlier one begins nothing
// beside it. A start of another restart count on another host is Slurm's to end.
func (s *Start) other(all []Begun) (other *Begun, yield bool) {
	own := false // the line of this start was passed
	for i, b := range all {
		here := b.Host == s.Host
		switch {
		case here && b.Process == s.Process:
			own = true
		case b.Restart > s.Restart && here && b.Alive:
			return &all[i], true
		case b.Restart == s.Restart && own:
		case here && b.Alive, !here && b.Restart == s.Restart && s.waited < elsewhere:
			other = &all[i]
		}
	}
	return other, false
}

// ended notes the end of the command. One that was asked to end is not done: Slurm may begin the job again.
// What is known is noted before it settles, as this process may be killed.
func (s *Start) ended(code int, asked bool) Do {
	s.code, s.word = code, "ended"
	switch {
	case asked:
		s.word = "cut"
	case code != 0 || s.open > 0:
		s.word = "exited"
	}
	return s.to(Do{Step: End, Line: fmt.Sprintf("%s %d", s.word, code)})
}

// noted follows on the first line about the end.
func (s *Start) noted() Do {
	if s.word != "exited" {
		return s.exit(s.code, "")
	}
	return s.to(Do{Step: Settle, After: max(settling, s.open)})
}

// again tries a step once more, or gives up.
func (s *Start) again(saw Saw, asked bool) Do {
	if asked || s.gone >= away {
		switch {
		case s.step < Execute:
			return s.exit(terminated, "")
		case s.step == Execute: // it could not be started
			return s.ended(terminated, true)
		case s.step == End:
			return s.noted()
		default:
			return s.exit(s.code, "")
		}
	}
	pause := s.pause()
	s.tries++
	if s.gone += pause; !saw.Gone {
		s.gone = 0
	}
	do := Do{Step: s.step, After: pause, Say: fmt.Sprintf("job %s: %v; trying again in %d s", s.Job, saw.Err, int(pause.Seconds()))}
	switch s.step {
	case Begin:
		do.Line = fmt.Sprintf("begun %s %d %d", s.Host, s.PID, s.Started)
	case End, Seal: // the same again: it may be there, and have been seen
		do.Line = fmt.Sprintf("%s %d", s.word, s.code)
	}
	return s.to(do)
}

// pause is how long to wait after a failure. What passes, mostly passes soon; and a job may be killed any time.
func (s *Start) pause() time.Duration {
	switch {
	case s.tries < 5:
		return time.Second
	case s.tries < 15:
		return 2 * time.Second
	default:
		return min(time.Minute, time.Second<<min(6, s.tries-13))
	}
}
