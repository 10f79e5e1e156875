package scheduler

import (
	"context"
	"errors"
	"os"
	"syscall"
	"time"

	"github.com/ponos-tools/ponos/lib/pool"
	reader "github.com/ponos-tools/ponos/lib/pool/input"
	"github.com/ponos-tools/ponos/lib/pool/journal"
	"github.com/ponos-tools/ponos/lib/pool/wire"
)

// phase is how far the end of the run has come.
type phase int

const (
	running  phase = iota
	draining       // nothing new starts
	stopping       // what runs gets SIGTERM
	killing        // and SIGKILL
)

// attempt is a task at a node.
type attempt struct {
	task    *pool.Task
	conn    *conn
	slot    *pool.Slot // nil: it follows on a slot, and has not started as far as is known
	sent    time.Time
	started float64
	pid     int
	why     wire.Outcome // why it was told to end
	// unsent is what the node is to be told of it, until the journal has it.
	unsent *wire.Message
	// recalled says that the node was asked to give it back.
	recalled bool
}

func (a *attempt) key() wire.Key { return wire.Key{Seq: a.task.Seq, Attempt: a.task.Attempt} }

type head struct {
	Config
	ctx    context.Context
	cancel context.CancelFunc

	pool    *pool.Pool
	active  map[int64]*attempt
	held    map[int64]*heldTask
	deps    dependencies
	waiters map[int64][]func(*journal.Record, [2][]byte)
	conns   []*conn
	nodes   []*nodeState
	opening int // connections under way or to come
	dials   dials
	events  chan event
	printer *printer
	foreign *foreign
	formers []*former
	prior   map[uint16]*former // by their place in the history
	leased  time.Time          // until when the run directory says that leases run
	hist    map[pool.Need]*histogram
	stats   stats

	eof        bool
	inputErr   error
	lastSeq    int64
	bad        int
	phase      phase
	why        string
	exit       int
	interrupt  int
	killAt     time.Time
	end        time.Time // of the allocation
	margin     time.Duration
	paused     bool // the journal cannot be written
	pausedAt   time.Time
	journErr   error
	releaseAt  time.Time
	began      time.Time
	input      chan []entry
	limbo      int     // tasks of which it is not yet clear why they have ended
	gone       float64 // CPU seconds of nodes that went
	recent     map[int64]*TaskEnd
	recentSeqs []int64
	ticked     time.Time
	showAt     time.Time
	statusAt   time.Time
	lastStart  time.Time // of a task
	woken      bool      // the loop is to be woken when the next may start
}

type entry struct {
	task *pool.Task
	err  error
}

// event is something that happened elsewhere.
type event func(h *head)

// Run does all the work, until it is done or a signal ends it.
func Run(ctx context.Context, c Config) *Result {
	h := &head{
		Config: c, pool: &pool.Pool{Place: c.Place}, active: map[int64]*attempt{}, held: map[int64]*heldTask{},
		waiters: map[int64][]func(*journal.Record, [2][]byte){}, events: make(chan event, 64), began: time.Now(),
		hist: map[pool.Need]*histogram{}, deps: newDependencies(c.TrackSeq, c.Journal.Dir),
	}
	h.ctx, h.cancel = context.WithCancel(ctx)
	defer h.cancel()
	h.pool.Late = h.late
	h.pool.Now = func() int64 { return time.Now().UnixMicro() }
	h.printer = newPrinter(h)
	host, _ := os.Hostname()
	h.Journal.Add(&journal.Record{Kind: journal.Begin, Time: now(), Session: c.Setup.Session, Version: c.Version, Host: host, PID: os.Getpid()})
	h.foreign = newForeign(h)
	h.past()
	h.noteLease(time.Now())
	h.startInput()
	h.connectAll()
	h.loop()
	return h.finish()
}

func now() float64 { return float64(time.Now().UnixMicro()) / 1e6 }

// startInput reads the input ahead, in pieces.
func (h *head) startInput() {
	if h.Source == nil {
		h.eof = true
		return
	}
	h.input = make(chan []entry)
	out := h.input
	go func() {
		defer close(out)
		for {
			var batch []entry
			for len(batch) < 256 {
				t, err := h.Source.Next()
				batch = append(batch, entry{t, err})
				// What is there must not wait for what a pipe brings later.
				if err != nil && !isBadTask(err) || !h.Source.Ready() {
					break
				}
			}
			select {
			case out <- batch:
			case <-h.ctx.Done():
				return
			}
			if last := batch[len(batch)-1]; last.err != nil && !isBadTask(last.err) {
				return
			}
		}
	}()
}

