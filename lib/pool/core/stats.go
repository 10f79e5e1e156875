package core

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/ponos-tools/ponos/lib/pool"
	"github.com/ponos-tools/ponos/lib/pool/wire"
)

// stats are the sums of a run.
type stats struct {
	seen, skipped              int64
	failedBefore               int64
	cancelledBefore            int64
	done, failed, cancelled    int64
	lost, attempts, outputLost int64
	exceeded                   int64 // that ran out of memory
	left                       []Reason
	cpu, busy                  float64 // seconds: used by tasks, given to them
	first                      time.Time
	slowest                    []Slow
	recent                     [8]int64 // ends in each of the last seconds
	recentAt                   int64
}

// Reason is why tasks are left.
type Reason struct {
	Why  string
	Seqs []int64
}

// Slow is a task that took long.
type Slow struct {
	Task    *pool.Task
	Node    string
	Seconds float64
}

// maxReasons limits how many reasons for leaving tasks are counted separately.
const maxReasons = 20

func (s *stats) leave(why string, seq int64) {
	i := slices.IndexFunc(s.left, func(l Reason) bool { return l.Why == why })
	if i < 0 && len(s.left) == maxReasons {
		i = maxReasons - 1
	}
	if i < 0 {
		s.left = append(s.left, Reason{Why: why, Seqs: []int64{seq}})
		return
	}
	s.left[i].Seqs = append(s.left[i].Seqs, seq)
}

// usage adds what an attempt has used.
func (s *stats) usage(r *Result, t *pool.Task) {
	s.cpu += r.User + r.System
	need := t.Need()
	s.busy += r.Seconds * float64(need.CPUs*need.Width())
}

// end counts the end of a task.
func (s *stats) end(t *pool.Task, r *Result, now time.Time) {
	second := now.Unix()
	for s.recentAt < second {
		s.recentAt = max(s.recentAt+1, second-int64(len(s.recent)))
		s.recent[s.recentAt%int64(len(s.recent))] = 0
	}
	s.recent[second%int64(len(s.recent))]++
	switch r.What {
	case wire.OK:
		s.done++
	case wire.Cancelled:
		s.cancelled++
	default:
		s.failed++
	}
	if r.What == wire.OutOfMemory {
		s.exceeded++
	}
	if n := len(s.slowest); r.Node != "" && (n < 5 || r.Seconds > s.slowest[n-1].Seconds) {
		s.slowest = append(s.slowest, Slow{t, r.Node, r.Seconds})
		slices.SortStableFunc(s.slowest, func(a, b Slow) int { return cmp.Compare(b.Seconds, a.Seconds) })
		s.slowest = s.slowest[:min(5, len(s.slowest))]
	}
}

// rate returns how many tasks ended each second lately.
func (s *stats) rate(now time.Time) float64 {
	var sum int64
	for _, n := range s.recent {
		sum += n
	}
	since := now.Sub(s.first).Seconds()
	return float64(sum) / math.Max(1, math.Min(since, float64(len(s.recent)-1)))
}

// average returns the expected rate: the recent one, or that of the whole run if few tasks have ended
// lately.
func (s *stats) average(now time.Time) float64 {
	var sum int64
	for _, n := range s.recent {
		sum += n
	}
	if sum >= 20 {
		return s.rate(now)
	}
	return float64(s.done+s.failed) / math.Max(1, now.Sub(s.first).Seconds())
}

// histogram counts durations in classes that grow by a fifth.
type histogram struct {
	counts [160]int32
	total  int32
}

func (g *histogram) add(seconds float64) {
	i := int(math.Log(math.Max(seconds, 1e-4)/1e-4) / math.Log(1.2))
	g.counts[min(max(i, 0), len(g.counts)-1)]++
	g.total++
}

// quantile returns a duration that this fraction of the tasks do not exceed.
func (g *histogram) quantile(part float64) float64 {
	want := int32(math.Ceil(part * float64(g.total)))
	var sum int32
	for i, n := range g.counts {
		if sum += n; sum >= want {
			return 1e-4 * math.Pow(1.2, float64(i+1))
		}
	}
	return 0
}

