package file

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/ponos-tools/ponos/lib/base/spelling"
	"github.com/ponos-tools/ponos/lib/base/unit"
)

// Limits of a file. Aliases could otherwise expand a small file without end.
const (
	maxSize     = 64 << 20
	maxNodes    = 1 << 20
	maxProblems = 100
	maxDepth    = 64
)

// decoder walks a YAML document and collects its problems.
type decoder struct {
	name     string
	problems []Problem
	visited  int
	depth    int
}

func (d *decoder) add(n *yaml.Node, warning bool, hint, format string, args ...any) {
	if len(d.problems) >= maxProblems {
		return
	}
	pos := Pos{1, 1}
	if n != nil {
		pos = posOf(n)
	}
	d.problems = append(d.problems, Problem{d.name, pos, warning, fmt.Sprintf(format, args...), hint})
}

func (d *decoder) fail(n *yaml.Node, format string, args ...any) {
	d.add(n, false, "", format, args...)
}
func (d *decoder) warn(n *yaml.Node, format string, args ...any) { d.add(n, true, "", format, args...) }

func posOf(n *yaml.Node) Pos { return Pos{max(1, n.Line), max(1, n.Column)} }

// document parses text, which must hold at most one document. It returns nil if there is none,
// or after a syntax error.
func (d *decoder) document(text []byte) *yaml.Node {
	if len(text) > maxSize {
		d.fail(nil, "the file has more than %d bytes", maxSize)
		return nil
	}
	reader := yaml.NewDecoder(bytes.NewReader(text))
	var document, second yaml.Node
	if err := reader.Decode(&document); errors.Is(err, io.EOF) {
		return nil
	} else if err != nil {
		d.syntax(err)
		return nil
	}
	if err := reader.Decode(&second); err == nil {
		d.fail(&second, "a second document begins here; only one is read")
	} else if !errors.Is(err, io.EOF) {
		d.syntax(err)
	}
	if len(document.Content) == 0 {
		return nil
	}
	return document.Content[0]
}

var yamlLine = regexp.MustCompile(`^yaml: (?:line (\d+): )?`)

// syntax reports an error of the YAML parser, whose text contains the line number.
func (d *decoder) syntax(err error) {
	text := err.Error()
	line := 1
	if m := yamlLine.FindStringSubmatch(text); m != nil {
		text = text[len(m[0]):]
		if n, e := strconv.Atoi(m[1]); e == nil {
			line = n
		}
	}
	d.add(&yaml.Node{Line: line, Column: 1}, false, "", "not valid YAML: %s", text)
}

// resolve follows aliases and counts the nodes seen. It returns nil when the
// document is too large to continue.
func (d *decoder) resolve(n *yaml.Node) *yaml.Node {
	for range maxDepth {
		if d.visited++; d.visited > maxNodes {
			if d.visited == maxNodes+1 {
				d.fail(n, "the file stands for more than %d values", maxNodes)
			}
			return nil
		}
		if n.Kind != yaml.AliasNode || n.Alias == nil {
			return n
		}
		n = n.Alias
	}
	return nil
}

func isNull(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.Tag == "!!null" }

// fields maps the keys of a mapping to the functions that read their values.
type fields map[string]func(*yaml.Node)

// mapping reads a mapping with known keys. Null is an empty mapping.
func (d *decoder) mapping(n *yaml.Node, what string, known fields) {
	d.pairs(n, what, func(key, value *yaml.Node) {
		read, ok := known[key.Value]
		if ok {
			read(value)
			return
		}
		names := make([]string, 0, len(known))
		for name := range known {
			names = append(names, name)
		}
		slices.Sort(names)
		hint := ""
		if near := spelling.Nearest(key.Value, names); near != "" {
			hint = fmt.Sprintf("did you mean %q?", near)
		}
		d.add(key, false, hint, "%s has no key %q", what, key.Value)
	})
}

// pairs reads a mapping with arbitrary keys. Each key is read once; keys from merges (<<) come
// last and do not override others.
func (d *decoder) pairs(n *yaml.Node, what string, each func(key, value *yaml.Node)) {
	if n = d.resolve(n); n == nil || isNull(n) {
		return
	}
	if n.Kind != yaml.MappingNode {
		d.fail(n, "%s must be a mapping (key: value), not %s", what, kindName(n))
		return
	}
	if d.depth++; d.depth > maxDepth {
		d.fail(n, "mappings are nested more than %d deep", maxDepth)
		d.depth--
		return
	}
	defer func() { d.depth-- }()
	seen := make(map[string]*yaml.Node, len(n.Content)/2)
	var merged []*yaml.Node
	for i := 0; i+1 < len(n.Content); i += 2 {
		key := d.resolve(n.Content[i])
		if key == nil {
			return
		}
		if key.Kind != yaml.ScalarNode || isNull(key) {
			d.fail(key, "a key of %s must be a word", what)
			continue
		}
		if key.Tag == "!!merge" {
			merged = append(merged, n.Content[i+1])
			continue
		}
		if first := seen[key.Value]; first != nil {
			d.fail(key, "%s has %q twice, first in line %d", what, key.Value, first.Line)
			continue
		}
		seen[key.Value] = key
		each(key, n.Content[i+1])
	}
	for _, m := range merged {
		sources := []*yaml.Node{m}
		if r := d.resolve(m); r != nil && r.Kind == yaml.SequenceNode {
			sources = r.Content
		}
		for _, source := range sources {
			d.pairs(source, what, func(key, value *yaml.Node) {
				if seen[key.Value] == nil {
					seen[key.Value] = key
					each(key, value)
				}
			})
		}
	}
}

