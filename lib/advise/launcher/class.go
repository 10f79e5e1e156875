package launcher

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/ponos-tools/ponos/lib/advise/launcher/request"
)

// class is what kind of place a candidate is. All candidates of an answer are of one class, and
// an answer is of the lowest class of its priority.
type class int

// What makes a class, the least harm first. The order of the bits is the order of the classes.
const (
	classScarce      class = 1 << iota // meant for jobs that need more of something: memory, time, interactive use
	classIdleGPUs                      // it has GPUs, and none is requested
	classExclusive                     // its jobs get whole nodes, and less is requested
	classPreemptible                   // its jobs may be preempted
	classUnknown                       // its GPUs are unknown; behind all others, whatever their priority
	classUncertain                     // Slurm may refuse the job; behind all others, whatever their priority
)

// classLast are the classes that are behind all others, whatever the priority in the file.
const classLast = classUnknown | classUncertain

// classJoined are the classes that --any puts into one answer.
const classJoined = classScarce | classExclusive

// String names a class: "ordinary", or what makes it another.
func (c class) String() string {
	var names []string
	for i, name := range []string{"scarce", "GPUs left idle", "whole nodes", "preemptible", "GPUs unknown", "uncertain"} {
		if c&(1<<i) != 0 {
			names = append(names, name)
		}
	}
	if names == nil {
		return "ordinary"
	}
	return strings.Join(names, ", ")
}

// scarceNames are words with which names of partitions for special jobs begin.
var scarceNames = []string{
	"interact", "debug", "devel", "test", "long", "week", "month",
	"hugemem", "bigmem", "highmem", "himem", "largemem", "fatmem",
}

// isScarce reports whether the name of a partition says that it is for special jobs.
func isScarce(partition string) bool {
	words := strings.FieldsFunc(strings.ToLower(partition), func(r rune) bool { return r < 'a' || r > 'z' })
	return slices.ContainsFunc(words, func(w string) bool {
		return w == "dev" || slices.ContainsFunc(scarceNames, func(name string) bool { return strings.HasPrefix(w, name) })
	})
}

// largeMemory is how many times more memory for each core than half of the cores that match have at most makes nodes scarce.
const largeMemory = 3

// share is what jobs can have of each node of a group together: a partition may leave a part of its nodes to others.
func (g *group) share() (cores, memory int64) {
	cores, memory = int64(g.cores), g.memory
	if p := g.partition.slurm; p != nil {
		cores, memory = min(cores, p.MaxCPUsPerNode.Or(cores)), min(memory, p.MaxMemPerNode.Or(memory>>20)<<20)
	}
	return cores, memory
}

// usual is the memory for each core that at least half of the cores of some groups have at most, 0 without groups.
func usual(perCore map[*group]int64) int64 {
	cores := func(g *group) int64 {
		cores, _ := g.share()
		return cores * int64(max(1, g.nodes))
	}
	groups, all := slices.SortedFunc(maps.Keys(perCore), func(a, b *group) int { return cmp.Compare(perCore[a], perCore[b]) }), int64(0)
	for _, g := range groups {
		all += cores(g)
	}
	for _, g := range groups {
		if all -= 2 * cores(g); all <= 0 {
			return perCore[g]
		}
	}
	return 0
}

// classify sets the classes and the waste of matching candidates. That of memory depends on what
// other nodes have.
func (l *Launcher) classify(a *request.Alternative, matching []*candidate) {
	perCore := func(g *group) int64 {
		cores, memory := g.share()
		if cores == 0 || len(a.GPUs) > 0 {
			return 0 // main memory comes with the GPUs
		}
		return memory / cores
	}
	ordinary := map[*group]int64{}
	for _, c := range matching {
		c.class |= c.group.partition.class
		if isScarce(c.group.partition.name) {
			c.class |= classScarce
		}
		if len(c.group.gpus) > 0 && len(a.GPUs) == 0 && !slices.ContainsFunc(a.GRES, request.Amount.Sharing) {
			c.class |= classIdleGPUs
		}
		if len(c.uncertain) > 0 {
			c.class |= classUncertain
		}
		if c.group.partition.exclusive && !a.Exclusive {
			c.class |= classExclusive
		}
		if n := perCore(c.group); n > 0 && c.class == 0 {
			ordinary[c.group] = n
		}
	}
	most := largeMemory * usual(ordinary)
	for _, c := range matching {
		if most > 0 && perCore(c.group) > most {
			c.class |= classScarce
		}
		var gpus []int
		if len(a.GPUs) > 0 {
			gpus = assign(c.group.gpus, a.GPUs, possible)
		}
		c.billed = l.billed(c, a, gpus)
		for i, n := range gpus {
			c.gpuMemory += float64(n) * float64(c.group.gpus[i].most)
		}
	}
}

// billed is what Slurm counts each node of a job as in the usage of its account: the CPUs that
// the job gets, or what TRESBillingWeights makes of its resources. The GPUs are those that it takes of the group's.
func (l *Launcher) billed(c *candidate, a *request.Alternative, gpus []int) float64 {
	g, p := c.group, c.group.partition.slurm
	cpus := float64(max(c.need.CPUs, int64(a.Cores*max(1, a.Tasks)), 1))
	if p == nil || len(p.BillingWeights) == 0 {
		if a.Exclusive || c.group.partition.exclusive {
			cpus = max(cpus, float64(g.cores))
		}
		return cpus
	}
	taken := map[string]float64{
		"cpu":  cpus,
		"mem":  float64(max(c.need.MemMB, a.Memory>>20)),
		"node": 1, "gres/gpu": float64(a.GPUCount()),
	}
	if a.Exclusive || c.group.partition.exclusive {
		taken["cpu"], taken["mem"] = max(taken["cpu"], float64(g.cores)), max(taken["mem"], float64(g.memory>>20))
		for _, x := range g.gres {
			taken["gres/"+x.Name+":"+x.Type] = float64(x.Count)
		}
		if n, _ := g.gresCount("gpu"); n > 0 {
			taken["gres/gpu"] = float64(n)
		}
	} else {
		for i, n := range gpus {
			taken["gres/gpu:"+g.gpus[i].gres] += float64(n)
		}
	}
	return l.admission.Billed(p, taken)
}

// better orders candidates: what is certain, the priority of the file, the class, what is
// billed, and the smallest GPUs that suffice.
func better(x, y *candidate) int {
	for _, d := range []float64{
		float64(x.class&classLast) - float64(y.class&classLast),
		float64(y.priority) - float64(x.priority),
		float64(x.class) - float64(y.class),
		x.billed - y.billed,
		x.gpuMemory - y.gpuMemory,
	} {
		switch {
		case d < 0:
			return -1
		case d > 0:
			return 1
		}
	}
	return 0
}

// otherClass is why a candidate of a class is not in an answer of another.
func (b *builder) otherClass(c *candidate) *Reason {
	if c.class&^b.joined == b.first.class&^b.joined {
		return nil
	}
	why := because("lower_class", "its class is %s, billed %s; that of the answer is %s, billed %s",
		c.class, FormatBilled(c.billed), b.first.class, FormatBilled(b.first.billed))
	return &why
}

// FormatBilled formats what is billed with at most two decimals.
func FormatBilled(n float64) string {
	return strings.TrimSuffix(strings.TrimRight(strconv.FormatFloat(n, 'f', 2, 64), "0"), ".")
}
