//go:build !race

package agent

import (
	"slices"
	"strconv"
	"time"

	"github.com/ponos-tools/ponos/lib/agent/record"
	slurmrunner "github.com/ponos-tools/ponos/lib/agent/runner/slurm"
	"github.com/ponos-tools/ponos/lib/slurm"
	"github.com/ponos-tools/ponos/lib/task"
	"github.com/ponos-tools/ponos/lib/task/runner"
)

// A small world of the agent on Slurm, of which every interleaving is explored: two tasks,
// two processes that start tasks from the same state directory and do not see each other's
// locks, as on NFS, turns of ponos-poll, and jobs that Slurm may list late, forget, begin
// again with the same restart count or the next one, ask to end, and kill, or cannot begin;
// accounting that lags, has nothing of a job, or shows it without its exit codes; and
// directories of tasks that are away for a while. The decisions are the real ones, the table and
// slurm.Judge; the job is record.Start, in coarse steps.

const (
	modelTasks, modelStarters = 2, 2
	modelJobs                 = 3 // of all tasks together
	modelRuns                 = 2 // starts of a job that can be told apart
)

// Steps of the job script.
const (
	idle     = iota // no such start
	begins          // the script has begun, and not taken the task yet
	owns            // it has made or found the owner's link to be its own
	noted           // "begun" is in the journal
	forks           // the script has not been asked to end so far, and is about to fork
	executes        // the command runs
	executed        // it has ended, and the journal cannot say so yet
	fails           // the journal says that it has failed; its own request to end may still come
	leaves          // the script has ended
)

// States of a job at Slurm.
const (
	none = iota
	pending
	running
	over
	unknownJob
)

// modelJob is a job. Its starts are scripts that may live at the same time: when Slurm
// has forgotten that the job had begun.
type modelJob struct {
	Task    int8
	State   int8
	Hidden  int8 // looks at which squeue does not show the job yet
	Exit    int8 // of the script: 0, 1 = not begun
	Restart int8
	Steps   [modelRuns]int8
	Asked   bool // the script was asked to end
	Heard   bool // the command was
	Cancel  bool // it was to end for good, and not to be begun again
	Unable  bool // it is over because its node could not begin it
	Shown   int8 // turns that have seen it as over: after the second one, slurmctld has saved that
	Account int8 // what accounting shows of it, by the numbers of accountStates
	Element bool // of an array
	Erased  bool // it was cancelled while it waited, of which Slurm keeps nothing
}

// accountStates are the states in which accounting shows a job; nothing, to begin with.
var accountStates = []string{"", "PENDING", "RUNNING", "COMPLETED", "FAILED", "CANCELLED", "FAILED"}

// cannotBegin is the number of the state that comes with the exit 0:53.
const cannotBegin = 6

// modelTask is what the state directory, the queue and the world have of a task.
type modelTask struct {
	Owner    int8 // number of a job, from 1
	Intent   bool
	Job      int8 // recorded; from 1
	Misses   int8 // of the absence of the job
	Seen     bool // accounting has shown it in one of them
	Tries    int8
	Reported int8 // 0 pending, 1 running
	Final    int8 // 0 not yet, 1 completed, 2 failed, 3 error
	Ended    int8 // runs of the command that came to an end by themselves
	Failed   bool // the last of them failed
	Away     bool // the directory is not there for a while
}

type journal struct {
	Begun, Ended, Cut, Closed bool
	Code                      int8
}

type modelStarter struct{ Task, Step int8 } // Step: 0 free, 1 has looked and will submit, 2 has submitted and will record

type starterJob struct{ Job int8 }

type world struct {
	Tasks    [modelTasks]modelTask
	Jobs     [modelJobs]modelJob
	Journals [modelJobs][modelRuns]journal
	Starters [modelStarters]modelStarter
	Made     [modelStarters]starterJob
	Faults   int8
	Accounts bool // the cluster keeps accounts
	Without  modelWithout
}

var modelStart = time.Date(2026, 11, 20, 18, 0, 0, 0, time.UTC)

// modelAdd is told of a step of somebody: whether it is a fault, which does not have to
// happen, what the world is then, and what to call it.
type modelAdd func(fault bool, next world, format string, args ...any)

