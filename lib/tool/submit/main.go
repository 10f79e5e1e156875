// Package submit is the tool ponos-submit, which puts tasks into a spool.
package submit

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/google/uuid"
	"github.com/urfave/cli/v2"

	"github.com/ponos-tools/ponos/lib/agent/assembly"
	"github.com/ponos-tools/ponos/lib/agent/code/kept"
	"github.com/ponos-tools/ponos/lib/agent/code/source"
	"github.com/ponos-tools/ponos/lib/agent/config"
	"github.com/ponos-tools/ponos/lib/agent/tasklist"
	"github.com/ponos-tools/ponos/lib/base/app"
	"github.com/ponos-tools/ponos/lib/base/clock"
	"github.com/ponos-tools/ponos/lib/base/fault"
	"github.com/ponos-tools/ponos/lib/base/shell"
	"github.com/ponos-tools/ponos/lib/slurm"
	"github.com/ponos-tools/ponos/lib/task"
	"github.com/ponos-tools/ponos/lib/task/queue"
)

const name = "ponos-submit"

// Usage is what the tool does, in a line.
const Usage = "submit tasks to the spool"

// Main runs the tool as the whole process, and returns its exit status.
func Main() int { return app.Main(run) }

func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	return app.Tool{
		Name:      name,
		Usage:     Usage,
		ArgsUsage: "[::: NAME=VALUE...] [[--] COMMAND [ARG...]]",
		StopAtArg: true,
		Description: "Submits a command as a task to a spool, a directory from which the agent takes\n" +
			"tasks. Prints the id of the task, and how to start the agent if none runs.",
		Examples: "ponos-submit --gpu --repository . -- python3 train.py\n" +
			"ponos-submit --directory . --each params.tsv -- ./train --lr {lr}",
		Brief:       map[string][]string{"": {"each", "group", "key", "repository", "directory", "find", "retry", "after", "wait"}},
		Environment: slurm.CheckEnvironment,
		Flags:       Flags(),
		Unknown:     Instead,
		Action:      func(c *cli.Context) error { return NotSbatch(args, submit(c, args, stdin, stdout, stderr)) },
	}.Run(ctx, args, stdin, stdout, stderr)
}

// Flags are the flags of a submission.
func Flags() []cli.Flag {
	return append([]cli.Flag{
		app.ConfigFlag(),
		&cli.StringFlag{Name: "spool", Aliases: []string{"s"}, Usage: "submit to the spool `DIR`; read no configuration"},
		&cli.StringFlag{Name: "each", Usage: "submit a task for each row of `FILE`: TSV, CSV or JSON lines"},
		&cli.StringFlag{
			Name: "name", Aliases: []string{"slug", "n"},
			Usage: "call the task `NAME`, which may have placeholders (the command's name)",
		},
		&cli.StringFlag{Name: "group", Usage: "put the tasks into the group `GROUP`"},
		&cli.IntFlag{Name: "at-most", Usage: "run at most `N` tasks of the group at a time"},
		&cli.StringFlag{Name: "on-end", Usage: "run the shell command `COMMAND` when all tasks of the group have ended; none: no command"},
		&cli.StringFlag{Name: "key", Usage: "submit only what was not submitted with `KEY` before"},
		&cli.StringFlag{Name: "repository", Aliases: []string{"r"}, Usage: "run code of the git repository `URL` (or path)"},
		&cli.StringFlag{Name: "revision", Usage: "check out `REV`: a commit, tag or branch (HEAD)"},
		&cli.BoolFlag{Name: "dirty", Usage: "include uncommitted changes"},
		&cli.StringFlag{Name: "directory", Aliases: []string{"d"}, Usage: "run code of `DIR`, as it is now"},
		&cli.BoolFlag{Name: "in-place", Usage: "run in the directory itself, --directory or the current one, as sbatch does"},
		&cli.StringFlag{Name: "environment", Usage: "`ENVIRONMENT` of Python: active in this shell, or own of the code"},
		&cli.StringFlag{Name: "image", Aliases: []string{"i"}, Usage: "run in the Docker image `IMAGE`, which needs mode vast"},
		&cli.StringFlag{Name: "worker", Aliases: []string{"w"}, Usage: "run the repository's worker `SLUG`"},
		&cli.BoolFlag{Name: "gpu", Aliases: []string{"g"}, Usage: "the task needs a GPU"},
		&cli.StringSliceFlag{Name: "after", Aliases: []string{"a"}, Usage: "start after `TASK`, with its artifacts; repeatable"},
		&cli.StringFlag{Name: "env-file", Aliases: []string{"e"}, Usage: "set the variables in `FILE`, one NAME=VALUE per line"},
		&cli.StringSliceFlag{Name: "file", Aliases: []string{"f"}, Usage: "give `FILE` to the task; repeatable"},
		&cli.StringSliceFlag{
			Name: "keep", Usage: "of the files that the task writes, keep those that match `PATTERN`; none: no file (all); repeatable",
		},
		&cli.StringFlag{Name: "process", Usage: "group the task's artifacts under `ID`"},
		&cli.BoolFlag{Name: "wait", Usage: "follow the log, and exit with the task's status"},
		&cli.BoolFlag{Name: "json", Usage: "print one JSON object per line for each task"},
	}, requestFlags()...)
}

