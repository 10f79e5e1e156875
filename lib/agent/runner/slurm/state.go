package slurm

import (
	"fmt"
	"strings"
	"time"

	"github.com/ponos-tools/ponos/lib/agent/record"
	"github.com/ponos-tools/ponos/lib/slurm"
	"github.com/ponos-tools/ponos/lib/task"
	"github.com/ponos-tools/ponos/lib/task/need"
	"github.com/ponos-tools/ponos/lib/task/runner"
)

// meaning is what a state of Slurm means for a task.
type meaning struct {
	state task.State // "": it depends on whether the job has started
	why   string     // a job has ended as an error, or waits; "%s" is its id
	cause string     // of rules after which a task may be tried again
	has   trait
}

// trait is what else follows from a state.
type trait uint8

const (
	shown   trait = 1 << iota // its name is shown behind why
	later                     // the end may be of something after the end of the command, whose own result counts
	early                     // a job that has ended so, without a sign that it began its command, has not begun it
	requeue                   // accounting may show this end of a job that Slurm is about to requeue
)

// states are all states of Slurm, see testdata/states.
var states = map[string]meaning{
	"PENDING":       {state: task.Pending},
	"CONFIGURING":   {task.Pending, "its nodes are being started", "", shown},
	"POWER_UP_NODE": {task.Pending, "its nodes are being started", "", shown},
	"REQUEUED":      {task.Pending, "is put into the queue again", "", shown},
	"REQUEUE_FED":   {task.Pending, "is put into the queue again", "", shown},
	"REQUEUE_HOLD":  {task.Pending, held, "", shown},
	"RESV_DEL_HOLD": {task.Pending, held, "", shown},
	"SPECIAL_EXIT":  {task.Pending, held, "", shown},

	"SUSPENDED":  {why: "suspended by Slurm"},
	"STOPPED":    {state: task.Running, why: "stopped by a signal"},
	"RUNNING":    {state: task.Running},
	"COMPLETING": {state: task.Running},
	"STAGE_OUT":  {state: task.Running},
	"SIGNALING":  {state: task.Running},
	"RESIZING":   {state: task.Running},

	"COMPLETED":     {state: task.Completed},
	"FAILED":        {task.Failed, "", "", early | requeue},
	"TIMEOUT":       {task.Error, "the job reached its time limit", need.Timeout, later},
	"OUT_OF_MEMORY": {task.Error, "the job used more memory than it requested", need.OOM, 0},
	"NODE_FAIL":     {task.Error, "a node of the job failed", need.Node, later | early | requeue},
	"BOOT_FAIL":     {task.Error, "a node of the job failed to boot", need.Node, later | early},
	"LAUNCH_FAILED": {task.Error, "the job ended as LAUNCH_FAILED", need.Node, later | early},
	"RECONFIG_FAIL": {task.Error, "the job ended as RECONFIG_FAIL", "", later},
	"DEADLINE":      {task.Error, "the job reached its deadline", "", later},
	"REVOKED":       {task.Error, "the job was revoked by another cluster of the federation", "", later},
	"PREEMPTED":     {task.Error, "the job was preempted and not requeued", need.Lost, later | early | requeue},
	"CANCELLED":     {task.Error, "the job was cancelled, and not by this agent", "", later},
}

const held = "is held until \"scontrol release %s\" is run"

func (m meaning) is(t trait) bool { return m.has&t != 0 }

// state returns the state of a task whose job is in a state of Slurm, unless that depends on more, or is unknown.
func state(slurm string) (s task.State, ok bool) {
	s = states[slurm].state
	return s, s != ""
}

// books says what it means that accounting shows no record of a job.
type books int

const (
	answered books = iota // it has none
	silent                // it does not answer, or is left alone
	noBooks               // the cluster has no accounting
)

