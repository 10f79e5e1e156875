package assembly

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"

	"github.com/ponos-tools/ponos/lib/agent"
	"github.com/ponos-tools/ponos/lib/agent/config"
	"github.com/ponos-tools/ponos/lib/agent/queue/spool"
	"github.com/ponos-tools/ponos/lib/base/clock"
	"github.com/ponos-tools/ponos/lib/base/fault"
	"github.com/ponos-tools/ponos/lib/base/place"
	"github.com/ponos-tools/ponos/lib/market/vastai"
	"github.com/ponos-tools/ponos/lib/task"
	"github.com/ponos-tools/ponos/lib/task/need"
	"github.com/ponos-tools/ponos/lib/task/queue"
	"github.com/ponos-tools/ponos/lib/task/runner"
)

// modes are where tasks can run, and queues where they come from. A new one is a package and a row here: how a
// configuration names it, how it is opened, and what ponos-setup checks. Its settings are fields of config.Config.
var (
	modes = []modeKind{
		{Kind: config.VastKind, new: func(c config.Config) mode { return &vastMode{config: c} }, programs: vastPrograms},
		{Kind: config.SlurmKind, new: func(c config.Config) mode { return newSlurmMode(c) }, programs: slurmPrograms},
		{Kind: config.LocalKind, new: func(c config.Config) mode { return localMode{c} }, programs: codePrograms},
	}
	queues = []queueKind{
		{Kind: config.SpoolKind, open: openSpool, client: clientOfSpool, directory: config.Config.SpoolDir, usable: spool.Usable},
		{Kind: config.ArkindexKind, open: openArkindex},
	}
)

type modeKind struct {
	config.Kind
	new      func(config.Config) mode
	programs func(config.Config) []Program
}

type queueKind struct {
	config.Kind
	// open makes no requests yet.
	open func(ctx context.Context, p *System, o Options) (opened, error)
	// client opens it for people, or, with a memory, makes it unless there was one before; nil: they do not fill it.
	client func(dir string, before *place.Memory) (queue.Client, error)
	// directory is where it lies, and usable why this user cannot use that; nil: it is elsewhere.
	directory func(config.Config) string
	usable    func(dir string) error
}

// opened is a queue that is open.
type opened struct {
	queue.Queue
	was  queue.Beat                                  // what it remembers of an agent with this name
	join func(store *agent.Store, data string) error // makes agent and queue remember each other; nil: they need not
}

// kinds are those that a configuration can name.
func kinds() (k config.Kinds) {
	for _, m := range modes {
		k.Modes = append(k.Modes, m.Kind)
	}
	for _, q := range queues {
		k.Queues = append(k.Queues, q.Kind)
	}
	return k
}

// Configuration finds, reads and checks a configuration; see config.Load.
func Configuration(flag string) (config.Config, error) { return config.Load(flag, kinds()) }

// ReadConfiguration is Configuration for a text; see config.Parse.
func ReadConfiguration(r io.Reader, path string) (config.Config, error) {
	return config.Parse(r, path, kinds())
}

func modeKindOf(c config.Config) modeKind {
	return modes[slices.IndexFunc(modes, func(m modeKind) bool { return m.Name == c.Mode })] // it was checked
}

func queueKindOf(c config.Config) queueKind {
	return queues[slices.IndexFunc(queues, func(q queueKind) bool { return q.Is(c.Queue) })] // it was checked
}

// modeOf returns the mode of a configuration.
func modeOf(c config.Config) mode { return modeKindOf(c).new(c) }

// Client opens the queue of a configuration as people see it, or, with a memory of places, makes it unless there was one before.
func Client(c config.Config, before *place.Memory) (queue.Client, error) {
	q := queueKindOf(c)
	if q.client == nil {
		return nil, fault.Hint(
			fault.Errorf(fault.Usage, "the queue of %q is %s, which is not a spool", c.Path, c.Queue), "name a spool with --spool DIR")
	}
	return q.client(q.directory(c), before)
}

// ClientOf is Client for the directory of a spool.
func ClientOf(dir string, before *place.Memory) (queue.Client, error) {
	return clientOfSpool(dir, before)
}

func clientOfSpool(dir string, before *place.Memory) (queue.Client, error) {
	if before != nil {
		return spool.MakeOnce(*before, dir, clock.Now())
	}
	return spool.Open(dir)
}

