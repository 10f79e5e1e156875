package scheduler

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ponos-tools/ponos/lib/pool/core"
	"github.com/ponos-tools/ponos/lib/pool/input"
	"github.com/ponos-tools/ponos/lib/pool/journal"
	"github.com/ponos-tools/ponos/lib/pool/wire"
)

// ask sends requests to a scheduler that holds or serves.
func ask(requests chan<- *Request, r *Request) *Answer {
	got := make(chan *Answer, 1)
	r.Answer = func(a *Answer) { got <- a }
	base := oneCPU
	r.Base = &base
	requests <- r
	return <-got
}

func TestHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, 2)
		requests := make(chan *Request)
		l.cfg.Hold, l.cfg.Requests = true, requests
		go func() {
			time.Sleep(time.Minute)
			a := ask(requests, &Request{Op: "list"})
			if len(a.Tasks) != 2 || a.Tasks[0].State != "held" {
				t.Errorf("list: %+v", a.Tasks)
			}
			ask(requests, &Request{Op: "retry", Seqs: []int64{1}})
			time.Sleep(time.Minute)
			if a := ask(requests, &Request{Op: "cancel", All: true}); a.Count != 2 {
				t.Errorf("cancelled %d", a.Count)
			}
		}()
		l.want(l.run("sleep 1 1\nsleep 1\nsleep 1 2\n"), 1, 2, 0, 1)
	})
}

func TestServe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, 2)
		requests := make(chan *Request)
		l.cfg.Serve, l.cfg.Requests = true, requests
		run := func(cmd string, cpus int) *Answer {
			o := &input.Object{Cmd: wire.Text(cmd)}
			if err := o.Set(strconv.Itoa(cpus), "", "", "", "", ""); err != nil {
				t.Fatal(err)
			}
			return ask(requests, &Request{Op: "run", Task: o, Wait: true})
		}
		go func() {
			time.Sleep(time.Second)
			if a := run("sleep 5 4", 1); a.Result == nil || a.Result.Exit != 4 || a.Seq != 1 {
				t.Errorf("answer %+v", a)
			}
			if a := run("sleep 5", 3); !strings.Contains(a.Error, "no node of the pool has what the task needs: 3 CPUs") {
				t.Errorf("answer %+v", a)
			}
			if a := ask(requests, &Request{Op: "wait", Seqs: []int64{1}}); a.Result == nil || a.Result.Exit != 4 {
				t.Errorf("wait for what has ended: %+v", a)
			}
			if a := ask(requests, &Request{Op: "wait", Seqs: []int64{9}}); a.Error != "wait: unknown task 9" {
				t.Errorf("wait for nothing: %+v", a)
			}
			ask(requests, &Request{Op: "drain"})
		}()
		l.want(l.run(""), 0, 1, 0, 0)
	})
}

// Tasks that are added to a pool get numbers between those of its programs, and the pool ends when it was shut and all
// have ended. A scheduler that comes later runs what is left, with the same numbers.
func TestAdded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, 2)
		run := filepath.Join(l.dir, "run")
		requests := make(chan *Request)
		l.cfg.Serve, l.cfg.Requests = true, requests
		add := func(text wire.Text) {
			if _, err := input.Offer(run, &input.Addition{Text: text}); err != nil {
				t.Error(err)
			}
		}
		call := func(want int64) {
			if a := ask(requests, &Request{Op: "run", Task: &input.Object{Cmd: "sleep 1"}, Wait: true}); a.Result == nil || a.Seq != want {
				t.Errorf("answer %+v, want task %d", a, want)
			}
		}
		go func() {
			time.Sleep(time.Second)
			call(1)
			add("sleep 5\nsleep 5\n")
			time.Sleep(3 * time.Second)
			call(4)
			add("sleep 5 3")
			time.Sleep(3 * time.Second)
			add("sleep 7")
			if err := input.Shut(run); err != nil {
				t.Error(err)
			}
			time.Sleep(2 * time.Second)
			if a := ask(requests, &Request{Op: "run", Task: &input.Object{Cmd: "true"}}); a.Error != "run: the pool takes no more tasks" {
				t.Errorf("a task for a pool that was shut: %+v", a)
			}
		}()
		l.want(l.run(""), 5, 1, 0, 1)
		l.cfg.RetryFailed = true
		l.want(l.run(""), 0, 1, 0, 1)
		for seq, n := range map[int64]int{1: 1, 2: 1, 3: 1, 4: 1, 5: 2, 6: 1} {
			if got := l.ends()[seq]; got != n {
				t.Errorf("task %d has ended %d times, want %d", seq, got, n)
			}
		}
	})
}

