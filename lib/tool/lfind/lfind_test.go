package lfind

import (
	"bytes"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ponos-tools/ponos/testscripts/answers"
)

// launchers is a machine with one GPU, and a cluster that is described.
const launchers = `
local:
  - connector: local
    weight: 4
    tags: [here]
    tokens: { gpu: 1 }
    cpu: { cores: 8, memory: 16G }
    gpu: [{ model: GTX1080, count: 1, memory: 8116MiB }]
slurm:
  - id: cluster
    tags: [slurm, big]
    weight: 3
    configuration: { max_duration: 20h }
    partitions:
      small:
        nodes:
          - hosts: [a1, a2]
            features: [old]
            configuration: { gpu: { model: t4, count: 2, memory: 15GiB }, cpu: { cores: 16, memory: 64G } }
      large:
        nodes:
          - hosts: [b1]
            features: [new]
            configuration: { gpu: { model: a100, count: 8, memory: 80GiB }, cpu: { cores: 64, memory: 512G } }
`

// place is a directory for a test, with the user's own configuration empty.
func place(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Chdir(dir)
	t.Setenv("HOME", filepath.Join(dir, "home"))
	for _, name := range []string{"LFIND_CONFIG", "XDG_CONFIG_HOME", "XDG_CACHE_HOME", "SLURM_CONF", "PONOS_GPUS"} {
		t.Setenv(name, "")
	}
	t.Setenv("LFIND_TOKENS", filepath.Join(dir, "held"))
	return dir
}

// lfind runs the tool.
func lfind(t *testing.T, stdin string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	code = run(t.Context(), append([]string{"lfind"}, args...), strings.NewReader(stdin), &out, &errs)
	return code, out.String(), errs.String()
}

// check compares what the tool did.
type expected struct {
	name   string
	args   []string
	stdin  string
	code   int
	stdout string
	stderr string
}

func (e *expected) test(t *testing.T) {
	t.Helper()
	name := e.name
	if name == "" {
		name = strings.Join(e.args, " ")
	}
	code, stdout, stderr := lfind(t, e.stdin, e.args...)
	if code != e.code || stdout != e.stdout || stderr != e.stderr {
		t.Errorf("%s: exit status %d\n%s--\n%s, want %d\n%s--\n%s", name, code, stdout, stderr, e.code, e.stdout, e.stderr)
	}
}

