package spool

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/ponos-tools/ponos/lib/base/fault"
	"github.com/ponos-tools/ponos/lib/task"
	"github.com/ponos-tools/ponos/lib/task/queue"
)

// Queue is the spool as one agent sees it.
type Queue struct {
	*Spool
	Agent string // letters, digits, '-' and '_'
	// Beat is the heartbeat that this agent writes at its turns; without an agent's name in it, none
	// is written.
	Beat   queue.Beat
	beaten time.Time
	// Leaves says why this agent leaves a new task to others: it cannot run it; "": it does not. nil: it leaves none.
	Leaves func(queue.Entry) string
	others map[task.ID]string // what it has left in the last turn, and why
	behind map[task.ID]bool   // what comes after tasks that it has left
	turns  int                // since all that was left has been read
	// witness is a task of each group that has not ended, when it was last looked at.
	witness map[string]task.ID
	last    lastTurn
}

var _ queue.Queue = (*Queue)(nil)

// For returns the spool as an agent sees it, which must run as the owner of the spool.
func (s *Spool) For(agent string) (*Queue, error) {
	if _, err := task.ParseID(agent); err != nil {
		return nil, fault.Errorf(fault.Usage, "name of the agent: %w", err)
	}
	if err := CheckOwner(s.Dir); err != nil {
		return nil, err
	}
	return &Queue{Spool: s, Agent: agent}, nil
}

// Register always succeeds: a spool needs no registration.
func (q *Queue) Register(context.Context) (queue.Identity, error) {
	host, err := os.Hostname()
	return queue.Identity{Agent: q.Agent, Hostname: host}, err
}

// Actions lists the tasks that are ready to start and have no jobs, and those of this
// agent that are to be stopped. A task whose parent failed ends here.
func (q *Queue) Actions(ctx context.Context, hasJob func(task.ID) bool) ([]task.Action, error) {
	if err := q.Check(); err != nil {
		return nil, err
	}
	if err := q.Alive(); err != nil {
		return nil, err
	}
	q.last = lastTurn{done: changed(q.path(doneDir, ""))}
	actions, problems, err := q.active(hasJob)
	if err != nil {
		return nil, err
	}
	if err := q.Deliver(); err != nil { // an error here must not block the others
		problems = append(problems, err)
	}
	names, err := q.names(newDir)
	if err != nil {
		return nil, err
	}
	q.forget(names)
	waiting, groups := map[task.ID]queue.Entry{}, room{queue: q}
	for _, name := range names {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		a, err := q.fresh(name, waiting, &groups)
		if err != nil {
			// One bad file must not block all others.
			problems = append(problems, err)
		}
		if a != nil {
			actions = append(actions, *a)
		} else if err == nil {
			q.last.waits = true
		}
		q.last.newest = max(q.last.newest, name)
	}
	q.behind = q.after(waiting)
	for _, path := range cycles(waiting) {
		reason := fmt.Sprintf("the task waits for itself: %s", strings.Join(path, " after "))
		problems = append(problems, q.end(waiting[task.ID(path[0])], task.Report{State: task.Error, Reason: reason}))
	}
	return actions, errors.Join(problems...)
}

// fresh returns the action for a new task; nil: none at this time. It adds a task that waits for its
// parents to waiting.
func (q *Queue) fresh(name string, waiting map[task.ID]queue.Entry, groups *room) (*task.Action, error) {
	if id, _ := fileParts(name); q.others[id] != "" {
		return nil, nil
	}
	path := q.path(newDir, name)
	e, err := q.read(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case errors.Is(err, errBad):
		return nil, q.setAside(path, name, err)
	case err != nil:
		return nil, fault.Errorf(fault.Unavailable, "spool: %w", err)
	case e.State.Final(): // put here by hand: there is nothing to do for it
		return nil, q.end(e, task.Report{State: e.State, Reason: e.Reason, ExitCode: e.ExitCode})
	}
	ready, failed, err := q.parents(e)
	switch {
	case err != nil:
		return nil, err
	case failed != "":
		return nil, q.end(e, task.Report{State: task.Error, Reason: failed})
	case ready:
		if q.Leaves != nil {
			if why := q.Leaves(e); why != "" {
				q.others[e.ID] = leftTo + why
				return nil, nil
			}
		}
		if free, err := groups.take(e); !free || err != nil {
			return nil, err
		}
		a := action(task.Start, e)
		return &a, nil
	}
	waiting[e.ID] = e
	return nil, nil
}

