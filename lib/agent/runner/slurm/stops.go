package slurm

import (
	"context"
	"errors"
	"regexp"
	"sync"
	"time"

	"github.com/ponos-tools/ponos/lib/base/clock"
	"github.com/ponos-tools/ponos/lib/slurm"
)

// stops shares calls of scancel among concurrent stops: while one call runs, the ids of the next one
// gather.
//
//	gathering ──the call before has ended──► running ──► each caller gets the error that concerns its job
type stops struct {
	cancel func(ctx context.Context, ids ...string) error

	mu   sync.Mutex
	busy bool
	next *cancelling
	open int // stops under way
}

// cancelling is one call of scancel.
type cancelling struct {
	ids  []string
	done chan struct{}
	err  error
}

// maxCancelled limits the ids in a call, which must end within the time that a call has.
const maxCancelled = 500

// Paces of what many stops share: a few stops are quick, and many ask Slurm rarely.
const (
	few   = 8
	quick = 50 * time.Millisecond
	slow  = time.Second
)

// begin counts a stop until its end.
func (s *stops) begin() (end func()) {
	s.count(1)
	return func() { s.count(-1) }
}

func (s *stops) count(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open += n
}

// many reports whether so many stops are under way that they are to wait for each other.
func (s *stops) many() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.open > few
}

// job cancels one job, by a call that it shares with others.
func (s *stops) job(ctx context.Context, id string) error {
	s.mu.Lock()
	c := s.next
	if c == nil || len(c.ids) >= maxCancelled {
		c = &cancelling{done: make(chan struct{})}
		before := s.next
		s.next = c
		switch {
		case before != nil:
			go s.run(context.WithoutCancel(ctx), before) // it is full
		case !s.busy:
			s.busy = true
			go s.loop(context.WithoutCancel(ctx))
		}
	}
	c.ids = append(c.ids, id)
	s.mu.Unlock()
	select {
	case <-c.done:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if c.err != nil && concerns(c.err, id) {
		return c.err
	}
	return nil
}

// loop runs what has gathered, until nothing has.
func (s *stops) loop(ctx context.Context) {
	for {
		if s.many() {
			time.Sleep(slow / 2)
		}
		s.mu.Lock()
		c := s.next
		s.next = nil
		if c == nil {
			s.busy = false
			s.mu.Unlock()
			return
		}
		s.mu.Unlock()
		s.run(ctx, c)
	}
}

func (s *stops) run(ctx context.Context, c *cancelling) {
	c.err = s.cancel(ctx, c.ids...)
	close(c.done)
}

// named finds the jobs that messages of scancel are about.
var named = regexp.MustCompile(`\bjob id (\d+(?:_\d+)?)\b`)

// concerns reports whether the error of a call with several ids is about a job: it names the job, or
// none.
func concerns(err error, id string) bool {
	var e *slurm.Error
	if !errors.As(err, &e) || e.Exit == nil {
		return true
	}
	all := named.FindAllStringSubmatch(e.Exit.Stderr, -1)
	for _, match := range all {
		if match[1] == id {
			return true
		}
	}
	return len(all) == 0
}

// changed waits before a stop looks again, and returns when: stops that wait at the same time look
// together.
func (s *stops) changed(ctx context.Context, delay time.Duration) (at time.Time, err error) {
	if s.many() {
		delay = max(delay, slow)
	}
	now := clock.Now()
	at = now.Truncate(delay).Add(delay)
	if at.Sub(now) < quick {
		at = at.Add(delay)
	}
	select {
	case <-ctx.Done():
		return at, context.Cause(ctx)
	case <-time.After(at.Sub(now)):
		return at, nil
	}
}
