package vast

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/ponos-tools/ponos/lib/market/rented"
	"github.com/ponos-tools/ponos/testscripts/executable"
	"github.com/ponos-tools/ponos/testscripts/vast/server"
)

var (
	chaosSeed = flag.Uint64("seed", 20261121, "of what TestChaos chooses")
	chaosTime = flag.Duration("time", 20*time.Second, "how long TestChaos breaks things, with each transport")
)

// What TestChaos does at least with each transport, if it has a minute: turns that are killed
// with all their tools, and kinds of fault.
const (
	thorough   = time.Minute
	leastKills = 250
	leastKinds = 30
)

// chaos is a world in which everything breaks all the time.
type chaos struct {
	*world
	rand    *rand.Rand
	kills   int
	faults  map[string]int
	slugs   []string
	stopped map[string]bool
	lost    map[int64]bool      // instances whose host was lost
	hidden  [][2]time.Time      // when lists were empty
	broken  string              // programs of a machine whose GPUs are broken
	crowds  [][]server.Instance // instances at once
	web     *httptest.Server
	serve   atomic.Value // what containers get instead of vast-entry
}

// Costs are traffic above all, so that an instance that the journal does not know, or
// counts twice, shows: the same figures for the meter and the estimate.
const chaosSettings = `  max_instances: 5
  max_creates_per_hour: 0
  max_cost_per_task: 1.9
  retries_on_loss: 1
  entry_grace: 60s
  shun_time: 1s
  download: 4
  upload: 0
`

