package cluster

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/ponos-tools/ponos/lib/advise/forecast"
)

// probes is how many jobs are forecast: a few, to see that the machinery works, or as many
// as PONOS_FORECAST says ("make forecast"), to see how good it is.
func probes(t *testing.T) int {
	if n, err := strconv.Atoi(os.Getenv("PONOS_FORECAST")); err == nil && n > 0 {
		return n
	}
	t.Log("only that forecasts are made and scored is tested: make forecast measures them")
	return 8
}

var testOnly = regexp.MustCompile(`to start at (\S+)`)

// workload is a kind of jobs: the i-th, who submits it, how long it sleeps, and the pause in seconds before it.
type workload struct {
	name string
	job  func(i int, r *rand.Rand) (user string, options []string, sleep int, pause float64)
}

var workloads = []workload{
	{"bursty", func(i int, r *rand.Rand) (string, []string, int, float64) {
		pause := 0.0
		if i%20 == 0 {
			pause = 25
		}
		return anybody(r), []string{"--time=15", fmt.Sprintf("--cpus-per-task=%d", 1+r.IntN(4)), fmt.Sprintf("--job-name=burst%d", i)}, 4 + r.IntN(8), pause
	}},
	{"few users, long jobs", func(i int, r *rand.Rand) (string, []string, int, float64) {
		kind := r.IntN(3)
		name := fmt.Sprintf("--job-name=long%c-%d", 'a'+kind, i)
		return []string{"alice", "bob"}[i%2], []string{"--time=10", fmt.Sprintf("--cpus-per-task=%d", 2+r.IntN(3)), name}, 15 + 10*kind, 4 * r.Float64()
	}},
	{"wild limits", func(i int, r *rand.Rand) (string, []string, int, float64) {
		limit := []int{2, 10, 60, 600, 2400}[r.IntN(5)]
		return anybody(r), []string{fmt.Sprintf("--time=%d", limit), fmt.Sprintf("--cpus-per-task=%d", 1+r.IntN(4)), fmt.Sprintf("--job-name=wild%d", i)}, 3 + r.IntN(8), 2 * r.Float64()
	}},
	{"throttled arrays", func(i int, r *rand.Rand) (string, []string, int, float64) {
		return anybody(r), []string{"--time=15", fmt.Sprintf("--array=1-4%%%d", 1+r.IntN(2)), fmt.Sprintf("--job-name=sweep%d", i)}, 5 + r.IntN(8), 9 * r.Float64()
	}},
}

func anybody(r *rand.Rand) string { return []string{"alice", "bob", "carol"}[r.IntN(3)] }

// foretold is what fairshare when --json says of a job.
type foretold struct {
	Never   *string
	Seconds *float64
	Low     *float64 `json:"low_seconds"`
	High    *float64 `json:"high_seconds"`
}

// probed is one job that was forecast, before it was submitted and after.
type probed struct {
	id       string
	at       [2]time.Time
	said     [2]foretold
	testOnly float64 // seconds of waiting, as sbatch --test-only said before it was submitted; negative: nothing
}

// forecasts submits four kinds of workload to a partition that is always full, forecasts each job before and after its submission, and
// compares with what came, beside sbatch --test-only. Each user learns from the own forecasts only. With as many jobs as say something, it fails where forecasts are not what is promised.
func (c cluster) forecasts(n int) {
	const seed = 20261121
	for k, kind := range workloads {
		c.t.Run(kind.name, func(t *testing.T) {
			c := c
			c.t = t
			c.workload(kind, n/len(workloads), rand.New(rand.NewPCG(seed, uint64(k))))
		})
	}
	for _, user := range []string{"alice", "bob", "carol"} {
		c.t.Logf("all kept forecasts of %s:\n%s", user, c.must(user, "env", c.stateOf(user), "fairshare", "when", "--score"))
	}
}

// workload submits jobs of one kind, and scores what was said of them.
func (c cluster) workload(kind workload, n int, random *rand.Rand) {
	c.emptyQueue()
	var jobs []probed
	for i := range max(2, n) {
		user, options, sleep, pause := kind.job(i, random)
		time.Sleep(time.Duration(pause * float64(time.Second)))
		jobs = append(jobs, c.probe(user, append([]string{"--partition=cpu"}, options...), sleep))
	}
	for deadline := time.Now().Add(3*time.Minute + time.Duration(n)*40*time.Second); c.must("root", "squeue", "--noheader") != ""; time.Sleep(time.Second) {
		if time.Now().After(deadline) {
			c.t.Fatalf("waited in vain for the queue to be empty\n%s", c.picture())
		}
	}
	c.score(kind.name, jobs)
}

