package vast

import (
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ponos-tools/ponos/testscripts/executable"
	"github.com/ponos-tools/ponos/testscripts/harness"
	"github.com/ponos-tools/ponos/testscripts/vast/server"
)

// No process is killed here: the market alone makes trouble.

// empty is a list without instances, which nothing in it tells from a true one.
const empty = `{"success":true,"instances_found":0,"instances":[],"total_instances":0,"label_counts":{},"next_token":null}`

// trouble has a task's command note its start, refuse another one beside it, and end when the test says so.
func (w *world) trouble(slug string, n int, script string) (slugs []string, over func()) {
	w.t.Helper()
	file := filepath.Join(w.dir, slug)
	for k := range n {
		slugs = append(slugs, fmt.Sprintf("%s-%d", slug, k))
		w.task(slugs[k], fmt.Sprintf(`exec 9>%[1]s/$PONOS_TASK.lock; flock -n 9 || echo $PONOS_TASK >>%[1]s/twice; echo $PONOS_TASK >>%[1]s/starts
			echo begun; echo; echo more; until [ -e %[2]s ]; do sleep 0.1; done; %[3]s; echo done`, w.dir, file, script))
	}
	return slugs, func() {
		if err := os.WriteFile(file, nil, 0o600); err != nil {
			w.t.Fatal(err)
		}
	}
}

// starts is how often the commands of tasks have begun.
func (w *world) starts() int {
	if twice, err := os.ReadFile(filepath.Join(w.dir, "twice")); err == nil {
		w.t.Errorf("ran twice at once: %s", twice)
	}
	b, _ := os.ReadFile(filepath.Join(w.dir, "starts"))
	return strings.Count(string(b), "\n")
}

// logged reports whether the agent has logged some words so far.
func (w *world) logged(words string) bool {
	b, _ := os.ReadFile(filepath.Join(w.dir, "agent.log"))
	return strings.Contains(string(b), words)
}

// ends has tasks come to an end, and holds that nothing is left then.
func (w *world) ends(state string, slugs ...string) {
	w.t.Helper()
	w.settled(slugs...)
	for _, slug := range slugs {
		if got := w.state(slug); got != state {
			w.t.Errorf("%s is %s, want %s\n%s", slug, got, state, w.queue.Log(slug))
		}
	}
	if left := w.market.Alive(); len(left) > 0 {
		w.t.Errorf("left are %+v", left)
	}
	w.noSecrets()
	if w.t.Failed() {
		w.t.Log(w.tell())
	}
}

// A machine that took too long to load, and that destroys do nothing to, may run the task: another one is not ordered beside it.
func TestSlowImage(t *testing.T) {
	transports(t, func(t *testing.T, via string) {
		w := newWorld(t, options{via: via})
		w.configure("boot_timeout: 3s", "boot_timeout: 1s")
		w.offers(4)
		w.market.Machine(1, server.Machine{Slow: 4 * time.Second})
		mend := w.market.Break(server.Fault{Method: http.MethodDelete, Path: "^/api/v0/instances/", Status: 403, Body: `{"success":false,"error":"no","msg":"no"}`})
		slugs, over := w.trouble("slow", 1, "true")
		w.until("it is given up", func() bool { return w.logged("not loaded within boot_timeout") })
		w.until("it has begun all the same", func() bool { return w.starts() > 0 })
		w.until("that counts", func() bool { return final(w.state(slugs[0])) })
		mend()
		over()
		w.ends("error", slugs...)
		if n := len(w.market.Instances()); n != 1 || w.starts() != 1 || !strings.Contains(string(w.queue.Log(slugs[0])), "may have begun the task before it was gone") {
			t.Errorf("%d instances, %d starts\n%s", n, w.starts(), w.tell())
		}
	})
}

