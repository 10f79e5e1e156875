package agent

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/google/renameio/v2"

	"github.com/ponos-tools/ponos/lib/lock"
)

// breaker is what is known of the refusals of one kind of task. The options of a kind
// are the same for all its tasks: what was refused a few times in a row in the same words
// will be refused again, so the queue is held instead of being spent, and sbatch is not run
// for each task at each turn. From time to time, one task is tried.
type breaker struct {
	Reason string    `json:"reason"`
	Count  int       `json:"count"` // refusals in a row
	Since  time.Time `json:"since"` // the first of them
	Next   time.Time `json:"next"`  // then a task is tried; zero: any task is
	Probes int       `json:"probes,omitempty"`
	// Full says that nothing is wrong: as many jobs are submitted as may be.
	Full bool `json:"full,omitempty"`
}

// spent is how many refusals in a row hold the queue.
const spent = 3

// held reports whether the queue is held, for whatever task.
func (b breaker) held() bool { return b.Count >= spent }

// try reports whether a task may be submitted. While the queue is held, that is one task
// in a time that grows from 1 to 30 minutes.
func (b breaker) try(now time.Time) (breaker, bool) {
	if !b.held() {
		return b, true
	}
	// A clock that was set back must not hold the queue for longer.
	if wait := b.Next.Sub(now); wait > 0 && wait <= maxProbe {
		return b, false
	}
	b.Next = now.Add(b.pause())
	b.Probes++
	return b, true
}

const (
	maxProbe = 30 * time.Minute
	// Jobs end all the time: then there is room for another one.
	fullPause = 20 * time.Second
)

// pause is how long after a try there is none.
func (b breaker) pause() time.Duration {
	if b.Full {
		return fullPause
	}
	return min(time.Minute<<min(b.Probes, 10), maxProbe)
}

// refused counts a refusal, unless the queue was held for the same reason before. It reports
// whether it has counted: a task does not end by a refusal that does not count.
func (b breaker) refused(reason string, full bool, now time.Time) (after breaker, counts bool) {
	switch {
	case b.held() && alike(b.Reason, reason):
		return b, false
	case b.Count == 0 || !alike(b.Reason, reason):
		b = breaker{Reason: reason, Since: now, Full: full}
	}
	if b.Count++; b.held() {
		b.Probes = 0
		b.Next = now.Add(b.pause())
		b.Probes = 1
	}
	return b, true
}

// alike reports whether two refusals say the same, but for numbers.
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

const breakerFile = "held.json"

// breakers changes what is known of refusals, by kind of task, under a lock.
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

// readBreakers reads what is known of refusals; without the file, or with a damaged one,
// that is nothing.
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

// kindOf is the section of the configuration that a task's options come from, besides
// the base.
func kindOf(gpu bool) string {
	if gpu {
		return "gpu"
	}
	return "cpu"
}
