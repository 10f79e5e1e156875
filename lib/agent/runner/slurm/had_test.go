package slurm

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/ponos-tools/ponos/lib/base/command"
	"github.com/ponos-tools/ponos/lib/slurm"
	"github.com/ponos-tools/ponos/lib/task"
	"github.com/ponos-tools/ponos/lib/task/need"
	"github.com/ponos-tools/ponos/lib/task/runner"
	"github.com/ponos-tools/ponos/testscripts/captures"
)

// sacct answers with a text; it is asked for nothing else.
type sacct struct {
	t    *testing.T
	text string
	err  error
	ids  string
}

func (s *sacct) Run(_ context.Context, c command.Cmd) (command.Result, error) {
	for _, arg := range c.Args {
		if ids, ok := strings.CutPrefix(arg, "--jobs="); ok {
			s.ids = ids
		}
	}
	if c.Name != "sacct" || s.ids == "" {
		s.t.Errorf("asked for %s %v", c.Name, c.Args)
	}
	text := captures.Delimited(s.text, c.Args...)
	if c.Stdout != nil {
		_, _ = io.WriteString(c.Stdout, text)
	}
	return command.Result{Stdout: []byte(text)}, s.err
}

// consumed are lines as sacct prints them: a job, and its batch step with the memory that
// it had.
func consumed(id, name, state, limit, end string, peakMB string) string {
	job := []string{id, "10", "cpu1", "", "00:04.249", "", id, "alice", "research", "cpu", "normal", state, "2026-11-22T01:46:52", "2026-11-22T01:46:52", end, limit, "1", "billing=1,cpu=1,mem=200M,node=1", name, ""}
	step := []string{id + ".batch", "10", "cpu1", "1", "00:04.249", "cpu=00:00:03,mem=" + peakMB + "M", id + ".batch", "", "research", "", "", state, "2026-11-22T01:46:52", "2026-11-22T01:46:52", end, "", "1", "cpu=1,mem=200M,node=1", "batch", ""}
	return strings.Join(job, "|") + "\n" + strings.Join(step, "|") + "\n"
}

// What jobs had that have failed is asked by one call; what accounting does not know yet is
// waited for.
func TestWhatJobsHad(t *testing.T) {
	const end = "2026-11-22T01:47:02"
	at := time.Date(2026, 11, 22, 1, 48, 0, 0, time.Local)
	for _, tt := range []struct {
		name    string
		job     runner.Job
		text    string
		err     error
		long    bool // it is missing for long
		unknown bool
		cause   string
		memory  int64
		limit   time.Duration
		nodes   string
	}{
		{"a time limit", runner.Job{Sight: runner.Ended, End: runner.End{State: task.Error, Cause: need.Timeout}}, consumed("7", "ponos-x", "TIMEOUT", "00:05:00", end, "10"), nil, false, false, need.Timeout, 200 << 20, 5 * time.Minute, "cpu1"},
		{"nearly all memory", runner.Job{Sight: runner.Ended, End: runner.End{State: task.Failed, ExitCode: 9}}, consumed("7", "ponos-x", "FAILED", "00:05:00", end, "195"), nil, false, false, need.OOM, 200 << 20, 5 * time.Minute, "cpu1"},
		{"nearly all memory, by the journal", runner.Job{Sight: runner.Ended, End: runner.End{State: task.Failed, ExitCode: 137}}, consumed("7", "ponos-x", "FAILED", "00:05:00", end, "195"), nil, false, false, need.OOM, 200 << 20, 5 * time.Minute, "cpu1"},
		{"killed with little memory", runner.Job{Sight: runner.Ended, End: runner.End{State: task.Error, Cause: need.Lost}}, consumed("7", "ponos-x", "FAILED", "00:05:00", end, "20"), nil, false, false, need.Lost, 200 << 20, 5 * time.Minute, "cpu1"},
		{"its own failure", runner.Job{Sight: runner.Ended, End: runner.End{State: task.Failed, ExitCode: 1}}, consumed("7", "ponos-x", "FAILED", "00:05:00", end, "195"), nil, false, false, "", 200 << 20, 5 * time.Minute, "cpu1"},
		{"another job", runner.Job{Sight: runner.Ended, End: runner.End{State: task.Error, Cause: need.OOM}}, consumed("7", "other", "OUT_OF_MEMORY", "00:05:00", end, "195"), nil, false, true, "", 0, 0, ""},
		{"half a record", runner.Job{Sight: runner.Ended, End: runner.End{State: task.Error, Cause: need.Node}}, consumed("7", "ponos-x", "NODE_FAIL", "", end, "1"), nil, false, true, "", 0, 0, ""},
		{"it has not ended there", runner.Job{Sight: runner.Ended, End: runner.End{State: task.Error, Cause: need.Node}}, consumed("7", "ponos-x", "RUNNING", "00:05:00", "Unknown", "1"), nil, false, true, "", 0, 0, ""},
		{"accounting is away", runner.Job{Sight: runner.Ended, End: runner.End{State: task.Error, Cause: need.OOM}}, "", errors.New("no"), false, true, "", 0, 0, ""},
		{"nothing for a long time", runner.Job{Sight: runner.Ended, End: runner.End{State: task.Error, Cause: need.Node}}, "", nil, true, false, need.Node, 0, 3 * time.Minute, "cpu2"},
	} {
		tt.job.Task, tt.job.ID = "t", "7"
		e := evidence{ref: runner.Ref{Task: "t", Job: "7", Label: "x", Rules: "oom: mem*2"}, now: at, queue: &slurm.Job{State: "FAILED", NodeList: "cpu2", Limit: 3 * time.Minute}}
		if tt.long {
			e.ref.Missing = task.Absence{}.Again(at.Add(-time.Hour)).Again(at.Add(-50 * time.Minute)).Again(at.Add(-40 * time.Minute)).Again(at.Add(-time.Minute))
		}
		asked := &sacct{t: t, text: tt.text, err: tt.err}
		r := &Runner{now: func() time.Time { return now }, client: &slurm.Client{Run: asked}}
		jobs := []runner.Job{tt.job}
		if err := r.had(t.Context(), []evidence{e}, jobs); err != nil {
			t.Errorf("%s: %v", tt.name, err)
		}
		if j := jobs[0]; asked.ids != "7" || !j.Sight.Sure() != tt.unknown || j.Cause != tt.cause || j.Had.Memory != tt.memory || j.Had.Time != tt.limit || j.Had.Nodes != tt.nodes {
			t.Errorf("%s: %+v", tt.name, j)
		}
	}
	// Nobody asks about others: those that go on, and those that are not tried again.
	for _, job := range []runner.Job{{Sight: runner.Runs}, {Sight: runner.Ended, End: runner.End{State: task.Completed}}, {Sight: runner.Unclear, End: runner.End{State: task.Error, Cause: need.OOM}}, {Sight: runner.Unbegun, End: runner.End{State: task.Error, Cause: need.Node}}, {Sight: runner.Ended, End: runner.End{State: task.Error}}} {
		r := &Runner{now: func() time.Time { return now }, client: &slurm.Client{Run: &sacct{t: t}}}
		if err := r.had(t.Context(), []evidence{{ref: runner.Ref{Rules: "oom: mem*2"}}}, []runner.Job{job}); err != nil {
			t.Error(err)
		}
	}
	r := &Runner{now: func() time.Time { return now }, client: &slurm.Client{Run: &sacct{t: t}}}
	if err := r.had(t.Context(), []evidence{{}}, []runner.Job{{Sight: runner.Ended, End: runner.End{State: task.Error, Cause: need.OOM}}}); err != nil {
		t.Error(err)
	}
}
