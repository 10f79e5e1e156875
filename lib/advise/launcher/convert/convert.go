package convert

import (
	"bufio"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/ponos-tools/ponos/lib/advise/gpu"
	"github.com/ponos-tools/ponos/lib/advise/launcher"
	"github.com/ponos-tools/ponos/lib/advise/launcher/cluster"
	"github.com/ponos-tools/ponos/lib/base/hostlist"
	"github.com/ponos-tools/ponos/lib/base/unit"
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
	for _, p := range partitions(s, o) {
		if len(p.Unsaid) > 0 {
			all = append(all, fmt.Sprintf("partition %s: %s", p.Name, strings.Join(p.Unsaid, "; ")))
		}
	}
	return all
}

// Write writes launchers.yaml.
func Write(w io.Writer, s *cluster.Snapshot, o Options) error {
	out := bufio.NewWriter(w)
	line := func(indent int, format string, args ...any) {
		fmt.Fprintf(out, strings.Repeat("  ", indent)+format+"\n", args...)
	}
	id := o.ID
	if id == "" {
		id = "slurm"
	}
	line(0, "slurm:")
	line(1, "- id: %s", word(id))
	line(2, "connector: local")
	if len(o.Tags) > 0 {
		line(2, "tags: %s", list(o.Tags))
	}
	partitions := partitions(s, o)
	writeQOS(line, partitions)
	if len(partitions) == 0 {
		line(2, "partitions: {}")
	} else {
		line(2, "partitions:")
	}
	for i := range partitions {
		writePartition(line, &partitions[i], o)
	}
	return out.Flush()
}

// writer writes a line with an indentation level.
type writer func(indent int, format string, args ...any)

func writeQOS(line writer, partitions []launcher.Described) {
	limits := map[string]launcher.DescribedQOS{}
	var names []string
	for _, p := range partitions {
		for _, q := range p.QOS {
			if _, ok := limits[q.Name]; !ok {
				names = append(names, q.Name)
			}
			limits[q.Name] = q
		}
	}
	if len(names) == 0 {
		return
	}
	line(2, "qos:")
	for _, name := range names {
		var fields []string
		if d := limits[name].MaxDuration; d > 0 {
			fields = append(fields, "max_duration: "+unit.FormatDuration(d))
		}
		if n := limits[name].MinGPU; n > 0 {
			fields = append(fields, fmt.Sprintf("min_gpu: %d", n))
		}
		if len(fields) > 0 {
			line(3, "%s: { %s }", word(name), strings.Join(fields, ", "))
		} else {
			line(3, "%s: {}", word(name))
		}
	}
}

func writePartition(line writer, p *launcher.Described, o Options) {
	line(3, "%s:", word(p.Name))
	if p.Refused != "" {
		line(4, "# %s", strings.Map(printable, p.Refused))
		line(4, "disabled: true")
	}
	if len(p.Unsaid) > 0 {
		line(4, "# Not expressed here: %s.", strings.Join(p.Unsaid, "; "))
	}
	if p.Preemptible {
		line(4, "preemptible: true")
	}
	if p.Exclusive {
		line(4, "exclusive: true")
	}
	if p.MinNodes > 1 {
		line(4, "min_nodes: %d", p.MinNodes)
	}
	if p.MaxNodes > 0 {
		line(4, "max_nodes: %d", p.MaxNodes)
	}
	if len(p.Accounts) > 0 {
		line(4, "accounts: %s", list(p.Accounts))
	}
	if len(p.QOS) > 0 {
		names := make([]string, len(p.QOS))
		for i, q := range p.QOS {
			names[i] = q.Name
		}
		line(4, "qos: %s", list(names))
	}
	if p.MaxDuration > 0 {
		line(4, "configuration:")
		line(5, "max_duration: %s", unit.FormatDuration(p.MaxDuration))
	}
	if len(p.Groups) == 0 {
		line(4, "nodes: []")
		return
	}
	line(4, "nodes:")
	for _, g := range p.Groups {
		dash := "- "
		item := func(format string, args ...any) {
			line(5, dash+format, args...)
			dash = "  "
		}
		if len(g.Features) > 0 {
			item("features: %s", list(g.Features))
		}
		if o.NoHosts || len(g.Hosts) == 0 {
			item("count: %d", g.Count)
		} else {
			item("hosts: %s", list(compress(g.Hosts)))
		}
		writeFigures(line, g)
	}
}

func writeFigures(line writer, g launcher.DescribedGroup) {
	var cpu []string
	if g.Cores > 0 {
		cpu = append(cpu, fmt.Sprintf("cores: %d", g.Cores))
	}
	if g.Memory > 0 {
		cpu = append(cpu, "memory: "+unit.FormatSize(g.Memory))
	}
	if len(cpu) == 0 && len(g.GPUs) == 0 {
		return
	}
	line(6, "configuration:")
	if len(cpu) > 0 {
		line(7, "cpu: { %s }", strings.Join(cpu, ", "))
	}
	switch len(g.GPUs) {
	case 0:
	case 1:
		line(7, "gpu: %s", writeGPU(g.GPUs[0]))
	default:
		line(7, "gpus:")
		for _, x := range g.GPUs {
			line(8, "- %s", writeGPU(x))
		}
	}
}

func writeGPU(g launcher.DescribedGPU) string {
	var fields []string
	if g.Kind != "cuda" && g.Kind != "" {
		fields = append(fields, "kind: "+word(g.Kind))
	}
	if g.Type != "" {
		fields = append(fields, "model: "+word(g.Type), "gres_type: "+word(g.Type))
	}
	fields = append(fields, fmt.Sprintf("count: %d", g.Count))
	if g.Memory > 0 {
		fields = append(fields, "memory: "+unit.FormatSize(g.Memory))
	}
	return "{ " + strings.Join(fields, ", ") + " }"
}

// partitions describes the partitions of a snapshot. If it has nodes only, the partitions are
// those that the nodes name, sorted.
func partitions(s *cluster.Snapshot, o Options) []launcher.Described {
	if len(s.Partitions) > 0 {
		return launcher.Describe(s, o.catalogue())
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
	with := *s
	for _, name := range names {
		with.Partitions = append(with.Partitions, slurm.Partition{Name: name, State: "UP", MaxTime: slurm.Unlimited})
	}
	return launcher.Describe(&with, o.catalogue())
}

// compress writes names as hostlists, as few as possible.
func compress(names []string) []string {
	short := hostlist.Compress(names)
	if expanded, err := hostlist.Expand(short); err != nil || len(expanded) != len(names) {
		return names
	}
	return hostlist.Split(short)
}

var plain = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_.+/-]*$`)

// word quotes a word where YAML would read it as something else.
func word(s string) string {
	switch strings.ToLower(s) {
	case "true", "false", "yes", "no", "on", "off", "y", "n", "null":
		return "'" + s + "'"
	}
	switch {
	case plain.MatchString(s):
		return s
	case strings.ContainsFunc(s, func(r rune) bool { return printable(r) != r }):
		return strconv.QuoteToASCII(s)
	}
	return "'" + strings.ReplaceAll(s, "'", "''") + "'"
}

func printable(r rune) rune {
	if r < ' ' || r == 0x7f || r == '\u0085' || r == '\u2028' || r == '\u2029' || r == '\ufeff' || r == '\ufffd' {
		return '?'
	}
	return r
}

func list(words []string) string {
	quoted := make([]string, len(words))
	for i, w := range words {
		quoted[i] = word(w)
	}
	return "[" + strings.Join(quoted, ", ") + "]"
}