// Submitted are the tasks that a command line has submitted.
type Submitted struct {
	Queue queue.Client
	Tasks []queue.Entry // without ids
	Batch queue.Batch
}

// ForGroup reports whether a command line names a group and nothing to submit.
func ForGroup(c *cli.Context) bool {
	return c.IsSet("group") && !c.Args().Present() &&
		!c.IsSet("each") && !c.IsSet("repository") && !c.IsSet("directory") && !c.IsSet("in-place") && !c.IsSet("image")
}

func submit(c *cli.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) error {
	if c.Bool("wait") && ForGroup(c) {
		return waitForGroup(c, stderr)
	}
	made, err := Submit(c, args, stdin, stderr, func() error { return nil })
	if err != nil {
		return err
	}
	s, all, batch := made.Queue, made.Tasks, made.Batch // Latest changes its ids
	if err := show(c, stdout, all, batch); err != nil {
		return err
	}
	if len(all[0].Parameters) > 0 || batch.New < len(all) {
		summary(stderr, all, batch)
	}
	if err := made.Latest(c, stderr); err != nil {
		return err
	}
	w := waiting{spool: s, start: starter(c), id: batch.IDs[0], stop: "ponos-cancel " + string(batch.IDs[0]), stderr: stderr}
	if err := tasklist.Unattended(s, w.start, ""); err != nil && batch.New > 0 {
		w.tell(err)
	}
	if !c.Bool("wait") {
		return nil
	}
	if len(all) > 1 {
		w.stop = stopOf(c, all[0].Group)
		return w.waitForAll(c, batch.IDs)
	}
	if c.IsSet("spool") {
		w.stop = fmt.Sprintf("ponos-cancel --spool %s %s", shell.Quote(c.String("spool")), batch.IDs[0])
	}
	return w.wait(c.Context, stdout)
}

