package jobpool

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/ponos-tools/ponos/lib/base/app"
	"github.com/ponos-tools/ponos/lib/base/fault"
	"github.com/ponos-tools/ponos/lib/base/hostlist"
	"github.com/ponos-tools/ponos/lib/base/unit"
	"github.com/ponos-tools/ponos/lib/pool"
	"github.com/ponos-tools/ponos/lib/pool/core"
	"github.com/ponos-tools/ponos/lib/pool/input"
	"github.com/ponos-tools/ponos/lib/pool/scheduler"
	"github.com/ponos-tools/ponos/lib/pool/wire"
)

func runFlags() []cli.Flag {
	str := func(name, usage string, aliases ...string) cli.Flag {
		return &cli.StringFlag{Name: name, Aliases: aliases, Usage: usage}
	}
	flag := func(name, usage string, aliases ...string) cli.Flag {
		return &cli.BoolFlag{Name: name, Aliases: aliases, Usage: usage}
	}
	list := func(name, usage string, aliases ...string) cli.Flag {
		return &cli.StringSliceFlag{Name: name, Aliases: aliases, Usage: usage}
	}
	oneOf := func(name, usage string, words ...string) cli.Flag {
		return app.OneOf(&cli.StringFlag{Name: name, Usage: usage}, words...)
	}
	return []cli.Flag{
		// Input.
		list("arg-file", "read arguments from `FILE` instead of standard input; repeatable", "a"),
		flag("null", "input items end with NUL instead of newline", "0"),
		str("delimiter", "input items end with the character `C` instead of newline", "d"),
		flag("jsonl", "input is JSON lines"),
		str("colsep", "split each line at the regular expression `RE` into {1}, {2}, ...", "C"),
		flag("csv", "lines are rows of a table (CSV); --colsep is the separator (,)"),
		str("header", "with `:`, the first line has the names of the columns, for {NAME}"),
		oneOf("trim", "strip blanks from arguments: `HOW` is n, l, r, lr or rl", "n", "l", "r", "lr", "rl"),
		str("eof", "the argument `TEXT` ends the input", "E"),
		flag("no-run-if-empty", "skip blank arguments", "r"),
		flag("link", "pair the arguments of all sources instead of combining them", "xapply"),
		str("max-args", "put `N` arguments into each command", "n"),
		str("max-replace-args", "put `N` arguments into each command, as {1} to {N}", "N"),
		str("max-lines", "put `N` lines into each command", "L"),
		flag("X", "put as many arguments as fit into each command; repeat words that contain {}"),
		flag("m", "put as many arguments as fit into each command"),
		flag("xargs", "like -m, but not distributed evenly over the slots"),
		str("max-chars", "with -X, -m and --xargs, commands of at most `N` bytes", "s"),
		str("replace", "`TEXT` stands for the argument instead of {}", "I"),
		flag("quote", "take |, >, ; and other operators of the shell in a template as arguments"),
		flag("plus", "for GNU parallel: also {%RE} and {#RE}; report what jobpool lacks as an error"),
		flag("pipe", "cut standard input into blocks, each the input of a command", "spreadstdin"),
		str("block", "with --pipe, blocks of about `SIZE` (1M)"),
		str("recend", "with --pipe, records end with `TEXT` (\\n)"),
		str("read-ahead", "keep at most `N` tasks in memory (1000000)"),
		// What a task needs.
		str("cpus", "CPUs for each task: `N`", "c"),
		str("gpus", "GPUs for each task: `N`, or a part of one such as 0.5"),
		str("mem", "memory for each task: `SIZE`, such as 4GiB"),
		str("need", "named resources for each task: `LIST`, such as license=1"),
		oneOf("mem-limit", "enforce --mem: `HOW` is auto, or none: count only (auto)", "auto", "none"),
		str("task-nodes", "run each task on `N` nodes, each with these CPUs, GPUs and memory"),
		str("timeout", "end a task after `TIME`, or N% of the median"),
		str("kill-after", "wait `TIME` between SIGTERM and SIGKILL (10s)"),
		str("cwd", "run tasks in `DIR`", "D", "wd", "workdir"),
		list("env", "no effect, for GNU parallel: tasks have the environment `NAME`"),
		str("shell", "run commands with `SHELL`, or none (/bin/sh)"),
		// Where.
		str("jobs", "at most `N` CPUs of each node; also +N, -N, N%, 0", "j", "P", "max-procs"),
		str("delay", "wait `TIME` between the starts of two tasks"),
		str("memfree", "start tasks only on nodes with `SIZE` of available memory"),
		str("nice", "run tasks with niceness `N`"),
		list("nodes", "use these hosts: `[N/]HOST,...`, : is this machine", "S"),
		oneOf("via", "reach nodes by `HOW`: auto, srun, ssh or local (auto)", "auto", "srun", "ssh", "local"),
		str("via-cmd", "reach nodes with `CMD`, which contains {host} and {worker}"),
		list("ssh-opt", "pass `OPTION` to ssh"),
		list("srun-opt", "pass `OPTION` to srun"),
		str("worker", "`PATH` of the jobpool program on the nodes"),
		str("connect-timeout", "give up connecting to a node after `TIME` (60s)"),
		str("node-timeout", "treat a node as lost after `TIME` without a message (2m)"),
		str("min-nodes", "exit unless `N` nodes can be reached (1)"),
		list("resource", "all nodes together have these named resources: `LIST`"),
		list("node-resource", "each node, or each of HOSTS:, has these named resources: `LIST`"),
		oneOf("place", "choose nodes by `RULE`: auto, spread or pack (auto)", "auto", "spread", "pack"),
		oneOf("bind", "bind tasks to CPUs: `HOW` is auto, core or none (auto)", "auto", "core", "none"),
		flag("release-idle", "return nodes to Slurm that are no longer needed"),
		// Jobs of its own.
		str("alloc", "submit jobs of its own, for an lfind `REQUEST`"),
		list("alloc-sbatch", "submit jobs for the tasks, with the sbatch `OPTIONS`"),
		str("max-jobs", "with --alloc, keep at most `N` jobs pending or running (1)"),
		str("linger", "with --alloc, end a job that is idle for `TIME` (5m)"),
		app.OneOf(&cli.StringFlag{
			Name: "scheduler", Aliases: []string{"head"}, Usage: "with --alloc, run the scheduler `WHERE`: job or here (job)",
		}, "job", "here"),
		&cli.BoolFlag{Name: "elastic", Hidden: true},
		// End with the program that holds the other end of standard input.
		&cli.BoolFlag{Name: "until-eof", Hidden: true},
		// Output.
		app.SomeOf(&cli.StringFlag{
			Name: "output", Aliases: []string{"o"}, Usage: "where output goes: `WHERE` is print, files, merged, none, or a list (print)",
		}, "print", "files", "merged", "none"),
		flag("keep-order", "print output in the order of the input", "k"),
		flag("line-buffer", "print each line at once, mixing the lines of tasks", "lb", "linebuffer"),
		flag("ungroup", "print output at once, even parts of lines", "u"),
		flag("tag", "print the argument before each line of output"),
		str("results", "write the output of each task to files below `DIR`"),
		flag("quiet", "print neither progress nor summary", "q"),
		flag("verbose", "print the summary even if all tasks succeeded", "v"),
		oneOf("progress", "show progress: `HOW` is auto, terminal, lines or none (auto)", "auto", "terminal", "lines", "none"),
		flag("bar", "show progress, as --progress auto does", "eta"),
		str("status", "write the state of the run to `FILE`, each second"),
		flag("dry-run", "print the commands and run nothing", "dryrun"),
		// The run directory.
		str("run", "keep journal and logs in `DIR`"),
		str("joblog", "write the job log to `FILE`"),
		flag("resume", "continue a run: skip tasks that have ended"),
		flag("retry-failed", "like --resume, and run failed tasks again", "resume-failed"),
		flag("force-resume", "resume even if commands have changed"),
		// Failures.
		str("retries", "retry a failed task up to `N` times (0)"),
		str("lost-retries", "retry a task whose node was lost up to `N` times (3)"),
		str("node-setup", "run `CMD` once on each node before any task"),
		str("node-teardown", "run `CMD` on each node at the end"),
		str("probe", "run `CMD` on each node first, and use only nodes where it succeeds"),
		str("halt", "stop the run: `WHEN` is now|soon,fail|success|done=N[%]"),
		flag("hold", "hold failed tasks until jobpool ctl retries or cancels them"),
		oneOf("on-scheduler-lost", "workers that lose the scheduler `DO`: kill or finish (kill)", "kill", "finish"),
		oneOf("leftovers", "processes that tasks leave running: `DO` is kill or keep (kill)", "kill", "keep"),
		// Time.
		str("time-per-task", "do not start a task unless `TIME` is left of the job"),
		str("end-margin", "end the run `TIME` before the job ends"),
		str("term-grace", "when the job is ended, wait `TIME` before killing tasks (20s)"),
		&cli.BoolFlag{Name: "noop", Hidden: true},
	}
}

