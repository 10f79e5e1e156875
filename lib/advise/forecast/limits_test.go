package forecast

import (
	"strings"
	"testing"
	"time"

	"github.com/ponos-tools/ponos/lib/slurm"
)

// Which limit keeps a job back, with how much of it is used and how much is asked for.
func TestLimits(t *testing.T) {
	const assoc = "ClusterName=c Account=root UserName= Partition= ParentAccount= GrpJobs=N(1) GrpSubmitJobs=N(1) GrpWall=N(0.00) GrpTRES=cpu=N(2) GrpTRESMins=cpu=N(9) GrpTRESRunMins=cpu=N(9) MaxJobs= MaxTRESPJ= MaxWallPJ=\n" +
		"ClusterName=c Account=lab UserName= Partition= ParentAccount=root(1) GrpJobs=N(1) GrpSubmitJobs=N(1) GrpWall=N(0.00) GrpTRES=cpu=6(2) GrpTRESMins=cpu=N(9) GrpTRESRunMins=cpu=N(9) MaxJobs= MaxTRESPJ= MaxWallPJ=\n" +
		"ClusterName=c Account=lab UserName=alice(1001) Partition= ParentAccount= GrpJobs=N(1) GrpSubmitJobs=N(1) GrpWall=N(0.00) GrpTRES=cpu=N(2) GrpTRESMins=cpu=1(5) GrpTRESRunMins=cpu=N(9) MaxJobs=3(1) MaxTRESPJ=mem=9000 MaxWallPJ=600\n" +
		"ClusterName=c Account=lab UserName=bob(1002) Partition= ParentAccount= GrpJobs=N(1) GrpSubmitJobs=N(1) GrpWall=N(0.00) GrpTRES=cpu=N(2) GrpTRESMins=cpu=N(5) GrpTRESRunMins=cpu=N(9) MaxJobs=1(1) MaxTRESPJ=mem=9000 MaxWallPJ=600\n" +
		"QOS=high(2) GrpJobs=N(0) GrpTRES=gres/gpu=2(1) Account Limits=No Accounts User Limits= 1002={MaxJobsPU=N(1) MaxTRESPU=cpu=4(3)}\n"
	usages, err := slurm.ParseUsages(strings.NewReader(assoc))
	if err != nil {
		t.Fatal(err)
	}
	records := Records{
		Now: time.Unix(now, 0), Usages: &usages,
		Config:     slurm.Config{"ClusterName": "c", "AccountingStorageEnforce": "associations,limits,qos", "SLURM_VERSION": "22.05.8", "SelectTypeParameters": "CR_CPU_MEMORY"},
		Partitions: []slurm.Partition{{Name: "cpu", State: "UP", MaxTime: slurm.Unlimited}},
		Nodes:      []slurm.Node{{Name: "n1", Partitions: "cpu", CPUs: 16, MemMB: 64000, GPUs: 4, State: "IDLE"}},
		QOS: []slurm.QOS{
			{Name: "high", Grp: slurm.GroupLimits{TRES: slurm.TRES{"gres/gpu": 2}}, MaxTRESPerUser: slurm.TRES{"cpu": 4}, MaxJobsPerUser: slurm.AtMost[int64](5)},
			{Name: "normal"},
		},
		UserID: func(name string) (uint32, bool) { return map[string]uint32{"alice": 1001, "bob": 1002}[name], true },
	}
	job := func(user, qos string, tres slurm.TRES, limit time.Duration) slurm.Job {
		return slurm.Job{ID: 7, ArrayID: 7, Label: "7", User: user, Account: "lab", QOS: qos, Partition: "cpu", State: "PENDING", Priority: 5, Nodes: 1, TRES: tres, Limit: limit, Reason: "Priority"}
	}
	for _, c := range []struct {
		job  slurm.Job
		want string
	}{
		{job("alice", "high", slurm.TRES{"cpu": 1, "gres/gpu": 3}, time.Hour), "QoS high: 2 GPUs allowed in all, 1 in use, the job requests 3: it will never start like this"},
		{job("alice", "high", slurm.TRES{"cpu": 1, "gres/gpu": 2}, time.Hour), "QoS high: 2 GPUs allowed in all, 1 in use, the job requests 2"},
		{job("bob", "high", slurm.TRES{"cpu": 2}, time.Hour), "QoS high for user bob: 4 CPUs allowed in all, 3 in use, the job requests 2"},
		// The limit of the QoS on jobs of a user takes the place of that of the association.
		{job("bob", "high", slurm.TRES{"cpu": 1}, time.Hour), ""},
		{job("bob", "normal", slurm.TRES{"cpu": 1}, time.Hour), "account lab for user bob: 1 running job allowed in all, 1 in use"},
		{job("bob", "high", slurm.TRES{"cpu": 1, "mem": 9001}, time.Hour), "account lab for user bob, each job: 9000 MiB of memory allowed, the job requests 9001: it will never start like this"},
		{job("bob", "high", slurm.TRES{"cpu": 1}, 11*time.Hour), "account lab for user bob, each job: 10:00:00 allowed, the job requests 11:00:00: it will never start like this"},
		{job("bob", "high", slurm.TRES{"cpu": 7}, time.Hour), "QoS high for user bob: 4 CPUs allowed in all, 3 in use, the job requests 7: it will never start like this"},
		{job("alice", "normal", slurm.TRES{"cpu": 7}, time.Hour), "account lab: 6 CPUs allowed in all, 2 in use, the job requests 7: it will never start like this"},
		{job("alice", "normal", slurm.TRES{"cpu": 1}, time.Hour), "account lab for user alice: 1 CPU minutes allowed in all, 5 in use"},
	} {
		records.Jobs = []slurm.Job{c.job}
		p := NewPlan(never, NewWorld(records), true)
		if got := p.Explain(0); got != c.want {
			t.Errorf("%s in %s with %v: %q, want %q", c.job.User, c.job.QOS, c.job.TRES, got, c.want)
		}
	}
}