// broken are the kinds of fault. Each is called with an instance of a task, or without
// one if there is none.
var broken = map[string]func(c *chaos, i *server.Instance){
	"order lost": func(c *chaos, _ *server.Instance) {
		c.market.Break(server.Fault{Method: "PUT", Path: asks, Times: 1, Lose: true})
	},
	"order answered by a gateway": func(c *chaos, _ *server.Instance) {
		c.market.Break(server.Fault{Method: "PUT", Path: asks, Times: 1, After: true, Status: 502, Body: "<html>", Type: "text/html"})
	},
	"order without a contract": func(c *chaos, _ *server.Instance) {
		c.market.Break(server.Fault{Method: "PUT", Path: asks, Times: 1, After: true, Status: 200, Body: `{"success":true}`})
	},
	"offer gone": func(c *chaos, _ *server.Instance) {
		c.market.Break(server.Fault{Method: "PUT", Path: asks, Times: 1, Status: 410, Body: `{"success":false,"error":"no_such_ask","msg":"error 410/3907: no_such_ask Instance type 1 is no longer available."}`})
	},
	"too many requests": func(c *chaos, _ *server.Instance) {
		for _, path := range []string{asks, lists, one, "bundles"} {
			c.market.Break(server.Fault{Path: path, Times: 1 + c.rand.IntN(3), Status: 429, Body: "API requests too frequent", Type: "text/plain"})
		}
	},
	"retry after": func(c *chaos, _ *server.Instance) {
		c.market.Break(server.Fault{Path: lists, Times: 1, Status: 429, Body: `{"detail":"API requests too frequent endpoint threshold=1.0"}`, Header: map[string]string{"Retry-After": "1"}})
	},
	"search quota": func(c *chaos, _ *server.Instance) {
		mend := c.market.Break(server.Fault{Path: "bundles", Times: 1, Status: 429, Body: `{"success":false,"error":"search_quota_exceeded","msg":"Daily search quota exceeded"}`,
			Header: map[string]string{"X-RateLimit-Reset": fmt.Sprint(c.market.RealNow().Add(2 * time.Second).Unix())}})
		// The vastai program does not tell the header, and a search may come after that time: it would last until midnight.
		time.AfterFunc(2*time.Second, mend)
		time.AfterFunc(2300*time.Millisecond, func() { c.forget("requests") })
	},
	"odd list": func(c *chaos, _ *server.Instance) {
		odd := []string{`{}`, `[]`, `<html>`, `{"success":true,"instances_found":0}`, `{"success":true,"instances":[],"total_instances":7,"next_token":null}`}
		c.market.Break(server.Fault{Method: "GET", Path: lists, Times: 1, Status: 200, Body: odd[c.rand.IntN(len(odd))]})
	},
	"empty list": func(c *chaos, _ *server.Instance) {
		c.market.Break(server.Fault{Method: "GET", Path: lists, Times: 1, Status: 200, Body: `{"success":true,"instances_found":0,"instances":[],"total_instances":0,"label_counts":{},"next_token":null}`})
	},
	"empty lists": func(c *chaos, _ *server.Instance) {
		// Longer than settle, for which the agent waits for an order whose answer was lost; and than ten times that.
		long := time.Duration(300+c.rand.IntN(6000)) * time.Millisecond
		c.hidden = append(c.hidden, [2]time.Time{c.market.RealNow(), c.market.RealNow().Add(long)})
		mend := c.market.Break(server.Fault{Method: "GET", Path: lists, Status: 200, Body: `{"success":true,"instances_found":0,"instances":[],"total_instances":0,"label_counts":{},"next_token":null}`})
		time.AfterFunc(long, mend)
	},
	"several destroys not found": func(c *chaos, _ *server.Instance) {
		c.market.Break(server.Fault{Method: "DELETE", Path: `^/api/v0/instances/[?]`, Times: 2, Status: 404, Body: `{"success":false,"error":"instances_not_found","msg":"not_found"}`})
	},
	"instance that cannot be shown": func(c *chaos, _ *server.Instance) {
		c.market.Break(server.Fault{Method: "GET", Path: one, Times: 2, Status: 500, Body: "no", Type: "text/plain"})
	},
	"row that cannot be read": func(c *chaos, i *server.Instance) {
		if i != nil {
			id := i.ID
			c.market.Change(id, map[string]any{"id": nil, "label": []any{nil, server.Absent, i.Label}[c.rand.IntN(3)]})
			time.AfterFunc(400*time.Millisecond, func() { c.market.Change(id, nil) })
		}
	},
	"offers that cannot be read": func(c *chaos, _ *server.Instance) {
		if c.faults["offers that cannot be read"] > 15 { // a search brings 64 offers: nothing else would be seen
			return
		}
		for n := range int64(3) {
			c.market.AddOffer(32000000+c.rand.Int64N(1e6)+n*1e6, map[string]any{"dph_base": 0.01, "dph_total": []any{nil, "cheap", -1}[n]})
		}
	},
	"server error": func(c *chaos, _ *server.Instance) {
		c.market.Break(server.Fault{Path: []string{lists, one, "users/current", "bundles"}[c.rand.IntN(4)], Times: 2, Status: 503, Body: "no", Type: "text/plain"})
	},
	"slow answer": func(c *chaos, _ *server.Instance) {
		c.market.Break(server.Fault{Path: []string{asks, lists, one, "^/logs/"}[c.rand.IntN(4)], Times: 1, Delay: 300 * time.Millisecond})
	},
	"connection cut": func(c *chaos, _ *server.Instance) {
		c.market.Break(server.Fault{Path: []string{lists, one, "request_logs"}[c.rand.IntN(3)], Times: 1, Lose: true})
	},
	"destroy does nothing": func(c *chaos, _ *server.Instance) { c.market.Do(func() { c.market.DeafDestroys = 1 }) },
	"lists lag": func(c *chaos, _ *server.Instance) {
		c.market.Do(func() {
			c.market.Lag, c.market.Linger = time.Duration(c.rand.IntN(300))*time.Millisecond, time.Duration(c.rand.IntN(300))*time.Millisecond
		})
	},
	"log redirected": func(c *chaos, _ *server.Instance) { c.market.Do(func() { c.market.LogRedirects = c.rand.IntN(3) }) },
	"log refused": func(c *chaos, i *server.Instance) {
		if i != nil {
			c.market.LogOf(i.ID, notAuthorized)
		}
	},
	"log late": func(c *chaos, _ *server.Instance) { c.market.Do(func() { c.market.LogAfter = c.rand.IntN(3) }) },
	"host offline": func(c *chaos, i *server.Instance) {
		if i != nil && i.Actual == "running" {
			c.market.Status(i.ID, "offline")
			id := i.ID
			time.AfterFunc(300*time.Millisecond, func() { c.market.Status(id, "running") })
		}
	},
	"host lost": func(c *chaos, i *server.Instance) {
		if i != nil && c.rand.IntN(3) == 0 {
			c.lost[i.ID] = true
			c.market.Vanish(i.ID)
		}
	},
	"container restarted": func(c *chaos, i *server.Instance) {
		if i != nil && c.rand.IntN(2) == 0 {
			c.market.Crash(i.ID)
		}
	},
	"recycled at the console": func(c *chaos, i *server.Instance) {
		// Only the disk has the beginning where its key may not write the label.
		if i != nil && strings.Contains(i.Label, ":end=") {
			c.market.Recycle(i.ID)
		}
	},
	"stopped by the market": func(c *chaos, i *server.Instance) {
		if i != nil && c.rand.IntN(3) == 0 {
			c.market.Outbid(i.ID)
		}
	},
	"machine at fault": func(c *chaos, _ *server.Instance) {
		id := 1 + c.rand.Int64N(40)
		c.market.Machine(id, server.Machine{Stuck: true, Status: "Error response from daemon: no space left on device"})
		time.AfterFunc(2*time.Second, func() { c.market.Machine(id, server.Machine{}) }) // or all of them would be so in the end
	},
	"credit gone": func(c *chaos, _ *server.Instance) {
		c.market.SetCredit(0.1)
		time.AfterFunc(400*time.Millisecond, func() { c.market.SetCredit(50) })
	},
	"balance 0": func(c *chaos, _ *server.Instance) {
		c.market.SetCredit(-0.02)
		for _, i := range c.market.Alive() {
			c.market.Halt(i.ID)
		}
		time.AfterFunc(700*time.Millisecond, func() { c.market.SetCredit(50) })
	},
	"stopped at the console": func(c *chaos, i *server.Instance) {
		if i != nil && c.rand.IntN(3) == 0 {
			c.market.Halt(i.ID)
		}
	},
	"renamed at the console": func(c *chaos, i *server.Instance) {
		if i != nil {
			id := i.ID
			c.market.Change(id, map[string]any{"label": "mine"})
			time.AfterFunc(300*time.Millisecond, func() { c.market.Change(id, nil) })
		}
	},
	"list lacks one": func(c *chaos, i *server.Instance) {
		if i != nil {
			long := time.Duration(300+c.rand.IntN(3000)) * time.Millisecond
			c.hidden = append(c.hidden, [2]time.Time{c.market.RealNow(), c.market.RealNow().Add(long)})
			c.market.Hide(i.ID, long)
		}
	},
	"slow images, destroys refused": func(c *chaos, _ *server.Instance) {
		for n := range int64(40) {
			c.market.Machine(n+1, server.Machine{Slow: time.Duration(2000+c.rand.IntN(3000)) * time.Millisecond})
		}
		mend := c.market.Break(server.Fault{Method: "DELETE", Path: `^/api/v0/instances/`, Status: []int{403, 500}[c.rand.IntN(2)], Body: `{"success":false,"error":"no","msg":"no"}`})
		time.AfterFunc(6*time.Second, mend)
		time.AfterFunc(2*time.Second, c.mendMachines)
	},
	"destroys refused": func(c *chaos, _ *server.Instance) {
		c.market.Break(server.Fault{Method: "DELETE", Path: `^/api/v0/instances/`, Times: 3, Status: []int{403, 429, 500}[c.rand.IntN(3)], Body: `{"success":false,"error":"no","msg":"no"}`})
	},
	"destroy lost": func(c *chaos, _ *server.Instance) {
		c.market.Break(server.Fault{Method: "DELETE", Path: `^/api/v0/instances/`, Times: 1, Lose: true})
	},
	"wrong machine": func(c *chaos, _ *server.Instance) {
		row := []map[string]any{{"num_gpus": 2}, {"gpu_name": "RTX 3060", "gpu_ram": 12288}, {"disk_space": 8.5}, {"dph_total": 0.9}}[c.rand.IntN(4)]
		for range 8 {
			c.market.Machine(1+c.rand.Int64N(40), server.Machine{Row: row})
		}
		time.AfterFunc(time.Second, c.mendMachines)
	},
	"broken GPU": func(c *chaos, _ *server.Instance) {
		for range 8 {
			c.market.Machine(1+c.rand.Int64N(40), server.Machine{Path: c.broken})
		}
		time.AfterFunc(time.Second, c.mendMachines)
	},
	"offer relisted": func(c *chaos, i *server.Instance) {
		if i != nil {
			c.market.AddOffer(33000000+c.rand.Int64N(1e6), map[string]any{"machine_id": i.Offer["machine_id"], "dph_base": 0.2, "inet_down_cost": 0.1})
		}
	},
	"price goes up": func(c *chaos, i *server.Instance) {
		if i != nil {
			id := i.ID
			c.market.Change(id, map[string]any{"dph_total": 5})
			time.AfterFunc(300*time.Millisecond, func() { c.market.Change(id, nil) })
		}
	},
	"bill away": func(c *chaos, _ *server.Instance) {
		c.market.Break(server.Fault{Path: "charges", Times: 3, Status: 500, Body: "no", Type: "text/plain"})
	},
	"bill late": func(c *chaos, _ *server.Instance) {
		c.market.Do(func() { c.market.ChargesLag = time.Duration(c.rand.IntN(3)) * time.Second })
	},
	"own keys mute": func(c *chaos, _ *server.Instance) {
		c.market.Do(func() { c.market.MuteOwnKeys = true })
		time.AfterFunc(700*time.Millisecond, func() { c.market.Do(func() { c.market.MuteOwnKeys = false }) })
	},
	"own keys write no label": func(c *chaos, _ *server.Instance) {
		c.market.Do(func() { c.market.StopOnlyKeys = true })
		time.AfterFunc(700*time.Millisecond, func() { c.market.Do(func() { c.market.StopOnlyKeys = false }) })
	},
	"stops do nothing": func(c *chaos, _ *server.Instance) { c.market.Do(func() { c.market.DeafStops = 2 }) },
	"market away": func(c *chaos, _ *server.Instance) {
		mend := c.market.Break(server.Fault{Path: "", Status: 502, Body: "<html>", Type: "text/html"})
		time.AfterFunc(700*time.Millisecond, mend)
	},
	"no program for containers": func(c *chaos, _ *server.Instance) {
		c.serve.Store([]string{"none", "half", "other"}[c.rand.IntN(3)])
		time.AfterFunc(700*time.Millisecond, func() { c.serve.Store("") })
	},
	"task stopped": func(c *chaos, i *server.Instance) {
		if len(c.slugs) > 0 && c.rand.IntN(3) == 0 {
			slug := c.slugs[len(c.slugs)-1]
			if !final(c.state(slug)) && c.state(slug) != "unscheduled" && c.queue.Stop(slug) == nil {
				c.stopped[slug] = true
			}
		}
	},
}

