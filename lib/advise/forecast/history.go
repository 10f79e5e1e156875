package forecast

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
)

// Past is a job that has ended, or a run of one.
type Past struct {
	Name, User, Account, Partition, QOS string
	Submit, Start, End                  int64
	Limit                               int64 // in seconds; Forever: none
	Nodes                               int
	Need                                Resources // on each node
}

// Seconds is how long it ran.
func (p *Past) Seconds() int64 { return p.End - p.Start }

// History has the run times of ended jobs, from which others are drawn. A job is drawn from those that
// are most like it: of the same user and name, of the same user with the same limit, of
// the user, of the account, of everyone. Where there are few of a kind, the next wider kind
// is drawn from, the rarer the more there are.
type History struct {
	kinds map[string][]sample
	// runs, in the order of their submission, are also how many arrive at which hour.
	runs []Past
	// lag, in seconds, is how long after the end of a job the next one starts: the epilog,
	// the turns of the scheduler.
	lag int64
}

type sample struct {
	seconds int64
	part    float64 // of the time limit; negative: it had none, or that is not known
}

// perKind is how many runs of a kind count: the last ones.
const perKind = 200

// fewRuns is so small a number of runs that the next one may well be unlike them.
const fewRuns = 5

// NewHistory learns from jobs that have ended, in any order.
func NewHistory(runs []Past) *History {
	h := &History{kinds: map[string][]sample{}, runs: slices.Clone(runs)}
	slices.SortStableFunc(h.runs, func(a, b Past) int { return int(max(-1, min(1, a.End-b.End))) })
	for i := range h.runs {
		h.Add(h.runs[i])
	}
	h.lag = lagOf(h.runs)
	slices.SortStableFunc(h.runs, func(a, b Past) int { return int(max(-1, min(1, a.Submit-b.Submit))) })
	return h
}

// lagOf is, in the median of the last runs that waited, how long before their start another
// one ended in their partition; only of runs that waited already when it ended. Runs are in
// the order of their ends.
func lagOf(runs []Past) int64 {
	const waited, most = 5, 120
	ends := map[string][]int64{}
	for i := range runs {
		ends[runs[i].Partition] = append(ends[runs[i].Partition], runs[i].End)
	}
	var lags []int64
	for i := len(runs) - 1; i >= 0 && len(lags) < perKind; i-- {
		p := &runs[i]
		if p.Start-p.Submit <= waited {
			continue
		}
		all := ends[p.Partition]
		if at, _ := slices.BinarySearch(all, p.Start+1); at > 0 && p.Start-all[at-1] <= most && all[at-1] > p.Submit {
			lags = append(lags, p.Start-all[at-1])
		}
	}
	if len(lags) == 0 {
		return 0
	}
	slices.Sort(lags)
	return lags[len(lags)/2]
}

// Add learns from one more job.
func (h *History) Add(p Past) {
	if p.End < p.Start || p.Start == 0 {
		return
	}
	s := sample{seconds: p.Seconds(), part: -1}
	if p.Limit > 0 && p.Limit != Forever {
		s.part = min(1, float64(s.seconds)/float64(p.Limit))
	}
	for _, kind := range kinds(p.User, p.Account, p.Name, p.Limit) {
		all := append(h.kinds[kind], s)
		if len(all) > perKind {
			all = slices.Delete(all, 0, len(all)-perKind)
		}
		h.kinds[kind] = all
	}
}

// kinds are those that a job belongs to, the narrowest first.
func kinds(user, account, name string, limit int64) []string {
	return []string{
		strings.Join([]string{"name", user, Stem(name)}, "\x00"),
		strings.Join([]string{"limit", user, bucket(limit)}, "\x00"),
		"user\x00" + user, "account\x00" + account, "all",
	}
}

// Stem is a name without the numbers that tell its runs apart, and without what joins
// them to it: train for train-12.
func Stem(name string) string {
	stem := strings.Map(func(r rune) rune {
		if r >= '0' && r <= '9' {
			return -1
		}
		return r
	}, name)
	if short := strings.TrimRight(stem, "-_.:# "); short != "" {
		return short
	}
	return stem
}

