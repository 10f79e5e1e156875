// Package usage compares what jobs used with what they had requested, and says what to request
// next time. It is pure, over what lib/slurm has read of the accounting.
//
// Memory is in MiB on a node, times of CPUs and GPUs are seconds.
package usage

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/ponos-tools/ponos/lib/advise/forecast"
	"github.com/ponos-tools/ponos/lib/base/hostlist"
	"github.com/ponos-tools/ponos/lib/slurm"
)

// Unknown is what was not measured.
const Unknown = -1

// Run is a run of a job: what it was given, and what it used.
type Run struct {
	Label, Name, User, Account, Partition, QOS, State string

	Submit, Start, End int64         // End is 0 while it runs
	Elapsed            time.Duration // without the time in which it was suspended
	Limit              time.Duration // slurm.Unlimited, or 0: not known
	Nodes              int64
	CPUs, GPUs         float64 // on all nodes
	MemMB              float64 // on a node; 0: none was requested
	Tasks              int64   // most of a step

	CPUSeconds float64 // Unknown while no step has ended
	PeakMB     float64 // on the node where it was highest; Unknown
	GPUPart    float64 // of the GPUs, at most; Unknown
}

// Of returns the usage of a run in a record of sacct.
//
// The memory of a node is the sum of the steps that run there at the same time. Slurm reports, for a
// step, only the task that used most: each task of it is assumed to use as much. Tasks are assumed to
// be spread evenly over the nodes; where the batch step shows that the CPUs are not, all but one for
// each other node are on one node. GPU usage is limited to the most that Slurm has sampled at any
// time.
func Of(c *slurm.Consumed) Run {
	nodes := max(1, c.Nodes)
	r := Run{
		Label: c.Label, Name: c.Name, User: c.User, Account: c.Account, Partition: c.Partition, QOS: c.QOS, State: c.State,
		Submit: c.Submit, Start: c.Start, End: c.End, Elapsed: c.Elapsed, Limit: c.Limit, Nodes: nodes,
		CPUs: c.TRES["cpu"], GPUs: c.TRES.GPUs(), MemMB: c.TRES["mem"] / float64(nodes),
		CPUSeconds: Unknown, PeakMB: peak(c), GPUPart: Unknown,
	}
	busy, measured := 0.0, false
	for i := range c.Used {
		s := &c.Used[i]
		if r.CPUSeconds == Unknown && s.End > 0 {
			r.CPUSeconds = 0
		}
		r.CPUSeconds += s.CPU.Seconds()
		if s.Name != "extern" {
			r.Tasks = max(r.Tasks, s.Tasks)
		}
		if util, ok := s.Most["gres/gpuutil"]; ok {
			measured = true
			seconds := s.End - s.Start
			if s.End == 0 {
				seconds = int64(c.Elapsed.Seconds())
			}
			gpus := s.TRES.GPUs()
			if gpus == 0 {
				gpus = r.GPUs
			}
			busy += min(gpus, float64(max(1, s.Tasks))*util/100) * float64(max(0, seconds))
		}
	}
	if measured && r.GPUs > 0 && c.Elapsed > 0 {
		r.GPUPart = min(1, busy/(r.GPUs*c.Elapsed.Seconds()))
	}
	return r
}

// peak is the most memory that steps had on a node at a time, or Unknown.
func peak(job *slurm.Consumed) float64 {
	type change struct {
		at  int64
		mem float64
	}
	byNode := map[string][]change{}
	even := true
	for i := range job.Used {
		if s := &job.Used[i]; s.Name == "batch" {
			even = s.TRES["cpu"]*float64(job.Nodes) == job.TRES["cpu"]
		}
	}
	for i := range job.Used {
		s := &job.Used[i]
		mem, ok := s.Most["mem"]
		if !ok {
			continue
		}
		nodes, err := hostlist.Expand(s.Nodes)
		if err != nil || len(nodes) == 0 {
			nodes = []string{""}
		}
		tasks, count := max(1, s.Tasks), int64(len(nodes))
		if even {
			tasks = (tasks-1)/count + 1
		} else {
			tasks = max(1, tasks-count+1)
		}
		mem *= float64(tasks)
		for _, n := range nodes {
			byNode[n] = append(byNode[n], change{s.Start, mem})
			if s.End > 0 {
				byNode[n] = append(byNode[n], change{s.End, -mem})
			}
		}
	}
	most := float64(Unknown)
	for _, changes := range byNode {
		slices.SortStableFunc(changes, func(a, b change) int {
			return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.mem, b.mem)) // what ends frees it first
		})
		sum := 0.0
		for _, c := range changes {
			sum += c.mem
			most = max(most, sum)
		}
		for _, c := range changes { // a step that ends in the second in which it starts
			most = max(most, c.mem)
		}
	}
	return most
}

