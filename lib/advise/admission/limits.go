package admission

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/ponos-tools/ponos/lib/slurm"
)

// taken is what a job takes of a resource in all, mem in MiB: as limits count it when the job is submitted, and at least and
// at most once Slurm has chosen its nodes.
type taken struct{ asked, least, most float64 }

// tres is what the job takes in all, or on each node.
func (k *checker) tres(each bool) map[string]taken {
	n, widest := float64(k.j.Nodes), float64(max(k.j.Nodes, k.j.Smallest().Nodes))
	if each {
		n, widest = 1, 1
	}
	t := map[string]taken{}
	put := func(name string, asked float64) { t[name] = taken{asked, asked, asked} }
	put("cpu", n*float64(k.need.CPUs))
	put("mem", n*float64(k.need.AskedMemMB))
	put("node", n)
	put("gres/gpu", n*float64(k.need.GPUs))
	for name, count := range k.j.GPUTypes {
		put("gres/gpu:"+name, n*float64(count))
	}
	for name, count := range k.j.GRES {
		put("gres/"+name, n*float64(count))
	}
	for name, count := range k.j.Licenses {
		put("license/"+name, float64(count))
	}
	most := func(name string, amount float64) {
		x := t[name]
		x.most = max(x.most, amount)
		t[name] = x
	}
	ofCores := func(threads int64) float64 { return n * float64((k.need.CPUs+threads-1)/threads*threads) }
	least, widestCore := k.c.threads(k.p)
	t["cpu"] = taken{t["cpu"].asked, ofCores(least), ofCores(widestCore)}
	most("mem", n*float64(k.need.MemMB)) // it is not known whether limits count what comes with the GPUs
	for name, whole := range k.c.wholeNodes(k.p, k.j) {
		x := t[name]
		x.least = max(x.least, n*whole.least)
		t[name] = x
		most(name, widest*whole.most)
	}
	return t
}

// strict reports whether a job beyond a limit of the QoS or the association is
// refused, and not only kept waiting.
func (k *checker) strict() bool {
	return k.first != nil && k.first.Is("DenyOnLimit") || k.second != nil && k.second.Is("DenyOnLimit")
}

func (k *checker) limit(code, whose, format string, args ...any) {
	if k.strict() {
		k.no(code, whose, format, args...)
	} else {
		k.waits(code, whose, format, args...)
	}
}

// most compares what a job takes with upper bounds; those in done were decided by a
// limit that comes before.
func (k *checker) most(code, whose, what string, has map[string]taken, limits slurm.TRES, done map[string]bool) {
	for _, name := range slices.Sorted(maps.Keys(limits)) {
		limit := limits[name]
		if done[name] {
			continue
		}
		if done != nil {
			done[name] = true
		}
		value, counted := has[name]
		switch {
		case value.asked > limit && name == "cpu" && k.cpusOfGPUs() && float64(max(1, k.j.Tasks)) <= limit:
			k.waits(code, whose, "%s requested, %s allows %s %s", amount(name, value.asked), whose, amount(name, limit), what)
		case value.asked > limit:
			k.limit(code, whose, "%s requested, %s allows %s %s", amount(name, value.asked), whose, amount(name, limit), what)
		case value.least > limit && name == "mem" && k.j.AllMemory: // Slurm counts it at the submission
			k.limit(code, whose, "all memory of the nodes requested, at least %s; %s allows %s %s",
				amount(name, value.least), whose, amount(name, limit), what)
		case value.least > limit && k.whole():
			k.waits(code, whose, "the job gets whole nodes, at least %s; %s allows %s %s",
				amount(name, value.least), whose, amount(name, limit), what)
		case value.least > limit:
			k.waits(code, whose, "%s where a core has several threads, %s allows %s %s",
				amount(name, value.least), whose, amount(name, limit), what)
		case value.most > limit && limit < 1<<40 && (k.whole() || k.j.AllMemory):
			k.unknown(code, whose, "whole nodes may have more %s than requested; %s allows %s %s",
				resource(name), whose, amount(name, limit), what)
		case value.most > limit && name == "cpu":
			k.unknown(code, whose, "%s on nodes whose cores have most threads, %s allows %s %s",
				amount(name, value.most), whose, amount(name, limit), what)
		case value.most > limit:
			k.unknown(code, whose, "%s come with the GPUs, %s allows %s %s", amount(name, value.most), whose, amount(name, limit), what)
		case !counted && strings.HasPrefix(name, "gres/gpu:") && k.need.GPUs > 0 && len(k.j.GPUTypes) == 0 &&
			float64(k.need.GPUs*k.j.Nodes) > limit:
			k.unknown(code, whose, "%s allows %s %s", whose, amount(name, limit), what)
		case name == "billing":
			k.unknown(code, whose, "%s allows %s %s, and what the job is charged is not known", whose, amount(name, limit), what)
		}
	}
}

