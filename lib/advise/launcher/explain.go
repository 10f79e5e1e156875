package launcher

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/ponos-tools/ponos/lib/advise/launcher/file"
	"github.com/ponos-tools/ponos/lib/advise/launcher/request"
	"github.com/ponos-tools/ponos/lib/base/hostlist"
	"github.com/ponos-tools/ponos/lib/base/unit"
)

// Row is the result for one candidate (nodes of a partition with a QoS and an account), for a
// local machine, or for a launcher that was not searched.
type Row struct {
	Alternative int // of the request, from 0
	Launcher    string
	Kind        file.Kind
	Partition   string
	QOS         string // several, joined by commas, if the nodes match with none of them
	Account     string
	Defaults    []string // "qos", "account": defaults, which sbatch needs no option for
	Count       int      // of nodes; 0: not known
	Features    []string
	Verdict     Verdict
	Reasons     []Reason
	Class       string  // of a candidate that matches
	Billed      float64 // what Slurm counts for each node of the job
	group       *group
}

// Nodes returns the nodes of the row as a hostlist or, if their names are unknown, their
// number.
func (r *Row) Nodes() string {
	if r.group == nil {
		return ""
	}
	return r.group.nodeList()
}

// Key identifies a group of nodes: rows of several partitions may be about the same nodes.
func (r *Row) Key() string {
	switch {
	case r.group == nil:
		return ""
	case r.group.hostList != "":
		return r.group.hostList
	case len(r.group.hosts) > 0:
		return strings.Join(r.group.hosts, ",")
	}
	return r.Launcher + " " + r.Partition + " " + strconv.Itoa(r.group.order)
}

// Has describes the CPUs, memory and GPUs of one node.
func (r *Row) Has() string {
	if r.group == nil {
		return ""
	}
	return r.group.describe()
}

// KnownBy says by what the GPUs of a node are known.
func (r *Row) KnownBy() []string {
	if r.group == nil {
		return nil
	}
	return r.group.knownBy()
}

// Explain reports for every candidate why it is not used, and returns the answer, or nil. If
// Slurm does not answer, that is a row and the error.
func (s *Search) Explain(ctx context.Context, r request.Request) (rows []Row, answer *Answer, err error) {
	var missed error
	for i := range r.Alternatives {
		a := s.resolve(&r.Alternatives[i])
		for _, l := range s.Launchers {
			found, more, e := s.explain(ctx, l, a, answer == nil && err == nil)
			switch {
			case e == nil || err != nil || answer != nil:
			case l.passes(ctx):
				missed = e
			default:
				err = e
			}
			for j := range more {
				more[j].Alternative = i
			}
			rows = append(rows, more...)
			if found != nil && answer == nil && err == nil {
				answer = found
				answer.Alternative = i
				s.passed(answer)
			}
		}
	}
	if answer == nil && err == nil {
		err = missed
	}
	return rows, answer, err
}

