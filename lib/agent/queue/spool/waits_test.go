package spool

import (
	"testing"
	"time"

	"github.com/ponos-tools/ponos/lib/task"
	"github.com/ponos-tools/ponos/lib/task/queue"
)

// Whatever a task of a spool may wait for has words.
func TestWhyATaskWaits(t *testing.T) {
	const running, done, failed, retry task.ID = "01a20103-99ea-754e-afc2-aaaa11111111", "done", "failed", "retry"
	all := []queue.Summary{
		{ID: running, Slug: "x\x1b[2J", State: task.Running}, {ID: done, State: task.Completed},
		{ID: failed, State: task.Failed, Retried: true}, {ID: retry, Slug: "again", State: task.Pending, RetryOf: failed},
	}
	now := time.Date(2026, 11, 20, 18, 0, 0, 0, time.Local)
	alive, late := queue.Beat{Agent: "me", Host: "h", Seen: now.Add(-time.Minute)}, queue.Beat{Agent: "me", Host: "h", Seen: now.Add(-time.Hour)}
	other := queue.Beat{Agent: "other", Host: "o", Seen: now}
	ended := queue.Beat{Agent: "me", Host: "h", Seen: now.Add(-24 * time.Hour), Ended: true}
	said := map[task.ID]string{"t": "submit limit of alice: 8 of 8"}
	for _, tt := range []struct {
		name  string
		task  queue.Summary
		beats []queue.Beat
		said  map[task.ID]string
		taken int
		want  string
	}{
		{"a parent that runs", queue.Summary{Waits: string(running)}, []queue.Beat{alive}, nil, 0, "waits for task 11111111 (x [2J)"},
		{"a second parent", queue.Summary{Waits: "done " + string(running), AtMost: 1}, []queue.Beat{alive}, nil, 1, "waits for task 11111111 (x [2J)"},
		{"the retry of a parent", queue.Summary{Waits: "failed"}, []queue.Beat{alive}, nil, 0, "waits for task retry (again)"},
		{"a parent that is gone", queue.Summary{Waits: "01a20103-99ea-754e-afc2-bbbb22222222"}, []queue.Beat{alive}, nil, 0, "waits for task 22222222"},
		{"a group that is full", queue.Summary{AtMost: 2}, []queue.Beat{alive}, said, 2, "waits for room in its group: at most 2 at a time"},
		{"a full group, after its parent was completed", queue.Summary{Waits: "done", AtMost: 2}, []queue.Beat{alive}, said, 2, "waits for room in its group: at most 2 at a time"},
		{"room, after its parent was completed", queue.Summary{Waits: "done", AtMost: 2}, []queue.Beat{alive}, said, 1, "submit limit of alice: 8 of 8"},
		{"any agent", queue.Summary{}, nil, nil, 0, "no agent runs"},
		{"an agent that is late", queue.Summary{}, []queue.Beat{late}, said, 0, "no agent runs: the last turn was at 17:00:00"},
		{"an agent that was ended", queue.Summary{}, []queue.Beat{ended}, said, 0, "no agent runs: the last turn was at 2026-11-19 18:00:00"},
		{"another agent", queue.Summary{}, []queue.Beat{late, other}, nil, 0, ""},
		{"the next turn", queue.Summary{}, []queue.Beat{alive}, nil, 0, ""},
		{"what the agent says", queue.Summary{}, []queue.Beat{alive}, said, 0, "submit limit of alice: 8 of 8"},
		{"what its agent says", queue.Summary{Agent: "me"}, []queue.Beat{other, alive}, said, 0, "submit limit of alice: 8 of 8"},
		{"what its agent says now", queue.Summary{Agent: "me", Reason: "exit code 1"}, []queue.Beat{alive}, said, 0, "submit limit of alice: 8 of 8"},
		{"what was reported", queue.Summary{Agent: "me", Reason: "exit code 1"}, []queue.Beat{alive}, nil, 0, "exit code 1"},
		{"its agent", queue.Summary{Agent: "me"}, []queue.Beat{late, other}, said, 0, "its agent does not run: the last turn on host h was at 17:00:00"},
		{"nothing, as it runs", queue.Summary{Agent: "me", State: task.Running}, []queue.Beat{late}, nil, 0, ""},
		{"being resumed", queue.Summary{Agent: "me", State: task.Running}, []queue.Beat{alive}, map[task.ID]string{"t": "suspended"}, 0, "suspended"},
		{"being stopped", queue.Summary{State: task.Stopping, Reason: "x"}, nil, nil, 0, "x"},
	} {
		tt.task.ID, tt.task.Group = "t", "g"
		if tt.task.State == "" {
			tt.task.State = task.Pending
		}
		k := known{now: now, all: all, taken: map[string]int{"g": tt.taken}, beats: tt.beats}
		for _, b := range tt.beats {
			if b.Agent == "me" {
				k.said = append(k.said, tt.said)
			} else {
				k.said = append(k.said, nil)
			}
		}
		if got := k.why(tt.task); got != tt.want {
			t.Errorf("a task that waits for %s: %q; want %q", tt.name, got, tt.want)
		}
	}
}
