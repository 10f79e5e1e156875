package arkindex

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/ponos-tools/ponos/lib/base/fault"
	"github.com/ponos-tools/ponos/lib/task"
	"github.com/ponos-tools/ponos/lib/task/queue"
)

// known is what is remembered of a task, in memory only.
type known struct {
	action    *task.Action
	as        credential // the task's own
	logURL    string
	logAt     time.Time
	published map[string]published // by path; nil: not asked yet
}

// maxKnown limits the memory: beyond it, everything is requested again.
const maxKnown = 50000

// definitions is how many definitions are requested at once.
const definitions = 8

// Actions requests the actions, which is the heartbeat. A start gets its task's particulars; without
// them, filters could not decide about the action, so it is left out, and repeated next time anyway.
func (q *Queue) Actions(ctx context.Context, _ func(task.ID) bool) ([]task.Action, error) {
	cpu, ram := q.cfg.Load()
	number := func(x float64) string { return strconv.FormatFloat(share(x), 'f', -1, 64) }
	query := url.Values{"cpu_load": {number(cpu)}, "ram_load": {number(ram)}}
	var raw []byte
	if err := q.do(ctx, call{op: "RetrieveAgentActions", query: query}, &raw); err != nil {
		return nil, fmt.Errorf("asking for actions: %w", err)
	}
	actions, bad, err := parseActions(raw)
	if err != nil {
		return nil, fault.Wrap(fault.Unavailable, err)
	}
	good, failures := q.detailed(ctx, actions)
	return good, errors.Join(append(bad, failures...)...)
}

// detailed adds the particulars of the tasks that are to be started.
func (q *Queue) detailed(ctx context.Context, actions []task.Action) (good []task.Action, problems []error) {
	q.loadParticulars()
	failures := make([]error, len(actions))
	slots := make(chan struct{}, definitions)
	var wg sync.WaitGroup
	for i := range actions {
		if a := q.recall(actions[i].ID).action; a != nil {
			a := *a
			a.Kind = actions[i].Kind
			actions[i] = a
			continue
		}
		if actions[i].Kind != task.Start {
			continue
		}
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			t, err := q.Task(ctx, actions[i].ID)
			if err != nil {
				failures[i] = err
				return
			}
			actions[i] = *particulars(t)
			actions[i].Kind = task.Start
		})
	}
	wg.Wait()
	if ctx.Err() != nil {
		return nil, []error{context.Cause(ctx)}
	}
	for i, a := range actions {
		switch err := failures[i]; {
		case err == nil:
			good = append(good, a)
		case errors.Is(err, queue.ErrGone), errors.Is(err, queue.ErrNotMine):
			q.log.Info("start is ignored", "task", a.ID, "error", err)
		case errors.Is(err, queue.ErrBroken):
			// Waiting will not help; ponos-start finds the same and reports it.
			good = append(good, a)
		default:
			problems = append(problems, fmt.Errorf("task %s: start waits for the next turn: %w", a.ID, err))
		}
	}
	q.keepParticulars(good)
	return good, problems
}

// particulars is what people filter actions by. An address may contain a password, which is removed.
func particulars(t task.Task) *task.Action {
	return &task.Action{
		ID: t.ID, Slug: t.Slug, RequiresGPU: t.RequiresGPU, Process: t.Process,
		Repository: task.CleanAddress(t.Source.Repository), Image: task.Clean(t.Image),
	}
}

func (q *Queue) recall(id task.ID) known {
	q.tasksMu.Lock()
	defer q.tasksMu.Unlock()
	return q.tasks[id]
}

// note changes what is remembered of a task.
func (q *Queue) note(id task.ID, change func(*known)) {
	q.tasksMu.Lock()
	defer q.tasksMu.Unlock()
	if len(q.tasks) >= maxKnown {
		clear(q.tasks)
		clear(q.owners)
		clear(q.readers)
	}
	k := q.tasks[id]
	change(&k)
	q.tasks[id] = k
}

// Task returns the definition of a task, with its parents' slugs and its source.
func (q *Queue) Task(ctx context.Context, id task.ID) (task.Task, error) {
	t, _, err := q.define(ctx, id)
	if err != nil {
		return task.Task{}, err
	}
	for i, p := range t.Parents {
		if p.Slug != "" {
			continue
		}
		var parent definition
		if err := q.taskCall(ctx, p.ID, call{op: "RetrieveTask", as: asTask(t)}, &parent); err != nil {
			return task.Task{}, fmt.Errorf("parent %s: %w", p.ID, final(err))
		}
		t.Parents[i].Slug = task.Clean(string(parent.Slug))
	}
	run, err := q.worker(ctx, t)
	if err != nil {
		return task.Task{}, err
	}
	if run != nil {
		if t.Source, err = run.source(); err != nil {
			return task.Task{}, broken("%w", err)
		}
		t.Worker = task.Clean(string(run.Version.Worker.Slug))
	}
	if err := q.model(ctx, &t); err != nil {
		return task.Task{}, err
	}
	q.note(id, func(k *known) {
		k.action = particulars(t)
		for _, f := range t.Files {
			q.owners[f.URL] = id
		}
		for _, p := range t.Parents {
			q.readers[p.ID] = asTask(t)
		}
	})
	return t, nil
}

