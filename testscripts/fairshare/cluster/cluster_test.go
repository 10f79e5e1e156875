// Package cluster tests fairshare against a real Slurm cluster. It has no commands
// that stand in for Slurm's: the cluster is made with Slurm's own.
package cluster

import (
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/ponos-tools/ponos/lib/advise/priority"
	"github.com/ponos-tools/ponos/testscripts/harness"
)

func TestMain(m *testing.M) {
	harness.Main(m, nil, "fairshare", "lfind", "jobpool", "ponos-submit", "ponos-list", "ponos-poll", "ponos-stop", "ponos-start", "ponos-setup", "ponos-worker")
}

type queueDoc struct {
	Jobs []struct {
		ID        string   `json:"job_id"`
		RawID     uint64   `json:"raw_job_id"`
		Partition string   `json:"partition"`
		State     string   `json:"state"`
		Rank      *int     `json:"rank"`
		Priority  float64  `json:"priority"`
		Sum       *float64 `json:"factors_sum"`
		Start     *string  `json:"start_time"`
		Reason    string   `json:"reason"`
		Nodes     float64  `json:"nodes"`
		CPUs      float64  `json:"cpus"`
		Factors   map[string]struct {
			Factor float64 `json:"factor"`
		} `json:"factors"`
	} `json:"jobs"`
}

// TestSlurm builds a mixed queue on the real cluster and compares what fairshare
// says with Slurm's own numbers and with what Slurm then does.
func TestSlurm(t *testing.T) {
	c := newCluster(t)
	c.mixedQueue()

	t.Run("priorities", func(t *testing.T) { c.t = t; c.priorities() })
	t.Run("where", func(t *testing.T) { c.t = t; c.where() })
	t.Run("holes", func(t *testing.T) { c.t = t; c.holes() })
	t.Run("shares", func(t *testing.T) { c.t = t; c.shares() })
	t.Run("history", func(t *testing.T) { c.t = t; c.history() })
	t.Run("limits", func(t *testing.T) { c.t = t; c.limits() })
	t.Run("used", func(t *testing.T) { c.t = t; c.used() })
	t.Run("when", func(t *testing.T) { c.t = t; c.when() })
	t.Run("sure holes", func(t *testing.T) { c.t = t; c.sureHoles() })
	t.Run("forecasts", func(t *testing.T) { c.t = t; c.forecasts(probes(t)) })
}

// mixedQueue submits running and pending jobs of all kinds, and waits until the
// backfill scheduler has planned them.
func (c cluster) mixedQueue() {
	c.until("the accounts", func() bool {
		_, _, code := c.as("carol", "sbatch", "--test-only", "-p", "gpu_csi_a", "--wrap=true")
		return code == 0
	})
	// gpu1 has one GPU and half its CPUs left, gpu2 nothing.
	c.submit("carol", "-p", "gpu_csi_a", "-w", "gpu1", "--gpus=3", "--cpus-per-task=4", "-t", "60")
	c.submit("alice", "-p", "gpu", "-w", "gpu2", "--gpus=4", "--cpus-per-task=8", "-t", "120")
	c.submit("bob", "-p", "cpu", "-N2", "-n6", "-t", "90") // 4 CPUs on one node, 2 on the other
	c.until("the jobs that run", func() bool {
		return len(strings.Fields(c.must("root", "squeue", "--noheader", "--all", "--states=RUNNING", "--format=%i"))) == 3
	})
	c.submit("alice", "-p", "gpu", "--qos=high", "-N2", "--gpus-per-node=4", "-t", "180")
	c.submit("carol", "-p", "cpu", "-N2", "--exclusive", "-t", "30")
	c.submit("bob", "-p", "cpu", "-n4", "--array=1-6%2", "-t", "40", "-J", "作業|x")
	c.submit("alice", "-p", "gpu,gpu_spot", "-N2", "--gpus-per-node=4", "-t", "60", "--nice=500")
	c.must("alice", "sbatch", "-p", "cpu", "-n4", "-t", "20", "--output=/dev/null", ":", "-p", "gpu_small", "--gpus=2", "-t", "20", "--wrap=sleep 60")
	c.submit("bob", "-p", "cpu", "--hold", "-t", "10")
	c.submit("carol", "-p", "gpu_spot", "-N2", "-C", "a100", "--gpus-per-node=4", "-t", "60", "--open-mode=append")
	c.until("planned starts", func() bool {
		planned := 0
		for _, j := range decode[queueDoc](c.t, c.must("root", "fairshare", "jobs", "--json")).Jobs {
			if j.Rank != nil && j.Start != nil {
				planned++
			}
		}
		return planned >= 5
	})
}