func (w world) moves(told modelAdd) {
	add := func(fault bool, next world, format string, args ...any) {
		if next != w {
			told(fault, next.ordered(), format, args...)
		}
	}
	for i := range w.Starters {
		w.starter(i, add)
	}
	for t := range w.Tasks {
		w.directory(t, add)
		if w.Tasks[t].Job != 0 && w.Tasks[t].Final == 0 && !w.Tasks[t].Away {
			next, what := w.turn(t, "whole")
			add(false, next, "a turn sees task %d: %s", t, what)
			if w.Accounts {
				for _, sacct := range []string{"empty", "without exit codes"} {
					next, what := w.turn(t, sacct)
					add(false, next, "a turn sees task %d, with sacct %s: %s", t, sacct, what)
				}
			}
		}
	}
	for j := range w.Jobs {
		w.slurm(j, add)
		if next := w; w.Accounts && w.Jobs[j].State != unknownJob {
			next.Jobs[j].Account = w.accounted(j)
			add(false, next, "accounting learns of job %d", j)
		}
		for r := range w.Jobs[j].Steps {
			w.script(j, r, add)
		}
	}
}

// starter is ponos-start: look, submit, record; it may be killed between two of them.
func (w world) starter(i int, add modelAdd) {
	s := w.Starters[i]
	switch s.Step {
	case 0:
		for t := range w.Tasks {
			if w.Tasks[t].Job != 0 || w.Tasks[t].Final != 0 || w.Tasks[t].Away {
				continue
			}
			next := w
			next.Tasks[t].Intent = true
			for j, job := range w.Jobs {
				if int(job.Task) == t && job.listed() && (job.State == pending || job.State == running) {
					next.Tasks[t].Job, next.Tasks[t].Misses = int8(j+1), 0
					add(false, next, "starter %d adopts job %d of task %d", i, j, t)
					return
				}
			}
			next.Starters[i] = modelStarter{int8(t), 1}
			add(false, next, "starter %d sees no job of task %d", i, t)
		}
		w.array(i, add)
	case 1:
		for j, job := range w.Jobs {
			if job.State != none {
				continue
			}
			next := w
			next.Jobs[j] = modelJob{Task: s.Task, State: pending}
			next.Starters[i].Step, next.Made[i].Job = 2, int8(j+1)
			add(false, next, "starter %d submits job %d of task %d", i, j, s.Task)
			next.Starters[i], next.Made[i] = modelStarter{}, starterJob{}
			w.fault(next, add, "starter %d is killed right after it submitted job %d", i, j)
			next.Jobs[j].Hidden = 2
			w.fault(next, add, "the same, and job %d is listed late", j)
			return
		}
		next := w // no more jobs in this small world
		next.Starters[i] = modelStarter{}
		add(false, next, "starter %d gives up", i)
	case 2:
		if w.Tasks[s.Task].Away {
			return // it cannot write that down; a later look finds the job
		}
		next := w
		next.Tasks[s.Task].Job, next.Tasks[s.Task].Misses = w.Made[i].Job, 0
		next.Starters[i], next.Made[i] = modelStarter{}, starterJob{}
		add(false, next, "starter %d records job %d", i, w.Made[i].Job-1)
	}
}

// array is a starter that submits both tasks as one job array. Once that is done, the elements
// are jobs of their own; only its death right after it leaves both at once without a record.
func (w world) array(i int, add modelAdd) {
	next, made := w, [modelTasks]int8{}
	for t, k := range w.Tasks {
		if k.Job != 0 || k.Final != 0 || k.Away || k.Intent {
			return // what may have a job is started by itself
		}
		next.Tasks[t].Intent = true
		for j, job := range next.Jobs {
			if job.State == none && made[t] == 0 {
				next.Jobs[j] = modelJob{Task: int8(t), State: pending, Element: true}
				made[t] = int8(j + 1)
			}
		}
		if made[t] == 0 {
			return
		}
	}
	dead := next
	w.fault(dead, add, "starter %d is killed right after it submitted an array", i)
	for j := range dead.Jobs {
		if dead.Jobs[j].Element {
			dead.Jobs[j].Hidden = 2
		}
	}
	w.fault(dead, add, "the same, and the array is listed late")
	for t := range next.Tasks {
		next.Tasks[t].Job, next.Tasks[t].Misses = made[t], 0
	}
	add(false, next, "starter %d submits an array and records its elements", i)
}

func (w world) fault(next world, add modelAdd, format string, args ...any) {
	if w.Faults == 0 {
		return
	}
	next.Faults--
	add(true, next, format, args...)
}

