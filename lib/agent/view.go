package agent

import (
	"errors"
	"io/fs"
	"slices"
	"strings"
	"time"

	"github.com/ponos-tools/ponos/lib/agent/code/environment"
	"github.com/ponos-tools/ponos/lib/agent/record"
	"github.com/ponos-tools/ponos/lib/base/fault"
	"github.com/ponos-tools/ponos/lib/task"
)

// TaskView is what the agent knows of a task that has not ended.
type TaskView struct {
	ID       task.ID    `json:"id"`
	Slug     string     `json:"slug"`
	State    task.State `json:"state"` // "preparing", "waiting", pending, running, "unknown" or "reassigned"
	Job      string     `json:"job"`   // the runner's name of it; "" without one
	Node     string     `json:"node"`  // where the last start of the job began; "" if none did
	Since    time.Time  `json:"since"` // of the state; zero: unknown
	Attempts int        `json:"attempts"`
	Problem  string     `json:"last_error"`
}

// HeldView is a kind of task whose submissions are held, or a host that code is fetched from and that is away.
type HeldView struct {
	Kind   string    `json:"kind"` // cpu, gpu, or "host NAME": no code is fetched from it
	Reason string    `json:"reason"`
	Since  time.Time `json:"since"`
	Next   time.Time `json:"next_try"`
}

// View is what an agent knows, read from its state directory without any lock: the agent may take
// turns meanwhile. It asks neither the queue nor the scheduler.
type View struct {
	Tasks []TaskView `json:"tasks"` // the oldest first
	Held  []HeldView `json:"held"`
}

// ReadView reads what the agent with a state directory knows. The directory must exist.
func ReadView(dir string) (View, error) {
	s := &Store{Dir: dir}
	v := View{Tasks: []TaskView{}, Held: []HeldView{}}
	if _, err := s.identify(); err != nil {
		return v, err
	}
	tracked, index, _, err := s.loadTracked()
	if err != nil {
		return v, err
	}
	ids, err := s.IDs()
	if err != nil {
		return v, err
	}
	slices.Sort(ids) // ids of a spool grow with time
	for _, id := range ids {
		known, err := s.Task(id).Read()
		if errors.Is(err, fs.ErrNotExist) {
			continue // it has ended meanwhile, or was never begun
		}
		t := TaskView{
			ID: id, Slug: task.Clean(known.Label), State: "preparing", Since: known.Intent,
			Job: known.Job, Attempts: known.Attempt, Problem: task.Clean(known.Problem),
		}
		switch i, ok := index[id]; {
		case err != nil:
			t.State, t.Problem = "unknown", task.Clean(fault.Text(err))
		case known.Job == "" && known.Preparing != nil:
			t.Since, t.Problem = known.Preparing.Since, task.Clean(known.preparing())
		case known.Job == "" && !known.Retry.IsZero():
			t.State = "waiting"
		case known.Job == "":
		case known.Reassigned:
			t.State = "reassigned"
		default:
			t.State, t.Since = task.Pending, known.Submitted
			if ok && tracked[i].Job == known.Job {
				t.fill(tracked[i])
			}
			t.Node = task.Clean(record.Node(s.Task(id).Path, known.Job))
		}
		v.Tasks = append(v.Tasks, t)
	}
	for kind, b := range s.readBreakers() {
		if b.held() && (!b.Outside || strings.HasPrefix(kind, environment.HostPrefix)) {
			v.Held = append(v.Held, HeldView{kind, b.Reason, b.Since, b.Next})
		}
	}
	slices.SortFunc(v.Held, func(a, b HeldView) int { return strings.Compare(a.Kind, b.Kind) })
	return v, nil
}

// fill adds what was found out about the task's job.
func (t *TaskView) fill(k Tracked) {
	if k.Reported != "" {
		t.State, t.Since = k.Reported, k.Since
	}
	switch {
	case !k.Missing.IsZero():
		t.State, t.Since, t.Problem = "unknown", k.Missing.Since, "the runner has no trace of the job"
	case !k.Absent.IsZero():
		t.Problem = "the queue does not have the task"
	}
}
