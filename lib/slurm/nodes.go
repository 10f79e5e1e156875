package slurm

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
)

// Node is what the configuration of a node says of what it has. Lists stay as
// Slurm writes them, as most nodes have the same: what a cluster has thousands of
// is taken apart once for each kind of node.
type Node struct {
	Name       string
	Features   string // AvailableFeatures, joined by commas
	GRES       string // such as gpu:a100:4(S:0-1)
	Partitions string // joined by commas
	State      string // such as IDLE+DRAIN
	CPUs       int    // that jobs can have; 0: not known
	Memory     int64  // bytes that jobs can have; 0: not known
}

// NodesArgs are scontrol's arguments for ParseNodes.
func NodesArgs() []string { return []string{"--oneliner", "show", "nodes"} }

// ParseNodes reads scontrol show nodes, with and without --oneliner.
func ParseNodes(r io.Reader) ([]Node, error) {
	var w NodesWriter
	if _, err := io.Copy(&w, r); err != nil {
		return nil, err
	}
	return w.Nodes()
}

// NodesWriter reads scontrol show nodes while it is being written: the megabytes
// that a large cluster makes of it are never in one piece.
type NodesWriter struct {
	rest  []byte // from the beginning of the last record on
	line  int    // how many lines are done with
	nodes []Node
	err   error
}

// Write takes in what comes next. Output that is odd is told by Nodes.
func (w *NodesWriter) Write(p []byte) (int, error) {
	if w.rest = append(w.rest, p...); w.err != nil {
		w.rest = w.rest[:0]
		return len(p), nil
	}
	if end := bytes.LastIndex(w.rest, []byte("\nNodeName=")); end >= 0 {
		w.parse(string(w.rest[:end+1]))
		w.rest = append(w.rest[:0], w.rest[end+1:]...)
	}
	if len(w.rest) > maxNodeRecord {
		return 0, parseError("scontrol show nodes", w.line+1, "more than %d bytes without the end of a node", maxNodeRecord)
	}
	return len(p), nil
}

// maxNodeRecord bounds what is kept of something that is no list of nodes.
const maxNodeRecord = 1 << 20

// Nodes returns the nodes when all is written.
func (w *NodesWriter) Nodes() ([]Node, error) {
	w.parse(string(w.rest))
	w.rest = nil
	return w.nodes, w.err
}

func (w *NodesWriter) parse(text string) {
	if w.err != nil {
		return
	}
	w.err = eachRecord("scontrol show nodes", w.line, text, "NodeName=", func(line int, record string) error {
		n, err := parseNode(record)
		if err != nil {
			return parseError("scontrol show nodes", line, "%w", err)
		}
		w.nodes = append(w.nodes, n)
		return nil
	})
	w.line += strings.Count(text, "\n")
}

func parseNode(record string) (Node, error) {
	var n Node
	var total, effective, reserved int64
	var known [9]bool // the keys that were there already
	var err error
	number := func(value string) int64 {
		if orEmpty(value) == "" {
			return 0
		}
		i, e := strconv.ParseInt(value, 10, 40)
		if (e != nil || i < 0) && err == nil {
			err = fmt.Errorf("node %.60q: %.40q is no number", n.Name, value)
		}
		return i
	}
	text := func(i int, to *string, value string) {
		if !known[i] {
			known[i], *to = true, orEmpty(value)
		}
	}
	count := func(i int, to *int64, value string) {
		if !known[i] {
			known[i], *to = true, number(value)
		}
	}
	var memory int64
	eachField(record, func(key, value string) bool {
		switch key {
		case "NodeName":
			text(0, &n.Name, value)
		case "AvailableFeatures", "Features":
			text(1, &n.Features, value)
		case "Gres":
			text(2, &n.GRES, value)
		case "Partitions":
			text(3, &n.Partitions, value)
		case "State":
			text(4, &n.State, value)
		case "CPUTot":
			count(5, &total, value)
		case "CPUEfctv":
			count(6, &effective, value)
		case "RealMemory":
			count(7, &memory, value)
		case "MemSpecLimit":
			count(8, &reserved, value)
		}
		return key != "BootTime" // what comes behind is how the node is used
	})
	if err == nil && (n.Name == "" || strings.ContainsAny(n.Name, ",[]")) {
		err = fmt.Errorf("%.60q is no name of a node", n.Name)
	}
	n.CPUs, n.Memory = int(total), max(0, memory-reserved)<<20
	if effective > 0 {
		n.CPUs = int(effective)
	}
	return n, err
}

// readText reads the whole output of a command, within reason.
func readText(r io.Reader) (string, error) {
	var b strings.Builder
	if whole, ok := r.(interface {
		Len() int
		io.WriterTo
	}); ok {
		b.Grow(whole.Len())
		_, err := whole.WriteTo(&b)
		return b.String(), err
	}
	const limit = 1 << 30
	n, err := io.Copy(&b, io.LimitReader(r, limit))
	if err == nil && n == limit {
		err = fmt.Errorf("more than %d bytes", limit)
	}
	return b.String(), err
}

// unusable are the states in which a node starts no job until somebody repairs
// it. A node that is powered down or reserved comes back by itself.
var unusable = []string{"DOWN", "DRAIN", "DRAINED", "DRAINING", "FAIL", "FAILING", "ERROR", "FUTURE", "UNKNOWN", "INVAL", "INVALID_REG"}

// Usable reports whether Slurm starts jobs on a node in that state, now or later.
// A state that is not known counts as usable.
func (n Node) Usable() bool {
	for state := range strings.SplitSeq(n.State, "+") {
		if slices.Contains(unusable, strings.TrimRight(state, "*$~#!%@^-")) {
			return false
		}
	}
	return true
}

// GRES is a generic resource of a node.
type GRES struct {
	Name  string // such as gpu
	Type  string // such as a100, may be empty
	Count int64
}

// ParseGRES reads a list such as gpu:a100:4(S:0-1),shard:8. A count may have K, M
// or G, which are powers of 1024; without a count it is 1.
func ParseGRES(s string) ([]GRES, error) {
	var all []GRES
	for rest := orEmpty(strings.TrimSpace(s)); rest != ""; {
		depth := 0
		end := strings.IndexFunc(rest, func(r rune) bool {
			switch r {
			case '(', '[':
				depth++
			case ')', ']':
				depth--
			}
			return r == ',' && depth == 0
		})
		item := rest
		if end >= 0 {
			item, rest = rest[:end], rest[end+1:]
		} else {
			rest = ""
		}
		item, _, _ = strings.Cut(item, "(")
		parts := strings.Split(item, ":")
		parts = slices.DeleteFunc(parts, func(p string) bool { return p == "no_consume" })
		if len(parts) == 0 || parts[0] == "" {
			return nil, fmt.Errorf("%.60q is no list of GRES", s)
		}
		g := GRES{Name: parts[0], Count: 1}
		if n, ok := gresCount(parts[len(parts)-1]); ok && len(parts) > 1 {
			g.Count, parts = n, parts[:len(parts)-1]
		}
		g.Type = strings.Join(parts[1:], ":")
		all = append(all, g)
	}
	return all, nil
}

func gresCount(s string) (int64, bool) {
	shift := 0
	if s != "" {
		if i := strings.IndexByte("KMG", s[len(s)-1]); i >= 0 {
			s, shift = s[:len(s)-1], 10*(i+1)
		}
	}
	n, err := strconv.ParseInt(s, 10, 32)
	return n << shift, err == nil && n >= 0
}
