package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ponos-tools/ponos/lib/task"
	"github.com/ponos-tools/ponos/lib/task/runner"
)

// Whatever a task may wait for has words; a task that runs has none.
func TestWhyATaskWaits(t *testing.T) {
	now := time.Date(2026, 11, 20, 18, 0, 0, 0, time.Local)
	soon, second := now.Add(20*time.Second), Tracked{Ref: runner.Ref{Attempt: 2}}
	for name, tt := range map[string]struct {
		w    wait
		want string
	}{
		"runs":            {wait{job: runner.Job{ID: "7", Sight: runner.Runs}}, ""},
		"has not begun":   {wait{idle: true, job: runner.Job{ID: "7", Sight: runner.Runs}}, "job 7 has not begun the command: see its log"},
		"is to begin":     {wait{idle: true, job: runner.Job{ID: "7", Sight: runner.Waits, Reason: "Priority"}}, "Priority"},
		"is held":         {wait{idle: true, job: runner.Job{ID: "7", Sight: runner.Runs, Reason: "suspended by Slurm"}}, "suspended by Slurm"},
		"is suspended":    {wait{job: runner.Job{ID: "7", Sight: runner.Runs, Reason: "suspended by Slurm"}}, "suspended by Slurm"},
		"is in the queue": {wait{job: runner.Job{ID: "7", Sight: runner.Waits, Reason: "held by its owner (JobHeldUser)"}}, "held by its owner (JobHeldUser)"},
		"has no reason":   {wait{job: runner.Job{ID: "7", Sight: runner.Waits}}, "job 7 waits"},
		"is lost":         {wait{job: runner.Job{ID: "7", Sight: runner.Traceless, Reason: "squeue does not show it"}}, "job 7: squeue does not show it"},
		"is unknown":      {wait{job: runner.Job{ID: "7", Sight: runner.Unclear}}, "job 7: its state is not known"},
		"is prepared":     {wait{busy: true, held: breaker{Full: true, Of: "alice", Max: 8}}, "its code is being prepared, or its job submitted"},
		"has no room":     {wait{stuck: "no room"}, "no room"},
		"has no code": {
			wait{record: Record{Preparing: &Preparing{}, Problem: "git.example.org does not answer", Retry: soon}},
			"preparing: git.example.org does not answer; next try at 18:00:20",
		},
		"has code of a long reason": {
			wait{record: Record{Preparing: &Preparing{}, Problem: strings.Repeat("x", 300), Retry: soon}},
			"preparing: " + strings.Repeat("x", 200-len("preparing: ...; next try at 18:00:20")) + "...; next try at 18:00:20",
		},
		"has failed before": {
			wait{record: Record{Tracked: second, Attempts: []task.Attempt{{}}, Problem: "exit code 1", Retry: now.Add(5 * time.Second)}},
			"attempt 2 begins at 18:00:05: exit code 1",
		},
		"had an attempt that is due":    {wait{record: Record{Tracked: second, Attempts: []task.Attempt{{}}, Problem: "exit code 1", Retry: now}}, "exit code 1"},
		"is limited":                    {wait{held: breaker{Full: true, Count: spent, Of: "alice", Max: 8}}, "submit limit of alice: 8 of 8"},
		"is limited by an unknown one":  {wait{held: breaker{Full: true, Count: spent, Reason: "sbatch: AssocMaxSubmitJobLimit"}}, "submit limit: sbatch: AssocMaxSubmitJobLimit"},
		"is limited, and was before":    {wait{record: Record{Problem: "exit code 1"}, held: breaker{Full: true, Count: spent, Of: "QoS short", Max: 2}}, "submit limit of QoS short: 2 of 2"},
		"is refused":                    {wait{held: breaker{Count: spent, Reason: "sbatch: invalid account", Next: soon}}, "held: sbatch: invalid account; next try at 18:00:20"},
		"is one of few that is refused": {wait{held: breaker{Count: 1, Reason: "sbatch: invalid account"}}, "waits for ponos-start"},
		"has no nodes":                  {wait{record: Record{Tries: 1, Problem: "no suitable nodes", Retry: now.Add(10 * time.Second)}}, "no suitable nodes; next try at 18:00:10"},
		"has no credit":                 {wait{record: Record{Problem: "no room for the job at this time: the credit is used up", Retry: now}}, "no room for the job at this time: the credit is used up"},
		"was offered":                   {wait{}, "waits for ponos-start"},
	} {
		if got := tt.w.why(now); got != tt.want {
			t.Errorf("a task that %s: %q; want %q", name, got, tt.want)
		}
	}
}

