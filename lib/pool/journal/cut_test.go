package journal

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ponos-tools/ponos/lib/pool/wire"
)

// A journal says the same before it is cut, after that, and when it was cut while schedulers wrote it, of whatever has
// happened; and so do the journal of one part and that of the whole.
func TestCutSaysTheSame(t *testing.T) {
	t.Parallel()
	for seed := range uint64(60) {
		random := rand.New(rand.NewPCG(seed, 43))
		whole, short := t.TempDir(), t.TempDir()
		var all [2]*Journal
		for i, dir := range []string{whole, short} {
			j, err := Create(dir, "")
			if err != nil {
				t.Fatal(err)
			}
			j.MinCut = 1
			all[i] = j
		}
		var cut *Cut
		var worked error
		finish := func() {
			if cut == nil {
				return
			}
			if _, err := all[1].EndCut(cut, worked); err != nil {
				t.Fatal(err)
			}
			cut = nil
		}
		w := &writer{random: random, all: all[:]}
		for range 2 + random.IntN(80) {
			w.step()
			for _, j := range all {
				if err := j.Flush(); err != nil {
					t.Fatal(err)
				}
			}
			switch random.IntN(8) {
			case 0:
				finish()
				if cut = all[1].BeginCut(); cut != nil {
					worked = cut.Work()
				}
			case 1:
				finish()
			}
		}
		if finish(); random.IntN(2) == 0 {
			all[1].kept = 0
			if err := all[1].Cut(); err != nil {
				t.Fatal(err)
			}
		}
		for _, j := range all {
			if err := j.Close(); err != nil {
				t.Fatal(err)
			}
		}
		want, got := says(t, whole), says(t, short)
		if want != got {
			before, _ := os.ReadFile(filepath.Join(whole, File))
			after, _ := os.ReadFile(filepath.Join(short, File))
			t.Fatalf("seed %d: %s\nof\n%s\ncut to\n%s", seed, cmp.Diff(want, got), before, after)
		}
	}
}

// says is all that a run directory says of its tasks, but how long those took that have succeeded, and what their
// commands were.
func says(t *testing.T, dir string) string {
	t.Helper()
	h, err := Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	fmt.Fprintln(&b, "sessions", h.Sessions, h.Losses, h.Call, h.Done, h.Failed, h.Last())
	for seq := range h.Last() + 1 {
		e := h.Get(seq)
		fmt.Fprint(&b, seq, " ", e.State)
		if seq%7 == 0 { // it has an id
			fmt.Fprint(&b, " ", e.Hash)
		}
		if e.State != OK {
			fmt.Fprint(&b, " ", e.Attempt, h.Deaths(seq))
			if e.Worker > 0 && e.State == Started {
				fmt.Fprintf(&b, " %v", h.workers[e.Worker-1])
			}
		}
		fmt.Fprintln(&b)
	}
	var orphans []string
	for _, w := range h.Orphans() {
		orphans = append(orphans, fmt.Sprint(w))
	}
	slices.Sort(orphans)
	p, err := ReadPast(dir)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintln(&b, orphans, p.Why, p.Killed, p.Left, p.Done)
	for _, t := range p.Tasks {
		if t.Kind == Send {
			t.Time = 0 // that of the clock, of each journal
		}
		fmt.Fprintf(&b, "%+v\n", t)
	}
	return b.String()
}

// writer writes what schedulers may, into several journals.
type writer struct {
	random  *rand.Rand
	all     []*Journal
	session int
	nodes   map[string]*wire.Identity
	running map[int64]string
	ended   map[int64]wire.Outcome
	last    int64
}

func (w *writer) add(r Record) {
	r.Time = float64(w.last)
	for _, j := range w.all {
		j.Add(&r)
	}
}

