package launcher

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/ponos-tools/ponos/lib/advise/gpu"
	"github.com/ponos-tools/ponos/lib/advise/launcher/file"
	"github.com/ponos-tools/ponos/lib/advise/launcher/request"
	"github.com/ponos-tools/ponos/lib/base/unit"
	"github.com/ponos-tools/ponos/lib/slurm/sbatch"
)

const rounds = 800

// randomFile describes a random Slurm cluster, with many features and with nodes that differ in
// one figure only. With unique, each group has a feature of its own.
func randomFile(r *rand.Rand, unique bool) string {
	var b strings.Builder
	pick := func(words ...string) string { return words[r.IntN(len(words))] }
	b.WriteString("slurm:\n  - id: x\n")
	if r.IntN(4) == 0 {
		fmt.Fprintf(&b, "    configuration: {max_duration: %s, gpu: {min_mem_ratio: %s}}\n", pick("2h", "10h"), pick("0", "0.5"))
	}
	if r.IntN(3) == 0 && !unique {
		b.WriteString("    use_hosts: false\n")
	}
	b.WriteString("    qos: {q1: {max_duration: 5h, min_gpu: 1}, q2: {max_duration: 20h}}\n    partitions:\n")
	host := 0
	for p := range 1 + r.IntN(4) {
		fmt.Fprintf(&b, "      p%d:\n        priority: %d\n", p, r.IntN(2))
		if r.IntN(3) == 0 {
			b.WriteString("        qos: " + pick("[q1]", "[q1, q2]", "[q2]") + "\n")
		}
		if r.IntN(3) == 0 {
			b.WriteString("        accounts: " + pick("[a]", "[a, b]") + "\n")
		}
		b.WriteString("        nodes:\n")
		for range 1 + r.IntN(4) {
			var features []string
			for _, f := range []string{"f", "g", "h"} {
				if r.IntN(2) == 0 {
					features = append(features, f)
				}
			}
			if unique {
				features = append(features, fmt.Sprintf("only%d", host))
			}
			gpu := func() string {
				g := fmt.Sprintf("{count: %d, memory: %s", 1+r.IntN(4), pick("8G", "16G", "24G", "40G"))
				if r.IntN(2) == 0 {
					g += ", gres_type: " + pick("t4", "a100")
				}
				return g + "}"
			}
			figures := fmt.Sprintf("cpu: {cores: %s, memory: %s}", pick("0", "4", "16"), pick("0", "8G", "64G"))
			switch r.IntN(4) {
			case 0:
			case 1:
				if !unique {
					figures += ", gpus: [" + gpu() + ", " + gpu() + "]"
				}
			default:
				figures += ", gpu: " + gpu()
			}
			if r.IntN(5) == 0 {
				figures += ", max_duration: " + pick("1h", "30h")
			}
			fmt.Fprintf(&b, "          - {features: [%s], hosts: ['n[%d-%d]'], configuration: {%s}}\n", strings.Join(features, ", "), host, host+r.IntN(3), figures)
			host += 3
		}
	}
	return b.String()
}

func randomRequest(r *rand.Rand) string {
	pick := func(words ...string) string { return words[r.IntN(len(words))] }
	var terms []string
	if r.IntN(4) > 0 {
		terms = append(terms, fmt.Sprintf("%s(mem=%s) * %d", pick("cuda", "gpu"), pick("0", "6G", "14G", "20G", "40G"), 1+r.IntN(3)))
	}
	if r.IntN(5) == 0 {
		terms = append(terms, pick("cuda(mem=20G)", "cuda(model=a100)"))
	}
	if r.IntN(2) == 0 {
		terms = append(terms, fmt.Sprintf("cpu(mem=%s, cores=%s)", pick("1G", "10G", "60G"), pick("1", "8", "16")))
	}
	if r.IntN(2) == 0 {
		terms = append(terms, "duration="+pick("1h", "4h", "8h", "25h"))
	}
	if r.IntN(5) == 0 {
		terms = append(terms, pick("nodes=2", "partition!=p0", "feature=f", "feature!=g", "host!=n1", "host=n?", "host=n3"))
	}
	if len(terms) == 0 {
		return "cpu()"
	}
	return strings.Join(terms, " & ")
}