// smallQueue offers tasks until they have a job.
type smallQueue struct {
	plainQueue
	mu      sync.Mutex // ends are reported side by side
	waiting map[task.ID]bool
	explain map[task.ID]string
}

func (q *smallQueue) Actions(_ context.Context, hasJob func(task.ID) bool) (all []task.Action, err error) {
	for i := range 24 {
		if id := small(i); q.waiting[id] && !hasJob(id) {
			all = append(all, task.Action{Kind: task.Start, ID: id})
		}
	}
	return all, nil
}

func small(i int) task.ID { return task.ID(fmt.Sprintf("t%02d", i)) }

func (q *smallQueue) Task(_ context.Context, id task.ID) (task.Task, error) {
	return task.Task{ID: id, State: task.Pending, Command: []string{"true"}}, nil
}

func (*smallQueue) Claim(context.Context, task.ID) error { return nil }

func (q *smallQueue) Report(_ context.Context, id task.ID, r task.Report) error {
	if r.State.Final() {
		q.mu.Lock()
		defer q.mu.Unlock()
		delete(q.waiting, id)
	}
	return nil
}

func (*smallQueue) PutLog(context.Context, task.ID, io.ReadSeeker) error { return nil }

func (q *smallQueue) Explain(why map[task.ID]string) error {
	q.explain = why
	return nil
}

// smallRunner accepts at most 8 jobs, and tells that limit if told is set.
type smallRunner struct {
	plainRunner
	told    bool
	jobs    map[task.ID]runner.Sight
	most    int
	asked   int // for limits
	refused int
}

func (r *smallRunner) Name() string { return "small" }

func (r *smallRunner) Can() runner.Abilities {
	if r.told {
		return runner.Abilities{Limit: r}
	}
	return runner.Abilities{}
}

func (r *smallRunner) used() (n int) {
	for _, s := range r.jobs {
		if !s.Over() {
			n++
		}
	}
	return n
}

func (r *smallRunner) Limits(context.Context, runner.Needs, string) ([]runner.Limit, error) {
	r.asked++
	return []runner.Limit{{Of: "alice", Used: r.used(), Max: r.most}}, nil
}

func (r *smallRunner) Start(_ context.Context, s runner.Submission) (runner.Job, error) {
	if r.used() >= r.most {
		r.refused++
		return runner.Job{}, fmt.Errorf("%w: sbatch: AssocMaxSubmitJobLimit", runner.ErrFull)
	}
	r.jobs[s.Task] = runner.Waits
	return runner.Job{Task: s.Task, ID: "j" + string(s.Task), Sight: runner.Waits}, nil
}

func (r *smallRunner) Jobs(_ context.Context, known func() ([]runner.Ref, error)) (jobs []runner.Job, err error) {
	refs, err := known()
	for _, ref := range refs {
		jobs = append(jobs, runner.Job{Task: ref.Task, ID: ref.Job, Sight: r.jobs[ref.Task], Reason: "Priority", End: runner.End{State: task.Completed}})
	}
	return jobs, err
}

