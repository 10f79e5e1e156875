package rented

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ponos-tools/ponos/lib/base/fault"
	"github.com/ponos-tools/ponos/lib/base/lock"
	"github.com/ponos-tools/ponos/lib/market/registry"
	"github.com/ponos-tools/ponos/lib/market/vastai"
	"github.com/ponos-tools/ponos/lib/task"
	"github.com/ponos-tools/ponos/lib/task/runner"
)

// Only the account says that the key is lost.
func TestKeyLost(t *testing.T) {
	s := newStand(t, 5)
	s.market.create = func(int64) error { return vastai.ErrRejected }
	s.market.account = nil
	ok := s.market.create
	s.market.create = func(offer int64) error { s.market.account = vastai.ErrAuth; return ok(offer) }
	if _, err := s.Start(t.Context(), s.submission(1)); !errors.Is(err, vastai.ErrAuth) || errors.Is(err, runner.ErrLater) {
		t.Error(err)
	}
	if c := s.market.count(); c["order"] != 1 {
		t.Errorf("%v", c)
	}
}

// Tools that a user has suspended hold up nothing for ever: a task waits, and a machine at
// fault goes all the same.
func TestSuspendedTools(t *testing.T) {
	s := newStand(t, 2)
	s.LockTime = 10 * time.Millisecond
	i := s.begin(1)
	i.fields["disk_space"], i.fields["actual_status"] = 8.5, "loading"
	for _, name := range []string{"create", "images.json", "once.json"} {
		held, err := lock.Try(filepath.Join(s.Dir, name+".lock"))
		if err != nil {
			t.Fatal(err)
		}
		defer held.Close()
	}
	for range 3 {
		s.turn()
	}
	if len(s.market.instances) != 0 {
		t.Errorf("%+v", s.market.instances)
	}
	s.Images = func(context.Context, string, registry.Contents) (registry.Image, error) { return registry.Image{}, nil }
	if _, _, err := s.Place(t.Context(), task.Task{ID: s.job(1), Image: "img", Command: []string{"true"}}); !errors.Is(err, runner.ErrLater) {
		t.Error(err)
	}
}

// All that bears the label of any agent of the account is found, and can be ended.
func TestAccount(t *testing.T) {
	s := newStand(t, 1)
	s.begin(1)
	id := string(s.job(9))
	for n, label := range []string{"ponos:other:" + id + ":1", "mine", "ponos:lost:" + id + ":2.3", ""} {
		s.market.instances = append(s.market.instances, &rented{id: int64(n + 1), label: label, fields: map[string]any{}, created: s.clock.Now()})
	}
	s.clock.pass(time.Hour)
	found, err := s.Account(t.Context(), 10*time.Minute)
	if err != nil || len(found) != 3 || found[0].Label.Agent != "lost" || found[2].Label.Agent != "unit" {
		t.Fatalf("%+v, %v", found, err)
	}
	if failed := s.Reap(t.Context(), found); len(failed) != 0 {
		t.Error(failed)
	}
	if len(s.market.instances) != 2 {
		t.Errorf("%+v", s.market.instances)
	}
	if found, err := s.Account(t.Context(), 0); err != nil || len(found) != 0 {
		t.Errorf("%+v, %v", found, err)
	}
}

// Check says which permission the key lacks.
func TestScopes(t *testing.T) {
	s := newStand(t, 1)
	if found, err := s.Check(t.Context()); err != nil || !strings.Contains(found.Detail, "credit $50.00") {
		t.Error(err, found)
	}
	if err := scoped(fmt.Errorf("list: %w", vastai.ErrAuth), "instance_read"); !strings.Contains(fault.HintOf(err), "instance_read") {
		t.Error(fault.HintOf(err))
	}
	if err := scoped(vastai.ErrUnknown, "instance_read"); fault.HintOf(err) != "" {
		t.Error(err)
	}
}

// The quota of searches is told once, and tasks wait for it.
func TestQuotaIsToldOnce(t *testing.T) {
	s := newStand(t, 1)
	if err := s.prepare(); err != nil {
		t.Fatal(err)
	}
	midnight := time.Date(2026, 3, 2, 0, 0, 0, 0, time.UTC)
	s.API = vastai.NewGovernor(&quota{s.market, midnight}, s.API.Dir, s.API.Unit, s.clock.Now)
	s.API.Sleep = func(context.Context, time.Duration) error { return nil }
	for n := range 20 {
		if _, err := s.Start(t.Context(), s.submission(n)); !errors.Is(err, runner.ErrLater) || !strings.Contains(err.Error(), "nothing is ordered until 2026-03-02 00:00 UTC") {
			t.Fatal(err)
		}
	}
	if n := strings.Count(s.said.String(), "the daily quota of searches is used up"); n != 1 {
		t.Errorf("told %d times\n%s", n, s.said)
	}
	if c := s.market.count(); c["search"] != 1 {
		t.Errorf("%v", c)
	}
}

// quota is a market whose searches of the day are used up.
type quota struct {
	*fake
	until time.Time
}

func (q *quota) Search(ctx context.Context, _ vastai.Search) (vastai.Found, error) {
	if err := q.ask(ctx, "search"); err != nil {
		return vastai.Found{}, err
	}
	return vastai.Found{}, vastai.QuotaError(q.until)
}
