package vast

import (
	"encoding/json"
	"flag"
	"fmt"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	arkindex "github.com/ponos-tools/ponos/testscripts/arkindex/server"
	"github.com/ponos-tools/ponos/testscripts/harness"
	"github.com/ponos-tools/ponos/testscripts/needs"
	"github.com/ponos-tools/ponos/testscripts/vast/server"
)

func TestMain(m *testing.M) {
	// Whatever is not on this machine is refused.
	for _, name := range []string{"http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"} {
		os.Setenv(name, "http://127.0.0.1:9")
	}
	for _, name := range []string{"no_proxy", "NO_PROXY"} {
		os.Setenv(name, "127.0.0.1,localhost")
	}
	os.Unsetenv("VAST_API_KEY")
	// The tests mostly wait, for times that pass on their own.
	if err := flag.Set("test.parallel", "6"); err != nil {
		panic(err)
	}
	harness.Main(m, map[string]func(){"quick-python": quickPython}, "ponos-setup", "ponos-poll", "ponos-start", "ponos-stop", "ponos-submit", "ponos-list", "vast-offers", "vast-reap")
}

// world is a market, a control plane, and an agent's configuration.
type world struct {
	t      *testing.T
	dir    string
	market *server.Server
	queue  *arkindex.Server
	url    string // of the market
	env    []string
	via    string
	others int // instances that are somebody else's

	said    strings.Builder // all that the tools have printed
	slowest time.Duration   // of the turns, each from the end of the one before
}

// settings of a test: short times, as nothing is far away.
const settings = `url: %s/
farm_id: %s
seed: %s
data_dir: %s/data
pid_file: %s/ponos.pid
logging: {path: "%s/agent.log", task_format: "[agent %%(levelname)s] %%(message)s"}
mode: vast
vast_api:
  url: %s
  agent: tester
  offer_filters: "gpu_ram>=20 reliability>0.9"
  create_interval: 80ms
  settle: 400ms
  log_interval: 100ms
  stop_wait: 5s
  boot_timeout: 3s
  disk: 20
`

type options struct {
	via   string // api or cli
	extra string // lines of vast_api
	boot  time.Duration
	fake  bool // containers do not run
	// program is for the vastai program as it is, which takes its time to load.
	program bool
	scale   float64 // of the market's clock; default: ten minutes a second
	// beside is a world whose market this one shares.
	beside *world
	spool  bool // tasks come from a spool
}

