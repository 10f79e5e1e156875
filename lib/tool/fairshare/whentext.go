package fairshare

import (
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/ponos-tools/ponos/lib/advise/diagnosis"
	"github.com/ponos-tools/ponos/lib/advise/forecast"
	"github.com/ponos-tools/ponos/lib/advise/planner"
	"github.com/ponos-tools/ponos/lib/base/app"
	"github.com/ponos-tools/ponos/lib/base/unit"
)

func (v *whenView) text(p *page) error {
	if v.score {
		v.scoreText(p)
		return nil
	}
	for _, a := range v.answers {
		switch e := &a.Estimate; {
		case a.running > 0:
			p.line("", "job %s runs since %s", a.label, unit.ShortTime(a.running, v.at))
			continue
		case a.Kind == diagnosis.Never:
			p.line("", "%s will not start as it is: %s", jobName(a.label), a.Text)
			v.proof(p, &a)
			continue
		case a.Cause == diagnosis.Held || a.Cause == diagnosis.Partition:
			p.line("", "%s does not start until that changes: %s", jobName(a.label), a.Text)
			v.proof(p, &a)
			continue
		case a.Basis == planner.Nothing:
			p.line("", "%s: when it starts is not known", jobName(a.label))
		case e.Median == forecast.Forever:
			p.line("", "%s does not start within 30 days as things are: %s", jobName(a.label), a.Text)
		default:
			wait := float64(max(0, e.Median-v.at.Unix()))
			when := "in about " + about(wait)
			if wait <= float64(v.plan.World.Scheduler.Interval) {
				when = "now"
			}
			switch a.Basis {
			case planner.ByWork:
				p.line("", "%s starts %s, roughly: %s %s before it, and nodes are taken to be always busy",
					jobName(a.label), when, plural(a.Before, "job", "jobs"), comes(a.Before))
			case planner.ByLimits:
				p.line("", "%s starts %s, if all jobs run to their time limits", jobName(a.label), when)
			default:
				p.line("", "%s starts %s (9 of 10 such forecasts: %s to %s)", jobName(a.label), when, about(a.Low), about(a.High))
			}
		}
		if a.Estimate.Median != forecast.Forever && a.Cause != diagnosis.Free {
			p.line("  ", "why it waits: %s", a.Text)
		}
		v.proof(p, &a)
		if a.OutOfTime {
			p.line("  ", "a better answer takes more time than %s: --budget", v.budget)
		}
		if s := forecast.Score(v.kept.Scored(0), func(f forecast.Scored) float64 { return f.Median }); s.Count > 0 {
			p.line("  ", "past forecasts here were off by %s in the median (the last %d)", exact(s.Median), s.Count)
		} else {
			p.line("  ", "no forecast on this cluster has been scored yet")
		}
		switch {
		case v.noRuns != "":
			p.line("  ", "run times: as long as the time limits, because %s", v.noRuns)
		case a.Runs == 0:
			p.line("  ", "run times: as long as the time limits, because no job has ended here in 30 days")
		default:
			p.line("  ", "run times: from %s of the last 30 days %s, for this job; %s",
				plural(a.Runs, "run", "runs"), a.Like, plural(a.Estimate.Replays, "replay", "replays"))
		}
		p.line("  ", "%s", v.otherTimes(&a))
	}
	v.keptText(p)
	return nil
}

// otherTimes are those that know time limits only.
func (v *whenView) otherTimes(a *startAnswer) string {
	var times []string
	if a.Limits > 0 && a.Basis != planner.ByLimits {
		times = append(times, when(a.Limits, v.at)+" if all jobs ran to their time limits")
	}
	if a.slurm > 0 {
		times = append(times, when(a.slurm, v.at)+" by Slurm itself, which knows time limits only")
	}
	if len(times) == 0 {
		return "Slurm itself has no expected start"
	}
	return "less likely: " + strings.Join(times, "; ")
}

// proof writes what the diagnosis of a job rests on, and what ends it where waiting does not.
func (v *whenView) proof(p *page, a *startAnswer) {
	for _, proof := range a.Proof {
		p.line("  ", "%s", proof)
	}
	if a.Kind == diagnosis.Never || a.Cause == diagnosis.Held {
		p.line("  ", "what can be done: %s", a.Action.Text)
		if a.Action.Command != nil {
			p.command("    ", a.Action.Command)
		}
	}
}

func (v *whenView) keptText(p *page) {
	if v.notKept != "" {
		p.line("", "forecasts are not kept, and so not scored: %s", v.notKept)
	}
}

func comes(jobs int) string {
	if jobs == 1 {
		return "comes"
	}
	return "come"
}

// exact is a number of seconds as the error of a forecast.
func exact(seconds float64) string {
	if seconds < 120 {
		return fmt.Sprintf("%.0f s", seconds)
	}
	return span(time.Duration(seconds) * time.Second)
}

func jobName(label string) string {
	if label == "this job" {
		return label
	}
	return "job " + label
}

// methods are what is scored, side by side.
var methods = []struct {
	name  string
	value func(forecast.Scored) float64
}{
	{"learned", func(s forecast.Scored) float64 { return s.Median }},
	{"limits", func(s forecast.Scored) float64 { return s.Limits }},
	{"slurm", func(s forecast.Scored) float64 { return s.Slurm }},
}

