package run

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"

	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/ponos-tools/ponos/lib/agent/assembly"
	"github.com/ponos-tools/ponos/lib/agent/tasklist"
	"github.com/ponos-tools/ponos/lib/base/app"
	"github.com/ponos-tools/ponos/lib/base/clock"
	"github.com/ponos-tools/ponos/lib/base/fault"
	"github.com/ponos-tools/ponos/lib/base/shell"
	"github.com/ponos-tools/ponos/lib/task"
	"github.com/ponos-tools/ponos/lib/task/queue"
)

const (
	looks      = 250 * time.Millisecond // between two looks at the spool
	again      = 3 * time.Second        // within which a second ^C cancels
	twice      = 200 * time.Millisecond // within which two signals are one, which timeout(1) sends to a process and to its group
	redraw     = time.Second
	reread     = 10 * time.Second // the spool is read again even without a change
	patience   = 10 * time.Second // of a hang-up, for the end of the agent's turn
	showAnyway = 30 * time.Second // between two lines, where there is no terminal
)

// watch shows the tasks until they have ended, or until the run is left.
func (r *running) watch(ctx context.Context, stdin io.Reader) error {
	s := openScreen(r, stdin)
	defer s.close()
	notes := &notes{}
	attended := r.attend(ctx, notes)
	look, shown := r.spool.Look(r.single != ""), int64(0)
	text := app.Printable(r.stdout, app.IsTerminal(r.stdout))
	defer text.Close()
	tick := time.NewTicker(looks)
	defer tick.Stop()
	var tasks []queue.Summary
	var read time.Time
	var absent task.Absence
	var keys interrupts
	for {
		if now := clock.Now(); look() || now.Sub(read) > reread || now.Before(read) {
			all, err := r.spool.List()
			switch {
			case err == nil:
				tasks, read = r.mine(all), now
			case fault.Is(err, fault.Unavailable):
				notes.say(fault.Text(err))
			default:
				return errors.Join(err, attended.end(0))
			}
			if r.single != "" {
				if shown, err = tasklist.Follow(r.spool.Log(r.last(tasks)), shown, text); err != nil && !fault.Is(err, fault.Unavailable) {
					return errors.Join(err, attended.end(0))
				}
			}
			if err == nil && len(tasks) < len(r.wanted) {
				absent = absent.Again(now)
			} else {
				absent = task.Absence{}
			}
		}
		s.show(tasks, notes, clock.Now())
		switch over := !slices.ContainsFunc(tasks, func(t queue.Summary) bool { return !t.State.Final() }); {
		case absent.Fact():
			gone := len(r.wanted) - len(tasks)
			return errors.Join(fmt.Errorf("%d of %d tasks are gone from the spool", gone, len(r.wanted)), attended.end(0))
		case over && len(tasks) >= len(r.wanted):
			s.close()
			err := attended.over()
			s.flush(notes)
			r.handOver(attended, false)
			if err = errors.Join(err, r.end(tasks)); keys.cancelled {
				err = fault.Exit(128+int(syscall.SIGINT), err)
			}
			return err
		case keys.over(clock.Now()):
			return r.leave(s, attended, &app.Interrupted{Signal: syscall.SIGINT})
		}
		var event any
		typed := false
		select {
		case <-tick.C:
			continue
		case event = <-r.signals:
		case event = <-s.keys:
			typed = true
			if event == app.KeyEnd {
				event = syscall.SIGINT
			}
		case err := <-attended.failed:
			s.close()
			return err
		}
		pressed := repeated
		if event == syscall.SIGINT {
			pressed = keys.press(clock.Now(), typed)
		}
		switch {
		case event == "q":
			return r.leave(s, attended, nil)
		case event == syscall.SIGHUP || event == syscall.SIGTERM || pressed == leaves:
			return r.leave(s, attended, &app.Interrupted{Signal: event.(syscall.Signal)}) //nolint:forcetypeassert // see above
		case pressed == asks:
			s.say(fmt.Sprintf("^C again within %s cancels; else it goes on: %s shows it", again, r.again()))
		case pressed == cancels:
			open := slices.DeleteFunc(slices.Clone(tasks), func(t queue.Summary) bool { return t.State.Final() })
			s.say(fmt.Sprintf("cancelling %s", tasklist.CountOf(open)))
			if err := errors.Join(r.spool.Cancel(open)...); err != nil {
				notes.say(fault.Text(err))
			}
		}
	}
}