// bucket is a time limit, roughly.
func bucket(limit int64) string {
	n := 0
	for ; limit > 60 && limit != Forever; limit /= 2 {
		n++
	}
	return strings.Repeat("x", n)
}

// Known returns how many runs a forecast of a job is based on: those of the narrowest kind that
// has any, and what that kind is.
func (h *History) Known(j *Job) (count int, kind string) {
	for i, key := range kinds(j.User, j.Account, j.Name, j.Limit) {
		if n := len(h.kinds[key]); n > 0 {
			return n, [...]string{
				"of the same name", "of the user with such a time limit", "of the user", "of the account", "of everyone",
			}[i]
		}
	}
	return 0, ""
}

// Mean is how long a job runs in the mean of those that are most like it; as long as its time limit where none is known.
func (h *History) Mean(j *Job) int64 {
	limit := j.length()
	for i, key := range kinds(j.User, j.Account, j.Name, j.Limit) {
		all := h.kinds[key]
		if len(all) == 0 {
			continue
		}
		sum := 0.0
		for _, s := range all {
			sum += float64(min(s.of(limit, i), limit))
		}
		return max(1, int64(sum/float64(len(all))))
	}
	return limit
}

// Draw returns a random run time of a job, distributed as in the history; elapsed is how long
// it has run already. Of the time limit, a job without any history uses all.
func (h *History) Draw(j *Job, elapsed int64, random *rand.Rand) int64 {
	limit := j.length()
	for i, key := range kinds(j.User, j.Account, j.Name, j.Limit) {
		all := h.kinds[key]
		fit := len(all)
		if elapsed > 0 {
			fit = 0
			for _, s := range all {
				if s.of(limit, i) > elapsed {
					fit++
				}
			}
		}
		if len(all) == 0 || random.IntN(2*len(all)+1) == 0 && key != "all" {
			continue // nothing that is like it; or, of few, sometimes not
		}
		if fit == 0 {
			// It has outlived all that is like it. Of many, what is left is of the order of what it
			// has run, in half of the cases less; of few, that says little, and any order of
			// magnitude up to the time limit is as likely.
			u, most := random.Float64(), float64(min(limit, 1<<40))/float64(elapsed)
			times := min(1/(1-0.999*u), most)
			if random.IntN(len(all)+fewRuns) < fewRuns {
				times = math.Pow(max(1, most), u)
			}
			return max(elapsed+1, min(limit, int64(float64(elapsed)*times)))
		}
		for {
			if seconds := all[random.IntN(len(all))].of(limit, i); elapsed == 0 || seconds > elapsed {
				return max(1, min(seconds, limit))
			}
		}
	}
	return max(limit, elapsed+1)
}

// drawn draws run times in a world. A job of a name of which none has ended runs at least as long as the oldest of these that runs.
func (h *History) drawn(w *World, random *rand.Rand) func(*Job) int64 {
	name := func(j *Job) string { return kinds(j.User, j.Account, j.Name, j.Limit)[0] }
	outlived := map[string]int64{}
	for i := range w.Jobs {
		if j := &w.Jobs[i]; j.Running && len(h.kinds[name(j)]) == 0 {
			outlived[name(j)] = max(outlived[name(j)], w.Now-j.Start)
		}
	}
	return func(j *Job) int64 {
		elapsed := int64(0)
		if j.Running {
			elapsed = max(1, w.Now-j.Start)
		}
		if len(outlived) > 0 {
			elapsed = max(elapsed, min(outlived[name(j)], j.length()-1))
		}
		return h.Draw(j, elapsed, random)
	}
}

// of returns what a run predicts for a job with a time limit: of the same name, its seconds; of
// others, its part of the limit. Accounting has the end of a job before its limit, at times.
func (s sample) of(limit int64, kind int) int64 {
	if kind <= 1 || limit == Forever || s.part < 0 {
		return s.seconds
	}
	return int64(s.part * float64(limit))
}

