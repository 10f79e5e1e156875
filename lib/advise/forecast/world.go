package forecast

import (
	"math"
	"slices"
	"strings"

	"github.com/ponos-tools/ponos/lib/slurm"
)

// World is what is known of a cluster at one time.
type World struct {
	Now          int64
	Scheduler    Scheduler
	Nodes        []Node
	Partitions   []Partition
	Jobs         []Job
	Reservations []Reservation
	Licenses     map[string]int64 // free ones, by name; nil: not known
	Limits       []Limit
	Fair         *Fair // how fair share develops; nil: priorities change with age only

	asks func(*Job) []Ask
	// origin is the world of which this one is a copy, or itself: its limits grow when
	// jobs are bound by limits that no other job has met.
	origin *World
	course *course // of the fair share, in a replay
}

// Bound adds to a job the limits that bound it.
func (w *World) Bound(j Job) Job {
	if j.Limits = nil; w.asks != nil {
		j.Limits = w.asks(&j)
		w.sync()
	}
	return j
}

// sync takes over limits that were met since this copy was made.
func (w *World) sync() {
	if w.origin != nil {
		w.Limits = w.origin.Limits
	}
}

// Scheduler is the scheduler's parameters. Zero is "no limit" for those that count.
type Scheduler struct {
	Backfill   bool  // false: jobs of a partition start in their order
	Resolution int64 // bf_resolution, in seconds
	Window     int64 // bf_window, in seconds
	Interval   int64 // bf_interval, in seconds

	MaxTest                                             int // bf_max_job_test
	MaxUser, MaxPartition, MaxAssoc, MaxUserInPartition int // bf_max_job_user, _part, _assoc, _user_part
	MaxStart                                            int // bf_max_job_start
	ArrayTasks                                          int // bf_max_job_array_resv
	ReserveInPartition                                  int // bf_job_part_count_reserve
	MinPriority                                         float64
	OneReservation                                      bool    // bf_one_resv_per_job
	LimitStop                                           bool    // assoc_limit_stop
	QueueDepth                                          int     // default_queue_depth
	AgeWeight                                           float64 // PriorityWeightAge
	MaxAge                                              int64   // PriorityMaxAge, in seconds
	// WholeNodes: jobs always get whole nodes (select/linear).
	WholeNodes bool
	// PreemptByQOS and PreemptByTier say who preempts whom.
	PreemptByQOS, PreemptByTier bool
	PreemptQOS                  map[string][]string // by a QoS those that it preempts
}

// Node is a node as jobs find it.
type Node struct {
	Name     string
	Total    Resources
	GPUs     map[string]int64 // by type; nil: their types are not known
	Features []string
	Weight   int64
	Usable   bool // a job can be started on it as it is
	Returns  bool // it is not usable now, and comes back by itself
	Owner    string
}

// Partition is a set of nodes with its rules.
type Partition struct {
	Name             string
	Up               bool
	Tier             int64
	Nodes            []string
	Exclusive        bool
	MaxCPUs, MaxMem  int64 // on a node; 0: no limit
	MaxTime          int64 // in seconds; 0: no limit
	MinNodes         int64
	MaxNodes         int64 // 0: no limit
	Preemptible      bool  // jobs of a higher tier take the place of its jobs
	PreemptSuspended bool  // what they had of memory they keep
	NeedsReservation bool
}

// Reservation keeps nodes for those who may use it.
type Reservation struct {
	Name       string
	Start, End int64
	Nodes      []string
	Flexible   bool // its jobs may use other nodes, too
}

// Job is a job in one partition, or an array's tasks.
type Job struct {
	ID, ArrayID    uint64
	Het            uint64 // of the heterogeneous job of which it is a component; 0: none
	Label          string
	Name           string
	User, Account  string
	QOS, Partition string
	Priority       float64
	// AgePriority is what age adds to the priority now. What grows with waiting is
	// known if Accrue, the time since which it grows, is.
	AgePriority    float64
	Accrue, Submit int64
	Eligible       int64  // not before that time; 0: at once
	Held           bool   // it starts only when a user or administrator releases it
	Never          string // why it can never start
	AtLimit        bool   // Slurm says that a limit keeps it back which is not among Limits
	After          []uint64
	Reservation    string
	Limit          int64 // in seconds; Forever: none

	Nodes    int
	Need     Resources // on each node
	GPUType  string
	Whole    bool // it wants nodes for itself
	Required []string
	Excluded []string
	Features string
	Licenses map[string]int64
	Tasks    int // of an array, that wait; at least 1
	AtOnce   int // how many of them may run at a time; 0: no limit
	Limits   []Ask

	// Of a job that runs, or that Slurm has planned:
	Running    bool
	Start, End int64
	Uses       map[string]Resources // by node
	Planned    []string             // nodes, as Slurm has planned it from Start on
	// Billing is by how much usage grows in a second while it runs; 0: by its CPUs.
	Billing float64
	leaf    int32   // of the fair share: 1 and its row; 0: none
	floor   float64 // its priority does not fall below that
	// Approximate: the job requests something that this model does not know exactly.
	Approximate string
}

// Gets makes the job need at least what each node gives it, because it gets whole nodes.
func (j *Job) Gets(least slurm.TRES) {
	for name, n := range least {
		if kind, ok := strings.CutPrefix(name, "gres/gpu:"); ok && j.GPUType == "" && n > 0 && n == least["gres/gpu"] {
			j.GPUType = kind
		}
	}
	gpus := least["gres/gpu"]
	if j.GPUType != "" {
		gpus = least["gres/gpu:"+j.GPUType]
	}
	j.Need = Resources{CPUs: max(j.Need.CPUs, least["cpu"]), MemMB: max(j.Need.MemMB, least["mem"]), GPUs: max(j.Need.GPUs, gpus)}
}

