package logs

import (
	"bytes"
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ponos-tools/ponos/lib/agent/queue/spool"
	"github.com/ponos-tools/ponos/lib/base/clock"
	"github.com/ponos-tools/ponos/lib/task"
	"github.com/ponos-tools/ponos/lib/task/queue"
)

func TestLabels(t *testing.T) {
	one := queue.Summary{ID: "01a20103-99ea-754e-afc2-aaaa11111111", Slug: "train", Attempt: 1}
	again := queue.Summary{ID: "01a20103-99ea-754e-afc2-bbbb22222222", Slug: "train", Attempt: 2}
	other := queue.Summary{ID: "01a20103-99ea-754e-afc2-cccc33333333", Slug: "train", Attempt: 1}
	third := queue.Summary{ID: "01a20103-99ea-754e-afc2-dddd44444444", Slug: "évaluer", Attempt: 1}
	for _, tt := range []struct {
		name     string
		found    []queue.Summary
		attempts bool
		want     string
	}{
		{"different names", []queue.Summary{one, third}, false, "train   | ,évaluer | "},
		{"wide characters", []queue.Summary{{ID: "a", Slug: "学習"}, {ID: "b", Slug: "train"}}, false, "学習  | ,train | "},
		{"one name", []queue.Summary{one, other, third}, false, "train 11111111 | ,train 33333333 | ,évaluer        | "},
		{"attempts of one task", []queue.Summary{one, again}, true, "train #1 | ,train #2 | "},
		{"attempts of two tasks of one name", []queue.Summary{one, again, other}, true, "train #1 11111111 | ,train #2          | ,train #1 33333333 | "},
		{"no name", []queue.Summary{{ID: "a"}, {ID: "b", Slug: "x"}}, false, "a | ,x | "},
		{"no name, with attempts", []queue.Summary{{ID: "a", Attempt: 1}, {ID: "b", Slug: "x", Attempt: 1}}, true, "a    | ,x #1 | "},
		{"an escape", []queue.Summary{{ID: "a", Slug: "\x1b[2J"}, {ID: "b", Slug: "x"}}, false, "[2J | ,x   | "},
		{"names that differ in what is not printed", []queue.Summary{{ID: "a", Slug: "x\ny"}, {ID: "b", Slug: "x y"}}, false, "x y a | ,x y b | "},
		{"a long one does not move the others far", []queue.Summary{{ID: "a", Slug: strings.Repeat("x", 50)}, {ID: "b", Slug: "x"}}, false,
			strings.Repeat("x", 50) + " | ,x" + strings.Repeat(" ", 39) + " | "},
	} {
		if got := strings.Join(labels(tt.found, tt.attempts), ","); got != tt.want {
			t.Errorf("%s: %q; want %q", tt.name, got, tt.want)
		}
	}
}

// prefixLines is what a log is with a prefix, if it comes in pieces.
func prefixLines(t *testing.T, pieces ...string) string {
	t.Helper()
	var out bytes.Buffer
	p := &prefixed{to: &out, prefix: "p | "}
	for _, piece := range pieces {
		if n, err := p.Write([]byte(piece)); n != len(piece) || err != nil {
			t.Fatal(n, err)
		}
	}
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

func TestPrefixed(t *testing.T) {
	long := strings.Repeat("x", maxLine)
	for _, tt := range []struct{ pieces, want string }{
		{"", ""},
		{"a\n", "p | a\n"},
		{"a", "p | a\n"}, // the end of a line is added
		{"a|b\nc|\n|d", "p | ab\np | c\np | d\n"},
		{"\n|\n", "p | \np | \n"},
		{"a\r\n", "p | a\r\n"},
		{long + "y", "p | " + long + "y\n"}, // not kept back without end
		{long + "|y\nz", "p | " + long + "\np | y\np | z\n"},
	} {
		if got := prefixLines(t, strings.Split(tt.pieces, "|")...); got != tt.want {
			t.Errorf("%.40q: %.200q; want %.200q", tt.pieces, got, tt.want)
		}
	}
	p := &prefixed{to: broken{}}
	if _, err := p.Write([]byte("a\nb\n")); !errors.Is(err, errBroken) {
		t.Errorf("to a broken pipe: %v", err)
	}
}

var errBroken = errors.New("broken pipe")

type broken struct{}

func (broken) Write([]byte) (int, error) { return 0, errBroken }

// A log is the same in whatever pieces it is read.
func FuzzPrefixed(f *testing.F) {
	f.Add("a\nb\n\nc", 2)
	f.Fuzz(func(t *testing.T, log string, at int) {
		if len(log) >= maxLine {
			return
		}
		at = max(0, min(at, len(log)))
		whole, pieces := prefixLines(t, log), prefixLines(t, log[:at], log[at:])
		if whole != pieces {
			t.Errorf("%q and %q", whole, pieces)
		}
		if back := strings.ReplaceAll("\n"+whole, "\np | ", "\n"); !strings.Contains(log, "p | ") && strings.TrimSuffix(back, "\n") != strings.TrimSuffix("\n"+log, "\n") {
			t.Errorf("%q of %q", whole, log)
		}
	})
}

// A task that one look does not find has not ended for that.
func TestCheckEnded(t *testing.T) {
	s, err := spool.Make(filepath.Join(t.TempDir(), "spool"), clock.Now())
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Add(queue.Entry{ID: "here"}); err != nil {
		t.Fatal(err)
	}
	sure := task.Absence{Since: clock.Now(), Last: clock.Now(), Misses: 99}
	for _, tt := range []struct {
		id     task.ID
		absent task.Absence
		over   bool
	}{{"here", task.Absence{}, false}, {"here", sure, false}, {"gone", task.Absence{}, false}, {"gone", sure, true}} {
		l := &source{task: queue.Summary{ID: tt.id}, absent: tt.absent}
		err := l.checkEnded(s)
		if errors.Is(err, queue.ErrGone) != (tt.id == "gone") || l.over != tt.over || l.absent.IsZero() != (tt.id == "here") {
			t.Errorf("%+v: %v, %+v", tt, err, l)
		}
	}
}
