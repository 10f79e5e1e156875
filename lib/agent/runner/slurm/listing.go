package slurm

import (
	"context"
	"sync"
	"time"

	"github.com/ponos-tools/ponos/lib/base/clock"
	"github.com/ponos-tools/ponos/lib/slurm"
)

// listing shares calls of squeue among concurrent callers. The result is always newer than the
// request: a caller that comes while a call is running gets the next one.
type listing struct {
	list func(context.Context) ([]slurm.Job, error)

	mu      sync.Mutex
	running *call // the latest one; it may have ended
	busy    bool
	next    *call
}

type call struct {
	ctx   context.Context
	began time.Time
	done  chan struct{}
	jobs  []slurm.Job
	err   error
}

// recent returns the jobs of a finished or running call, if that is young.
func (l *listing) recent(ctx context.Context) ([]slurm.Job, error) {
	l.mu.Lock()
	c := l.running
	l.mu.Unlock()
	if c != nil && clock.Since(c.began) < young {
		select {
		case <-c.done:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
		if c.err == nil {
			return c.jobs, nil
		}
	}
	return l.fresh(ctx)
}

// since returns the jobs of a call that began at a time or later.
func (l *listing) since(ctx context.Context, at time.Time) ([]slurm.Job, error) {
	l.mu.Lock()
	c := l.running
	late := c == nil || c.began.Before(at)
	l.mu.Unlock()
	if late {
		return l.fresh(ctx)
	}
	select {
	case <-c.done:
		return c.jobs, c.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// young is the age up to which a result is reused.
const young = 2 * time.Second

// fresh returns the jobs of a call that begins after this one.
func (l *listing) fresh(ctx context.Context) ([]slurm.Job, error) {
	l.mu.Lock()
	c := l.next
	if c == nil {
		c = &call{ctx: context.WithoutCancel(ctx), done: make(chan struct{})}
		l.next = c
		if !l.busy {
			l.busy = true
			go l.run()
		}
	}
	l.mu.Unlock()
	select {
	case <-c.done:
		return c.jobs, c.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

func (l *listing) run() {
	for {
		l.mu.Lock()
		c := l.next
		l.next = nil
		if c == nil {
			l.busy = false
			l.mu.Unlock()
			return
		}
		l.running, c.began = c, clock.Now()
		l.mu.Unlock()
		c.jobs, c.err = l.list(c.ctx)
		close(c.done)
	}
}