// Limit is an upper bound for what jobs have together.
type Limit struct {
	Whose    string // such as "QoS high"
	What     string // such as "GPUs", for people
	Resource string // such as gres/gpu, jobs or cpu minutes
	Max      float64
	Used     float64
	// Decays: what is used grows with jobs that run, and falls with time only.
	Decays bool
}

// Ask is what a job takes of a limit.
type Ask struct {
	Limit  int // index into the limits of the world
	Amount float64
}

// Preempts reports whether a job in a partition and QoS takes the place of a job that
// runs in another.
func (w *World) Preempts(p *Partition, qos string, other *Partition, otherQOS string) bool {
	switch {
	case other == nil || !other.Preemptible && !w.Scheduler.PreemptByQOS:
		return false
	case w.Scheduler.PreemptByTier:
		return other.Tier < p.Tier
	case w.Scheduler.PreemptByQOS:
		return slices.Contains(w.Scheduler.PreemptQOS[qos], otherQOS)
	}
	return false
}

// Partition returns a partition, nil if no partition has that name.
func (w *World) Partition(name string) *Partition {
	for i := range w.Partitions {
		if w.Partitions[i].Name == name {
			return &w.Partitions[i]
		}
	}
	return nil
}

// PriorityAt is a job's priority at a time: what it is now, and what age adds until
// then; in a replay, also what fair share adds or takes.
func (w *World) PriorityAt(j *Job, t int64) float64 {
	s := &w.Scheduler
	p := j.Priority
	if s.AgeWeight > 0 && s.MaxAge > 0 && j.Accrue != 0 {
		age := min(1, float64(max(0, t-j.Accrue))/float64(s.MaxAge))
		p += max(0, s.AgeWeight*age-j.AgePriority)
	}
	if w.course != nil && j.leaf > 0 {
		p = max(p+w.course.shift[j.leaf-1], j.floor)
	}
	return p
}

// NotBefore is a time before which a job cannot start in any of its rows: its begin time, or that of
// its reservation; 0: there is none.
func (w *World) NotBefore(rows []int) int64 {
	first := int64(Forever)
	for _, row := range rows {
		j := &w.Jobs[row]
		at := j.Eligible
		if j.Reservation != "" {
			for i := range w.Reservations {
				if r := &w.Reservations[i]; r.Name == j.Reservation && r.End > w.Now {
					at = max(at, r.Start)
					break
				}
			}
		}
		first = min(first, at)
	}
	if first <= w.Now || first == Forever {
		return 0
	}
	return first
}

// usage is by how much that of its association grows in a second while a job runs.
func (j *Job) usage() float64 {
	if j.Billing > 0 {
		return j.Billing
	}
	return j.Need.CPUs * float64(max(1, j.Nodes))
}

// running counts the tasks that run, by array.
func (w *World) running() map[uint64]int {
	tasks := map[uint64]int{}
	for i := range w.Jobs {
		if w.Jobs[i].Running {
			tasks[w.Jobs[i].ArrayID]++
		}
	}
	return tasks
}

// order sorts rows the way the scheduler does at a time. In a replay they are nearly sorted.
func (p *Plan) order(rows []int, t int64) {
	w := p.World
	tiers := make(map[*Partition]float64, len(w.Partitions))
	for i := range w.Partitions {
		tiers[&w.Partitions[i]] = float64(w.Partitions[i].Tier)
	}
	p.candidates = slices.Grow(p.candidates[:0], len(rows))
	for _, row := range rows {
		j := &w.Jobs[row]
		p.candidates = append(p.candidates, candidate{row, Candidate{
			Tier: tiers[p.space.partitions[row]], HasReservation: j.Reservation != "", Priority: w.PriorityAt(j, t),
			Submit: j.Submit, JobID: j.ArrayID, Eligible: true,
		}})
	}
	slices.SortStableFunc(p.candidates, func(a, b candidate) int { return a.compare(&b.Candidate) })
	for i := range p.candidates {
		rows[i] = p.candidates[i].row
	}
}

// candidate is a row while rows are sorted.
type candidate struct {
	row int
	Candidate
}

// Matches evaluates an expression of features, such as "a100&nvlink|h100". exact is
// false for the forms that say more than which nodes: counts, and alternatives of which
// all nodes must be the same.
func Matches(expression string, features []string) (matches, exact bool) {
	expression = strings.Trim(expression, " ")
	if expression == "" {
		return true, true
	}
	exact = !strings.ContainsAny(expression, "*[]()")
	expression = strings.NewReplacer("[", "", "]", "", "(", "", ")", "").Replace(expression)
	for part := range strings.FieldsFuncSeq(expression, func(r rune) bool { return r == '|' }) {
		all := true
		for name := range strings.FieldsFuncSeq(part, func(r rune) bool { return r == '&' || r == ',' }) {
			name, _, _ = strings.Cut(name, "*")
			all = all && slices.Contains(features, name)
		}
		if all {
			return true, exact
		}
	}
	return false, exact
}

func roundUp(t, step int64) int64 {
	if t > math.MaxInt64-step {
		return Forever
	}
	return (t + step - 1) / step * step
}

func after(t, length int64) int64 {
	if length >= Forever-t {
		return Forever
	}
	return t + length
}
