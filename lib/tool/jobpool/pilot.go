package jobpool

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/ponos-tools/ponos/lib/base/clock"
	"github.com/ponos-tools/ponos/lib/base/command"
	"github.com/ponos-tools/ponos/lib/base/fault"
	"github.com/ponos-tools/ponos/lib/base/shell"
	"github.com/ponos-tools/ponos/lib/pool/core"
	"github.com/ponos-tools/ponos/lib/pool/journal"
	"github.com/ponos-tools/ponos/lib/pool/machine"
	"github.com/ponos-tools/ponos/lib/pool/pilot"
	"github.com/ponos-tools/ponos/lib/pool/transport"
	"github.com/ponos-tools/ponos/lib/pool/worker"
	"github.com/ponos-tools/ponos/lib/slurm"
)

// bridgeAction connects a scheduler with the pilot of this node.
func bridgeAction(c *cli.Context) error {
	if c.NArg() != 1 {
		return fault.Errorf(fault.Usage, "bridge: the socket of a pilot is missing")
	}
	status, err := pilot.Bridge(c.Args().First())
	if err != nil {
		return err
	}
	return fault.Exit(status, nil)
}

// pilotAction is what a job of a pool does: it starts workers at its nodes for the
// scheduler, and runs the scheduler if no other pilot does.
func pilotAction(c *cli.Context) error {
	p := &pilotJob{
		out: c.App.Writer, complaints: c.App.ErrWriter, run: c.String("run"), job: os.Getenv("SLURM_JOB_ID"),
		program: filepath.Join(c.String("run"), "bin", "jobpool"),
	}
	if p.run == "" || p.job == "" {
		return fault.Errorf(fault.Usage, "pilot: it runs in a job that jobpool --alloc submits")
	}
	var err error
	if p.pool, err = pilot.Load(p.run); err != nil {
		return err
	}
	// In a step of a job whose nodes differ, Slurm's number of CPUs can be wrong.
	p.cpus = c.Int("cpus")
	if p.cpus == 0 {
		p.cpus, _ = strconv.Atoi(os.Getenv("SLURM_CPUS_ON_NODE"))
	}
	p.mem, p.memPerGPU = c.Int64("mem"), c.Int64("mem-per-gpu")
	return p.work(c.Context, c.Bool("node"))
}

// pilotJob is one job of a pool, at one of its nodes.
type pilotJob struct {
	run, job, program string
	cpus              int   // of the job at this node, 0: not known
	mem, memPerGPU    int64 // see pilot.Node
	out, complaints   io.Writer
	pool              *pilot.Pool
	end               time.Time
	scheduler         *command.Work
	others            []*nodeStep
	failures          int // of schedulers that could not begin
	notBefore         time.Time
	vacant            time.Time // since when this pilot has left the scheduler to another one
	alone             time.Time // since when there is no scheduler, where no pilot has one
	stuck             time.Time // since when the run directory cannot be written
}

// pollInterval is how often a pilot looks whether the run has ended, and whether it has a
// scheduler.
const pollInterval = 500 * time.Millisecond

