package vast

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/ponos-tools/ponos/lib/base/clock"
	"github.com/ponos-tools/ponos/testscripts/vast/server"
)

// scenario is something that goes wrong on the market, and how a task ends then.
type scenario struct {
	name    string
	script  string
	extra   string
	prepare func(w *world)
	// during is called while turns are taken, until it says that it is done. Wait has the script begin
	// only then.
	during func(w *world) bool
	wait   bool
	state  string
	log    string // must be in the task's log
	// instances is how many it takes; default: 1.
	instances int
}

const (
	asks  = "^/api/v0/asks/"
	lists = "^/api/v1/instances/"
	one   = `^/api/v0/instances/\d+/`
)

// running reports whether the only instance's container runs.
func running(w *world) (server.Instance, bool) {
	for _, i := range w.market.Alive() {
		if i.Actual == "running" && strings.HasPrefix(i.Label, "ponos:") {
			return i, true
		}
	}
	return server.Instance{}, false
}

var scenarios = []scenario{
	{name: "offer taken", state: "completed", prepare: func(w *world) {
		w.market.Break(server.Fault{Method: "PUT", Path: asks, Times: 2, Status: 404, Body: `{"success":false,"error":"invalid_args","msg":"error 404/3603: no_such_ask Instance type by id 1 is not available."}`})
	}},
	{name: "answer lost", state: "completed", prepare: func(w *world) {
		w.market.Break(server.Fault{Method: "PUT", Path: asks, Times: 1, Lose: true})
	}},
	{name: "answer lost and listed late", state: "completed", prepare: func(w *world) {
		w.market.Lag = 250 * time.Millisecond
		w.market.Break(server.Fault{Method: "PUT", Path: asks, Times: 1, After: true, Status: 502, Body: "<html>", Type: "text/html"})
	}},
	{name: "no success but a contract", state: "completed", instances: 2, prepare: func(w *world) {
		w.market.Break(server.Fault{Method: "PUT", Path: asks, Times: 1, Deny: true})
	}},
	{name: "no contract in the answer", state: "completed", prepare: func(w *world) {
		w.market.Break(server.Fault{Method: "PUT", Path: asks, Times: 1, After: true, Status: 200, Body: `{"success":true}`})
	}},
	{name: "odd and empty lists", wait: true, script: "sleep 2; echo done", state: "completed", during: func(w *world) bool {
		if _, ok := running(w); !ok {
			return false
		}
		for _, body := range []string{`{}`, `[]`, `<html>`, `{"success":true,"instances_found":0}`, `{"success":false,"instances":[],"total_instances":0}`,
			`{"success":true,"instances":[],"total_instances":0,"next_token":null}`, `{"success":true,"instances":[],"total_instances":7,"next_token":null}`} {
			w.market.Break(server.Fault{Method: "GET", Path: lists, Times: 1, Status: 200, Body: body})
		}
		return true
	}},
	{name: "second page fails", script: "sleep 2; echo done", state: "completed", prepare: func(w *world) {
		w.untracked(26)
		w.market.Break(server.Fault{Method: "GET", Path: lists + ".*after_token", Skip: 2, Times: 9, Status: 500, Body: "oops", Type: "text/plain"})
	}},
	{name: "destroy does nothing at first", state: "completed", prepare: func(w *world) {
		w.market.Do(func() { w.market.DeafDestroys, w.market.Linger = 2, 300*time.Millisecond })
	}},
	{name: "boot never ends", state: "completed", instances: 2, prepare: func(w *world) {
		w.market.Machine(1, server.Machine{Stuck: true})
	}},
	{name: "machine at fault", state: "completed", instances: 2, prepare: func(w *world) {
		w.market.Machine(1, server.Machine{Stuck: true, Status: "Error response from daemon: no space left on device"})
	}},
	{name: "image at fault", state: "error", log: "the image cannot be pulled", prepare: func(w *world) {
		w.market.Machine(1, server.Machine{Stuck: true, Status: "Error: manifest unknown"})
	}},
	{name: "host lost", script: "echo begun; echo; echo more; sleep 600", state: "error", log: "has disappeared", during: func(w *world) bool {
		i, ok := running(w)
		if ok && strings.Contains(string(w.queue.Log("task")), "begun") {
			w.market.Vanish(i.ID)
			return true
		}
		return false
	}},
	{name: "container restarts in the middle", script: "echo begun; echo; echo more; sleep 600", state: "error", log: "restarted in the middle", during: func(w *world) bool {
		i, ok := running(w)
		if ok && strings.Contains(string(w.queue.Log("task")), "begun") {
			w.market.Crash(i.ID)
			return true
		}
		return false
	}},
	{name: "container restarts after the end", script: "echo once; exit 5", state: "failed", log: "once", prepare: func(w *world) {
		// Its own stop does nothing, its log is not there, and it is started again.
		w.market.Break(server.Fault{Method: "PUT", Path: one, Status: 503, Body: "no"})
		w.market.Do(func() { w.market.LogAfter = -1 })
	}, during: func(w *world) bool {
		i, ok := running(w)
		if ok && strings.Contains(w.container(i.ID), "PONOS-EXIT") {
			w.market.Crash(i.ID)
			time.Sleep(700 * time.Millisecond)
			w.market.Do(func() { w.market.LogAfter = 1 })
			w.market.Due(i.ID) // nobody could have known before
			return true
		}
		return false
	}},
	{name: "storm of 429", script: "sleep 1; echo done", state: "completed", prepare: func(w *world) {
		w.market.Break(server.Fault{Path: "^/api/v0/bundles", Times: 2, Status: 429, Body: "API requests too frequent", Type: "text/plain"})
		w.market.Break(server.Fault{Method: "PUT", Path: asks, Times: 1, Status: 429, Body: `{"detail":"API requests too frequent endpoint threshold=4.5"}`})
		w.market.Break(server.Fault{Method: "DELETE", Path: one, Times: 5, Status: 429, Body: "API requests too frequent", Type: "text/plain"})
		w.market.Break(server.Fault{Path: lists, Times: 5, Status: 429, Body: "API requests too frequent", Type: "text/plain"})
	}},
	{name: "answers without a word", state: "completed", prepare: func(w *world) {
		w.market.Break(server.Fault{Method: "PUT", Path: asks, Times: 1, Status: 400})
		w.market.Break(server.Fault{Method: "PUT", Path: asks, Times: 1, Status: 504})
		w.market.Break(server.Fault{Method: "DELETE", Path: one, Times: 1, Status: 502})
	}},
	{name: "slow answers", state: "completed", prepare: func(w *world) {
		for _, path := range []string{asks, lists, "^/logs/", one} {
			w.market.Break(server.Fault{Path: path, Times: 2, Delay: 400 * time.Millisecond})
		}
	}},
	{name: "market's clock behind", script: "sleep 2; echo done", state: "completed", extra: "  max_cost_per_task: 3\n", prepare: func(w *world) {
		w.market.Advance(-100 * time.Hour)
		w.market.Break(server.Fault{Method: "PUT", Path: asks, Times: 1, Lose: true})
	}},
	{name: "log cut", script: "seq 1000 5000; sleep 1; seq 5001 9999; echo done", state: "completed", log: "9998\n9999\ndone\n", prepare: func(w *world) {
		w.market.Do(func() { w.market.Truncate = 2000 })
	}},
	{name: "host offline for a while", wait: true, state: "completed", during: func(w *world) bool {
		i, ok := running(w)
		if !ok {
			return false
		}
		for _, status := range []string{"offline", "unknown", "something new"} {
			w.market.Status(i.ID, status)
			w.run(turn)
		}
		w.market.Status(i.ID, "running")
		return true
	}},
	{name: "stopped by the market", script: "echo begun; echo; echo more; sleep 600", state: "error", log: "was stopped, without an exit code", during: func(w *world) bool {
		i, ok := running(w)
		if ok && strings.Contains(string(w.queue.Log("task")), "begun") {
			w.market.Outbid(i.ID)
			return true
		}
		return false
	}},
	{name: "offers refused", state: "completed", prepare: func(w *world) {
		w.market.Refuse(31000001, server.Refusal{Status: 400, Code: "invalid_args", Msg: "error 400/4: this machine takes no such request"})
		w.market.Refuse(31000002, server.Refusal{Status: 403, Code: "not_authorized", Msg: "Offer 31000002 is not your own"})
	}},
	{name: "odd offers", state: "completed", prepare: func(w *world) {
		for id, price := range []any{nil, "cheap", -1.0, []int{1}, server.Absent} {
			w.market.AddOffer(int64(100+id), map[string]any{"dph_base": 0.01, "dph_total": price})
		}
		w.market.AddOffer(110, map[string]any{"dph_base": 0.01, "id": nil})
		w.market.AddOffer(111, map[string]any{"dph_base": 0.01, "num_gpus": 0})
	}},
	{name: "credit gone", state: "completed", prepare: func(w *world) { w.market.SetCredit(0.5) }, during: func(w *world) bool {
		if n := len(w.market.Requests("PUT " + asks[1:])); n > 0 {
			w.t.Errorf("%d orders without credit", n)
		}
		w.market.SetCredit(50)
		return true
	}},
}