// arrivals are jobs as they were submitted in some time before, moved to what comes after the time of a world.
type arrivals struct {
	runs     []Past // in the order of their submission
	shift    int64  // from one round of them to the next
	until    int64
	most     int                 // in all
	priority func(*Past) float64 // that each would have
}

// firstArrival is the id of the first job that arrives.
const firstArrival = uint64(1) << 62

// job is the nth one.
func (a *arrivals) job(n int) (Job, bool) {
	if n >= a.most {
		return Job{}, false
	}
	p, id := &a.runs[n%len(a.runs)], firstArrival+uint64(max(0, n))
	at := p.Submit + int64(1+n/len(a.runs))*a.shift
	return Job{
		ID: id, ArrayID: id, Name: p.Name, User: p.User, Account: p.Account, QOS: p.QOS, Partition: p.Partition, Priority: a.priority(p),
		Submit: at, Accrue: at, Limit: p.Limit, Nodes: max(1, p.Nodes), Need: p.Need, Tasks: 1,
	}, at < a.until
}

// seconds is how long a job runs that arrives, if it did; 0: it is not one, or its run has not ended.
func (a *arrivals) seconds(j *Job) int64 {
	if j.ID < firstArrival {
		return 0
	}
	if p := &a.runs[(j.ID-firstArrival)%uint64(len(a.runs))]; p.End > 0 {
		return max(1, p.Seconds())
	}
	return 0
}

// arrivals come at the same time of a day that is drawn by chance, or where less than a day is known, like the last minutes or hours, of
// which nobody knows how long they go on.
func (h *History) arrivals(w *World, until int64, random *rand.Rand, priority func(*Past) float64) *arrivals {
	const day, least, most = 86400, 300, 2000
	a := &arrivals{until: until, priority: priority}
	if len(h.runs) == 0 {
		return a
	}
	known := w.Now - h.runs[0].Submit
	since := func(from int64) []Past {
		first, _ := slices.BinarySearchFunc(h.runs, from, func(p Past, t int64) int { return cmp.Compare(p.Submit, t) })
		return h.runs[first:]
	}
	if days := known / day; days > 0 {
		a.shift = (1 + random.Int64N(min(days, 14))) * day
		a.runs, a.until = since(w.Now-a.shift), min(until, w.Now+a.shift) // beyond that, nothing has been seen
		a.most = len(a.runs)
		return a
	}
	if known < least {
		return a
	}
	a.shift = int64(least * math.Pow(float64(known)/least, random.Float64()))
	a.runs = h.submitted(w, w.Now-a.shift, since(w.Now-a.shift))
	a.most = min(most, 2*len(a.runs))
	phase := random.Int64N(a.shift)
	for i := range a.runs { // the last part of the window comes first
		if a.runs[i].Submit += phase; a.runs[i].Submit >= w.Now {
			a.runs[i].Submit -= a.shift
		}
	}
	slices.SortStableFunc(a.runs, func(a, b Past) int { return cmp.Compare(a.Submit, b.Submit) })
	return a
}

// submitted are the jobs of a time until now: those that have ended, and those that wait and run, of which the end is not known.
func (h *History) submitted(w *World, from int64, ended []Past) []Past {
	all := slices.Clone(ended)
	seen := map[uint64]bool{}
	for i := range w.Jobs {
		j := &w.Jobs[i]
		if j.Submit < from || j.Submit >= w.Now || seen[j.ID] {
			continue
		}
		seen[j.ID] = true
		for range max(1, min(j.Tasks, 100)) {
			all = append(all, Past{
				Name: j.Name, User: j.User, Account: j.Account, QOS: j.QOS, Partition: j.Partition,
				Submit: j.Submit, Limit: j.Limit, Nodes: j.Nodes, Need: j.Need,
			})
		}
	}
	return all
}

// Estimate is when a job starts: in half of the replays by Median, in nine of ten between
// Low and High. A time of Forever is beyond what was replayed.
type Estimate struct {
	Median, Low, High int64
	Replays           int
	Started           int // in how many of them it started
}

// maxWork limits how much the replays of one estimate look at nodes together, and so the
// time that they take; a few are made in any case.
const (
	maxWork    = 40_000_000
	maxReplays = 100
	minReplays = 3
)

