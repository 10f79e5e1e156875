package sbatch

import (
	"fmt"
	"testing"
)

// What a real Slurm has allocated for each of the lines.
func TestAmount(t *testing.T) {
	for line, want := range map[string]string{
		"":                           "1 node, 1 task, 1 CPU",
		"-N2-4":                      "2 nodes, 2 tasks, 2 CPU",
		"-N2-4 -c2":                  "2 nodes, 2 tasks, 4 CPU",
		"-N2-4 -n1":                  "1 node, 1 task, 1 CPU",
		"--nodes=-2":                 "1 node, 1 task, 1 CPU",
		"--nodes=+2":                 "2 nodes, 2 tasks, 2 CPU",
		"--gpus=none":                "1 node, 1 task, 1 CPU, map[none:1] GPU",
		"-N3 -n2":                    "2 nodes, 2 tasks, 2 CPU",
		"-N2 --ntasks-per-node=3":    "2 nodes, 6 tasks, 6 CPU",
		"--ntasks-per-node=2 -c2":    "1 node, 2 tasks, 4 CPU",
		"--nodelist=cpu[1-2] -c2":    "2 nodes, 2 tasks, 4 CPU",
		"-n3 -c2":                    "1 node, 3 tasks, 6 CPU",
		"--gpus=4 --gpus-per-node=2": "2 nodes, 2 tasks, 2 CPU, map[:4] GPU",
		"--gpus=4 --gpus-per-task=2": "1 node, 2 tasks, 2 CPU, map[:4] GPU",
		"--gpus-per-task=1 -n3":      "1 node, 3 tasks, 3 CPU, map[:3] GPU",
		"--gpus=a100:2,rtx2080:1":    "1 node, 1 task, 1 CPU, map[a100:2 rtx2080:1] GPU",
		"--gpus=a100":                "1 node, 1 task, 1 CPU, map[a100:1] GPU",
		"--gres=gpu:a100 -N2":        "2 nodes, 2 tasks, 2 CPU, map[a100:2] GPU",
		"--gres=gpu":                 "1 node, 1 task, 1 CPU, map[:1] GPU",
		"--gres=gpu:0":               "1 node, 1 task, 1 CPU",
		"--gres=gpu:1,gpu:2":         "1 node, 1 task, 1 CPU, map[:2] GPU",
		"--gres=gpu:h100,license:3":  "1 node, 1 task, 1 CPU, map[h100:1] GPU, map[license:3]",
		"-N1 --ntasks-per-tres=1":    "1 node, 1 task, 1 CPU, map[:1] GPU",
		"--gpus-per-node=a100 --gpus=a100:1,v100": "1 node, 1 task, 1 CPU, map[a100:1 v100:1] GPU",
		"--gres=shard:4":                 "1 node, 1 task, 1 CPU, map[shard:4]",
		"--gpus=1k":                      "1 node, 1 task, 1 CPU, map[:1024] GPU",
		"--cpus-per-gpu=2 --gpus=2":      "1 node, 1 task, 4 CPU, map[:2] GPU",
		"--cpus-per-gpu=2 --gpus=2 -n3":  "1 node, 3 tasks, 4 CPU, map[:2] GPU",
		"--cpus-per-gpu=1 --gpus=1 -n3":  "1 node, 3 tasks, 3 CPU, map[:1] GPU",
		"--ntasks-per-node=3 -n1":        "1 node, 1 task, 1 CPU",
		"--ntasks-per-node=3 -n2":        "1 node, 2 tasks, 3 CPU",
		"--ntasks-per-node=2 -n3":        "2 nodes, 3 tasks, 4 CPU",
		"--cpus-per-gpu=2":               "1 node, 1 task, 1 CPU",
		"--ntasks-per-gpu=2 --gpus=2":    "1 node, 4 tasks, 4 CPU, map[:2] GPU",
		"-N2 --ntasks-per-gpu=2":         "2 nodes, 4 tasks, 4 CPU, map[:2] GPU",
		"-n4 --ntasks-per-gpu=2":         "1 node, 4 tasks, 4 CPU, map[:2] GPU",
		"--mincpus=3 -N2":                "2 nodes, 2 tasks, 6 CPU",
		"-O -n 8":                        "1 node, 8 tasks, 1 CPU",
		"-O -c 4":                        "1 node, 1 task, 4 CPU",
		"--cores-per-socket=2 -N2":       "2 nodes, 4 tasks, 4 CPU",
		"-B 1:2:1":                       "1 node, 2 tasks, 2 CPU",
		"--mem=100 -N2":                  "2 nodes, 2 tasks, 2 CPU, 200 MiB",
		"--mem=1500K":                    "1 node, 1 task, 1 CPU, 2 MiB",
		"--mem=0":                        "1 node, 1 task, 1 CPU, all memory",
		"--mem-per-cpu=100 -n3 -c2":      "1 node, 3 tasks, 6 CPU, 600 MiB",
		"--mem-per-gpu=1G --gpus=2":      "1 node, 1 task, 1 CPU, 2048 MiB, map[:2] GPU",
		"--exclusive -N2":                "2 nodes, 2 tasks, 2 CPU, exclusive",
		"--exclusive=user":               "1 node, 1 task, 1 CPU",
		"--tres-per-task=cpu:2,gres/gpu": "1 node, 1 task, 2 CPU, map[:1] GPU",
		"-L matlab:2,ansys":              "1 node, 1 task, 1 CPU, map[ansys:1 matlab:2] licenses",
	} {
		a, err := given(t, line).Amount()
		plural := func(n int64) string {
			if n == 1 {
				return ""
			}
			return "s"
		}
		got := fmt.Sprintf("%d node%s, %d task%s, %d CPU", a.Nodes, plural(a.Nodes), a.Tasks, plural(a.Tasks), a.CPUs)
		if a.MemMB > 0 {
			got += fmt.Sprintf(", %d MiB", a.MemMB)
		}
		if a.AllMemory {
			got += ", all memory"
		}
		if a.GPUs > 0 {
			got += fmt.Sprintf(", %v GPU", a.Kinds)
		}
		if len(a.Others) > 0 {
			got += fmt.Sprintf(", %v", a.Others)
		}
		if a.Exclusive {
			got += ", exclusive"
		}
		if len(a.Licenses) > 0 {
			got += fmt.Sprintf(", %v licenses", a.Licenses)
		}
		if err != nil || got != want {
			t.Errorf("%s: %s, %v; want %s", line, got, err, want)
		}
	}
	for _, line := range []string{"-N4-2", "-Nx", "-c many", "--mem=x", "--gpus=a:b:c", "--gres=gpu:a100:b", "-c 99999999999999", "--mem=9999999999999T -N3"} {
		if a, err := given(t, line).Amount(); err == nil {
			t.Errorf("%s: %+v", line, a)
		}
	}
}

func TestNodeOf(t *testing.T) {
	a, _ := given(t, "-N2 -n5 -c2 --gpus=3 --mem=100").Amount()
	if n := a.Node(); n.Nodes != 1 || n.Tasks != 3 || n.CPUs != 5 || n.GPUs != 2 || n.MemMB != 100 {
		t.Errorf("%+v", n)
	}
}

func FuzzAmount(f *testing.F) {
	for _, seed := range []string{"gpus=a100:2", "gres=gpu:a100:2,shard", "nodes=2-4", "mem=1T", "extra-node-info=1:2-3:*", "tres-per-task=cpu=2"} {
		f.Add(seed, "ntasks=3", "cpus-per-task=2")
	}
	f.Fuzz(func(t *testing.T, a, b, c string) {
		var options Options
		for _, text := range []string{a, b, c} {
			if o, err := Parse(text); err == nil {
				options = options.With(o)
			}
		}
		if got, err := options.Amount(); err == nil && (got.Nodes < 1 || got.CPUs < 1 || got.GPUs < 0 || got.MemMB < 0 || got.Tasks < 1) {
			t.Errorf("%s: %+v", options, got)
		}
	})
}
