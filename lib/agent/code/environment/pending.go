package environment

import (
	"cmp"
	"context"
	"io"
	"sync"
)

// pending is an environment that is being looked up or built. Its users wait together, and each may
// give up before the others.
type pending struct {
	done   chan struct{} // closed at the end
	env    Environment
	err    error
	cancel context.CancelCauseFunc
	log    *handedLog
	needed int // how many wait for it; guarded by the store
}

// Prepare returns the environment, and builds it if necessary. The output of git and pip during the
// build goes to the log of the first caller.
func (s *Store) Prepare(ctx context.Context, spec Spec, log io.Writer) (Environment, error) {
	if err := spec.check(); err != nil {
		return Environment{}, err
	}
	if spec.Source.InPlace {
		return Environment{Place: spec.Source.Directory, Venv: spec.Source.Environment}, nil
	}
	var env Environment
	err := s.held(codePrefix+spec.key(), func(*UnknownError) bool { return true }, func() (err error) {
		env, err = s.share(ctx, spec, log)
		return err
	})
	return env, err
}

// share returns the environment that this process is building, or begins to.
func (s *Store) share(ctx context.Context, spec Spec, log io.Writer) (Environment, error) {
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
		delete(s.underWay, key) // the next caller starts again
	}
	s.mu.Unlock()
	if alone && ctx.Err() != nil {
		b.cancel(context.Cause(ctx))
		<-b.done
	}
	select {
	case <-b.done:
		env := b.env
		env.Venv = cmp.Or(spec.Source.Environment, env.Venv)
		return env, b.err
	default:
		return Environment{}, context.Cause(ctx)
	}
}

// begin starts a build. The store must be locked.
func (s *Store) begin(ctx context.Context, key string, spec Spec, log io.Writer) *pending {
	b := &pending{done: make(chan struct{}), log: &handedLog{to: log}}
	if s.underWay == nil {
		s.underWay = map[string]*pending{}
	}
	s.underWay[key] = b
	ctx, b.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	go func() {
		defer close(b.done)
		b.env, b.err = s.prepare(ctx, key, spec, b.log)
		b.cancel(nil)
		// Later callers look it up again: a failed build may succeed, and an existing environment is
		// kept as long as it is used.
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.underWay[key] == b {
			delete(s.underWay, key)
		}
	}()
	return b
}

// handedLog is a log that its owner may take back.
type handedLog struct {
	mu sync.Mutex
	to io.Writer
}

func (l *handedLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.to != nil {
		_, _ = l.to.Write(p) // an unwritable log must not fail the build
	}
	return len(p), nil
}

func (l *handedLog) handBack() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.to = nil
}
