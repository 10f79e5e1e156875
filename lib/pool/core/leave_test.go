package core

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/ponos-tools/ponos/lib/pool"
	"github.com/ponos-tools/ponos/lib/pool/wire"
)

// A worker that ends tasks or gives them back without being asked is about to end: the
// tasks wait for the next one, and none is charged for what it did not do.
func TestWorkerThatEndsGetsNothingMore(t *testing.T) {
	key := wire.Key{Seq: 1, Attempt: 1}
	for what, m := range map[string]wire.Message{"ended": {Done: &wire.Done{Key: key, What: wire.Stopped}}, "gave back": {Back: &key}} {
		need := pool.Need{CPUs: 1}
		w := newWorld(Config{Policy: Policy{LostRetries: 3, Reconnects: 3}}, []pool.Need{need, need}, 1)
		w.readMore()
		w.connect(0)
		p := w.nodes[0].processes[0]
		w.handle(Received{p.worker, []wire.Message{m}})
		runs := 0
		for _, m := range p.inbox {
			if m.Run != nil {
				runs++
			}
		}
		if runs != 1 || w.core.Finished() {
			t.Errorf("a worker that %s a task was sent %d, want the first only; the run is over: %v", what, runs, w.core.Finished())
		}
		// It waits for a goodbye, and gets it when all that it had has ended.
		if what == "ended" {
			w.handle(Received{p.worker, []wire.Message{{Signal: "TERM"}, {Back: &wire.Key{Seq: 2, Attempt: 1}}}})
		}
		w.advance(time.Second)
		if last := p.inbox[len(p.inbox)-1]; !last.Bye {
			t.Errorf("a worker that %s a task was told %+v last", what, last)
		}
		for p.alive && len(p.inbox) > 0 {
			w.deliver(p)
		}
		if p.alive || w.core.Finished() {
			t.Errorf("%s: the worker is there: %v; the run is over: %v", what, p.alive, w.core.Finished())
		}
		if !w.finish() {
			t.Errorf("%s: not all tasks end well: %s", what, w.broken)
		}
		if s := w.core.Summary(); s.Attempts > 3 {
			t.Errorf("%s: %d attempts at two tasks", what, s.Attempts)
		}
	}
}

// In a job of Slurm, SIGTERM means that all is killed soon: another worker is started only
// when that has not come true.
func TestWorkerThatEndsInAJob(t *testing.T) {
	need := pool.Need{CPUs: 1}
	w := newWorld(Config{Policy: Policy{LostRetries: 3, Reconnects: 3, Batch: true}}, []pool.Need{need, need}, 1)
	w.readMore()
	w.connect(0)
	p := w.nodes[0].processes[0]
	w.handle(Received{p.worker, []wire.Message{
		{Signal: "TERM"}, {Done: &wire.Done{Key: wire.Key{Seq: 1, Attempt: 1}, What: wire.Stopped}}, {Back: &wire.Key{Seq: 2, Attempt: 1}},
	}})
	said := func() bool { return slices.ContainsFunc(p.inbox, func(m *wire.Message) bool { return m.Bye }) }
	if w.advance(w.core.NodeTimeout / 2); said() || w.core.Finished() {
		t.Errorf("it was told to go: %v; the run is over: %v", said(), w.core.Finished())
	}
	if w.advance(w.core.NodeTimeout); !said() {
		t.Error("it was not told to go")
	}
	if !w.finish() {
		t.Errorf("not all tasks end well: %s", w.broken)
	}
}

// A node where every worker dies is left, as more of them die than one task can be the
// cause of; its tasks succeed elsewhere.
func TestNodeWhereWorkersDie(t *testing.T) {
	needs := make([]pool.Need, 200)
	for i := range needs {
		needs[i].CPUs = 1
	}
	w := newWorld(Config{Policy: Policy{LostRetries: 3, Reconnects: 3}}, needs, 2, 2)
	deaths, r := 0, rand.New(rand.NewPCG(1, 2))
	for range 10000 {
		if w.core.Finished() && w.read > 0 {
			break
		}
		killed := false
		for _, p := range w.nodes[0].processes {
			if p.alive && len(p.running) > 0 {
				p.stop()
				w.lost(p, Died)
				deaths++
				killed = true
			}
		}
		all := w.actions(false, false)
		switch {
		case killed:
		case len(all) == 0:
			w.advance(leaseTime)
		default:
			all[r.IntN(len(all))].do()
		}
	}
	if s := w.core.Summary(); s.Done != 200 || s.Exit != 0 || deaths > 10 || !w.core.nodes.all[0].dropped {
		t.Errorf("%d deaths, %d done, exit %d, left %v", deaths, s.Done, s.Exit, s.Reasons)
	}
}

// A task that was only sent ahead to a node loses nothing with it.
func TestQueuedTasksLoseNothing(t *testing.T) {
	needs := make([]pool.Need, 20)
	for i := range needs {
		needs[i].CPUs = 1
	}
	w := newWorld(Config{Policy: Policy{LostRetries: 1, Reconnects: 3}}, needs, 1)
	w.readMore()
	w.connect(0)
	p := w.nodes[0].processes[0]
	for len(p.queue) == 0 {
		for len(p.inbox) > 0 {
			w.deliver(p)
		}
		for k := range p.running {
			if len(p.queue) == 0 {
				w.end(p, k, 0)
				break
			}
		}
		for len(p.outbox) > 0 {
			w.hear(p)
		}
	}
	begun, queued := len(p.running), len(p.queue)
	p.stop()
	w.lost(p, Died)
	if s := w.core.Summary(); begun != 1 || queued < 2 || s.Lost != 1 {
		t.Errorf("%d had begun and %d were queued: %d count as lost", begun, queued, s.Lost)
	}
	charged := 0
	w.core.pool.Each(func(task *pool.Task) bool {
		charged += int(task.Losses)
		return true
	})
	if charged != 1 {
		t.Errorf("tasks are charged with %d losses, want 1", charged)
	}
}