// rereads is after how many turns the tasks are read again that were left to others: there may be many, for long.
const rereads = 30

// forget forgets what was left to others, if it is to be read again, or is not among the new tasks any more.
func (q *Queue) forget(names []string) {
	was := q.others
	q.others = map[task.ID]string{}
	if q.turns++; q.turns >= rereads {
		q.turns = 0
		return
	}
	for _, name := range names {
		if id, _ := fileParts(name); was[id] != "" {
			q.others[id] = was[id]
		}
	}
}

// after returns those that wait for tasks that this agent leaves to others, or for such as wait for these.
func (q *Queue) after(waiting map[task.ID]queue.Entry) map[task.ID]bool {
	behind := map[task.ID]bool{}
	for more := len(q.others) > 0; more; {
		more = false
		for id, e := range waiting {
			if !behind[id] && slices.ContainsFunc(e.After, func(p task.ID) bool { return q.others[p] != "" || behind[p] }) {
				behind[id], more = true, true
			}
		}
	}
	return behind
}

// room is how many tasks of each group agents have taken, or are offered in a turn.
type room struct {
	queue *Queue
	taken map[string]int // nil: not counted yet
}

// take reports whether there is room for one more task, and counts it.
func (r *room) take(e queue.Entry) (bool, error) {
	if e.AtMost == 0 {
		return true, nil
	}
	if r.taken == nil {
		taken := map[string]int{}
		names, err := r.queue.names(activeDir)
		if err != nil {
			return false, err
		}
		for _, name := range names {
			if other, err := r.queue.read(r.queue.path(activeDir, name)); err == nil && !other.State.Final() {
				taken[other.Group]++
			}
		}
		r.taken = taken
	}
	if r.taken[e.Group] >= e.AtMost {
		return false, nil
	}
	r.taken[e.Group]++
	return true, nil
}

// end ends a new task that is not to be run, unless another agent is faster. It does not claim the
// task first: a claimed task is started.
func (q *Queue) end(e queue.Entry, r task.Report) error {
	path := q.path(newDir, string(e.ID)+".json")
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return q.finish(e, path, r)
}

// cycles returns tasks that wait for each other in a circle: of each circle, the path from one of its
// tasks to itself.
func cycles(waiting map[task.ID]queue.Entry) (found [][]string) {
	const visiting, visited = 1, 2
	seen := map[task.ID]int{}
	var path []task.ID
	var visit func(id task.ID)
	visit = func(id task.ID) {
		seen[id] = visiting
		path = append(path, id)
		for _, parent := range waiting[id].After {
			switch _, waits := waiting[parent]; {
			case seen[parent] == visiting:
				var circle []string
				for _, step := range append(path[slices.Index(path, parent):], parent) {
					circle = append(circle, string(step))
				}
				found = append(found, circle)
			case waits && seen[parent] == 0:
				visit(parent)
			}
		}
		path = path[:len(path)-1]
		seen[id] = visited
	}
	for _, id := range slices.Sorted(maps.Keys(waiting)) {
		if seen[id] == 0 {
			visit(id)
		}
	}
	return found
}

func (q *Queue) activePath(id task.ID) string {
	return q.path(activeDir, string(id)+"@"+q.Agent+".json")
}

// active returns the actions for the tasks of this agent. The file of a task that has a job is read
// only if a stop was requested. Problems are those of single files, which do not block others.
func (q *Queue) active(hasJob func(task.ID) bool) (actions []task.Action, problems []error, err error) {
	names, err := q.names(activeDir)
	if err != nil {
		return nil, nil, err
	}
	// A stop that is requested after this is seen at the next turn.
	stops, err := os.ReadDir(q.path(stopDir, ""))
	if err != nil {
		return nil, nil, fault.Errorf(fault.Unavailable, "spool: %w", err)
	}
	q.last.stops = len(stops)
	stopping := make(map[task.ID]bool, len(stops))
	for _, e := range stops {
		stopping[task.ID(e.Name())] = true
	}
	for _, name := range names {
		id, agent := fileParts(name)
		path := q.path(activeDir, name)
		if agent == stopper {
			e, err := q.read(path)
			if err == nil {
				err = q.finishStopped(e)
			}
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				problems = append(problems, err)
			}
			continue
		}
		if agent != q.Agent || hasJob != nil && hasJob(id) && !stopping[id] {
			continue
		}
		if _, err := os.Stat(q.path(doneDir, string(id)+".json")); err == nil {
			// An agent was killed between the two steps of finish.
			if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
				problems = append(problems, fault.Errorf(fault.Unavailable, "spool: %w", err))
			}
			continue
		}
		e, err := q.read(path)
		switch {
		case errors.Is(err, fs.ErrNotExist):
		case err != nil:
			problems = append(problems, fault.Errorf(fault.Unavailable, "spool: %w", err))
		case stopping[id]:
			actions = append(actions, action(task.Stop, e))
		case e.State == task.Pending, e.State == task.Running: // the agent finds the state of its job
			actions = append(actions, action(task.Start, e))
		}
	}
	return actions, problems, nil
}

