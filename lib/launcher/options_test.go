package launcher

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ponos-tools/ponos/lib/command"
	"github.com/ponos-tools/ponos/lib/fault"
)

func TestOptions(t *testing.T) {
	var o Options
	o.Set("gpus_per_node", "3")
	o.Set("time", "4")
	o.Set("mail-type", "END")
	o.Set("nodes", "1")
	o.Set("nodes", "2")
	o.Set("qos", "")
	o.SetBare("exclusive")
	if got := strings.Join(o.Args(), " "); got != "--nodes=2 --time=4 --gpus-per-node=3 --exclusive --mail-type=END" {
		t.Error(got)
	}
	o.Set("exclusive", "user")
	o.Set("nodes", "")
	if got := strings.Join(o.Args(), " "); got != "--time=4 --gpus-per-node=3 --exclusive=user --mail-type=END" {
		t.Error(got)
	}
}

func TestWrite(t *testing.T) {
	o := Options{{Name: "nodes", Value: "1"}, {Name: "partition", Value: "a,b"}, {Name: "constraint", Value: "(x&y)|(z)"}, {Name: "exclusive", Bare: true}}
	for format, want := range map[string]string{
		"args":   "--nodes=1 --partition=a,b --constraint=(x&y)|(z) --exclusive\n",
		"args0":  "--nodes=1\x00--partition=a,b\x00--constraint=(x&y)|(z)\x00--exclusive\x00",
		"lines":  "--nodes=1\n--partition=a,b\n--constraint=(x&y)|(z)\n--exclusive\n",
		"script": "#SBATCH --nodes=1\n#SBATCH --partition=a,b\n#SBATCH --constraint=(x&y)|(z)\n#SBATCH --exclusive\n",
		"env":    "export SBATCH_PARTITION=a,b\nexport SBATCH_CONSTRAINT='(x&y)|(z)'\nexport LFIND_ARGS='--nodes=1 --exclusive'\n",
	} {
		if got, err := o.Write(format); got != want || err != nil {
			t.Errorf("%s: %q, %v; want %q", format, got, err, want)
		}
	}
	for _, value := range []string{"a b", "n[1-2]", "*", "a\\b", "x?"} {
		for _, format := range []string{"args", "env"} {
			if got, err := (Options{{Name: "x", Value: value}}).Write(format); err == nil {
				t.Errorf("%q is written as %q, which the shell would change", value, got)
			}
		}
	}
	if _, err := o.Write("xml"); err == nil {
		t.Error("an unknown format is written")
	}
}

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
		if got := strings.Join(o.Args(), " "); got != c.want || (err == nil) != (c.failure == "") {
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
		"cuda(model=a100)":           `no launcher has a GPU of the model "a100"; there are NVIDIA GeForce RTX 2080, NVIDIA RTX A5000, NVIDIA RTX A6000, titanx`,
		"cuda(model=titanx)":         "",
	} {
		if got := s.Misspelt(parse(t, spec)); got != want {
			t.Errorf("%s: %q; want %q", spec, got, want)
		}
	}
	s = &Search{Launchers: load(t, "local: [{gpus: [{model: RTX 3090, count: 1}]}]")}
	if got, want := s.Misspelt(parse(t, "cuda(model=a100)")), `no launcher has a GPU of the model "a100"; there are RTX 3090`; got != want {
		t.Errorf("%q; want %q", got, want)
	}
}