func (w *writer) step() {
	if w.session == 0 || w.random.IntN(25) == 0 {
		if w.session > 0 && w.random.IntN(2) == 0 {
			w.add(Record{Kind: Stop, Counts: &Counts{Left: 3}, Error: "drained"})
		}
		w.session++
		w.nodes = map[string]*wire.Identity{}
		w.add(Record{
			Kind: Begin, Session: fmt.Sprint("s", w.session), Format: Format, Retry: w.random.IntN(4) == 0,
			Call: []string{"", "a", "b"}[w.random.IntN(3)],
		})
		if w.ended == nil {
			w.ended, w.running = map[int64]wire.Outcome{}, map[int64]string{}
		}
	}
	node := fmt.Sprint("n", w.random.IntN(3))
	up := w.nodes[node]
	switch {
	case up == nil:
		up = &wire.Identity{Session: fmt.Sprint("s", w.session), Node: fmt.Sprint(node, ".", w.last)}
		w.nodes[node] = up
		w.add(Record{Kind: Node, Node: node, What: Up, Worker: up})
		return
	case w.random.IntN(6) == 0:
		delete(w.nodes, node)
		w.add(Record{Kind: Node, Node: node, What: "lost", Error: "gone away"})
		if w.random.IntN(2) == 0 {
			w.add(Record{Kind: Node, Node: node, What: Gone, Worker: up})
		}
		return
	}
	for range w.random.IntN(6) {
		w.last++
		w.sent(w.last, node)
	}
	for seq, on := range w.running {
		id := ""
		if seq%7 == 0 {
			id = fmt.Sprint("id", seq)
		}
		r := Record{Seq: seq, ID: id, Attempt: 1, Node: on, Hash: "00000000000000aa", Start: 1, Seconds: 2}
		switch w.random.IntN(9) {
		case 0:
			r.Kind, r.What = Try, wire.Lost
			w.add(r)
			delete(w.running, seq)
			w.sent(seq, node)
		case 1:
			r.Kind, r.What = End, []wire.Outcome{wire.Failed, wire.Cancelled, wire.Refused, wire.Lost}[w.random.IntN(4)]
			r.Stderr.Text = "why"
		case 2, 3, 4, 5, 6:
			r.Kind, r.What = End, wire.OK
		default:
			continue
		}
		if r.Kind == End {
			w.add(r)
			delete(w.running, seq)
			w.ended[seq] = r.What
		}
	}
	for seq, what := range w.ended {
		switch {
		case w.random.IntN(20) > 0:
		case what == wire.OK:
			w.add(Record{Kind: Output, Seq: seq, Attempt: 1, Node: node, What: wire.OutputLost})
			w.ended[seq] = wire.OutputLost
		default:
			w.add(Record{Kind: Retry, Tasks: FormatSeqs([]int64{seq})})
			delete(w.ended, seq)
			w.sent(seq, node)
		}
	}
}

func (w *writer) sent(seq int64, node string) {
	w.running[seq] = node
	for _, j := range w.all {
		j.Sent(node, 1, seq)
	}
}

