package rented

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/ponos-tools/ponos/lib/market/entry"
	"github.com/ponos-tools/ponos/lib/market/life"
	"github.com/ponos-tools/ponos/lib/market/vastai"
	"github.com/ponos-tools/ponos/lib/task"
	"github.com/ponos-tools/ponos/lib/task/runner"
)

// slow is a stand whose task was given up as its image did not load in time, on an instance that
// destroys do nothing to.
func slow(t *testing.T, retries int) (*stand, *rented) {
	t.Helper()
	s := newStand(t, 5)
	s.Retries = retries
	i := s.begin(1)
	i.fields["actual_status"] = "loading"
	s.market.stuck[i.id] = true
	s.clock.pass(30 * time.Minute)
	for range 5 {
		s.turn()
	}
	if len(s.events("fault")) != 1 || s.market.most != 1 {
		t.Fatalf("%d at once\n%s", s.market.most, s.said)
	}
	return s, i
}

// A machine that was given up keeps the task until it is gone, also one that has not run it yet.
func TestOneMachineAfterABootFault(t *testing.T) {
	s, i := slow(t, 0)
	if j := s.turn()[s.job(1)]; j.Shows() != task.Pending || !strings.Contains(j.Reason, "boot_timeout; another one is ordered when it is gone") {
		t.Errorf("%+v", j)
	}
	if n := strings.Count(s.said.String(), "instances still exist"); n != 3 { // of six turns
		t.Errorf("reported %d times\n%s", n, s.said)
	}
	delete(s.market.stuck, i.id)
	for range 3 {
		s.turn()
	}
	if len(s.market.instances) != 1 || s.market.instances[0].offer != 2 || s.market.most != 1 || len(s.events("lost")) != 0 {
		t.Errorf("%+v, %d at once\n%s", s.market.instances, s.market.most, s.said)
	}
}

// If it runs the task after all, or may have, that start counts: the task ends, or is started again by its rule.
func TestBegunAfterABootFault(t *testing.T) {
	for retries := range 2 {
		for _, status := range []string{"running", "exited", "stopped", "offline", "rebooting"} {
			t.Run(fmt.Sprint(status, retries), func(t *testing.T) {
				s, i := slow(t, retries)
				i.fields["actual_status"] = status
				j := s.turn()[s.job(1)]
				want := task.Error
				if retries > 0 {
					want = task.Pending
				}
				if j.Shows() != want || !strings.Contains(j.Reason, "instance 7000001 may have begun the task before it was gone") {
					t.Errorf("%+v", j)
				}
				s.turn()
				delete(s.market.stuck, i.id)
				for range 4 {
					s.turn()
				}
				if n := s.market.count()["order"]; n != 1+retries || s.market.most != 1 || len(s.events("lost")) != retries {
					t.Errorf("%d orders, %d at once\n%s", n, s.market.most, s.said)
				}
			})
		}
	}
}

// A contract whose order was not successful may run the task too.
func TestContractWithoutSuccess(t *testing.T) {
	s := newStand(t, 5)
	s.market.create = func(offer int64) error {
		s.market.instances = append(s.market.instances, &rented{id: 99, fields: map[string]any{"actual_status": "loading"}, label: s.label(s.job(1), 1, 1)})
		s.market.stuck[99], s.market.deny = true, 99
		return errors.Join(vastai.ErrOfferGone)
	}
	sub := s.submission(1)
	for range 4 {
		if _, err := s.Start(t.Context(), sub); err == nil || !strings.Contains(err.Error(), "instance 99 may still run the task") {
			t.Error(err)
		}
		s.market.create = nil
		s.turn()
	}
	delete(s.market.stuck, 99)
	s.turn()
	s.turn()
	if i := s.begin(1); i.offer != 2 || s.market.count()["order"] != 2 {
		t.Errorf("%+v\n%s", i, s.said)
	}
}

