package launcher

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ponos-tools/ponos/lib/advise/gpu"
	"github.com/ponos-tools/ponos/lib/base/command"
	"github.com/ponos-tools/ponos/lib/base/fault"
)

// silence is a Slurm that does not answer.
type silence struct{}

func (silence) Run(_ context.Context, c command.Cmd) (command.Result, error) {
	return command.Result{}, &command.ExitError{Name: c.Name, Code: 1, Stderr: "Unable to contact slurm controller"}
}

func TestFindOptions(t *testing.T) {
	dir := t.TempDir()
	text := testdata(t, "documented.yaml") + `
  - { id: elsewhere, connector: gate, weight: 99, partitions: { far: { nodes: [ { count: 1 } ] } } }
`
	path := filepath.Join(dir, "launchers.yaml")
	for name, text := range map[string]string{path: text, filepath.Join(dir, "connectors.yaml"): "ssh: { gate: { hostname: gate } }"} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	q := Query{File: path, World: World{Run: silence{}, Env: func(string) string { return "" }}}
	for _, c := range []struct {
		spec, want, failure string
		kind                fault.Kind
	}{
		{spec: "cuda(mem=17G)*2", want: "--nodes=1 --partition=biggpus,smallgpus --constraint=(GPU2&GPUM24G) --gpus-per-node=2"},
		{spec: "cuda(mem=17", failure: "request:1:12: the request ends here", kind: fault.Usage},
		{spec: "cuda(mem=1G)", failure: "Unable to contact slurm controller", kind: fault.Unavailable},
	} {
		q.Spec = c.spec
		o, err := FindOptions(context.Background(), q)
		if got := o.String(); got != c.want || (err == nil) != (c.failure == "") {
			t.Errorf("%s: %s, %v; want %s", c.spec, got, err, c.want)
		}
		if err != nil && (!strings.Contains(err.Error(), c.failure) || fault.KindOf(err) != c.kind) {
			t.Errorf("%s: %v of kind %d; want %q of kind %d", c.spec, err, fault.KindOf(err), c.failure, c.kind)
		}
	}
	q.Spec, q.Tags = "cuda()", []string{"nothing"}
	if _, err := FindOptions(context.Background(), q); !fault.Is(err, fault.Failed) {
		t.Errorf("no launcher with that tag: %v", err)
	}
	q.File = filepath.Join(dir, "missing.yaml")
	if _, err := FindOptions(context.Background(), q); !fault.Is(err, fault.Usage) {
		t.Errorf("no file: %v", err)
	}
	q.File = ""
	if _, err := FindOptions(context.Background(), q); err == nil || fault.Is(err, fault.Usage) {
		t.Errorf("no file anywhere, no Slurm: %v", err)
	}
}

func TestMisspelt(t *testing.T) {
	s := &Search{Launchers: load(t, testdata(t, "features.yaml"))}
	for spec, want := range map[string]string{
		"partition=hrad":             `no launcher has the partition "hrad"; did you mean "hard"?`,
		"feature=A600":               `no launcher has the feature "A600"; did you mean "A6000"?`,
		"partition=hard & cuda()*9":  "",
		"partition!=hrad":            "",
		"host=nowhere":               `no launcher has the host "nowhere"`,
		"partition=h* | partition=x": `no launcher has the partition "x"`,
		"cuda(model=a100)":           `no launcher has a GPU of the model "a100"; the models are NVIDIA GeForce RTX 2080, NVIDIA RTX A5000, NVIDIA RTX A6000, titanx`,
		"cuda(model=titanx)":         "",
	} {
		if got := s.Misspelt(parse(t, spec)); got != want {
			t.Errorf("%s: %q; want %q", spec, got, want)
		}
	}
	s = &Search{Launchers: load(t, "local: [{gpus: [{model: RTX 3090, count: 1}]}]")}
	if got, want := s.Misspelt(parse(t, "cuda(model=a100)")), `no launcher has a GPU of the model "a100"; the models are RTX 3090`; got != want {
		t.Errorf("%q; want %q", got, want)
	}
}

