package environment

import (
	"context"
	"io"
	"sync"
)

// building is an environment that is being looked up or built. Those who need it
// wait together, and each may go before the others.
type building struct {
	done   chan struct{} // closed at the end
	env    Environment
	err    error
	cancel context.CancelCauseFunc
	log    *handedLog
	needed int // how many wait for it; guarded by the store
}

// Prepare returns the environment, building it if need be. What git and pip say
// while building goes to the log of the first who asks.
func (s *Store) Prepare(ctx context.Context, spec Spec, log io.Writer) (Environment, error) {
	if err := spec.check(); err != nil {
		return Environment{}, err
	}
	spec, err := s.resolve(ctx, spec, log)
	if err != nil {
		return Environment{}, err
	}
	key := spec.key()
	s.mu.Lock()
	b, first := s.underWay[key], false
	if b == nil {
		b, first = s.begin(ctx, key, spec, log), true
	}
	b.needed++
	s.mu.Unlock()
	select {
	case <-b.done:
	case <-ctx.Done():
	}
	if first {
		b.log.handBack()
	}
	s.mu.Lock()
	b.needed--
	alone := b.needed == 0
	if alone && ctx.Err() != nil && s.underWay[key] == b {
		delete(s.underWay, key) // who comes now starts again
	}
	s.mu.Unlock()
	if alone && ctx.Err() != nil {
		b.cancel(context.Cause(ctx))
		<-b.done
	}
	select {
	case <-b.done:
		return b.env, b.err
	default:
		return Environment{}, context.Cause(ctx)
	}
}

// begin starts to build. The store must be locked.
func (s *Store) begin(ctx context.Context, key string, spec Spec, log io.Writer) *building {
	b := &building{done: make(chan struct{}), log: &handedLog{to: log}}
	if s.underWay == nil {
		s.underWay = map[string]*building{}
	}
	s.underWay[key] = b
	ctx, b.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	go func() {
		defer close(b.done)
		b.env, b.err = s.prepare(ctx, key, spec, b.log)
		b.cancel(nil)
		// Who asks later looks again: one that has failed may succeed, and one that is
		// there is kept as long as it is asked for.
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.underWay[key] == b {
			delete(s.underWay, key)
		}
	}()
	return b
}

// handedLog is a log that its owner may want back.
type handedLog struct {
	mu sync.Mutex
	to io.Writer
}

func (l *handedLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.to != nil {
		_, _ = l.to.Write(p) // a log that cannot be written must not fail the building
	}
	return len(p), nil
}

func (l *handedLog) handBack() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.to = nil
}