// Ended reports whether the run has ended.
func (r *Run) Ended() bool { return r.End > 0 }

// wasted are the seconds of CPUs, and of GPUs, that it had and did not use; Unknown.
func (r *Run) wasted() (cpu, gpu float64) {
	cpu, gpu = Unknown, Unknown
	if r.CPUSeconds != Unknown {
		cpu = max(0, r.CPUs*r.Elapsed.Seconds()-r.CPUSeconds)
	}
	if r.GPUPart != Unknown {
		gpu = r.GPUs * r.Elapsed.Seconds() * (1 - r.GPUPart)
	}
	return cpu, gpu
}

// Group are runs that belong together, the first one first.
type Group struct {
	Key  string
	Runs []Run
}

// ByName is one key for the runs of a name, whatever numbers are in it.
func ByName(r *Run) string { return forecast.Stem(r.Name) }

// ByJob is one key for the tasks of an array.
func ByJob(r *Run) string {
	id, _, _ := strings.Cut(r.Label, "_")
	return id
}

// Fold groups runs that have started, those that wasted most first.
func Fold(runs []Run, key func(*Run) string) []Group {
	at := map[string]int{}
	var all []Group
	for i := range runs {
		if runs[i].Start == 0 {
			continue
		}
		k := runs[i].User + "\x00" + key(&runs[i])
		if _, ok := at[k]; !ok {
			at[k] = len(all)
			all = append(all, Group{Key: key(&runs[i])})
		}
		g := &all[at[k]]
		g.Runs = append(g.Runs, runs[i])
	}
	totals := map[string]float64{}
	for i := range all {
		s := all[i].Sum()
		// A GPU weighs about as much as a part of a node.
		totals[all[i].Runs[0].User+"\x00"+all[i].Key] = max(0, s.WastedCPU) + 32*max(0, s.WastedGPU)
	}
	slices.SortStableFunc(all, func(a, b Group) int {
		return cmp.Compare(totals[b.Runs[0].User+"\x00"+b.Key], totals[a.Runs[0].User+"\x00"+a.Key])
	})
	return all
}

// Sum is what the runs of a group had and used. Of what is Unknown nothing was measured.
type Sum struct {
	Runs, Running            int
	CPUSeconds, CPUUsed      float64 // of runs of which both are known
	GPUSeconds, GPUUsed      float64 // likewise
	AllGPUSeconds            float64
	WastedCPU, WastedGPU     float64
	PeakMB, MemMB            float64 // the highest of all
	Median, Longest, Largest time.Duration
}

// Sum adds up a group. Largest is the largest time limit, slurm.Unlimited if a run had
// none.
func (g *Group) Sum() Sum {
	s := Sum{Runs: len(g.Runs), WastedCPU: Unknown, WastedGPU: Unknown, PeakMB: Unknown}
	var times []time.Duration
	for i := range g.Runs {
		r := &g.Runs[i]
		if !r.Ended() {
			s.Running++
		}
		cpu, gpu := r.wasted()
		if cpu != Unknown {
			s.CPUSeconds += r.CPUs * r.Elapsed.Seconds()
			s.CPUUsed += r.CPUSeconds
			s.WastedCPU = max(0, s.WastedCPU) + cpu
		}
		s.AllGPUSeconds += r.GPUs * r.Elapsed.Seconds()
		if gpu != Unknown {
			s.GPUSeconds += r.GPUs * r.Elapsed.Seconds()
			s.GPUUsed += r.GPUs * r.Elapsed.Seconds() * r.GPUPart
			s.WastedGPU = max(0, s.WastedGPU) + gpu
		}
		s.PeakMB, s.MemMB = max(s.PeakMB, r.PeakMB), max(s.MemMB, r.MemMB)
		s.Largest = max(s.Largest, r.Limit)
		times = append(times, r.Elapsed)
	}
	slices.Sort(times)
	s.Median, s.Longest = times[len(times)/2], times[len(times)-1]
	return s
}
