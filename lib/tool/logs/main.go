// Package logs is the tool ponos-log, which prints the logs of tasks of a spool.
package logs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/ponos-tools/ponos/lib/agent/tasklist"
	"github.com/ponos-tools/ponos/lib/base/app"
	"github.com/ponos-tools/ponos/lib/base/clock"
	"github.com/ponos-tools/ponos/lib/base/fault"
	"github.com/ponos-tools/ponos/lib/task"
	"github.com/ponos-tools/ponos/lib/task/queue"
)

const name = "ponos-log"

// Usage is what the tool does, in a line.
const Usage = "print the logs of tasks of the spool"

// Main runs the tool as the whole process, and returns its exit status.
func Main() int { return app.Main(run) }

func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	return app.Tool{
		Name: name, Usage: Usage, ArgsUsage: "[TASK...]",
		Description: "Prints the output of tasks; of several, each line begins with the task's name.\n" +
			"Name tasks by id, short id or name, or filter them; without both, ids come from\n" +
			"standard input.",
		Examples: "ponos-log -f train-7\nponos-log --group lr --failed --tail 20\nponos-log --attempts train-7",
		Brief:    map[string][]string{"": {"follow", "tail", "failed", "attempts", "group", "name", "since"}},
		Flags: app.TaskFlags(tasklist.States,
			&cli.BoolFlag{Name: "follow", Aliases: []string{"f"}, Usage: "print new lines until the tasks have ended"},
			&cli.IntFlag{Name: "tail", Usage: "print only the last `N` lines of each log"},
			&cli.BoolFlag{Name: "failed", Usage: "only tasks in the states failed and error"},
			&cli.BoolFlag{Name: "attempts", Usage: "also print the logs of earlier attempts"},
			&cli.BoolFlag{Name: "plain", Usage: "do not prefix lines with the name of the task"}),
		Action: func(c *cli.Context) error { return show(c, stdin, stdout, stderr) },
	}.Run(ctx, args, stdin, stdout, stderr)
}

// source is the log of a task.
type source struct {
	task   queue.Summary
	shown  int64
	to     io.Writer
	prefix *prefixed // nil: the only one
	over   bool
	absent task.Absence
}

func show(c *cli.Context, stdin io.Reader, stdout, stderr io.Writer) error {
	switch {
	case c.Bool("failed") && c.IsSet("state"):
		return fault.Errorf(fault.Usage, "--failed and --state cannot be combined")
	case c.IsSet("tail") && c.Int("tail") < 1:
		return fault.Errorf(fault.Usage, "--tail must be at least 1, not %d", c.Int("tail"))
	}
	flag := func(name string) string {
		if name == "state" && c.Bool("failed") {
			return "failed,error"
		}
		return c.String(name)
	}
	chosen, err := tasklist.Choose(flag, c.Args().Slice(), stdin)
	if err != nil {
		return err
	}
	found := chosen.Found
	if c.Bool("attempts") {
		found = tasklist.Attempts(chosen.All, found)
	}
	// The output of a task must not control the reader's terminal.
	text := app.Printable(stdout, app.IsTerminal(stdout))
	sources := open(found, text, c.Bool("plain"), c.Bool("attempts"))
	for _, l := range sources {
		if n := c.Int("tail"); n > 0 {
			if l.shown, err = tasklist.Tail(chosen.Queue.Log(l.task.ID), n); err != nil {
				return err
			}
		}
	}
	if err = follow(c, chosen.Queue, sources, stderr); err == nil {
		for _, l := range sources {
			if l.prefix != nil {
				err = errors.Join(err, l.prefix.Close())
			}
		}
	}
	if n := c.String("name"); len(found) == 0 && len(chosen.Errs) == 1 && n != "" && strings.Trim(n, "0123456789") == "" {
		chosen.Errs[0] = fault.Hint(chosen.Errs[0], "-n is --name here; for the last lines, give --tail "+n)
	}
	return errors.Join(append(chosen.Errs, err, text.Close())...)
}

