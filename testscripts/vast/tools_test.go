package vast

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	arkindex "github.com/ponos-tools/ponos/testscripts/arkindex/server"
	"github.com/ponos-tools/ponos/testscripts/executable"
	"github.com/ponos-tools/ponos/testscripts/vast/server"
)

func TestOffers(t *testing.T) {
	transports(t, func(t *testing.T, via string) {
		w := newWorld(t, options{via: via, fake: true})
		w.market.AddOffer(31000001, nil)
		w.market.AddOffer(31000002, map[string]any{"dph_base": 0.31})
		w.market.AddOffer(41, map[string]any{"gpu_ram": 12000, "dph_base": 0.1})
		w.market.AddOffer(42, map[string]any{"verification": "unverified", "dph_base": 0.1})
		w.market.AddOffer(43, map[string]any{"dph_base": 3})
		w.market.AddOffer(44, map[string]any{"dph_base": 0.305, "inet_down_cost": 0.05})
		out, errs, code := w.run("vast-offers")
		want := "   OFFER  MACHINE  GPU       $/HOUR  EXPECTED $  RELIABILITY  LOCATION\n" +
			"31000001        1  RTX 4090  0.3041      0.3281       0.9971  France, FR\n" +
			"31000002        2  RTX 4090  0.3141      0.3381       0.9971  France, FR\n" +
			"      44       44  RTX 4090  0.3091      0.8131       0.9971  France, FR\n"
		if code != 0 || errs != "" || out != want {
			t.Errorf("%d %s\ngot\n%swant\n%s", code, errs, out, want)
		}
		out, errs, code = w.run("vast-offers --json -n1")
		var rows []map[string]any
		if err := json.Unmarshal([]byte(out), &rows); err != nil || code != 0 || errs != "" || len(rows) != 1 || rows[0]["offer"] != 31000001.0 {
			t.Errorf("%d %s%s %v", code, out, errs, err)
		}
		out, errs, code = w.run("vast-offers --explain")
		want = "FILTER                REMOVES  ALONE\ngpu_ram>=20                 1      1\nreliability>0.9             0      0\nverified=true               1      1\ndisk 20                     0      0\nmax_price_per_hour 1        1      1\nmax_cost_per_task 20        0      0\nmax_runtime 24h0m0s         0      0\n\n3 of 6 offers are left.\n"
		if code != 0 || errs != "" || out != want {
			t.Errorf("%d %s\ngot\n%swant\n%s", code, errs, out, want)
		}
		for line, status := range map[string]int{"vast-offers 'gpu_ram>=400'": 1, "vast-offers gpu_rma=3": 2, "vast-offers -n -1": 2} {
			if out, errs, code := w.run(line); code != status || out != "" || !strings.HasPrefix(errs, "vast-offers: ") {
				t.Errorf("%s: %d %q %q", line, code, out, errs)
			}
		}
		w.market.Break(server.Fault{Path: "bundles", Status: 500, Body: "x"})
		if out, errs, code := w.run("vast-offers"); code != 3 || out != "" || errs == "" {
			t.Errorf("%d %q %q", code, out, errs)
		}
		if n := len(w.market.Requests("PUT /api/v0/asks")); n > 0 {
			t.Errorf("%d orders", n)
		}
	})
}

