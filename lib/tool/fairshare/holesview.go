package fairshare

import (
	"context"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/ponos-tools/ponos/lib/advise/forecast"
	"github.com/ponos-tools/ponos/lib/advise/planner"
	"github.com/ponos-tools/ponos/lib/base/app"
	"github.com/ponos-tools/ponos/lib/base/fault"
	"github.com/ponos-tools/ponos/lib/base/hostlist"
	"github.com/ponos-tools/ponos/lib/base/nss"
	"github.com/ponos-tools/ponos/lib/base/unit"
	"github.com/ponos-tools/ponos/lib/slurm"
	"github.com/ponos-tools/ponos/lib/slurm/sbatch"
)

// holesQuery asks for the backfill picture.
type holesQuery struct {
	ask               *planner.Asker
	wanted            []string // partitions
	ahead             time.Duration
	shortest, margin  time.Duration
	onlyNow, onlyList bool
}

// holesView is the backfill picture.
type holesView struct {
	holesQuery
	at     time.Time
	until  int64
	plan   planner.Planner
	me     string
	hidden bool // jobs of others
	chosen []*slurm.Partition
	holes  map[string][]offer
}

// offer is a hole in a partition, and how to request it.
type offer struct {
	forecast.Hole
	minutes   int64    // forecast.Forever: without an end
	request   []string // nil unless the plan has it start
	victims   []string // jobs that are preempted
	delays    []string // planned jobs of later partitions that it moves
	certainty forecast.Certainty
	why       string // it is not sure
}

func newHolesQuery(a *planner.Asker, c *cli.Context) (*holesQuery, error) {
	v := &holesQuery{ask: a, wanted: list(c.String("partition")), onlyNow: c.Bool("now"), onlyList: c.Bool("list")}
	for name, into := range map[string]*time.Duration{"span": &v.ahead, "shortest": &v.shortest, "margin": &v.margin} {
		value := c.String(name)
		if value == "" {
			continue
		}
		d, err := duration(name, value)
		if err != nil {
			return nil, err
		}
		*into = d
	}
	if c.IsSet("span") && v.ahead < 10*time.Minute {
		return nil, fault.Errorf(fault.Usage, "--span: %s is less than 10m", c.String("span"))
	}
	return v, nil
}

func (q *holesQuery) load(ctx context.Context) (answer, error) {
	v := &holesView{holesQuery: *q, at: q.ask.Now(), holes: map[string][]offer{}}
	now := v.at.Unix()
	if err := v.plan.Load(ctx, v.ask); err != nil {
		return nil, err
	}
	v.me, _ = nss.Me()
	v.hidden = v.othersHidden(ctx)
	if err := checkNames("partition", v.wanted, partitionNames(v.plan.Partitions)); err != nil {
		return nil, err
	}
	for i := range v.plan.Partitions {
		p := &v.plan.Partitions[i]
		if len(v.wanted) == 0 && !p.Hidden || slices.Contains(v.wanted, p.Name) {
			v.chosen = append(v.chosen, p)
		}
	}
	v.until = v.horizon(now)
	for _, p := range v.chosen {
		if p.State != "UP" {
			continue
		}
		v.holes[p.Name] = v.offers(p, now)
	}
	return v, nil
}

// horizon is how far the picture goes: to the last thing that is known, within
// the window of the backfill scheduler.
func (v *holesView) horizon(now int64) int64 {
	if v.ahead > 0 {
		return now + int64(v.ahead.Seconds())
	}
	last := now + 3600
	for _, line := range v.plan.Plan.Timelines(nil) {
		for _, s := range line.Spans {
			if s.End != forecast.Forever && s.Taken {
				last = max(last, s.End)
			} else if s.Kind == forecast.Planned {
				last = max(last, s.Start+3600)
			}
		}
	}
	return min(last, now+int64(min(v.plan.Config.BackfillWindow(), 24*time.Hour).Seconds()))
}

