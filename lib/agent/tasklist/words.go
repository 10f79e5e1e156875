package tasklist

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/ponos-tools/ponos/lib/base/app"
	"github.com/ponos-tools/ponos/lib/base/clock"
	"github.com/ponos-tools/ponos/lib/base/fault"
	"github.com/ponos-tools/ponos/lib/task/queue"
)

// Choice are the tasks of a spool that a command line selects.
type Choice struct {
	Queue queue.Client
	All   []queue.Summary // the tasks of the spool; none if nothing is selected
	Words []string        // words that select tasks; nil: the filter does
	Found []queue.Summary
	Errs  []error // errors of words, or of a filter, that select nothing
}

// Choose finds the tasks that flags, as of app.TaskFlags, and arguments select; without both, those
// whose ids are on standard input.
func Choose(flag func(name string) string, args []string, stdin io.Reader) (c Choice, err error) {
	filter, err := NewFilter(flag, clock.Now())
	if err != nil {
		return c, err
	}
	if c.Words, err = words(args, filter, stdin); err != nil {
		return c, err
	}
	if c.Queue, err = Open(flag("config"), flag("spool")); err != nil {
		return c, err
	}
	if len(c.Words) == 0 && filter.Empty() {
		return c, nil
	}
	if c.All, err = c.Queue.List(); err != nil {
		return c, err
	}
	c.Found, c.Errs = Select(c.All, c.Words, filter)
	if len(c.Found) == 0 && len(c.Errs) == 0 {
		c.Errs = []error{filter.Nothing(c.All)}
	}
	return c, nil
}

// words returns the words that select tasks: the arguments; or, without arguments and filter, the ids
// on standard input. It returns nil if only the filter selects tasks, or if standard input is empty.
func words(args []string, f Filter, stdin io.Reader) ([]string, error) {
	if len(args) > 0 || !f.Empty() {
		return args, nil
	}
	if app.IsTerminal(stdin) {
		return nil, fault.Hint(
			fault.Errorf(fault.Usage, "no tasks are named"),
			"name tasks, give a filter such as --group, or ids on standard input")
	}
	return ReadWords(stdin)
}

// Ask asks a question on the terminal, if standard input is one, and returns an error
// unless the answer is yes.
func Ask(ctx context.Context, stdin io.Reader, stderr io.Writer, tool, question string) error {
	if !app.IsTerminal(stdin) {
		return nil
	}
	fmt.Fprintf(stderr, "%s: %s [y/N] ", tool, question)
	answer := make(chan string, 1)
	go func() {
		line, _ := bufio.NewReader(stdin).ReadString('\n')
		answer <- strings.ToLower(strings.TrimSpace(line))
	}()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case a := <-answer:
		if a != "y" && a != "yes" {
			return fault.Errorf(fault.Failed, "nothing was done")
		}
	}
	return nil
}
