package fairshare

import (
	"context"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/ponos-tools/ponos/lib/advise/planner"
	"github.com/ponos-tools/ponos/lib/advise/usage"
	"github.com/ponos-tools/ponos/lib/base/app"
	"github.com/ponos-tools/ponos/lib/base/fault"
	"github.com/ponos-tools/ponos/lib/base/nss"
	"github.com/ponos-tools/ponos/lib/base/unit"
	"github.com/ponos-tools/ponos/lib/slurm"
	"github.com/ponos-tools/ponos/lib/slurm/sbatch"
)

// usedQuery asks what jobs used.
type usedQuery struct {
	ask             *planner.Asker
	ids             []string
	since           time.Time
	sinceAgo        time.Duration
	users, accounts []string
	all, mine       bool
	risk            float64
}

// usedView is what jobs used of what they requested, and what to request next time.
type usedView struct {
	usedQuery
	at        time.Time
	cluster   string
	groups    []usedGroup
	waiting   []string // jobs that have not started
	unchecked string   // why advice is not checked
}

// usedGroup are runs that are one line, and the advice for the next one.
type usedGroup struct {
	usage.Group
	sum     usage.Sum
	learned usage.Learned
	planner.Advice
}

func newUsedQuery(a *planner.Asker, c *cli.Context) (*usedQuery, error) {
	v := &usedQuery{ask: a, users: list(c.String("user")), accounts: list(c.String("account")), all: c.Bool("all")}
	for _, arg := range c.Args().Slice() {
		for _, id := range list(arg) {
			if !jobLabel.MatchString(id) {
				return nil, fault.Errorf(fault.Usage, "invalid job id %q", id)
			}
			v.ids = append(v.ids, id)
		}
	}
	if len(v.ids) > 0 && (c.IsSet("since") || v.all || len(v.users)+len(v.accounts) > 0) {
		return nil, fault.Errorf(fault.Usage, "jobs cannot be combined with --since, --user, --account or --all")
	}
	var err error
	if v.since, v.sinceAgo, err = moment(a.Now(), "since", c.String("since")); err != nil {
		return nil, err
	}
	if v.risk, err = unit.Risk(c.String("risk")); err != nil {
		return nil, fault.Errorf(fault.Usage, "--risk: %w", err)
	}
	if len(v.users) == 0 && len(v.accounts) == 0 && !v.all {
		name, err := nss.Me()
		if err != nil {
			return nil, err
		}
		v.users, v.mine = []string{name}, true
	}
	return v, nil
}

func (q *usedQuery) load(ctx context.Context) (answer, error) {
	v := &usedView{usedQuery: *q, at: q.ask.Now()}
	if v.sinceAgo > 0 {
		v.since = v.at.Add(-v.sinceAgo)
	}
	var config slurm.Config
	if err := v.ask.Config(&config)(ctx); err != nil {
		return nil, err
	}
	if !config.Accounting() {
		return nil, noAccounting("used")
	}
	v.cluster = config.Get("ClusterName")
	var runs []usage.Run
	known := map[string]bool{}
	period := slurm.Period{Since: v.since, Until: v.at, Users: v.users, Accounts: v.accounts}
	if err := v.ask.Client.EachConsumed(ctx, v.ids, period, func(c *slurm.Consumed) error {
		r := usage.Of(c)
		known[r.Label], known[usage.ByJob(&r)], known[c.ID] = true, true, true
		if r.Start == 0 {
			v.waiting = append(v.waiting, r.Label)
		}
		runs = append(runs, r)
		return nil
	}); err != nil {
		return nil, err
	}
	for _, id := range v.ids {
		if !known[id] {
			return nil, fault.Errorf(fault.Usage, "accounting has no job %s", id)
		}
	}
	key := usage.ByName
	if len(v.ids) > 0 {
		key = usage.ByJob
	}
	for _, g := range usage.Fold(runs, key) {
		v.groups = append(v.groups, usedGroup{Group: g, sum: g.Sum(), learned: usage.Learn(g.Runs, v.risk)})
	}
	return v, v.advise(ctx)
}

