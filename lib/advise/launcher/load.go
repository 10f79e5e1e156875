package launcher

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/ponos-tools/ponos/lib/advise/gpu"
	"github.com/ponos-tools/ponos/lib/advise/launcher/cluster"
	"github.com/ponos-tools/ponos/lib/advise/launcher/file"
	"github.com/ponos-tools/ponos/lib/advise/launcher/request"
	"github.com/ponos-tools/ponos/lib/advise/probe"
	"github.com/ponos-tools/ponos/lib/base/clock"
	"github.com/ponos-tools/ponos/lib/base/command"
	"github.com/ponos-tools/ponos/lib/base/fault"
	"github.com/ponos-tools/ponos/lib/slurm"
	"github.com/ponos-tools/ponos/lib/slurm/sbatch"
)

// World is the environment of a search. The zero value is that of the process.
type World struct {
	Env     func(string) string // nil: os.Getenv
	Run     command.Runner      // nil: command.System
	Now     func() time.Time    // nil: clock.Now
	Refresh bool                // query Slurm even if the cache has an answer
	// Warn, unless nil, is called with a description of what could not be queried.
	Warn func(text string)
}

func (w World) env(name string) string {
	if w.Env != nil {
		return w.Env(name)
	}
	return os.Getenv(name)
}

func (w World) run() command.Runner {
	if w.Run != nil {
		return w.Run
	}
	return command.System
}

func (w World) now() time.Time {
	if w.Now != nil {
		return w.Now()
	}
	return clock.Now()
}

// Files returns the paths where launchers.yaml is searched: $LFIND_CONFIG alone if it is set,
// else the user's configuration, then the system's.
func (w World) Files() []string {
	if path := w.env("LFIND_CONFIG"); path != "" {
		return []string{path}
	}
	var files []string
	home := w.env("HOME")
	config := w.env("XDG_CONFIG_HOME")
	if config == "" && home != "" {
		config = filepath.Join(home, ".config")
	}
	if config != "" {
		files = append(files, filepath.Join(config, "ponos", file.Name), filepath.Join(config, "experimaestro", file.Name))
	}
	return append(files, filepath.Join("/etc/ponos", file.Name))
}

// Load reads the launchers of a file, or of launchers.yaml in a directory. With an empty path
// it reads the first of Files that exists. If none exists, the file returned has no entries.
func (w World) Load(path string) (*file.File, error) {
	if path != "" {
		return loadFile(path)
	}
	files := w.Files()
	for _, path := range files {
		f, err := loadFile(path)
		if err == nil || !errors.Is(err, fs.ErrNotExist) || w.env("LFIND_CONFIG") != "" {
			return f, err
		}
	}
	return &file.File{}, nil
}

func loadFile(path string) (*file.File, error) {
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		path = filepath.Join(path, file.Name)
	}
	f, err := file.Load(path)
	return f, fault.Wrap(fault.Usage, err)
}

// Search returns a search of the launchers of a file. Without entries, it searches what Slurm
// itself reports.
func (w World) Search(f *file.File) (*Search, error) {
	catalogue, err := gpu.Load(w.env)
	if err != nil {
		return nil, err
	}
	s := &Search{Launchers: New(f, catalogue), Now: w.now()}
	if len(f.Entries) == 0 {
		s.Launchers = []*Launcher{Direct(catalogue)}
	}
	s.Ask = func(ctx context.Context, l *Launcher) (*cluster.Snapshot, error) {
		snapshot, err := w.snapshot(ctx, Hostname(f, l.Entry.Connector), l.Entry.Path, l.Entry.Cluster)
		if err == nil && snapshot.Note != "" && w.Warn != nil {
			w.Warn(snapshot.Note)
		}
		return snapshot, err
	}
	return s, nil
}

// snapshot returns what Slurm on a host ("": this one) reports of a cluster ("": the host's own), and the facts of its
// nodes. It may come from the cache. Slurm's commands are in dir, or in PATH if that is "".
func (w World) snapshot(ctx context.Context, host, dir, name string) (*cluster.Snapshot, error) {
	facts := probe.Dirs()
	cache := cluster.Cache{Dir: w.cacheDir(), Refresh: w.Refresh, Now: w.now}
	return cache.Get(ctx, w.clusterKey(host, dir, name, probe.Stamp(facts)), func(ctx context.Context) (*cluster.Snapshot, error) {
		var doubts slurm.Doubts
		client := &slurm.Client{Run: Runner(host, w.run()), Dir: dir, Cluster: name, Odd: doubts.Add}
		s, err := cluster.Asker{Slurm: client, Now: w.now}.Ask(ctx)
		if err != nil {
			return nil, err
		}
		missing := doubts.Warnings()
		var bad []string
		s.Facts, bad = probe.Load(facts, s.Config.Get("ClusterName"))
		s.Note = strings.TrimPrefix(strings.Join(append(append([]string{s.Note}, missing...), bad...), "; "), "; ")
		return s, nil
	})
}

// cacheDir returns the directory for cached answers of Slurm; "" disables the cache.
func (w World) cacheDir() string {
	if dir := w.env("XDG_CACHE_HOME"); dir != "" {
		return filepath.Join(dir, "ponos")
	}
	if home := w.env("HOME"); home != "" {
		return filepath.Join(home, ".cache", "ponos")
	}
	return ""
}

