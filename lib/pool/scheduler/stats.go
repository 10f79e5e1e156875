package scheduler

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/ponos-tools/ponos/lib/pool"
	"github.com/ponos-tools/ponos/lib/pool/journal"
	"github.com/ponos-tools/ponos/lib/pool/wire"
)

// stats are the sums of a run.
type stats struct {
	seen, skipped, failedBefore      int64
	done, failed, cancelled, refused int64
	left, lost, attempts             int64
	cpu, busy                        float64 // seconds: used by tasks, given to them
	first                            time.Time
	slowest                          []slow
	failures                         []failure
	recent                           [8]int64 // ends in each of the last seconds
	recentAt                         int64
}

type slow struct {
	seconds float64
	text    string
	seq     int64
	node    string
}

type failure struct {
	seq  int64
	how  string
	text string
	at   string
	try  int32
}

// usage adds what an attempt has used.
func (s *stats) usage(r *journal.Record, t *pool.Task) {
	s.cpu += r.User + r.System
	s.busy += r.Seconds * float64(t.Spec.Need.CPUs)
}

// end counts the end of a task.
func (s *stats) end(t *pool.Task, r *journal.Record) {
	second := time.Now().Unix()
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
	if r.What != wire.OK && len(s.failures) < 10 {
		s.failures = append(s.failures, failure{r.Seq, describe(r), short(journal.Command(t)), r.Node, r.Attempt})
	}
	if n := len(s.slowest); n < 5 || r.Seconds > s.slowest[n-1].seconds {
		s.slowest = append(s.slowest, slow{r.Seconds, short(journal.Command(t)), r.Seq, r.Node})
		slices.SortStableFunc(s.slowest, func(a, b slow) int { return cmp.Compare(b.seconds, a.seconds) })
		s.slowest = s.slowest[:min(5, len(s.slowest))]
	}
}

// short is enough of a command to know it.
func short(s string) string {
	if len(s) > 80 {
		return s[:77] + "..."
	}
	return s
}

// rate is how many tasks ended each second lately.
func (s *stats) rate() float64 {
	var sum int64
	for _, n := range s.recent {
		sum += n
	}
	since := time.Since(s.first).Seconds()
	return float64(sum) / math.Max(1, math.Min(since, float64(len(s.recent)-1)))
}

// average is the rate to expect: the one of lately, or of all the run if little
// has ended lately.
func (s *stats) average() float64 {
	var sum int64
	for _, n := range s.recent {
		sum += n
	}
	if sum >= 20 {
		return s.rate()
	}
	return float64(s.done+s.failed) / math.Max(1, time.Since(s.first).Seconds())
}

// histogram counts durations in classes a fifth apart.
type histogram struct {
	counts [160]int32
	total  int32
}

func (g *histogram) add(seconds float64) {
	i := int(math.Log(math.Max(seconds, 1e-4)/1e-4) / math.Log(1.2))
	g.counts[min(max(i, 0), len(g.counts)-1)]++
	g.total++
}

// quantile is a duration that part of the tasks do not exceed.
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

func (h *head) measure(n pool.Need, seconds float64) {
	g := h.hist[n]
	if g == nil {
		if len(h.hist) > 1000 {
			return
		}
		g = &histogram{}
		h.hist[n] = g
	}
	g.add(seconds)
}

// expected is how long a task will probably take: what it says, what the user
// says, or what others of its kind took.
func (h *head) expected(t *pool.Task) time.Duration {
	if d := cmp.Or(t.Spec.Time, h.TimePerTask); d > 0 {
		return d
	}
	if g := h.hist[t.Spec.Need]; g != nil && g.total >= 20 {
		return time.Duration(g.quantile(0.95) * float64(time.Second))
	}
	return 0
}

// checkSlow ends tasks that take longer than --timeout N%: that part of the median
// time of three or more that have succeeded.
func (h *head) checkSlow(t time.Time) {
	if h.TimeoutPercent == 0 || h.stats.done < 3 {
		return
	}
	var all histogram
	for _, g := range h.hist {
		for i, n := range g.counts {
			all.counts[i] += n
		}
		all.total += g.total
	}
	limit := all.quantile(0.5) * float64(h.TimeoutPercent) / 100
	for _, a := range h.active {
		if a.started > 0 && a.why == "" && float64(t.UnixMicro())/1e6-a.started > limit {
			h.kill(a, wire.Timeout, false)
		}
	}
}

// late reports that a task would not end before the allocation does.
func (h *head) late(t *pool.Task) bool {
	return !h.end.IsZero() && time.Now().Add(h.expected(t)).After(h.end.Add(-h.margin))
}

// allLate reports whether everything that waits is late.
func (h *head) allLate() bool {
	if h.end.IsZero() {
		return false
	}
	all := true
	h.pool.Each(func(t *pool.Task) bool {
		all = h.late(t)
		return all
	})
	return all
}

// setEnd learns when the allocation ends.
func (h *head) setEnd(t time.Time) {
	h.end = t
	h.margin = h.EndMargin
	if h.margin == 0 {
		h.margin = min(30*time.Second, time.Until(t)/10)
	}
}

// checkEnd ends what runs in time to say so.
func (h *head) checkEnd(t time.Time) {
	if h.end.IsZero() || t.Before(h.end.Add(-h.margin)) || h.phase >= stopping {
		return
	}
	h.Message("the time of the job is nearly over: ending %s", plural(h.runs(), "task"))
	h.stop(stopping, "the time of the job was over", exitLeft)
}

// result sums up.
func (h *head) result() *Result {
	s := &h.stats
	left := s.left + int64(h.pool.Waiting()+h.deps.waiting()+len(h.held)+h.foreign.known)
	r := &Result{
		Done: s.done, Failed: s.failed, Cancelled: s.cancelled, Skipped: s.skipped, Left: left,
		Attempts: s.attempts, Lost: s.lost, Why: h.why, Exit: h.exit,
	}
	if h.paused {
		r.Err = h.journErr
	}
	if r.Why == "" && s.failed+s.cancelled+s.failedBefore > 0 {
		r.Exit = 1
	}
	if r.Exit == exitLeft && left == 0 && h.eof {
		r.Why = ""
		if r.Exit = 0; s.failed+s.cancelled+s.failedBefore > 0 && !h.Serve { // who asked for them knows
			r.Exit = 1
		}
	}
	return r
}