func (p *pilotJob) work(ctx context.Context, only bool) error {
	if _, over := pilot.Over(p.run); over {
		return nil // it came too late
	}
	// The first SIGTERM ends ctx. Others come at the same time, as Slurm sends it to all processes of the job: none may end this one
	// before its tasks.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGTERM)
	drain := make(chan os.Signal, 1)
	signal.Notify(drain, syscall.SIGUSR1)
	defer signal.Stop(drain)
	if !only {
		if err := pilot.Begin(p.run, p.job); err != nil {
			return err
		}
	}
	l, err := pilot.Listen()
	if err != nil {
		return err
	}
	host := &pilot.Host{
		Worker: command.Cmd{Name: p.program, Args: []string{"worker"}, Stderr: p.complaints}, HungUp: worker.HungUp,
		Complain: func(err error) { fmt.Fprintf(p.complaints, "jobpool: pilot: %v\n", err) },
	}
	defer host.End(30 * time.Second)
	defer pilot.Close(l)
	go host.Serve(l)
	// From Slurm 23.02 on, this saves a request to slurmctld.
	if at, err := strconv.ParseInt(os.Getenv("SLURM_JOB_END_TIME"), 10, 64); err == nil && at > 0 {
		p.end = slurm.Time(at)
	} else if j, err := job(ctx, &slurm.Client{}, p.job); err == nil {
		p.end = j.End
	}
	life := 0.0
	if !p.end.IsZero() {
		if life = clock.Until(p.end).Seconds(); life <= 0 {
			return fault.Hint(
				fmt.Errorf("pilot: the job ends at %s, which by the clock of %s is over", p.end.Format(time.DateTime), machine.Hostname()),
				"report the clock of this node to your administrators, and exclude the node with --alloc-sbatch=--exclude")
		}
	}
	n := pilot.Node{Job: p.job, Name: os.Getenv("SLURMD_NODENAME"), Socket: l.Addr().String(), End: p.end, Life: life}
	if n.First = !only; n.Name == "" {
		n.Name = machine.Hostname()
	}
	n.Start, _ = strconv.Atoi(os.Getenv("SLURM_RESTART_COUNT"))
	if !only {
		if p.others, err = p.otherNodes(ctx, n.Name); err != nil {
			return err
		}
	}
	n.CPUs, n.Mem, n.MemPerGPU = p.cpus, p.mem, p.memPerGPU
	n.Nodes, _ = strconv.Atoi(os.Getenv("SLURM_JOB_NUM_NODES")) // of the step, at nodes but the first
	if err := p.announce(ctx, n); err != nil {
		return err
	}
	defer pilot.Withdraw(p.run, n)
	defer p.endOthers()
	drained := false
	for asked := clock.Now(); ; {
		if only && !drained && pilot.Drained(p.run, p.job) {
			drained = true
			host.Signal(syscall.SIGUSR1)
		}
		if now := clock.Now(); !only && now.Sub(asked).Abs() >= askEnd {
			asked = now
			p.renew(ctx, &slurm.Client{}, &n)
		}
		if _, over := pilot.Over(p.run); over || p.scheduler == nil && pilot.Dismissed(p.run, p.job) || only && ctx.Err() != nil {
			return nil
		}
		if p.ended(&n, only) {
			return nil
		}
		if p.pool.Here && p.forsaken() {
			return nil
		}
		if err := p.startOthers(); err != nil {
			return err
		}
		if !only && !p.pool.Here {
			if ended, err := p.schedule(ctx); ended {
				return err
			}
		}
		select {
		case <-drain: // the scheduler learns it from the workers
			host.Signal(syscall.SIGUSR1)
			if len(p.others) > 0 {
				if err := pilot.Drain(p.run, p.job); err != nil {
					host.Complain(err)
				}
			}
		case <-ctx.Done():
			if p.scheduler != nil { // it hands over
				_ = p.scheduler.Signal(syscall.SIGUSR1)
				<-p.scheduler.Done()
			}
			return context.Cause(ctx)
		case <-time.After(pollInterval):
		}
	}
}

// announce announces a node, and waits for a run directory that cannot be written.
func (p *pilotJob) announce(ctx context.Context, n pilot.Node) error {
	for {
		err := pilot.Announce(p.run, n)
		if err == nil || !p.bears(err) {
			return err
		}
		select {
		case <-ctx.Done():
			return errors.Join(context.Cause(ctx), err)
		case <-time.After(retryWrite):
		}
	}
}

// A pilot tries again so often whether the run directory can be written, and ends when it could not be
// for so long, or for the time for which it may be idle.
const (
	retryWrite = 2 * time.Second
	patience   = 10 * time.Minute
)

// bears reports whether the pilot is to wait for the end of an error of the file system. Each scheduler
// that it started would fail.
func (p *pilotJob) bears(err error) bool {
	if !fault.Storage(err) {
		return false
	}
	now := clock.Now()
	if p.stuck.IsZero() {
		p.stuck = now
		fmt.Fprintf(p.complaints, "jobpool: pilot: waiting for the file system of the run directory: %v\n", err)
	}
	p.notBefore = now.Add(retryWrite)
	return now.Sub(p.stuck) < max(patience, time.Duration(p.pool.Linger*float64(time.Second)))
}

