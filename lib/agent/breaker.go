package agent

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/google/renameio/v2"

	"github.com/ponos-tools/ponos/lib/agent/code/environment"
	"github.com/ponos-tools/ponos/lib/base/lock"
	"github.com/ponos-tools/ponos/lib/task/runner"
)

// breaker is a circuit breaker for one kind of task, or for what their code needs. All tasks of a kind have the same options:
// what was refused several times in a row with the same message will be refused again. The tasks
// are then held in the queue instead of failing one after the other, and sbatch is not run for
// each of them in each turn. From time to time, one task is tried.
type breaker struct {
	Reason string    `json:"reason"`
	Count  int       `json:"count"` // refusals in a row
	Since  time.Time `json:"since"` // the first of them
	Next   time.Time `json:"next"`  // when the next task may be tried; zero: at any time
	Probes int       `json:"probes,omitempty"`
	// Full says that the options are valid, but that a limit on submitted jobs is reached. Then it is a
	// semaphore: Room tasks may be submitted before the next turn, which counts again.
	Full bool   `json:"full,omitempty"`
	Room int    `json:"room,omitempty"`
	Of   string `json:"of,omitempty"` // whose limit it is; "": the scheduler does not tell
	Max  int    `json:"max,omitempty"`
	// Outside says that this is no kind of task, but what their code needs: see environment.Holds.
	Outside bool `json:"outside,omitempty"`
	Own     int  `json:"own,omitempty"`   // what failures in a row that are the code's own count
	Asked   bool `json:"asked,omitempty"` // one task tries it, and has not told
}

// spent is how many refusals in a row hold the queue.
const spent = 3

// held reports whether the tasks of this kind are held.
func (b breaker) held() bool { return b.Count >= spent }

// try reports whether a task may be submitted. While the tasks are held, one is tried at intervals
// that grow from 1 to 30 minutes.
func (b breaker) try(now time.Time) (breaker, bool) {
	if !b.held() {
		return b, true
	}
	// After the clock was set back, the wait must not become longer.
	if wait := b.Next.Sub(now); wait > 0 && wait <= maxProbe {
		return b, false
	}
	b.Next = now.Add(b.pause())
	b.Probes++
	return b, true
}

const (
	maxProbe = 30 * time.Minute
	// Jobs end all the time, and make room for others.
	fullPause = 20 * time.Second
)

// pause is how long no task is tried after a refusal.
func (b breaker) pause() time.Duration {
	switch {
	case b.Full:
		return fullPause
	case b.Outside:
		return pause(b.Probes)
	}
	return min(time.Minute<<min(b.Probes, 10), maxProbe)
}

// A breaker that is Full is a semaphore:
//
//	none ──refused by a limit──► no room ──the controller says so, or jobs have ended──► Room
//	 ▲                           │  ▲                                                   │
//	 └─── the limit has gone ────┘  └───────── submitted, or refused again ◄────────────┘
//	 └─── one that is tried each fullPause is taken, where the controller does not tell
//
// pass reports whether a task may be submitted, and whether that is a try.
func (b breaker) pass(now time.Time) (after breaker, ok, probe bool) {
	if b.Full && b.Room > 0 {
		b.Room--
		return b, true, false
	}
	b, ok = b.try(now)
	return b, ok, ok && b.held()
}

// limit says which limit is reached.
func (b breaker) limit() string {
	if b.Of == "" {
		return "submit limit: " + b.Reason
	}
	return fmt.Sprintf("submit limit of %s: %d of %d", b.Of, b.Max, b.Max)
}

// counted is the semaphore at the beginning of a turn, in which so many tasks of the agent have ended. Limits
// are those of the controller; nil: it does not tell.
func (b breaker) counted(limits []runner.Limit, ended int) breaker {
	if i := slices.IndexFunc(limits, func(l runner.Limit) bool { return l.Of == b.Of }); i >= 0 {
		b.Max, b.Room = limits[i].Max, max(0, limits[i].Max-limits[i].Used)
		return b
	}
	b.Room += ended
	return b
}

// refusedByLimit is the breaker after a limit has refused a job. Of several that are used up, as those of other accounts of
// the user may be, none is known to be the one.
func refusedByLimit(reason string, limits []runner.Limit, before breaker, now time.Time) breaker {
	b := breaker{Full: true, Count: spent, Probes: 1, Reason: reason, Since: now, Next: now.Add(fullPause)}
	if before.Full {
		b.Since = before.Since
	}
	if full := usedUp(limits); len(full) == 1 {
		b.Of, b.Max = full[0].Of, full[0].Max
	}
	return b
}

