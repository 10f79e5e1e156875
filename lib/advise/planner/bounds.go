package planner

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/ponos-tools/ponos/lib/base/fault"
	"github.com/ponos-tools/ponos/lib/base/nss"
	"github.com/ponos-tools/ponos/lib/slurm"
)

// Bounds are every limit that bounds the jobs of a user or of an account, with what counts
// against it.
type Bounds struct {
	Name      string // of a user, or of an account
	At        time.Time
	Cluster   string
	IsAccount bool
	Known     bool                // the controller reports what is used
	Own       []slurm.Association // of the user
	Rows      []Bound             // the user's own first, then those of the accounts from below, then those of each QOS

	uid          func(name string) (uint32, bool)
	associations map[string]slurm.Association // of accounts, by name
	qos          []slurm.QOS
	partitions   []slurm.Partition
	usage        slurm.Usages
	waiting      []slurm.Job
}

// ErrNoAccounts means that a cluster runs without slurmdbd.
var ErrNoAccounts = errors.New("the cluster runs without slurmdbd")

// UnknownNameError is a name that is neither a user's nor an account's; Accounts are the
// existing ones.
type UnknownNameError struct {
	Name     string
	Accounts []string
}

func (e *UnknownNameError) Error() string { return fmt.Sprintf("unknown user or account %q", e.Name) }

// Holder is what a limit belongs to.
type Holder struct {
	Account, Partition, QOS string
	// User is the user to whom the limit applies alone. In a QOS, each user and each
	// account has the limit for itself.
	User string
}

func (w Holder) String() string {
	text := "account " + w.Account
	switch {
	case w.QOS != "" && w.User != "":
		text = "QoS " + w.QOS + ", each user"
	case w.QOS != "" && w.Account != "":
		text = "QoS " + w.QOS + ", account " + w.Account
	case w.QOS != "":
		text = "QoS " + w.QOS
	case w.User != "":
		text = w.User + " in account " + w.Account
	}
	if w.Partition != "" {
		text += " (partition " + w.Partition + ")"
	}
	return text
}

// Bound is one limit. Amounts are as slurm.LimitKind counts them: minutes of time, MiB of
// memory.
type Bound struct {
	slurm.LimitKind
	Holder
	Allowed, Used float64
	Counts        bool     // something counts against it: it is not about a single job
	Known         bool     // what counts is known
	Jobs          []string // labels of those that wait for it
}

// Left is how much the limit leaves.
func (r *Bound) Left() float64 { return max(0, r.Allowed-r.Used) }

// Binds reports whether the limit keeps jobs from starting now.
func (r *Bound) Binds() bool { return len(r.Jobs) > 0 || r.Counts && r.Known && r.Left() == 0 }

// Bounds requests the limits of a user or an account; "" is the user who asks.
func (a *Asker) Bounds(ctx context.Context, name string) (*Bounds, error) {
	v := &Bounds{Name: name, Known: true, uid: a.UID}
	var config slurm.Config
	if err := a.Config(&config)(ctx); err != nil {
		return nil, err
	}
	if !config.Accounting() {
		return nil, ErrNoAccounts
	}
	v.Cluster = config.Get("ClusterName")
	if name == "" {
		me, err := nss.Me()
		if err != nil {
			return nil, err
		}
		v.Name = me
	}
	var all, own []slurm.Association
	if err := Together(ctx,
		Listing(&all, func(ctx context.Context) ([]slurm.Association, error) { return a.Client.Associations(ctx, "") }),
		Listing(&own, func(ctx context.Context) ([]slurm.Association, error) { return a.Client.Associations(ctx, v.Name) }),
		Listing(&v.qos, a.Client.QOS),
		a.Partitions(&v.partitions),
		a.Jobs(&v.waiting, nil, "PENDING"),
		func(ctx context.Context) (err error) {
			v.usage, err = a.Client.Usages(ctx)
			if failure, failed := slurm.FailureOf(err); failed && failure == slurm.Refused {
				v.Known, err = false, nil // limits are worth showing by themselves
			}
			return err
		}); err != nil {
		return nil, err
	}
	v.At = a.Now()
	elsewhere := func(a slurm.Association) bool { return a.Cluster != v.Cluster }
	v.Own = slices.DeleteFunc(own, elsewhere)
	v.associations = map[string]slurm.Association{}
	for _, a := range slices.DeleteFunc(all, elsewhere) {
		v.associations[a.Account] = a
	}
	_, isAccount := v.associations[v.Name]
	v.IsAccount = isAccount && len(v.Own) == 0
	if !isAccount && len(v.Own) == 0 && name != "" {
		return nil, fault.Wrap(fault.Usage, &UnknownNameError{v.Name, slices.Sorted(maps.Keys(v.associations))})
	}
	v.collect()
	return v, nil
}

