package vast

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ponos-tools/ponos/lib/base/clock"
	"github.com/ponos-tools/ponos/lib/base/command"
	"github.com/ponos-tools/ponos/lib/market/rented"
	"github.com/ponos-tools/ponos/lib/market/vastai"
	"github.com/ponos-tools/ponos/lib/task"
	"github.com/ponos-tools/ponos/lib/task/runner"
	"github.com/ponos-tools/ponos/testscripts/harness"
	"github.com/ponos-tools/ponos/testscripts/vast/server"
)

// crash ends the runner at a step of its work: before or after a call of the market, or
// when it asks what time it is, which it does before each line of the journal and
// between the files that it writes.
type crash struct {
	vastai.API
	at, step int
	// fine counts the clock and what comes before a call as well: by the program, a call
	// takes its time.
	fine  bool
	clock func() time.Time // nil: the real one
	mu    sync.Mutex
	// dead says that it has ended in what goes on beside a turn: the turn does not outlive
	// its next step.
	dead bool
}

type crashed struct{}

func (c *crash) here() {
	if c.hit() {
		panic(crashed{})
	}
}

func (c *crash) hit() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.dead {
		c.dead = false
		return true
	}
	c.step++
	return c.step == c.at
}

// beside is here, for what goes on beside a turn.
func (c *crash) beside() error {
	if !c.hit() {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.dead = true
	return errors.New("it has ended")
}

func (c *crash) before() {
	if c.fine {
		c.here()
	}
}

func (c *crash) now() time.Time {
	c.before()
	return c.plain()
}

// plain is the clock of what no promise stands on.
func (c *crash) plain() time.Time {
	if c.clock != nil {
		return c.clock()
	}
	return clock.Now()
}

func (c *crash) Account(ctx context.Context) (vastai.Account, error) {
	c.before()
	return c.API.Account(ctx)
}

func (c *crash) Search(ctx context.Context, s vastai.Search) (vastai.Found, error) {
	c.before()
	return c.API.Search(ctx, s)
}

func (c *crash) Create(ctx context.Context, offer int64, o vastai.Order) (vastai.Created, error) {
	c.here()
	created, err := c.API.Create(ctx, offer, o)
	c.here()
	return created, err
}

func (c *crash) List(ctx context.Context, label string) (vastai.Listing, error) {
	c.before()
	list, err := c.API.List(ctx, label)
	c.here()
	return list, err
}

func (c *crash) Show(ctx context.Context, id int64) (*vastai.Instance, error) {
	c.before()
	i, err := c.API.Show(ctx, id)
	c.here()
	return i, err
}

func (c *crash) Destroy(ctx context.Context, ids ...int64) error {
	if c.fine {
		if err := c.beside(); err != nil {
			return err
		}
	}
	err := c.API.Destroy(ctx, ids...)
	return errors.Join(err, c.beside())
}

func (c *crash) Log(ctx context.Context, id int64, lines int) ([]byte, error) {
	c.before()
	text, err := c.API.Log(ctx, id, lines)
	c.here()
	return text, err
}

// withEnv runs programs with more variables.
type withEnv struct {
	command.Runner
	env []string
}

func (r withEnv) Run(ctx context.Context, c command.Cmd) (command.Result, error) {
	c.Env = append(c.Env, r.env...)
	c.Timeout = max(c.Timeout, harness.Patience)
	return r.Runner.Run(ctx, c)
}

// TestCrash ends the runner at each step of a task's life, once: a new one finds what
// the old one has left, and the task has one instance, one end, and each line of its
// log once.
func TestCrash(t *testing.T) {
	transports(t, func(t *testing.T, via string) {
		w := newWorld(t, options{via: via, fake: true, boot: 2 * time.Millisecond})
		for _, stop := range []bool{false, true} {
			if stop && via == "cli" {
				continue // TestStopKilled has this
			}
			steps := 0
			for at := 1; ; at++ {
				c := &crash{API: w.api(), at: at, fine: via == "api"}
				w.live(c, stop)
				if steps = c.step; c.step < at {
					break
				}
				if t.Failed() {
					t.Fatalf("stop %v, ended at step %d", stop, at)
				}
			}
			if steps < 8 {
				t.Errorf("there were only %d steps", steps)
			}
		}
		w.noSecrets()
	})
}

// api is the transport within this process.
func (w *world) api() vastai.API {
	if w.via == "api" {
		r := vastai.NewREST(w.url, server.Key)
		r.Wait, r.Tries = 20*time.Millisecond, 2
		return r
	}
	c := vastai.NewCLI(withEnv{command.System, w.env}, w.url)
	c.Path, c.Wait, c.Tries = filepath.Join(w.dir, "bin/vastai"), 20*time.Millisecond, 2
	return c
}

// live is a task's life, with a crash in it.
func (w *world) live(c *crash, stop bool) {
	w.t.Helper()
	dir := w.t.TempDir()
	id := task.ID("00000000-0000-4000-8000-000000000001")
	ref := runner.Ref{Task: id, Dir: filepath.Join(dir, "tasks", string(id))}
	if err := os.MkdirAll(ref.Dir, 0o700); err != nil {
		w.t.Fatal(err)
	}
	for name, text := range map[string]string{runner.EnvFile: "SECRET=" + secret + "\x00", runner.CommandFile: "true\x00"} {
		if err := os.WriteFile(filepath.Join(ref.Dir, name), []byte(text), 0o600); err != nil {
			w.t.Fatal(err)
		}
	}
	w.market.AddOffer(int64(1000+len(w.market.Instances())), nil)
	first := len(w.market.Instances())
	var ends []task.State
	for range 40 {
		market := vastai.NewGovernor(c, filepath.Join(dir, "market"), 10*time.Millisecond, c.plain)
		market.Keep = rented.Kept()
		r := &rented.Runner{API: market, Dir: filepath.Join(dir, "vast"), Agent: "crash", Program: rented.Program{URL: "http://127.0.0.1:9/entry", Sums: "x"}, Fetch: fetched, Disk: 20, StopWait: 5 * time.Second, Now: c.now}
		whole := w.step(func() {
			jobs, err := r.Jobs(w.t.Context(), func() ([]runner.Ref, error) {
				if ref.Job == "" {
					return nil, nil
				}
				return []runner.Ref{ref}, nil
			})
			if err != nil {
				w.t.Error(err)
			}
			for _, job := range jobs {
				if ref.Job = job.ID; job.State.Final() && len(ends) == 0 {
					ends = append(ends, job.State)
				}
			}
			if ref.Job == "" && len(ends) == 0 {
				job, err := r.Start(w.t.Context(), runner.Submission{Task: id, Dir: ref.Dir, Image: "img", Attempt: 1})
				if err == nil {
					ref.Job = job.ID
				}
			}
		})
		for _, i := range w.market.Alive() {
			if i.Actual == "running" && len(i.Log) == 0 {
				w.market.SetLog(i.ID, "@0 hello\n")
				if !stop {
					w.market.SetLog(i.ID, "@0 hello\nPONOS-EXIT "+i.Env["PONOS_NONCE"]+" 0\n")
				}
			} else if i.Actual == "running" && whole && stop && len(ends) == 0 {
				w.step(func() {
					if err := r.Stop(w.t.Context(), ref); err != nil {
						w.t.Error(err)
					}
				})
			}
		}
		open, _ := filepath.Glob(filepath.Join(dir, "vast/orders/*.json"))
		if len(ends) > 0 && len(open) == 0 {
			break
		}
		time.Sleep(2 * time.Millisecond)
	}
	want := task.Completed
	if stop {
		want = task.Stopped
	}
	if n := len(w.market.Instances()) - first; n != 1 || len(ends) != 1 || ends[0] != want || len(w.market.Alive()) > 0 {
		w.t.Errorf("%d instances, ends %v, alive %+v", n, ends, w.market.Alive())
	}
	if log, err := os.ReadFile(filepath.Join(ref.Dir, runner.Output)); err != nil || string(log) != "hello\n" {
		w.t.Errorf("log %q, %v", log, err)
	}
	b, err := os.ReadFile(filepath.Join(dir, "vast/journal.jsonl"))
	for _, event := range []string{"intent", "created", "ended", "destroy", "gone"} {
		if !strings.Contains(string(b), `"event":"`+event+`"`) {
			w.t.Errorf("the journal lacks %s, %v\n%s", event, err, b)
		}
	}
}

// step does something, and reports whether it came to its end.
func (w *world) step(do func()) (whole bool) {
	defer func() {
		if e := recover(); e != nil {
			if _, ok := e.(crashed); !ok {
				panic(e)
			}
		}
	}()
	do()
	return true
}

// A clock that was set back by a day does not keep the agent from its instances.
func TestClockSetBack(t *testing.T) {
	t.Parallel()
	w := newWorld(t, options{via: "api", fake: true, boot: 2 * time.Millisecond})
	tomorrow := clock.Now().Add(24 * time.Hour)
	w.live(&crash{API: w.api(), fine: true, clock: func() time.Time {
		if len(w.market.Instances()) == 0 || len(w.market.Alive()) > 0 && len(w.market.Alive()[0].Log) == 0 {
			return tomorrow
		}
		return clock.Now()
	}}, false)
}
