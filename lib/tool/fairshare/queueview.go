package fairshare

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/ponos-tools/ponos/lib/advise/diagnosis"
	"github.com/ponos-tools/ponos/lib/advise/forecast"
	"github.com/ponos-tools/ponos/lib/advise/planner"
	"github.com/ponos-tools/ponos/lib/advise/priority"
	"github.com/ponos-tools/ponos/lib/base/app"
	"github.com/ponos-tools/ponos/lib/base/fault"
	"github.com/ponos-tools/ponos/lib/base/hostlist"
	"github.com/ponos-tools/ponos/lib/base/nss"
	"github.com/ponos-tools/ponos/lib/slurm"
)

// queueView is the pending jobs, in the order in which they are considered.
type queueView struct {
	ask                         *planner.Asker
	users, accounts, partitions []string
	ids                         []string // jobs that were requested
	fields                      []field
	noHeader                    bool
	first                       int           // 0: all
	budget                      time.Duration // for the plan of jobs that were requested

	at         time.Time
	config     slurm.Config
	weights    priority.Weights
	limits     []slurm.Partition
	jobs       []slurm.Job
	factors    planner.FactorRows
	factorOf   []int32 // of each job its row in factors, or -1
	noFactors  string  // why sprio has none
	candidates []forecast.Candidate
	order      []int            // of all pending jobs, indices into jobs
	ranks      []int            // of each job
	waiting    map[string]int   // jobs in line, by partition
	rows       []int            // the jobs that are shown
	subject    []int            // of them, the rows of the one job whose story is told
	plan       *planner.Planner // of the queue, where jobs were requested
	facts      diagnosis.Facts  // what diagnoses follow from
	later      func(rows []int) (diagnosis.StartKind, int64)
	hidden     bool         // Slurm hides the nodes, so there is no plan
	screen     *queueScreen // while keys steer it
}

func newQueueView(a *planner.Asker, c *cli.Context) (*queueView, error) {
	v := &queueView{
		ask: a, users: list(c.String("user")), accounts: list(c.String("account")), partitions: list(c.String("partition")),
		noHeader: c.Bool("noheader"),
	}
	if c.Bool("me") {
		name, err := nss.Me()
		if err != nil {
			return nil, err
		}
		v.users = append(v.users, name)
	}
	for _, arg := range append([]string{c.String("jobs")}, c.Args().Slice()...) {
		for _, id := range splitJobs(arg) {
			if !jobLabel.MatchString(id) {
				return nil, fault.Errorf(fault.Usage, "invalid job id %q: expected 349, 349_7 or 349+1", id)
			}
			v.ids = append(v.ids, id)
		}
	}
	if n := c.String("first"); n != "" {
		f, err := strconv.ParseUint(n, 10, 31)
		if err != nil || f == 0 {
			return nil, fault.Errorf(fault.Usage, "--first: invalid number of rows %q", n)
		}
		v.first = int(f)
	}
	var err error
	if v.budget, err = budget(c.String("budget")); err != nil {
		return nil, err
	}
	for _, name := range list(c.String("format")) {
		f, ok := fields[strings.ToLower(name)]
		if !ok {
			return nil, unknown("field", name, fieldNames())
		}
		v.fields = append(v.fields, f)
	}
	if c.IsSet("format") && len(v.fields) == 0 {
		return nil, fault.Errorf(fault.Usage, "--format: no field is named")
	}
	return v, nil
}

// jobLabel is what users write for a job: 349, 349_7, 349_[1-5], 349+1.
var jobLabel = regexp.MustCompile(`^[0-9]{1,10}(_[0-9]{1,10}|_\[[0-9,:%-]+\]|\+[0-9]{1,6})?$`)

// splitJobs splits at the commas outside brackets.
func splitJobs(s string) []string {
	return slices.DeleteFunc(hostlist.Split(s), func(p string) bool { return p == "" })
}

// load looks at the queue. A look that fails, or that ends midway, leaves what the last one showed:
// rows are indices into the jobs of the same look.
func (v *queueView) load(ctx context.Context) error {
	if done, err := v.inside(ctx); done || err != nil {
		return err
	}
	next := *v
	next.rows = nil
	if err := next.look(ctx); err != nil {
		return err
	}
	*v = next
	return nil
}

