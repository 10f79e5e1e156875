package assembly

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/ponos-tools/ponos/lib/agent/queue/spool"
	"github.com/ponos-tools/ponos/lib/base/clock"
	"github.com/ponos-tools/ponos/lib/base/command"
	"github.com/ponos-tools/ponos/lib/task"
	"github.com/ponos-tools/ponos/lib/task/queue"
)

// recorded is a runner of programs that notes what it is given.
type recorded struct {
	ran  []string
	fail error
}

func (r *recorded) Run(_ context.Context, c command.Cmd) (command.Result, error) {
	r.ran = append(r.ran, strings.Join(c.Args, " ")+" in "+c.Dir+" "+c.Env[len(c.Env)-7])
	return command.Result{}, r.fail
}

// A command of a group that fails is an error that says what follows; one that was cut off is tried again.
func TestRunOnEnd(t *testing.T) {
	s, err := spool.Make(t.TempDir(), clock.Now())
	if err != nil {
		t.Fatal(err)
	}
	q, err := s.For("me")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	e := queue.Entry{ID: "aaaaaaaa", Group: "g", OnEnd: queue.OnEnd{Command: "tell me", Directory: dir}}
	if err := errors.Join(s.Add(e), q.Report(t.Context(), e.ID, task.Report{State: task.Completed})); err != nil {
		t.Fatal(err)
	}
	r := &recorded{}
	cut, cancel := context.WithCancel(t.Context())
	cancel()
	if err := runOnEnd(cut, q, r); err != nil {
		t.Error(err)
	}
	r.fail = errors.New("exit status 1")
	if err := runOnEnd(t.Context(), q, r); err == nil || err.Error() != "on_end of group g: exit status 1: try 2 of 10 failed: next try in 2m0s" {
		t.Error(err)
	}
	if err := runOnEnd(t.Context(), q, r); err != nil { // not yet
		t.Error(err)
	}
	want := "-c tell me in " + dir + " PONOS_GROUP=g"
	if got := strings.Join(r.ran, "\n"); got != want+"\n"+want {
		t.Error(got)
	}
}