// cpusOfGPUs reports whether the job has more CPUs than it requests, by DefCpuPerGPU. Slurm counts them only when
// the job could start.
func (k *checker) cpusOfGPUs() bool {
	return k.j.GPUs > 0 && k.j.CPUsPerTask == 0 && k.need.AskedCPUs > max(1, k.j.Tasks)
}

// whole reports whether the job gets whole nodes, whatever it requests.
func (k *checker) whole() bool { return k.j.Exclusive || k.p.Exclusive }

// resource names what a limit is of.
func resource(name string) string {
	switch name {
	case "mem":
		return "memory"
	case "cpu":
		return "CPUs"
	case "gres/gpu":
		return "GPUs"
	}
	return name
}

func amount(name string, n float64) string {
	switch name {
	case "mem":
		return fmt.Sprintf("%.0f MiB of memory", n)
	case "cpu":
		return fmt.Sprintf("%.0f CPUs", n)
	case "node":
		return fmt.Sprintf("%.0f nodes", n)
	case "gres/gpu":
		return fmt.Sprintf("%.0f GPUs", n)
	}
	return fmt.Sprintf("%s=%.0f", name, n)
}

// bound is one limit that a QoS and an association both may have.
type bound struct {
	what    string
	each    bool // it counts what is on each node
	ofQOS   func(*slurm.QOS) slurm.TRES
	ofAssoc func(*slurm.Association) slurm.TRES
}

func (k *checker) bounds() []bound {
	return []bound{
		{"for a job", false,
			func(q *slurm.QOS) slurm.TRES { return q.MaxTRESPerJob },
			func(a *slurm.Association) slurm.TRES { return a.MaxTRESPerJob }},
		{"on each node", true,
			func(q *slurm.QOS) slurm.TRES { return q.MaxTRESPerNode },
			func(a *slurm.Association) slurm.TRES { return a.MaxTRESPerNode }},
		{"for each user", false, func(q *slurm.QOS) slurm.TRES { return q.MaxTRESPerUser }, nil},
		{"for each account", false, func(q *slurm.QOS) slurm.TRES { return q.MaxTRESPerAccount }, nil},
		{"at a time", false, func(q *slurm.QOS) slurm.TRES { return q.Grp.TRES }, nil},
	}
}

// inOrder are the QoS whose limits count, the first one before the second.
func (k *checker) inOrder() []*slurm.QOS {
	var all []*slurm.QOS
	for _, q := range []*slurm.QOS{k.first, k.second} {
		if q != nil {
			all = append(all, q)
		}
	}
	return all
}

// qosLimits are those of the QoS of the partition and of the job.
func (k *checker) qosLimits() {
	for _, b := range k.bounds() {
		done := map[string]bool{}
		for _, q := range k.inOrder() {
			k.most("qos_limit", "QoS "+q.Name, b.what, k.tres(b.each), b.ofQOS(q), done)
		}
	}
	done := map[string]bool{}
	has := k.tres(false)
	for _, q := range k.inOrder() {
		whose := "QoS " + q.Name
		for _, name := range slices.Sorted(maps.Keys(q.MinTRESPerJob)) {
			if least := q.MinTRESPerJob[name]; !done[name] && has[name].asked < least {
				code := "qos_limit"
				if strings.HasPrefix(name, "gres/gpu") {
					code = "min_gpu"
				}
				report := k.limit
				if has[name].most >= least && (k.whole() || k.j.AllMemory) {
					report = k.unknown
				}
				report(code, whose, "%s requested, the QoS %s requires %s or more",
					amount(name, has[name].asked), q.Name, amount(name, least))
			}
			done[name] = true
		}
		if q.MaxSubmitPerUser.Set && q.MaxSubmitPerUser.Max == 0 ||
			q.MaxSubmitPerAccount.Set && q.MaxSubmitPerAccount.Max == 0 ||
			q.Grp.Submit.Set && q.Grp.Submit.Max == 0 {
			k.no("qos_limit", whose, "the QoS %s accepts no jobs", q.Name)
		} else if q.MaxJobsPerUser.Set && q.MaxJobsPerUser.Max == 0 ||
			q.MaxJobsPerAccount.Set && q.MaxJobsPerAccount.Max == 0 ||
			q.Grp.Jobs.Set && q.Grp.Jobs.Max == 0 {
			k.waits("qos_limit", whose, "the QoS %s starts no jobs", q.Name)
		}
	}
	for _, q := range k.inOrder() {
		if q.MaxWall.Set {
			if !q.MaxWall.Allows(k.time) {
				k.limit("duration", "QoS "+q.Name, "%s, the QoS %s allows %s", k.asked(), q.Name, slurm.FormatDuration(q.MaxWall.Max))
			}
			break
		}
	}
	for _, q := range k.inOrder() {
		if !q.Grp.Wall.Allows(k.time) {
			k.limit("duration", "QoS "+q.Name, "%s, the QoS %s allows all jobs together %s",
				k.asked(), q.Name, slurm.FormatDuration(q.Grp.Wall.Max))
		}
		k.minutes("qos_limit", "QoS "+q.Name, q.MaxTRESMinsPerJob)
		k.minutes("qos_limit", "QoS "+q.Name, q.Grp.TRESMins)
	}
}

