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

func openTestdata(t *testing.T, name string) *os.File {
	t.Helper()
	f, err := os.Open(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

func TestParseNodes(t *testing.T) {
	gpu := Node{Name: "gpu1", Arch: "x86_64", Features: "GPU4,GPUM40G,a100", ActiveFeatures: "GPU4,GPUM40G,a100", GRES: "gpu:a100:4", Partitions: "gpu,gpu_csi_a,gpu_spot", State: "IDLE",
		CPUs: 8, MemMB: 16000, GPUs: 4, Boards: 1, Sockets: 1, CoresPerSocket: 8, ThreadsPerCore: 1, Weight: 1, TRES: TRES{"cpu": 8, "mem": 16000, "billing": 8, "gres/gpu": 4}}
	for _, name := range []string{"22.05.8/show_nodes.txt", "22.05.8/show_nodes_oneline.txt"} {
		got, err := ParseNodes(openTestdata(t, name))
		if err != nil || len(got) != 5 {
			t.Fatalf("%s: %+v, %v", name, got, err)
		}
		if diff := cmp.Diff(gpu, got[2]); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
	got, err := ParseNodes(openTestdata(t, "22.05.8/node.txt"))
	if err != nil || len(got) != 5 {
		t.Fatalf("%+v, %v", got, err)
	}
	gpu.State, gpu.GRESUsed, gpu.GPUsTaken, gpu.CPUsTaken, gpu.MemMBTaken = "MIXED", "gpu:a100:2(IDX:0-1)", 2, 2, 1000
	gpu.TRESTaken = TRES{"cpu": 2, "mem": 1000, "gres/gpu": 2}
	if diff := cmp.Diff(gpu, got[2]); diff != "" {
		t.Error(diff)
	}
	// The reason of this one is "State=IDLE RealMemory=1".
	if n := got[1]; n.State != "IDLE+DRAIN" || n.MemMB != 8000 || n.Usable() || n.Startable() {
		t.Errorf("%+v", n)
	}
}

func TestParseNodesForms(t *testing.T) {
	for _, c := range []struct {
		text string
		want Node
	}{
		// Free text after the keys has no effect.
		{"NodeName=a CPUTot=8 RealMemory=1000 State=DOWN Reason=Gres=gpu:9 CPUTot=1 [root@x]\n", Node{Name: "a", State: "DOWN", CPUs: 8, MemMB: 1000, Reason: "Gres=gpu:9 CPUTot=1"}},
		{"NodeName=a CPUEfctv=6 CPUTot=8 RealMemory=1000 MemSpecLimit=200\n", Node{Name: "a", CPUs: 8, SpecCPUs: 2, MemMB: 1000, SpecMemMB: 200}},
		{"NodeName=a CPUTot=8 CoreSpecCount=1 CPUSpecList=6-7 RealMemory=1000\n", Node{Name: "a", CPUs: 8, SpecCPUs: 2, MemMB: 1000}},
		{"NodeName=a AvailableFeatures=fast:net,x86.64 Gres=gpu:4(S:0,1),gpu:b:2 Owner=alice(1001)\n", Node{Name: "a", Features: "fast:net,x86.64", GRES: "gpu:4(S:0,1),gpu:b:2", GPUs: 6, Owner: "alice"}},
		// Slurm 24.11, with cores and memory reserved for the system, and a feature with "=".
		{"NodeName=c001 Arch=x86_64 CoresPerSocket=48 \n   CPUAlloc=0 CPUEfctv=94 CPUTot=96 CPULoad=0.02\n   AvailableFeatures=location=local,gpu\n   ActiveFeatures=location=local,gpu\n" +
			"   Gres=gpu:h100:4(S:0-1)\n   NodeAddr=c001 NodeHostName=c001 Version=24.11.3\n   OS=Linux 5.14.0 #1 SMP Fri Feb 16 \n   RealMemory=768000 AllocMem=0 FreeMem=740000 Sockets=2 Boards=1\n" +
			"   CoreSpecCount=1 CPUSpecList=94-95 MemSpecLimit=8000\n   State=IDLE+PLANNED+DYNAMIC_NORM ThreadsPerCore=1 TmpDisk=900000 Weight=1 Owner=N/A MCS_label=N/A\n   Partitions=gpu,all \n" +
			"   BootTime=2026-01-01T00:00:00 SlurmdStartTime=2026-01-01T00:00:00\n   CfgTRES=cpu=94,mem=750G\n",
			Node{Name: "c001", Arch: "x86_64", Features: "location=local,gpu", ActiveFeatures: "location=local,gpu", GRES: "gpu:h100:4(S:0-1)", Partitions: "gpu,all", State: "IDLE+PLANNED+DYNAMIC_NORM",
				CPUs: 96, SpecCPUs: 2, MemMB: 768000, SpecMemMB: 8000, GPUs: 4, Boards: 1, Sockets: 2, CoresPerSocket: 48, ThreadsPerCore: 1, TmpDiskMB: 900000, Weight: 1, TRES: TRES{"cpu": 94, "mem": 768000}}},
		// Slurm 20.11.
		{"NodeName=n1 Arch=x86_64 CoresPerSocket=16 \n   CPUAlloc=0 CPUTot=32 CPULoad=0.01\n   AvailableFeatures=(null)\n   ActiveFeatures=(null)\n   Gres=(null)\n   RealMemory=190000 AllocMem=0\n" +
			"   State=DOWN*+DRAIN ThreadsPerCore=1\n   Partitions=batch \n   Reason=Not responding [slurm@2021-01-01T00:00:00]\n   Comment=(null)\n",
			Node{Name: "n1", Arch: "x86_64", Partitions: "batch", State: "DOWN+NOT_RESPONDING+DRAIN", CPUs: 32, MemMB: 190000, CoresPerSocket: 16, ThreadsPerCore: 1, Reason: "Not responding"}},
		{"NodeName=a\r\n   State=IDLE\r\n\r\n", Node{Name: "a", State: "IDLE"}},
		{"NodeName=a CPUTot=4 Reason=broken\nPartitionName=x State=UP\n\nCPUTot=9 Extra=x\n", Node{Name: "a", CPUs: 4, Reason: "broken"}},
		{"NodeName=a Gres=gpu:2K\n", Node{Name: "a", GRES: "gpu:2K", GPUs: 2048}},
	} {
		got, err := ParseNodes(strings.NewReader(c.text))
		if err != nil || len(got) != 1 {
			t.Errorf("ParseNodes(%q) = %+v, %v", c.text, got, err)
		} else if diff := cmp.Diff(c.want, got[0]); diff != "" {
			t.Errorf("ParseNodes(%q): %s", c.text, diff)
		}
	}
	for text, want := range map[string]string{
		"NodeName=a\nslurm_load_node error\n": "line 2",
		"NodeName=a\nNodeName=b CPUTot=x\n":   `line 2 of its output: NodeName=b: CPUTot="x": expected a number`,
		"NodeName=a RealMemory=-5\n":          "expected a number",
		"NodeName= CPUTot=1\n":                "expected the name of a node",
		"PartitionName=x\n":                   "does not begin with NodeName=",
		"NodeName=a RealMemory=99999999999\n": "",
		"NodeName=a\nNodeName=b CPUTot=1":     "cut short",
	} {
		_, err := ParseNodes(strings.NewReader(text))
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("ParseNodes(%q): %v; want %q", text, err, want)
		}
	}
	if _, err := ParseNodes(strings.NewReader("NodeName=a\n" + strings.Repeat(" x\n", maxRecord/2))); err == nil {
		t.Error("endless rubbish is taken in")
	}
}

// TestNodeStates has the states as 20.11 prints them, with marks, and as later versions do, with words. A node that becomes available by
// itself is usable, even if nothing starts there now.
func TestNodeStates(t *testing.T) {
	type answer struct{ usable, startable bool }
	for _, row := range []struct {
		states string
		want   answer
	}{
		{"IDLE MIXED ALLOCATED ALLOC ALLOCATED+COMPLETING MIXED+COMPLETING COMPLETING IDLE+CLOUD IDLE+DYNAMIC_NORM", answer{true, true}},
		{"IDLE+PLANNED IDLE- PLANNED MIXED+PLANNED MIXED- ALLOCATED- IDLE+PLANNED+DYNAMIC_NORM", answer{true, true}},
		{"RESERVED IDLE+RESERVED MAINT MAINT$ IDLE$ IDLE+MAINTENANCE MIXED+MAINTENANCE+RESERVED ALLOCATED$", answer{true, true}},
		{"IDLE~ IDLE~+CLOUD IDLE+POWER IDLE+CLOUD+POWERED_DOWN IDLE# IDLE+POWERING_UP ALLOCATED# MIXED+CLOUD+POWERING_UP", answer{true, true}},
		{"SOMETHING_NEW IDLE+SOMETHING_NEW", answer{true, true}},

		{"IDLE* idle* MIXED* IDLE+NOT_RESPONDING MAINT*", answer{true, false}},
		{"IDLE! IDLE+POWER_DOWN MIXED! IDLE% IDLE+POWERING_DOWN POWERING_DOWN% MIXED+POWERING_DOWN IDLE+CLOUD+POWERING_DOWN", answer{true, false}},
		{"IDLE+BLOCKED MIXED+BLOCKED", answer{true, false}},
		{"REBOOT REBOOT^ REBOOT@ REBOOT* IDLE@ IDLE^ MIXED@ ALLOCATED@ ALLOCATED^ IDLE+REBOOT_REQUESTED ALLOCATED+REBOOT_REQUESTED IDLE+REBOOT_ISSUED", answer{true, false}},
		{"DOWN^ DOWN@ DOWN+REBOOT_ISSUED DOWN+REBOOT_ISSUED+NOT_RESPONDING DOWN^*", answer{true, false}},
		{"REBOOT^+DRAIN IDLE@+DRAIN MIXED@+DRAIN IDLE+DRAIN+REBOOT_REQUESTED MIXED+DRAIN+REBOOT_REQUESTED DOWN+DRAIN+REBOOT_ISSUED DRAINED@ DRAINED^ DRAINING@", answer{true, false}},

		{"DOWN DOWN* DOWN+NOT_RESPONDING DOWN*+CLOUD DOWN~ DOWN+CLOUD+POWERED_DOWN DOWN# DOWN$ DOWN+MAINTENANCE", answer{false, false}},
		{"DRAIN DRAINED DRAINING DRAINED* DRAINING$ IDLE+DRAIN MIXED+DRAIN IDLE*+DRAIN DOWN*+DRAIN ALLOCATED+DRAIN MAINT+DRAIN IDLE+DRAIN+POWERED_DOWN", answer{false, false}},
		{"FAIL FAILING FAIL* IDLE+FAIL ERROR FUTURE FUTR UNKNOWN INVAL INVALID IDLE+INVALID_REG FUTURE+REBOOT_REQUESTED IDLE+FAIL+REBOOT_REQUESTED", answer{false, false}},
	} {
		for _, state := range strings.Fields(row.states) {
			words, _ := nodeState(state)
			n := Node{State: words}
			if got := (answer{n.Usable(), n.Startable()}); got != row.want {
				t.Errorf("%s (%s): %+v; want %+v", state, words, got, row.want)
			}
		}
	}
}

func TestParseGRES(t *testing.T) {
	for text, want := range map[string][]GRES{
		"gpu:4(S:0-1)":                     {{"gpu", "", 4}},
		"gpu:tesla:4(S:0-1)":               {{"gpu", "tesla", 4}},
		"gpu:8(S:0-1)":                     {{"gpu", "", 8}},
		"(null)":                           nil,
		"":                                 nil,
		"gpu":                              {{"gpu", "", 1}},
		"gpu:a100:4(S:0,1),gpu:v100:2":     {{"gpu", "a100", 4}, {"gpu", "v100", 2}},
		"gpu:1g.10gb:7(S:0),shard:8":       {{"gpu", "1g.10gb", 7}, {"shard", "", 8}},
		"gpu:a100:no_consume:2,lustre:2K":  {{"gpu", "a100", 2}, {"lustre", "", 2048}},
		"gpu:nvidia_h100_80gb_hbm3:8(S:1)": {{"gpu", "nvidia_h100_80gb_hbm3", 8}},
		"gpu:no_consume:2":                 {{"gpu", "", 2}},
		"gpu:(null):2(IDX:0-1)":            {{"gpu", "", 2}},
		"gres:gpu:a100:2,gres/gpu=1":       {{"gpu", "a100", 2}, {"gpu", "", 1}},
		"gpu:2080ti":                       {{"gpu", "2080ti", 1}},
	} {
		if got, err := ParseGRES(text); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("ParseGRES(%q) = %+v, %v; want %+v", text, got, err, want)
		}
	}
	for _, text := range []string{",", ":4", "gpu:4,,"} {
		if got, err := ParseGRES(text); err == nil {
			t.Errorf("ParseGRES(%q) = %+v; want an error", text, got)
		}
	}
}

func TestParsePartitions(t *testing.T) {
	week := 7 * 24 * time.Hour
	for _, name := range []string{"22.05.8/show_partitions.txt", "22.05.8/show_partitions_oneline.txt"} {
		got, err := ParsePartitions(openTestdata(t, name))
		if err != nil || len(got) != 5 {
			t.Fatalf("%s: %+v, %v", name, got, err)
		}
		want := Partition{Name: "cpu", State: "UP", Default: true, MaxTime: week, DefaultTime: time.Hour, PriorityTier: 10, Nodes: "cpu[1-2]", PreemptMode: "OFF", JobFactor: 10,
			OverSubscribe: "NO", TotalCPUs: 8, TotalNodes: 2, TRES: TRES{"cpu": 8, "mem": 16000, "node": 2, "billing": 8}}
		if diff := cmp.Diff(want, got[0]); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
		if p := got[3]; p.Name != "gpu_csi_a" || !slices.Equal(p.AllowAccounts, []string{"csi"}) || p.Preemptible() {
			t.Errorf("%s: %+v", name, p)
		}
		if p := got[4]; !p.Preemptible() || p.PriorityTier != 1 {
			t.Errorf("%s: %+v; want it preemptible", name, p)
		}
	}
	for text, want := range map[string]Partition{
		"Exclusive=USER OverSubscribe=NO":      {ExclusiveUser: true, OverSubscribe: "NO"},
		"Exclusive=NODE OverSubscribe=NO":      {Exclusive: true, OverSubscribe: "NO"},
		"Exclusive=TOPO":                       {ExclusiveTopo: true},
		"Exclusive=NO OverSubscribe=EXCLUSIVE": {Exclusive: true, OverSubscribe: "EXCLUSIVE"},
		"ExclusiveTopo=YES":                    {ExclusiveTopo: true},
		"MaxMemPerCPU=4000 DefMemPerCPU=500 MaxCPUsPerSocket=8 MaxNodes=0": {MaxMemPerCPU: AtMost[int64](4000), DefMemPerCPU: AtMost[int64](500), MaxCPUsPerSocket: AtMost[int64](8), MaxNodes: AtMost[int64](0)},
		"TRESBillingWeights=CPU=1.0,Mem=0.25G,GRES/gpu=2.0":                {BillingWeights: TRES{"cpu": 1, "mem": 256, "gres/gpu": 2}},
	} {
		got, err := ParsePartitions(strings.NewReader("PartitionName=p MaxTime=UNLIMITED " + text + "\n"))
		want.Name, want.MaxTime = "p", Unlimited
		if err != nil || len(got) != 1 {
			t.Errorf("%s: %+v, %v", text, got, err)
		} else if diff := cmp.Diff(want, got[0]); diff != "" {
			t.Errorf("%s: %s", text, diff)
		}
	}
	for text, want := range map[string]time.Duration{
		"4-04:00:00": 360000 * time.Second, "20:00:00": 72000 * time.Second, "30:00": 1800 * time.Second, "120": 7200 * time.Second,
		"02:00:00": 7200 * time.Second, "UNLIMITED": Unlimited, "NONE": Unlimited, "(null)": Unlimited,
	} {
		if got, err := ParsePartitions(strings.NewReader("PartitionName=p MaxTime=" + text + "\n")); err != nil || got[0].MaxTime != want {
			t.Errorf("MaxTime=%s: %+v, %v; want %v", text, got, err, want)
		}
	}
	if _, err := ParsePartitions(strings.NewReader("PartitionName=p MaxTime=soon\n")); err == nil || !strings.Contains(err.Error(), `PartitionName=p: MaxTime="soon": expected a time limit`) {
		t.Errorf("bad MaxTime: %v", err)
	}
}

func TestParseStartEstimate(t *testing.T) {
	got, err := ParseStartEstimate("sbatch: note\nsbatch: Job 3 to start at 2026-11-20T17:55:53 using 1 processors on nodes gpu[1-2] in partition gpu\n")
	want := StartEstimate{time.Date(2026, 11, 20, 17, 55, 53, 0, time.Local), "gpu[1-2]", "gpu"}
	if err != nil || got != want {
		t.Errorf("%+v, %v; want %+v", got, err, want)
	}
	if _, err := ParseStartEstimate("allocation failure: Invalid qos specification"); err == nil {
		t.Error("a refusal is no estimate")
	}
}
