package planner

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ponos-tools/ponos/lib/advise/admission"
	"github.com/ponos-tools/ponos/lib/advise/forecast"
	"github.com/ponos-tools/ponos/lib/base/fault"
	"github.com/ponos-tools/ponos/lib/slurm"
	"github.com/ponos-tools/ponos/testscripts/captures"
)

func FuzzTrace(f *testing.F) {
	trace, err := os.ReadFile("testdata/trace.swf")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(trace)
	var runs bytes.Buffer
	if err := captures.Replay(&runs, "../../slurm/testdata/22.05.8/sacct-runs.table", "sacct", "--parsable", "--format="+slurm.RunFormat); err != nil {
		f.Fatal(err)
	}
	f.Add(runs.Bytes())
	f.Add([]byte("1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18\n1 1e300 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		runs, err := ReadTrace(bytes.NewReader(text))
		for _, r := range runs {
			if err != nil || r.End < r.Start || r.Limit <= 0 || r.Nodes < 1 {
				t.Errorf("%+v, %v", r, err)
			}
		}
	})
}

// Since Slurm 23.02 a partition for an account is for those below it, too, and for no other.
func TestAccount(t *testing.T) {
	of := func(account, parent, user string) slurm.CountedAssociation {
		return slurm.CountedAssociation{Cluster: "c", Account: account, Parent: parent, User: user}
	}
	for version, want := range map[string]string{"22.05.8": "", "23.11.10": "below"} {
		n := Planner{}
		n.Config = slurm.Config{"ClusterName": "c", "SLURM_VERSION": version}
		n.Usages = &slurm.Usages{Associations: []slurm.CountedAssociation{
			of("root", "", ""), of("csi", "root", ""), of("below", "csi", ""), of("research", "root", ""), of("research", "", "bob"), of("below", "", "carol"),
		}}
		p := &slurm.Partition{Name: "gpu_csi", State: "UP", AllowAccounts: []string{"csi"}}
		if account, refusal := n.Account("bob", p); account != "" || refusal != "the partition takes none of your accounts (research)" {
			t.Errorf("%s, bob: %q, %q", version, account, refusal)
		}
		if account, refusal := n.Account("carol", p); account != want || (refusal == "") != (want != "") {
			t.Errorf("%s, carol: %q, %q", version, account, refusal)
		}
	}
}

// A job that names no account is charged to the user's default one, where the partition takes that.
func TestDefaultAccount(t *testing.T) {
	n := Planner{}
	n.Config = slurm.Config{"ClusterName": "c", "SLURM_VERSION": "22.05.8"}
	n.Usages = &slurm.Usages{}
	for _, account := range []string{"csi", "lab", "research"} {
		n.Usages.Associations = append(n.Usages.Associations, slurm.CountedAssociation{
			Cluster: "c", Account: account, User: "alice", Default: account == "research",
		})
	}
	for allowed, want := range map[string]string{"": "research", "lab,research": "research", "csi": "csi"} {
		p := &slurm.Partition{Name: "cpu", State: "UP"}
		if allowed != "" {
			p.AllowAccounts = strings.Split(allowed, ",")
		}
		if account, refusal := n.Account("alice", p); account != want || refusal != "" {
			t.Errorf("of %q: %q, %q; want %q", allowed, account, refusal, want)
		}
	}
}

// What a real Slurm starts on nodes of 8, 8 and 4 CPUs, with 4, 4 and 2 GPUs, and what it takes of them.
func TestUnevenNodes(t *testing.T) {
	n := Planner{World: &forecast.World{}}
	n.Config = slurm.Config{"SelectTypeParameters": "CR_CORE_MEMORY"}
	for _, size := range []int64{8, 4, 8} {
		n.Nodes = append(n.Nodes, slurm.Node{CPUs: size, MemMB: size * 1000, GPUs: size / 2, Partitions: slurm.List("all")})
	}
	p := &slurm.Partition{Name: "all", State: "UP"}
	for line, want := range map[string]string{
		"-n17": "3 nodes of 4 CPUs, 0 GPUs", "-N3 -n18": "3 nodes of 4 CPUs, 0 GPUs", "-n20": "3 nodes of 4 CPUs, 0 GPUs", "-n21": "", "-n14": "2 nodes of 7 CPUs, 0 GPUs",
		"-N2-3 -n19": "3 nodes of 4 CPUs, 0 GPUs", "-N2 -n17": "", "--gpus=10": "3 nodes of 1 CPUs, 2 GPUs", "--gpus=11": "", "-N3 --ntasks-per-node=6": "", "-N3 --gpus-per-node=3": "",
		"-n17 --exclusive": "", "-n9 -c2": "3 nodes of 4 CPUs, 0 GPUs", "-n17 --mem-per-cpu=900": "3 nodes of 4 CPUs, 0 GPUs", "-n17 --mem-per-cpu=1100": "3 nodes of 3 CPUs, 0 GPUs", "-n17 --mem-per-cpu=1200": "", "-n17 --mem=5000": "",
	} {
		options, err := Options(strings.Fields(line))
		if err != nil {
			t.Fatal(err)
		}
		job, err := n.JobFor(t.Context(), nil, "alice", options, p, "normal")
		got := ""
		if n.have(p, admission.Need{CPUs: int64(job.Need.CPUs), MemMB: int64(job.Need.MemMB), GPUs: int64(job.Need.GPUs)}, int64(job.Nodes)) {
			got = fmt.Sprintf("%d nodes of %g CPUs, %g GPUs", job.Nodes, job.Need.CPUs, job.Need.GPUs)
		}
		if err != nil || got != want {
			t.Errorf("%s: %q, %v; want %q", line, got, err, want)
		}
	}
}

func TestSbatchOptions(t *testing.T) {
	script := filepath.Join(t.TempDir(), "job.sh")
	if err := os.WriteFile(script, []byte("#!/bin/sh\n# a comment\n#SBATCH --time=1:00:00 -p gpu # why\n#SBATCH -c4\nhostname\n#SBATCH --mem=4G\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := Options([]string{"-t", "30", "--gpus=2", "--exclusive", "-n2", script, "--mem=1G"})
	if want := "--partition=gpu --cpus-per-task=4 --time=30 --gpus=2 --exclusive --ntasks=2"; err != nil || got.String() != want {
		t.Errorf("%v, %v; want %v", got, err, want)
	}
	if err := os.WriteFile(script, []byte("#!/bin/sh\n#SBATCH -p gpu\n#SBATCH hetjob\n#SBATCH -p cpu\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{script}, {"-n1", ":", "-n2"}} {
		if got, err := Options(args); !fault.Is(err, fault.Usage) || !strings.Contains(err.Error(), "heterogeneous") {
			t.Errorf("%q: %v, %v", args, got, err)
		}
	}
	if got, err := Options([]string{"-n2", "in-path.sh"}); err != nil || got.Value("ntasks") != "2" {
		t.Errorf("%v, %v", got, err)
	}
}