func (h *head) loop() {
	clock := time.NewTicker(200 * time.Millisecond)
	defer clock.Stop()
	for !h.finished() {
		in := h.input
		if h.full() {
			in = nil
		}
		select {
		case batch, ok := <-in:
			if !ok {
				h.input, h.eof = nil, true
				break
			}
			h.take(batch)
		case e := <-h.events:
			e(h)
			for range 32 { // what is there already, in one go
				select {
				case e := <-h.events:
					e(h)
					continue
				default:
				}
				break
			}
		case r := <-h.Requests:
			h.request(r)
		case s := <-h.Signals:
			h.signal(s)
		case t := <-h.Ends:
			h.setEnd(t)
		case t := <-clock.C:
			h.tick(t)
		}
		h.schedule()
		h.flush()
	}
}

// full reports whether enough input is in memory. While nothing can start of what
// is there, more is read: what it waits for may come.
func (h *head) full() bool {
	if h.phase != running || h.paused {
		return true
	}
	n := h.pool.Waiting() + h.deps.waiting()
	return n >= h.ReadAhead && (len(h.active) > 0 || h.pool.Waiting() > 0)
}

// send puts an event into the queue of the loop.
func (h *head) send(e event) {
	select {
	case h.events <- e:
	case <-h.ctx.Done():
	}
}

// flush writes the journal, and only then lets the nodes know.
func (h *head) flush() {
	err := h.Journal.Flush()
	switch {
	case err == nil && h.paused:
		h.paused = false
		h.Message("journal: can be written again")
	case err != nil && !h.paused:
		h.paused, h.pausedAt, h.journErr = true, time.Now(), err
		h.Message("journal: %v: nothing new is started", err)
	}
	for _, c := range h.conns {
		c.flush(err == nil)
	}
}

// takeBack requeues what was to be sent and cannot be, as the journal does not
// have it.
func (h *head) takeBack() {
	for _, c := range h.conns {
		for _, m := range c.runs {
			a := c.attempts[m.Run.Seq]
			if a == nil {
				continue
			}
			delete(c.attempts, m.Run.Seq)
			delete(h.active, m.Run.Seq)
			if a.slot == nil {
				c.unqueue(a)
			} else {
				h.pool.Release(a.slot)
			}
			h.stats.attempts--
			h.pool.Push(a.task)
		}
		c.runs = nil
	}
}

// finished reports whether the run is over.
func (h *head) finished() bool {
	if h.paused && time.Since(h.pausedAt) > journalPatience {
		h.stop(draining, "the journal cannot be written", 1)
	}
	if len(h.active)+h.limbo == 0 && h.phase >= draining {
		h.printer.rest()
	}
	if len(h.active) > 0 || h.limbo > 0 || h.printer.busy() && h.phase < killing {
		return false
	}
	if h.phase >= draining {
		return true
	}
	if len(h.held) > 0 || h.Serve || !h.eof || h.foreign.waiting() || h.doubts() > 0 {
		return h.stuck()
	}
	if h.pool.Waiting() == 0 {
		if h.deps.waiting() == 0 {
			return true
		}
		h.cancelUnmet()
		return h.pool.Waiting() == 0 && h.deps.waiting() == 0
	}
	return h.stuck()
}

// stall is for how long the head must not have run to be taken for stopped.
const stall = 5 * time.Second

// journalPatience is how long the head waits for a full disk to have room.
const journalPatience = 10 * time.Second

// stuck reports whether nothing that waits can ever start.
func (h *head) stuck() bool {
	if len(h.conns) == 0 && h.opening == 0 {
		h.stop(draining, "no node is left", 3)
		return true
	}
	if h.pool.Waiting() > 0 && h.eof && len(h.held) == 0 && !h.Serve && h.opening == 0 && !h.foreign.waiting() && h.doubts() == 0 && h.allLate() {
		h.stop(draining, "what is left cannot end before the job does", exitLeft)
		return true
	}
	return false
}

// exitLeft is the status of a run that was ended with work left.
const exitLeft = 75

// stop brings the end of the run forward; it never goes back.
func (h *head) stop(to phase, why string, exit int) {
	if h.why == "" {
		h.why, h.exit = why, exit
	}
	if to <= h.phase {
		return
	}
	h.phase = to
	h.leaveDoubts()
	if h.paused {
		h.takeBack()
	}
	for _, c := range h.conns {
		for _, q := range c.backlog {
			for _, a := range q {
				c.recall(a)
			}
		}
	}
	switch to {
	case stopping:
		h.killAt = time.Now().Add(h.TermGrace)
		h.killActive(wire.Stopped, false)
	case killing:
		h.killAt = time.Now().Add(5 * time.Second)
		h.killActive(wire.Stopped, true)
	}
}