// What is found, in all forms, and what is not.
func TestFind(t *testing.T) {
	place(t, map[string]string{
		"l.yaml": launchers, "spec": "# a remark\ncuda(mem=40G) * 2\n  & duration = 2h\n", "wrong": "cuda()\n& cuda(mem=4Gog)\n",
		"bad.yaml": "local:\n  - wieght: 4\n",
	})
	const large = "--nodes=1 --time=02:00:00 --partition=large --constraint=(new) --gpus-per-node=2\n"
	for _, tt := range []expected{
		{args: []string{"-c", "l.yaml", "cuda(mem=40G) * 2 & duration=2h"}, stdout: large},
		{args: []string{"-c", "l.yaml", "@spec"}, stdout: large},
		{name: "from standard input", args: []string{"-c", "l.yaml"}, stdin: "cuda(mem=40G) * 2 & duration=2h", stdout: large},
		{args: []string{"-c", "l.yaml", "-"}, stdin: "cuda(mem=40G) * 2 & duration=2h", stdout: large},
		{args: []string{"-c", "l.yaml", "-f", "lines", "cuda(mem=40G) * 2"}, stdout: "--nodes=1\n--partition=large\n--constraint=(new)\n--gpus-per-node=2\n"},
		{args: []string{"-c", "l.yaml", "-f", "args0", "cuda(mem=40G)"}, stdout: "--nodes=1\x00--partition=large\x00--constraint=(new)\x00--gpus-per-node=1\x00"},
		{args: []string{"-c", "l.yaml", "-f", "script", "cuda(mem=40G)"}, stdout: "#SBATCH --nodes=1\n#SBATCH --partition=large\n#SBATCH --constraint=(new)\n#SBATCH --gpus-per-node=1\n"},
		{args: []string{"-c", "l.yaml", "-f", "env", "cuda(mem=40G)"}, stdout: "export SBATCH_PARTITION=large\nexport SBATCH_CONSTRAINT='(new)'\nexport SBATCH_GPUS_PER_NODE=1\nexport LFIND_ARGS=--nodes=1\n"},
		{name: "a local launcher comes first", args: []string{"-c", "l.yaml", "cuda()"}, code: 1, stderr: "lfind: launcher \"local#1\" matches first, and is not Slurm: there are no options of sbatch for it\nlfind: hint: \"lfind run\" runs a command there, --kind slurm searches Slurm only, --json describes the launcher\n"},
		{args: []string{"-c", "l.yaml", "--kind", "slurm", "cuda()"}, stdout: "--nodes=1 --partition=small,large --constraint=(old)|(new) --gpus-per-node=1\n"},
		{args: []string{"-c", "l.yaml", "-t", "big", "cuda() & partition=large"}, stdout: "--nodes=1 --partition=large --constraint=(new) --gpus-per-node=1\n"},
		{name: "the second alternative", args: []string{"-q", "-c", "l.yaml", "cuda(mem=500G)", "cuda(mem=40G)"}, stdout: "--nodes=1 --partition=large --constraint=(new) --gpus-per-node=1\n"},
		{name: "options are set and removed", args: []string{"-c", "l.yaml", "--set", "nodes=2", "--set", "mail_type=END", "--set", "constraint=", "--set", "exclusive", "cuda(mem=40G)"},
			stdout: "--nodes=2 --partition=large --gpus-per-node=1 --exclusive --mail-type=END\n"},
		{name: "nothing", args: []string{"-c", "l.yaml", "cuda(mem=100G)"}, code: 1, stderr: "lfind: nothing matches cuda(mem=100G)\nlfind: hint: nearest miss: 1 node of large: 100G of GPU memory requested, 80GiB available; \"lfind explain\" shows the reasons\n"},
		{name: "too long", args: []string{"-c", "l.yaml", "--kind=slurm", "cuda() & duration=21h"}, code: 1, stderr: "lfind: nothing matches duration=21h & cuda()\nlfind: hint: nearest miss: 3 nodes of small, large: 21h requested, 20h allowed; \"lfind explain\" shows the reasons\n"},
		{name: "a misspelt tag", args: []string{"-c", "l.yaml", "-t", "slrum", "cuda()"}, code: 1,
			stderr: "lfind: warning: no launcher has the tag \"slrum\"; did you mean \"slurm\"?\nlfind: nothing matches cuda()\nlfind: hint: nearest miss: launcher local#1, launcher cluster: it has none of the requested tags; \"lfind explain\" shows the reasons\n"},
		{name: "a time as a tag", args: []string{"-c", "l.yaml", "-t", "2h", "cuda()"}, code: 1,
			stderr: "lfind: warning: no launcher has the tag \"2h\"; for a time limit, write duration=2h\nlfind: nothing matches cuda()\nlfind: hint: nearest miss: launcher local#1, launcher cluster: it has none of the requested tags; \"lfind explain\" shows the reasons\n"},

		// Options of sbatch.
		{args: []string{"-c", "4", "cuda()"}, code: 2,
			stderr: "lfind: open 4: no such file or directory\nlfind: hint: -c is --config; for CPUs, write cpu(cores=4)\n"},
		{args: []string{"--gres=gpu:1"}, code: 2, stderr: "lfind: unknown option --gres\nlfind: hint: write gpu() * 1\n"},
		{args: []string{"cuda()", "--cpus-per-task", "8", "-q"}, code: 2,
			stderr: "lfind: unknown option --cpus-per-task\nlfind: hint: write cpu(cores=8); --set NAME=VALUE sets other options of sbatch\n"},
		{args: []string{"explain", "-G2", "cuda()"}, code: 2, stderr: "lfind: unknown option -G2\nlfind: hint: write gpu() * 2\n"},
		{args: []string{"--mail-type=END", "cuda()"}, code: 2, stderr: "lfind: unknown option --mail-type\nlfind: hint: in lfind, write --set mail-type=END\n"},
		{args: []string{"--verbos", "cuda()"}, code: 2, stderr: "lfind: unknown option --verbos\nlfind: hint: did you mean --verbose?\n"},

		// Wrong requests and files.
		{args: []string{""}, code: 2, stderr: "lfind: empty request\n"},
		{name: "empty standard input", args: []string{"-c", "l.yaml"}, code: 2, stderr: "lfind: stdin:1:1: the request is empty: expected cuda(...), gpu(...), cpu(...), duration=..., nodes=..., partition=..., feature=... or \"(\"\nlfind: hint: for example \"cuda(mem=14G) * 2 & duration=4h\"\n"},
		{args: []string{"@wrong"}, code: 2, stderr: "lfind: wrong:2:13: unknown unit \"Gog\": expected K, M, G, T, KiB, MiB, GiB or TiB\nlfind:   & cuda(mem=4Gog)\nlfind:               ^\n"},
		{args: []string{"cuda()", "duration=soon"}, code: 2, stderr: "lfind: request 2:1:10: unexpected \"soon\": expected a number and a unit, such as 4h\nlfind:   duration=soon\nlfind:            ^\n"},
		{args: []string{"@nowhere"}, code: 2, stderr: "lfind: open nowhere: no such file or directory\n"},
		{args: []string{"explian"}, code: 2, stderr: "lfind: request:1:1: unknown word \"explian\": expected cuda(...), gpu(...), cpu(...), duration=..., nodes=..., partition=..., feature=... or \"(\"\nlfind:   explian\nlfind:   ^\nlfind: hint: did you mean the command \"explain\"?\n"},
		{args: []string{"-f", "jsn", "cuda()"}, code: 2, stderr: "lfind: --format: invalid value \"jsn\": expected one of args, args0, lines, script, env, json\nlfind: hint: did you mean \"json\"?\n"},
		{args: []string{"--set", "=2", "cuda()"}, code: 2, stderr: "lfind: --set: \"=2\" is not NAME=VALUE\nlfind: hint: for example --set nodes=2\n"},
		{args: []string{"-c", "l.yaml", "--kind=slurm", "--set", "comment=a b", "cuda()"}, code: 2, stderr: "lfind: '--comment=a b' would be changed by the shell\nlfind: hint: with --format args0 it is safe: lfind --format args0 ... | xargs -0 sh -c 'exec sbatch \"$@\" job.sh' sh\n"},
		{args: []string{"--kind", "gpu", "cuda()"}, code: 2, stderr: "lfind: --kind: invalid value \"gpu\": expected one of slurm, local\n"},
		{args: []string{"-c", "nowhere.yaml", "cuda()"}, code: 2, stderr: "lfind: open nowhere.yaml: no such file or directory\nlfind: hint: without --config and LFIND_CONFIG, lfind reads launchers.yaml in ~/.config/ponos, and queries Slurm if there is none\n"},
		{args: []string{"-c", "bad.yaml", "cuda()"}, code: 2, stderr: "lfind: bad.yaml:2:5: a local launcher has no key \"wieght\" (did you mean \"weight\"?)\nlfind: hint: \"lfind check bad.yaml\" reports all problems\n"},
		{args: []string{"--risk", "1%", "-c", "l.yaml", "cuda()"}, code: 2, stderr: "lfind: --risk requires --learn\n"},
	} {
		tt.test(t)
	}
}