// Submit submits what a command line says, which has Flags. Once that is read, and before anything is written, it calls ready.
func Submit(c *cli.Context, args []string, stdin io.Reader, stderr io.Writer, ready func() error) (made Submitted, err error) {
	lists, words, err := combinations(c.Args().Slice())
	if err != nil {
		return made, err
	}
	table, err := parameters(c, lists, stdin)
	if err != nil {
		return made, err
	}
	for _, warning := range oneValue(lists) {
		app.Report(stderr, c.App.Name, warning)
	}
	script, err := jobScript(c, args, words)
	if err != nil {
		return made, err
	}
	if script != nil {
		if words = script.words; script.array != nil {
			if table != nil {
				return made, fault.Errorf(fault.Usage, "--each and the --array of %s cannot be combined", task.Clean(script.name))
			}
			table = script.array
		}
		if note := script.note(); note != "" {
			fmt.Fprintf(stderr, "%s: %s\n", c.App.Name, note)
		}
	}
	e, err := entry(c, words, table != nil)
	if err != nil {
		return made, err
	}
	if !c.IsSet("image") {
		if err := wanted(c).Absent(c.Context, words); err != nil {
			return made, err
		}
	}
	all := []queue.Entry{e}
	if table != nil {
		if all, err = expand(c, e, *table, stderr); err != nil {
			return made, err
		}
	}
	if err := ready(); err != nil {
		return made, err
	}
	s, err := openSpool(c, stderr)
	if err != nil {
		return made, err
	}
	if err := configured(c, table != nil); err != nil {
		return made, err
	}
	if err := mistakes(c, words, table != nil, script != nil, stderr); err != nil {
		return made, err
	}
	after, err := parents(c, s)
	if err != nil {
		return made, err
	}
	end, err := onEnd(c, table != nil)
	if err != nil {
		return made, err
	}
	for i := range all {
		all[i].After, all[i].OnEnd = after, end
	}
	if err := carried(c, s, all); err != nil {
		return made, err
	}
	// Last, as it may take a while: all else is right.
	code, uncommitted, err := wanted(c).Make(c.Context, s)
	if err != nil {
		return made, err
	}
	if err := source.Uncommitted(uncommitted); err != nil {
		app.Report(stderr, c.App.Name, err)
	}
	if code.Environment, err = environmentOf(c); err != nil {
		return made, err
	}
	for i := range all {
		all[i].Source = code
	}
	batch, err := add(s, c.String("key"), words, all)
	if err != nil {
		return made, err
	}
	return Submitted{s, all, batch}, nil
}

// wanted is the code that the command line names.
func wanted(c *cli.Context) source.Wanted {
	w := source.Named(c.String, c.Bool("dirty"))
	if w.InPlace = c.Bool("in-place"); w.InPlace && w.Directory == "" {
		w.Directory = "."
	}
	return w
}

// add puts tasks into the spool.
func add(s queue.Client, key string, words []string, all []queue.Entry) (queue.Batch, error) {
	if key != "" || len(all) > 1 {
		return s.AddAll(key, words, all)
	}
	id, err := uuid.NewV7() // grows with time, so that the oldest comes first
	if err != nil {
		return queue.Batch{}, err
	}
	all[0].ID = task.ID(id.String())
	return queue.Batch{IDs: []task.ID{all[0].ID}, New: 1}, s.Add(all[0])
}

// Latest takes the last attempts of tasks that were submitted before, and warns of those that have other code, and did not complete.
func (m Submitted) Latest(c *cli.Context, stderr io.Writer) (err error) {
	if m.Batch.New == len(m.Tasks) {
		return nil
	}
	s, other := m.Queue, 0
	for i, id := range m.Batch.IDs {
		if m.Batch.IDs[i], err = s.Latest(id); err != nil {
			return err
		}
		if e, err := s.Find(m.Batch.IDs[i]); err == nil && e.State != task.Completed && !e.Source.Same(m.Tasks[i].Source) {
			other++
		}
	}
	if other == 0 {
		return nil
	}
	app.Report(stderr, c.App.Name, fault.Hint(
		fmt.Errorf("warning: the code of %s is not what is there now", tasklist.Count{Total: other}),
		"ponos-retry with --directory or --repository gives those that have ended the new code"))
	return nil
}

// show prints the tasks' ids.
func show(c *cli.Context, stdout io.Writer, all []queue.Entry, batch queue.Batch) error {
	out := bufio.NewWriter(stdout)
	for i, id := range batch.IDs {
		if !c.Bool("json") {
			fmt.Fprintln(out, id)
			continue
		}
		if err := app.PrintJSONLine(out, struct {
			ID         task.ID           `json:"id"`
			Slug       string            `json:"slug"`
			Group      string            `json:"group,omitempty"`
			Parameters map[string]string `json:"parameters,omitempty"`
		}{id, all[i].Slug, all[i].Group, all[i].Parameters}); err != nil {
			return err
		}
	}
	return out.Flush()
}

