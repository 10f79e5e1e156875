package assembly

import (
	"context"
	"io"

	"golang.org/x/sys/unix"

	"github.com/ponos-tools/ponos/lib/agent"
	"github.com/ponos-tools/ponos/lib/base/app"
	"github.com/ponos-tools/ponos/lib/base/fault"
	"github.com/ponos-tools/ponos/lib/base/progress"
	"github.com/ponos-tools/ponos/lib/task"
)

// Actions is a tool that does the queue's actions of one kind: those in the lines of
// its standard input, or for the tasks that its arguments name.
type Actions struct {
	Options
	Kind   task.Kind
	Jobs   int      // at the same time
	Args   []string // ids of tasks
	Stdin  io.Reader
	Stdout io.Writer
	// Do does the action for one task.
	Do func(context.Context, *System, task.ID) (task.Outcome, error)
}

// waiting is how many tasks may be open for each that is prepared or submitted: enough for a job
// array each.
const waiting = 48

// together is how many tasks are stopped together, each of which has its lock open.
func together() int {
	var files unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &files) != nil || files.Cur > 4*most {
		return most
	}
	return max(1, int(files.Cur)*3/4)
}

const most = 5000

// Run does the actions. Failures are reported as they happen; the error is the overall result.
func (a Actions) Run(ctx context.Context) (err error) {
	if a.Jobs < 1 {
		return fault.Errorf(fault.Usage, "--jobs must be at least 1, not %d", a.Jobs)
	}
	ids, err := agent.ParseIDs(a.Args)
	if err != nil {
		return err
	}
	if len(ids) == 0 && app.IsTerminal(a.Stdin) {
		return fault.Hint(fault.Errorf(fault.Usage, "no task is named, and standard input is a terminal"),
			`"ponos-poll | `+a.Tool+`" carries out the actions of the queue`)
	}
	line := progress.Open(a.Stderr, a.Tool)
	defer line.Close()
	a.Stdout, a.Stderr = line.Writer(a.Stdout), line.Writer(a.Stderr)
	ctx = progress.With(ctx, line)
	system, err := Load(ctx, a.Options)
	if err != nil {
		return err
	}
	defer func() { system.Close(err) }()
	s := &agent.Stream{
		Kind: a.Kind, Jobs: a.Jobs, Out: a.Stdout,
		Do: func(ctx context.Context, id task.ID) (task.Outcome, error) { return a.Do(ctx, system, id) },
		Problem: func(err error) {
			app.Report(a.Stderr, a.Tool, err)
			system.Problem(err)
		},
	}
	// Tasks that are ready wait for others, to be submitted or cancelled with them.
	can := system.Agent.Runner.Can()
	open := 0
	switch {
	case a.Kind == task.Start && can.Batch != nil:
		open = a.Jobs * waiting
	case a.Kind == task.Stop && can.Trim != nil:
		open = together()
	}
	if open > 0 {
		system.Agent.Places = make(chan struct{}, a.Jobs)
		s.Jobs, s.Enter = open, system.Agent.Enter
	}
	if len(ids) > 0 {
		return s.RunIDs(ctx, ids)
	}
	return s.Run(ctx, a.Stdin)
}