func action(kind task.Kind, e queue.Entry) task.Action {
	return task.Action{
		Kind: kind, ID: e.ID, Slug: task.Clean(e.Slug), RequiresGPU: e.RequiresGPU, Process: e.Process,
		Repository: task.CleanAddress(e.Source.Repository), Image: task.Clean(e.Image),
	}
}

// parents reports whether all parents are completed, or returns why the task can never start.
func (q *Queue) parents(e queue.Entry) (ready bool, failed string, err error) {
	ready = true
	absent := false
	for _, id := range e.After {
		id, err := q.Latest(id)
		if err != nil {
			return false, "", err
		}
		parent, err := q.Find(id)
		switch {
		case errors.Is(err, queue.ErrGone):
			gone, err := q.parentGone(e.ID, id)
			if err != nil {
				return false, "", err
			}
			if gone {
				return false, fmt.Sprintf("parent task %s is gone", id), nil
			}
			absent, ready = true, false
		case err != nil:
			return false, "", err
		case parent.State == task.Completed:
		case parent.State.Final():
			return false, queue.ParentEnded(id, parent.State), nil
		default:
			ready = false
		}
	}
	if len(e.After) > 0 && !absent {
		return ready, "", q.parentBack(e.ID)
	}
	return ready, "", nil
}

// setAside ends a task whose file cannot be read.
func (q *Queue) setAside(path, name string, why error) error {
	id, _ := fileParts(name)
	if err := os.Rename(path, q.path(tmpDir, name+".bad")); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return fault.Errorf(fault.Unavailable, "spool: %w", err)
	}
	now := q.now().UTC()
	return q.write(q.path(doneDir, string(id)+".json"),
		queue.Entry{ID: id, State: task.Error, Reason: task.Clean(why.Error()), Created: now, Ended: now})
}

// Task returns a task that is new or taken by this agent.
func (q *Queue) Task(_ context.Context, id task.ID) (task.Task, error) {
	e, err := q.find(id)
	if err != nil {
		return task.Task{}, err
	}
	if err := q.owns(e); err != nil {
		return task.Task{}, err
	}
	t := task.Task{
		ID: e.ID, Slug: e.Slug, State: e.State, Process: e.Process, Agent: e.Agent, Source: e.Source, Worker: e.Worker,
		Command: e.Command, Env: e.Env, RequiresGPU: e.RequiresGPU, Image: e.Image, ImageOnly: e.Image != "",
		Request: e.Request, Retry: e.Retry, Keep: e.Keep,
	}
	for _, f := range e.Files {
		f.Version = version(f)
		t.Files = append(t.Files, f)
	}
	if _, err := os.Stat(q.path(stopDir, string(id))); err == nil && !t.State.Final() {
		t.State = task.Stopping
	}
	for _, parent := range e.After {
		parent, err := q.Latest(parent)
		if err != nil {
			return task.Task{}, err
		}
		p := task.Parent{ID: parent}
		if pe, err := q.Find(parent); err == nil {
			p.Slug = pe.Slug
		}
		t.Parents = append(t.Parents, p)
	}
	return t, nil
}

// Bill records what a task has cost by the bill, if it has ended with that attempt.
func (q *Queue) Bill(id task.ID, attempt int, cost float64) error {
	path := q.path(doneDir, string(id)+".json")
	e, err := q.read(path)
	if errors.Is(err, fs.ErrNotExist) || err == nil && (attempt != len(e.Attempts)+1 || cost == e.Cost) {
		return nil
	}
	if err == nil {
		e.Cost = cost
		err = q.write(path, e)
	}
	return err
}

// State returns the state in a task's file.
func (q *Queue) State(_ context.Context, id task.ID) (task.State, error) {
	e, err := q.find(id)
	return e.State, err
}

