package forecast

import (
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ponos-tools/ponos/lib/advise/admission"
	"github.com/ponos-tools/ponos/lib/base/hostlist"
	"github.com/ponos-tools/ponos/lib/slurm"
)

// Records are what Slurm answered. Jobs are squeue's rows, of jobs that wait and of
// those that have nodes; what is nil otherwise is not known.
type Records struct {
	Now          time.Time
	Config       slurm.Config
	Partitions   []slurm.Partition
	Nodes        []slurm.Node
	Reservations []slurm.Reservation
	Jobs         []slurm.Job
	Details      []slurm.JobDetail
	Licenses     []slurm.License
	Usages       *slurm.Usages
	QOS          []slurm.QOS
	Shares       []slurm.Share
	// PriorityOf is that of a row in its partition, and what age adds to it; nil: as squeue
	// has it.
	PriorityOf func(*slurm.Job) (priority, age float64)
	// Over says that nobody waits for the world any more: it has not all jobs then; nil: that does not happen.
	Over func() bool
	// UserID is the number of a user whose jobs are not among the details.
	UserID func(name string) (uint32, bool)
}

// builder makes a world of records.
type builder struct {
	Records
	w           *World
	now         int64
	details     map[uint64]*slurm.JobDetail
	partitionOf map[string]*slurm.Partition
	model       admission.Cluster
	memory      bool
	users       map[string]uint32 // numbers of users
	limits      limitIndex
	enforced    bool
}

// NewWorld makes a world of records. The rows of its jobs are those of the records, in
// their order; what takes nodes without being seen comes after them.
func NewWorld(r Records) *World {
	b := &builder{
		Records: r, now: r.Now.Unix(), details: map[uint64]*slurm.JobDetail{},
		partitionOf: map[string]*slurm.Partition{}, users: map[string]uint32{},
	}
	b.w = &World{Now: b.now, Scheduler: schedulerOf(r.Config)}
	b.memory = strings.Contains(strings.ToUpper(r.Config.Get("SelectTypeParameters")), "MEMORY")
	for i := range r.Details {
		b.details[r.Details[i].ID] = &r.Details[i]
	}
	for i := range r.Jobs {
		j := &r.Jobs[i]
		if d := b.details[j.ID]; d != nil {
			b.users[j.User] = d.UserID
		}
	}
	b.model = admission.Cluster{
		Partitions: r.Partitions, Nodes: admission.Kinds(r.Nodes), Config: r.Config, Known: admission.Known{Config: true},
	}
	b.nodes()
	b.partitions()
	b.reservations()
	b.w.Fair = NewFair(r.Config, r.Shares)
	if r.Licenses != nil {
		b.w.Licenses = map[string]int64{}
		for _, l := range r.Licenses {
			b.w.Licenses[l.Name] = l.Free
		}
	}
	b.prepareLimits()
	b.w.asks, b.w.origin = b.asks, b.w
	b.w.Jobs = make([]Job, 0, len(r.Jobs))
	for i := range r.Jobs {
		if r.Over != nil && r.Over() {
			return b.w
		}
		b.w.Jobs = append(b.w.Jobs, Job{})
		b.job(&b.w.Jobs[i], &r.Jobs[i])
	}
	b.unseen()
	return b.w
}

func schedulerOf(c slurm.Config) Scheduler {
	has := func(name string) bool { _, ok := c.SchedulerParameter(name); return ok }
	s := Scheduler{
		Backfill:   c.Get("SchedulerType") != "sched/builtin",
		Resolution: int64(c.BackfillResolution().Seconds()), Window: int64(c.BackfillWindow().Seconds()),
		Interval: int64(c.SchedulerNumber("bf_interval", 30)), MaxStart: c.SchedulerNumber("bf_max_job_start", 0),
		MaxTest: c.SchedulerNumber("bf_max_job_test", 500), MaxUser: c.SchedulerNumber("bf_max_job_user", 0),
		MaxPartition: c.SchedulerNumber("bf_max_job_part", 0),
		MaxAssoc:     c.SchedulerNumber("bf_max_job_assoc", 0), MaxUserInPartition: c.SchedulerNumber("bf_max_job_user_part", 0),
		ArrayTasks: c.SchedulerNumber("bf_max_job_array_resv", 20), ReserveInPartition: c.SchedulerNumber("bf_job_part_count_reserve", 0),
		MinPriority:    float64(c.SchedulerNumber("bf_min_prio_reserve", 0)),
		OneReservation: has("bf_one_resv_per_job"), LimitStop: has("assoc_limit_stop"),
		QueueDepth: c.SchedulerNumber("default_queue_depth", 100), AgeWeight: c.Weight("Age"),
		MaxAge:        int64(c.Duration("PriorityMaxAge").Seconds()),
		WholeNodes:    c.Get("SelectType") == "select/linear",
		PreemptByTier: c.Get("PreemptType") == "preempt/partition_prio", PreemptByQOS: c.Get("PreemptType") == "preempt/qos",
	}
	if s.Interval == 0 {
		s.Interval = 30
	}
	if s.MaxAssoc > 0 {
		s.MaxUser = 0 // Slurm uses one of the two
	}
	return s
}

