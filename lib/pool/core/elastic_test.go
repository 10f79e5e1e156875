package core

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/ponos-tools/ponos/lib/pool"
	"github.com/ponos-tools/ponos/lib/pool/wire"
)

// add lets a node come whose job ends after a time; 0: never.
func (w *world) add(name string, cpus int, life time.Duration, own bool) {
	w.nodes = append(w.nodes, &box{name: name, cpus: cpus})
	spec := NodeSpec{Name: name, Slots: cpus, Own: own}
	if life > 0 {
		spec.End = w.now.Add(life)
	}
	w.handle(AddNodes{[]NodeSpec{spec}})
	w.handle(Tick{})
	w.connect(0)
}

// at is the worker of a node that came last.
func (w *world) at(name string) *process {
	for _, b := range w.nodes {
		if b.name == name {
			return b.processes[len(b.processes)-1]
		}
	}
	return nil
}

// given are the tasks that a worker was sent and has not been asked to end.
func (p *process) given() (runs, kills int) {
	for _, m := range p.inbox {
		if m.Run != nil {
			runs++
		}
		if m.Kill != nil {
			kills++
		}
	}
	return runs, kills
}

func TestNodesComeAndGo(t *testing.T) {
	one := pool.Need{CPUs: 1}
	w := newWorld(Config{Policy: Policy{Elastic: true, LostRetries: 3}}, []pool.Need{one, one})
	w.readMore()
	w.advance(time.Hour)
	if w.core.Finished() {
		t.Fatal("a pool whose nodes are to come has ended")
	}
	w.add("a", 1, 0, false)
	a := w.at("a")
	w.deliver(a) // its setup or first task
	e := RemoveNodes{Names: []string{"a", "none"}}
	w.handle(e)
	if w.counted != 1 {
		t.Errorf("%d nodes were taken away", w.counted)
	}
	w.advance(time.Second)
	if _, kills := a.given(); kills != 0 || w.core.Status(w.now).Running != 1 {
		t.Errorf("what ran was ended: %d kills", kills)
	}
	w.add("b", 1, 0, false)
	if !w.finish() {
		t.Error(w.broken)
	}
	if w.begun[1] != 1 || w.begun[2] != 1 {
		t.Errorf("begun %v", w.begun)
	}
}

// A node that is to be removed when its tasks have ended can still be removed at once.
func TestNodeIsRemovedAtOnceAfterAll(t *testing.T) {
	w := newWorld(Config{Policy: Policy{Elastic: true, LostRetries: 3}}, []pool.Need{{CPUs: 1}})
	w.readMore()
	w.add("a", 1, 0, false)
	a := w.at("a")
	w.deliver(a) // its task
	w.handle(RemoveNodes{Names: []string{"a"}})
	for range 2 {
		e := RemoveNodes{Names: []string{"a"}, Now: true}
		if w.handle(e); w.counted != 1 {
			t.Errorf("%d nodes were removed", w.counted)
		}
	}
	if _, kills := a.given(); kills == 0 {
		t.Error("its task runs on")
	}
	w.add("b", 1, 0, false)
	if !w.finish() {
		t.Error(w.broken)
	}
}

// A node that was lost while it is to be removed is free only when its task has ended.
func TestRemovedNodeThatIsLost(t *testing.T) {
	w := newWorld(Config{Policy: Policy{Elastic: true, LostRetries: 3}}, []pool.Need{{CPUs: 1}})
	w.readMore()
	w.add("a", 1, 0, false)
	a := w.at("a")
	w.deliver(a) // its task
	w.handle(RemoveNodes{Names: []string{"a"}})
	w.lost(a, Unknown)
	if s := w.core.Status(w.now).Nodes[0]; s.State != "lost" {
		t.Errorf("the node is %s", s.State)
	}
	a.stop()
	w.lost(a, Died)
	if s := w.core.Status(w.now).Nodes[0]; s.State != "released" {
		t.Errorf("without its worker, the node is %s", s.State)
	}
	w.add("b", 1, 0, false)
	if !w.finish() {
		t.Error(w.broken)
	}
}

