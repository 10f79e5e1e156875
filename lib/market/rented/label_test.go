package rented

import (
	"strings"
	"testing"

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
