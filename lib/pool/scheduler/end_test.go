package scheduler

import (
	"os"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ponos-tools/ponos/lib/base/clock"
)

func TestDrainAndResume(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, 2)
		signals := make(chan os.Signal, 1)
		l.cfg.Signals = signals
		go func() {
			time.Sleep(25 * time.Second)
			signals <- syscall.SIGUSR1
		}()
		l.want(l.run(tasks(10, "sleep 10")), 6, 0, 4, 75)
		l.want(l.run(tasks(10, "sleep 10")), 4, 0, 0, 0)
		for seq, n := range l.ends() {
			if n != 1 {
				t.Errorf("task %d ended %d times", seq, n)
			}
		}
		if r := l.run(tasks(10, "sleep 11")); r.Exit != 2 || r.Err == nil {
			t.Errorf("another list: exit %d, %v", r.Exit, r.Err)
		}
	})
}

func TestEndOfTheJob(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, 2)
		ends := make(chan time.Time, 1)
		ends <- clock.Now().Add(100 * time.Second)
		l.cfg.Ends, l.cfg.EndMargin, l.cfg.TimePerTask = ends, 10*time.Second, 20*time.Second
		began := time.Now()
		l.want(l.run(tasks(20, "sleep 20")), 8, 0, 12, 75)
		if d := time.Since(began); d > 81*time.Second {
			t.Errorf("took %v; want 80s: the fifth round would not end in time", d)
		}
		// What runs over its time is ended early enough to say so.
		l = newLab(t, 2)
		ends <- clock.Now().Add(100 * time.Second)
		l.cfg.Ends, l.cfg.EndMargin = ends, 10*time.Second
		l.want(l.run(tasks(3, "sleep 200")), 0, 0, 3, 75)
		if len(l.ends()) != 0 {
			t.Errorf("ends %v; want none", l.ends())
		}
	})
}

func TestSignals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, tt := range []struct {
			send []os.Signal
			done int64
			exit int
		}{
			{[]os.Signal{syscall.SIGINT}, 2, 130},
			{[]os.Signal{syscall.SIGINT, syscall.SIGINT}, 0, 130},
			{[]os.Signal{syscall.SIGINT, syscall.SIGINT, syscall.SIGINT}, 0, 130},
			{[]os.Signal{syscall.SIGTERM}, 0, 143},
		} {
			l := newLab(t, 2)
			signals := make(chan os.Signal, 8)
			l.cfg.Signals = signals
			go func() {
				for _, s := range tt.send {
					time.Sleep(5 * time.Second)
					signals <- s
				}
			}()
			l.want(l.run(tasks(5, "sleep 60")), tt.done, 0, 5-tt.done, tt.exit)
		}
	})
}

func TestHalt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, tt := range []struct {
			halt         Halt
			done, failed int64
			exit         int
		}{
			{Halt{Fail: 1}, 1, 1, 1},
			{Halt{Fail: 1, Now: true}, 0, 1, 1},
			{Halt{Success: 1, Now: true}, 1, 1, 0},
			{Halt{Percent: 90}, 9, 1, 1},
		} {
			l := newLab(t, 2)
			l.cfg.Halt = tt.halt
			r := l.run("sleep 1 1\n" + tasks(9, "sleep 5"))
			if r.Done != tt.done || r.Failed != tt.failed || r.Exit != tt.exit {
				t.Errorf("%+v: %d done, %d failed, exit %d; want %d, %d, %d", tt.halt, r.Done, r.Failed, r.Exit, tt.done, tt.failed, tt.exit)
			}
		}
	})
}