func (c cluster) probe(user string, options []string, sleep int) (p probed) {
	request := append(append([]string{"--output=/dev/null"}, options...), fmt.Sprintf("--wrap=sleep %d", sleep))
	p.testOnly = -1
	_, said, _ := c.as(user, append([]string{"sbatch", "--test-only"}, request...)...)
	if m := testOnly.FindStringSubmatch(said); m != nil {
		if at, err := time.ParseInLocation("2006-01-02T15:04:05", m[1], time.UTC); err == nil {
			p.testOnly = max(0, time.Until(at).Seconds())
		}
	}
	p.at[0] = time.Now()
	p.said[0] = c.foretold(user, request...)
	p.id = strings.TrimSpace(c.must(user, append([]string{"sbatch", "--parsable"}, request...)...))
	p.at[1] = time.Now()
	p.said[1] = c.foretold(user, p.id)
	return p
}

func (c cluster) foretold(user string, args ...string) foretold {
	type doc struct{ Jobs []foretold }
	return decode[doc](c.t, c.must(user, append([]string{"env", c.stateOf(user), "fairshare", "when", "--json"}, args...)...)).Jobs[0]
}

// stateOf lets each user learn from the forecasts that were asked for by that one.
func (c cluster) stateOf(user string) string {
	return "XDG_STATE_HOME=" + filepath.Join(c.dir, "work", user, "state")
}

// started is when the first task of a job started after a time.
func (c cluster) started(id string, after time.Time) (first time.Time, ok bool) {
	for line := range strings.Lines(c.must("root", "sacct", "-nXPj", id, "-o", "Start")) {
		at, err := time.ParseInLocation("2006-01-02T15:04:05", strings.TrimSpace(line), time.UTC)
		if err == nil && !at.Before(after.Truncate(time.Second)) && (!ok || at.Before(first)) {
			first, ok = at, true
		}
	}
	return first, ok
}

// score compares the forecasts of one workload with the starts.
func (c cluster) score(name string, jobs []probed) {
	var scored [2][]forecast.Scored
	never := 0
	for _, p := range jobs {
		for k, f := range p.said {
			at, ok := c.started(p.id, p.at[k])
			if f.Never != nil && ok {
				never++
			}
			if !ok || f.Seconds == nil {
				continue
			}
			s := forecast.Scored{Median: *f.Seconds, High: 30 * 86400, Slurm: p.testOnly, Limits: -1, Actual: max(0, at.Sub(p.at[k]).Seconds())}
			if f.Low != nil {
				s.Low = *f.Low
			}
			if f.High != nil {
				s.High = *f.High
			}
			c.t.Logf("job %s, forecast %d: %.0f s (%.0f to %.0f), came after %.0f s", p.id, k, s.Median, s.Low, s.High, s.Actual)
			scored[k] = append(scored[k], s)
		}
	}
	for k, what := range []string{"before submission", "after submission"} {
		bias := 0.0
		for _, s := range scored[k] {
			bias += (s.Median - s.Actual) / float64(len(scored[k]))
		}
		ours := forecast.Score(scored[k], func(s forecast.Scored) float64 { return s.Median })
		theirs := forecast.Score(scored[k], func(s forecast.Scored) float64 { return s.Slurm })
		c.t.Logf("%s, %s: %d jobs, median error %.0f s (sbatch --test-only: %.0f s of %d), within x2 %.0f%% (%.0f%%), coverage %.0f%%, mean interval score %.0f s, bias %+.0f s, false never %d",
			name, what, ours.Count, ours.Median, theirs.Median, theirs.Count, 100*ours.WithinTwo, 100*theirs.WithinTwo, 100*ours.Coverage, ours.Interval, bias, never)
		if k == 0 && ours.Count == 0 || never > 0 { // of few jobs, all may have started before the second forecast
			c.t.Errorf("%s, %s: %d forecasts, %d false never", name, what, ours.Count, never)
		}
		if ours.Count >= 20 && (ours.Median > math.Max(theirs.Median/10, 30) || ours.WithinTwo < 0.65 || ours.Coverage < 0.75) {
			c.t.Errorf("%s, %s: forecasts are worse than promised", name, what)
		}
	}
}