// evidence is what is known of one job.
type evidence struct {
	ref      runner.Ref
	queue    *slurm.Job    // as squeue shows it; nil: it does not
	account  *slurm.Record // as sacct shows it; nil: it does not
	books    books
	siblings bool // squeue and accounting show other elements of the job's array
	strange  bool // another agent's, see Runner.strange
	// What the job script has recorded, if journal says that it was read.
	journal bool
	run     record.Run
	owner   string   // the job that runs the task; "" if none does
	spare   []string // other pending jobs of the task, which are not needed
	instead string   // the recorded job, if another one counts
	now     time.Time
	packed  *packedTask // it runs in a pilot, whose job is in queue and account; nil: it has a job of its own
}

// How long a job may leave no trace: accounting lags, squeue forgets, and a controller that was
// restarted may remember.
const (
	lag  = 2 * time.Minute
	gone = 10 * time.Minute
	// If Slurm has lost the end of a job, accounting shows it as running for ever.
	runaway = time.Hour
	// An end that squeue still shows after this many counting queries is older than 45 s, and so is the restart of a
	// controller whose squeue does not show a job. slurmctld saves its jobs every 5 s: if it is killed after that, it does
	// not requeue the job.
	saved = 2
)

// judge is what follows from the evidence and from what the agent remembers of earlier looks.
func (e evidence) judge() runner.Job {
	job, proof := e.show()
	lacking := proof != (runner.Proof{}) && e.packed == nil && e.queue == nil && e.account == nil && e.books == answered
	return runner.Believe(job, proof, e.ref, lacking, e.now)
}

// show says what Slurm and the journal show, and how long they must do so. squeue decides while it shows the job as alive;
// accounting decides on the end, where there is accounting. The first row that fits counts:
//
//	squeue             accounting         journal                     shown                  proof
//
//	RUNNING            -                  ended in this start         its end, outlived      10 minutes
//	alive              -                  -                           alive                  none
//	unknown state      no end             -                           unclear                none
//	an end             -                  -                           over                   none; PREEMPTED 2 looks
//	no                 an end             begun, not ended            over                   a fact, if Slurm may requeue it
//	no                 CANCELLED by none  not ended                   vanished               a fact, if it has begun
//	no                 an end             -                           over                   none
//	no                 no end             -                           vanished               see there
//
// over: the result of the command itself wins over what Slurm reports of anything after it.
//
//	the command has ended before that                                 its end                none
//	COMPLETED, after the job was asked to end, code 0                 interrupted            none
//	0:53, begun but not ended, or never                               unbegun                2 looks; a fact without squeue
//	FAILED by signal 9 while the command ran                          lost                   none
//	failed, and no sign that it began                                 unbegun                a fact
//	anything else                                                     as Slurm says          none
//
// vanished: squeue does not show it, and it has not ended according to accounting.
//
//	the command has ended                                             its end                2 minutes; none if that is all there is
//	the command was killed or asked to end                            lost, or an error      gone
//	not begun, an element of an array whose others are shown          cancelled              a fact, also in accounting
//	not begun, and accounting shows that it was dropped               unbegun                none
//	not begun, and accounting answers that it waits or is not there   unbegun                2 looks
//	not begun, and nothing is known of it                             unbegun                10 minutes
//	begun, dropped                                                    lost                   gone
//	begun                                                             an error               gone; an hour if accounting shows it
//	anything else                                                     nothing                never
//
// Gone is a fact where a controller has dropped the job, 10 minutes where it is not shown, and accounting must not have it.
func (e evidence) show() (runner.Job, runner.Proof) {
	if e.packed != nil {
		return e.showPacked()
	}
	job := runner.Job{Task: e.ref.Task, ID: e.ref.Job, Submitted: e.ref.Submitted, Spare: e.spare, Instead: e.instead, Claim: e.claim()}
	var first runner.Proof
	if q := e.queue; q != nil {
		job.Restarts, job.Submitted = int(q.Restarts), slurm.Time(q.Submit)
		if alive := e.alive(); alive.Sure() {
			if q.State == "RUNNING" && e.journal && e.run.Ended && e.run.Restart == int(q.Restarts) {
				// Slurm may have lost the message of its end, and show it until its time limit.
				job = ended(job, "COMPLETED", slurm.Exit{Code: e.run.Code}, "")
				job.Sight = runner.Outlived
				return job, runner.Proof{Looks: runner.Fact, For: gone, Why: "its command has ended, and Slurm shows the job as running"}
			}
			job.Sight, job.Reason = alive, pendingReason(q)
			return job, runner.Proof{}
		}
		if q.State == "PREEMPTED" {
			first = runner.Proof{Looks: saved, Why: "the job was preempted"}
		}
	}
	if a := e.account; a != nil && !e.earlier(a) {
		if s, ok := state(a.State); ok && s.Final() {
			if e.mayGoOn(a) {
				first = runner.Proof{Looks: runner.Fact, Why: "accounting shows the job as " + a.State + ", and squeue does not show it"}
			}
			next := e.vanished
			if !e.dropped() {
				next = func(job runner.Job) (runner.Job, runner.Proof) { return e.over(job, a.State, a.FirstFailure(), a.By) }
			}
			job, proof := next(job)
			return job, first.And(proof)
		}
	}
	if q := e.queue; q != nil {
		s, ok := state(q.State)
		if !ok || !s.Final() {
			job.Sight, job.Reason = runner.Unclear, fmt.Sprintf("squeue shows the unknown state %q", q.State)
			return job, runner.Proof{}
		}
		failure := q.Exit
		if failure == (slurm.Exit{}) {
			failure = q.Derived
		}
		job, proof := e.over(job, q.State, failure, "")
		return job, first.And(proof)
	}
	return e.vanished(job)
}

