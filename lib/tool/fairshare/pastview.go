package fairshare

import (
	"cmp"
	"context"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/ponos-tools/ponos/lib/advise/planner"
	"github.com/ponos-tools/ponos/lib/base/app"
	"github.com/ponos-tools/ponos/lib/base/fault"
	"github.com/ponos-tools/ponos/lib/base/unit"
	"github.com/ponos-tools/ponos/lib/slurm"
)

// pastQuery asks for the story of jobs that may have ended.
type pastQuery struct {
	ask *planner.Asker
	ids []string
}

// pastView is the story of jobs: when they were submitted, eligible and started, and what they waited for.
type pastView struct {
	at      time.Time
	cluster string
	runs    []slurm.Waited
}

func newPastQuery(a *planner.Asker, c *cli.Context) (*pastQuery, error) {
	v := &pastQuery{ask: a}
	for _, name := range []string{"partition", "user", "account", "me", "format", "noheader", "first"} {
		if c.IsSet(name) {
			return nil, fault.Errorf(fault.Usage, "--past cannot be combined with --%s", name)
		}
	}
	for _, arg := range append([]string{c.String("jobs")}, c.Args().Slice()...) {
		for _, id := range splitJobs(arg) {
			if !jobLabel.MatchString(id) {
				return nil, fault.Errorf(fault.Usage, "invalid job id %q: expected 349, 349_7 or 349+1", id)
			}
			v.ids = append(v.ids, id)
		}
	}
	if len(v.ids) == 0 {
		return nil, fault.Errorf(fault.Usage, "--past: no job is named")
	}
	return v, nil
}

func (q *pastQuery) load(ctx context.Context) (answer, error) {
	var config slurm.Config
	if err := q.ask.Config(&config)(ctx); err != nil {
		return nil, err
	}
	if !config.Accounting() {
		return nil, noAccounting("jobs --past")
	}
	v := &pastView{at: q.ask.Now(), cluster: config.Get("ClusterName")}
	known := map[string]bool{}
	if err := q.ask.Client.EachWait(ctx, q.ids, slurm.Period{}, func(w *slurm.Waited) error {
		wanted := false
		for _, id := range q.ids {
			if w.Is(id) {
				wanted, known[id] = true, true
			}
		}
		if wanted {
			v.runs = append(v.runs, *w)
		}
		return nil
	}); err != nil {
		return nil, err
	}
	for _, id := range q.ids {
		if !known[id] {
			return nil, fault.Errorf(fault.Usage, "accounting has no job %s", id)
		}
	}
	return v, nil
}

func (v *pastView) text(p *page) error {
	for i := range v.runs {
		if i > 0 {
			p.print("\n")
		}
		v.story(p, &v.runs[i])
	}
	return nil
}

// story says what became of one run.
func (v *pastView) story(p *page, w *slurm.Waited) {
	p.printf("%s\n", p.paint(bold, "job "+app.Sanitize(w.Label))+" "+strconv.Quote(app.Sanitize(w.Name))+": "+
		app.Sanitize(strings.ToLower(strings.ReplaceAll(w.State, "_", " "))))
	p.line("  ", "user %s, account %s, QoS %s, partition %s", or(w.User, "?"), or(w.Account, "none"), or(w.QOS, "none"), w.Partition)
	p.line("  ", "requested %s", request(&slurm.Job{Nodes: uint64(w.Nodes), CPUs: uint64(w.TRES["cpu"]), TRES: w.TRES, Limit: w.Limit}))
	p.line("  ", "submitted %s", unit.ShortTime(w.Submit, v.at))
	held, queued := heldBack(w, v.at), inQueue(w, v.at)
	switch {
	case held == 0:
	case w.Eligible == 0:
		p.line("  ", "not eligible for %s: a hold, a begin time, a dependency or the limit of its array kept it", span(held))
	default:
		p.line("  ", "eligible %s, %s later", unit.ShortTime(w.Eligible, v.at), span(held))
	}
	switch {
	case w.Start > 0:
		p.line("  ", "started %s, after %s in the queue, on %s", unit.ShortTime(w.Start, v.at), span(queued), or(w.Hosts, "its nodes"))
	case w.End > 0 && w.Eligible == 0:
		p.line("  ", "never started")
	case w.End > 0:
		p.line("  ", "never started: it was in the queue for %s", span(queued))
	case w.Eligible == 0:
		p.line("  ", "has not started. Why: fairshare jobs %s", w.Label)
	default:
		p.line("  ", "has not started: it has been in the queue for %s. Why: fairshare jobs %s", span(queued), w.Label)
	}
	switch code := shortReason(w.Reason); {
	case code != "":
		p.line("  ", "the last reason that Slurm kept is %s: %s", code, slurm.ExplainReason(code).Plain)
	case queued > 0: // accounting keeps neither Priority nor Resources
		p.line("  ", "it waited for its turn, or for free nodes")
	}
	if w.End > 0 {
		ran := ""
		if w.Start > 0 {
			ran = ", after " + span(stretch(w.Start, w.End))
		}
		p.line("  ", "ended %s%s", unit.ShortTime(w.End, v.at), ran)
	}
}