// offers are the holes of a partition as requests.
func (v *holesView) offers(p *slurm.Partition, now int64) []offer {
	part := v.plan.World.Partition(p.Name)
	lines := v.plan.Plan.Timelines(part)
	var all []offer
	for _, h := range forecast.Holes(lines, int64(v.shortest.Seconds()), v.until) {
		if h.Start > now && v.onlyNow {
			break
		}
		margin := int64(0)
		if h.Start == now {
			margin = int64(v.margin.Seconds())
		}
		o := offer{Hole: h, minutes: forecast.Minutes(h.Start, h.End, margin), victims: v.plan.Plan.Preempted(part, h.Nodes, h.Start)}
		if p.MaxTime != slurm.Unlimited && p.MaxTime > 0 {
			o.minutes = min(o.minutes, int64(p.MaxTime/time.Minute))
		}
		if o.minutes < 1 || o.minutes*60 < int64(v.shortest.Seconds()) {
			continue
		}
		if t := v.plan.Threads(h.Nodes); t > 1 {
			o.Free.CPUs -= float64(int64(o.Free.CPUs) % int64(t))
		}
		if o.Free.CPUs < 1 {
			continue
		}
		if most := v.plan.MemoryPerCPU(p); most > 0 { // more would make Slurm add CPUs
			o.Free.MemMB = min(o.Free.MemMB, most*o.Free.CPUs)
		}
		count := len(h.Nodes)
		count = int(min(int64(count), p.MaxNodes.Or(math.MaxInt64)))
		if int64(count) < p.MinNodes {
			continue
		}
		o.delays = v.plan.Plan.InTheWay(part, h.Nodes, h.Start, h.End)
		v.judge(&o, p, part, count)
		all = append(all, o)
	}
	return all
}

// judge says how far a hole can be relied on. It has options of sbatch only if a job with
// them would start in it, as the planner sees it.
func (v *holesView) judge(o *offer, p *slurm.Partition, part *forecast.Partition, count int) {
	o.certainty, o.why = v.plan.Plan.Certainty(v.me, part, o.Nodes)
	if o.certainty != forecast.OutOfReach && o.Start > v.at.Unix() {
		o.certainty, o.why = forecast.Likely, "" // much can happen until then
	}
	if o.certainty == forecast.Sure && v.hidden {
		o.certainty, o.why = forecast.Likely, "jobs of other users may come first, which Slurm hides (PrivateData)"
	}
	if o.certainty == forecast.OutOfReach {
		return
	}
	account, refusal := v.plan.Account(v.me, p)
	if refusal != "" {
		o.certainty, o.why = forecast.OutOfReach, refusal
		return
	}
	if account == "" && len(p.AllowAccounts)+len(p.DenyAccounts) > 0 && o.certainty == forecast.Sure {
		o.certainty, o.why = forecast.Likely, "the partition takes some accounts only, and yours are not known"
	}
	j := forecast.Job{
		User: v.me, Account: account, Partition: p.Name, Nodes: count, Need: o.Free, GPUType: v.plan.GPUType(p, o.Nodes),
		Limit: forecast.Forever, Submit: v.at.Unix(),
	}
	if o.minutes != forecast.Forever {
		j.Limit = o.minutes * 60
	}
	if j.Need.GPUs < 1 {
		j.GPUType = ""
	}
	if !v.plan.MemoryCounts() {
		j.Need.MemMB = 0
	}
	last, why := v.plan.Plan.Last(v.plan.World.Bound(j))
	switch last.Verdict {
	case forecast.StartsNow, forecast.PlannedLate:
		if last.Start <= o.Start {
			o.request = v.request(p, *o, count)
			return
		}
		why = "jobs that come first need the nodes"
	}
	o.certainty, o.why = forecast.OutOfReach, or(why, "a job of yours would not start in it")
}

// othersHidden reports whether Slurm does not show this user all jobs of others. It shows them to
// operators also with PrivateData, and to coordinators some of them.
func (v *holesView) othersHidden(ctx context.Context) bool {
	if !v.plan.Config.Private("jobs") {
		return false
	}
	if !slices.ContainsFunc(v.plan.Jobs, func(j slurm.Job) bool { return j.User != v.me }) {
		return true
	}
	if !v.plan.Config.Accounting() {
		return false
	}
	operator, err := v.ask.Client.Operator(ctx, v.me)
	return err != nil || !operator
}