// slurmGives reports whether Slurm could place a job with these options on nodes of the group.
// It considers nothing but the options.
func slurmGives(g *group, o sbatch.Options) bool {
	if !slices.Contains(strings.Split(o.Value("partition"), ","), g.partition.name) {
		return false
	}
	if c := o.Value("constraint"); c != "" {
		fits := false
		for clause := range strings.SplitSeq(c, "|") {
			all := true
			for f := range strings.SplitSeq(strings.Trim(clause, "()"), "&") {
				all = all && slices.Contains(g.features, f)
			}
			fits = fits || all
		}
		if !fits {
			return false
		}
	}
	if out := o.Value("exclude"); out != "" && !slices.ContainsFunc(g.names(), func(h string) bool { return !slices.Contains(strings.Split(out, ","), h) }) {
		return false
	}
	if only := o.Value("nodelist"); only != "" && !slices.ContainsFunc(g.names(), func(h string) bool { return slices.Contains(strings.Split(only, ","), h) }) {
		return false
	}
	for want := range strings.SplitSeq(o.Value("gpus-per-node"), ",") {
		name, number, typed := strings.Cut(want, ":")
		if !typed {
			name, number = "", want
		}
		n, _ := strconv.Atoi(number)
		have := 0
		for _, x := range g.gpus {
			if name == "" || x.gres == name {
				have = min(anyNumber, have+x.count)
			}
		}
		if have < n {
			return false
		}
	}
	cores, _ := strconv.Atoi(o.Value("cpus-per-task"))
	if g.cores > 0 && cores > g.cores {
		return false
	}
	mib, _ := strconv.ParseInt(strings.TrimSuffix(o.Value("mem"), "M"), 10, 64)
	return g.memory == 0 || mib<<20 < g.memory+1<<20
}

// satisfies reports whether nodes of the group satisfy the request. It is independent of the
// search, and for one kind of GPU per node.
func satisfies(g *group, a request.Alternative, o sbatch.Options) bool {
	for _, w := range a.GPUs {
		have := 0
		for _, x := range g.gpus {
			// The job gets the GPUs of the types it names, or any.
			if types := o.Value("gpus-per-node"); strings.Contains(types, ":") && !strings.Contains(","+types, ","+x.gres+":") {
				continue
			}
			if x.least >= w.Memory && (w.Memory == 0 || float64(w.Memory) >= float64(x.least)*x.ratio-1) && (len(w.Models) == 0 || x.gres == w.Models[0]) {
				have += x.count
			} else if len(a.GPUs) == 1 {
				return false // it could be given this one
			}
		}
		if have < w.Count {
			return false
		}
	}
	return (g.cores == 0 || a.Cores <= g.cores) && (g.memory == 0 || a.Memory <= g.memory)
}

func partitionsOf(l *Launcher) []*group {
	var all []*group
	for _, p := range l.partitions {
		all = append(all, p.groups...)
	}
	return all
}

// TestFoundSatisfies checks that every group of nodes that Slurm could choose by the options
// found satisfies the request.
func TestFoundSatisfies(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	count := 0
	for range rounds {
		text, spec := randomFile(r, false), randomRequest(r)
		s := &Search{Launchers: load(t, text)}
		asked := parse(t, spec)
		answer, err := s.Find(context.Background(), asked)
		if err != nil {
			t.Fatal(err)
		}
		if answer == nil {
			continue
		}
		count++
		some := false
		for _, g := range partitionsOf(answer.Launcher) {
			if slurmGives(g, answer.Options) {
				some = true
				for _, h := range g.names() {
					if !strings.Contains(","+answer.Options.Value("exclude")+",", ","+h+",") && answer.Options.Value("nodelist") == "" && !holds(asked.Alternatives[0].Where, "host", h) {
						t.Fatalf("%s\nrequest %s\nfound %v\nbut %s is not left out", text, spec, answer.Options.Args(), h)
					}
				}
				if !satisfies(g, asked.Alternatives[0], answer.Options) {
					t.Fatalf("%s\nrequest %s\nfound %v\nbut the nodes %v of %s do not satisfy it", text, spec, answer.Options.Args(), g.hosts, g.partition.name)
				}
			}
		}
		if !some {
			t.Fatalf("%s\nrequest %s\nfound %v\nbut no nodes can be given", text, spec, answer.Options.Args())
		}
		if d := asked.Alternatives[0].Duration; d > 0 && answer.Options.Value("time") != unit.FormatTime(d) {
			t.Fatalf("duration %v: %v", d, answer.Options.Args())
		}
	}
	if count < rounds/10 {
		t.Errorf("only %d of %d requests found something", count, rounds)
	}
}

