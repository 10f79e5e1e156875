package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/ponos-tools/ponos/lib/app"
	"github.com/ponos-tools/ponos/lib/planner"
	"github.com/ponos-tools/ponos/lib/slurm"
)

// limitsView is every limit that bounds the jobs of a user or of an account, with what
// counts against it.
type limitsView struct {
	ask  *planner.Asker
	name string // of a user, or of an account; "" until load: the one who asks
	mine bool

	at           time.Time
	cluster      string
	isAccount    bool
	known        bool                         // the controller tells what is used
	associations map[string]slurm.Association // of accounts, by name
	own          []slurm.Association          // of the user
	qos          []slurm.QOS
	partitions   []slurm.Partition
	usage        slurm.Usages
	waiting      []slurm.Job

	rows []limitRow
}

// whose is what a limit belongs to.
type whose struct {
	account, partition, qos string
	// user is the user to whom the limit applies alone. In a QOS, each user and each
	// account has the limit for itself.
	user string
}

func (w whose) String() string {
	text := "account " + w.account
	switch {
	case w.qos != "" && w.user != "":
		text = "QoS " + w.qos + ", each user"
	case w.qos != "" && w.account != "":
		text = "QoS " + w.qos + ", account " + w.account
	case w.qos != "":
		text = "QoS " + w.qos
	case w.user != "":
		text = w.user + " in account " + w.account
	}
	if w.partition != "" {
		text += " (partition " + w.partition + ")"
	}
	return text
}

// limitRow is one limit.
type limitRow struct {
	slurm.LimitKind
	whose
	allowed float64
	used    float64
	counts  bool // something counts against it: it is not about a single job
	known   bool // what counts is known
	jobs    []string
}

// left is how much the limit leaves.
func (r *limitRow) left() float64 { return max(0, r.allowed-r.used) }

// binds reports whether the limit keeps jobs from starting now.
func (r *limitRow) binds() bool { return len(r.jobs) > 0 || r.counts && r.known && r.left() == 0 }

func (v *limitsView) load(ctx context.Context) error {
	var config slurm.Config
	if err := v.ask.Config(&config)(ctx); err != nil {
		return err
	}
	if !config.Accounting() {
		return noAccounting("limits")
	}
	v.cluster = config.Get("ClusterName")
	if v.name == "" {
		name, err := planner.Me()
		if err != nil {
			return err
		}
		v.name, v.mine = name, true
	}
	var all, own []slurm.Association
	v.known = true
	if err := planner.Together(ctx,
		planner.Listing(&all, func(ctx context.Context) ([]slurm.Association, error) { return v.ask.Client.Associations(ctx, "") }),
		planner.Listing(&own, func(ctx context.Context) ([]slurm.Association, error) { return v.ask.Client.Associations(ctx, v.name) }),
		planner.Listing(&v.qos, v.ask.Client.QOS),
		v.ask.Partitions(&v.partitions),
		v.ask.Jobs(&v.waiting, nil, "PENDING"),
		func(ctx context.Context) (err error) {
			v.usage, err = v.ask.Client.Usages(ctx)
			if failure, failed := slurm.FailureOf(err); failed && failure == slurm.Refused {
				v.known, err = false, nil // limits are worth showing by themselves
			}
			return err
		}); err != nil {
		return err
	}
	v.at = v.ask.Now()
	here := func(a slurm.Association) bool { return a.Cluster != v.cluster }
	v.own = slices.DeleteFunc(own, here)
	v.associations = map[string]slurm.Association{}
	for _, a := range slices.DeleteFunc(all, here) {
		v.associations[a.Account] = a
	}
	_, v.isAccount = v.associations[v.name]
	switch {
	case len(v.own) > 0:
		v.isAccount = false
	case v.isAccount || v.mine:
	default:
		return unknown("user or account", v.name, slices.Collect(maps.Keys(v.associations)))
	}
	v.collect()
	return nil
}