// The jobs that waiting tasks justify follow from all that they need, and not from tasks that wait for others.
func TestJobsThatTasksFill(t *testing.T) {
	licence, err := pool.ParseNamed("licence=1")
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		spec    pool.Spec
		tasks   int
		after   int // that many more wait for the first one
		depends int
		jobs    float64
	}{
		"GPUs":                        {pool.Spec{Need: pool.Need{CPUs: 1, GPUs: 1}}, 9, 0, 0, 8},
		"CPUs":                        {pool.Spec{Need: pool.Need{CPUs: 1}}, 16 + 24, 0, 0, 1.5},
		"memory":                      {pool.Spec{Need: pool.Need{CPUs: 1, Mem: 1 << 29}}, 2 + 6, 0, 0, 3},
		"nodes":                       {pool.Spec{Need: pool.Need{CPUs: 16, Nodes: 3}}, 2, 0, 0, 6},
		"a chain":                     {pool.Spec{Need: pool.Need{CPUs: 16}}, 2, 1000, 1000, 1},
		"a licence that a task holds": {pool.Spec{Need: pool.Need{CPUs: 16, Named: licence}}, 9, 0, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(Config{Policy: Policy{Elastic: true}, Shared: licence}, nil)
			if s := w.core.Status(w.now); s.Jobs != 0 {
				t.Errorf("no job is known: %v", s.Jobs)
			}
			w.add("a", 16, 0, false)
			var in []Input
			for i := range c.tasks + c.after {
				task := &pool.Task{Seq: int64(i + 1), Text: "x", Spec: &c.spec}
				if i >= c.tasks {
					task.Extra = &pool.Extra{After: []string{"1"}}
				}
				in = append(in, Input{Task: task})
			}
			w.handle(Tasks{in})
			if s := w.core.Status(w.now); s.Jobs != c.jobs || s.Depends != c.depends || s.Running+s.Waiting != len(in) {
				t.Errorf("%v jobs, %d of %d tasks wait for others, want %v, %d", s.Jobs, s.Depends, s.Waiting, c.jobs, c.depends)
			}
		})
	}
}

func TestTaskThatOutlastsItsNode(t *testing.T) {
	w := newWorld(Config{Policy: Policy{Elastic: true, LostRetries: 3, TimePerTask: 5 * time.Minute}}, []pool.Need{{CPUs: 1}})
	w.readMore()
	w.add("short", 1, 4*time.Minute, false)
	if runs, _ := w.at("short").given(); runs != 0 {
		t.Fatal("a task began at a node whose job ends before it")
	}
	if n := w.core.Status(w.now).Nodes[0]; n.Closes == nil || n.Closes.Sub(w.now) != 4*time.Minute-24*time.Second-5*time.Minute {
		t.Errorf("the task may start at the node until %v, it is %v", n.Closes, w.now)
	}
	w.add("long", 1, 10*time.Minute, false)
	if runs, _ := w.at("long").given(); runs != 1 {
		t.Fatal("a task did not begin at a node whose job is long enough")
	}
	w.advance(9*time.Minute + 29*time.Second)
	if _, kills := w.at("long").given(); kills != 0 {
		t.Error("it was ended too soon")
	}
	w.advance(2 * time.Second)
	if _, kills := w.at("long").given(); kills != 1 || w.core.Finished() {
		t.Errorf("%d kills before the end of the job; the run is over: %v", kills, w.core.Finished())
	}
}

// The next scheduler knows from the tasks of the ones before how long others take.
func TestTaskLikeOthersThatOutlastsItsNode(t *testing.T) {
	one := pool.Need{CPUs: 1}
	needs := make([]pool.Need, 21)
	for i := range needs {
		needs[i] = one
	}
	w := newWorld(Config{Policy: Policy{Elastic: true, LostRetries: 3}}, needs)
	for seq := range int64(20) {
		*w.record(seq + 1) = record{state: Succeeded, seconds: 300, attempt: 1}
	}
	w.readMore()
	w.add("short", 1, 4*time.Minute, false)
	if runs, _ := w.at("short").given(); runs != 0 {
		t.Fatal("a task began at a node whose job probably ends before it")
	}
	w.add("long", 1, 10*time.Minute, false)
	if runs, _ := w.at("long").given(); runs != 1 {
		t.Fatal("a task did not begin at a node whose job is long enough")
	}
}

