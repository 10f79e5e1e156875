package core

import (
	"strings"
	"testing"

	"github.com/ponos-tools/ponos/lib/pool"
)

func (w *world) act(t *testing.T, prefix string) {
	t.Helper()
	var names []string
	for _, a := range w.actions(false, false) {
		if names = append(names, a.name()); strings.HasPrefix(a.name(), prefix) {
			a.do()
			return
		}
	}
	t.Fatalf("%q is not possible, only %q", prefix, names)
}

// TestLicenceOfUnreadTask has a task that still runs with the only licence when another
// scheduler starts, which reads a task that wants it first.
func TestLicenceOfUnreadTask(t *testing.T) {
	licence := pool.Named{}.With("licence", 1000)
	needs := []pool.Need{{CPUs: 4, Named: licence}, {CPUs: 1, Named: licence}, {CPUs: 4}}
	w := newWorld(Config{Policy: Policy{LostRetries: 3, Reconnects: 3}, Shared: licence}, needs, 1, 4)
	w.act(t, "connect n1")
	w.act(t, "read")
	w.act(t, "deliver to 1")
	w.kill()
	w.boot()
	w.chunk = 1
	w.act(t, "connect n2")
	w.act(t, "read")
	if len(w.core.tasks.attempts) != 0 {
		t.Fatal("task 1 starts while another may have the licence")
	}
	if why := strings.Join(w.core.Explain(1, w.now), "\n"); !strings.Contains(why, "workers of the previous run") {
		t.Errorf("explained by %s", why)
	}
	w.act(t, "read")
	w.act(t, "read")
	if len(w.core.tasks.attempts) != 1 || w.core.tasks.attempts[3] == nil {
		t.Fatal("task 3, which needs no licence, does not start")
	}
	if !w.finish() {
		t.Error("not all tasks end well")
	}
}

func TestMisfits(t *testing.T) {
	named := func(s string) pool.Named {
		n, err := pool.ParseNamed(s)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	w := newWorld(Config{
		Shared:    named("licence=2"),
		Resources: []Resources{{Named: named("scratch=10G")}, {Nodes: []string{"n2"}, Named: named("scratch=50G,board=1")}},
	}, nil, 2, 4)
	for _, connect := range []bool{false, true} {
		if connect {
			w.act(t, "connect")
			w.act(t, "connect")
		}
		for _, tt := range []struct {
			need pool.Need
			want string
		}{
			{pool.Need{CPUs: 4}, ""},
			{pool.Need{CPUs: 5}, "no node of the pool has what the task needs: 5 CPUs"},
			{pool.Need{CPUs: 4, Named: named("licence=2,scratch=50G,board=1")}, ""},
			{pool.Need{CPUs: 1, Named: named("licence=2.5")}, "the pool has 2 licence in all, and the task needs 2.5"},
			{pool.Need{CPUs: 1, Named: named("scratch=51G")}, "no node of the pool has what the task needs: 1 CPU, 51G scratch"},
			{pool.Need{CPUs: 1, Named: named("license=1")}, `the pool has no resource "license"`},
			{pool.Need{CPUs: 2, Nodes: 2, Named: named("licence=1,scratch=10G")}, ""},
			{pool.Need{CPUs: 2, Nodes: 2, Named: named("board=1")}, "too few nodes of the pool have what the task needs: 2 nodes with 2 CPUs, 1 board each"},
			{pool.Need{CPUs: 1, Nodes: 3}, "too few nodes of the pool have what the task needs: 3 nodes with 1 CPU each"},
		} {
			if got := w.core.nodes.misfit(tt.need); got != tt.want {
				t.Errorf("%v (connected: %v): %q, want %q", tt.need, connect, got, tt.want)
			}
		}
	}
}
