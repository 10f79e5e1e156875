package assembly

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/ponos-tools/ponos/lib/agent"
	"github.com/ponos-tools/ponos/lib/agent/code/environment"
	"github.com/ponos-tools/ponos/lib/agent/code/transfer"
	"github.com/ponos-tools/ponos/lib/agent/config"
	"github.com/ponos-tools/ponos/lib/base/clock"
	"github.com/ponos-tools/ponos/lib/base/command"
	"github.com/ponos-tools/ponos/lib/base/fault"
	"github.com/ponos-tools/ponos/lib/base/nss"
	"github.com/ponos-tools/ponos/lib/base/place"
	"github.com/ponos-tools/ponos/lib/slurm/sbatch"
	"github.com/ponos-tools/ponos/lib/task"
	"github.com/ponos-tools/ponos/lib/task/queue"
	"github.com/ponos-tools/ponos/lib/task/runner"
)

// System is an agent with its parts.
type System struct {
	Config config.Config
	Agent  *agent.Agent
	mode   mode
	state  string // id of the state directory
	log    *logging
	places place.Memory
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
	c, err := Configuration(o.ConfigPath)
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
	p := &System{Config: c, mode: modeOf(c), log: log, places: Places(o.Stderr, o.Tool)}
	if !o.Turns && !o.Create {
		p.places.Failed = nil // the other tools of a pipeline have it from the one that takes turns
	}
	q, err := queueKindOf(c).open(ctx, p, o)
	if err != nil {
		return nil, err
	}
	data, err := p.identifyData(q.was, o.Create)
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
	p.state = store.ID()
	run, err := p.mode.open(ctx, p, o)
	if err != nil {
		return nil, err
	}
	if q.join != nil {
		if err := q.join(store, data); err != nil {
			return nil, err
		}
	}
	filled := queueKindOf(c).client != nil
	can := p.mode.can()
	if people, ok := q.Queue.(queue.Filled); ok && can.instances != nil {
		can.instances.Billed = people.Bill
	}
	p.Agent = &agent.Agent{
		Queue: q.Queue, Runner: run, Store: store, Log: log.Logger,
		Environments: &environment.Store{
			Dir: filepath.Join(c.DataDir, "environments"), Run: command.System, Timeout: time.Duration(c.Environment.Timeout),
		},
		Transfers:  &transfer.Store{Queue: q.Queue, Processes: c.ArtifactsDir(), Dir: filepath.Join(c.DataDir, "files")},
		TaskFormat: c.Logging.TaskFormat, Python: c.Environment.Python, PIPFlags: c.Environment.PIPFlags,
		ConfigFlag: c.Slurm.ConfigFlag,
		// A process that can fill it runs as this user.
		LocalCode:   filled,
		WhyRefused:  can.refused,
		Hopeless:    can.hopeless,
		AskInterval: can.askInterval,
		LongestTime: time.Duration(c.Slurm.Limits.Time),
		Request:     func(t task.Task) task.Request { return requestOf(c, t) },
		Retry:       c.Retry,
		KeepSize:    c.KeepSize(!filled),
		MaxLog:      c.MaxLog(),
		GiveUp:      time.Duration(c.Prepare.GiveUp),
		Programs:    can.programs,
	}
	p.Agent.Environments.Holds = p.Agent
	return p, nil
}

// Refused returns why the jobs of tasks with these needs would be refused, or accepted and never
// started; "" if no reason is known.
func (p *System) Refused(ctx context.Context, n runner.Needs) string {
	if refused := p.mode.can().refused; refused != nil {
		return refused(ctx, n)
	}
	return ""
}

// Try returns what asks the scheduler whether it would accept a job, and submits none; nil: there is
// none to ask.
func (p *System) Try() func(context.Context, runner.Needs) (sbatch.Options, error) {
	return p.mode.can().try
}

// CheckNeeds reports problems with the needs of a task that is to be submitted, according to the
// configuration of its agent and to the cluster. An error of kind fault.Usage means that they are not
// allowed, one of kind fault.Failed that nothing can satisfy them, and one of kind fault.Unavailable
// that Slurm has not answered in time: then they are checked when the task is to start.
func CheckNeeds(ctx context.Context, c config.Config, n runner.Needs) error {
	if check := modeOf(c).can().check; check != nil && n.Own() {
		return check(ctx, n)
	}
	return nil
}

// Close closes the logs. Err is the error of the tool, which is reported to the places that are
// configured.
func (p *System) Close(err error) { p.log.close(err) }

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
	host, err := os.Hostname()
	if err != nil {
		return "", err
	}
	place, err := p.mode.place(ctx, p, host)
	if err != nil {
		return "", err
	}
	who := strconv.Itoa(os.Geteuid())
	if name, err := nss.Me(); err == nil {
		who = name
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
