package fairshare

import (
	"bytes"
	"context"
	"errors"
	"io"
	"time"

	"github.com/urfave/cli/v2"
	"golang.org/x/term"

	"github.com/ponos-tools/ponos/lib/advise/planner"
	"github.com/ponos-tools/ponos/lib/base/app"
	"github.com/ponos-tools/ponos/lib/base/fault"
	"github.com/ponos-tools/ponos/lib/base/nss"
)

// query is what one of the tool's views asks Slurm. Each look gives an answer of its own, which printers write and nothing changes.
type query interface {
	load(context.Context) (answer, error)
}

// answer is what Slurm said, as the rows of a view.
type answer interface {
	printed
	metrics() []metric
	clusterName() string
}

// printed is what can be printed for people and for programs.
type printed interface {
	text(*page) error
	json(io.Writer) error
}

// printTo prints an answer to w as it is to look on stdout.
func printTo(w, stdout io.Writer, a printed, asJSON bool) error {
	if asJSON {
		return a.json(w)
	}
	p := newPage(w, app.Room(stdout), app.Color(stdout))
	p.height = rows(stdout)
	return errors.Join(a.text(p), p.Flush())
}

// shortestWatch is the highest rate: each turn asks slurmctld a few times.
const shortestWatch = 5 * time.Second

// show asks a query and prints the answer in the form that was requested.
func show(c *cli.Context, a *planner.Asker, q query, stdout, stderr io.Writer) error {
	every, err := duration("every", c.String("every"))
	if err != nil {
		return err
	}
	if c.IsSet("every") && every < shortestWatch {
		return fault.Errorf(fault.Usage, "--every: %s is less than %s, the highest rate", every, shortestWatch)
	}
	var last answer
	once := func(ctx context.Context, ask bool, w io.Writer) error {
		if ask {
			next, err := q.load(ctx)
			if err != nil {
				return err
			}
			if last = next; c.String("prometheus") != "" {
				if err := writeMetrics(c.String("prometheus"), last.clusterName(), last.metrics()); err != nil {
					return err
				}
			}
		}
		return printTo(w, stdout, last, c.Bool("json"))
	}
	width := func() int { return app.Room(stdout) }
	if !c.Bool("watch") {
		return once(c.Context, true, stdout)
	}
	w := watcher{
		rows: func() int { return rows(stdout) }, width: width, out: stdout, stderr: stderr, color: app.Color(stdout),
		terminal: app.IsTerminal(stdout) && !c.Bool("json"), now: a.Now,
	}
	if list, ok := q.(*queueQuery); ok && w.terminal && len(list.ids)+len(list.fields) == 0 {
		if keys, restore, ok := app.ReadKeys(c.App.Reader); ok {
			defer restore()
			steered := &queueScreen{query: *list}
			steered.me, _ = nss.Me()
			w.keys, w.screen, q = keys, steered, steered
		}
	}
	return w.run(c.Context, every, func(ctx context.Context, ask bool) ([]byte, error) {
		var b bytes.Buffer
		err := once(ctx, ask, &b)
		return b.Bytes(), err
	})
}

// rows is the height of a terminal; 0 if it is none.
func rows(w io.Writer) int {
	f, ok := w.(interface{ Fd() uintptr })
	if !ok {
		return 0
	}
	_, height, err := term.GetSize(int(f.Fd()))
	if err != nil {
		return 0
	}
	return height
}
