package forecast

import (
	"cmp"
	"math"
	"time"

	"github.com/ponos-tools/ponos/lib/advise/priority"
	"github.com/ponos-tools/ponos/lib/slurm"
)

// ShareTree makes the tree of sshare's rows; the nodes are in their order. The normalized
// usage is taken, as Slurm computes with it: the raw one is already newer while jobs run.
// What is too small for its digits is taken from the raw one.
func ShareTree(rows []slurm.Share) []*priority.Node {
	nodes := make([]*priority.Node, len(rows))
	var path []*priority.Node
	for i, r := range rows {
		usage := r.NormUsage
		switch {
		case r.Depth == 0 && r.RawUsage > 0:
			usage = 1
		case usage == 0 && r.RawUsage > 0 && rows[0].RawUsage > 0:
			usage = r.RawUsage / rows[0].RawUsage
		}
		n := &priority.Node{Name: r.Name(), User: r.User != "", Shares: r.RawShares, Parent: r.Parent, Usage: usage}
		nodes[i] = n
		path = append(path[:min(r.Depth, len(path))], n)
		if r.Depth > 0 {
			parent := path[len(path)-2]
			parent.Children = append(parent.Children, n)
		}
	}
	return nodes
}

// ShareAlgorithm is what computes the factors of a tree, as a cluster is configured.
func ShareAlgorithm(c slurm.Config) priority.Algorithm {
	if c.FairTree() {
		return priority.FairTree
	}
	damp := cmp.Or(c.Number("FairShareDampeningFactor"), 1)
	return func(root *priority.Node) { priority.Classic(root, damp) }
}

// Fair is how fair share develops: jobs that run add to the usage of their association, all
// usage decays, and from time to time the priorities of the jobs that wait follow.
type Fair struct {
	config    slurm.Config
	rows      []slurm.Share
	leaves    map[[2]string]int32 // row by account and user
	parents   []int32             // row above each; -1: none
	algorithm priority.Algorithm
	weight    float64
	period    int64 // PriorityCalcPeriod, in seconds
	halfLife  time.Duration
	begun     int64 // since when slurmctld runs: it computes priorities at whole periods from then on; 0: not known
	rising    bool  // priorities never fall (INCR_ONLY)
}

// NewFair returns nil where fair share does not count, or in a way that is not known.
func NewFair(c slurm.Config, rows []slurm.Share) *Fair {
	f := &Fair{
		config: c, rows: rows, leaves: map[[2]string]int32{}, algorithm: ShareAlgorithm(c),
		weight: c.Weight("FairShare"), halfLife: c.Duration("PriorityDecayHalfLife"), rising: c.PriorityFlag("INCR_ONLY"),
	}
	if f.period = int64(c.Duration("PriorityCalcPeriod").Seconds()); f.period <= 0 {
		f.period = 300
	}
	if boot, err := slurm.ParseTime(c.Get("BOOT_TIME")); err == nil {
		f.begun = boot
	}
	if len(rows) < 2 || f.weight <= 0 || !c.Multifactor() || c.PriorityFlag("DEPTH_OBLIVIOUS") {
		return nil
	}
	var path []int32
	next := int32(0)
	for _, r := range rows {
		depth := min(r.Depth, len(path))
		above := int32(-1)
		if depth > 0 {
			above = path[depth-1]
		}
		f.parents = append(f.parents, above)
		path = append(path[:depth], next)
		if r.User != "" && r.Partition == "" {
			f.leaves[[2]string{r.Account, r.User}] = next
		}
		next++
	}
	return f
}

// leaf is the association of a job, -1 if it is not known.
func (f *Fair) leaf(j *Job) int32 {
	if at, ok := f.leaves[[2]string{j.Account, j.User}]; ok {
		return at
	}
	return -1
}

// course is the fair share in a replay.
type course struct {
	*Fair
	nodes   []*priority.Node
	first   []float64 // factors at the beginning
	since   int64     // up to when usage is counted, for all
	rates   []float64 // of what runs, by row: usage a second
	counted []int64   // up to when the rate of a row is counted
	added   []float64 // usage since then
	shift   []float64 // by row, what has been added to priorities
	reset   int64     // when all usage is set to nothing; Forever: it is not
}

// course begins at a time. The factors are those of the last computation. The raw usage has
// what jobs used that have ended since then, and not yet what the others did that run.
func (f *Fair) course(now int64) *course {
	n, since := len(f.rows), now-f.period/2
	if f.begun > 0 && f.begun < now {
		since = now - (now-f.begun)%f.period
	}
	c := &course{
		Fair: f, nodes: ShareTree(f.rows), first: make([]float64, n), since: since, rates: make([]float64, n), counted: make([]int64, n),
		added: make([]float64, n), shift: make([]float64, n),
	}
	c.nextReset(now)
	f.algorithm(c.nodes[0])
	for i, node := range c.nodes {
		c.first[i] = node.Factor
		node.Usage = f.rows[i].RawUsage
	}
	return c
}

func (c *course) nextReset(now int64) {
	c.reset = Forever
	if at, _, ok := NextReset(c.config, time.Unix(now, 0)); ok {
		c.reset = at.Unix()
	}
}

// began counts a job that runs since a time already.
func (c *course) began(leaf int32, rate float64, start, now int64) {
	if leaf < 0 {
		return
	}
	c.added[leaf] += rate * float64(max(0, now-max(start, c.since)))
	c.rates[leaf] += rate
	c.counted[leaf] = now
}

// runs counts a job of an association from a time on, or, with a negative rate, no more.
func (c *course) runs(leaf int32, rate float64, at int64) {
	if leaf < 0 {
		return
	}
	c.count(leaf, at)
	c.rates[leaf] = max(0, c.rates[leaf]+rate)
}

func (c *course) count(leaf int32, at int64) {
	from := max(c.counted[leaf], c.since)
	if at > from {
		c.added[leaf] += c.rates[leaf] * float64(at-from)
	}
	c.counted[leaf] = max(at, from)
}

// due reports whether priorities are computed again.
func (c *course) due(at int64) bool { return at-c.since >= c.period }

// compute lets usage decay and adds what was used.
func (c *course) compute(at int64) {
	rest := 1.0
	if c.halfLife > 0 {
		rest = math.Exp2(-float64(at-c.since) / c.halfLife.Seconds())
	}
	for _, node := range c.nodes {
		node.Usage *= rest
	}
	for leaf := range c.nodes {
		c.count(int32(leaf), at)
		if used := c.added[leaf]; used > 0 {
			for row := int32(leaf); row >= 0; row = c.parents[row] {
				c.nodes[row].Usage += used
			}
			c.added[leaf] = 0
		}
	}
	if at >= c.reset {
		for _, node := range c.nodes {
			node.Usage = 0
		}
		c.nextReset(at)
	}
	c.since = at - (at-c.since)%c.period
	c.algorithm(c.nodes[0])
	for i, node := range c.nodes {
		if node.User {
			c.shift[i] = c.weight * (node.Factor - c.first[i])
		}
	}
}
