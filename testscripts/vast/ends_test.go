package vast

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ponos-tools/ponos/testscripts/harness"
	"github.com/ponos-tools/ponos/testscripts/vast/server"
)

// notAuthorized is what the documents have for a log.
var notAuthorized = &server.Refusal{Status: 403, Code: "not_authorized", Msg: "Not authorized to view logs for this instance"}

// A log that is refused for one instance does not keep the agent from the others, and
// its task ends by what the label says.
func TestOneLogRefused(t *testing.T) {
	transports(t, func(t *testing.T, via string) {
		w := newWorld(t, options{via: via})
		w.offers(5)
		slugs := []string{"one", "two", "three"}
		refused := filepath.Join(w.dir, "refused") // none may end, or have its log read, before
		for n, slug := range slugs {
			w.task(slug, fmt.Sprintf("until [ -e %s ]; do sleep 0.1; done; echo I am %s; exit %d", refused, slug, n))
		}
		w.until("they run", func() bool { return len(w.market.Alive()) == 3 })
		sick := w.market.Alive()[0]
		w.market.LogOf(sick.ID, notAuthorized)
		if err := os.WriteFile(refused, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		said := w.settled(slugs...)
		states := map[string]string{"one": "completed", "two": "failed", "three": "failed"}
		for slug, want := range states {
			log := string(w.queue.Log(slug))
			if w.state(slug) != want {
				t.Errorf("%s is %s, want %s\n%s", slug, w.state(slug), want, log)
			}
			lost := strings.Contains(log, "the end of the log could not be read") && strings.Contains(log, "Not authorized to view logs for this instance")
			if has := strings.Contains(log, "I am "+slug); has == strings.Contains(sick.Label, w.id(slug)) || has == lost {
				t.Errorf("log of %s:\n%s", slug, log)
			}
		}
		if strings.Contains(said, "the key is not accepted") {
			t.Errorf("the key is blamed:\n%s", said)
		}
		w.noSecrets()
		if left := w.market.Alive(); len(left) > 0 {
			t.Errorf("left are %+v", left)
		}
	})
}

// The store of the logs may send a request elsewhere. The key does not go along.
func TestLogElsewhere(t *testing.T) {
	transports(t, func(t *testing.T, via string) {
		w := newWorld(t, options{via: via})
		w.offers(2)
		w.market.Do(func() { w.market.LogRedirects = 2 })
		w.task("task", "echo hello; exit 4")
		w.settled("task")
		if log := string(w.queue.Log("task")); w.state("task") != "failed" || !strings.Contains(log, "hello\n") || strings.Contains(log, "could not be read") {
			t.Errorf("task is %s\n%s", w.state("task"), log)
		}
		for _, r := range w.market.Requests("^GET /logs/") {
			if r.Auth != "" {
				t.Errorf("the key went to the store: %+v", r.Path)
			}
		}
		w.check("task")
	})
}

// Nothing but a log is fetched, from nowhere but the web, and not in circles.
func TestLogNowhere(t *testing.T) {
	t.Parallel()
	for _, to := range []string{"file:///etc/passwd", "ftp://127.0.0.1/x", "/logs/0-0.log?again", "https://user:secret@localhost/", "/loop"} {
		w := newWorld(t, options{via: "api"})
		w.offers(2)
		w.market.Do(func() {
			w.market.LogRedirect = to
			if to == "/loop" {
				w.market.LogRedirect, w.market.LogRedirects = "", 1000
			}
		})
		w.task("task", "echo hello; exit 3")
		w.settled("task")
		if log := string(w.queue.Log("task")); w.state("task") != "failed" || !strings.Contains(log, "exit code 3") || !strings.Contains(log, "the end of the log could not be read: ") || strings.Contains(log, "secret") {
			t.Errorf("%s: task is %s\n%s", to, w.state("task"), log)
		}
		w.noSecrets()
	}
}

// The exit code is in the label, which lists show: a task whose log is never there is
// not an error. Without the label, there is nothing to go by.
func TestTwoWaysToTheEnd(t *testing.T) {
	noLog := func(m *server.Server) {
		m.Break(server.Fault{Method: "PUT", Path: "request_logs", Status: 404, Body: `{"error":"invalid_id","msg":"Invalid instance id."}`})
	}
	transports(t, func(t *testing.T, via string) {
		for _, c := range []struct {
			name, script, state, log string
			prepare                  func(m *server.Server)
		}{
			{"no log", "echo done", "completed", "the end of the log could not be read", noLog},
			{"no log and an exit code", "exit 9", "failed", "exit code 9", noLog},
			{"no label", "exit 9", "failed", "exit code 9", func(m *server.Server) { m.Do(func() { m.StopOnlyKeys = true }) }},
			{"neither", "exit 9", "error", "the instance was stopped, without an exit code of the task: its log could not be read", func(m *server.Server) {
				noLog(m)
				m.Do(func() { m.StopOnlyKeys = true })
			}},
		} {
			t.Run(c.name, func(t *testing.T) {
				t.Parallel()
				w := newWorld(t, options{via: via})
				w.offers(2)
				c.prepare(w.market)
				w.task("task", c.script)
				w.settled("task")
				if log := string(w.queue.Log("task")); w.state("task") != c.state || !strings.Contains(log, c.log) {
					t.Errorf("task is %s, want %s\n%s\n%s", w.state("task"), c.state, log, w.tell())
				}
				w.noSecrets()
				if n := len(w.market.Instances()); n != 1 || len(w.market.Alive()) > 0 {
					t.Errorf("%d instances, alive are %+v", n, w.market.Alive())
				}
			})
		}
	})
}

// A task that was over, and had said so by its label, before the agent knew of its
// instance is found all the same, and not started again.
func TestOverBeforeFound(t *testing.T) {
	transports(t, func(t *testing.T, via string) {
		w := newWorld(t, options{via: via, boot: time.Millisecond})
		w.offers(3)
		w.market.Break(server.Fault{Method: "PUT", Path: asks, Times: 1, Lose: true})
		w.task("task", "exit 5")
		w.run(turn)
		for start := time.Now(); !strings.HasSuffix(w.market.Instances()[0].Label, ":end=5"); time.Sleep(10 * time.Millisecond) {
			if time.Since(start) > harness.Patience {
				t.Fatal("the label does not tell the end")
			}
		}
		w.settled("task")
		if n := len(w.market.Instances()); n != 1 || w.state("task") != "failed" {
			t.Errorf("%d instances, task is %s", n, w.state("task"))
		}
		w.check("task")
	})
}

// An instance that is gone has told the end of its task before.
func TestGoneAfterTheEnd(t *testing.T) {
	t.Parallel()
	w := newWorld(t, options{via: "api"})
	w.offers(3)
	w.market.Do(func() { w.market.LogAfter = -1 })
	w.task("task", "sleep 1; exit 6")
	w.until("the end is seen", func() bool { return strings.Contains(w.orders(), `"told":"6"`) })
	w.market.Vanish(w.market.Alive()[0].ID)
	w.settled("task")
	if w.state("task") != "failed" {
		t.Errorf("task is %s\n%s", w.state("task"), w.queue.Log("task"))
	}
	w.check("task")
}

// What to do about a log that stays unreadable is said once, while the task goes on.
func TestLogStaysUnreadable(t *testing.T) {
	t.Parallel()
	w := newWorld(t, options{via: "api"})
	w.configure("log_interval: 100ms", "log_interval: 1ms")
	w.offers(1)
	w.task("task", "while sleep 0.1; do :; done")
	w.until("it runs", func() bool { _, ok := running(w); return ok })
	i, _ := running(w)
	w.market.LogOf(i.ID, notAuthorized)
	want := fmt.Sprintf(`try "vastai logs %d"; the key needs the permission group instance_read; the task itself continues`, i.ID)
	w.until("advice", func() bool { return strings.Contains(string(w.queue.Log("task")), want) })
	for range 12 {
		w.run(turn)
	}
	if log := string(w.queue.Log("task")); strings.Count(log, want) != 1 || w.state("task") != "running" {
		t.Errorf("task is %s\n%s", w.state("task"), log)
	}
	log := w.agentLog()
	if n := strings.Count(log, "the log stays unreadable"); n != 1 {
		t.Errorf("said %d times\n%s", n, log)
	}
	if n := strings.Count(log, "the log could not be read this time"); n > 1 {
		t.Errorf("%d warnings\n%s", n, log)
	}
	w.market.LogOf(i.ID, nil)
	w.until("it is read again", func() bool { return strings.Contains(string(w.queue.Log("task")), "the log can be read again") })
	if err := w.queue.Stop("task"); err != nil {
		t.Fatal(err)
	}
	w.due()
	w.settled("task")
	w.check("task")
}