// request are the options with which sbatch requests a hole.
func (v *holesView) request(p *slurm.Partition, o offer, count int) []string {
	options := sbatch.Options{{Name: "partition", Value: p.Name}, {Name: "nodes", Value: strconv.Itoa(count)}}
	add := func(name, value string) { options = append(options, sbatch.Option{Name: name, Value: value}) }
	if o.Free.GPUs >= 1 {
		gpus := integer(o.Free.GPUs)
		if t := v.plan.GPUType(p, o.Nodes); t != "" {
			gpus = t + ":" + gpus
		}
		if count == 1 {
			add("gpus", gpus)
		} else {
			add(sbatch.GPUsPerNode, gpus)
		}
	}
	if count > 1 {
		add(sbatch.TasksPerNode, "1")
	}
	add(sbatch.CPUsPerTask, integer(o.Free.CPUs))
	if v.plan.MemoryCounts() {
		add("mem", integer(o.Free.MemMB)+"M")
	}
	limit := slurm.Unlimited
	if o.minutes != forecast.Forever {
		limit = time.Duration(o.minutes) * time.Minute
	}
	add("time", slurm.FormatDuration(limit))
	return options.Args()
}

// maxListed limits the holes of a partition that are listed for people.
const maxListed = 12

// section is what is said of a partition: lines, and in between holes of which the first are shown where there is not room for all.
type section struct {
	title string
	holes []string
	after string
	shown int
}

func (v *holesView) text(p *page) error {
	var above, below strings.Builder
	if head := newPage(&above, p.width, p.color); !v.onlyList {
		v.chart(head)
		_ = head.Flush()
	}
	sections := make([]section, len(v.chosen))
	for k := range v.chosen {
		sections[k] = v.section(p, k)
	}
	fill(sections, p.height-strings.Count(above.String(), "\n")-2, p.height > 0 && !v.onlyList)
	for _, s := range sections {
		below.WriteString(s.title)
		for _, hole := range s.holes[:s.shown] {
			below.WriteString(hole)
		}
		if n := len(s.holes) - s.shown; n > 0 && v.onlyList {
			fmt.Fprintf(&below, "  and %d more, later or smaller (--json has them all)\n", n)
		} else if n > 0 {
			fmt.Fprintf(&below, "  and %d more (--list)\n", n)
		}
		below.WriteString(s.after)
	}
	p.print(above.String() + below.String())
	return nil
}

// fill shows as many holes as there are lines, the first of each partition first; all, where it is not tight.
func fill(sections []section, lines int, tight bool) {
	for _, s := range sections {
		lines -= strings.Count(s.title+s.after, "\n") + min(1, len(s.holes)) // a line says that there are more
	}
	for round := range maxListed {
		for k := range sections {
			s := &sections[k]
			if s.shown != round || round == len(s.holes) {
				continue
			}
			need := strings.Count(s.holes[round], "\n")
			if round == len(s.holes)-1 {
				need--
			}
			if tight && need > lines {
				continue
			}
			lines -= need
			s.shown++
		}
	}
}

// section writes what is said of the k-th partition.
func (v *holesView) section(out *page, k int) (s section) {
	write := func(f func(p *page)) string {
		var b strings.Builder
		p := newPage(&b, out.width, out.color)
		f(p)
		_ = p.Flush()
		return b.String()
	}
	part, offers := v.chosen[k], v.holes[v.chosen[k].Name]
	title := "partition " + app.Sanitize(part.Name)
	if len(part.AllowAccounts) > 0 {
		title += ", for " + app.Sanitize(strings.Join(part.AllowAccounts, ", ")) + " only"
	}
	if len(part.AllowGroups) > 0 {
		title += ", for the groups " + app.Sanitize(strings.Join(part.AllowGroups, ", ")) + " only"
	}
	if part.NeedsResv {
		title += ", with a reservation only"
	}
	mine := func(o offer) bool { return o.certainty != forecast.OutOfReach || o.why != offers[0].why }
	s.title = write(func(p *page) {
		switch other := v.equal(k); {
		case part.State != "UP":
			p.printf("%s\n", p.paint(bold, title))
			p.line("  ", "is %s: nothing starts there", strings.ToLower(part.State))
		case len(offers) > 0 && !slices.ContainsFunc(offers, mine): // one line is enough
			p.prose("", p.paint(bold, title)+": out of reach: "+app.Sanitize(offers[0].why))
			offers = nil
		case other != "":
			p.printf("%s\n", p.paint(bold, title))
			p.line("  ", "the holes of %s, with --partition=%s", other, part.Name)
			offers = nil
		default:
			if p.printf("%s\n", p.paint(bold, title)); len(offers) == 0 {
				p.line("  ", "no hole within %s", span(time.Duration(v.until-v.at.Unix())*time.Second))
			}
		}
	})
	if part.State != "UP" {
		return s
	}
	for _, o := range offers {
		s.holes = append(s.holes, write(func(p *page) { v.hole(p, o) }))
	}
	if n := v.plan.Unplanned(part.Name); n > 0 {
		s.after = write(func(p *page) { p.line("  ", "%s in line without a planned start", plural(n, "job is", "jobs are")) })
	}
	return s
}