// TestChaos kills the tools all the time while the market fails in every way that it
// knows, and then looks at what is left: no instance without a task, never two starts
// of a task side by side, one end of each, and a journal that agrees with the meter.
func TestChaos(t *testing.T) {
	t.Parallel()
	for n, via := range []string{"api", "cli"} {
		t.Run(via, func(t *testing.T) {
			t.Parallel()
			c := &chaos{rand: rand.New(rand.NewPCG(*chaosSeed, uint64(n))), faults: map[string]int{}, stopped: map[string]bool{}, lost: map[int64]bool{}, broken: t.TempDir()}
			executable.Write(t, filepath.Join(c.broken, "nvidia-smi"), "#!/bin/sh\necho 'No devices were found'\nexit 9\n")
			w := newWorld(t, options{via: via, scale: 1, extra: chaosSettings + c.program(t)})
			c.world = w
			c.run()
			c.market.Mend()
			time.Sleep(3 * time.Second)
			c.forget("requests")
			c.market.Do(func() {
				c.market.Lag, c.market.Linger, c.market.LogAfter, c.market.LogRedirects, c.market.DeafDestroys, c.market.DeafStops, c.market.ChargesLag = 0, 0, 0, 0, 0, 0, 0
			})
			c.mendMachines()
			w.settled(c.slugs...)
			c.billed()
			c.wall()
			c.billed()
			c.judge()
		})
	}
}

