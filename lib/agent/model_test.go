package agent

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/ponos-tools/ponos/lib/runner"
	slurmrunner "github.com/ponos-tools/ponos/lib/runner/slurm"
	"github.com/ponos-tools/ponos/lib/slurm"
	"github.com/ponos-tools/ponos/lib/task"
)

// A small world of the agent on Slurm, of which every interleaving is explored: two tasks,
// two processes that start tasks from the same state directory and do not see each other's
// locks, as on NFS, turns of ponos-poll, and jobs that Slurm may list late, forget, begin
// again with the same restart count or the next one, and kill. The decisions are the real
// ones, decide and slurm.Judge; the job script is protocol.sh, step by step.

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
	executes        // "begun" is in the journal, and the command runs
	executed        // the command has ended, and the journal does not say so yet
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
	Asked   bool // the job was asked to end
}

// modelTask is what the state directory, the queue and the world have of a task.
type modelTask struct {
	Owner    int8 // number of a job, from 1
	Intent   bool
	Job      int8 // recorded; from 1
	Looks    int8 // of the absence of the job
	Tries    int8
	Reported int8 // 0 pending, 1 running
	Final    int8 // 0 not yet, 1 completed, 2 error: did not begin, 3 error: gone
	Ended    int8 // runs of the command of which the end was noted
}

type journal struct{ Begun, Ended, Cut bool }

type modelStarter struct{ Task, Step int8 } // Step: 0 free, 1 has looked and will submit, 2 has submitted and will record
type starterJob struct{ Job int8 }

type world struct {
	Tasks    [modelTasks]modelTask
	Jobs     [modelJobs]modelJob
	Journals [modelJobs][modelRuns]journal
	Starters [modelStarters]modelStarter
	Made     [modelStarters]starterJob
	Faults   int8
}

var modelStart = time.Date(2026, 11, 20, 18, 0, 0, 0, time.UTC)

// modelMove is one step of somebody. A fault does not have to happen.
type modelMove struct {
	name  string
	fault bool
	next  world
}

func (w world) moves() []modelMove {
	var all []modelMove
	add := func(fault bool, next world, format string, args ...any) {
		if next != w {
			all = append(all, modelMove{fmt.Sprintf(format, args...), fault, next})
		}
	}
	for i := range w.Starters {
		w.starter(i, add)
	}
	for t := range w.Tasks {
		if w.Tasks[t].Job != 0 && w.Tasks[t].Final == 0 {
			next, what := w.turn(t)
			add(false, next, "a turn sees task %d: %s", t, what)
		}
	}
	for j := range w.Jobs {
		w.slurm(j, add)
		for r := range w.Jobs[j].Steps {
			w.script(j, r, add)
		}
	}
	return all
}

// starter is ponos-start: look, submit, record; it may be killed between two of them.
func (w world) starter(i int, add func(bool, world, string, ...any)) {
	s := w.Starters[i]
	switch s.Step {
	case 0:
		for t := range w.Tasks {
			if w.Tasks[t].Job != 0 || w.Tasks[t].Final != 0 {
				continue
			}
			next := w
			next.Tasks[t].Intent = true
			for j, job := range w.Jobs {
				if int(job.Task) == t && job.listed() && (job.State == pending || job.State == running) {
					next.Tasks[t].Job, next.Tasks[t].Looks = int8(j+1), 0
					add(false, next, "starter %d adopts job %d of task %d", i, j, t)
					return
				}
			}
			next.Starters[i] = modelStarter{int8(t), 1}
			add(false, next, "starter %d sees no job of task %d", i, t)
		}
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
		next := w
		next.Tasks[s.Task].Job, next.Tasks[s.Task].Looks = w.Made[i].Job, 0
		next.Starters[i], next.Made[i] = modelStarter{}, starterJob{}
		add(false, next, "starter %d records job %d", i, w.Made[i].Job-1)
	}
}

func (w world) fault(next world, add func(bool, world, string, ...any), format string, args ...any) {
	if w.Faults == 0 {
		return
	}
	next.Faults--
	add(true, next, format, args...)
}

