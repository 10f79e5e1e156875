package assembly

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/google/renameio/v2"

	"github.com/ponos-tools/ponos/lib/agent"
	"github.com/ponos-tools/ponos/lib/clock"
	"github.com/ponos-tools/ponos/lib/command"
	"github.com/ponos-tools/ponos/lib/config"
	"github.com/ponos-tools/ponos/lib/environment"
	"github.com/ponos-tools/ponos/lib/fault"
	"github.com/ponos-tools/ponos/lib/place"
	"github.com/ponos-tools/ponos/lib/queue"
	"github.com/ponos-tools/ponos/lib/queue/arkindex"
	"github.com/ponos-tools/ponos/lib/queue/spool"
	"github.com/ponos-tools/ponos/lib/runner"
	"github.com/ponos-tools/ponos/lib/runner/local"
	"github.com/ponos-tools/ponos/lib/runner/pack"
	slurmrunner "github.com/ponos-tools/ponos/lib/runner/slurm"
	vastrunner "github.com/ponos-tools/ponos/lib/runner/vast"
	"github.com/ponos-tools/ponos/lib/slurm"
	"github.com/ponos-tools/ponos/lib/task"
	"github.com/ponos-tools/ponos/lib/unit"
)

// System is an agent with its parts.
type System struct {
	Config config.Config
	Agent  *agent.Agent
	Slurm  *slurm.Client // nil in local mode
	// SlurmRunner is the agent's runner in Slurm mode.
	SlurmRunner *slurmrunner.Runner
	// Vast is the agent's runner in vast mode.
	Vast   *vastrunner.Runner
	log    *logging
	places place.Memory
	// refusals caches the answers of Refused, by options of sbatch.
	refusals sync.Map
}

// Options are the differences between the tools.
type Options struct {
	ConfigPath string
	Verbose    bool
	Stderr     interface{ Write([]byte) (int, error) }
	Tool       string
	// Create allows a new spool or data_dir in place of a missing one that is remembered.
	Create bool
	// Every is the time between two turns; 0: the agent is called from outside. Turns says that the
	// tool takes turns, which the queue records.
	Every time.Duration
	Turns bool
	// Pack has short tasks run in pilot jobs.
	Pack bool
}

// Read reads the configuration and prints its warnings.
func (o Options) Read() (config.Config, error) {
	c, err := config.Load(o.ConfigPath)
	if err != nil {
		return c, err
	}
	for _, w := range c.Warnings {
		fmt.Fprintf(o.Stderr, "%s: warning: %s\n", o.Tool, w)
	}
	return c, nil
}

// Load reads the configuration and builds the agent. It creates the state directory.
func Load(ctx context.Context, o Options) (*System, error) {
	c, err := o.Read()
	if err != nil {
		return nil, err
	}
	return New(ctx, c, o)
}

