package fairshare

import (
	"context"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/ponos-tools/ponos/lib/advise/forecast"
	"github.com/ponos-tools/ponos/lib/advise/planner"
	"github.com/ponos-tools/ponos/lib/base/app"
	"github.com/ponos-tools/ponos/lib/base/locale"
	"github.com/ponos-tools/ponos/lib/base/nss"
	"github.com/ponos-tools/ponos/lib/slurm"
)

// sharesQuery asks for the association tree.
type sharesQuery struct {
	ask             *planner.Asker
	users, accounts []string
	mine            bool // the users are the one who asks
	all             bool
}

// sharesView is the association tree.
type sharesView struct {
	sharesQuery
	at     time.Time
	config slurm.Config
	rows   []slurm.Share
	stand  *forecast.Standings
	shown  []bool
	own    []bool // rows that were requested by name
	billed bool   // usage is counted by TRESBillingWeights
}

func newSharesQuery(a *planner.Asker, c *cli.Context) (*sharesQuery, error) {
	v := &sharesQuery{ask: a, users: list(c.String("user")), accounts: list(c.String("account")), all: c.Bool("all")}
	if len(v.users) == 0 && len(v.accounts) == 0 && !v.all {
		name, err := nss.Me()
		if err != nil {
			return nil, err
		}
		v.users, v.mine = []string{name}, true
	}
	return v, nil
}

func (q *sharesQuery) load(ctx context.Context) (answer, error) {
	v := &sharesView{sharesQuery: *q}
	if err := v.ask.Config(&v.config)(ctx); err != nil {
		return nil, err
	}
	if !v.config.Accounting() { // what sshare says then differs between versions
		return nil, noAccounting("the association tree")
	}
	var partitions []slurm.Partition
	if err := planner.Together(ctx, planner.Listing(&v.rows, v.ask.Client.Shares), v.ask.Partitions(&partitions)); err != nil {
		return nil, err
	}
	v.billed = slices.ContainsFunc(partitions, func(p slurm.Partition) bool { return len(p.BillingWeights) > 0 })
	v.at = v.ask.Now()
	var users, accounts []string
	for _, r := range v.rows {
		if r.User != "" {
			users = append(users, r.User)
		} else {
			accounts = append(accounts, r.Account)
		}
	}
	if err := checkUsers(v.users, users); err != nil && !v.mine {
		return nil, err
	}
	if err := checkNames("account", v.accounts, accounts); err != nil {
		return nil, err
	}
	v.stand = forecast.NewStandings(v.config, v.rows)
	v.shown, v.own = q.choose(v.rows)
	return v, nil
}

func (v *sharesView) algorithmName() string {
	switch {
	case v.config.FairTree():
		return "Fair Tree"
	case v.config.PriorityFlag("DEPTH_OBLIVIOUS"):
		return "classic, depth-oblivious"
	}
	return "classic"
}

// choose decides which rows are shown: those requested, all below an account
// asked for, and the accounts above.
func (q *sharesQuery) choose(rows []slurm.Share) (shown, own []bool) {
	shown, own = make([]bool, len(rows)), make([]bool, len(rows))
	below := -1
	for i, r := range rows {
		if below >= 0 && r.Depth <= below {
			below = -1
		}
		chosen := q.all || below >= 0
		if r.User == "" && slices.Contains(q.accounts, r.Account) && below < 0 {
			below, chosen = r.Depth, true
		}
		if r.User != "" && slices.Contains(q.users, r.User) && (len(q.accounts) == 0 || chosen) {
			own[i], chosen = true, true
		} else if len(q.users) > 0 && len(q.accounts) > 0 && r.User != "" {
			chosen = q.all
		}
		if !chosen {
			continue
		}
		shown[i] = true
		for j, depth := i-1, r.Depth; j >= 0 && depth > 0; j-- {
			if rows[j].Depth < depth {
				shown[j], depth = true, rows[j].Depth
			}
		}
	}
	return shown, own
}

func (v *sharesView) text(p *page) error {
	users := 0
	for _, own := range v.own {
		if own {
			users++
		}
	}
	if users == 0 && len(v.users) > 0 {
		p.line("", "user %s has no account on this cluster: if Slurm enforces associations, it refuses jobs of the user",
			strings.Join(v.users, ", "))
		return nil
	}
	bar := locale.Symbols("USED│SHARE")
	t := app.Table{
		Header: []string{"ASSOCIATION", "SHARES", "NORM", "USAGE", "EFFECTIVE", "LEVEL", "FACTOR", bar},
		Right:  []string{"SHARES", "NORM", "USAGE", "EFFECTIVE", "LEVEL", "FACTOR"},
		Drop:   []string{"NORM", "EFFECTIVE", "LEVEL", "SHARES"}, Whole: []string{"ASSOCIATION"},
	}
	if !v.config.FairTree() {
		t.Omit = []string{"LEVEL"}
	}
	var rows []*slurm.Share
	for i, shown := range v.shown {
		if shown {
			rows = append(rows, &v.rows[i])
			t.Add(v.cells(&v.rows[i])...)
		}
	}
	t.Paint = func(i int, bar string) string {
		if rows[i].EffectiveUsage > rows[i].NormShares {
			return p.paint(red, bar)
		}
		return p.paint(green, bar)
	}
	p.table(&t)
	v.notes(p)
	return nil
}

