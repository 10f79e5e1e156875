package cluster

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ponos-tools/ponos/lib/base/hostlist"
)

// sureHoles fills the cluster by chance, and submits jobs for holes of now that are said
// to be sure, as they are printed and with the lowest priority: each has to start. It also counts how often one that is a tenth longer
// starts at once, so that the hole was longer than it was said to be.
// PONOS_HOLES says how many scenarios there are, PONOS_SEED which is the first.
func (c cluster) sureHoles() {
	scenarios, seed := 2, uint64(1)
	if n, err := strconv.Atoi(os.Getenv("PONOS_HOLES")); err == nil && n > 0 {
		scenarios = n
	}
	if n, err := strconv.ParseUint(os.Getenv("PONOS_SEED"), 10, 64); err == nil {
		seed = n
	}
	sure, started, longer, short := 0, 0, 0, 0
	for ; scenarios > 0; scenarios, seed = scenarios-1, seed+1 {
		random := rand.New(rand.NewPCG(seed, 2))
		one := func(of ...string) string { return of[random.IntN(len(of))] }
		c.emptyQueue()
		reserved := random.IntN(3) == 0
		if reserved {
			c.must("root", "scontrol", "create", "reservation", "reservationname=random", "starttime=now+"+one("0", "20", "60")+"minutes", "duration=120",
				"nodes="+one("cpu1", "gpu1", "small1", "gpu2,cpu2"), "users=root")
		}
		for range 4 + random.IntN(10) {
			partition := one("cpu", "cpu", "gpu", "gpu", "gpu_small", "gpu_spot", "gpu_csi_a", "cpu,gpu", "gpu,gpu_spot")
			args := []string{"sbatch", "--quiet", "--output=/dev/null", "-p", partition, fmt.Sprintf("--time=%d", 5+random.IntN(200)), fmt.Sprintf("-c%d", 1+random.IntN(4)), "--wrap=sleep 7200"}
			if strings.Contains(partition, "gpu") && random.IntN(3) > 0 {
				args = append(args, fmt.Sprintf("--gpus=%d", 1+random.IntN(4)))
			}
			switch random.IntN(8) {
			case 0, 1:
				args = append(args, "-N2")
			case 2:
				args = append(args, "-N1", "--exclusive")
			case 3:
				args = append(args, fmt.Sprintf("--array=1-%d%s", 2+random.IntN(5), one("", "%2")))
			case 4:
				args = append(args, "-x", one("cpu1", "gpu2"))
			}
			c.as(one("alice", "bob", "carol"), args...) // what cannot be is refused
		}
		c.settled()
		var doc struct {
			Partitions []struct {
				Holes []struct {
					Now       bool
					Certainty string
					Seconds   *int64   `json:"time_limit_seconds"`
					Options   []string `json:"sbatch_options"`
					Delays    []string
				}
			}
		}
		if err := json.Unmarshal([]byte(c.must("bob", "fairshare", "holes", "--json", "--now")), &doc); err != nil {
			c.t.Fatal(err)
		}
		var offers, named [][]string
		var lengths []int64
		for _, p := range doc.Partitions {
			for _, h := range p.Holes {
				if h.Certainty == "sure" {
					offers, named = append(offers, h.Options), append(named, h.Delays)
					if lengths = append(lengths, 7*86400); h.Seconds != nil {
						lengths[len(lengths)-1] = *h.Seconds
					}
				} else if h.Certainty == "out_of_reach" && len(h.Options) > 0 {
					c.t.Errorf("seed %d: options for a hole that is out of reach: %v", seed, h.Options)
				}
			}
		}
		if len(offers) > 0 {
			sure++
			chosen := random.IntN(len(offers))
			options, before := offers[chosen], c.starts()
			if lengths[chosen] < 5*86400 { // no partition lets a job run for longer than a week
				longer++
				more := fmt.Sprintf("--time=%d", lengths[chosen]*11/600+2)
				if c.startsAtOnce(append(slices.Clone(options), more)) { // the last one of an option counts
					short++
					c.t.Logf("seed %d: a longer job starts at once: %v\n%s", seed, options, c.picture())
				}
			}
			job := c.submit("bob", append([]string{"--nice=100000"}, options...)...)
			running := func() bool { return c.state(job) == "RUNNING" }
			for range 180 { // no other job reaches its time limit within that time
				if running() {
					break
				}
				time.Sleep(time.Second)
			}
			if running() {
				started++
				c.settled()
				list, until, _ := strings.Cut(strings.TrimSpace(c.must("root", "squeue", "--noheader", "--jobs="+job, "--format=%N %e")), " ")
				has, err := hostlist.Expand(list)
				if err != nil {
					c.t.Fatal(err)
				}
				end, err := time.ParseInLocation("2006-01-02T15:04:05", until, time.UTC)
				if err != nil {
					c.t.Fatal(err)
				}
				for label, now := range c.starts() {
					// What was planned on other nodes, or for later, is planned anew because
					// priorities change.
					was, planned := before[label]
					there := slices.ContainsFunc(was.nodes, func(n string) bool { return slices.Contains(has, n) })
					if planned && there && was.at.Before(end) && now.at.Sub(was.at) > 2*time.Minute && !slices.Contains(named[chosen], label) {
						c.t.Errorf("seed %d: a job in a sure hole delays job %s, planned for %s, until %s, and only %q were named: %v\n%s", seed, label, was.at.Format(time.TimeOnly), now.at.Format(time.TimeOnly), named[chosen], options, c.picture())
					}
				}
			} else {
				c.t.Errorf("seed %d: a job in a sure hole does not start: %v\n%s", seed, options, c.picture())
			}
		}
		if reserved {
			for _, user := range []string{"alice", "bob", "carol"} {
				c.must("root", "scancel", "--user="+user)
			}
			c.must("root", "scontrol", "delete", "ReservationName=random")
		}
	}
	c.t.Logf("%d of %d jobs started in sure holes; %d of %d holes were longer than said", started, sure, short, longer)
}

