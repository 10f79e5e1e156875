package input

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/ponos-tools/ponos/lib/base/fault"
	"github.com/ponos-tools/ponos/lib/base/unit"
	"github.com/ponos-tools/ponos/lib/pool"
	"github.com/ponos-tools/ponos/lib/pool/wire"
)

// Object is a task as JSON.
type Object struct {
	ID       jsonText             `json:"id,omitempty"`
	Cmd      wire.Text            `json:"cmd,omitempty"`
	Argv     []wire.Text          `json:"argv,omitempty"`
	CPUs     *jsonText            `json:"cpus,omitempty"`
	GPUs     *jsonText            `json:"gpus,omitempty"`
	Mem      *jsonSize            `json:"mem,omitempty"`
	Nodes    *jsonText            `json:"nodes,omitempty"`
	Need     *jsonNeed            `json:"need,omitempty"`
	Timeout  *jsonText            `json:"timeout,omitempty"`
	Time     *jsonText            `json:"time,omitempty"`
	Priority *jsonText            `json:"priority,omitempty"`
	Cwd      *wire.Text           `json:"cwd,omitempty"`
	Env      map[string]wire.Text `json:"env,omitempty"`
	After    jsonList             `json:"after,omitempty"`
	Stdin    wire.Text            `json:"stdin,omitempty"`
	Tag      string               `json:"tag,omitempty"`
	Capture  bool                 `json:"capture,omitempty"`
}

// Set sets what is not empty.
func (o *Object) Set(cpus, gpus, mem, need, nodes, timeout string) error {
	for _, x := range []struct {
		to   **jsonText
		text string
	}{{&o.CPUs, cpus}, {&o.GPUs, gpus}, {&o.Nodes, nodes}, {&o.Timeout, timeout}} {
		if x.text != "" {
			v := jsonText(x.text)
			*x.to = &v
		}
	}
	if need != "" {
		if err := Set(&pool.Spec{}, "need", need); err != nil {
			return err
		}
		o.Need = (*jsonNeed)(&need)
	}
	if mem == "" {
		return nil
	}
	n, err := unit.SizeWithUnit(mem)
	size := jsonSize(n)
	o.Mem = &size
	return err
}

// jsonText is a string or a number.
type jsonText string

func (t *jsonText) UnmarshalJSON(b []byte) error {
	var s string
	if json.Unmarshal(b, &s) == nil {
		*t = jsonText(s)
		return nil
	}
	var n json.Number
	if err := json.Unmarshal(b, &n); err != nil {
		return fmt.Errorf("%s is neither a string nor a number", b)
	}
	*t = jsonText(n)
	return nil
}

// jsonSize is a string such as "4G", or a number of bytes.
type jsonSize int64

func (t *jsonSize) UnmarshalJSON(b []byte) error {
	var n int64
	if json.Unmarshal(b, &n) == nil && n >= 0 {
		*t = jsonSize(n)
		return nil
	}
	var s string
	err := json.Unmarshal(b, &s)
	if err == nil {
		n, err = unit.SizeWithUnit(s)
	}
	*t = jsonSize(n)
	return err
}

// jsonNeed is what a task needs as --need has it: a string such as "license=1,scratch=50G", or an object.
type jsonNeed string

func (n *jsonNeed) UnmarshalJSON(b []byte) error {
	var s string
	if json.Unmarshal(b, &s) == nil {
		*n = jsonNeed(s)
		return nil
	}
	var object map[string]jsonText
	if err := json.Unmarshal(b, &object); err != nil {
		return fmt.Errorf("need: %s is neither an object nor a string", b)
	}
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(object)) {
		part := name + "=" + string(object[name])
		if strings.Count(part, "=") > 1 || strings.ContainsAny(part, ",|") {
			return fmt.Errorf("need: %q is not of the form NAME=AMOUNT", part)
		}
		parts = append(parts, part)
	}
	*n = jsonNeed(strings.Join(parts, ","))
	return nil
}