// Directory is where the queue of a configuration lies, and why this user cannot use that; "": elsewhere.
func Directory(c config.Config) (name, dir string, unusable error) {
	q := queueKindOf(c)
	if q.directory == nil {
		return "", "", nil
	}
	dir = q.directory(c)
	return q.Name, dir, q.usable(dir)
}

// Program is a program that an agent needs, with its least version.
type Program struct {
	Name  string
	Least [3]int
	Slurm bool // it asks a controller
	// Without is what tasks cannot have if the program is missing; "": none runs.
	Without string
}

// Programs are those that an agent needs.
func Programs(c config.Config) []Program { return modeKindOf(c).programs(c) }

// codePrograms are those that install the code of tasks, and start it.
func codePrograms(c config.Config) []Program {
	git, python := Program{Name: "git", Least: [3]int{2, 20}}, Program{Name: c.Environment.Python, Least: [3]int{3, 8}}
	if queueKindOf(c).client != nil { // tasks of people may be commands
		git.Without, python.Without = "a git repository", "a virtual environment"
	}
	return []Program{git, python, {Name: "bash", Least: [3]int{4, 4}}}
}

func slurmPrograms(c config.Config) []Program {
	all := codePrograms(c)
	for _, name := range []string{"sbatch", "squeue", "sacct", "scancel", "scontrol"} {
		all = append(all, Program{Name: name, Least: [3]int{20, 11}, Slurm: true})
	}
	return all
}

// vastPrograms has none for code: tasks run from images.
func vastPrograms(c config.Config) []Program {
	if c.Vast.Via != "cli" {
		return nil
	}
	return []Program{{Name: "vastai", Least: vastai.Oldest}}
}

// Where says where the tasks of an agent run.
func Where(c config.Config) string { return cmp.Or(modeOf(c).can().where, "in mode "+c.Mode) }

// HasDaemon reports whether the agent of a configuration is to be a job of Slurm.
func HasDaemon(c config.Config) bool { return modeOf(c).can().daemon != nil }

// Near reports whether the tasks of an agent run on this machine.
func Near(c config.Config) bool { return modeOf(c).can().near }

// RunsImages reports whether the tasks of an agent are images, and nothing else is.
func RunsImages(c config.Config) bool { return modeOf(c).can().images }

// Copies reports whether the jobs of an agent run programs from its data_dir.
func Copies(c config.Config) bool { return modeOf(c).can().programs != nil }

// leaves says why an agent leaves a task to others that share its queue, as far as that is known without asking anything; "": it does not.
func leaves(ctx context.Context, c config.Config, can abilities, e queue.Entry) string {
	n := runner.Needs{GPU: e.RequiresGPU, Request: requestOf(c, task.Task{Slug: e.Slug, Request: e.Request})}
	switch {
	case e.Image != "" && !can.images:
		return fmt.Sprintf("it is to run in image %q, and mode %s runs none", task.Clean(e.Image), c.Mode)
	case e.Image == "" && can.images:
		return fmt.Sprintf("it has no image, and mode %s runs nothing else", c.Mode)
	case can.near && need.Check(n.Request) == nil:
		if err := can.check(ctx, n); err != nil {
			return fault.Text(err)
		}
	}
	return ""
}

// Why says why the jobs of tasks wait, as far as that is known within a second: what the scheduler's own reasons are about, as they stand
// at the end of a task's reason.
func Why(ctx context.Context, c config.Config, waiting []queue.Summary) map[task.ID]string {
	why := modeOf(c).can().why
	if why == nil || c.CheckWriters() != nil {
		return nil
	}
	store := &agent.Store{Dir: c.StateDir()}
	jobs, words := map[task.ID]string{}, map[task.ID]string{}
	for _, t := range waiting[:min(len(waiting), maxWhy)] {
		r, err := store.Task(t.ID).Read()
		if word := schedulers.FindString(t.Reason); err == nil && r.Job != "" && word != "" && t.State == task.Pending {
			jobs[t.ID], words[t.ID] = r.Job, word
		}
	}
	if len(jobs) == 0 {
		return nil
	}
	reasons := why(ctx, slices.Collect(maps.Values(jobs)))
	said := map[task.ID]string{}
	for id, job := range jobs {
		if reasons[job] != "" {
			said[id] = reasons[job] + " " + words[id]
		}
	}
	return said
}

// maxWhy limits how many tasks of a list are looked into.
const maxWhy = 100

// schedulers is the word of a scheduler at the end of a reason.
var schedulers = regexp.MustCompile(`\(\w+\)$`)
