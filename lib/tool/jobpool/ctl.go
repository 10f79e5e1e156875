package jobpool

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/ponos-tools/ponos/lib/base/app"
	"github.com/ponos-tools/ponos/lib/base/clock"
	"github.com/ponos-tools/ponos/lib/base/fault"
	"github.com/ponos-tools/ponos/lib/base/progress"
	"github.com/ponos-tools/ponos/lib/pool"
	"github.com/ponos-tools/ponos/lib/pool/control"
	"github.com/ponos-tools/ponos/lib/pool/core"
	"github.com/ponos-tools/ponos/lib/pool/input"
	"github.com/ponos-tools/ponos/lib/pool/journal"
	"github.com/ponos-tools/ponos/lib/pool/pilot"
	"github.com/ponos-tools/ponos/lib/pool/scheduler"
	"github.com/ponos-tools/ponos/lib/pool/transport"
	"github.com/ponos-tools/ponos/lib/pool/wire"
)

// runFlag is the flag that names the run; verb is what the command does with it.
func runFlag(verb string) cli.Flag {
	return &cli.StringFlag{Name: "run", Usage: verb + " the run in `DIR` (the last run)"}
}

func ctlFlags(more ...cli.Flag) []cli.Flag {
	return append([]cli.Flag{runFlag("control")}, more...)
}

var jsonFlag = &cli.BoolFlag{Name: "json", Usage: "print JSON"}

func ctlCommand() *cli.Command {
	return &cli.Command{
		Name: "ctl", Usage: "inspect and control a run",
		Subcommands: []*cli.Command{
			{
				Name: "status", Usage: "show progress", Action: ctlStatus,
				Flags: ctlFlags(jsonFlag, &cli.StringFlag{Name: "watch", Usage: "print one line every `TIME` until the run has ended"}),
			},
			{Name: "list", Usage: "list the tasks that have not ended", Flags: ctlFlags(jsonFlag), Action: ctlList},
			{Name: "explain", Usage: "explain what a task waits for", ArgsUsage: "TASK", Flags: ctlFlags(jsonFlag), Action: ctlExplain},
			{
				Name: "add", Usage: "add tasks: the commands of standard input, or one command", ArgsUsage: "[COMMAND [ARG...]]",
				Action: ctlAdd,
				Flags: ctlFlags(append(needFlags("each task"),
					&cli.StringFlag{Name: "time", Usage: "expected run time of each task: `TIME`"},
					&cli.StringFlag{Name: "priority", Usage: "tasks with a higher `N` start first (0)"},
					&cli.StringFlag{Name: "cwd", Aliases: []string{"D"}, Usage: "run the tasks in `DIR`"},
					&cli.StringSliceFlag{Name: "after", Usage: "start when `TASK`, a number or id, has succeeded; repeatable"},
					&cli.BoolFlag{Name: "jsonl", Usage: "standard input has one JSON object per line"})...),
			},
			{
				Name: "retry", Usage: "run tasks on hold, or failed tasks of an ended run, again", ArgsUsage: "TASK...|all",
				Flags: ctlFlags(), Action: ctlRetry,
			},
			{Name: "cancel", Usage: "cancel tasks", ArgsUsage: "TASK...|all", Flags: ctlFlags(), Action: ctlCancel},
			{
				Name: "close", Usage: "take no more tasks, and exit when all have ended", Flags: ctlFlags(), Action: ctlClose,
			},
			{Name: "open", Usage: "take tasks again after close", Flags: ctlFlags(), Action: ctlOpen},
			{Name: "drain", Usage: "start no more tasks, and exit when running tasks have ended", Flags: ctlFlags(), Action: ctlDrain},
			{
				Name: "nodes", Usage: "list, add and remove nodes", Flags: ctlFlags(jsonFlag), Action: ctlNodes,
				Subcommands: []*cli.Command{
					{Name: "list", Usage: "list the nodes", Flags: ctlFlags(jsonFlag), Action: ctlNodes},
					{Name: "add", Usage: "add nodes, named as for --nodes", ArgsUsage: "HOST...", Flags: ctlFlags(), Action: ctlNodesAdd},
					{
						Name: "remove", Usage: "remove nodes when their tasks have ended", ArgsUsage: "NODE...", Action: ctlNodesRemove,
						Flags: ctlFlags(&cli.BoolFlag{Name: "now", Usage: "end their tasks at once; they run again on other nodes"}),
					},
				},
			},
			{
				Name: "usage", Usage: "list the tasks that ran on each node, and how many at a time", Action: ctlUsage, Flags: ctlFlags(),
			},
		},
	}
}