func (j modelJob) listed() bool { return j.State != none && j.State != unknownJob && j.Hidden == 0 }

// slurm is what Slurm does with a job.
func (w world) slurm(j int, add func(bool, world, string, ...any)) {
	job := w.Jobs[j]
	next := w
	switch job.State {
	case pending:
		run := int(job.Restart)
		if run < modelRuns && (job.Steps[run] == idle || job.Steps[run] == leaves) {
			next.Jobs[j].State, next.Jobs[j].Steps[run], next.Jobs[j].Asked = running, begins, false
			add(false, next, "Slurm begins job %d", j)
		}
		next = w
		next.Jobs[j].State = unknownJob
		w.fault(next, add, "Slurm forgets job %d before it began", j)
	case running:
		run := int(job.Restart)
		if job.Steps[run] == leaves {
			next.Jobs[j].State = over
			add(false, next, "job %d is over", j)
			return
		}
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

// script is one step of protocol.sh.
func (w world) script(j, run int, add func(bool, world, string, ...any)) {
	job, next := w.Jobs[j], w
	t := int(job.Task)
	step := &next.Jobs[j].Steps[run]
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
		*step = executes
		next.Journals[j][run] = journal{Begun: true}
		add(false, next, "job %d begins the command of task %d", j, t)
	case executes:
		// A job that is killed between this step and the next one has left no trace of its
		// end: nothing but the command itself could know of it.
		*step = executed
		add(false, next, "the command of task %d ends in job %d", t, j)
	case executed:
		*step = leaves
		next.Journals[j][run].Ended = true
		next.Tasks[t].Ended++
		add(false, next, "job %d notes the end of task %d", j, t)
	}
}

// turn is a turn of ponos-poll for one task with a job.
func (w world) turn(t int) (world, string) {
	next, k := w, w.Tasks[t]
	sight := slurmrunner.Sight{NoAccounting: true, Now: modelStart}
	sight.Ref = runner.Ref{Task: "a", Job: strconv.Itoa(int(k.Job))}
	if k.Looks > 0 { // a turn in three minutes
		since := modelStart.Add(-time.Duration(k.Looks) * 3 * time.Minute)
		sight.Ref.Missing = task.Absence{Since: since, Last: modelStart.Add(-3 * time.Minute), Looks: int(k.Looks)}
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
			sight.Queue = append(sight.Queue, slurm.Job{
				ID: uint64(j + 1), State: map[int8]string{pending: "PENDING", running: "RUNNING", over: "COMPLETED"}[job.State], Restarts: uint64(job.Restart),
			})
		}
	}
	if k.Owner != 0 {
		sight.Owner = strconv.Itoa(int(k.Owner))
	}
	sight.Run = func(id string) (last runner.Run) {
		j, err := strconv.Atoi(id)
		if err != nil {
			panic(err)
		}
		for r, n := range w.Journals[j-1] {
			if n.Begun && !last.Ended {
				last = runner.Run{Restart: r, Begun: true, Ended: n.Ended, Cut: n.Cut}
			}
		}
		return last
	}
	job := slurmrunner.Judge(sight)
	if job.Instead != "" {
		id, err := strconv.Atoi(job.ID)
		if err != nil {
			panic(err)
		}
		next.Tasks[t].Job, next.Tasks[t].Looks = int8(id), 4
		return next, "job " + job.ID + " counts"
	}
	if job.State.Final() && k.Owner != 0 && k.Owner != k.Job { // settleOne
		next.Tasks[t].Job, next.Tasks[t].Looks = k.Owner, 4
		return next, "the owner is another job"
	}
	reported := task.State("")
	if k.Reported == 1 {
		reported = task.Running
	}
	s := decide(Known{Missing: sight.Ref.Missing, Reported: reported}, job, false, modelStart)
	// Of the looks in a row that do not show the job, the first and the one that makes it
	// a fact are told apart.
	if next.Tasks[t].Looks = int8(s.missing.Looks); s.missing.Looks > 0 {
		next.Tasks[t].Looks = int8(max(4, min(s.missing.Looks, 5)))
	}
	switch {
	case s.again:
		next.Tasks[t].Job, next.Tasks[t].Looks = 0, 0
		if next.Tasks[t].Tries++; k.Owner == k.Job {
			next.Tasks[t].Owner = 0
		}
		return next, "it is submitted again"
	case s.end && s.report.State == task.Completed:
		next.Tasks[t].Final = 1
	case s.end:
		next.Tasks[t].Final = 3
	case s.report.State == task.Running:
		next.Tasks[t].Reported = 1
	case s.report.State == task.Pending:
		next.Tasks[t].Reported = 0
	}
	return next, string(job.State) + job.Reason
}