// interrupts are the presses of ^C, and what has followed:
//
//	none ──► asked ──► cancelled ──► the run is left
//	           └ again is over ──► the run is left
//
// Within twice of the first, another one is the same, unless it was typed.
type interrupts struct {
	asked     time.Time // zero: none
	cancelled bool
}

// press is what follows on one of them.
type press int

const (
	repeated press = iota // nothing
	asks
	cancels
	leaves
)

func (i *interrupts) press(now time.Time, typed bool) press {
	switch {
	case i.asked.IsZero():
		i.asked = now
		return asks
	case !typed && now.Sub(i.asked) < twice:
		return repeated
	case !i.cancelled:
		i.cancelled = true
		return cancels
	}
	return leaves
}

// over reports whether there is no second one to come.
func (i *interrupts) over(now time.Time) bool {
	return !i.asked.IsZero() && !i.cancelled && now.Sub(i.asked) > again
}

// again is the command that shows the run.
func (r *running) again() string { return "ponos run" + r.chosen + " --group " + r.group }

// name names the configuration, where the other tools do not find it.
func (r *running) name() {
	if r.chosen != "" {
		fmt.Fprintf(r.stderr, "%s: the other tools need: export PONOS_CONFIG=%s\n", name, shell.Quote(r.config.Path))
	}
}

// mine are the tasks of the run, with those that do some of them again in their place.
func (r *running) mine(all []queue.Summary) (found []queue.Summary) {
	wanted := make(map[task.ID]bool, len(r.wanted))
	for id := range r.wanted {
		wanted[id] = true
	}
	for _, s := range all {
		wanted[s.ID] = wanted[s.ID] || s.RetryOf != "" && wanted[s.RetryOf]
		if wanted[s.ID] && !s.Retried {
			found = append(found, s)
		}
	}
	return found
}

// last is the last attempt of a single task.
func (r *running) last(tasks []queue.Summary) task.ID {
	if len(tasks) > 0 {
		return tasks[0].ID
	}
	return r.single
}

// leave ends the watching of tasks that go on.
func (r *running) leave(s *screen, a *attendant, why *app.Interrupted) error {
	s.close()
	limit := time.Duration(0)
	if why != nil {
		limit = patience
	}
	if err := a.end(limit); err != nil {
		app.Report(r.stderr, name, err)
	}
	r.handOver(a, true)
	if why == nil {
		return fault.Exit(int(fault.Failed), nil) // it has not completed
	}
	return fault.Exit(128+int(why.Signal), nil)
}

// handOver gives what is left to another agent, if this process took the turns.
func (r *running) handOver(a *attendant, say bool) {
	to, err := "the agent", error(nil)
	if a.took() {
		o := r.options
		o.Stderr = io.Discard
		if to, err = assembly.HandOver(context.Background(), o, 10*time.Second); err != nil {
			app.Report(r.stderr, name, fault.Hint(fmt.Errorf("no agent goes on: %w", err), r.again()+" takes its place"))
			return
		}
	}
	if !say {
		if to != "" && a.took() { // for other tasks, or a command of a group that has failed
			fmt.Fprintf(r.stderr, "%s: %s goes on with what else is left\n", name, to)
		}
		return
	}
	text := fmt.Sprintf("%s: %s goes on; to look: %s", name, r.group, r.again())
	if to != "" && a.took() {
		text = fmt.Sprintf("%s: %s goes on with %s; to look: %s; to cancel: ponos-cancel --group %s", name, r.group, to, r.again(), r.group)
	}
	fmt.Fprintln(r.stderr, text)
	r.name()
}

