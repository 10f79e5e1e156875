// Package run is the tool ponos-run, which is the others in one: it submits tasks, takes the turns of the agent, and shows how the tasks
// go until they have ended.
//
//	choose ──► submit ──► watch ──► over: 0 or 1
//	                        │ ^C ──3 s──► left: an agent in the background goes on
//	                        │  └─ ^C ──► cancelled, when the tasks have stopped
//	                        └ q, hang-up, TERM ──► left
//
// Beside watch an attendant takes turns, unless another agent does.
package run

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/ponos-tools/ponos/lib/agent/assembly"
	"github.com/ponos-tools/ponos/lib/agent/config"
	"github.com/ponos-tools/ponos/lib/agent/tasklist"
	"github.com/ponos-tools/ponos/lib/base/app"
	"github.com/ponos-tools/ponos/lib/base/clock"
	"github.com/ponos-tools/ponos/lib/base/command"
	"github.com/ponos-tools/ponos/lib/base/fault"
	"github.com/ponos-tools/ponos/lib/base/shell"
	"github.com/ponos-tools/ponos/lib/slurm"
	"github.com/ponos-tools/ponos/lib/task"
	"github.com/ponos-tools/ponos/lib/task/queue"
	"github.com/ponos-tools/ponos/lib/tool/setup"
	"github.com/ponos-tools/ponos/lib/tool/submit"
)

const name = "ponos-run"

// Usage is what the tool does, in a line.
const Usage = "run tasks, and show how they go"

// Main runs the tool as the whole process, and returns its exit status.
func Main() int { return app.MainOf(run) }

func run(ctx context.Context, signals <-chan os.Signal, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	return app.Tool{
		Name: name, Usage: Usage, ArgsUsage: "[::: NAME=VALUE...] [[--] COMMAND [ARG...]]", StopAtArg: true,
		Description: "Submits tasks as ponos-submit does, takes the turns of the agent if none runs,\n" +
			"and shows the tasks until they end. A command runs in this directory.",
		Examples:    "ponos run -- python train.py\nponos run --each params.tsv -- python train.py --lr {lr}\nponos run --group lr",
		Brief:       map[string][]string{"": {"each", "group", "directory", "repository", "gpu", "find", "retry", "local", "dry-run"}},
		Environment: slurm.CheckEnvironment,
		Flags:       flags(),
		Unknown:     submit.Instead,
		Action: func(c *cli.Context) error {
			return submit.NotSbatch(args, start(c, signals, args, stdin, stdout, stderr))
		},
	}.Run(ctx, args, stdin, stdout, stderr)
}

// flags are those of ponos-submit, but for what this tool does always or cannot do.
func flags() []cli.Flag {
	all := slices.DeleteFunc(submit.Flags(), func(f cli.Flag) bool {
		return slices.Contains([]string{"spool", "wait", "json"}, f.Names()[0])
	})
	for _, f := range all {
		if f, ok := f.(*cli.StringFlag); ok && f.Name == "name" {
			f.Aliases = []string{"slug"}
		}
	}
	return append(all,
		&cli.BoolFlag{Name: "local", Usage: "run on this machine, also where Slurm is installed"},
		&cli.BoolFlag{Name: "dry-run", Aliases: []string{"n"}, Usage: "print the commands of which this one stands for, and do nothing"},
		app.VerboseFlag(),
	)
}

func start(c *cli.Context, signals <-chan os.Signal, args []string, stdin io.Reader, stdout, stderr io.Writer) error {
	ctx, begun := untilSignal(c.Context, signals)
	c.Context = ctx
	look := submit.ForGroup(c)
	if err := complete(c, look); err != nil {
		return err
	}
	r := &running{
		group: c.String("group"), wanted: map[task.ID]bool{}, began: clock.Now(), signals: signals, stdout: stdout, stderr: stderr,
	}
	var err error
	switch {
	case c.Bool("dry-run"):
		made, err := choose(c, look, stderr)
		if err != nil {
			return err
		}
		return printPipeline(c, made, look, args, stdout)
	case look:
		err = r.choose(c)
	default:
		err = r.submit(c, args, stdin)
	}
	if err != nil {
		return err
	}
	switch {
	case c.Bool("local") && c.IsSet("config"):
		r.chosen = " --local"
	case c.IsSet("config"):
		r.chosen = " --config " + shell.Quote(c.String("config"))
	}
	begun()
	return r.watch(context.WithoutCancel(ctx), stdin)
}

// untilSignal is a context that the first signal ends, until begun is called.
func untilSignal(ctx context.Context, signals <-chan os.Signal) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		select {
		case s := <-signals:
			cancel(app.Interrupted{Signal: s.(syscall.Signal)}) //nolint:forcetypeassert // the only signals there are
		case <-stop:
		}
	}()
	return ctx, func() { close(stop); <-stopped }
}