// The answer as JSON, and what is explained as JSON.
func TestJSON(t *testing.T) {
	place(t, map[string]string{"l.yaml": launchers})
	code, stdout, stderr := lfind(t, "", "-c", "l.yaml", "--json", "cuda(mem=500G)", "cuda(mem=40G) * 2 & duration=2h")
	var f found
	if err := json.Unmarshal([]byte(stdout), &f); err != nil || code != 0 || stderr != "" {
		t.Fatalf("%d, %v, %s%s", code, err, stdout, stderr)
	}
	if f.Launcher != "cluster" || f.Kind != "slurm" || f.Weight != 3 || !slices.Equal(f.Tags, []string{"slurm", "big"}) || f.Alternative != 2 ||
		f.Request != "duration=2h & cuda(mem=40G) * 2" || !slices.Equal(f.Partitions, []string{"large"}) || f.Start != nil ||
		!maps.Equal(f.Options, map[string]string{"nodes": "1", "time": "02:00:00", "partition": "large", "constraint": "(new)", "gpus-per-node": "2"}) ||
		strings.Join(f.Args, " ") != "--nodes=1 --time=02:00:00 --partition=large --constraint=(new) --gpus-per-node=2" {
		t.Errorf("%+v", f)
	}
	code, stdout, stderr = lfind(t, "", "-q", "-c", "l.yaml", "--json", "cuda()")
	f = found{}
	if err := json.Unmarshal([]byte(stdout), &f); err != nil || code != 0 || stderr != "" || f.Kind != "local" || f.Tokens["gpu"] != 1 || f.Partitions == nil {
		t.Errorf("a local launcher: %d, %v, %s%s", code, err, stdout, stderr)
	}

	code, stdout, stderr = lfind(t, "", "explain", "--json", "-c", "l.yaml", "cuda(mem=40G) * 2")
	var e explained
	if err := json.Unmarshal([]byte(stdout), &e); err != nil || code != 0 || stderr != "" {
		t.Fatalf("%d, %v, %s%s", code, err, stdout, stderr)
	}
	var rows []string
	for _, row := range e.Candidates {
		text := row.Launcher + " " + row.Partition + " " + string(row.Verdict)
		for _, r := range row.Reasons {
			text += " " + r.Code
		}
		rows = append(rows, text)
	}
	if want := []string{"local#1  no gpu_count", "cluster small no gpu_memory", "cluster large yes"}; !slices.Equal(rows, want) || e.Answer == nil || e.Answer.Launcher != "cluster" || len(e.Alternatives) != 1 {
		t.Errorf("%q, %+v", rows, e.Answer)
	}
	code, stdout, stderr = lfind(t, "", "explain", "--json", "-c", "l.yaml", "cuda(mem=200G)")
	e = explained{}
	if err := json.Unmarshal([]byte(stdout), &e); err != nil || code != 1 || e.Answer != nil || len(e.Candidates) != 3 || !strings.HasPrefix(stderr, "lfind: nothing matches cuda(mem=200G)\n") {
		t.Errorf("nothing: %d, %v, %s%s", code, err, stdout, stderr)
	}
}

