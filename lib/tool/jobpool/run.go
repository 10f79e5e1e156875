package jobpool

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/ponos-tools/ponos/lib/base/app"
	"github.com/ponos-tools/ponos/lib/base/clock"
	"github.com/ponos-tools/ponos/lib/base/fault"
	"github.com/ponos-tools/ponos/lib/base/progress"
	"github.com/ponos-tools/ponos/lib/base/shell"
	"github.com/ponos-tools/ponos/lib/pool"
	"github.com/ponos-tools/ponos/lib/pool/control"
	"github.com/ponos-tools/ponos/lib/pool/core"
	"github.com/ponos-tools/ponos/lib/pool/input"
	"github.com/ponos-tools/ponos/lib/pool/journal"
	"github.com/ponos-tools/ponos/lib/pool/pilot"
	"github.com/ponos-tools/ponos/lib/pool/scheduler"
	"github.com/ponos-tools/ponos/lib/pool/transport"
	"github.com/ponos-tools/ponos/lib/pool/wire"
	"github.com/ponos-tools/ponos/lib/pool/worker"
	"github.com/ponos-tools/ponos/lib/slurm"
)

func runAction(serve bool) cli.ActionFunc {
	return func(c *cli.Context) error {
		if here, err := allocate(c, serve); err != nil || !here {
			return err
		}
		v := &values{c: c}
		policy, base, output := v.policy(serve), v.base(), v.output()
		if policy.Elastic = c.Bool("elastic"); policy.Elastic && !c.IsSet("node-timeout") {
			policy.NodeTimeout = 30 * time.Second // a scheduler in another job may be gone at any time
		}
		setup := wire.Setup{
			Output: output, Finish: v.oneOf("on-scheduler-lost", "kill", "finish") == 1 || c.Bool("elastic"),
			Keep:  v.oneOf("leftovers", "kill", "keep") == 1,
			Grace: v.duration("kill-after", 10*time.Second).Seconds(), Noop: c.Bool("noop"),
			Teardown: wire.Text(c.String("node-teardown")),
		}
		v.limits(&setup)
		setup.Output.Live = policy.Live != scheduler.LiveNone
		setup.Lease = policy.NodeTimeout.Seconds() + setup.Grace + wire.LeaseSlack
		progress := v.oneOf("progress", "auto", "terminal", "lines", "none")
		shared, resources := v.resources()
		if v.err != nil {
			return v.err
		}
		if err := shellOf(c, &setup); err != nil {
			return err
		}
		at, err := where(c, os.Getenv)
		if err != nil {
			return err
		}
		in, err := readInput(c, serve)
		if err != nil {
			return err
		}
		source, err := in.open(base, at, setup.Always, &policy)
		if err != nil {
			return err
		}
		t := &console{w: c.App.ErrWriter, terminal: app.IsTerminal(c.App.ErrWriter)}
		if c.Bool("dry-run") {
			all := &counted{Tasks: source}
			defer in.reportEmpty(all, t.message)
			return dryRun(all, c.App.Writer)
		}
		switch {
		case policy.Quiet || progress == 3:
		case progress == 1 || progress == 0 && t.terminal && (serve || c.Bool("bar") || !app.IsTerminal(c.App.Reader) || !in.stdin):
			policy.Progress = scheduler.ProgressTerminal
		default:
			policy.Progress = scheduler.ProgressLines
		}
		r := &runner{
			c: c, place: at, console: t, policy: policy, setup: setup, base: base, input: in,
			shared: shared, resources: resources,
		}
		return r.run(c.Context, source)
	}
}

