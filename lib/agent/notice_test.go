package agent

import (
	"os"
	"testing"

	"github.com/ponos-tools/ponos/lib/agent/record"
	"github.com/ponos-tools/ponos/lib/base/clock"
	"github.com/ponos-tools/ponos/lib/task"
	"github.com/ponos-tools/ponos/lib/task/runner"
)

// A journal that grows is news until a turn reports what it says; a task that is offered is followed once it has a job.
func TestNoticed(t *testing.T) {
	store, err := OpenStore(t.TempDir(), clock.Now())
	if err != nil {
		t.Fatal(err)
	}
	a := &Agent{Store: store}
	d, err := store.Create("a")
	if err != nil {
		t.Fatal(err)
	}
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(d.file(record.Journal("7", 0)), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	turn := func(state task.State) {
		a.notices.after([]*Tracked{{Ref: runner.Ref{Task: "a", Job: "7"}, Reported: state}}, nil)
	}
	for _, step := range []struct {
		what string
		do   func()
		want News
	}{
		{"nothing", func() {}, NoNews},
		{"an offer", func() { a.notices.after(nil, []task.ID{"a"}) }, NoNews},
		{"a journal of a job that is not recorded", func() { write("\nbegun host 1 2;\n") }, NoNews},
		{"its job", func() {
			if err := d.Write(Record{Tracked: Tracked{Ref: runner.Ref{Task: "a", Attempt: 1, Job: "7"}}}); err != nil {
				t.Fatal(err)
			}
		}, SomeNews},
		{"a turn that has not seen it", func() { turn(task.Pending) }, SomeNews},
		{"a turn that has", func() { turn(task.Running) }, NoNews},
		{"the end", func() { write("\nbegun host 1 2;\n\nexited 0;\n") }, AllEnded},
		{"a turn that has not seen it", func() { turn(task.Running) }, AllEnded},
		{"more of the end", func() { write("\nbegun host 1 2;\n\nexited 0;\n\nended 0;\n") }, AllEnded},
		{"another task that has not begun", func() {
			a.notices.after([]*Tracked{{Ref: runner.Ref{Task: "a", Job: "7"}, Reported: task.Running}, {Ref: runner.Ref{Task: "b", Job: "8"}}}, nil)
		}, SomeNews},
		{"a turn that has", func() { a.notices.after(nil, nil) }, NoNews},
	} {
		step.do()
		if got := a.Noticed(3); got != step.want {
			t.Errorf("after %s: %v", step.what, got)
		}
	}
}