// The scheduler whose job ends leaves the workers of other jobs as they are.
func TestHandOver(t *testing.T) {
	one := pool.Need{CPUs: 1}
	w := newWorld(Config{Finish: true, Policy: Policy{Elastic: true, LostRetries: 3, TermGrace: 5 * time.Second}}, []pool.Need{one, one, one})
	w.readMore()
	w.add("own", 1, 100*time.Second, true)
	w.add("other", 1, time.Hour, false)
	w.advance(91 * time.Second)
	own, other := w.at("own"), w.at("other")
	if _, kills := own.given(); kills == 0 {
		t.Error("what runs in the job that ends was not told to end")
	}
	if _, kills := other.given(); kills != 0 {
		t.Error("what runs in another job was told to end")
	}
	if w.core.Finished() {
		t.Fatal("the scheduler ends before what runs in its job")
	}
	w.handle(Received{own.worker, []wire.Message{{Done: &wire.Done{Key: wire.Key{Seq: 1, Attempt: 1}, What: wire.Stopped}}}})
	w.advance(2 * time.Second)
	s := w.core.Summary()
	if !w.core.Finished() || !w.core.Keeps(other.worker) || w.core.Keeps(own.worker) || !s.HandedOver || s.Exit != ExitLeft || s.Left != 3 {
		t.Errorf("finished %v, keeps other %v and own %v, %+v", w.core.Finished(), w.core.Keeps(other.worker), w.core.Keeps(own.worker), s)
	}
}

// A signal ends the scheduler of a pool that gets its own jobs with what runs in the scheduler's own
// job. What runs in other jobs continues, and the next scheduler continues the run.
func TestSignalHandsOver(t *testing.T) {
	one := pool.Need{CPUs: 1}
	for name, tt := range map[string]struct {
		signals    []syscall.Signal
		ends       wire.Done // of the task in the scheduler's job
		terminated bool
		exit       int
	}{
		"SIGTERM":                         {signals: []syscall.Signal{syscall.SIGTERM}, ends: wire.Done{What: wire.Stopped}, terminated: true, exit: 143},
		"SIGTERM that the task got, too":  {signals: []syscall.Signal{syscall.SIGTERM}, ends: wire.Done{Signal: 15}, terminated: true, exit: 143},
		"SIGHUP":                          {signals: []syscall.Signal{syscall.SIGHUP}, ends: wire.Done{What: wire.Stopped}, terminated: true, exit: 129},
		"SIGQUIT":                         {signals: []syscall.Signal{syscall.SIGQUIT}, ends: wire.Done{What: wire.Stopped}, terminated: true, exit: 131},
		"SIGUSR1":                         {signals: []syscall.Signal{syscall.SIGUSR1}, ends: wire.Done{Signal: 15}, exit: ExitLeft},
		"SIGUSR1 of the pilot, then TERM": {signals: []syscall.Signal{syscall.SIGUSR1, syscall.SIGTERM}, ends: wire.Done{Exit: 143}, terminated: true, exit: ExitLeft},
	} {
		w := newWorld(Config{Finish: true, Policy: Policy{Elastic: true, Batch: true, LostRetries: 3, TermGrace: 5 * time.Second}}, []pool.Need{one, one, one})
		w.readMore()
		w.add("own", 1, time.Hour, true)
		w.add("other", 1, time.Hour, false)
		own, other := w.at("own"), w.at("other")
		for _, s := range tt.signals {
			w.handle(Signal{s})
		}
		if _, kills := own.given(); kills != 1 {
			t.Errorf("%s: %d tasks of the scheduler's job were ended", name, kills)
		}
		if _, kills := other.given(); kills != 0 || !other.inbox[len(other.inbox)-1].Leave {
			t.Errorf("%s: in the other job, %d tasks were ended, and the last message is %+v", name, kills, other.inbox[len(other.inbox)-1])
		}
		if w.core.Finished() {
			t.Errorf("%s: the scheduler ends before what runs in its job", name)
		}
		tt.ends.Key = wire.Key{Seq: 1, Attempt: 1}
		w.handle(Received{own.worker, []wire.Message{{Done: &tt.ends}}})
		w.advance(2 * time.Second)
		s := w.core.Summary()
		if !w.core.Finished() || !w.core.Keeps(other.worker) || w.core.Keeps(own.worker) || len(w.ended) != 0 {
			t.Errorf("%s: finished %v, keeps other %v and own %v, ended %v", name, w.core.Finished(), w.core.Keeps(other.worker), w.core.Keeps(own.worker), w.ended)
		}
		if !s.HandedOver || !s.Early || s.Terminated != tt.terminated || s.Exit != tt.exit || s.Left != 3 || s.Failed != 0 {
			t.Errorf("%s: %+v", name, s)
		}
	}
}