// shellOf finds the shell that commands are run with.
func shellOf(c *cli.Context, s *wire.Setup) error {
	dir, err := os.Getwd()
	if err != nil {
		return err
	}
	if d := c.String("cwd"); d != "" {
		if !filepath.IsAbs(d) {
			d = filepath.Join(dir, d)
		}
		if st, err := os.Stat(d); err != nil || !st.IsDir() {
			return fault.Errorf(fault.Usage, "--cwd: not a directory: %q", c.String("cwd"))
		}
		dir = d
	}
	s.Dir = wire.Text(dir)
	switch name := c.String("shell"); name {
	case "":
		s.Shell = "/bin/sh"
	case "none":
	default:
		s.Shell, s.Always = wire.Text(name), true
		if !strings.Contains(name, "/") {
			for _, d := range filepath.SplitList(os.Getenv("PATH")) {
				if p := filepath.Join(d, name); isProgram(p) {
					s.Shell = wire.Text(p)
					return nil
				}
			}
			return fault.Errorf(fault.Usage, "--shell: %q is not in PATH", name)
		}
	}
	return nil
}

func isProgram(p string) bool {
	st, err := os.Stat(p)
	return err == nil && !st.IsDir() && st.Mode()&0o111 != 0
}

// dryRun prints what would be run.
func dryRun(source input.Tasks, w io.Writer) error {
	bad := false
	for {
		t, err := source.Next()
		var one *input.BadTask
		switch {
		case errors.Is(err, io.EOF):
			if bad {
				return fault.Exit(1, nil)
			}
			return nil
		case errors.As(err, &one):
			bad = true
			fmt.Fprintf(w, "# %v\n", err)
		case err != nil:
			return fault.Wrap(fault.Usage, err)
		default:
			if _, err := fmt.Fprintln(w, journal.Command(t)); err != nil {
				return err
			}
		}
	}
}

// console prints messages on standard error, and the line of progress.
type console struct {
	mu       sync.Mutex
	w        io.Writer
	terminal bool
	shown    bool
}

func (t *console) message(format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.clear()
	fmt.Fprintf(t.w, "jobpool: %s\n", app.Sanitize(fault.Text(fmt.Errorf(format, args...))))
}

func (t *console) clear() {
	if t.shown {
		fmt.Fprint(t.w, "\r\x1b[K")
		t.shown = false
	}
}

func (t *console) line(text string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if text == "" {
		t.clear()
		return
	}
	if width := app.Width(t.w) - 1; len(text) > width {
		text = text[:max(0, width)]
	}
	fmt.Fprintf(t.w, "\r\x1b[K%s", text)
	t.shown = true
}

// runner is one run of the scheduler.
type runner struct {
	c       *cli.Context
	place   *place
	console *console
	policy  scheduler.Policy
	setup   wire.Setup
	base    pool.Spec
	input   *taskInput
	// Named resources of the pool and of its nodes.
	shared    pool.Named
	resources []core.Resources
}

