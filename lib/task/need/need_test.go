package need

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/ponos-tools/ponos/lib/slurm/sbatch"
	"github.com/ponos-tools/ponos/lib/task"
)

func TestParseRules(t *testing.T) {
	got, err := ParseRules("oom: mem*2 <= 64G, timeout: time*1.5 <= 2 days; 2, node: exclude, lost, exit=75: 5")
	want := Rules{
		{Reason: OOM, Tries: 10, Memory: Growth[int64]{2, 64 << 30}},
		{Reason: Timeout, Tries: 2, Time: Growth[time.Duration]{1.5, 48 * time.Hour}},
		{Reason: Node, Tries: 3, Exclude: true},
		{Reason: Lost, Tries: 3},
		{Reason: Exit, Code: 75, Tries: 5},
	}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v", got, err)
	}
	for _, none := range []string{"", "none", " none "} {
		if got, err := ParseRules(none); err != nil || got != nil {
			t.Errorf("%q: %+v, %v", none, got, err)
		}
	}
	for bad, why := range map[string]string{
		"oom:":                   "unknown step",
		"oomm":                   `did you mean "oom"`,
		"exit":                   "expected an exit code",
		"exit=0":                 "expected an exit code",
		"exit=256":               "expected an exit code",
		"lost, lost":             "duplicate rule",
		"lost,":                  "unknown reason",
		"oom: mem*1":             "factor",
		"oom: mem*NaN":           "factor",
		"oom: mem*1e9":           "factor",
		"oom: mem*2 <= lots":     "invalid memory",
		"oom: mem*2 <= -1G":      "invalid memory",
		"oom: mem*2 <= ":         "invalid memory",
		"timeout: time*2 <= 5":   "expected seconds",
		"timeout: time*2 <= 5s":  "at least a minute",
		"node: exclude; exclude": "twice",
		"lost: 0":                "0 tries",
		"lost: 1; 2":             "twice",
		"lost: 1 2":              "unknown step",
		strings.Repeat("x", 5e3): "longer than",
	} {
		if got, err := ParseRules(bad); err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("%q: %+v, %v; want %q", bad, got, err, why)
		}
	}
}

// Any is for what no other rule names; a number alone stands for it.
func TestAny(t *testing.T) {
	for _, text := range []string{"2", " 2 ", "any: 2", "any: 2, exit=3: 1, node"} {
		rules, err := ParseRules(text)
		if err != nil {
			t.Fatal(err)
		}
		var before []string
		got := ""
		for _, end := range []End{{Reason: Exit, Code: 1}, {Reason: Exit, Code: 3}, {Reason: Exit, Code: 3}, {Reason: Lost}, {Reason: OOM}, {}} {
			_, again, _ := rules.Next(end, before)
			if got += fmt.Sprint(again, " "); again {
				before = append(before, end.Name())
			}
		}
		want := "true true false false false false "
		if strings.Contains(text, "exit=3") {
			want = "true true false true false false "
		}
		if got != want {
			t.Errorf("%q: %s; want %s", text, got, want)
		}
	}
}

// What follows the ends of one task's attempts, one after the other.
func TestNext(t *testing.T) {
	const g = 1 << 30
	rules, err := ParseRules("oom: mem*2 <= 20G, timeout: time*2; 1, node: exclude, exit=75: 2")
	if err != nil {
		t.Fatal(err)
	}
	var before []string
	for _, step := range []struct {
		end   End
		want  Change
		again bool
		why   string
	}{
		{End{Reason: OOM, Memory: 4 * g}, Change{Memory: 8 * g}, true, ""},
		{End{Reason: Exit, Code: 1}, Change{}, false, ""},
		{End{Reason: Exit, Code: 75}, Change{}, true, ""},
		{End{Reason: OOM, Memory: 8 * g}, Change{Memory: 16 * g}, true, ""},
		{End{Reason: Timeout, Time: time.Hour}, Change{Time: 2 * time.Hour}, true, ""},
		{End{Reason: Timeout, Time: time.Hour}, Change{}, false, "allows 1 retry"},
		{End{Reason: OOM, Memory: 16 * g}, Change{Memory: 20 * g}, true, ""},
		{End{Reason: OOM, Memory: 20 * g}, Change{}, false, "as much memory"},
		{End{Reason: OOM}, Change{}, false, "not known"},
		{End{Reason: Node, Nodes: []string{"n1", "n2"}}, Change{Exclude: []string{"n1", "n2"}}, true, ""},
		{End{Reason: Lost}, Change{}, false, ""},
		{End{}, Change{}, false, ""},
		{End{Reason: Exit, Code: 75}, Change{}, true, ""},
		{End{Reason: Exit, Code: 75}, Change{}, false, "allows 2 retries"},
	} {
		c, again, why := rules.Next(step.end, before)
		if !reflect.DeepEqual(c, step.want) || again != step.again || !strings.Contains(why, step.why) || step.why == "" && why != "" {
			t.Errorf("%+v after %v: %+v %v %q", step.end, before, c, again, why)
		}
		if again {
			before = append(before, step.end.Name())
		}
	}
}