func newWorld(t *testing.T, o options) *world {
	t.Helper()
	needs.OneOf(t, "curl", "wget", "python3") // which an image needs: here, an instance has the programs of this machine
	programURL, programSum := entryProgram(t)
	dir := t.TempDir()
	harness.WordedFiles(t, dir)
	if o.boot == 0 {
		o.boot = 60 * time.Millisecond
	}
	if o.scale == 0 {
		o.scale = 600
	}
	containers := filepath.Join(dir, "containers")
	if o.fake {
		containers = ""
	}
	w := &world{t: t, dir: dir, via: o.via}
	w.market = server.New(server.Options{
		Dir: containers, Credit: 50, Boot: o.boot, Scale: o.scale,
		Env: []string{"PATH=" + os.Getenv("PATH"), "no_proxy=127.0.0.1,localhost", "http_proxy=http://127.0.0.1:9", "https_proxy=http://127.0.0.1:9",
			"PYTHONPATH=" + filepath.Join(harness.Root(), "testscripts/arkindex/worker"), "PYTHONDONTWRITEBYTECODE=1"},
	})
	if o.beside != nil {
		w.market, w.url = o.beside.market, o.beside.url
	} else {
		web := httptest.NewServer(w.market)
		t.Cleanup(web.Close)
		t.Cleanup(w.market.Close)
		w.market.SetURL(web.URL)
		w.url = web.URL
	}
	q, err := arkindex.New(arkindex.Options{AnyHost: true})
	if err != nil {
		t.Fatal(err)
	}
	w.queue = q
	ark := httptest.NewServer(q)
	t.Cleanup(ark.Close)
	text := fmt.Sprintf(settings, ark.URL, arkindex.FarmID, arkindex.Seed, dir, dir, dir, w.url)
	if o.spool {
		text = strings.Replace(text, "url: ", "queue: spool:spool\nurl: ", 1)
	}
	if !strings.Contains(o.extra, "entry_url") {
		text += fmt.Sprintf("  entry_url: %s\n  entry_sha256: %s\n", programURL, programSum)
	}
	if !strings.Contains(o.extra, "image_lookup") {
		text += "  image_lookup: false\n"
	}
	if !strings.Contains(o.extra, "extra_env") {
		text += "  extra_env: {TOKEN: '" + token + "'}\n"
	}
	home := filepath.Join(dir, "home")
	w.env = append(os.Environ(), "HOME="+home, "XDG_CONFIG_HOME="+home+"/c", "XDG_CACHE_HOME="+home+"/k", "XDG_STATE_HOME="+home+"/s",
		"PONOS_CONFIG="+filepath.Join(dir, "ponos.yaml"), "TZ=UTC", "LC_ALL=C", "VAST_URL="+w.url)
	if o.via == "cli" {
		key := filepath.Join(home, "c/vastai/vast_api_key")
		if err := os.MkdirAll(filepath.Dir(key), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(key, []byte(server.Key), 0o600); err != nil {
			t.Fatal(err)
		}
		if o.program {
			w.env = append(w.env, "PATH="+filepath.Join(client(t), "bin")+":"+os.Getenv("PATH"))
		} else if err := w.quickClient(); err != nil {
			t.Fatal(err)
		}
	} else {
		key := filepath.Join(dir, "key")
		if err := os.WriteFile(key, []byte(server.Key+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		text += "  api_key_file: key\n"
	}
	text += o.extra
	if err := os.MkdirAll(home, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "ponos.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return w
}

// offers adds n offers, each a little dearer than the one before. What an attempt costs
// is mostly its image's traffic, so that one too many shows on the meter whatever time
// it takes.
func (w *world) offers(n int) {
	for i := range n {
		w.market.AddOffer(int64(31000001+i), map[string]any{"dph_base": 0.30 + float64(i)/100, "inet_down_cost": 0.1})
	}
}

// task adds a task with a shell script for a command.
func (w *world) task(slug, script string) {
	w.t.Helper()
	command, _ := json.Marshal([]string{"sh", "-c", script})
	err := w.queue.Add(arkindex.Spec{Tasks: []*arkindex.Task{{
		Slug: slug, Image: "registry.example.org/worker:1", Command: command, RequiresGPU: true, Env: map[string]string{"SECRET": secret},
	}}})
	if err != nil {
		w.t.Fatal(err)
	}
}

// These must be nowhere to be read: a token of a task, and one of the configuration.
const (
	secret = "hush-this-is-a-task-token"
	token  = "hush-a-token-of-extra-env"
)

// run runs a command line and returns what it prints, and its status.
func (w *world) run(line string) (stdout, stderr string, code int) {
	w.t.Helper()
	cmd := exec.Command("bash", "-c", "set -o pipefail; "+line)
	cmd.Env, cmd.Dir = w.env, w.dir
	var out, errs strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	if err != nil {
		code = cmd.ProcessState.ExitCode()
	}
	fmt.Fprintf(&w.said, "$ %s\n%s%s", line, out.String(), errs.String())
	return out.String(), errs.String(), code
}

const turn = "ponos-poll | ponos-stop | ponos-start"

// until takes turns of the agent until a condition holds, and returns all that it
// has printed.
func (w *world) until(what string, condition func() bool) string {
	w.t.Helper()
	all := ""
	const bound = harness.Patience // other tests take their time beside
	last := time.Now()
	for deadline := last.Add(bound); ; {
		out, errs, _ := w.run(turn)
		w.slowest = max(w.slowest, time.Since(last)) // with what comes between two turns: this test may be kept waiting as well
		last = time.Now()
		all += out + errs
		if condition() {
			return all
		}
		if time.Now().After(deadline) {
			w.t.Fatalf("not within %v: %s\n%s\n%s", bound, what, all[max(0, len(all)-20000):], w.tell())
		}
		time.Sleep(50 * time.Millisecond)
	}
}

func (w *world) state(slug string) string {
	t, _ := w.queue.Task(slug)
	return t.State
}

func (w *world) history(slug string) string {
	t, _ := w.queue.Task(slug)
	return strings.Join(t.History, ",")
}

func final(state string) bool {
	return state == "completed" || state == "failed" || state == "error" || state == "stopped"
}

// settled takes turns until tasks are over and the agent has nothing left on the
// market, as far as it knows.
func (w *world) settled(slugs ...string) string {
	w.t.Helper()
	return w.until("tasks over, orders closed", func() bool {
		for _, slug := range slugs {
			if !final(w.state(slug)) {
				return false
			}
		}
		open, _ := filepath.Glob(filepath.Join(w.dir, "data/state/vast/orders/*.json"))
		return len(open) == 0
	})
}

// check holds what must be after every scenario.
func (w *world) check(slugs ...string) {
	w.t.Helper()
	for _, i := range w.market.Alive() {
		if i.Label == "mine" {
			continue
		}
		w.t.Errorf("instance %d (%s, %s) is left", i.ID, i.Label, i.Actual)
	}
	for _, slug := range slugs {
		n := 0
		for _, state := range strings.Split(w.history(slug), ",") {
			if final(state) {
				n++
			}
		}
		if n != 1 {
			w.t.Errorf("task %s has %d final states: %s", slug, n, w.history(slug))
		}
	}
	if alive := len(w.market.Alive()); alive != w.others {
		w.t.Errorf("%d instances of others are left, of %d", alive, w.others)
	}
	w.checkMeter(len(slugs))
	w.noSecrets()
	if w.t.Failed() {
		w.t.Log(w.tell())
	}
}

// checkMeter holds what was spent on tasks against what it would have been, had each
// had one instance, destroyed as soon as it was of no more use. There may be one
// attempt more, and the time of the turn in which a task ends and of the next one, which sees it.
func (w *world) checkMeter(tasks int) {
	w.t.Helper()
	if n := len(w.market.Instances()) - w.others; n > tasks+1 {
		w.t.Errorf("%d instances were ordered, %d are enough", n, tasks)
	}
	ideal, attempt := w.market.Ideal("ponos:", tasks)
	reaction := float64(max(1, tasks)) * 0.4 * w.market.Hours(4*w.slowest+1500*time.Millisecond)
	if cost := w.market.Meter("ponos:"); cost > ideal+attempt+reaction {
		w.t.Errorf("the meter shows $%.3f; ideal are $%.3f, an attempt is $%.3f, the time of a reaction is $%.3f", cost, ideal, attempt, reaction)
	}
}

// tell is what one wants to know when something went wrong.
func (w *world) tell() string {
	var b strings.Builder
	for _, i := range w.market.Instances() {
		fmt.Fprintf(&b, "instance %d %s actual %q intended %q runs %d destroyed %v\n", i.ID, i.Label, i.Actual, i.Intended, i.Runs, !i.Destroyed.IsZero())
		log, _ := os.ReadFile(filepath.Join(w.dir, "containers", fmt.Sprint(i.ID), "log"))
		b.Write(log)
	}
	w.queue.Do(func(world *arkindex.World) {
		for _, t := range world.Tasks {
			fmt.Fprintf(&b, "task %s %s: %s\n", t.ID, t.Slug, strings.Join(t.History, ","))
		}
	})
	fmt.Fprintf(&b, "-- orders\n%s", w.orders())
	for _, name := range []string{"agent.log", "data/state/vast/journal.jsonl"} {
		text, _ := os.ReadFile(filepath.Join(w.dir, name))
		fmt.Fprintf(&b, "-- %s\n%s", name, text)
	}
	return b.String()
}

// forget takes away what tools share of an account: "requests" or "instances".
func (w *world) forget(what string) {
	files, _ := filepath.Glob(filepath.Join(w.dir, "home/k/ponos/market-*", what+".json"))
	for _, file := range files {
		_ = os.Remove(file)
	}
}

// orders are the files of the orders that are not closed.
func (w *world) orders() string {
	files, _ := filepath.Glob(filepath.Join(w.dir, "data/state/vast/orders/*.json"))
	all := ""
	for _, file := range files {
		b, _ := os.ReadFile(file)
		all += string(b)
	}
	return all
}

func (w *world) agentLog() string {
	b, err := os.ReadFile(filepath.Join(w.dir, "agent.log"))
	if err != nil {
		w.t.Error(err)
	}
	return string(b)
}
