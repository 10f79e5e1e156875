package vast

import (
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ponos-tools/ponos/lib/base/clock"
	"github.com/ponos-tools/ponos/testscripts/harness"
	"github.com/ponos-tools/ponos/testscripts/vast/server"
)

// rent rents an instance with a label, for another agent.
func (w *world) rent(offer int64, label string) {
	w.t.Helper()
	w.market.AddOffer(offer, map[string]any{"verification": "unverified"})
	body := fmt.Sprintf(`{"image":"x","disk":10,"label":%q,"onstart":"sleep","args":["100"]}`, label)
	req, err := http.NewRequest(http.MethodPut, fmt.Sprintf("%s/api/v0/asks/%d/", w.url, offer), strings.NewReader(body))
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

// vast-reap --account shows what agents have on the account and what that costs an hour,
// whoever they are, and ends it; what is nobody's task stays.
func TestReapAccount(t *testing.T) {
	transports(t, func(t *testing.T, via string) {
		w := newWorld(t, options{via: via, fake: true, scale: 1})
		w.offers(2)
		w.untracked(1)
		w.rent(80001, "ponos:elsewhere:0e7ad96b-9e2c-4d37-b2c2-1f4ffd0c7f5b:2")
		w.task("task", "sleep 100")
		w.until("it runs", func() bool { _, ok := running(w); return ok })
		out, errs, code := w.run("vast-reap --account --older 0s")
		for _, want := range []string{"ponos:tester:" + w.id("task") + ":1", "ponos:elsewhere:0e7ad96b-9e2c-4d37-b2c2-1f4ffd0c7f5b:2", "\n2 left, at $0.6062 an hour.\n"} {
			if !strings.Contains(out, want) {
				t.Errorf("%q is not in\n%s", want, out)
			}
		}
		if code != 1 || errs != "" || strings.Contains(out, "mine") || len(w.market.Alive()) != 3 {
			t.Errorf("%d %s\n%s", code, errs, out)
		}
		out, errs, code = w.run("vast-reap --account --older 0s --destroy --json")
		var rows []struct {
			Destroyed bool
			Label     string
		}
		if err := json.Unmarshal([]byte(out), &rows); err != nil || code != 1 || errs != "" || len(rows) != 2 || !rows[0].Destroyed || !rows[1].Destroyed {
			t.Errorf("%d %s %v\n%s", code, errs, err, out)
		}
		if left := w.market.Alive(); len(left) != 1 || left[0].Label != "mine" {
			t.Errorf("left are %+v", left)
		}
		if out, errs, code := w.run("vast-reap --account"); code != 0 || out+errs != "" {
			t.Errorf("nothing is left: %d %s%s", code, out, errs)
		}
		if log := w.agentLog(); strings.Contains(log, "ERROR") {
			t.Errorf("that there are instances is not an error: %s", log)
		}
	})
}

// What the market says to destroy, and does not, is not called destroyed.
func TestReapInVain(t *testing.T) {
	transports(t, func(t *testing.T, via string) {
		w := newWorld(t, options{via: via, fake: true, scale: 1})
		w.configure("stop_wait: 5s", "stop_wait: 1s")
		// No agent has run here yet.
		for n := range int64(2) {
			w.rent(80001+n, fmt.Sprintf("ponos:elsewhere:0e7ad96b-9e2c-4d37-b2c2-1f4ffd0c7f5b:%d", n+1))
		}
		w.market.Do(func() { w.market.DeafDestroys = 1 << 30 })
		out, errs, code := w.run("vast-reap --account --older 0s --destroy --json")
		if code != 3 || strings.Contains(out, `"destroyed": true`) || strings.Count(errs, "the market was asked to destroy it, and still lists it after 1s") != 2 || len(w.market.Alive()) != 2 {
			t.Errorf("%d\n%s%s", code, out, errs)
		}
		w.configure("stop_wait: 1s", "stop_wait: 3m")
		w.market.Do(func() { w.market.DeafDestroys = 3 })
		out, errs, code = w.run("vast-reap --account --older 0s --destroy --json")
		if code != 1 || strings.Count(out, `"destroyed": true`) != 2 || errs != "" || len(w.market.Alive()) != 0 {
			t.Errorf("%d\n%s%s", code, out, errs)
		}
	})
}

// A row that cannot be read may be what is looked for: that nothing else was found is not the
// whole truth.
func TestReapOddRow(t *testing.T) {
	transports(t, func(t *testing.T, via string) {
		w := newWorld(t, options{via: via, fake: true, scale: 1})
		w.untracked(2)
		if out, errs, code := w.run("vast-reap --account --older 0s"); code != 0 || out+errs != "" {
			t.Errorf("%d %s%s", code, out, errs)
		}
		w.market.Change(w.market.Alive()[0].ID, map[string]any{"id": nil})
		w.forget("instances")
		if out, errs, code := w.run("vast-reap --account --older 0s"); code != 1 || out != "" || errs != "vast-reap: warning: 1 rows of the list of instances cannot be read, and are omitted\n" {
			t.Errorf("%d %s%s", code, out, errs)
		}
	})
}

// vast-reap --bill shows estimates beside what the market has billed, as its meter has it.
func TestReapBill(t *testing.T) {
	transports(t, func(t *testing.T, via string) {
		w := newWorld(t, options{via: via, scale: 1, extra: "  bill_interval: 20ms\n  download: 6\n  upload: 0\n"})
		w.offers(4)
		w.task("good", "echo done")
		w.task("bad", "exit 3")
		w.settled("good", "bad")
		type line struct {
			Slug, State string
			Instances   []int64
			Estimated   float64  `json:"estimated_dollars"`
			Billed      *float64 `json:"billed_dollars"`
		}
		var rows []line
		w.until("bills", func() bool {
			out, errs, code := w.run("vast-reap --bill --json")
			if rows = nil; json.Unmarshal([]byte(out), &rows) != nil || code != 0 || errs != "" {
				t.Fatalf("%d %s%s", code, out, errs)
			}
			// vast-reap asks for itself; turns write down what they have asked.
			journal, _ := os.ReadFile(filepath.Join(w.dir, "data/state/vast/journal.jsonl"))
			return len(rows) == 2 && rows[0].Billed != nil && rows[1].Billed != nil && strings.Count(string(journal), `"event":"billed"`) >= 2
		})
		billed := 0.0
		for _, r := range rows {
			billed += *r.Billed
			if want := map[string]string{"good": "completed", "bad": "failed"}[r.Slug]; r.State != want || len(r.Instances) != 1 || r.Estimated < 0.59 || r.Estimated > 0.62 {
				t.Errorf("%+v", r)
			}
		}
		if meter := w.market.Meter("ponos:"); math.Abs(billed-meter) > meter/100 {
			t.Errorf("billed are $%.4f, the meter shows $%.4f", billed, meter)
		}
		out, errs, code := w.run("vast-reap --bill")
		want := fmt.Sprintf("\nBilled $%.4f for what was estimated as $%.4f.\n", billed, rows[0].Estimated+rows[1].Estimated)
		if code != 0 || errs != "" || !strings.HasSuffix(out, want) || !strings.Contains(out, "good  ") {
			t.Errorf("%d %s\n%swant\n%s", code, errs, out, want)
		}
		w.check("good", "bad")
	})
}

// What a task needs is asked for in the language of lfind: a model, and two of them.
func TestFindSeveralGPUs(t *testing.T) {
	transports(t, func(t *testing.T, via string) {
		w := newWorld(t, options{via: via, extra: "  find: {'big*': 'cuda(model=a100) * 2', '*': 'cuda(mem=24G)'}\n  max_price_per_hour: 9\n"})
		a100 := map[string]any{"gpu_name": "A100 SXM4", "gpu_ram": 81920, "compute_cap": 800}
		with := func(id int64, fields, more map[string]any) {
			all := map[string]any{}
			for _, part := range []map[string]any{fields, more} {
				for k, v := range part {
					all[k] = v
				}
			}
			w.market.AddOffer(id, all)
		}
		with(1, a100, map[string]any{"dph_base": 0.8})
		with(2, a100, map[string]any{"dph_base": 2.2, "num_gpus": 2})
		with(3, a100, map[string]any{"dph_base": 1.6, "num_gpus": 2, "gpu_name": "A40", "gpu_ram": 46068, "compute_cap": 860})
		with(4, nil, map[string]any{"dph_base": 0.5})
		with(5, nil, map[string]any{"dph_base": 0.2, "gpu_name": "RTX 3080", "gpu_ram": 10240, "compute_cap": 860})
		out, errs, code := w.run("vast-offers --find 'cuda(model=a100) * 2' --json")
		var found []struct{ Offer, GPUs int64 }
		if err := json.Unmarshal([]byte(out), &found); err != nil || code != 0 || errs != "" || len(found) != 1 || found[0].Offer != 2 || found[0].GPUs != 2 {
			t.Errorf("%d %s %v\n%s", code, errs, err, out)
		}
		if out, errs, code := w.run("vast-offers --find 'cuda(model=a1000) * 2'"); code != 2 || out != "" || !strings.Contains(errs, "unknown GPU model") {
			t.Errorf("%d %s%s", code, out, errs)
		}
		w.task("big", "echo big")
		w.task("small", "echo small")
		w.settled("big", "small")
		for _, i := range w.market.Instances() {
			want := 4.0
			if strings.Contains(i.Label, w.id("big")) {
				want = 2
			}
			if i.Offer["id"] != want {
				t.Errorf("%s is on offer %v, want %v", i.Label, i.Offer["id"], want)
			}
		}
		w.check("big", "small")
	})
}

// A machine that it was outbid for is lost, which is not the task's failure: it
// is started again as often as retries_on_loss says, never beside the lost one, and finds
// its checkpoints in the same place.
func TestOutbidAndStartedAgain(t *testing.T) {
	transports(t, func(t *testing.T, via string) {
		w := newWorld(t, options{via: via, extra: "  spot: true\n  retries_on_loss: 1\n  checkpoint_store: s3://bucket/checkpoints\n"})
		w.offers(4)
		script := `exec 9>%[1]s/lock; flock -n 9 || echo $PONOS_TASK >>%[1]s/twice; echo run of %[2]s at $PONOS_CHECKPOINT_STORE; echo; echo more
			if [ -e %[1]s/%[2]s ]; then %[3]s; fi; touch %[1]s/%[2]s; sleep 100`
		w.task("lucky", fmt.Sprintf(script, w.dir, "lucky", "exit 4"))
		lose := func(slug string, times int) {
			for n := range times {
				w.until("it runs", func() bool { return strings.Count(string(w.queue.Log(slug)), "run of "+slug) == n+1 })
				i, _ := running(w)
				if i.Bid <= 0.12 || i.Bid > 0.2 {
					t.Errorf("instance %d has the bid %v", i.ID, i.Bid)
				}
				w.market.MinBid(i.ID, 5)
			}
		}
		lose("lucky", 1)
		w.settled("lucky")
		w.task("unlucky", fmt.Sprintf(script, w.dir, "unlucky", "sleep 100"))
		lose("unlucky", 2)
		w.settled("unlucky")
		log := string(w.queue.Log("lucky"))
		at := "run of lucky at s3://bucket/checkpoints/" + w.id("lucky") + "\n"
		if w.state("lucky") != "failed" || strings.Count(log, at) != 2 || !strings.Contains(log, "it was outbid; the task is started again (1 of 1)]") || !strings.Contains(log, "exit code 4") {
			t.Errorf("lucky is %s\n%s", w.state("lucky"), log)
		}
		if log := string(w.queue.Log("unlucky")); w.state("unlucky") != "error" || !strings.Contains(log, "it was outbid; the task was started again 1 of 1 times that retries_on_loss allows") {
			t.Errorf("unlucky is %s\n%s", w.state("unlucky"), log)
		}
		if twice, err := os.ReadFile(filepath.Join(w.dir, "twice")); err == nil {
			t.Errorf("two at once: %s", twice)
		}
		all := w.market.Instances()
		for n, i := range all[1:] {
			if before := all[n]; before.Destroyed.IsZero() || before.Destroyed.After(i.Created) {
				t.Errorf("instance %d was there beside %d", i.ID, before.ID)
			}
		}
		journal, err := os.ReadFile(filepath.Join(w.dir, "data/state/vast/journal.jsonl"))
		if n := strings.Count(string(journal), `"event":"lost"`); err != nil || n != 2 || len(all) != 4 || len(w.market.Alive()) != 0 {
			t.Errorf("%d losses in the journal, %d instances, %v", n, len(all), err)
		}
		w.noSecrets()
	})
}

// What a task has saved by the commands of the configuration is there when it is started
// again, and after its end. A directory that could not be loaded is not saved.
func TestCheckpointsAreKept(t *testing.T) {
	const (
		place = `s=$KEEP/${PONOS_CHECKPOINT_STORE##*/}; mkdir -p "$s" && `
		load  = place + `cp -R "$s/." "$PONOS_CHECKPOINT_DIR"`
		save  = place + `cp -R "$PONOS_CHECKPOINT_DIR/." "$s"`
	)
	transports(t, func(t *testing.T, via string) {
		for _, c := range []struct {
			name, load, save string
			state, log       string
			saved            string // what the store has in the end
		}{
			{"kept", load, save, "completed", "begins at 1\n", "2\n"},
			{"not loaded", "echo no such bucket >&2; exit 1", save, "error", "no such bucket\n", ""},
			{"not saved", load, "exit 1", "completed", "[the checkpoints could not be saved]\n", ""},
		} {
			t.Run(c.name, func(t *testing.T) {
				t.Parallel()
				keep := t.TempDir()
				w := newWorld(t, options{via: via, extra: fmt.Sprintf(`  spot: true
  retries_on_loss: 1
  checkpoint_store: s3://bucket/checkpoints
  checkpoint_load: %q
  checkpoint_save: %q
  checkpoint_interval: 1s
  extra_env: {TOKEN: %q, KEEP: %q}
`, c.load, c.save, token, keep)})
				w.offers(4)
				w.task("task", `f=$PONOS_CHECKPOINT_DIR/n; n=$(cat $f 2>/dev/null || echo 0); echo begins at $n; echo; echo more; echo $((n+1)) >$f
				env | grep PONOS_CHECKPOINT_SAVE; [ -e $KEEP/again ] || sleep 100`)
				saved := func() string {
					b, _ := os.ReadFile(filepath.Join(keep, w.id("task"), "n"))
					return string(b)
				}
				if c.state == "completed" {
					w.until("it runs and has saved", func() bool {
						return strings.Contains(string(w.queue.Log("task")), "begins at 0\n") && (saved() == "1\n" || c.saved == "")
					})
					i, _ := running(w)
					w.market.MinBid(i.ID, 5)
					// Only the next run may see this: the first one might be about to look.
					if err := os.WriteFile(filepath.Join(keep, "again"), nil, 0o600); err != nil {
						t.Fatal(err)
					}
				}
				w.settled("task")
				log := string(w.queue.Log("task"))
				if w.state("task") != c.state || !strings.Contains(log, c.log) || strings.Contains(log, "begins at") == (c.state == "error") || strings.Contains(log, "SAVE=") {
					t.Errorf("task is %s\n%s", w.state("task"), log)
				}
				if c.state == "error" && !strings.Contains(log, "checkpoint_load has failed, so the task was not run") {
					t.Errorf("%s", log)
				}
				if got := saved(); got != c.saved {
					t.Errorf("saved is %q, want %q", got, c.saved)
				}
				if left := w.market.Alive(); len(left) > 0 {
					t.Errorf("left are %+v", left)
				}
			})
		}
	})
}

// A machine that is not what was asked for is given back, avoided, and its cost told.
func TestAnotherMachineThanAsked(t *testing.T) {
	transports(t, func(t *testing.T, via string) {
		w := newWorld(t, options{via: via})
		w.offers(3)
		w.market.Machine(1, server.Machine{Stuck: true, Row: map[string]any{"disk_space": 8.5}})
		w.task("task", "echo done")
		w.settled("task")
		all := w.market.Instances()
		if w.state("task") != "completed" || len(all) != 2 || all[0].Runs != 0 || all[0].Offer["machine_id"] == all[1].Offer["machine_id"] {
			t.Errorf("task is %s, instances %+v", w.state("task"), all)
		}
		if log := w.agentLog(); !strings.Contains(log, `the machine is not what was requested: it does not meet \"disk 20\", and has cost $`) {
			t.Error(log)
		}
	})
}

// requests is how many requests a turn makes.
func (w *world) requests() (n int, all string) {
	before := len(w.market.Requests("."))
	w.run(turn)
	made := w.market.Requests(".")[before:]
	for _, r := range made {
		all += r.Method + " " + r.Path + "\n"
	}
	return len(made), all
}

// pass is a turn that makes no more requests than most, or than one if it searches nothing. A turn that takes as long as several,
// as other programs need the machine, may make as many as those: answers are good for so long.
func (w *world) pass(most int) {
	w.t.Helper()
	start := time.Now()
	n, all := w.requests()
	if !strings.Contains(all, "/bundles/") {
		most = 1
	}
	if took := time.Since(start); n > most*(1+int(took/answersLast)) {
		w.t.Errorf("%d requests in %v\n%s", n, took, all)
	}
}

// answersLast is the least time that an answer is good for, with a create_interval of 5 s as it is outside of tests.
const answersLast = 2 * time.Second

// Requests are bounded by passes, not by tasks or instances.
func TestRequestsOfAPass(t *testing.T) {
	t.Parallel()
	for _, via := range []string{"api", "cli"} {
		t.Run("30 tasks wait for room by "+via, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, options{via: via, fake: true, extra: "  max_instances: 1\n"})
			w.configure("log_interval: 100ms", "log_interval: 1h")
			w.configure("create_interval: 80ms", "create_interval: 5s")
			w.offers(3)
			if via == "cli" { // the program asks once whose key it has, and once a day for names of GPUs
				w.run("vastai show user --raw")
			}
			for n := range 30 {
				w.task(fmt.Sprintf("task-%d", n), "sleep 100")
			}
			w.until("its log was read", func() bool { return len(w.market.Requests("PUT /api/v0/instances/request_logs/")) > 0 })
			w.run(turn)
			for range 4 {
				w.pass(1)
			}
		})
		t.Run("30 tasks wait for an offer by "+via, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, options{via: via, fake: true})
			w.configure("create_interval: 80ms", "create_interval: 5s")
			if via == "cli" { // the program asks once whose key it has, and once a day for names of GPUs
				w.run("vastai show user --raw")
			}
			for n := range 30 {
				w.task(fmt.Sprintf("task-%d", n), "sleep 100")
			}
			for _, most := range []int{4, 3, 3} { // once an hour it asks which filter removes most
				w.pass(most)
			}
		})
	}
	t.Run("12 ends at once", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, options{via: "api", extra: "  max_instances: 12\n"})
		w.offers(12)
		over := filepath.Join(w.dir, "over")
		var slugs []string
		for n := range 12 {
			slugs = append(slugs, fmt.Sprintf("task-%d", n))
			w.task(slugs[n], "echo begun; echo; until [ -e "+over+" ]; do sleep 0.1; done")
		}
		w.until("all run", func() bool {
			n := 0
			for _, slug := range slugs {
				n += strings.Count(string(w.queue.Log(slug)), "begun\n")
			}
			return n == 12
		})
		if err := os.WriteFile(over, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		for start := time.Now(); ; time.Sleep(20 * time.Millisecond) {
			n := 0
			for _, i := range w.market.Instances() {
				if strings.HasSuffix(i.Label, ":end=0") {
					n++
				}
			}
			if n == 12 {
				break
			}
			if time.Since(start) > harness.Patience {
				t.Fatal(w.tell())
			}
		}
		w.settled(slugs...)
		if n := len(w.market.Requests("^DELETE")); n > 4 {
			t.Errorf("%d requests end 12 instances", n)
		}
		if journal, err := os.ReadFile(filepath.Join(w.dir, "data/state/vast/journal.jsonl")); err != nil || strings.Count(string(journal), `"event":"destroy"`) < 12 {
			t.Errorf("%s, %v", journal, err)
		}
		w.check(slugs...)
	})
}

