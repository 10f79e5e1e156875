package launcher

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ponos-tools/ponos/lib/hostlist"
	"github.com/ponos-tools/ponos/lib/launcher/file"
	"github.com/ponos-tools/ponos/lib/launcher/request"
	"github.com/ponos-tools/ponos/lib/sbatch"
	"github.com/ponos-tools/ponos/lib/slurm"
)

// Answer is a launcher that gives what was requested.
type Answer struct {
	Launcher    *Launcher
	Alternative int // of the request, from 0
	Asked       request.Alternative
	Partitions  []string // in order of preference
	QOS         string
	Account     string
	Options     sbatch.Options
	Unknown     []string // unknown properties of the nodes, which were accepted
	Notes       []string // what makes a job wait long
}

// Local reports whether the launcher is this machine, or another one over ssh.
func (a *Answer) Local() bool { return a.Launcher.Entry.Kind == file.Local }

// Reserved returns a reservation that keeps some nodes of the partitions for others at
// the moment, nil if there is none that is known.
func (a *Answer) Reserved() *slurm.Reservation {
	model := a.Launcher.admission
	if model == nil {
		return nil
	}
	now := a.Launcher.now.Unix()
	for i := range model.Reservations {
		r := &model.Reservations[i]
		names, err := hostlist.Expand(r.Nodes)
		if err != nil || r.Start > now || r.End <= now {
			continue
		}
		for _, p := range a.Launcher.partitions {
			if slices.Contains(a.Partitions, p.name) && slices.ContainsFunc(p.groups, func(g *group) bool {
				return slices.ContainsFunc(g.names(), func(n string) bool { return slices.Contains(names, n) })
			}) {
				return r
			}
		}
	}
	return nil
}

// maxClauses limits the length of --constraint. If there are more kinds of nodes than that, the
// option requires what they have in common.
const maxClauses = 64

// maxExclude limits --exclude.
const maxExclude = 1000

// common sets the options that follow from the request alone.
func (l *Launcher) common(o *sbatch.Options, a *request.Alternative, cores int, at time.Time) {
	o.SetInt("nodes", max(1, a.Nodes))
	o.SetTime("time", a.Duration)
	if l.Entry.UseMemory || l.Entry.Kind == file.Local {
		o.SetMemory("mem", a.Memory)
	}
	o.SetInt("cpus-per-task", cores)
	o.SetInt("ntasks-per-node", a.Tasks)
	o.SetMemory("tmp", a.Disk)
	o.Set("gres", amounts(a.GRES))
	o.Set("licenses", amounts(a.Licenses))
	if a.Exclusive {
		o.SetBare("exclusive")
	}
	if !at.IsZero() {
		o.Set("deadline", at.Format("2006-01-02T15:04:05"))
	}
	o.SetInt("gpus-per-node", a.GPUCount())
}

// deadline is when a job must have ended; the zero time is never.
func (l *Launcher) deadline(a *request.Alternative) time.Time {
	var first time.Time
	for _, d := range a.Deadlines {
		if at := d.At(l.now); first.IsZero() || at.Before(first) {
			first = at
		}
	}
	return first
}

// misses reports whether a job that takes that long cannot end by the deadline.
func (l *Launcher) misses(a *request.Alternative, takes time.Duration) bool {
	at := l.deadline(a)
	return !at.IsZero() && l.now.Add(takes).After(at)
}

// amounts writes GRES and licenses as sbatch takes them.
func amounts(list []request.Amount) string {
	words := make([]string, len(list))
	for i, x := range list {
		words[i] = fmt.Sprintf("%s:%d", x.Name, x.Count)
	}
	return strings.Join(words, ",")
}

// constraint writes clauses as --constraint takes them.
func constraint(clauses []string) string {
	if len(clauses) == 0 {
		return ""
	}
	return "(" + strings.Join(clauses, ")|(") + ")"
}

// fewClauses returns the clauses or, where there are too many, features that only
// matching nodes have; what is still too much is left out, so that Slurm has less
// choice, but never a wrong one.
func (b *builder) fewClauses() []string {
	if len(b.clauses) <= maxClauses {
		return b.clauses
	}
	count := map[string]int{}
	for _, c := range b.clauses {
		for f := range strings.SplitSeq(c, "&") {
			count[f]++
		}
	}
	for f := range count {
		if slices.ContainsFunc(b.bad.with([]string{f}), func(g *group) bool { return b.in[g.partition] && b.offends(g) }) {
			delete(count, f)
		}
	}
	var few []string
	have := map[string]bool{}
	for _, c := range b.clauses {
		best := ""
		for f := range strings.SplitSeq(c, "&") {
			if count[f] > count[best] {
				best = f
			}
		}
		if best == "" {
			best = c
		}
		if !have[best] {
			have[best] = true
			few = append(few, best)
		}
	}
	return few[:min(len(few), maxClauses)]
}
