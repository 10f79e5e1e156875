package input

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/ponos-tools/ponos/lib/pool"
)

func base() pool.Spec { return pool.Spec{Need: pool.Need{CPUs: 1}} }

// show reads everything and prints a task a line.
func show(in *Reader) string {
	var b strings.Builder
	for range 1000 {
		t, err := in.Next()
		var bad *BadTask
		switch {
		case errors.Is(err, io.EOF):
			return b.String()
		case errors.As(err, &bad):
			fmt.Fprintf(&b, "%d BAD %v\n", bad.Seq, err)
			continue
		case err != nil:
			fmt.Fprintf(&b, "ERROR %v\n", err)
			return b.String()
		}
		fmt.Fprintf(&b, "%d %q", t.Seq, t.Text)
		if n := t.Spec.Need.String(); n != "1 CPU" {
			b.WriteString(" " + n)
		}
		if t.Extra != nil {
			fmt.Fprintf(&b, " id=%s after=%v", t.Extra.ID, t.Extra.After)
		}
		if t.Spec.Timeout > 0 {
			fmt.Fprintf(&b, " timeout=%v", t.Spec.Timeout)
		}
		if len(t.Spec.Env) > 0 {
			fmt.Fprintf(&b, " env=%q", t.Spec.Env)
		}
		b.WriteByte('\n')
	}
	return b.String()
}

func TestInput(t *testing.T) {
	for _, tt := range []struct {
		name, in string
		o        Options
		want     string
	}{
		{"lines", "a b\r\n\n  \n# note\nc 'd'\nlast", Options{}, "1 \"a b\"\n2 \"c 'd'\"\n3 \"last\"\n"},
		{"byte order mark", "\ufeff#JOBPOOL cpus=2\r\na\r\n\ufeffb\r\n", Options{}, "1 \"a\" 2 CPUs\n2 \"\\ufeffb\" 2 CPUs\n"},
		{"byte order mark of data", "\ufeffa\x00", Options{Null: true}, "1 \"\\ufeffa\"\n"},
		{"nul", "a\nb\x00#c\x00\x00", Options{Null: true}, "1 \"a\\nb\"\n2 \"#c\"\n"},
		{
			"directives", "a\n#JOBPOOL cpus=4 gpus=1 mem=2G timeout=1m\nb\n #JOBPOOL cpus=2\nc\n#JOBPOOL reset\nd\n#JOBPOOLX\n", Options{},
			"1 \"a\"\n2 \"b\" 4 CPUs, 1 GPU, 2G timeout=1m0s\n3 \"c\" 2 CPUs, 1 GPU, 2G timeout=1m0s\n4 \"d\"\n",
		},
		{"bad directive", "a\n#JOBPOOL cpu=4\nb", Options{}, "1 \"a\"\nERROR x:2: unknown setting \"cpu\": expected one of cpus, cwd, gpus, mem, need, nodes, priority, time, timeout\n"},
		{
			"resources", "#JOBPOOL gpus=0.5 need=licence=1,scratch=50G\na\n#JOBPOOL need=licence=0.25 gpus=2.0\nb\n", Options{},
			"1 \"a\" 1 CPU, 0.5 GPU, 1 licence, 50G scratch\n2 \"b\" 1 CPU, 2 GPUs, 0.25 licence\n",
		},
		{
			"nodes", "#JOBPOOL nodes=4 cpus=2\na\n#JOBPOOL nodes=1\nb\n", Options{},
			"1 \"a\" 4 nodes with 2 CPUs each\n2 \"b\" 2 CPUs\n",
		},
		{"bad part of a GPU", "#JOBPOOL gpus=1.5", Options{}, "ERROR x:1: gpus: \"1.5\" is neither a whole number nor a part of one GPU\n"},
		{
			"resources in json", `{"cmd":"a","need":{"scratch":"50G","licence":0.5},"gpus":0.125}` + "\n" + `{"cmd":"b","need":"licence=1"}` + "\n" + `{"cmd":"c","need":{"L":1}}`, Options{JSON: true},
			"1 \"a\" 1 CPU, 0.125 GPU, 0.5 licence, 50G scratch\n2 \"b\" 1 CPU, 1 licence\n" +
				"3 BAD x:3: need: invalid name of a resource: \"L\": expected lower-case letters, digits and _\n",
		},
		{
			"amounts as resources", "#JOBPOOL need=gpus=1,licence=2 cpus=4\na\n#JOBPOOL need=mem=2G,scratch=1\nb\n#JOBPOOL need=cpus=2\nc\n", Options{},
			"1 \"a\" 4 CPUs, 1 GPU, 2 licence\n2 \"b\" 4 CPUs, 1 GPU, 2G, 1 scratch\n3 \"c\" 2 CPUs, 1 GPU, 2G\n",
		},
		{"alternatives", "#JOBPOOL need=gpus=1|cpus=16", Options{}, "ERROR x:1: need: \"gpus=1|cpus=16\" has alternatives: a task needs one list of resources\n"},
		{
			"alternatives in json", `{"cmd":"a","need":"gpus=1 | cpus=16"}` + "\n" + `{"cmd":"b","need":[{"gpus":0.5},"cpus=2"]}` + "\n" + `{"cmd":"c","need":[{"gpus":"1|cpus=2"}]}`, Options{JSON: true},
			"1 BAD x:1: need: \"gpus=1 | cpus=16\" has alternatives: a task needs one list of resources\n" +
				"2 BAD x:2: not a task: need: [{\"gpus\":0.5},\"cpus=2\"] is neither an object nor a string\n" +
				"3 BAD x:3: not a task: need: [{\"gpus\":\"1|cpus=2\"}] is neither an object nor a string\n",
		},
		{"what is a setting", "#JOBPOOL need=gpu=1", Options{}, "ERROR x:1: need: invalid name of a resource: \"gpu\": did you mean \"gpus\"?\n"},
		{"same resource", "#JOBPOOL need=gpus=1,gpus=2", Options{}, "ERROR x:1: need: resource \"gpus\" is named twice\n"},
		{"bad value", "#JOBPOOL cpus=0", Options{}, "ERROR x:1: cpus: invalid number \"0\": expected a whole number from 1 to 16384\n"},
		{"template", "a b\n#x\n", Options{Template: []string{"echo", "-n"}}, "1 \"echo\\x00-n\\x00a b\"\n2 \"echo\\x00-n\\x00#x\"\n"},
		{
			"places", "/d/f.tar.gz\n", Options{Template: []string{"x", "{}", "{.}", "{/}", "{//}", "{/.}", "{#}", "{%}"}},
			"1 \"x\\x00/d/f.tar.gz\\x00/d/f.tar\\x00f.tar.gz\\x00/d\\x00f.tar\\x001\\x00{%}\"\n",
		},
		{"shell template", "a b\n", Options{Template: []string{"echo {} > {#}"}}, "1 \"echo 'a b' > 1\"\n"},
		{"shell template without place", "a;b\n", Options{Template: []string{"echo 1 &&"}}, "1 \"echo 1 && 'a;b'\"\n"},
		{"shell template of several words", "a b\n", Options{Template: []string{"echo 1; x", "{}", ">", "f"}}, "1 \"echo 1; x 'a b' > f\"\n"},
		{"columns", "a,b\nc\n", Options{Template: []string{"x", "{2}", "{1}"}, Columns: ","}, "1 \"x\\x00b\\x00a\"\n2 BAD x:2: no column 2 in \"c\"\n"},
		{
			"json", `{"cmd":"a","id":"one","cpus":2,"mem":"1G","timeout":"5m","env":{"B":"2","A":"1"}}` + "\n" + `{"argv":["x","y z"],"after":["one",7],"gpus":"1","mem":1024}`,
			Options{JSON: true},
			"1 \"a\" 2 CPUs, 1G id=one after=[] timeout=5m0s env=[\"A=1\" \"B=2\"]\n2 \"x\\x00y z\" 1 CPU, 1 GPU, 1KiB id= after=[one 7]\n",
		},
		{
			"bad json", "{}\n{\"cmd\":1}\nx\n{\"cmd\":\"a\",\"cpu\":1}\n{\"cmd\":\"ok\"}\n", Options{JSON: true},
			"1 BAD x:1: \"cmd\" or \"argv\" is missing\n2 BAD x:2: not a task: \"cmd\" is a number, expected a string\n" +
				"3 BAD x:3: not a task: not JSON: unexpected 'x' at byte 1\n4 BAD x:4: not a task: unknown field \"cpu\"\n5 \"ok\"\n",
		},
		{"long", strings.Repeat("y", maxLine+100000) + "\nb\n", Options{}, "1 BAD x:1: task is longer than 1 MiB\n2 \"b\"\n"},
	} {
		tt.o.Name, tt.o.Base = "x", base()
		if got := show(NewReader(strings.NewReader(tt.in), tt.o)); got != tt.want {
			t.Errorf("%s:\n got %s\nwant %s", tt.name, got, tt.want)
		}
	}
}