func (r *runner) run(ctx context.Context, source input.Tasks) (err error) {
	dir, err := runDir(r.c, os.Getenv, true)
	if err != nil {
		return err
	}
	joblog := r.c.String("joblog")
	j, err := journal.Create(dir, joblog)
	if err != nil {
		return hintRun(err)
	}
	defer j.Close()
	if r.policy.Serve {
		if err := j.Cut(); err != nil {
			r.console.message("journal: it cannot be cut for now: %s", fault.Text(err))
		}
	}
	history, err := past(dir, joblog, resumes(r.c, &r.policy), r.policy.Serve)
	if err != nil {
		return err
	}
	if err := remember(dir, r.c.IsSet("run")); err != nil {
		return err
	}
	// What is left of tasks is known by the session, so no other may be called so.
	session := fmt.Sprintf("%x%x%08x", clock.Now().Unix(), os.Getpid(), rand.Uint32())
	r.setup.Run, r.setup.Session = wire.Text(dir), session
	if err := writeRun(dir, session, os.Args); err != nil {
		return err
	}
	if !r.place.elastic { // else the call has opened it
		if err := input.Begin(dir); err != nil {
			return err
		}
	}
	growing := input.Grow(source, dir, r.base, r.setup.Always)
	if err := growing.Forget(history.AllCut); err != nil {
		return err
	}
	all := &counted{Tasks: growing}
	server, err := control.Listen(dir, r.base)
	if err != nil {
		if r.policy.Hold || r.policy.Serve && os.Getenv("SLURM_JOB_ID") == "" {
			return fault.Hint(fmt.Errorf("control socket: %w", err), "choose a run directory on a local file system with --run")
		}
		r.console.message("control socket: %w: jobpool ctl will not work", err)
		server = &control.Server{}
	} else {
		defer func() {
			if !errors.Is(err, journal.ErrTaken) { // else the socket is the other scheduler's
				server.Close()
			}
		}()
	}
	dialer, err := r.dialer(dir)
	if err != nil {
		return err
	}
	r.fewFiles()
	// The scheduler decides itself what signals mean, and the console has a line of its own.
	ctx, cancel := context.WithCancel(context.WithoutCancel(progress.With(ctx, nil)))
	defer cancel()
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2)
	if !signal.Ignored(syscall.SIGHUP) {
		signal.Notify(signals, syscall.SIGHUP)
	}
	if r.c.Bool("until-eof") {
		go func() {
			_, _ = io.Copy(io.Discard, r.c.App.Reader)
			signals <- syscall.SIGTERM
		}()
	}
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) // a closed pipe is an error of write
	defer signal.Stop(signals)
	cfg := scheduler.Config{
		Nodes: r.place.nodes, Dial: dialer.Dial, Source: all, Added: growing, Journal: j, History: history, Setup: r.setup,
		Version: app.Version,
		Stdout:  r.c.App.Writer, Stderr: r.c.App.ErrWriter, Message: r.console.message, Line: r.console.line,
		Signals: signals, Requests: server.Requests, Policy: r.policy,
		Shared: r.shared, Resources: r.resources, Reach: sync.OnceValue(dialer.Reach),
	}
	if r.place.growable() {
		cfg.NamedNodes = r.place.named
	}
	if cfg.ConnectAtOnce = 32; dialer.Kind == transport.BySrun {
		cfg.ConnectAtOnce = 16
	}
	if !r.place.elastic {
		cfg.Resume = resumeCommand(os.Args, dir)
	}
	if cfg.Resume != "" && r.input.stdin {
		cfg.Resume += " < " + strings.ReplaceAll(stdinName(), "%", "%%")
	}
	cfg.Batch = r.place.job != "" || r.place.elastic
	var pilots *elastic
	if r.place.elastic {
		e, err := newElastic(dir, r)
		if err != nil {
			return err
		}
		cfg.Changes, cfg.Observe, cfg.MaxJobs = e.changes, e.observe, e.jobs.Pool.MaxJobs
		cfg.Closed, cfg.Close, cfg.Call = e.closed, e.closeRun, e.jobs.Pool.Call
		if r.policy.RetryFailed {
			cfg.Began = e.retries
		}
		go e.watch(ctx)
		pilots = e
	}
	if r.place.job != "" {
		client := &slurm.Client{}
		out := make(chan time.Time)
		cfg.Ends = out
		go ends(ctx, client, r.place.job, out)
		cfg.Job = func(ctx context.Context) (scheduler.Job, error) { return job(ctx, client, r.place.job) }
		if r.c.Bool("release-idle") {
			cfg.Release = release(client, r.place.job, dir)
		}
	}
	if r.policy.Serve && !r.policy.Quiet {
		r.console.message("serving in %s", dir)
	}
	result := scheduler.Run(ctx, cfg)
	if errors.Is(result.Err, journal.ErrTaken) {
		return result.Err // the pilots are the other scheduler's
	}
	if pilots != nil {
		cancel()
		pilots.end(&result.Summary)
	}
	if result.Err != nil {
		if code := result.Exit; code != 0 && code != 2 {
			return fault.Exit(code, result.Err)
		}
		return result.Err
	}
	if !r.place.elastic && !r.policy.Serve { // else tasks come later
		r.input.reportEmpty(all, r.console.message)
	}
	if result.Exit == 3 {
		return fault.Exit(3, errors.New(result.Why))
	}
	if j.Removed() {
		return fault.Exit(max(result.Exit, 1), fmt.Errorf(
			"the journal in the run directory %q was removed or moved while tasks ran: without it, --resume runs them again", dir))
	}
	return fault.Exit(result.Exit, nil)
}

func hintRun(err error) error {
	if fault.Is(err, fault.Usage) {
		return fault.Hint(err, "choose another with --run")
	}
	return err
}