// Why launchers match or not.
func TestExplain(t *testing.T) {
	place(t, map[string]string{"l.yaml": launchers})
	for _, tt := range []expected{
		{args: []string{"explain", "-c", "l.yaml", "cuda(mem=40G) * 2"}, stdout: `cluster: --nodes=1 --partition=large --constraint=(new) --gpus-per-node=2
  1 node of large matches: 64 CPUs, 512G, 8 x a100 80GiB, class ordinary, billed 1

Nearest misses:
  launcher local#1: 2 GPUs requested, 1 GPU available
  2 nodes of small: 40G of GPU memory requested, 15GiB available
`},
		{args: []string{"explain", "-c", "l.yaml", "cuda(mem=200G)", "cpu(cores=100)"}, code: 1, stderr: "lfind: nothing matches cuda(mem=200G) | cpu(cores=100)\n", stdout: `Nearest misses:
  alternative 1: 1 node of large: 200G of GPU memory requested, 80GiB available
  alternative 1: 2 nodes of small: 200G of GPU memory requested, 15GiB available
  alternative 1: launcher local#1: 200G of GPU memory requested, 8116MiB available
  alternative 2: 1 node of large: 100 cores requested, 64 available
  alternative 2: 2 nodes of small: 100 cores requested, 16 available
  alternative 2: launcher local#1: 100 cores requested, 8 available
`},
		{args: []string{"explain", "--all", "-c", "l.yaml", "cuda(mem=40G) * 2"}, stdout: `LAUNCHER  PARTITION  QOS  ACCOUNT  NODES   HAS                               MATCH  CLASS     BILLED  WHY
local#1   -          -    -        1       8 CPUs, 16G, 1 x GTX1080 8116MiB  no     -              -  2 GPUs requested, 1 GPU available
cluster   small      -    -        a[1-2]  16 CPUs, 64G, 2 x t4 15GiB        no     -              -  40G of GPU memory requested, 15GiB available
cluster   large      -    -        b1      64 CPUs, 512G, 8 x a100 80GiB     yes    ordinary       1

cluster: --nodes=1 --partition=large --constraint=(new) --gpus-per-node=2
`},
		{args: []string{"explain"}, code: 2, stderr: "lfind: stdin:1:1: the request is empty: expected cuda(...), gpu(...), cpu(...), duration=..., nodes=..., partition=..., feature=... or \"(\"\nlfind: hint: for example \"cuda(mem=14G) * 2 & duration=4h\"\n"},
		{args: []string{"list", "-c", "l.yaml"}, stdout: `LAUNCHER  KIND   WEIGHT  TAGS       CONNECTOR  PARTITIONS   HAS                               LINE
local#1   local       4  here       local      -            8 CPUs, 16G, 1 x GTX1080 8116MiB     3
cluster   slurm       3  slurm,big  local      small,large  3 nodes                             10
`},
		{args: []string{"list", "-c", "l.yaml", "--kind", "local"}, stdout: `LAUNCHER  KIND   WEIGHT  TAGS  CONNECTOR  PARTITIONS  HAS                               LINE
local#1   local       4  here  local      -           8 CPUs, 16G, 1 x GTX1080 8116MiB     3
`},
		{args: []string{"list", "x"}, code: 2, stderr: "lfind: unexpected argument \"x\"\n"},
	} {
		tt.test(t)
	}
	code, stdout, stderr := lfind(t, "", "list", "--json", "-c", "l.yaml")
	var all []listRow
	if err := json.Unmarshal([]byte(stdout), &all); err != nil || code != 0 || stderr != "" || len(all) != 2 {
		t.Fatalf("%d, %v, %s%s", code, err, stdout, stderr)
	}
	if l := all[0]; l.Launcher != "local#1" || l.Line != 3 || l.Tokens["gpu"] != 1 || l.Partitions == nil || l.Weight != 4 {
		t.Errorf("%+v", l)
	}
	if l := all[1]; l.Launcher != "cluster" || l.Line != 10 || !slices.Equal(l.Partitions, []string{"small", "large"}) || l.QuerySlurm || l.File != "l.yaml" {
		t.Errorf("%+v", l)
	}
}