// program is the configuration of what containers fetch: vast-entry, if they get anything.
func (c *chaos) program(t *testing.T) string {
	t.Helper()
	url, sum := entryProgram(t)
	c.serve.Store("")
	c.web = httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		switch c.serve.Load() {
		case "none":
			rw.WriteHeader(http.StatusServiceUnavailable)
			return
		case "other":
			fmt.Fprintln(rw, "#!/bin/sh\necho hello")
			return
		}
		answer, err := http.Get(strings.TrimSuffix(url, "/vast-entry-linux") + r.URL.Path)
		if err != nil {
			rw.WriteHeader(http.StatusBadGateway)
			return
		}
		defer answer.Body.Close()
		if c.serve.Load() == "half" {
			rw.Header().Set("Content-Length", strconv.FormatInt(answer.ContentLength, 10))
			_, _ = io.CopyN(rw, answer.Body, answer.ContentLength/2)
			return
		}
		_, _ = io.Copy(rw, answer.Body)
	}))
	t.Cleanup(c.web.Close)
	return fmt.Sprintf("  entry_url: %s/vast-entry-linux\n  entry_sha256: %s\n", c.web.URL, sum)
}

func (c *chaos) mendMachines() {
	for id := range int64(40) {
		c.market.Machine(id+1, server.Machine{})
	}
}

