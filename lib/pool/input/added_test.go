package input

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ponos-tools/ponos/lib/pool"
	"github.com/ponos-tools/ponos/lib/pool/wire"
)

// rest reads tasks to the end: their numbers and texts.
func rest(t *testing.T, in Tasks) (out []string) {
	t.Helper()
	for {
		task, err := in.Next()
		if errors.Is(err, io.EOF) {
			return out
		}
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, strings.Join([]string{string(rune('0' + task.Seq)), task.Text}, " "))
	}
}

func TestGrowing(t *testing.T) {
	name := filepath.Join(t.TempDir(), "added")
	base := pool.Spec{Need: pool.Need{CPUs: 1}}
	grow := func() *Growing {
		in, err := Open(strings.NewReader("one\n# a comment\ntwo\n"), nil, Options{Base: base})
		if err != nil {
			t.Fatal(err)
		}
		return Grow(in, name, base, false)
	}
	g := grow()
	want := func(g *Growing, text string) {
		t.Helper()
		if got := strings.Join(rest(t, g), ", "); got != text {
			t.Errorf("got %q, want %q", got, text)
		}
	}
	want(g, "1 one, 2 two")
	if n, err := g.Add(&Addition{Text: "three\n#JOBPOOL cpus=2\nfour\n"}); n != 2 || err != nil {
		t.Errorf("added %d, %v", n, err)
	}
	if n, err := g.Add(&Addition{Text: `{"cmd":"five"}`, JSON: true, Set: map[string]wire.Text{"cpus": "3"}}); n != 1 || err != nil {
		t.Errorf("added %d, %v", n, err)
	}
	want(g, "3 three, 4 four, 5 five")
	want(g, "")
	for _, a := range []*Addition{
		{Text: "six\n#JOBPOOL cpus=x\n"}, {Text: "six", Set: map[string]wire.Text{"cpus": "many"}}, {Text: "six", Set: map[string]wire.Text{"colour": "red"}},
		{Text: `{"cmd":"six"}` + "\n{", JSON: true},
	} {
		if n, err := g.Add(a); n != 0 || err == nil {
			t.Errorf("%+v: added %d, %v", a, n, err)
		}
	}
	if n, err := g.Add(&Addition{Text: "# nothing\n"}); n != 0 || err != nil {
		t.Errorf("nothing: added %d, %v", n, err)
	}
	want(g, "")
	// Once more, as when the run is resumed, and with a line that a full disk has cut off.
	f, err := os.OpenFile(name, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err = f.WriteString(`{"text":"sev`); err != nil {
		t.Fatal(err)
	}
	f.Close()
	g = grow()
	want(g, "1 one, 2 two, 3 three, 4 four, 5 five")
	if n, err := g.Add(&Addition{Text: "six"}); n != 1 || err != nil {
		t.Errorf("added %d, %v", n, err)
	}
	want(g, "6 six")
}

func FuzzAddition(f *testing.F) {
	f.Add("echo a\n#JOBPOOL cpus=2\necho b\n", false)
	f.Add(`{"cmd":"a","after":["b"]}`, true)
	f.Fuzz(func(t *testing.T, text string, object bool) {
		g := Grow(nil, filepath.Join(t.TempDir(), "added"), pool.Spec{Need: pool.Need{CPUs: 1}}, true)
		n, err := g.Add(&Addition{Text: wire.Text(text), JSON: object})
		if err != nil {
			return
		}
		for range n {
			if _, err := g.Next(); err != nil {
				t.Fatalf("added %d: %v", n, err)
			}
		}
		if _, err := g.Next(); !errors.Is(err, io.EOF) {
			t.Errorf("more than %d tasks: %v", n, err)
		}
	})
}

// Tasks that are added can wait for others, and have all settings of a task, also in a run that is resumed.
func TestGrowingAfter(t *testing.T) {
	name := filepath.Join(t.TempDir(), "added")
	base := pool.Spec{Need: pool.Need{CPUs: 1}}
	set := map[string]wire.Text{"time": "1h", "priority": "-3", "cwd": "/a\xff"}
	if _, err := Grow(nil, name, base, false).Add(&Addition{Text: "a", After: []string{"1", ""}}); err == nil {
		t.Error("a task waits for one without a name")
	}
	for _, a := range []*Addition{
		{Text: "a\nb\n", After: []string{"1", "x"}, Set: set}, {Text: `{"cmd":"c","after":"y"}`, JSON: true, After: []string{"2"}}, {Text: "d"},
	} {
		if _, err := Grow(nil, name, base, false).Add(a); err != nil {
			t.Fatal(err)
		}
	}
	g := Grow(nil, name, base, false)
	for i, after := range [][]string{{"1", "x"}, {"1", "x"}, {"y", "2"}, nil} {
		task, err := g.Next()
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		if task.Extra != nil {
			got = task.Extra.After
		}
		if s := task.Spec; !slices.Equal(got, after) || i < 2 && (s.Time != time.Hour || s.Priority != -3 || s.Dir != "/a\xff") || i == 2 && s.Priority != 0 {
			t.Errorf("task %d is after %q, %+v", task.Seq, got, s)
		}
	}
}
