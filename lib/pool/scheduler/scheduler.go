package scheduler

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/ponos-tools/ponos/lib/base/clock"
	"github.com/ponos-tools/ponos/lib/base/fault"
	"github.com/ponos-tools/ponos/lib/pool"
	"github.com/ponos-tools/ponos/lib/pool/core"
	"github.com/ponos-tools/ponos/lib/pool/journal"
	"github.com/ponos-tools/ponos/lib/pool/names"
	"github.com/ponos-tools/ponos/lib/pool/wire"
)

// scheduler is the shell around a core. Its fields belong to the goroutine of Run.
type scheduler struct {
	Config
	ctx    context.Context
	cancel context.CancelFunc

	core     *core.Core
	queue    []core.Event // to be handled
	busy     bool         // the queue is being handled
	conns    map[*core.Worker]*conn
	gate     chan struct{} // bounds the connections that are being opened
	opened   int
	dials    dials
	events   chan event
	printer  *printer
	spools   spools
	reader   reader
	taken    bool      // another scheduler has the run directory
	leased   time.Time // until when the run directory says that leases run
	cutting  bool      // a shorter journal is being written
	paused   bool      // the journal cannot be written
	journal  error
	choked   bool
	counted  int    // the last answer of the core to a request
	refused  string // the same
	tails    int64  // bytes of output in the journal
	waiters  map[int64][]func(*core.Result, string, [2][]byte)
	recent   recent
	show     show
	observed time.Time // when Observe was last called
	looked   time.Time // for tasks that were added
}

// event is something that happened in another goroutine.
type event func(s *scheduler)

// Run does all the work, until it is done or a signal ends it.
func Run(ctx context.Context, c Config) *Result {
	s := &scheduler{
		Config: c, conns: map[*core.Worker]*conn{}, gate: make(chan struct{}, max(1, c.ConnectAtOnce)), events: make(chan event, 64),
		waiters: map[int64][]func(*core.Result, string, [2][]byte){}, spools: spools{},
	}
	s.ctx, s.cancel = context.WithCancel(ctx)
	defer s.cancel()
	s.printer = newPrinter(s)
	if c.History != nil {
		s.tails = c.History.Tails
	}
	host, _ := os.Hostname()
	s.Journal.Add(&journal.Record{
		Kind: journal.Begin, Time: now(), Session: c.Setup.Session, Version: c.Version, Format: journal.Format, Host: host,
		PID:   os.Getpid(),
		Retry: c.RetryFailed, Call: c.Call,
	})
	past := s.past()
	s.noteLease(clock.Now().Add(seconds(c.Setup.Lease)))
	policy := c.Policy.Policy
	policy.ReleaseIdle = c.Release != nil
	cfg := core.Config{
		Nodes: c.Nodes, Session: c.Setup.Session, Version: c.Version, Lease: seconds(c.Setup.Lease), Finish: c.Setup.Finish, Past: past,
		Names: &names.Map{Dir: c.Journal.Dir}, Policy: policy, Shared: c.Shared, Resources: c.Resources,
		Closed: c.Closed,
	}
	for _, x := range c.History.Cut() {
		cfg.Succeeded = append(cfg.Succeeded, [2]int64{x.First, x.Last})
	}
	if h := c.History; c.Call != "" && h.Call == c.Call {
		cfg.Done, cfg.Failed = h.Done, h.Failed
	}
	s.core = core.New(cfg, clock.Now())
	s.cancellations()
	s.reader.start(s)
	s.readSpools()
	s.handle(core.Tick{})
	s.loop()
	if s.taken {
		// As if it had been killed: its messages and actions would now interfere with the other
		// scheduler.
		s.cancel()
		return &Result{Err: fault.Wrap(fault.Busy, journal.ErrTaken)}
	}
	return s.finish()
}

func now() float64 { return float64(clock.Now().UnixMicro()) / 1e6 }

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

func (s *scheduler) loop() {
	clock := time.NewTicker(200 * time.Millisecond)
	defer clock.Stop()
	for !s.taken && !s.over() {
		in := s.reader.batches
		if s.core.Full() {
			in = nil
		}
		select {
		case batch, ok := <-in:
			if !ok {
				s.inputEnded()
				break
			}
			s.read(batch)
		case e := <-s.events:
			e(s)
			for range 32 { // what is available, in one batch
				select {
				case e := <-s.events:
					e(s)
					continue
				default:
				}
				break
			}
		case r := <-s.Requests:
			s.request(r)
		case sig := <-s.Signals:
			if sig == syscall.SIGUSR2 {
				s.dump()
				break
			}
			s.handle(core.Signal{Signal: sig.(syscall.Signal)})
		case e := <-s.Changes:
			s.handle(e)
		case t := <-s.Ends:
			s.handle(core.EndOfJob{At: t})
		case <-clock.C:
			s.tick()
		}
		s.flush()
	}
}