// A pool that was shut while it had no scheduler ends when all has ended, and a later scheduler of it at once. One that is
// opened again while a task runs takes more, until it is shut again.
func TestShutForGood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, 1)
		run := filepath.Join(l.dir, "run")
		requests := make(chan *Request)
		l.cfg.Serve, l.cfg.Requests = true, requests
		do := func(err error) {
			t.Helper()
			if err != nil {
				t.Error(err)
			}
		}
		add := func() {
			_, err := input.Offer(run, &input.Addition{Text: "sleep 10"})
			do(err)
		}
		do(os.MkdirAll(run, 0o700))
		do(input.Begin(run))
		add()
		do(input.Shut(run))
		l.want(l.run(""), 1, 0, 0, 0)
		l.want(l.run(""), 0, 0, 0, 0)
		do(input.Reopen(run))
		add()
		do(input.Shut(run))
		go func() {
			time.Sleep(5 * time.Second)
			do(input.Reopen(run))
			time.Sleep(10 * time.Second)
			add()
			if a := ask(requests, &Request{Op: "run", Task: &input.Object{Cmd: "sleep 1"}}); a.Seq == 0 {
				t.Errorf("a pool that was opened again: %+v", a)
			}
			do(input.Shut(run))
		}()
		l.want(l.run(""), 3, 0, 0, 0)
	})
}

// A pool that stays open cuts its journal while it works, and forgets the files of tasks that were cut. The next scheduler
// goes on with the numbers, knows that the tasks have succeeded, and runs what is left.
func TestCutWhileItWorks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, 2)
		run := filepath.Join(l.dir, "run")
		requests := make(chan *Request)
		l.cfg.Serve, l.cfg.Requests, l.minCut = true, requests, 20_000
		offer := func(a *input.Addition) {
			t.Helper()
			if _, err := input.Offer(run, a); err != nil {
				t.Error(err)
			}
		}
		go func() {
			time.Sleep(time.Second)
			offer(&input.Addition{Text: "sleep 10000"})
			time.Sleep(time.Second) // files of the same time are taken in any order
			for range 30 {
				offer(&input.Addition{Text: wire.Text(tasks(20, "sleep 0.1"))})
				time.Sleep(5 * time.Second)
			}
			offer(&input.Addition{Text: "sleep 1 3"})
			time.Sleep(3 * time.Second)
			ask(requests, &Request{Op: "drain"})
			time.Sleep(8 * time.Second)
			ask(requests, &Request{Op: "cancel", Seqs: []int64{1}})
		}()
		l.want(l.run(""), 600, 2, 0, 0)
		if st, err := os.Stat(filepath.Join(run, journal.File)); err != nil || st.Size() > 45_000 {
			t.Errorf("the journal has %d bytes, %v", st.Size(), err)
		}
		if left, err := os.ReadDir(filepath.Join(run, input.Added)); err != nil || len(left) > 12 {
			t.Errorf("%d additions are left, %v", len(left), err)
		}
		l.minCut = 1
		go func() {
			time.Sleep(time.Second)
			offer(&input.Addition{Text: "sleep 1", After: []string{"7", "601"}})
			offer(&input.Addition{Text: "sleep 1", After: []string{"602"}})
			time.Sleep(9 * time.Second)
			if err := input.Shut(run); err != nil {
				t.Error(err)
			}
		}()
		l.want(l.run(""), 1, 1, 0, 1)
		if got := l.ends(); got[603] != 1 || got[604] != 1 {
			t.Errorf("ends %v", got)
		}
		p, err := journal.ReadPast(run)
		if err != nil || p.Done != 601 || len(p.Tasks) != 3 {
			t.Errorf("%+v, %v", p, err)
		}
	})
}

