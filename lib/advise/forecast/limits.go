package forecast

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/ponos-tools/ponos/lib/slurm"
)

// limitIndex finds limits and what bounds whom.
type limitIndex struct {
	at           map[string]int
	associations map[[3]string]*slurm.CountedAssociation // by account, user and partition
	qos          map[string]*slurm.QOS
	usage        map[string]*slurm.CountedQOS
	safe         bool // what jobs may still use counts, too
}

// prepareLimits reads what the controller enforces.
func (b *builder) prepareLimits() {
	enforced := strings.ToLower(b.Config.Get("AccountingStorageEnforce"))
	for word := range strings.FieldsFuncSeq(enforced, func(r rune) bool { return r == ',' || r == ' ' }) {
		b.enforced = b.enforced || word == "limits" || word == "safe" || word == "all"
		b.limits.safe = b.limits.safe || word == "safe" || word == "all"
	}
	if b.enforced = b.enforced && b.Usages != nil; !b.enforced {
		return
	}
	b.limits.at = map[string]int{}
	b.limits.associations = map[[3]string]*slurm.CountedAssociation{}
	for i := range b.Usages.Associations {
		if a := &b.Usages.Associations[i]; a.Cluster == b.Config.Get("ClusterName") {
			b.limits.associations[[3]string{a.Account, a.User, a.Partition}] = a
		}
	}
	b.limits.qos, b.limits.usage = map[string]*slurm.QOS{}, map[string]*slurm.CountedQOS{}
	for i := range b.QOS {
		b.limits.qos[b.QOS[i].Name] = &b.QOS[i]
	}
	for i := range b.Usages.QOS {
		b.limits.usage[b.Usages.QOS[i].Name] = &b.Usages.QOS[i]
	}
}

// asking collects the limits of one job.
type asking struct {
	b    *builder
	row  *Job
	asks []Ask
	done map[string]bool // what a limit before has decided
}

// asks are the limits that bound a job, each with what the job takes of it. The QoS of
// the partition comes before that of the job, and both before the association, unless
// the QoS has OverPartQOS; the first that sets a limit decides.
func (b *builder) asks(row *Job) []Ask {
	if !b.enforced {
		return nil
	}
	a := asking{b: b, row: row, done: map[string]bool{}}
	own := b.limits.qos[row.QOS]
	var first *slurm.QOS
	if p := b.partitionOf[row.Partition]; p != nil && p.QOS != "" {
		first = b.limits.qos[p.QOS]
	}
	order := []*slurm.QOS{first, own}
	if own != nil && own.Is("OverPartQOS") {
		order = []*slurm.QOS{own, first}
	}
	if first == own {
		order = order[:1]
	}
	for _, q := range order {
		if q != nil {
			a.ofQOS(q)
		}
	}
	a.ofAssociation()
	return a.asks
}

func (a *asking) ofQOS(q *slurm.QOS) {
	row := a.row
	used := a.b.limits.usage[q.Name]
	if used == nil {
		used = &slurm.CountedQOS{}
	}
	whose := "QoS " + q.Name
	a.group(whose, "grp", q.Grp, used.Counted)
	uid, known := a.b.users[row.User]
	if !known && a.b.UserID != nil {
		uid, known = a.b.UserID(row.User)
	}
	if known {
		mine, each := used.Users[uid], whose+" for user "+row.User
		a.count(each, "max user", "jobs", q.MaxJobsPerUser, mine.Jobs)
		a.list(each, "max user", q.MaxTRESPerUser, mine.TRES, 1, false)
		a.list(each, "max user run", q.MaxTRESRunMinsPerUser, mine.TRESRunMins, a.minutes(), false)
	}
	theirs, each := used.Accounts[row.Account], whose+" for account "+row.Account
	a.count(each, "max account", "jobs", q.MaxJobsPerAccount, theirs.Jobs)
	a.list(each, "max account", q.MaxTRESPerAccount, theirs.TRES, 1, false)
	a.list(each, "max account run", q.MaxTRESRunMinsPerAccount, theirs.TRESRunMins, a.minutes(), false)
	a.single(whose, q.MaxTRESPerJob, q.MaxWall)
}

func (a *asking) ofAssociation() {
	find := a.b.limits.associations
	row := a.row
	own := find[[3]string{row.Account, row.User, row.Partition}]
	if own == nil {
		own = find[[3]string{row.Account, row.User, ""}]
	}
	if own != nil {
		whose := "account " + row.Account + " for user " + row.User
		a.count(whose, "max user", "jobs", own.MaxJobs, own.Jobs)
		a.single(whose, own.MaxTRESPerJob, own.MaxWall)
		// What a QoS bounds for all is not bounded again, at any level.
		done := maps.Clone(a.done)
		a.group(whose, "grp", own.Grp, own.Counted)
		a.done = done
	}
	name := row.Account
	for depth := 0; name != "" && depth < 64; depth++ {
		account := find[[3]string{name, "", ""}]
		if account == nil {
			return
		}
		done := maps.Clone(a.done)
		a.group("account "+name, "grp", account.Grp, account.Counted)
		a.done = done
		name = account.Parent
	}
}