// values reads flags and remembers the first error.
type values struct {
	c   *cli.Context
	err error
}

func (v *values) fail(name string, err error) {
	if v.err == nil {
		v.err = fault.Errorf(fault.Usage, "--%s: %w", name, err)
	}
}

func (v *values) count(name string, otherwise, least int) int {
	s := v.c.String(name)
	if s == "" && !v.c.IsSet(name) {
		return otherwise
	}
	n, err := strconv.Atoi(s)
	if err != nil || n < least || n > 1<<30 {
		v.fail(name, fmt.Errorf("invalid number %q: expected a whole number from %d on", s, least))
	}
	return n
}

func (v *values) duration(name string, otherwise time.Duration) time.Duration {
	if !v.c.IsSet(name) {
		return otherwise
	}
	d, err := unit.Seconds(v.c.String(name))
	if err != nil {
		v.fail(name, err)
	}
	return d
}

// oneOf returns the place of a flag's value in a list; the first is the default.
func (v *values) oneOf(name string, words ...string) int {
	s := v.c.String(name)
	if s == "" && !v.c.IsSet(name) {
		return 0
	}
	for i, w := range words {
		if s == w {
			return i
		}
	}
	err := fmt.Errorf("invalid value %q: expected one of %s", s, strings.Join(words, ", "))
	if near := app.Nearest(s, words); near != "" {
		err = fault.Hint(err, fmt.Sprintf("did you mean %q?", near))
	}
	v.fail(name, err)
	return 0
}