// emptyQueue cancels all jobs. scancel of Slurm 21.08 fails where one ends by itself
// meanwhile.
func (c cluster) emptyQueue() {
	c.t.Helper()
	c.until("an empty queue", func() bool {
		for _, user := range []string{"alice", "bob", "carol", "root"} {
			c.as("root", "scancel", "--user="+user)
		}
		return c.must("root", "squeue", "--noheader") == ""
	})
}

// shares compares our fair-share factors with sshare's, once there is usage.
func (c cluster) shares() {
	type doc struct {
		Associations []struct {
			Account  string   `json:"account"`
			User     *string  `json:"user"`
			Usage    float64  `json:"raw_usage"`
			Factor   *float64 `json:"fairshare"`
			Computed *float64 `json:"fairshare_computed"`
		} `json:"associations"`
	}
	// Usage is added once a minute.
	c.until("usage", func() bool {
		usage := 0.0
		for _, a := range decode[doc](c.t, c.must("root", "fairshare", "--all", "--json")).Associations {
			usage += a.Usage
		}
		return usage > 0
	})
	// The factors follow in the same minute.
	c.until("our factors to be those of sshare", func() bool {
		users, equal := 0, true
		for _, a := range decode[doc](c.t, c.must("root", "fairshare", "--all", "--json")).Associations {
			if a.User == nil {
				continue
			}
			users++
			if a.Factor == nil || a.Computed == nil || math.Abs(*a.Factor-*a.Computed) > 1e-5 {
				equal = false
			}
		}
		return equal && users == 5
	})
	if out := c.must("alice", "fairshare"); !strings.Contains(out, "alice@research  factor") {
		c.t.Errorf("alice sees\n%s", out)
	}
}

// priorities compares the sum of the factors with Slurm's priority.
func (c cluster) priorities() {
	wrong := ""
	for range 5 { // priorities change every minute, maybe between two of the commands that fairshare runs
		seen, checked := map[string]bool{}, 0
		wrong = ""
		for _, j := range decode[queueDoc](c.t, c.must("root", "fairshare", "jobs", "--json")).Jobs {
			seen[j.Partition] = true
			if j.Sum == nil {
				continue
			}
			checked++
			// The cluster has 5 nodes and 28 CPUs.
			if size := priority.JobSize(j.Nodes, j.CPUs, 5, 28, 0, priority.SizeOptions{}); j.Nodes == 1 && math.Abs(size-j.Factors["jobsize"].Factor) > 1e-6 {
				c.t.Errorf("job %s: its size makes %v, sprio says %v", j.ID, size, j.Factors["jobsize"].Factor)
			}
			if math.Abs(*j.Sum-j.Priority) > 1 {
				wrong += fmt.Sprintf("job %s in %s: the factors make %v, Slurm says %v\n", j.ID, j.Partition, *j.Sum, j.Priority)
			}
		}
		if checked < 3 || len(seen) < 2 {
			c.t.Errorf("%d jobs with factors, in %v", checked, seen)
		}
		if wrong == "" {
			break
		}
	}
	if wrong != "" {
		c.t.Error(wrong)
	}
	// The priority as it is: squeue -o %Q -j ID of a job in one partition.
	for range 5 { // it changes every minute
		queue := decode[queueDoc](c.t, c.must("root", "fairshare", "jobs", "-p", "cpu", "--json"))
		id := strconv.FormatUint(queue.Jobs[0].RawID, 10)
		ours, theirs := c.must("root", "fairshare", "jobs", "-j", id, "--format", "priority"), c.must("root", "squeue", "-o", "%Q", "-j", id)
		if ours == theirs {
			return
		}
		c.t.Logf("job %s: %q and %q", id, ours, theirs)
	}
	c.t.Error("fairshare jobs -j ID --format priority is not squeue -o %Q -j ID")
}

