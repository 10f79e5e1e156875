package file

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
)

func TestDocumentedFile(t *testing.T) {
	f, err := Load("../testdata/documented.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if len(f.Entries) != 4 {
		t.Fatalf("%d entries", len(f.Entries))
	}
	second := f.Entries[1]
	want := Entry{
		Pos: Pos{6, 5}, Kind: Local, Connector: "local", Weight: 4, CPU: CPU{Cores: 40, Memory: 8e9},
		GPUs: []GPU{{Model: "GTX1080", Count: 1, Memory: 8116 << 20}}, Tokens: []Token{{Pos{9, 7}, "localtoken", 1}},
	}
	if !reflect.DeepEqual(second, want) {
		t.Errorf("got %+v\nwant %+v", second, want)
	}
	manual := f.Entries[2]
	if manual.ID != "manual" || len(manual.FeaturesRegex) != 2 || len(manual.Partitions) != 3 || manual.Configuration.GPU.MinMemRatio != 0.7 || !manual.UseMemory {
		t.Errorf("manual: %+v", manual)
	}
	if q := manual.QOS[0]; q.Name != "qos_gpu-t3" || q.MaxDuration != 20*time.Hour || q.MinGPU != 1 || q.Priority != 1 {
		t.Errorf("qos: %+v", q)
	}
	p4 := manual.Partitions[2]
	if p4.Name != "gpu_p4" || p4.Priority != 1 || !reflect.DeepEqual(p4.Accounts, []string{"iea@a100"}) || p4.Configuration.GPU.Memory != 40<<30 ||
		!reflect.DeepEqual(p4.Nodes[0].Features, []string{"Tesla", "a100"}) {
		t.Errorf("gpu_p4: %+v", p4)
	}
	if auto := f.Entries[3]; !auto.QuerySlurm || !auto.Partitions[0].Disabled {
		t.Errorf("auto: %+v", auto)
	}
	if len(f.Warnings) != 1 || !strings.Contains(f.Warnings[0].String(), `documented.yaml:9:7: warning: unknown token "localtoken"`) {
		t.Errorf("warnings: %v", f.Warnings)
	}
}