// summary counts tasks by their states.
func summary(stderr io.Writer, all []queue.Entry, batch queue.Batch) {
	text := fmt.Sprintf("%d tasks submitted", batch.New)
	if batch.New == 1 {
		text = "1 task submitted"
	}
	if old := len(all) - batch.New; old > 0 {
		text += fmt.Sprintf(", %d submitted before", old)
	}
	if group := all[0].Group; group != "" && batch.New > 0 {
		text += ", in group " + group
	}
	fmt.Fprintf(stderr, "%s: %s\n", name, text)
}

func openSpool(c *cli.Context, stderr io.Writer) (queue.Client, error) {
	return tasklist.Make(c.String("config"), c.String("spool"), assembly.Places(stderr, c.App.Name))
}

// entry makes the task that the command line describes, without its source and id, and without what only the queue and the
// configuration know.
func entry(c *cli.Context, words []string, sweep bool) (queue.Entry, error) {
	e := queue.Entry{
		Slug: c.String("name"), Group: c.String("group"), Key: c.String("key"), Process: c.String("process"), Worker: c.String("worker"),
		Command: words, RequiresGPU: c.Bool("gpu"), Created: clock.Now().UTC(),
	}
	if err := check(c, e); err != nil {
		return e, err
	}
	var err error
	if e.Image, err = image(c); err != nil {
		return e, err
	}
	if len(e.Command) == 0 && wanted(c) == (source.Wanted{}) && e.Image == "" {
		return e, fault.Hint(
			fault.Errorf(fault.Usage, "no command to run"),
			`give a command after "--", a --repository with a .arkindex.yml, or an --image`)
	}
	if err := oneWord(e.Command); err != nil {
		return e, err
	}
	switch {
	case e.Worker != "" && len(e.Command) > 0:
		return e, fault.Errorf(fault.Usage, "--worker cannot be combined with a command: it names one of the repository's")
	case e.Worker != "" && wanted(c) == (source.Wanted{}):
		return e, fault.Errorf(fault.Usage, "--worker needs --repository or --directory")
	}
	if e.Slug == "" {
		e.Slug = slug(e)
		if queue.CheckName(e.Slug) != nil { // the command's word can be anything
			e.Slug = "task"
		}
	}
	if path := c.String("env-file"); path != "" {
		if e.Env, err = tasklist.ReadEnv(path); err != nil {
			return e, err
		}
	}
	for _, path := range c.StringSlice("file") {
		f, err := file(path)
		if err != nil {
			return e, err
		}
		e.Files = append(e.Files, f)
	}
	if e.AtMost = c.Int("at-most"); c.IsSet("at-most") && e.AtMost < 1 {
		return e, fault.Errorf(fault.Usage, "--at-most must be at least 1, not %d", e.AtMost)
	}
	if e.AtMost > 0 && e.Group == "" && !sweep {
		return e, fault.Errorf(fault.Usage, "--at-most needs --group, or a sweep")
	}
	for _, pattern := range c.StringSlice("keep") {
		if err := kept.CheckPattern(pattern); err != nil {
			return e, fault.Wrap(fault.Usage, &flagError{"--keep", err})
		}
		e.Keep = append(e.Keep, pattern)
	}
	if len(e.Keep) > 1 && slices.Contains(e.Keep, kept.None) {
		return e, fault.Errorf(fault.Usage, "--keep: %s and a pattern cannot be combined", kept.None)
	}
	return e, requested(c, &e, sweep)
}

