package setup

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/ponos-tools/ponos/lib/agent/assembly"
	"github.com/ponos-tools/ponos/lib/base/app"
)

// tasks prints what the agent knows of its tasks. It takes no lock and changes nothing.
func tasks(c *cli.Context, stdout, stderr io.Writer) error {
	cfg, err := assembly.Options{ConfigPath: c.String("config"), Stderr: stderr, Tool: name}.Read()
	if err != nil {
		return err
	}
	view, err := assembly.View(cfg)
	if err != nil {
		return err
	}
	if c.Bool("json") {
		return app.PrintJSON(stdout, view)
	}
	table := app.Table{
		Header: []string{"TASK", "NAME", "STATE", "JOB", "NODE", "SINCE", "ATTEMPTS", "LAST ERROR"},
		Whole:  []string{"TASK"}, Drop: []string{"ATTEMPTS", "NODE"},
	}
	for _, t := range view.Tasks {
		since := ""
		if !t.Since.IsZero() {
			since = t.Since.Local().Format(time.DateTime)
		}
		table.Add(string(t.ID), t.Slug, string(t.State), t.Job, t.Node, since, strconv.Itoa(t.Attempts), t.Problem)
	}
	if err := table.Print(stdout); err != nil {
		return err
	}
	for _, h := range view.Held {
		if host, ok := strings.CutPrefix(h.Kind, "host "); ok {
			if _, err := fmt.Fprintf(stdout, "\nTasks wait for code of %s: %s; it is asked again at %s\n",
				host, h.Reason, h.Next.Local().Format(time.TimeOnly)); err != nil {
				return err
			}
			continue
		}
		if _, err := fmt.Fprintf(stdout, "\nSubmission of %s tasks is held: %s; the next one is tried at %s\n",
			h.Kind, h.Reason, h.Next.Local().Format(time.TimeOnly)); err != nil {
			return err
		}
	}
	return nil
}