// New builds an agent. It creates the state directory.
func New(ctx context.Context, c config.Config, o Options) (*System, error) {
	if err := errors.Join(c.CheckDataDir(), CheckRequests(c)); err != nil {
		return nil, err
	}
	log, err := openLogging(c, o)
	if err != nil {
		return nil, err
	}
	p := &System{Config: c, log: log, places: place.Memory{Dir: config.PlacesDir()}}
	if c.Mode == "slurm" {
		p.Slurm = &slurm.Client{}
	}
	sp, was, err := openSpool(ctx, p, o)
	if err != nil {
		return nil, err
	}
	data, err := p.identifyData(was, o.Create)
	if err != nil {
		return nil, err
	}
	if err := p.findState(o.Create); err != nil {
		return nil, err
	}
	store, err := agent.OpenStore(c.StateDir(), clock.Now())
	if err != nil {
		return nil, fault.Wrap(fault.Unavailable, err)
	}
	if err := p.rememberState(store); err != nil {
		return nil, err
	}
	var run runner.Runner
	switch c.Mode {
	case "slurm":
		p.SlurmRunner = slurmrunner.New(p.Slurm, c.Slurm, Find)
		worker, err := command.Sibling("ponos-start")
		if err == nil { // otherwise it is reported when a pilot job is to be submitted
			worker = append(worker, "--pilot")
		}
		p.SlurmRunner.Pack(slurmrunner.Packing{
			On: o.Pack, State: store.ID(), Worker: worker,
			Dir: pack.Dir{Path: filepath.Join(c.StateDir(), "packs"), Tasks: filepath.Join(c.StateDir(), "tasks")},
		})
		run = p.SlurmRunner
	case "vast":
		if p.Vast, err = newVast(ctx, p); err != nil {
			return nil, err
		}
		run = p.Vast
	default:
		worker, err := command.Sibling("ponos-start")
		if err != nil {
			return nil, err
		}
		dir := filepath.Join(c.StateDir(), "local")
		run = &local.Runner{
			Dir: dir, MaxJobs: c.Local.MaxJobs, Has: machine(c), StopWait: time.Duration(c.Local.StopWait),
			Worker: append(worker, "--local-worker", dir, "--jobs", strconv.Itoa(c.Local.MaxJobs)),
		}
	}
	var q queue.Queue = sp
	if sp != nil {
		if err := joinSpool(sp, store, was, data, c.Mode, o); err != nil {
			return nil, err
		}
	} else if q, err = openArkindex(p); err != nil {
		return nil, err
	}
	p.Agent = &agent.Agent{
		Queue: q, Runner: run, Store: store, Log: log.Logger,
		Environments: &environment.Store{Dir: filepath.Join(c.DataDir, "environments"), Run: command.System, Timeout: time.Duration(c.Environment.Timeout)},
		ArtifactsDir: c.ArtifactsDir(), FilesDir: filepath.Join(c.DataDir, "files"),
		TaskFormat: c.Logging.TaskFormat, Python: c.Environment.Python, PIPFlags: c.Environment.PIPFlags,
		ConfigFlag: c.Slurm.ConfigFlag,
		// A process that can write to a spool of mode 0700 runs as this user.
		LocalCode:   sp != nil,
		WhyRefused:  p.Refused,
		Hopeless:    p.Hopeless,
		LongestTime: time.Duration(c.Slurm.Limits.Time),
		Request:     func(t task.Task) task.Request { return requestOf(c, t) },
		Retry:       c.Retry,
	}
	if c.Mode == "vast" {
		p.Agent.AskInterval = 2 * time.Duration(c.Vast.LogInterval)
	}
	return p, nil
}

// machine returns what this machine has for jobs; the configuration takes precedence.
func machine(c config.Config) local.Resources {
	r := local.Machine()
	if c.Local.CPUs > 0 {
		r.CPUs = c.Local.CPUs
	}
	if c.Local.GPUs > 0 {
		r.GPUs = c.Local.GPUs
	}
	if size, err := unit.Size(c.Local.Memory); err == nil && size > 0 {
		r.Memory = size
	}
	return r
}

// Close closes the logs. Err is the error of the tool, which is reported to the places that are
// configured.
func (p *System) Close(err error) { p.log.close(err) }

// openSpool opens the spool of the configuration, and returns its record of an agent with this name;
// the spool is nil if the queue is not a spool.
func openSpool(ctx context.Context, p *System, o Options) (*spool.Queue, spool.Beat, error) {
	dir := p.Config.SpoolDir()
	if dir == "" {
		return nil, spool.Beat{}, nil
	}
	// An agent without any work so far may begin with a new spool; others may not.
	data, err := dataID(p.Config.DataDir)
	if err != nil {
		return nil, spool.Beat{}, fault.Errorf(fault.Unavailable, "data_dir: %w", err)
	}
	var s *spool.Spool
	switch {
	case o.Create:
		if s, err = spool.Make(dir, clock.Now()); err == nil {
			p.places.Remember(dir, s.ID)
		}
	case data == "":
		s, err = spool.MakeOnce(p.places, dir, clock.Now())
	default:
		s, err = spool.Open(dir)
	}
	if err != nil {
		return nil, spool.Beat{}, err
	}
	name, err := agentName(ctx, p)
	if err != nil {
		return nil, spool.Beat{}, err
	}
	q, err := s.For(name)
	if err != nil {
		return nil, spool.Beat{}, err
	}
	was, err := s.Agent(name)
	return q, was, err
}

