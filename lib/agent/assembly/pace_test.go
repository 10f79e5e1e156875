package assembly

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/ponos-tools/ponos/lib/agent"
	"github.com/ponos-tools/ponos/lib/task/queue"
)

func TestPace(t *testing.T) {
	const every = 10 * time.Second
	for _, tt := range []struct {
		last, every, took time.Duration
		room              agent.Room
		want              time.Duration
	}{
		{every, every, 0, agent.Unlimited, every}, {time.Second, every, 0, agent.Unlimited, every}, {every, every, 0, agent.NoRoom, every},
		{every, every, 0, agent.SomeRoom, time.Second}, {time.Second, every, 0, agent.NoRoom, 1250 * time.Millisecond},
		{8 * time.Second, every, 0, agent.NoRoom, every}, {time.Second, time.Second, 0, agent.SomeRoom, time.Second},
		{time.Second, every, time.Second, agent.SomeRoom, 4 * time.Second}, {time.Second, every, time.Second, agent.NoRoom, 4 * time.Second},
		{time.Second, every, time.Minute, agent.SomeRoom, every}, {time.Second, every, time.Minute, agent.Unlimited, every},
	} {
		if got := pace(tt.last, tt.every, tt.took, tt.room); got != tt.want {
			t.Errorf("%+v: %v", tt, got)
		}
	}
}

// TestEarlyTurns holds how soon news may bring the next turn.
func TestEarlyTurns(t *testing.T) {
	const every = 10 * time.Second
	p := pauses{every: every, soon: time.Second, next: every, why: due}
	for i, step := range []struct {
		why    waking
		took   time.Duration
		starts bool
		want   time.Duration
	}{
		{due, 0, false, time.Second},
		{news, 0, false, 1250 * time.Millisecond},      // in a row: ever later
		{news, 0, false, 1562500 * time.Microsecond},   //
		{news, 0, true, time.Second},                   // tasks have waited for what was seen
		{news, 0, true, time.Second},                   // such as each end of a group with a limit
		{news, 2 * time.Second, true, 2 * time.Second}, // a slow host or controller: no more than half of the time
		{news, time.Minute, false, every},              //
		{news, 0, false, 1562500 * time.Microsecond},   // one slow turn does not slow down the next ones
		{due, 0, false, time.Second},
	} {
		p.ended(step.why)
		p.turned(step.took, agent.Unlimited, step.starts)
		if p.early != step.want {
			t.Errorf("step %d: %v, want %v", i, p.early, step.want)
		}
		if want := min(max(time.Second, step.took), every); p.last != want { // all has ended: not later for a row
			t.Errorf("step %d: all has ended: %v, want %v", i, p.last, want)
		}
	}
}

// fresh is a queue that always has news.
type fresh struct{ queue.Filled }

func (fresh) Fresh() bool { return true }

// TestNewsEndsAPause checks that news ends a pause as soon as it may, whichever of its times comes first.
func TestNewsEndsAPause(t *testing.T) {
	for _, pause := range []pauses{{early: time.Second, last: 2 * time.Second}, {early: 2 * time.Second, last: time.Second}, {early: time.Second, last: time.Second}} {
		synctest.Test(t, func(t *testing.T) {
			p := &poller{system: &System{Agent: &agent.Agent{Queue: fresh{}}}}
			began := time.Now()
			pause.next = time.Minute
			if why := p.sleep(t.Context(), &pause, began); why != news || time.Since(began) > pause.early+2*looks {
				t.Errorf("%+v: %v after %v", pause, why, time.Since(began))
			}
		})
	}
}