// When replays the queue many times, each with run times and arrivals drawn by chance, and
// returns when the job of some rows, one for each of its partitions, starts. It rests on the
// replays that are done when over says so; Replays is 0 if none is.
func When(over func() bool, w *World, rows []int, h *History, priority func(*Past) float64, seed uint64) Estimate {
	const horizon = 30 * 86400
	var starts []int64
	work := 0
	for n := range maxReplays {
		if n >= minReplays && work+work/n > maxWork {
			break
		}
		random := rand.New(rand.NewPCG(seed, uint64(n)))
		coming := h.arrivals(w, w.Now+horizon, random, priority)
		drawn := h.drawn(w, random)
		run := func(j *Job) int64 {
			if s := coming.seconds(j); s > 0 {
				return s
			}
			return drawn(j)
		}
		replayStarts, visits := replayed(over, w, rows, Course{
			Arrival: coming.job, Until: w.Now + horizon, Turns: 100, Lag: h.lag, Work: maxWork / minReplays, Run: run,
		})
		if replayStarts == nil {
			break
		}
		work += max(1, visits)
		first := int64(Forever)
		for _, s := range replayStarts {
			if s > 0 {
				first = min(first, s)
			}
		}
		starts = append(starts, first)
	}
	if len(starts) == 0 {
		return Estimate{Median: Forever, Low: Forever, High: Forever}
	}
	slices.Sort(starts)
	e := Estimate{Replays: len(starts)}
	for _, s := range starts {
		if s < Forever {
			e.Started++
		}
	}
	at := func(part float64) int64 { return starts[min(len(starts)-1, int(part*float64(len(starts))))] }
	e.Low, e.Median, e.High = at(0.05), at(0.5), at(0.95)
	return e
}

// Scored is a forecast of which the outcome is known: all times are seconds of waiting
// from when it was made.
type Scored struct {
	Median, Low, High, Actual  float64
	RawMedian, RawLow, RawHigh float64 // before they were calibrated
	Limits                     float64 // what limits alone make of it; negative: not known
	Slurm                      float64 // Slurm's own answer; negative: none
	// Open means that the job still waits: Actual is how long it has waited until now.
	Open bool
}

// Calibrate corrects a forecast by the outcomes of past ones, in the order in which these
// became known, those that are open last. How far each outcome was from the median and the bounds of its replays, as the logarithm of a
// ratio, are scores. Jobs that still wait are scores of which only a lower
// bound is known: left out, they would make all waits look short after a burst
// (the estimate of Kaplan and Meier, 1958). The median of its scores corrects the median,
// and outer quantiles of theirs the bounds (conformalized quantile regression, Romano, Patterson and Candès, 2019); which ones follows
// from how many past ranges held (adaptive conformal inference, Gibbs and Candès, 2021), so that nine of ten hold where
// the future is not like the past, too.
func Calibrate(past []Scored, median, low, high float64) (newMedian, newLow, newHigh float64) {
	const step, few = 0.05, 10
	if math.IsInf(median, 0) {
		return median, low, high
	}
	missed := 0.1
	known := 0
	var scores [3][]score // of the median, the lower and the upper bound
	for i := range past {
		p := &past[i]
		switch held := p.Actual <= p.High+1 && p.Actual >= p.Low-1; {
		case p.Open && p.Actual <= p.High+1:
		case held:
			missed += step * 0.1
		default:
			missed -= step * 0.9
		}
		missed = min(0.3, max(0.01, missed))
		if !p.Open {
			known++
		}
		for k, raw := range []float64{p.RawMedian, p.RawLow, p.RawHigh} {
			scores[k] = append(scores[k], score{math.Log((p.Actual + coarse) / (min(raw, 30*86400) + coarse)), p.Open})
		}
	}
	at := func(wait, by float64) float64 { return max(0, (wait+coarse)*math.Exp(by)-coarse) }
	newMedian, newLow, newHigh = median, at(low, -alone), at(high, alone)
	if known >= few {
		by := quantile(scores[0], 0.5) * float64(known) / float64(known+2*few) // a few may be off by chance
		newMedian, newLow, newHigh = at(median, by), at(low, quantile(scores[1], missed/2)), at(high, quantile(scores[2], 1-missed/2))
	}
	if newLow, newHigh = max(0, newLow-turn), newHigh+turn; math.IsInf(high, 1) {
		newHigh = high
	}
	return newMedian, min(newLow, newMedian), max(newHigh, newMedian)
}

