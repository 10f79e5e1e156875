package admission

import (
	"slices"
	"strings"

	"github.com/ponos-tools/ponos/lib/base/hostlist"
	"github.com/ponos-tools/ponos/lib/slurm"
)

// reservations is whether the job may use the reservations that it names.
func (k *checker) reservations() {
	if k.j.Reservation == "" {
		return
	}
	if !k.c.Known.Reservations {
		k.unknown("reservation", "reservations", "the reservations of the cluster are not known")
		return
	}
	for name := range strings.SplitSeq(k.j.Reservation, ",") {
		whose := "reservation " + name
		r := k.c.reservation(name)
		if r == nil {
			k.no("reservation", whose, "no such reservation %s", name)
			continue
		}
		switch k.c.MayReserve(r, k.j.Account) {
		case No:
			k.no("reservation", whose, "the reservation is not for %s%s", k.c.User, withAccount(k.j.Account))
		case Unknown:
			k.unknown("reservation", whose, "it is not known whether the reservation is for %s%s", k.c.User, withAccount(k.j.Account))
		case Yes:
		}
	}
}

func withAccount(account string) string {
	if account == "" {
		return ""
	}
	return " with the account " + account
}

func (c *Cluster) reservation(name string) *slurm.Reservation {
	for i := range c.Reservations {
		if c.Reservations[i].Name == name {
			return &c.Reservations[i]
		}
	}
	return nil
}

// rule is whom one of the lists of a reservation names.
type rule struct {
	names []string
	not   bool // those named may not use it
}

func ruleOf(list []string) rule {
	var r rule
	for _, name := range list {
		bare, not := strings.CutPrefix(name, "-")
		r.names, r.not = append(r.names, bare), r.not || not
	}
	return r
}

func (r rule) has(names ...string) bool {
	return slices.ContainsFunc(names, func(n string) bool { return slices.Contains(r.names, n) })
}

// MayReserve says whether the user may submit jobs of an account ("": the default) to
// a reservation. Where Slurm enforces associations, an account stands for those below
// it, unless users are named beside it. One whose start moves on (TIME_FLOAT) takes no
// jobs.
func (c *Cluster) MayReserve(r *slurm.Reservation, account string) Verdict {
	if r.Flags.Has("TIME_FLOAT") {
		return No
	}
	users, accounts := ruleOf(r.Users), ruleOf(r.Accounts)
	named := users.has(c.User)
	if r.Groups != nil {
		if !c.Known.Groups {
			return Unknown
		}
		groups := ruleOf(r.Groups)
		users.not = groups.not
		users.names = append(users.names, groups.names...)
		named = named || groups.has(c.Groups...)
	}
	if account == "" {
		account = c.DefaultAccount
	}
	above, whole := c.lineage(account)
	charged, enforced := false, c.enforces("associations")
	switch {
	case len(accounts.names) == 0:
	case !enforced || len(users.names) > 0 && !users.not && !accounts.not:
		charged = accounts.has(account)
	case accounts.has(above...):
		charged = true
	case !whole:
		return Unknown
	}
	switch {
	case enforced && !c.Known.Accounting && len(accounts.names) > 0:
		return Unknown
	case len(users.names) > 0 && users.not == named:
		// Named among those who may not, or not named among those who may. With
		// associations, accounts that may not do not shut out the others' users.
		return No
	case len(accounts.names) > 0 && accounts.not == charged:
		return No
	}
	return Yes
}

// lineage is an account and those above it, and whether that is all of them.
func (c *Cluster) lineage(account string) (names []string, whole bool) {
	for depth := 0; account != "" && depth < 64; depth++ {
		names = append(names, account)
		a := c.account(account)
		if a == nil {
			return names, false
		}
		account = a.Parent
	}
	return names, true
}

// reservedFor reports whether jobs in a reservation may use a node of it.
func (c *Cluster) reservedFor(name, node string) bool {
	if name == "" || !c.Known.Reservations {
		return true
	}
	for name := range strings.SplitSeq(name, ",") {
		r := c.reservation(name)
		if r == nil {
			continue
		}
		if r.Flags.Has("FLEX") || r.Flags.Has("ANY_NODES") {
			return true
		}
		if nodes, err := hostlist.Expand(r.Nodes); err != nil || slices.Contains(nodes, node) {
			return true
		}
	}
	return false
}