// An attendant takes the turns of the agent as long as no other one does. It is
//
//	trying ──another agent runs, or Slurm is away──► waiting ──2 s and more──► trying
//	  └──► taking turns ──► ended
type attendant struct {
	cancel  context.CancelFunc
	failed  chan error    // what will not go away
	done    chan struct{} // closed at the end
	wake    chan struct{}
	mu      sync.Mutex
	isOver  bool
	taking  bool // now
	hasTurn bool // it was the agent at its end
}

// attend begins to attend to the tasks.
func (r *running) attend(ctx context.Context, notes *notes) *attendant {
	ctx, cancel := context.WithCancel(ctx)
	a := &attendant{cancel: cancel, failed: make(chan error, 1), done: make(chan struct{}), wake: make(chan struct{}, 1)}
	go func() {
		defer close(a.done)
		for pause := 2 * time.Second; ; pause = min(pause+time.Second, 5*time.Second) {
			t := assembly.Turns{
				Options: r.options, Wake: a.wake,
				Over:  func(*assembly.System) bool { return a.has(&a.isOver) },
				Begun: func() { a.set(&a.taking, true); a.set(&a.hasTurn, true); notes.say("") },
			}
			t.Stderr = notes
			err := t.Pipeline(ctx)
			a.set(&a.taking, false)
			switch {
			case ctx.Err() != nil:
				return
			case a.has(&a.isOver): // such as of the command of a group
				if err != nil && !fault.Is(err, fault.Busy) {
					notes.say(fault.Text(err))
				}
				return
			case fault.Is(err, fault.Busy):
				a.set(&a.hasTurn, false)
				notes.say("")
			case fault.Is(err, fault.Unavailable):
				notes.say(fault.Text(err))
			default:
				a.failed <- err
				return
			}
			select {
			case <-ctx.Done():
				return
			case <-a.wake:
			case <-time.After(pause):
			}
		}
	}()
	return a
}

func (a *attendant) set(what *bool, value bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	*what = value
}

func (a *attendant) has(what *bool) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return *what
}

// took reports whether this process was the agent.
func (a *attendant) took() bool { return a.has(&a.hasTurn) }

// over ends the turns, as all is done: the commands of groups that have ended run first.
func (a *attendant) over() error {
	a.set(&a.isOver, true)
	select {
	case a.wake <- struct{}{}:
	default:
	}
	return a.wait(0)
}

// end ends the turns as a signal does, and waits that long for them; 0: as long as it takes.
func (a *attendant) end(limit time.Duration) error {
	a.cancel()
	return a.wait(limit)
}

func (a *attendant) wait(limit time.Duration) error {
	timeout := (<-chan time.Time)(nil)
	if limit > 0 {
		timeout = time.After(limit)
	}
	select {
	case <-a.done:
	case <-timeout:
	}
	select {
	case err := <-a.failed:
		return err
	default:
		return nil
	}
}

// notes are what the agent has to say: of messages in a row that are alike, the first.
type notes struct {
	mu    sync.Mutex
	last  string
	fresh []string // not yet printed
	part  bytes.Buffer
}

func (n *notes) say(text string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.add(text)
}

func (n *notes) add(text string) {
	if text = app.Sanitize(text); text != n.last && text != "" {
		n.fresh = append(n.fresh, text)
	}
	n.last = text
}

// Write takes lines of messages.
func (n *notes) Write(p []byte) (int, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.part.Write(p)
	for {
		line, err := n.part.ReadString('\n')
		if err != nil {
			n.part.WriteString(line)
			return len(p), nil
		}
		n.add(strings.TrimPrefix(strings.TrimSuffix(line, "\n"), name+": "))
	}
}

// take takes what was not printed yet, and tells what holds now.
func (n *notes) take() (fresh []string, now string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	fresh, n.fresh = n.fresh, nil
	return fresh, n.last
}