// A job is found to be idle by a status: what has begun there since is not ended for that.
func TestRest(t *testing.T) {
	one := pool.Need{CPUs: 1}
	w := newWorld(Config{Finish: true, Policy: Policy{Elastic: true, Serve: true, TermGrace: 5 * time.Second}}, []pool.Need{one, one})
	w.readMore()
	w.add("own", 1, time.Hour, true)
	w.add("other", 1, time.Hour, false)
	own, other := w.at("own"), w.at("other")
	w.handle(Rest{})
	if _, kills := own.given(); kills != 0 || w.core.Summary().HandedOver {
		t.Fatalf("%d tasks were ended; %+v", kills, w.core.Summary())
	}
	done := func(b *process, seq int64) {
		w.handle(Received{b.worker, []wire.Message{{Done: &wire.Done{Key: wire.Key{Seq: seq, Attempt: 1}}}}})
	}
	done(own, 1)
	w.handle(InputGrows{})
	w.handle(Rest{})
	if w.core.Summary().HandedOver {
		t.Fatalf("tasks are left that were not read: %+v", w.core.Summary())
	}
	w.handle(InputEnded{})
	w.handle(Rest{})
	w.advance(time.Second)
	if _, kills := other.given(); kills != 0 || !w.core.Finished() || !w.core.Keeps(other.worker) || !w.core.Summary().HandedOver {
		t.Errorf("%d tasks of the other job were ended; finished: %v; %+v", kills, w.core.Finished(), w.core.Summary())
	}
}

// An idle scheduler whose node was not reached yet is kept by a task that waits.
func TestRestBeforeTheFirstNode(t *testing.T) {
	for needs, want := range map[int]bool{0: true, 1: false} {
		w := newWorld(Config{Finish: true, Policy: Policy{Elastic: true, Serve: true, TermGrace: 5 * time.Second}}, make([]pool.Need, needs))
		w.handle(Rest{})
		if w.core.Status(w.now).HandingOver {
			t.Errorf("%d tasks, which are not read: it hands over", needs)
		}
		w.readMore()
		w.handle(Rest{})
		if got := w.core.Status(w.now).HandingOver; got != want {
			t.Errorf("%d tasks: it hands over: %v", needs, got)
		}
	}
}

// Tasks of several nodes end with their scheduler, which waits for what their workers say of that.
func TestSignalEndsWideTasks(t *testing.T) {
	w := newWorld(Config{Finish: true, Policy: Policy{Elastic: true, LostRetries: 3, TermGrace: 5 * time.Second}}, []pool.Need{{CPUs: 2, Nodes: 2}, {CPUs: 1}})
	w.add("own", 1, time.Hour, true)
	for _, name := range []string{"a", "b"} {
		w.add(name, 2, time.Hour, false)
	}
	w.readMore()
	w.handle(Signal{syscall.SIGTERM})
	for _, name := range []string{"a", "b"} {
		for _, m := range w.at(name).inbox {
			if m.Leave {
				t.Errorf("the worker of node %s is left with a task of two nodes", name)
			}
		}
	}
	if _, kills := w.at("a").given(); kills != 1 || w.core.Finished() {
		t.Errorf("%d tasks of two nodes were ended; the scheduler has: %v", kills, w.core.Finished())
	}
}

