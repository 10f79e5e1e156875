package fairshare

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/ponos-tools/ponos/lib/advise/planner"
	"github.com/ponos-tools/ponos/lib/base/app"
)

// limitsQuery asks for the limits of a user or of an account.
type limitsQuery struct {
	ask  *planner.Asker
	name string // "": the user who asks
}

// limitsView shows every limit that bounds the jobs of a user or of an account.
type limitsView struct{ *planner.Bounds }

func (q *limitsQuery) load(ctx context.Context) (answer, error) {
	bounds, err := q.ask.Bounds(ctx, q.name)
	if errors.Is(err, planner.ErrNoAccounts) {
		return nil, noAccounting("limits")
	}
	var none *planner.UnknownNameError
	if errors.As(err, &none) {
		return nil, unknown("account or user", none.Name, none.Accounts)
	}
	return &limitsView{bounds}, err
}

// limitWords are the resources that are not counted ones.
var limitWords = map[string]string{
	"jobs": "running jobs", "accrue": "jobs that gain priority by age", "submit": "jobs in the queue", "wall": "time",
}

var resourceWords = map[string]string{
	"cpu": "CPUs", "mem": "memory", "node": "nodes", "gres/gpu": "GPUs", "billing": "billing units", "energy": "energy",
}

// limitName is the limit in plain words.
func limitName(r *planner.Bound) string {
	name, ok := limitWords[r.Resource]
	if ok {
		switch {
		case r.Resource == "wall" && r.Per == "Job":
			return "time limit of a job"
		case r.Resource == "wall":
			return "time of all jobs"
		}
		return name
	}
	name, ok = resourceWords[r.Resource]
	if !ok {
		name = r.Resource
		if kind, isGPU := strings.CutPrefix(name, "gres/gpu:"); isGPU {
			name = kind + " GPUs"
		}
	}
	if r.Unit != "" {
		name = strings.TrimSuffix(strings.Replace(name, "GPUs", "GPU", 1), "s") + " " + unitOf(r)
	}
	switch {
	case r.Unit == "RunMinutes":
		name += " of running jobs"
	case r.Bound == "Min":
		name += " of a job, at least"
	case r.Per == "Job":
		name += " of a job"
	case r.Per == "Node":
		name += " of a job on a node"
	}
	return name
}

// unitOf is how people count the time of resources.
func unitOf(r *planner.Bound) string {
	if r.Allowed < 60 {
		return "minutes"
	}
	return "hours"
}

// limitAmount writes a number of what the limit counts.
func limitAmount(r *planner.Bound, n float64) string {
	switch {
	case r.Resource == "wall":
		return span(time.Duration(n * float64(time.Minute)))
	case r.Resource == "mem" && r.Unit == "":
		return memory(n)
	case r.Unit != "" && unitOf(r) == "hours":
		return strings.TrimSuffix(number(n/60, 1), ".0")
	}
	return number(n, 0)
}

// limitState is whether the limit binds, and whom.
func limitState(r *planner.Bound) string {
	switch n := len(r.Jobs); {
	case n == 1:
		return "job " + r.Jobs[0] + " waits for it"
	case n > 3:
		return fmt.Sprintf("%d jobs wait for it: %s, ...", n, strings.Join(r.Jobs[:3], ", "))
	case n > 1:
		return fmt.Sprintf("%d jobs wait for it: %s", n, strings.Join(r.Jobs, ", "))
	case r.Binds():
		return "used up"
	}
	return ""
}

func (v *limitsView) text(p *page) error {
	subject := "user " + v.Name
	if v.IsAccount {
		subject = "account " + v.Name
	}
	switch {
	case !v.IsAccount && len(v.Own) == 0:
		p.line("", "user %s has no account on this cluster: if Slurm enforces associations, it refuses jobs of the user", v.Name)
		return nil
	case len(v.Rows) == 0:
		p.line("", "No limit of an association or a QoS applies to %s.", subject)
		return nil
	}
	if !v.Known {
		p.line("", "Slurm does not report usage; only the limits are shown.")
		p.print("\n")
	}
	t := app.Table{
		Header: []string{"LIMIT", "OF", "ALLOWED", "USED", "LEFT", "NOW"},
		Right:  []string{"ALLOWED", "USED", "LEFT"}, Drop: []string{"USED"}, Whole: []string{"LIMIT", "OF"},
	}
	for i := range v.Rows {
		r, used, left := &v.Rows[i], "-", "-"
		if r.Known {
			used, left = limitAmount(r, r.Used), limitAmount(r, r.Left())
		}
		t.Add(limitName(r), r.String(), limitAmount(r, r.Allowed), used, left, limitState(r))
	}
	p.table(&t)
	return nil
}