// jsonList is one id or a list of them.
type jsonList []string

func (l *jsonList) UnmarshalJSON(b []byte) error {
	var one jsonText
	if !bytes.HasPrefix(b, []byte("[")) {
		if err := one.UnmarshalJSON(b); err != nil {
			return err
		}
		*l = jsonList{string(one)}
		return nil
	}
	var many []jsonText
	if err := json.Unmarshal(b, &many); err != nil {
		return err
	}
	for _, id := range many {
		*l = append(*l, string(id))
	}
	return nil
}

func (in *Reader) fromJSON(text string) (*pool.Task, error) {
	if !utf8.ValidString(text) { // it would be decoded to another command
		return nil, errors.New(`not a task: not valid UTF-8: use {"b64":"..."} for other text`)
	}
	var o Object
	d := json.NewDecoder(strings.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&o); err != nil {
		return nil, fmt.Errorf("not a task: %s", fault.Text(err))
	}
	if d.More() {
		return nil, errors.New("not a task: more than one object in a line")
	}
	t := &pool.Task{Seq: in.seq}
	spec, err := o.apply(t, in.now)
	if err != nil {
		return nil, err
	}
	t.Spec = in.specs.get(spec)
	return t, nil
}

// Task makes a task of o, with the defaults of base.
func (o *Object) Task(seq int64, base pool.Spec) (*pool.Task, error) {
	t := &pool.Task{Seq: seq}
	spec, err := o.apply(t, base)
	t.Spec = &spec
	return t, err
}

func (o *Object) apply(t *pool.Task, spec pool.Spec) (pool.Spec, error) {
	switch {
	case o.Cmd != "" && o.Argv != nil:
		return spec, errors.New(`"cmd" and "argv" cannot be combined`)
	case o.Argv != nil:
		if len(o.Argv) == 0 || o.Argv[0] == "" {
			return spec, errors.New(`"argv" names no program`)
		}
		t.Text, spec.Argv = strings.Join(wire.Strings(o.Argv), "\x00"), true
		if strings.Count(t.Text, "\x00") != len(o.Argv)-1 {
			return spec, errors.New("command has a NUL in it")
		}
	case strings.TrimSpace(string(o.Cmd)) == "":
		return spec, errors.New(`"cmd" or "argv" is missing`)
	default:
		if t.Text = string(o.Cmd); strings.IndexByte(t.Text, 0) >= 0 {
			return spec, errors.New("command has a NUL in it")
		}
	}
	for _, s := range []struct {
		name  string
		value *jsonText
	}{{"cpus", o.CPUs}, {"gpus", o.GPUs}, {"nodes", o.Nodes}, {"timeout", o.Timeout}, {"time", o.Time}, {"priority", o.Priority}} {
		if s.value != nil {
			if err := Set(&spec, s.name, string(*s.value)); err != nil {
				return spec, err
			}
		}
	}
	if o.Need != nil {
		if err := Set(&spec, "need", string(*o.Need)); err != nil {
			return spec, err
		}
	}
	if o.Mem != nil {
		spec.Need.Mem = int64(*o.Mem)
	}
	if o.Cwd != nil {
		spec.Dir = string(*o.Cwd)
	}
	if len(o.Env) > 0 {
		spec.Env = slices.Clone(spec.Env)
		for name, value := range o.Env {
			if name == "" || strings.ContainsAny(name, "=\x00") || strings.Contains(string(value), "\x00") {
				return spec, fmt.Errorf("environment variable %q cannot be set", name)
			}
			spec.Env = append(spec.Env, name+"="+string(value))
		}
		slices.Sort(spec.Env)
	}
	t.Tag = o.Tag
	if o.ID != "" || len(o.After) > 0 || o.Stdin != "" || o.Capture {
		t.Extra = &pool.Extra{ID: string(o.ID), After: o.After, Stdin: string(o.Stdin), Capture: o.Capture}
	}
	return spec, nil
}
