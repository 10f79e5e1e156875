// Package poll is the tool ponos-poll, which is one turn of the agent, or one after the other.
package poll

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"runtime/debug"
	"sync"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/ponos-tools/ponos/lib/agent"
	"github.com/ponos-tools/ponos/lib/agent/assembly"
	"github.com/ponos-tools/ponos/lib/agent/guard"
	"github.com/ponos-tools/ponos/lib/base/app"
	"github.com/ponos-tools/ponos/lib/base/clock"
	"github.com/ponos-tools/ponos/lib/base/fault"
	"github.com/ponos-tools/ponos/lib/base/progress"
	"github.com/ponos-tools/ponos/lib/base/unit"
	"github.com/ponos-tools/ponos/lib/task"
)

const name = "ponos-poll"

// Usage is what the tool does, in a line.
const Usage = "report job states to the queue, and print its actions"

// Main runs the tool as the whole process, and returns its exit status.
func Main() int {
	// Most turns have ended before their garbage matters.
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(400)
	}
	// With very many tasks, it does.
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(80 << 20)
	}
	return app.Main(run)
}

func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	return app.Tool{
		Name:  name,
		Usage: Usage,
		Description: "Reports states and logs of running tasks, and prints the queue's actions as\n" +
			"JSON lines: one turn, or with --every one after the other.",
		Examples: "ponos-poll | ponos-stop | ponos-start\nponos-poll --every 10s | ponos-stop | ponos-start",
		Flags: []cli.Flag{
			app.ConfigFlag(),
			&cli.StringFlag{Name: "every", Aliases: []string{"e"}, Usage: "take a turn every `DURATION`, such as 10s or 1m"},
			app.VerboseFlag(),
		},
		Action: func(c *cli.Context) error { return poll(c, stdout, stderr) },
	}.Run(ctx, args, stdin, stdout, stderr)
}

// grace is how long a turn may continue after a signal.
const grace = 10 * time.Second

func poll(c *cli.Context, stdout, stderr io.Writer) (err error) {
	every := time.Duration(0)
	if c.IsSet("every") {
		if every, err = unit.Duration(c.String("every")); err != nil || every < time.Second {
			return fault.Errorf(fault.Usage,
				"--every: invalid value %q: expected a duration of at least 1s, such as 10s", c.String("every"))
		}
	}
	line := progress.Open(stderr, name)
	defer line.Close()
	stdout, stderr = line.Writer(stdout), line.Writer(stderr)
	system, err := assembly.Load(c.Context, assembly.Options{
		ConfigPath: c.String("config"), Verbose: c.Bool("verbose"), Stderr: stderr, Tool: name, Turns: true, Every: every,
	})
	if err != nil {
		return err
	}
	defer func() { system.Close(err) }()
	held, err := system.Guard(c.Context, every > 0, every)
	if err != nil {
		return err
	}
	defer held.Release()

	// A signal ends the tool between two steps of a turn, not in the middle of one.
	turns, cancel := context.WithCancelCause(context.WithoutCancel(progress.With(c.Context, line)))
	defer cancel(nil)
	stop := context.AfterFunc(c.Context, func() {
		time.AfterFunc(grace, func() { cancel(context.Cause(c.Context)) })
	})
	defer stop()
	p := poller{
		system: system, guard: held, out: bufio.NewWriter(stdout), stderr: stderr,
		passed: map[task.ID]passed{}, repeat: max(time.Minute, 3*every), onEnd: make(chan error, 1),
	}
	system.Agent.Ended = p.ended
	if every == 0 {
		return errors.Join(p.turn(turns), p.drainUploads(turns), system.RunOnEnd(turns), system.TidyDaily(turns))
	}
	err = errors.Join(p.loop(c.Context, turns, every), p.endOnEnd())
	err = errors.Join(err, system.SignOff())
	last, cancelLast := context.WithTimeout(turns, grace)
	defer cancelLast()
	if drainErr := p.drainUploads(last); last.Err() == nil {
		err = errors.Join(err, drainErr) // else the next agent continues with it
	}
	return err
}

// passed is an action that was passed on, and when.
type passed struct {
	kind task.Kind
	at   time.Time
}

type poller struct {
	system *assembly.System
	guard  *guard.Guard
	out    *bufio.Writer
	stderr io.Writer
	// An action is passed on again after this time, if no process works on it yet.
	repeat time.Duration
	passed map[task.ID]passed
	broken bool       // the reader of the actions has gone
	onEnd  chan error // how the commands of groups have ended
	ending bool       // they run

	mu   sync.Mutex
	over []task.Outcome
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
	for _, a := range actions {
		before, ok := p.passed[a.ID]
		ok = ok && (a.Kind != task.Start || p.system.Agent.Room() == agent.Unlimited) // what there was no room for has come back
		if ok && before.kind == a.Kind && now.Sub(before.at) < p.repeat {
			current[a.ID] = before
			continue
		}
		current[a.ID] = passed{a.Kind, now}
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

// loop takes turns until a signal comes. Errors are reported and retried;
// only what will not go away by itself ends the loop.
func (p *poller) loop(signal, turns context.Context, every time.Duration) error {
	for wait := every; ; {
		began := clock.Now()
		err := errors.Join(p.guard.Alive(every), p.turn(turns))
		took := clock.Now().Sub(began)
		switch {
		case signal.Err() != nil:
			return nil
		case p.broken, fault.Is(err, fault.Usage), fault.Is(err, fault.Busy):
			return err
		case err != nil:
			app.Report(p.stderr, name, err)
			p.system.Problem(err)
		}
		for _, err := range []error{p.startOnEnd(turns), p.system.TidyDaily(turns)} {
			if err != nil {
				app.Report(p.stderr, name, err)
			}
		}
		wait = pace(wait, every, took, p.system.Agent.Room())
		if early, ok := p.sleep(signal, jitter(wait), clock.Now()); !ok {
			return nil
		} else if early {
			wait = min(time.Second, every)
		}
	}
}

// sleep waits for the next turn, or until a limit on submitted jobs begins to hold what the turn at some time has
// passed on, and says which of the two; not ok: a signal came.
func (p *poller) sleep(signal context.Context, wait time.Duration, turn time.Time) (early, ok bool) {
	end := time.After(wait)
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-signal.Done():
			return false, false
		case <-end:
			return false, true
		case <-tick.C:
			if p.system.Agent.Room() == agent.Unlimited && len(p.passed) > 0 && p.system.Agent.LimitedSince(turn) {
				return true, true
			}
		}
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