func (v *Bounds) collect() {
	v.Rows = nil
	accounts := map[string]bool{}
	qos := map[string]bool{}
	chain := func(name string) {
		for name != "" && !accounts[name] {
			accounts[name] = true
			a := v.associations[name]
			v.add(Holder{Account: name}, "Grp", "", v.Known, ofGroup(a.Grp, v.counted(name, "", ""))...)
			name = a.Parent
		}
	}
	for _, a := range v.Own {
		w := Holder{Account: a.Account, User: v.Name, Partition: a.Partition}
		used := v.counted(a.Account, v.Name, a.Partition)
		v.add(w, "Grp", "", v.Known, ofGroup(a.Grp, used)...)
		v.add(w, "Max", "", v.Known, ofEach(a.MaxJobs, a.MaxJobsAccrue, a.MaxSubmit, nil, nil, used)...)
		v.perJob(w, a.MaxTRESPerJob, a.MaxTRESPerNode, a.MaxTRESMinsPerJob, nil, a.MaxWall)
		for _, q := range a.QOS {
			qos[q] = true
		}
	}
	for _, a := range v.Own {
		chain(a.Account)
	}
	if v.IsAccount {
		chain(v.Name)
		for _, q := range v.associations[v.Name].QOS {
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
	for i := range v.qos {
		q := &v.qos[i]
		partitions := ofPartition[q.Name]
		if !qos[q.Name] && len(partitions) == 0 {
			continue
		}
		w := Holder{QOS: q.Name}
		if !qos[q.Name] {
			w.Partition = strings.Join(partitions, ",")
		}
		v.inQOS(w, q, accounts)
	}
	v.blame()
}

// inQOS are the limits of a QoS: of all its jobs, of each of its users and accounts, and of a job.
func (v *Bounds) inQOS(w Holder, q *slurm.QOS, accounts map[string]bool) {
	var used slurm.CountedQOS
	for _, u := range v.usage.QOS {
		if u.Name == q.Name {
			used = u
		}
	}
	v.add(w, "Grp", "", v.Known, ofGroup(q.Grp, used.Counted)...)
	if !v.IsAccount {
		own := w
		own.User = v.Name
		id, ok := v.uid(v.Name) // the controller knows users by their numbers
		v.add(own, "Max", "User", v.Known && ok, ofEach(
			q.MaxJobsPerUser, q.MaxJobsAccruePerUser, q.MaxSubmitPerUser, q.MaxTRESPerUser, q.MaxTRESRunMinsPerUser, used.Users[id])...)
	}
	for _, name := range slices.Sorted(maps.Keys(accounts)) {
		if v.associations[name].Parent == "" {
			continue // no job is of the root
		}
		account := w
		account.Account = name
		v.add(account, "Max", "Account", v.Known, ofEach(
			q.MaxJobsPerAccount, q.MaxJobsAccruePerAccount, q.MaxSubmitPerAccount, q.MaxTRESPerAccount, q.MaxTRESRunMinsPerAccount,
			used.Accounts[name])...)
	}
	v.perJob(w, q.MaxTRESPerJob, q.MaxTRESPerNode, q.MaxTRESMinsPerJob, q.MinTRESPerJob, q.MaxWall)
}

func (v *Bounds) counted(account, user, partition string) slurm.Counted {
	for _, u := range v.usage.Associations {
		if u.Account == account && u.User == user && u.Partition == partition {
			return u.Counted
		}
	}
	return slurm.Counted{}
}

// ceiling is a limit, or one for each resource of a list, with what counts against it.
type ceiling struct {
	resource, unit string // as in slurm.LimitKind; of a list, its resources
	number         slurm.Limit[int64]
	wall           slurm.Limit[time.Duration]
	list           slurm.TRES
	used           float64
	usedList       slurm.TRES
}

// ofGroup are the limits of what all jobs have together.
func ofGroup(l slurm.GroupLimits, used slurm.Counted) []ceiling {
	return []ceiling{
		{resource: "jobs", number: l.Jobs, used: float64(used.Jobs)},
		{resource: "accrue", number: l.JobsAccrue, used: float64(used.JobsAccrue)},
		{resource: "submit", number: l.Submit, used: float64(used.Submit)},
		{list: l.TRES, usedList: used.TRES},
		{unit: "Minutes", list: l.TRESMins, usedList: used.TRESMins},
		{unit: "RunMinutes", list: l.TRESRunMins, usedList: used.TRESRunMins},
		{resource: "wall", wall: l.Wall, used: used.WallMins},
	}
}

// ofEach are the limits of one user or account.
func ofEach(jobs, accrue, submit slurm.Limit[int64], tres, runMinutes slurm.TRES, used slurm.Counted) []ceiling {
	return []ceiling{
		{resource: "jobs", number: jobs, used: float64(used.Jobs)},
		{resource: "accrue", number: accrue, used: float64(used.JobsAccrue)},
		{resource: "submit", number: submit, used: float64(used.Submit)},
		{list: tres, usedList: used.TRES},
		{unit: "RunMinutes", list: runMinutes, usedList: used.TRESRunMins},
	}
}

// perJob adds the limits of a single job, against which nothing counts.
func (v *Bounds) perJob(w Holder, job, node, minutes, least slurm.TRES, wall slurm.Limit[time.Duration]) {
	v.add(w, "Max", "Job", false, ceiling{resource: "wall", wall: wall}, ceiling{list: job})
	v.add(w, "Max", "Node", false, ceiling{list: node})
	v.add(w, "Max", "Job", false, ceiling{unit: "Minutes", list: minutes})
	v.add(w, "Min", "Job", false, ceiling{list: least})
}

// add adds a row for each limit that is set. known is whether what counts is known.
func (v *Bounds) add(w Holder, bound, per string, known bool, limits ...ceiling) {
	for _, l := range limits {
		kind := slurm.LimitKind{OfQOS: w.QOS != "", Bound: bound, Resource: l.resource, Unit: l.unit, Per: per}
		row := Bound{LimitKind: kind, Holder: w, Used: l.used, Counts: per != "Job" && per != "Node", Known: known}
		switch {
		case l.number.Set:
			row.Allowed = float64(l.number.Max)
			v.Rows = append(v.Rows, row)
		case l.wall.Set:
			row.Allowed = l.wall.Max.Minutes()
			v.Rows = append(v.Rows, row)
		}
		for _, name := range slices.Sorted(maps.Keys(l.list)) {
			row.Resource, row.Allowed, row.Used = name, l.list[name], l.usedList[name]
			if name == "gres/gpu" {
				row.Used = l.usedList.GPUs()
			}
			v.Rows = append(v.Rows, row)
		}
	}
}

// blame names the jobs that wait for each limit, by the reason that Slurm gives.
func (v *Bounds) blame() {
	for _, j := range v.waiting {
		kind, ok := slurm.LimitOfReason(j.Reason)
		if !ok || !v.IsAccount && j.User != v.Name {
			continue
		}
		var tightest *Bound
		for i := range v.Rows {
			r := &v.Rows[i]
			if !r.Is(kind) || !v.concerns(&r.Holder, &j) {
				continue
			}
			if tightest == nil || r.Left() < tightest.Left() {
				tightest = r
			}
		}
		if tightest != nil && !slices.Contains(tightest.Jobs, j.Label) { // one of several partitions has a row for each
			tightest.Jobs = append(tightest.Jobs, j.Label)
		}
	}
}

// concerns reports whether a job is bound by the limits of w.
func (v *Bounds) concerns(w *Holder, j *slurm.Job) bool {
	if w.User != "" && w.User != j.User {
		return false
	}
	if w.QOS != "" {
		in := w.QOS == j.QOS || w.Partition != "" && slices.Contains(strings.Split(w.Partition, ","), j.Partition)
		return in && (w.Account == "" || w.Account == j.Account)
	}
	for name := j.Account; name != ""; name = v.associations[name].Parent {
		if name == w.Account {
			return w.Partition == "" || w.Partition == j.Partition
		}
	}
	return false
}