func (v *whenView) scoreText(p *page) {
	v.keptText(p)
	past := v.kept.Scored(0)
	if len(past) == 0 {
		p.line("", "no forecast on this cluster has been scored yet: %s of jobs that wait", plural(len(v.kept.All), "is", "are"))
		return
	}
	scoreTable(p, past)
}

// scoreTable compares forecasts with what came.
func scoreTable(p *page, past []forecast.Scored) {
	var rows []forecast.Summary
	for _, m := range methods {
		rows = append(rows, forecast.Score(past, m.value))
	}
	percent := func(part float64) string { return fmt.Sprintf("%.0f%%", 100*part) }
	t := app.Table{
		Header: []string{"FORECAST", "COUNT", "MEDIAN ERROR", "WITHIN x2", "P90 ERROR"},
		Right:  []string{"COUNT", "MEDIAN ERROR", "WITHIN x2", "P90 ERROR"},
	}
	for i, s := range rows {
		median, within, p90 := "-", "-", "-"
		if s.Count > 0 {
			median, within, p90 = exact(s.Median), percent(s.WithinTwo), exact(s.P90)
		}
		t.Add(methods[i].name, strconv.Itoa(s.Count), median, within, p90)
	}
	p.table(&t)
	p.line("", "%s of the starts were within the range given for 90%%; its mean interval score is %s, %s as replays have it",
		percent(rows[0].Coverage), exact(rows[0].Interval), exact(rows[0].Raw))
}

type scoreJSON struct {
	Forecast  string  `json:"forecast"`
	Count     int     `json:"count"`
	Median    float64 `json:"median_error_seconds"`
	P90       float64 `json:"p90_error_seconds"`
	WithinTwo float64 `json:"within_factor_two"`
	// Of the 90 % range; null: it has none.
	Coverage *float64 `json:"coverage"`
	Interval *float64 `json:"interval_score_seconds"`
	Raw      *float64 `json:"interval_score_raw_seconds"`
}

func scoresOf(past []forecast.Scored) []scoreJSON {
	list := []scoreJSON{}
	for i, m := range methods {
		s := forecast.Score(past, m.value)
		row := scoreJSON{Forecast: m.name, Count: s.Count, Median: s.Median, P90: s.P90, WithinTwo: s.WithinTwo}
		if i == 0 && s.Count > 0 {
			row.Coverage, row.Interval, row.Raw = &s.Coverage, &s.Interval, &s.Raw
		}
		list = append(list, row)
	}
	return list
}

// neverText is why a job can start in none of its partitions as it is; nil: it can.
func neverText(a *startAnswer) *string {
	if a.Kind != diagnosis.Never {
		return nil
	}
	return &a.Text
}

type whenJSON struct {
	Job        string   `json:"job_id"`
	Partitions []string `json:"partitions"`
	Running    *string  `json:"running_since"`
	Never      *string  `json:"never"`
	Cause      string   `json:"cause"` // "" of a job that runs
	Why        *string  `json:"why"`
	Start      *string  `json:"start_time"` // null: not within 30 days
	Seconds    *float64 `json:"seconds"`
	Low        *float64 `json:"low_seconds"`
	High       *float64 `json:"high_seconds"` // null: beyond 30 days
	Limits     *string  `json:"start_time_by_limits"`
	Slurm      *string  `json:"start_time_by_slurm"`
	Runs       int      `json:"runs"`
	Kind       *string  `json:"runs_of"`
	Replays    int      `json:"replays"`
	Basis      *string  `json:"rests_on"` // replays, limits or work; null: it runs, or nothing is known
}

func (v *whenView) json(w io.Writer) error {
	doc := struct {
		Time    string      `json:"time"`
		Learned bool        `json:"run_times_learned"`
		Jobs    []whenJSON  `json:"jobs"`
		Past    []scoreJSON `json:"past"`
	}{v.at.Format(time.RFC3339), v.noRuns == "", []whenJSON{}, scoresOf(v.kept.Scored(0))}
	finite := func(f float64) *float64 {
		if math.IsInf(f, 0) {
			return nil
		}
		return &f
	}
	for _, a := range v.answers {
		j := whenJSON{
			Job: a.label, Partitions: filled(a.partitions), Never: neverText(&a),
			Cause: string(a.Cause), Why: optional(a.Text), Running: rfc3339(a.running), Limits: rfc3339(a.Limits), Slurm: rfc3339(a.slurm),
			Runs: a.Runs, Kind: optional(a.Like), Replays: a.Estimate.Replays,
			Basis: optional(string(a.Basis)),
		}
		if a.running == 0 && a.Kind != diagnosis.Never {
			if a.Estimate.Median != forecast.Forever {
				j.Start = rfc3339(a.Estimate.Median)
				j.Seconds = finite(float64(max(0, a.Estimate.Median-v.at.Unix())))
			}
			j.Low, j.High = finite(a.Low), finite(a.High)
		}
		doc.Jobs = append(doc.Jobs, j)
	}
	return app.PrintJSON(w, doc)
}
