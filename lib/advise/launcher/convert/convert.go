package convert

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/ponos-tools/ponos/lib/advise/gpu"
	"github.com/ponos-tools/ponos/lib/advise/launcher"
	"github.com/ponos-tools/ponos/lib/advise/launcher/cluster"
	"github.com/ponos-tools/ponos/lib/advise/launcher/file"
	"github.com/ponos-tools/ponos/lib/base/hostlist"
	"github.com/ponos-tools/ponos/lib/slurm"
)

// Options say what Write puts into the file.
type Options struct {
	ID      string         // of the launcher
	Tags    []string       // of the launcher
	NoHosts bool           // write the number of nodes instead of their names
	GPUs    *gpu.Catalogue // nil: gpu.Builtin
}

func (o Options) catalogue() *gpu.Catalogue {
	if o.GPUs == nil {
		return gpu.Builtin()
	}
	return o.GPUs
}

// Read reads the output of "scontrol show nodes", one-line or multi-line, and of "scontrol show
// partitions" if that comes before or after it.
func Read(r io.Reader) (*cluster.Snapshot, error) {
	text, err := io.ReadAll(io.LimitReader(r, maxInput+1))
	if err == nil && len(text) > maxInput {
		err = fmt.Errorf("the input has more than %d bytes", maxInput)
	}
	if err != nil {
		return nil, err
	}
	nodes, partitions := split(string(text))
	s := &cluster.Snapshot{}
	if s.Partitions, err = slurm.ParsePartitions(strings.NewReader(partitions + "\n")); err != nil {
		return nil, err
	}
	parsed, err := slurm.ParseNodes(strings.NewReader(nodes + "\n"))
	if err != nil {
		return nil, err
	}
	s.Groups = cluster.GroupNodes(parsed)
	if len(s.Groups) == 0 {
		return nil, fmt.Errorf("no node in the input")
	}
	return s, nil
}

const maxInput = 256 << 20

// split separates the lines about partitions from the others. Each of the two texts keeps the
// line numbers of the whole.
func split(text string) (nodes, partitions string) {
	var n, p strings.Builder
	to, other := &n, &p
	for line := range strings.Lines(text) {
		switch {
		case strings.HasPrefix(line, "PartitionName="):
			to, other = &p, &n
		case strings.HasPrefix(line, "NodeName="), line[0] != ' ' && line[0] != '\t' && strings.TrimSpace(line) != "":
			to, other = &n, &p
		}
		to.WriteString(line)
		other.WriteByte('\n')
	}
	return n.String(), p.String()
}

// Unsaid returns the rules of a cluster that launchers.yaml cannot express.
func Unsaid(s *cluster.Snapshot, o Options) []string {
	var all []string
	for i := range s.Groups {
		if g := &s.Groups[i]; g.Partitions == "" {
			all = append(all, "nodes "+hostlist.Compress(strings.Split(g.Hosts, ","))+": they are in no partition")
		}
	}
	for _, p := range s.Partitions {
		if !file.Names(p.Name) {
			all = append(all, fmt.Sprintf("partition %q: its name has a blank", p.Name))
		}
	}
	d := describe(s, o)
	for i, r := range d.Remarks {
		if len(r.Unsaid) > 0 {
			all = append(all, fmt.Sprintf("partition %s: %s", d.Partitions[i].Name, strings.Join(r.Unsaid, "; ")))
		}
	}
	return all
}

// Write writes launchers.yaml.
func Write(w io.Writer, s *cluster.Snapshot, o Options) error {
	d := describe(s, o)
	d.ID, d.Tags = o.ID, o.Tags
	if d.ID == "" {
		d.ID = "slurm"
	}
	return file.Write(w, &d.Entry, func(i int) file.Comments {
		c := file.Comments{Disabled: d.Remarks[i].Refused}
		if said := d.Remarks[i].Unsaid; len(said) > 0 {
			c.Partition = "Not expressed here: " + strings.Join(said, "; ") + "."
		}
		return c
	})
}

// describe describes the partitions of a snapshot. If it has nodes only, the partitions are those that the nodes name,
// sorted.
func describe(s *cluster.Snapshot, o Options) *launcher.Described {
	d := launcher.Describe(named(s), o.catalogue())
	for i := range d.Partitions {
		for j := range d.Partitions[i].Nodes {
			if n := &d.Partitions[i].Nodes[j]; o.NoHosts {
				n.Hosts = nil
			}
		}
	}
	return d
}

// named returns a snapshot with the partitions that its nodes name, if it has none, and else without those that cannot be named.
func named(s *cluster.Snapshot) *cluster.Snapshot {
	with := *s
	if len(s.Partitions) > 0 {
		with.Partitions = slices.DeleteFunc(slices.Clone(s.Partitions), func(p slurm.Partition) bool { return !file.Names(p.Name) })
		return &with
	}
	var names []string
	for _, g := range s.Groups {
		for name := range g.Partitions.All() {
			if !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	slices.Sort(names)
	for _, name := range names {
		with.Partitions = append(with.Partitions, slurm.Partition{Name: name, State: "UP", MaxTime: slurm.Unlimited})
	}
	return &with
}