func (v *queueView) look(ctx context.Context) error {
	if err := v.query(ctx); err != nil {
		return err
	}
	v.at = v.ask.Now()
	if v.config.Multifactor() && v.factors.At == nil && v.noFactors == "" {
		v.noFactors = "sprio printed nothing"
	}
	v.weights = planner.Weights(v.config)
	v.sort()
	if err := v.check(ctx); err != nil {
		return err
	}
	if err := v.choose(); err != nil {
		return err
	}
	v.facts = diagnosis.Facts{
		Partitions: v.limits, Memory: memory, Time: func(unix int64) string { return shortTime(unix, v.at) },
	}
	if v.subject = v.one(); v.plan != nil {
		v.facts.Plan, v.facts.Row = v.plan.Plan, v.plan.Row
		v.facts.Nodes, v.facts.QOS, v.facts.Later = v.plan.Nodes, v.plan.QOS, v.later
		v.planned()
	}
	return nil
}

// query asks Slurm for the queue: with a plan of it where jobs were requested, one of which may run.
func (v *queueView) query(ctx context.Context) error {
	v.plan, v.hidden, v.jobs, v.factors, v.noFactors = nil, false, nil, planner.FactorRows{}, ""
	var states []string
	if len(v.ids) > 0 && len(v.fields) == 0 {
		n := planner.Planner{Budget: v.budget}
		err := n.Load(ctx, v.ask)
		if err == nil {
			over := n.Over(ctx)
			v.later = func(rows []int) (diagnosis.StartKind, int64) {
				start, basis := n.ByLimits(over, rows)
				return kindOf[basis], start
			}
			v.plan, v.config, v.limits, v.jobs, v.factors, v.noFactors = &n, n.Config, n.Partitions, n.Jobs, n.Factors, n.NoFactors
			n.Factors = planner.FactorRows{}
			return nil
		}
		if v.hidden = errors.Is(err, planner.ErrNodesHidden); !v.hidden {
			return err
		}
	} else if len(v.ids) == 0 {
		states = append(states, "PENDING")
		if v.screen != nil && v.screen.running {
			states = append(states, "RUNNING")
		}
	}
	return planner.Together(ctx, v.ask.Config(&v.config), v.ask.Partitions(&v.limits),
		v.ask.Jobs(&v.jobs, nil, states...), v.ask.Factors(&v.factors, &v.noFactors))
}

// kindOf is how far a start can be believed.
var kindOf = map[planner.Basis]diagnosis.StartKind{
	planner.Nothing: diagnosis.Unknown, planner.ByWork: diagnosis.About, planner.ByLimits: diagnosis.By,
}

// planned tells where and when the requested jobs start in each of their partitions, as the plan has it.
func (v *queueView) planned() {
	for _, i := range v.rows {
		j := &v.jobs[i]
		row := v.plan.Row(j)
		if row < 0 || !j.Pending() {
			continue
		}
		j.Start, j.End, j.SchedNodes = 0, 0, ""
		r := &v.plan.Plan.Results[row]
		switch r.Verdict {
		case forecast.StartsNow, forecast.PlannedLate, forecast.Unplanned, forecast.Beyond:
			j.Start, j.SchedNodes = r.Start, hostlist.Compress(r.Nodes)
			if j.Limit > 0 && j.Limit != slurm.Unlimited {
				j.End = j.Start + int64(j.Limit.Seconds())
			}
		}
		if v.ranks[i] = r.Rank; r.Rank == 0 {
			v.candidates[i].Eligible = false
		}
	}
}

func (v *queueView) sort() {
	tiers := map[string]float64{}
	for _, p := range v.limits {
		tiers[p.Name] = float64(p.PriorityTier)
	}
	v.factorOf = make([]int32, len(v.jobs))
	for i := range v.jobs {
		v.factorOf[i] = -1
		if j := &v.jobs[i]; j.Pending() && j.Priority > 0 {
			v.factorOf[i] = v.factors.Find(j)
		}
	}
	if v.factors.At != nil {
		v.factors.At = map[planner.FactorKey]int32{}
	}
	v.plansOfOthers()
	v.candidates = make([]forecast.Candidate, len(v.jobs))
	v.waiting = map[string]int{}
	for i := range v.jobs {
		j := &v.jobs[i]
		c := forecast.Candidate{
			Partition: j.Partition, Tier: tiers[j.Partition], HasReservation: j.Reservation != "", Submit: j.Submit, JobID: j.ArrayID,
			Priority: v.priorityOf(i), Count: j.RunnableTasks(), Eligible: j.Pending() && j.Priority > 0 && j.Competes(),
		}
		v.candidates[i] = c
		if c.Eligible {
			v.waiting[j.Partition] += c.Count
		}
	}
	v.order = forecast.Order(v.candidates)
	v.ranks = forecast.Ranks(v.candidates, v.order)
}

