package tasklist

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/ponos-tools/ponos/lib/base/fault"
	"github.com/ponos-tools/ponos/lib/task"
	"github.com/ponos-tools/ponos/lib/task/queue"
)

var noon = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

var all = []queue.Summary{
	{ID: "01a20103-99ea-754e-afc2-aaaa1d831b5b", Slug: "lr-0.1", Group: "lr", State: task.Failed, Retried: true, Created: noon},
	{ID: "01a20103-99ea-754e-afc2-bbbb1d831b5c", Slug: "lr-0.1", Group: "lr", State: task.Pending, Attempt: 2, RetryOf: "01a20103-99ea-754e-afc2-aaaa1d831b5b", Created: noon.Add(time.Hour)},
	{ID: "01a20103-99ea-754e-afc2-ccccdddd0000", Slug: "train", Group: "a/b", State: task.Completed, Created: noon.Add(2 * time.Hour)},
	{ID: "01a20103-99ea-754e-afc2-eeeedddd0000", Slug: "train", State: task.Running, Created: noon.Add(3 * time.Hour)},
	{ID: "b", Slug: "\x1b[2J", State: task.Error, Created: noon.Add(4 * time.Hour)},
}

// short are the last 8 characters of the ids of tasks.
func short(found []queue.Summary) string {
	var ids []string
	for _, s := range found {
		ids = append(ids, s.ID.Short())
	}
	return strings.Join(ids, " ")
}

