package vast

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ponos-tools/ponos/testscripts/vast/server"
)

// A spool and rented machines: a task brings its image along.
func TestSpool(t *testing.T) {
	transports(t, func(t *testing.T, via string) {
		w := newWorld(t, options{via: via, spool: true})
		w.offers(3)
		if err := os.WriteFile(filepath.Join(w.dir, "env"), []byte("SECRET="+secret+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		submit := func(line string) string {
			out, errs, code := w.run("ponos-submit " + line)
			if code != 0 || errs != "" && !strings.HasPrefix(errs, "ponos-submit: warning: no agent has taken a turn in this spool\n") {
				t.Fatalf("%s: %d %s%s", line, code, out, errs)
			}
			return strings.TrimSpace(out)
		}
		good := submit(`--image registry.example.org/lines:2 --env-file env -- sh -c 'test -n "$SECRET" && echo done'`)
		next := submit("--image registry.example.org/lines:2 --after " + good + " -- sh -c 'exit 3'")
		if _, errs, code := w.run("ponos-submit -- echo no image"); code != 2 || !strings.Contains(errs, "the task has no --image, and rented machines run only images") {
			t.Errorf("%d %s", code, errs)
		}
		none := submit("--spool " + filepath.Join(w.dir, "spool") + " -- echo no image")
		said := w.until("tasks over", func() bool {
			for _, id := range []string{good, next} {
				if _, err := os.Stat(filepath.Join(w.dir, "spool/done", id+".json")); err != nil {
					return false
				}
			}
			open, _ := filepath.Glob(filepath.Join(w.dir, "data/state/vast/orders/*.json"))
			return len(open) == 0
		})
		out, _, _ := w.run("ponos-list --json")
		got := map[string]string{}
		for line := range strings.Lines(out) {
			var e struct {
				ID, State, Reason, Image, GPU string
				Machine                       int64
			}
			if err := json.Unmarshal([]byte(line), &e); err != nil {
				t.Fatal(err)
			}
			got[e.ID] = e.State + " " + e.Reason + " " + e.Image
			if on := w.market.Instances()[0].Offer; e.ID == good && (e.GPU != on["gpu_name"] || fmt.Sprint(e.Machine) != fmt.Sprint(on["machine_id"])) {
				t.Errorf("on machine %d with %q, was on %v", e.Machine, e.GPU, on)
			}
		}
		for id, want := range map[string]string{
			good: "completed  registry.example.org/lines:2", next: "failed exit code 3 registry.example.org/lines:2",
			none: "pending left to another agent: it has no image, and mode vast runs nothing else ",
		} {
			if got[id] != want {
				t.Errorf("%q, want %q", got[id], want)
			}
		}
		if n := len(w.market.Instances()); n != 2 || w.market.Instances()[0].Image != "registry.example.org/lines:2" {
			t.Errorf("%d instances", n)
		}
		log, _ := os.ReadFile(filepath.Join(w.dir, "spool/logs", good+".log"))
		if !strings.Contains(string(log), "\ndone\n") || !strings.Contains(said, `"cost_dollars":1.0`) {
			t.Errorf("%s\n%s", log, said)
		}
		if n := len(w.market.Alive()); n > 0 {
			t.Errorf("%d instances are left", n)
		}
		w.checkMeter(2)
	})
}

// What no order can carry to a container is refused at submission, and nothing is in the spool. Long texts travel compressed.
func TestSubmitTooMuch(t *testing.T) {
	t.Parallel()
	w := newWorld(t, options{via: "api", spool: true})
	odd := make([]byte, 30_000)
	if _, err := rand.Read(odd); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct{ value, want string }{
		"much": {hex.EncodeToString(odd), "no rented machine can be ordered for the task: the request is refused: command and variables have "},
		"long": {strings.Repeat("x", 200_000), "the variable LONG has 200005 bytes, and a program takes 131071"},
		"fine": {strings.Repeat("x", 100_000), ""},
	} {
		if err := os.WriteFile(filepath.Join(w.dir, name), []byte("LONG="+c.value+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		for _, from := range []string{"", "--spool spool2 "} {
			out, errs, code := w.run("ponos-submit " + from + "--image registry.example.org/lines:2 --env-file " + name + " -- true")
			if c.want == "" && code == 0 && out != "" {
				continue
			}
			if code != 2 || out != "" || c.want == "" || !strings.Contains(errs, c.want) ||
				!strings.HasSuffix(errs, "ponos-submit: hint: put what is long into the image, or where the task can fetch it\n") {
				t.Errorf("%s: %d %q %q", name, code, out, errs)
			}
		}
	}
	if files, err := filepath.Glob(filepath.Join(w.dir, "spool*/new/*")); err != nil || len(files) != 2 {
		t.Errorf("%v %v", files, err)
	}
}

// Why a task waits is its REASON, and vast-offers --explain says what the market lacks in the same words.
func TestReasons(t *testing.T) {
	transports(t, func(t *testing.T, via string) {
		n := 0
		for want, c := range map[string]struct {
			extra  string
			change func(w *world)
			own    bool // it is no matter of offers
		}{
			`no suitable offer: of 2 offers, "max_cost_per_task 0.001" removes most: 2`: {"  max_cost_per_task: 0.001\n", func(*world) {}, false},
			"no credit: the account has $0.50, and min_credit is $1.00":                 {"", func(w *world) { w.market.SetCredit(0.5) }, false},
			"the daily quota of searches is used up": {"", func(w *world) {
				w.market.Break(server.Fault{Path: "bundles", Status: 429, Body: `{"success":false,"error":"search_quota_exceeded","msg":"Daily search quota exceeded"}`})
			}, false},
			"there are 1 instances, as many as max_instances":                          {"  max_instances: 1\n", (*world).busy, true},
			"1 instances were ordered within an hour, as many as max_creates_per_hour": {"  max_creates_per_hour: 1\n", (*world).busy, true},
			"the order is held for 5m0s: ": {"", func(w *world) {
				for n := range int64(2) {
					w.market.Refuse(31000001+n, server.Refusal{Status: 401, Code: "auth_error", Msg: "This key lacks the instance_write permission group"})
				}
			}, true},
		} {
			n++
			t.Run(fmt.Sprint(n), func(t *testing.T) { // its directory has no $
				t.Parallel()
				w := newWorld(t, options{via: via, spool: true, fake: true, scale: 1, extra: c.extra})
				w.offers(2)
				c.change(w)
				id, errs, code := w.run("ponos-submit --image registry.example.org/lines:2 -- sleep 100")
				if code != 0 {
					t.Fatal(id, errs)
				}
				w.run(turn)
				w.run(turn) // tells the queue what the last one has found
				listed, _, _ := w.run("ponos-list -l")
				explained, errs, _ := w.run("vast-offers --explain")
				if !strings.Contains(listed, want) || !c.own && !strings.Contains(explained+errs, want) {
					t.Errorf("%s%s%s", listed, explained, errs)
				}
			})
		}
	})
}

// busy has an instance run.
func (w *world) busy() {
	if out, errs, code := w.run("ponos-submit --image registry.example.org/lines:2 -- sleep 100"); code != 0 {
		w.t.Fatal(out, errs)
	}
	w.until("it runs", func() bool { _, ok := running(w); return ok })
}