// plansOfOthers takes away the start that squeue repeats for each partition of a job: it
// is that in the partition which has the planned nodes.
func (v *queueView) plansOfOthers() {
	rows := make(map[uint64]int, len(v.jobs))
	for i := range v.jobs {
		rows[v.jobs[i].ID]++
	}
	nodes := map[string][]string{}
	for i := range v.limits {
		nodes[v.limits[i].Name], _ = hostlist.Expand(v.limits[i].Nodes)
	}
	for i := range v.jobs {
		j := &v.jobs[i]
		if rows[j.ID] < 2 || j.SchedNodes == "" || !j.Pending() {
			continue
		}
		planned, err := hostlist.Expand(j.SchedNodes)
		if err == nil && slices.ContainsFunc(planned, func(n string) bool { return !slices.Contains(nodes[j.Partition], n) }) {
			j.Start, j.End, j.SchedNodes = 0, 0, ""
		}
	}
}

// factorsRow is sprio's row of a job, or nil.
func (v *queueView) factorsRow(i int) *slurm.Factors {
	if at := v.factorOf[i]; at >= 0 {
		return &v.factors.Rows[at]
	}
	return nil
}

// priorityOf is the priority of a job in its partition.
func (v *queueView) priorityOf(i int) float64 {
	if f := v.factorsRow(i); f != nil {
		return planner.Effective(v.config, &v.jobs[i], f.Priority)
	}
	return float64(v.jobs[i].Priority)
}

// components are the addends of a job's priority; nil where there are none, as with
// priority/basic.
func (v *queueView) components(i int) []priority.Part {
	f := v.factorsRow(i)
	if f == nil {
		return nil
	}
	tres := make(map[string]priority.Reading, len(f.TRES))
	for _, t := range f.TRES {
		tres[t.Name] = v.tresReading(&v.jobs[i], t)
	}
	r := func(f slurm.Factor) priority.Reading { return priority.Reading{Factor: f.Norm, Weighted: f.Weighted} }
	return priority.Components(v.weights,
		r(f.Age), r(f.Assoc), r(f.FairShare), r(f.JobSize), r(f.PartitionFactor), r(f.QOS), tres, f.Site, f.Nice)
}

// tresReading computes the factor of a resource, of which sprio prints two
// digits only, from what the job requests and the partition has.
func (v *queueView) tresReading(j *slurm.Job, t slurm.TRESFactor) priority.Reading {
	r := priority.Reading{Factor: t.Norm, Weighted: t.Weighted}
	if v.config.PriorityFlag("NO_NORMAL_TRES") {
		return r
	}
	for i := range v.limits {
		if v.limits[i].Name == j.Partition {
			exact := priority.TRES(j.TRES[t.Name], v.limits[i].TRES[t.Name])
			if d := exact - t.Norm; d > -0.0051 && d < 0.0051 {
				r.Factor = exact
			}
		}
	}
	return r
}

// direct reports whether an administrator has set the priority: then no factor
// counts.
func direct(components []priority.Part, prio float64) bool {
	for _, p := range components {
		if p.Share != 0 {
			return false
		}
	}
	return len(components) > 0 && prio > 1
}

// check fails for names that do not exist.
func (v *queueView) check(ctx context.Context) error {
	if err := checkNames("partition", v.partitions, partitionNames(v.limits)); err != nil {
		return err
	}
	var users, accounts []string
	for i := range v.jobs {
		users, accounts = append(users, v.jobs[i].User), append(accounts, v.jobs[i].Account)
	}
	if len(v.users) == 0 && len(v.accounts) == 0 {
		return nil
	}
	missingAccount := slices.ContainsFunc(v.accounts, func(a string) bool { return !slices.Contains(accounts, a) })
	if v.config.Accounting() && (missingAccount || checkUsers(v.users, users) != nil) {
		if shares, err := v.ask.Client.Shares(ctx); err == nil {
			for _, s := range shares {
				users, accounts = append(users, s.User), append(accounts, s.Account)
			}
		}
	}
	if err := checkUsers(v.users, users); err != nil {
		return err
	}
	if !v.config.Accounting() {
		return nil // any account may be recorded then
	}
	return checkNames("account", v.accounts, accounts)
}