func (b *builder) nodes() {
	for i := range b.Nodes {
		n := &b.Nodes[i]
		node := Node{
			Name: n.Name, Weight: n.Weight, Usable: n.Startable(), Returns: !n.Startable() && n.Usable(), Owner: n.Owner,
			Total: Resources{CPUs: float64(n.JobCPUs()), GPUs: float64(n.GPUs), MemMB: math.MaxInt32},
		}
		if b.memory {
			node.Total.MemMB = float64(n.JobMemMB())
		}
		node.Features = slices.Collect(n.ActiveFeatures.All())
		if gres, err := slurm.ParseGRES(n.GRES); err == nil {
			for _, g := range gres {
				if g.Name == "gpu" && g.Type != "" {
					if node.GPUs == nil {
						node.GPUs = map[string]int64{}
					}
					node.GPUs[g.Type] += g.Count
				}
			}
		}
		b.w.Nodes = append(b.w.Nodes, node)
	}
}

func (b *builder) partitions() {
	members := map[string][]string{}
	for i := range b.Nodes {
		for p := range b.Nodes[i].Partitions.All() {
			members[p] = append(members[p], b.Nodes[i].Name)
		}
	}
	s := &b.w.Scheduler
	if s.PreemptByQOS {
		s.PreemptQOS = map[string][]string{}
		for i := range b.QOS {
			s.PreemptQOS[b.QOS[i].Name] = slices.Collect(b.QOS[i].Preempt.All())
		}
	}
	for i := range b.Partitions {
		p := &b.Partitions[i]
		b.partitionOf[p.Name] = p
		mode := p.PreemptMode
		if mode == "" {
			mode = b.Config.Get("PreemptMode")
		}
		part := Partition{
			Name: p.Name, Up: p.State == "UP", Tier: p.PriorityTier, Nodes: members[p.Name], Exclusive: p.Exclusive,
			MaxCPUs: p.MaxCPUsPerNode.Or(0), MaxMem: p.MaxMemPerNode.Or(0), MinNodes: p.MinNodes, MaxNodes: p.MaxNodes.Or(0),
			Preemptible: mode != "" && mode != "OFF", PreemptSuspended: strings.Contains(mode, "SUSPEND"), NeedsReservation: p.NeedsResv,
		}
		if p.MaxTime != slurm.Unlimited && p.MaxTime > 0 {
			part.MaxTime = int64(p.MaxTime.Seconds())
		}
		if !b.memory {
			part.MaxMem = 0
		}
		b.w.Partitions = append(b.w.Partitions, part)
	}
}

// reservations repeats those that come again every hour, day or week, as far as the
// scheduler looks.
func (b *builder) reservations() {
	for i := range b.Reservations {
		r := &b.Reservations[i]
		nodes, err := hostlist.Expand(r.Nodes)
		if err != nil || len(nodes) == 0 {
			continue
		}
		v := Reservation{Name: r.Name, Start: r.Start, End: r.End, Nodes: nodes, Flexible: r.Flags.Has("FLEX")}
		every := int64(0)
		switch {
		case r.Flags.Has("HOURLY"):
			every = 3600
		case r.Flags.Has("DAILY"), r.Flags.Has("WEEKDAY"), r.Flags.Has("WEEKEND"):
			every = 86400
		case r.Flags.Has("WEEKLY"):
			every = 7 * 86400
		}
		b.w.Reservations = append(b.w.Reservations, v)
		for k := 0; every > 0 && k < 64 && v.Start < b.now+b.w.Scheduler.Window; k++ {
			v.Start, v.End = v.Start+every, v.End+every
			b.w.Reservations = append(b.w.Reservations, v)
		}
	}
}