// limitJSON is a limit for programs. Allowed, used and left are counts, bytes of mem, or
// seconds: of wall, and of a resource over time (MiB seconds of mem).
type limitJSON struct {
	Kind      string   `json:"kind"` // association or qos
	Account   *string  `json:"account"`
	User      *string  `json:"user"`
	QOS       *string  `json:"qos"`
	Partition *string  `json:"partition"`
	Bound     string   `json:"bound"`    // group, max or min
	Resource  string   `json:"resource"` // jobs, accrue, submit, wall, or a TRES
	Per       *string  `json:"per"`      // job, node, user or account
	Time      *string  `json:"time"`     // used (until now) or running (by jobs that run, to their time limits)
	Unit      string   `json:"unit"`     // count, bytes or seconds
	Allowed   float64  `json:"allowed"`
	Used      *float64 `json:"used"` // null: about a single job, or not known
	Left      *float64 `json:"left"`
	Binds     bool     `json:"binds"`
	Waiting   []string `json:"waiting_jobs"`
}

func limitDocument(r *planner.Bound) limitJSON {
	doc := limitJSON{
		Kind: "association", Account: optional(r.Account), User: optional(r.User), QOS: optional(r.QOS), Partition: optional(r.Partition),
		Bound:    map[string]string{"Grp": "group", "Max": "max", "Min": "min"}[r.Bound],
		Resource: r.Resource, Unit: "count", Per: optional(strings.ToLower(r.Per)), Binds: r.Binds(), Waiting: r.Jobs,
	}
	scale := 1.0
	switch {
	case r.Unit != "" || r.Resource == "wall":
		doc.Unit, scale = "seconds", 60
		doc.Time = optional(map[string]string{"RunMinutes": "running", "Minutes": "used"}[r.Unit])
	case r.Resource == "mem":
		doc.Unit, scale = "bytes", 1<<20
	}
	doc.Allowed = r.Allowed * scale
	if r.OfQOS {
		doc.Kind = "qos"
	}
	if r.Known {
		used, left := r.Used*scale, r.Left()*scale
		doc.Used, doc.Left = &used, &left
	}
	if doc.Waiting == nil {
		doc.Waiting = []string{}
	}
	return doc
}

func (v *limitsView) json(w io.Writer) error {
	doc := struct {
		Time    string      `json:"time"`
		Cluster string      `json:"cluster"`
		User    *string     `json:"user"`
		Account *string     `json:"account"`
		Limits  []limitJSON `json:"limits"`
	}{Time: v.At.Format(time.RFC3339), Cluster: v.Cluster, Limits: []limitJSON{}}
	if v.IsAccount {
		doc.Account = &v.Name
	} else {
		doc.User = &v.Name
	}
	for i := range v.Rows {
		doc.Limits = append(doc.Limits, limitDocument(&v.Rows[i]))
	}
	return app.PrintJSON(w, doc)
}

func (v *limitsView) metrics() []metric {
	var all []metric
	for i := range v.Rows {
		r := limitDocument(&v.Rows[i])
		if r.Used == nil {
			continue
		}
		labels := []string{"bound", r.Bound, "resource", r.Resource}
		for _, label := range []struct {
			name  string
			value *string
		}{{"account", r.Account}, {"user", r.User}, {"qos", r.QOS}, {"partition", r.Partition}, {"per", r.Per}, {"time", r.Time}} {
			if label.value != nil {
				labels = append(labels, label.name, *label.value)
			}
		}
		all = append(all,
			metric{"fairshare_limit", "A limit of an association or a QOS: a count, bytes, or seconds of a resource.", labels, r.Allowed},
			metric{"fairshare_limit_used", "What counts against the limit.", labels, *r.Used},
			metric{"fairshare_limit_waiting_jobs", "Jobs that wait for the limit.", labels, float64(len(r.Waiting))})
	}
	return all
}

func (v *limitsView) clusterName() string { return v.Cluster }
