package jobpool

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/urfave/cli/v2"

	"github.com/ponos-tools/ponos/lib/base/app"
	"github.com/ponos-tools/ponos/lib/base/fault"
	"github.com/ponos-tools/ponos/lib/base/unit"
	"github.com/ponos-tools/ponos/lib/pool"
	"github.com/ponos-tools/ponos/lib/pool/input"
	"github.com/ponos-tools/ponos/lib/pool/scheduler"
)

// taskInput is what the command line says of where tasks come from.
type taskInput struct {
	c        *cli.Context
	v        *values
	template []string
	sources  []input.Source
	stdin    bool // standard input is read
	serve    bool
}

// inputFlags say how tasks are read.
var inputFlags = []string{
	"arg-file", "null", "delimiter", "jsonl", "colsep", "csv", "header", "trim", "eof", "no-run-if-empty", "link",
	"max-args", "max-replace-args", "max-lines", "X", "m", "xargs", "max-chars", "replace", "quote", "plus",
	"pipe", "block", "recend", "results", "dry-run",
}

func readInput(c *cli.Context, serve bool) (*taskInput, error) {
	in := &taskInput{c: c, v: &values{c: c}, serve: serve}
	if serve {
		for _, name := range inputFlags {
			if c.IsSet(name) {
				return nil, fault.Errorf(fault.Usage, "serve: --%s is for a run: tasks come from jobpool call", name)
			}
		}
		return in, nil
	}
	var more []input.Source
	var err error
	if in.template, more, err = input.Split(c.Args().Slice()); err != nil {
		return nil, err
	}
	for _, name := range c.StringSlice("arg-file") {
		if name == "" {
			return nil, fault.Errorf(fault.Usage, "--arg-file: file name is missing")
		}
		in.sources = append(in.sources, input.Source{Mark: "--arg-file", File: name, IsFile: true})
	}
	in.sources = append(in.sources, more...)
	isStdin := func(s input.Source) bool { return s.IsFile && s.File == "-" }
	in.stdin = len(in.sources) == 0 || slices.ContainsFunc(in.sources, isStdin)
	return in, in.exclusions()
}

// exclusions refuses options that do not go together.
func (in *taskInput) exclusions() error {
	c := in.c
	if c.Bool("jsonl") {
		for _, name := range inputFlags {
			if c.IsSet(name) && !slices.Contains([]string{"jsonl", "arg-file", "dry-run", "results"}, name) {
				return fault.Errorf(fault.Usage, "--jsonl and --%s cannot be combined", name)
			}
		}
		if len(in.template) > 0 || len(in.sources) > 1 || len(in.sources) == 1 && !in.sources[0].IsFile {
			return fault.Errorf(fault.Usage, "--jsonl cannot be combined with a template or arguments")
		}
	}
	pairs := [][2]string{
		{"null", "delimiter"}, {"max-args", "max-replace-args"}, {"X", "m"}, {"X", "xargs"}, {"m", "xargs"},
		{"link", "pipe"}, {"pipe", "null"}, {"pipe", "delimiter"}, {"pipe", "colsep"}, {"pipe", "max-args"},
		{"pipe", "X"}, {"pipe", "m"}, {"pipe", "xargs"}, {"pipe", "results"}, {"pipe", "trim"},
		{"pipe", "eof"}, {"pipe", "no-run-if-empty"}, {"pipe", "csv"}, {"csv", "null"}, {"csv", "delimiter"},
	}
	for _, p := range pairs {
		if c.IsSet(p[0]) && c.IsSet(p[1]) {
			return fault.Errorf(fault.Usage, "%s and %s cannot be combined", dashed(p[:1]), dashed(p[1:]))
		}
	}
	for _, p := range [][]string{{"block", "pipe"}, {"recend", "pipe"}, {"max-chars", "X", "m", "xargs"}} {
		if c.IsSet(p[0]) && !slices.ContainsFunc(p[1:], c.Bool) {
			one := ""
			if len(p) > 2 {
				one = "one of "
			}
			return fault.Errorf(fault.Usage, "%s requires %s%s", dashed(p[:1]), one, dashed(p[1:]))
		}
	}
	if c.IsSet("header") && c.String("header") != ":" {
		return fault.Errorf(fault.Usage, `--header: invalid value %q: expected ":"`, c.String("header"))
	}
	if c.IsSet("env") && !c.Bool("quiet") {
		fmt.Fprintln(c.App.ErrWriter, "jobpool: --env has no effect: tasks have the environment of jobpool")
	}
	if c.IsSet("results") {
		if o := in.v.output(); o.Files || o.Merged {
			return fault.Errorf(fault.Usage, "--results and --output %s cannot be combined", c.String("output"))
		}
	}
	return nil
}