// collect makes the rows: the user's own first, then those of the accounts from below,
// then those of each QOS.
func (v *limitsView) collect() {
	v.rows = nil
	accounts := map[string]bool{}
	qos := map[string]bool{}
	chain := func(name string) {
		for name != "" && !accounts[name] {
			accounts[name] = true
			a := v.associations[name]
			v.group(whose{account: name}, false, a.Grp, v.counted(name, "", ""))
			name = a.Parent
		}
	}
	for _, a := range v.own {
		w := whose{account: a.Account, user: v.name, partition: a.Partition}
		used := v.counted(a.Account, v.name, a.Partition)
		v.group(w, false, a.Grp, used)
		v.count("Max", "jobs", "", w, false, a.MaxJobs, used.Jobs)
		v.count("Max", "accrue", "", w, false, a.MaxJobsAccrue, used.JobsAccrue)
		v.count("Max", "submit", "", w, false, a.MaxSubmit, used.Submit)
		v.perJob(w, a.MaxTRESPerJob, a.MaxTRESPerNode, a.MaxTRESMinsPerJob, nil, a.MaxWall)
		for _, q := range a.QOS {
			qos[q] = true
		}
	}
	for _, a := range v.own {
		chain(a.Account)
	}
	if v.isAccount {
		chain(v.name)
		for _, q := range v.associations[v.name].QOS {
			qos[q] = true
		}
	}
	ofPartition := map[string][]string{}
	for _, p := range v.partitions {
		if p.QOS != "" {
			ofPartition[p.QOS] = append(ofPartition[p.QOS], p.Name)
		}
	}
	slices.SortFunc(v.qos, func(a, b slurm.QOS) int { return strings.Compare(a.Name, b.Name) })
	for _, q := range v.qos {
		partitions := ofPartition[q.Name]
		if !qos[q.Name] && len(partitions) == 0 {
			continue
		}
		w := whose{qos: q.Name}
		if !qos[q.Name] {
			w.partition = strings.Join(partitions, ",")
		}
		v.inQOS(w, q, accounts)
	}
	v.blame()
}

func (v *limitsView) inQOS(w whose, q slurm.QOS, accounts map[string]bool) {
	var used slurm.CountedQOS
	for _, u := range v.usage.QOS {
		if u.Name == q.Name {
			used = u
		}
	}
	v.group(w, true, q.Grp, used.Counted)
	if !v.isAccount {
		own := w
		own.user = v.name
		// The controller knows users by their numbers.
		id, ok := v.ask.UID(v.name)
		mine, known := used.Users[id], v.known
		v.known = known && ok
		v.count("Max", "jobs", "User", own, true, q.MaxJobsPerUser, mine.Jobs)
		v.count("Max", "accrue", "User", own, true, q.MaxJobsAccruePerUser, mine.JobsAccrue)
		v.count("Max", "submit", "User", own, true, q.MaxSubmitPerUser, mine.Submit)
		v.list("Max", "", "User", own, true, q.MaxTRESPerUser, mine.TRES)
		v.list("Max", "RunMinutes", "User", own, true, q.MaxTRESRunMinsPerUser, mine.TRESRunMins)
		v.known = known
	}
	for _, name := range slices.Sorted(maps.Keys(accounts)) {
		if v.associations[name].Parent == "" {
			continue // no job is of the root
		}
		theirs, account := used.Accounts[name], w
		account.account = name
		v.count("Max", "jobs", "Account", account, true, q.MaxJobsPerAccount, theirs.Jobs)
		v.count("Max", "accrue", "Account", account, true, q.MaxJobsAccruePerAccount, theirs.JobsAccrue)
		v.count("Max", "submit", "Account", account, true, q.MaxSubmitPerAccount, theirs.Submit)
		v.list("Max", "", "Account", account, true, q.MaxTRESPerAccount, theirs.TRES)
		v.list("Max", "RunMinutes", "Account", account, true, q.MaxTRESRunMinsPerAccount, theirs.TRESRunMins)
	}
	v.perJob(w, q.MaxTRESPerJob, q.MaxTRESPerNode, q.MaxTRESMinsPerJob, q.MinTRESPerJob, q.MaxWall)
}

func (v *limitsView) counted(account, user, partition string) slurm.Counted {
	for _, u := range v.usage.Associations {
		if u.Account == account && u.User == user && u.Partition == partition {
			return u.Counted
		}
	}
	return slurm.Counted{}
}