// showWords reads what follows a template.
func showWords(t *testing.T, o Options, words ...string) string {
	t.Helper()
	_, sources, err := Split(words)
	if err != nil {
		return "SPLIT " + err.Error() + "\n"
	}
	in, err := Open(strings.NewReader("in 1\nin 2\n"), sources, o)
	if err != nil {
		return "OPEN " + err.Error() + "\n"
	}
	return show(in)
}

func TestArguments(t *testing.T) {
	o := Options{Base: base(), Template: []string{"e", "{2}", "{1}"}}
	got := showWords(t, o, ":::", "a", "b", ":::", "1", "2")
	if want := "1 \"e\\x001\\x00a\"\n2 \"e\\x002\\x00a\"\n3 \"e\\x001\\x00b\"\n4 \"e\\x002\\x00b\"\n"; got != want {
		t.Errorf("got %s", got)
	}
	if got := showWords(t, o, ":::", "a", ":::"); got != "" {
		t.Errorf("nothing to combine: %s", got)
	}
}

func FuzzReader(f *testing.F) {
	f.Add("a\n#JOBPOOL cpus=2\nb", false, false, "echo {}")
	f.Add(`{"cmd":"a","after":[1,"b"]}`, true, false, "")
	f.Add("a\x00b", false, true, "{1} {2}")
	f.Fuzz(func(t *testing.T, text string, asJSON, null bool, tmpl string) {
		o := Options{Name: "x", JSON: asJSON, Null: null, Base: base(), Columns: ","}
		if tmpl != "" {
			o.Template = strings.Fields(tmpl)
		}
		in := NewReader(strings.NewReader(text), o)
		var seq int64
		for {
			task, err := in.Next()
			var bad *BadTask
			switch {
			case err == nil && (task.Seq != seq+1 || task.Text == "" || task.Spec.Need.CPUs < 1):
				t.Fatalf("task %+v after %d", task, seq)
			case errors.As(err, &bad) && bad.Seq != seq+1:
				t.Fatalf("%v after %d", err, seq)
			case err != nil && bad == nil:
				return
			}
			seq++
		}
	})
}
