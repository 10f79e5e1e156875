package admission

import (
	"reflect"
	"strings"
	"testing"
	"time"

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
		{"", Job{}, nil},
		{"--partition=a,b --account=lab --qos=long --time=2-0 --nodes=2-4 --ntasks=8 --cpus-per-task=3 --mem=2G --exclusive",
			Job{Account: "lab", QOS: "long", Time: 48 * time.Hour, Nodes: 2, Tasks: 4, CPUsPerTask: 3, MemMB: 2048, Exclusive: true}, []string{"a", "b"}},
		{"--gpus-per-node=a100:2,t4:1", Job{GPUs: 3, GPUTypes: map[string]int64{"a100": 2, "t4": 1}}, nil},
		{"--gpus=2", Job{GPUs: 2}, nil},
		{"--gpus=4 --nodes=2", Job{Nodes: 2}, nil},
		{"--gres=gpu:a100:2,localtmp:100", Job{GPUs: 2, GPUTypes: map[string]int64{"a100": 2}}, nil},
		{"--gres=gpu", Job{GPUs: 1}, nil},
		{"--licenses=matlab:2,ansys", Job{Licenses: map[string]int64{"matlab": 2, "ansys": 1}}, nil},
		{"--time=soon --mem=much --nodes=x --gpus-per-node=a:b", Job{}, nil},
	} {
		if got, partitions := JobOf(options(c.text)); !reflect.DeepEqual(got, c.want) || !reflect.DeepEqual(partitions, c.partitions) {
			t.Errorf("%s: %+v in %q; want %+v in %q", c.text, got, partitions, c.want, c.partitions)
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