// due notes that all instances of tasks are of no more use.
func (w *world) due() {
	for _, i := range w.market.Alive() {
		if strings.HasPrefix(i.Label, "ponos:") {
			w.market.Due(i.ID)
		}
	}
}

// later moves the clock of the tools.
func (w *world) later(d time.Duration) {
	w.env = append(w.env, fmt.Sprintf("%s=%+ds", clock.Variable, int(d.Seconds())))
}

// untracked rents instances that are somebody else's.
func (w *world) untracked(n int) {
	for i := range n {
		w.market.AddOffer(int64(90000+i), map[string]any{"verification": "unverified"})
		req, err := http.NewRequest(http.MethodPut, fmt.Sprintf("%s/api/v0/asks/%d/", w.url, 90000+i), strings.NewReader(`{"image":"x","disk":10,"label":"mine","onstart":"sleep","args":["100"]}`))
		if err != nil {
			w.t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+server.Key)
		resp, err := http.DefaultClient.Do(req)
		if err != nil || resp.StatusCode != http.StatusOK {
			w.t.Fatal(resp, err)
		}
		_ = resp.Body.Close()
	}
	w.others = n
}

func (w *world) container(id int64) string {
	b, _ := os.ReadFile(fmt.Sprintf("%s/containers/%d/log", w.dir, id))
	return string(b)
}