// A limit on submitted jobs is a semaphore: each turn submits as many tasks as have ended, asks the scheduler to
// refuse no others, and ends none. Whoever waits says for what.
func TestASubmitLimitIsASemaphore(t *testing.T) {
	for _, told := range []bool{true, false} {
		p := newPreparing(t, nil)
		queue := &smallQueue{waiting: map[task.ID]bool{}}
		r := &smallRunner{told: told, jobs: map[task.ID]runner.Sight{}, most: 8}
		p.Queue, p.Runner, p.Patience = queue, r, time.Hour // all ends of a turn are reported in it
		p.Transfers.Queue = queue
		for i := range 24 {
			queue.waiting[small(i)] = true
		}
		var turns []string
		for turn := range 30 {
			events := map[string]int{}
			for _, event := range p.turn() {
				events[event]++
			}
			turns = append(turns, fmt.Sprint(events["started"]))
			if turn == 1 && p.Room() != SomeRoom {
				t.Errorf("told %v: the turn does not say that there was room", told)
			}
			if len(queue.waiting) == 0 {
				break
			}
			if turn == 0 { // the next turn says why
				for id := range p.turn() {
					t.Errorf("told %v: task %s was offered although there is no room", told, id)
				}
				if p.Room() != NoRoom {
					t.Errorf("told %v: the turn does not say that there is no room", told)
				}
				want := "submit limit of alice: 8 of 8"
				if !told {
					want = "submit limit: no more jobs are accepted at this time: sbatch: AssocMaxSubmitJobLimit"
				}
				if got := queue.explain[small(23)]; got != want {
					t.Errorf("told %v: it waits for %q; want %q", told, got, want)
				}
			}
			if len(queue.explain)+r.used() < 24-turn*4 {
				t.Errorf("told %v: not all waiting tasks say why: %v", told, queue.explain)
			}
			ended := 0
			for i := range 24 { // the four oldest end
				if s, ok := r.jobs[small(i)]; ok && !s.Over() && ended < 4 {
					r.jobs[small(i)] = runner.Ended
					ended++
				}
			}
		}
		if got := strings.Join(turns, " "); got != "8 4 4 4 4 0 0" {
			t.Errorf("told %v: started in each turn: %s", told, got)
		}
		if r.asked > 2 { // at the refusal, and in one turn of this time
			t.Errorf("told %v: the runner was asked %d times for limits", told, r.asked)
		}
		if r.refused != 1 {
			t.Errorf("told %v: %d submissions were refused; want the first only", told, r.refused)
		}
		// The limit is lifted: the next one that is tried shows it, or the scheduler says so.
		r.most = 100
		for i := range 24 {
			queue.waiting[small(i)] = true
		}
		clear(r.jobs)
		p.time = p.time.Add(time.Minute)
		p.turn()
		p.turn()
		if n := r.used(); n != 24 {
			t.Errorf("told %v: %d of 24 jobs after the limit was lifted", told, n)
		}
	}
}

// A full disk, and a scheduler that is away, are told to those who wait.
func TestATurnWithoutJobsSaysWhy(t *testing.T) {
	p := newPreparing(t, nil)
	queue := &smallQueue{waiting: map[task.ID]bool{small(0): true}}
	p.Queue, p.Runner = queue, awayRunner{}
	if _, err := p.Poll(t.Context()); err == nil {
		t.Fatal("no error")
	}
	if got := queue.explain[small(0)]; got != "squeue: Slurm does not answer" {
		t.Errorf("it waits for %q", got)
	}
}

type awayRunner struct{ plainRunner }

func (awayRunner) Name() string { return "away" }

func (awayRunner) Jobs(_ context.Context, known func() ([]runner.Ref, error)) ([]runner.Job, error) {
	_, err := known()
	return nil, errors.Join(errors.New("squeue: Slurm does not answer"), err)
}

// A limit is named only if it is the one that has refused.
func TestTheLimitThatRefuses(t *testing.T) {
	alice, account, other := runner.Limit{Of: "alice", Used: 8, Max: 8}, runner.Limit{Of: "account research", Used: 50, Max: 100}, runner.Limit{Of: "alice in account csi", Used: 2, Max: 2}
	free := runner.Limit{Of: "alice", Used: 7, Max: 8}
	for _, tt := range []struct {
		limits []runner.Limit
		of     string
	}{
		{nil, ""}, {[]runner.Limit{alice}, "alice"}, {[]runner.Limit{alice, account}, "alice"}, {[]runner.Limit{alice, other}, ""},
		{[]runner.Limit{free}, "alice"}, {[]runner.Limit{free, account}, ""},
	} {
		if b := refusedByLimit("sbatch: AssocMaxSubmitJobLimit", tt.limits, breaker{}, time.Time{}); b.Of != tt.of {
			t.Errorf("%v: %q; want %q", tt.limits, b.Of, tt.of)
		}
	}
}
