package agent

import (
	"testing"
	"time"

	"github.com/ponos-tools/ponos/lib/task"
	"github.com/ponos-tools/ponos/lib/task/runner"
)

func TestDecide(t *testing.T) {
	now := time.Date(2026, 11, 20, 18, 0, 0, 0, time.UTC)
	once := task.Absence{}.Again(now)
	before := task.Absence{}.Again(now.Add(-time.Minute))
	for _, tt := range []struct {
		name     string
		known    Tracked
		job      runner.Job
		stopping bool
		want     step
	}{
		{"waits, as the queue thinks anyhow", Tracked{}, runner.Job{State: task.Pending}, false, step{}},
		{"begins", Tracked{}, runner.Job{State: task.Running}, false, step{report: task.Report{State: task.Running}}},
		{"goes on", Tracked{Reported: task.Running}, runner.Job{State: task.Running}, false, step{}},
		{"was preempted and requeued", Tracked{Reported: task.Running}, runner.Job{State: task.Pending, Reason: "BeginTime"}, false, step{report: task.Report{State: task.Pending, Reason: "BeginTime"}}},
		{"ends", Tracked{Reported: task.Running}, runner.Job{State: task.Failed, ExitCode: 3, Reason: "exit code 3"}, false, step{report: task.Report{State: task.Failed, ExitCode: 3, Reason: "exit code 3"}, end: true}},
		{"ends before it was seen", Tracked{}, runner.Job{State: task.Completed}, false, step{report: task.Report{State: task.Completed}, end: true}},
		{"was cancelled by us", Tracked{}, runner.Job{State: task.Error, Sight: runner.Cancelled}, true, step{report: task.Report{State: task.Stopped, Reason: "stopped at the request of the queue"}, end: true}},
		{"was cancelled by others", Tracked{}, runner.Job{State: task.Error, Sight: runner.Cancelled, Reason: "x"}, false, step{report: task.Report{State: task.Error, Reason: "x"}, end: true}},
		{"failed by itself while being stopped", Tracked{}, runner.Job{State: task.Failed, ExitCode: 1}, true, step{report: task.Report{State: task.Failed, ExitCode: 1}, end: true}},
		{"is missing for the first time", Tracked{Reported: task.Running}, runner.Job{Sight: runner.Traceless}, false, step{missing: once}},
		{"is still missing", Tracked{Missing: before}, runner.Job{Sight: runner.Traceless}, false, step{missing: before.Again(now)}},
		{"is still missing, and not in accounting", Tracked{Missing: before, Unaccounted: before}, runner.Job{Sight: runner.Unaccounted}, false, step{missing: before.Again(now), unaccounted: before.Again(now)}},
		{"is still missing, but in accounting", Tracked{Missing: before, Unaccounted: before}, runner.Job{Sight: runner.Traceless}, false, step{missing: before.Again(now)}},
		{"is back", Tracked{Missing: before, Reported: task.Running}, runner.Job{State: task.Running}, false, step{}},
		{"has not begun, and never will", Tracked{}, runner.Job{State: task.Error, Sight: runner.Unbegun}, false, step{again: true}},
		{"is in an unknown state", Tracked{Reported: task.Running}, runner.Job{Sight: runner.Unclear}, false, step{}},
	} {
		if got := decide(tt.known, tt.job, tt.stopping, now); got != tt.want {
			t.Errorf("a job that %s: got %+v; want %+v", tt.name, got, tt.want)
		}
	}
}

func TestWanted(t *testing.T) {
	actions := []task.Action{{Kind: task.Start, ID: "new"}, {Kind: task.Start, ID: "running"}, {Kind: task.Start, ID: "prepared"}, {Kind: task.Stop, ID: "running"}, {Kind: task.Stop, ID: "prepared"}, {Kind: task.Stop, ID: "ending"}, {Kind: task.Start, ID: "failed"}, {Kind: task.Stop, ID: "failed"}}
	got := wanted(actions, func(a task.Action) work {
		return map[task.ID]work{"running": {hasJob: true}, "prepared": {busy: true}, "ending": {busy: true, stopping: true}, "failed": {pauses: true}}[a.ID]
	})
	var text string
	for _, a := range got {
		text += string(a.Kind) + " " + string(a.ID) + ", "
	}
	if text != "start new, stop running, stop prepared, stop failed, " {
		t.Errorf("passed on: %s", text)
	}
}