func (c cluster) where() {
	type doc struct {
		Answers []struct {
			Partition   string  `json:"partition"`
			Now         bool    `json:"now"`
			Refusal     *string `json:"refusal"`
			Preemptible bool    `json:"preemptible"`
		} `json:"answers"`
	}
	out := decode[doc](c.t, c.must("alice", "fairshare", "where", "--json", "--gpus=1", "-t", "30"))
	first := out.Answers[0]
	if first.Partition != "gpu_small" || !first.Now {
		c.t.Errorf("first %+v; want gpu_small now", first)
	}
	for _, a := range out.Answers {
		switch a.Partition {
		case "cpu":
			if a.Refusal == nil {
				c.t.Error("cpu takes a job with GPUs")
			}
		case "gpu_spot":
			if !a.Preemptible {
				c.t.Error("gpu_spot is not preemptible")
			}
		case "gpu_csi_a":
			c.t.Error("alice may not use gpu_csi_a")
		}
	}
	_, errs, code := c.as("alice", "fairshare", "where", "--mem=900G")
	if code != 1 || !strings.Contains(errs, "no partition accepts the job") {
		c.t.Errorf("exit status %d, %q", code, errs)
	}
}

func (c cluster) history() {
	out := c.must("root", "fairshare", "history", "--all", "--since", "1d")
	if !strings.Contains(out, "CPU hours a day") || !strings.Contains(out, "alice") {
		c.t.Errorf("history:\n%s", out)
	}
	c.must("root", "fairshare", "history", "--all", "--since", "1d", "--source", "sreport")
}

// limits sets limits, lets jobs run into one, and compares what fairshare says with them.
func (c cluster) limits() {
	c.emptyQueue()
	c.must("root", "sacctmgr", "-Qi", "modify", "qos", "high", "set", "GrpTRES=gres/gpu=2", "MaxTRESPU=mem=20G")
	c.must("root", "sacctmgr", "-Qi", "modify", "account", "research", "set", "GrpTRESRunMins=cpu=30000")
	c.must("root", "sacctmgr", "-Qi", "modify", "user", "alice", "set", "MaxJobs=5", "MaxWall=2-0")
	for range 3 {
		c.must("alice", "sbatch", "--quiet", "--output=/dev/null", "--partition=gpu", "--qos=high", "--gpus=1", "--time=30", "--wrap=sleep 600")
	}
	waiting := ""
	c.until("a job that waits for its QoS", func() bool {
		waiting = strings.TrimSpace(c.must("alice", "squeue", "--noheader", "--me", "--states=PENDING", "--format=%i %r"))
		return strings.HasSuffix(waiting, " QOSGrpGRES")
	})
	id, _, _ := strings.Cut(waiting, " ")
	out := c.must("alice", "fairshare", "limits")
	for _, want := range []string{
		`(?m)^running jobs +alice in account research +5 +2 +3$`,
		`(?m)^time limit of a job +alice in account research +2d +- +-$`,
		`(?m)^CPU hours of running jobs +account research +500 +\d+ +4\d\d$`,
		`(?m)^GPUs +QoS high +2 +2 +0  job ` + id + ` waits for it$`,
		`(?m)^memory +QoS high, each user +20GiB +1000MiB +19480MiB$`,
	} {
		if !regexp.MustCompile(want).MatchString(out) {
			c.t.Errorf("no %s in\n%s", want, out)
		}
	}
	doc := decode[struct {
		Limits []struct {
			QOS, Resource string
			Used          *float64
			Binds         bool
			Waiting       []string `json:"waiting_jobs"`
		}
	}](c.t, c.must("root", "fairshare", "limits", "research", "--json"))
	bound := 0
	for _, l := range doc.Limits {
		if l.Binds {
			bound++
			if l.QOS != "high" || l.Resource != "gres/gpu" || *l.Used != 2 || len(l.Waiting) != 1 || l.Waiting[0] != id {
				c.t.Errorf("%+v", l)
			}
		}
	}
	if bound != 1 {
		c.t.Errorf("%d limits bind: %+v", bound, doc.Limits)
	}
	if _, errs, code := c.as("alice", "fairshare", "limits", "nobody-there"); code != 2 || !strings.Contains(errs, `unknown account or user "nobody-there"`) {
		c.t.Errorf("exit status %d, %s", code, errs)
	}
}

