package worker

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/ponos-tools/ponos/lib/base/clock"
	"github.com/ponos-tools/ponos/lib/base/fault"
	"github.com/ponos-tools/ponos/lib/executor"
	"github.com/ponos-tools/ponos/lib/executor/outside"
	"github.com/ponos-tools/ponos/lib/pool"
	"github.com/ponos-tools/ponos/lib/pool/wire"
)

// Options are a worker's connections to the outside.
type Options struct {
	In        io.Reader
	Out       io.Writer
	Hello     wire.Hello
	Processes func(threads int, handle executor.Handler) executor.System
	Signals   <-chan os.Signal
	Environ   []string
	Temp      string // a directory of its own
	// Orphans finds processes that were reparented to the worker; may be nil.
	Orphans func() []int
	// Clock returns the time in nanoseconds, on a clock that never stops.
	Clock func() int64
	// Alone reports whether the supervisor is gone: then no process may be left to close the
	// connection. May be nil.
	Alone func() bool
	// Available measures the available memory of the node, in bytes; may be nil.
	Available func() int64
	// Clear reports whether nothing is left of another worker; may be nil.
	Clear func(f wire.Identity, keep bool) bool
}

// tick is how often time limits are checked.
const tick = 100 * time.Millisecond

type worker struct {
	Options
	mu     sync.Mutex // guards everything below
	setup  wire.Setup
	out    *wire.Writer
	exec   *executor.Executor
	base   []string // the environment of all tasks
	path   string   // their PATH
	found  map[string]string
	jobs   map[wire.Key]*job
	queue  map[pool.Need][]*job // to follow on a slot of that need
	queued int                  // in all queues
	filled int                  // how many there were when the scheduler last sent some
	plenty atomic.Bool          // there are enough of them for the scheduler not to be in a hurry
	again  []*job               // wait for the system to have room
	moved  time.Time            // when a process of a task last started or ended
	ready  []*job               // start next
	logs   *logs
	credit int64 // bytes of live output
	spool  *spool
	lease  *lease
	gate   *gate
	node   prepared
	lost   atomic.Bool // the scheduler is gone
	ending bool        // nothing new starts
	ended  bool        // by SIGTERM, as by the end of the job
	bye    bool        // the run has ended
	null   *os.File
	over   chan struct{} // told when nothing is left to end
	probed time.Time     // whether there is room for output
	closed bool          // nothing is taken from the scheduler any more
	heard  outside.Heard
}

// Run serves the scheduler until it says goodbye or is gone, and all tasks have ended.
func Run(o Options) error {
	w := &worker{
		Options: o, jobs: map[wire.Key]*job{}, queue: map[pool.Need][]*job{}, found: map[string]string{},
		over: make(chan struct{}, 1),
	}
	w.out = wire.NewWriter(o.Out)
	w.out.Greet(&o.Hello)
	in := wire.NewReader(o.In)
	var first wire.Message
	if err := in.Next(&first); err != nil || first.Setup == nil {
		w.out.Close()
		if err != nil {
			return errors.New("the scheduler disconnected before its first message")
		}
		return errors.New("the scheduler did not begin with its setup")
	}
	if err := w.begin(first.Setup); err != nil {
		w.out.Send(&wire.Message{Fatal: wire.Text(fault.Text(err))})
		w.out.Close()
		return err
	}
	defer w.logs.close()
	defer w.null.Close()
	stop := make(chan struct{})
	defer close(stop)
	go w.awaitOrphans(stop)
	hungUp := make(chan struct{})
	go w.receive(in, hungUp)
	err := w.loop(hungUp)
	w.exec.Close()
	w.locked(w.leaveNode)
	w.logs.flush()
	if e := w.out.Close(); err == nil && !w.lost.Load() {
		err = e
	}
	w.spool.end()
	return err
}

// receive takes what comes from the scheduler, as much as is there at a time, until
// the connection ends.
func (w *worker) receive(in *wire.Reader, hungUp chan<- struct{}) {
	defer close(hungUp)
	for {
		var batch []wire.Message
		for len(batch) == 0 || len(batch) < 256 && in.Buffered() {
			var m wire.Message
			if in.Next(&m) != nil {
				w.locked(func() { w.take(batch) })
				return
			}
			batch = append(batch, m)
		}
		w.locked(func() { w.take(batch) })
	}
}

