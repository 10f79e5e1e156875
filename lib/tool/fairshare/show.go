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

// view is one of the tool's answers.
type view interface {
	load(context.Context) error // asks Slurm
	text(*page) error
	json(io.Writer) error
	metrics() []metric
	clusterName() string
}

// shortestWatch is the highest rate: each turn asks slurmctld a few times.
const shortestWatch = 5 * time.Second

// show loads a view and prints it in the form that was requested.
func show(c *cli.Context, a *planner.Asker, v view, stdout, stderr io.Writer) error {
	every, err := duration("every", c.String("every"))
	if err != nil {
		return err
	}
	if c.IsSet("every") && every < shortestWatch {
		return fault.Errorf(fault.Usage, "--every: %s is less than %s, the highest rate", every, shortestWatch)
	}
	once := func(ctx context.Context, ask bool, w io.Writer, width int, color bool) error {
		if ask {
			if err := v.load(ctx); err != nil {
				return err
			}
		}
		if file := c.String("prometheus"); file != "" && ask {
			if err := writeMetrics(file, v.clusterName(), v.metrics()); err != nil {
				return err
			}
		}
		if c.Bool("json") {
			return v.json(w)
		}
		p := newPage(w, width, color)
		return errors.Join(v.text(p), p.Flush())
	}
	width := func() int { return app.Room(stdout) }
	if !c.Bool("watch") {
		return once(c.Context, true, stdout, width(), app.Color(stdout))
	}
	w := watcher{
		rows: func() int { return rows(stdout) }, width: width, out: stdout, stderr: stderr, color: app.Color(stdout),
		terminal: app.IsTerminal(stdout) && !c.Bool("json"), now: a.Now,
	}
	if q, ok := v.(*queueView); ok && w.terminal && len(q.ids)+len(q.fields) == 0 {
		if keys, restore, ok := app.ReadKeys(c.App.Reader); ok {
			defer restore()
			q.screen = &queueScreen{}
			q.screen.me, _ = nss.Me()
			w.keys, w.screen = keys, q
		}
	}
	return w.run(c.Context, every, func(ctx context.Context, ask bool) ([]byte, error) {
		var b bytes.Buffer
		err := once(ctx, ask, &b, width(), app.Color(stdout))
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