// when lets jobs run far shorter than their limits, and forecasts one that waits for others
// of their kind: it learns from accounting, and scores itself when the job has started.
func (c cluster) when() {
	type doc struct {
		Learned bool `json:"run_times_learned"`
		Jobs    []struct {
			Seconds, Low, High *float64
			Runs               int
			Kind               string  `json:"runs_of"`
			Limits             *string `json:"start_time_by_limits"`
			Never              *string
		}
		Past []struct {
			Forecast string
			Count    int
		}
	}
	c.emptyQueue()
	c.env = append(c.env, "XDG_STATE_HOME="+c.t.TempDir())
	submit := func(name string) string {
		return strings.TrimSpace(c.must("bob", "sbatch", "--parsable", "--partition=gpu_small", "--cpus-per-task=4", "--time=60", "--job-name="+name, "--output=/dev/null", "--wrap=sleep 4"))
	}
	var last string
	for i := range 6 {
		last = submit(fmt.Sprintf("step%d", i))
	}
	var forecast doc
	c.until("accounting to know how long they run", func() bool {
		if c.state(last) == "" {
			last = submit("step9")
			submit("step8")
			last = submit("step7")
		}
		forecast = decode[doc](c.t, c.must("root", "fairshare", "when", "--json", last))
		return len(forecast.Jobs) == 1 && forecast.Jobs[0].Kind == "of the same name" && forecast.Jobs[0].Runs > 0 && forecast.Jobs[0].Seconds != nil
	})
	j := forecast.Jobs[0]
	if !forecast.Learned || *j.Seconds > 900 || j.Never != nil {
		c.t.Errorf("in %v s: %+v\n%s", *j.Seconds, j, c.picture())
	}
	c.until("the job to start", func() bool { return c.state(last) != "PENDING" })
	c.until("the forecast to be scored", func() bool {
		scored := decode[doc](c.t, c.must("root", "fairshare", "when", "--score", "--json"))
		return scored.Past[0].Forecast == "learned" && scored.Past[0].Count >= 1
	})
	c.must("root", "sacctmgr", "-Qi", "modify", "qos", "high", "set", "GrpTRES=gres/gpu=2")
	out := decode[doc](c.t, c.must("alice", "fairshare", "when", "--json", "--partition=gpu", "--qos=high", "--gpus=3", "--time=30"))
	if len(out.Jobs) != 1 || out.Jobs[0].Never == nil || *out.Jobs[0].Never != "QoS high: 2 GPUs allowed in all, 0 in use, the job requests 3" {
		c.t.Errorf("%+v", out.Jobs)
	}
	if text := c.must("alice", "fairshare", "when", "-p", "gpu", "--gpus=1", "-t", "30"); !strings.Contains(text, "this job starts now") {
		c.t.Errorf("%s", text)
	}
}