// That several instances are not found is no answer for each of them. What is not destroyed is told, and holds its place.
func TestSeveralNotFound(t *testing.T) {
	transports(t, func(t *testing.T, via string) {
		w := newWorld(t, options{via: via, scale: 1, extra: "  max_instances: 3\n"})
		if via == "cli" { // a turn waits three of these for it, and the program tries six times
			w.configure("create_interval: 80ms", "create_interval: 3s")
		}
		w.offers(6)
		w.market.Break(server.Fault{
			Method: http.MethodDelete, Path: "^/api/v0/instances/[?]", Status: 404, Body: `{"success":false,"error":"instances_not_found","msg":"not_found"}`,
		})
		slugs, over := w.trouble("found", 3, "true")
		w.until("they run", func() bool { return w.starts() == 3 })
		mend := w.market.Break(server.Fault{Method: http.MethodDelete, Path: one, Status: 500, Body: "no", Type: "text/plain"})
		over()
		w.until("it is told", func() bool { return w.logged("instances still exist, and cost money") })
		next, over := w.trouble("next", 1, "true")
		over()
		for range 3 {
			w.run(turn)
		}
		if n := len(w.market.Instances()); n != 3 {
			t.Errorf("%d instances, and three are not destroyed", n)
		}
		mend()
		w.ends("completed", append(slugs, next...)...)
	})
}

// Without credit the market stops everything: tasks wait for it, start again by their rule, and no machine is to blame.
func TestCreditUsedUp(t *testing.T) {
	transports(t, func(t *testing.T, via string) {
		for retries, state := range []string{"error", "completed"} {
			t.Run(state, func(t *testing.T) {
				t.Parallel()
				w := newWorld(t, options{via: via, scale: 1, extra: fmt.Sprintf("  retries_on_loss: %d\n", retries)})
				w.offers(6)
				slugs, over := w.trouble("credit", 2, "true")
				w.until("they run", func() bool {
					return strings.Count(string(w.queue.Log(slugs[0]))+string(w.queue.Log(slugs[1])), "begun\n") == 2
				})
				w.market.SetCredit(-0.02)
				for _, i := range w.market.Alive() {
					w.market.Halt(i.ID)
				}
				w.until("it is told", func() bool {
					return w.logged("no credit: the market has stopped all instances, as the account has $-0.02")
				})
				w.until("they are gone", func() bool { return len(w.market.Alive()) == 0 })
				for range 3 {
					w.run(turn)
				}
				if n := len(w.market.Instances()); n != 2 {
					t.Errorf("%d instances: some were ordered without credit", n)
				}
				w.market.SetCredit(20)
				over()
				w.ends(state, slugs...)
				for _, slug := range slugs {
					if log := string(w.queue.Log(slug)); !strings.Contains(log, "no credit: ") {
						t.Errorf("%s", log)
					}
				}
				if w.starts() != 2*(1+retries) || w.logged("machine at fault") {
					t.Errorf("%d starts\n%s", w.starts(), w.agentLog())
				}
			})
		}
	})
}

// A machine that is not what was ordered does not begin the task, however long the agent does not look.
func TestWrongMachineBeginsNothing(t *testing.T) {
	transports(t, func(t *testing.T, via string) {
		w := newWorld(t, options{via: via, boot: time.Millisecond})
		w.offers(3)
		w.market.Machine(1, server.Machine{Row: map[string]any{"num_gpus": 2}})
		slugs, over := w.trouble("wrong", 1, "true")
		over()
		w.run(turn)
		for start := time.Now(); !strings.Contains(w.container(w.market.Instances()[0].ID), "PONOS-EXIT"); time.Sleep(20 * time.Millisecond) {
			if time.Since(start) > harness.Patience {
				t.Fatal(w.tell())
			}
		}
		if w.starts() != 0 {
			t.Error("it has begun the task")
		}
		w.ends("completed", slugs...)
		if n := len(w.market.Instances()); n != 2 || w.starts() != 1 || w.logged("machine lost") {
			t.Errorf("%d instances, %d starts\n%s", n, w.starts(), w.agentLog())
		}
	})
}

