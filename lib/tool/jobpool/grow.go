package jobpool

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/ponos-tools/ponos/lib/base/app"
	"github.com/ponos-tools/ponos/lib/base/fault"
	"github.com/ponos-tools/ponos/lib/base/progress"
	"github.com/ponos-tools/ponos/lib/base/unit"
	"github.com/ponos-tools/ponos/lib/pool/control"
	"github.com/ponos-tools/ponos/lib/pool/input"
	"github.com/ponos-tools/ponos/lib/pool/journal"
	"github.com/ponos-tools/ponos/lib/pool/pilot"
	"github.com/ponos-tools/ponos/lib/pool/scheduler"
	"github.com/ponos-tools/ponos/lib/pool/wire"
)

// maxAdd limits what is added with one call.
const maxAdd = 3 << 20

// ctlAdd adds tasks to a run.
func ctlAdd(c *cli.Context) error {
	a := &input.Addition{JSON: c.Bool("jsonl"), Set: map[string]wire.Text{}, After: c.StringSlice("after")}
	for _, name := range []string{"cpus", "gpus", "mem", "need", "timeout", "time", "priority", "cwd"} {
		if c.IsSet(name) {
			a.Set[name] = wire.Text(c.String(name))
		}
	}
	if dir, ok := a.Set["cwd"]; ok {
		abs, err := filepath.Abs(string(dir))
		if st, e := os.Stat(abs); err != nil || e != nil || !st.IsDir() {
			return fault.Errorf(fault.Usage, "--cwd: not a directory: %q", dir)
		}
		a.Set["cwd"] = wire.Text(abs)
	}
	if c.IsSet("task-nodes") {
		a.Set["nodes"] = wire.Text(c.String("task-nodes"))
	}
	switch {
	case c.Args().Present() && a.JSON:
		return fault.Errorf(fault.Usage, "add: --jsonl takes no command")
	case c.Args().Present():
		b, err := json.Marshal(commandOf(c))
		if err != nil {
			return err
		}
		a.Text, a.JSON = wire.Text(b), true
	default:
		b, err := io.ReadAll(io.LimitReader(c.App.Reader, maxAdd+1))
		if err != nil {
			return err
		}
		if len(b) > maxAdd {
			return fault.Hint(
				fault.Errorf(fault.Usage, "add: standard input is larger than %d MiB", maxAdd>>20),
				"add the tasks in several calls")
		}
		a.Text = wire.Text(b)
	}
	n, err := input.Offer(existing(c), a)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return takesNone(c, "takes no more tasks")
	case err != nil:
		return fmt.Errorf("add: %w", err)
	case n == 0:
		return fmt.Errorf("add: standard input has no task")
	}
	sayWaits(c)
	_, err = fmt.Fprintf(c.App.Writer, "added %d %s\n", n, plural(n, "task"))
	return err
}

// ctlClose ends that tasks can be added to a run.
func ctlClose(c *cli.Context) error {
	err := input.Shut(existing(c))
	if errors.Is(err, fs.ErrNotExist) {
		return takesNone(c, "takes no more tasks")
	}
	if err == nil {
		sayWaits(c)
	}
	return err
}

// ctlOpen lets tasks be added to a run that was closed.
func ctlOpen(c *cli.Context) error {
	err := input.Reopen(existing(c))
	if errors.Is(err, fs.ErrNotExist) {
		return takesNone(c, "has ended")
	}
	if err == nil {
		sayWaits(c)
	}
	return err
}

// ctlCancel cancels tasks.
func ctlCancel(c *cli.Context) error {
	if !c.Args().Present() {
		return fault.Errorf(fault.Usage, "cancel: expected tasks, or %q", input.All)
	}
	err := input.Withdraw(existing(c), c.Args().Slice())
	if errors.Is(err, fs.ErrNotExist) {
		return takesNone(c, "has ended")
	}
	if err == nil {
		sayWaits(c)
	}
	return err
}

// takesNone is the error of a command that gives something to a run which takes nothing any more, and why.
func takesNone(c *cli.Context, why string) error {
	dir := existing(c)
	if _, err := os.Stat(dir); err != nil {
		return control.NoRun(dir)
	}
	err := fault.Errorf(fault.Unavailable, "the run in %q %s", dir, why)
	if journal.Held(dir) || between(dir) {
		return err
	}
	return fault.Hint(err, control.HowEnded(dir))
}