// define downloads a definition and checks whose task it is. The URL for the log is also returned
// with queue.ErrBroken.
func (q *Queue) define(ctx context.Context, id task.ID) (task.Task, string, error) {
	me, err := q.me(ctx)
	if err != nil {
		return task.Task{}, "", fault.Wrap(fault.Unavailable, err)
	}
	var raw []byte
	if err := q.taskCall(ctx, id, call{op: "RetrieveTaskDefinition"}, &raw); err != nil {
		return task.Task{}, "", err
	}
	t, logURL, err := parseDefinition(raw)
	if err == nil && t.ID != id {
		err = fmt.Errorf("definition is that of task %s", t.ID)
	}
	if err != nil {
		return task.Task{}, parseLogURL(raw, id), broken("%w", err)
	}
	if t.Agent != "" && t.Agent != me.Agent {
		return task.Task{}, "", fault.Wrap(fault.Unavailable, queue.ErrNotMine)
	}
	q.note(id, func(k *known) { k.logURL, k.logAt, k.as = logURL, q.cfg.Now(), asTask(t) })
	return t, logURL, nil
}

// taskCall is do for an operation on a task, and interprets its refusal. Only the application itself
// can report that a task is gone: a 404 that is not JSON comes from a proxy, or from an address that
// does not exist.
func (q *Queue) taskCall(ctx context.Context, id task.ID, c call, into any) error {
	if c.path == nil {
		c.path = map[string]string{}
	}
	c.path["id"] = string(id)
	err := q.do(ctx, c, into)
	var e *statusError
	if !errors.As(err, &e) || !e.json {
		return err
	}
	switch e.code {
	case http.StatusNotFound:
		return fault.Errorf(fault.Unavailable, "%w (%w)", queue.ErrGone, err)
	case http.StatusForbidden:
		return fault.Errorf(fault.Unavailable, "%w (%w)", queue.ErrNotMine, err)
	}
	return err
}

// final is for what a task needs beside its definition: if the application itself refuses that, the
// task can never be run. An error about a parent must not be taken for one about the task itself.
func final(err error) error {
	var e *statusError
	if errors.As(err, &e) && e.json && e.code >= 400 && e.code < 500 && e.code != http.StatusTooManyRequests {
		return broken("%s", e.Error())
	}
	return err
}

// broken creates the error of a task that can never be run.
func broken(format string, args ...any) error {
	return fault.Wrap(fault.Failed, &brokenTask{fmt.Errorf(format, args...)})
}

// brokenTask is queue.ErrBroken with the reason alone as its text.
type brokenTask struct{ err error }

func (e *brokenTask) Error() string   { return e.err.Error() }
func (e *brokenTask) Unwrap() []error { return []error{queue.ErrBroken, e.err} }

// Claim does nothing: the instance assigns a task to one agent.
func (q *Queue) Claim(context.Context, task.ID) error { return nil }

// Report reports a state; the instance accepts neither reason nor exit code. It allows only some
// transitions between states. If both sides are right, this finds a sequence of allowed ones: see
// detour.
func (q *Queue) Report(ctx context.Context, id task.ID, r task.Report) error {
	if !r.State.Known() {
		return fmt.Errorf("state %.20q is not known", r.State)
	}
	err := q.patchState(ctx, id, r.State)
	if status(err) != http.StatusBadRequest && status(err) != http.StatusConflict {
		return err
	}
	var now definition
	if q.taskCall(ctx, id, call{op: "RetrieveTask"}, &now) != nil {
		return err
	}
	is := task.State(strings.ToLower(string(now.State)))
	steps, ok := detour(is, r.State)
	if !ok {
		return err
	}
	q.log.Debug("state is not accepted unchanged", "task", id, "queue", is, "state", r.State, "instead", steps)
	for _, step := range steps {
		if err := q.patchState(ctx, id, step); err != nil {
			return err
		}
	}
	return nil
}

// PutAttempt does nothing: the instance cannot store earlier attempts of a task.
func (q *Queue) PutAttempt(context.Context, task.ID, task.Attempt, io.ReadSeeker) error { return nil }

// Explain does nothing: the instance cannot store why tasks wait.
func (q *Queue) Explain(map[task.ID]string) error { return nil }

// Tidy does nothing: the instance keeps its tasks.
func (q *Queue) Tidy(time.Duration) error { return nil }

// State returns the state of a task at the instance.
func (q *Queue) State(ctx context.Context, id task.ID) (task.State, error) {
	var now definition
	if err := q.taskCall(ctx, id, call{op: "RetrieveTask"}, &now); err != nil {
		return "", err
	}
	return task.State(strings.ToLower(string(now.State))), nil
}

// detour returns the states to report for a task that the queue has in one state, if it refuses the
// state that the task is in; possibly none.
func detour(is, want task.State) (steps []task.State, ok bool) {
	switch {
	case is == want:
		return nil, true
	case is.Final():
		return nil, true // a user has decided; the result of the job changes nothing
	case is == task.Stopping && want.Final():
		return []task.State{task.Stopped}, true // it ended while a stop was requested
	case is == task.Stopping:
		return nil, true
	case is == task.Running && want == task.Pending:
		return nil, true // Slurm runs it again; the queue knows no way back
	case is == task.Running && want == task.Stopped:
		return []task.State{task.Error}, true // stopped here, though the queue did not request it
	case (is == task.Pending || is == task.Unscheduled) && want == task.Stopped:
		return []task.State{task.Running, task.Error}, true
	case (is == task.Pending || is == task.Unscheduled) && want.Final():
		return []task.State{task.Running, want}, true // it ended before it was first seen running
	}
	return nil, false
}

func (q *Queue) patchState(ctx context.Context, id task.ID, state task.State) error {
	body := map[string]string{"state": string(state)}
	var answer []byte
	if err := q.taskCall(ctx, id, call{op: "PartialUpdateTask", body: body}, &answer); err != nil {
		return fmt.Errorf("reporting %s: %w", state, err)
	}
	return nil
}
