package slurm

import (
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestVersions parses the output of versions of Slurm about the same cluster and jobs, which testscripts/cluster/capture
// makes. Ids and times differ; the parsed result must not.
func TestVersions(t *testing.T) {
	inUTC(t)
	for _, version := range []string{"20.11.4", "21.08.8-2", "22.05.8", "23.11.10", "24.11.5", "25.11.7", "26.05.5"} {
		t.Run(version, func(t *testing.T) {
			open := func(name string) *os.File { return openTestdata(t, filepath.Join(version, name)) }

			// Some captures have raw ids.
			queue := parsed(t, version+"/squeue-own", marked("squeue"), append(pick(jobColumns, "JobID"), ownColumns...))
			if len(queue) != 8 {
				t.Fatalf("%d own jobs", len(queue))
			}
			own := map[string]Job{}
			for _, j := range queue {
				if j.Submit == 0 || j.ID == 0 {
					t.Errorf("%+v", j)
				}
				own[j.Comment] = Job{State: j.State, Reason: j.Reason, Exit: j.Exit, Derived: j.Derived}
			}
			delete(own, "") // several
			if diff := cmp.Diff(map[string]Job{
				"PONOS_TASK=abc-1": {State: "COMPLETED", Reason: "None", Derived: Exit{Code: 1}},
				"PONOS_TASK=abc-2": {State: "FAILED", Reason: "NonZeroExitCode", Exit: Exit{Code: 3}},
				"PONOS_TASK=abc-3": {State: "RUNNING", Reason: "None"},
				"PONOS_TASK=abc-9": {State: "CANCELLED", Reason: "None", Exit: Exit{Signal: 15}},
				"a|b":              {State: "PENDING", Reason: "JobHeldUser"},
			}, own); diff != "" {
				t.Errorf("own jobs: %s", diff)
			}

			jobs := parsed(t, version+"/squeue", marked("squeue"), jobColumns)
			if len(jobs) != 3 {
				t.Fatalf("jobs: %+v", jobs)
			}
			for _, j := range jobs {
				switch j.Name {
				case "j3":
					if j.State != "RUNNING" || j.NodeList != "gpu1" || j.TRES["gres/gpu"] != 2 || j.Limit != 5*time.Minute || j.End-j.Start != 300 {
						t.Errorf("%+v", j)
					}
				case "j4":
					if j.TaskCount() != 3 || j.Reason != "BeginTime" || j.TRES["gres/gpu"] != 1 {
						t.Errorf("%+v", j)
					}
				case "j5":
					if j.Reason != "JobHeldUser" || j.Priority != 0 {
						t.Errorf("%+v", j)
					}
				default:
					t.Errorf("%+v", j)
				}
			}

			ended, asked := printed(t, version+"/sacct", marked("sacct"), append(pick(recordColumns, "JobIDRaw"), endColumns...))
			account, err := parseAccount(strings.NewReader(ended), marked("sacct"), asked)
			elements := 1 // of a pending array, with raw ids
			if asked[0].name == "JobID" {
				elements = 3
			}
			if err != nil || len(account) != 7+elements {
				t.Fatalf("parseAccount: %d jobs, %v", len(account), err)
			}
			for _, r := range account {
				want := map[string]struct {
					state, by, comment string
					status             int
				}{
					"j1": {"COMPLETED", "", "PONOS_TASK=abc-1", 1}, "j2": {"FAILED", "", "PONOS_TASK=abc-2", 3}, "j\n9|x": {"CANCELLED", "0", "PONOS_TASK=abc-9", 143},
				}
				w, ok := want[r.Name]
				if ok && (r.State != w.state || r.By != w.by || r.Comment != w.comment || r.Submit == 0 || r.End == 0 || r.FirstFailure().Status() != w.status) {
					t.Errorf("parseAccount: %+v", r)
				}
			}

			for _, name := range []string{"node.txt", "node-lines.txt"} {
				nodes, err := ParseNodes(open(name))
				if err != nil || len(nodes) != 5 {
					t.Fatalf("%s: %+v, %v", name, nodes, err)
				}
				if n := nodes[2]; n.Name != "gpu1" || n.JobCPUs() != 8 || n.CPUsTaken != 2 || n.MemMB != 16000 || n.MemMBTaken != 1000 || n.GPUs != 4 || n.GPUsTaken != 2 || n.State != "MIXED" ||
					n.Features != "GPU4,GPUM40G,a100" || !n.Partitions.Has("gpu_spot") || n.TRESTaken.GPUs() != 2 || n.CoresPerSocket != 8 {
					t.Errorf("%s: %+v", name, n)
				}
				if n := nodes[1]; n.State != "IDLE+DRAIN" || n.MemMB != 8000 || n.Usable() {
					t.Errorf("%s: %+v", name, n)
				}
			}

			usages, err := ParseUsages(open("assoc-mgr.txt"))
			if err != nil || len(usages.Associations) != 9 || len(usages.QOS) != 5 {
				t.Fatalf("ParseUsages: %+v, %v", usages, err)
			}
			for _, a := range usages.Associations {
				if a.Account == "root" && a.User == "" && (a.Cluster != "testbed" || a.Jobs != 1 || a.Submit != 5 || a.TRES["cpu"] != 2 || a.TRES["mem"] != 1000 || a.TRES.GPUs() != 2 || a.TRESRunMins["node"] <= 0) {
					t.Errorf("%+v", a)
				}
				if a.User == "carol" && (a.Account != "csi" || a.Jobs != 0 || len(a.TRES) != 0) {
					t.Errorf("%+v", a)
				}
			}
			for _, q := range usages.QOS {
				if q.Name == "normal" && (q.Jobs != 1 || q.Users[0].Jobs != 1 || q.Users[0].TRES["cpu"] != 2 || q.Accounts["root"].Submit != 5) {
					t.Errorf("%+v", q)
				}
			}

			partitions, err := ParsePartitions(open("partitions.txt"))
			if err != nil || len(partitions) != 6 {
				t.Fatalf("ParsePartitions: %+v, %v", partitions, err)
			}
			if p := partitions[3]; p.Name != "gpu_csi_a" || p.Nodes != "gpu[1-2]" || !slices.Equal(p.AllowAccounts, []string{"csi"}) || p.MaxTime != 7*24*time.Hour || p.JobFactor != 20 || p.PriorityTier != 10 {
				t.Errorf("%+v", p)
			}
			limited := Partition{
				Name: "limited", State: "DRAIN", Hidden: true, RootOnly: true, NoRootJobs: true, NeedsResv: true, AllocNodes: "cpu1,localhost", AllowGroups: []string{"alice", "bob"},
				DenyAccounts: []string{"csi"}, AllowQOS: []string{"normal", "limited"}, QOS: "limited", Alternate: "cpu", MaxTime: 24 * time.Hour, DefaultTime: 30 * time.Minute,
				MinNodes: 2, MaxNodes: AtMost[int64](4), MaxCPUsPerNode: AtMost[int64](3), MaxMemPerNode: AtMost[int64](6000), DefMemPerNode: AtMost[int64](2000),
				DefCPUPerGPU: AtMost[int64](4), DefMemPerGPU: AtMost[int64](1000), OverSubscribe: "FORCE:2", ExclusiveUser: true, PriorityTier: 1, JobFactor: 1,
				PreemptMode: "REQUEUE", GraceTime: 2 * time.Minute, Nodes: "cpu[1-2]", TotalCPUs: 8, TotalNodes: 2, TRES: TRES{"cpu": 8, "mem": 16000, "node": 2, "billing": 8},
			}
			if version < "22.05" { // the first that prints them
				limited.TRES = nil
			}
			if diff := cmp.Diff(limited, partitions[5]); diff != "" {
				t.Error(diff)
			}

			reservations, err := ParseReservations(open("reservation.txt"))
			if err != nil || len(reservations) != 2 {
				t.Fatalf("ParseReservations: %+v, %v", reservations, err)
			}
			maint, half := reservations[0], reservations[1]
			if maint.Name != "maint" {
				maint, half = half, maint
			}
			if maint.Nodes != "cpu1" || !maint.Flags.Has("MAINT") || maint.CoreCount != 4 || maint.End-maint.Start != 3600 || maint.State != "INACTIVE" || !slices.Equal(maint.Users, []string{"-alice", "-bob"}) {
				t.Errorf("%+v", maint)
			}
			if half.Partition != "cpu" || half.CoreCount != 2 || half.NodeCount != 1 || half.TRES["cpu"] != 2 || !slices.Equal(half.Accounts, []string{"csi"}) || half.Licenses != "matlab:2" {
				t.Errorf("%+v", half)
			}

			licenses, err := ParseLicenses(open("licenses.txt"))
			if want := []License{{Name: "ansys", Total: 2, Free: 2}, {Name: "matlab", Total: 10, Free: 10}}; err != nil || !reflect.DeepEqual(licenses, want) {
				t.Errorf("ParseLicenses: %+v, %v", licenses, err)
			}

			details, err := ParseJobDetails(open("job.txt"))
			if err != nil {
				t.Fatal(err)
			}
			if !slices.ContainsFunc(details, func(j JobDetail) bool {
				return j.State == "RUNNING" && reflect.DeepEqual(j.Placements, []Placement{{j.ID, "gpu1", 2, 1000, 2}})
			}) {
				t.Errorf("ParseJobDetails: %+v", details)
			}
			if !slices.ContainsFunc(details, func(j JobDetail) bool { return j.Comment == "PONOS_TASK=abc-1" }) {
				t.Error("ParseJobDetails: no job has the comment of its task")
			}

			qos := parsed(t, version+"/qos", barred("sacctmgr show qos"), qosColumns)
			if len(qos) != 5 {
				t.Fatalf("QoS: %+v", qos)
			}
			wantQOS := QOS{
				Name: "limited", Priority: 5, Flags: "DenyOnLimit,OverPartQOS", Preempt: "normal", PreemptMode: "cluster", GraceTime: time.Minute, UsageFactor: 0.5, UsageThreshold: 0.25,
				Grp: GroupLimits{Jobs: AtMost[int64](20), JobsAccrue: AtMost[int64](19), Submit: AtMost[int64](40), TRES: TRES{"cpu": 64, "mem": 102400, "node": 8},
					TRESMins: TRES{"cpu": 100000}, TRESRunMins: TRES{"cpu": 20000}, Wall: AtMost(240 * time.Hour)},
				MaxJobsPerUser: AtMost[int64](4), MaxJobsPerAccount: AtMost[int64](5), MaxJobsAccruePerUser: AtMost[int64](2), MaxJobsAccruePerAccount: AtMost[int64](3),
				MaxSubmitPerUser: AtMost[int64](8), MaxSubmitPerAccount: AtMost[int64](9), MaxTRESPerJob: TRES{"cpu": 8, "gres/gpu": 2, "mem": 51200, "node": 2},
				MaxTRESPerNode: TRES{"cpu": 4}, MaxTRESPerUser: TRES{"cpu": 16}, MaxTRESPerAccount: TRES{"cpu": 32}, MaxTRESMinsPerJob: TRES{"cpu": 5000},
				MaxTRESRunMinsPerUser: TRES{"cpu": 7000}, MaxTRESRunMinsPerAccount: TRES{"cpu": 8000}, MinTRESPerJob: TRES{"cpu": 2, "gres/gpu": 1},
				MaxWall: AtMost(12 * time.Hour), MinPriority: AtMost[int64](10),
			}
			if diff := cmp.Diff(wantQOS, qos[slices.IndexFunc(qos, func(q QOS) bool { return q.Name == "limited" })]); diff != "" {
				t.Error(diff)
			}

			mine := parsed(t, version+"/associations-carol", barred("sacctmgr show associations"), associationColumns)
			if len(mine) != 1 {
				t.Fatalf("associations of carol: %+v", mine)
			}
			carol := Association{
				Cluster: "testbed", Account: "csi", User: "carol", DefaultQOS: "normal", QOS: []string{"high", "normal", "qos_gpu-t3", "qos_gpu-t4"}, Shares: "1",
				Grp:     GroupLimits{JobsAccrue: AtMost[int64](6), Submit: AtMost[int64](50), TRESMins: TRES{"cpu": 100000}, TRESRunMins: TRES{"cpu": 20000}, Wall: AtMost(72 * time.Hour)},
				MaxJobs: AtMost[int64](7), MaxJobsAccrue: AtMost[int64](5), MaxSubmit: AtMost[int64](0), MaxTRESPerJob: TRES{"cpu": 8, "mem": 20480}, MaxTRESPerNode: TRES{"cpu": 4},
				MaxTRESMinsPerJob: TRES{"cpu": 600}, MaxWall: AtMost(48 * time.Hour), MinPriority: AtMost[int64](3),
			}
			if diff := cmp.Diff(carol, mine[0]); diff != "" {
				t.Error(diff)
			}
			accounts := parsed(t, version+"/associations-accounts", barred("sacctmgr show associations"), associationColumns)
			if len(accounts) != 4 {
				t.Fatalf("associations of accounts: %+v", accounts)
			}
			if a := accounts[1]; a.Account != "csi" || a.Parent != "root" || a.User != "" || a.Grp.Jobs != AtMost[int64](30) || a.Grp.TRES["cpu"] != 100 {
				t.Errorf("%+v", a)
			}

			tree, columns := printed(t, version+"/sshare", barred("sshare"), shareColumns)
			shares, err := parseShares(strings.NewReader(tree), barred("sshare"), columns)
			if err != nil {
				t.Fatal(err)
			}
			if !slices.ContainsFunc(shares, func(s Share) bool { return s.User == "carol" && s.Account == "csi" && s.RawShares == 1 && s.HasFactor }) {
				t.Errorf("parseShares: %+v", shares)
			}

			config, err := ParseConfig(open("config.txt"))
			if err != nil || config.Get("ClusterName") != "testbed" || config.Get("EnforcePartLimits") != "ALL" || config.Get("SLURM_VERSION") != version {
				t.Errorf("ParseConfig: %+v, %v", config, err)
			}
		})
	}
}