// A pool may go on for years: neither its journal, nor its job log, nor what the next scheduler has in memory grows
// with the tasks that have succeeded. A reader of before, to which they would be tasks that have not run, refuses it.
func TestCutDoesNotGrow(t *testing.T) {
	dir := t.TempDir()
	j, err := Create(dir, "")
	if err != nil {
		t.Fatal(err)
	}
	cut := func() {
		t.Helper()
		if err := errors.Join(j.Flush(), j.Cut()); err != nil {
			t.Fatal(err)
		}
	}
	j.MinCut = 100_000
	j.Add(&Record{Kind: Begin, Session: "s", Format: Format})
	for seq := int64(1); seq <= 40_000; seq++ {
		if j.Sent("n", 1, seq); seq%10_000 == 0 {
			continue // it runs for years
		}
		end(j, task(seq, "true"), wire.OK, 0)
		if seq%100 > 0 {
			continue
		}
		worker := &wire.Identity{Session: "s", Node: fmt.Sprint("n.", seq)}
		j.Add(&Record{Kind: Node, Node: "n", What: Up, Worker: worker})
		j.Add(&Record{Kind: Node, Node: "n", What: "lost", Error: "its job has ended"})
		j.Add(&Record{Kind: Node, Node: "n", What: Gone, Worker: worker})
		cut()
	}
	small := func(most int64) {
		t.Helper()
		for _, name := range []string{File, Joblog} {
			if st, err := os.Stat(filepath.Join(dir, name)); err != nil || st.Size() > most {
				t.Errorf("%s: %d bytes, %v", name, st.Size(), err)
			}
		}
	}
	small(210_000)
	j.MinCut, j.kept = 1, 0
	cut()
	small(2000)
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(filepath.Join(dir, File))
	if want := `"tasks":"1-9999,10001-19999,20001-29999,30001-`; err != nil || !strings.Contains(string(b), want) || !strings.Contains(string(b), `"format":2}`) {
		t.Errorf("no record of %s and format 2: %v, %.1000s", want, err, b)
	}
	if _, err := ReadUsage(dir); err == nil || !strings.Contains(err.Error(), "has no more of the tasks that have ended") {
		t.Errorf("usage: %v", err)
	}
	if r, err := ReadTask(dir, 10_001); err != nil || len(r) != 1 || r[0].Kind != Cuts {
		t.Errorf("task 10001: %+v, %v", r, err)
	}
	var m [2]runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m[0])
	h, err := Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	runtime.GC()
	runtime.ReadMemStats(&m[1])
	if grown := int64(m[1].HeapAlloc) - int64(m[0].HeapAlloc); grown > 200_000 { // 640,000 with an entry for each
		t.Errorf("%d bytes in memory", grown)
	}
	for seq, want := range map[int64]State{0: Unknown, 1: OK, 9999: OK, 10_000: Started, 10_001: OK, 39_999: OK, 40_000: Started, 40_001: Unknown} {
		if got := h.Get(seq).State; got != want {
			t.Errorf("task %d: %v, want %v", seq, got, want)
		}
	}
	if left, _ := filepath.Glob(filepath.Join(dir, cutPrefix+"*")); h.Last() != 40_000 || len(left) > 0 {
		t.Errorf("last %d, left %q", h.Last(), left)
	}
}

// A journal that has another one in its place is not cut, nor is one whose records cannot be read; and what a scheduler
// that was killed has left is removed.
func TestCutIsRefused(t *testing.T) {
	dir := t.TempDir()
	begin := func() (*Journal, *Cut) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, cutPrefix+"left"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		j, err := Create(dir, "")
		if err != nil {
			t.Fatal(err)
		}
		j.MinCut = 1
		j.Add(&Record{Kind: Begin, Session: "s"})
		end(j, task(1, "true"), wire.OK, 0)
		if err := j.Flush(); err != nil {
			t.Fatal(err)
		}
		return j, j.BeginCut()
	}
	file := filepath.Join(dir, File)
	for name, spoil := range map[string]func() error{
		"removed":  func() error { return os.Remove(file) },
		"replaced": func() error { return os.Rename(filepath.Join(dir, Joblog), file) },
		"taken":    func() error { return os.WriteFile(filepath.Join(dir, "lock"), []byte("process 1 on elsewhere"), 0o600) },
	} {
		j, c := begin()
		err := c.Work()
		if err := spoil(); err != nil {
			t.Fatal(err)
		}
		before, _ := os.ReadFile(file)
		if _, err = j.EndCut(c, err); err == nil {
			t.Errorf("%s: it was cut", name)
		}
		if after, _ := os.ReadFile(file); !reflect.DeepEqual(before, after) {
			t.Errorf("%s: %q, before %q", name, after, before)
		}
		_ = j.Close()
		if left, _ := filepath.Glob(filepath.Join(dir, cutPrefix+"*")); len(left) > 0 {
			t.Errorf("%s: left %q", name, left)
		}
		if err := os.WriteFile(filepath.Join(dir, "lock"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		_ = os.Remove(file)
	}
	j, _ := begin()
	j.file.pending.WriteString("no record\n")
	if err := j.Flush(); err != nil {
		t.Fatal(err)
	}
	before, _ := os.ReadFile(file)
	j.kept = 0
	if err := j.Cut(); err == nil || !strings.Contains(err.Error(), "3: not a record") {
		t.Errorf("%v", err)
	}
	if after, _ := os.ReadFile(file); string(after) != string(before) {
		t.Errorf("%q, before %q", after, before)
	}
	if err := j.Close(); err != nil {
		t.Error(err)
	}
}
