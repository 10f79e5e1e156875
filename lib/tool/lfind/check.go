package lfind

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/ponos-tools/ponos/lib/advise/gpu"
	"github.com/ponos-tools/ponos/lib/advise/launcher"
	"github.com/ponos-tools/ponos/lib/advise/launcher/file"
	"github.com/ponos-tools/ponos/lib/base/app"
	"github.com/ponos-tools/ponos/lib/base/fault"
)

// problem is one problem of "lfind check --json".
type problem struct {
	File    string `json:"file"`
	Line    int    `json:"line"`
	Column  int    `json:"column"`
	Level   string `json:"level"` // error or warning
	Message string `json:"message"`
	Hint    string `json:"hint,omitempty"`
}

// check tells every problem of a file. Problems are what was requested, so they go
// to the standard output.
func (s *session) check(c *cli.Context) error {
	path := c.Args().First()
	if path == "" {
		path = text(c, "config")
	}
	w := launcher.World{Warn: func(text string) { s.note(c, "warning: %s", text) }}
	f, err := clusters(c, path)
	if err == nil && f == nil {
		f, err = w.Load(path)
	}
	var bad *file.Error
	var all []file.Problem
	if errors.As(err, &bad) {
		all = bad.Problems
	} else if err != nil {
		return fileError(err)
	}
	if f != nil {
		all = append(all, f.Warnings...)
	}
	if bad == nil {
		catalogue, err := gpu.Load(os.Getenv)
		if err != nil {
			return err
		}
		all = append(all, launcher.Warnings(f, catalogue)...)
		search, err := w.Search(f)
		if err != nil {
			return err
		}
		surveyed, err := search.Survey(c.Context)
		switch {
		case err != nil && f.Path == "" && surveyed == nil:
			return unreachable(f, err)
		case err != nil: // the file itself, or another cluster, is as good as before
			s.note(c, "note: what Slurm says was not checked: %v", fault.Text(err))
		}
		path := f.Path
		if path == "" {
			path = "slurm"
		}
		all = append(all, launcher.Problems(surveyed, path)...)
	}
	slices.SortStableFunc(all, func(a, b file.Problem) int {
		if a.File != b.File {
			return strings.Compare(a.File, b.File)
		}
		if a.Line != b.Line {
			return a.Line - b.Line
		}
		return a.Column - b.Column
	})
	problems := []problem{}
	for _, p := range all {
		level := "error"
		if p.Warning {
			level = "warning"
		}
		problems = append(problems, problem{p.File, p.Line, p.Column, level, p.Message, p.Hint})
	}
	if boolean(c, "json") {
		err = app.PrintJSON(s.stdout, problems)
	} else {
		err = s.printProblems(problems)
	}
	if err == nil && bad != nil {
		return fault.Exit(int(fault.Usage), nil)
	}
	return err
}

func (s *session) printProblems(problems []problem) error {
	for _, p := range problems {
		line := fmt.Sprintf("%s:%d:%d: %s: %s", p.File, p.Line, p.Column, p.Level, p.Message)
		if p.Line == 0 {
			line = fmt.Sprintf("%s: %s: %s", p.File, p.Level, p.Message)
		}
		if p.Hint != "" {
			line += " (" + p.Hint + ")"
		}
		if _, err := fmt.Fprintln(s.stdout, app.Sanitize(line)); err != nil {
			return err
		}
	}
	return nil
}
