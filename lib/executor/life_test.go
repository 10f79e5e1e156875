package executor

import (
	"fmt"
	"syscall"
	"testing"
	"time"
)

// A walk is one history of a command, and what a stranger can see of it.
type walk struct {
	life
	path string
	now  time.Time
	// What was asked for, and what was sent:
	why      Why
	want     State
	asked    time.Time // when SIGTERM was sent; zero: never
	killed   bool
	counted  time.Duration // for which it has run, without what does not count
	previous State
}

const (
	testLimit = 10 * time.Second
	testGrace = 3 * time.Second
)

func (w *walk) sent(t *testing.T, sig syscall.Signal) {
	t.Helper()
	switch sig {
	case 0:
		if w.state >= Running && w.state < Ended && w.state < w.want {
			t.Fatalf("%s: it is to end, and gets no signal", w.path)
		}
		return
	case syscall.SIGTERM:
		if !w.asked.IsZero() || w.killed {
			t.Fatalf("%s: SIGTERM once more", w.path)
		}
		w.asked = w.now
	case syscall.SIGKILL:
		if grace := !w.asked.IsZero() && w.now.Sub(w.asked) >= testGrace; w.want != Killed && !grace && !w.killed {
			t.Fatalf("%s: killed without a cause", w.path)
		}
		w.killed = true
	}
	if w.previous < Running && w.state < Running || w.previous == Ended || w.life.why != w.why {
		t.Fatalf("%s: signal %d in state %d for %q, want %q", w.path, sig, w.previous, w.life.why, w.why)
	}
}

// step returns what may happen next.
func (w walk) step(t *testing.T, what int) (walk, bool) {
	names := []string{"starts", "fails", "begins", "4 s", "4 s suspended", "is asked", "is killed", "ends"}
	w.path, w.previous = w.path+", "+names[what], w.state
	runs := w.state >= Running && w.state < Ended
	switch what {
	case 0:
		if w.state != Waiting {
			return w, false
		}
		w.starts()
	case 1:
		if w.state != Starting {
			return w, false
		}
		w.failed()
	case 2:
		if w.state != Starting {
			return w, false
		}
		w.sent(t, w.begun(w.now, testLimit, testGrace))
	case 3:
		w.now = w.now.Add(4 * time.Second)
		if runs {
			w.counted += 4 * time.Second
		}
		sig, late := w.tick(w.now, testGrace)
		w.sent(t, sig)
		if want := w.previous == Running && w.counted >= testLimit; late != want {
			t.Fatalf("%s: its time is up: %v after %v", w.path, late, w.counted)
		}
		if !w.asked.IsZero() && w.now.Sub(w.asked) >= testGrace && runs && !w.killed {
			t.Fatalf("%s: it lives after the grace", w.path)
		}
	case 4:
		w.now = w.now.Add(4 * time.Second)
		if !w.asked.IsZero() {
			w.asked = w.asked.Add(4 * time.Second)
		}
		w.postpone(4 * time.Second)
		if sig, late := w.tick(w.now, testGrace); late != (w.state == Running && w.counted >= testLimit) || sig != 0 && !w.killed {
			t.Fatalf("%s: signal %d, late %v by time that does not count", w.path, sig, late)
		}
	case 5, 6:
		how, why := Asked, Why("asked")
		if what == 6 {
			how, why = Killed, "killed"
		}
		if w.state != Ended {
			w.want = max(w.want, how)
			if w.why == "" {
				w.why = why
			}
		}
		w.sent(t, w.end(why, how, w.now, testGrace))
	case 7:
		if !runs {
			return w, false
		}
		w.ended()
	}
	if w.life.why != w.why {
		t.Fatalf("%s: ended for %q, want %q", w.path, w.life.why, w.why)
	}
	return w, true
}

// Whatever happens in whatever order, a command is asked once before it is killed, is killed only when the
// grace is over or that is wanted, and then surely; its first reason counts; a suspension ends nothing.
func TestLife(t *testing.T) {
	walks := 0
	var explore func(walk, int)
	explore = func(w walk, depth int) {
		walks++
		for what := range 8 {
			if next, ok := w.step(t, what); ok && depth > 1 {
				explore(next, depth-1)
			}
		}
	}
	explore(walk{now: time.Unix(1e9, 0)}, 8)
	if walks < 100_000 {
		t.Errorf("only %s were explored", fmt.Sprint(walks))
	}
}