func (j modelJob) listed() bool { return j.State != none && j.State != unknownJob && j.Hidden == 0 }

// slurm is what Slurm does with a job.
func (w world) slurm(j int, add modelAdd) {
	job := w.Jobs[j]
	next := w
	switch job.State {
	case pending:
		run := int(job.Restart)
		if run < modelRuns && (job.Steps[run] == idle || job.Steps[run] == leaves) {
			next.Jobs[j].State, next.Jobs[j].Steps[run], next.Jobs[j].Asked = running, begins, false
			next.Jobs[j].Heard = false
			add(false, next, "Slurm begins job %d", j)
		}
		next = w
		next.Jobs[j].State = unknownJob
		w.fault(next, add, "Slurm forgets job %d before it began", j)
		if job.Element && job.Restart == 0 {
			next.Jobs[j].Erased = true
			w.fault(next, add, "job %d, an element of an array, is cancelled while it waits", j)
		}
		next = w
		next.Jobs[j].State, next.Jobs[j].Unable = over, true
		w.fault(next, add, "a node cannot begin job %d", j)
	case running:
		run := int(job.Restart)
		if job.Steps[run] == leaves {
			if next.Jobs[j].State = over; job.Asked && !job.Cancel && run+1 < modelRuns {
				next.Jobs[j].State, next.Jobs[j].Restart = pending, job.Restart+1
			}
			add(false, next, "job %d is over", j)
			return
		}
		if job.Asked {
			next.kill(j, run)
			add(false, next, "job %d, which was asked to end, is killed", j)
		} else {
			// The command gets the signal too, if there is one.
			next.Jobs[j].Asked, next.Jobs[j].Heard = true, job.Steps[run] == executes
			if run+1 < modelRuns {
				w.fault(next, add, "job %d is asked to end, and requeued", j)
			}
			next.Jobs[j].Cancel = true
			w.fault(next, add, "job %d is cancelled", j)
		}
		next = w
		// Requeued: its processes are asked to end and killed.
		if run+1 < modelRuns {
			next.Jobs[j].State, next.Jobs[j].Restart = pending, job.Restart+1
			next.kill(j, run)
			w.fault(next, add, "job %d is requeued", j)
		}
		// The controller was killed, and does not know that the job had begun. Slurm ends
		// the processes when the node registers; the script waits for that.
		next = w
		next.Jobs[j].State = pending
		next.kill(j, run)
		w.fault(next, add, "Slurm forgets that job %d had begun", j)
		next = w
		next.Jobs[j].State = unknownJob
		next.kill(j, run)
		w.fault(next, add, "Slurm forgets job %d, which runs", j)
	case over:
		// An administrator requeues it, or a node failed before Slurm knew of the end.
		if run := int(job.Restart); run+1 < modelRuns {
			next.Jobs[j].State, next.Jobs[j].Restart = pending, job.Restart+1
			w.fault(next, add, "job %d is requeued after its end", j)
		}
		if next = w; job.Shown < 2 {
			next.Jobs[j].State = pending
			w.fault(next, add, "Slurm forgets that job %d has ended", j)
		}
		next = w
		next.Jobs[j].State = unknownJob
		w.fault(next, add, "squeue does not show job %d any more", j)
	}
}

// kill ends a start of a job wherever it is.
func (w *world) kill(j, run int) {
	if step := w.Jobs[j].Steps[run]; step != idle {
		w.Jobs[j].Steps[run] = leaves
	}
}

// directory is what becomes of the directory of a task. It goes away only while a job has
// begun and not ended: at other times nobody can do anything there, and nothing is lost.
func (w world) directory(t int, add modelAdd) {
	next := w
	if next.Tasks[t].Away = !w.Tasks[t].Away; w.Tasks[t].Away {
		add(false, next, "the directory of task %d is back", t)
		return
	}
	for _, job := range w.Jobs {
		if int(job.Task) == t && job.State == running && job.Steps[job.Restart] != leaves && w.Tasks[t].Final == 0 {
			w.fault(next, add, "the directory of task %d is away", t)
			return
		}
	}
}