// However many instances there are, the requests of a turn are bounded, also where it is
// asked for bills. Here are as many as make three pages of what the vastai program reads.
func TestRequestsOfManyInstances(t *testing.T) {
	transports(t, func(t *testing.T, via string) {
		w := newWorld(t, options{via: via, fake: true, scale: 1})
		w.offers(1)
		w.task("task", "sleep 100")
		w.until("it runs", func() bool { _, ok := running(w); return ok })
		for n := range 219 {
			w.rent(int64(80000+n), "mine")
		}
		w.run("rm data/state/vast/once.json") // so that it is asked for bills as well
		w.forget("charges-*")
		w.forget("billing")
		pages := 0
		for range 6 { // the bill of so many instances is read over some turns
			n, all := w.requests()
			if n > 14 || n < 9 { // 9 pages of instances
				t.Errorf("%d requests\n%s", n, all)
			}
			pages += strings.Count(all, "GET /api/v0/charges/")
		}
		if want := map[string]int{"api": 1, "cli": 3}[via]; pages != want {
			t.Errorf("%d pages of the bill, want %d", pages, want)
		}
		if out, errs, code := w.run("vast-reap --account --older 0s"); code != 1 || strings.Count(out, "ponos:") != 1 {
			t.Errorf("%d %s%s", code, out, errs)
		}
	})
}