// over reports whether the run has ended, and all that can be printed is.
func (s *scheduler) over() bool {
	if !s.core.Finished() {
		return false
	}
	s.printer.rest()
	if s.printer.busy() && s.core.Phase() < core.Killing {
		return false
	}
	if s.core.Phase() != core.Running || s.closeAdded() {
		return true
	}
	s.takeAdded()
	return false
}

// handle passes an event to the core, and applies the effects.
func (s *scheduler) handle(e core.Event) {
	s.queue = append(s.queue, e)
	if s.busy {
		return
	}
	s.busy = true
	for len(s.queue) > 0 {
		e := s.queue[0]
		s.queue = s.queue[1:]
		for _, effect := range s.core.Handle(e, clock.Now()) {
			s.apply(effect)
		}
		if choked := s.printer.choked(); choked != s.choked {
			s.choked = choked
			s.queue = append(s.queue, core.Printing{Choked: choked})
		}
	}
	s.busy = false
}

// send puts an event into the queue of the loop.
func (s *scheduler) send(e event) {
	select {
	case s.events <- e:
	case <-s.ctx.Done():
	}
}

// flush writes the journal, and only then sends messages to the nodes.
func (s *scheduler) flush() {
	err := s.Journal.Flush()
	switch {
	case errors.Is(err, journal.ErrTaken):
		s.taken = true
		return
	case err == nil && s.paused:
		s.paused = false
		s.handle(core.JournalWorks{})
	case err == nil && s.Began != nil:
		s.Began()
		s.Began = nil
	case err == nil:
		s.cut()
	case err != nil:
		var unsent []wire.Key
		for _, c := range s.conns {
			for _, m := range c.runs {
				unsent = append(unsent, m.Run.Key)
			}
			c.runs = nil
		}
		if !s.paused || len(unsent) > 0 {
			s.paused, s.journal = true, err
			s.handle(core.JournalFailed{Why: fault.Text(err), Unsent: unsent})
		}
	}
	for _, c := range s.conns {
		c.flush()
	}
}

// cut makes the journal shorter, now and then, in a pool that stays open. If that fails, it stays as long as it is until
// it is twice as long.
func (s *scheduler) cut() {
	if !s.Serve || s.cutting {
		return
	}
	c := s.Journal.BeginCut()
	if c == nil {
		return
	}
	s.cutting = true
	go func() {
		err := c.Work()
		s.send(func(s *scheduler) {
			s.cutting = false
			tails, err := s.Journal.EndCut(c, err)
			if err != nil {
				s.Message("journal: it cannot be cut for now: %s", fault.Text(err))
				return
			}
			s.tails -= tails
			if s.Added != nil {
				go func() { _ = s.Added.Forget(c.All) }() // what stays is removed by the next scheduler
			}
		})
	}()
}

// tick does what depends on time.
func (s *scheduler) tick() {
	s.spools.tick(s)
	s.noteLease(clock.Now().Add(seconds(s.Setup.Lease))) // also without workers: it shows that this scheduler runs
	e := core.Tick{}
	if s.Release != nil {
		e.Needed = s.printer.needed()
	}
	s.handle(e)
	now := clock.Now()
	s.progress(now)
	if now.Sub(s.looked).Abs() >= time.Second {
		s.looked = now
		s.look()
	}
	if s.Observe != nil && now.Sub(s.observed).Abs() >= time.Second {
		s.observed = now
		s.Observe(s.core.Status(now))
	}
}