// hole writes one hole, and the options that request it.
func (v *holesView) hole(p *page, o offer) {
	what, request := v.describe(p, o), app.Sanitize(strings.Join(o.request, " "))
	switch {
	case o.request == nil:
		p.prose("  ", what)
	case p.width == 0 || app.TextWidth(what)+app.TextWidth(request)+4 <= p.width:
		p.printf("  %s: %s\n", what, request)
	default:
		p.prose("  ", what+":")
		p.command("    ", o.request)
	}
	if o.why != "" {
		p.line("      ", "%s", o.why)
	}
	if len(o.victims) > 0 {
		p.line("      ", "preempts %s", few(o.victims))
	}
	if len(o.delays) > 0 {
		p.line("      ", "delays %s, planned in partitions that come later", few(o.delays))
	}
}

// equal is the partition before the k-th that has the same holes, or "".
func (v *holesView) equal(k int) string {
	mine := v.holes[v.chosen[k].Name]
	for _, other := range v.chosen[:k] {
		theirs := v.holes[other.Name]
		if len(mine) > 0 && other.State == "UP" && slices.EqualFunc(mine, theirs, func(a, b offer) bool {
			return a.Start == b.Start && a.End == b.End && a.minutes == b.minutes && a.Free == b.Free && slices.Equal(a.Nodes, b.Nodes) &&
				a.certainty == b.certainty && a.why == b.why && slices.Equal(a.delays, b.delays) && slices.Equal(a.victims, b.victims) &&
				len(a.request) == len(b.request) && (len(a.request) == 0 || slices.Equal(a.request[1:], b.request[1:]))
		}) {
			return other.Name
		}
	}
	return ""
}

// describe says what a hole offers: 2 GPUs, 6 CPUs and 12G for 3h20m now on gpu2.
func (v *holesView) describe(p *page, o offer) string {
	var what []string
	if o.Free.GPUs >= 1 {
		gpus := plural(int(o.Free.GPUs), "GPU", "GPUs")
		if types := v.plan.GPUTypes(o.Nodes); len(types) > 1 {
			gpus += " (" + app.Sanitize(strings.Join(types, " or ")) + ")"
		}
		what = append(what, gpus)
	}
	what = append(what, plural(int(o.Free.CPUs), "CPU", "CPUs"))
	if v.plan.MemoryCounts() {
		what = append(what, memory(o.Free.MemMB))
	}
	start, color := "now", green
	if o.Start > v.at.Unix() {
		start, color = "from "+unit.ShortTime(o.Start, v.at), yellow
	}
	length := "without limit"
	if o.minutes != forecast.Forever {
		length = "for " + span(time.Duration(o.minutes)*time.Minute)
	}
	where := hostlist.Compress(o.Nodes)
	if len(o.Nodes) > 1 {
		where = "each of " + where
	}
	certain := map[forecast.Certainty]string{
		forecast.Sure: "sure", forecast.Likely: "likely", forecast.OutOfReach: "out of reach",
	}[o.certainty]
	return fmt.Sprintf("%s %s %s on %s (%s)", strings.Join(what, ", "), length, p.paint(color, start), app.Sanitize(where), certain)
}

type holeJSON struct {
	Start    string   `json:"start_time"`
	Now      bool     `json:"now"`
	End      *string  `json:"end_time"`           // null: nothing is known to come
	Seconds  *int64   `json:"time_limit_seconds"` // null: no limit
	NodeList string   `json:"nodelist"`
	Nodes    int      `json:"nodes"`
	CPUs     int64    `json:"cpus_per_node"`
	GPUs     int64    `json:"gpus_per_node"`
	Memory   int64    `json:"memory_bytes_per_node"`
	Options  []string `json:"sbatch_options"` // empty unless they were checked
	Preempts []string `json:"preempts"`
	Delays   []string `json:"delays"`
	Certain  string   `json:"certainty"`
	Why      *string  `json:"certainty_reason"`
}