// A cheap machine that is broken fails a few tasks at most: its driver is asked, and different tasks that fail there at once say so, too.
func TestCheapMachineIsBroken(t *testing.T) {
	transports(t, func(t *testing.T, via string) {
		for program, c := range map[string]struct {
			script string
			most   int    // tasks that fail
			why    string // of its being avoided
		}{
			"nvidia-smi": {"echo 'No devices were found'; exit 9", 0, "does not work"},
			"work":       {"exit 1", 4, "different tasks have failed on it within seconds"},
		} {
			t.Run(program, func(t *testing.T) {
				t.Parallel()
				w := newWorld(t, options{via: via, scale: 1, extra: "  max_instances: 2\n  max_creates_per_hour: 0\n"})
				broken := t.TempDir()
				executable.Write(t, filepath.Join(broken, program), "#!/bin/sh\n"+c.script+"\n")
				w.market.Machine(51, server.Machine{Path: broken})
				for n := range int64(8) {
					w.market.AddOffer(100+n, map[string]any{"machine_id": 51, "dph_base": 0.05})
					w.market.AddOffer(200+n, map[string]any{"machine_id": 60 + n})
				}
				slugs, over := w.trouble("cheap", 7, "! command -v work || work || exit 1")
				over()
				w.settled(slugs...)
				states := map[string]int{}
				for _, slug := range slugs {
					states[w.state(slug)]++
				}
				if states["failed"] > c.most || states["completed"]+states["failed"] != 7 || len(w.market.Alive()) > 0 {
					t.Errorf("%v\n%s", states, w.tell())
				}
				w.market.AddOffer(300, map[string]any{"machine_id": 51, "dph_base": 0.05})
				if out, _, _ := w.run("vast-offers --explain"); !regexp.MustCompile("machine 51 is avoided until .*" + c.why).MatchString(out) {
					t.Errorf("%s", out)
				}
				if w.starts(); !w.logged(c.why) {
					t.Error("the log does not say why")
				}
			})
		}
	})
}

// Lists that lack instances, however long, end nothing: only what is asked for by its id is gone.
func TestFalseLists(t *testing.T) {
	transports(t, func(t *testing.T, via string) {
		w := newWorld(t, options{via: via, scale: 1})
		w.offers(4)
		slugs, over := w.trouble("list", 3, "true")
		w.until("they run", func() bool { return w.starts() == 3 })
		w.until("the agent knows that", func() bool {
			return w.state(slugs[0]) == "running" && w.state(slugs[1]) == "running" && w.state(slugs[2]) == "running"
		})
		// Ten times settle, after which it asks for each of many.
		shown := func() bool {
			return slices.ContainsFunc(w.market.Requests(`^GET /api/v0/instances/\d+/`), func(r server.Request) bool { return r.Auth == "Bearer "+server.Key })
		}
		mend := w.market.Break(server.Fault{Method: http.MethodGet, Path: lists, Status: 200, Body: empty})
		w.until("they are asked for", shown)
		if !w.logged("the list of instances lacks 3 of 3 at once") {
			t.Error("nothing says that many have vanished at once")
		}
		for range 3 {
			w.run(turn)
		}
		mend()
		over()
		w.ends("completed", slugs...)
		if n := len(w.market.Instances()); n != 3 || w.starts() != 3 {
			t.Errorf("%d instances, %d starts", n, w.starts())
		}
	})
}

// A task that writes more between two looks than a request for its log brings loses nothing.
func TestChattyTask(t *testing.T) {
	transports(t, func(t *testing.T, via string) {
		w := newWorld(t, options{via: via, scale: 1})
		w.configure("log_interval: 100ms", "log_interval: 2s")
		w.offers(2)
		slugs, over := w.trouble("chatty", 1, `for k in 0 1 2 3 4 5; do seq -f "line %.0f" ${k}0001 ${k}3000; sleep 0.5; done`)
		w.until("it runs", func() bool { return strings.Contains(string(w.queue.Log(slugs[0])), "begun\n") })
		over()
		w.ends("completed", slugs...)
		log := string(w.queue.Log(slugs[0]))
		last, n := -1, 0
		for line := range strings.Lines(log) {
			var k int
			if _, err := fmt.Sscanf(line, "line %d\n", &k); err == nil {
				if k <= last {
					t.Errorf("line %d comes after %d", k, last)
				}
				last, n = k, n+1
			}
		}
		if n != 18_000 || strings.Contains(log, "missing") {
			t.Errorf("%d lines of 18000\n%.3000s", n, log)
		}
	})
}