// The daily quota of searches is not asked again before it is reset, and told once.
func TestQuotaUntilMidnight(t *testing.T) {
	transports(t, func(t *testing.T, via string) {
		w := newWorld(t, options{via: via, fake: true})
		w.offers(3)
		w.market.SetQuota(1, clock.Now().Add(6*time.Hour))
		if out, errs, code := w.run("vast-offers 'gpu_ram>=10'"); code != 0 {
			t.Errorf("%d %s%s", code, out, errs)
		}
		w.task("one", "sleep 100")
		w.task("two", "sleep 100")
		for range 4 {
			w.run(turn)
		}
		if n := len(w.market.Requests("^POST /api/v0/bundles")); n != 2 {
			t.Errorf("%d searches", n)
		}
		if log := w.agentLog(); strings.Count(log, "the daily quota of searches is used up: nothing is ordered until ") != 1 {
			t.Errorf("%s", log)
		}
		w.market.SetQuota(100, clock.Now().Add(30*time.Hour))
		w.later(25 * time.Hour)
		w.until("they run", func() bool { return len(w.market.Alive()) == 2 })
	})
}

// ponos-setup says which permission a key lacks.
func TestScopesOfTheKey(t *testing.T) {
	transports(t, scopesOfTheKey)
}

func scopesOfTheKey(t *testing.T, via string) {
	all := []string{"instance_read", "instance_write", "user_read", "misc", "billing_read"}
	for lacking, want := range map[string]int{"": 0, "instance_read": 3, "instance_write": 3, "user_read": 3, "misc": 3, "billing_read": 0} {
		t.Run("without "+lacking, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, options{via: via, fake: true})
			w.offers(1)
			scopes := []string{}
			for _, s := range all {
				if s != lacking {
					scopes = append(scopes, s)
				}
			}
			w.market.AddKey("limited", scopes...)
			file := map[string]string{"api": "key", "cli": "home/c/vastai/vast_api_key"}[via]
			if err := os.WriteFile(filepath.Join(w.dir, file), []byte("limited\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			out, errs, code := w.run("ponos-setup")
			if code != want || lacking != "" && !strings.Contains(out+errs, "give the key the permission "+lacking) || lacking == "" && errs != "" {
				t.Errorf("%d\n%s%s", code, out, errs)
			}
		})
	}
}