// joinSpool records the agent in the spool, and the spool in the agent's state.
func joinSpool(q *spool.Queue, store *agent.Store, was spool.Beat, data, mode string, o Options) error {
	if err := rememberSpool(store, q.Spool); err != nil {
		return err
	}
	// Queried once, as a turn makes no further calls of Slurm.
	cache := filepath.Join(store.Dir, "agent."+mode)
	if b, err := os.ReadFile(cache); err != nil || strings.TrimSpace(string(b)) != q.Agent {
		if err := renameio.WriteFile(cache, []byte(q.Agent+"\n"), 0o600, renameio.WithTempDir(store.Dir)); err != nil {
			return err
		}
	}
	if o.Turns || was.Data != data {
		q.Beat = spool.Beat{Agent: q.Agent, Host: hostname(), PID: os.Getpid(), Mode: mode, Data: data, Dir: filepath.Dir(store.Dir), Every: o.Every.Seconds()}
	}
	if o.Turns || was.Data == data {
		return nil
	}
	// The spool records where the agent keeps its state, even if no turn was taken.
	q.Beat.Seen = was.Seen
	return q.Remember()
}

func openArkindex(p *System) (queue.Queue, error) {
	c := p.Config
	return arkindex.New(arkindex.Config{
		URL: c.URL, FarmID: c.FarmID, Seed: c.Seed, AuthScheme: c.Arkindex.AuthScheme, LogContentType: c.Arkindex.LogContentType,
		IdentityFile: filepath.Join(c.StateDir(), "identity.json"), Memory: p.places, Mode: c.Mode, Logger: p.log.Logger,
		// GPUs of Slurm and of rented machines are on other machines.
		DeclareGPU: c.Mode == "slurm" && len(c.Slurm.GPU) > 0 || c.Mode == "vast",
	})
}

// agentName returns the name of this agent in a spool. It stays the same as long as the agent can
// find its jobs, even if its state directory is lost. Jobs of Slurm are found on every host of the
// cluster, processes only on this one.
func agentName(ctx context.Context, p *System) (string, error) {
	cache := filepath.Join(p.Config.StateDir(), "agent."+p.Config.Mode)
	if b, err := os.ReadFile(cache); err == nil {
		if id, err := task.ParseID(strings.TrimSpace(string(b))); err == nil {
			return string(id), nil
		}
	}
	return deriveName(ctx, p)
}

func deriveName(ctx context.Context, p *System) (string, error) {
	place, err := os.Hostname()
	if err != nil {
		return "", err
	}
	if p.Slurm != nil {
		if place, err = cluster(ctx, p, place); err != nil {
			return "", err
		}
	}
	who := strconv.Itoa(os.Geteuid())
	if u, err := user.Current(); err == nil {
		who = u.Username
	}
	sum := sha256.Sum256([]byte(p.Config.Mode + "\x00" + place + "\x00" + who + "\x00" + p.Config.DataDir))
	plain := func(s string) string {
		return strings.Map(func(r rune) rune {
			if 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' {
				return r
			}
			return '-'
		}, s)
	}
	name := strings.Trim(plain(place), "-") + "-" + plain(who)
	return "a" + hex.EncodeToString(sum[:4]) + "-" + name[:min(len(name), 40)], nil
}

// cluster returns the name of the cluster. A host stays in its cluster, so the controller is queried
// once and not at each turn.
func cluster(ctx context.Context, p *System, host string) (string, error) {
	path := filepath.Join(p.Config.StateDir(), "cluster")
	asked := host + " " + os.Getenv("SLURM_CONF") + " "
	if b, err := os.ReadFile(path); err == nil {
		if name, ok := strings.CutPrefix(string(b), asked); ok && strings.HasSuffix(name, "\n") {
			return strings.TrimSuffix(name, "\n"), nil
		}
	}
	config, err := p.Slurm.Config(ctx)
	if err != nil {
		return "", err
	}
	name := config.Get("ClusterName")
	// Without the file, the next tool queries again.
	_ = renameio.WriteFile(path, []byte(asked+name+"\n"), 0o600, renameio.WithTempDir(p.Config.StateDir()))
	return name, nil
}
