package launcher

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ponos-tools/ponos/lib/advise/gpu"
	"github.com/ponos-tools/ponos/lib/advise/launcher/cluster"
	"github.com/ponos-tools/ponos/lib/advise/launcher/file"
	"github.com/ponos-tools/ponos/lib/advise/launcher/request"
	"github.com/ponos-tools/ponos/lib/base/fault"
)

var errNoSlurm = fault.Errorf(fault.Unavailable, "scontrol: no controller")

func noSlurm(context.Context, *Launcher) (*cluster.Snapshot, error) { return nil, errNoSlurm }

func load(t testing.TB, text string) []*Launcher {
	t.Helper()
	f, err := file.Parse("launchers.yaml", []byte(text), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	return New(f, gpu.Builtin())
}

func testdata(t testing.TB, name string) string {
	t.Helper()
	text, err := os.ReadFile("testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func parse(t testing.TB, text string) request.Request {
	t.Helper()
	r, err := request.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// found returns the answer on one line: the launcher and its options.
func found(t testing.TB, s *Search, spec string) string {
	t.Helper()
	answer, err := s.Find(context.Background(), parse(t, spec))
	if err != nil {
		return "error: " + err.Error()
	}
	if answer == nil {
		return "none"
	}
	if answer.Local() {
		return answer.Launcher.Name
	}
	return strings.Join(append([]string{answer.Launcher.Name}, answer.Options.Args()...), " ")
}

// TestLab runs the requests of experimaestro's tests on a similar file. The search finds the
// same nodes, but always the smallest GPUs first, then in the order of the file, with padded times.
func TestLab(t *testing.T) {
	s := &Search{Launchers: load(t, testdata(t, "features.yaml"))}
	const a6000 = "(A6000&GPU3&GPUM48G)|(A6000&GPU2&GPUM48G)"
	for _, c := range []struct{ spec, want string }{
		{"duration=4 days & cuda(mem=24G) * 2", "lab --nodes=1 --time=96:00:00 --partition=electronic,hard --constraint=(GPU4&GPUM24G&RTX)|(A5000&GPU3&GPUM24G)|" +
			"(A6000&GPU3&GPUM48G)|(A6000&GPU2&GPUM48G) --gpus-per-node=2"},
		{"cuda(mem=40G)", "lab --nodes=1 --partition=hard --constraint=(A6000&GPU3&GPUM48G)|(A6000&GPU2&GPUM48G) --gpus-per-node=1"},
		{"cuda(mem=40G) * 3", "lab --nodes=1 --partition=hard --constraint=(A6000&GPU3&GPUM48G) --gpus-per-node=3"},
		{"cuda(mem=40G) * 4", "none"},
		{"cuda(mem=12G)*8", "lab --nodes=1 --partition=funky --constraint=(GPU8&GPUM12G&TITANX) --gpus-per-node=8"},
		// experimaestro finds nothing, as it takes unknown memory for none.
		{"duration=2 days & cpu(mem=2G) & partition=jazzy", "lab --nodes=1 --time=48:00:00 --partition=jazzy --constraint=(2080&GPU1&GPUM8G) --mem=1908M --cpus-per-task=1"},
		{"duration=3h & cuda(mem=4G)*1 & cpu(cores=2)", "lab --nodes=1 --time=03:00:00 --partition=jazzy --constraint=(2080&GPU1&GPUM8G) --cpus-per-task=2 --gpus-per-node=1"},
		{"cuda(mem=40G) & feature=GPU2", "lab --nodes=1 --partition=hard --constraint=(A6000&GPU2&GPUM48G) --gpus-per-node=1"},
		{"cuda(mem=20G)*2 & feature!=A?000", "lab --nodes=1 --partition=electronic --constraint=(GPU4&GPUM24G&RTX) --gpus-per-node=2"},
		{"cuda(mem=40G) & partition!=h*", "none"},
		{"cuda(mem=24G)*3 & host=daft", "lab --nodes=1 --partition=electronic --constraint=(GPU4&GPUM24G&RTX) --exclude=air --gpus-per-node=3"},
		{"cuda(mem=24G)*3 & host!=daft & partition=electronic", "lab --nodes=1 --partition=electronic --constraint=(GPU4&GPUM24G&RTX) --exclude=daft --gpus-per-node=3"},
		{"cuda(mem=24G)*3 & host!=?a* & nodes=2", "lab --nodes=2 --partition=hard --constraint=(A5000&GPU3&GPUM24G)|(A6000&GPU3&GPUM48G) --exclude=mayhem --gpus-per-node=3"},
		{"cuda(mem=24G)*3 & host=?a* & nodes=2", "none"},
		{"cuda(mem=24G)*2 & nodes=2", "lab --nodes=2 --partition=electronic,hard --constraint=(GPU4&GPUM24G&RTX)|(A5000&GPU3&GPUM24G)|(A6000&GPU3&GPUM48G)|(A6000&GPU2&GPUM48G) --gpus-per-node=2"},
		{"cuda(mem=40G) & nodes=2", "lab --nodes=2 --partition=hard --constraint=" + a6000 + " --gpus-per-node=1"},
		{"cuda(mem=40G) & nodes=3", "none"},
	} {
		if got := found(t, s, c.spec); got != c.want {
			t.Errorf("%s:\n got %s\nwant %s", c.spec, got, c.want)
		}
	}
	s.Tags = []string{"slurm"}
	if got := found(t, s, "cuda()"); got != "none" {
		t.Errorf("with a tag that no launcher has: %s", got)
	}
}

// TestDocumented runs the requests of experimaestro's documentation on the documented file.
func TestDocumented(t *testing.T) {
	launchers := load(t, testdata(t, "documented.yaml"))
	const documented = "duration=4 days & cuda(mem=4G) * 2 & cpu(mem=400M, cores=4)"
	for _, c := range []struct{ tags, spec, want string }{
		{"", documented, `error: launcher "auto": scontrol: no controller`},
		{"", "cpu(mem=400M, cores=4)", "local#1"},
		{"", "cpu(mem=4G, cores=4)", "local#2"}, // experimaestro finds local#1, as its cores suffice
		{"", "cuda(mem=8G)", "local#2"},
		{"", "cuda(model=gtx1080)", "local#2"},
		{"slurm", "cuda(mem=31G)*8 & duration=10h",
			"manual --nodes=1 --time=10:00:00 --account=iea@a100 --qos=qos_gpu-t3 --partition=gpu_p4 --constraint=(Tesla&a100) --gpus-per-node=8"},
		{"slurm", "cuda(mem=31G)*8 & duration=20h",
			"manual --nodes=1 --time=20:00:00 --account=iea@a100 --qos=qos_gpu-t3 --partition=gpu_p4 --constraint=(Tesla&a100) --gpus-per-node=8"},
		{"slurm", "cuda(mem=31G)*8 & duration=21h",
			"manual --nodes=1 --time=21:00:00 --account=iea@a100 --qos=qos_gpu-t4 --partition=gpu_p4 --constraint=(Tesla&a100) --gpus-per-node=8"},
		{"slurm", "cuda(mem=17G)*2", "manual --nodes=1 --partition=biggpus,smallgpus --constraint=(GPU2&GPUM24G) --gpus-per-node=2"},
		// experimaestro finds nothing, as the cores are unknown.
		{"slurm", "cuda(mem=17G) * 2 & cpu(mem=400M, cores=4)",
			"manual --nodes=1 --partition=biggpus,smallgpus --constraint=(GPU2&GPUM24G) --mem=382M --cpus-per-task=4 --gpus-per-node=2"},
		{"slurm", "cuda(mem=40G) & duration=200h", "manual --nodes=1 --time=200:00:00 --partition=biggpus --constraint=(GPU3&GPUM48G) --gpus-per-node=1"},
		{"slurm", documented, `error: launcher "auto": scontrol: no controller`},
	} {
		s := &Search{Launchers: launchers, Ask: noSlurm}
		if c.tags != "" {
			s.Tags = []string{c.tags}
		}
		if got := found(t, s, c.spec); got != c.want {
			t.Errorf("%q %s:\n got %s\nwant %s", c.tags, c.spec, got, c.want)
		}
	}
}

// TestExplainDocumented checks that the documented request finds nothing on the documented
// file, and that Explain says why.
func TestExplainDocumented(t *testing.T) {
	f, err := file.Parse("launchers.yaml", []byte(testdata(t, "documented.yaml")), nil, nil)
	if err != nil || len(f.Warnings) == 0 {
		t.Fatalf("%v, warnings %v", err, f.Warnings)
	}
	s := &Search{Launchers: New(f, gpu.Builtin()), Ask: noSlurm}
	rows, answer, err := s.Explain(context.Background(), parse(t, "duration=4 days & cuda(mem=4G) * 2 & cpu(mem=400M, cores=4)"))
	if answer != nil || !errors.Is(err, errNoSlurm) {
		t.Errorf("answer %v, %v; want none and that Slurm could not be asked", answer, err)
	}
	var got []string
	for _, r := range rows {
		texts := []string{}
		for _, why := range r.Reasons {
			texts = append(texts, why.Code+": "+why.Text())
		}
		got = append(got, fmt.Sprintf("%s/%s/%s %s: %s", r.Launcher, r.Partition, r.QOS, r.Verdict, strings.Join(texts, "; ")))
	}
	want := []string{
		"local#1// no: gpu_count: 2 GPUs requested, no GPU available",
		"local#2// no: gpu_count: 2 GPUs requested, 1 GPU available",
		"manual/biggpus/ no: gpu_min_memory: 4G of GPU memory requested, it accepts requests from 33.6G on (min_mem_ratio 0.7 of 48G)",
		"manual/biggpus/ no: gpu_min_memory: 4G of GPU memory requested, it accepts requests from 16.8G on (min_mem_ratio 0.7 of 24G)",
		"manual/smallgpus/ no: gpu_min_memory: 4G of GPU memory requested, it accepts requests from 16.8G on (min_mem_ratio 0.7 of 24G)",
		"manual/gpu_p4/qos_gpu-t3,qos_gpu-t4 no: gpu_min_memory: 4G of GPU memory requested, it accepts requests from 28GiB on (min_mem_ratio 0.7 of 40GiB)",
		"auto// no: unreachable: Slurm could not be asked: scontrol: no controller",
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// entry returns a Slurm launcher on one line.
func entry(rest string) string { return "slurm: [{id: x, " + rest + "}]" }

func TestSmallFiles(t *testing.T) {
	const (
		cpu    = "partitions: {p: {nodes: [{features: [f], configuration: {cpu: {cores: 32, memory: 128G}}}]}}"
		perCPU = "use_memory_contraint: false, partitions: {p: {nodes: [{features: [f], configuration: {cpu: {cores: 32, mem_per_cpu: 4GiB}}}]}}"
		two    = "configuration: {gpu: {count: 2, memory: 24G}}, partitions: {q: {nodes: [{features: [a]}]}, p: {priority: 10, nodes: [{features: [b]}]}}"
		mixed  = "local: [{gpus: [{model: small, count: 1, memory: 8G}, {model: big, count: 2, memory: 24G}]}]"
	)
	for _, c := range []struct{ name, yaml, spec, want string }{
		{"memory is rounded up", entry(cpu), "cpu(mem=16G)", "x --nodes=1 --partition=p --constraint=(f) --mem=15259M --cpus-per-task=1"},
		{"", entry(cpu), "cpu(mem=400M,cores=4)", "x --nodes=1 --partition=p --constraint=(f) --mem=382M --cpus-per-task=4"},
		{"never 0M, which is all memory", entry(cpu), "cpu(mem=500000)", "x --nodes=1 --partition=p --constraint=(f) --mem=1M --cpus-per-task=1"},
		{"each figure is checked", entry(cpu), "cpu(mem=129G)", "none"},
		{"each figure is checked", entry(cpu), "cpu(cores=33)", "none"},
		{"memory by CPUs", entry(perCPU), "cpu(mem=16GiB)", "x --nodes=1 --partition=p --constraint=(f) --cpus-per-task=4"},
		{"memory by CPUs", entry(perCPU), "cpu(mem=16GiB, cores=8)", "x --nodes=1 --partition=p --constraint=(f) --cpus-per-task=8"},
		{"more CPUs than there are", entry(perCPU), "cpu(mem=200GiB)", "none"},
		{"no mem_per_cpu", entry("use_memory_contraint: false, partitions: {p: {nodes: [{features: [f]}]}}"), "cpu(mem=16G)", "none"},
		{"higher priority first, both there", entry(two), "cuda()", "x --nodes=1 --partition=p,q --constraint=(b)|(a) --gpus-per-node=1"},
		{"no mixing with a partition without that QoS",
			entry("configuration: {gpu: {count: 1}}, partitions: {p: {priority: 10, nodes: [{features: [f]}]}, q: {qos: [q1], nodes: [{features: [f]}]}}"),
			"cuda()", "x --nodes=1 --partition=p --constraint=(f) --gpus-per-node=1"},
		{"accounts in order", entry("partitions: {p: {accounts: [a1, a2], nodes: [{features: [f]}]}, q: {accounts: [a2], nodes: [{features: [f]}]}}"),
			"cpu()", "x --nodes=1 --account=a1 --partition=p --constraint=(f) --cpus-per-task=1"},
		{"another account", entry("partitions: {p: {accounts: [a1, a2], nodes: [{features: [f]}]}, q: {accounts: [a2], nodes: [{features: [f]}]}}"),
			"cpu() & account=a2", "x --nodes=1 --account=a2 --partition=p,q --constraint=(f) --cpus-per-task=1"},
		{"a QoS that the file does not describe", entry("partitions: {p: {qos: [z], nodes: [{features: [f]}]}}"), "cpu()",
			"x --nodes=1 --qos=z --partition=p --constraint=(f) --cpus-per-task=1"},
		{"a QoS may lengthen", entry("configuration: {max_duration: 5h}, qos: {q: {max_duration: 10h}}, partitions: {p: {qos: [q], configuration: {max_duration: 2h}, nodes: [{features: [f]}]}}"),
			"duration=10h", "x --nodes=1 --time=10:00:00 --qos=q --partition=p --constraint=(f)"},
		{"min_mem_ratio of a partition counts", entry("partitions: {p: {configuration: {gpu: {count: 1, memory: 64G, min_mem_ratio: 0.7}}, nodes: [{features: [f]}]}}"),
			"cuda(mem=44G)", "none"},
		{"the ratio's own figure", entry("partitions: {p: {configuration: {gpu: {count: 1, memory: 64G, min_mem_ratio: 0.7}}, nodes: [{features: [f]}]}}"),
			"cuda(mem=44.8G)", "x --nodes=1 --partition=p --constraint=(f) --gpus-per-node=1"},
		{"any GPU is any GPU", entry("partitions: {p: {configuration: {gpu: {count: 1, memory: 64G, min_mem_ratio: 0.7}}, nodes: [{features: [f]}]}}"),
			"cuda()", "x --nodes=1 --partition=p --constraint=(f) --gpus-per-node=1"},
		{"no features, no constraint", entry("configuration: {gpu: {count: 1}}, partitions: {p: {nodes: [{count: 3}]}}"), "cuda()", "x --nodes=1 --partition=p --gpus-per-node=1"},
		{"no empty clause: all nodes match", entry("configuration: {gpu: {count: 1}}, partitions: {p: {nodes: [{count: 3}, {features: [x, y]}]}}"),
			"cuda()", "x --nodes=1 --partition=p --gpus-per-node=1"},
		{"no empty clause: the others are left out by name",
			entry("partitions: {p: {configuration: {gpu: {count: 1, memory: 24G}}, nodes: [{hosts: [a]}, {hosts: [b], features: [x], configuration: {gpu: {memory: 8G}}}]}}"),
			"cuda(mem=20G)", "x --nodes=1 --partition=p --exclude=b --gpus-per-node=1"},
		{"no empty clause: or not taken at all",
			entry("partitions: {p: {configuration: {gpu: {count: 1, memory: 24G}}, nodes: [{count: 1}, {count: 1, features: [x], configuration: {gpu: {memory: 8G}}}]}}"),
			"cuda(mem=20G)", "none"},
		{"features first", entry("partitions: {p: {configuration: {gpu: {count: 1, memory: 24G}}, nodes: [{count: 1, configuration: {gpu: {memory: 8G}}}, {count: 1, features: [x]}]}}"),
			"cuda(mem=20G)", "x --nodes=1 --partition=p --constraint=(x) --gpus-per-node=1"},
		{"no cross product: the features of p are those of small nodes in q",
			entry("partitions: {p: {configuration: {gpu: {count: 1, memory: 24G}}, nodes: [{features: [f]}]}, q: {nodes: [{features: [f], configuration: {gpu: {count: 1, memory: 8G}}}, {features: [g], configuration: {gpu: {count: 1, memory: 24G}}}]}}"),
			"cuda(mem=20G)", "x --nodes=1 --partition=p --constraint=(f) --gpus-per-node=1"},
		{"GPUs by Slurm's type", entry("partitions: {p: {nodes: [{configuration: {gpu: {gres_type: a100, count: 4, memory: 40G}}}, {configuration: {gpu: {gres_type: t4, count: 4, memory: 16G}}}]}}"),
			"cuda(mem=20G)*2", "x --nodes=1 --partition=p --gpus-per-node=a100:2"},
		{"two types on a node", entry("partitions: {p: {nodes: [{features: [f], configuration: {gpus: [{gres_type: a100, count: 1, memory: 40G}, {gres_type: t4, count: 2, memory: 16G}]}}]}}"),
			"cuda(mem=20G) & cuda(mem=10G)", "x --nodes=1 --partition=p --constraint=(f) --gpus-per-node=a100:1,t4:1"},
		{"one type in two sizes", entry("partitions: {p: {nodes: [{configuration: {gpus: [{gres_type: a100, count: 2, memory: 40G}, {gres_type: a100, count: 3, memory: 80G}]}}, {configuration: {gpu: {gres_type: t4, count: 8, memory: 16G}}}]}}"),
			"cuda(mem=20G)*3", "x --nodes=1 --partition=p --gpus-per-node=a100:3"},
		{"one type in two sizes, of which the wrong one could be given", entry("partitions: {p: {nodes: [{configuration: {gpus: [{gres_type: a100, count: 2, memory: 40G}, {gres_type: a100, count: 3, memory: 80G}]}}]}}"),
			"cuda(mem=60G)*3", "none"},
		{"use_features: false", entry("use_features: false, partitions: {p: {nodes: [{hosts: [a, b], features: [f]}]}}"), "cpu()", "x --nodes=1 --partition=p --cpus-per-task=1 --nodelist=a"},
		{"use_features: false without hosts", entry("use_features: false, partitions: {p: {nodes: [{count: 4, features: [f]}]}}"), "cpu()", "x --nodes=1 --partition=p --cpus-per-task=1"},
		{"use_hosts: false", entry("use_features: false, use_hosts: false, partitions: {p: {nodes: [{hosts: [a], features: [f]}]}}"), "cpu()", "x --nodes=1 --partition=p --cpus-per-task=1"},
		{"no nodes", entry("configuration: {gpu: {count: 4}}, partitions: {p: {}}"), "cuda()", "none"},
		{"null is empty", "slurm: [{id: x, configuration: null, partitions: {p: {nodes: [{features: [f]}]}, q: }}]", "cpu()", "x --nodes=1 --partition=p --constraint=(f) --cpus-per-task=1"},
		{"disabled", "local: [{disable: true}, {id: second}]", "cpu()", "second"},
		{"mixed machine", mixed, "cuda(mem=20G)", "local#1"},
		{"mixed machine", mixed, "cuda(mem=8G) & cuda(mem=24G)", "local#1"},
		{"mixed machine", mixed, "cuda(mem=8G)*2 & cuda(mem=24G)", "local#1"},
		{"mixed machine", mixed, "cuda(mem=20G)*3", "none"},
		{"mixed machine", mixed, "cuda(mem=4G)*4", "none"},
		{"mixed machine", mixed, "gpu(model=big)*2 & gpu(model=small)", "local#1"},
		{"memory by features", entry("features: {big: {configuration: {gpu: {memory: 80G}}}}, partitions: {p: {configuration: {gpu: {count: 1, memory: 40G}}, nodes: [{features: [big]}]}}"),
			"cuda(mem=60G)", "x --nodes=1 --partition=p --constraint=(big) --gpus-per-node=1"},
		{"node ranges", entry("use_features: false, partitions: {p: {nodes: [{hosts: ['n[08-10]']}]}}"), "nodes=3", "x --nodes=3 --partition=p --nodelist=n08,n09,n10"},
		{"one node in each partition is not two", entry("partitions: {p: {nodes: [{hosts: [a], features: [f]}]}, q: {nodes: [{hosts: [b], features: [f]}]}}"), "nodes=2", "none"},
		{"weight", "local: [{id: a, weight: 1}, {id: b, weight: 2.5}, {id: c, weight: 2.5}]", "cpu()", "b"},
		{"alternatives before weight", "local: [{id: a, weight: 1, cpu: {cores: 8}}, {id: b, weight: 2}]", "cpu(cores=8) | cpu()", "a"},
		{"aliases and merges", "slurm: [{id: x, partitions: {p: &p {nodes: [{features: &f [a]}]}, q: {<<: *p, priority: 1}, r: {nodes: [{features: *f}]}}}]", "cpu()",
			"x --nodes=1 --partition=q,p,r --constraint=(a) --cpus-per-task=1"},
	} {
		s := &Search{Launchers: load(t, c.yaml)}
		if got := found(t, s, c.spec); got != c.want {
			t.Errorf("%s: %s in %s:\n got %s\nwant %s", c.name, c.spec, c.yaml, got, c.want)
		}
	}
}

func TestTags(t *testing.T) {
	launchers := load(t, "local: [{id: a, weight: 3}, {id: b, tags: [big], weight: 1}, {id: c, tags: [here, fast], weight: 2}]")
	for tags, want := range map[string]string{"": "a", "big here": "c", "big": "b", "none": "none"} {
		s := &Search{Launchers: launchers, Tags: strings.Fields(tags)}
		if got := found(t, s, "cpu()"); got != want {
			t.Errorf("%q: %s; want %s", tags, got, want)
		}
	}
}

// TestMachine runs experimaestro's cases of whether a machine matches.
func TestMachine(t *testing.T) {
	const (
		cudaHost = "local: [{cpu: {cores: 8, memory: 64G}, gpus: [{model: g, count: 1, memory: 24G}]}]"
		mpsHost  = "local: [{cpu: {cores: 8, memory: 32G}, gpus: [{kind: mps, model: g, count: 1, memory: 32G}]}]"
	)
	for _, c := range []struct{ yaml, spec, want string }{
		{"local: [{cpu: {memory: 12G}, gpus: [{model: g, count: 1, memory: 48G}]}]", "cuda(mem=14G)*2 & cpu(mem=7G) | cuda(mem=10G) & cpu(mem=7G)", "2"},
		{"local: [{gpus: [{model: g, count: 1, memory: 48G, min_memory: 24G}]}]", "cuda(mem=20G)", "none"},
		{"local: [{gpus: [{model: g, count: 1, memory: 48G, min_memory: 24G}]}]", "cuda(mem=50G)", "none"},
		{"local: [{gpus: [{model: g, count: 1, memory: 48G, min_memory: 24G}]}]", "cuda(mem=30G)", "1"},
		{"local: [{gpus: [{model: g, count: 1, memory: 8G}]}]", "cuda(mem=16G)", "none"},
		{cudaHost, "cuda(mem=16G)", "1"}, {cudaHost, "mps(mem=8G)", "none"}, {cudaHost, "gpu(mem=8G)", "1"},
		{mpsHost, "mps(mem=8G)", "1"}, {mpsHost, "cuda(mem=8G)", "none"}, {mpsHost, "gpu(mem=8G)", "1"},
		{mpsHost, "gpu(mem=8G) & cpu(mem=16G)", "1"}, {mpsHost, "gpu(mem=16G) & cpu(mem=20G)", "none"}, {mpsHost, "gpu(mem=16G) & cpu(mem=16G)", "1"},
		{cudaHost, "cuda(mem=20G) & cpu(mem=30G)", "1"},
		{cudaHost, "cuda(mem=8G) | mps(mem=8G)", "1"}, {mpsHost, "cuda(mem=8G) | mps(mem=8G)", "2"},
	} {
		s := &Search{Launchers: load(t, c.yaml)}
		answer, err := s.Find(context.Background(), parse(t, c.spec))
		got := "none"
		if answer != nil {
			got = fmt.Sprint(answer.Alternative + 1)
		}
		if got != c.want || err != nil {
			t.Errorf("%s on %s: alternative %s, %v; want %s", c.spec, c.yaml, got, err, c.want)
		}
	}
}

// TestClusters holds the search of two clusters, as real ones describe themselves: the preferred one first, and one that
// does not answer passed over, unless nothing else matches.
func TestClusters(t *testing.T) {
	read := func(path string) string {
		text, err := os.ReadFile(filepath.Join("../../slurm/testdata", path))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	asks := map[string]func(context.Context, *Launcher) (*cluster.Snapshot, error){
		"old": saying(t, read("22.05.8/show_nodes_oneline.txt"), read("22.05.8/show_partitions_oneline.txt"), "", ""),
		"new": saying(t, read("26.05.5/node-lines.txt"), read("26.05.5/partitions.txt"), "", ""),
		"away": func(context.Context, *Launcher) (*cluster.Snapshot, error) {
			return nil, errors.New("scontrol: error: No cluster 'away' known by database.")
		},
	}
	for _, c := range []struct {
		clusters, request string
		want              string // the cluster of the answer
		notes             int
	}{
		{"old,new", "cpu()", "old", 0}, {"new,old", "cpu()", "new", 0}, {"new,old", "cuda(mem=14G) * 2", "new", 0}, {"away,old", "cpu()", "old", 1},
		{"old,away", "cpu()", "old", 0}, {"away,new,old", "cuda(mem=14G) * 2", "new", 1}, {"away,old", "cuda(mem=900G)", "", 0}, {"away", "cpu()", "", 0},
		{"away,old", "cuda(mem=900G) | cpu()", "old", 1},
	} {
		search := func() *Search {
			return &Search{
				Launchers: New(Clusters(strings.Split(c.clusters, ",")), gpu.Builtin()),
				Ask: func(ctx context.Context, l *Launcher) (*cluster.Snapshot, error) {
					return asks[l.Entry.Cluster](ctx, l)
				},
			}
		}
		surveyed, surveyErr := search().Survey(t.Context())
		if away := strings.Contains(c.clusters, "away"); (surveyErr != nil) != away || (surveyed == nil) != (c.clusters == "away") {
			t.Errorf("%s: %v, %v", c.clusters, surveyed, surveyErr)
		}
		r, err := request.Parse(c.request)
		if err != nil {
			t.Fatal(err)
		}
		answer, err := search().Find(t.Context(), r)
		all, allErr := search().All(t.Context(), r, 1)
		_, explained, explainErr := search().Explain(t.Context(), r)
		if c.want == "" {
			for _, err := range []error{err, allErr, explainErr} {
				if !fault.Is(err, fault.Unavailable) || answer != nil || len(all) > 0 || explained != nil {
					t.Errorf("%s in %s: %v", c.request, c.clusters, err)
				}
			}
			continue
		}
		if err != nil || allErr != nil || explainErr != nil || len(all) != 1 {
			t.Errorf("%s in %s: %v, %v, %v", c.request, c.clusters, err, allErr, explainErr)
			continue
		}
		for _, a := range []*Answer{answer, all[0], explained} {
			if a.Launcher.Name != c.want || a.Options.Value("clusters") != c.want || len(a.Notes) != c.notes {
				t.Errorf("%s in %s: %s, %v, notes %v", c.request, c.clusters, a.Launcher.Name, a.Options.Args(), a.Notes)
			}
		}
	}
}
