package jobpool

import (
	"bytes"
	"cmp"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

var (
	seed      = flag.Uint64("seed", 1, "the choices of TestChaos")
	chaosTime = flag.Duration("time", 30*time.Second, "how long the tasks of TestChaos and of BenchmarkPilots take, if nothing is lost")
)

// From this -time on, TestChaos also asserts how much it has tried.
const thorough = 4 * time.Minute

// pilotChaos is a run whose jobs are shorter than the work, and follow each other while
// processes and jobs are killed.
type pilotChaos struct {
	*pool
	random *rand.Rand
	input  string
	tasks  int
	work   float64 // seconds of all tasks
	slots  int     // tasks that run at once
	killed map[string]int
}

const (
	wallTime = 60 // seconds of a job: Slurm counts in minutes
	maxJobs  = 3
	jobSlots = 8 // tasks that run at once in a job
)

// newPilotChaos makes tasks of 0.05 to 1.5 s, as if these were 1 to 30 s in a world that is 20
// times as slow, for that long.
func newPilotChaos(t testing.TB, lasts time.Duration) *pilotChaos {
	c := &pilotChaos{random: rand.New(rand.NewPCG(*seed, 2)), killed: map[string]int{}, slots: maxJobs * jobSlots}
	c.pool = inSlurm(t, nil, "--run", "run", "--alloc-sbatch=--partition=cpu,gpu", "--alloc-sbatch=--cpus-per-task=2", "--alloc-sbatch=--time="+strconv.Itoa(wallTime/60),
		"--jobs", strconv.Itoa(jobSlots), "--max-jobs", strconv.Itoa(maxJobs), "--linger", "2s", "--lost-retries", "20", "--kill-after", "2s", "--term-grace", "2s")
	var b strings.Builder
	for c.work < lasts.Seconds()*float64(c.slots) {
		took := 0.05 + 1.45*c.random.Float64()*c.random.Float64()
		c.work += took
		c.tasks++
		// A task never runs beside itself.
		fmt.Fprintf(&b, "echo $JOBPOOL_SEQ >>ran; set -C; echo $$ >at.$JOBPOOL_SEQ || { kill -0 $(cat at.$JOBPOOL_SEQ) && echo $JOBPOOL_SEQ >>beside; }; sleep %.2f; rm -f at.$JOBPOOL_SEQ; true\n", took)
	}
	c.input = b.String()
	return c
}

// submit calls jobpool as a crontab would.
func (c *pilotChaos) submit(more ...string) {
	status, _, stderr := c.run(c.input, more...)
	if status != 0 && status != 4 {
		c.Fatalf("status %d: %s", status, stderr)
	}
}

// strike kills something.
func (c *pilotChaos) strike() {
	switch victim := []string{"scheduler", "pilot", "job"}[c.random.IntN(3)]; victim {
	case "job":
		if jobs := c.jobs(); len(jobs) > 0 {
			_ = c.quietly("scancel", jobs[c.random.IntN(len(jobs))])
			c.killed[victim]++
		}
	default:
		words := map[string]string{"scheduler": "--elastic", "pilot": "\x00pilot\x00"}
		if pids := c.processes(words[victim]); len(pids) > 0 {
			_ = syscall.Kill(pids[c.random.IntN(len(pids))], syscall.SIGKILL)
			c.killed[victim]++
		}
	}
}

func TestChaos(t *testing.T) {
	c := newPilotChaos(t, *chaosTime)
	t.Cleanup(func() { c.end() })
	before := c.calls()
	began := time.Now()
	c.submit()
	next, asked := time.Now(), time.Now()
	limit := began.Add(3**chaosTime + 10*time.Minute)
	for c.over() < 0 {
		if time.Now().After(limit) {
			t.Fatalf("the run does not end\n%s\n%s", c.quietly("squeue"), c.said())
		}
		time.Sleep(200 * time.Millisecond)
		// A crontab goes on with a run whose last job was killed.
		if time.Since(asked) > 15*time.Second {
			c.submit("--resume")
			asked = time.Now()
		}
		// At the end there is nothing to kill, and the kinds are to have been tried.
		if time.Now().After(next) && (time.Since(began) < *chaosTime || len(c.killed) < 3) {
			c.strike()
			next = time.Now().Add(time.Duration(4+c.random.IntN(8)) * time.Second)
		}
	}
	took := time.Since(began)
	if c.over() != 0 {
		t.Errorf("the run has ended with status %d\n%s", c.over(), c.said())
	}
	after := c.calls()
	c.endsOnce(c.tasks)
	if beside, err := os.ReadFile(filepath.Join(c.dir, "beside")); err == nil {
		t.Errorf("tasks ran twice at a time: %q", beside)
	}
	await(c.pool, "all jobs end", func() bool { return len(c.jobs()) == 0 })
	c.noneLeft()
	c.report(took, after-before)
}

// end ends what is left of the pool.
func (c *pilotChaos) end() {
	for _, id := range c.jobs() {
		_ = c.quietly("scancel", id)
	}
	await(c.pool, "its jobs end", func() bool { return len(c.jobs()) == 0 })
}

// calls is how many requests slurmctld has had from this user's programs, as sdiag counts them.
func (c *pilotChaos) calls() (n int) {
	_, users, _ := strings.Cut(c.slurm("sdiag"), "Remote Procedure Call statistics by user")
	for line := range strings.Lines(users) {
		// "root            (       0) count:84     ave_time:1234   total_time:103656"
		name, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		_, count, found := strings.Cut(rest, "count:")
		if count, _, _ = strings.Cut(count, " "); name != "root" || !found {
			continue
		}
		n, err := strconv.Atoi(count)
		if err != nil {
			c.Fatal(err)
		}
		return n
	}
	c.Fatal("sdiag shows no calls of root")
	return 0
}

// report prints what the run has cost, and asserts what does not depend on how fast the
// machine is.
func (c *pilotChaos) report(took time.Duration, calls int) {
	c.Helper()
	records := c.journal()
	var done, pause []float64
	var stopped float64
	used := map[string]bool{}
	schedulers := 0
	for _, r := range records {
		switch r.Kind {
		case "begin":
			schedulers++
			if stopped > 0 {
				pause = append(pause, r.Time-stopped)
			}
			stopped = 0
		case "stop":
			stopped = r.Time
		case "end":
			done = append(done, r.Seconds)
			_, job, _ := strings.Cut(r.Node, "@")
			used[job] = true
		}
	}
	var lived float64
	for _, seconds := range done {
		lived += seconds
	}
	ran, err := os.ReadFile(filepath.Join(c.dir, "ran"))
	if err != nil {
		c.Fatal(err)
	}
	starts := bytes.Count(ran, []byte("\n"))
	gap := gaps(records)
	fmt.Printf("%d tasks of %.0f s in all (as measured: %.0f s) in %.0f s, %d jobs submitted, %d did work, killed %v, %d schedulers\n"+
		"%d starts, so %d were repeated; orderly hand-overs: %d, from the end of one scheduler to the begin of the next %.2f s (median)\n"+
		"no task ran at a hand-over, though a job went on: %.2f s (median of %d), at most %.2f s\n"+
		"requests to slurmctld: %d, %.1f a minute, %.3f a task (with those of the test)\n",
		c.tasks, c.work, lived, took.Seconds(), c.submitted(), len(used), c.killed, schedulers,
		starts, starts-c.tasks, len(pause), median(pause), median(gap), len(gap), slices.Max(append(gap, 0)), calls, float64(calls)/took.Minutes(), float64(calls)/float64(c.tasks))
	c.runsExplained()
	c.keepsLimit()
	// A job that is killed loses what is left of its time.
	most := int(math.Ceil(lived/(jobSlots*wallTime))) + maxJobs + c.killed["job"] + c.killed["pilot"]
	if c.submitted() > most {
		c.Errorf("%d jobs were submitted, more than %d", c.submitted(), most)
	}
	// By time and jobs, not by tasks.
	if bound := 120*took.Minutes() + 60*float64(c.submitted()); float64(calls) > bound {
		c.Errorf("%d requests to slurmctld, more than %.0f", calls, bound)
	}
	if *chaosTime < thorough {
		return
	}
	if len(pause) < 2 || median(pause) >= 2 || len(gap) > 0 && median(gap) >= 2 {
		c.Errorf("hand-overs took %.2f s, and no task ran for %.2f s", pause, gap)
	}
	if c.tasks < 5000 || len(used) < 6 || min(c.killed["job"], c.killed["pilot"], c.killed["scheduler"]) < 3 {
		c.Errorf("%d tasks in %d jobs, killed %v: that is too little", c.tasks, len(used), c.killed)
	}
}

// recorded are the times of a job, as Slurm has recorded them, in full seconds.
type recorded struct {
	id                 string
	submit, start, end time.Time // zero: not yet
}

// accounted returns the jobs of the run by the times of their submission.
func (c *pilotChaos) accounted() (jobs []recorded) {
	c.Helper()
	at := func(s string) time.Time {
		t, _ := time.ParseInLocation("2006-01-02T15:04:05", s, time.Local)
		return t
	}
	for line := range strings.Lines(c.quietly("sacct", "-X", "-n", "-P", "-D", "-S", "now-1day", "--name=jobpool", "-o", "JobID,Submit,Start,End")) {
		f := strings.Split(strings.TrimSpace(line), "|")
		if _, err := os.Stat(filepath.Join(c.dir, "run/pilots", f[0]+".log")); len(f) == 4 && err == nil {
			jobs = append(jobs, recorded{f[0], at(f[1]), at(f[2]), at(f[3])})
		}
	}
	if len(jobs) < c.submitted() {
		c.Fatalf("accounting has %d of %d jobs", len(jobs), c.submitted())
	}
	slices.SortStableFunc(jobs, func(a, b recorded) int { return a.submit.Compare(b.submit) })
	return jobs
}

// keepsLimit asserts that no more jobs than --max-jobs were pending or running at a time, but for one
// more when all others were about to end.
func (c *pilotChaos) keepsLimit() {
	c.Helper()
	jobs := c.accounted()
	for n, j := range jobs {
		var others, lasting []recorded
		for _, o := range jobs[:n] {
			if !o.end.IsZero() && !o.end.After(j.submit) {
				continue
			}
			others = append(others, o)
			// The last quarter of its time has begun, or it was killed.
			late := !o.start.IsZero() && j.submit.Sub(o.start) >= wallTime*time.Second*3/4-3*time.Second
			if !late && o.end.Sub(j.submit) > 15*time.Second {
				lasting = append(lasting, o)
			}
		}
		if len(others) > maxJobs || len(others) == maxJobs && len(lasting) > 0 {
			c.Errorf("with --max-jobs %d, job %s was submitted at %v beside %v, of which %v are not about to end", maxJobs, j.id, j.submit, others, lasting)
		}
	}
}

// median is NaN of nothing.
func median(values []float64) float64 {
	if len(values) == 0 {
		return math.NaN()
	}
	return slices.Sorted(slices.Values(values))[len(values)/2]
}

// span is a time in which a task ran, in seconds since 1970.
type span struct{ begin, end float64 }

// gaps returns, for each orderly hand-over during which a job went on, the longest time in which no
// task ran, in seconds.
func gaps(records []record) (out []float64) {
	ran := map[string][]span{} // by node
	for _, r := range records {
		if (r.Kind == "end" || r.Kind == "try") && r.Start > 0 {
			ran[r.Node] = append(ran[r.Node], span{r.Start, r.Start + r.Seconds})
		}
	}
	stopped := 0.0
	for _, r := range records {
		switch {
		case r.Kind == "stop":
			stopped = r.Time
		case r.Kind == "begin" && stopped > 0:
			var all []span
			for _, spans := range ran {
				before := slices.ContainsFunc(spans, func(s span) bool { return s.begin < stopped })
				if before && slices.ContainsFunc(spans, func(s span) bool { return s.end > r.Time }) {
					all = append(all, spans...)
				}
			}
			if len(all) > 0 {
				out = append(out, idle(all, stopped-1, r.Time+5))
			}
			stopped = 0
		}
	}
	return out
}

// idle is the longest time between from and to that no span covers.
func idle(spans []span, from, to float64) (longest float64) {
	slices.SortFunc(spans, func(a, b span) int { return cmp.Compare(a.begin, b.begin) })
	covered := from
	for _, s := range spans {
		if s.begin >= to {
			break
		}
		longest = max(longest, s.begin-covered)
		covered = max(covered, s.end)
	}
	return max(longest, to-covered)
}

func TestIdle(t *testing.T) {
	spans := []span{{10, 20}, {0, 3}, {2, 8}, {12, 15}, {30, 40}}
	for _, tt := range []struct{ from, to, want float64 }{{0, 20, 2}, {0, 30, 10}, {0, 25, 5}, {4, 7, 0}, {35, 50, 10}, {50, 60, 10}} {
		if got := idle(spans, tt.from, tt.to); got != tt.want {
			t.Errorf("between %v and %v: %v, want %v", tt.from, tt.to, got, tt.want)
		}
	}
}