// unwritable returns why the run directory cannot be written.
func (p *pilotJob) unwritable() error {
	err := pilot.Writable(p.run, p.job)
	if err != nil {
		return fault.Hint(
			fmt.Errorf("pilot: the run directory cannot be written: %w", err),
			"when it can be written, repeat the command of the run with --resume")
	}
	if !p.stuck.IsZero() {
		since := clock.Since(p.stuck).Round(time.Second)
		fmt.Fprintf(p.complaints, "jobpool: pilot: the run directory could not be written for %v\n", since)
		p.stuck = time.Time{}
	}
	return nil
}

// ended reports whether the time of the job is up. At its other nodes, the end may have been renewed. The
// scheduler may have to wait for an answer of Slurm to submit the next job.
func (p *pilotJob) ended(own *pilot.Node, only bool) bool {
	now := clock.Now()
	if p.end.IsZero() || now.Before(p.end) || p.scheduler != nil && now.Before(p.end.Add(persistence)) {
		return false
	}
	if only {
		nodes, _ := pilot.Nodes(p.run)
		for _, n := range nodes {
			if n.Label() == own.Label() {
				p.end = n.End
			}
		}
	}
	return clock.Now().After(p.end)
}

// askEnd is how often a pilot asks Slurm when its job ends: an administrator may change that.
const askEnd = 10 * time.Minute

// renew announces the first node of the job again if the end of the job has changed.
func (p *pilotJob) renew(ctx context.Context, client *slurm.Client, first *pilot.Node) {
	j, err := job(ctx, client, p.job)
	if err != nil || j.End.IsZero() || j.End.Equal(p.end) {
		return
	}
	p.end, first.End = j.End, j.End
	if err := pilot.Announce(p.run, *first); err != nil {
		fmt.Fprintf(p.complaints, "jobpool: pilot: %v\n", err)
	}
}

// forsaken reports whether the scheduler, which is elsewhere, has been gone for too long.
func (p *pilotJob) forsaken() bool {
	now := clock.Now()
	if journal.Held(p.run) {
		p.alone = time.Time{}
	} else if p.alone.IsZero() {
		p.alone = now
	}
	return !p.alone.IsZero() && now.Sub(p.alone).Seconds() > max(30, p.pool.Linger)
}

// nodeStep are pilots at other nodes of the job, which a step has started.
type nodeStep struct {
	names     []string
	node      pilot.Node    // what each has: CPUs, Mem and MemPerGPU
	work      *command.Work // nil: it does not run
	failures  int           // in a row
	notBefore time.Time
}

// otherNodes returns the steps for the nodes of the job but its own, and notes what that has. The nodes of a
// step have the same number of CPUs: Slurm gives each of them as many.
func (p *pilotJob) otherNodes(ctx context.Context, own string) ([]*nodeStep, error) {
	at := &place{}
	if err := at.fromJob(os.Getenv, 0); err != nil {
		return nil, err
	}
	at.measure(ctx, &slurm.Client{}, p.job)
	var steps []*nodeStep
	for _, n := range at.nodes {
		if n.Name == own {
			p.mem, p.memPerGPU = n.Mem, n.MemPerGPU
			continue
		}
		has := pilot.Node{CPUs: n.Most, Mem: n.Mem, MemPerGPU: n.MemPerGPU}
		i := slices.IndexFunc(steps, func(s *nodeStep) bool { return s.node == has })
		if i < 0 {
			i = len(steps)
			steps = append(steps, &nodeStep{node: has})
		}
		steps[i].names = append(steps[i].names, n.Name)
	}
	return steps, nil
}