// claim says which job counts.
func (e evidence) claim() runner.Claim {
	switch {
	case e.strange:
		return runner.Strange
	case e.instead == "":
		return runner.Recorded
	case e.packed != nil && isTicket(e.instead):
		return runner.Renamed
	}
	return runner.Other
}

// earlier reports whether a record is of a start before the one that squeue shows: it had ended when
// that began.
func (e evidence) earlier(a *slurm.Record) bool {
	return e.queue != nil && a.End != 0 && a.End < e.queue.Start
}

// mayGoOn reports whether Slurm may be about to requeue a job although accounting shows the end of a
// start: accounting lags, and one query proves nothing. A command that has ended by itself is not run
// again.
func (e evidence) mayGoOn(a *slurm.Record) bool {
	return (states[a.State].is(requeue) || e.dropped()) && e.queue == nil && e.journal && e.run.Begun && !e.run.Ended
}

// dropped reports whether a controller that began without the jobs of the last one has forgotten the job: accounting then
// shows that the job was cancelled, and by nobody.
func (e evidence) dropped() bool {
	return e.queue == nil && e.account != nil && e.account.State == "CANCELLED" && e.account.By == "" && !e.run.Ended
}

// notBegun reports whether the job has not run the command, as far as this host can see.
func (e evidence) notBegun() bool {
	return e.journal && !e.ref.Lost && !e.run.Begun && !e.elsewhere()
}

// elsewhere reports whether another job runs the task.
func (e evidence) elsewhere() bool { return e.owner != "" && e.owner != e.ref.Job }