func TestScenarios(t *testing.T) {
	transports(t, func(t *testing.T, via string) {
		for _, s := range scenarios {
			t.Run(s.name, func(t *testing.T) {
				t.Parallel()
				w := newWorld(t, options{via: via, extra: s.extra})
				w.offers(5)
				if s.script == "" {
					s.script = "echo done"
				}
				moment := filepath.Join(w.dir, "moment")
				if s.wait {
					s.script = "until test -e " + moment + "; do sleep 0.1; done; " + s.script
				}
				w.task("task", s.script)
				if s.prepare != nil {
					s.prepare(w)
				}
				if s.during != nil {
					w.until("the moment of the scenario", func() bool { return s.during(w) })
				}
				if err := os.WriteFile(moment, nil, 0o644); err != nil {
					t.Fatal(err)
				}
				w.settled("task")
				if got := w.state("task"); got != s.state {
					t.Errorf("task is %s, want %s", got, s.state)
				}
				if n := len(w.market.Instances()) - w.others; n != max(1, s.instances) {
					t.Errorf("%d instances were ordered, it takes %d", n, max(1, s.instances))
				}
				want := s.log
				if want == "" {
					want = "done\n"
				}
				if log := string(w.queue.Log("task")); !strings.Contains(log, want) || strings.Count(log, "once") > 1 {
					t.Errorf("log:\n%s", log)
				}
				w.check("task")
			})
		}
	})
}

// A stop destroys the instance, with what its log says until then.
func TestStop(t *testing.T) {
	transports(t, func(t *testing.T, via string) {
		w := newWorld(t, options{via: via})
		w.configure("stop_wait: 5s", "stop_wait: 3m")
		w.offers(2)
		w.task("task", "echo begun; echo; echo more; sleep 100")
		w.market.Do(func() { w.market.DeafDestroys = 1 })
		w.until("log", func() bool { return strings.Contains(string(w.queue.Log("task")), "begun") })
		if err := w.queue.Stop("task"); err != nil {
			t.Fatal(err)
		}
		w.due()
		said := w.settled("task")
		if got := w.state("task"); got != "stopped" || !regexp.MustCompile(`"event":"stopped".*"cost_dollars":1\.0`).MatchString(said) || !strings.Contains(string(w.queue.Log("task")), "cost: about $1.0") {
			t.Errorf("task is %s\n%s\n%s", got, said, w.queue.Log("task"))
		}
		w.check("task")
	})
}

// With the state directory lost, the instance is found again by its label.
func TestStateLost(t *testing.T) {
	t.Parallel()
	w := newWorld(t, options{via: "api"})
	w.offers(2)
	w.task("task", "echo begun; echo; echo more; sleep 2; echo done")
	w.until("log", func() bool { return strings.Contains(string(w.queue.Log("task")), "begun") })
	if err := os.RemoveAll(w.dir + "/data/state/vast"); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{"tasks", "done", "submitted", "tracked.jsonl"} {
		if err := os.RemoveAll(w.dir + "/data/state/" + dir); err != nil {
			t.Fatal(err)
		}
	}
	w.until("task over", func() bool { return final(w.state("task")) && len(w.market.Alive()) == 0 })
	w.settled("task")
	if got := w.state("task"); got != "completed" || !strings.Contains(string(w.queue.Log("task")), "done\n") {
		t.Errorf("task is %s\n%s", got, w.queue.Log("task"))
	}
	w.check("task")
}
