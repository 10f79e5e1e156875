package vast

import (
	"errors"
	"testing"
	"time"

	"github.com/ponos-tools/ponos/lib/runner"
	"github.com/ponos-tools/ponos/lib/task"
	"github.com/ponos-tools/ponos/lib/vastai"
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
	if j := s.turn()[s.job(1)]; j.State != task.Running || s.market.count()["order"] != 1 {
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
	if j := s.turn()[s.job(1)]; j.State != task.Running {
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
	for lost := s.clock.Now(); s.clock.Now().Sub(lost) < s.Settle-10*time.Second; s.clock.pass(5 * time.Second) {
		if err := start(); !errors.Is(err, runner.ErrLater) {
			t.Fatalf("ordered again %v after the answer was lost: %v", s.clock.Now().Sub(lost), err)
		}
	}
	s.clock.pass(s.Settle)
	if err := start(); err != nil || s.market.count()["order"] != 1 {
		t.Error(err)
	}
}