// billed has the agent read the bill, which alone shows what an instance has cost that no list has shown.
func (c *chaos) billed() {
	c.world.run("rm -f data/state/vast/once.json")
	c.forget("charges-*")
	c.forget("billing")
	c.world.run(turn)
}

// wall has the agent come to max_cost_per_day: what it orders stays below that, and its tasks wait until it is higher.
func (c *chaos) wall() {
	c.t.Helper()
	file := filepath.Join(c.dir, "ponos.yaml")
	text, err := os.ReadFile(file)
	if err != nil {
		c.t.Fatal(err)
	}
	spent := c.market.Meter("ponos:")
	limit := spent + 1.3
	if err := os.WriteFile(file, fmt.Appendf(text, "  max_cost_per_day: %.4f\n  expected_time: 1m\n", limit), 0o600); err != nil {
		c.t.Fatal(err)
	}
	var slugs []string
	for n := range 6 {
		c.market.AddOffer(34000000+int64(n), map[string]any{"inet_down_cost": 0.1, "machine_id": 50 + n, "dph_base": 0.1})
		slugs = append(slugs, fmt.Sprintf("last-%d", n))
		c.task(slugs[n], "echo done")
	}
	for range 20 {
		c.world.run(turn)
		time.Sleep(100 * time.Millisecond)
	}
	if meter := c.market.Meter("ponos:"); meter > limit || meter < spent+0.3 {
		c.t.Errorf("the meter shows $%.4f; max_cost_per_day is $%.4f, and $%.4f were spent before", meter, limit, spent)
	}
	if !strings.Contains(c.said.String(), "max_cost_per_day: ") {
		c.t.Error("nothing says that max_cost_per_day is why tasks wait")
	}
	if err := os.WriteFile(file, text, 0o600); err != nil {
		c.t.Fatal(err)
	}
	c.settled(slugs...)
}

// run breaks things until the time is over.
func (c *chaos) run() {
	kinds := slices.Sorted(maps.Keys(broken))
	for offer, start := int64(0), time.Now(); time.Since(start) < *chaosTime || *chaosTime >= thorough && (c.kills < leastKills || len(c.faults) < leastKinds); {
		open := 0
		for _, slug := range c.slugs {
			if !final(c.state(slug)) {
				open++
			}
		}
		if open < 4 {
			slug := fmt.Sprintf("task-%d", len(c.slugs))
			c.slugs = append(c.slugs, slug)
			// Whoever has the lock runs; a second one at the same time is written down.
			c.task(slug, fmt.Sprintf(`exec 9>%[1]s/$PONOS_TASK.lock; flock -n 9 || echo $PONOS_TASK >>%[1]s/twice; echo begun >>%[1]s/$PONOS_TASK.begun
				s=$(date +%%s%%N); seq -f "line $s %%.0f" 1 %[4]d; sleep %.1[2]f; seq -f "line $s %%.0f" %[5]d %[6]d; echo end >>%[1]s/$PONOS_TASK.ends; exit %[3]d`,
				c.dir, c.rand.Float64(), len(c.slugs)%3, outputLines/2, outputLines/2+1, outputLines))
		}
		for range 3 {
			offer++
			c.market.AddOffer(31000000+offer, map[string]any{"machine_id": 1 + offer%40, "inet_down_cost": 0.1})
		}
		c.crowds = append(c.crowds, c.market.Alive())
		if c.rand.IntN(2) == 0 {
			kind := kinds[c.rand.IntN(len(kinds))]
			c.faults[kind]++
			var at *server.Instance
			if alive := c.market.Alive(); len(alive) > 0 {
				at = &alive[c.rand.IntN(len(alive))]
			}
			broken[kind](c, at)
		}
		if c.rand.IntN(4) == 0 {
			began := time.Now()
			_, _, _ = c.world.run(turn)
			fmt.Fprintf(&c.said, "%s to %s\n", began.Format(stamp), time.Now().Format(stamp))
		} else {
			c.kill(time.Duration(c.rand.IntN(250)) * time.Millisecond)
		}
	}
}

