package convert

import (
	"context"
	"flag"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/ponos-tools/ponos/lib/advise/gpu"
	"github.com/ponos-tools/ponos/lib/advise/launcher"
	"github.com/ponos-tools/ponos/lib/advise/launcher/file"
	"github.com/ponos-tools/ponos/lib/advise/launcher/request"
)

var update = flag.Bool("update", false, "rewrite the expected output")

func convert(t *testing.T, text string, o Options) string {
	t.Helper()
	s, err := Read(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	if err := Write(&b, s, o); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func testdata(t *testing.T, names ...string) string {
	t.Helper()
	all := ""
	for _, name := range names {
		text, err := os.ReadFile("../../../slurm/testdata/22.05.8/" + name)
		if err != nil {
			t.Fatal(err)
		}
		all += string(text)
	}
	return all
}

// valid parses a written file, which must have neither errors nor warnings.
func valid(t *testing.T, text string) *file.File {
	t.Helper()
	f, err := file.Parse("launchers.yaml", []byte(text), nil, nil)
	if err != nil || len(f.Warnings) > 0 {
		t.Fatalf("%v, warnings %v in\n%s", err, f.Warnings, text)
	}
	return f
}

func TestTestbed(t *testing.T) {
	got := convert(t, testdata(t, "show_nodes.txt", "show_partitions.txt"), Options{})
	for _, names := range [][]string{
		{"show_nodes_oneline.txt", "show_partitions_oneline.txt"}, {"show_partitions.txt", "show_nodes_oneline.txt"},
	} {
		if other := convert(t, testdata(t, names...), Options{}); other != got {
			t.Errorf("of %v:\n%s\nof the form of several lines:\n%s", names, other, got)
		}
	}
	const golden = "testdata/testbed.yaml"
	if *update {
		if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil || got != string(want) {
		t.Errorf("%v; got\n%s\nwant\n%s", err, got, want)
	}
	f := valid(t, got)
	s := launcher.Search{Launchers: launcher.New(f, gpu.Builtin())}
	for spec, want := range map[string]string{
		"cuda(mem=14G)*2 & duration=4 days": "--nodes=1 --time=96:00:00 --partition=gpu --constraint=(GPU4&GPUM40G&a100) --gpus-per-node=2",
		"cpu(cores=2, mem=4G)":              "--nodes=1 --partition=cpu --constraint=(cpu) --mem=3815M --cpus-per-task=2",
		"cuda(mem=14G) & duration=8d":       "",
		"cuda(model=rtx2080)":               "--nodes=1 --partition=gpu_small --constraint=(GPU2&GPUM11G) --gpus-per-node=1",
	} {
		r, err := request.Parse(spec)
		if err != nil {
			t.Fatal(err)
		}
		answer, err := s.Find(context.Background(), r)
		got := ""
		if answer != nil {
			got = strings.Join(answer.Options.Args(), " ")
		}
		if got != want || err != nil {
			t.Errorf("%s: %s, %v; want %s", spec, got, err, want)
		}
	}
}

// TestNodesKeepTheirOwn checks on experimaestro's example that no value of a node is used for
// the next one.
func TestNodesKeepTheirOwn(t *testing.T) {
	for _, form := range []string{"\n   ", " "} {
		nodes := ""
		for _, n := range [][3]string{
			{"daft", "GPU4,RTX,GPUM24G", "electronic"}, {"kavinsky", "RTX,GPU4,GPUM24G", "electronic,all"}, {"bare-1", "(null)", "cpu"},
			{"orphan.cluster", "fast:net,x86.64", ""}, {"zz", "GPU3,A6000,GPUM48G", "hard"},
		} {
			nodes += "NodeName=" + n[0] + " Arch=x86_64" + form + "AvailableFeatures=" + n[1]
			if n[2] != "" {
				nodes += form + "Partitions=" + n[2]
			}
			nodes += "\n\n"
		}
		f := valid(t, convert(t, nodes, Options{ID: "lab", Tags: []string{"slurm", "on"}}))
		e := f.Entries[0]
		var got []string
		for _, p := range e.Partitions {
			for _, g := range p.Nodes {
				got = append(got, p.Name+": "+strings.Join(g.Features, ",")+": "+strings.Join(g.Hosts, ","))
			}
		}
		want := []string{
			"all: GPU4,GPUM24G,RTX: kavinsky", "cpu: : bare-1",
			"electronic: GPU4,GPUM24G,RTX: daft", "electronic: GPU4,GPUM24G,RTX: kavinsky", "hard: A6000,GPU3,GPUM48G: zz",
		}
		if !slices.Equal(got, want) {
			t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
		if e.ID != "lab" || !slices.Equal(e.Tags, []string{"slurm", "on"}) {
			t.Errorf("%+v", e)
		}
	}
}

func TestForms(t *testing.T) {
	text := convert(t, "NodeName=n1 Gres=gpu:a100:2(S:0,1),gpu:v100_32gb:1 CPUTot=8 RealMemory=1000 Partitions=p\nNodeName=n2 Partitions=true\nPartitionName=p AllowAccounts=x,y MaxTime=2-00:00:00\nPartitionName=true AllowQos=a\n", Options{NoHosts: true})
	f := valid(t, text)
	p := f.Entries[0].Partitions
	if g := p[0].Nodes[0]; len(g.Configuration.GPUs) != 2 || g.Configuration.GPUs[1].Memory != 32768<<20 || g.Count != 1 || g.Hosts != nil || g.Configuration.CPU.Cores != 8 {
		t.Errorf("%+v in\n%s", g, text)
	}
	if !slices.Equal(p[0].Accounts, []string{"x", "y"}) || p[0].Configuration.MaxDuration.Hours() != 48 || p[1].Name != "true" || !slices.Equal(p[1].QOS, []string{"a"}) {
		t.Errorf("%+v", p)
	}
}

func TestRead(t *testing.T) {
	for text, want := range map[string]string{
		"": "no node in the input", "hello\n": "line 1", "NodeName=a\nslurm_load error: x\n": "line 2", "PartitionName=p\n": "no node in the input",
		"PartitionName=p MaxTime=soon\nNodeName=a": `MaxTime="soon"`,
	} {
		if _, err := Read(strings.NewReader(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v; want %s", text, err, want)
		}
	}
}

func FuzzConvert(f *testing.F) {
	for _, name := range []string{"show_nodes.txt", "show_nodes_oneline.txt"} {
		text, err := os.ReadFile("../../../slurm/testdata/22.05.8/" + name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(text))
	}
	f.Add("NodeName=a Gres=gpu:a:2,gpu:b:1 Partitions=true,1 AvailableFeatures='x',#y\nPartitionName=p AllowAccounts=null")
	f.Add("NodeName=, Partitions=0")
	f.Add("NodeName=a \nPartitionName=p A")
	f.Add("NodeName=a Partitions=p,\x7fq AvailableFeatures=a&b,,c\nPartitionName=pe, AllowQos=N/A")
	f.Fuzz(func(t *testing.T, text string) {
		s, err := Read(strings.NewReader(text))
		if err != nil {
			return
		}
		var b strings.Builder
		if err := Write(&b, s, Options{}); err != nil {
			t.Fatal(err)
		}
		parsed, err := file.Parse("launchers.yaml", []byte(b.String()), nil, nil)
		if err != nil {
			t.Fatalf("%v\nof %q\nwas written\n%s", err, text, b.String())
		}
		want := map[string]bool{}
		for _, g := range s.Groups {
			for name := range g.Partitions.All() {
				if name != "" {
					want[name] = true
				}
			}
		}
		if len(s.Partitions) == 0 && len(parsed.Entries[0].Partitions) != len(want) {
			t.Errorf("%d partitions of %d in\n%s", len(parsed.Entries[0].Partitions), len(want), b.String())
		}
	})
}