// apply applies an effect of the core.
func (s *scheduler) apply(effect core.Effect) {
	switch e := effect.(type) {
	case core.Connect:
		s.connect(e.Worker, e.Within)
	case core.Close:
		if c := s.conns[e.Worker]; c != nil {
			delete(s.conns, e.Worker)
			s.printer.lost(e.Worker)
			go func() {
				_ = c.link.Close()
				_ = c.w.Close()
				s.workerEnded(e.Worker, c.link.End())
			}()
		}
	case core.Setup:
		s.setup(e)
	case core.Lease:
		if s.noteLease(e.Until) {
			s.message(e.Worker, &wire.Message{Lease: e.Asked})
		}
	case core.Send:
		s.message(e.Worker, e.Message)
	case core.Start:
		describe(e)
		s.Journal.Sent(e.Worker.Name(), e.Run.Attempt, e.Run.Seq)
		if c := s.conns[e.Worker]; c != nil {
			c.runs = append(c.runs, &wire.Message{Run: e.Run})
		}
	case core.Say:
		s.Message("%s", e.Text)
	case core.NodeEvent:
		s.Journal.Add(&journal.Record{
			Kind: journal.Node, Time: now(), Node: e.Node, Worker: e.Worker,
			What: wire.Outcome(e.What), Error: wire.Text(e.Why),
		})
	case core.Tried:
		r := record(journal.Try, e.Task, e.Result)
		if s.Hold {
			s.keep(r, e.Task, e.Result)
		}
		s.Journal.Add(r)
		if e.Print {
			s.printer.print(e.Task, e.Result, e.Output)
		} else {
			s.printer.discard(e.Result, e.Output)
		}
	case core.Ended:
		s.ended(e)
	case core.LostOutput:
		r := record(journal.Output, e.Task, e.Result)
		r.What, r.Error = wire.OutputLost, wire.Text(e.Why)
		s.Journal.Add(r)
		s.Journal.Ended(e.Task, r)
	case core.Skipped:
		s.printer.skip(e.Task.Seq)
	case core.Live:
		s.printer.liveData(e.Worker, e.Task, e.Data)
	case core.Fetched:
		s.printer.data(e.Data)
	case core.OutputGone:
		s.printer.lost(e.Worker)
	case core.WakeAt:
		time.AfterFunc(e.After, func() { s.send(func(s *scheduler) { s.handle(core.Wake{}) }) })
	case core.CloseRun:
		s.Close(e.Closing)
	case core.Taken:
		s.refused = e.Refused
	case core.Counted:
		s.counted = e.Count
	case core.AskJob:
		s.askJob()
	case core.Release:
		s.release(e)
	}
}

// askJob finds out whether the job is suspended, and when it ends then. Without an answer, nothing
// changes.
func (s *scheduler) askJob() {
	if s.Job == nil {
		return
	}
	go func() {
		j, err := s.Job(s.ctx)
		if err != nil {
			return
		}
		s.send(func(s *scheduler) {
			if !j.End.IsZero() {
				s.handle(core.EndOfJob{At: j.End})
			}
			s.handle(core.JobState{Suspended: j.Suspended})
		})
	}()
}

// record is what the journal has of an attempt.
func record(kind string, t *pool.Task, r *core.Result) *journal.Record {
	rec := &journal.Record{
		Kind: kind, Time: now(), Seq: r.Seq, Attempt: r.Attempt, Hash: journal.FormatHash(journal.Hash(t)), ID: t.ID(),
		Node: r.Node, What: r.What, Exit: r.Exit, Signal: r.Signal, Start: r.Start, Seconds: r.Seconds,
		User: r.User, System: r.System, MaxRSS: r.MaxRSS, Error: r.Error,
	}
	if r.Dependency {
		rec.By = journal.ByDependency
	}
	return rec
}

// keep adds what is kept of a task that has not succeeded.
func (s *scheduler) keep(rec *journal.Record, t *pool.Task, r *core.Result) {
	command := journal.Command(t)
	rec.Command = wire.Text(command[:min(len(command), journal.MaxCommand)])
	rec.Stdout, rec.Stderr = r.Tails[0], r.Tails[1]
	for _, tail := range []*wire.Tail{&rec.Stdout, &rec.Stderr} {
		tail.Text = tail.Text[:min(int64(len(tail.Text)), max(0, journal.MaxTails-s.tails))]
		s.tails += int64(len(tail.Text))
	}
}

// ended writes the end of a task, and informs the clients that wait for it.
func (s *scheduler) ended(e core.Ended) {
	r := record(journal.End, e.Task, e.Result)
	if r.What != wire.OK {
		s.keep(r, e.Task, e.Result)
	}
	s.Journal.Add(r)
	s.Journal.Ended(e.Task, r)
	seq := e.Task.Seq
	waiters := s.waiters[seq]
	delete(s.waiters, seq)
	tell := func(text [2][]byte) {
		if s.Serve {
			s.recent.add(e.Result, e.Task.ID(), text)
		}
		for _, f := range waiters {
			f(e.Result, e.Task.ID(), text)
		}
	}
	if e.Task.Extra != nil && e.Task.Extra.Capture {
		s.printer.skip(seq)
		s.printer.collect(e.Task, e.Result, e.Output, tell)
		return
	}
	s.printer.print(e.Task, e.Result, e.Output)
	tell([2][]byte{})
}

