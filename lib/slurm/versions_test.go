package slurm

import (
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"testing"
	"time"
)

// TestVersions reads what the same cluster with the same jobs prints in other
// versions of Slurm. Ids and times differ, what is read of them does not.
func TestVersions(t *testing.T) {
	inUTC(t)
	for _, version := range []string{"20.11.4", "24.11.5", "26.05.5"} {
		t.Run(version, func(t *testing.T) {
			open := func(name string) *os.File { return openTestdata(t, filepath.Join(version, name)) }

			queue, err := ParseQueue(open("squeue-queue.txt"))
			if err != nil || len(queue) != 8 {
				t.Fatalf("ParseQueue: %d jobs, %v", len(queue), err)
			}
			states := map[string]Job{}
			for _, j := range queue {
				if j.Submit.IsZero() || j.ID == "" {
					t.Errorf("%+v", j)
				}
				states[j.Comment] = Job{State: j.State, Reason: j.Reason, Exit: j.Exit, Derived: j.Derived}
			}
			delete(states, "") // several
			wantStates := map[string]Job{
				"PONOS_TASK=abc-1": {State: "COMPLETED", Reason: "None", Derived: Exit{Code: 1}},
				"PONOS_TASK=abc-2": {State: "FAILED", Reason: "NonZeroExitCode", Exit: Exit{Code: 3}},
				"PONOS_TASK=abc-3": {State: "RUNNING", Reason: "None"},
				"PONOS_TASK=abc-9": {State: "CANCELLED", Reason: "None", Exit: Exit{Signal: 15}},
				"a|b":              {State: "PENDING", Reason: "JobHeldUser"},
			}
			if !reflect.DeepEqual(states, wantStates) {
				t.Errorf("ParseQueue: %+v", states)
			}

			account, err := ParseAccount(open("sacct-account.txt"))
			if err != nil || len(account) != 8 {
				t.Fatalf("ParseAccount: %d jobs, %v", len(account), err)
			}
			for _, r := range account {
				var want Record
				switch r.Name {
				case "j1":
					want = Record{State: "COMPLETED", Comment: "PONOS_TASK=abc-1"}
				case "j2":
					want = Record{State: "FAILED", Comment: "PONOS_TASK=abc-2", Batch: Exit{Code: 3}}
				case "j9":
					want = Record{State: "CANCELLED", By: "0", Comment: "PONOS_TASK=abc-9", Batch: Exit{Signal: 15}}
				default:
					continue
				}
				if r.State != want.State || r.By != want.By || r.Comment != want.Comment || r.Submit.IsZero() || r.End.IsZero() {
					t.Errorf("ParseAccount: %+v", r)
				}
				if failure, wanted := r.FirstFailure(), map[string]int{"j1": 1, "j2": 3, "j9": 143}[r.Name]; failure.Status() != wanted {
					t.Errorf("%s: first failure %+v, want %d", r.Name, failure, wanted)
				}
			}

			nodes, err := ParseNodes(open("show_nodes_oneline.txt"))
			if err != nil || len(nodes) != 5 {
				t.Fatalf("ParseNodes: %+v, %v", nodes, err)
			}
			if want := (Node{"small1", "GPU2,GPUM11G", "gpu:rtx2080:2", "gpu_small,gpu_spot", "IDLE", 4, 8000 << 20}); nodes[4] != want {
				t.Errorf("%+v", nodes[4])
			}

			partitions, err := ParsePartitions(open("show_partitions_oneline.txt"))
			if err != nil || len(partitions) != 5 {
				t.Fatalf("ParsePartitions: %+v, %v", partitions, err)
			}
			if p := partitions[3]; p.Name != "gpu_csi_a" || p.Nodes != "gpu[1-2]" || !slices.Equal(p.AllowAccounts, []string{"csi"}) || p.MaxTime != 7*24*time.Hour || p.JobFactor != 20 || p.PriorityTier != 10 {
				t.Errorf("%+v", p)
			}
			if p := partitions[4]; !p.Preemptible || p.PriorityTier != 1 {
				t.Errorf("%+v", p)
			}

			use, err := ParseNodeUse(open("node.txt"))
			if err != nil || len(use) != 5 {
				t.Fatalf("ParseNodeUse: %+v, %v", use, err)
			}
			if n := use[2]; n.Name != "gpu1" || n.CPUs != 8 || n.CPUsTaken != 2 || n.MemMB != 16000 || n.MemMBTaken != 1000 || n.GPUs != 4 || n.GPUsTaken != 2 || !slices.Contains(n.State, "MIXED") {
				t.Errorf("%+v", n)
			}

			placements, err := ParsePlacements(open("job.txt"))
			if err != nil {
				t.Fatal(err)
			}
			if !slices.ContainsFunc(placements, func(p Placement) bool { return p.Nodes == "gpu1" && p.CPUs == 2 && p.MemMB == 1000 && p.GPUs == 2 }) {
				t.Errorf("ParsePlacements: %+v", placements)
			}

			jobs, err := ParseQueueJobs(open("squeue.txt"), capturedMark)
			if err != nil || len(jobs) != 3 {
				t.Fatalf("ParseQueueJobs: %+v, %v", jobs, err)
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

			shares, err := ParseShares(open("sshare.txt"))
			if err != nil {
				t.Fatal(err)
			}
			if !slices.ContainsFunc(shares, func(s Share) bool { return s.User == "carol" && s.Account == "csi" && s.RawShares == 1 && s.HasFactor }) {
				t.Errorf("ParseShares: %+v", shares)
			}

			config, err := ParseSchedConfig(open("config.txt"))
			if err != nil || reflect.DeepEqual(config, SchedConfig{}) {
				t.Errorf("ParseSchedConfig: %+v, %v", config, err)
			}
		})
	}
}
