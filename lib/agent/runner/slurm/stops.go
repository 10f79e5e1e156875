package slurm

import (
	"context"
	"errors"
	"maps"
	"regexp"
	"slices"
	"sync"
	"time"

	"github.com/ponos-tools/ponos/lib/base/clock"
	"github.com/ponos-tools/ponos/lib/base/fault"
	"github.com/ponos-tools/ponos/lib/base/watch"
	"github.com/ponos-tools/ponos/lib/slurm"
	"github.com/ponos-tools/ponos/lib/task"
	"github.com/ponos-tools/ponos/lib/task/runner"
)

// stops gathers the jobs that the stops of a look have cancelled, so that few calls of scancel do.
type stops struct {
	cancel func(ctx context.Context, ids ...string) error

	mu   sync.Mutex
	next []*cancelling
	open map[string]runner.Ref // the jobs that stops wait for
}

// waits notes a job that a stop waits for, until over is called.
func (s *stops) waits(ref runner.Ref) (over func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open == nil {
		s.open = map[string]runner.Ref{}
	}
	s.open[ref.Job] = ref
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.open, ref.Job)
	}
}

// cancelling is a job that is cancelled; err is read by the looks after that.
type cancelling struct {
	id  string
	err error
}

// maxCancelled limits the ids in a call, which must end within the time that a call has. After each, the controller has as
// much time for others, at most this.
const (
	maxCancelled = 500
	longestRest  = 2 * time.Second
)

// job has a job cancelled after this look.
func (s *stops) job(id string) *cancelling {
	c := &cancelling{id: id}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.next = append(s.next, c)
	return c
}

// run cancels the jobs that have gathered.
func (s *stops) run(ctx context.Context) {
	s.mu.Lock()
	all := s.next
	s.next = nil
	s.mu.Unlock()
	for some := range slices.Chunk(all, maxCancelled) {
		ids := make([]string, len(some))
		for i, c := range some {
			ids[i] = c.id
		}
		began := clock.Now()
		err := s.cancel(ctx, ids...)
		for _, c := range some {
			if err != nil && concerns(err, c.id) {
				c.err = err
			}
		}
		if len(all) > maxCancelled {
			time.Sleep(min(clock.Since(began), longestRest))
		}
	}
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

// Stop cancels all jobs of the task, and waits until squeue shows none of them as alive. Concurrent stops
// share calls of squeue and scancel.
func (r *Runner) Stop(ctx context.Context, ref runner.Ref) error {
	ctx, cancel := context.WithTimeoutCause(ctx, r.stopWait,
		fault.Errorf(fault.Failed, "job %s has not ended within %v of scancel", ref.Job, r.stopWait))
	defer cancel()
	if err := r.stopPacked(ctx, ref); err != nil {
		return err
	}
	if isPacked(ref.Job) {
		ref.Job = "" // there may be another one
	}
	if ref.Job != "" {
		defer r.stops.waits(ref)()
	}
	cancelled := map[string]*cancelling{}
	return r.squeue.Until(ctx, func(l *listing) (watch.Next, error) {
		alive, err := r.aliveOf(ctx, l, ref, cancelled[ref.Job] != nil)
		if err != nil || len(alive) == 0 {
			return watch.Over, err
		}
		next := watch.Later
		for _, id := range alive {
			if c := cancelled[id]; c == nil {
				cancelled[id], next = r.stops.job(id), watch.Soon
			} else if c.err != nil {
				return watch.Over, c.err
			}
		}
		return next, nil
	})
}

// ended returns the jobs that stops wait for, that a listing does not show, and that have ended for ever according to accounting, by
// one query for all.
func (r *Runner) ended(ctx context.Context, l *listing) map[string]bool {
	r.stops.mu.Lock()
	all := map[string]evidence{}
	for id, ref := range r.stops.open {
		if l.ofID[id] == nil {
			all[id] = evidence{ref: ref}
		}
	}
	r.stops.mu.Unlock()
	ended := map[string]bool{}
	_ = r.accounting.ask(ctx, r.now, func(ctx context.Context) error { // without an answer, each is asked for
		records, err := r.client.Account(ctx, slices.Sorted(maps.Keys(all)))
		for id, e := range all {
			record, ok := e.recordIn(records)
			s, known := state(record.State)
			forEver := known && s.Final() && !states[record.State].is(requeue) && (record.State != "CANCELLED" || record.By != "")
			ended[id] = err == nil && ok && forEver
		}
		return err
	})
	return ended
}

// aliveOf returns the jobs of a task that have not ended. One that the listing does not show is asked for, unless it was
// cancelled or has ended according to accounting: Slurm has forgotten it, or the listing is wrong. Its id may have been reused.
func (r *Runner) aliveOf(ctx context.Context, l *listing, ref runner.Ref, cancelled bool) (alive []string, err error) {
	mark := task.Marks(ref.Task)
	for _, row := range l.ofTask[mark] {
		if Alive(row) {
			alive = append(alive, row.Number())
		}
	}
	if ref.Job == "" || cancelled || l.ofID[ref.Job] != nil || l.ended()[ref.Job] {
		return alive, nil
	}
	shown, err := r.client.JobDetails(ctx, ref.Job)
	for _, job := range shown {
		if slices.Contains(job.Numbers(), ref.Job) && commentOf(ref.Job, job.Comment) == mark && Alive(&slurm.Job{State: job.State}) {
			alive = append(alive, ref.Job)
		}
	}
	return alive, err
}