func TestSelect(t *testing.T) {
	for _, tt := range []struct{ words, states, group, name, since, until, want string }{
		{want: "1d831b5c dddd0000 dddd0000 b"},
		{words: "lr-0.1", want: "1d831b5c"},
		{words: "1d831b5b", want: "1d831b5b"},
		{words: "01a20103-99ea-754e-afc2-aaaa1d831b5b", want: "1d831b5b"},
		{words: "train b train", want: "dddd0000 dddd0000 b"},
		{words: "b5c", want: `error no task has the id or the name "b5c"`},
		{words: "dddd0000", want: `error "dddd0000" begins or ends the ids of 2 tasks`},
		{words: "trian", want: `error no task has the id or the name "trian"`},
		{words: "train", states: "running", want: "dddd0000"},
		{states: "ended", want: "dddd0000 b"},
		{states: "unsuccessful", want: "b"},
		{states: "stopping", want: ""},
		{states: "unfinished", want: "1d831b5c dddd0000"},
		{states: "pending,error", want: "1d831b5c b"},
		{group: "*", want: "1d831b5c dddd0000 dddd0000 b"},
		{group: "a*", want: "dddd0000"},
		{group: "l?", want: "1d831b5c"},
		{name: "[lx]r-*", want: "1d831b5c"},
		{since: "90min", want: "dddd0000 b"},
		{until: "90min", want: "1d831b5c dddd0000"},
		{since: "2026-11-20T13:30:00Z", until: "90min", want: "dddd0000"},
	} {
		f, err := NewFilter(flags("state", tt.states, "group", tt.group, "name", tt.name, "since", tt.since, "until", tt.until), noon.Add(4*time.Hour))
		if err != nil {
			t.Fatal(err)
		}
		found, errs := Select(all, strings.Fields(tt.words), f)
		got := short(found)
		if len(errs) > 0 {
			got = "error " + errs[0].Error()
		}
		if got != tt.want {
			t.Errorf("%+v: %s", tt, got)
		}
	}
	if _, err := Find(all, "trian"); fault.HintOf(err) != `did you mean "train"?` {
		t.Errorf("hint: %s", fault.HintOf(err))
	}
	if _, err := One(all, "train"); err == nil || err.Error() != `2 tasks are called "train"` {
		t.Errorf("one of two: %v", err)
	}
	if got := CountOf(all).String(); got != "5 tasks: 1 pending, 1 running, 1 completed, 1 failed, 1 error" {
		t.Error(got)
	}
	for _, bad := range [][2]string{{"group", "["}, {"name", "["}, {"since", "soon"}, {"until", "2026-13-01"}} {
		if _, err := NewFilter(flags(bad[:]...), noon); !fault.Is(err, fault.Usage) || !strings.HasPrefix(err.Error(), "--"+bad[0]+": ") {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

func TestAttempts(t *testing.T) {
	chain := []queue.Summary{
		{ID: "a1", Retried: true}, {ID: "b"}, {ID: "a2", RetryOf: "a1", Retried: true}, {ID: "a3", RetryOf: "a2"},
		{ID: "orphan", RetryOf: "gone"}, {ID: "x", RetryOf: "y"}, {ID: "y", RetryOf: "x"},
	}
	for words, want := range map[string]string{
		"a3": "a1 a2 a3", "a2": "a1 a2", "b a3": "b a1 a2 a3", "a3 a1": "a1 a2 a3", "a1 a3": "a1 a2 a3", "orphan": "orphan", "x": "y x", "": "",
	} {
		var found []queue.Summary
		for _, w := range strings.Fields(words) {
			s, err := One(chain, w)
			if err != nil {
				t.Fatal(err)
			}
			found = append(found, s)
		}
		if got := short(Attempts(chain, found)); got != want {
			t.Errorf("%s: %s; want %s", words, got, want)
		}
	}
}

func FuzzReadWords(f *testing.F) {
	f.Add("a\n b c\n\n")
	f.Fuzz(func(t *testing.T, text string) {
		words, err := ReadWords(strings.NewReader(text))
		if err != nil {
			return
		}
		for _, w := range words {
			if w == "" || len(strings.Fields(w)) != 1 {
				t.Errorf("%q: word %q", text, w)
			}
		}
	})
}

// flags are the values of flags, each behind its name.
func flags(pairs ...string) func(name string) string {
	return func(name string) string {
		for i := 0; i+1 < len(pairs); i += 2 {
			if pairs[i] == name {
				return pairs[i+1]
			}
		}
		return ""
	}
}

func TestReadWords(t *testing.T) {
	for text, want := range map[string]string{
		"a\n b c\n\n": "a b", "TASK      NAME  STATE\n1e9a1efc  sh    failed\n": "1e9a1efc", "TASK\n": "TASK", "a\nTASK NAME\n": "a TASK", "": "",
	} {
		if words, err := ReadWords(strings.NewReader(text)); err != nil || strings.Join(words, " ") != want {
			t.Errorf("%q: %q, %v", text, words, err)
		}
	}
	if _, err := ReadWords(strings.NewReader(strings.Repeat("a", 1<<17))); err == nil || err.Error() != "standard input: a line is longer than 65536 bytes" {
		t.Error(err)
	}
}

func TestNothing(t *testing.T) {
	for _, tt := range []struct{ states, group, name, since, want string }{
		{"", "", "", "", "<nil>; "},
		{"", "rl", "", "", `no task is in group "rl"; did you mean "lr"?`},
		{"", "a/c*", "", "", `no task is in group "a/c*"; `},
		{"", "lr", "trian", "", `no task has the name "trian"; did you mean "train"?`},
		{"", "", "", "1min", "no task matches; "},
		{"", "lr", "train", "", "no task matches; "},
		{"stopped,stopping", "lr", "", "", "no task that matches is in state stopped or stopping; "},
		{"stopping", "", "", "", "no task is in state stopping; "},
		{"unsuccessful", "lr", "", "", "no task that matches is unsuccessful, but for 1 that was retried; "},
		{"failed", "", "", "", "no task is in state failed, but for 1 that was retried; "},
		{"failed", "", "", "10h", "no task that matches is in state failed, but for 1 that was retried; "},
		{"running", "", "", "1min", "no task matches; "}, // there is one, but not of this time
	} {
		f, err := NewFilter(flags("state", tt.states, "group", tt.group, "name", tt.name, "since", tt.since, "until", ""), noon.Add(5*time.Hour))
		if err != nil {
			t.Fatal(err)
		}
		if err := f.Nothing(all); fmt.Sprintf("%v; %s", err, fault.HintOf(err)) != tt.want {
			t.Errorf("%+v: %v; %s; want %s", tt, err, fault.HintOf(err), tt.want)
		}
	}
}