// configure takes the configuration, which it finds or writes.
func (r *running) configure(c *cli.Context, look bool) (err error) {
	if _, err = choose(c, look, r.stderr); err != nil {
		return err
	}
	if r.config, err = assembly.Configuration(c.String("config")); err != nil {
		return err
	}
	r.where = assembly.Where(r.config)
	r.options = assembly.Options{ConfigPath: c.String("config"), Verbose: c.Bool("verbose"), Tool: name, Every: every(r.config)}
	return nil
}

// submit submits the tasks of the command line.
func (r *running) submit(c *cli.Context, args []string, stdin io.Reader) error {
	made, err := submit.Submit(c, args, stdin, r.stderr, func() error { return r.configure(c, false) })
	if err != nil {
		return err
	}
	if err := made.Latest(c, r.stderr); err != nil {
		return err
	}
	r.spool = made.Queue
	for _, id := range made.Batch.IDs {
		r.wanted[id] = true
	}
	if made.Tasks[0].Group != "" {
		r.group = made.Tasks[0].Group
	}
	if len(made.Tasks) == 1 {
		r.single = made.Batch.IDs[0]
	} else if before := len(made.Tasks) - made.Batch.New; before > 0 {
		fmt.Fprintf(r.stderr, "%s: %d of %d tasks were submitted before\n", name, before, len(made.Tasks))
	}
	return nil
}

// choose takes the tasks of the group, which may be a pattern.
func (r *running) choose(c *cli.Context) (err error) {
	if err = r.configure(c, true); err != nil {
		return err
	}
	if r.spool, err = tasklist.Open(c.String("config"), ""); err != nil {
		return err
	}
	f, err := tasklist.NewFilter(func(name string) string {
		if name == "group" {
			return c.String(name)
		}
		return ""
	}, clock.Now())
	if err != nil {
		return err
	}
	all, err := r.spool.List()
	if err != nil {
		return err
	}
	for _, s := range all {
		if !s.Retried && f.Has(s) {
			r.wanted[s.ID] = true
		}
	}
	switch len(r.wanted) {
	case 0:
		return f.Nothing(all)
	case 1:
		for r.single = range r.wanted { //nolint:revive // the only one
		}
	}
	return nil
}

// every is the time between two turns. News make them come earlier.
func every(cfg config.Config) time.Duration {
	if assembly.Near(cfg) {
		return time.Second
	}
	return 10 * time.Second
}

// complete sets what a run has beside what is said: the directory in which it is, the environment of this shell, and a group, by which it
// is looked at again.
func complete(c *cli.Context, look bool) error {
	words := c.Args().Slice()
	if look {
		return nil
	}
	if len(words) == 0 && !c.IsSet("repository") && !c.IsSet("directory") && !c.IsSet("image") {
		return fault.Hint(fault.Errorf(fault.Usage, "no command to run"), `give a command after "--", or a --group to look at`)
	}
	var errs []error
	if !c.IsSet("repository") && !c.IsSet("directory") && !c.IsSet("image") && !c.IsSet("in-place") {
		errs = append(errs, c.Set("in-place", "true"))
	}
	if submit.ActiveHere() != "" && !c.IsSet("environment") && !c.IsSet("image") {
		errs = append(errs, c.Set("environment", "active"))
	}
	if !c.IsSet("group") {
		group, err := submit.NewGroup(called(c.String("name"), words), c.String("key"))
		errs = append(errs, err, c.Set("group", group))
	}
	return errors.Join(errs...)
}

// called is what a run is called after: its name, the script that an interpreter runs, or its program.
func called(given string, words []string) string {
	if given != "" {
		return given
	}
	if i := slices.Index(words, "--"); i >= 0 && words[0] == ":::" {
		words = words[i+1:]
	}
	if len(words) == 0 {
		return "run"
	}
	for _, w := range words[:min(len(words), 3)] {
		if ext := path.Ext(w); slices.Contains([]string{".py", ".sh", ".R", ".jl", ".pl", ".rb", ".sbatch", ".slurm"}, ext) {
			return strings.TrimSuffix(path.Base(w), ext)
		}
	}
	return path.Base(words[0])
}