type holesPartitionJSON struct {
	Name      string     `json:"partition"`
	State     string     `json:"state"`
	Accounts  []string   `json:"allow_accounts"`
	Unplanned int        `json:"jobs_without_planned_start"`
	Holes     []holeJSON `json:"holes"`
}

type spanJSON struct {
	Start  string   `json:"start_time"`
	End    *string  `json:"end_time"`
	Kind   string   `json:"kind"`
	CPUs   int64    `json:"cpus_free"`
	GPUs   int64    `json:"gpus_free"`
	Memory int64    `json:"memory_bytes_free"`
	Who    []string `json:"taken_by"`
}

type nodeJSON struct {
	Name  string     `json:"node"`
	Spans []spanJSON `json:"spans"`
}

func (v *holesView) json(w io.Writer) error {
	doc := struct {
		Time       string               `json:"time"`
		Until      string               `json:"until"`
		Partitions []holesPartitionJSON `json:"partitions"`
		Nodes      []nodeJSON           `json:"nodes"`
	}{v.at.Format(time.RFC3339), *rfc3339(v.until), []holesPartitionJSON{}, []nodeJSON{}}
	forever := func(t int64) *string {
		if t == forecast.Forever {
			return nil
		}
		return rfc3339(t)
	}
	for _, p := range v.chosen {
		part := holesPartitionJSON{p.Name, p.State, filled(p.AllowAccounts), v.plan.Unplanned(p.Name), []holeJSON{}}
		for _, o := range v.holes[p.Name] {
			h := holeJSON{
				Start: *rfc3339(o.Start), Now: o.Start == v.at.Unix(), End: forever(o.End),
				NodeList: hostlist.Compress(o.Nodes), Nodes: len(o.Nodes),
				CPUs: int64(o.Free.CPUs), GPUs: int64(o.Free.GPUs), Memory: int64(o.Free.MemMB) << 20, Options: filled(o.request),
				Preempts: filled(o.victims), Delays: filled(o.delays), Certain: o.certainty.String(), Why: optional(o.why),
			}
			if o.minutes != forecast.Forever {
				s := o.minutes * 60
				h.Seconds = &s
			}
			part.Holes = append(part.Holes, h)
		}
		doc.Partitions = append(doc.Partitions, part)
	}
	for _, line := range v.lines() {
		n := nodeJSON{line.Name, []spanJSON{}}
		for _, s := range line.Spans {
			n.Spans = append(n.Spans, spanJSON{
				*rfc3339(s.Start), forever(s.End), kindName(s),
				int64(s.Free.CPUs), int64(s.Free.GPUs), int64(s.Free.MemMB) << 20, filled(s.Who),
			})
		}
		doc.Nodes = append(doc.Nodes, n)
	}
	return app.PrintJSON(w, doc)
}

func kindName(s forecast.Span) string {
	switch {
	case !s.Taken:
		return "free"
	case s.Kind == forecast.Planned:
		return "planned"
	case s.Kind == forecast.Reserved:
		return "reserved"
	case s.Kind == forecast.Unusable:
		return "unusable"
	}
	return "running"
}

func (v *holesView) metrics() []metric {
	var all []metric
	for _, p := range v.chosen {
		var cpus, gpus, longest float64
		for _, o := range v.holes[p.Name] {
			if o.Start != v.at.Unix() {
				continue
			}
			cpus, gpus = max(cpus, o.Free.CPUs), max(gpus, o.Free.GPUs)
			if o.minutes == forecast.Forever {
				longest = math.Inf(1)
			} else {
				longest = max(longest, float64(o.minutes)*60)
			}
		}
		labels := []string{"partition", p.Name}
		all = append(all,
			metric{"fairshare_hole_cpus", "Most CPUs of a node that a job could get right now.", labels, cpus},
			metric{"fairshare_hole_gpus", "Most GPUs of a node that a job could get right now.", labels, gpus},
			metric{"fairshare_hole_longest_seconds", "Longest time limit with which a job could start right now.", labels, longest},
			metric{"fairshare_jobs_unplanned", "Jobs in line without a planned start.", labels, float64(v.plan.Unplanned(p.Name))})
	}
	return all
}

func (v *holesView) clusterName() string { return v.plan.Config.Get("ClusterName") }

func integer(f float64) string { return strconv.FormatInt(int64(f), 10) }