var hostname = os.Hostname // another one in tests

// clusterKey returns a cache key that differs by cluster and by user, as users have different
// rights. It contains the modification time of slurm.conf, so that a change takes effect at
// once.
func (w World) clusterKey(host, dir, name, facts string) string {
	conf := w.env("SLURM_CONF")
	path := conf
	if path == "" {
		path = "/etc/slurm/slurm.conf"
	}
	changed, here := "", ""
	if host == "" { // clusters may share the home directory, and have slurm.conf elsewhere
		here, _ = hostname()
	}
	if info, err := os.Stat(path); err == nil && host == "" {
		changed = info.ModTime().String()
	}
	return fmt.Sprintf("%d\x00%s\x00%s\x00%s\x00%s\x00%s\x00%s\x00%s", os.Getuid(), host, here, dir, conf, changed, name, facts)
}

// Query is a request made by another program, such as the agent.
type Query struct {
	Spec string // in the request language
	// Length and Memory (bytes) apply to alternatives that request none; 0: none.
	Length time.Duration
	Memory int64
	// Job, unless nil, returns the options of the whole job from those that were found.
	Job   func(found sbatch.Options) sbatch.Options
	Tags  []string // only launchers that have one of these
	File  string   // launchers.yaml; "": the first of World.Files
	World World
}

// search returns the search for the query, limited to Slurm launchers on this host.
func (q Query) search() (*Search, error) {
	f, err := q.World.Load(q.File)
	if err != nil {
		return nil, err
	}
	s, err := q.World.Search(f)
	if err != nil {
		return nil, err
	}
	s.Tags, s.Kind = q.Tags, file.Slurm
	s.Launchers = slices.DeleteFunc(s.Launchers, func(l *Launcher) bool { return l.Entry.Connector != "local" })
	return s, nil
}

// repaired returns ask with all nodes up and all partitions open, to learn whether a request
// fails only for the moment.
func repaired(
	ask func(context.Context, *Launcher) (*cluster.Snapshot, error),
) func(context.Context, *Launcher) (*cluster.Snapshot, error) {
	return func(ctx context.Context, l *Launcher) (*cluster.Snapshot, error) {
		snapshot, err := ask(ctx, l)
		if err != nil {
			return nil, err
		}
		s := *snapshot
		s.Groups, s.Partitions = slices.Clone(s.Groups), slices.Clone(s.Partitions)
		for i := range s.Groups {
			s.Groups[i].Unusable = 0
		}
		for i := range s.Partitions {
			s.Partitions[i].State = "UP"
		}
		return &s, nil
	}
}

// Cluster returns a snapshot of this host's Slurm, which may come from the cache.
func (w World) Cluster(ctx context.Context) (*cluster.Snapshot, error) {
	return w.snapshot(ctx, "", "", "")
}

// FindOptions returns the options of sbatch that satisfy a request. Only Slurm launchers on
// this host are searched. The error is of kind fault.Usage for an invalid request or file,
// fault.Failed if nothing matches, and fault.Unavailable if Slurm does not answer or all
// matching nodes are down for the moment.
func FindOptions(ctx context.Context, q Query) (sbatch.Options, error) {
	r, err := request.Parse(q.Spec)
	if err != nil {
		return nil, fault.Wrap(fault.Usage, err)
	}
	r.Fill(q.Length, q.Memory)
	s, err := q.search()
	if err != nil {
		return nil, err
	}
	answer, err := s.Find(ctx, r)
	if err != nil {
		return nil, err
	}
	if answer == nil {
		again, err := q.search()
		if err != nil {
			return nil, err
		}
		again.Ask = repaired(again.Ask)
		if other, err := again.Find(ctx, r); err == nil && other != nil {
			return nil, fault.Errorf(fault.Unavailable,
				"nothing matches %s at this time: its nodes are down or drained, or its partition is closed", r)
		}
		return nil, s.Nothing(ctx, r)
	}
	return q.taken(ctx, s, r, answer)
}

func (q Query) job(found sbatch.Options) sbatch.Options {
	if q.Job == nil {
		return found
	}
	return q.Job(found)
}

// taken returns the options of an answer in the form in which Slurm takes the job, or those of the next best candidate. If
// Slurm takes none, or has no room for it at this time, they are those of the answer: its submission says why.
func (q Query) taken(ctx context.Context, s *Search, r request.Request, answer *Answer) (sbatch.Options, error) {
	best := answer.Options
	v := Verifier{
		Given: q.job(nil),
		Skips: func(a *Answer) bool { return !a.Launcher.Entry.QuerySlurm },
		Ask: func(ctx context.Context, a *Answer, options sbatch.Options) error {
			_, err := TestOnly(ctx, q.World.run(), "", a.Launcher.Entry.Path, q.job(options))
			if slurm.AtLimit(err) {
				return nil
			}
			return err
		},
	}
	other, err := v.Verified(ctx, s, r, answer)
	switch {
	case err == nil:
		return other.Options, nil
	case ctx.Err() != nil:
		return nil, err
	}
	return best, nil
}