// kill runs a turn and kills some or all of its tools after a while.
func (c *chaos) kill(after time.Duration) {
	cmd := exec.Command("bash", "-c", turn)
	cmd.Env, cmd.Dir = c.env, c.dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	out := &printed{}
	cmd.Stdout, cmd.Stderr = out, out
	began := time.Now()
	if err := cmd.Start(); err != nil {
		c.t.Fatal(err)
	}
	defer func() {
		fmt.Fprintf(&c.said, "%s to %s, killed\n%s", began.Format(stamp), time.Now().Format(stamp), out)
	}()
	over := make(chan struct{})
	go func() { _ = cmd.Wait(); close(over) }()
	select {
	case <-over:
	case <-time.After(after):
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		c.kills++
		<-over
	}
}

const stamp = "15:04:05.000"

// outputLines is how many lines a task writes, at once.
const outputLines = 2000

// heard counts the lines of a task's last start in its log, and says what is wrong with it: lines twice or out of order, or
// missing without a word.
func (c *chaos) heard(slug string) (lines int, told bool, wrong string) {
	start := ""
	for line := range strings.Lines(string(c.queue.Log(slug))) {
		told = told || strings.Contains(line, "[some lines are missing here]") || strings.Contains(line, "the end of the log could not be read")
		var of string
		var n int
		if _, err := fmt.Sscanf(line, "line %s %d", &of, &n); err != nil {
			continue
		}
		switch {
		case of != start && n == 1 || n == lines+1 && of == start:
		case of == start && n <= lines:
			return lines, told, fmt.Sprintf("line %d comes after %d", n, lines)
		case !told:
			return lines, told, fmt.Sprintf("line %d comes after %d of %q, and %q", n, lines, start, of)
		}
		start, lines = of, n
	}
	return lines, told, ""
}