// usedUp returns the limits without room; all where each has some again, as a job has ended since the refusal.
func usedUp(limits []runner.Limit) []runner.Limit {
	i := slices.IndexFunc(limits, func(l runner.Limit) bool { return l.Used < l.Max })
	if i <= 0 {
		return limits
	}
	return limits[:i] // the least room comes first
}

// refused counts a refusal, unless the tasks were already held for the same reason. It reports
// whether it has counted: a refusal that does not count does not end the task.
func (b breaker) refused(reason string, now time.Time) (after breaker, counts bool) {
	switch {
	case b.held() && alike(b.Reason, reason):
		return b, false
	case b.Count == 0 || !alike(b.Reason, reason):
		b = breaker{Reason: reason, Since: now}
	}
	if b.Count++; b.held() {
		b.Probes = 0
		b.Next = now.Add(b.pause())
		b.Probes = 1
	}
	return b, true
}

// alike reports whether two refusals differ only in numbers.
func alike(a, b string) bool {
	plain := func(s string) string {
		return strings.Map(func(r rune) rune {
			if '0' <= r && r <= '9' {
				return -1
			}
			return r
		}, s)
	}
	return plain(a) == plain(b)
}

// Pass implements environment.Holds: of the tasks that wait for the same, one tries from time to time.
func (a *Agent) Pass(name string) (*environment.Held, error) {
	if _, held := a.Store.readBreakers()[name]; !held {
		return nil, nil // the usual case takes no lock
	}
	var hold *environment.Held
	err := a.Store.breakers(func(all map[string]breaker) bool {
		b, held := all[name]
		if !held {
			return false
		}
		if b, held = b.try(a.now()); !held {
			hold = &environment.Held{Why: b.Reason, Failures: b.Own, Next: b.Next}
			return false
		}
		b.Asked = true
		all[name] = b
		return true
	})
	return hold, err
}

// Tell implements environment.Holds. Of those that tried at the same time, one counts.
func (a *Agent) Tell(name, why string, own int) (environment.Held, error) {
	if _, held := a.Store.readBreakers()[name]; !held && why == "" {
		return environment.Held{}, nil
	}
	var b breaker
	err := a.Store.breakers(func(all map[string]breaker) bool {
		now := a.now()
		maps.DeleteFunc(all, func(_ string, b breaker) bool { return b.Outside && now.Sub(b.Next) > leftoverAge })
		var held bool
		b, held = all[name]
		switch {
		case why == "":
			delete(all, name)
			return held
		case !held:
			b = breaker{Count: spent, Since: now, Probes: 1, Asked: true, Outside: true}
		}
		switch {
		case b.Asked && own > 0:
			b.Own += own
		case b.Asked:
			b.Own = 0
		}
		b.Reason, b.Next, b.Asked = why, now.Add(b.pause()), false
		all[name] = b
		return true
	})
	return environment.Held{Why: b.Reason, Failures: b.Own, Next: b.Next}, err
}

// Room is what the last turn has found of limits on submitted jobs.
type Room int

// The values of Room.
const (
	Unlimited Room = iota // no task waits for a limit
	NoRoom                // tasks wait, and none was passed on
	SomeRoom              // tasks wait, or are about to be submitted, and there was room for some
)

// Room returns what the last turn has found.
func (a *Agent) Room() Room { return a.room }

// LimitedSince reports whether a limit has refused a job after a time.
func (a *Agent) LimitedSince(t time.Time) bool {
	for _, b := range a.Store.readBreakers() {
		if b.Full && b.Next.Add(-fullPause).After(t) {
			return true
		}
	}
	return false
}

const breakerFile = "held.json"

// breakers changes the breakers of all kinds, under a lock.
func (s *Store) breakers(change func(map[string]breaker) bool) error {
	l, err := lock.TryFor(filepath.Join(s.Dir, "held.lock"), 10*time.Second)
	if err != nil {
		return fmt.Errorf("held.lock: %w", err)
	}
	defer l.Close()
	all := s.readBreakers()
	if !change(all) {
		return nil
	}
	b, err := json.Marshal(all)
	if err != nil {
		return err
	}
	return renameio.WriteFile(filepath.Join(s.Dir, breakerFile), append(b, '\n'), 0o600, renameio.WithTempDir(s.Dir))
}

// readBreakers reads the breakers; a missing or damaged file means that there are none.
func (s *Store) readBreakers() map[string]breaker {
	all := map[string]breaker{}
	b, err := os.ReadFile(filepath.Join(s.Dir, breakerFile))
	if errors.Is(err, fs.ErrNotExist) {
		return all
	}
	if err != nil || json.Unmarshal(b, &all) != nil {
		return map[string]breaker{}
	}
	return all
}

// kindOf is the section of the configuration, besides base, that has the options of a task.
func kindOf(gpu bool) string {
	if gpu {
		return "gpu"
	}
	return "cpu"
}