// TestProblems checks that several problems are reported at once, each with its position.
func TestProblems(t *testing.T) {
	for _, c := range []struct{ yaml, want string }{
		{"locl: []", `1:1: the file has no key "locl" (did you mean "local"?)`},
		{"slurm:\n  - id: x\n    partions: {}", `3:5: a slurm launcher has no key "partions" (did you mean "partitions"?)`},
		{"local:\n  - cpu: { coress: 4 }", `2:12: cpu has no key "coress" (did you mean "cores"?)`},
		{"local:\n  - cpu: { cores: many }", `2:19: cores must be a whole number, not "many"`},
		{"local:\n  - cpu: { cores: -1 }", `2:19: cores must not be negative`},
		{"local:\n  - cpu: { memory: 4 Gx }", `2:20: memory: invalid size "4 Gx": unknown unit "Gx": expected K, M, G, T, KiB, MiB, GiB or TiB`},
		{"local:\n  - weight: heavy", `2:13: weight must be a number, not "heavy"`},
		{"local:\n  - disable: perhaps", `2:14: disable must be true or false, not "perhaps"`},
		{"local: 5", `1:8: "local" must be a list, not "5"`},
		{"local: {a: b}", `1:8: "local" must be a list, not a mapping`},
		{"local: [5]", `1:9: a local launcher must be a mapping (key: value), not "5"`},
		{"- a", `1:1: the file must be a mapping (key: value), not a list`},
		{"local:\n  - weight: 1\n    weight: 2", `3:5: a local launcher has "weight" twice, first in line 2`},
		{"local:\n\t- x", `2:1: not valid YAML: found character that cannot start any token`},
		{"local: [", `1:1: not valid YAML: did not find expected node content`},
		{"local: []\n---\nlocal: []", `2:1: a second document begins here; only one is read`},
		{"slurm:\n  - {id: x, features_regex: ['GPU(\\d+'], query_slurm: true}", "2:30: features_regex: invalid regular expression \"GPU(\\\\d+\""},
		{"slurm:\n  - {id: x, features_regex: ['(?=a)'], query_slurm: true}", "invalid regular expression"},
		{"slurm: [{id: x, partitions: {'a,b': {}}}]", `invalid partition name "a,b"`},
		{"slurm: [{id: x, partitions: {p: {nodes: [{hosts: ['n[1-'] }]}}}]", "hosts:"},
		{"slurm: [{id: x, partitions: {p: {nodes: [{features: ['a&b'] }]}}}]", `invalid feature name "a&b"`},
		{"slurm: [{id: x, qos: {q: {max_duration: 2months}}, query_slurm: true}]", `unknown unit "months"`},
		{"slurm: [{id: x, configuration: {gpu: {min_mem_ratio: 2}}, query_slurm: true}]", "min_mem_ratio must be from 0 to 1, not 2"},
		{"slurm: [{id: x, configuration: {gpu: {kind: gtx}}, query_slurm: true}]", `kind must be cuda, mps, rocm, xpu, not "gtx"`},
		{"local: [{tags: [a, null]}]", "tags must be a word, not nothing"},
		{"local: [{tags: [\"a\\e[31m\"]}]", "tags has control characters"},
		{"local: [{connector: xx}]", `the launcher in line 1: no connector "xx" (define it in connectors.yaml in the same directory)`},
		{"local: [{connector: gat}]", `no connector "gat" (did you mean "gate"?)`},
		{"local: [{tokens: {a: 3}}]", `3 of the token "a" are needed, but tokens.yaml has 2`},
		{"local: [{tokens: {b: 1}}]", `no token "b" in tokens.yaml`},
		{"a: &a [*a]", "has no key"},
		{"local: &l [{cpu: *l}]", "cpu must be a mapping"},
	} {
		_, err := Parse("l.yaml", []byte(c.yaml), []byte("ssh: {gate: {hostname: gate.example}}"), []byte("countertoken: {a: {tokens: 2}}"))
		var bad *Error
		if !errors.As(err, &bad) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s:\n got %v\nwant %s", c.yaml, err, c.want)
		}
	}
	_, err := Parse("l.yaml", []byte("local:\n  - cpu: { coress: 4 }\n    wight: 3\nslurmm: []"), nil, nil)
	if err == nil || strings.Count(err.Error(), "\n") != 2 {
		t.Errorf("three problems: %v", err)
	}
	_, err = Parse("dir/l.yaml", nil, []byte("ssh: {local: {hostname: -oProxyCommand=x}, b: {}}"), []byte("countertoken: {../x: {tokens: 1}}"))
	for _, want := range []string{`dir/connectors.yaml:1:7: "local" is this machine`, `invalid host name "-oProxyCommand=x"`, `"b" has no hostname`, `dir/tokens.yaml:1:16: invalid token name "../x"`} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("companions: %v; want %s", err, want)
		}
	}
}

func TestWarnings(t *testing.T) {
	for _, c := range []struct{ yaml, want string }{
		{"slurm: [{query_slurm: true}]", "a slurm launcher without id"},
		{"slurm: [{id: x}]", "can never match"},
		{"slurm: [{id: x, partitions: {p: }}]", `partition "p" has no nodes`},
		{"slurm: [{id: x, query_slurm: true, configuration: {cpu: {memory: 1024}}}]", "memory has no unit and is taken as 1024 bytes"},
		{"slurm: [{id: x, query_slurm: true, configuration: {max_duration: 3600}}]", "max_duration has no unit and is taken as 3600 seconds"},
		{"slurm: [{id: x, query_slurm: true, options: {gpu: {count: 1}}}]", `"options" is now called "configuration"`},
		{"slurm: [{id: x, qos: {normal: {}}, partitions: {p: {qos: [norml], nodes: [{count: 1}]}}}]", `the qos "norml" is not described below "qos"`},
		{"slurm: [{id: x, partitions: {p: {nodes: [{hosts: [a]}, {hosts: [a]}]}}}]", `host "a" is already in the group of line 1`},
		{"slurm: [{id: x, use_memory_contraint: false, partitions: {p: {nodes: [{count: 1}]}}}]", "mem_per_cpu, which is not set"},
		{"slurm: [{id: x, features: {z: {}}, partitions: {p: {nodes: [{count: 1}]}}}]", `no node has the feature "z"`},
		{"slurm: [{id: x, features_regex: ['GPU(?P<cuda_count>\\d+)'], partitions: {p: {nodes: [{features: [GPU48GB]}]}}}]", `matches only the beginning of the feature "GPU48GB"`},
		{"slurm: [{id: x, features_regex: ['GPU(?P<count>\\d+)'], query_slurm: true}]", `the group "count" has no meaning`},
		{"local: [{gpus: [{model: a, memory: 4G}]}]", "a GPU without a count"},
		{"local:\n- id: a\n- id: a", `launcher "a" has the id of the one in line 2`},
	} {
		f, err := Parse("l.yaml", []byte(c.yaml), nil, nil)
		if err != nil || !strings.Contains(fmt.Sprint(f.Warnings), c.want) {
			t.Errorf("%s:\n got %v, %v\nwant %s", c.yaml, f.Warnings, err, c.want)
		}
	}
}

