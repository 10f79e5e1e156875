package slurm

import (
	"context"
	"sync"

	"github.com/ponos-tools/ponos/lib/slurm"
)

// listing shares calls of squeue among those that ask at the same time. An answer
// is always newer than the question: who asks while a call is under way gets the
// next one.
type listing struct {
	list func(context.Context) ([]slurm.Job, error)

	mu      sync.Mutex
	running bool
	next    *call
}

type call struct {
	ctx  context.Context
	done chan struct{}
	jobs []slurm.Job
	err  error
}

// fresh returns the jobs of a call that begins after this one.
func (l *listing) fresh(ctx context.Context) ([]slurm.Job, error) {
	l.mu.Lock()
	c := l.next
	if c == nil {
		c = &call{ctx: context.WithoutCancel(ctx), done: make(chan struct{})}
		l.next = c
		if !l.running {
			l.running = true
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
			l.running = false
			l.mu.Unlock()
			return
		}
		l.mu.Unlock()
		c.jobs, c.err = l.list(c.ctx)
		close(c.done)
	}
}
