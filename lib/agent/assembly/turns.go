package assembly

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/ponos-tools/ponos/lib/agent"
	"github.com/ponos-tools/ponos/lib/agent/guard"
	"github.com/ponos-tools/ponos/lib/base/app"
	"github.com/ponos-tools/ponos/lib/base/clock"
	"github.com/ponos-tools/ponos/lib/base/fault"
	"github.com/ponos-tools/ponos/lib/base/progress"
	"github.com/ponos-tools/ponos/lib/task"
	"github.com/ponos-tools/ponos/lib/task/queue"
)

// Turns are the turns of an agent, which ponos-poll takes: one, or with Every one after the other.
//
//	turn ──► wait ──► turn ──► ...
//	  │       └ until Every is over, Wake, a limit on submitted jobs begins to hold starts, or, early, there is news:
//	  │         a task or a stop in the spool, or a command that has begun or ended by its journal
//	  └─ Over, a signal, or what will not go away by itself ──► the end
type Turns struct {
	Options
	Stdout io.Writer // of the actions
	// Over is asked after each turn whether it was the last one; nil: a signal ends the turns.
	Over  func(*System) bool
	Wake  <-chan struct{} // the next turn is due; nil: never
	Begun func()          // called when this is the only agent; nil: nothing
}

// grace is how long a turn may continue after a signal.
const grace = 10 * time.Second

// Run takes the turns. A signal, which is the end of the context, ends them between two steps.
func (t Turns) Run(ctx context.Context) (err error) {
	line := progress.Open(t.Stderr, t.Tool)
	defer line.Close()
	t.Stdout, t.Stderr = line.Writer(t.Stdout), line.Writer(t.Stderr)
	t.Turns = true
	system, err := Load(ctx, t.Options)
	if err != nil {
		return err
	}
	defer func() { system.Close(err) }()
	held, err := system.Guard(ctx, t.Every > 0, t.Every)
	if err != nil {
		return err
	}
	defer held.Release()
	if programs := system.Agent.Programs; programs != nil {
		if _, err := programs.Installed(); err != nil {
			app.Report(t.Stderr, t.Tool, fault.Hint(fmt.Errorf("warning: no task can be started: %w", err), fault.HintOf(err)))
		}
	}
	if t.Begun != nil {
		t.Begun()
	}

	// A signal ends the tool between two steps of a turn, not in the middle of one.
	turns, cancel := context.WithCancelCause(context.WithoutCancel(progress.With(ctx, line)))
	defer cancel(nil)
	stop := context.AfterFunc(ctx, func() {
		time.AfterFunc(grace, func() { cancel(context.Cause(ctx)) })
	})
	defer stop()
	p := poller{
		Turns: t, system: system, guard: held, out: bufio.NewWriter(t.Stdout),
		passed: map[task.ID]passed{}, repeat: max(time.Minute, 3*t.Every), onEnd: make(chan error, 1), soon: soon(system),
	}
	system.Agent.Ended = p.ended
	if t.Every == 0 {
		return errors.Join(p.turn(turns), p.drainUploads(turns), system.RunOnEnd(turns), system.TidyDaily(turns))
	}
	over, err := p.loop(ctx, turns)
	err = errors.Join(err, p.endOnEnd())
	if over {
		err = errors.Join(err, system.RunOnEnd(turns)) // of a group that ended while others ran
	}
	err = errors.Join(err, system.SignOff())
	last, cancelLast := context.WithTimeout(turns, grace)
	defer cancelLast()
	if drainErr := p.drainUploads(last); last.Err() == nil {
		err = errors.Join(err, drainErr) // else the next agent continues with it
	}
	return err
}

// UntilDone takes turns until no task is left.
func (t Turns) UntilDone(ctx context.Context) error {
	for {
		var last *System
		var unknown error
		t.Over = func(p *System) bool {
			left, err := p.Left()
			last, unknown = p, err
			return !left && !fault.Is(err, fault.Unavailable)
		}
		err := t.Run(ctx)
		if err != nil || unknown != nil || ctx.Err() != nil {
			return errors.Join(err, unknown)
		}
		// A task that was submitted while this agent signed off was told that an agent runs.
		if left, err := last.Left(); !left || err != nil {
			return err
		}
	}
}