// maxAdvised limits for how many lines the planner is asked.
const maxAdvised = 10

// advise plans a job like the last of each group, as it was and with less. Options that
// the planner does not take are not printed.
func (v *usedView) advise(ctx context.Context) error {
	var plan planner.Planner
	loaded, advised := false, 0
	for i := range v.groups {
		g := &v.groups[i]
		options := g.learned.Options(&g.sum)
		if len(options) == 0 || advised == maxAdvised {
			continue
		}
		if !loaded {
			if err := plan.Load(ctx, v.ask); err != nil {
				if ctx.Err() != nil {
					return context.Cause(ctx)
				}
				v.unchecked = fault.Text(err)
				return nil
			}
			loaded, v.at = true, plan.Now
		}
		advised++
		advice, err := plan.Advise(ctx, v.ask, &g.Group, &g.learned, options)
		if err != nil {
			return err
		}
		g.Advice = advice
	}
	return nil
}

// name is what a line is about.
func (v *usedView) name(g *usedGroup) string {
	if len(v.ids) > 0 {
		return g.Key
	}
	return or(g.Runs[len(g.Runs)-1].Name, "(no name)")
}

func part(used, of float64) string {
	switch {
	case of <= 0 || used < 0:
		return "-"
	case doubtful(used, of):
		return fmt.Sprintf("%.0f%%?", 100*used/of)
	}
	return fmt.Sprintf("%.0f%%", 100*used/of)
}

// doubtful reports whether more was used than there was, beyond what two threads of a core and rounding explain.
func doubtful(used, of float64) bool { return of > 0 && used > 2.2*of }

func hours(seconds float64) string {
	if seconds < 0 {
		return "-"
	}
	if h := seconds / 3600; h < 10 {
		return number(h, 1)
	}
	return number(seconds/3600, 0)
}

// limit is a time limit in a table.
func limitText(d time.Duration) string {
	switch d {
	case 0:
		return "-"
	case slurm.Unlimited:
		return "no limit"
	}
	return span(d)
}

func (v *usedView) text(p *page) error {
	if len(v.waiting) > 0 && len(v.ids) > 0 {
		p.line("", "not started yet: %s", few(v.waiting))
	}
	if len(v.groups) == 0 {
		if len(v.ids) == 0 {
			p.line("", "no job has run since %s", v.since.Format("2006-01-02 15:04"))
		}
		return nil
	}
	first, gpus, several := "NAME", false, false
	for i := range v.groups {
		gpus = gpus || v.groups[i].sum.AllGPUSeconds > 0
		several = several || v.groups[i].Runs[0].User != v.groups[0].Runs[0].User
	}
	if len(v.ids) > 0 {
		first = "JOB"
	}
	t := app.Table{
		Header: []string{first, "USER", "RUNS", "CPU", "MEM", "GPU", "CPU h LOST", "GPU h LOST", "TIME"},
		Right:  []string{"RUNS", "CPU", "MEM", "GPU", "CPU h LOST", "GPU h LOST"},
		Drop:   []string{"RUNS", "USER", "CPU h LOST", "GPU h LOST"},
	}
	if !several {
		t.Omit = append(t.Omit, "USER")
	}
	if !gpus {
		t.Omit = append(t.Omit, "GPU", "GPU h LOST")
	}
	for i := range v.groups {
		s := &v.groups[i].sum
		text := span(s.Median)
		if s.Longest > s.Median {
			text += "-" + span(s.Longest)
		}
		t.Add(v.name(&v.groups[i]), v.groups[i].Runs[0].User, strconv.Itoa(s.Runs), part(s.CPUUsed, s.CPUSeconds), part(s.PeakMB, s.MemMB),
			part(s.GPUUsed, s.GPUSeconds), hours(s.WastedCPU), hours(s.WastedGPU), text+" of "+limitText(s.Largest))
	}
	p.table(&t)
	p.print("\n")
	lost, lostGPU := 0.0, 0.0
	for i := range v.groups {
		lost, lostGPU = lost+max(0, v.groups[i].sum.WastedCPU), lostGPU+max(0, v.groups[i].sum.WastedGPU)
	}
	text := fmt.Sprintf("allocated and not used: %s CPU hours", hours(lost))
	if lostGPU > 0 {
		text += fmt.Sprintf(", at least %s GPU hours", hours(lostGPU))
	}
	p.line("", "%s", text)
	if v.unchecked != "" {
		p.line("", "no recommendation: the planner cannot check it: %s", v.unchecked)
	}
	for i := range v.groups {
		if s := &v.groups[i].sum; doubtful(s.CPUUsed, s.CPUSeconds) {
			p.line("", "%s: %s of its CPUs cannot be: accounting has counted wrong, or nothing keeps jobs to their CPUs here",
				v.name(&v.groups[i]), fmt.Sprintf("%.0f%%", 100*s.CPUUsed/s.CPUSeconds))
		}
		v.advice(p, &v.groups[i])
	}
	return nil
}