// An agent leaves what it cannot run to another one of the same spool.
func TestTwoAgentsOfASpool(t *testing.T) {
	transports(t, func(t *testing.T, via string) {
		w := newWorld(t, options{via: via, spool: true})
		w.offers(2)
		local := fmt.Sprintf("queue: spool:spool\nmode: local\ndata_dir: %[1]s/local\npid_file: %[1]s/local.pid\n", w.dir)
		if err := os.WriteFile(filepath.Join(w.dir, "local.yaml"), []byte(local), 0o600); err != nil {
			t.Fatal(err)
		}
		submit := func(line string) string {
			out, errs, code := w.run("ponos-submit --spool " + filepath.Join(w.dir, "spool") + " " + line)
			if code != 0 {
				t.Fatalf("%s: %d %s%s", line, code, out, errs)
			}
			return strings.TrimSpace(out)
		}
		here, there := submit("-- echo here"), submit("--image registry.example.org/lines:2 -- echo there")
		state := func(id string) (state string) {
			var e struct{ State string }
			b, _ := os.ReadFile(filepath.Join(w.dir, "spool/done", id+".json"))
			_ = json.Unmarshal(b, &e)
			return e.State
		}
		for range 3 {
			w.run(turn)
		}
		if state(here) != "" {
			t.Errorf("the agent of rented machines has ended a plain command: %s", state(here))
		}
		w.until("both are over", func() bool {
			w.run("export PONOS_CONFIG=$PWD/local.yaml; " + turn)
			return state(here) != "" && state(there) != ""
		})
		if n := len(w.market.Instances()); state(here) != "completed" || state(there) != "completed" || n != 1 {
			t.Errorf("here %s, there %s, %d instances", state(here), state(there), n)
		}
	})
}

// What ponos-list and the journal say that a task has cost is what the bill says, once there is one.
func TestCostIsBilled(t *testing.T) {
	transports(t, func(t *testing.T, via string) {
		w := newWorld(t, options{via: via, spool: true, scale: 1, extra: "  bill_interval: 20ms\n  download: 60\n  upload: 0\n"})
		w.offers(2)
		if out, errs, code := w.run("ponos-submit --image registry.example.org/lines:2 -- echo done"); code != 0 {
			t.Fatal(out, errs)
		}
		cost := func() (e struct {
			Cost    float64 `json:"cost_dollars"`
			Machine int64
			GPU     string
		}) {
			out, _, _ := w.run("ponos-list --json")
			if err := json.Unmarshal([]byte(out), &e); err != nil {
				t.Fatal(err, out)
			}
			return e
		}
		w.until("it is over", func() bool { return cost().Cost > 0 && len(w.market.Alive()) == 0 })
		meter := w.market.Meter("ponos:")
		w.until("the bill is known", func() bool { return math.Abs(cost().Cost-meter) < meter/100 })
		if e := cost(); e.Machine != 1 || e.GPU != "RTX 4090" {
			t.Errorf("%+v", e)
		}
	})
}

// A container that is replaced by one with a new disk does not begin the command again, whether that works there or not, and says
// that output was lost.
func TestRecycled(t *testing.T) {
	transports(t, func(t *testing.T, via string) {
		for name, c := range map[string]struct {
			over   bool // the command has ended before
			broken bool // the GPUs do not work any more
			state  string
		}{"runs": {state: "error"}, "broken": {broken: true, state: "error"}, "over": {over: true, state: "completed"}} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				w := newWorld(t, options{via: via, extra: "  entry_end: stop\n"})
				w.offers(3)
				slugs, over := w.trouble("disk", 1, "true")
				if c.over {
					over()
					w.run(turn)
				} else {
					w.until("it runs", func() bool { return w.starts() == 1 })
				}
				label := ":end=begun"
				if c.over {
					label = ":end=0"
				}
				i := w.market.Alive()[0]
				for start := time.Now(); !strings.HasSuffix(i.Label, label) && time.Since(start) < harness.Patience; time.Sleep(20 * time.Millisecond) {
					i = w.market.Alive()[0]
				}
				if c.broken {
					dir := t.TempDir()
					executable.Write(t, filepath.Join(dir, "nvidia-smi"), "#!/bin/sh\nexit 9\n")
					w.market.Machine(1, server.Machine{Path: dir})
				}
				w.market.Recycle(i.ID)
				for start := time.Now(); !strings.Contains(w.container(i.ID), "another disk") && time.Since(start) < harness.Patience; time.Sleep(20 * time.Millisecond) {
				}
				over()
				w.ends(c.state, slugs...)
				log := string(w.queue.Log(slugs[0]))
				if n := len(w.market.Instances()); n != 1 || w.starts() != 1 || !strings.Contains(log, "the end of the log could not be read: its output was on another disk") {
					t.Errorf("%d instances, %d starts\n%s", n, w.starts(), log)
				}
			})
		}
	})
}