// Slurm sends the signals of a step to its tasks as well. One that SIGUSR1 has ended, sooner or later than
// the worker reports the signal, has not failed: it runs again, and after a drain of the run, when that
// is resumed.
func TestSignalEndsTasks(t *testing.T) {
	// It sends messages about the only task, of a node with one CPU.
	play := func(elastic bool, messages ...wire.Message) *world {
		w := newWorld(Config{Policy: Policy{Elastic: elastic, Batch: true, LostRetries: 3, TermGrace: 5 * time.Second}}, []pool.Need{{CPUs: 1}}, 1)
		w.readMore()
		w.handle(Tick{})
		w.connect(0)
		for _, m := range messages {
			w.handle(Received{w.at("n1").worker, []wire.Message{m}})
		}
		w.advance(2 * time.Second)
		return w
	}
	key, signal := wire.Key{Seq: 1, Attempt: 1}, wire.Message{Signal: "USR1"}
	for _, end := range []wire.Done{{Key: key, Signal: 10}, {Key: key, Exit: 138}} {
		for _, elastic := range []bool{false, true} {
			for name, messages := range map[string][]wire.Message{"before": {{Done: &end}, signal}, "after": {signal, {Done: &end}}} {
				w := play(elastic, messages...)
				if s := w.core.Summary(); len(w.ended) != 0 || s.Failed != 0 || !elastic && (!w.core.Finished() || s.Left != 1 || s.Exit != ExitLeft) {
					t.Errorf("%+v %s the signal is reported, own jobs %v: %+v", end, name, elastic, s)
				}
			}
		}
		if w := play(false, wire.Message{Done: &end}); w.core.Summary().Failed != 1 {
			t.Errorf("a task that got a SIGUSR1 of its own has not failed: %+v", w.core.Summary())
		}
	}
}

// SIGUSR1 at a worker of a pool that gets its own jobs drains that node, and the run continues elsewhere.
// The scheduler stays in its job until that ends.
func TestSignalDrainsNode(t *testing.T) {
	one := pool.Need{CPUs: 1}
	for _, node := range []string{"own", "other"} {
		w := newWorld(Config{Finish: true, Policy: Policy{Elastic: true, LostRetries: 3, TermGrace: 5 * time.Second}}, []pool.Need{one, one, one})
		w.readMore()
		w.add("own", 1, 100*time.Second, true)
		w.add("other", 1, time.Hour, false)
		p := w.at(node)
		w.handle(Received{p.worker, []wire.Message{{Signal: "USR1"}}})
		for len(p.inbox) > 0 {
			w.deliver(p)
		}
		for k := range p.running {
			w.end(p, k, 0)
		}
		w.hear(p)
		w.advance(2 * time.Second)
		if runs, kills := p.given(); runs != 0 || kills != 0 || w.core.Finished() || len(w.ended) != 1 {
			t.Errorf("%s: after SIGUSR1, %d tasks were started and %d ended there; the run has ended: %v; %d tasks have", node, runs, kills, w.core.Finished(), len(w.ended))
		}
		w.advance(90 * time.Second)
		if s := w.core.Summary(); !s.HandedOver || s.Early || s.Terminated {
			t.Errorf("%s: near the end of the scheduler's job: %+v", node, s)
		}
	}
}

// The tasks that an orphan lets end have their CPUs until then.
func TestDetachedTasksKeepTheirCPUs(t *testing.T) {
	one := pool.Need{CPUs: 1}
	w := newWorld(Config{Finish: true, Policy: Policy{Elastic: true, LostRetries: 3, Reconnects: 3}}, []pool.Need{one, one, one}, 2)
	w.readMore()
	w.connect(0)
	first := w.nodes[0].processes[0]
	orphan := first.worker
	w.lost(first, Unknown)
	w.handle(Spooled{Worker: orphan, Listed: true, Running: []wire.Key{{Seq: 1, Attempt: 1}}})
	w.advance(2 * time.Second)
	w.connect(0)
	second := w.nodes[0].processes[1]
	if runs, _ := second.given(); runs != 1 {
		t.Fatalf("beside a task that ends at an orphan, %d were started on 2 CPUs", runs)
	}
	w.handle(Spooled{Worker: orphan, Done: []SpooledDone{{Done: &wire.Done{Key: wire.Key{Seq: 1, Attempt: 1}}}}})
	if runs, _ := second.given(); runs != 2 || w.ended[1] != 1 {
		t.Errorf("when it has ended %d run, and it ended %d times", runs, w.ended[1])
	}
}

