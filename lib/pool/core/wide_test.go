package core

import (
	"syscall"
	"testing"
	"time"

	"github.com/ponos-tools/ponos/lib/pool"
	"github.com/ponos-tools/ponos/lib/pool/wire"
)

// twoNodes is a world with a task of two nodes that runs.
func twoNodes(t *testing.T) (w *world, first, second *process) {
	w = newWorld(Config{Policy: Policy{LostRetries: 3, Reconnects: 3, TermGrace: 5 * time.Second}}, []pool.Need{{CPUs: 1, Nodes: 2}}, 1, 1)
	w.act(t, "connect")
	w.act(t, "connect")
	w.act(t, "read")
	first, second = w.process(w.core.attempts[1].worker), w.process(w.core.attempts[1].others()[0])
	w.deliver(first)
	return w, first, second
}

// A run ends although a worker does not say that it has cleared its node.
func TestClearingIsNotAwaitedForEver(t *testing.T) {
	w, first, second := twoNodes(t)
	w.handle(Signal{Signal: syscall.SIGTERM})
	delete(first.running, wire.Key{Seq: 1, Attempt: 1})
	first.outbox = append(first.outbox, wire.Message{Done: &wire.Done{Key: wire.Key{Seq: 1, Attempt: 1}, What: wire.Stopped}})
	w.hear(first)
	if w.core.Finished() || w.core.List(0)[0].State != "ending" {
		t.Fatalf("the run does not wait for the other node: %+v", w.core.List(0))
	}
	for range 12 {
		w.advance(2 * time.Second)
	}
	if !w.core.Finished() {
		t.Error("the run has not ended")
	}
	if s := w.core.Summary(); s.Left != 1 || second.linked {
		t.Errorf("%d left, %v", s.Left, s.Reasons)
	}
}

// A node that is taken away when what runs there has ended keeps its part of a task until
// then; with Now, the task runs elsewhere.
func TestNodeOfATaskIsTakenAway(t *testing.T) {
	for _, now := range []bool{false, true} {
		w, first, second := twoNodes(t)
		w.handle(&RemoveNodes{Names: []string{second.box.name}, Now: now})
		killed := false
		for _, m := range first.inbox {
			killed = killed || m.Kill != nil && m.Kill.Why == wire.Lost
		}
		if killed != now {
			t.Errorf("now: %v, and the task is ended: %v", now, killed)
		}
	}
}