// list reads a sequence. Null is an empty sequence.
func (d *decoder) list(n *yaml.Node, what string, each func(*yaml.Node)) {
	if n = d.resolve(n); n == nil || isNull(n) {
		return
	}
	if n.Kind != yaml.SequenceNode {
		d.fail(n, "%s must be a list, not %s", what, kindName(n))
		return
	}
	for _, item := range n.Content {
		each(item)
	}
}

// strings reads a list of words; a single word is a list of one.
func (d *decoder) strings(to *[]string, what string) func(*yaml.Node) {
	return func(n *yaml.Node) {
		if n = d.resolve(n); n == nil || isNull(n) {
			return
		}
		items := n.Content
		if n.Kind == yaml.ScalarNode {
			items = []*yaml.Node{n}
		} else if n.Kind != yaml.SequenceNode {
			d.fail(n, "%s must be a list, not %s", what, kindName(n))
			return
		}
		list := make([]string, 0, len(items))
		for _, item := range items {
			var s string
			d.string(&s, what)(item)
			if s != "" {
				list = append(list, s)
			}
		}
		*to = list
	}
}

// scalar returns the node of a scalar value and true, or reports what is expected instead.
func (d *decoder) scalar(n *yaml.Node, what, want string) (*yaml.Node, bool) {
	if n = d.resolve(n); n == nil {
		return nil, false
	}
	if n.Kind != yaml.ScalarNode || isNull(n) {
		d.fail(n, "%s must be %s, not %s", what, want, kindName(n))
		return nil, false
	}
	return n, true
}

// string reads a word as written, even if YAML would read it as a number.
func (d *decoder) string(to *string, what string) func(*yaml.Node) {
	return func(n *yaml.Node) {
		n, ok := d.scalar(n, what, "a word")
		switch {
		case !ok:
		case n.Value == "":
			d.fail(n, "%s is empty", what)
		case strings.ContainsFunc(n.Value, func(r rune) bool { return r < ' ' || r == 0x7f }):
			d.fail(n, "%s has control characters", what)
		default:
			*to = n.Value
		}
	}
}

func (d *decoder) int(to *int, what string) func(*yaml.Node) {
	return func(n *yaml.Node) {
		if n, ok := d.scalar(n, what, "a number"); ok {
			i, err := strconv.ParseInt(n.Value, 10, 32)
			if err != nil {
				d.fail(n, "%s must be a whole number, not %q", what, n.Value)
				return
			}
			*to = int(i)
		}
	}
}

// count reads a nonnegative whole number.
func (d *decoder) count(to *int, what string) func(*yaml.Node) {
	return func(n *yaml.Node) {
		i := 0
		d.int(&i, what)(n)
		if i < 0 {
			d.fail(n, "%s must not be negative", what)
			return
		}
		*to = i
	}
}

func (d *decoder) float(to *float64, what string) func(*yaml.Node) {
	return func(n *yaml.Node) {
		if n, ok := d.scalar(n, what, "a number"); ok {
			f, err := strconv.ParseFloat(n.Value, 64)
			if err != nil || f != f || f > 1e15 || f < -1e15 {
				d.fail(n, "%s must be a number, not %q", what, n.Value)
				return
			}
			*to = f
		}
	}
}

func (d *decoder) bool(to *bool, what string) func(*yaml.Node) {
	return func(n *yaml.Node) {
		if n, ok := d.scalar(n, what, "true or false"); ok && n.Decode(to) != nil {
			d.fail(n, "%s must be true or false, not %q", what, n.Value)
		}
	}
}

func (d *decoder) size(to *int64, what string) func(*yaml.Node) {
	return func(n *yaml.Node) {
		n, ok := d.scalar(n, what, "a size, such as 16G")
		if !ok {
			return
		}
		size, err := unit.Size(n.Value)
		if err != nil {
			d.fail(n, "%s: %v", what, err)
			return
		}
		if size > 0 && !unit.HasUnit(n.Value) {
			d.add(n, true, fmt.Sprintf("did you mean %sG or %sMiB?", n.Value, n.Value),
				"%s has no unit and is taken as %s bytes", what, n.Value)
		}
		*to = size
	}
}

func (d *decoder) duration(to *time.Duration, what string) func(*yaml.Node) {
	return func(n *yaml.Node) {
		n, ok := d.scalar(n, what, "a duration, such as 20h")
		if !ok {
			return
		}
		length, err := unit.Duration(n.Value)
		if errors.Is(err, unit.ErrNoUnit) {
			if length, err = unit.Times(n.Value, time.Second); err == nil && length > 0 {
				d.add(n, true, fmt.Sprintf("did you mean %sh?", n.Value), "%s has no unit and is taken as %s seconds", what, n.Value)
			}
		}
		if err != nil {
			d.fail(n, "%s: %v", what, err)
			return
		}
		*to = length
	}
}

func kindName(n *yaml.Node) string {
	switch {
	case isNull(n):
		return "nothing"
	case n.Kind == yaml.MappingNode:
		return "a mapping"
	case n.Kind == yaml.SequenceNode:
		return "a list"
	}
	return fmt.Sprintf("%.40q", n.Value)
}
