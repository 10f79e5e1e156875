package agent

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ponos-tools/ponos/lib/agent/record"
	"github.com/ponos-tools/ponos/lib/task"
	"github.com/ponos-tools/ponos/lib/task/need"
	"github.com/ponos-tools/ponos/lib/task/runner"
)

// tryingQueue keeps attempts, by their numbers.
type tryingQueue struct {
	plainQueue
	state    task.State
	err      error // of Task
	down     error // of Report
	attempts map[int]string
	reported []task.State
}

func (q *tryingQueue) Task(_ context.Context, id task.ID) (task.Task, error) {
	return task.Task{ID: id, State: q.state}, q.err
}

func (q *tryingQueue) Report(_ context.Context, _ task.ID, r task.Report) error {
	q.reported = append(q.reported, r.State)
	return q.down
}

func (q *tryingQueue) PutAttempt(_ context.Context, _ task.ID, a task.Attempt, output io.ReadSeeker) error {
	b, err := io.ReadAll(output)
	q.attempts[a.Number] = string(b)
	return err
}

// trying is a task whose job has ended.
func trying(t *testing.T, rules string) (*Agent, *tryingQueue, Dir) {
	t.Helper()
	q := &tryingQueue{state: task.Running, attempts: map[int]string{}}
	a := &Agent{Store: testStore(t), Queue: q, Runner: codeRunner{}, Log: slog.New(slog.DiscardHandler), TaskFormat: "%(message)s"}
	d, err := a.Store.Create("t")
	if err == nil {
		err = errors.Join(d.Write(Record{Tracked: Tracked{Ref: runner.Ref{Task: "t", Attempt: 1, Job: "7", Rules: rules}}}), os.WriteFile(d.file(runner.Output), []byte("first\n"), 0o600))
	}
	if err != nil {
		t.Fatal(err)
	}
	return a, q, d
}

func (q *tryingQueue) end(t *testing.T, a *Agent, d Dir, job runner.Job) (r Record, again bool, report task.Report, err error) {
	t.Helper()
	before, err := d.Read()
	if err != nil {
		t.Fatal(err)
	}
	k := before.Tracked
	k.Reported = task.Running
	report = task.Report{State: job.State, Reason: job.Reason, ExitCode: job.ExitCode}
	x := a.factsOf(&k, &job)
	if d.StopRequested() {
		x.notes |= stop
	}
	if decide(x) == retry {
		_, again, err = a.tryAgain(t.Context(), turn{d: d, k: k, job: job, x: x, listed: true}, &report)
	}
	r, readErr := d.Read()
	if readErr != nil {
		t.Fatal(readErr)
	}
	return r, again, report, err
}

var outOfMemory = runner.Job{Task: "t", ID: "7", Sight: runner.Ended, Reason: "out of memory", End: runner.End{State: task.Error, Cause: need.OOM, Had: runner.Had{Memory: 1 << 30}}}

// Whoever is killed in the middle of it, there is one more attempt and no second one.
func TestAnAttemptThatIsRepeated(t *testing.T) {
	a, q, d := trying(t, "oom: mem*2 <= 3G")
	q.down = errors.New("away")
	for range 3 {
		if r, again, _, err := q.end(t, a, d, outOfMemory); !again || !errors.Is(err, q.down) || r.Job != "7" || r.Attempt != 1 || len(r.Attempts) != 0 {
			t.Fatalf("%+v %v %v", r, again, err)
		}
	}
	q.down = nil
	r, again, _, err := q.end(t, a, d, outOfMemory)
	if !again || err != nil || r.Job != "" || r.Attempt != 2 || !slices.Equal(r.Changed, []string{"mem=2G"}) || r.Before != "7" || r.Retry.IsZero() || r.LogFrom != 6 {
		t.Errorf("%+v %v %v", r, again, err)
	}
	if len(r.Attempts) != 1 || r.Attempts[0].Retry != "oom" || r.Attempts[0].Job != "7" || q.attempts[1] != "first\n" {
		t.Errorf("%+v, %v", r.Attempts, q.attempts)
	}
	// A turn that had seen the job of before finds that the record is past it.
	if now, again, _, err := q.end(t, a, d, outOfMemory); err != nil || !again && now.Attempt != 2 {
		t.Errorf("%+v %v", now, err)
	}

	// Its job may be begun again by an administrator: it finds that its command has ended.
	if err := os.WriteFile(d.file(record.Journal("7", 0)), []byte("\nbegun n 1 2;\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := r.seal(d); err != nil {
			t.Fatal(err)
		}
		if run, err := record.ReadRun(d.Path, "7"); err != nil || !run.Ended || run.Code == 0 {
			t.Errorf("%+v, %v", run, err)
		}
	}

	// The next ones, up to the bound.
	r.Job = "8"
	if err := errors.Join(d.Write(r), os.WriteFile(d.file(runner.Output), []byte("first\nsecond\n"), 0o600)); err != nil {
		t.Fatal(err)
	}
	job := outOfMemory
	job.ID, job.Had.Memory = "8", 2<<30
	if r, again, _, err = q.end(t, a, d, job); !again || err != nil || !slices.Equal(r.Changed, []string{"mem=3G"}) || q.attempts[2] != "second\n" || len(r.Attempts) != 2 {
		t.Errorf("%+v %v %v, %v", r, again, err, q.attempts)
	}
	r.Job = "9"
	if err := d.Write(r); err != nil {
		t.Fatal(err)
	}
	job.ID, job.Had.Memory = "9", 3<<30
	if _, again, report, err := q.end(t, a, d, job); again || err != nil || !strings.HasSuffix(report.Reason, "; it is not tried again: it had as much memory as the rule allows") {
		t.Errorf("%v %v %q", again, err, report.Reason)
	}
}