func (ts *tasks) measure(n pool.Need, seconds float64) {
	ts.took += seconds
	ts.measured++
	g := ts.hist[n]
	if g == nil {
		if len(ts.hist) > 1000 {
			return
		}
		g = &histogram{}
		ts.hist[n] = g
	}
	g.add(seconds)
}

// likely is the part of its kind that a task must have time for to be started before a job ends. CPUs
// that are not given to a task then are idle until the end of the job: with a larger part, more time
// is lost by that than by tasks that are cut off.
const likely = 0.75

// expected returns how long a task will probably take: by its own estimate, by the user's, or by what others of its
// kind took.
func (ts *tasks) expected(t *pool.Task) time.Duration {
	if d := cmp.Or(t.Spec.Time, ts.TimePerTask); d > 0 {
		return d
	}
	if g := ts.hist[t.Need()]; g != nil && g.total >= 20 {
		return time.Duration(g.quantile(likely) * float64(time.Second))
	}
	return 0
}

// checkSlow ends tasks that take longer than --timeout N%: that part of the median
// time of three or more that have succeeded, in this run or before.
func (ts *tasks) checkSlow() {
	if ts.TimeoutPercent == 0 {
		return
	}
	var all histogram
	for _, g := range ts.hist {
		for i, n := range g.counts {
			all.counts[i] += n
		}
		all.total += g.total
	}
	if all.total < 3 {
		return
	}
	limit := all.quantile(0.5) * float64(ts.TimeoutPercent) / 100
	for _, a := range sorted(ts.attempts) {
		if a.started > 0 && a.why == "" && ts.seconds()-a.started > limit {
			ts.kill(a, wire.Timeout, false)
		}
	}
}

// late reports that a task would not end at any node before that node's job ends.
func (ts *tasks) late(t *pool.Task) bool {
	for _, w := range ts.nodes.workers {
		if !ts.lateAt(t, w.n) {
			return false
		}
	}
	e := ts.ending
	return len(ts.nodes.workers) > 0 || !e.ofJob.IsZero() && ts.now.Add(ts.expected(t)).After(e.ofJob.Add(-e.margin))
}

// sample is how many waiting tasks stand for all.
const sample = 16

// soonest returns in what time the shortest of the next waiting tasks will probably have ended. It is
// not ok if no task waits.
func (ts *tasks) soonest() (least time.Duration, ok bool) {
	n := 0
	ts.pool.Each(func(t *pool.Task) bool {
		if d := ts.expected(t); n == 0 || d < least {
			least = d
		}
		n++
		return n < sample
	})
	return least, n > 0
}

// waitFor reports whether a task waits that a node could end in time.
func (ts *tasks) waitFor(w *Worker) bool {
	found := false
	ts.pool.Each(func(t *pool.Task) bool {
		found = !ts.lateAt(t, w.n)
		return !found
	})
	return found
}

// allLate reports whether everything that waits is late.
func (ts *tasks) allLate() bool {
	all := true
	ts.pool.Each(func(t *pool.Task) bool {
		all = ts.late(t)
		return all
	})
	return all
}

// Summary is the result of a run.
type Summary struct {
	Done, Failed, Cancelled int64
	// Skipped had ended before; of these, some had failed or were cancelled.
	Skipped, FailedBefore, CancelledBefore int64
	Left                                   int64 // were not run, or not to their end
	Reasons                                []Reason
	Attempts, Lost                         int64           // Lost: began, were lost and run again
	Exceeded                               int64           // ran out of memory
	Limits                                 []wire.MemLimit // how nodes limit it
	InputRead                              bool
	// Why the run has ended before all was done; empty if it was done.
	Why string
	// Exit is the status for the shell.
	Exit      int
	Elapsed   time.Duration
	Given     float64 // of the CPUs' time, to tasks
	Used      float64 // by them
	Slowest   []Slow
	JournalOK bool
	// HandedOver says that another scheduler is to continue; Early, that the own job did not come to its
	// end. Terminated: it got SIGTERM, as when its job is cancelled. Closed: nothing more is to be started.
	HandedOver, Early, Terminated, Closed bool
}