// minutes compares what the job alone would take with limits in TRES minutes.
func (k *checker) minutes(code, whose string, limits slurm.TRES) {
	has := k.tres(false)
	for _, name := range slices.Sorted(maps.Keys(limits)) {
		used, report := has[name].asked, k.limit
		if k.whole() && used*k.time.Minutes() <= limits[name] {
			used, report = has[name].least, k.waits
		}
		if used*k.time.Minutes() > limits[name] {
			report(code, whose, "%s for %s are more minutes than the %.0f that are allowed",
				amount(name, used), k.time.Round(time.Second), limits[name])
		}
	}
}

// accountLimits are those of the association and of the accounts above it. A limit
// that a QoS sets takes the place of that of the association.
func (k *checker) accountLimits() {
	a := k.assoc
	if a == nil {
		return
	}
	whose := "account " + a.Account
	for _, b := range k.bounds() {
		if b.ofAssoc == nil {
			continue
		}
		done := map[string]bool{}
		for _, q := range k.inOrder() {
			for name := range b.ofQOS(q) {
				done[name] = true
			}
		}
		k.most("account_limit", whose, b.what, k.tres(b.each), b.ofAssoc(a), done)
	}
	byQOS := slices.ContainsFunc(k.inOrder(), func(q *slurm.QOS) bool { return q.MaxWall.Set })
	if !byQOS && !a.MaxWall.Allows(k.time) {
		k.limit("duration", whose, "%s, the account %s allows %s", k.asked(), a.Account, slurm.FormatDuration(a.MaxWall.Max))
	}
	k.minutes("account_limit", whose, a.MaxTRESMinsPerJob)
	submitByQOS := slices.ContainsFunc(k.inOrder(), func(q *slurm.QOS) bool { return q.MaxSubmitPerUser.Set })
	jobsByQOS := slices.ContainsFunc(k.inOrder(), func(q *slurm.QOS) bool { return q.MaxJobsPerUser.Set })
	if a.MaxSubmit.Set && a.MaxSubmit.Max == 0 && !submitByQOS {
		k.no("account_limit", whose, "the account %s accepts no jobs of %s", a.Account, k.c.User)
	} else if a.MaxJobs.Set && a.MaxJobs.Max == 0 && !jobsByQOS {
		k.waits("account_limit", whose, "the account %s starts no jobs of %s", a.Account, k.c.User)
	}
	k.groupLimits(a)
}

// groupLimits are what bounds all jobs of the association, and of each account above.
func (k *checker) groupLimits(a *slurm.Association) {
	done := map[string]bool{}
	for _, q := range k.inOrder() {
		for name := range q.Grp.TRES {
			done[name] = true
		}
	}
	whose := "account " + a.Account
	for depth := 0; a != nil && depth < 64; depth++ {
		k.most("account_limit", whose, "at a time", k.tres(false), a.Grp.TRES, maps.Clone(done))
		k.minutes("account_limit", whose, a.Grp.TRESMins)
		if a.Grp.Submit.Set && a.Grp.Submit.Max == 0 {
			k.no("account_limit", whose, "the account %s accepts no jobs", a.Account)
		} else if a.Grp.Jobs.Set && a.Grp.Jobs.Max == 0 {
			k.waits("account_limit", whose, "the account %s starts no jobs", a.Account)
		}
		if !k.c.Known.Accounts {
			return
		}
		up := a.Account
		if a.User == "" {
			up = a.Parent
		}
		if up == "" {
			return
		}
		a, whose = k.c.account(up), "account "+up
	}
}