// script is one step of a job.
func (w world) script(j, run int, add modelAdd) {
	job, next := w.Jobs[j], w
	t := int(job.Task)
	step, note := &next.Jobs[j].Steps[run], &next.Journals[j][run]
	switch *step {
	case begins, owns, noted:
		// What cannot be written is tried again, until the job is asked to end, or for
		// minutes. The directory of a task that is over is elsewhere.
		if w.Tasks[t].Away || w.Tasks[t].Final != 0 {
			*step = leaves
			add(false, next, "job %d gives up", j)
			return
		}
	}
	switch *step {
	case begins: // own
		switch w.Tasks[t].Owner {
		case 0, int8(j + 1):
			next.Tasks[t].Owner, *step = int8(j+1), owns
			add(false, next, "job %d owns task %d", j, t)
		default:
			*step = leaves
			add(false, next, "job %d sees another owner of task %d", j, t)
		}
	case owns: // look, then begun
		for r := range w.Journals[j] {
			if w.Journals[j][r].Ended {
				*step = leaves
				add(false, next, "job %d sees that its command has ended", j)
				return
			}
		}
		if job.Asked {
			*step = leaves
			add(false, next, "job %d was asked to end, and does not begin task %d", j, t)
			return
		}
		*step = noted
		*note = journal{Begun: true}
		add(false, next, "job %d notes that it begins the command of task %d", j, t)
	case noted: // the last look at whether it was asked to end
		*step = forks
		if job.Asked {
			*step, *note = leaves, journal{Begun: true, Cut: true, Closed: true, Code: 1}
		}
		add(false, next, "job %d looks whether it was asked to end", j)
	case forks:
		*step = executes
		next.Jobs[j].Heard = job.Asked && !w.Without.PassingOn
		add(false, next, "job %d begins the command of task %d", j, t)
	case executes:
		// The journal is open: the script notes the end wherever the directory is. A job that
		// is killed between the end and the note has left no trace of the end: nothing but
		// the command itself could know of it.
		if job.Heard {
			*step, *note = leaves, journal{Begun: true, Cut: true, Closed: true, Code: 1}
			add(false, next, "the command of task %d ends in job %d, as it was asked to", t, j)
			return
		}
		next.Tasks[t].Ended, next.Tasks[t].Failed = next.Tasks[t].Ended+1, false
		if w.Tasks[t].Away && w.Without.OpenJournal {
			*step = executed
			add(false, next, "the command of task %d ends in job %d", t, j)
			return
		}
		*step, *note = leaves, journal{Begun: true, Ended: !job.Asked, Cut: job.Asked, Closed: true}
		add(false, next, "the command of task %d ends in job %d, which is noted", t, j)
		*step, *note = fails, journal{Begun: true, Ended: true, Code: 1}
		next.Tasks[t].Failed = true
		w.fault(next, add, "the command of task %d fails in job %d, which is noted", t, j)
	case executed:
		if !w.Tasks[t].Away {
			*step, *note = leaves, journal{Begun: true, Ended: true, Closed: true}
			add(false, next, "job %d notes the end of task %d", j, t)
		}
	case fails:
		*step, *note = leaves, journal{Begun: true, Ended: true, Closed: true, Code: 1}
		if job.Asked {
			// A failure right before the request counts as the answer to it.
			*note = journal{Begun: true, Cut: true, Closed: true, Code: 1}
			if w.Tasks[t].Final == 0 {
				next.Tasks[t].Ended, next.Tasks[t].Failed = next.Tasks[t].Ended-1, false
			}
		}
		add(false, next, "job %d says how task %d ended", j, t)
	}
}