func (h *head) killActive(why wire.Outcome, immediately bool) {
	for _, a := range h.active {
		h.kill(a, why, immediately)
	}
}

func (h *head) kill(a *attempt, why wire.Outcome, immediately bool) {
	if a.why == "" {
		a.why = why
	}
	a.conn.send(&wire.Message{Kill: &wire.Kill{Key: a.key(), Why: a.why, Now: immediately}})
}

// tick does what depends on time.
func (h *head) tick(t time.Time) {
	if !h.ticked.IsZero() && t.Sub(h.ticked) > stall {
		for _, c := range h.conns { // they may have been stopped, too
			c.heard = t
		}
	}
	h.ticked = t
	h.checkNodes(t)
	h.checkFormers(t)
	h.checkEnd(t)
	h.checkSlow(t)
	if h.phase == stopping && t.After(h.killAt) {
		h.stop(killing, "", 0)
	} else if h.phase == killing && t.After(h.killAt) {
		// Whoever does not answer now is given up.
		for _, c := range h.conns {
			if len(c.attempts) > 0 {
				c.link.Close()
			}
		}
		h.killAt = t.Add(time.Minute)
	}
	h.foreign.tick(t)
	h.releaseIdle(t)
	h.show(t)
}

// signal follows the table in the manual.
func (h *head) signal(s os.Signal) {
	switch s {
	case syscall.SIGINT:
		h.interrupt++
		switch h.interrupt {
		case 1:
			h.stop(draining, "interrupted", 128+int(syscall.SIGINT))
			if n := h.runs(); n > 0 {
				h.Message("interrupted: waiting for %s; interrupt again to end them", plural(n, "task"))
			}
		case 2:
			h.Message("interrupted: ending %s; interrupt again to kill them", plural(h.runs(), "task"))
			h.stop(stopping, "interrupted", 128+int(syscall.SIGINT))
		default:
			h.stop(killing, "interrupted", 128+int(syscall.SIGINT))
		}
	case syscall.SIGTERM:
		h.why, h.exit = "ended by SIGTERM", 128+int(syscall.SIGTERM)
		h.stop(stopping, h.why, h.exit)
	case syscall.SIGHUP:
		h.why, h.exit = "ended by SIGHUP", 128+int(syscall.SIGHUP)
		h.stop(stopping, h.why, h.exit)
	case syscall.SIGUSR1:
		h.drain("drained by SIGUSR1")
	case syscall.SIGUSR2:
		h.dump()
	}
}

// runs is the number of tasks that run, as far as is known.
func (h *head) runs() int64 {
	n := len(h.active)
	for _, c := range h.conns {
		n -= c.queued
	}
	return int64(n)
}

// drain lets what runs end and starts nothing new.
func (h *head) drain(why string) {
	if h.phase == running {
		waits := ""
		if n := h.runs(); n > 0 {
			waits = ", waiting for " + plural(n, "task")
		}
		h.Message("%s: nothing new is started%s", why, waits)
	}
	h.stop(draining, why, exitLeft)
}

// finish ends the connections and sums up.
func (h *head) finish() *Result {
	h.clearProgress()
	for _, c := range h.conns {
		c.send(&wire.Message{Bye: true})
		c.flush(true)
	}
	r := h.result()
	if h.tells(r) {
		for _, line := range h.summary(r) {
			h.Message("%s", line)
		}
	}
	h.closeLinks()
	h.foreign.tidy()
	for _, c := range h.conns {
		if c.link.Ended() {
			h.ended(c.identity())
		}
	}
	h.Journal.Add(&journal.Record{Kind: journal.Stop, Time: now(), Error: wire.Text(r.Why), Counts: &journal.Counts{
		Done: r.Done, Failed: r.Failed + r.Cancelled, Left: r.Left, Lost: r.Lost,
	}})
	h.cancel()
	h.dials.end()
	h.writeStatus(true)
	if err := h.printer.close(); err != nil && r.Err == nil {
		r.Err = err
	}
	if h.inputErr != nil && r.Err == nil {
		r.Err = h.inputErr
	}
	if err := h.Journal.Flush(); err != nil && r.Err == nil {
		r.Err = err
	}
	return r
}

// tells reports whether there is something to say at the end: all went well in a
// moment is not.
func (h *head) tells(r *Result) bool {
	if h.Quiet || r.Why == "the output was closed" {
		return false
	}
	return h.Verbose || h.Batch || r.Exit != 0 || r.Lost > 0 || r.Err != nil || time.Since(h.began) > 10*time.Second
}

// isBadTask reports an error after which the input goes on.
func isBadTask(err error) bool {
	var bad *reader.BadTask
	return errors.As(err, &bad)
}