// job makes a row of one of squeue's.
func (b *builder) job(row *Job, j *slurm.Job) {
	d, p := b.details[j.ID], b.partitionOf[j.Partition]
	*row = Job{
		ID: j.ID, ArrayID: j.ArrayID, Label: j.Label, Name: j.Name, User: j.User, Account: j.Account, QOS: j.QOS, Partition: j.Partition,
		Priority: float64(j.Priority), Submit: j.Submit, Accrue: j.Accrue, Reservation: j.Reservation,
		Start: j.Start, End: j.End, Tasks: j.TaskCount(), Limit: b.length(j, d, p),
	}
	if b.PriorityOf != nil {
		row.Priority, row.AgePriority = b.PriorityOf(j)
	}
	if d != nil {
		row.Whole = d.WholeNodes
		if d.Licenses != "" {
			row.Licenses = licenses(d.Licenses)
		}
	}
	count := float64(max(1, j.Nodes))
	row.Nodes = int(count)
	row.Need = Resources{CPUs: j.TRES["cpu"] / count, MemMB: j.TRES["mem"] / count, GPUs: j.GPUs() / count}
	if row.Need.CPUs == 0 {
		row.Need.CPUs = float64(j.CPUs) / count
	}
	if !b.memory {
		row.Need.MemMB = 0
	}
	row.Billing = j.TRES["billing"]
	for i := range b.QOS {
		if b.QOS[i].Name == row.QOS {
			row.Billing = max(1e-9, row.usage()*b.QOS[i].UsageFactor)
		}
	}
	if !j.Pending() {
		b.runs(row, j, d)
		return
	}
	b.waits(row, j, d)
}

// length is how long the scheduler believes that a job runs.
func (b *builder) length(j *slurm.Job, d *slurm.JobDetail, p *slurm.Partition) int64 {
	limit := j.Limit
	if d != nil && d.TimeMin > 0 && d.TimeMin < limit {
		limit = d.TimeMin
	}
	if p != nil && p.MaxTime > 0 && p.MaxTime != slurm.Unlimited && (limit <= 0 || limit == slurm.Unlimited || limit > p.MaxTime) {
		limit = p.MaxTime
	}
	if limit <= 0 || limit == slurm.Unlimited {
		return Forever
	}
	return int64(limit.Seconds())
}

// runs says what a job has of its nodes. squeue has only the sum; the details show
// which part is where.
func (b *builder) runs(row *Job, j *slurm.Job, d *slurm.JobDetail) {
	suspended := j.State == "SUSPENDED" // its cores are free, and nobody knows until when
	row.Running, row.Uses = j.HoldsNodes() || suspended, map[string]Resources{}
	switch {
	case j.State == "COMPLETING": // at once, but for the epilog
		row.End = b.now + 1
	case row.End == 0 || j.Limit == slurm.Unlimited || suspended:
		row.End = Forever
	}
	if suspended {
		row.Need.CPUs = 0
	}
	row.Limits = b.asks(row)
	if nodes, err := hostlist.Expand(j.NodeList); err == nil {
		for _, n := range nodes {
			row.Uses[n] = row.Need
		}
	}
	if d == nil {
		return
	}
	for _, p := range d.Placements {
		nodes, err := hostlist.Expand(p.Nodes)
		if err != nil {
			continue
		}
		use := Resources{CPUs: float64(p.CPUs), MemMB: p.MemMB, GPUs: float64(p.GPUs)}
		if suspended {
			use.CPUs = 0
		}
		if !b.memory {
			use.MemMB = 0
		}
		for _, n := range nodes {
			row.Uses[n] = use
		}
	}
}