// cells are the row of an association.
func (v *sharesView) cells(r *slurm.Share) []string {
	name := or(r.User, r.Account)
	if r.Partition != "" {
		name += " (" + r.Partition + ")"
	}
	shares, norm, bar := r.SharesText(), number(r.NormShares, 4), shareBar(r.EffectiveUsage, r.NormShares, 12)
	if r.Depth == 0 {
		shares, norm = "", ""
	}
	if r.Depth == 0 || r.Parent {
		bar = ""
	}
	level, factor := "", ""
	if r.HasLevelFS {
		level = number(r.LevelFS, 3)
	}
	if r.HasFactor && (r.User != "" || !v.config.FairTree()) {
		factor = number(r.FairShare, 4)
	}
	return []string{
		strings.Repeat("  ", r.Depth) + name, shares, norm, number(r.RawUsage, 0), number(r.EffectiveUsage, 4), level, factor, bar,
	}
}

// notes says what the numbers mean for the requested users and accounts.
func (v *sharesView) notes(p *page) {
	p.print("\n")
	if !v.config.Multifactor() {
		p.line("", "%s: jobs are taken in the order of their submission, fair share does not count here", v.config["PriorityType"])
		return
	}
	halfLife := v.config.Duration("PriorityDecayHalfLife")
	how := "usage halves every " + span(halfLife)
	if halfLife == 0 {
		how = "usage never decays"
	}
	if at, period, ok := forecast.NextReset(v.config, v.at); ok {
		how += fmt.Sprintf("; it is reset to nothing %s, next on %s", period, at.Format("2006-01-02 15:04"))
	}
	p.line("", "%s; %s; fair share weighs %s in a priority (%s)", v.algorithmName(), how, number(v.config.Weight("FairShare"), 0),
		locale.Symbols("USED│SHARE")+": a bar beyond the line has used more than its share")
	if v.config.Weight("FairShare") == 0 {
		p.line("", "PriorityWeightFairShare is 0: the factor does not count")
	}
	for i := range v.rows {
		if v.own[i] && v.shown[i] {
			v.outlook(p, i, halfLife)
		}
	}
	var differ []string
	for i := range v.rows {
		if v.own[i] && v.shown[i] && v.stand.Differs[i] {
			differ = append(differ, v.rows[i].Name())
		}
	}
	if len(differ) > 0 && v.stand.Trusted {
		p.line("",
			"the factor that Slurm shows for %s does not follow from the tree that it shows, so it is not predicted: Slurm may hide a part of the tree, or not have counted the latest usage yet",
			few(differ))
	}
}

// outlook is what the half-life means for one user.
func (v *sharesView) outlook(p *page, i int, halfLife time.Duration) {
	r := v.rows[i]
	o := v.stand.Outlook(i)
	reset, _, resets := forecast.NextReset(v.config, v.at)
	p.print("\n")
	p.printf("%s  factor %s %s\n", p.paint(bold, app.Sanitize(r.Name())), number(r.FairShare, 4), p.paint(green, bar(r.FairShare, 20)))
	if o.Rank > 0 {
		p.line("  ", "rank %d of %d users", o.Rank, o.Users)
	}
	switch {
	case r.RawUsage == 0:
		p.line("  ", "no recent usage: the factor is at its maximum for this account")
	case resets && (halfLife == 0 || reset.Before(v.at.Add(halfLife))):
		p.line("  ", "usage %s %s is set to nothing on %s, with that of all others",
			number(r.RawUsage, 0), v.usageUnit(), reset.Format("2006-01-02 15:04"))
	case halfLife == 0:
		p.line("  ", "usage %s %s does not decay", number(r.RawUsage, 0), v.usageUnit())
	default:
		p.line("  ", "usage %s %s falls to half on %s if nothing runs", number(r.RawUsage, 0), v.usageUnit(),
			v.at.Add(halfLife).Format("2006-01-02 15:04"))
	}
	switch {
	case !v.stand.Predicts(i) || r.RawUsage == 0:
	case resets && r.FairShare <= 0.5 && (!o.Recovers || reset.Before(v.at.Add(o.Recovery))):
		p.line("  ", "all factors are even again then")
	case halfLife == 0:
	case r.FairShare > 0.5:
		p.line("  ", "the factor is above 0.5")
	case o.Recovers:
		p.line("  ", "factor back to 0.5 by %s (in %s) if %s runs nothing and the others continue as now",
			v.at.Add(o.Recovery).Format("2006-01-02 15:04"), span(o.Recovery), app.Sanitize(r.User))
	default:
		p.line("  ",
			"the factor stays below 0.5 even if %s runs nothing: the usage of the account's other users counts too",
			app.Sanitize(r.User))
	}
}