func (w *worker) begin(s *wire.Setup) error {
	w.setup = *s
	w.credit = wire.LiveCredit
	var err error
	if w.null, err = os.OpenFile(os.DevNull, os.O_RDWR, 0); err != nil {
		return err
	}
	if dir := string(s.Run); dir != "" {
		if _, err := os.Stat(dir); err != nil {
			return fmt.Errorf("the run directory cannot be reached from %s: %w", w.Hello.Host, err)
		}
	}
	w.environment()
	if w.logs, err = newLogs(w, s.Output); err != nil {
		return err
	}
	if s.Finish {
		if w.spool, err = newSpool(w); err != nil {
			return err
		}
	}
	if w.lease, err = newLease(w); err != nil {
		return err
	}
	if s.Keep {
		if err := os.WriteFile(filepath.Join(w.Temp, keepFile), nil, 0o600); err != nil {
			return err
		}
	}
	w.gate = newGate(w)
	limiter := newLimiter(s)
	if limiter != nil {
		w.out.Send(&wire.Message{Enforce: how(limiter)})
	}
	w.node = newPrepared(string(s.Run), lookup(w.base, "SLURM_JOB_ID"), s.Node)
	w.exec = executor.New(executor.Options{
		System: func(handle executor.Handler) executor.System { return w.Processes(s.Threads, handle) },
		Handle: w.handle, Grace: time.Duration(s.Grace * float64(time.Second)), Limiter: limiter,
		Orphans: w.Orphans, Family: taskVar + s.Session + "/", Keep: s.Keep,
	})
	return nil
}

func (w *worker) environment() {
	over := map[string]bool{}
	for _, kv := range w.setup.Env {
		name, _, _ := strings.Cut(string(kv), "=")
		over[name] = true
	}
	for _, kv := range w.Environ {
		name, _, _ := strings.Cut(kv, "=")
		if !over[name] && !strings.HasPrefix(name, "JOBPOOL_") {
			w.base = append(w.base, kv)
		}
	}
	w.base = append(w.base, wire.Strings(w.setup.Env)...)
	if w.setup.HideGPUs {
		w.base = slices.DeleteFunc(w.base, func(kv string) bool {
			return strings.HasPrefix(kv, "CUDA_VISIBLE_DEVICES=") || strings.HasPrefix(kv, "ROCR_VISIBLE_DEVICES=")
		})
	}
	w.base = slices.Clip(w.base)
	w.path = lookup(w.base, "PATH")
}

func lookup(env []string, name string) string {
	for _, kv := range env {
		if v, ok := strings.CutPrefix(kv, name+"="); ok {
			return v
		}
	}
	return ""
}

func (w *worker) loop(hungUp <-chan struct{}) error {
	ticks := time.NewTicker(tick)
	defer ticks.Stop()
	for {
		select {
		case <-hungUp:
			hungUp = nil
			w.locked(w.schedulerLost)
		case s := <-w.Signals:
			w.locked(func() { w.signal(s) })
		case <-ticks.C:
			w.locked(func() { w.tick(clock.Now()) })
		case <-w.over:
		}
		if w.done(hungUp == nil || w.Alone != nil && w.Alone()) {
			return nil
		}
	}
}

// locked runs f, and starts what can start after it.
func (w *worker) locked(f func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f()
	w.startReady()
}

// handle handles the start or end of a program, in the thread that has seen it, and returns what that
// thread starts next.
func (w *worker) handle(e executor.Event) *executor.Command {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.event(e)
	c := w.next()
	w.startReady()
	w.tellOver()
	return c
}

// tellOver wakes the loop when nothing is left to do.
func (w *worker) tellOver() {
	if w.ending && len(w.jobs) == 0 {
		select {
		case w.over <- struct{}{}:
		default:
		}
	}
}

// done reports whether all tasks have ended, none will start, and no client waits for more. From then
// on, nothing is accepted from the scheduler.
func (w *worker) done(alone bool) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = w.ending && len(w.jobs) == 0 && (alone || w.lost.Load())
	return w.closed
}

func (w *worker) take(batch []wire.Message) {
	if w.closed {
		return
	}
	for i := range batch {
		m := &batch[i]
		switch {
		case m.Run != nil:
			w.run(m.Run)
		case m.Kill != nil:
			if j := w.jobs[m.Kill.Key]; j != nil {
				w.kill(j, m.Kill.Why, m.Kill.Now)
			}
		case m.Unrun != nil:
			if j := w.jobs[*m.Unrun]; j != nil && w.unqueue(j) {
				w.out.Send(&wire.Message{Back: m.Unrun})
			}
		case m.Get != nil:
			w.logs.get(*m.Get)
		case m.Sweep != nil:
			w.sweep(*m.Sweep)
		case m.Drop != nil:
			w.logs.drop(*m.Drop)
		case m.Credit != 0:
			w.credit += m.Credit
		case m.Lease != 0:
			w.lease.renewed(m.Lease)
		case m.Leave:
			w.schedulerLost()
			w.out.Send(&wire.Message{Left: true})
			w.tellOver()
		case m.Bye:
			w.ending, w.bye = true, true
			w.lost.Store(true)
			w.stopAll(wire.Stopped, true)
			w.tellOver()
		}
	}
	w.filled = w.queued
}