// TestFewFeatures checks that the few features of an answer select what all of them would: of random nodes of Slurm, only those
// that have the memory.
func TestFewFeatures(t *testing.T) {
	short := 0
	for seed := range uint64(400) {
		r := rand.New(rand.NewPCG(seed, 37))
		var nodes strings.Builder
		for i := range 2 + r.IntN(5) {
			size := []string{"40", "80"}[r.IntN(2)]
			features := []string{[]string{"vram" + size, "a100-" + size + "gb", "GPU_MEM:" + size + "GB"}[r.IntN(3)]}
			for _, f := range []string{"ib", "rome", "milan", "nvlink", "rack1"} {
				if r.IntN(2) == 0 {
					features = append(features, f)
				}
			}
			fmt.Fprintf(&nodes, "NodeName=n%d CPUTot=8 RealMemory=64000 Gres=gpu:a100:%d AvailableFeatures=%s State=IDLE Partitions=%s\n",
				i, 1+r.IntN(4), strings.Join(features, ","), []string{"p", "q", "p,q"}[r.IntN(3)])
		}
		s := &Search{Launchers: []*Launcher{Direct(gpu.Builtin())}, Ask: saying(t, nodes.String(), "PartitionName=p State=UP\nPartitionName=q State=UP", "", "")}
		asked := parse(t, fmt.Sprintf("cuda(mem=60G) * %d", 1+r.IntN(3)))
		answer, err := s.Find(t.Context(), asked)
		if err != nil {
			t.Fatal(err)
		}
		if answer == nil {
			continue
		}
		constraint := answer.Options.Value("constraint")
		for clause := range strings.SplitSeq(constraint, "|") {
			if constraint != "" && !strings.Contains(clause, "&") {
				short++
			}
		}
		given := 0
		for _, p := range s.Launchers[0].partitions {
			for _, g := range p.groups {
				if slurmGives(g, answer.Options) {
					given++
					if !satisfies(g, asked.Alternatives[0], answer.Options) {
						t.Errorf("seed %d: %s could give %s\n%s", seed, answer.Options.Args(), g.nodeList(), &nodes)
					}
				}
			}
		}
		if given == 0 {
			t.Errorf("seed %d: %s select nothing\n%s", seed, answer.Options.Args(), &nodes)
		}
	}
	if short < 100 {
		t.Errorf("%d times one feature", short)
	}
}

// TestNothingIsMissed checks that something is found whenever a candidate matches, if each
// group can be selected by a feature.
func TestNothingIsMissed(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for range rounds {
		text, spec := randomFile(r, true), randomRequest(r)
		l := load(t, text)[0]
		a := parse(t, spec).Alternatives[0]
		matching, _ := l.candidates(&a)
		answer := (&Search{}).find(l, &asked{Alternative: a, refused: map[*Launcher][]*candidate{}})
		if (len(matching) > 0) != (answer != nil) && a.Nodes < 2 {
			t.Fatalf("%s\nrequest %s\n%d candidates match; answer %v", text, spec, len(matching), answer)
		}
	}
}

// TestLowerWeightChangesNothing checks that a launcher of lower weight never changes the
// answer, and that among equal weights the order of the file decides.
func TestLowerWeightChangesNothing(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	for range rounds / 3 {
		spec := randomRequest(r)
		one, two := load(t, randomFile(r, false))[0], load(t, randomFile(r, false))[0]
		one.Entry.Weight, two.Entry.Weight, two.Name = 2, 1, "y"
		alone := found(t, &Search{Launchers: []*Launcher{one}}, spec)
		second := found(t, &Search{Launchers: []*Launcher{two}}, spec)
		f := &file.File{Entries: []file.Entry{*two.Entry, *one.Entry}}
		f.Entries[0].ID = "y"
		want := alone
		if want == "none" {
			want = second
		}
		if got := found(t, &Search{Launchers: New(f, gpu.Builtin())}, spec); got != want {
			t.Fatalf("request %s: %s alone, %s with a launcher of lower weight", spec, alone, got)
		}
		f.Entries[1].Weight = 1
		if want = second; want == "none" {
			want = alone
		}
		for range 2 {
			if got := found(t, &Search{Launchers: New(f, gpu.Builtin())}, spec); got != want {
				t.Fatalf("request %s: %s, though %s is first in the file", spec, got, want)
			}
		}
	}
}

// TestAssign compares assign with trying all assignments.
func TestAssign(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	for range rounds {
		var have []gpuSet
		for range 1 + r.IntN(3) {
			g := gpuSet{kind: []string{"cuda", "mps"}[r.IntN(2)], is: &facts{}, count: 1 + r.IntN(2), least: int64(1 + r.IntN(4))}
			g.most = g.least
			g.floor = int64(r.IntN(int(g.most) + 1))
			have = append(have, g)
		}
		var want []request.GPU
		for range 1 + r.IntN(3) {
			want = append(want, request.GPU{Kind: []request.Kind{"cuda", "mps", "gpu"}[r.IntN(3)], Count: 1 + r.IntN(2), Memory: int64(1 + r.IntN(4))})
		}
		left := make([]int, len(have))
		for i := range have {
			left[i] = have[i].count
		}
		got, possible := assign(have, want, sure), tryAll(have, want, left, 0, 0)
		if (got != nil) != possible {
			t.Fatalf("have %+v, want %+v: assigned %v, possible %v", have, want, got, possible)
		}
		for i := range got {
			if got[i] > have[i].count {
				t.Fatalf("have %+v, assigned %v", have, got)
			}
		}
	}
}

func tryAll(have []gpuSet, want []request.GPU, left []int, i, n int) bool {
	if i == len(want) {
		return true
	}
	if n == want[i].Count {
		return tryAll(have, want, left, i+1, 0)
	}
	for j := range have {
		if left[j] > 0 && sure(&have[j], &want[i]) {
			left[j]--
			ok := tryAll(have, want, left, i, n+1)
			left[j]++
			if ok {
				return true
			}
		}
	}
	return false
}