// Lists may lack an instance for any time: only its id tells that it is gone.
func TestListsLackAnInstance(t *testing.T) {
	s := newStand(t, 2)
	s.Retries = 1
	i := s.begin(1)
	s.turn()
	s.market.hidden[i.id] = true
	for range 10 {
		if j := s.turn()[s.job(1)]; j.Shows() != task.Running {
			t.Fatalf("%+v\n%s", j, s.said)
		}
	}
	s.market.noShow = vastai.ErrUnknown
	for range 10 {
		if j := s.turn()[s.job(1)]; j.Shows() != task.Running {
			t.Fatalf("%+v\n%s", j, s.said)
		}
	}
	if s.market.count()["order"] != 1 || !strings.Contains(s.said.String(), "lists lack an instance that exists") {
		t.Error(s.said)
	}
	s.market.noShow = nil
	s.vanish()
	for range 8 {
		s.turn()
	}
	if s.market.count()["order"] != 1 || len(s.events("lost")) != 1 {
		t.Error(s.said)
	}
}

// When many vanish at once, the agent waits and says so, and asks for a few of them in each turn.
func TestManyVanishAtOnce(t *testing.T) {
	s := newStand(t, 20)
	for n := range 8 {
		s.begin(n)
	}
	s.turn()
	all := s.market.instances
	s.vanish()
	for range 9 {
		s.turn()
	}
	if c := s.market.count(); c["show"] != 0 || strings.Count(s.said.String(), "lacks 8 of 8 at once") != 1 {
		t.Errorf("%v\n%s", c, s.said)
	}
	s.market.instances = all
	for _, j := range s.turn() {
		if j.Shows() != task.Running {
			t.Errorf("%+v", j)
		}
	}
	s.vanish()
	most := 0
	for range 20 {
		s.turn()
		most = max(most, s.market.count()["show"])
	}
	for id, j := range s.turn() {
		if j.Shows() != task.Error {
			t.Errorf("%s: %+v", id, j)
		}
	}
	if most > maxShows {
		t.Errorf("%d instances were asked for in one turn", most)
	}
}

// Of an order whose answer was lost, only lists tell. Those that lack other instances at once do not count.
func TestLostAnswerAndFalseLists(t *testing.T) {
	s := newStand(t, 9)
	for n := range 3 {
		s.begin(n)
	}
	s.turn()
	s.market.create = func(offer int64) error {
		s.market.instances = append(s.market.instances, &rented{
			id: 99, label: s.label(s.job(3), 1, 1), env: map[string]string{entry.NonceEnv: "n"}, fields: map[string]any{"actual_status": "running"},
		})
		return vastai.ErrUnknown
	}
	s.later(3, "the answer to an order was lost")
	s.market.create = nil
	all := s.market.instances
	s.market.instances = nil
	for range 8 {
		s.clock.pass(time.Minute)
		s.later(3, "it is not known yet whether an order has gone through")
	}
	s.market.instances = all
	s.clock.pass(time.Minute)
	if job, err := s.Start(t.Context(), s.submission(3)); err != nil || job.Claim != runner.Found || s.market.count()["order"] != 4 {
		t.Errorf("%+v, %v\n%s", job, err, s.said)
	}
}

// unanswered starts a task whose order is carried out, though its answer is lost, and returns its instance.
func (s *stand) unanswered(n int) *rented {
	s.Helper()
	i := &rented{id: 99, label: s.label(s.job(n), 1, 1), env: map[string]string{entry.NonceEnv: "n"}, fields: map[string]any{"actual_status": "running"}}
	s.market.create = func(int64) error { return vastai.ErrUnknown }
	s.later(n, "the answer to an order was lost")
	s.market.create = nil
	return i
}

// Lists that lack what was ordered without an answer have to do so for long, whether they are empty or show others.
func TestLostAnswerAndLaggingLists(t *testing.T) {
	for n := range 4 {
		made, alone := n%2 == 0, n/2 == 0
		t.Run(fmt.Sprint(made, alone), func(t *testing.T) {
			s := newStand(t, 9)
			i := s.unanswered(1)
			var other []*rented
			if !alone {
				other = []*rented{{id: 5, label: "mine", fields: map[string]any{"actual_status": "running"}}}
			}
			s.market.instances = other
			for range life.ManySettles - 1 {
				s.clock.pass(time.Minute)
				s.later(1, "it is not known yet whether an order has gone through")
			}
			if made {
				s.market.instances = append(other, i)
			}
			s.clock.pass(time.Minute)
			job, err := s.Start(t.Context(), s.submission(1))
			if n := s.market.count()["order"]; err != nil || (job.Claim == runner.Found) != made || made != (n == 1) || len(s.market.instances) != 1+len(other) {
				t.Errorf("%+v, %v, %d orders\n%s", job, err, n, s.said)
			}
		})
	}
}

