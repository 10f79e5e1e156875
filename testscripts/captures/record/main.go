// Record writes captures: it asks Slurm with the columns of lib/slurm, and keeps what it printed. The name of a
// file says which query it answers.
//
//	go run ./testscripts/captures/record DIR/squeue.table
//	go run ./testscripts/captures/record DIR/sacct.table JOB...
package main

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/ponos-tools/ponos/lib/base/command"
	"github.com/ponos-tools/ponos/lib/slurm"
	"github.com/ponos-tools/ponos/testscripts/captures"
)

// A question is what a capture answers, for some jobs where the query has any.
type question func(ctx context.Context, c *slurm.Client, jobs []string) error

func lastDay() slurm.Period {
	now := time.Now()
	return slurm.Period{Since: now.AddDate(0, 0, -1), Until: now}
}

func account(ctx context.Context, c *slurm.Client, jobs []string) error {
	_, err := c.Account(ctx, jobs)
	return err
}

func own(ctx context.Context, c *slurm.Client, _ []string) error {
	_, err := c.Queue(ctx, os.Getuid())
	return err
}

var questions = map[string]question{
	"squeue": func(ctx context.Context, c *slurm.Client, _ []string) error {
		return c.EachJob(ctx, func(*slurm.Job) error { return nil })
	},
	"squeue-own": own, "squeue-arrays": own,
	"sacct": account, "sacct-arrays": account,
	"sacct-past": func(ctx context.Context, c *slurm.Client, _ []string) error {
		_, err := c.Past(ctx, os.Getuid(), lastDay().Since)
		return err
	},
	"sacct-usage": func(ctx context.Context, c *slurm.Client, _ []string) error {
		return c.EachRun(ctx, lastDay(), func(*slurm.Record) error { return nil })
	},
	"sacct-runs": func(ctx context.Context, c *slurm.Client, _ []string) error {
		return c.EachEnded(ctx, lastDay(), func(*slurm.Record) error { return nil })
	},
	"sacct-consumed": func(ctx context.Context, c *slurm.Client, jobs []string) error {
		return c.EachConsumed(ctx, jobs, lastDay(), func(*slurm.Consumed) error { return nil })
	},
	"sacct-waits": func(ctx context.Context, c *slurm.Client, jobs []string) error {
		return c.EachWait(ctx, jobs, lastDay(), func(*slurm.Waited) error { return nil })
	},
	"sreport": func(ctx context.Context, c *slurm.Client, _ []string) error {
		_, err := c.Report(ctx, lastDay(), "cpu")
		return err
	},
	"sprio": func(ctx context.Context, c *slurm.Client, _ []string) error {
		return c.EachFactors(ctx, func(*slurm.Factors) error { return nil })
	},
	"sshare": func(ctx context.Context, c *slurm.Client, _ []string) error {
		_, err := c.Shares(ctx)
		return err
	},
	"qos": func(ctx context.Context, c *slurm.Client, _ []string) error {
		_, err := c.QOS(ctx)
		return err
	},
	"user": func(ctx context.Context, c *slurm.Client, _ []string) error {
		_, err := c.DefaultAccount(ctx, "alice")
		return err
	},
	"associations": associations("alice"), "associations-accounts": associations(""), "associations-alice": associations("alice"), "associations-carol": associations("carol"),
}

func associations(user string) question {
	return func(ctx context.Context, c *slurm.Client, _ []string) error {
		_, err := c.Associations(ctx, user)
		return err
	}
}

// recorder keeps what a command printed in a file, and passes it on.
type recorder struct{ file string }

func (r recorder) Run(ctx context.Context, c command.Cmd) (command.Result, error) {
	var printed bytes.Buffer
	to := c.Stdout
	c.Stdout = &printed
	result, err := command.System.Run(ctx, c)
	if err == nil {
		err = captures.Record(r.file, printed.Bytes(), c.Name, c.Args...)
	}
	if err == nil {
		_, err = to.Write(printed.Bytes())
	}
	return result, err
}

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "record:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) == 0 {
		return fmt.Errorf("usage: record FILE%s [JOB...]", captures.Extension)
	}
	name, isCapture := strings.CutSuffix(filepath.Base(args[0]), captures.Extension)
	ask, known := questions[name]
	if !known || !isCapture {
		return fmt.Errorf("%s: expected the name of one of these captures (%s): %s",
			args[0], captures.Extension, strings.Join(slices.Sorted(maps.Keys(questions)), ", "))
	}
	return ask(context.Background(), &slurm.Client{Run: recorder{args[0]}}, args[1:])
}