// group adds the limits of what all jobs have together.
func (v *limitsView) group(w whose, ofQOS bool, limits slurm.GroupLimits, used slurm.Counted) {
	v.count("Grp", "jobs", "", w, ofQOS, limits.Jobs, used.Jobs)
	v.count("Grp", "accrue", "", w, ofQOS, limits.JobsAccrue, used.JobsAccrue)
	v.count("Grp", "submit", "", w, ofQOS, limits.Submit, used.Submit)
	v.list("Grp", "", "", w, ofQOS, limits.TRES, used.TRES)
	v.list("Grp", "Minutes", "", w, ofQOS, limits.TRESMins, used.TRESMins)
	v.list("Grp", "RunMinutes", "", w, ofQOS, limits.TRESRunMins, used.TRESRunMins)
	if limits.Wall.Set {
		v.add(limitRow{LimitKind: slurm.LimitKind{OfQOS: ofQOS, Bound: "Grp", Resource: "wall"}, whose: w, allowed: limits.Wall.Max.Minutes(), used: used.WallMins, counts: true})
	}
}

func (v *limitsView) perJob(w whose, job, node, minutes, least slurm.TRES, wall slurm.Limit[time.Duration]) {
	each := func(bound, unit, per string, limits slurm.TRES) {
		for _, name := range slices.Sorted(maps.Keys(limits)) {
			v.add(limitRow{LimitKind: slurm.LimitKind{OfQOS: w.qos != "", Bound: bound, Resource: name, Unit: unit, Per: per}, whose: w, allowed: limits[name]})
		}
	}
	if wall.Set {
		v.add(limitRow{LimitKind: slurm.LimitKind{OfQOS: w.qos != "", Bound: "Max", Resource: "wall", Per: "Job"}, whose: w, allowed: wall.Max.Minutes()})
	}
	each("Max", "", "Job", job)
	each("Max", "", "Node", node)
	each("Max", "Minutes", "Job", minutes)
	each("Min", "", "Job", least)
}

func (v *limitsView) count(bound, what, per string, w whose, ofQOS bool, limit slurm.Limit[int64], used int64) {
	if limit.Set {
		v.add(limitRow{LimitKind: slurm.LimitKind{OfQOS: ofQOS, Bound: bound, Resource: what, Per: per}, whose: w, allowed: float64(limit.Max), used: float64(used), counts: true})
	}
}

func (v *limitsView) list(bound, unit, per string, w whose, ofQOS bool, limits, used slurm.TRES) {
	for _, name := range slices.Sorted(maps.Keys(limits)) {
		n := used[name]
		if name == "gres/gpu" {
			n = used.GPUs()
		}
		v.add(limitRow{LimitKind: slurm.LimitKind{OfQOS: ofQOS, Bound: bound, Resource: name, Unit: unit, Per: per}, whose: w, allowed: limits[name], used: n, counts: true})
	}
}

func (v *limitsView) add(r limitRow) {
	r.known = v.known && r.counts
	v.rows = append(v.rows, r)
}

// blame names the jobs that wait for each limit, by the reason that Slurm gives.
func (v *limitsView) blame() {
	for _, j := range v.waiting {
		kind, ok := slurm.LimitOfReason(j.Reason)
		if !ok || !v.isAccount && j.User != v.name {
			continue
		}
		var tightest *limitRow
		for i := range v.rows {
			r := &v.rows[i]
			if !r.Is(kind) || !v.concerns(&r.whose, &j) {
				continue
			}
			if tightest == nil || r.left() < tightest.left() {
				tightest = r
			}
		}
		if tightest != nil {
			tightest.jobs = append(tightest.jobs, j.Label)
		}
	}
}

// concerns reports whether a job is bound by the limits of w.
func (v *limitsView) concerns(w *whose, j *slurm.Job) bool {
	if w.user != "" && w.user != j.User {
		return false
	}
	if w.qos != "" {
		return (w.qos == j.QOS || w.partition != "" && slices.Contains(list(w.partition), j.Partition)) && (w.account == "" || w.account == j.Account)
	}
	for name := j.Account; name != ""; name = v.associations[name].Parent {
		if name == w.account {
			return w.partition == "" || w.partition == j.Partition
		}
	}
	return false
}

// limitWords are the resources that are not counted ones.
var limitWords = map[string]string{"jobs": "running jobs", "accrue": "jobs that gain priority by age", "submit": "jobs in the queue", "wall": "time"}