// choose picks the rows that were requested.
func (v *queueView) choose() error {
	v.rows = v.rows[:0]
	found := make([]bool, len(v.ids))
	for _, i := range v.order {
		j := &v.jobs[i]
		if len(v.users) > 0 && !slices.Contains(v.users, j.User) ||
			len(v.accounts) > 0 && !slices.Contains(v.accounts, j.Account) ||
			len(v.partitions) > 0 && !slices.Contains(v.partitions, j.Partition) {
			continue
		}
		wanted := len(v.ids) == 0
		for k, id := range v.ids {
			if isJob(j, id) || len(v.fields) == 0 && isComponent(j, id) {
				wanted, found[k] = true, true
			}
		}
		if wanted && (len(v.ids) > 0 || j.Pending() || v.screen != nil) {
			v.rows = append(v.rows, i)
		}
	}
	for k, ok := range found {
		if !ok {
			return v.noJob(v.ids[k])
		}
	}
	if v.first > 0 && len(v.rows) > v.first {
		v.rows = v.rows[:v.first]
	}
	if v.screen != nil {
		v.screen.all = slices.Clone(v.rows)
		v.arrange()
	}
	return nil
}

// isJob reports whether a row is the job, or has the task, that a user calls id.
func isJob(j *slurm.Job, id string) bool {
	if j.Label == id {
		return true
	}
	if array, task, ok := strings.Cut(id, "_"); ok {
		return array == strconv.FormatUint(j.ArrayID, 10) && j.HasTask(strings.Trim(task, "[]"))
	}
	n, err := strconv.ParseUint(id, 10, 64)
	if err != nil {
		return false
	}
	return j.ID == n || j.ArrayID == n || j.HetID == n && n != 0
}

// isComponent reports whether a row is of the heterogeneous job of which id is a component: they start together.
func isComponent(j *slurm.Job, id string) bool {
	het, _, ok := strings.Cut(id, "+")
	return ok && j.HetID != 0 && het == strconv.FormatUint(j.HetID, 10)
}

// oneJob is a number that the rows of one job share.
func oneJob(j *slurm.Job) uint64 {
	if j.HetID != 0 {
		return j.HetID
	}
	return j.ID
}

func (v *queueView) noJob(id string) error {
	filtered := len(v.users)+len(v.accounts)+len(v.partitions) > 0
	var labels []string
	for i := range v.jobs {
		if filtered && isJob(&v.jobs[i], id) {
			return fault.Errorf(fault.Usage, "job %s is in the queue, but not of that user, account or partition", id)
		}
		labels = append(labels, v.jobs[i].Label)
	}
	err := fault.Errorf(fault.Usage, "job %s is not in the queue", id)
	hint := "if it has ended: sacct -j " + id
	if near := app.Nearest(id, labels); near != "" {
		hint = fmt.Sprintf("did you mean %s? If it has ended: sacct -j %s", near, id)
	}
	return fault.Hint(err, hint)
}

func (v *queueView) text(p *page) error {
	if done, err := v.screenText(p); done {
		return err
	}
	switch {
	case len(v.fields) > 0:
		v.raw(p)
		return nil
	case len(v.subject) > 0:
		return v.story(p)
	case len(v.rows) == 0 && v.screen != nil && len(v.screen.all) > 0:
		p.line("", "no job matches the filter")
		return nil
	case len(v.rows) == 0:
		p.line("", "no job waits%s", v.whose())
		return nil
	}
	v.list(p)
	return nil
}

// one is the rows of the one job that was requested, in one or several partitions. Of an array it is what
// waits, where that is one row in each partition.
func (v *queueView) one() []int {
	if len(v.ids) == 0 || sameJob(v.jobs, v.rows) {
		return v.rows[:len(v.rows)*min(1, len(v.ids))]
	}
	waiting := slices.DeleteFunc(slices.Clone(v.rows), func(i int) bool { return !v.jobs[i].Pending() })
	other := func(i int) bool { return v.jobs[i].ArrayID != v.jobs[v.rows[0]].ArrayID }
	if len(waiting) == 0 || !sameJob(v.jobs, waiting) || slices.ContainsFunc(v.rows, other) {
		return nil
	}
	return waiting
}

// sameJob reports whether rows are one job, in one or several partitions.
func sameJob(jobs []slurm.Job, rows []int) bool {
	for _, i := range rows[1:] {
		if oneJob(&jobs[i]) != oneJob(&jobs[rows[0]]) {
			return false
		}
	}
	return true
}

func (v *queueView) whose() string {
	text := ""
	if len(v.users) > 0 {
		text += " of " + strings.Join(v.users, ", ")
	}
	if len(v.partitions) > 0 {
		text += " in " + strings.Join(v.partitions, ", ")
	}
	return text
}

func (v *queueView) clusterName() string { return v.config.Get("ClusterName") }