// version distinguishes the contents of a file of this machine at two times.
func version(f task.File) string {
	path, _ := strings.CutPrefix(f.URL, "file://")
	info, err := os.Stat(path)
	if err != nil {
		return "" // the download reports the error
	}
	return fmt.Sprintf("%d-%d", info.ModTime().UnixNano(), info.Size())
}

// find is Find, without a search through all active tasks for one that is new or
// taken by this agent.
func (q *Queue) find(id task.ID) (queue.Entry, error) {
	if _, err := os.Stat(q.path(doneDir, string(id)+".json")); errors.Is(err, fs.ErrNotExist) {
		if e, err := q.read(q.activePath(id)); err == nil {
			e.Agent = q.Agent
			return e, nil
		}
		if e, err := q.read(q.path(newDir, string(id)+".json")); err == nil {
			return e, nil
		}
	}
	return q.locate(id)
}

// leftError says why this agent leaves a task to others.
type leftError string

func (e leftError) Error() string        { return leftTo + string(e) }
func (e leftError) Is(target error) bool { return target == queue.ErrNotMine }

// Claim claims a new task by renaming its file.
func (q *Queue) Claim(_ context.Context, id task.ID) error {
	if _, err := os.Stat(q.activePath(id)); err == nil {
		return nil
	}
	path := q.path(newDir, string(id)+".json")
	if q.Leaves != nil {
		if e, err := q.read(path); err == nil { // else what follows says why
			if why := q.Leaves(e); why != "" {
				return fault.Wrap(fault.Unavailable, leftError(why))
			}
		}
	}
	err := os.Rename(path, q.activePath(id))
	if errors.Is(err, fs.ErrNotExist) {
		if err := q.Check(); err != nil {
			return err
		}
		return fault.Wrap(fault.Unavailable, queue.ErrNotMine)
	}
	if err != nil {
		return fault.Errorf(fault.Unavailable, "spool: %w", err)
	}
	return nil
}

// Report records the state in the task's file, and moves the file to done/ at the end of the task.
func (q *Queue) Report(_ context.Context, id task.ID, r task.Report) error {
	path := q.activePath(id)
	e, err := q.read(path)
	if errors.Is(err, fs.ErrNotExist) {
		found, err := q.find(id)
		if err != nil {
			return err
		}
		if err := q.owns(found); err != nil {
			return err
		}
		if found.State.Final() && r.State.Final() {
			return nil
		}
		if found.Agent != "" {
			return fault.Wrap(fault.Unavailable, queue.ErrNotMine)
		}
		if err := q.Claim(context.Background(), id); err != nil {
			return err
		}
		e = found
	} else if err != nil {
		return fault.Errorf(fault.Unavailable, "spool: %w", err)
	}
	e.Agent = q.Agent
	if r.State.Final() {
		return q.finish(e, path, r)
	}
	if r.State == task.Running && e.Started.IsZero() {
		e.Started = q.now().UTC()
	}
	e.State, e.Reason = r.State, r.Reason
	return q.write(path, e)
}

// PutAttempt records an attempt that is followed by another one, and keeps its output.
func (q *Queue) PutAttempt(_ context.Context, id task.ID, a task.Attempt, output io.ReadSeeker) error {
	path := q.activePath(id)
	e, err := q.read(path)
	if errors.Is(err, fs.ErrNotExist) {
		if err := q.mine(id); err != nil {
			return err
		}
		return fault.Wrap(fault.Unavailable, queue.ErrGone)
	}
	if err != nil {
		return fault.Errorf(fault.Unavailable, "spool: %w", err)
	}
	if err := q.copyTo(q.AttemptLog(id, a.Number), output); err != nil {
		return err
	}
	e.Attempts = append(slices.DeleteFunc(e.Attempts, func(old task.Attempt) bool { return old.Number >= a.Number }), a)
	return q.write(path, e)
}

// owns returns an error if a task belongs to another agent.
func (q *Queue) owns(e queue.Entry) error {
	if e.Agent != "" && e.Agent != q.Agent {
		return fault.Wrap(fault.Unavailable, queue.ErrNotMine)
	}
	return nil
}

// mine returns an error unless this agent may publish something for the task.
func (q *Queue) mine(id task.ID) error {
	if _, err := os.Stat(q.activePath(id)); err == nil {
		return nil
	}
	e, err := q.find(id)
	if err != nil {
		return err
	}
	return q.owns(e)
}

// Offline returns nothing: tasks of a spool request nothing from it.
func (q *Queue) Offline(context.Context, task.Task) (queue.Offline, error) {
	return queue.Offline{}, nil
}