// Tasks that are offered while the last one of a run ends are run by it, or refused at once.
func TestAddedAtTheEnd(t *testing.T) {
	for delay := range 20 {
		synctest.Test(t, func(t *testing.T) {
			l := newLab(t, 1)
			run := filepath.Join(l.dir, "run")
			var offered int64
			done := make(chan bool)
			go func() {
				defer close(done)
				time.Sleep(10*time.Second + time.Duration(delay-10)*20*time.Millisecond)
				switch _, err := input.Offer(run, &input.Addition{Text: "sleep 1"}); {
				case err == nil:
					offered = 1
				case !errors.Is(err, fs.ErrNotExist):
					t.Error(err)
				}
			}()
			r := l.run("sleep 10\n")
			<-done
			l.want(r, 1+offered, 0, 0, 0)
		})
	}
}

// Tasks that were added and not taken when a pool is drained are left: the run has not come to its end.
func TestDrainedBeforeItIsTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, 1)
		run := filepath.Join(l.dir, "run")
		requests := make(chan *Request)
		l.cfg.Serve, l.cfg.Requests = true, requests
		go func() {
			time.Sleep(10500 * time.Millisecond)
			if _, err := input.Offer(run, &input.Addition{Text: "sleep 1"}); err != nil {
				t.Error(err)
			}
			ask(requests, &Request{Op: "drain"})
		}()
		l.want(l.run(""), 0, 0, 0, core.ExitLeft)
		go func() {
			time.Sleep(10 * time.Second)
			ask(requests, &Request{Op: "drain"})
		}()
		l.want(l.run(""), 1, 0, 0, 0)
		if _, err := input.Offer(run, &input.Addition{Text: "sleep 1"}); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("a run that has ended takes a task: %v", err)
		}
	})
}

// A cancellation is a file that stays until all its tasks have ended: the next scheduler has it, too, and the next but
// one does not.
func TestCancelledByFile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, 1)
		run := filepath.Join(l.dir, "run")
		requests := make(chan *Request)
		l.cfg.Serve, l.cfg.Requests = true, requests
		l.nodes[0].stubborn = true
		do := func(err error) {
			t.Helper()
			if err != nil {
				t.Error(err)
			}
		}
		add := func(text wire.Text) {
			_, err := input.Offer(run, &input.Addition{Text: text, JSON: true})
			do(err)
		}
		cancellations := func(want int) {
			t.Helper()
			if got, err := input.Grow(nil, run, oneCPU, false).Cancellations(); err != nil || len(got) != want {
				t.Errorf("%d cancellations, %v, want %d", len(got), err, want)
			}
		}
		go func() {
			time.Sleep(time.Second)
			add(`{"id":"a","cmd":"sleep 1000"}` + "\n" + `{"id":"b","cmd":"sleep 1"}` + "\n" + `{"id":"c","cmd":"sleep 2"}`)
			time.Sleep(2 * time.Second)
			do(input.Withdraw(run, []string{"b", "a"}))
			time.Sleep(5 * time.Second) // a has ten to end
			cancellations(1)
			time.Sleep(9 * time.Second)
			cancellations(0)
			add(`{"id":"d","cmd":"sleep 3"}`)
			do(input.Withdraw(run, []string{"d", "nobody", "77"}))
			ask(requests, &Request{Op: "drain"})
		}()
		l.want(l.run(""), 1, 2, 0, core.ExitLeft)
		cancellations(1)
		go func() {
			time.Sleep(15 * time.Second)
			cancellations(0)
			add(`{"id":"e","cmd":"sleep 1000"}` + "\n" + `{"id":"f","cmd":"sleep 1000"}`)
			time.Sleep(3 * time.Second)
			do(input.Withdraw(run, []string{input.All}))
			time.Sleep(20 * time.Second)
			add(`{"id":"g","cmd":"sleep 1"}`)
			do(os.WriteFile(filepath.Join(run, input.Offered, "1.cancel"), []byte("{"), 0o600))
			time.Sleep(5 * time.Second)
			do(input.Shut(run))
		}()
		l.want(l.run(""), 1, 3, 0, 1)
		l.says("1.cancel: not JSON: it ends too early")
	})
}
