package vast

import (
	"fmt"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ponos-tools/ponos/testscripts/vast/server"
)

// TestKilled kills the tools at each request that they make, before it has an effect
// and after. The vastai program lives on, and may still do what it was told.
func TestKilled(t *testing.T) {
	transports(t, func(t *testing.T, via string) {
		for _, step := range []struct{ name, method, path string }{
			{"searching", "POST", "^/api/v0/bundles/"}, {"ordering", "PUT", asks}, {"listing", "GET", lists},
			{"asking for a log", "PUT", "^/api/v0/instances/request_logs/"}, {"fetching a log", "GET", "^/logs/"}, {"destroying", "DELETE", one},
		} {
			for _, effect := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s effect %v", step.name, effect), func(t *testing.T) {
					t.Parallel()
					w := newWorld(t, options{via: via})
					w.offers(5)
					w.task("task", "echo done")
					hit := make(chan struct{}, 100)
					f := server.Fault{Method: step.method, Path: step.path, Times: 1, Hit: hit, Delay: 300 * time.Millisecond}
					if !effect {
						f.Status, f.Body = 503, "never"
					}
					w.market.Break(f)
					killed := false
					for range 100 {
						if killed = w.killed(turn, hit); killed {
							break
						}
					}
					if !killed {
						t.Fatal("the request was never made")
					}
					w.settled("task")
					if got := w.state("task"); got != "completed" {
						t.Errorf("task is %s", got)
					}
					if log := string(w.queue.Log("task")); strings.Count(log, "done\n") != 1 {
						t.Errorf("log:\n%s", log)
					}
					w.check("task")
				})
			}
		}
	})
}

// TestStopKilled kills ponos-stop at each request that it makes.
func TestStopKilled(t *testing.T) {
	transports(t, func(t *testing.T, via string) {
		for _, step := range []struct{ name, method, path string }{
			{"asking for a log", "PUT", "^/api/v0/instances/request_logs/"}, {"destroying", "DELETE", one}, {"listing", "GET", lists},
		} {
			t.Run(step.name, func(t *testing.T) {
				t.Parallel()
				w := newWorld(t, options{via: via})
				w.offers(2)
				w.task("task", "echo begun; echo; echo more; sleep 100")
				w.until("log", func() bool { return strings.Contains(string(w.queue.Log("task")), "begun") })
				if err := w.queue.Stop("task"); err != nil {
					t.Fatal(err)
				}
				w.due()
				hit := make(chan struct{}, 100)
				w.market.Break(server.Fault{Method: step.method, Path: step.path, Times: 1, Hit: hit, Delay: 200 * time.Millisecond})
				if !w.killed("ponos-stop "+w.id("task"), hit) {
					t.Fatal("the request was never made")
				}
				w.settled("task")
				if got := w.state("task"); got != "stopped" {
					t.Errorf("task is %s", got)
				}
				w.check("task")
			})
		}
	})
}

// killed runs a line and kills all its tools at once as soon as hit says so.
func (w *world) killed(line string, hit <-chan struct{}) bool {
	cmd := exec.Command("bash", "-c", line)
	cmd.Env, cmd.Dir = w.env, w.dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		w.t.Fatal(err)
	}
	over := make(chan struct{})
	go func() { _ = cmd.Wait(); close(over) }()
	select {
	case <-hit:
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		<-over
		return true
	case <-over:
		time.Sleep(30 * time.Millisecond)
		return false
	}
}