// Problems of a file.
func TestCheck(t *testing.T) {
	place(t, map[string]string{
		"good.yaml": "local:\n  - weight: 1\n", "warned.yaml": "local:\n  - weight: 1\n    tokens: { gpu: 1 }\n", "odd.yaml": "local:\n\t- weight: 1\n",
		"bad.yaml": "local:\n  - weight: 1\n    weigth: 2\n    cpu: { memory: 16 Gx }\nslurm:\n  - partitions: { p: { nodes: [{ configuration: { gpu: { count: two } } }] } }\n",
	})
	const problems = `bad.yaml:3:5: error: a local launcher has no key "weigth" (did you mean "weight"?)
bad.yaml:4:20: error: memory: invalid size "16 Gx": unknown unit "Gx": expected K, M, G, T, KiB, MiB, GiB or TiB
bad.yaml:6:5: warning: a slurm launcher without id
bad.yaml:6:65: error: count must be a whole number, not "two"
`
	for _, tt := range []expected{
		{args: []string{"check", "good.yaml"}},
		{args: []string{"check", "-c", "warned.yaml"}, stdout: "warned.yaml:3:15: warning: unknown token \"gpu\": without a tokens.yaml in the same directory, this launcher can be found but not run\n"},
		{args: []string{"check", "bad.yaml"}, code: 2, stdout: problems},
		{args: []string{"check", "odd.yaml"}, code: 2, stdout: "odd.yaml:2:1: error: not valid YAML: found character that cannot start any token\n"},
		{args: []string{"check", "nowhere.yaml"}, code: 2, stderr: "lfind: open nowhere.yaml: no such file or directory\nlfind: hint: without --config and LFIND_CONFIG, lfind reads launchers.yaml in ~/.config/ponos, and queries Slurm if there is none\n"},
		{args: []string{"check", "a", "b"}, code: 2, stderr: "lfind: unexpected argument \"b\"\n"},
	} {
		tt.test(t)
	}
	code, stdout, stderr := lfind(t, "", "check", "--json", "bad.yaml")
	var all []problem
	if err := json.Unmarshal([]byte(stdout), &all); err != nil || code != 2 || stderr != "" || len(all) != 4 {
		t.Fatalf("%d, %v, %s%s", code, err, stdout, stderr)
	}
	if want := (problem{"bad.yaml", 3, 5, "error", `a local launcher has no key "weigth"`, `did you mean "weight"?`}); all[0] != want {
		t.Errorf("%+v, want %+v", all[0], want)
	}
	if all[2].Level != "warning" {
		t.Errorf("%+v", all[2])
	}
	if code, stdout, _ := lfind(t, "", "check", "--json", "good.yaml"); code != 0 || strings.TrimSpace(stdout) != "[]" {
		t.Errorf("no problem: %d, %s", code, stdout)
	}
}