// turn is a turn of ponos-poll for one task with a job.
func (w world) turn(t int, sacct string) (world, string) {
	next, k := w, w.Tasks[t]
	sight := slurmrunner.Sight{NoAccounting: !w.Accounts, Now: modelStart}
	sight.Ref = runner.Ref{Task: "a", Job: strconv.Itoa(int(k.Job))}
	if k.Misses > 0 { // a turn in three minutes
		since := modelStart.Add(-time.Duration(k.Misses) * 3 * time.Minute)
		sight.Ref.Missing = task.Absence{Since: since, Last: modelStart.Add(-3 * time.Minute), Misses: int(k.Misses)}
		if !k.Seen {
			sight.Ref.Unaccounted = sight.Ref.Missing
		}
	}
	for j := range w.Jobs {
		job := &w.Jobs[j]
		if int(job.Task) != t || job.State == none {
			continue
		}
		if job.Hidden > 0 {
			next.Jobs[j].Hidden--
		}
		if job.listed() {
			row := slurm.Job{ID: uint64(j + 1), State: w.shows(j), Restarts: uint64(job.Restart)}
			if job.Unable {
				row.Exit.Signal = 53
			}
			if job.State == over {
				next.Jobs[j].Shown = min(job.Shown+1, 2)
			}
			sight.Queue = append(sight.Queue, row)
		}
	}
	if k.Owner != 0 {
		sight.Owner = strconv.Itoa(int(k.Owner))
	}
	number := func(id string) int {
		j, err := strconv.Atoi(id)
		if err != nil {
			panic(err)
		}
		return j
	}
	sight.Account = func(id string) *slurm.Record {
		shows := w.Jobs[number(id)-1].Account
		if shows == 0 || sacct == "empty" {
			return nil
		}
		r := slurm.Record{ID: id, State: accountStates[shows]}
		switch {
		case sacct != "whole":
		case shows == cannotBegin:
			r.Batch.Signal = 53
		case r.State == "FAILED":
			r.Batch.Code = 1
		}
		return &r
	}
	if k.Job != 0 && w.Jobs[k.Job-1].Erased {
		// Another element is still listed, perhaps.
		for _, job := range w.Jobs {
			sight.Siblings = sight.Siblings || w.Accounts && job.Element && job.listed()
		}
	}
	sight.Run = func(id string) (last record.Run) {
		j := number(id)
		for r, n := range w.Journals[j-1] {
			if n.Begun && !last.Ended {
				last = record.Run{Restart: r, Begun: true, Ended: n.Ended, Cut: n.Cut, Closed: n.Closed, Code: int(n.Code)}
			}
		}
		return last
	}
	job := slurmrunner.Judge(sight)
	known := Tracked{Ref: sight.Ref}
	x := facts{tracked, has, seenAs(&job, known.Missing.Again(modelStart).Fact()), notesOf(&job)}
	if k.Reported == 1 {
		x.notes |= told
	}
	if job.Sight.Over() && k.Owner != 0 && strconv.Itoa(int(k.Owner)) != job.ID { // settleOne
		job.ID, x.notes = strconv.Itoa(int(k.Owner)), x.notes|other
	}
	v := decide(x)
	if v == change {
		next.Tasks[t].Job, next.Tasks[t].Misses = int8(number(job.ID)), 4
		return next, "job " + job.ID + " counts"
	}
	if v == trim { // the other jobs need not be cancelled at once
		x.notes &^= spare
		v = decide(x)
	}
	missing, unaccounted := looked(known, &job, modelStart)
	next.Tasks[t].Seen = w.Accounts && missing.Misses > 0 && unaccounted.Misses < missing.Misses
	// Of the looks in a row that do not show the job, the first, the one that makes it a fact,
	// and one after an hour are told apart.
	switch misses := missing.Misses; {
	case misses > 5 && w.Accounts:
		next.Tasks[t].Misses = 30
	case misses > 0:
		next.Tasks[t].Misses = int8(max(4, min(misses, 5)))
	default:
		next.Tasks[t].Misses = 0
	}
	switch v {
	case again:
		next.Tasks[t].Job, next.Tasks[t].Misses = 0, 0
		if next.Tasks[t].Tries++; k.Owner == k.Job {
			next.Tasks[t].Owner = 0
		}
		return next, "it is submitted again"
	case cut, end:
		next.Tasks[t].Final = 3
		switch job.State {
		case task.Completed:
			next.Tasks[t].Final = 1
		case task.Failed:
			next.Tasks[t].Final = 2
		}
	case report:
		next.Tasks[t].Reported = 0
		if job.Sight == runner.Runs {
			next.Tasks[t].Reported = 1
		}
	case count, reset, follow:
	default:
		panic("in this world nobody does: " + v)
	}
	return next, string(job.Shows()) + job.Reason
}

// shows is the state in which squeue shows a job.
func (w world) shows(j int) string {
	job := w.Jobs[j]
	switch {
	case job.State == pending:
		return "PENDING"
	case job.State == running:
		return "RUNNING"
	case job.Cancel:
		return "CANCELLED"
	case job.Unable:
		return "FAILED"
	}
	for _, n := range w.Journals[j] {
		if n.Ended && n.Code == 0 {
			return "COMPLETED"
		}
	}
	return "FAILED"
}

// accounted is what accounting shows of a job that it has caught up with.
func (w world) accounted(j int) int8 {
	if w.Jobs[j].State == none {
		return 0
	}
	if w.Jobs[j].State == over && w.Jobs[j].Unable {
		return cannotBegin
	}
	return int8(slices.Index(accountStates, w.shows(j)))
}