func TestWhatIsNotTriedAgain(t *testing.T) {
	for name, change := range map[string]func(a *Agent, q *tryingQueue, d Dir, j *runner.Job){
		"cancelled":      func(_ *Agent, _ *tryingQueue, _ Dir, j *runner.Job) { j.Sight = runner.Cancelled },
		"completed":      func(_ *Agent, _ *tryingQueue, _ Dir, j *runner.Job) { j.State, j.Cause = task.Completed, "" },
		"another reason": func(_ *Agent, _ *tryingQueue, _ Dir, j *runner.Job) { j.Cause = need.Lost },
		"no reason":      func(_ *Agent, _ *tryingQueue, _ Dir, j *runner.Job) { j.Cause = "" },
		"its own failure": func(_ *Agent, _ *tryingQueue, _ Dir, j *runner.Job) {
			j.State, j.Cause, j.ExitCode = task.Failed, "", 1
		},
		"memory unknown": func(_ *Agent, _ *tryingQueue, _ Dir, j *runner.Job) { j.Had.Memory = 0 },
		"a stop":         func(_ *Agent, _ *tryingQueue, d Dir, _ *runner.Job) { _ = d.RequestStop() },
		"to be stopped":  func(_ *Agent, q *tryingQueue, _ Dir, _ *runner.Job) { q.state = task.Stopping },
		"stopped":        func(_ *Agent, q *tryingQueue, _ Dir, _ *runner.Job) { q.state = task.Stopped },
		"it can never start": func(a *Agent, _ *tryingQueue, _ Dir, _ *runner.Job) {
			a.Hopeless = func(context.Context, runner.Needs) string { return "no node is large enough" }
		},
	} {
		a, q, d := trying(t, "oom: mem*2, exit=75")
		job := outOfMemory
		change(a, q, d, &job)
		if r, again, report, err := q.end(t, a, d, job); again || err != nil || r.Attempt != 1 || r.Job != "7" || len(q.attempts) != 0 || len(q.reported) != 0 {
			t.Errorf("%s: %+v %v %v %q", name, r, again, err, report.Reason)
		}
	}
	a, q, d := trying(t, "oom: mem*2")
	q.err = errors.New("away")
	if r, again, _, err := q.end(t, a, d, outOfMemory); !again || !errors.Is(err, q.err) || r.Job != "7" {
		t.Errorf("%+v %v %v", r, again, err)
	}
}

func TestChanges(t *testing.T) {
	r := Record{Changed: []string{"exclude=n[1-2]", "mem=2G"}}
	got, why := r.changedBy(need.Change{Memory: 3 << 30, Exclude: []string{"n2", "n4"}})
	if why != "" || !slices.Equal(got, []string{"exclude=n[1-2,4]", "mem=3G"}) {
		t.Errorf("%q, %s", got, why)
	}
}

// Each attempt comes after a longer pause, and none exceeds the ceiling of all jobs.
func TestPausesAndCeilingOfAttempts(t *testing.T) {
	a, q, d := trying(t, "timeout: time*2 <= 10h")
	a.LongestTime = 3 * time.Hour
	job := runner.Job{ID: "7", Sight: runner.Ended, End: runner.End{State: task.Error, Cause: need.Timeout}}
	for i, want := range []string{"time=2:00:00", "time=3:00:00"} {
		job.Had.Time = time.Duration(i+1) * time.Hour
		r, again, _, err := q.end(t, a, d, job)
		if err != nil || !again || !slices.Equal(r.Changed, []string{want}) {
			t.Fatalf("attempt %d: %v, %v, %v", i+2, again, r.Changed, err)
		}
		end := r.Retry.Add(-time.Second)
		if now := a.now(); !r.pauses(now) || !r.pauses(end) || r.pauses(end.Add(time.Second)) || r.Retry.Sub(now) > pause(i+1) || i > 0 && r.Retry.Sub(now) <= pause(i) {
			t.Errorf("attempt %d: %v after %v", i+2, r.Retry, now)
		}
		r.Job = "8"
		if err := d.Write(r); err != nil {
			t.Fatal(err)
		}
	}
	job.Had.Time = 3 * time.Hour
	if _, again, report, err := q.end(t, a, d, job); again || err != nil || !strings.Contains(report.Reason, "its time limit was the longest that is allowed") {
		t.Errorf("%v, %q, %v", again, report.Reason, err)
	}
}