// dialer makes ready how nodes are reached.
func (r *runner) dialer(dir string) (*transport.Dialer, error) {
	d := &transport.Dialer{
		Kind: r.place.kind, Command: r.c.String("via-cmd"), Env: os.Environ(),
		LogDir: filepath.Join(dir, pilot.Logs), Host: os.Getenv("SLURMD_NODENAME"),
	}
	if r.setup.Teardown != "" {
		d.Clearing = worker.ClearTime
	}
	if err := os.MkdirAll(d.LogDir, 0o700); err != nil {
		return nil, err
	}
	switch d.Kind {
	case transport.BySSH:
		d.Options = r.c.StringSlice("ssh-opt")
		r.setup.Env = wire.Texts(transport.RemoteEnv(os.Environ()))
	case transport.BySrun:
		d.Options = r.c.StringSlice("srun-opt")
		// srun hands the environment on, but the shell that finds the worker drops
		// functions of bash.
		r.setup.Env = wire.Texts(bashFunctions(os.Environ()))
		d.External = sync.OnceValue(func() bool { // asked when the first node is opened
			version, err := (&slurm.Client{}).Version(r.c.Context, "srun")
			return err == nil && transport.HasExternalLauncher(version)
		})
	case transport.ByCmd:
		r.setup.Env = wire.Texts(transport.RemoteEnv(os.Environ()))
	}
	remote := false
	for _, n := range r.place.nodes {
		remote = remote || !n.Local
	}
	switch {
	case r.c.IsSet("worker"):
		d.Programs = []string{r.c.String("worker")}
	case r.place.elastic: // the call has put it there
		d.Programs = []string{filepath.Join(dir, "bin", "jobpool")}
	case remote:
		own, err := pinned(dir)
		if err != nil {
			return nil, fmt.Errorf("copying the program into the run directory: %w", err)
		}
		d.Programs = []string{own}
		if self, err := os.Executable(); err == nil {
			d.Programs = append(d.Programs, self)
		}
	}
	return d, nil
}

// Files that the scheduler has open for each node, and for everything else.
const filesPerNode, otherFiles = 3, 60

// fewFiles leaves out the nodes for which not enough files may be open, rather than
// have each of them fail.
func (r *runner) fewFiles() {
	var limit syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit) != nil || limit.Cur > 1<<30 {
		return
	}
	most := max(1, (int(limit.Cur)-otherFiles)/filesPerNode)
	if n := len(r.place.nodes); n > most {
		r.console.message("only %d files may be open (ulimit -n): using %d of the %d nodes", limit.Cur, most, n)
		r.place.nodes = r.place.nodes[:most]
	}
}

// stdinName is the file that standard input is, or a word that stands for it.
func stdinName() string {
	name, err := os.Readlink("/proc/self/fd/0")
	if st, e := os.Stat(name); err == nil && e == nil && st.Mode().IsRegular() {
		return shell.Quote(name)
	}
	return "INPUT"
}

// resumeCommand is the command line that continues with this run; %s is how.
func resumeCommand(args []string, dir string) string {
	var out []string
	skip := false
	for i, a := range args {
		switch {
		case skip:
			skip = false
		case i == 0:
			out = append(out, "jobpool", "%s", "--run", strings.ReplaceAll(shell.Quote(dir), "%", "%%"))
		case a == "--resume", a == "--retry-failed", strings.HasPrefix(a, "--run="):
		case a == "--run":
			skip = true
		default:
			out = append(out, strings.ReplaceAll(shell.Quote(a), "%", "%%"))
		}
	}
	if len(out) > 4 && out[4] == "run" { // the command comes first
		out = append([]string{"jobpool", "run"}, append(out[1:4:4], out[5:]...)...)
	}
	command := strings.Join(out, " ")
	if i := slices.IndexFunc(out, func(w string) bool { return strings.HasPrefix(w, ":::") }); i >= 0 && len(command) > maxResume {
		command = strings.Join(append(out[:i+1:i+1], "ARG..."), " ")
	}
	return command
}

// maxResume limits a command line in a message.
const maxResume = 1000
