package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"reflect"
	"sort"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/ponos-tools/ponos/lib/base/fault"
	"github.com/ponos-tools/ponos/lib/base/spelling"
	"github.com/ponos-tools/ponos/lib/base/unit"
	"github.com/ponos-tools/ponos/lib/slurm/sbatch"
)

// maxSize limits a configuration in bytes.
const maxSize = 1 << 20

// Parse reads and checks a configuration. Path is used in messages, and relative paths in the file
// are relative to its directory.
func Parse(r io.Reader, path string, kinds Kinds) (Config, error) {
	c := Default()
	c.Path = path
	text, err := io.ReadAll(io.LimitReader(r, maxSize+1))
	if err == nil && len(text) > maxSize {
		err = fmt.Errorf("larger than %d bytes", maxSize)
	}
	if err != nil {
		return c, fault.Errorf(fault.Usage, "%s: %w", path, err)
	}
	d := decoder{path: path, lines: map[string]int{}}
	var doc yaml.Node
	yd := yaml.NewDecoder(bytes.NewReader(text))
	switch err := yd.Decode(&doc); {
	case errors.Is(err, io.EOF):
	case err != nil:
		return c, fault.Errorf(fault.Usage, "%s: %s", path, strings.TrimPrefix(err.Error(), "yaml: "))
	default:
		if err := yd.Decode(&yaml.Node{}); !errors.Is(err, io.EOF) {
			return c, fault.Errorf(fault.Usage, "%s: it has more than one document", path)
		}
		d.decode(doc.Content[0], reflect.ValueOf(&c).Elem(), "")
	}
	c.seen, c.lines = d.top, d.lines
	c.finish(kinds, d.problem)
	return c, d.err()
}

// decoder collects the problems of a file.
type decoder struct {
	path     string
	problems []problem
	lines    map[string]int // key -> line
	top      map[string]bool
}

type problem struct {
	line int
	text string
}

func (d *decoder) problem(key, format string, args ...any) {
	line := d.lines[key]
	for k := key; line == 0 && k != ""; line = d.lines[k] {
		k = k[:max(0, strings.LastIndexByte(k, '.'))]
	}
	d.at(line, key, format, args...)
}

func (d *decoder) at(line int, key, format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if key != "" {
		text = key + ": " + text
	}
	d.problems = append(d.problems, problem{line, text})
}

func (d *decoder) err() error {
	if len(d.problems) == 0 {
		return nil
	}
	sort.SliceStable(d.problems, func(i, j int) bool { return d.problems[i].line < d.problems[j].line })
	var all []error
	for _, p := range d.problems {
		where := d.path
		if p.line > 0 {
			where += ":" + strconv.Itoa(p.line)
		}
		all = append(all, fault.Errorf(fault.Usage, "%s: %s", where, p.text))
	}
	return errors.Join(all...)
}

// decode decodes node into v; key is its key in the file.
func (d *decoder) decode(node *yaml.Node, v reflect.Value, key string) {
	if node.Kind == yaml.AliasNode {
		node = node.Alias
	}
	if key != "" {
		d.lines[key] = node.Line
	}
	if node.Kind == yaml.ScalarNode && node.Tag == "!!null" {
		return // "key:" without a value keeps the default
	}
	switch target := v.Addr().Interface().(type) {
	case *sbatch.Options:
		d.options(node, target, key)
		return
	case *Requests:
		d.requests(node, target, key)
		return
	case *Names:
		d.names(node, target, key)
		return
	case *OfferFilters:
		d.filters(node, target, key)
		return
	case *map[string]string:
		d.texts(node, target, key)
		return
	case *Duration:
		if node.Kind != yaml.ScalarNode {
			d.at(node.Line, key, "expected a duration such as 30s, 10m, 12h or 30d")
		} else if parsed, err := unit.Duration(node.Value); err != nil {
			d.at(node.Line, key, "%v", err)
		} else {
			*target = Duration(parsed)
		}
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		d.mapping(node, v, key)
	case reflect.String:
		if node.Kind != yaml.ScalarNode {
			d.at(node.Line, key, "expected a string")
			return
		}
		v.SetString(node.Value)
	case reflect.Bool:
		switch strings.ToLower(node.Value) {
		case "true", "yes", "on":
			v.SetBool(true)
		case "false", "no", "off":
			v.SetBool(false)
		default:
			d.at(node.Line, key, "expected true or false")
		}
	case reflect.Int:
		n, err := strconv.Atoi(node.Value)
		if node.Kind != yaml.ScalarNode || err != nil {
			d.at(node.Line, key, "expected a whole number")
			return
		}
		v.SetInt(int64(n))
	case reflect.Float64:
		n, err := strconv.ParseFloat(node.Value, 64)
		if node.Kind != yaml.ScalarNode || err != nil || math.IsInf(n, 0) || math.IsNaN(n) {
			d.at(node.Line, key, "expected a number")
			return
		}
		v.SetFloat(n)
	}
}

func (d *decoder) mapping(node *yaml.Node, v reflect.Value, key string) {
	if node.Kind != yaml.MappingNode {
		what := key
		if what == "" {
			what = "the configuration"
		}
		d.at(node.Line, key, "%s is not a mapping of keys to values", what)
		return
	}
	fields := map[string]reflect.Value{}
	var known []string
	for i := range v.NumField() {
		if name := v.Type().Field(i).Tag.Get("yaml"); name != "" && name != "-" {
			fields[name] = v.Field(i)
			known = append(known, name)
		}
	}
	seen := map[string]bool{}
	for i := 0; i+1 < len(node.Content); i += 2 {
		k, value := node.Content[i], node.Content[i+1]
		full := k.Value
		if key != "" {
			full = key + "." + k.Value
		}
		field, ok := fields[k.Value]
		switch {
		case !ok:
			if near := spelling.Nearest(k.Value, known); near != "" {
				d.at(k.Line, full, "unknown key; did you mean %q?", near)
			} else {
				d.at(k.Line, full, "unknown key; known are %s", strings.Join(known, ", "))
			}
		case seen[k.Value]:
			d.at(k.Line, full, "the key is given twice")
		default:
			d.decode(value, field, full)
		}
		seen[k.Value] = true
	}
	if key == "" {
		d.top = seen
	}
}

// Duration is a length of time: Go's notation, or a whole number of days (30d) or
// weeks (2w).
type Duration time.Duration
