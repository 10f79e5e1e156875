package input

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
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

// spool is a run that takes tasks.
func spool(t testing.TB) string {
	t.Helper()
	run := t.TempDir()
	if err := Begin(run); err != nil {
		t.Fatal(err)
	}
	return run
}

var cpu = pool.Spec{Need: pool.Need{CPUs: 1}}

// grown is the input of a run whose list is "one" and "two".
func grown(t *testing.T, run string) *Growing {
	t.Helper()
	in, err := Open(strings.NewReader("one\n# a comment\ntwo\n"), nil, Options{Base: cpu})
	if err != nil {
		t.Fatal(err)
	}
	return Grow(in, run, cpu, false)
}

// offer adds tasks, one per line.
func offer(t *testing.T, run string, text wire.Text) {
	t.Helper()
	if n, err := Offer(run, &Addition{Text: text}); n != strings.Count(string(text), "\n")+1 || err != nil {
		t.Fatalf("offered %d of %q, %v", n, text, err)
	}
}

// files returns what is in a run, with directories.
func files(t *testing.T, run string) (out []string) {
	t.Helper()
	err := filepath.WalkDir(run, func(path string, d fs.DirEntry, err error) error {
		if name, _ := filepath.Rel(run, path); err == nil && name != "." {
			if strings.HasPrefix(name, "in/") {
				name = "in/*"
			}
			out = append(out, name)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestGrowing(t *testing.T) {
	run := spool(t)
	g := grown(t, run)
	want := func(g *Growing, text string) {
		t.Helper()
		if got := strings.Join(rest(t, g), ", "); got != text {
			t.Errorf("got %q, want %q", got, text)
		}
	}
	take := func(g *Growing, last int64, more bool) {
		t.Helper()
		if got, err := g.Take(last); got != more || err != nil {
			t.Errorf("take: %v, %v, want %v", got, err, more)
		}
	}
	want(g, "1 one, 2 two")
	take(g, 2, false)
	if n, err := Offer(run, &Addition{Text: "three\n#JOBPOOL cpus=2\nfour\n"}); n != 2 || err != nil {
		t.Errorf("offered %d, %v", n, err)
	}
	want(g, "")
	if n, err := Offer(run, &Addition{Text: `{"cmd":"five"}`, JSON: true, Set: map[string]wire.Text{"cpus": "3"}}); n != 1 || err != nil {
		t.Errorf("offered %d, %v", n, err)
	}
	if err := g.Close(); !errors.Is(err, syscall.ENOTEMPTY) {
		t.Errorf("closed with tasks that are not taken: %v", err)
	}
	want(Look(grown(t, run).input, run, cpu, false), "1 one, 2 two, 3 three, 4 four, 5 five")
	take(g, 2, true)
	want(g, "3 three, 4 four, 5 five")
	want(g, "")
	for _, a := range []*Addition{
		{Text: "six\n#JOBPOOL cpus=x\n"}, {Text: "six", Set: map[string]wire.Text{"cpus": "many"}}, {Text: "six", Set: map[string]wire.Text{"colour": "red"}},
		{Text: `{"cmd":"six"}` + "\n{", JSON: true}, {Text: "six", After: []string{"1", ""}},
	} {
		if n, err := Offer(run, a); n != 0 || err == nil {
			t.Errorf("%+v: offered %d, %v", a, n, err)
		}
	}
	if n, err := Offer(run, &Addition{Text: "# nothing\n"}); n != 0 || err != nil {
		t.Errorf("nothing: offered %d, %v", n, err)
	}
	if got := files(t, run); !slices.Equal(got, []string{"added", "added/0000000003-0000000004", "added/0000000005-0000000005", "in"}) {
		t.Errorf("files %q", got)
	}
	// Once more, as when the run is resumed. Tasks of requests have got numbers, too.
	g = grown(t, run)
	if g.Last() != 5 {
		t.Errorf("the last number is %d", g.Last())
	}
	want(g, "1 one, 2 two, 3 three, 4 four, 5 five")
	offer(t, run, "eight")
	take(g, 7, true)
	want(g, "8 eight")
	// A list that has grown would give numbers twice.
	in, err := Open(strings.NewReader("one\ntwo\nmore\n"), nil, Options{Base: cpu})
	if err != nil {
		t.Fatal(err)
	}
	g = Grow(in, run, cpu, false)
	for range 3 {
		if _, err := g.Next(); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := g.Next(); err == nil || !strings.Contains(err.Error(), "task 3 is one that was added") {
		t.Errorf("a longer list: %v", err)
	}
}

// A run takes tasks from when it is begun until it is shut or has ended; what was offered before is taken. One that was
// shut stays so, whoever begins it, until it is opened again.
func TestOpenAndShut(t *testing.T) {
	run := t.TempDir()
	g := Grow(nil, run, cpu, false)
	do := func(want error, open bool, steps ...func(string) error) {
		t.Helper()
		for _, step := range steps {
			if err := step(run); !errors.Is(err, want) || g.Open() != open {
				t.Errorf("%v, open: %v; want %v, open: %v", err, g.Open(), want, open)
			}
		}
		if open {
			return
		}
		if n, err := Offer(run, &Addition{Text: "late"}); n != 0 || !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("offered %d, %v", n, err)
		}
	}
	end := func(string) error { return g.Close() }
	taken := func(want string) {
		t.Helper()
		if _, err := g.Take(0); err != nil {
			t.Error(err)
		}
		if got := strings.Join(rest(t, g), ", "); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	do(fs.ErrNotExist, false, Reopen, Shut)
	do(nil, true, Begin, Begin, Reopen)
	offer(t, run, "a")
	do(nil, false, Shut, Begin)
	do(fs.ErrNotExist, false, Shut)
	do(syscall.ENOTEMPTY, false, end)
	do(nil, true, Reopen, Reopen) // before a scheduler has seen it
	offer(t, run, "b")
	do(nil, false, Shut, Begin)
	taken("1 a, 2 b")
	do(nil, false, end, end, Begin, end) // a kill, and a scheduler that finds nothing left
	taken("")
	do(nil, true, Reopen)
	offer(t, run, "c")
	taken("3 c")
	do(nil, false, end, end)
	do(fs.ErrNotExist, false, Shut, Reopen)
	do(nil, true, Begin)
	do(nil, false, end)
	if got := files(t, run); !slices.Equal(got, []string{
		"added", "added/0000000001-0000000001", "added/0000000002-0000000002", "added/0000000003-0000000003",
	}) {
		t.Errorf("files %q", got)
	}
}

// What others write there costs one task, which is refused, and what a writer has left that was killed is removed.
func TestOfferedRubbish(t *testing.T) {
	run := spool(t)
	in := func(name string) string { return filepath.Join(run, Offered, name) }
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(in("0"), `{"version":1,"text":"good"}`)
	write(in("1"), `{"version":1,"text":"half`)
	write(in("2"), `{"version":2,"text":"newer"}`)
	write(in("3"), `{"version":1,"text":"good\n#JOBPOOL cpus=x\n"}`)
	write(in("4"), `{"version":1,"text":"good","needs":"a GPU"}`)
	write(in("6"), `{"version":1,"text":"#nothing"}`)
	write(in("7"), `{"version":1,"text":"last"}`)
	if err := errors.Join(syscall.Mkfifo(in("5"), 0o600), os.Symlink(in("7"), in("55")), os.Mkdir(in("56"), 0o700)); err != nil {
		t.Fatal(err)
	}
	old, young := filepath.Join(run, staged+"1"), filepath.Join(run, staged+"2")
	write(old, "half")
	write(young, "half")
	if err := os.Chtimes(old, time.Time{}, time.Now().Add(-2*time.Hour)); err != nil {
		t.Fatal(err)
	}
	if err := Begin(run); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		g := Grow(nil, run, cpu, false)
		if _, err := g.Take(0); err != nil {
			t.Fatal(err)
		}
		var got []string
		for {
			task, err := g.Next()
			var bad *BadTask
			switch {
			case err == nil:
				got = append(got, task.Text)
				continue
			case errors.As(err, &bad):
				got = append(got, strings.TrimPrefix(bad.Error(), run+"/added/"))
				continue
			case !errors.Is(err, io.EOF):
				t.Fatal(err)
			}
			break
		}
		if want := []string{
			"good", "0000000002-0000000002: unexpected end of JSON input",
			"0000000003-0000000003: it has version 2, and this jobpool knows version 1",
			`0000000004-0000000004: standard input:2: cpus: invalid number "x": expected a whole number from 1 to 16384`,
			`0000000005-0000000005: json: unknown field "needs"`,
			"0000000006-0000000006: not a regular file of at most 64 MiB", "0000000007-0000000007: not a regular file of at most 64 MiB",
			"0000000008-0000000008: not a regular file of at most 64 MiB", "last",
		}; !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
		if err := g.Close(); err != nil {
			t.Error(err)
		}
	}
	if _, err := os.Stat(old); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("it stays: %v", err)
	}
	if _, err := os.Stat(young); err != nil {
		t.Error(err)
	}
}

func FuzzAddition(f *testing.F) {
	f.Add("echo a\n#JOBPOOL cpus=2\necho b\n", false)
	f.Add(`{"cmd":"a","after":["b"]}`, true)
	f.Fuzz(func(t *testing.T, text string, object bool) {
		run := spool(t)
		n, err := Offer(run, &Addition{Text: wire.Text(text), JSON: object})
		if err != nil {
			return
		}
		g := Grow(nil, run, cpu, true)
		if _, err := g.Take(0); err != nil {
			t.Fatal(err)
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
	run := spool(t)
	set := map[string]wire.Text{"time": "1h", "priority": "-3", "cwd": "/a\xff"}
	for _, a := range []*Addition{
		{Text: "a\nb\n", After: []string{"1", "x"}, Set: set}, {Text: `{"cmd":"c","after":"y"}`, JSON: true, After: []string{"2"}}, {Text: "d"},
	} {
		if _, err := Offer(run, a); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		g := Grow(nil, run, cpu, false)
		if _, err := g.Take(0); err != nil {
			t.Fatal(err)
		}
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
}

// Many additions are taken in parts, in their order.
func TestManyAdditions(t *testing.T) {
	run := spool(t)
	const all = mostTaken + 20
	for i := range all {
		offer(t, run, wire.Text("echo "+strconv.Itoa(i)))
	}
	g := Grow(nil, run, cpu, false)
	for seq, more := 0, true; more; {
		var err error
		if more, err = g.Take(0); err != nil {
			t.Fatal(err)
		}
		n := 0
		for {
			task, err := g.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			if seq++; err != nil || task.Seq != int64(seq) || task.Text != "echo "+strconv.Itoa(seq-1) {
				t.Fatalf("task %d is %+v, %v", seq, task, err)
			}
			n++
		}
		if n > mostTaken || !more && seq != all {
			t.Errorf("%d were taken at a time, and %d of %d in all", n, seq, all)
		}
	}
}
