package planner

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/ponos-tools/ponos/lib/slurm"
)

// limits are those of alice in account ml below root, and of two QOS, of which one is a partition's.
func limits() *Bounds {
	users := map[string]uint32{"alice": 1001}
	return &Bounds{
		Name: "alice", Known: true, uid: func(name string) (uint32, bool) { id, ok := users[name]; return id, ok },
		Own: []slurm.Association{{
			Account: "ml", User: "alice", QOS: []string{"normal"}, MaxJobs: slurm.AtMost[int64](4), MaxSubmit: slurm.AtMost[int64](10),
			Grp: slurm.GroupLimits{TRES: slurm.TRES{"cpu": 64}}, MaxWall: slurm.AtMost(2 * time.Hour), MaxTRESPerJob: slurm.TRES{"gres/gpu": 2},
		}},
		associations: map[string]slurm.Association{
			"root": {Account: "root"},
			"ml":   {Account: "ml", Parent: "root", QOS: []string{"normal"}, Grp: slurm.GroupLimits{TRESMins: slurm.TRES{"cpu": 6000}, Wall: slurm.AtMost(10 * time.Hour)}},
		},
		qos: []slurm.QOS{
			{Name: "unused", MaxJobsPerUser: slurm.AtMost[int64](1)},
			{Name: "normal", MaxTRESPerUser: slurm.TRES{"gres/gpu": 8}, MaxTRESPerAccount: slurm.TRES{"cpu": 100}, MinTRESPerJob: slurm.TRES{"cpu": 2}},
			{Name: "gpu", Grp: slurm.GroupLimits{Jobs: slurm.AtMost[int64](3)}},
		},
		partitions: []slurm.Partition{{Name: "gpus", QOS: "gpu"}, {Name: "gpus2", QOS: "gpu"}, {Name: "cpu"}},
		usage: slurm.Usages{
			Associations: []slurm.CountedAssociation{
				{Account: "ml", User: "alice", Counted: slurm.Counted{Jobs: 4, Submit: 7, TRES: slurm.TRES{"cpu": 60}}},
				{Account: "ml", Counted: slurm.Counted{TRESMins: slurm.TRES{"cpu": 5999.5}, WallMins: 600}},
			},
			QOS: []slurm.CountedQOS{
				{Name: "normal", Users: map[uint32]slurm.Counted{1001: {TRES: slurm.TRES{"gres/gpu:a100": 5, "gres/gpu:v100": 1}}}, Accounts: map[string]slurm.Counted{"ml": {TRES: slurm.TRES{"cpu": 99}}}},
				{Name: "gpu", Counted: slurm.Counted{Jobs: 1}},
			},
		},
	}
}

func (v *Bounds) text() string {
	var b strings.Builder
	for _, r := range v.Rows {
		fmt.Fprintf(&b, "%v: %s%s%s%s %v", r.Holder, r.Bound, r.Resource, r.Unit, r.Per, r.Allowed)
		if r.Known {
			fmt.Fprintf(&b, ", used %v", r.Used)
		}
		if r.Binds() {
			fmt.Fprint(&b, ", binds ", strings.Join(r.Jobs, " "))
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// The rows of a user, from the nearest: what is used of each limit, and who waits for it.
func TestBounds(t *testing.T) {
	v := limits()
	v.waiting = []slurm.Job{
		{Label: "7", User: "alice", Account: "ml", QOS: "normal", Partition: "cpu", Reason: "AssocMaxJobsLimit"},
		{Label: "8", User: "alice", Account: "ml", QOS: "normal", Partition: "cpu", Reason: "AssocGrpCPUMinutesLimit"},
		{Label: "9", User: "alice", Account: "ml", QOS: "normal", Partition: "cpu", Reason: "QOSMaxGRESPerUser"},
		{Label: "10", User: "bob", Account: "ml", QOS: "normal", Partition: "cpu", Reason: "QOSMaxGRESPerUser"},
		{Label: "11", User: "alice", Account: "ml", QOS: "normal", Partition: "gpus2", Reason: "QOSGrpJobsLimit"},
		{Label: "12", User: "alice", Account: "ml", QOS: "normal", Partition: "cpu", Reason: "QOSGrpJobsLimit"}, // of no QOS of its own
		{Label: "13", User: "alice", Account: "ml", QOS: "normal", Partition: "cpu", Reason: "Priority"},
	}
	v.collect()
	want := `alice in account ml: Grpcpu 64, used 60
alice in account ml: Maxjobs 4, used 4, binds 7
alice in account ml: Maxsubmit 10, used 7
alice in account ml: MaxwallJob 120
alice in account ml: Maxgres/gpuJob 2
account ml: GrpcpuMinutes 6000, used 5999.5, binds 8
account ml: Grpwall 600, used 600, binds 
QoS gpu (partition gpus,gpus2): Grpjobs 3, used 1, binds 11
QoS normal, each user: Maxgres/gpuUser 8, used 6, binds 9
QoS normal, account ml: MaxcpuAccount 100, used 99
QoS normal: MincpuJob 2
`
	if got := v.text(); got != want {
		t.Errorf("got:\n%swant:\n%s", got, want)
	}
	v.collect()
	if got := v.text(); got != want {
		t.Errorf("collected twice:\n%s", got)
	}
}

// The rows of an account have no limits of single users, and name all who wait.
func TestBoundsOfAnAccount(t *testing.T) {
	v := limits()
	v.Name, v.IsAccount, v.Own = "ml", true, nil
	v.waiting = []slurm.Job{
		{Label: "7", User: "alice", Account: "ml", QOS: "normal", Reason: "AssocGrpCPUMinutesLimit"},
		{Label: "8", User: "bob", Account: "ml", QOS: "normal", Reason: "AssocGrpCPUMinutesLimit"},
		{Label: "9", User: "bob", Account: "root", QOS: "normal", Reason: "AssocGrpCPUMinutesLimit"},
	}
	v.collect()
	want := `account ml: GrpcpuMinutes 6000, used 5999.5, binds 7 8
account ml: Grpwall 600, used 600, binds 
QoS gpu (partition gpus,gpus2): Grpjobs 3, used 1
QoS normal, account ml: MaxcpuAccount 100, used 99
QoS normal: MincpuJob 2
`
	if got := v.text(); got != want {
		t.Errorf("got:\n%swant:\n%s", got, want)
	}
}

// Where the controller does not report what is used, a limit binds only if a job says so; a user whom
// this machine does not know has no number by which the controller counts.
func TestBoundsUnknown(t *testing.T) {
	v := limits()
	v.Known, v.usage = false, slurm.Usages{}
	v.waiting = []slurm.Job{{Label: "7", User: "alice", Account: "ml", QOS: "normal", Reason: "AssocMaxJobsLimit"}}
	v.collect()
	for _, r := range v.Rows {
		if r.Known || r.Binds() != (r.Resource == "jobs" && r.User == "alice") {
			t.Errorf("%v %v: known %v, binds %v", r.Holder, r.LimitKind, r.Known, r.Binds())
		}
	}
	v = limits()
	v.uid = func(string) (uint32, bool) { return 0, false }
	v.collect()
	for _, r := range v.Rows {
		if r.Known == (r.QOS != "" && r.User != "" || !r.Counts) {
			t.Errorf("%v %v: known %v", r.Holder, r.LimitKind, r.Known)
		}
	}
}