// A job on whole nodes takes of a limit what the smallest of those that can hold it has, whatever it requests; what is known
// only by Slurm's reason is believed.
func TestLimitsOfWholeNodes(t *testing.T) {
	records := Records{
		Now: time.Unix(now, 0), Usages: &slurm.Usages{},
		Config:     slurm.Config{"ClusterName": "c", "AccountingStorageEnforce": "limits", "SLURM_VERSION": "22.05.8"},
		Partitions: []slurm.Partition{{Name: "p", State: "UP", MaxTime: slurm.Unlimited}},
		Nodes:      []slurm.Node{{Name: "n1", Partitions: "p", CPUs: 16, MemMB: 64000, GPUs: 4, GRES: "gpu:a100:4", State: "IDLE"}},
		Details:    []slurm.JobDetail{{ID: 7, WholeNodes: true}},
		QOS: []slurm.QOS{
			{Name: "kind", MaxTRESPerJob: slurm.TRES{"gres/gpu:a100": 3}}, {Name: "cpu", MaxTRESPerJob: slurm.TRES{"cpu": 15}},
			{Name: "enough", MaxTRESPerJob: slurm.TRES{"cpu": 16, "gres/gpu": 4}},
		},
	}
	const end = ": it will never start like this"
	for _, c := range []struct{ qos, reason, want string }{
		{"kind", "Priority", "QoS kind, each job: 3 a100 GPUs allowed, the job requests 4" + end},
		{"cpu", "QOSMaxCpuPerJobLimit", "QoS cpu, each job: 15 CPUs allowed, the job requests 16" + end},
		{"enough", "Priority", ""}, {"enough", "QOSMaxMemoryPerJob", "held"}, {"enough", "QOSMaxGRESPerNode", "held"},
	} {
		records.Jobs = []slurm.Job{{
			ID: 7, ArrayID: 7, Label: "7", User: "alice", QOS: c.qos, Partition: "p", State: "PENDING", Priority: 5, Nodes: 1,
			TRES: slurm.TRES{"cpu": 1, "gres/gpu": 1}, Limit: time.Hour, Reason: c.reason,
		}}
		p := NewPlan(never, NewWorld(records), true)
		got := p.Explain(0)
		if p.Results[0].Verdict == Held {
			got = "held"
		}
		if got != c.want {
			t.Errorf("%s, %s: %q, want %q", c.qos, c.reason, got, c.want)
		}
	}
}

// A job may be bound by limits that no job has met before: in a plan that is there already,
// in a copy of the world, and in a replay.
func TestLimitsThatAreMetLater(t *testing.T) {
	usages, err := slurm.ParseUsages(strings.NewReader("QOS=high(2) GrpJobs=N(0) GrpTRES=gres/gpu=2(1) Account Limits=No Accounts User Limits=No Users\n"))
	if err != nil {
		t.Fatal(err)
	}
	w := NewWorld(Records{
		Now: time.Unix(now, 0), Usages: &usages, Config: slurm.Config{"ClusterName": "c", "AccountingStorageEnforce": "limits", "SLURM_VERSION": "22.05.8"},
		Partitions: []slurm.Partition{{Name: "cpu", State: "UP", MaxTime: slurm.Unlimited}},
		Nodes:      []slurm.Node{{Name: "n1", Partitions: "cpu", CPUs: 16, MemMB: 64000, GPUs: 4, State: "IDLE"}},
		QOS:        []slurm.QOS{{Name: "high", Grp: slurm.GroupLimits{TRES: slurm.TRES{"gres/gpu": 2}}}},
	})
	plan := NewPlan(never, w, true)
	copied := *w
	j := filled(waiting(1, 1, 10), 0)
	j.QOS, j.Need.GPUs = "high", 2
	const want = "QoS high: 2 GPUs allowed in all, 1 in use, the job requests 2"
	j = w.Bound(j)
	if _, why := plan.Last(j); why != want {
		t.Errorf("%q", why)
	}
	copied.Jobs = append(copied.Jobs, j)
	if why := NewPlan(never, &copied, true).Explain(0); why != want {
		t.Errorf("%q", why)
	}
	if starts := Replay(never, &copied, []int{0}, Course{Run: asLimited, Until: now + 3600}); starts[0] != 0 {
		t.Errorf("%v", starts)
	}
}
