package input

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ponos-tools/ponos/lib/pool"
)

// maxLine bounds one task in the input.
const maxLine = 1 << 20

// Options say how the input is read.
type Options struct {
	Name     string // for messages
	Null     bool   // tasks end with NUL, not newline
	JSON     bool   // JSON lines
	Template []string
	Columns  string // splits a line into {1}, {2}, …
	Base     pool.Spec
}

// Reader reads tasks.
type Reader struct {
	Options
	r     *bufio.Reader
	args  [][]string // instead of r: what follows ":::"
	odo   []int      // counts through args
	tmpl  *template
	now   pool.Spec
	specs interner
	seq   int64
	line  int64
}

// NewReader reads tasks from r.
func NewReader(r io.Reader, o Options) *Reader {
	in := &Reader{Options: o, r: bufio.NewReaderSize(r, 64<<10), now: o.Base}
	if len(o.Template) > 0 {
		in.tmpl = newTemplate(o.Template)
	}
	return in
}

// NewArguments makes tasks of all combinations of the arguments.
func NewArguments(args [][]string, o Options) *Reader {
	in := NewReader(strings.NewReader(""), o)
	in.args = args
	if !slices.ContainsFunc(args, func(a []string) bool { return len(a) == 0 }) {
		in.odo = make([]int, len(args))
	}
	if in.tmpl == nil {
		in.tmpl = newTemplate([]string{"{}"})
	}
	return in
}

// BadTask is an error in one task. The ones behind it can still be read.
type BadTask struct {
	Seq   int64
	Where string
	Text  string
	Err   error
}

func (e *BadTask) Error() string { return e.Where + ": " + e.Err.Error() }
func (e *BadTask) Unwrap() error { return e.Err }

// Next returns the next task; io.EOF at the end. After a *BadTask it can be
// called again; any other error is the last.
func (in *Reader) Next() (*pool.Task, error) {
	if in.args != nil {
		return in.nextArguments()
	}
	for {
		text, err := in.read()
		if err != nil {
			return nil, err
		}
		if !in.Null {
			text = strings.TrimSuffix(text, "\r")
		}
		trimmed := strings.TrimSpace(text)
		if trimmed == "" {
			continue
		}
		if !in.Null && strings.HasPrefix(trimmed, "#") {
			if rest, ok := strings.CutPrefix(trimmed, Directive); ok && (rest == "" || rest[0] == ' ' || rest[0] == '\t') {
				if in.now, err = directive(in.Base, in.now, rest); err != nil {
					return nil, fmt.Errorf("%s:%d: %w", in.Name, in.line, err)
				}
				continue
			}
			if in.tmpl == nil {
				continue
			}
		}
		in.seq++
		t, err := in.task(text)
		if err != nil {
			return nil, in.bad(text, err)
		}
		return t, nil
	}
}

// Ready reports whether the next line is there already.
func (in *Reader) Ready() bool {
	if in.args != nil {
		return true
	}
	end := byte('\n')
	if in.Null {
		end = 0
	}
	b, _ := in.r.Peek(in.r.Buffered())
	return bytes.IndexByte(b, end) >= 0
}

func (in *Reader) bad(text string, err error) error {
	return &BadTask{Seq: in.seq, Where: fmt.Sprintf("%s:%d", in.Name, in.line), Text: text, Err: err}
}

// read returns the next line or record.
func (in *Reader) read() (string, error) {
	end := byte('\n')
	if in.Null {
		end = 0
	}
	in.line++
	var long []byte
	for {
		b, err := in.r.ReadSlice(end)
		switch {
		case err == nil && long == nil:
			return string(b[:len(b)-1]), nil
		case len(long)+len(b) > maxLine:
			for errors.Is(err, bufio.ErrBufferFull) {
				_, err = in.r.ReadSlice(end)
			}
			in.seq++
			return "", in.bad(string(long[:80])+"…", errors.New("task is longer than 1 MiB"))
		case err == nil:
			return string(append(long, b[:len(b)-1]...)), nil
		case errors.Is(err, bufio.ErrBufferFull):
			long = append(long, b...)
		case errors.Is(err, io.EOF) && len(long)+len(b) > 0:
			return string(append(long, b...)), nil
		case errors.Is(err, io.EOF):
			return "", io.EOF
		default:
			return "", fmt.Errorf("%s: %w", in.Name, err)
		}
	}
}

func (in *Reader) task(text string) (*pool.Task, error) {
	if in.JSON {
		return in.fromJSON(text)
	}
	t := &pool.Task{Seq: in.seq}
	if in.tmpl == nil {
		if strings.IndexByte(text, 0) >= 0 {
			return nil, errors.New("command has a NUL in it")
		}
		t.Text, t.Spec = text, in.specs.get(in.now)
		return t, nil
	}
	fields := []string{text}
	if in.Columns != "" {
		fields = strings.Split(text, in.Columns)
	}
	return in.fill(t, text, fields)
}

func (in *Reader) fill(t *pool.Task, whole string, fields []string) (*pool.Task, error) {
	text, argv, err := in.tmpl.fill(whole, fields, t.Seq)
	if err != nil {
		return nil, err
	}
	spec := in.now
	spec.Argv, spec.SlotMark = argv, in.tmpl.slot
	t.Text, t.Tag, t.Spec = text, whole, in.specs.get(spec)
	return t, nil
}