// over is what is shown of a job that has ended according to Slurm.
func (e evidence) over(job runner.Job, slurmState string, failure slurm.Exit, by string) (runner.Job, runner.Proof) {
	m := states[slurmState]
	after := m.is(later) || unwritable(failure) // of a later start
	switch slurmState {
	case "FAILED": // a different exit code than that of the command is from another start, or steps are missing
		after = after || failure.Signal == 0 && (failure.Code == 0 || failure.Code != e.run.Code)
	case "COMPLETED":
		after = failure == (slurm.Exit{}) && e.run.Code != 0
	}
	if after && e.run.Ended {
		done := ended(job, "COMPLETED", slurm.Exit{Code: e.run.Code}, "")
		if slurmState == "CANCELLED" {
			done.Sight = runner.Cancelled
		}
		if e.run.Code == killed || e.run.Code == terminated {
			done.Cause = m.cause // the script could not tell this from its own failure
		}
		return done, runner.Proof{}
	}
	if slurmState == "FAILED" && failure == (slurm.Exit{}) && e.run.Over() {
		failure.Code = e.run.Code // a listing may lack some steps
	}
	done := ended(job, slurmState, failure, by)
	var proof runner.Proof
	switch {
	case done.State == task.Completed && e.interrupted():
		done.State, done.Reason, done.Cause = task.Error, record.Interrupted, need.Lost
	case unwritable(failure) && !e.elsewhere():
		// A controller that was killed may have the job in its queue again, whatever accounting says, and
		// run it by now: several queries must show that squeue does not have it. If squeue shows the end,
		// the controller has saved it when it is shown again after some time.
		proof = runner.Proof{Looks: saved, Why: "the job could not begin"}
		if e.queue == nil {
			proof = runner.Proof{Looks: runner.Fact, Why: "accounting says that the job could not begin, and squeue does not show it"}
		}
		// The last start did not begin. An earlier one, whose journal exists, was cut short, and
		// Slurm has requeued the job as it should; even if something is lost, there was no other
		// start.
		if done.Sight != runner.Cancelled && e.journal && !e.run.Ended && (!e.ref.Lost || e.queue != nil && e.queue.Restarts == 0) {
			done.Sight = runner.Unbegun
		}
	case slurmState == "FAILED" && failure.Signal == 9 && e.journal && !e.ref.Lost && e.run.Begun && !e.run.Over():
		// If only the command is killed, the job script remains and records that.
		done.State, done.Reason, done.Cause = task.Error, "the job was killed while its command ran", need.Lost
	case !e.notBegun():
	case m.is(early):
		// Another host's file system may show later what the script has written.
		done.State, done.Sight = task.Error, runner.Unbegun
		done.Reason = "the job has ended before it began the command: " + done.Reason
		proof = runner.Proof{Looks: runner.Fact, Why: "the job has ended, and there is no sign that it began"}
	}
	return done, proof
}

// interrupted reports whether the command has ended with exit code 0 after the job was asked to end, in the
// last start that is known.
func (e evidence) interrupted() bool {
	return e.run.Cut && e.run.Closed && e.run.Code == 0 && (e.queue == nil || int(e.queue.Restarts) == e.run.Restart)
}

// alive is what squeue shows of a job that has not ended; unclear if it has, or its state is unknown.
func (e evidence) alive() runner.Sight {
	q := e.queue
	switch s, _ := state(q.State); {
	case s == task.Pending, q.State == "SUSPENDED" && (q.Start == 0 || q.Start > e.now.Unix()):
		return runner.Waits
	case s == task.Running, q.State == "SUSPENDED":
		return runner.Runs
	}
	return runner.Unclear
}

