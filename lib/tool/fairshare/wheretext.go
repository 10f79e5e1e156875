package fairshare

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/ponos-tools/ponos/lib/advise/planner"
	"github.com/ponos-tools/ponos/lib/base/app"
	"github.com/ponos-tools/ponos/lib/base/fault"
)

func showWhere(ctx context.Context, a *planner.Asker, v *whereView, stdout io.Writer) error {
	if err := v.load(ctx, a); err != nil {
		return err
	}
	var err error
	if v.asJSON {
		err = v.json(stdout)
	} else {
		width := 0
		if app.IsTerminal(stdout) {
			width = app.Width(stdout)
		}
		p := newPage(stdout, width, app.Color(stdout))
		v.text(p)
		err = p.Flush()
	}
	if err == nil && v.answers[0].refusal != "" {
		return fault.Exit(int(fault.Failed), nil)
	}
	return err
}

func (v *whereView) text(p *page) {
	rows := v.merged()
	row := func(value func(answer) string) func(int, []byte) []byte {
		return textCell(func(i int) string { return value(rows[i]) })
	}
	columns := []column{
		{title: "START", cell: row(func(r answer) string {
			switch {
			case r.refusal != "":
				return "refused"
			case v.now(r.start):
				return "now"
			case r.start == 0:
				return "unknown"
			}
			return when(r.start, v.at)
		})},
		{title: "EXPECTED", cell: row(func(r answer) string {
			if r.expected == 0 {
				return ""
			}
			return when(r.expected, v.at)
		})},
		{title: "PARTITION", cell: row(func(r answer) string { return r.partition })},
		{title: "QOS", cell: row(func(r answer) string { return or(r.qos, "default") })},
		{title: "IN LINE", right: true, drop: 2, cell: row(func(r answer) string { return fmt.Sprint(r.ahead) })},
		{title: "NODES", drop: 1, cell: row(func(r answer) string { return r.nodes })},
		{title: "NOTE", cell: row(func(r answer) string {
			switch {
			case r.refusal != "":
				return r.refusal
			case r.note != "":
				return r.note
			case r.preemptible:
				return "preemptible (" + strings.ToLower(r.preemptMode) + ")"
			}
			return ""
		})},
	}
	learned := slices.ContainsFunc(rows, func(r answer) bool { return r.expected > 0 })
	if !learned {
		columns = slices.DeleteFunc(columns, func(c column) bool { return c.title == "EXPECTED" })
	}
	p.table(len(rows), columns)
	p.print("\n")
	if partitions, qos := v.combination(); len(partitions) > 0 {
		with := ""
		if qos != "" {
			with = " --qos=" + qos
		}
		p.line("", "soonest: --partition=%s%s", strings.Join(partitions, ","), with)
	}
	if v.noDatabase {
		p.line("", "slurmdbd does not answer, so the accounts and QOS of the user are not known: only the default ones are tried")
	}
	for _, r := range v.answers {
		if r.refusal == "" && r.preemptible && v.now(r.start) {
			p.line("", "%s would start it now. The price: %s", r.partition, cost(r.preemptMode))
			break
		}
	}
	if v.skipped > 0 {
		p.line("", "%d more combinations were not tried: choose with --partition or --qos", v.skipped)
	}
	p.line("", "START is planned with time limits, after the jobs that come first.")
	if learned {
		p.line("", "EXPECTED is when it starts as jobs really run (fairshare when).")
	}
}

// cost is what a preemptible partition means for a job.
func cost(mode string) string {
	switch {
	case strings.Contains(mode, "CANCEL"):
		return "a job of another partition may take its place at any time; it is cancelled then, so it must save its state as it goes"
	case strings.Contains(mode, "SUSPEND"):
		return "a job of another partition may take its place at any time; it is suspended until that one ends"
	}
	return "a job of another partition may take its place at any time; it is requeued then and starts over, " +
		"so it must save its state as it goes and continue from there. " +
		"Use --requeue --open-mode=append, or the output of the first run is overwritten"
}

type answerJSON struct {
	Partition   string  `json:"partition"`
	QOS         *string `json:"qos"`
	Start       *string `json:"start_time"`
	Now         bool    `json:"now"`
	Nodes       *string `json:"nodelist"`
	Refusal     *string `json:"refusal"`
	Preemptible bool    `json:"preemptible"`
	PreemptMode string  `json:"preempt_mode"`
	InLine      int     `json:"jobs_in_line"`
	Expected    *string `json:"expected_time"`
	Slurm       *string `json:"start_time_by_slurm"`
	Note        *string `json:"note"`
}

func (v *whereView) json(w io.Writer) error {
	partitions, qos := v.combination()
	doc := struct {
		Time       string       `json:"time"`
		Partitions []string     `json:"soonest_partitions"`
		QOS        *string      `json:"soonest_qos"`
		Skipped    int          `json:"not_tried"`
		Answers    []answerJSON `json:"answers"`
	}{v.at.Format(time.RFC3339), filled(partitions), optional(qos), v.skipped, []answerJSON{}}
	for _, r := range v.answers {
		doc.Answers = append(doc.Answers, answerJSON{
			r.partition, optional(r.qos), rfc3339(r.start), r.refusal == "" && v.now(r.start), optional(r.nodes), optional(r.refusal),
			r.preemptible, r.preemptMode, r.ahead, rfc3339(r.expected), rfc3339(r.bySlurm), optional(r.note),
		})
	}
	return app.PrintJSON(w, doc)
}