// broken says which promise a world breaks, or "".
func (w world) broken() string {
	for t, k := range w.Tasks {
		if k.Ended > 1 {
			return fmt.Sprintf("task %d: a command that had ended was run again", t)
		}
		if k.Final == 1 && k.Ended != 1 {
			return fmt.Sprintf("task %d is completed, and its command has not ended", t)
		}
		at := 0
		for _, job := range w.Jobs {
			for _, step := range job.Steps {
				if int(job.Task) == t && job.State != none && step == executes {
					at++
				}
			}
		}
		if at > 1 {
			return fmt.Sprintf("task %d: its command runs twice at a time", t)
		}
		if k.Final == 3 && at > 0 {
			return fmt.Sprintf("task %d has ended as an error while its command runs", t)
		}
	}
	return ""
}

func TestEveryInterleaving(t *testing.T) {
	for _, bound := range []struct{ tasks, faults, jobs int }{{1, 2, 3}, {1, 3, 2}, {2, 1, 2}} {
		explore(t, bound.tasks, int8(bound.faults), bound.jobs)
	}
}

// explore goes through every interleaving with so many tasks, faults and jobs.
func explore(t *testing.T, tasks int, faults int8, jobs int) {
	t.Helper()
	began := time.Now()
	first := world{Faults: faults}
	for i := tasks; i < modelTasks; i++ {
		first.Tasks[i] = modelTask{Final: 1, Ended: 1}
	}
	for i := jobs; i < modelJobs; i++ {
		first.Jobs[i] = modelJob{State: unknownJob, Task: modelTasks}
	}
	type from struct {
		before world
		move   string
	}
	seen := map[world]from{first: {}}
	queue := []world{first}
	path := func(w world) (text string) {
		for w != first {
			f := seen[w]
			text = "\n  " + f.move + text
			w = f.before
		}
		return text
	}
	ends, moves := 0, 0
	for len(queue) > 0 {
		w := queue[len(queue)-1]
		queue = queue[:len(queue)-1]
		if what := w.broken(); what != "" {
			t.Fatalf("%s:%s", what, path(w))
		}
		stuck := true
		for _, m := range w.moves() {
			moves++
			stuck = stuck && m.fault
			next := m.next.ordered()
			if _, ok := seen[next]; !ok {
				seen[next] = from{w, m.name}
				queue = append(queue, next)
			}
		}
		if !stuck {
			continue
		}
		ends++
		for i, k := range w.Tasks {
			if k.Final == 0 && w.room() {
				t.Fatalf("task %d is lost: nothing is left to happen:%s", i, path(w))
			}
		}
	}
	t.Logf("%d tasks, %d faults, %d jobs: %d states, %d moves, %d ends, in %v", tasks, faults, jobs, len(seen), moves, ends, time.Since(began).Round(time.Millisecond))
}

// ordered is the same world with the starters in a fixed order: which is which is all
// the same.
func (w world) ordered() world {
	less := func(a, b int) bool {
		x, y := w.Starters[a], w.Starters[b]
		return x.Task < y.Task || x.Task == y.Task && (x.Step < y.Step || x.Step == y.Step && w.Made[a].Job < w.Made[b].Job)
	}
	if less(1, 0) {
		w.Starters[0], w.Starters[1] = w.Starters[1], w.Starters[0]
		w.Made[0], w.Made[1] = w.Made[1], w.Made[0]
	}
	return w
}

// room reports whether the small world has room for another job.
func (w world) room() bool {
	for _, job := range w.Jobs {
		if job.State == none {
			return true
		}
	}
	return false
}