func (in *Reader) nextArguments() (*pool.Task, error) {
	if in.odo == nil {
		return nil, io.EOF
	}
	fields := make([]string, len(in.args))
	for i, at := range in.odo {
		fields[i] = in.args[i][at]
	}
	last := true
	for i := len(in.odo) - 1; i >= 0; i-- {
		if in.odo[i]++; in.odo[i] < len(in.args[i]) {
			last = false
			break
		}
		in.odo[i] = 0
	}
	if last {
		in.odo = nil
	}
	in.seq++
	in.line++
	t, err := in.fill(&pool.Task{Seq: in.seq}, strings.Join(fields, " "), fields)
	if err != nil {
		return nil, in.bad(strings.Join(fields, " "), err)
	}
	return t, nil
}

// Object is a task as JSON.
type Object struct {
	ID       jsonText          `json:"id,omitempty"`
	Cmd      string            `json:"cmd,omitempty"`
	Argv     []string          `json:"argv,omitempty"`
	CPUs     *jsonText         `json:"cpus,omitempty"`
	GPUs     *jsonText         `json:"gpus,omitempty"`
	Mem      *jsonSize         `json:"mem,omitempty"`
	Timeout  *jsonText         `json:"timeout,omitempty"`
	Time     *jsonText         `json:"time,omitempty"`
	Priority *jsonText         `json:"priority,omitempty"`
	Cwd      *string           `json:"cwd,omitempty"`
	Env      map[string]string `json:"env,omitempty"`
	After    jsonList          `json:"after,omitempty"`
	Stdin    string            `json:"stdin,omitempty"`
	Tag      string            `json:"tag,omitempty"`
	Capture  bool              `json:"capture,omitempty"`
}

// Set sets what is not empty.
func (o *Object) Set(cpus, gpus, mem, timeout string) error {
	for _, x := range []struct {
		to   **jsonText
		text string
	}{{&o.CPUs, cpus}, {&o.GPUs, gpus}, {&o.Timeout, timeout}} {
		if x.text != "" {
			v := jsonText(x.text)
			*x.to = &v
		}
	}
	if mem == "" {
		return nil
	}
	n, err := ParseSize(mem)
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
		n, err = ParseSize(s)
	}
	*t = jsonSize(n)
	return err
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
	var o Object
	d := json.NewDecoder(strings.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&o); err != nil {
		return nil, fmt.Errorf("not a task: %s", strings.TrimPrefix(err.Error(), "json: "))
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
		return spec, errors.New(`"cmd" and "argv" exclude each other`)
	case o.Argv != nil:
		if len(o.Argv) == 0 || o.Argv[0] == "" {
			return spec, errors.New(`"argv" names no program`)
		}
		t.Text, spec.Argv = strings.Join(o.Argv, "\x00"), true
		if strings.Count(t.Text, "\x00") != len(o.Argv)-1 {
			return spec, errors.New("command has a NUL in it")
		}
	case strings.TrimSpace(o.Cmd) == "":
		return spec, errors.New(`"cmd" or "argv" is missing`)
	default:
		if t.Text = o.Cmd; strings.IndexByte(o.Cmd, 0) >= 0 {
			return spec, errors.New("command has a NUL in it")
		}
	}
	for _, s := range []struct {
		name  string
		value *jsonText
	}{{"cpus", o.CPUs}, {"gpus", o.GPUs}, {"timeout", o.Timeout}, {"time", o.Time}, {"priority", o.Priority}} {
		if s.value != nil {
			if err := Set(&spec, s.name, string(*s.value)); err != nil {
				return spec, err
			}
		}
	}
	if o.Mem != nil {
		spec.Need.Mem = int64(*o.Mem)
	}
	if o.Cwd != nil {
		spec.Dir = *o.Cwd
	}
	if len(o.Env) > 0 {
		spec.Env = slices.Clone(spec.Env)
		for name, value := range o.Env {
			if name == "" || strings.ContainsAny(name, "=\x00") || strings.Contains(value, "\x00") {
				return spec, fmt.Errorf("environment variable %q cannot be set", name)
			}
			spec.Env = append(spec.Env, name+"="+value)
		}
		slices.Sort(spec.Env)
	}
	t.Tag = o.Tag
	if o.ID != "" || len(o.After) > 0 || o.Stdin != "" || o.Capture {
		t.Extra = &pool.Extra{ID: string(o.ID), After: o.After, Stdin: o.Stdin, Capture: o.Capture}
	}
	return spec, nil
}

// Seconds formats a duration for messages.
func Seconds(d time.Duration) string {
	switch {
	case d < 10*time.Second:
		return strconv.FormatFloat(d.Seconds(), 'f', 2, 64) + "s"
	case d < time.Minute:
		return strconv.FormatFloat(d.Seconds(), 'f', 1, 64) + "s"
	case d < time.Hour:
		return fmt.Sprintf("%dm%02ds", int(d.Minutes()), int(d.Seconds())%60)
	}
	return fmt.Sprintf("%dh%02dm", int(d.Hours()), int(d.Minutes())%60)
}