// base is what tasks need unless they say more.
func (v *values) base() pool.Spec {
	s := pool.Spec{Need: pool.Need{CPUs: 1}}
	for _, name := range []string{"cpus", "gpus", "mem", "need", "timeout"} {
		if v.c.IsSet(name) && (name != "timeout" || !strings.HasSuffix(v.c.String(name), "%")) {
			if err := input.Set(&s, name, v.c.String(name)); err != nil && v.err == nil {
				v.err = fault.Errorf(fault.Usage, "--%w", err)
			}
		}
	}
	if v.c.IsSet("task-nodes") {
		if err := input.Set(&s, "nodes", v.c.String("task-nodes")); err != nil && v.err == nil {
			v.err = fault.Errorf(fault.Usage, "--task-%w", err)
		}
	}
	return s
}

// resources reads what the pool and its nodes have besides CPUs, GPUs and memory.
func (v *values) resources() (shared pool.Named, nodes []core.Resources) {
	declared := map[string]bool{}
	add := func(flag, text string) (n pool.Named) {
		n, err := pool.ParseNamed(text)
		for _, name := range n.Names() {
			if declared[name] = true; shared.Get(name) > 0 {
				err = fmt.Errorf("resource %q is already a resource of the pool", name)
			}
		}
		if err == nil && strings.Count(text, "=") > len(n.Names()) {
			err = fmt.Errorf("%q: the amount of a resource cannot be 0", text)
		}
		if err == nil && len(declared) > pool.MaxNamed {
			err = fmt.Errorf("more than %d resources", pool.MaxNamed)
		}
		if err != nil {
			v.fail(flag, err)
		}
		return n
	}
	for _, text := range v.c.StringSlice("resource") {
		if n := add("resource", text); v.err == nil {
			shared = shared.Plus(n)
		}
	}
	for _, text := range v.c.StringSlice("node-resource") {
		var r core.Resources
		end := strings.IndexByte(text, '=')
		if i := strings.LastIndexByte(text[:max(0, end)], ':'); i >= 0 {
			var err error
			if r.Nodes, err = hostlist.Expand(text[:i]); err != nil || len(r.Nodes) == 0 {
				v.fail("node-resource", fmt.Errorf("invalid host list %q", text[:i]))
			}
			text = text[i+1:]
		}
		if r.Named = add("node-resource", text); v.err == nil {
			nodes = append(nodes, r)
		}
	}
	return shared, nodes
}