func stretch(from, to int64) time.Duration { return time.Duration(max(0, to-from)) * time.Second }

// eligible is when a run could start if something was free; for one that never could, when it ended, or now.
func eligible(w *slurm.Waited, now time.Time) int64 {
	if w.Start > 0 {
		return cmp.Or(w.Eligible, w.Submit, w.Start)
	}
	return cmp.Or(w.Eligible, w.End, now.Unix())
}

// heldBack is how long a run could not start whatever was free: a hold, a begin time, a dependency, a requeue.
func heldBack(w *slurm.Waited, now time.Time) time.Duration {
	if w.Submit == 0 {
		return 0
	}
	return stretch(w.Submit, eligible(w, now))
}

// inQueue is how long an eligible run waited until it started or ended, or has waited until now.
func inQueue(w *slurm.Waited, now time.Time) time.Duration {
	return stretch(eligible(w, now), cmp.Or(w.Start, w.End, now.Unix()))
}

type pastRunJSON struct {
	JobID     string  `json:"job_id"`
	Raw       string  `json:"raw_job_id"`
	Name      string  `json:"name"`
	User      string  `json:"user"`
	Account   *string `json:"account"`
	QOS       *string `json:"qos"`
	Partition string  `json:"partition"`
	State     string  `json:"state"`
	Submit    *string `json:"submit_time"`
	Eligible  *string `json:"eligible_time"`
	Start     *string `json:"start_time"`
	End       *string `json:"end_time"`
	HeldBack  int64   `json:"held_back_seconds"`
	Queued    int64   `json:"queued_seconds"`
	Reason    *string `json:"last_reason"`
	Limit     *int64  `json:"time_limit_seconds"`
	Nodes     int64   `json:"nodes"`
	CPUs      float64 `json:"cpus"`
	GPUs      float64 `json:"gpus"`
	NodeList  *string `json:"nodelist"`
}

func (v *pastView) json(w io.Writer) error {
	doc := struct {
		Time string        `json:"time"`
		Runs []pastRunJSON `json:"runs"`
	}{v.at.Format(time.RFC3339), []pastRunJSON{}}
	for i := range v.runs {
		r := &v.runs[i]
		doc.Runs = append(doc.Runs, pastRunJSON{
			JobID: r.Label, Raw: r.ID, Name: r.Name, User: r.User, Account: optional(r.Account), QOS: optional(r.QOS),
			Partition: r.Partition, State: r.State, Submit: rfc3339(r.Submit), Eligible: rfc3339(r.Eligible), Start: rfc3339(r.Start),
			End: rfc3339(r.End), HeldBack: int64(heldBack(r, v.at).Seconds()), Queued: int64(inQueue(r, v.at).Seconds()),
			Reason: optional(r.Reason), Limit: seconds(r.Limit), Nodes: r.Nodes, CPUs: r.TRES["cpu"], GPUs: r.TRES.GPUs(),
			NodeList: optional(r.Hosts),
		})
	}
	return app.PrintJSON(w, doc)
}

func (v *pastView) metrics() []metric { return nil }

func (v *pastView) clusterName() string { return v.cluster }