// used lets jobs run far below what they ask for, and takes the advice that follows: it fits
// a hole, into which such a job would not have fit as it was.
func (c cluster) used() {
	type doc struct {
		Jobs []struct {
			Job    string `json:"job_id"`
			Runs   int
			CPU    *float64 `json:"cpu_used"`
			Peak   *int64   `json:"memory_peak_bytes_per_node"`
			Asked  *int64   `json:"memory_asked_bytes_per_node"`
			Lost   *float64 `json:"cpu_seconds_lost"`
			States map[string]int
			Advice struct {
				Options []string `json:"sbatch_options"`
				Before  *string  `json:"start_time_as_before"`
				After   *string  `json:"start_time_with_options"`
			}
		}
	}
	c.emptyQueue()
	run := func(args ...string) string {
		return strings.TrimSpace(c.must("bob", append([]string{"sbatch", "--parsable", "--partition=cpu", "--output=/dev/null", "--time=600"}, args...)...))
	}
	array := run("--array=1-3", "--job-name=fold", "--mem=900", "--wrap=sleep 3")
	steps := run("-N2", "-n4", "--mem=1000", "--job-name=steps", "--wrap=srun -n4 sh -c 'a=$(head -c 60000000 /dev/zero | tr \\\\0 x); sleep 6'; srun -n1 -N1 sleep 1")
	var found doc
	c.until("accounting of the jobs", func() bool {
		out, _, code := c.as("bob", "fairshare", "used", "--json", array+","+steps)
		if code != 0 {
			return false
		}
		found = decode[doc](c.t, out)
		return len(found.Jobs) == 2 && found.Jobs[0].States["COMPLETED"]+found.Jobs[1].States["COMPLETED"] == 4
	})
	for _, j := range found.Jobs {
		if strings.HasPrefix(j.Job, array) {
			if j.Runs != 3 || j.CPU == nil || *j.CPU > 0.2 || j.Lost == nil || *j.Lost < 8 || *j.Asked != 900<<20 {
				c.t.Errorf("the array: %+v", j)
			}
		} else if j.Runs != 1 || j.Peak == nil || *j.Peak < 100<<20 || *j.Asked != 1000<<20 { // two or three tasks of 60 MB are on a node
			c.t.Errorf("steps: %+v, peak %v", j, *j.Peak)
		}
	}
	// cpu1 and cpu2 are kept for a job of two nodes in half an hour; a job of ten hours fits
	// nowhere.
	c.submit("alice", "-p", "cpu", "-w", "cpu1", "-n4", "-t", "30")
	c.until("a job on cpu1", func() bool {
		return strings.Contains(c.must("root", "squeue", "--noheader", "--format=%N %T"), "cpu1 RUNNING")
	})
	first := c.submit("alice", "-p", "cpu", "-N2", "--exclusive", "-t", "60")
	c.must("root", "scontrol", "update", "JobId="+first, "Priority=100000000") // whatever the two have used so far
	c.settled()
	out := decode[doc](c.t, c.must("bob", "fairshare", "used", "--json", array))
	if len(out.Jobs) != 1 || len(out.Jobs[0].Advice.Options) == 0 || out.Jobs[0].Advice.After == nil {
		c.t.Fatalf("no advice: %+v\n%s", out, c.picture())
	}
	if text := c.must("bob", "fairshare", "used", array); !strings.Contains(text, "it fits a hole now") || !strings.Contains(text, strings.Join(out.Jobs[0].Advice.Options, " ")) {
		c.t.Errorf("%s\n%s", text, c.picture())
	}
	long := c.submit("bob", "-p", "cpu", "-t", "600", "--mem=900")
	job := c.submit("bob", append([]string{"-p", "cpu"}, out.Jobs[0].Advice.Options...)...)
	c.until("a job with the options that are advised to run", func() bool { return c.state(job) == "RUNNING" })
	if state := c.state(long); state != "PENDING" {
		c.t.Errorf("the job as it was before is %s", state)
	}
	if text := c.must("bob", "fairshare", "used", "--since", "1h"); !regexp.MustCompile(`(?m)^fold +3 +\d+% `).MatchString(text) {
		c.t.Error(text)
	}
	if _, errs, code := c.as("bob", "fairshare", "used", "99999"); code != 2 || !strings.Contains(errs, "accounting has no job 99999") {
		c.t.Errorf("exit status %d, %s", code, errs)
	}
}
