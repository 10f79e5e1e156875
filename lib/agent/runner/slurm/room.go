package slurm

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/ponos-tools/ponos/lib/base/nss"
	"github.com/ponos-tools/ponos/lib/slurm"
	"github.com/ponos-tools/ponos/lib/task/runner"
)

// Limits asks the controller once for the limits on submitted jobs that its refusal may be of. Limits of
// accounts, for which it lists all associations, are asked for only if the refusal names them. Those of accounts that the job does
// not charge are left out, if its options name one. Of how many jobs there are of all users, the refusal tells only that it is enough.
func (r *Runner) Limits(ctx context.Context, n runner.Needs, refusal string) ([]runner.Limit, error) {
	if slurm.QueueFull(refusal) {
		c, err := r.client.Config(ctx)
		most, _ := strconv.Atoi(c["MaxJobCount"])
		if most == 0 {
			return nil, err
		}
		return []runner.Limit{{Of: "all users (MaxJobCount)", Used: most, Max: most}}, nil
	}
	name, err := nss.UserName(r.uid)
	if err != nil {
		return nil, err
	}
	var only []string
	if !strings.Contains(refusal, "AssocGrp") {
		only = []string{name}
	}
	usages, err := r.client.Usages(ctx, only...)
	if err != nil {
		return nil, err
	}
	account := ""
	if options, err := r.options.forTask(ctx, n, ""); err == nil {
		account = options.Value("account")
	}
	return submitLimits(usages, name, uint32(r.uid), account, refusal), nil
}

// submitLimits returns the limits on submitted jobs of a user, the one with the least room first: of QoS
// if a refusal names a QoS, of associations if it names one of these, or all. Of accounts, it returns those of one and of those above
// it; "": those of all accounts of the user.
func submitLimits(u slurm.Usages, name string, uid uint32, only, refusal string) []runner.Limit {
	var all []runner.Limit
	add := func(of string, limit slurm.Limit[int64], used int64) {
		if limit.Set {
			all = append(all, runner.Limit{Of: of, Used: int(used), Max: int(limit.Max)})
		}
	}
	accounts := map[string]bool{} // of the user, and those above them
	byUser, parents := 0, map[string]string{}
	for _, a := range u.Associations {
		switch a.User {
		case name:
			byUser++
			if charged(a.Account, only) {
				accounts[a.Account] = true
			}
		case "":
			parents[a.Account] = a.Parent
		}
	}
	for _, account := range slices.Sorted(maps.Keys(accounts)) {
		for up := parents[account]; up != "" && !accounts[up]; up = parents[up] {
			accounts[up] = true
		}
	}
	// The words that follow the name of a limit have "accounting/QOS policy" in any case.
	ofQOS := strings.Contains(refusal, "QOSMax") || strings.Contains(refusal, "QOSGrp")
	if !ofQOS {
		for _, a := range u.Associations {
			whose := name
			if byUser > 1 && !a.Default {
				whose += " in account " + a.Account
			}
			switch {
			case a.User == name && charged(a.Account, only):
				add(whose, a.MaxSubmit, a.Submit)
				add(whose, a.Grp.Submit, a.Submit)
			case a.User == "" && accounts[a.Account]:
				add("account "+a.Account, a.Grp.Submit, a.Submit)
			}
		}
	}
	if ofQOS || !strings.Contains(refusal, "Assoc") {
		for _, q := range u.QOS {
			mine := q.Users[uid]
			add(name+" in QoS "+q.Name, mine.SubmitLimit, mine.Submit)
			for account := range maps.Keys(accounts) {
				add("account "+account+" in QoS "+q.Name, q.Accounts[account].SubmitLimit, q.Accounts[account].Submit)
			}
			add("QoS "+q.Name, q.SubmitLimit, q.Submit)
		}
	}
	slices.SortFunc(all, func(a, b runner.Limit) int {
		return cmp.Or(cmp.Compare(a.Max-a.Used, b.Max-b.Used), cmp.Compare(a.Max, b.Max), strings.Compare(a.Of, b.Of))
	})
	return all
}

// charged reports whether a job is of an account, if it is of only one; names of accounts have lower case in Slurm.
func charged(account, only string) bool { return only == "" || strings.EqualFold(account, only) }
