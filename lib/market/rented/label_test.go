package rented

import (
	"strings"
	"testing"

	"github.com/ponos-tools/ponos/lib/market/entry"
	"github.com/ponos-tools/ponos/lib/market/vastai"
	"github.com/ponos-tools/ponos/lib/task"
)

// Labels come from the market, where everybody with the account's key can set them.
func FuzzParseLabel(f *testing.F) {
	for _, seed := range []string{"ponos:a1:01a1fee4-b7ea-79eb-b887-b15333423d8a:1", "ponos:a:b:2.3", "ponos:::", "ponos:a:../../x:1", "mine"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		l, ok := ParseLabel(text)
		if !ok {
			return
		}
		if _, err := task.ParseID(string(l.Task)); err != nil || l.Agent == "" || strings.Contains(l.Agent, ":") || l.Attempt < 1 || l.Number < 1 {
			t.Errorf("%q is %+v", text, l)
		}
	})
}

func TestParseLabel(t *testing.T) {
	r := &Runner{Agent: "a1"}
	for _, number := range []int{1, 2, 13} {
		for _, end := range []string{"", "0", "255", "late", "lost", "nowhere", "unarmed", "unloaded", "unfit", "unasked", "unwanted"} {
			label := r.label("t-1", 4, number)
			if end != "" {
				label += entry.EndMark + end
			}
			if l, ok := ParseLabel(label); !ok || l != (Label{"a1", "t-1", 4, number, end}) {
				t.Errorf("%s: %+v, %v", label, l, ok)
			}
			if i := (vastai.Instance{Label: label}); !bears(i, r.label("t-1", 4, number)) || bears(i, r.label("t-1", 4, number+1)) {
				t.Errorf("%s: whose is it?", label)
			}
		}
	}
	if l, ok := ParseLabel(r.label("t-1", 4, 2) + entry.EndMark + entry.Begun); !ok || l != (Label{"a1", "t-1", 4, 2, ""}) {
		t.Errorf("begun: %+v, %v", l, ok)
	}
	for _, bad := range []string{"", "x", "ponos:a:b", "ponos::t:1", "ponos:a:../x:1", "ponos:a:t:0", "ponos:a:t:1.0", "ponos:a:t:1:2", "other:a:t:1", "ponos:a:t:1:end=", "ponos:a:t:1:end=256", "ponos:a:t:1:end=-1", "ponos:a:t:1:end=07", "ponos:a:t:1:end=0:end=0", ":end=0"} {
		if _, ok := ParseLabel(bad); ok {
			t.Errorf("%q is no label", bad)
		}
	}
}
