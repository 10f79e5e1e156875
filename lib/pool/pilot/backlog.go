package pilot

import "math"

// Places are how many jobs a pool has, and may have. A job that was cancelled keeps its place, and so does one
// that ends, as it may have been cancelled: the scheduler in one of several jobs that are cancelled together
// would otherwise submit another one before its own is cancelled.
type Places struct {
	Most    int // jobs that there may be
	Wanted  int // jobs that the backlog justifies
	Present int // jobs that are pending or run
	Lasting int // of these, those that do not end soon
	Kept    int // by jobs that were cancelled or end
	// Last: the pool would stop with its present jobs, and so may have one more than Most.
	Last bool
}

// Missing is how many more jobs are to be submitted; less than one: none.
func (p Places) Missing() int {
	room, kept := p.Most-p.Present, max(0, min(p.Kept, p.Most-p.Present, p.Wanted-1))
	room -= kept
	if p.Last && room == 0 {
		room++
	}
	return min(p.Wanted-p.Lasting-kept, room)
}

// Backlog describes the pending work of a pool.
type Backlog struct {
	Waiting int     // tasks that wait for nothing but room
	Jobs    float64 // how many jobs they fill at once; 0: not known
	Running int     // jobs that run, in which they find no room
	Mean    float64 // seconds of a task; 0: not known
	Life    float64 // seconds of a job; 0: not known, or no end
	Width   int     // the most nodes that a pending task needs; 0: not known
	Nodes   int     // of a job; 0: not known
}

// worth returns how many seconds the pending tasks must take with the present and coming resources for
// one more job to be worth its submission: of a short job, a quarter of its time.
func (b *Backlog) worth() float64 {
	if b.Life > 0 {
		return min(minute, b.Life/4)
	}
	return minute
}

const minute = 60 // seconds

// Wanted returns how many jobs a backlog justifies, before the limit of the pool: so many that the
// pending tasks end within a minute, or a quarter of the time of a job, but no more than they fill beside
// the jobs that run; at least one if there are any, and as many as give a task its nodes. While nothing
// is known of tasks, a task is assumed to take a minute.
func Wanted(b Backlog) int {
	if b.Waiting == 0 {
		return 0
	}
	mean := b.Mean
	if mean == 0 {
		mean = minute
	}
	least := 1
	if b.Nodes > 0 {
		least = max(least, (b.Width+b.Nodes-1)/b.Nodes)
	}
	filled := float64(b.Running) + math.Ceil(b.Jobs-1e-9) // that is a sum of fractions
	return max(least, int(math.Ceil(min(b.Jobs*mean/b.worth(), filled, math.MaxInt32))))
}