// Bad reports whether tasks have failed or were cancelled, in this run or before.
func (r *Summary) Bad() bool { return r.Failed+r.Cancelled+r.FailedBefore+r.CancelledBefore > 0 }

// Summary returns the summary, at the end.
func (c *Core) Summary() *Summary {
	s := &c.tasks.stats
	waits := map[string]*Reason{}
	wait := func(t *pool.Task, why string) {
		l := waits[why]
		if l == nil {
			l = &Reason{Why: why}
			waits[why] = l
		}
		l.Seqs = append(l.Seqs, t.Seq)
	}
	c.pool.Each(func(t *pool.Task) bool { wait(t, c.whyWaiting(t)); return true })
	for _, t := range c.tasks.deps.all() {
		wait(t, "not started: tasks that they depend on were not run")
	}
	for _, p := range c.tasks.onHold {
		wait(p.task, "on hold")
	}
	reasons := slices.Clone(s.left)
	for _, l := range waits {
		reasons = append(reasons, *l)
	}
	slices.SortFunc(reasons, func(a, b Reason) int { return cmp.Or(cmp.Compare(len(b.Seqs), len(a.Seqs)), cmp.Compare(a.Why, b.Why)) })
	r := &Summary{
		Done: s.done, Failed: s.failed, Cancelled: s.cancelled, Skipped: s.skipped, FailedBefore: s.failedBefore,
		CancelledBefore: s.cancelledBefore, Reasons: reasons,
		Attempts: s.attempts, Lost: s.lost, InputRead: c.tasks.eof, Elapsed: c.now.Sub(c.began),
		Why: c.ending.verdict.Why, Exit: c.ending.verdict.Exit,
		Given: s.busy / c.nodes.allocated(), Used: s.cpu / c.nodes.allocated(), Slowest: s.slowest,
		Exceeded: s.exceeded, JournalOK: !c.ending.paused(), Early: c.ending.hand == jobCut, Terminated: c.ending.terminated,
	}
	for _, n := range c.nodes.all {
		if n.enforce != "" && !slices.Contains(r.Limits, n.enforce) {
			r.Limits = append(r.Limits, n.enforce)
		}
	}
	r.Done, r.Failed = r.Done-s.outputLost, r.Failed+s.outputLost
	for _, l := range reasons {
		r.Left += int64(len(l.Seqs))
	}
	r.HandedOver = c.ending.hand != keeps && (r.Left > 0 || !c.tasks.eof)
	if c.ending.closed != nil {
		r.Closed, r.HandedOver = true, r.HandedOver && (c.ending.continues || c.orphans.unclaimed())
	}
	bad := r.Bad()
	if !c.ending.verdict.Explicit && r.Left == 0 && c.tasks.eof {
		if r.Why, r.Exit = "", 0; bad && !c.tasks.stays { // clients know the results of their requests
			r.Exit = 1
		}
	}
	switch {
	case r.Closed && r.HandedOver, !c.ending.verdict.Explicit && r.Left > 0 && r.Exit < 2:
		r.Exit = ExitLeft // even if tasks have failed
	case r.Exit == 0 && (s.outputLost > 0 || c.ending.unprinted):
		r.Exit = 1
	}
	return r
}

// whyWaiting returns why a task waits whose dependencies are met.
func (c *Core) whyWaiting(t *pool.Task) string {
	switch {
	case len(c.nodes.workers) > 0 && !slices.ContainsFunc(c.nodes.workers, func(w *Worker) bool { return !w.Node.quarantine }):
		return "not started: all nodes were quarantined"
	case c.tasks.late(t):
		return "they would not end before the job does"
	case len(c.nodes.workers) == 0:
		return "not started: no node was available"
	case c.pool.Fits(t.Need()):
	case slices.ContainsFunc(c.nodes.workers, func(w *Worker) bool { return w.n.FitsNode(t.Need()) }):
		return "not started: no node that is large enough took tasks"
	default:
		return "no available node is large enough: needs " + t.Need().String()
	}
	return "not started"
}
