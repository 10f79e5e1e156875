package fairshare

import (
	"context"
	"errors"
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

// queueQuery is what was requested of the queue.
type queueQuery struct {
	ask                         *planner.Asker
	users, accounts, partitions []string
	ids                         []string // jobs that were requested
	fields                      []field
	noHeader                    bool
	first                       int           // 0: all
	budget                      time.Duration // for the plan
	running                     bool          // jobs that run, too
}

// queueView is the queue at one time, in the order in which jobs are considered. Nothing changes it once it is made:
//
//	query -> Slurm's rows, and a plan of them -> a standing for each, their order -> the rows that were requested, with why they wait
type queueView struct {
	queueQuery
	at         time.Time
	config     slurm.Config
	weights    priority.Weights
	limits     []slurm.Partition
	jobs       []slurm.Job
	noFactors  string // why sprio has none
	hasFactors bool
	standings  []standing            // of each job
	order      []int                 // of all pending jobs, indices into jobs
	waiting    map[string]int        // jobs in line, by partition
	rows       []int                 // the jobs that are shown
	subject    []int                 // of them, the rows of the one job whose story is told
	facts      diagnosis.Facts       // what diagnoses follow from
	why        []diagnosis.Diagnosis // of a list, why each of its rows waits
	hidden     bool                  // Slurm hides the nodes, so there is no plan
}

// standing is where a row of the queue stands.
type standing struct {
	factors  *slurm.Factors // sprio's row; nil: none
	priority float64
	rank     int  // in its partition; 0: not in line
	eligible bool // it is in line
}

func newQueueQuery(a *planner.Asker, c *cli.Context) (*queueQuery, error) {
	v := &queueQuery{
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

// slurmRows is what Slurm says of the queue, by a plan of it if there is one.
type slurmRows struct {
	config    slurm.Config
	limits    []slurm.Partition
	jobs      []slurm.Job
	factors   planner.FactorRows
	noFactors string
	plan      *planner.Planner
	hidden    bool
}

// load looks at the queue.
func (q *queueQuery) load(ctx context.Context) (answer, error) {
	v, err := q.look(ctx)
	if err != nil {
		return nil, err
	}
	return v, nil
}

func (q *queueQuery) look(ctx context.Context) (*queueView, error) {
	said, err := q.query(ctx)
	if err != nil {
		return nil, err
	}
	v := &queueView{
		queueQuery: *q, at: q.ask.Now(), config: said.config, weights: planner.Weights(said.config), limits: said.limits, jobs: said.jobs,
		noFactors: said.noFactors, hasFactors: said.factors.At != nil, hidden: said.hidden,
	}
	v.facts = diagnosis.Facts{Partitions: v.limits, Now: v.at}
	if v.config.Multifactor() && !v.hasFactors && v.noFactors == "" {
		v.noFactors = "sprio printed nothing"
	}
	plansOfOthers(v.jobs, v.limits)
	v.stand(said)
	if err := v.check(ctx); err != nil {
		return nil, err
	}
	if v.rows, err = v.choose(); err != nil {
		return nil, err
	}
	if v.subject = v.one(); len(v.subject) == 0 && len(v.fields) == 0 {
		v.why = make([]diagnosis.Diagnosis, len(v.rows))
		for n, i := range v.rows {
			v.why[n] = v.brief(i)
		}
	}
	return v, nil
}

// query asks Slurm for the queue: with a plan of it, unless single fields are printed.
func (q *queueQuery) query(ctx context.Context) (r slurmRows, err error) {
	if len(q.fields) == 0 {
		n := planner.Planner{Budget: q.budget}
		err := n.Load(ctx, q.ask)
		if err == nil {
			r = slurmRows{n.Config, n.Partitions, n.Jobs, n.Factors, n.NoFactors, &n, false}
			n.Factors = planner.FactorRows{}
			return r, nil
		}
		if r.hidden = errors.Is(err, planner.ErrNodesHidden); !r.hidden {
			return r, err
		}
	}
	var states []string
	if len(q.ids) == 0 {
		if states = []string{"PENDING"}; q.running {
			states = append(states, "RUNNING")
		}
	}
	return r, planner.Together(ctx, q.ask.Config(&r.config), q.ask.Partitions(&r.limits),
		q.ask.Jobs(&r.jobs, nil, states...), q.ask.Factors(&r.factors, &r.noFactors))
}

// kindOf is how far a start can be believed.
var kindOf = map[planner.Basis]diagnosis.StartKind{
	planner.Nothing: diagnosis.Unknown, planner.ByWork: diagnosis.About, planner.ByLimits: diagnosis.By,
}

// stand finds where each job stands, and when and where it starts as the plan has it.
func (v *queueView) stand(said slurmRows) {
	tiers := map[string]float64{}
	for _, p := range v.limits {
		tiers[p.Name] = float64(p.PriorityTier)
	}
	v.standings = make([]standing, len(v.jobs))
	v.waiting = map[string]int{}
	candidates := make([]forecast.Candidate, len(v.jobs))
	for i := range v.jobs {
		j, s := &v.jobs[i], &v.standings[i]
		if s.priority = float64(j.Priority); j.Pending() && j.Priority > 0 {
			if at := said.factors.Find(j); at >= 0 {
				s.factors = &said.factors.Rows[at]
				s.priority = planner.Effective(v.config, j, s.factors.Priority)
			}
		}
		candidates[i] = forecast.Candidate{
			Partition: j.Partition, Tier: tiers[j.Partition], HasReservation: j.Reservation != "", Submit: j.Submit, JobID: j.ArrayID,
			Priority: s.priority, Count: j.RunnableTasks(), Eligible: j.Pending() && j.Priority > 0 && j.Competes(),
		}
		if s.eligible = candidates[i].Eligible; s.eligible {
			v.waiting[j.Partition] += candidates[i].Count
		}
	}
	v.order = forecast.Order(candidates)
	for i, rank := range forecast.Ranks(candidates, v.order) {
		v.standings[i].rank = rank
	}
	if said.plan != nil {
		v.facts = said.plan.Facts()
		v.planned(said.plan)
	}
}

// planned takes ranks, starts and nodes from a plan.
func (v *queueView) planned(n *planner.Planner) {
	over := n.Over(context.Background())
	v.facts.Later = func(rows []int) (diagnosis.StartKind, int64) {
		start, basis := n.ByLimits(over, rows)
		return kindOf[basis], start
	}
	for i := range v.jobs {
		j := &v.jobs[i]
		row := n.Row(j)
		if row < 0 || !j.Pending() {
			continue
		}
		j.Start, j.End, j.SchedNodes = 0, 0, ""
		r := &n.Plan.Results[row]
		switch r.Verdict {
		case forecast.StartsNow, forecast.PlannedLate, forecast.Unplanned, forecast.Beyond:
			j.Start, j.SchedNodes = r.Start, hostlist.Compress(r.Nodes)
			if j.Limit > 0 && j.Limit != slurm.Unlimited {
				j.End = j.Start + int64(j.Limit.Seconds())
			}
		case forecast.Waits:
			j.Start = r.Start
		}
		if v.standings[i].rank = r.Rank; r.Rank == 0 {
			v.standings[i].eligible = false
		}
	}
}

// plansOfOthers takes away the start that squeue repeats for each partition of a job: it
// is that in the partition which has the planned nodes.
func plansOfOthers(jobs []slurm.Job, partitions []slurm.Partition) {
	rows := make(map[uint64]int, len(jobs))
	for i := range jobs {
		rows[jobs[i].ID]++
	}
	nodes := map[string][]string{}
	for i := range partitions {
		nodes[partitions[i].Name], _ = hostlist.Expand(partitions[i].Nodes)
	}
	for i := range jobs {
		j := &jobs[i]
		if rows[j.ID] < 2 || j.SchedNodes == "" || !j.Pending() {
			continue
		}
		planned, err := hostlist.Expand(j.SchedNodes)
		if err == nil && slices.ContainsFunc(planned, func(n string) bool { return !slices.Contains(nodes[j.Partition], n) }) {
			j.Start, j.End, j.SchedNodes = 0, 0, ""
		}
	}
}

// components are the addends of a job's priority; nil where there are none, as with
// priority/basic.
func (v *queueView) components(i int) []priority.Part {
	f := v.standings[i].factors
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
	if len(v.users) == 0 && len(v.accounts) == 0 {
		return nil
	}
	var users, accounts []string
	for i := range v.jobs {
		users, accounts = append(users, v.jobs[i].User), append(accounts, v.jobs[i].Account)
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
func (v *queueView) choose() (rows []int, err error) {
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
		if wanted && (len(v.ids) > 0 || j.Pending() || v.running && j.State == "RUNNING") {
			rows = append(rows, i)
		}
	}
	for k, ok := range found {
		if !ok {
			return nil, v.noJob(v.ids[k])
		}
	}
	if v.first > 0 && len(rows) > v.first {
		rows = rows[:v.first]
	}
	return rows, nil
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

const hasEnded = "if it has ended: fairshare jobs --past "

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
	hint := hasEnded + id
	if near := app.Nearest(id, labels); near != "" {
		hint = "did you mean " + near + "? I" + hasEnded[1:] + id
	}
	return fault.Hint(err, hint)
}

func (v *queueView) text(p *page) error {
	switch {
	case len(v.fields) > 0:
		v.raw(p)
	case len(v.subject) > 0:
		v.story(p)
	case len(v.rows) == 0:
		p.line("", "no job waits%s", v.whose())
	default:
		v.list(p, v.rows, "")
	}
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