// group adds the limits on what all jobs have together.
func (a *asking) group(whose, kind string, g slurm.GroupLimits, used slurm.Counted) {
	a.count(whose, kind, "jobs", g.Jobs, used.Jobs)
	a.list(whose, kind, g.TRES, used.TRES, 1, false)
	a.list(whose, kind+" run", g.TRESRunMins, used.TRESRunMins, a.minutes(), false)
	ahead, per := used.TRESMins, 0.0
	if a.b.limits.safe {
		ahead, per = slurm.TRES{}, a.minutes()
		for name := range g.TRESMins {
			ahead[name] = used.TRESMins[name] + used.TRESRunMins[name]
		}
	}
	a.list(whose, kind+" used", g.TRESMins, ahead, per, true)
	if g.Wall.Set && !a.done[kind+" wall"] {
		a.done[kind+" wall"] = true
		a.add(whose, "minutes of wall time", "wall", g.Wall.Max.Minutes(), used.WallMins, per, true)
	}
}

// minutes is the time limit of the job.
func (a *asking) minutes() float64 {
	if a.row.Limit == Forever {
		return 365 * 24 * 60
	}
	return float64(a.row.Limit) / 60
}

func (a *asking) count(whose, kind, what string, limit slurm.Limit[int64], used int64) {
	if key := kind + " " + what; limit.Set && !a.done[key] {
		a.done[key] = true
		a.add(whose, "running jobs", what, float64(limit.Max), float64(used), 1, false)
	}
}

// list adds limits on resources; each is how much of a limit a unit takes.
func (a *asking) list(whose, kind string, limits, used slurm.TRES, each float64, decays bool) {
	for _, name := range slices.Sorted(maps.Keys(limits)) {
		key := kind + " " + name
		if a.done[key] {
			continue
		}
		a.done[key] = true
		amount, ok := a.takes(name)
		if !ok {
			continue
		}
		if what := strings.TrimSuffix(PlainTRES(name), "s"); strings.HasSuffix(kind, " run") {
			a.add(whose, what+" minutes of running jobs", name+" run", limits[name], used[name], amount*each, decays)
		} else if strings.HasSuffix(kind, " used") {
			if each == 0 { // it is enough that something is left
				amount, each = 1e-9, 1
			}
			a.add(whose, what+" minutes", name+" minutes", limits[name], used[name], amount*each, decays)
		} else {
			a.add(whose, PlainTRES(name), name, limits[name], used[name], amount*each, decays)
		}
	}
}

// single adds the limits on each job by itself.
func (a *asking) single(whose string, most slurm.TRES, wall slurm.Limit[time.Duration]) {
	for _, name := range slices.Sorted(maps.Keys(most)) {
		if amount, ok := a.takes(name); ok && !a.done["job "+name] && amount > most[name] {
			a.add(whose+", each job", PlainTRES(name), "job "+name, most[name], 0, amount, false)
		}
		a.done["job "+name] = true
	}
	if wall.Set && !a.done["job wall"] {
		a.done["job wall"] = true
		if a.minutes() > wall.Max.Minutes() {
			a.add(whose+", each job", "minutes", "job wall", wall.Max.Minutes(), 0, a.minutes(), false)
		}
	}
}

// takes is what the job requests of a resource; ok is false for those that this model
// does not count.
func (a *asking) takes(name string) (amount float64, ok bool) {
	n := float64(max(1, a.row.Nodes))
	switch {
	case name == "cpu":
		return n * a.row.Need.CPUs, true
	case name == "mem":
		return n * a.row.Need.MemMB, true
	case name == "node":
		return n, true
	case name == "gres/gpu":
		return n * a.row.Need.GPUs, true
	case strings.HasPrefix(name, "gres/gpu:"):
		if a.row.GPUType == strings.TrimPrefix(name, "gres/gpu:") {
			return n * a.row.Need.GPUs, true
		}
		return 0, a.row.GPUType != "" || a.row.Need.GPUs == 0
	case strings.HasPrefix(name, "license/"):
		return float64(a.row.Licenses[strings.TrimPrefix(name, "license/")]), true
	}
	return 0, false
}

// add counts what the job takes of a limit; of what it takes nothing, the limit does
// not bound it.
func (a *asking) add(whose, what, resource string, limit, used, amount float64, decays bool) {
	if amount <= 0 {
		return
	}
	key := whose + "\x00" + resource
	at, ok := a.b.limits.at[key]
	if !ok {
		at = len(a.b.w.Limits)
		a.b.limits.at[key] = at
		a.b.w.Limits = append(a.b.w.Limits, Limit{Whose: whose, What: what, Resource: resource, Max: limit, Used: used, Decays: decays})
	}
	a.asks = append(a.asks, Ask{at, amount})
}

// PlainTRES is what a resource is called in prose, such as GPUs.
func PlainTRES(name string) string {
	switch name {
	case "cpu":
		return "CPUs"
	case "mem":
		return "MiB of memory"
	case "node":
		return "nodes"
	case "gres/gpu":
		return "GPUs"
	}
	if of, ok := strings.CutPrefix(name, "gres/gpu:"); ok {
		return of + " GPUs"
	}
	return name
}
