package vast

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Two agents with the same name on one account: neither touches what the other has
// ordered, though its label says that it is its own.
func TestTwins(t *testing.T) {
	transports(t, func(t *testing.T, via string) {
		one := newWorld(t, options{via: via, scale: 1})
		other := newWorld(t, options{via: via, beside: one})
		one.offers(3)
		goOn := filepath.Join(one.dir, "go-on") // it must not be over before the other has looked
		one.task("task", "echo begun; echo; echo more; until [ -e "+goOn+" ]; do sleep 0.1; done; echo done")
		one.until("log", func() bool { return strings.Contains(string(one.queue.Log("task")), "begun") })
		for range 4 {
			if out, errs, code := other.run(turn); code != 0 || out != "" || errs != "" {
				t.Errorf("turn of the other: %d %s%s", code, out, errs)
			}
		}
		out, errs, code := other.run("vast-reap --older 0s --destroy")
		if code != 1 || !strings.Contains(out, "not ordered from this data_dir") || !strings.Contains(errs, "1 of 1 instances were not ordered from this data_dir, and are not touched") {
			t.Errorf("vast-reap of the other: %d %s%s", code, out, errs)
		}
		log, err := os.ReadFile(filepath.Join(other.dir, "agent.log"))
		if err != nil || !strings.Contains(string(log), "it is left alone") {
			t.Errorf("%s, %v", log, err)
		}
		if err := os.WriteFile(goOn, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		// The other one's own tasks go on beside.
		other.task("mine", "echo mine")
		one.settled("task")
		other.settled("mine")
		if one.state("task") != "completed" || other.state("mine") != "completed" {
			t.Errorf("task is %s, the other's %s", one.state("task"), other.state("mine"))
		}
		one.noSecrets()
		other.noSecrets()
		one.checkMeter(2)
		if n := len(one.market.Instances()); n != 2 || len(one.market.Alive()) > 0 {
			t.Errorf("%d instances were ordered, left are %+v", n, one.market.Alive())
		}
	})
}

// With the journal lost, a task that the queue still wants keeps its instance, by
// whatever attempt it was ordered, and even if ponos-start comes first.
func TestJournalLost(t *testing.T) {
	transports(t, func(t *testing.T, via string) {
		w := newWorld(t, options{via: via})
		w.offers(3)
		more := filepath.Join(w.dir, "go-on") // it must not be over before all this is done
		w.task("task", "echo begun; echo; echo more; until [ -e "+more+" ]; do sleep 0.1; done; echo done")
		w.until("log", func() bool { return strings.Contains(string(w.queue.Log("task")), "begun") })
		state := filepath.Join(w.dir, "data/state")
		for _, dir := range []string{"vast", "tasks", "done", "submitted", "tracked.jsonl"} {
			if err := os.RemoveAll(filepath.Join(state, dir)); err != nil {
				t.Fatal(err)
			}
		}
		// It is there as another attempt, say. Its container knows the old label, and must not
		// write that at the end.
		w.market.Do(func() { w.market.StopOnlyKeys = true })
		i := w.market.Alive()[0]
		if err := os.RemoveAll(filepath.Join(w.dir, "home/k/ponos")); err != nil { // lists that show the old one
			t.Fatal(err)
		}
		w.market.Relabel(i.ID, strings.TrimSuffix(strings.TrimSuffix(i.Label, ":end=begun"), ":1")+":3")
		if out, errs, code := w.run("ponos-start " + w.id("task")); code != 0 || !strings.Contains(out, `"event":"deferred"`) || !strings.Contains(out, "attempt 3 of the task has instance") {
			t.Errorf("%d %s%s", code, out, errs)
		}
		if err := os.WriteFile(more, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		w.settled("task")
		if got := w.state("task"); got != "completed" || !strings.Contains(string(w.queue.Log("task")), "done\n") {
			t.Errorf("task is %s\n%s", got, w.queue.Log("task"))
		}
		if n := len(w.market.Instances()); n != 1 {
			t.Errorf("%d instances", n)
		}
		w.check("task")
	})
}