// dial connects to the scheduler of the run, by a step beside it where that is a Slurm
// job's at another host.
func dial(c *cli.Context) (*control.Client, error) {
	client, err := control.Dial(existing(c))
	var away *control.AwayError
	if !errors.As(err, &away) || away.Job == "" {
		if away == nil && between(existing(c)) {
			err = fault.Hint(err, noScheduler)
		}
		return client, err
	}
	dir, e := filepath.Abs(existing(c))
	if e != nil {
		return nil, e
	}
	programs := []string{filepath.Join(dir, "bin", "jobpool")}
	if self, e := os.Executable(); e == nil {
		programs = append(programs, self)
	}
	link, e := transport.Beside(away.Job, away.Node, transport.WorkerCommand(programs, "call", "--raw", "--run", dir))
	if e != nil {
		return nil, errors.Join(err, e)
	}
	return control.NewClient(link), nil
}

// ask sends one request and returns its answer.
func ask(c *cli.Context, r *scheduler.Request) (*scheduler.Answer, error) {
	client, err := dial(c)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	return exchange(client, r)
}

// exchange sends one request and receives its answer.
func exchange(client *control.Client, r *scheduler.Request) (*scheduler.Answer, error) {
	err := client.Send(r)
	var a *scheduler.Answer
	if err == nil || errors.Is(err, syscall.EPIPE) { // a step that has ended says why
		a, err = client.Receive()
	}
	// A step in a job that has ended: the job was killed, and the run directory still names it.
	if err != nil && strings.Contains(err.Error(), "Expired or invalid job") {
		err = fault.Hint(err, noScheduler)
	}
	return a, err
}

func ctlStatus(c *cli.Context) error {
	if c.IsSet("watch") {
		return watchStatus(c)
	}
	a, err := look(c, &scheduler.Request{Op: "status"})
	if err != nil {
		return whyAbsent(c, err)
	}
	s := a.Status
	if c.Bool("json") {
		return app.PrintJSON(c.App.Writer, s)
	}
	if s.Phase == endedPhase {
		return pastText(c, s)
	}
	w := c.App.Writer
	fmt.Fprintf(w, "%s for %s: %d done, %d failed, %d cancelled, %d skipped, %d running, %d waiting, %d on hold\n",
		s.Phase, seconds(s.Elapsed), s.Done, s.Failed, s.Cancelled, s.Skipped, s.Running, s.Waiting, s.Held)
	if s.EndOfJob != nil {
		fmt.Fprintf(w, "the job ends at %s, in %s\n", s.EndOfJob.Format("15:04:05"), progress.Seconds(clock.Until(*s.EndOfJob)))
	}
	if len(s.Resources) > 0 {
		fmt.Fprintf(w, "free of the resources of all nodes: %s\n", freeOf(s.Resources))
	}
	if p, err := pilot.Load(existing(c)); err == nil {
		for _, x := range p.Excludes(clock.Now()) {
			fmt.Fprintf(w, "host %s is excluded from the next jobs until %s: %s\n", x.Host, x.Until.Format("15:04:05"), x.Why)
		}
	}
	if s.Failed+s.Cancelled > 0 {
		if p, err := journal.ReadPast(existing(c)); err == nil {
			printLines(w, scheduler.Failures(existing(c), p, journal.TaskFailed, journal.TaskCancelled))
		}
	}
	return nodeTable(w, s)
}

// freeOf says how much is free: "license 1 of 4, board 0 of 1".
func freeOf(resources []core.ResourceStatus) string {
	var out []string
	for _, r := range resources {
		out = append(out, fmt.Sprintf("%s %s of %s", r.Name, amount(r.Free), amount(r.Total)))
	}
	return strings.Join(out, ", ")
}

// amount writes the number of a status as people write it.
func amount(number string) string {
	a, err := pool.ParseAmount(number)
	if err != nil {
		return number
	}
	return a.String()
}

