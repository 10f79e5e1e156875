package cluster

import (
	"fmt"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// probes is how many jobs are forecast: a few, to see that the machinery works, or as many
// as PONOS_FORECAST says ("make forecast"), to see how good it is.
func probes(t *testing.T) int {
	if n, err := strconv.Atoi(os.Getenv("PONOS_FORECAST")); err == nil && n > 0 {
		return n
	}
	t.Log("only that forecasts are made and scored is tested: make forecast measures them")
	return 6
}

var testOnly = regexp.MustCompile(`to start at (\S+)`)

// probed is one job that was forecast.
type probed struct {
	id       string
	at       time.Time
	testOnly float64 // seconds of waiting, as sbatch --test-only said before it was submitted
}

// forecasts submits three kinds of workload to a partition that is always full, forecasts
// each job when it is submitted, and compares with what came: sbatch --test-only, squeue
// --start, time limits, and fairshare when.
func (c cluster) forecasts(n int) {
	const seed = 20261121
	random := rand.New(rand.NewPCG(seed, 1))
	c.env = append(c.env, "XDG_STATE_HOME="+c.t.TempDir())
	c.emptyQueue()
	var jobs []probed
	users := []string{"alice", "bob", "carol"}
	for i := range n {
		user, cpus, sleep, limit, pause := users[random.IntN(3)], 1+random.IntN(4), 3+random.IntN(6), 10, 1000
		name := fmt.Sprintf("short%d", i)
		switch i * 3 / n {
		case 1: // names of which each runs for its own time, and names that nobody has seen
			kind := random.IntN(5)
			name, sleep, limit = fmt.Sprintf("kind%c-%d", 'a'+kind, i), 2+4*kind, 20
			if random.IntN(4) == 0 {
				name = fmt.Sprintf("new%c%c", 'a'+random.IntN(26), 'a'+random.IntN(26))
			}
		case 2: // bursts
			name, sleep, limit, pause = fmt.Sprintf("burst%d", i), 4+random.IntN(8), 15, 0
			if i%20 == 0 {
				pause = 25_000
			}
		}
		time.Sleep(time.Duration(random.IntN(2*pause+1)) * time.Millisecond)
		args := []string{"sbatch", "--partition=cpu", fmt.Sprintf("--cpus-per-task=%d", cpus), fmt.Sprintf("--time=%d", limit), "--job-name=" + name, "--output=/dev/null"}
		_, said, _ := c.as(user, append(slices.Clone(args), "--test-only", "--wrap=true")...)
		p := probed{at: time.Now(), testOnly: -1}
		if m := testOnly.FindStringSubmatch(said); m != nil {
			if at, err := time.ParseInLocation("2006-01-02T15:04:05", m[1], time.UTC); err == nil {
				p.testOnly = max(0, at.Sub(p.at).Seconds())
			}
		}
		p.id = strings.TrimSpace(c.must(user, append(args, "--parsable", fmt.Sprintf("--wrap=sleep %d", sleep))...))
		c.must("root", "fairshare", "when", p.id)
		jobs = append(jobs, p)
	}
	for deadline := time.Now().Add(3*time.Minute + time.Duration(n)*10*time.Second); c.must("root", "squeue", "--noheader") != ""; time.Sleep(time.Second) {
		if time.Now().After(deadline) {
			c.t.Fatalf("waited in vain for the queue to be empty\n%s", c.picture())
		}
	}
	scored := ""
	c.until("the forecasts to be scored", func() bool {
		scored = c.must("root", "fairshare", "when", "--score")
		return strings.Contains(scored, "learned")
	})
	// What --test-only said, of the same jobs.
	var errors []float64
	within, waited := 0, 0
	for _, p := range jobs {
		start := strings.TrimSpace(c.must("root", "sacct", "-nXj", p.id, "-o", "Start"))
		at, err := time.ParseInLocation("2006-01-02T15:04:05", start, time.UTC)
		if err != nil || p.testOnly < 0 {
			continue
		}
		actual := max(0, at.Sub(p.at).Seconds())
		if actual > 2 {
			waited++
		}
		miss := max(p.testOnly-actual, actual-p.testOnly)
		if errors = append(errors, miss); miss <= 30 || p.testOnly <= 2*actual && actual <= 2*p.testOnly {
			within++
		}
	}
	slices.Sort(errors)
	if len(errors) == 0 {
		c.t.Fatal("sbatch --test-only has said nothing")
	}
	c.t.Logf("seed %d, %d jobs, of which %d waited\n%ssbatch --test-only: median error %.0f s, p90 %.0f s, within x2 %d%% of %d", seed, n, waited, scored,
		errors[len(errors)/2], errors[len(errors)*9/10], 100*within/len(errors), len(errors))
}