// Without an answer, names that nothing has are told, or else what lacks least.
func TestNearestMiss(t *testing.T) {
	nodes := "NodeName=c1 CPUTot=32 RealMemory=128000 State=IDLE Partitions=cpu\nNodeName=big1 CPUTot=64 RealMemory=2000000 State=IDLE Partitions=hugemem\n" +
		"NodeName=g1 CPUTot=16 RealMemory=64000 Gres=gpu:a100:2 State=IDLE Partitions=gpu\nNodeName=g2 CPUTot=16 RealMemory=64000 Gres=gpu:a100:8 State=IDLE Partitions=gpu8\n"
	partitions := "PartitionName=cpu State=UP MaxTime=1:00:00\nPartitionName=hugemem State=UP MaxTime=30:00\nPartitionName=gpu State=UP\nPartitionName=gpu8 State=UP MaxTime=2-0"
	for spec, want := range map[string]string{
		"cpu(mem=4TiB)":                    "nearest miss: 1 node of hugemem: 4TiB of memory requested, 2097152M available",
		"cpu(cores=100)":                   "nearest miss: 1 node of hugemem: 100 cores requested, 64 available",
		"cuda() * 9":                       "nearest miss: 1 node of gpu8: 9 GPUs requested, 8 GPUs available",
		"cuda() * 8 & duration=3d":         "nearest miss: 1 node of gpu8: 3-00:00:00 requested, the partition allows 2-00:00:00",
		"cpu(cores=20) & duration=2 hours": "nearest miss: 1 node of cpu: 2:00:00 requested, the partition allows 1:00:00",
		"account=physics":                  `you have no account "physics"`,
		"account=lba":                      `you have no account "lba"; did you mean "lab"?`,
		"qos=hihg":                         `you have no QoS "hihg"; did you mean "high"?`,
	} {
		s := &Search{Launchers: []*Launcher{Direct(gpu.Builtin())}, Ask: saying(t, nodes, partitions, "|lab||normal,high|normal", "normal||||\nhigh||||")}
		if got := found(t, s, spec); got != "none" {
			t.Errorf("%s: %s", spec, got)
		}
		err := s.Nothing(context.Background(), parse(t, spec))
		if hint := fault.HintOf(err); !strings.HasPrefix(hint, want) {
			t.Errorf("%s: %q; want %q", spec, hint, want)
		}
	}
}

// One of a thing is told as one.
func TestOne(t *testing.T) {
	s := &Search{Launchers: []*Launcher{Direct(gpu.Builtin())}, Ask: saying(t, "NodeName=c1 CPUTot=1 RealMemory=2000 State=IDLE Partitions=cpu\n", "PartitionName=cpu State=UP", "", "")}
	rows, _, err := s.Explain(context.Background(), parse(t, "cpu()"))
	if folds := Folded(rows); err != nil || len(folds) != 1 || folds[0].Match() != "1 node of cpu matches: 1 CPU, 2000MiB" {
		t.Errorf("%v, %s", err, folds[0].Match())
	}
}

// Clusters with one home directory do not share what is kept of Slurm; all users of a gate ask the same cluster.
func TestClusterKey(t *testing.T) {
	t.Cleanup(func() { hostname = os.Hostname })
	keys := map[string]string{}
	for _, login := range []string{"one", "two"} {
		hostname = func() (string, error) { return login, nil }
		for _, conf := range []string{"", "/opt/a/slurm.conf", "/opt/b/slurm.conf"} {
			w := World{Env: func(name string) string { return map[string]string{"SLURM_CONF": conf}[name] }}
			for _, name := range []string{"", "east", "west"} {
				what := login + conf + name
				key := w.clusterKey("", "", name, "")
				if other := keys[key]; other != "" {
					t.Errorf("%s has the answers of %s", what, other)
				}
				keys[key] = what
			}
		}
	}
	far := World{}.clusterKey("gate", "", "", "")
	hostname = os.Hostname
	if far != (World{}).clusterKey("gate", "", "", "") || keys[far] != "" {
		t.Error("what is behind a gate is not of this host")
	}
}
