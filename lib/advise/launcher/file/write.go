package file

import (
	"bufio"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"

	"github.com/ponos-tools/ponos/lib/base/hostlist"
	"github.com/ponos-tools/ponos/lib/base/unit"
)

// Comments are written with a partition; "": none.
type Comments struct {
	Partition string
	Disabled  string // why it is disabled
}

// Write writes a Slurm launcher, which Parse reads: its partitions, QoS and nodes, and the GPUs, CPUs and memory of these.
// Comments returns those of the partition with a number.
func Write(w io.Writer, e *Entry, comments func(int) Comments) error {
	out := bufio.NewWriter(w)
	line := func(indent int, format string, args ...any) {
		fmt.Fprintf(out, strings.Repeat("  ", indent)+format+"\n", args...)
	}
	line(0, "slurm:")
	line(1, "- id: %s", Word(e.ID))
	line(2, "connector: %s", Word(e.Connector))
	if len(e.Tags) > 0 {
		line(2, "tags: %s", List(e.Tags))
	}
	writeQOS(line, e.QOS)
	if len(e.Partitions) == 0 {
		line(2, "partitions: {}")
	} else {
		line(2, "partitions:")
	}
	for i := range e.Partitions {
		writePartition(line, &e.Partitions[i], comments(i))
	}
	return out.Flush()
}

// writer writes a line with an indentation level.
type writer func(indent int, format string, args ...any)

func writeQOS(line writer, all []QOS) {
	if len(all) == 0 {
		return
	}
	line(2, "qos:")
	for _, q := range all {
		var fields []string
		if q.MaxDuration > 0 {
			fields = append(fields, "max_duration: "+unit.FormatDuration(q.MaxDuration))
		}
		if q.MinGPU > 0 {
			fields = append(fields, fmt.Sprintf("min_gpu: %d", q.MinGPU))
		}
		if len(fields) > 0 {
			line(3, "%s: { %s }", Word(q.Name), strings.Join(fields, ", "))
		} else {
			line(3, "%s: {}", Word(q.Name))
		}
	}
}

func writePartition(line writer, p *Partition, c Comments) {
	line(3, "%s:", Word(p.Name))
	if p.Disabled {
		if c.Disabled != "" {
			line(4, "# %s", Printable(c.Disabled))
		}
		line(4, "disabled: true")
	}
	if c.Partition != "" {
		line(4, "# %s", Printable(c.Partition))
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
		line(4, "accounts: %s", List(p.Accounts))
	}
	if len(p.QOS) > 0 {
		line(4, "qos: %s", List(p.QOS))
	}
	if d := p.Configuration.MaxDuration; d > 0 {
		line(4, "configuration:")
		line(5, "max_duration: %s", unit.FormatDuration(d))
	}
	if len(p.Nodes) == 0 {
		line(4, "nodes: []")
		return
	}
	line(4, "nodes:")
	for _, g := range p.Nodes {
		dash := "- "
		item := func(format string, args ...any) {
			line(5, dash+format, args...)
			dash = "  "
		}
		if len(g.Features) > 0 {
			item("features: %s", List(g.Features))
		}
		if len(g.Hosts) == 0 {
			item("count: %d", g.Count)
		} else {
			item("hosts: %s", List(compress(g.Hosts)))
		}
		writeFigures(line, g.Configuration)
	}
}

func writeFigures(line writer, c Configuration) {
	var cpu []string
	if c.CPU.Cores > 0 {
		cpu = append(cpu, fmt.Sprintf("cores: %d", c.CPU.Cores))
	}
	if c.CPU.Memory > 0 {
		cpu = append(cpu, "memory: "+unit.FormatSize(c.CPU.Memory))
	}
	if len(cpu) == 0 && len(c.GPUs) == 0 {
		return
	}
	line(6, "configuration:")
	if len(cpu) > 0 {
		line(7, "cpu: { %s }", strings.Join(cpu, ", "))
	}
	switch len(c.GPUs) {
	case 0:
	case 1:
		line(7, "gpu: %s", writeGPU(c.GPUs[0]))
	default:
		line(7, "gpus:")
		for _, x := range c.GPUs {
			line(8, "- %s", writeGPU(x))
		}
	}
}

func writeGPU(g GPU) string {
	var fields []string
	if g.Kind != "cuda" && g.Kind != "" {
		fields = append(fields, "kind: "+Word(g.Kind))
	}
	if g.Model != "" {
		fields = append(fields, "model: "+Word(g.Model))
	}
	if g.GRES != "" {
		fields = append(fields, "gres_type: "+Word(g.GRES))
	}
	fields = append(fields, fmt.Sprintf("count: %d", g.Count))
	if g.Memory > 0 {
		fields = append(fields, "memory: "+unit.FormatSize(g.Memory))
	}
	return "{ " + strings.Join(fields, ", ") + " }"
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

// Word quotes a word where YAML would read it as something else.
func Word(s string) string {
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

// Printable returns a text for a comment, without characters that would end it.
func Printable(text string) string { return strings.Map(printable, text) }

func printable(r rune) rune {
	if r < ' ' || r == 0x7f || r == '\u0085' || r == '\u2028' || r == '\u2029' || r == '\ufeff' || r == '\ufffd' {
		return '?'
	}
	return r
}

// List writes words as a list on one line.
func List(words []string) string {
	quoted := make([]string, len(words))
	for i, w := range words {
		quoted[i] = Word(w)
	}
	return "[" + strings.Join(quoted, ", ") + "]"
}