// choose finds the configuration, or writes one for what is submitted, and says so. It returns what it would write in a dry run.
func choose(c *cli.Context, look bool, stderr io.Writer) (made string, err error) {
	path, err := config.Find(c.String("config"))
	missing := err != nil
	mode := "local"
	if !missing {
		cfg, err := assembly.Configuration(c.String("config"))
		if err != nil || !c.Bool("local") || assembly.Near(cfg) {
			return "", err
		}
		if c.IsSet("config") {
			return "", fault.Errorf(fault.Usage, "--local: the mode of %q is %s", path, cfg.Mode)
		}
	}
	if missing && look { // there is nothing to look at
		return "", err
	}
	if _, err := command.Path("sbatch"); err == nil && !c.Bool("local") {
		mode = "slurm"
	}
	dir, err := config.Expand("~/.config/ponos")
	if err != nil {
		return "", err
	}
	if c.Bool("local") {
		dir += "-local"
		path = filepath.Join(dir, "ponos.yaml")
		if _, err := os.Stat(path); err == nil {
			return "", c.Set("config", path)
		}
	}
	if c.Bool("dry-run") {
		return fmt.Sprintf("ponos-setup --init %s --mode %s", shell.Quote(dir), mode), c.Set("config", filepath.Join(dir, "ponos.yaml"))
	}
	w, err := write(c.Context, dir, mode, stderr)
	if err != nil {
		return "", err
	}
	about := "tasks run on this machine"
	if w.About != "" {
		about = strings.TrimSuffix(strings.ToLower(w.About[:1])+w.About[1:], ".\n")
	}
	fmt.Fprintf(stderr, "%s: new configuration %s: %s\n", name, w.Path, about)
	if c.Bool("local") {
		return "", c.Set("config", w.Path)
	}
	return "", nil
}

// write writes a configuration. While Slurm does not answer, it waits.
func write(ctx context.Context, dir, mode string, stderr io.Writer) (setup.Made, error) {
	said := false
	for pause := 2 * time.Second; ; pause = min(2*pause, 30*time.Second) {
		m, err := setup.Write(ctx, dir, mode, name, stderr)
		switch {
		case err == nil || ctx.Err() != nil || !fault.Is(err, fault.Unavailable):
			return m, err
		case setup.Absent(err):
			mode = "local"
			continue
		case !said:
			said = true
			app.Report(stderr, name, fault.Hint(
				fmt.Errorf("no answer from Slurm (%s): waiting, as the first configuration needs its partitions",
					strings.TrimPrefix(fault.Text(err), "--init: Slurm: ")),
				"ponos run --local runs on this machine"))
		}
		select {
		case <-ctx.Done():
			return m, context.Cause(ctx)
		case <-time.After(pause):
		}
	}
}

// printPipeline prints the commands of small tools that the command line stands for.
func printPipeline(c *cli.Context, made string, look bool, args []string, stdout io.Writer) error {
	var lines []string
	if made != "" {
		lines = append(lines, made+" >/dev/null")
	}
	configured := ""
	if c.IsSet("config") {
		configured = " --config " + shell.Quote(c.String("config"))
	}
	if !look {
		words := []string{"ponos-submit"}
		for _, f := range submit.Flags() {
			flag := f.Names()[0]
			if !c.IsSet(flag) || slices.Contains([]string{"spool", "wait", "json"}, flag) {
				continue
			}
			switch f.(type) {
			case *cli.BoolFlag:
				if c.Bool(flag) {
					words = append(words, "--"+flag)
				}
			case *cli.StringSliceFlag:
				for _, v := range c.StringSlice(flag) {
					words = append(words, "--"+flag, shell.Quote(v))
				}
			default:
				words = append(words, "--"+flag, shell.Quote(fmt.Sprint(c.Value(flag))))
			}
		}
		rest := c.Args().Slice()
		if at := len(args) - len(rest) - 1; at >= 0 && args[at] == "--" {
			words = append(words, "--")
		}
		for _, w := range rest {
			words = append(words, shell.Quote(w))
		}
		lines = append(lines, strings.Join(words, " "))
	}
	turns := "10s"
	if cfg, err := assembly.Configuration(c.String("config")); err == nil {
		turns = every(cfg).String()
	} else if strings.HasSuffix(made, "local") {
		turns = "1s"
	}
	lines = append(lines,
		fmt.Sprintf("ponos-poll%[1]s --every %[2]s --until-done | ponos-stop%[1]s | ponos-start%[1]s >/dev/null", configured, turns),
		fmt.Sprintf("ponos-list%s --group %s", configured, shell.Quote(c.String("group"))))
	_, err := fmt.Fprintln(stdout, strings.Join(lines, "\n"))
	return err
}

// running is a run that is watched.
type running struct {
	config  config.Config
	options assembly.Options
	spool   queue.Client
	group   string
	where   string
	wanted  map[task.ID]bool
	single  task.ID            // the only task of a submission, whose log is shown; "": there are more
	ends    map[task.ID]string // last lines of logs
	chosen  string             // option that chooses the configuration; "": all tools find it
	began   time.Time
	signals <-chan os.Signal
	stdout  io.Writer
	stderr  io.Writer
}