// dashed are names of options as a user writes them.
func dashed(names []string) string {
	var out []string
	for _, name := range names {
		if len(name) > 1 {
			name = "-" + name
		}
		out = append(out, "-"+name)
	}
	return strings.Join(out, ", ")
}

// open opens the input. Its blocks bound what the policy says of tasks in memory.
func (in *taskInput) open(base pool.Spec, at *place, shell bool, policy *scheduler.Policy) (input.Tasks, error) {
	if in.serve {
		return nil, nil
	}
	c, v := in.c, in.v
	if !shell {
		if err := in.functions(os.Environ()); err != nil {
			return nil, err
		}
	}
	o := input.Options{
		Null: c.Bool("null"), JSON: c.Bool("jsonl"), Columns: c.String("colsep"), CSV: c.Bool("csv"), Base: base, Template: in.template,
		Header: c.IsSet("header"), Link: c.Bool("link"), Trim: c.String("trim"), SkipBlank: c.Bool("no-run-if-empty"),
		Mark: c.String("replace"), Quote: c.Bool("quote"), Plus: c.Bool("plus"), Shell: shell,
	}
	if c.IsSet("delimiter") {
		if o.Delimiter = unescape(c.String("delimiter")); len(o.Delimiter) != 1 {
			v.fail("delimiter", fmt.Errorf("invalid value %q: expected one character", c.String("delimiter")))
		}
	}
	for _, name := range []string{"colsep", "replace", "results"} {
		if c.IsSet(name) && c.String(name) == "" {
			v.fail(name, fmt.Errorf("the text is empty"))
		}
	}
	if c.IsSet("eof") {
		text := c.String("eof")
		o.EOF = &text
	}
	if dir := c.String("results"); dir != "" {
		if !filepath.IsAbs(dir) {
			cwd, err := os.Getwd()
			if err != nil {
				return nil, err
			}
			dir = cwd + "/" + dir // with "{//}" as it is
		}
		o.Results = dir
	}
	if c.Bool("pipe") {
		return in.blocks(o, policy)
	}
	o.Group = in.group(at)
	if v.err != nil {
		return nil, v.err
	}
	if len(in.sources) == 1 && in.sources[0].IsFile && (o.JSON || len(in.template) == 0) {
		return in.commands(o) // one file of commands
	}
	in.announce()
	r, err := input.Open(c.App.Reader, in.sources, o)
	if err != nil {
		return nil, err
	}
	return r, nil
}

// commands reads commands or JSON lines from one file.
func (in *taskInput) commands(o input.Options) (input.Tasks, error) {
	from := in.c.App.Reader
	if name := in.sources[0].File; name != "-" {
		f, err := os.Open(name)
		if err != nil {
			return nil, fault.Errorf(fault.Usage, "%s: %w", in.sources[0].Mark, err)
		}
		from, o.Name = f, name
	} else {
		in.announce()
	}
	r, err := input.Open(from, nil, o)
	if err != nil {
		return nil, err
	}
	return r, nil
}

// counted is an input that knows whether there was anything in it.
type counted struct {
	input.Tasks
	some, ended atomic.Bool
}

// Next implements [input.Tasks].
func (t *counted) Next() (*pool.Task, error) {
	next, err := t.Tasks.Next()
	if errors.Is(err, io.EOF) {
		t.ended.Store(true)
	} else {
		t.some.Store(true)
	}
	return next, err
}

// reportEmpty reports that there was nothing in the input, which is most often a mistake in the pipe.
func (in *taskInput) reportEmpty(t *counted, message func(format string, args ...any)) {
	if c := in.c; t.some.Load() || !t.ended.Load() || c.Bool("quiet") || c.Bool("no-run-if-empty") {
		return
	}
	message("the input contains no %s", in.what())
}

// what the input consists of.
func (in *taskInput) what() string {
	switch {
	case in.c.Bool("pipe"):
		return "records"
	case len(in.template) > 0:
		return "arguments"
	}
	return "commands"
}