// run takes a task from the scheduler.
func (w *worker) run(r *wire.Run) {
	if r.Again && w.jobs[r.Key] == nil {
		return // it has followed another task meanwhile, and has ended
	}
	if w.ending {
		w.out.Send(&wire.Message{Back: &r.Key})
		return
	}
	if j := w.jobs[r.Key]; j != nil {
		// The task that it was to follow ended before this message came. If it has got the slot of
		// another one meanwhile, the scheduler is informed of that.
		if w.unqueue(j) {
			j.queued, j.run = false, *r
			w.jobs[r.Key] = j
			w.ready = append(w.ready, j)
		}
		return
	}
	j := &job{run: *r}
	w.jobs[r.Key] = j
	if r.Follow {
		j.queued = true
		w.queued++
		w.queue[r.Need] = append(w.queue[r.Need], j)
		return
	}
	w.ready = append(w.ready, j)
}

// follower returns what is to follow on a slot of that need.
func (w *worker) follower(need pool.Need) *job {
	q := w.queue[need]
	if len(q) == 0 || w.ending {
		return nil
	}
	j := q[0]
	if len(q) == 1 {
		delete(w.queue, need)
	} else {
		w.queue[need] = q[1:]
	}
	j.queued = false
	w.queued--
	return j
}

// unqueue forgets a task that has not been started.
func (w *worker) unqueue(j *job) bool {
	if !j.queued {
		return false
	}
	w.queued--
	need := j.run.Need
	w.queue[need] = slices.DeleteFunc(w.queue[need], func(o *job) bool { return o == j })
	if len(w.queue[need]) == 0 {
		delete(w.queue, need)
	}
	delete(w.jobs, j.run.Key)
	return true
}

// HungUp is the signal by which a worker learns that its streams lead nowhere. Neither a terminal nor
// Slurm sends it.
const HungUp = syscall.SIGIO

// signal passes a signal on to the scheduler, which decides. Only SIGTERM is also handled here: Slurm
// kills everything a little later.
func (w *worker) signal(s os.Signal) {
	at := w.heard.Hear(s, clock.Now())
	switch s {
	case HungUp:
		w.schedulerLost()
	case syscall.SIGUSR1:
		w.out.Send(&wire.Message{Signal: "USR1", At: seconds(at)})
	case syscall.SIGTERM:
		if w.ended {
			return
		}
		w.out.Send(&wire.Message{Signal: "TERM", At: seconds(at)})
		w.ending, w.ended = true, true
		w.giveBack()
		w.cutOff()
		w.stopAll(wire.Stopped, false)
	}
}

// giveBack returns everything that has not been started.
func (w *worker) giveBack() {
	for _, q := range w.queue {
		for _, j := range slices.Clone(q) {
			w.unqueue(j)
			w.out.Send(&wire.Message{Back: &j.run.Key})
		}
	}
	for _, j := range append(w.ready, w.again...) {
		delete(w.jobs, j.run.Key)
		w.out.Send(&wire.Message{Back: &j.run.Key})
	}
	w.ready, w.again = nil, nil
}

func (w *worker) stopAll(why wire.Outcome, now bool) {
	for _, j := range w.jobs {
		w.kill(j, why, now)
	}
}

// schedulerLost decides whether tasks continue when the scheduler is gone.
func (w *worker) schedulerLost() {
	if w.lost.Load() {
		return
	}
	w.ending = true
	w.lost.Store(true)
	w.giveBack()
	w.spool.begin(w.jobs)
	for _, j := range w.jobs {
		// The next scheduler does not know the other nodes of a task.
		if !w.setup.Finish || j.run.Nodes != nil {
			w.kill(j, wire.Stopped, false)
		}
	}
}

// tick handles everything that depends on time.
func (w *worker) tick(now time.Time) {
	w.spool.tick(now)
	w.lease.tick(now)
	var started []wire.Start
	probe := now.Sub(w.probed) >= time.Second
	if probe {
		w.probed = now
	}
	for _, j := range w.jobs {
		if j.doubted(now) {
			w.conclude(j)
		}
		if j.pid == 0 {
			continue
		}
		if !j.told && now.Sub(j.began) >= tick {
			j.told = true
			started = append(started, wire.Start{Key: j.run.Key, PID: j.pid, At: seconds(j.began)})
		}
		if probe && j.out != nil && !j.out.shared {
			probe = !w.logs.noteFull(j.out)
		}
	}
	if started != nil && !w.lost.Load() {
		w.out.Send(&wire.Message{Started: started})
	}
	w.exec.Tick(now)
	w.sendLive()
	w.ready = append(w.ready, w.again...)
	w.again = nil
}

func seconds(t time.Time) float64 { return float64(t.UnixMicro()) / 1e6 }