// TestForms checks the forms that are accepted besides the strict one.
func TestForms(t *testing.T) {
	f, err := Parse("l.yaml", []byte(`
slurm:
  - id: 7
    tags: slurm
    weight: 2.5
    use_memory_constraint: false
    query_slurm: yes
    partitions:
      1:
        nodes:
          - { features: [2080, 1e3], hosts: 'n[1-3],m', configuration: { gpu: [{ model: a, count: 1 }, { model: b, count: 2 }], cpu: { mem_per_cpu: 4GiB } } }
`), nil, nil)
	if err != nil || len(f.Warnings) > 0 {
		t.Fatalf("%v, %v", err, f.Warnings)
	}
	e := f.Entries[0]
	n := e.Partitions[0].Nodes[0]
	if e.ID != "7" || !reflect.DeepEqual(e.Tags, []string{"slurm"}) || e.Weight != 2.5 || e.UseMemory || !e.QuerySlurm || e.Partitions[0].Name != "1" ||
		!reflect.DeepEqual(n.Features, []string{"2080", "1e3"}) || !reflect.DeepEqual(n.Hosts, []string{"n1", "n2", "n3", "m"}) || len(n.Configuration.GPUs) != 2 {
		t.Errorf("%+v", e)
	}
	for _, empty := range []string{"", "# nothing", "local: []\nslurm:", "{}", "null"} {
		if f, err := Parse("l.yaml", []byte(empty), nil, nil); err != nil || len(f.Entries) > 0 {
			t.Errorf("%q: %v, %v", empty, f.Entries, err)
		}
	}
}

// TestBomb checks that aliases cannot expand a small file without end.
func TestBomb(t *testing.T) {
	text := "slurm:\n- id: x\n  features:\n    f0: &f0 {configuration: {gpu: {count: 1}}}\n"
	for i := 1; i < 12; i++ {
		text += fmt.Sprintf("    f%d: &f%d {<<: [%s]}\n", i, i, strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*f%d, ", i-1), 10), ", "))
	}
	done := make(chan error, 1)
	go func() {
		_, err := Parse("l.yaml", []byte(text), nil, nil)
		done <- err
	}()
	select {
	case <-done:
	case <-time.After(3 * time.Minute):
		t.Fatal("does not end")
	}
}

func TestLoad(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, Name)
	if _, err := Load(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
	for name, text := range map[string]string{Name: "local: [{connector: gate, tokens: {a: 1}}]", "connectors.yaml": "ssh: {gate: {hostname: me@gate}}", "tokens.yaml": "countertoken: {a: {tokens: 2}}"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	f, err := Load(path)
	if err != nil || f.Connectors[0].Hostname != "me@gate" || f.Tokens[0].Count != 2 || len(f.Warnings) > 0 {
		t.Errorf("%+v, %v", f, err)
	}
}

func FuzzParse(f *testing.F) {
	for _, name := range []string{"documented.yaml", "features.yaml"} {
		text, err := os.ReadFile("../testdata/" + name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	f.Add([]byte("slurm: [{id: x, partitions: {p: &p {nodes: [{features: &f [a]}]}, q: {<<: *p}}}]"))
	f.Add([]byte("a: &a [*a]"))
	f.Fuzz(func(t *testing.T, text []byte) {
		parsed, err := Parse("l.yaml", text, nil, nil)
		var bad *Error
		if err != nil && !errors.As(err, &bad) {
			t.Fatalf("%v", err)
		}
		if bad != nil {
			for _, p := range bad.Problems {
				if p.Line < 1 || p.Column < 1 || p.Message == "" {
					t.Errorf("%+v", p)
				}
			}
			return
		}
		for _, e := range parsed.Entries {
			if e.Kind == "" || e.Line < 1 {
				t.Errorf("%+v", e)
			}
		}
	})
}