// leaseAhead is how much longer than needed the leases in the run directory are, so that the file
// need not be written each time.
const leaseAhead = 15 * time.Second

// noteLease records, for the next scheduler, when the leases of workers expire. It reports whether a
// lease can be granted now.
func (s *scheduler) noteLease(until time.Time) bool {
	if until.After(s.leased) {
		if s.Journal.Lease(until.Add(leaseAhead)) != nil {
			return false
		}
		s.leased = until.Add(leaseAhead)
	}
	return true
}

// past returns the workers that earlier schedulers have left.
func (s *scheduler) past() []core.PastWorker {
	until := journal.LeaseEnd(s.Journal.Dir)
	var out []core.PastWorker
	known := map[string]bool{}
	for i, w := range s.History.Orphans() {
		path := s.spoolPath(w)
		_, err := os.Stat(path)
		switch {
		case w.Finish && err != nil:
			continue // it has ended, and left nothing
		case !w.Finish && clock.Now().After(until):
			continue
		}
		known[path] = true
		out = append(out, core.PastWorker{Key: i, Identity: w, Until: until, Spool: w.Finish})
	}
	paths, _ := filepath.Glob(filepath.Join(s.Journal.Dir, spoolDir, "*-*-*"))
	for _, path := range paths {
		if id, ok := spoolIdentity(path); ok && !known[path] {
			out = append(out, core.PastWorker{Identity: id, Until: until, Spool: true})
		}
	}
	return out
}

// release has workers end, and then gives their nodes back.
func (s *scheduler) release(e core.Release) {
	var left []*conn
	for _, w := range e.Workers {
		c := s.conns[w]
		delete(s.conns, w)
		c.flush()
		left = append(left, c)
	}
	go func() {
		for _, c := range left { // the step must have ended
			_ = c.w.Close()
			_ = c.link.Close()
		}
		if err := s.Release(s.ctx, e.Keep); err != nil {
			s.send(func(s *scheduler) { s.Message("nodes cannot be given back: %v", fault.Text(err)) })
			return
		}
		s.send(func(s *scheduler) { s.Message("gave %s back", plural(int64(len(left)), "idle node")) })
	}()
}

// finish ends the connections and sums up.
func (s *scheduler) finish() *Result {
	s.clearProgress()
	err := s.printer.close()
	var kept []*conn
	for w, c := range s.conns {
		if s.core.Keeps(w) {
			kept = append(kept, c)
			delete(s.conns, w)
			continue
		}
		s.message(w, &wire.Message{Bye: true})
		c.flush()
	}
	s.leave(kept)
	// A pool that stays open does so for the next scheduler.
	if sum := s.core.Summary(); sum.Left == 0 && sum.InputRead && (!s.Serve || !sum.HandedOver) && !s.closeAdded() {
		s.handle(core.InputGrows{}) // tasks that were added are left
	}
	r := &Result{Summary: *s.core.Summary(), Err: err}
	if s.tells(r) {
		for _, line := range s.summary(r) {
			s.Message("%s", line)
		}
	}
	s.closeLinks()
	for w, c := range s.conns {
		if c.link.End() != core.Unknown {
			s.Journal.Add(&journal.Record{Kind: journal.Node, Time: now(), Node: w.Name(), What: journal.Gone, Worker: &w.Identity})
		}
	}
	s.Journal.Add(&journal.Record{Kind: journal.Stop, Time: now(), Error: wire.Text(r.Why), Counts: &journal.Counts{
		Done: r.Done, Failed: r.Failed + r.FailedBefore, Cancelled: r.Cancelled + r.CancelledBefore, Left: r.Left, Lost: r.Lost,
	}})
	s.cancel()
	s.dials.end()
	s.writeStatus(true)
	if s.reader.err != nil && r.Err == nil {
		r.Err = s.reader.err
	}
	if err := s.Journal.Flush(); err != nil && r.Err == nil {
		r.Err = fault.Wrap(fault.Unavailable, err)
	} else if err == nil && !s.core.Unclaimed() {
		s.spools.tidy()
	}
	return r
}

// tells reports whether a summary is shown at the end: not for a short run in which all went well.
func (s *scheduler) tells(r *Result) bool {
	if s.Quiet || r.Exit == 128+int(syscall.SIGPIPE) {
		return false
	}
	return s.Verbose || s.Batch || r.Exit != 0 || r.Lost > 0 || r.Err != nil || r.Elapsed > 10*time.Second
}
