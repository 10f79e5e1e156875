package admission

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/ponos-tools/ponos/lib/slurm"
	"github.com/ponos-tools/ponos/lib/slurm/sbatch"
)

func options(text string) (all sbatch.Options) {
	for word := range strings.FieldsSeq(text) {
		o, _ := sbatch.Parse(word)
		all = append(all, o)
	}
	return all
}

func TestJobOf(t *testing.T) {
	for _, c := range []struct {
		text       string
		want       Job
		partitions []string
	}{
		{"", Job{Nodes: 1, Tasks: 1}, nil},
		{"--partition=a,b --account=lab --qos=long --time=2-0 --nodes=2 --ntasks=8 --cpus-per-task=3 --mem=2G --exclusive",
			Job{Account: "lab", QOS: "long", Time: 48 * time.Hour, Nodes: 2, Tasks: 4, CPUsPerTask: 3, MemMB: 2048, Exclusive: true}, []string{"a", "b"}},
		{"--nodes=1 --exclusive=user", Job{Nodes: 1, Tasks: 1}, nil},
		{"--gpus-per-node=a100:2,t4:1 --nodes=1", Job{Nodes: 1, Tasks: 1, GPUs: 3, GPUTypes: map[string]int64{"a100": 2, "t4": 1}}, nil},
		{"--gpus=4 --nodes=2", Job{Nodes: 2, Tasks: 1, GPUs: 2}, nil},
		{"--gres=gpu:a100:2,localtmp:100 --nodes=1", Job{Nodes: 1, Tasks: 1, GPUs: 2, GPUTypes: map[string]int64{"a100": 2}, GRES: map[string]int64{"localtmp": 100}}, nil},
		{"--gres=gpu", Job{Nodes: 1, Tasks: 1, GPUs: 1}, nil},
		{"--gpus-per-task=a100:2 --ntasks=2 --nodes=1", Job{Nodes: 1, Tasks: 2, GPUs: 4, GPUTypes: map[string]int64{"a100": 4}}, nil},
		{"--gres=gpu:1 --cpus-per-gpu=6 --mem-per-gpu=10G", Job{Nodes: 1, Tasks: 1, CPUsPerTask: 6, GPUs: 1, MemPerGPU: 10240}, nil},
		{"--cpus-per-task=4 --mem-per-cpu=2G", Job{Nodes: 1, Tasks: 1, CPUsPerTask: 4, MemPerCPU: 2048}, nil},
		{"--licenses=matlab:2,ansys", Job{Nodes: 1, Tasks: 1, Licenses: map[string]int64{"matlab": 2, "ansys": 1}}, nil},
		{"--time=soon --mem=much --nodes=x --gpus-per-node=a:b", Job{}, nil},
		// A job that may get more nodes needs less of each.
		{"--ntasks=8 --cpus-per-task=2", Job{Nodes: 1, Tasks: 8, CPUsPerTask: 2, Least: &Job{Nodes: 8, Tasks: 1, CPUsPerTask: 2}}, nil},
		{"--gpus=4", Job{Nodes: 1, Tasks: 1, GPUs: 4, Least: &Job{Nodes: 4, Tasks: 1, GPUs: 1}}, nil},
		{"--nodes=2-4 --ntasks=8", Job{Nodes: 2, Tasks: 4, Least: &Job{Nodes: 4, Tasks: 2}}, nil},
	} {
		got, partitions := JobOf(options(c.text))
		if diff := cmp.Diff(c.want, got, cmpopts.EquateEmpty()); diff != "" || !slices.Equal(partitions, c.partitions) {
			t.Errorf("%s: in %q, want %q: %s", c.text, partitions, c.partitions, diff)
		}
	}
}

// TestCheckIn holds that one partition is enough, and with EnforcePartLimits=ALL none
// may refuse.
func TestCheckIn(t *testing.T) {
	c := &Cluster{
		Partitions: []slurm.Partition{
			{Name: "short", State: "UP", MaxTime: time.Hour, Default: true}, {Name: "long", State: "UP", MaxTime: slurm.Unlimited}, {Name: "down", State: "DOWN", MaxTime: slurm.Unlimited},
		},
		Config: slurm.Config{"EnforcePartLimits": "ANY"},
		Known:  Known{Accounting: true, Config: true},
	}
	for _, x := range []struct {
		limits, partitions string
		want               Verdict
	}{
		{"ANY", "short,long", Yes}, {"ALL", "short,long", No}, {"ALL", "long,down", Yes}, {"ALL", "down", No}, {"ANY", "short,down", No}, {"ANY", "", No},
	} {
		c.Config["EnforcePartLimits"] = x.limits
		var names []string
		if x.partitions != "" {
			names = strings.Split(x.partitions, ",")
		}
		if got := c.CheckIn(Job{Time: 2 * time.Hour}, names); Of(got) != x.want {
			t.Errorf("%s in %q: %v; want %v", x.limits, x.partitions, got, x.want)
		}
	}
}
