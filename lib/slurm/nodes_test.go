package slurm

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
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
	want := []Node{
		{"cpu1", "cpu", "", "cpu", "IDLE", 4, 8000 << 20},
		{"cpu2", "cpu", "", "cpu", "IDLE", 4, 8000 << 20},
		{"gpu1", "GPU4,GPUM40G,a100", "gpu:a100:4", "gpu,gpu_csi_a,gpu_spot", "IDLE", 8, 16000 << 20},
		{"gpu2", "GPU4,GPUM40G,a100", "gpu:a100:4", "gpu,gpu_csi_a,gpu_spot", "IDLE", 8, 16000 << 20},
		{"small1", "GPU2,GPUM11G", "gpu:rtx2080:2", "gpu_small,gpu_spot", "IDLE", 4, 8000 << 20},
	}
	for _, name := range []string{"22.05.8/show_nodes.txt", "22.05.8/show_nodes_oneline.txt"} {
		if got, err := ParseNodes(openTestdata(t, name)); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
}

func TestParseNodesForms(t *testing.T) {
	for _, c := range []struct {
		text string
		want Node
	}{
		// Free text behind the keys changes nothing.
		{"NodeName=a CPUTot=8 RealMemory=1000 State=DOWN Reason=Gres=gpu:9 CPUTot=1 [root@x]", Node{Name: "a", State: "DOWN", CPUs: 8, Memory: 1000 << 20}},
		{"NodeName=a CPUEfctv=6 CPUTot=8 RealMemory=1000 MemSpecLimit=200", Node{Name: "a", CPUs: 6, Memory: 800 << 20}},
		{"NodeName=a AvailableFeatures=fast:net,x86.64 Gres=gpu:4(S:0,1),gpu:b:2", Node{Name: "a", Features: "fast:net,x86.64", GRES: "gpu:4(S:0,1),gpu:b:2"}},
		// Slurm 24.11, with cores and memory kept for the system, and a feature with "=".
		{"NodeName=c001 Arch=x86_64 CoresPerSocket=48 \n   CPUAlloc=0 CPUEfctv=94 CPUTot=96 CPULoad=0.02\n   AvailableFeatures=location=local,gpu\n   ActiveFeatures=location=local,gpu\n" +
			"   Gres=gpu:h100:4(S:0-1)\n   NodeAddr=c001 NodeHostName=c001 Version=24.11.3\n   OS=Linux 5.14.0 #1 SMP Fri Feb 16 \n   RealMemory=768000 AllocMem=0 FreeMem=740000 Sockets=2 Boards=1\n" +
			"   CoreSpecCount=1 CPUSpecList=94-95 MemSpecLimit=8000\n   State=IDLE+PLANNED+DYNAMIC_NORM ThreadsPerCore=1 TmpDisk=0 Weight=1 Owner=N/A MCS_label=N/A\n   Partitions=gpu,all \n" +
			"   BootTime=2026-01-01T00:00:00 SlurmdStartTime=2026-01-01T00:00:00\n   CfgTRES=cpu=94,mem=750G\n",
			Node{"c001", "location=local,gpu", "gpu:h100:4(S:0-1)", "gpu,all", "IDLE+PLANNED+DYNAMIC_NORM", 94, 760000 << 20}},
		// Slurm 20.11.
		{"NodeName=n1 Arch=x86_64 CoresPerSocket=16 \n   CPUAlloc=0 CPUTot=32 CPULoad=0.01\n   AvailableFeatures=(null)\n   ActiveFeatures=(null)\n   Gres=(null)\n   RealMemory=190000 AllocMem=0\n" +
			"   State=DOWN*+DRAIN ThreadsPerCore=1\n   Partitions=batch \n   Reason=Not responding [slurm@2021-01-01T00:00:00]\n   Comment=(null)\n",
			Node{Name: "n1", Partitions: "batch", State: "DOWN*+DRAIN", CPUs: 32, Memory: 190000 << 20}},
		{"NodeName=a\r\n   State=IDLE\r\n\r\n", Node{Name: "a", State: "IDLE"}},
	} {
		if got, err := ParseNodes(strings.NewReader(c.text)); err != nil || len(got) != 1 || got[0] != c.want {
			t.Errorf("ParseNodes(%q) = %+v, %v; want %+v", c.text, got, err, c.want)
		}
	}
	for text, want := range map[string]string{
		"NodeName=a\nslurm_load_node error": "line 2",
		"NodeName=a\nNodeName=b CPUTot=x":   "line 2",
		"NodeName=a RealMemory=-5":          "no number",
		"NodeName= CPUTot=1":                "is no name",
		"PartitionName=x":                   "does not begin with NodeName=",
		"NodeName=a RealMemory=99999999999": "",
	} {
		_, err := ParseNodes(strings.NewReader(text))
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("ParseNodes(%q): %v; want %q", text, err, want)
		}
	}
	if got, err := ParseNodes(strings.NewReader("No nodes in the system\n")); err != nil || len(got) != 0 {
		t.Errorf("no nodes: %v, %v", got, err)
	}
}