// configured sets the flags that the command line does not have and the configuration has, and refuses what its mode
// cannot run.
func configured(c *cli.Context, sweep bool) error {
	if c.IsSet("spool") && c.IsSet("config") {
		return fault.Errorf(fault.Usage, "--spool cannot be combined with --config: it reads no configuration")
	}
	if c.IsSet("spool") {
		return nil
	}
	cfg, err := assembly.Configuration(c.String("config"))
	if err != nil {
		return err
	}
	switch {
	case c.IsSet("image") && !assembly.RunsImages(cfg):
		return fault.Hint(
			fault.Errorf(fault.Usage, "--image: mode %s runs no images, only mode vast does", cfg.Mode),
			"to use a container of Slurm, start it in the command, such as -- apptainer exec IMAGE COMMAND")
	case !c.IsSet("image") && assembly.RunsImages(cfg):
		return fault.Errorf(fault.Usage, "the task has no --image, and rented machines run only images")
	}
	if cfg.OnEnd != "" && !c.IsSet("on-end") && (sweep || c.IsSet("group")) {
		err = c.Set("on-end", cfg.OnEnd)
	}
	if cfg.Environment.Default != "" && !c.IsSet("environment") && !c.IsSet("image") && ActiveHere() != "" {
		err = errors.Join(err, c.Set("environment", cfg.Environment.Default))
	}
	return err
}

// onEnd is the command that runs when the group has ended.
func onEnd(c *cli.Context, sweep bool) (queue.OnEnd, error) {
	line := c.String("on-end")
	switch {
	case !c.IsSet("on-end"), line == "none":
		return queue.OnEnd{}, nil
	case strings.TrimSpace(line) == "":
		return queue.OnEnd{}, fault.Errorf(fault.Usage, "--on-end: the command is empty")
	case c.String("group") == "" && !sweep:
		return queue.OnEnd{}, fault.Errorf(fault.Usage, "--on-end needs --group, or a sweep")
	}
	dir, err := os.Getwd()
	return queue.OnEnd{Command: line, Directory: dir}, err
}

// check looks at what the user calls the task.
func check(c *cli.Context, e queue.Entry) error {
	if c.IsSet("name") {
		if err := queue.CheckName(e.Slug); err != nil {
			return fault.Errorf(fault.Usage, "--name: %w", err)
		}
	}
	if c.IsSet("group") && e.Group == "" {
		return fault.Errorf(fault.Usage, "--group: the name is empty")
	}
	if err := queue.CheckGroup(e.Group); err != nil {
		return fault.Errorf(fault.Usage, "--group: %w", err)
	}
	if c.IsSet("key") && e.Key == "" {
		return fault.Errorf(fault.Usage, "--key: the key is empty")
	}
	if err := queue.CheckKey(e.Key); err != nil {
		return fault.Errorf(fault.Usage, "--key: %w", err)
	}
	if e.Process != "" {
		if _, err := task.ParseID(e.Process); err != nil {
			return fault.Errorf(fault.Usage, "--process: %w", err)
		}
	}
	return nil
}

// oneWord refuses a command that was put into quotes as a whole, as no shell runs it, and one that is empty.
func oneWord(words []string) error {
	if len(words) > 0 && words[0] == "" {
		return fault.Errorf(fault.Usage, "the first word of the command, its program, is empty")
	}
	if len(words) != 1 || !strings.ContainsAny(words[0], " \t\n") {
		return nil
	}
	if _, err := os.Stat(words[0]); err == nil {
		return nil
	}
	return fault.Hint(
		fault.Errorf(fault.Usage, "the command %q is one word with spaces in it, and runs without a shell", task.Clean(words[0])),
		fmt.Sprintf("leave the quotes out, or run a shell: -- sh -c %s", shell.Quote(words[0])))
}

// braces is a word that has no meaning but as a placeholder, alone or behind an option.
var braces = regexp.MustCompile(`(^|=)\{[A-Za-z_][A-Za-z0-9_]*\}$`)

// misplaced is a warning about lists of values behind the command, where other tools have them, and about placeholders
// of a single task.
func misplaced(words []string) error {
	if len(words) == 0 {
		return nil
	}
	program, arguments := path.Base(words[0]), words[1:]
	if slices.Contains([]string{"jobpool", "parallel", "awk", "gawk", "mawk", "jq"}, program) { // it reads them itself
		return nil
	}
	if slices.Contains(words, listMark) {
		return fault.Hint(fmt.Errorf("warning: one task is submitted: %q after the command is passed to it", listMark),
			"for one task for each value, put the values before the command: ::: x=1 x=2 -- ./train {x}")
	}
	if i := slices.IndexFunc(arguments, braces.MatchString); i >= 0 {
		return fault.Hint(
			fmt.Errorf("warning: the command gets the word %s as it is, as there are no values for it", task.Clean(arguments[i])),
			"to give values, put them before the command (::: NAME=VALUE...), or into a table (--each FILE)")
	}
	return nil
}

