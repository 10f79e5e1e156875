package transport

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/ponos-tools/ponos/lib/base/command"
	"github.com/ponos-tools/ponos/lib/base/fault"
	"github.com/ponos-tools/ponos/lib/base/shell"
	"github.com/ponos-tools/ponos/lib/pool/core"
	"github.com/ponos-tools/ponos/lib/pool/scheduler"
	"github.com/ponos-tools/ponos/lib/pool/wire"
)

// Kind is how other nodes are reached.
type Kind string

// The kinds.
const (
	BySrun Kind = "srun"
	BySSH  Kind = "ssh"
	ByCmd  Kind = "cmd"
)

// Dialer opens connections.
type Dialer struct {
	Kind     Kind
	Command  string   // template for ByCmd
	Options  []string // for ssh or srun
	Programs []string // where the worker may be
	Env      []string
	LogDir   string // for what ssh and srun say
	Host     string // the name of this node, as Slurm has it
	// Clearing is how long a worker may take to clear its node, after its last task.
	Clearing time.Duration
	// External reports whether srun has --external-launcher; nil: it has not.
	External func() bool
}

// Dial connects to a node.
func (d *Dialer) Dial(_ context.Context, n scheduler.NodeSpec) (scheduler.Link, error) {
	c := command.Cmd{Env: d.Env}
	worker := WorkerCommand(d.Programs, "worker")
	switch {
	case n.Local:
		c.Name, c.Arg0, c.Args = "/proc/self/exe", "jobpool", []string{"worker"}
	case n.Socket != "" && n.Own && n.Host == d.Host:
		c.Name, c.Arg0, c.Args = "/proc/self/exe", "jobpool", []string{"bridge", n.Socket}
	case n.Socket != "":
		bridge := WorkerCommand(d.Programs, "bridge", n.Socket)
		c.Name, c.Args, c.Env = "srun", ToJob(d.Options, n.Job, n.Host, bridge), OtherJob(d.Env)
	case d.Kind == BySrun:
		c.Name, c.Args, c.Env = "srun", Srun(d.Options, n.Name, n.Most, n.Group, d.External != nil && d.External(), worker), SrunEnv(d.Env)
	case d.Kind == BySSH:
		c.Name, c.Args = "ssh", SSH(d.Options, n.Name, "exec /bin/sh -c "+shell.Quote(worker))
	default:
		c.Name, c.Args = "/bin/sh", []string{"-c", Via(d.Command, n.Name, worker)}
	}
	log, err := os.OpenFile(filepath.Join(d.LogDir, n.Name+".log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, scheduler.Permanent{Err: err}
	}
	defer log.Close()
	l, err := start(c, log)
	if err != nil {
		return nil, err
	}
	l.clearing = d.Clearing
	return l, nil
}

// start starts the program of a connection, whose standard error goes to log.
func start(c command.Cmd, log *os.File) (*link, error) {
	st, err := log.Stat()
	if err != nil {
		return nil, scheduler.Permanent{Err: err}
	}
	c.Stderr = log
	p, err := command.StartProcess(c)
	var missing *command.NotFoundError
	if errors.As(err, &missing) {
		return nil, scheduler.Permanent{Err: err}
	} else if err != nil {
		return nil, fault.Wrap(fault.Unavailable, err)
	}
	return &link{p: p, log: log.Name(), from: st.Size()}, nil
}

// Reach describes, for workers, how nodes are reached, for tasks of several nodes.
func (d *Dialer) Reach() wire.Reach {
	r := wire.Reach{Kind: string(d.Kind), Command: wire.Text(d.Command), Options: wire.Texts(d.Options)}
	if d.Kind == BySrun && d.External != nil {
		r.External = d.External()
	}
	return r
}

// To returns how a command is run at a node of a task of several, from the first of them:
// the program, its arguments and its environment.
func To(r wire.Reach, p wire.Node, env []string, script string) (string, []string, []string) {
	options := wire.Strings(r.Options)
	switch {
	case p.Pilot:
		return "srun", ToJob(options, p.Job, p.Host, script), OtherJob(env)
	case Kind(r.Kind) == BySrun:
		return "srun", Srun(options, p.Host, p.Most, p.Group, r.External, script), SrunEnv(env)
	case Kind(r.Kind) == BySSH:
		return "ssh", SSH(options, p.Host, "exec /bin/sh -c "+shell.Quote(script)), env
	case Kind(r.Kind) == ByCmd:
		return "/bin/sh", []string{"-c", Via(string(r.Command), p.Host, script)}, env
	}
	return "/bin/sh", []string{"-c", script}, env
}

// link is a child process that connects to a worker.
type link struct {
	p        *command.Process
	log      string
	from     int64
	clearing time.Duration // see Dialer
	once     sync.Once
	err      error
	ended    core.End
}

func (l *link) Read(b []byte) (int, error)  { return l.p.Stdout.Read(b) }
func (l *link) Write(b []byte) (int, error) { return l.p.Stdin.Write(b) }

// patience is how long a connection may take to end by itself, and after a
// SIGTERM.
const patience = 3 * time.Second

// Abort ends a connection that is not open yet. A program that still tries to connect does not notice
// that its streams are closed.
func (l *link) Abort() {
	l.once.Do(func() {
		_ = l.p.Signal(syscall.SIGTERM)
		l.end(l.wait(0, time.Second, syscall.SIGKILL))
	})
}

// Leave cuts the connection. The program is killed: it would pass other signals on to the worker.
func (l *link) Leave() {
	l.once.Do(func() {
		_ = l.p.Stdin.Close()
		_ = l.p.Signal(syscall.SIGKILL)
		_ = l.p.Wait()
	})
}

// Close ends the connection.
func (l *link) Close() error {
	l.once.Do(func() { l.end(l.wait(l.clearing, patience, syscall.SIGTERM, syscall.SIGKILL)) })
	return l.err
}

// wait waits for the end of the program, and sends it these signals in turn after each interval. The
// first interval is longer by more.
func (l *link) wait(more, each time.Duration, signals ...syscall.Signal) error {
	_ = l.p.Stdin.Close()
	ended := make(chan error, 1)
	go func() { ended <- l.p.Wait() }()
	for _, sig := range signals {
		select {
		case err := <-ended:
			return err
		case <-time.After(more + each):
			_ = l.p.Signal(sig)
			more = 0
		}
	}
	return <-ended
}

// end notes how the program has ended. ssh and srun have the status of what they
// run, unless the connection was cut.
func (l *link) end(err error) {
	var exit *command.ExitError
	switch {
	case err == nil:
		l.ended = core.Left
	case errors.As(err, &exit) && exit.Code == wire.Over:
		l.ended, err = core.Died, nil
	}
	l.err = l.explain(err)
}

// End returns, after Close, what is known of the worker.
func (l *link) End() core.End { return l.ended }

// explain adds what the program said last.
func (l *link) explain(err error) error {
	if err == nil {
		return nil
	}
	f, e := os.Open(l.log)
	if e != nil {
		return err
	}
	defer f.Close()
	b, _ := io.ReadAll(io.NewSectionReader(f, l.from, 64<<10))
	if text := cause(string(b)); text != "" {
		return fmt.Errorf("%w: %s", err, text)
	}
	return err
}

// harmless matches lines of ssh and srun that do not explain why a connection has ended.
var harmless = regexp.MustCompile(`(?i)\bwarning\b|lacks support for|srun: (job|Job) |srun: launch/|` +
	`Exited with exit code|has been (allocated|queued)|queued and waiting|` +
	`Permanently added|X11 forwarding|StepId=\S+ (aborted|exiting)`)

// cause is the last line of what a program has said that may be why it has ended.
func cause(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	for i := len(lines) - 1; i >= 0; i-- {
		if line := strings.TrimSpace(lines[i]); line != "" && !harmless.MatchString(line) {
			return line
		}
	}
	return ""
}