// judge holds what must be at the end.
func (c *chaos) judge() {
	if twice, err := os.ReadFile(filepath.Join(c.dir, "twice")); err == nil {
		c.t.Errorf("ran twice at once: %s", twice)
	}
	for _, i := range c.market.Alive() {
		c.t.Errorf("instance %d (%s, %s) is left", i.ID, i.Label, i.Actual)
	}
	// What was ordered without an answer, and given up, may be there beside them.
	known, crowd := map[int64]bool{}, 0
	for _, e := range c.entries() {
		known[e.Instance] = true
	}
	for _, all := range c.crowds {
		crowd = max(crowd, len(slices.DeleteFunc(all, func(i server.Instance) bool { return !known[i.ID] })))
	}
	if crowd > 5 {
		c.t.Errorf("%d instances at once, more than max_instances", crowd)
	}
	states, full, again := map[string]int{}, 0, 0
	for _, slug := range c.slugs {
		states[c.state(slug)]++
		finals := 0
		for state := range strings.SplitSeq(c.history(slug), ",") {
			if final(state) {
				finals++
			}
		}
		ends, _ := os.ReadFile(filepath.Join(c.dir, c.id(slug)+".ends"))
		starts, _ := os.ReadFile(filepath.Join(c.dir, c.id(slug)+".begun"))
		begun, losses := bytes.Count(starts, []byte("\n")), 0
		for _, e := range c.entries() {
			if e.Event == "lost" && string(e.Task) == c.id(slug) {
				losses++
			}
		}
		again += losses
		if cost := c.market.Meter("ponos:tester:" + c.id(slug)); cost > 1.9 {
			c.t.Errorf("%s has cost $%.4f, more than max_cost_per_task", slug, cost)
		}
		lines, told, wrong := c.heard(slug)
		whole := c.state(slug) == "completed" || c.state(slug) == "failed"
		if whole && lines < outputLines && !told {
			wrong = fmt.Sprintf("%d of %d lines have arrived, and nothing says so", lines, outputLines)
		}
		if whole && lines == outputLines {
			full++
		}
		if wrong != "" {
			c.t.Errorf("%s (%s): %s\n%.3000s", slug, c.id(slug), wrong, c.queue.Log(slug))
		}
		if n := bytes.Count(ends, []byte("\n")); finals != 1 || begun > 1+losses+c.unseen(slug) || n == 0 && c.state(slug) == "completed" {
			c.t.Errorf("%s (%s) has begun %d times, lost %d times, and run to its end %d times, states: %s\n%s", slug, c.id(slug), begun, losses, n, c.history(slug), &c.said)
			for _, r := range c.queue.Requests("") {
				if strings.Contains(r.Path, c.id(slug)) {
					c.t.Logf("%s %s %s by %s: %d %s", r.Method, r.Operation, r.Path, r.Program, r.Status, r.Body)
				}
			}
		}
	}
	if states["completed"]+states["failed"] == 0 {
		c.t.Errorf("states %v: the tasks did not do what they were asked to do", states)
	}
	journal, meter := c.journal(), c.market.Meter("ponos:")
	if d := journal - meter; d > meter/100 || d < -meter/100 {
		c.t.Errorf("the journal has $%.4f, the meter $%.4f", journal, meter)
	}
	n := 0
	for _, times := range c.faults {
		n += times
	}
	c.t.Logf("%s, seed %d: %d turns of three tools killed, %d faults of %d kinds, %d tasks (%v), %d with all %d lines, %d started again, %d instances, %d at once; journal $%.4f, meter $%.4f",
		c.via, *chaosSeed, c.kills, n, len(c.faults), len(c.slugs), states, full, outputLines, again, len(c.market.Instances()), crowd, journal, meter)
	c.noSecrets()
	if c.t.Failed() {
		c.t.Log(c.tell())
	}
}

// unseen counts the instances of a task of which the agent could not know that the task has run there: the answer
// to the order was lost, and the host, with the instance, before a list that shows it was processed; or lists were empty for
// longer than they may lack a new instance, which was found when another one was ordered.
func (c *chaos) unseen(slug string) (n int) {
	recorded, created := map[int64]bool{}, map[int64]bool{}
	for _, e := range c.entries() {
		recorded[e.Instance] = true
		created[e.Instance] = created[e.Instance] || e.Event == "created"
	}
	for _, i := range c.market.Instances() {
		hidden := !created[i.ID] && slices.ContainsFunc(c.hidden, func(from [2]time.Time) bool {
			return !i.Visible.After(from[1].Add(50*time.Millisecond)) && i.Visible.Add(2*time.Second).After(from[0])
		})
		if (hidden || c.lost[i.ID] && !recorded[i.ID]) && strings.Contains(i.Label, ":"+c.id(slug)+":") {
			n++
		}
	}
	return n
}

func (c *chaos) entries() (all []rented.Entry) {
	b, err := os.ReadFile(filepath.Join(c.dir, "data/state/vast/journal.jsonl"))
	if err != nil {
		c.t.Error(err)
	}
	for line := range bytes.Lines(b) {
		var e rented.Entry
		if err := json.Unmarshal(line, &e); err != nil {
			c.t.Fatalf("%v: %s", err, line)
		}
		all = append(all, e)
	}
	return all
}

// journal is what the journal says that everything has cost.
func (c *chaos) journal() float64 {
	costs := map[string]float64{}
	for _, e := range c.entries() {
		if e.State != "" {
			costs[fmt.Sprintf("%s.%d", e.Task, e.Attempt)] = e.Cost
		}
	}
	total := 0.0
	for _, cost := range costs {
		total += cost
	}
	return total
}