// explain evaluates one launcher. Unless take is set, an earlier launcher or alternative has
// matched, and candidates that match become spare.
func (s *Search) explain(ctx context.Context, l *Launcher, a *asked, take bool) (*Answer, []Row, error) {
	row := Row{Launcher: l.Name, Kind: l.Entry.Kind, Verdict: No}
	if why := s.skips(l); why != nil {
		row.Reasons = []Reason{*why}
		return nil, []Row{row}, nil
	}
	if err := s.ask(ctx, l); err != nil {
		row.Reasons = []Reason{because("unreachable", "Slurm could not be asked: %v", err)}
		return nil, []Row{row}, l.unreachable(ctx, err)
	}
	if l.Entry.Kind == file.Local {
		l.setup(s)
		row.Count, row.group = 1, l.machine
		var unknown bool
		if row.Reasons, unknown = l.refuses(&a.Alternative); len(row.Reasons) > 0 {
			return nil, []Row{row}, nil
		}
		if unknown {
			row.Reasons = []Reason{because("gpu_unknown", "%s", unknownOf{l.machine.gpus, a.GPUs})}
			if row.Verdict = Maybe; !s.AllowUnknown {
				return nil, []Row{row}, nil
			}
		}
		if row.Verdict = Yes; !take {
			row.spare()
		}
		return l.local(&a.Alternative), []Row{row}, nil
	}
	l.setup(s)
	matching, all := s.candidates(l, a)
	answer := l.build(&a.Alternative, matching)
	if len(all) == 0 {
		row.Reasons = []Reason{because("no_nodes", "it has no partitions")}
		return nil, []Row{row}, nil
	}
	rows := make([]Row, 0, len(all))
	for _, c := range all {
		g := c.group
		row := Row{
			Launcher: l.Name, Kind: file.Slurm, Partition: g.partition.name, QOS: c.choice.isQOS, Account: c.choice.isAccount,
			Count: g.nodes, Features: g.features, group: g, Verdict: c.verdict, Reasons: c.reasons,
		}
		if c.verdict != No && c.verdict != Maybe {
			row.Class, row.Billed = c.class.String(), c.billed
		}
		if c.choice.qos == "" && row.QOS != "" {
			row.Defaults = append(row.Defaults, "qos")
		}
		if c.choice.account == "" && row.Account != "" {
			row.Defaults = append(row.Defaults, "account")
		}
		if row.Verdict == Yes && !take {
			row.spare()
		}
		rows = append(rows, row)
	}
	return answer, rows, nil
}

func (r *Row) spare() {
	r.Verdict = Spare
	r.Reasons = append(r.Reasons, because("later", "a launcher or alternative before it matches"))
}

// nodeList returns the hosts of a group as a hostlist or, if their names are unknown, their
// number.
func (g *group) nodeList() string {
	if names := g.names(); len(names) > 0 {
		return hostlist.Compress(names)
	}
	if g.nodes > 0 {
		return fmt.Sprint(g.nodes)
	}
	return ""
}

// describe formats what one node has for messages: "8 CPUs, 16G, 4 x a100".
func (g *group) describe() string {
	var parts []string
	switch {
	case g.cores == 1:
		parts = append(parts, "1 CPU")
	case g.cores > 1:
		parts = append(parts, fmt.Sprintf("%d CPUs", g.cores))
	}
	if g.memory > 0 {
		parts = append(parts, unit.ShortSize(g.memory))
	}
	if len(g.gpus) > 0 {
		parts = append(parts, describeGPUs(g.gpus))
	}
	return strings.Join(parts, ", ")
}

// Info describes a launcher for a list of launchers.
type Info struct {
	Skipped    bool // it lacks the requested tags or kind
	Partitions []string
	Has        string
}

// Inspect returns the usable partitions and the size of a launcher, and queries Slurm if
// needed.
func (s *Search) Inspect(ctx context.Context, l *Launcher) (Info, error) {
	if why := s.skips(l); why != nil {
		return Info{Skipped: why.Code != "disabled"}, nil
	}
	if l.Entry.Kind == file.Local {
		return Info{Has: l.machine.describe()}, nil
	}
	err := s.ask(ctx, l)
	if err != nil {
		err = l.unreachable(ctx, err)
	}
	info := Info{}
	nodes, known := 0, true
	for _, p := range l.partitions {
		if len(p.refused) == 0 {
			info.Partitions = append(info.Partitions, p.name)
		}
	}
	seen := map[string]bool{}
	for _, p := range l.partitions {
		for _, g := range p.groups {
			if g.nodes == 0 {
				known = false
			}
			for _, h := range g.names() {
				if !seen[h] {
					seen[h] = true
					nodes++
				}
			}
			nodes += max(0, g.nodes-len(g.names()))
		}
	}
	switch {
	case !known && nodes == 0:
		info.Has = "nodes"
	case !known:
		info.Has = fmt.Sprintf("%d or more nodes", nodes)
	case nodes == 1:
		info.Has = "1 node"
	default:
		info.Has = fmt.Sprintf("%d nodes", nodes)
	}
	return info, err
}