// advice says what to request next time.
func (v *usedView) advice(p *page, g *usedGroup) {
	l := &g.learned
	name := v.name(g)
	if l.Cut {
		p.line("", "%s: more than %s of the runs ended at the time limit: they need more than %s",
			name, percentText(v.risk), limitText(g.sum.Largest))
	}
	if l.Killed {
		p.line("", "%s: more than %s of the runs ran out of memory: they need more than %s", name, percentText(v.risk), memory(g.sum.MemMB))
	}
	if len(g.Options) == 0 {
		return
	}
	var words []string
	if g.Options.Has("time") {
		words = append(words, fmt.Sprintf("%s instead of %s", span(l.Time), limitText(g.sum.Largest)))
	}
	if g.Options.Has("mem") {
		words = append(words, fmt.Sprintf("%s instead of %s", memory(float64(l.MemMB)), memory(g.sum.MemMB)))
	}
	if g.Options.Has(sbatch.CPUsPerTask) {
		words = append(words, fmt.Sprintf("%s instead of %.0f", plural(int(l.CPUs), "CPU", "CPUs"), g.Runs[len(g.Runs)-1].CPUs))
	}
	basis := fmt.Sprintf("enough for %s of such runs, by %s", percentText(1-v.risk), plural(max(l.Runs, l.Peaks), "run", "runs"))
	if l.Few {
		basis = fmt.Sprintf("1.5 times the highest use in %s", plural(max(l.Runs, l.Peaks), "run", "runs"))
	}
	p.line("", "%s: request %s (%s)", name, strings.Join(words, ", "), basis)
	p.command("    ", g.Options.Args())
	if now := v.at.Unix(); g.After > 0 {
		switch {
		case g.After <= now && (g.Before == 0 || g.Before > now):
			text := "it fits a hole now"
			if g.Before > now {
				text += "; as before it would start " + when(g.Before, v.at)
			}
			p.line("    ", "%s", text)
		case g.Before > g.After:
			p.line("    ", "it would start %s instead of %s", when(g.After, v.at), when(g.Before, v.at))
		}
	}
}

func percentText(f float64) string {
	return strconv.FormatFloat(math.Round(1000*f)/10, 'f', -1, 64) + "%"
}

type usedRunsJSON struct {
	Name      string         `json:"name"`
	Job       string         `json:"job_id"` // the last one
	User      string         `json:"user"`
	Account   string         `json:"account"`
	Partition string         `json:"partition"`
	Runs      int            `json:"runs"`
	Running   int            `json:"running"`
	Median    int64          `json:"elapsed_median_seconds"`
	Longest   int64          `json:"elapsed_longest_seconds"`
	Limit     *int64         `json:"time_limit_seconds"` // -1: unlimited
	CPU       *float64       `json:"cpu_used"`           // parts of what was given
	Doubtful  bool           `json:"cpu_used_doubtful"`  // more than there was
	GPU       *float64       `json:"gpu_used"`
	Memory    *int64         `json:"memory_peak_bytes_per_node"`
	MemoryOf  *int64         `json:"memory_asked_bytes_per_node"`
	CPULost   *float64       `json:"cpu_seconds_lost"`
	GPULost   *float64       `json:"gpu_seconds_lost"`
	TimedOut  bool           `json:"needs_more_time"`
	Killed    bool           `json:"needs_more_memory"`
	Advice    adviceJSON     `json:"advice"`
	States    map[string]int `json:"states"`
}