func TestReap(t *testing.T) {
	t.Parallel()
	w := newWorld(t, options{via: "api", scale: 1})
	w.offers(3)
	w.task("task", "echo begun; echo; echo more; sleep 100")
	w.until("log", func() bool { return strings.Contains(string(w.queue.Log("task")), "begun") })
	out, errs, code := w.run("vast-reap --older 0s")
	if code != 0 || out != "" || errs != "" {
		t.Errorf("nothing to find: %d %q %q", code, out, errs)
	}
	// The agent forgets all, and has never had the task; other agents' are not touched.
	w.untracked(2)
	for _, dir := range []string{"data/state/vast", "data/state/tasks/" + w.id("task")} {
		if err := os.RemoveAll(filepath.Join(w.dir, dir)); err != nil {
			t.Fatal(err)
		}
	}
	w.forget("instances")
	w.market.Break(server.Fault{Path: lists, Status: 200, Body: `{}`})
	if out, _, code := w.run("vast-reap --older 0s --destroy"); code != 3 || out != "" {
		t.Errorf("odd list: %d %q", code, out)
	}
	w.market.Mend()
	if out, _, code := w.run("vast-reap --older 0s"); code != 1 || !strings.Contains(out, "not ordered from this data_dir") || !strings.Contains(out, "  no  ") {
		t.Errorf("dry run: %d %q", code, out)
	}
	// It may be that of another agent with the same name: that has to be said.
	if out, errs, code := w.run("vast-reap --older 0s --destroy"); code != 1 || !strings.Contains(out, "  no  ") || !strings.Contains(errs, `hint: if none has, destroy them with "vast-reap --agent tester --destroy"`) {
		t.Errorf("stranger: %d %q %q", code, out, errs)
	}
	if out, _, code := w.run("vast-reap --older 0s --agent somebody"); code != 0 || out != "" {
		t.Errorf("another agent's: %d %q", code, out)
	}
	if n := len(w.market.Alive()); n != 3 {
		t.Fatalf("%d are alive", n)
	}
	out, _, code = w.run("vast-reap --older 0s --agent tester --destroy --json")
	if code != 1 || !strings.Contains(out, `"destroyed": true`) {
		t.Errorf("destroy: %d %q", code, out)
	}
	if n := len(w.market.Alive()); n != 2 {
		t.Errorf("%d are alive", n)
	}
	for line, status := range map[string]int{"vast-reap x": 2, "vast-reap --older soon": 2, "vast-reap --max 0": 2, "vast-reap --agent a:b": 2} {
		if out, errs, code := w.run(line); code != status || out != "" || errs == "" {
			t.Errorf("%s: %d %q %q", line, code, out, errs)
		}
	}
	w.noSecrets()
}

func (w *world) id(slug string) string {
	t, _ := w.queue.Task(slug)
	return t.ID
}

// configure changes the configuration.
func (w *world) configure(old, text string) {
	w.t.Helper()
	path := filepath.Join(w.dir, "ponos.yaml")
	b, err := os.ReadFile(path)
	if err != nil || !strings.Contains(string(b), old) {
		w.t.Fatalf("%q is not in %s, %v", old, b, err)
	}
	if err := os.WriteFile(path, []byte(strings.Replace(string(b), old, text, 1)), 0o600); err != nil {
		w.t.Fatal(err)
	}
}

// ponos-setup refuses a vastai program that is too old: it shows the key in addresses.
func TestOldProgram(t *testing.T) {
	t.Parallel()
	w := newWorld(t, options{via: "cli", fake: true})
	w.offers(1)
	if err := os.Mkdir(filepath.Join(w.dir, "old"), 0o755); err != nil {
		t.Fatal(err)
	}
	for version, ok := range map[string]bool{"1.0.13": false, "1.5.5": false, "0.5.0": false, "1.5.6": true, "1.10.0": true} {
		script := fmt.Sprintf("#!/bin/sh\nif [ \"$1\" = --version ]; then echo %s; else exit 9; fi\n", version)
		executable.Write(t, filepath.Join(w.dir, "old/vastai"), script)
		out, errs, code := w.run("PATH=$PWD/old:$PATH ponos-setup")
		if refused := strings.Contains(out+errs, "at least version 1.5.6 is needed"); refused == ok || code == 0 {
			t.Errorf("%s: %d\n%s%s", version, code, out, errs)
		}
	}
}

// ponos-setup tells what will disappoint: filters that find nothing, and by which of
// them; an offer that is too dear; a key that others may read.
func TestSetupWarns(t *testing.T) {
	transports(t, func(t *testing.T, via string) {
		w := newWorld(t, options{via: via, fake: true, extra: "  max_cost_per_task: 0.2\n"})
		w.market.AddOffer(1, map[string]any{"gpu_ram": 12000})
		w.market.AddOffer(2, map[string]any{"gpu_ram": 12000})
		w.market.AddOffer(3, map[string]any{"reliability": 0.5})
		if out, errs, code := w.run("ponos-setup"); code != 0 || errs != `ponos-setup: warning: no suitable offer: of 3 offers, "max_cost_per_task 0.2" removes most: 3; "vast-offers --explain" shows all`+"\n" || !strings.Contains(out, "credit $50.00") {
			t.Errorf("%d\n%s%s", code, out, errs)
		}
		w.market.AddOffer(4, map[string]any{"dph_base": 0.9})
		w.configure("gpu_ram>=20", "gpu_ram>=20 cpu_cores>4")
		if out, errs, code := w.run("ponos-setup"); code != 0 || !strings.Contains(errs, "your share of them is cpu_cores_effective") || !strings.Contains(errs, "no suitable offer: of 4 offers, ") {
			t.Errorf("%d\n%s%s", code, out, errs)
		}
		w.market.AddOffer(5, map[string]any{"dph_base": 0.1})
		w.configure(" cpu_cores>4", "")
		if out, errs, code := w.run("ponos-setup"); code != 0 || errs != "" {
			t.Errorf("%d\n%s%s", code, out, errs)
		}
		if via == "cli" {
			return
		}
		key := filepath.Join(w.dir, "key")
		if err := os.Chmod(key, 0o644); err != nil {
			t.Fatal(err)
		}
		for _, tool := range []string{"ponos-setup", "ponos-poll", "vast-offers", "vast-reap"} {
			if out, errs, code := w.run(tool); code != 0 || errs != tool+": warning: "+key+": others may read it (mode 0644), and it holds a secret; chmod 600 it\n" {
				t.Errorf("%d\n%s%s", code, out, errs)
			}
		}
	})
}