var resourceWords = map[string]string{"cpu": "CPUs", "mem": "memory", "node": "nodes", "gres/gpu": "GPUs", "billing": "billing units", "energy": "energy"}

// what is the limit in plain words.
func (r *limitRow) what() string {
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
		name = strings.TrimSuffix(strings.Replace(name, "GPUs", "GPU", 1), "s") + " minutes"
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

// amount writes a number of what the limit counts.
func (r *limitRow) amount(n float64) string {
	switch {
	case r.Resource == "wall":
		return span(time.Duration(n * float64(time.Minute)))
	case r.Resource == "mem" && r.Unit == "":
		return memory(n)
	}
	return number(n, 0)
}

// state is whether the limit binds, and whom.
func (r *limitRow) state() string {
	switch n := len(r.jobs); {
	case n == 1:
		return "job " + r.jobs[0] + " waits for it"
	case n > 3:
		return fmt.Sprintf("%d jobs wait for it: %s, …", n, strings.Join(r.jobs[:3], ", "))
	case n > 1:
		return fmt.Sprintf("%d jobs wait for it: %s", n, strings.Join(r.jobs, ", "))
	case r.binds():
		return "used up"
	}
	return ""
}

func (v *limitsView) text(p *page) error {
	subject := "user " + v.name
	if v.isAccount {
		subject = "account " + v.name
	}
	switch {
	case !v.isAccount && len(v.own) == 0:
		p.line("", "%s has no association on this cluster: jobs need an account", v.name)
		return nil
	case len(v.rows) == 0:
		p.line("", "No limit of an association or a QoS applies to %s.", subject)
		return nil
	}
	if !v.known {
		p.line("", "Slurm does not tell what is used; only the limits are shown.")
		p.print("\n")
	}
	cell := func(value func(r *limitRow) string) func(int, []byte) []byte {
		return textCell(func(i int) string { return value(&v.rows[i]) })
	}
	p.table(len(v.rows), []column{
		{title: "LIMIT", cell: cell((*limitRow).what)},
		{title: "OF", cell: cell(func(r *limitRow) string { return r.String() })},
		{title: "ALLOWED", right: true, cell: cell(func(r *limitRow) string { return r.amount(r.allowed) })},
		{title: "USED", right: true, drop: 1, cell: cell(func(r *limitRow) string {
			if !r.known {
				return "-"
			}
			return r.amount(r.used)
		})},
		{title: "LEFT", right: true, cell: cell(func(r *limitRow) string {
			if !r.known {
				return "-"
			}
			return r.amount(r.left())
		})},
		{title: "NOW", cell: cell((*limitRow).state)},
	})
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

func (r *limitRow) document() limitJSON {
	doc := limitJSON{
		Kind: "association", Account: optional(r.account), User: optional(r.user), QOS: optional(r.qos), Partition: optional(r.partition),
		Bound:    map[string]string{"Grp": "group", "Max": "max", "Min": "min"}[r.Bound],
		Resource: r.Resource, Unit: "count", Per: optional(strings.ToLower(r.Per)), Binds: r.binds(), Waiting: r.jobs,
	}
	scale := 1.0
	switch {
	case r.Unit != "" || r.Resource == "wall":
		doc.Unit, scale = "seconds", 60
		doc.Time = optional(map[string]string{"RunMinutes": "running", "Minutes": "used"}[r.Unit])
	case r.Resource == "mem":
		doc.Unit, scale = "bytes", 1<<20
	}
	doc.Allowed = r.allowed * scale
	if r.OfQOS {
		doc.Kind = "qos"
	}
	if r.known {
		used, left := r.used*scale, r.left()*scale
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
	}{Time: v.at.Format(time.RFC3339), Cluster: v.cluster, Limits: []limitJSON{}}
	if v.isAccount {
		doc.Account = &v.name
	} else {
		doc.User = &v.name
	}
	for i := range v.rows {
		doc.Limits = append(doc.Limits, v.rows[i].document())
	}
	return app.PrintJSON(w, doc)
}

func (v *limitsView) metrics() []metric {
	var all []metric
	for i := range v.rows {
		r := v.rows[i].document()
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

func (v *limitsView) clusterName() string { return v.cluster }