// announce says on a terminal what is to be typed.
func (in *taskInput) announce() {
	if in.stdin && app.IsTerminal(in.c.App.Reader) {
		fmt.Fprintf(in.c.App.ErrWriter, "jobpool: reading %s from the terminal, one per line; Ctrl-D ends them\n", in.what())
	}
}

// group reads how many arguments a command gets.
func (in *taskInput) group(at *place) input.Group {
	c, v := in.c, in.v
	g := input.Group{
		Max: v.count("max-args", 0, 0), Lines: v.count("max-lines", 0, 1), Chars: v.count("max-chars", 0, 1),
		Context: c.Bool("X"), Fill: c.Bool("X") || c.Bool("m") || c.Bool("xargs"),
	}
	if c.IsSet("max-replace-args") {
		g.Max = v.count("max-replace-args", 0, 0)
	}
	g.None = g.Max == 0 && (c.IsSet("max-args") || c.IsSet("max-replace-args"))
	if g.Chars > input.MaxChars {
		v.fail("max-chars", fmt.Errorf("%d is more than %d", g.Chars, input.MaxChars))
	}
	if c.Bool("X") || c.Bool("m") {
		g.Spread = at.slots()
	}
	return g
}

// memory is how much of --pipe's blocks wait at most, besides two.
const memory = 64 << 20

// blockSize reads the size of a block as GNU parallel does: K, M and G are powers of
// 1024, and k, m and g of 1000.
func blockSize(text string) (int64, error) {
	if i := len(text) - 1; i > 0 && strings.IndexByte("KMGTP", text[i]) >= 0 {
		text += "iB"
	}
	return unit.Size(text)
}

// blocks reads blocks of standard input, or of one file.
func (in *taskInput) blocks(o input.Options, policy *scheduler.Policy) (input.Tasks, error) {
	c, v := in.c, in.v
	cut := input.Cut{
		Size: 1 << 20, Records: v.count("max-replace-args", 0, 1), Lines: v.count("max-lines", 0, 1),
		End: "\n", Header: o.Header,
	}
	if c.IsSet("recend") {
		cut.End = unescape(c.String("recend"))
	}
	if text := c.String("block"); c.IsSet("block") {
		n, err := blockSize(text)
		if err == nil && (n < 1 || n > maxBlock) {
			err = fmt.Errorf("invalid size %q: expected one from 1 byte to 512MiB", text)
		}
		if cut.Size = n; err != nil {
			v.fail("block", err)
		}
	}
	if v.err != nil {
		return nil, v.err
	}
	if len(in.sources) > 1 || len(in.sources) == 1 && !in.sources[0].IsFile {
		return nil, fault.Errorf(fault.Usage, "--pipe reads standard input or one file, not arguments")
	}
	policy.ReadAhead = min(policy.ReadAhead, max(2, int(memory/cut.Size)))
	from := c.App.Reader
	o.Name = "standard input"
	if len(in.sources) == 1 && in.sources[0].File != "-" {
		f, err := os.Open(in.sources[0].File)
		if err != nil {
			return nil, fault.Errorf(fault.Usage, "%s: %w", in.sources[0].Mark, err)
		}
		from, o.Name = f, in.sources[0].File
	}
	b, err := input.NewBlocks(from, cut, o)
	if err != nil {
		return nil, err
	}
	return b, nil
}

// maxBlock limits --block.
const maxBlock = 512 << 20

// functions refuses a function of bash as a command where no bash is to run it.
func (in *taskInput) functions(environ []string) error {
	if len(in.template) == 0 {
		return nil
	}
	words := strings.Fields(in.template[0])
	if len(words) == 0 {
		return nil
	}
	for _, kv := range bashFunctions(environ) {
		if strings.HasPrefix(kv, bashFunction+words[0]+"%%=") {
			return fault.Hint(
				fault.Errorf(fault.Usage, "%q is a function of bash, and commands are not run by bash", words[0]),
				"use --shell bash")
		}
	}
	return nil
}

// bashFunction begins the variables in which bash exports functions.
const bashFunction = "BASH_FUNC_"

func bashFunctions(environ []string) []string {
	return slices.DeleteFunc(slices.Clone(environ), func(kv string) bool { return !strings.HasPrefix(kv, bashFunction) })
}

// unescape reads \n, \t, \r, \0 and \\ in an option.
func unescape(s string) string {
	return strings.NewReplacer(`\n`, "\n", `\t`, "\t", `\r`, "\r", `\0`, "\x00", `\\`, `\`).Replace(s)
}
