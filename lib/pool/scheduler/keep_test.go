package scheduler

import (
	"strings"
	"testing"

	"github.com/ponos-tools/ponos/lib/pool"
	"github.com/ponos-tools/ponos/lib/pool/core"
	"github.com/ponos-tools/ponos/lib/pool/journal"
	"github.com/ponos-tools/ponos/lib/pool/wire"
)

// The journal keeps so many bytes of output of a run, and the sizes of what it does not keep.
func TestTailsAreBounded(t *testing.T) {
	s := &scheduler{tails: journal.MaxTails - 5}
	r := &core.Result{Tails: [2]wire.Tail{{Size: 3, Text: "out"}, {Size: 100, Text: "error"}}}
	task := &pool.Task{Spec: &pool.Spec{}, Text: strings.Repeat("x", 2*journal.MaxCommand)}
	for _, want := range [][2]wire.Tail{{{Size: 3, Text: "out"}, {Size: 100, Text: "er"}}, {{Size: 3}, {Size: 100}}} {
		rec := &journal.Record{}
		s.keep(rec, task, r)
		if got := [2]wire.Tail{rec.Stdout, rec.Stderr}; got != want || len(rec.Command) != journal.MaxCommand {
			t.Errorf("%+v and %d bytes of the command; want %+v", got, len(rec.Command), want)
		}
	}
}
