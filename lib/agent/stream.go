package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/ponos-tools/ponos/lib/base/fault"
	"github.com/ponos-tools/ponos/lib/task"
)

// Stream does the actions of one kind in a stream of records, several at a time, and passes
// everything else on at once, unchanged and in order. An action that was done is replaced by its
// outcome. Only records about a task on which this stream works wait until that work is done.
type Stream struct {
	Kind task.Kind
	Jobs int // at the same time
	// Enter, if set, is called for each action in order, and returns the context in which it is
	// done.
	Enter   func(context.Context) (context.Context, error)
	Do      func(context.Context, task.ID) (task.Outcome, error)
	Out     io.Writer
	Problem func(error) // called with each failure as it happens

	mu       sync.Mutex
	more     sync.Cond // of next
	next     []task.ID // actions that are not begun yet, in order
	all      bool      // no more will come
	writeErr error
	working  map[task.ID]*held
	failures int
	refusals int // failures because of a queue or scheduler
	named    bool
}

// held are the lines that wait for the end of the work on their task.
type held struct{ lines [][]byte }

// Run reads records until the end of the input or of the context, whichever comes first, and waits
// for the work that it has begun. Its error only sets the exit status: Problem was called with the
// failures themselves.
func (s *Stream) Run(ctx context.Context, in io.Reader) error {
	lines := make(chan task.Line)
	readErr := make(chan error, 1)
	go func() { // may be left behind, waiting for a line, when the context ends
		readErr <- task.ReadLines(in, func(line task.Line, problem error) error {
			if problem != nil {
				s.fail(fault.Wrap(fault.Failed, problem))
				return nil
			}
			select {
			case lines <- line:
				return nil
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		})
		close(lines)
	}()
	wait := s.workers(ctx)
	for {
		select {
		case <-ctx.Done():
			wait()
			return context.Cause(ctx)
		case line, ok := <-lines:
			if !ok {
				wait()
				if err := <-readErr; err != nil {
					s.fail(err)
				}
				return s.result(ctx)
			}
			s.take(line)
			if s.broken() != nil {
				wait()
				return s.broken()
			}
		}
	}
}

// RunIDs does the actions for the given tasks, and reads no input.
func (s *Stream) RunIDs(ctx context.Context, ids []task.ID) error {
	s.named = true
	wait := s.workers(ctx)
	for _, id := range ids {
		s.take(task.Line{Action: &task.Action{Kind: s.Kind, ID: id}})
	}
	wait()
	return s.result(ctx)
}

// workers begins the actions that are taken, in order. Wait is called when all have been.
func (s *Stream) workers(ctx context.Context) (wait func()) {
	s.working, s.more.L = map[task.ID]*held{}, &s.mu
	free := make(chan struct{}, max(1, s.Jobs))
	var wg sync.WaitGroup
	wg.Go(func() {
		for id, ok := s.begin(); ok; id, ok = s.begin() {
			free <- struct{}{}
			entered := ctx
			if s.Enter != nil {
				if in, err := s.Enter(ctx); err == nil { // else the stream ends
					entered = in
				}
			}
			wg.Go(func() {
				defer func() { <-free }()
				if ctx.Err() == nil {
					s.do(entered, id)
				}
			})
		}
	})
	return func() {
		s.mu.Lock()
		s.all = true
		s.mu.Unlock()
		s.more.Signal()
		wg.Wait()
	}
}

// begin waits for the next action; false: all are begun.
func (s *Stream) begin() (id task.ID, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.next) == 0 && !s.all {
		s.more.Wait()
	}
	if len(s.next) == 0 {
		return "", false
	}
	id, s.next = s.next[0], s.next[1:]
	return id, true
}

// take passes a line on, or has its action done.
func (s *Stream) take(line task.Line) {
	mine := line.Action != nil && line.Action.Kind == s.Kind
	s.mu.Lock()
	if line.Action != nil {
		if h := s.working[line.Action.ID]; h != nil {
			if !mine { // the same action again says nothing new
				h.lines = append(h.lines, line.Raw)
			}
			s.mu.Unlock()
			return
		}
	}
	if !mine {
		s.write(line.Raw)
		s.mu.Unlock()
		return
	}
	s.working[line.Action.ID] = &held{}
	s.next = append(s.next, line.Action.ID)
	s.mu.Unlock()
	s.more.Signal()
}

func (s *Stream) do(ctx context.Context, id task.ID) {
	outcome, err := s.Do(ctx, id)
	// In a stream, a task that is gone meanwhile is not worth a message.
	if err == nil && (outcome.Event == "failed" || outcome.Event == "unknown" && s.named) {
		err = fault.Errorf(fault.Failed, "task %s: %s", id, outcome.Reason)
	}
	if err != nil && ctx.Err() == nil {
		s.fail(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if outcome.Event != "" {
		if b, err := json.Marshal(outcome); err == nil {
			s.write(b)
		}
	}
	for _, line := range s.working[id].lines {
		s.write(line)
	}
	delete(s.working, id)
}

// write writes a line. The lock must be held.
func (s *Stream) write(line []byte) {
	if s.writeErr == nil {
		_, s.writeErr = s.Out.Write(append(line, '\n'))
	}
}

func (s *Stream) broken() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.writeErr
}

func (s *Stream) fail(err error) {
	s.mu.Lock()
	s.failures++
	if fault.Is(err, fault.Unavailable) {
		s.refusals++
	}
	s.mu.Unlock()
	s.Problem(err)
}

// result returns the status: that of the scheduler or queue if nothing else failed.
func (s *Stream) result(ctx context.Context) error {
	if err := s.broken(); err != nil {
		return fmt.Errorf("standard output: %w", err)
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	switch s.failures {
	case 0:
		return nil
	case s.refusals:
		return fault.Exit(int(fault.Unavailable), nil)
	}
	return fault.Exit(int(fault.Failed), nil)
}

// ParseIDs checks the ids given as arguments, and reports all invalid ones together.
func ParseIDs(args []string) ([]task.ID, error) {
	var ids []task.ID
	var errs []error
	for _, arg := range args {
		id, err := task.ParseID(arg)
		ids, errs = append(ids, id), append(errs, err)
	}
	return ids, fault.Wrap(fault.Usage, errors.Join(errs...))
}