func TestNodesWriter(t *testing.T) {
	for _, name := range []string{"22.05.8/show_nodes.txt", "22.05.8/show_nodes_oneline.txt"} {
		text, err := io.ReadAll(openTestdata(t, name))
		if err != nil {
			t.Fatal(err)
		}
		want, err := ParseNodes(bytes.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		for _, size := range []int{1, 7, 100, 1000} {
			var w NodesWriter
			for chunk := range slices.Chunk(text, size) {
				if _, err := w.Write(chunk); err != nil {
					t.Fatal(err)
				}
			}
			if got, err := w.Nodes(); err != nil || !reflect.DeepEqual(got, want) {
				t.Errorf("%s in pieces of %d bytes: %+v, %v", name, size, got, err)
			}
		}
	}
	var w NodesWriter
	for _, line := range []string{"NodeName=a\n", "  State=IDLE\n", "NodeName=b\n", "NodeName=c CPUTot=x\n", "NodeName=d\n"} {
		if _, err := w.Write([]byte(line)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := w.Nodes(); err == nil || !strings.Contains(err.Error(), "line 4 ") {
		t.Errorf("an odd line in the middle: %v", err)
	}
	if _, err := new(NodesWriter).Write(make([]byte, maxNodeRecord+1)); err == nil {
		t.Error("endless rubbish is taken in")
	}
}

func TestUsable(t *testing.T) {
	for state, want := range map[string]bool{
		"IDLE": true, "MIXED": true, "ALLOCATED+COMPLETING": true, "IDLE+CLOUD+POWERED_DOWN": true, "RESERVED": true, "": true, "IDLE*": true,
		"DOWN*+DRAIN": false, "DOWN*+CLOUD": false, "IDLE~+CLOUD": true, "IDLE+PLANNED+DYNAMIC_NORM": true, "IDLE+DRAIN": false, "DOWN": false, "DOWN*": false, "DOWN+NOT_RESPONDING": false, "MIXED+DRAIN": false, "FUTURE": false, "IDLE+FAIL": false,
	} {
		if got := (Node{State: state}).Usable(); got != want {
			t.Errorf("Usable(%q) = %v", state, got)
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
	for _, name := range []string{"22.05.8/show_partitions.txt", "22.05.8/show_partitions_oneline.txt"} {
		got, err := ParsePartitions(openTestdata(t, name))
		if err != nil || len(got) != 5 {
			t.Fatalf("%s: %+v, %v", name, got, err)
		}
		week := 7 * 24 * time.Hour
		if want := (Partition{Name: "cpu", State: "UP", Default: true, MaxTime: week, PriorityTier: 10, Nodes: "cpu[1-2]", PreemptMode: "OFF", JobFactor: 10,
			TRES: TRESCounts{"cpu": 8, "mem": 16000, "node": 2, "billing": 8}}); !reflect.DeepEqual(got[0], want) {
			t.Errorf("%s: %+v; want %+v", name, got[0], want)
		}
		if want := (Partition{Name: "gpu_csi_a", State: "UP", AllowAccounts: []string{"csi"}, MaxTime: week, PriorityTier: 10, Nodes: "gpu[1-2]", PreemptMode: "OFF", JobFactor: 20,
			TRES: TRESCounts{"cpu": 16, "mem": 32000, "node": 2, "billing": 16, "gres/gpu": 8}}); !reflect.DeepEqual(got[3], want) {
			t.Errorf("%s: %+v; want %+v", name, got[3], want)
		}
		if !got[4].Preemptible || got[4].PriorityTier != 1 {
			t.Errorf("%s: %+v; want it preemptible", name, got[4])
		}
	}
	got, err := ParsePartitions(strings.NewReader("PartitionName=p AllowQos=a,b DenyAccounts=c AllowGroups=g QoS=lim MaxTime=UNLIMITED MaxNodes=4 MaxCPUsPerNode=16 MaxMemPerNode=1000 RootOnly=YES ReqResv=YES State=DRAIN"))
	want := Partition{Name: "p", State: "DRAIN", AllowQOS: []string{"a", "b"}, DenyAccounts: []string{"c"}, AllowGroups: []string{"g"}, QOS: "lim",
		MaxTime: Unlimited, MaxNodes: 4, MaxCPUsPerNode: 16, MaxMemPerNode: 1000 << 20, RootOnly: true, NeedsResv: true}
	if err != nil || len(got) != 1 || !reflect.DeepEqual(got[0], want) {
		t.Errorf("%+v, %v; want %+v", got, err, want)
	}
	for text, want := range map[string]time.Duration{
		"4-04:00:00": 360000 * time.Second, "20:00:00": 72000 * time.Second, "30:00": 1800 * time.Second, "120": 7200 * time.Second,
		"02:00:00": 7200 * time.Second, "UNLIMITED": Unlimited, "NONE": Unlimited, "(null)": Unlimited,
	} {
		if got, err := ParsePartitions(strings.NewReader("PartitionName=p MaxTime=" + text)); err != nil || got[0].MaxTime != want {
			t.Errorf("MaxTime=%s: %+v, %v; want %v", text, got, err, want)
		}
	}
	if _, err := ParsePartitions(strings.NewReader("PartitionName=p MaxTime=soon")); err == nil || !strings.Contains(err.Error(), `partition "p": MaxTime="soon"`) {
		t.Errorf("bad MaxTime: %v", err)
	}
}

func TestParseMemberships(t *testing.T) {
	got, err := ParseMemberships(openTestdata(t, "22.05.8/assoc_alice.txt"))
	want := []Membership{
		{"testbed", "research", "", []string{"high", "normal", "qos_gpu-t3", "qos_gpu-t4"}, "normal"},
		{"testbed", "iea@a100", "", []string{"normal", "qos_gpu-t3", "qos_gpu-t4"}, "normal"},
	}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v; want %+v", got, err, want)
	}
	if _, err := ParseMemberships(strings.NewReader("a|b\n")); err == nil || !strings.Contains(err.Error(), "line 1") {
		t.Errorf("two fields: %v", err)
	}
	if account, err := ParseDefaultAccount(strings.NewReader("alice|research\n")); account != "research" || err != nil {
		t.Errorf("%q, %v", account, err)
	}
}

func TestParseQOSRules(t *testing.T) {
	got, err := ParseQOSRules(openTestdata(t, "22.05.8/qos_limits.txt"))
	want := []QOSRule{{Name: "normal"}, {Name: "qos_gpu-t3", MaxWall: 20 * time.Hour}, {Name: "high"}, {Name: "qos_gpu-t4", MaxWall: 100 * time.Hour}}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v; want %+v", got, err, want)
	}
	got, err = ParseQOSRules(strings.NewReader("x|UNLIMITED|cpu=1,gres/gpu=2|cpu=64,gres/gpu=8,mem=100G,node=4|DenyOnLimit,OverPartQOS,PartitionTimeLimit\n"))
	want = []QOSRule{{Name: "x", MinGPUs: 2, MaxGPUs: 8, MaxCPUs: 64, MaxNodes: 4, MaxMemory: 100 << 30, OverPartition: true, OverTime: true}}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v; want %+v", got, err, want)
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

func TestParseJobEnd(t *testing.T) {
	code, signal, err := ParseJobEnd("JobId=8 JobName=sh JobState=FAILED Reason=NonZeroExitCode ExitCode=0:9 Command=ExitCode=1:0")
	if code != 0 || signal != 9 || err != nil {
		t.Errorf("%d, %v, %v; want 0, 9", code, signal, err)
	}
	if _, _, err := ParseJobEnd("slurm_load_jobs error: Invalid job id specified"); err == nil {
		t.Error("no ExitCode: want an error")
	}
}

func FuzzParseShow(f *testing.F) {
	for _, name := range []string{"show_nodes.txt", "show_nodes_oneline.txt", "show_partitions.txt"} {
		text, err := os.ReadFile(filepath.Join("testdata/22.05.8", name))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(text))
	}
	f.Add("NodeName=a Gres=gpu:4(S:0,1),gpu:b:2 CPUTot=4")
	f.Fuzz(func(t *testing.T, text string) {
		if nodes, err := ParseNodes(strings.NewReader(text)); err == nil {
			for _, n := range nodes {
				if n.Name == "" || n.CPUs < 0 || n.Memory < 0 {
					t.Errorf("%+v", n)
				}
				if gres, err := ParseGRES(n.GRES); err == nil {
					for _, g := range gres {
						if g.Name == "" || g.Count < 0 {
							t.Errorf("ParseGRES(%q): %+v", n.GRES, g)
						}
					}
				}
			}
		}
		if partitions, err := ParsePartitions(strings.NewReader(text)); err == nil {
			for _, p := range partitions {
				if p.Name == "" || p.MaxTime < 0 || p.MaxNodes < 0 {
					t.Errorf("%+v", p)
				}
			}
		}
	})
}