// usageUnit is in what usage is counted.
func (v *sharesView) usageUnit() string {
	if v.billed {
		return "(billed seconds)"
	}
	return "(CPU seconds)"
}

// shareJSON is an association for programs.
type shareJSON struct {
	Account         string   `json:"account"`
	User            *string  `json:"user"`
	Partition       *string  `json:"partition"`
	Depth           int      `json:"depth"`
	RawShares       *float64 `json:"raw_shares"` // null: the parent's
	NormShares      float64  `json:"norm_shares"`
	RawUsage        float64  `json:"raw_usage"`
	EffectiveUsage  float64  `json:"effective_usage"`
	LevelFS         *float64 `json:"level_fs"` // null: infinite, or none
	FairShare       *float64 `json:"fairshare"`
	Computed        *float64 `json:"fairshare_computed"`
	Rank            *int     `json:"rank"`
	UsageHalvesAt   *string  `json:"usage_halves_at"`
	AboveHalfAt     *string  `json:"factor_half_at"`
	TRESRunMins     string   `json:"tres_run_mins"`
	GroupTRESLimits string   `json:"grp_tres_mins"`
}

type sharesJSON struct {
	Time            string      `json:"time"`
	Cluster         string      `json:"cluster"`
	PriorityType    string      `json:"priority_type"`
	Algorithm       string      `json:"algorithm"`
	HalfLifeSeconds *int64      `json:"half_life_seconds"`
	Weight          float64     `json:"weight_fairshare"`
	Users           int         `json:"users"`
	Associations    []shareJSON `json:"associations"`
}

func (v *sharesView) json(w io.Writer) error {
	halfLife := v.config.Duration("PriorityDecayHalfLife")
	doc := sharesJSON{
		Time: v.at.Format(time.RFC3339), Cluster: v.config["ClusterName"], PriorityType: v.config["PriorityType"],
		Algorithm: v.algorithmName(), HalfLifeSeconds: seconds(halfLife), Weight: v.config.Weight("FairShare"), Associations: []shareJSON{},
	}
	for _, r := range v.rows {
		if r.User != "" {
			doc.Users++
		}
	}
	for i, r := range v.rows {
		if !v.shown[i] {
			continue
		}
		s := shareJSON{
			Account: r.Account, User: optional(r.User), Partition: optional(r.Partition), Depth: r.Depth, NormShares: r.NormShares,
			RawUsage: r.RawUsage, EffectiveUsage: r.EffectiveUsage, TRESRunMins: r.TRESRunMins, GroupTRESLimits: r.GrpTRESMins,
		}
		if !r.Parent {
			s.RawShares = &r.RawShares
		}
		if r.HasLevelFS && !math.IsInf(r.LevelFS, 0) {
			s.LevelFS = &r.LevelFS
		}
		if r.HasFactor && (r.User != "" || !v.config.FairTree()) {
			s.FairShare = &r.FairShare
			if r.User != "" && !v.config.PriorityFlag("DEPTH_OBLIVIOUS") {
				s.Computed = &v.stand.Nodes[i].Factor
			}
		}
		if v.own[i] {
			o := v.stand.Outlook(i)
			s.Rank = &o.Rank
			if halfLife > 0 {
				s.UsageHalvesAt = rfc3339(v.at.Add(halfLife).Unix())
			}
			if o.Recovers {
				s.AboveHalfAt = rfc3339(v.at.Add(o.Recovery).Unix())
			}
		}
		doc.Associations = append(doc.Associations, s)
	}
	return app.PrintJSON(w, doc)
}

func optional(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

func (v *sharesView) metrics() []metric {
	var all []metric
	for i, r := range v.rows {
		if !v.shown[i] {
			continue
		}
		labels := []string{"account", r.Account, "user", r.User}
		if r.Partition != "" {
			labels = append(labels, "partition", r.Partition)
		}
		all = append(all,
			metric{"fairshare_raw_usage", "Decayed usage, as sshare's RawUsage.", labels, r.RawUsage},
			metric{"fairshare_norm_shares", "Share among the siblings (Fair Tree) or of the cluster (classic).", labels, r.NormShares},
			metric{"fairshare_effective_usage", "Effective usage, as sshare's EffectvUsage.", labels, r.EffectiveUsage})
		if r.HasLevelFS {
			all = append(all, metric{"fairshare_level", "LevelFS of Fair Tree.", labels, r.LevelFS})
		}
		if r.HasFactor && r.User != "" {
			all = append(all, metric{"fairshare_factor", "Fair-share factor, 0 to 1.", labels, r.FairShare})
		}
	}
	return all
}

func (v *sharesView) clusterName() string { return v.config.Get("ClusterName") }