// sayWaits says when a run has no scheduler that takes what is given to it.
func sayWaits(c *cli.Context) {
	dir := existing(c)
	switch {
	case journal.Held(dir):
	case between(dir):
		fmt.Fprintln(c.App.ErrWriter, "jobpool: no job of the run has the scheduler at this time: the next one takes it; "+
			"if squeue shows none, repeat the command with --resume")
	default:
		fmt.Fprintln(c.App.ErrWriter, "jobpool: the run has no scheduler for now: repeat its command with --resume")
	}
}

func plural(n int, word string) string {
	if n == 1 {
		return word
	}
	return word + "s"
}

func ctlNodes(c *cli.Context) error {
	a, err := ask(c, &scheduler.Request{Op: "status"})
	if err != nil {
		return err
	}
	if c.Bool("json") {
		return app.PrintJSON(c.App.Writer, a.Status.Nodes)
	}
	return nodeTable(c.App.Writer, a.Status)
}

func ctlNodesAdd(c *cli.Context) error {
	if !c.Args().Present() {
		return fault.Errorf(fault.Usage, "nodes add: no host is named")
	}
	_, err := ask(c, &scheduler.Request{Op: "addnodes", Nodes: c.Args().Slice()})
	if err != nil && fault.HintOf(err) == "" && between(existing(c)) {
		err = fault.Hint(err, "to have more jobs, repeat the command of the run with --resume and a larger --max-jobs")
	}
	return err
}

func ctlNodesRemove(c *cli.Context) error {
	if !c.Args().Present() {
		return fault.Errorf(fault.Usage, "nodes remove: no node is named")
	}
	a, err := ask(c, &scheduler.Request{Op: "removenodes", Nodes: c.Args().Slice(), Now: c.Bool("now")})
	if err != nil {
		return err
	}
	if a.Count < c.NArg() {
		return fmt.Errorf("nodes remove: the pool has %d of these nodes", a.Count)
	}
	return nil
}

// watchStatus prints a line of how things stand again and again.
func watchStatus(c *cli.Context) error {
	if c.Bool("json") {
		return fault.Errorf(fault.Usage, "--watch and --json cannot be combined")
	}
	every, err := unit.Seconds(c.String("watch"))
	if err != nil {
		return fault.Errorf(fault.Usage, "--watch: %w", err)
	}
	if every < 100*time.Millisecond {
		return fault.Errorf(fault.Usage, "--watch: %q is less than 0.1 s", c.String("watch"))
	}
	t := &console{w: c.App.Writer, terminal: app.IsTerminal(c.App.Writer)}
	shown := false
	for {
		a, err := ask(c, &scheduler.Request{Op: "status"})
		if err != nil {
			t.clear()
			if !fault.Is(err, fault.Unavailable) || !shown {
				return whyAbsent(c, err)
			}
			if !between(existing(c)) {
				return nil // it has ended
			}
		}
		line := "no scheduler answers: waiting for the next one"
		if a != nil {
			line, shown = statusLine(a.Status), true
		}
		if t.terminal {
			t.line(line)
		} else if _, err := fmt.Fprintln(c.App.Writer, line); err != nil {
			return err
		}
		select {
		case <-c.Done():
			t.clear()
			return fault.Exit(130, nil)
		case <-time.After(every):
		}
	}
}

// between reports whether a run with jobs of its own continues, even if it has no scheduler for now.
func between(run string) bool {
	_, over := pilot.Over(run)
	_, err := pilot.Load(run)
	return err == nil && !over
}

// statusLine is how things stand in one line.
func statusLine(s *scheduler.Status) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s: %d done, %d failed, %d running, %d waiting",
		s.Phase, seconds(s.Elapsed), s.Done, s.Failed, s.Running, s.Waiting)
	if s.Held > 0 {
		fmt.Fprintf(&b, ", %d on hold", s.Held)
	}
	up := 0
	for _, n := range s.Nodes {
		if n.State == "up" {
			up++
		}
	}
	fmt.Fprintf(&b, "; %d of %d %s up, %d of %d CPUs used", up, len(s.Nodes), plural(len(s.Nodes), "node"), s.CPUsUsed, s.CPUs)
	if s.Rate > 0 {
		fmt.Fprintf(&b, "; %s", progress.Rate(s.Rate))
	}
	return b.String()
}