// tools are those of the suite that do what a word says.
var tools = map[string]string{
	"list": "ponos-list", "status": "ponos-list", "log": "ponos-log", "logs": "ponos-log", "retry": "ponos-retry",
	"cancel": "ponos-cancel", "stop": "ponos-cancel",
}

// parents are the tasks of --after.
func parents(c *cli.Context, s queue.Client) ([]task.ID, error) {
	wanted := c.StringSlice("after")
	if len(wanted) == 0 {
		return nil, nil
	}
	all, err := s.List()
	if err != nil {
		return nil, err
	}
	var ids []task.ID
	for _, word := range wanted {
		found, err := tasklist.One(all, word)
		if err != nil {
			return nil, fault.Errorf(fault.Usage, "--after: %w", err)
		}
		ids = append(ids, found.ID)
	}
	return ids, nil
}

// image is what the task runs in. Nothing can be put into it.
func image(c *cli.Context) (string, error) {
	name := c.String("image")
	if !c.IsSet("image") {
		return "", nil
	}
	if name == "" || len(name) > 1024 || name[0] == '-' || strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return "", fault.Errorf(fault.Usage,
			"--image: invalid image %q: expected a name such as registry.example.org/worker:1.2", task.Clean(name))
	}
	for _, other := range []string{"repository", "revision", "dirty", "directory", "in-place", "environment", "worker", "file"} {
		if c.IsSet(other) {
			return "", fault.Errorf(fault.Usage, "--image cannot be combined with --%s: an image is run unchanged", other)
		}
	}
	return name, nil
}

// carried refuses tasks that no order of a rented machine could carry to their containers. Of a sweep, it looks at the one
// with the longest command.
func carried(c *cli.Context, s queue.Client, all []queue.Entry) error {
	if !c.IsSet("image") {
		return nil
	}
	cfg := config.Config{}
	var err error
	if !c.IsSet("spool") {
		if cfg, err = assembly.Configuration(c.String("config")); err != nil {
			return err
		}
	}
	var parents []task.Parent
	for _, id := range all[0].After {
		parent, err := s.Find(id)
		if err != nil {
			return err
		}
		parents = append(parents, task.Parent{ID: id, Slug: parent.Slug})
	}
	long := slices.MaxFunc(all, func(a, b queue.Entry) int {
		return cmp.Compare(len(strings.Join(a.Command, " ")), len(strings.Join(b.Command, " ")))
	})
	return assembly.Carries(cfg, task.Task{Slug: long.Slug, Image: long.Image, Command: long.Command, Env: long.Env, Parents: parents})
}

// slug names a task after what it runs.
func slug(e queue.Entry) string {
	switch {
	case len(e.Command) > 0:
		return path.Base(e.Command[0])
	case e.Worker != "":
		return e.Worker
	case e.Image != "":
		name, _, _ := strings.Cut(path.Base(e.Image), "@")
		name, _, _ = strings.Cut(name, ":")
		return name
	}
	return "task"
}

// file is a file for the task.
func file(name string) (task.File, error) {
	abs, err := filepath.Abs(name)
	if err != nil {
		return task.File{}, err
	}
	info, err := os.Stat(abs)
	if err != nil {
		return task.File{}, fault.Errorf(fault.Usage, "--file: %w", err)
	}
	if !info.Mode().IsRegular() {
		return task.File{}, fault.Errorf(fault.Usage, "--file %q is not a plain file", name)
	}
	return task.File{Name: filepath.Base(abs), URL: "file://" + abs}, nil
}