func nodeTable(w io.Writer, s *scheduler.Status) error {
	t := app.Table{
		Header: []string{"NODE", "STATE", "CPUS", "FREE", "GPUS", "RUNNING", "QUEUED", "DONE", "LOST", "FREE OF ITS RESOURCES"},
		Right:  []string{"CPUS", "FREE", "GPUS", "RUNNING", "QUEUED", "DONE", "LOST"}, Drop: []string{"GPUS"},
	}
	if !slices.ContainsFunc(s.Nodes, func(n core.NodeStatus) bool { return len(n.Resources) > 0 }) {
		t.Omit = []string{"FREE OF ITS RESOURCES"}
	}
	for _, n := range s.Nodes {
		t.Add(n.Name, n.State, strconv.Itoa(n.CPUs), strconv.Itoa(n.Free), strconv.Itoa(n.GPUs), strconv.Itoa(n.Running),
			strconv.Itoa(n.Queued), strconv.FormatInt(n.Done, 10), strconv.FormatInt(n.Lost, 10), freeOf(n.Resources))
	}
	return t.Print(w)
}

func seconds(s float64) string { return progress.Seconds(time.Duration(s * float64(time.Second))) }

func ctlList(c *cli.Context) error {
	a, err := look(c, &scheduler.Request{Op: "list"})
	if err != nil {
		return err
	}
	if c.Bool("json") {
		for _, t := range a.Tasks {
			if err := app.PrintJSONLine(c.App.Writer, t); err != nil {
				return err
			}
		}
		return nil
	}
	t := app.Table{
		Header: []string{"TASK", "ID", "STATE", "NODE", "PID", "TIME", "REASON", "COMMAND", "NEEDS"},
		Right:  []string{"TASK", "PID", "TIME"}, Drop: []string{"PID", "ID"}, OneLine: true,
	}
	if !slices.ContainsFunc(a.Tasks, func(x scheduler.TaskInfo) bool { return x.Need != "" && x.Need != pool.Need{CPUs: 1}.String() }) {
		t.Omit = append(t.Omit, "NEEDS")
	}
	for _, x := range a.Tasks {
		pid, at := "", ""
		if x.PID > 0 {
			pid = strconv.Itoa(x.PID)
		}
		if x.Seconds > 0 {
			at = seconds(x.Seconds)
		}
		t.Add(strconv.FormatInt(x.Seq, 10), x.ID, x.State, x.Node, pid, at, x.Reason, x.Command, x.Need)
	}
	return t.Print(c.App.Writer)
}

// ctlExplain prints what a task waits for.
func ctlExplain(c *cli.Context) error {
	if c.NArg() != 1 {
		return fault.Errorf(fault.Usage, "explain: name one task")
	}
	r := &scheduler.Request{Op: "explain"}
	if seq, err := strconv.ParseInt(c.Args().First(), 10, 64); err == nil && seq > 0 {
		r.Seqs = []int64{seq}
	} else if err := resolve(c, r, c.Args().Slice()); err != nil {
		return whyAbsent(c, err)
	}
	a, err := look(c, r)
	if err != nil {
		return whyAbsent(c, err)
	}
	if c.Bool("json") {
		return app.PrintJSON(c.App.Writer, a)
	}
	for _, why := range a.Reasons {
		fmt.Fprintln(c.App.Writer, app.Sanitize(why))
	}
	return nil
}

// ctlRetry runs tasks again.
func ctlRetry(c *cli.Context) error {
	r := &scheduler.Request{Op: "retry"}
	if !c.Args().Present() {
		return fault.Errorf(fault.Usage, "retry: expected tasks, or %q", input.All)
	}
	var ids []string
	for _, a := range c.Args().Slice() {
		seq, err := strconv.ParseInt(a, 10, 64)
		switch {
		case a == input.All:
			r.All = true
		case err == nil && seq > 0:
			r.Seqs = append(r.Seqs, seq)
		default:
			ids = append(ids, a)
		}
	}
	if len(ids) > 0 {
		if err := resolve(c, r, ids); err != nil {
			return err
		}
	}
	a, err := ask(c, r)
	if err != nil {
		if ended(existing(c), err) {
			return retryEnded(c, r)
		}
		return err
	}
	if a.Count == 0 || !r.All && a.Count < len(r.Seqs) {
		return fmt.Errorf("retry: only %d of the tasks were found", a.Count)
	}
	return nil
}

// resolve finds tasks by the ids their user gave them.
func resolve(c *cli.Context, r *scheduler.Request, ids []string) error {
	a, err := look(c, &scheduler.Request{Op: "list"})
	if err != nil {
		return err
	}
	for _, id := range ids {
		found := false
		for _, t := range a.Tasks {
			if t.ID == id {
				r.Seqs, found = append(r.Seqs, t.Seq), true
			}
		}
		if !found {
			return fmt.Errorf("%s: unknown task %q", r.Op, id)
		}
	}
	return nil
}

