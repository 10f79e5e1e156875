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

func showWhere(ctx context.Context, a *planner.Asker, q *whereQuery, asJSON bool, stdout io.Writer) error {
	v, err := q.load(ctx, a)
	if err != nil {
		return err
	}
	if err := printTo(stdout, stdout, v, asJSON); err != nil {
		return err
	}
	if v.spots[0].refusal != "" {
		return fault.Exit(int(fault.Failed), nil)
	}
	return nil
}

func (v *whereView) text(p *page) error {
	rows := v.merged()
	t := app.Table{
		Header: []string{"START", "EXPECTED", "PARTITION", "QOS", "IN LINE", "NODES", "NOTE"},
		Right:  []string{"IN LINE"}, Drop: []string{"IN LINE", "NODES"}, Whole: []string{"START", "EXPECTED", "PARTITION", "QOS"},
	}
	for _, r := range rows {
		start, expected, note := when(r.start, v.at), "", or(r.refusal, r.note)
		switch {
		case r.refusal != "":
			start = "refused"
		case v.now(r.start):
			start = "now"
		}
		if r.expected != 0 {
			expected = when(r.expected, v.at)
		}
		if note == "" && r.preemptible {
			note = "preemptible (" + strings.ToLower(r.preemptMode) + ")"
		}
		t.Add(start, expected, r.partition, or(r.qos, "default"), fmt.Sprint(r.ahead), r.nodes, note)
	}
	learned := slices.ContainsFunc(rows, func(r spot) bool { return r.expected > 0 })
	if !learned {
		t.Omit = []string{"EXPECTED"}
	}
	p.table(&t)
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
	for _, r := range v.spots {
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
	return nil
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
	for _, r := range v.spots {
		doc.Answers = append(doc.Answers, answerJSON{
			r.partition, optional(r.qos), rfc3339(r.start), r.refusal == "" && v.now(r.start), optional(r.nodes), optional(r.refusal),
			r.preemptible, r.preemptMode, r.ahead, rfc3339(r.expected), rfc3339(r.bySlurm), optional(r.note),
		})
	}
	return app.PrintJSON(w, doc)
}
