package fairshare

import (
	"context"
	"errors"
	"io"
	"os"
	"time"

	"github.com/ponos-tools/ponos/lib/advise/forecast"
	"github.com/ponos-tools/ponos/lib/advise/planner"
	"github.com/ponos-tools/ponos/lib/base/app"
	"github.com/ponos-tools/ponos/lib/base/fault"
	"github.com/ponos-tools/ponos/lib/base/progress"
	"github.com/ponos-tools/ponos/lib/slurm"
)

// traceProbes is how many jobs of a trace are forecast.
const traceProbes = 300

// showReplay scores forecasts on the jobs of a file.
func showReplay(ctx context.Context, file string, asJSON bool, now time.Time, stdout io.Writer) error {
	f, err := os.Open(file)
	if err != nil {
		return fault.Wrap(fault.Usage, err)
	}
	defer f.Close()
	runs, err := planner.ReadTrace(f)
	if err != nil {
		return fault.Hint(
			fault.Errorf(fault.Usage, "%s: %w", file, err),
			"create it with: sacct -aXD --noheader --parsable --noconvert -S 2026-01-01 -o "+slurm.RunFormat+" >FILE")
	}
	probes := min(traceProbes, len(runs)-len(runs)/5)
	shown, done := progress.Start(ctx, "forecasting %d of %s", probes, plural(len(runs), "job", "jobs"))
	past := forecast.ScoreTrace(func() bool { return ctx.Err() != nil }, runs, traceProbes, func(scored []forecast.Scored) {
		s := forecast.Score(scored, methods[0].value)
		progress.Say(shown, "%d of %d jobs forecast: off by %s in the median, %.0f%% within x2",
			len(scored), probes, exact(s.Median), 100*s.WithinTwo)
	})
	done()
	ended := context.Cause(ctx) // a signal ends it with what is scored until then
	if asJSON {
		return errors.Join(ended, app.PrintJSON(stdout, struct {
			Time string      `json:"time"`
			Jobs int         `json:"trace_jobs"`
			Past []scoreJSON `json:"past"`
		}{now.Format(time.RFC3339), len(runs), scoresOf(past)}))
	}
	p := newPage(stdout, 0, false)
	p.line("", "%s in the trace, %s forecast", plural(len(runs), "job", "jobs"), plural(len(past), "job", "jobs"))
	if len(past) > 0 {
		scoreTable(p, past)
	}
	return errors.Join(ended, p.Flush())
}