func TestOptions(t *testing.T) {
	for s, want := range map[string]string{
		"mem=8G": "mem=8G", "--mem=8G": "mem=8G", "cpus_per_task=4": "cpus-per-task=4", "exclusive": "exclusive", "exclusive=user": "exclusive=user",
		"requeue": "requeue", "constraint=a|b": "constraint=a|b", "comment=x": "!", "requeue=yes": "requeue", "requeue=no": "no-requeue", "exclusive=no": "exclusive=no", "contiguous=2": "takes no value", "requeue=expedite": "requeue=expedite", "mem": "lacks a value", "mem=": "lacks a value",
		"memm=8G": `did you mean "mem"`, "memory=8G": `did you mean "mem"`, "export=ALL": "!", "output=x": "the agent sets it", "chdir=/": "the agent sets it", "array=1-3": "!", "wrap=x": "!", "job-name=x": "the agent sets it", "": "!", "-m=1": "!",
		"mem=8\n": "control character", "uid=0": "!", "get-user-env": "!", "m\x1bm=1": "!", "mem=" + strings.Repeat("1", 2000): "longer than", "parsable": "!", "hold": "!",
	} {
		o, err := Option(s)
		got := strings.TrimPrefix(o.Arg(), "--")
		if err != nil {
			if want == "!" {
				if want = "not allowed for a task"; sbatch.Lookup(o.Name) == nil {
					want = "sbatch has no option"
				}
			}
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%q: %v, want %s", s, err, want)
			}
			continue
		}
		if got != want {
			t.Errorf("%q became %q, want %q", s, got, want)
		}
	}
	for _, bad := range []task.Request{
		{Find: strings.Repeat("x", 5000)}, {Find: "cuda()\n"}, {Sbatch: []string{"mem=1", "--mem=2"}}, {Sbatch: make([]string, 100)}, {Sbatch: []string{"wrap=x"}},
	} {
		if Check(bad) == nil {
			t.Errorf("%+.40v is good", bad)
		}
	}
	if err := Check(task.Request{Find: "cuda(mem=14G) * 2 & duration=4h", Sbatch: []string{"mem=8G", "qos=long"}}); err != nil {
		t.Error(err)
	}
}

func TestMemory(t *testing.T) {
	for s, want := range map[string]int64{"8G": 8 << 30, "8GB": 8 << 30, "512": 512 << 20, "1.5g": 3 << 29, "100K": 100 << 10, "2T": 2 << 40} {
		if got, err := Memory(s); err != nil || got != want {
			t.Errorf("%q: %d, %v", s, got, err)
		}
	}
	for _, bad := range []string{"", "G", "8X", "0", "-1", "1e3", "Inf", "NaN", "8GG", "0x8", "9999999999T", "8 G", "8B"} {
		if got, err := Memory(bad); err == nil {
			t.Errorf("%q: %d", bad, got)
		}
	}
}

func FuzzParseRules(f *testing.F) {
	for _, s := range []string{"oom: mem*2 <= 64G, timeout: time*2; 2, node: exclude, lost, exit=75: 3", "none", "oom: mem*1.5", "exit=1:1,exit=2", "::,;;", "oom: mem*2 <= 1e99G"} {
		f.Add(s, int64(1)<<30)
	}
	f.Fuzz(func(t *testing.T, s string, memory int64) {
		rules, err := ParseRules(s)
		if err != nil {
			return
		}
		// Whatever the rules are, attempts end, and limits only grow and stay within bounds.
		var before []string
		for _, r := range rules {
			e := End{Reason: r.Reason, Code: r.Code, Memory: memory, Time: time.Hour, Nodes: []string{"n"}}
			for n := 0; ; n++ {
				c, again, _ := rules.Next(e, before)
				if !again {
					break
				}
				if n > maxTries {
					t.Fatalf("%q: attempts do not end", s)
				}
				if c.Memory != 0 && (c.Memory <= e.Memory || r.Memory.Most > 0 && c.Memory > r.Memory.Most) || c.Time != 0 && c.Time <= e.Time {
					t.Fatalf("%q: %+v after %+v", s, c, e)
				}
				if c.Memory != 0 {
					e.Memory = c.Memory
				}
				if c.Time != 0 {
					e.Time = c.Time
				}
				before = append(before, e.Name())
			}
		}
	})
}