// What was ordered without an answer, before the agent was away for long, may have come, run and gone: the bill shows it.
// Without a bill that may be, and counts as a loss.
func TestLostAnswerBeforeTheAgentWasAway(t *testing.T) {
	for _, c := range []struct {
		name, label string
		bill        time.Duration
		retries     int
		want        task.State
		why         string
		orders      int
	}{
		{"it has ended", ":end=0", time.Hour, 0, task.Completed, "", 0},
		{"it is billed", "", time.Hour, 0, task.Error, "whether its task had ended, and how, is not known", 0},
		{"it never began", ":end=unfit", time.Hour, 0, task.Running, "", 1},
		{"it is not billed yet", "-", time.Hour, 0, "", "waiting for the bill", 0},
		{"no bill is read", "-", 0, 0, task.Error, "whether the task has run is not known", 0},
		{"the key may not read it", "401", time.Hour, 0, task.Error, "whether the task has run is not known", 0},
		{"no bill is read, and it may run again", "-", 0, 1, task.Running, "", 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newStand(t, 9)
			s.BillInterval, s.Retries = c.bill, c.retries
			s.Program.Grace, s.Program.Destroy = 30*time.Minute, true
			i := s.unanswered(1)
			born := s.clock.Now()
			s.clock.pass(2 * time.Hour)
			if c.label == "401" {
				s.market.noBill = vastai.ErrAuth
			} else if c.label != "-" {
				s.charge(vastai.Charge{Instance: i.id, Label: i.label + c.label, Amount: 0.1, From: born, Until: s.clock.Now()})
			}
			s.market.count()
			var job runner.Job
			var err error
			for range life.ManySettles + 2 {
				s.clock.pass(time.Minute)
				if job, err = s.Start(t.Context(), s.submission(1)); err == nil {
					break
				}
			}
			if c.want == "" {
				if !errors.Is(err, runner.ErrLater) || !strings.Contains(err.Error(), c.why) {
					t.Errorf("%+v, %v", job, err)
				}
				// A day and a half later, the bill would have it.
				s.clock.pass(billWait)
				s.market.count()
				s.begin(1)
				return
			}
			if err != nil {
				t.Fatalf("%v\n%s", err, s.said)
			}
			s.track(1, job.ID)
			for range 80 {
				if job = s.turn()[s.job(1)]; job.Shows() == c.want {
					break
				}
			}
			if n := s.market.count()["order"]; job.Shows() != c.want || n != c.orders || !strings.Contains(job.Reason, c.why) {
				t.Errorf("%+v, %d orders\n%s", job, n, s.said)
			}
			if lost := len(s.events("lost")); lost != c.retries {
				t.Errorf("%d starts are counted as lost", lost)
			}
		})
	}
}

// Lists that lack the instance of a task that has ended do not prove that it is gone: it counts, and is destroyed, until the market
// says so of its id.
func TestEndedInstanceUnlisted(t *testing.T) {
	s := newStand(t, 4)
	s.Limits.Instances = 1
	i := s.begin(1)
	ended(i, 0)
	s.market.stuck[i.id] = true
	s.turn()
	s.market.hidden[i.id] = true
	for range 4 {
		s.turn()
	}
	s.later(2, "there are 1 instances, as many as max_instances")
	if names, err := s.orders(); err != nil || len(names) != 1 {
		t.Errorf("%v, %v", names, err)
	}
	s.market.hidden, s.market.stuck = map[int64]bool{}, map[int64]bool{}
	for range 4 {
		s.turn()
	}
	s.begin(2)
	if s.market.most != 1 || len(s.market.instances) != 1 {
		t.Errorf("%d at once\n%s", s.market.most, s.said)
	}
}
