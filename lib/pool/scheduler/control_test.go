package scheduler

import (
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ponos-tools/ponos/lib/pool"
	"github.com/ponos-tools/ponos/lib/pool/input"
	"github.com/ponos-tools/ponos/lib/pool/wire"
)

// ask sends requests to a scheduler that holds or serves.
func ask(requests chan<- *Request, r *Request) *Answer {
	got := make(chan *Answer, 1)
	r.Answer = func(a *Answer) { got <- a }
	r.Base = &pool.Spec{Need: pool.Need{CPUs: 1}}
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