func ctlDrain(c *cli.Context) error {
	_, err := ask(c, &scheduler.Request{Op: "drain"})
	return err
}

// needFlags say what tasks need: "the task" or "each task".
func needFlags(tasks string) []cli.Flag {
	str := func(name, usage string, aliases ...string) cli.Flag {
		return &cli.StringFlag{Name: name, Aliases: aliases, Usage: usage}
	}
	return []cli.Flag{
		str("cpus", "CPUs for "+tasks+": `N`", "c"), str("gpus", "GPUs for "+tasks+": `N`"), str("mem", "memory for "+tasks+": `SIZE`"),
		str("need", "named resources for "+tasks+": `LIST`"),
		str("task-nodes", "run "+tasks+" on `N` nodes, each with these CPUs, GPUs and memory"),
		str("timeout", "end "+tasks+" after `TIME`"),
	}
}

func callCommand() *cli.Command {
	return &cli.Command{
		Name: "call", Usage: "run a task in jobpool serve, and wait for it", ArgsUsage: "COMMAND [ARG...]",
		Flags: append(append([]cli.Flag{runFlag("use")}, needFlags("the task")...),
			&cli.BoolFlag{Name: "raw", Usage: "send requests from standard input unchanged, and print the answers"},
			&cli.BoolFlag{Name: "stdin", Usage: "give standard input to the task"}, jsonFlag,
		),
		Action: call,
	}
}

// commandOf is the command of the arguments: one of them is a command line.
func commandOf(c *cli.Context) *input.Object {
	words := c.Args().Slice()
	if len(words) == 1 {
		return &input.Object{Cmd: wire.Text(words[0])}
	}
	return &input.Object{Argv: wire.Texts(words)}
}

// maxStdin limits the input of a task.
const maxStdin = 2 << 20

func call(c *cli.Context) error {
	client, err := dial(c)
	if err != nil {
		return err
	}
	defer client.Close()
	if c.Bool("raw") {
		if c.Args().Present() {
			return fault.Errorf(fault.Usage, "--raw takes no command")
		}
		return client.Raw(c.App.Reader, c.App.Writer)
	}
	if !c.Args().Present() {
		return fault.Errorf(fault.Usage, "the command is missing")
	}
	o := commandOf(c)
	o.Capture = true
	err = o.Set(c.String("cpus"), c.String("gpus"), c.String("mem"), c.String("need"), c.String("task-nodes"), c.String("timeout"))
	if err != nil {
		return fault.Wrap(fault.Usage, err)
	}
	if c.Bool("stdin") {
		b, err := io.ReadAll(io.LimitReader(c.App.Reader, maxStdin+1))
		if err != nil {
			return err
		}
		if len(b) > maxStdin {
			return fault.Errorf(fault.Usage, "--stdin: it is larger than 2 MiB")
		}
		o.Stdin = wire.Text(b)
	}
	if dir, err := os.Getwd(); err == nil {
		o.Cwd = (*wire.Text)(&dir)
	}
	a, err := exchange(client, &scheduler.Request{Op: "run", Task: o, Wait: true})
	if err != nil {
		return err
	}
	e := a.Result
	if c.Bool("json") {
		if err := app.PrintJSON(c.App.Writer, e); err != nil {
			return err
		}
	} else {
		for _, s := range []struct {
			w    io.Writer
			text string
			raw  []byte
		}{{c.App.Writer, e.Stdout, e.StdoutBytes}, {c.App.ErrWriter, e.Stderr, e.StderrBytes}} {
			if _, err := io.WriteString(s.w, s.text+string(s.raw)); err != nil {
				return err
			}
		}
	}
	switch e.What {
	case "ok":
		return nil
	case "timeout":
		return fault.Exit(124, fmt.Errorf("task %d took too long", e.Seq))
	case "oom":
		return fault.Exit(128+e.Signal, fmt.Errorf("task %d: out of memory: %s", e.Seq, e.Error))
	case "failed":
		if e.Signal != 0 {
			return fault.Exit(128+e.Signal, nil)
		}
		return fault.Exit(e.Exit, nil)
	}
	code := e.Exit
	if code == 0 {
		code = 125
	}
	result := core.Result{What: e.What, Exit: e.Exit, Error: wire.Text(e.Error)}
	return fault.Exit(code, fmt.Errorf("task %d %s", e.Seq, result.Describe()))
}