// waits says what keeps a pending job, and where it could run.
func (b *builder) waits(row *Job, j *slurm.Job, d *slurm.JobDetail) {
	code := slurm.ReasonCode(j.Reason)
	switch {
	case j.Priority == 0:
		row.Held = true
	case code == "DependencyNeverSatisfied":
		row.Never = "what it depends on has failed"
	case j.Dependency != "" && code == "Dependency":
		row.After = dependencies(j.Dependency)
	case code == "BeginTime" && j.Eligible > b.now:
		row.Eligible = j.Eligible
	case code == "BeginTime", code == "Reservation" && j.Reservation != "":
		// A reservation that has not begun keeps its job by itself.
	case !j.Considered():
		row.Held = true
	}
	if _, limit, ok := strings.Cut(j.Tasks, "%"); ok {
		if k, err := strconv.Atoi(limit); err == nil {
			row.AtOnce = k
		}
	}
	if j.Start > b.now && j.SchedNodes != "" && (j.TaskCount() == 1 || b.Config.AtLeast(23, 2)) {
		row.Planned, _ = hostlist.Expand(j.SchedNodes)
	}
	row.Required, _ = hostlist.Expand(j.ReqNodes)
	row.Features = j.Features
	requests := []string{j.GPURequest[strings.IndexByte(j.GPURequest, ':')+1:]}
	if d != nil {
		row.Excluded, _ = hostlist.Expand(d.ExcNodes)
		requests = append(requests, d.GRESPerTask)
	}
	for _, request := range requests {
		gres, _ := slurm.ParseGRES(request)
		for _, g := range gres {
			if g.Name == "gpu" && g.Type != "" {
				if row.GPUType != "" && row.GPUType != g.Type {
					row.Approximate = "several types of GPUs"
				}
				row.GPUType = g.Type
			}
		}
	}
	row.Het = j.HetID
	if p := b.partitionOf[j.Partition]; p != nil {
		least := b.model.Least(p, admission.Job{
			CPUsPerTask: int64(row.Need.CPUs), MemMB: int64(row.Need.MemMB), GPUs: int64(row.Need.GPUs),
			Exclusive: row.Whole || b.w.Scheduler.WholeNodes,
		})
		row.Gets(least)
	}
	row.Limits = b.asks(row)
	if kind, ok := slurm.LimitOfReason(code); ok {
		modelled := b.enforced && kind.Bound != "Min" && kind.Resource != "billing" && kind.Resource != "energy" && kind.Resource != "bb"
		if kind.Per == "Job" || kind.Per == "Node" { // Slurm also counts what is known of the nodes that it chose
			modelled = modelled && slices.ContainsFunc(row.Limits, func(a Ask) bool { return a.Amount > b.w.Limits[a.Limit].Max })
		}
		if row.AtLimit = !modelled; modelled {
			return // the plan finds out whether it is for ever
		}
	}
	if slurm.WillNeverStart(j.Reason) && row.Never == "" {
		row.Never = "of its reason"
	}
}

// dependencies are the ids in afterok:12_*,afterany:13(unfulfilled)?singleton.
func dependencies(text string) []uint64 {
	var ids []uint64
	for _, word := range strings.FieldsFunc(text, func(r rune) bool { return r == ',' || r == '?' || r == ':' }) {
		digits, _, _ := strings.Cut(word, "(")
		digits, _, _ = strings.Cut(digits, "_")
		digits, _, _ = strings.Cut(digits, "+")
		if id, err := strconv.ParseUint(digits, 10, 64); err == nil {
			ids = append(ids, id)
		}
	}
	if len(ids) == 0 {
		ids = []uint64{0} // a singleton: what it waits for is not reported
	}
	return ids
}

func licenses(text string) map[string]int64 {
	all := map[string]int64{}
	for word := range strings.FieldsFuncSeq(text, func(r rune) bool { return r == ',' || r == '|' || r == ';' }) {
		name, count, counted := strings.Cut(strings.Replace(word, "=", ":", 1), ":")
		n, err := strconv.ParseInt(count, 10, 64)
		if !counted || err != nil {
			n = 1
		}
		all[name] += n
	}
	return all
}

// unseen accounts for what is allocated on a node to jobs that are not visible, such as the jobs of
// others on a cluster that keeps them private. Until when is unknown.
func (b *builder) unseen() {
	sums := map[string]Resources{}
	for i := range b.w.Jobs {
		for node, use := range b.w.Jobs[i].Uses {
			s := sums[node]
			sums[node] = Resources{CPUs: s.CPUs + use.CPUs, MemMB: s.MemMB + use.MemMB, GPUs: s.GPUs + use.GPUs}
		}
	}
	if b.w.Scheduler.WholeNodes {
		return
	}
	for i := range b.Nodes {
		n := &b.Nodes[i]
		now := Resources{CPUs: float64(n.CPUsTaken), MemMB: float64(n.MemMBTaken), GPUs: float64(n.GPUsTaken)}
		if !b.memory {
			now.MemMB = 0
		}
		rest := now.Sub(sums[n.Name])
		if rest.CPUs < 1 && rest.MemMB < 1 && rest.GPUs < 1 {
			continue
		}
		partition := ""
		for p := range n.Partitions.All() {
			partition = p
			break
		}
		b.w.Jobs = append(b.w.Jobs, Job{
			Label: "unknown", Running: true, Partition: partition, Start: b.now, End: Forever,
			Uses: map[string]Resources{n.Name: rest}, Nodes: 1,
		})
	}
}
