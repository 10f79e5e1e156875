package cluster

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

var seconds = regexp.MustCompile(`^--time=.*$`)

// holes submits a job for a hole, which backfill starts, and before it one that
// is 10% longer and one that has 10% more CPUs, which it does not.
func (c cluster) holes() {
	c.t.Helper()
	fail := func(format string, args ...any) {
		c.t.Helper()
		c.t.Fatalf(format+"\n%s", append(args, c.picture())...)
	}
	h := c.freeHole()
	if h == nil || h.GPUs != 1 || h.CPUs != 4 || *h.Seconds < 100*60 || *h.Seconds > 120*60 {
		fail("hole %+v; want 1 GPU and 4 CPUs for about two hours", h)
	}
	with := func(change func(option string) string) []string {
		args := []string{"--nice=100000"}
		for _, option := range h.Options {
			args = append(args, change(option))
		}
		return args
	}
	longer := with(func(option string) string {
		return seconds.ReplaceAllString(option, fmt.Sprintf("--time=%d", (*h.Seconds*11+599)/600))
	})
	wider := with(func(option string) string {
		return strings.Replace(option, fmt.Sprintf("--cpus-per-task=%d", h.CPUs), fmt.Sprintf("--cpus-per-task=%d", (h.CPUs*11+9)/10), 1)
	})
	for _, larger := range []struct {
		what    string
		options []string
	}{{"wider", wider}, {"longer", longer}} {
		job := c.submit("bob", larger.options...)
		time.Sleep(7 * time.Second) // backfill looks every 2 seconds here
		if state := c.state(job); state != "PENDING" {
			fail("a job 10%% %s than the hole is %s: %v", larger.what, state, larger.options)
		}
		if larger.what == "longer" {
			c.shorten(job)
		}
		c.must("root", "scancel", job)
	}
	c.until("the hole to be free again", func() bool { h = c.freeHole(); return h != nil })
	job := c.submit("bob", with(func(option string) string { return option })...)
	c.until(fmt.Sprintf("job %s to run in the hole %+v", job, *h), func() bool { return c.state(job) == "RUNNING" })
	// scontrol says it from 21.08 on.
	c.until(fmt.Sprintf("accounting to say that backfill has started job %s", job), func() bool {
		return strings.Contains(c.must("root", "sacct", "--noheader", "--allocations", "--format=Flags%40", "--jobs="+job), "SchedBackfill")
	})
	if h := c.freeHole(); h != nil {
		fail("still a hole where a job runs: %+v", *h)
	}
}

// shorten takes the advice of a job's story: with the time limit told there, it
// starts.
func (c cluster) shorten(job string) {
	c.t.Helper()
	type doc struct {
		Jobs []struct {
			Seconds *int64 `json:"starts_now_with_seconds"`
		} `json:"jobs"`
	}
	jobs := decode[doc](c.t, c.must("bob", "fairshare", "jobs", job, "--json")).Jobs
	if len(jobs) != 1 || jobs[0].Seconds == nil {
		c.t.Fatalf("no time limit with which job %s starts:\n%s", job, c.must("bob", "fairshare", "jobs", job))
	}
	c.must("bob", "scontrol", "update", "job="+job, fmt.Sprintf("timelimit=%d", *jobs[0].Seconds/60))
	c.until("job "+job+" to run with the time limit that was told", func() bool { return c.state(job) == "RUNNING" })
	time.Sleep(3 * time.Second) // not in the second of its launch, while its processes are not yet known
}

// picture is what there is to see when something went wrong.
func (c cluster) picture() string {
	return c.must("root", "squeue", "--all", "--format=%i %P %u %T %C %b %S %e %N %Y %r") + c.must("root", "sacct", "--allusers", "-X", "-o", "jobid,state,start,end,exitcode,nodelist") +
		c.must("root", "fairshare", "holes") + c.logs()
}

// logs are the lines of the daemons' logs that say why a job ended.
func (c cluster) logs() string {
	files, _ := filepath.Glob(filepath.Join(c.dir, "log", "slurm*.log"))
	var b strings.Builder
	for _, file := range files {
		text, _ := os.ReadFile(file)
		for line := range strings.Lines(string(text)) {
			if strings.Contains(line, "memory") || strings.Contains(line, "illed") || strings.Contains(line, "signal") {
				b.WriteString(filepath.Base(file) + ": " + line)
			}
		}
	}
	return b.String()
}

// freeHole is a hole of now with a GPU in the partition gpu, or nil.
func (c cluster) freeHole() *hole {
	for _, p := range decode[holesDoc](c.t, c.must("root", "fairshare", "holes", "-p", "gpu", "--json")).Partitions {
		for _, h := range p.Holes {
			if h.Now && h.GPUs > 0 && h.Seconds != nil {
				return &h
			}
		}
	}
	return nil
}

type hole struct {
	Now     bool     `json:"now"`
	Seconds *int64   `json:"time_limit_seconds"`
	Nodes   int      `json:"nodes"`
	CPUs    int      `json:"cpus_per_node"`
	GPUs    int      `json:"gpus_per_node"`
	Options []string `json:"sbatch_options"`
}

type holesDoc struct {
	Partitions []struct {
		Name  string `json:"partition"`
		Holes []hole `json:"holes"`
	} `json:"partitions"`
}