// vanished is what is shown of a job that squeue does not show and that has not ended according to accounting.
func (e evidence) vanished(job runner.Job) (runner.Job, runner.Proof) {
	const why = "squeue does not show the job, and accounting has no record of its end"
	absent := runner.Proof{
		Looks: runner.Fact, For: gone, Why: why,
		Unaccounted: e.account == nil && e.books == answered, Never: e.account == nil && e.books == silent,
	}
	if e.dropped() {
		absent.For = 0
	}
	job.Sight, job.State = runner.Ended, task.Error
	switch waits := e.notBegun() && e.owner == ""; {
	case e.run.Ended && e.books != answered && e.run.Closed:
		// Even if Slurm requeues the job, the command is not run again.
		return ended(job, "COMPLETED", slurm.Exit{Code: e.run.Code}, ""), runner.Proof{}
	case e.run.Ended:
		return ended(job, "COMPLETED", slurm.Exit{Code: e.run.Code}, ""), runner.Proof{Looks: saved + 1, For: lag, Why: why}
	case e.run.Cut && !e.run.Closed:
		// A controller that has forgotten a job kills it, its command first.
		job.Cause, job.Reason = need.Lost, "the job was killed while its command ran, and is gone from Slurm"
	case e.run.Cut:
		// The job was asked to end by its user, or by Slurm, which was to requeue it and has
		// forgotten it: the command has not failed by itself.
		job.Reason = fmt.Sprintf(
			"the command ended with exit code %d after the job was asked to end, and the job is gone from Slurm", e.run.Code)
	case waits && e.siblings && e.account == nil && !absent.Never:
		// Slurm keeps nothing of an element that is cancelled while pending. An element that has
		// ended in another way is in accounting, and what Slurm forgets is always the whole array.
		absent.For = lag
		job.Sight, job.Reason = runner.Cancelled, states["CANCELLED"].why+", while it waited"
	case waits && (e.account == nil || e.dropped() || e.books == answered && e.account.State == "PENDING" && !e.siblings):
		// A second job does no harm where the first one begins after all, as one of them becomes the owner.
		absent = runner.Proof{Looks: runner.Fact, For: gone, Why: why}
		switch {
		case e.dropped():
			absent = runner.Proof{}
		case e.books == answered && !e.siblings:
			absent = runner.Proof{Looks: saved, Why: why}
		}
		job.Sight, job.Reason = runner.Unbegun, "Slurm has forgotten the job before it began"
	case e.dropped() && e.journal:
		job.Cause, job.Reason = need.Lost, "the controller of Slurm has forgotten the job while its command ran"
	case e.journal:
		if e.account != nil {
			absent.For = runaway
		}
		job.Reason = "the job is gone without a trace"
	default:
		absent.Never = true
	}
	return job, absent
}

// unwritable reports whether an exit is the one with which Slurm reports that a node could not create
// the output file or change to the directory: no signal has this number.
func unwritable(e slurm.Exit) bool { return e.Signal == 53 }

// ended returns a job that has ended in a state of Slurm, with the first nonzero exit of its steps.
func ended(job runner.Job, slurmState string, failure slurm.Exit, by string) runner.Job {
	m := states[slurmState]
	job.Sight, job.State, job.ExitCode = runner.Ended, m.state, failure.Status()
	switch slurmState {
	case "COMPLETED", "FAILED":
		if unwritable(failure) {
			job.State = task.Error
			job.Reason =
				"Slurm could not begin the job (0:53), mostly because its node cannot write to the task's directory: is data_dir on a file system that all nodes have?"
			return job
		}
		if failure != (slurm.Exit{}) {
			job.State = task.Failed
			job.Reason = fmt.Sprintf("exit code %d", failure.Code)
			if failure.Signal != 0 {
				job.Reason = fmt.Sprintf("ended by signal %d", failure.Signal)
			}
		}
		if job.State == task.Failed && job.ExitCode == 0 {
			job.Reason, job.ExitCode = "Slurm says that the job failed", 1
		}
		return job
	case "CANCELLED":
		job.Sight = runner.Cancelled
	}
	job.Reason, job.Cause = m.why, m.cause
	if by != "" && by != "0" && job.Sight == runner.Cancelled {
		job.Reason += " (by user " + by + ")"
	}
	return job
}

// pendingReason explains why a job does not run that has not ended; "" if it runs.
func pendingReason(q *slurm.Job) string {
	switch m := states[q.State]; {
	case q.State == "PENDING":
	case m.is(shown):
		return strings.Replace(m.why, "%s", q.Number(), 1) + " (" + q.State + ")"
	default:
		return m.why
	}
	if q.Reason == "" {
		return ""
	}
	if codes := slurm.ReasonCodes(q.Reason); len(codes) > 1 {
		return fmt.Sprintf("elements of its array wait for different things (%s)", strings.Join(codes, ", "))
	}
	if plain := slurm.ExplainReason(q.Reason).Plain; plain != q.Reason {
		return fmt.Sprintf("%s (%s)", plain, q.Reason)
	}
	return q.Reason
}