// A task that is longer than any job is refused, and no job after the other waits for it.
func TestTaskLongerThanAnyJob(t *testing.T) {
	w := newWorld(Config{Policy: Policy{Elastic: true, TimePerTask: 5 * time.Minute}}, []pool.Need{{CPUs: 1}})
	w.readMore()
	w.nodes = append(w.nodes, &box{name: "a", cpus: 1})
	w.handle(AddNodes{[]NodeSpec{{Name: "a", Slots: 1, End: w.now.Add(4 * time.Minute), Life: 4 * time.Minute}}})
	if w.outcome[1] != wire.Refused || !w.core.Finished() {
		t.Errorf("it ended as %q; the run is over: %v", w.outcome[1], w.core.Finished())
	}
}

// What a pool is to start no more stays so when its scheduler hands over: the next one waits for what
// runs, and ends the run.
func TestDrainOutlivesScheduler(t *testing.T) {
	one := pool.Need{CPUs: 1}
	failed := wire.Done{Key: wire.Key{Seq: 1, Attempt: 1}, Exit: 1}
	for name, tt := range map[string]struct {
		halt    Halt
		ends    bool // the task in the other job ends before the scheduler's job does
		closing Closing
		exit    int
	}{
		"drained":              {closing: Closing{Why: "drained by request", Exit: ExitLeft}, exit: ExitLeft},
		"drained, all ended":   {ends: true, closing: Closing{Why: "drained by request", Exit: ExitLeft}, exit: ExitLeft},
		"a failure":            {halt: Halt{Fail: 1}, closing: Closing{Why: "1 task has failed", Exit: 1, Explicit: true}, exit: 1},
		"a failure, all ended": {halt: Halt{Fail: 1}, ends: true, closing: Closing{Why: "1 task has failed", Exit: 1, Explicit: true}, exit: 1},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := Config{Finish: true, Policy: Policy{Elastic: true, LostRetries: 3, TermGrace: 5 * time.Second, Halt: tt.halt}}
			w := newWorld(cfg, []pool.Need{one, one, one, one})
			w.readMore()
			w.add("own", 1, 100*time.Second, true)
			w.add("other", 1, time.Hour, false)
			own, other := w.at("own"), w.at("other")
			if tt.halt == (Halt{}) {
				w.handle(Drain{Why: "drained by request"})
			}
			w.handle(Received{own.worker, []wire.Message{{Done: &failed}}})
			s := w.core.Status(w.now)
			if w.closed == nil || *w.closed != tt.closing || s.Phase != "draining" || s.Why != tt.closing.Why || s.Running != 1 || w.core.Finished() {
				t.Fatalf("the next scheduler is to know %+v, want %+v; the run has ended: %v; %+v", w.closed, tt.closing, w.core.Finished(), s)
			}
			if why := w.core.Explain(3, w.now); len(why) < 2 || why[1] != "nothing new is started: "+tt.closing.Why {
				t.Errorf("a waiting task: %q", why)
			}
			if tt.ends {
				w.handle(Received{other.worker, []wire.Message{{Done: &wire.Done{Key: wire.Key{Seq: 2, Attempt: 1}}}}})
			}
			w.advance(91 * time.Second)
			if s := w.core.Summary(); !w.core.Finished() || s.HandedOver == tt.ends || !s.Closed || tt.ends && (s.Exit != tt.exit || s.Why != tt.closing.Why) || !tt.ends && s.Exit != ExitLeft {
				t.Fatalf("the run has ended: %v; %+v", w.core.Finished(), s)
			}
			if tt.ends {
				return
			}
			orphan := other.identity
			w.cfg.Closed = w.closed
			w.kill()
			w.boot()
			w.cfg.Past = []PastWorker{{Key: uint16(other.id), Identity: orphan, Until: w.lease, Spool: true}}
			w.core = New(w.cfg, w.now)
			w.readMore()
			w.add("next", 4, time.Hour, true)
			w.advance(time.Minute)
			if runs, _ := w.at("next").given(); runs != 0 || w.core.Finished() || w.core.Status(w.now).Phase != "draining" {
				t.Fatalf("%d tasks were started, the run has ended: %v", runs, w.core.Finished())
			}
			past := w.core.Spooling()[0]
			w.handle(Spooled{Worker: past, Listed: true, Touched: true, Running: []wire.Key{{Seq: 2, Attempt: 1}}})
			if w.core.Finished() {
				t.Fatal("the run ends before what runs")
			}
			w.handle(Spooled{Worker: past, Done: []SpooledDone{{Done: &wire.Done{Key: wire.Key{Seq: 2, Attempt: 1}}}}, Ended: true})
			w.handle(Tick{})
			if s := w.core.Summary(); !w.core.Finished() || w.ended[2] != 1 || s.HandedOver || s.Exit != tt.exit || s.Why != tt.closing.Why || s.Left != 2 {
				t.Errorf("at the end: %v, task 2 has ended %d times, %+v", w.core.Finished(), w.ended[2], s)
			}
		})
	}
}

