package cluster

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// diagnosed is what fairshare jobs says of one job in one partition.
type diagnosed struct {
	State   string   `json:"state"`
	Reason  string   `json:"reason"`
	Cause   string   `json:"cause"`
	Starts  string   `json:"starts"`
	Why     string   `json:"reason_plain"`
	Proof   []string `json:"proof"`
	Advice  string   `json:"advice"`
	Command []string `json:"advice_command"`
}

func (c cluster) diagnosed(user, job string) (all []diagnosed) {
	c.t.Helper()
	type doc struct {
		Jobs []diagnosed `json:"jobs"`
	}
	return decode[doc](c.t, c.must(user, "fairshare", "jobs", "--json", job)).Jobs
}

// limits of a QoS and of associations: a job of alice's uses them up, or one that could never keep them is submitted. Two jobs on one
// node count as one node.
var limits = []struct {
	of, limit, value, submit, reason string
	never                            bool
}{
	{"qos high", "GrpTRES=cpu", "1", "-n1", "QOSGrpCpuLimit", false},
	{"qos high", "GrpTRES=node", "1", "-N1 --exclusive", "QOSGrpNodeLimit", false},
	{"qos high", "GrpTRES=mem", "500", "--mem=500", "QOSGrpMemLimit", false},
	{"qos high", "GrpTRES=gres/gpu", "1", "-p gpu --gpus=1", "QOSGrpGRES", false},
	{"qos high", "GrpJobs", "1", "-n1", "QOSGrpJobsLimit", false},
	{"qos high", "GrpTRESRunMins=cpu", "40", "-n1 -t30", "QOSGrpCPURunMinutesLimit", false},
	{"qos high", "MaxJobsPerUser", "1", "-n1", "QOSMaxJobsPerUserLimit", false},
	{"qos high", "MaxTRESPerUser=node", "1", "-N1 --exclusive", "QOSMaxNodePerUserLimit", false},
	{"qos high", "MaxTRESPerUser=mem", "500", "--mem=500", "QOSMaxMemoryPerUser", false},
	{"qos high", "MaxTRESPerUser=gres/gpu", "1", "-p gpu --gpus=1", "QOSMaxGRESPerUser", false},
	{"qos high", "MaxJobsPerAccount", "1", "-n1", "MaxJobsPerAccount", false},
	{"qos high", "MaxTRESPerAccount=cpu", "1", "-n1", "MaxCpuPerAccount", false},
	{"qos high", "MaxTRESPerAccount=gres/gpu", "1", "-p gpu --gpus=1", "MaxGRESPerAccount", false},
	{"account research", "GrpTRES=cpu", "1", "-n1", "AssocGrpCpuLimit", false},
	{"account research", "GrpTRES=node", "1", "-N1 --exclusive", "AssocGrpNodeLimit", false},
	{"account research", "GrpTRES=mem", "500", "--mem=500", "AssocGrpMemLimit", false},
	{"account research", "GrpTRES=gres/gpu", "1", "-p gpu --gpus=1", "AssocGrpGRES", false},
	{"account research", "GrpJobs", "1", "-n1", "AssocGrpJobsLimit", false},
	{"account research", "GrpTRESRunMins=cpu", "40", "-n1 -t30", "AssocGrpCPURunMinutesLimit", false},
	{"qos high", "MaxTRES=cpu", "1", "-n2", "QOSMaxCpuPerJobLimit", true},
	{"qos high", "MaxTRES=node", "1", "-N2", "QOSMaxNodePerJobLimit", true},
	{"qos high", "MaxTRES=gres/gpu", "1", "-p gpu --gpus=2", "QOSMaxGRESPerJob", true},
	{"qos high", "MaxTRES=mem", "500", "--mem=600", "QOSMaxMemoryPerJob", true},
	{"qos high", "MaxTRESMins=cpu", "5", "-n1 -t30", "QOSMaxCpuMinutesPerJobLimit", true},
	{"qos high", "MinTRESPerJob=gres/gpu", "1", "-p gpu -n1", "QOSMinGRES", true},
	{"user alice where account=research", "MaxTRES=cpu", "1", "-n2", "AssocMaxCpuPerJobLimit", true},
	{"user alice where account=research", "MaxTRES=node", "1", "-N2", "AssocMaxNodePerJobLimit", true},
	{"user alice where account=research", "MaxTRES=gres/gpu", "1", "-p gpu --gpus=2", "AssocMaxGRESPerJob", true},
	{"user alice where account=research", "MaxWall", "10", "-n1 -t30", "AssocMaxWallDurationPerJobLimit", true},
}

