package rented

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/ponos-tools/ponos/lib/market/life"
	"github.com/ponos-tools/ponos/lib/market/vastai"
	"github.com/ponos-tools/ponos/lib/task"
	"github.com/ponos-tools/ponos/lib/task/runner"
)

// stalls is a look at all jobs by a process that is suspended right after the list.
func (s *stand) stalls(d time.Duration) {
	s.Helper()
	_, err := s.Jobs(s.Context(), func() ([]runner.Ref, error) {
		s.clock.pass(d)
		return s.refs, nil
	})
	if err != nil {
		s.Fatal(err)
	}
}

// A list says what was so when it was requested, however late it is looked at: an instance that loaded
// its image then may run by now.
func TestSuspendedWhileItBoots(t *testing.T) {
	s := newStand(t, 2)
	i := s.begin(1)
	i.fields["actual_status"] = "loading"
	s.clock.pass(time.Minute)
	s.stalls(time.Hour)
	i.fields["actual_status"] = "running"
	if j := s.turn()[s.job(1)]; j.Shows() != task.Running || s.market.count()["order"] != 1 {
		t.Errorf("%+v\n%s", j, s.said)
	}
}

// Two lists that lag prove nothing if they were requested one right after the other.
func TestSuspendedWhileListsLag(t *testing.T) {
	s := newStand(t, 2)
	i := s.begin(1)
	s.vanish()
	s.clock.pass(5 * time.Second)
	s.stalls(0)
	s.clock.pass(5 * time.Second)
	s.stalls(time.Hour)
	s.market.instances = []*rented{i}
	if j := s.turn()[s.job(1)]; j.Shows() != task.Running {
		t.Errorf("%+v\n%s", j, s.said)
	}
}

// An order whose answer is lost after a long time may have been carried out at the end of it: from
// then on lists may lag.
func TestAnswerLostLate(t *testing.T) {
	s := newStand(t, 2)
	s.market.create = func(int64) error {
		s.clock.pass(2 * s.Settle)
		return vastai.ErrUnknown
	}
	start := func() error {
		_, err := s.Start(t.Context(), s.submission(1))
		return err
	}
	if err := start(); !errors.Is(err, runner.ErrLater) {
		t.Fatal(err)
	}
	s.market.create = nil
	s.market.count()
	for lost := s.clock.Now(); s.clock.Now().Sub(lost) < life.ManySettles*s.Settle-10*time.Second; s.clock.pass(5 * time.Second) {
		if err := start(); !errors.Is(err, runner.ErrLater) {
			t.Fatalf("ordered again %v after the answer was lost: %v", s.clock.Now().Sub(lost), err)
		}
	}
	s.clock.pass(s.Settle)
	if err := start(); err != nil || s.market.count()["order"] != 1 {
		t.Error(err)
	}
}

// An instance whose order had no answer is recorded before logs are read, which takes time: if the
// process is killed then, and the instance vanishes, its task may have run.
func TestKilledWhileItReadsLogs(t *testing.T) {
	s := newStand(t, 6)
	s.begin(1)
	s.begin(2)
	s.market.create = func(int64) error { return vastai.ErrUnknown }
	lost := s.submission(3)
	if _, err := s.Start(t.Context(), lost); !errors.Is(err, runner.ErrLater) {
		t.Fatal(err)
	}
	s.market.create = nil
	o, err := s.read(ordersDir, string(lost.Task)+".1")
	if err != nil {
		t.Fatal(err)
	}
	running := s.market.instances
	s.market.instances = append(running[:2:2], &rented{
		id: 99, label: s.label(o.Task, o.Attempt, o.Number()) + ":end=2", created: s.clock.Now(),
		fields: map[string]any{"machine_id": int64(3), "actual_status": "exited", "intended_status": "stopped"},
	})

	s.clock.pass(time.Minute)
	ctx, kill := context.WithCancel(t.Context())
	pace := s.market.pace
	s.market.pace = func(c context.Context, op string) error {
		if op == "log" {
			kill()
		}
		return pace(c, op)
	}
	if _, err := s.Jobs(ctx, func() ([]runner.Ref, error) { return s.refs, nil }); !errors.Is(err, context.Canceled) {
		t.Fatalf("not killed: %v", err)
	}
	s.market.pace, s.market.instances = pace, running
	s.market.count()
	var last runner.Job
	for range 10 {
		if j, ok := s.turn()[lost.Task]; ok {
			last = j
		}
		if last.Shows() != "" {
			continue
		}
		if _, err := s.Start(t.Context(), lost); err != nil && !errors.Is(err, runner.ErrLater) {
			t.Fatal(err)
		}
	}
	if n := s.market.count()["order"]; n != 0 {
		t.Errorf("ordered again %d times\n%s", n, s.said)
	}
	if last.ExitCode != 2 || last.Shows() != task.Failed {
		t.Errorf("%+v\n%s", last, s.said)
	}
}