// A key of the configuration is what the program gets, and not what it has of its own.
func TestKeyForTheProgram(t *testing.T) {
	t.Parallel()
	w := newWorld(t, options{via: "cli", program: true, fake: true, extra: "  via: cli\n  api_key_file: key\n"})
	for path, key := range map[string]string{"key": server.Key, "home/c/vastai/vast_api_key": "another"} {
		if err := os.WriteFile(filepath.Join(w.dir, path), []byte(key), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	w.market.AddOffer(1, nil)
	if out, errs, code := w.run("ponos-setup"); code != 0 || errs != "" || !strings.Contains(out, "account 4242 by cli, credit $50.00") {
		t.Errorf("%d %s%s", code, out, errs)
	}
	w.noSecrets()
}

func TestConfiguration(t *testing.T) {
	t.Parallel()
	for extra, want := range map[string]string{
		"  via: api\n  max_cost_per_task: -1\n":        "vast_api.max_cost_per_task: -1 is negative",
		"  viaa: api\n":                                `vast_api.viaa: unknown key; did you mean "via"?`,
		"  api_key: x\n":                               "api_key is set as well",
		"  extra_env: {A B: x}\n":                      "invalid variable name",
		"  extra_env: {1A: x}\n":                       "invalid variable name",
		"  extra_env: {A: \"a\\0b\"}\n":                "vast_api.extra_env: A: the value contains a null byte",
		"  max_runtime: 0s\n":                          "an instance costs money",
		"  checkpoint_load: x\n":                       "checkpoint_load and checkpoint_save go together",
		"  checkpoint_load: x\n  checkpoint_save: x\n": "there is no checkpoint_store",
	} {
		w := newWorld(t, options{via: "api", fake: true, extra: extra})
		if out, errs, code := w.run("ponos-setup"); code != 2 || !strings.Contains(errs, want) || strings.Contains(out+errs, server.Key) {
			t.Errorf("%q: %d %s%s", extra, code, out, errs)
		}
	}
	// Filters: every problem, with its line.
	for _, filters := range []struct{ new, want string }{
		{`"gpu_rma>=20 num_gpus>2"`, `:11: vast_api.offer_filters: gpu_rma: unknown field; did you mean "gpu_ram"\?` + "\n.*:11: vast_api.offer_filters: num_gpus: expected the number of GPUs, such as num_gpus=2\n"},
		{"\n    gpu_ram: {gte: 24000}\n    reliability: {gt: 98}\n    gpu_name: {gt: 3}", ":13: vast_api.offer_filters: reliability: 98 is more than 1.*\n(.*\n)*|:14: vast_api.offer_filters: gpu_name: operator gt needs a number"},
		{"\n    gpu_ram: {gte: 24000}\n    static_ip: maybe", `:13: vast_api.offer_filters: static_ip: "maybe" is neither true nor false`},
	} {
		w := newWorld(t, options{via: "api", fake: true})
		w.configure(`"gpu_ram>=20 reliability>0.9"`, filters.new)
		for _, tool := range []string{"ponos-setup", "vast-offers", "vast-reap", "ponos-poll"} {
			_, errs, code := w.run(tool)
			if matched, err := regexp.MatchString(filters.want, errs); code != 2 || err != nil || !matched {
				t.Errorf("%s %s: %d\n%s", tool, filters.new, code, errs)
			}
		}
	}
	w := newWorld(t, options{via: "api", fake: true})
	w.market.Break(server.Fault{Path: "bundles", Status: 400, Body: "gpu_ram is not a valid search key", Type: "text/plain"})
	if _, errs, code := w.run("ponos-setup"); code != 2 || !strings.Contains(errs, "gpu_ram is not a valid search key") {
		t.Errorf("%d %s", code, errs)
	}
	for _, text := range []string{"two\nlines\n", "of UTF-8: ä", "\x00"} {
		if err := os.WriteFile(filepath.Join(w.dir, "key"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, errs, code := w.run("ponos-setup"); code != 2 || !strings.Contains(errs, "vast_api.api_key_file: ") || !strings.Contains(errs, "it must hold the key alone, on one line") {
			t.Errorf("%q: %d %s", text, code, errs)
		}
	}
	if err := os.WriteFile(filepath.Join(w.dir, "key"), []byte("wrong"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, errs, code := w.run("ponos-setup"); code != 3 || !strings.Contains(errs, "the key is not accepted") || !strings.Contains(errs, "hint: check vast_api.api_key") {
		t.Errorf("%d %s", code, errs)
	}
}

// A task that the queue gives to nobody any more must not go on costing money.
func TestTaskGone(t *testing.T) {
	t.Parallel()
	w := newWorld(t, options{via: "api"})
	w.offers(1)
	w.task("task", "echo begun; while sleep 0.2; do echo more; done")
	w.until("log", func() bool { return strings.Contains(string(w.queue.Log("task")), "begun") })
	w.queue.Do(func(world *arkindex.World) { world.Tasks = nil })
	// One look that does not show a task proves nothing; it takes some minutes. The first one that
	// counts is the first that has more of the log for the queue.
	lists := 0
	for ; len(w.market.Alive()) > 0 && lists < 60; lists++ {
		w.later(time.Duration(lists) * time.Minute)
		w.due()
		w.run(turn)
	}
	if lists < 5 {
		t.Errorf("after %d looks its instance is gone", lists)
	}
	w.settled()
	w.checkMeter(1)
	w.check()
}

// A start from before the end of a task was reported does not run the task again.
func TestStartOfWhatIsOver(t *testing.T) {
	t.Parallel()
	w := newWorld(t, options{via: "api"})
	w.offers(2)
	w.task("task", "exit 3")
	w.settled("task")
	if out, errs, code := w.run("ponos-start " + w.id("task")); code != 0 || errs != "" || !strings.Contains(out, `"event":"skipped"`) || !strings.Contains(out, "the task is failed") {
		t.Errorf("%d %s%s", code, out, errs)
	}
	if n := len(w.market.Instances()); n != 1 {
		t.Errorf("%d instances", n)
	}
	w.check("task")
}

// What the queue thinks of a task comes first: one that is over there must not go on.
func TestTaskDecidedElsewhere(t *testing.T) {
	t.Parallel()
	w := newWorld(t, options{via: "api"})
	w.offers(1)
	w.task("task", "echo begun; echo; echo more; sleep 100")
	w.until("log", func() bool { return strings.Contains(string(w.queue.Log("task")), "begun") })
	w.queue.Do(func(world *arkindex.World) { world.Tasks[0].State = "failed" })
	w.due()
	w.settled("task")
	if log := string(w.queue.Log("task")); w.state("task") != "failed" || !strings.Contains(log, "task failed: the queue reports that the task has ended") || !strings.Contains(log, "cost: about") {
		t.Errorf("task is %s\n%s", w.state("task"), log)
	}
	if n := len(w.market.Alive()); n > 0 {
		t.Errorf("%d are alive", n)
	}
	w.checkMeter(1)
}

func TestDryRun(t *testing.T) {
	t.Parallel()
	w := newWorld(t, options{via: "api", fake: true})
	w.offers(1)
	w.task("task", "echo")
	if _, errs, code := w.run("ponos-setup"); code != 0 {
		t.Fatal(errs)
	}
	if _, errs, code := w.run("ponos-poll"); code != 0 {
		t.Fatal(errs)
	}
	out, errs, code := w.run("ponos-start --dry-run " + w.id("task"))
	if code != 0 || errs != "" || !strings.Contains(out, "offer: 31000001 on machine 1, RTX 4090, $0.3041 an hour") || !strings.Contains(out, " TASK_BOOTSTRAP ") || strings.Contains(out, secret) {
		t.Errorf("%d %s%s", code, out, errs)
	}
	if n := len(w.market.Instances()); n != 0 {
		t.Errorf("%d instances", n)
	}
}