// TestReasonsOfSlurm makes jobs wait on the real cluster for one reason after the other, compares the
// diagnosis with what was arranged, runs the advised command as the job's owner, and looks whether it helps.
func TestReasonsOfSlurm(t *testing.T) {
	c := newCluster(t)
	admin := func(args ...string) func() { return func() { c.must("root", args...) } }
	fill := func() { // both nodes of cpu
		for _, node := range []string{"cpu1", "cpu2"} {
			id := c.submit("bob", "-p", "cpu", "-w", node, "--exclusive", "-t", "90")
			c.until("a job that fills "+node, func() bool { return c.state(id) == "RUNNING" })
		}
	}
	slurmConf := filepath.Join(c.dir, "etc", "slurm.conf")
	original, err := os.ReadFile(slurmConf)
	if err != nil {
		t.Fatal(err)
	}
	configured := func(text []byte) {
		if err := os.WriteFile(slurmConf, text, 0o644); err != nil {
			c.t.Fatal(err)
		}
		c.must("root", "scontrol", "reconfigure")
	}
	configure := func(lines ...string) { // in place of those of the same names
		text := string(original)
		for _, line := range lines {
			name, _, _ := strings.Cut(line, "=")
			text = regexp.MustCompile(`(?m)^`+name+`=.*\n`).ReplaceAllString(text, "") + line + "\n"
		}
		configured([]byte(text))
	}
	restore := func() { configured(original) }
	features := strings.TrimSpace(c.must("root", "sinfo", "--noheader", "--nodes=small1", "--format=%f"))
	features, _, _ = strings.Cut(features, "\n")
	type arranged struct {
		name   string
		before func()
		submit []string // options of sbatch; {} is a job of alice's that runs, {failed} one that has failed
		run    string   // what root does with the job when it runs
		after  func()   // the job's submission, which is held until then
		reason string   // of Slurm, as a pattern
		cause  string
		starts string
		says   string   // of the text and the proof, as a pattern
		silent []string // is said nowhere
		helps  bool     // the command makes a task of the job start
		// preempted: the job runs, and waits again when its place is taken.
		preempted bool
		undo      func()
	}
	cases := []arranged{
		{name: "array", submit: []string{"--array=1-5%1", "-t2"}, reason: "JobArrayTaskLimit", cause: "array", starts: "by",
			says: `lets 1 task run at a time.*the first ends`, helps: true},
		{name: "nodes", before: fill, submit: []string{"-t20"}, reason: "Resources|Priority|None", cause: "nodes", starts: "by",
			says: `next in line in cpu.*cpu[12] is taken by \d+, until`, silent: []string{"out of service"}},
		{name: "others", before: func() { fill(); c.submit("carol", "-p", "cpu", "--qos=high", "-N2", "--exclusive", "-t", "60") }, submit: []string{"-t", "100"},
			reason: "Priority|Resources|None", cause: "others", starts: "by", says: `1 job comes before it in cpu`},
		{name: "named node that is busy", before: fill, submit: []string{"-w", "cpu1", "-t20"}, reason: "ReqNodeNotAvail|Resources|Priority|None", cause: "nodes", starts: "by",
			says: `cpu1 is taken by`, silent: []string{"out of service", "down"}},
		{name: "dependency", submit: []string{"--dependency=afterok:{}"}, reason: "Dependency", cause: "dependency", starts: "by",
			says: `job \d+ runs, until`, helps: true},
		{name: "begin", submit: []string{"--begin=now+2hours"}, reason: "BeginTime", cause: "begin", starts: "by", says: `is to begin at`, helps: true},
		{name: "held by its owner", submit: []string{"--hold"}, reason: "JobHeldUser", cause: "held", starts: "unknown", says: `held by its owner`, helps: true},
		{name: "held by an administrator", submit: []string{"--begin=now+1hour"}, after: func() {}, reason: "JobHeldAdmin", cause: "held", starts: "unknown", says: `held by an administrator`},
		{name: "longer than the partition lets", submit: []string{"-t", "5:00:00"}, after: admin("scontrol", "update", "partitionname=cpu", "maxtime=2:00:00"),
			reason: "PartitionTimeLimit", cause: "request", starts: "never", says: `requests 5:00:00, and partition cpu allows 2:00:00`, helps: true,
			undo: admin("scontrol", "update", "partitionname=cpu", "maxtime=7-0")},
		{name: "more nodes than the partition lets", submit: []string{"-N2"}, after: admin("scontrol", "update", "partitionname=cpu", "maxnodes=1"),
			reason: "PartitionNodeLimit", cause: "request", starts: "never", says: `requests 2 nodes, and partition cpu allows at most 1`, helps: true,
			undo: admin("scontrol", "update", "partitionname=cpu", "maxnodes=unlimited")},
		{name: "partition down", before: admin("scontrol", "update", "partitionname=cpu", "state=down"), submit: []string{"-t5"},
			reason: "PartitionDown", cause: "partition", starts: "unknown", says: `partition is down`, undo: admin("scontrol", "update", "partitionname=cpu", "state=up")},
		{name: "node out of service", before: admin("scontrol", "update", "nodename=small1", "state=drain", "reason=fan broken, State=IDLE"), submit: []string{"-p", "gpu_small", "-t5"},
			reason: "Nodes required|ReqNodeNotAvail|Resources", cause: "away", starts: "unknown", says: `1 of the 1 node that could run it is out of service: small1 \(idle\+drain: fan broken, State=IDLE\)`,
			undo: admin("scontrol", "update", "nodename=small1", "state=resume")},
		{name: "features that no node has", submit: []string{"-p", "gpu_small", "-C", strings.Split(features, ",")[0], "-t5"},
			after:  admin("scontrol", "update", "nodename=small1", "availablefeatures=other", "activefeatures=other"),
			reason: "BadConstraints|ReqNodeNotAvail|Resources|Nodes required", cause: "request", starts: "never", says: `partition gpu_small has not 1 node with the features`,
			undo: admin("scontrol", "update", "nodename=small1", "availablefeatures="+features, "activefeatures="+features)},
		{name: "limit of a QoS", before: func() {
			c.must("root", "sacctmgr", "-iQ", "modify", "qos", "high", "set", "MaxTRESPerUser=cpu=1")
			c.submit("alice", "--qos=high", "-n1", "-t30")
		}, submit: []string{"--qos=high", "-n1", "-t5"},
			reason: "QOSMaxCpuPerUserLimit", cause: "limit", starts: "by", says: `QoS high for user alice: 1 CPU allowed in all, 1 in use.*leaves room for this job from`,
			undo: admin("sacctmgr", "-iQ", "modify", "qos", "high", "set", "MaxTRESPerUser=cpu=-1")},
		{name: "less than a QoS demands", before: admin("sacctmgr", "-iQ", "modify", "qos", "high", "set", "MinTRESPerJob=cpu=3"), submit: []string{"--qos=high", "-n1", "-t5"},
			reason: "QOSMinCpuNotSatisfied", cause: "request", starts: "never", says: `QoS high demands at least 3 CPUs of each job, and it requests 1`,
			undo: admin("sacctmgr", "-iQ", "modify", "qos", "high", "set", "MinTRESPerJob=cpu=-1")},
		{name: "longer than a QoS lets", submit: []string{"--qos=qos_gpu-t4", "-t", "120:00:00"}, reason: "QOSMaxWallDurationPerJobLimit", cause: "request", starts: "never",
			says: `QoS qos_gpu-t4.*4-04:00:00 allowed, the job requests 5-00:00:00`, helps: true},
		{name: "an account that the partition does not take", submit: []string{"-t5"}, after: admin("scontrol", "update", "partitionname=cpu", "allowaccounts=csi"),
			reason: "PartitionConfig|AccountNotAllowed", cause: "request", starts: "never", says: `partition cpu does not take its account research.*it takes csi`,
			undo: admin("scontrol", "update", "partitionname=cpu", "allowaccounts=ALL")},
		{name: "a QoS that the partition does not take", submit: []string{"-t5"}, after: admin("scontrol", "update", "partitionname=cpu", "denyqos=normal"),
			reason: "PartitionConfig|QOSNotAllowed", cause: "request", starts: "never", says: `partition cpu does not take its QoS normal`,
			undo: admin("scontrol", "update", "partitionname=cpu", "denyqos=")},
		{name: "more memory than the partition lets", submit: []string{"-t5", "--mem=4000"}, after: admin("scontrol", "update", "partitionname=cpu", "maxmempernode=1000"),
			reason: "MaxMemPerLimit|BadConstraints", cause: "request", starts: "never", says: `more memory`,
			undo: admin("scontrol", "update", "partitionname=cpu", "maxmempernode=0")},
		{name: "a dependency that has failed", submit: []string{"-t5", "--dependency=afterok:{failed}"}, reason: "DependencyNeverSatisfied", cause: "dependency", starts: "never",
			says: `can no longer fulfil its condition`, helps: true},
		{name: "requeued and held", submit: []string{"-t5"}, run: "requeuehold", reason: "job.requeued.in.held.state|RequeueHold|JobHeldUser|JobHeldAdmin",
			cause: "held", starts: "unknown", says: `held`, helps: true},
		{name: "partition that starts nothing", after: admin("scontrol", "update", "partitionname=cpu", "state=inactive"), submit: []string{"-t5"},
			reason: "PartitionInactive", cause: "partition", starts: "unknown", says: `starts none`, undo: admin("scontrol", "update", "partitionname=cpu", "state=up")},
		{name: "jobs of a user in an account", before: func() {
			c.must("root", "sacctmgr", "-iQ", "modify", "user", "alice", "where", "account=research", "set", "MaxJobs=1")
			c.submit("alice", "-n1", "-t30")
		}, submit: []string{"-n1", "-t5"}, reason: "AssocMaxJobsLimit", cause: "limit", starts: "by", says: `1 running job allowed in all, 1 in use.*leaves room for this job from`,
			undo: admin("sacctmgr", "-iQ", "modify", "user", "alice", "where", "account=research", "set", "MaxJobs=-1")},
		{name: "more minutes than a job may use", submit: []string{"-n1", "-t5"}, after: admin("sacctmgr", "-iQ", "modify", "user", "alice", "where", "account=research", "set", "MaxTRESMins=cpu=1"),
			reason: "AssocMaxCpuMinutesPerJobLimit", cause: "request", starts: "never", says: `CPU minutes`,
			undo: admin("sacctmgr", "-iQ", "modify", "user", "alice", "where", "account=research", "set", "MaxTRESMins=cpu=-1")},
		{name: "a part of a heterogeneous job", before: fill, submit: []string{"-p", "gpu", "-n1", "-t20", ":", "-p", "cpu", "-n4", "-t20"}, reason: "Resources|Priority|None|ReqNodeNotAvail",
			cause: "nodes", starts: "by", says: `its component \d+\+1 keeps it: .*cpu[12] is taken by \d+, until`},
		{name: "reservation", before: admin("scontrol", "create", "reservation", "reservationname=later", "starttime=now+60minutes", "duration=60", "nodes=cpu1", "users=alice"),
			submit: []string{"--reservation=later", "-t5"}, reason: "Reservation", cause: "reservation", starts: "by", says: `its reservation later begins at`, helps: true,
			undo: admin("scontrol", "delete", "reservationname=later")},
		{name: "licenses", before: func() {
			configure("Licenses=matlab:1")
			first := c.submit("bob", "-p", "cpu", "-L", "matlab:1", "-t30")
			c.until("a job with the license", func() bool { return c.state(first) == "RUNNING" })
		}, submit: []string{"-p", "cpu", "-L", "matlab:1", "-t5"}, reason: "Licenses", cause: "license", starts: "by",
			says: `license matlab: 0 free, the job requests 1.*job \d+ holds some of them; the first ends`, undo: restore},
		{name: "place that a job of a higher tier has taken", before: func() {
			c.submit("bob", "-p", "gpu", "-w", "gpu1", "--gpus=4", "-t30", "--begin=now+8")
		}, submit: []string{"-p", "gpu_spot", "-w", "gpu1", "--gpus=4", "-t20"}, preempted: true, reason: "BeginTime|Resources|Priority|None|ReqNodeNotAvail",
			cause: "nodes|begin", starts: "by", says: `gpu1 is taken by \d+, until|is to begin at`},
		{name: "priority/basic", before: func() {
			fill()
			configure("PriorityType=priority/basic")
			first := c.submit("bob", "-p", "cpu", "-N2", "--exclusive", "-t", "60")
			c.must("root", "scontrol", "update", "JobId="+first, "Priority=100000000") // whatever the two have used so far
		}, submit: []string{"-p", "cpu", "-t", "100"}, reason: "Priority|Resources|None", cause: "others", starts: "by", says: `1 job comes before it in cpu`, undo: restore},
		{name: "node that saves power", before: func() {
			configure("SuspendProgram=/bin/true", "ResumeProgram=/bin/true", "SuspendTimeout=30", "ResumeTimeout=60", "SuspendTime=100000")
			c.must("root", "scontrol", "update", "nodename=small1", "state=power_down_force", "reason=idle")
		}, submit: []string{"-p", "gpu_small", "-t5"}, reason: "Nodes required|ReqNodeNotAvail|Resources|None|Priority", cause: "away", starts: "unknown",
			says: `1 of the 1 node that could run it is out of service: small1 \(idle\+power(ing)?_down`, undo: func() {
				c.as("root", "scontrol", "update", "nodename=small1", "state=power_up")
				restore()
				c.must("root", "scontrol", "update", "nodename=small1", "state=down", "reason=test")
				c.must("root", "scontrol", "update", "nodename=small1", "state=resume")
				c.until("small1", func() bool {
					return strings.TrimSpace(c.must("root", "sinfo", "--noheader", "--nodes=small1", "--partition=gpu_small", "--format=%T")) == "idle"
				})
			}},
	}
	for _, l := range limits {
		of := "modify " + l.of + " set "
		set := func(value string) func() {
			return admin(append([]string{"sacctmgr", "-iQ"}, strings.Fields(of+l.limit+"="+value)...)...)
		}
		submit := strings.Fields(l.submit)
		if strings.HasPrefix(l.of, "qos") {
			submit = append(submit, "--qos=high")
		}
		k := arranged{name: l.reason, before: set(l.value), submit: submit, reason: l.reason, cause: "limit", starts: "by", says: `allowed.*leaves room for this job from`, undo: set("-1")}
		if l.never {
			k.cause, k.starts, k.says = "request", "never", `allowed|demands|CPU minutes`
		} else {
			k.before = func() {
				set(l.value)()
				first := c.submit("alice", append([]string{"-t30"}, submit...)...)
				c.until("a job that uses the limit up", func() bool { return c.state(first) == "RUNNING" })
			}
		}
		cases = append(cases, k)
	}
	for _, k := range cases {
		t.Run(k.name, func(t *testing.T) {
			c.t = t
			c.emptyQueue()
			if k.undo != nil {
				defer k.undo()
			}
			defer c.emptyQueue()
			if k.before != nil {
				k.before()
			}
			submit := slices.Clone(k.submit)
			for i := range submit {
				if strings.Contains(submit[i], "{failed}") {
					first := strings.TrimSpace(c.must("alice", "sbatch", "--parsable", "--hold", "--output=/dev/null", "--wrap=false"))
					submit[i] = strings.ReplaceAll(submit[i], "{failed}", first)
				}
				if strings.Contains(submit[i], "{}") {
					first := c.submit("alice", "-t30")
					c.until("the first job", func() bool { return c.state(first) == "RUNNING" })
					submit[i] = strings.ReplaceAll(submit[i], "{}", first)
				}
			}
			if k.after != nil {
				submit = append(submit, "--hold")
			}
			job := c.submit("alice", submit...)
			if k.preempted {
				c.until("the job", func() bool { return c.state(job) == "RUNNING" })
				c.until("the end of its run", func() bool { return c.state(job) == "PENDING" })
			}
			if k.run != "" {
				c.until("the job", func() bool { return c.state(job) == "RUNNING" })
				c.must("root", "scontrol", k.run, job)
			}
			if strings.Contains(strings.Join(k.submit, " "), "{failed}") {
				before, _, _ := strings.Cut(strings.TrimPrefix(submit[len(submit)-1], "--dependency=afterok:"), " ")
				c.must("alice", "scontrol", "release", before)
			}
			if k.after != nil {
				k.after()
				if k.cause == "held" {
					c.must("alice", "scontrol", "release", job)
					c.must("root", "scontrol", "hold", job)
				} else {
					c.as("root", "scontrol", "release", job) // which says at once that the job cannot start
				}
			}
			pending := func(all []diagnosed) *diagnosed {
				i := slices.IndexFunc(all, func(d diagnosed) bool { return d.State == "PENDING" })
				if i < 0 {
					return nil
				}
				return &all[i]
			}
			var d *diagnosed
			reason := regexp.MustCompile(`^(?:` + k.reason + `)`)
			c.until("the reason "+k.reason, func() bool {
				d = pending(c.diagnosed("alice", job))
				return d != nil && reason.MatchString(d.Reason) && regexp.MustCompile("^(?:"+k.cause+")$").MatchString(d.Cause)
			})
			said := d.Why + "\n" + strings.Join(d.Proof, "\n")
			if !regexp.MustCompile("^(?:"+k.starts+")$").MatchString(d.Starts) || !regexp.MustCompile(`(?s)`+k.says).MatchString(said) {
				t.Errorf("reason %s: starts %q, want %q; says %q, want %q", d.Reason, d.Starts, k.starts, said, k.says)
			}
			for _, word := range k.silent {
				if strings.Contains(said, word) {
					t.Errorf("%q says %q", said, word)
				}
			}
			first, _, _ := strings.Cut(c.must("alice", "fairshare", "jobs", job), "; ")
			after := pending(c.diagnosed("alice", job)) // minutes of running jobs become fewer meanwhile
			if plain := strings.Join(strings.Fields(first), " "); !strings.HasPrefix(plain, "job "+job) ||
				!strings.Contains(plain, " waits: "+d.Why) && (after == nil || !strings.Contains(plain, " waits: "+after.Why)) {
				t.Errorf("jobs begins with %q, not with %q", plain, d.Why)
			}
			type list struct {
				Jobs []struct {
					ID    string  `json:"job_id"`
					Start *string `json:"start_time"`
				}
			}
			for _, row := range decode[list](t, c.must("alice", "fairshare", "jobs", "--json")).Jobs {
				if k.cause == "array" && strings.HasPrefix(row.ID, job) && row.Start == nil {
					t.Error("the list has no start of an array that its own limit keeps back")
				}
			}
			never := strings.Contains(strings.Join(strings.Fields(c.must("alice", "fairshare", "when", job)), " "), "will not start as it is")
			if never != (d.Starts == "never") {
				t.Errorf("when says %v of never", never)
			}
			if !k.helps {
				return
			}
			if len(d.Command) == 0 {
				t.Fatalf("no command is advised: %q", d.Advice)
			}
			c.must("alice", d.Command...)
			c.until("an effect of "+strings.Join(d.Command, " "), func() bool {
				all := c.diagnosed("alice", job)
				running := 0
				for _, row := range all {
					if row.State == "RUNNING" {
						running++
					}
				}
				return running > 1 || running == 1 && pending(all) == nil
			})
		})
	}
}