// A limit of failures is that of the run, whatever number of schedulers it has.
func TestHaltCountsThoseBefore(t *testing.T) {
	one := pool.Need{CPUs: 1}
	for before, ends := range map[int64]bool{0: false, 1: true} {
		w := newWorld(Config{Failed: before, Policy: Policy{Elastic: true, Halt: Halt{Fail: 2}}}, []pool.Need{one, one, one})
		w.readMore()
		w.add("a", 1, time.Hour, true)
		w.handle(Received{w.at("a").worker, []wire.Message{{Done: &wire.Done{Key: wire.Key{Seq: 1, Attempt: 1}, Exit: 1}}}})
		s := w.core.Summary()
		if w.core.Finished() != ends || ends && (s.Exit != 1 || s.Why != "2 tasks have failed" || s.Left != 2) {
			t.Errorf("after %d and one more, the run has ended: %v, %+v", before, w.core.Finished(), s)
		}
	}
	// The scheduler before has ended before it could stop the run.
	w := newWorld(Config{Failed: 2, Policy: Policy{Elastic: true, Halt: Halt{Fail: 2}}}, []pool.Need{one})
	w.readMore()
	w.handle(Tick{})
	if s := w.core.Summary(); !w.core.Finished() || s.Exit != 1 || s.Left != 1 {
		t.Errorf("the run has ended: %v, %+v", w.core.Finished(), s)
	}
}

// A pool that gets its own jobs may do so for years: what it remembers of nodes does not grow with those that have
// left, and that of which something may still run, or be judged, is not forgotten.
func TestNodesThatHaveLeftAreForgotten(t *testing.T) {
	one := pool.Need{CPUs: 1}
	w := newWorld(Config{Policy: Policy{Elastic: true}}, []pool.Need{one, one})
	w.readMore()
	w.add("stays", 1, 0, false)
	for i := range 10 * mostAway {
		name := fmt.Sprint("n", i)
		w.handle(AddNodes{[]NodeSpec{{Name: name, Slots: 1}}})
		w.handle(RemoveNodes{Names: []string{name}})
		if i == 0 {
			w.core.nodes.all[1].unswept[wire.Key{Seq: 1}] = true
		}
	}
	var names []string
	for _, n := range w.core.Status(w.now).Nodes {
		names = append(names, n.Name)
	}
	if len(names) != mostAway+3 || names[0] != "stays" || names[1] != "n0" || names[2] != "n899" || names[mostAway+2] != "n999" {
		t.Errorf("%d nodes: %v", len(names), names)
	}
}