// Left reports whether tasks are left that this agent could take, or has taken. It needs a queue that people fill.
func (p *System) Left() (bool, error) {
	q, ok := p.Agent.Queue.(queue.Filled)
	if !ok {
		return false, fault.Errorf(fault.Usage, "the queue of %q is not a spool: it is not known what is left", p.Config.Path)
	}
	return q.Left()
}

// passed is an action that was passed on, and when.
type passed struct {
	kind task.Kind
	at   time.Time
}

type poller struct {
	Turns
	system *System
	guard  *guard.Guard
	out    *bufio.Writer
	// An action is passed on again after this time, if no process works on it yet.
	repeat time.Duration
	passed map[task.ID]passed
	starts bool       // the last turn has passed on a start
	broken bool       // the reader of the actions has gone
	onEnd  chan error // how the commands of groups have ended
	ending bool       // they run
	soon   time.Duration

	mu   sync.Mutex
	over []task.Outcome
}

// soon is the shortest pause before a turn that comes early because of news; longer where Slurm or a market is asked in it.
func soon(p *System) time.Duration {
	if p.mode.can().near {
		return looks
	}
	return time.Second / 2
}

// ended takes down what a task has cost, for the end of the turn.
func (p *poller) ended(o task.Outcome) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.over = append(p.over, o)
}

// printOver prints what has been taken down.
func (p *poller) printOver() error {
	p.mu.Lock()
	over := p.over
	p.over = nil
	p.mu.Unlock()
	for _, o := range over {
		if err := app.PrintJSONLine(p.out, o); err != nil {
			p.broken = true
			return fmt.Errorf("standard output: %w", err)
		}
	}
	return nil
}

// startOnEnd runs the commands of groups whose tasks have ended beside the next turns, and returns how those before have ended.
func (p *poller) startOnEnd(ctx context.Context) (err error) {
	if p.ending {
		select {
		case err = <-p.onEnd:
			p.ending = false
		default:
			return nil
		}
	}
	p.ending = true
	go func() { p.onEnd <- p.system.RunOnEnd(ctx) }()
	return err
}

// endOnEnd waits for the commands that still run, which grace limits.
func (p *poller) endOnEnd() error {
	if !p.ending {
		return nil
	}
	return <-p.onEnd
}

// drainUploads waits for uploads that the last turn left running. The actions are
// on their way by then, and others may take turns.
func (p *poller) drainUploads(ctx context.Context) error {
	err := p.system.Agent.WaitUploads(ctx)
	if p.broken {
		return err
	}
	err = errors.Join(err, p.printOver())
	if flushErr := p.out.Flush(); flushErr != nil {
		err = errors.Join(err, fmt.Errorf("standard output: %w", flushErr))
	}
	return err
}

// turn takes one turn and prints its actions.
func (p *poller) turn(ctx context.Context) error {
	actions, err := p.system.Agent.Poll(ctx)
	if err := p.printOver(); err != nil {
		return err
	}
	now := clock.Now()
	current := make(map[task.ID]passed, len(actions))
	p.starts = false
	for _, a := range actions {
		before, ok := p.passed[a.ID]
		ok = ok && (a.Kind != task.Start || p.system.Agent.Room() == agent.Unlimited) // what there was no room for has come back
		if ok && before.kind == a.Kind && now.Sub(before.at) < p.repeat {
			current[a.ID] = before
			continue
		}
		current[a.ID] = passed{a.Kind, now}
		p.starts = p.starts || a.Kind == task.Start
		if writeErr := app.PrintJSONLine(p.out, a); writeErr != nil {
			p.broken = true
			return fmt.Errorf("standard output: %w", writeErr)
		}
	}
	p.passed = current
	if writeErr := p.out.Flush(); writeErr != nil {
		p.broken = true
		return fmt.Errorf("standard output: %w", writeErr)
	}
	return err
}