// startOthers starts the pilots at the other nodes of the job, and starts them again where their step
// has ended before the job: Slurm may not have started it, or it was killed.
func (p *pilotJob) startOthers() error {
	for _, s := range p.others {
		if s.work != nil {
			select {
			case <-s.work.Done():
				s.work = nil
				s.failures++
				s.notBefore = clock.Now().Add(time.Duration(s.failures) * 2 * time.Second)
			default:
				continue
			}
		}
		if s.failures > mostFailures || clock.Now().Before(s.notBefore) || pilot.Dismissed(p.run, p.job) {
			continue
		}
		version, err := (&slurm.Client{}).Version(context.Background(), "srun")
		external := err == nil && transport.HasExternalLauncher(version)
		words := []string{
			p.program, "pilot", "--node", "--run", p.run, "--cpus", strconv.Itoa(s.node.CPUs),
			"--mem", strconv.FormatInt(s.node.Mem, 10), "--mem-per-gpu", strconv.FormatInt(s.node.MemPerGPU, 10),
		}
		args := transport.SrunAt(s.names, s.node.CPUs, external, "exec "+shell.Join(words))
		s.work, err = command.StartWork(command.Cmd{
			Name: "srun", Args: args, Env: transport.SrunEnv(os.Environ()), Stdout: p.out, Stderr: p.complaints,
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func (p *pilotJob) endOthers() {
	for _, s := range p.others {
		if s.work != nil {
			_ = s.work.Signal(syscall.SIGTERM)
		}
	}
}

// schedule supervises the scheduler that this pilot runs, or starts one
// if no other pilot runs one. It reports whether the pilot is to end.
func (p *pilotJob) schedule(ctx context.Context) (ended bool, err error) {
	if p.scheduler != nil {
		select {
		case <-p.scheduler.Done():
			return p.schedulerEnded(ctx)
		default:
			return false, nil
		}
	}
	if clock.Now().Before(p.notBefore) || journal.Held(p.run) || p.yields() {
		return false, nil
	}
	if p.failures > 0 {
		if err := p.unwritable(); err != nil {
			return !p.bears(err), err
		}
	}
	stdin, err := os.Open(os.DevNull)
	if p.pool.Stdin {
		stdin, err = os.Open(pilot.Input(p.run))
	}
	if err != nil {
		return !p.bears(err), err
	}
	defer stdin.Close()
	resume := "--resume"
	if pilot.Retry(p.run) {
		resume = "--retry-failed"
	}
	args := schedulerArgs(p.pool.Args, "--elastic", resume, "--run", p.run)
	p.scheduler, err = command.StartWork(command.Cmd{
		Name: p.program, Args: args, Dir: p.pool.Dir, Stdin: stdin, Stdout: p.out, Stderr: p.complaints,
		DieWithParent: true, // it would hold the run, and no pilot would know how it ends
	})
	return err != nil, err
}

// yielding is how long a pilot whose job ends soon leaves the scheduler to one that lasts.
const yielding = 5 * time.Second

// yields reports whether another pilot is to run the scheduler, as that of this one would soon have
// to hand over again. One that was killed may still be announced, so this has a limit.
func (p *pilotJob) yields() bool {
	if p.end.IsZero() || clock.Until(p.end) > pilot.Takeover {
		return false
	}
	nodes, err := pilot.Nodes(p.run)
	lasts := func(n pilot.Node) bool { return n.End.IsZero() || n.End.After(p.end.Add(pilot.Takeover)) }
	if err != nil || !slices.ContainsFunc(nodes, lasts) {
		return false
	}
	if p.vacant.IsZero() {
		p.vacant = clock.Now()
	}
	return clock.Since(p.vacant) < yielding
}

// schedulerArgs puts options in front of what a scheduler was called with.
func schedulerArgs(args []string, options ...string) []string {
	if len(args) > 0 && (args[0] == "run" || args[0] == "serve") {
		return append(append([]string{args[0]}, options...), args[1:]...)
	}
	return append(options, args...)
}

// schedulerEnded decides what follows the end of the scheduler.
func (p *pilotJob) schedulerEnded(ctx context.Context) (ended bool, err error) {
	status, err := p.scheduler.Status()
	p.scheduler = nil
	switch {
	case err != nil:
		return true, err
	case status == core.ExitLeft:
		// It has handed over: the job ends, with what runs in it.
		return true, nil
	case status != 4: // it was killed, or could not continue; else another was quicker
		if p.failures++; p.failures > mostFailures {
			return true, fault.Exit(status, nil)
		}
		p.notBefore = clock.Now().Add(time.Duration(p.failures) * 2 * time.Second)
	}
	return ctx.Err() != nil, nil
}

// mostFailures is how many schedulers of a pilot may fail until it ends.
const mostFailures = 5

func jobsOf(run string, pool *pilot.Pool) *pilot.Jobs {
	return &pilot.Jobs{
		Client: &slurm.Client{}, Run: run, Program: filepath.Join(run, "bin", "jobpool"), Pool: pool,
		Env: transport.OtherJob(os.Environ()),
	}
}

// describe lists jobs for people.
func describe(ids []string) string {
	if len(ids) == 1 {
		return "job " + ids[0]
	}
	return fmt.Sprintf("%d jobs: %s", len(ids), strings.Join(ids, " "))
}