func (v *values) output() wire.Output {
	var o wire.Output
	if !v.c.IsSet("output") {
		return wire.Output{Return: !v.c.IsSet("results")}
	}
	for word := range strings.SplitSeq(v.c.String("output"), ",") {
		switch word {
		case "print":
			o.Return = true
		case "files":
			o.Files = true
		case "merged":
			o.Merged = true
		case "none":
		default:
			v.fail("output", fmt.Errorf("invalid value %q: expected one of print, files, merged, none", word))
		}
	}
	if o.Files && o.Merged {
		v.fail("output", fmt.Errorf("%q and %q cannot be combined", "files", "merged"))
	}
	return o
}

// live says whether output is printed while tasks run.
func (v *values) live() scheduler.Live {
	lines, raw := v.c.Bool("line-buffer"), v.c.Bool("ungroup")
	if !lines && !raw {
		return scheduler.LiveNone
	}
	name := "line-buffer"
	if raw {
		name = "ungroup"
	}
	for _, x := range []struct {
		is  bool
		why string
	}{
		{lines && raw, "--line-buffer"}, {v.c.Bool("keep-order"), "--keep-order"},
		{raw && v.c.Bool("tag"), "--tag"},
		{!v.output().Return, "--output without print"}, {v.output().Merged, "--output merged"},
	} {
		if x.is {
			v.fail(name, fmt.Errorf("cannot be combined with %s", x.why))
		}
	}
	if raw {
		return scheduler.LiveRaw
	}
	return scheduler.LiveLines
}

func (v *values) halt() (h scheduler.Halt) {
	s := v.c.String("halt")
	short := map[string]string{"0": "never", "1": "soon,fail=1", "2": "now,fail=1"}
	if long, ok := short[s]; ok {
		s = long
	} else if strings.HasSuffix(s, "%") && !strings.Contains(s, ",") {
		s = "soon,fail=" + s
	}
	if !v.c.IsSet("halt") || s == "never" {
		return h
	}
	when, what, ok := strings.Cut(s, ",")
	kind, text, ok2 := strings.Cut(what, "=")
	h.Now = when == "now"
	text, percent := strings.CutSuffix(text, "%")
	n, err := strconv.Atoi(text)
	to := map[string]*int{
		"fail": &h.Fail, "success": &h.Success, "done": &h.Done,
		"fail%": &h.Percent, "success%": &h.SuccessPercent, "done%": &h.DonePercent,
	}
	if percent {
		kind += "%"
	}
	if !ok || !ok2 || err != nil || n < 1 || percent && n > 100 || !h.Now && when != "soon" || to[kind] == nil {
		v.fail("halt", fmt.Errorf("%q is not of the form now,fail=1, soon,fail=10%% or soon,success=1", s))
		return h
	}
	*to[kind] = n
	return h
}