// loop takes turns until a signal comes or they are over. Errors are reported and retried;
// only what will not go away by itself ends the loop.
func (p *poller) loop(signal, turns context.Context) (over bool, err error) {
	pause := pauses{every: p.Every, soon: p.soon, next: p.Every, why: due}
	for {
		began := clock.Now()
		err := errors.Join(p.guard.Alive(p.Every), p.turn(turns))
		took := clock.Now().Sub(began)
		switch {
		case signal.Err() != nil:
			return false, nil
		case p.broken, fault.Is(err, fault.Usage), fault.Is(err, fault.Busy):
			return false, err
		case err != nil:
			app.Report(p.Stderr, p.Tool, err)
			p.system.Problem(err)
		}
		for _, err := range []error{p.startOnEnd(turns), p.system.TidyDaily(turns)} {
			if err != nil {
				app.Report(p.Stderr, p.Tool, err)
			}
		}
		over := func() bool { return p.Over != nil && p.Over(p.system) }
		if over() {
			return true, nil
		}
		pause.turned(took, p.system.Agent.Room(), p.starts)
		switch why := p.sleep(signal, &pause, clock.Now()); {
		case why == signalled:
			return false, nil
		case why == woken && over():
			return true, nil
		default:
			pause.ended(why)
		}
	}
}

// waking is why a pause between two turns has ended.
type waking int

const (
	signalled waking = iota
	due              // its time is over
	woken            // somebody has asked for the next turn, or ended the turns
	limited          // a limit on submitted jobs holds what was passed on
	news             // there is news in the spool, or in a journal
)

// looks is the pause between two looks for news, of at most 6 files and directories each.
const looks = 200 * time.Millisecond

// sleep waits for the next turn, or until there is a reason for an early one after the turn at some time.
func (p *poller) sleep(signal context.Context, pause *pauses, turn time.Time) waking {
	end, early, last := time.After(jitter(pause.next)), time.After(pause.early), time.After(pause.last) // the last two in any order
	tick, look := time.NewTicker(time.Second), time.NewTicker(looks)
	defer tick.Stop()
	defer look.Stop()
	enough := agent.AllEnded + 1 // the news that end the pause: none yet
	for {
		select {
		case <-signal.Done():
			return signalled
		case <-end:
			return due
		case <-p.Wake:
			return woken
		case <-last:
			enough = min(enough, agent.AllEnded)
		case <-early:
			enough = agent.SomeNews
		case <-look.C:
			if p.news(enough) {
				return news
			}
		case <-tick.C:
			if p.system.Agent.Room() == agent.Unlimited && len(p.passed) > 0 && p.system.Agent.LimitedSince(turn) {
				return limited
			}
		}
	}
}

// news reports whether something has happened that the last turn has not seen, and that is enough for the next one.
func (p *poller) news(enough agent.News) bool {
	const journals = 3 // of a look
	if p.system.Agent.Noticed(journals) >= enough {
		return true
	}
	q, ok := p.system.Agent.Queue.(queue.Filled)
	return ok && enough == agent.SomeNews && q.Fresh()
}

// pauses are the times between turns.
type pauses struct {
	every, soon time.Duration // as configured, and the shortest before an early turn
	next, early time.Duration // until the next turn, and until an early one
	last        time.Duration // until one as all has ended
	row         time.Duration // what a row of early turns has made of soon
	why         waking        // the last one has ended
}

// turned sets the pauses after a turn. Early turns in a row come ever later, from 0.5 s to 10 s, 14 within 43 s, but for those
// that start tasks, which have waited for nothing else, and the one after which no command runs. In any case the pause is as long
// as the turn, whose length is also that of a slow host: the controller has half of the time for others.
func (p *pauses) turned(took time.Duration, room agent.Room, starts bool) {
	p.next = pace(p.next, p.every, took, room)
	switch {
	case p.why != news || starts:
		p.row = p.soon
	default:
		p.row = min(p.row+p.row/4, p.every)
	}
	p.early = min(max(p.row, took), p.every)
	p.last = min(max(p.soon, took), p.every)
}

// ended sets the pauses after one has ended.
func (p *pauses) ended(why waking) {
	p.why = why
	if why == limited {
		p.next = min(time.Second, p.every)
	}
}

// pace is the time until the next turn, after one that came last after the one before. While tasks wait for a limit on
// submitted jobs and jobs end quickly, turns come each second; without room, ever later: a dozen within 40 s. The pause is
// four times as long as the turn took, so that many agents of a slow controller leave it time for others.
func pace(last, every, took time.Duration, room agent.Room) time.Duration {
	switch room {
	case agent.SomeRoom:
		return min(max(time.Second, 4*took), every)
	case agent.NoRoom:
		return min(max(last+last/4, time.Second, 4*took), every)
	}
	return every
}

// jitter is a duration up to a tenth off, so that many agents do not ask in step.
func jitter(d time.Duration) time.Duration {
	return d - d/10 + time.Duration(rand.Int64N(int64(d/5)+1))
}
