package sbatch

import (
	"testing"
	"time"
)

func TestSet(t *testing.T) {
	var o Options
	o.Set("gpus_per_node", "3")
	o.Set("time", "4")
	o.Set("mail-type", "END")
	o.Set("nodes", "1")
	o.Set("nodes", "2")
	o.Set("qos", "")
	o.SetBare("exclusive")
	if got := o.String(); got != "--nodes=2 --time=4 --gpus-per-node=3 --exclusive --mail-type=END" {
		t.Error(got)
	}
	o.Set("exclusive", "user")
	o.Set("nodes", "")
	if got := o.String(); got != "--time=4 --gpus-per-node=3 --exclusive=user --mail-type=END" {
		t.Error(got)
	}
}

func TestParse(t *testing.T) {
	for text, want := range map[string]Option{
		"mem=8G":            {Name: "mem", Value: "8G"},
		"--cpus_per_task=2": {Name: "cpus-per-task", Value: "2"},
		"--exclusive":       {Name: "exclusive", Bare: true},
		"exclusive=":        {Name: "exclusive"},
		"export=A_B=c":      {Name: "export", Value: "A_B=c"},
	} {
		if got := Parse(text); got != want {
			t.Errorf("%s: %+v, want %+v", text, got, want)
		}
		if got := Parse(Parse(text).Arg()); got != want {
			t.Errorf("%s: its argument %q is another option: %+v", text, want.Arg(), got)
		}
	}
}

func TestLaterOptionsReplace(t *testing.T) {
	base := Options{{Name: "time", Value: "1"}, {Name: "account", Value: "a"}}
	got := base.With(Option{Name: "time", Value: "2"}, Option{Name: "hold", Bare: true})
	if got.String() != "--account=a --time=2 --hold" || base.String() != "--time=1 --account=a" {
		t.Errorf("%s, from %s", got, base)
	}
	if v, ok := got.Get("hold"); v != "" || !ok || got.Has("mem") || got.Value("time") != "2" {
		t.Errorf("%+v", got)
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

func FuzzParse(f *testing.F) {
	for _, seed := range []string{"mem=8G", "--cpus_per_task=2", "--exclusive", "export=", "", "=", "--"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if o := Parse(text); Parse(o.Arg()) != o {
			t.Errorf("%q: %+v, and its argument is %+v", text, o, Parse(o.Arg()))
		}
	})
}
