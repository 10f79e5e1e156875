package sbatch

import (
	"strings"
	"testing"
	"time"
)

// given reads options as they are written in a line.
func given(t *testing.T, line string) Options {
	t.Helper()
	l, err := Argv(strings.Fields(line))
	if err != nil || len(l.Command) > 0 {
		t.Fatalf("%s: %v, %q", line, err, l.Command)
	}
	return l.Jobs[0]
}

func TestSet(t *testing.T) {
	var o Options
	o.Set("gpus_per_node", "3")
	o.Set("time", "4")
	o.Set("mail-type", "END")
	o.Set("nodes", "1")
	o.Set("nodes", "2")
	o.Set("qos", "")
	o.SetFlag("exclusive")
	if got := o.String(); got != "--nodes=2 --time=4 --gpus-per-node=3 --exclusive --mail-type=END" {
		t.Error(got)
	}
	o.Set("exclusive", "user")
	o.Set("nodes", "")
	if got := o.String(); got != "--time=4 --gpus-per-node=3 --exclusive=user --mail-type=END" {
		t.Error(got)
	}
}

func TestSettings(t *testing.T) {
	text := func(s string) *string { return &s }
	for _, c := range []struct {
		name  string
		value *string
		want  string // the argument, or what is wrong
	}{
		{"mem", text("8G"), "--mem=8G"},
		{"cpus_per_task", text("2"), "--cpus-per-task=2"},
		{"memory_per_node", text("8G"), "--mem=8G"},
		{"tasks-per-node", text("2"), "--ntasks-per-node=2"},
		{"exclusive", nil, "--exclusive"},
		{"exclusive", text("yes"), "--exclusive"},
		{"exclusive", text("no"), ""},
		{"exclusive", text("user"), "--exclusive=user"},
		{"contiguous", text("true"), "--contiguous"},
		{"contiguous", text("off"), ""},
		{"contiguous", text("2"), `option "contiguous" takes no value`},
		{"requeue", text("no"), "--no-requeue"},
		{"requeue", text("expedite"), "--requeue=expedite"},
		{"is_requeueable", text("yes"), "--requeue"},
		{"kill-on-invalid-dep", text("yes"), "--kill-on-invalid-dep=yes"},
		{"kill-on-invalid-dep", text("false"), "--kill-on-invalid-dep=no"},
		{"kill-on-invalid-dep", nil, `option "kill-on-invalid-dep" lacks a value`},
		{"mem", nil, `option "mem" lacks a value`},
		{"mem", text(""), `option "mem" lacks a value`},
		{"time", text("2h"), "--time=2:00:00"},
		{"time", text("90"), "--time=90"},
		{"nice", nil, "--nice"},
		{"of-a-plugin", nil, "--of-a-plugin"},
		{"of-a-plugin", text("yes"), "--of-a-plugin=yes"},
	} {
		o, err := Setting(c.name, c.value)
		got := Options{o}.String()
		if err != nil {
			got = err.Error()
		}
		if got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}

func TestCheck(t *testing.T) {
	for text, want := range map[string]string{
		"mem=1.5G": "megabytes", "mem=99999999999999999999G": "megabytes", "nodes=few": "a range", "gpus=a100": "", "gpus=a100:2,h100": "", "gpus=a100:": "such as 2 or a100:2",
		"exclusive=maybe": "one of exclusive, oversubscribe, user, mcs", "exclusive=USER": "", "nice=x": "a whole number", "nice=-5": "",
		"gres=gpu:a100:2,shard:4": "", "gres=gpu:": "NAME:TYPE:COUNT", "tres-per-task=cpu:2,gres/gpu:1": "", "time=1:2:3:4": "minutes",
		"nodes=0": "a number from 1", "nodes=4-2": "a number from 1", "nodes=0-2": "", "nodes=2-": "a number from 1", "nodes=1k": "", "nodes=1,3-5:2": "", "nodes=99999999999": "a number from 1",
		"cpus-per-task=0": "a whole number from 1", "ntasks=99999999999": "a whole number from 1", "ntasks=100000000": "", "qos=anything": "", "exclusive=no": "", "of-a-plugin=x": "",
		"memory=8G": `sbatch has no option "memory"; did you mean "mem"?`, "container-name=x": "", // of a plugin
	} {
		o, err := Parse(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if err = o.Check(); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}

func TestLaterOptionsReplace(t *testing.T) {
	for _, c := range []struct{ first, then, want string }{
		{"--time=1 --account=a", "--time=2 --hold", "--account=a --time=2 --hold"},
		{"--mem=1G --qos=q", "--mem-per-cpu=2G", "--qos=q --mem-per-cpu=2G"},
		{"--gpus=2", "--gres=gpu:a100:1", "--gres=gpu:a100:1"},
		{"--gres=gpu:2,tmpdisk:1", "--gpus-per-node=1", "--gres=tmpdisk:1 --gpus-per-node=1"},
		{"--gpus=2", "--gres=tmpdisk:1", "--gpus=2 --gres=tmpdisk:1"},
		{"--gpus=2", "--gres=shard:1", "--gres=shard:1"},
		{"--gpus=2", "--gpus=4 --gres=gpu:1", "--gpus=4 --gres=gpu:1"},
		{"--gres=gpu:2", "--mem=1G --mem-per-cpu=1G", "--gres=gpu:2 --mem=1G --mem-per-cpu=1G"}, // Conflict is about these
		{"--mem=2G --requeue", "--no-requeue --time=1 --requeue --time=2", "--mem=2G --requeue --time=2"},
		{"--requeue", "--no-requeue", "--no-requeue"},
		{"--cpus-per-task=4", "--cpus-per-gpu=2", "--cpus-per-gpu=2"},
		{"--exclusive", "--oversubscribe", "--oversubscribe"},
	} {
		first := given(t, c.first)
		if got := first.With(given(t, c.then)...).String(); got != c.want || first.String() != c.first {
			t.Errorf("%s, then %s: %s, want %s; first is %s", c.first, c.then, got, c.want, first)
		}
	}
	if got := given(t, "--gpus=2 --mem=1G").Then(given(t, "--gres=gpu:1 --mem-per-cpu=1G")...).String(); got != "--gpus=2 --gres=gpu:1 --mem-per-cpu=1G" {
		t.Errorf("after a script: %s", got)
	}
	off, _ := Parse("exclusive=no")
	o := given(t, "--exclusive --mem=1G").With(off)
	if o.String() != "--mem=1G" || o.Has("exclusive") {
		t.Errorf("%s", o)
	}
}

// What a real sbatch refuses or takes.
func TestConflict(t *testing.T) {
	const fits, multiple, larger = "", "the second one does not divide the first one", "the second one is larger"
	for line, want := range map[string]string{
		"--mem=1G --mem-per-gpu=1G":          "--mem and --mem-per-gpu cannot be combined",
		"--gpus-per-node=1 --gres=gpu:1":     "--gpus-per-node and --gres cannot be combined",
		"--requeue --no-requeue":             fits,
		"--gpus-per-node=1 --gres=tmpdisk:1": fits,
		"--mem=1G --gpus=1":                  fits,

		"--gpus=3 --gpus-per-node=2":                                  "--gpus=3 and --gpus-per-node=2 do not fit: " + multiple,
		"--gpus=1 --gres=gpu:2":                                       "--gpus=1 and --gres=gpu:2 do not fit: " + larger,
		"--gpus=a100:4,v100:3 --gpus-per-node=a100:2,v100:2":          multiple,
		"--gpus=a100:4,v100:4 --gpus-per-node=a100:2":                 fits,
		"--gpus=4 --gpus-per-node=2 -N3":                              "make 2 nodes, which do not fit --nodes=3",
		"--gpus=4 --gpus-per-node=2 -N1-2":                            fits,
		"--gpus=4 --gpus-per-node=2 -N3 -n2":                          fits, // no more nodes than tasks
		"--gpus=4 --gpus-per-task=2 -n3":                              "make 2 tasks, which do not fit --ntasks=3",
		"--gpus=4 --gpus-per-task=3":                                  multiple,
		"--gpus-per-node=4 --gpus-per-task=3 -n2":                     multiple,
		"--gpus-per-node=4 --gpus-per-task=2 --ntasks-per-node=1":     "make 2 tasks per node, which do not fit --ntasks-per-node=1",
		"--gpus-per-node=4 --gpus-per-socket=2 --sockets-per-node=1":  "make 2 sockets per node",
		"--gpus=3 --gpus-per-socket=2 --sockets-per-node=1":           fits, // no multiple
		"--gpus=1 --gpus-per-socket=2 --sockets-per-node=1":           larger,
		"--gpus-per-socket=2 --gpus-per-task=1 --ntasks-per-socket=1": "make 2 tasks per socket",
		"--gpus=1 -N2":                 "--gpus=1 has fewer GPUs than the job has nodes",
		"--gpus=1 --nodelist=gpu[1-2]": "--gpus=1 has fewer GPUs",
		"--gpus=2 --gres=gpu:a100:1":   "GPUs with a type and without one cannot be combined",
		"--gpus=a100:2 --gres=gpu:0":   fits,
		"--gpus=x:y:z --gres=gpu:2":    fits, // Check is about that
	} {
		got := ""
		if err := given(t, line).Conflict(Newest); err != nil {
			got = err.Error()
		}
		if !strings.Contains(got, want) || (want == fits) != (got == "") {
			t.Errorf("%s: %q, want %q", line, got, want)
		}
	}
}

func TestWritten(t *testing.T) {
	for text, want := range map[string][2]string{
		"mem=8G":            {"#SBATCH --mem=8G", "MinMemoryNode=8G"},
		"requeue=no":        {"#SBATCH --no-requeue", ""},
		"requeue":           {"#SBATCH --requeue", "Requeue=1"},
		"nice":              {"#SBATCH --nice", "Nice=100"},
		"constraint=a b#\"": {`#SBATCH --constraint="a b#\""`, `Features=a b#"`},
		"cpus-per-task=2":   {"#SBATCH --cpus-per-task=2", ""},
	} {
		o, err := Parse(text)
		if got := [2]string{o.Directive(), o.Update()}; err != nil || got != want {
			t.Errorf("%s: %q, %v", text, got, err)
		}
	}
}

func TestNumbers(t *testing.T) {
	var o Options
	o.SetInt("gpus", 0)
	o.SetTime("time", 0)
	o.SetMemory("mem", 0)
	if len(o) != 0 {
		t.Errorf("%s", o)
	}
	o.SetInt("gpus", 2)
	o.SetTime("time", 90*time.Minute)
	o.SetMemory("mem", 1)
	if o.String() != "--time=01:30:00 --mem=1M --gpus=2" {
		t.Errorf("%s", o)
	}
}

func TestNames(t *testing.T) {
	if Nearest("memory", ByTask) != "mem" || Nearest("particion", ByTask) != "partition" || Nearest("wrapp", ByTask) != "" {
		t.Error(Nearest("memory", ByTask), Nearest("particion", ByTask), Nearest("wrapp", ByTask))
	}
	if Short('c') != "cpus-per-task" || Short('Z') != "" || Lookup("tasks-per-node") != Lookup("ntasks-per-node") || Lookup("nosuch") != nil {
		t.Error("names do not find their options")
	}
	seen := map[string]bool{}
	for _, d := range table {
		for _, name := range []string{d.Name, d.Alias, d.Attribute, string(d.Short)} {
			if name != "" && name != "\x00" && seen[name] {
				t.Errorf("two options have the name %q", name)
			}
			seen[name] = true
		}
		if (d.Form == Word) != (d.Words != nil) || d.Until != 0 && d.Until < d.Since {
			t.Errorf("%+v", d)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, seed := range []string{"mem=8G", "--cpus_per_task=2", "--exclusive", "export=", "", "=", "--", "exclusive=no", "time=2h", "requeue=off"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		o, err := Parse(text)
		if err != nil {
			return
		}
		if again, err := Parse(o.Arg()); err != nil || again != o {
			t.Errorf("%q: %+v, and its argument is %+v, %v", text, o, again, err)
		}
		_ = o.Check()
	})
}
