package launcher

import (
	"strings"
	"testing"

	"github.com/ponos-tools/ponos/lib/advise/admission"
	"github.com/ponos-tools/ponos/lib/advise/launcher/cluster"
	"github.com/ponos-tools/ponos/lib/slurm/sbatch"
	"github.com/ponos-tools/ponos/testscripts/answers"
)

// place gives the test a home without launchers and without what was asked before.
func place(t *testing.T) {
	t.Helper()
	dir := t.TempDir()
	t.Chdir(dir)
	t.Setenv("HOME", dir)
	for _, name := range []string{"LFIND_CONFIG", "XDG_CONFIG_HOME", "XDG_CACHE_HOME", "SLURM_CONF"} {
		t.Setenv(name, "")
	}
}

// options are those of a command line.
func options(line string) (all sbatch.Options) {
	for _, word := range strings.Fields(line) {
		o, _ := sbatch.Parse(word)
		all = append(all, o)
	}
	return all
}

// What Slurm would say of a job at once, and what nodes could never have.
func TestVerdicts(t *testing.T) {
	lines := answers.Cluster(t, "../../slurm/testdata/22.05.8")
	place(t)
	answers.Programs(t, lines)
	for _, tt := range []struct{ options, refused, hopeless string }{
		{"--partition=cpu --time=60", "", ""},
		{"--time=60", "", ""},
		{"--partition=cpu --time=8-0", "Slurm would accept the job and never start it: partition cpu: 8-00:00:00 requested, the partition allows 7-00:00:00", "same"},
		{"--partition=gpu --qos=qos_gpu-t3 --time=21:00:00", "Slurm would refuse the job: QoS qos_gpu-t3: 21:00:00 requested, the QoS qos_gpu-t3 allows 20:00:00", "same"},
		{"--partition=gpu --qos=limited", "Slurm would refuse the job: account research: alice may not use the QoS limited with the account research", "same"},
		{"--partition=gpu_csi_a", "Slurm would refuse the job: partition gpu_csi_a: the partition is for the accounts csi only, not research", "same"},
		{"--partition=cpu --gpus=1", "", "Slurm would refuse the job: partition cpu: none of its nodes has 1 GPU"},
		{"--partition=gpu --gpus=a100:4 --nodes=1", "", ""},
		{"--partition=gpu --gpus-per-node=5", "", "Slurm would refuse the job: partition gpu: none of its nodes has 5 GPUs: the largest, gpu1, has 4 GPUs"},
		{"--partition=gpu,gpu_small --gpus-per-node=rtx2080:2", "", ""},
		{"--cpus-per-task=5", "", "Slurm would refuse the job: partition cpu: none of its nodes has 5 CPUs: the largest, cpu1, has 4 CPUs"},
		{"--partition=cpu --mem=8001", "", "Slurm would refuse the job: partition cpu: none of its nodes has 8001MiB of memory: the largest, cpu1, has 8000MiB of memory"},
		{"--partition=gpu --gpus=h100:1", "", "Slurm would refuse the job: partition gpu: none of its nodes has all of this: 1 CPU, 1 GPU of type h100"},
		{"--partition=hidden --gpus=99", "", ""}, // sbatch reports it
	} {
		if tt.hopeless == "same" {
			tt.hopeless = tt.refused
		}
		if got := Refused(t.Context(), options(tt.options)); got != tt.refused {
			t.Errorf("%s: refused %q, want %q", tt.options, got, tt.refused)
		}
		if got := Hopeless(t.Context(), options(tt.options)); got != tt.hopeless {
			t.Errorf("%s: hopeless %q, want %q", tt.options, got, tt.hopeless)
		}
	}
}

// A Slurm that does not answer refuses nothing.
func TestNoVerdict(t *testing.T) {
	place(t)
	lines := map[string]string{}
	for _, line := range []string{"--all --oneliner --details show node", "--all --oneliner show partitions", "show config", "--oneliner show licenses", "--all --oneliner show reservation"} {
		lines["scontrol "+line] = answers.Refusal + "slurm_load error: Unable to contact slurm controller (connect failure)\n"
	}
	answers.Programs(t, lines)
	of := options("--partition=cpu --time=8-0 --gpus=99")
	if refused, hopeless := Refused(t.Context(), of), Hopeless(t.Context(), of); refused != "" || hopeless != "" {
		t.Errorf("%q, %q", refused, hopeless)
	}
}

// Whether nodes could ever have what a job takes on each.
func TestLarge(t *testing.T) {
	g := cluster.Group{CPUs: 16, Memory: 64 << 30, GRES: "gpu:a100:2,gpu:t4:1"}
	for _, c := range []struct {
		what string
		need admission.Need
		job  admission.Job
		want bool
	}{
		{"nothing", admission.Need{}, admission.Job{}, true},
		{"all of it", admission.Need{AskedCPUs: 16}, admission.Job{MemMB: 64 << 10, GPUs: 3}, true},
		{"a CPU more", admission.Need{AskedCPUs: 17}, admission.Job{}, false},
		{"a megabyte more", admission.Need{}, admission.Job{MemMB: 64<<10 + 1}, false},
		{"a GPU more", admission.Need{}, admission.Job{GPUs: 4}, false},
		{"GPUs of a type", admission.Need{}, admission.Job{GPUs: 2, GPUTypes: map[string]int64{"a100": 2}}, true},
		{"more of a type", admission.Need{}, admission.Job{GPUs: 2, GPUTypes: map[string]int64{"t4": 2}}, false},
		{"another type", admission.Need{}, admission.Job{GPUs: 1, GPUTypes: map[string]int64{"h100": 1}}, false},
	} {
		if got := large(g, c.need, c.job); got != c.want {
			t.Errorf("%s: %v", c.what, got)
		}
	}
}

func TestWords(t *testing.T) {
	f := admission.Finding{Whose: "partition cpu", Text: "it is too long"}
	if got, want := words(f), "Slurm would refuse the job: partition cpu: it is too long"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	f.Waits = true
	if got, want := words(f), "Slurm would accept the job and never start it: partition cpu: it is too long"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
