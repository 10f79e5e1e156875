package priority

import (
	"math"
	"sort"
	"strings"
)

// Weights are what the factors are multiplied with (PriorityWeight… of
// slurm.conf). TRES is by resource name in lower case.
type Weights struct {
	Age, Assoc, FairShare, JobSize, Partition, QOS float64
	TRES                                           map[string]float64
}

// Zero reports whether no factor counts: only nice and the site factor do.
func (w Weights) Zero() bool {
	for _, v := range w.TRES {
		if v != 0 {
			return false
		}
	}
	return w.Age == 0 && w.Assoc == 0 && w.FairShare == 0 && w.JobSize == 0 && w.Partition == 0 && w.QOS == 0
}

// Part is one addend of a priority.
type Part struct {
	Name   string  // age, fairshare, tres:gres/gpu, nice, …
	Factor float64 // usually 0 to 1; for nice and site the value itself
	Weight float64
	Share  float64 // Factor times Weight: what it adds to the priority
}

// Reading is a factor as sprio prints it: the factor to seven digits, and the
// weighted one as a whole number.
type Reading struct{ Factor, Weighted float64 }

// Components joins what sprio printed with the weights. Each share is the product,
// which is finer than sprio's whole number; where the digits of the factor do not
// suffice (huge weights) the product is held to what rounds to that number.
func Components(w Weights, age, assoc, fairShare, jobSize, partition, qos Reading, tres map[string]Reading, site, nice float64) []Part {
	components := []Part{
		part("age", w.Age, age), part("fairshare", w.FairShare, fairShare), part("jobsize", w.JobSize, jobSize),
		part("partition", w.Partition, partition), part("qos", w.QOS, qos), part("assoc", w.Assoc, assoc),
	}
	names := make([]string, 0, len(tres))
	for name := range tres {
		names = append(names, name)
	}
	sort.Strings(names)
	for _, name := range names {
		components = append(components, part("tres:"+name, w.TRES[name], tres[name]))
	}
	return append(components,
		Part{Name: "site", Factor: site, Weight: 1, Share: site},
		Part{Name: "nice", Factor: nice, Weight: -1, Share: 0 - nice})
}

func part(name string, weight float64, r Reading) Part {
	return Part{Name: name, Factor: r.Factor, Weight: weight, Share: Refine(r.Factor*weight, r.Weighted)}
}

// Refine returns exact held within what rounds to the whole number printed.
func Refine(exact, printed float64) float64 {
	return math.Min(math.Max(exact, printed-0.5), printed+0.5)
}

// Sum is the priority the parts make: never below 1, as 0 is for held jobs, and
// never above 32 bits.
func Sum(components []Part) float64 {
	var sum float64
	for _, p := range components {
		sum += p.Share
	}
	return math.Min(math.Max(1, sum), math.MaxUint32)
}

// IsTRES reports whether the part is that of a trackable resource.
func (p Part) IsTRES() bool { return strings.HasPrefix(p.Name, "tres:") }

// The factors below follow "Job Priority Factors In General" of Slurm's
// document "Multifactor Priority Plugin".

// Age is the share of PriorityMaxAge that a job has waited while eligible.
func Age(waited, maxAge float64) float64 {
	if maxAge <= 0 || waited >= maxAge {
		return 1
	}
	return math.Max(0, waited) / maxAge
}

// SizeOptions are the settings that change how the size of a job counts.
type SizeOptions struct {
	FavorSmall     bool // PriorityFavorSmall
	RelativeToTime bool // PriorityFlags=SMALL_RELATIVE_TO_TIME
}

// JobSize is the mean of the shares of the cluster's nodes and CPUs that a job
// asks for, or, relative to time, its CPUs per minute of its limit.
func JobSize(nodes, cpus, clusterNodes, clusterCPUs, limitMinutes float64, o SizeOptions) float64 {
	if clusterNodes <= 0 || clusterCPUs <= 0 {
		return 0
	}
	var f float64
	switch {
	case o.RelativeToTime:
		f = math.Max(nodes*clusterCPUs/clusterNodes, cpus) / math.Max(limitMinutes, 1) / clusterCPUs
		if o.FavorSmall {
			f = 1 - f
		}
	case o.FavorSmall:
		f = math.Max(0, clusterNodes-nodes) / clusterNodes
		if cpus > 0 {
			f = (f + (clusterCPUs-cpus)/clusterCPUs) / 2
		}
	default:
		f = nodes / clusterNodes
		if cpus > 0 {
			f = (f + cpus/clusterCPUs) / 2
		}
	}
	return math.Min(math.Max(0, f), 1)
}

// Normal is how the factors of partition, QoS and association are made: the
// value over the largest there is.
func Normal(value, largest float64) float64 {
	if largest <= 0 {
		return 0
	}
	return value / largest
}

// TRES is the share of the partition's amount of a resource that a job asks for.
func TRES(requested, inPartition float64) float64 {
	if inPartition <= 0 {
		return 0
	}
	return requested / inPartition
}

// Ask is what a job asks for, as far as its priority is concerned, with what there is of
// it: the priority of a job that is not yet submitted.
type Ask struct {
	FairShare                              float64 // factor of its association
	Nodes, CPUs, ClusterNodes, ClusterCPUs float64
	LimitMinutes                           float64
	Size                                   SizeOptions
	JobFactor, LargestJobFactor            float64            // of its partition
	QOS, LargestQOS                        float64            // priorities
	TRES, InPartition                      map[string]float64 // asked for, and of the partition
}

// Expected is the priority of a job when it is submitted.
func Expected(w Weights, a Ask) float64 {
	sum := w.FairShare*a.FairShare + w.JobSize*JobSize(a.Nodes, a.CPUs, a.ClusterNodes, a.ClusterCPUs, a.LimitMinutes, a.Size) +
		w.Partition*Normal(a.JobFactor, a.LargestJobFactor) + w.QOS*Normal(a.QOS, a.LargestQOS)
	for name, weight := range w.TRES {
		sum += weight * TRES(a.TRES[name], a.InPartition[name])
	}
	return math.Floor(math.Min(math.Max(1, sum), math.MaxUint32)) // as Slurm has it: what is not less comes after those that wait
}

// Deficit is by how much one job lags behind another in one part.
type Deficit struct {
	Name string
	Lag  float64
}

// Lost compares a job with the one before it: where it lost, worst first, and
// where it was ahead, last. All resources count as one part.
func Lost(job, before []Part) []Deficit {
	lag := map[string]float64{}
	for _, p := range before {
		lag[group(p.Name)] += p.Share
	}
	for _, p := range job {
		lag[group(p.Name)] -= p.Share
	}
	list := make([]Deficit, 0, len(lag))
	for name, v := range lag {
		list = append(list, Deficit{name, v})
	}
	sort.Slice(list, func(i, j int) bool {
		if list[i].Lag != list[j].Lag {
			return list[i].Lag > list[j].Lag
		}
		return list[i].Name < list[j].Name
	})
	return list
}

func group(name string) string {
	if strings.HasPrefix(name, "tres:") {
		return "tres"
	}
	return name
}

// TimeToGain is how many seconds of waiting add gap to a priority by age alone,
// when the job has the given age factor; ok is false if age can never do it.
func TimeToGain(gap, ageFactor, ageWeight, maxAge float64) (seconds float64, ok bool) {
	if gap <= 0 {
		return 0, true
	}
	if ageWeight <= 0 || maxAge <= 0 || (1-ageFactor)*ageWeight <= gap {
		return 0, false
	}
	return gap / ageWeight * maxAge, true
}