// beside is by how much, as the logarithm of a ratio, a wait differs from what the best of replays has of it: they know neither who
// will submit what, nor how priorities change; alone is by how much the range of replays is widened where few outcomes are known.
const beside, alone = 0.4, 1

// Beside is a forecast whose outcome was the later or earlier by what its replays leave out.
func (s Scored) Beside(later bool) Scored {
	by := beside
	if !later {
		by = -beside
	}
	s.Actual = max(0, (s.Actual+coarse)*math.Exp(by)-coarse)
	s.Low, s.High = s.Low*math.Exp(-beside), (s.High+coarse)*math.Exp(beside)-coarse
	return s
}

// turn, in seconds, is what the turns of the scheduler add to or take from any wait.
const turn = 5

// coarse, in seconds, is what two waits may differ by without being different.
const coarse = 20

// score is how far a forecast was off; open means at least that far.
type score struct {
	value float64
	open  bool
}

// quantile is that of scores of which some are lower bounds only; beyond what is known,
// the highest.
func quantile(scores []score, level float64) float64 {
	slices.SortFunc(scores, func(a, b score) int {
		if a.value == b.value && a.open != b.open { // known ones first
			if a.open {
				return 1
			}
			return -1
		}
		return cmp.Compare(a.value, b.value)
	})
	beyond := 1.0
	for k, s := range scores {
		if s.open {
			continue
		}
		if beyond *= 1 - 1/float64(len(scores)-k); 1-beyond >= level-1e-9 {
			return s.value
		}
	}
	return scores[len(scores)-1].value
}

// slack, in seconds, is how exactly a start can be forecast at all: turns of the scheduler.
const slack = 60

// Summary says how good forecasts were.
type Summary struct {
	Count               int
	Median, P90         float64 // of the absolute error, in seconds
	WithinTwo, Coverage float64 // parts: within a factor of two, and within the bounds
	// Interval is the mean interval score of the ranges for 90 % (Gneiting and Raftery, 2007): their width, and twenty times by how
	// much a start missed them; Raw is that of the ranges as the replays have them.
	Interval, Raw float64
}

// intervalScore is the interval score of one range for 90 %.
func intervalScore(actual, low, high float64) float64 {
	high = min(high, 30*86400)
	return high - low + 20*max(0, low-actual, actual-high)
}

// Score sums up how good forecasts were; forecast returns what is scored, negative if
// there is none.
func Score(past []Scored, forecast func(Scored) float64) Summary {
	var errors []float64
	s := Summary{}
	for _, p := range past {
		f := forecast(p)
		if f < 0 || p.Open {
			continue
		}
		miss := max(f-p.Actual, p.Actual-f)
		errors = append(errors, miss)
		// Within half a minute, a start is the turn of the scheduler.
		if miss <= slack/2 || f <= 2*p.Actual && p.Actual <= 2*f {
			s.WithinTwo++
		}
		if p.Actual >= p.Low-1 && p.Actual <= p.High+1 {
			s.Coverage++
		}
		s.Interval += intervalScore(p.Actual, p.Low, p.High)
		s.Raw += intervalScore(p.Actual, p.RawLow, p.RawHigh)
	}
	if s.Count = len(errors); s.Count == 0 {
		return s
	}
	slices.Sort(errors)
	n := float64(s.Count)
	s.Median, s.P90 = errors[s.Count/2], errors[min(s.Count-1, int(0.9*n))]
	s.WithinTwo, s.Coverage, s.Interval, s.Raw = s.WithinTwo/n, s.Coverage/n, s.Interval/n, s.Raw/n
	return s
}