// labels are what the lines of logs begin with: names, and where they are not the only ones of their
// kind, ids.
func labels(found []queue.Summary, attempts bool) []string {
	names := make([]string, len(found))
	count := map[string]int{}
	width := 0
	for i, s := range found {
		names[i] = task.Clean(s.Slug)
		if attempts && names[i] != "" {
			names[i] += fmt.Sprintf(" #%d", s.Attempt)
		}
		count[names[i]]++
	}
	out := make([]string, len(found))
	for i, s := range found {
		out[i] = names[i]
		if out[i] == "" || count[names[i]] > 1 {
			out[i] = strings.TrimLeft(names[i]+" "+s.ID.Short(), " ")
		}
		width = max(width, min(40, app.TextWidth(out[i])))
	}
	for i, l := range out {
		out[i] = app.Fill(l, width) + " | "
	}
	return out
}

// open prepares the logs.
func open(found []queue.Summary, text io.Writer, plain, attempts bool) []*source {
	var sources []*source
	for i, label := range labels(found, attempts) {
		l := &source{task: found[i], to: text, over: found[i].State.Final()}
		if len(found) > 1 && !plain {
			l.prefix = &prefixed{to: text, prefix: label}
			l.to = l.prefix
		}
		sources = append(sources, l)
	}
	return sources
}

// follow prints what the logs have; if it is asked to, until the tasks have ended.
func follow(c *cli.Context, s queue.Client, sources []*source, stderr io.Writer) error {
	printed := false
	trouble := ""
	for {
		var next error
		left := 0
		for _, l := range sources {
			if l.over && l.shown < 0 {
				continue
			}
			// The log is published before the final state: first the state, then the log.
			if !l.over {
				next = errors.Join(next, l.checkEnded(s))
			}
			before := l.shown
			var err error
			if l.shown, err = tasklist.Follow(s.Log(l.task.ID), l.shown, l.to); err != nil {
				if !c.Bool("follow") || !fault.Is(err, fault.Unavailable) {
					return err
				}
				next = errors.Join(next, err)
			}
			printed = printed || l.shown > before
			if l.over && err == nil {
				l.shown = -1
			} else {
				left++
			}
		}
		if left == 0 || !c.Bool("follow") {
			if !printed && len(sources) > 0 {
				none := "there is no log yet"
				if left == 0 {
					none = "there is no log"
				}
				fmt.Fprintf(stderr, "%s: %s\n", name, none)
			}
			return nil
		}
		if next != nil && next.Error() != trouble {
			trouble = next.Error()
			app.Report(stderr, name, next)
		}
		select {
		case <-c.Done():
			return context.Cause(c.Context)
		case <-time.After(300 * time.Millisecond):
		}
	}
}

// checkEnded asks whether the task has ended.
func (l *source) checkEnded(s queue.Client) error {
	e, err := s.Find(l.task.ID)
	if err != nil {
		if l.absent = l.absent.Again(clock.Now()); l.absent.Fact() {
			l.over = true
		}
		return fmt.Errorf("task %s: %w", l.task.ID, err)
	}
	l.absent = task.Absence{}
	l.over = e.State.Final()
	return nil
}

// prefixed begins each line with a prefix, and passes on whole lines only.
type prefixed struct {
	to     io.Writer
	prefix string
	line   []byte
}

// maxLine is how much of a line is kept back, at most.
const maxLine = 64 << 10

func (p *prefixed) Write(b []byte) (int, error) {
	n := len(b)
	for len(b) > 0 {
		i := bytes.IndexByte(b, '\n')
		if i < 0 {
			p.line = append(p.line, b...)
			if len(p.line) < maxLine {
				return n, nil
			}
			b = nil
		} else {
			p.line = append(p.line, b[:i]...)
			b = b[i+1:]
		}
		if err := p.flush(); err != nil {
			return 0, err
		}
	}
	return n, nil
}

func (p *prefixed) flush() error {
	line := slices.Concat([]byte(p.prefix), p.line, []byte("\n"))
	p.line = p.line[:0]
	_, err := p.to.Write(line)
	return err
}

// Close prints what is left of a last line without an end.
func (p *prefixed) Close() error {
	if len(p.line) == 0 {
		return nil
	}
	return p.flush()
}
