package core

import (
	"slices"
	"strings"
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
	first, second = w.process(w.core.tasks.attempts[1].worker), w.process(w.core.tasks.attempts[1].others()[0])
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
		w.handle(RemoveNodes{Names: []string{second.box.name}, Now: now})
		killed := false
		for _, m := range first.inbox {
			killed = killed || m.Kill != nil && m.Kill.Why == wire.Lost
		}
		if killed != now {
			t.Errorf("now: %v, and the task is ended: %v", now, killed)
		}
	}
}

// pilotNodes lets the first nodes of jobs come, "HOST@JOB" each, whose jobs have so many nodes.
func (w *world) pilotNodes(most int, names ...string) {
	var specs []NodeSpec
	for _, name := range names {
		w.nodes = append(w.nodes, &box{name: name, cpus: 1})
		host, job, _ := strings.Cut(name, "@")
		specs = append(specs, NodeSpec{Name: name, Host: host, Job: job, JobNodes: most, Slots: 1, Group: -1})
	}
	w.handle(AddNodes{specs})
	w.handle(Tick{})
	for range names {
		w.connect(0)
	}
}

// A task gets the nodes of one job, even if those of two have come first; one that needs more nodes
// than a job has gets them of several, and none has two nodes of one host.
func TestNodesOfPilots(t *testing.T) {
	for name, tt := range map[string]struct {
		most  int // nodes of a job
		width int32
		first []string // that come
		why   string   // in the explanation of what it waits for
		then  []string
		nodes string // of the task
	}{
		"of one job":        {2, 2, []string{"a@1", "b@2"}, "1 of 2 nodes are there: all are to be of one job", []string{"c@2"}, "b@2,c@2"},
		"of several jobs":   {2, 3, []string{"a@1", "b@1"}, "2 of 3 nodes are there: they are to be different hosts", []string{"c@2"}, "a@1,b@1,c@2"},
		"of jobs of a node": {1, 2, []string{"a@1"}, "1 of 2 nodes are there: they are to be different hosts", []string{"b@2"}, "a@1,b@2"},
		"of one host":       {1, 2, []string{"a@1", "a@2"}, "1 of 2 nodes are there: they are to be different hosts", []string{"b@3"}, "a@1,b@3"},
	} {
		w := newWorld(Config{Policy: Policy{Elastic: true, MaxJobs: 3}}, []pool.Need{{CPUs: 1, Nodes: tt.width}})
		w.readMore()
		w.pilotNodes(tt.most, tt.first...)
		if why := w.core.Explain(1, w.now); !slices.Contains(why, tt.why) {
			t.Errorf("%s: it waits for %q, want %q", name, why, tt.why)
		}
		w.pilotNodes(tt.most, tt.then...)
		a := w.core.tasks.attempts[1]
		if a == nil {
			t.Errorf("%s: it does not run: %q", name, w.core.Explain(1, w.now))
			continue
		}
		nodes := strings.Split(a.nodeNames(), ",")
		slices.Sort(nodes)
		if got := strings.Join(nodes, ","); got != tt.nodes {
			t.Errorf("%s: it runs on %s, want %s", name, got, tt.nodes)
		}
	}
}

// A job that has lost a node for good is not waited for.
func TestTaskIsNotKeptForANodeThatIsLost(t *testing.T) {
	w := newWorld(Config{Policy: Policy{Elastic: true, MaxJobs: 2}}, []pool.Need{{CPUs: 1, Nodes: 2}})
	w.readMore()
	w.pilotNodes(2, "a@1", "b@2", "c@2")
	for _, n := range w.core.nodes.all[:2] {
		n.dropped = true
	}
	w.handle(Tick{})
	if n := w.core.pool.Together(); n != 1 {
		t.Errorf("a task can have %d nodes of a job, want 1", n)
	}
}

// A task of more nodes than all jobs of the pool can have is refused, also if it waits.
func TestTaskOfMoreNodesThanThereCanBe(t *testing.T) {
	w := newWorld(Config{Policy: Policy{Elastic: true, MaxJobs: 2}}, []pool.Need{{CPUs: 1, Nodes: 5}, {CPUs: 1, Nodes: 4}, {CPUs: 1, Nodes: 5}})
	w.chunk = 2
	w.readMore()
	w.pilotNodes(2, "a@1")
	w.readMore()
	for seq, want := range map[int64]wire.Outcome{1: wire.Refused, 2: "", 3: wire.Refused} {
		if got := w.outcome[seq]; got != want {
			t.Errorf("task %d ended as %q, want %q", seq, got, want)
		}
	}
	if n := w.core.Status(w.now).Width; n != 4 {
		t.Errorf("the widest task that waits needs %d nodes, want 4", n)
	}
	const why = "the pool never has what the task needs: 5 nodes with 1 CPU each; it has 2 jobs of at most 2 nodes each"
	if got := w.core.nodes.misfit(pool.Need{CPUs: 1, Nodes: 5}); got != why {
		t.Errorf("%q, want %q", got, why)
	}
	w.handle(JobLimit{Jobs: 3})
	if got := w.core.nodes.misfit(pool.Need{CPUs: 1, Nodes: 5}); got != "" {
		t.Errorf("with another job: %q", got)
	}
}