type adviceJSON struct {
	Options []string `json:"sbatch_options"` // empty unless they were checked
	Before  *string  `json:"start_time_as_before"`
	After   *string  `json:"start_time_with_options"`
	Few     bool     `json:"few_runs"`
}

func known(f float64) *float64 {
	if f < 0 {
		return nil
	}
	return &f
}

func bytesOf(mb float64) *int64 {
	if mb <= 0 {
		return nil
	}
	n := int64(mb * (1 << 20))
	return &n
}

func ratio(used, of float64) *float64 {
	if of <= 0 {
		return nil
	}
	return known(used / of)
}

func (v *usedView) json(w io.Writer) error {
	doc := struct {
		Time      string         `json:"time"`
		Cluster   string         `json:"cluster"`
		Since     *string        `json:"since"` // null: jobs were named
		Risk      float64        `json:"risk"`
		Unchecked *string        `json:"unchecked"`
		Waiting   []string       `json:"not_started"`
		Jobs      []usedRunsJSON `json:"jobs"`
	}{v.at.Format(time.RFC3339), v.cluster, nil, v.risk, optional(v.unchecked), filled(v.waiting), []usedRunsJSON{}}
	if len(v.ids) == 0 {
		doc.Since = rfc3339(v.since.Unix())
	}
	for i := range v.groups {
		g := &v.groups[i]
		s, last := &g.sum, &g.Runs[len(g.Runs)-1]
		row := usedRunsJSON{
			Name: last.Name, Job: last.Label, User: last.User, Account: last.Account, Partition: last.Partition,
			Runs: s.Runs, Running: s.Running,
			Median: int64(s.Median / time.Second), Longest: int64(s.Longest / time.Second), Limit: seconds(s.Largest),
			CPU: ratio(s.CPUUsed, s.CPUSeconds), Doubtful: doubtful(s.CPUUsed, s.CPUSeconds),
			GPU: ratio(s.GPUUsed, s.GPUSeconds), Memory: bytesOf(s.PeakMB), MemoryOf: bytesOf(s.MemMB),
			CPULost: known(s.WastedCPU), GPULost: known(s.WastedGPU), TimedOut: g.learned.Cut, Killed: g.learned.Killed,
			Advice: adviceJSON{filled(g.Options.Args()), rfc3339(g.Before), rfc3339(g.After), g.learned.Few}, States: map[string]int{},
		}
		for k := range g.Runs {
			row.States[g.Runs[k].State]++
		}
		doc.Jobs = append(doc.Jobs, row)
	}
	return app.PrintJSON(w, doc)
}

func (v *usedView) metrics() []metric {
	var all []metric
	byUser := map[string][2]float64{}
	for i := range v.groups {
		g := &v.groups[i]
		sums := byUser[g.Runs[0].User]
		sums[0], sums[1] = sums[0]+max(0, g.sum.WastedCPU), sums[1]+max(0, g.sum.WastedGPU)
		byUser[g.Runs[0].User] = sums
	}
	for _, user := range sortedKeys(byUser, func(a, b string) bool { return a < b }) {
		all = append(all,
			metric{"fairshare_lost_cpu_seconds", "CPU seconds that were allocated to jobs and not used, in the period.",
				[]string{"user", user}, byUser[user][0]},
			metric{"fairshare_lost_gpu_seconds", "GPU seconds that were allocated to jobs and not used, in the period.",
				[]string{"user", user}, byUser[user][1]})
	}
	return all
}

func (v *usedView) clusterName() string { return v.cluster }