// percent reads "N%"; 0 if the value is of another form.
func (v *values) percent(name string) int {
	text, ok := strings.CutSuffix(v.c.String(name), "%")
	if !ok {
		return 0
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > 1e6 {
		v.fail(name, fmt.Errorf("invalid percentage %q: expected one from 1%% on", v.c.String(name)))
	}
	return n
}

// slots is what --jobs says: a number, or a function of the CPUs that a node would have
// without it.
type slots struct {
	fixed int
	of    func(cpus int) int
}

// most is how many tasks run at a node with --jobs 0.
const most = 1000

func (v *values) jobs() (j slots) {
	s := v.c.String("jobs")
	if !v.c.IsSet("jobs") {
		return j
	}
	if p := v.percent("jobs"); p > 0 || v.err != nil {
		j.of = func(cpus int) int { return cpus * p / 100 }
		return j
	}
	n, err := strconv.Atoi(s)
	switch {
	case err != nil || n > 1<<30 || n < -1<<30:
		v.fail("jobs", fmt.Errorf("invalid number %q: expected a whole number, +N, -N or N%%", s))
	case s[0] == '+' || s[0] == '-':
		j.of = func(cpus int) int { return cpus + n }
	case n == 0:
		j.of = func(cpus int) int { return max(cpus, most) }
	default:
		j.fixed = n
	}
	return j
}

// limits reads what keeps tasks from starting at a node that is busy.
func (v *values) limits(s *wire.Setup) {
	if s.Nice = v.count("nice", 0, 0); s.Nice > 19 {
		v.fail("nice", fmt.Errorf("%d is more than 19", s.Nice))
	}
	s.LimitMem = v.c.String("mem-limit") != "none"
	if v.c.IsSet("memfree") {
		n, err := unit.SizeWithUnit(v.c.String("memfree"))
		if err != nil {
			v.fail("memfree", err)
		}
		s.MemFree = n
	}
}

// policy reads how the scheduler decides.
func (v *values) policy(serve bool) scheduler.Policy {
	return scheduler.Policy{
		Policy: core.Policy{
			Place:          []pool.Place{pool.Auto, pool.Spread, pool.Pack}[v.oneOf("place", "auto", "spread", "pack")],
			Pin:            []core.Pin{core.PinAuto, core.PinCores, core.PinNone}[v.oneOf("bind", "auto", "core", "none")],
			ConnectTimeout: v.duration("connect-timeout", time.Minute),
			MinNodes:       v.count("min-nodes", 1, 1),
			NodeTimeout:    v.duration("node-timeout", 2*time.Minute),
			Reconnects:     3,
			Retries:        v.count("retries", 0, 0),
			LostRetries:    v.count("lost-retries", 3, 0),
			Delay:          v.duration("delay", 0),
			TimeoutPercent: v.percent("timeout"),
			Halt:           v.halt(),
			Hold:           v.c.Bool("hold"),
			ReadAhead:      v.count("read-ahead", 1000000, 1),
			Serve:          serve,
			RetryFailed:    v.c.Bool("retry-failed"),
			TimePerTask:    v.duration("time-per-task", 0),
			EndMargin:      v.duration("end-margin", 0),
			TermGrace:      v.duration("term-grace", 20*time.Second),
			NodeSetup:      nodeSetup(v.c),
			Probe:          v.c.String("probe"),
		},
		ForceResume: v.c.Bool("force-resume"),
		KeepOrder:   v.c.Bool("keep-order"),
		Tag:         v.c.Bool("tag"),
		Live:        v.live(),
		Quiet:       v.c.Bool("quiet"),
		Verbose:     v.c.Bool("verbose"),
		Status:      v.c.String("status"),
	}
}

// nodeSetup is what is run at each node first. A teardown alone has a setup that does
// nothing.
func nodeSetup(c *cli.Context) string {
	if c.String("node-setup") == "" && c.String("node-teardown") != "" {
		return "true"
	}
	return c.String("node-setup")
}