// startsAtOnce submits a job, reports whether it starts, and takes it away again.
func (c cluster) startsAtOnce(options []string) (starts bool) {
	job := c.submit("bob", append([]string{"--nice=100000"}, options...)...)
	for range 8 { // backfill looks every 2 seconds here
		if starts = c.state(job) == "RUNNING"; starts {
			break
		}
		time.Sleep(time.Second)
	}
	c.must("root", "scancel", job)
	c.until("the end of the longer job", func() bool { return c.must("root", "squeue", "--noheader", "--all", "--jobs="+job) == "" })
	return starts
}

// planned is when and where Slurm has planned a job that waits.
type planned struct {
	at    time.Time
	nodes []string
}

// starts are the plans of Slurm, by the labels of the jobs.
func (c cluster) starts() map[string]planned {
	starts := map[string]planned{}
	for line := range strings.Lines(c.must("root", "squeue", "--noheader", "--all", "--states=PENDING", "--format=%i %S %Y")) {
		words := strings.Fields(line)
		if len(words) != 3 {
			continue
		}
		t, err := time.ParseInLocation("2006-01-02T15:04:05", words[1], time.UTC)
		nodes, listErr := hostlist.Expand(words[2])
		if err == nil && listErr == nil && t.After(starts[words[0]].at) {
			starts[words[0]] = planned{t, nodes}
		}
	}
	return starts
}

// settled waits until the backfill scheduler has looked at all jobs that wait: their
// reasons and planned starts are the same for several of its turns.
func (c cluster) settled() {
	before, same := "", 0
	c.until("plans for all jobs", func() bool {
		time.Sleep(time.Second)
		now := c.must("root", "squeue", "--noheader", "--all", "--format=%i %T %N %Y %r")
		if same++; now != before {
			before, same = now, 0
		}
		return same >= 5
	})
}