// A file that is made of what scontrol prints finds what the cluster has.
func TestConvert(t *testing.T) {
	fixtures, err := filepath.Abs("../../slurm/testdata/22.05.8")
	if err != nil {
		t.Fatal(err)
	}
	read := func(name string) string {
		t.Helper()
		b, err := os.ReadFile(filepath.Join(fixtures, name))
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	nodes, oneline, partitions := read("show_nodes.txt"), read("show_nodes_oneline.txt"), read("show_partitions.txt")
	dir := place(t, nil)
	_, file, stderr := lfind(t, nodes, "convert")
	if stderr != "" || !strings.Contains(file, "slurm:\n  - id: slurm\n") {
		t.Fatalf("%s%s", file, stderr)
	}
	for _, tt := range []expected{
		{name: "one line per node", args: []string{"convert", "-"}, stdin: oneline, stdout: file},
		{name: "a file", args: []string{"convert", filepath.Join(fixtures, "show_nodes.txt")}, stdout: file},
		{name: "no file", args: []string{"convert", "nowhere"}, code: 2, stderr: "lfind: open nowhere: no such file or directory\n"},
		{name: "something else", args: []string{"convert"}, stdin: "NodeName=a\nrubbish\n", code: 2, stderr: "lfind: scontrol show node: line 2 of its output: NodeName=a: \"rubbish\" does not begin with NodeName=\n"},
		{name: "nothing", args: []string{"convert"}, code: 2, stderr: "lfind: no node in the input\n"},
	} {
		tt.test(t)
	}
	if err := os.WriteFile(filepath.Join(dir, "many.yaml"), []byte(file), 0o600); err != nil {
		t.Fatal(err)
	}
	both := expected{args: []string{"-c", "many.yaml", "cuda(mem=14G)*2"}, stdout: "--nodes=1 --partition=gpu,gpu_csi_a,gpu_spot --constraint=(GPU4&GPUM40G&a100) --gpus-per-node=2\n"}
	both.test(t)
	code, limited, stderr := lfind(t, nodes+partitions, "convert", "--id", "lab", "-t", "slurm,big", "--no-hosts")
	for _, want := range []string{"  - id: lab\n", "tags: [slurm, big]\n", "max_duration: 7d", "count: 2\n"} {
		if !strings.Contains(limited, want) {
			t.Errorf("no %q in\n%s", want, limited)
		}
	}
	if code != 0 || strings.Contains(limited, "hosts:") {
		t.Errorf("%d, %s", code, stderr)
	}
}

// Without a file, Slurm is asked what there is, once in some minutes, and whether it accepts what was
// found.
func TestAskSlurm(t *testing.T) {
	const would, refuses = "sbatch: Job 5 to start at 2126-11-20T18:00:00 using 1 processors on nodes n1 in partition gpu\n",
		answers.Refusal + "allocation failure: Requested node configuration is not available\n"
	lines := answers.Cluster(t, "../../slurm/testdata/22.05.8")
	place(t, nil)
	const tested, gpu = "sbatch --test-only --nodes=1 ", " --gpus-per-node=1"
	lines[tested+"--partition=gpu_small,gpu"+gpu], lines[tested+"--partition=gpu_small"+gpu] = refuses, refuses
	lines[tested+"--qos=qos_gpu-t3 --partition=gpu_small"+gpu] = answers.Aside + would
	for _, account := range []string{"", "--account=iea@a100 "} {
		for _, qos := range []string{"", "--qos=qos_gpu-t3 ", "--qos=qos_gpu-t4 ", "--qos=high "} {
			lines[tested+account+qos+"--partition=gpu_spot"+gpu] = refuses
		}
	}
	const demands = answers.Refusal + "error: give gpu:TYPE:N\nallocation failure: Unspecified error\n"
	lines[tested+"--partition=gpu_spot --gpus-per-node=3"] = demands
	lines[tested+"--partition=gpu_spot --gpus-per-node=a100:3"] = answers.Aside + would
	asked := answers.Programs(t, lines)
	for _, tt := range []expected{
		{name: "the form that a plugin demands", args: []string{"cuda() * 3 & partition=gpu_spot"}, stdout: "--nodes=1 --partition=gpu_spot --gpus-per-node=a100:3\n",
			stderr: "lfind: note: Slurm takes the job only in this form: give gpu:TYPE:N: Unspecified error\n"},
		{name: "what Slurm refuses is left out", args: []string{"cuda() & partition=gpu*"}, stdout: "--nodes=1 --qos=qos_gpu-t3 --partition=gpu_small --gpus-per-node=1\n",
			stderr: "lfind: note: Slurm refuses partition gpu_small,gpu, by a rule that lfind does not know: Requested node configuration is not available\n" +
				"lfind: note: Slurm refuses partition gpu_small, by a rule that lfind does not know: Requested node configuration is not available\n"},
		{args: []string{"--no-verify", "cuda() & partition=gpu*"}, stdout: "--nodes=1 --partition=gpu_small,gpu --gpus-per-node=1\n"},
		{args: []string{"-q", "cuda() & partition=gpu_spot"}, code: 3, stderr: "lfind: sbatch --test-only --nodes=1 --partition=gpu_spot --gpus-per-node=1: allocation failure: Requested node configuration is not available\n" +
			"lfind: hint: Slurm accepts none of the candidates that match; --no-verify prints the best one without asking\n"},
		{args: []string{"--no-verify", "cuda() & qos=high"}, stdout: "--nodes=1 --qos=high --partition=gpu_small,gpu --gpus-per-node=1\n"},
		{args: []string{"cuda() & partition=gpu_csi_a"}, code: 1, stderr: "lfind: nothing matches cuda() & partition=gpu_csi_a\nlfind: hint: nearest miss: gpu_csi_a: the partition is for the accounts csi only, yours are research, iea@a100; \"lfind explain\" shows the reasons\n"},
	} {
		tt.test(t)
	}
	count := func() (n int) {
		for _, line := range asked() {
			if line == "scontrol --all --oneliner --details show node" {
				n++
			}
		}
		return n
	}
	if n := count(); n != 1 {
		t.Errorf("the nodes were asked for %d times", n)
	}
	again := expected{args: []string{"--refresh", "--no-verify", "cpu(cores=4)"}, stdout: "--nodes=1 --partition=cpu --cpus-per-task=4\n"}
	again.test(t)
	if n := count(); n != 2 {
		t.Errorf("with --refresh, the nodes were asked for %d times", n)
	}
}

// A Slurm that does not answer is not an empty cluster.
func TestNoSlurm(t *testing.T) {
	place(t, map[string]string{"auto.yaml": "slurm:\n  - { id: auto, query_slurm: true }\n"})
	const away = "slurm_load error: Unable to contact slurm controller (connect failure)\n"
	lines := map[string]string{}
	for _, line := range []string{"--all --oneliner --details show node", "--all --oneliner show partitions", "show config", "--oneliner show licenses", "--all --oneliner show reservation"} {
		lines["scontrol "+line] = answers.Refusal + away
	}
	answers.Programs(t, lines)
	tt := expected{args: []string{"-c", "auto.yaml", "cuda()"}, code: 3, stderr: "lfind: launcher \"auto\": scontrol: " + away + "lfind: hint: check Slurm's controller with \"scontrol ping\"\n"}
	tt.test(t)
	table := expected{args: []string{"list", "-c", "auto.yaml"}, code: 3, stderr: tt.stderr, stdout: `LAUNCHER  KIND   WEIGHT  TAGS  CONNECTOR  PARTITIONS  HAS                       LINE
auto      slurm       0  -     local      -           Slurm could not be asked     2
`}
	table.test(t)
}

// What would be run, and what is submitted.
func TestRun(t *testing.T) {
	dir := place(t, map[string]string{"l.yaml": launchers, "tokens.yaml": "countertoken: { gpu: { tokens: 1 } }\n", "untold/launchers.yaml": "local:\n  - tokens: { tape: 1 }\n"})
	const options = "--nodes=1 --partition=large --constraint=(new) --gpus-per-node=1 --job-name=python"
	asked := answers.Programs(t, map[string]string{
		"sbatch --parsable " + options: "4711\n",
		"sbatch --parsable --nodes=1 --partition=small --constraint=(old) --cpus-per-task=1 --job-name=true": answers.Refusal + "sbatch: error: Batch job submission failed: Invalid account\n",
	})
	for _, tt := range []expected{
		{args: []string{"run", "-c", "l.yaml", "-n", "cuda()", "--", "echo", "it's"}, stdout: "echo 'it'\\''s'\n"},
		{args: []string{"run", "-c", "l.yaml", "-n", "cuda(mem=40G)", "--", "python", "a b.py"}, stdout: "sbatch --parsable --nodes=1 --partition=large '--constraint=(new)' --gpus-per-node=1 --job-name=python\n#!/bin/sh\nexec python 'a b.py'\n"},
		{args: []string{"run", "-c", "l.yaml", "-n", "-a", "cuda(mem=40G)", "--", "true"}, stdout: "srun --nodes=1 --partition=large '--constraint=(new)' --gpus-per-node=1 -- true\n"},
		{args: []string{"run", "-c", "l.yaml", "cuda(mem=40G)", "--", "python", "train.py"}, stdout: "4711\n"},
		{args: []string{"run", "-c", "l.yaml", "--kind=slurm", "cpu() & partition=small", "--", "true"}, code: 3, stderr: "lfind: sbatch: Batch job submission failed: Invalid account\n"},
		{args: []string{"run", "-c", "l.yaml", "cuda()", "--", "/no/such/program"}, code: 127, stderr: "lfind: /no/such/program: program not found\nlfind: hint: is \"/no/such/program\" installed and in PATH?\n"},
		{args: []string{"run", "-c", "untold", "cpu()", "--", "true"}, code: 2, stderr: "lfind: launcher \"local#1\" takes the token \"tape\", and tokens.yaml does not give its number\n" +
			"lfind: hint: define it in untold/tokens.yaml: countertoken: { tape: { tokens: 1 } }\n"},
		{args: []string{"run", "cuda()"}, code: 2, stderr: "lfind: a command is missing\nlfind: hint: put it after \"--\": lfind run 'cuda()' -- python train.py\n"},
		{args: []string{"run", "--", "true"}, code: 2, stderr: "lfind: a request is missing before \"--\"\n"},
		{args: []string{"run", "-c", "l.yaml", "cuda()*9", "--", "true"}, code: 1, stderr: "lfind: nothing matches cuda() * 9\nlfind: hint: nearest miss: 1 node of large: 9 GPUs requested, 8 GPUs available; \"lfind explain\" shows the reasons\n"},
	} {
		tt.test(t)
	}
	if got := asked(); len(got) != 2 || got[0] != "sbatch --parsable "+options {
		t.Errorf("in %s: %q", dir, got)
	}
}
