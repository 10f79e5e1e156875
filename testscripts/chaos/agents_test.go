package chaos

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/ponos-tools/ponos/lib/base/clock"
	"github.com/ponos-tools/ponos/testscripts/arkindex/server"
)

// agent is one that is started again whenever it ends.
type agent struct {
	w          *world
	name       string
	config     string
	env        []string
	accounting bool
	local      bool // its tasks run on this machine
	mount      *mount

	mu       sync.Mutex
	pipeline *pipeline     // nil between two
	hold     bool          // no new pipeline is started
	calm     bool          // only single turns are taken
	calmed   chan struct{} // closed then
	straced  *injection
	ahead    time.Duration // of the agent's clock, from its next start on
	starts   int
}

// pipeline is one run of the three tools.
type pipeline struct {
	stages  []*exec.Cmd
	straced bool
	done    chan struct{}
}

var stageNames = []string{"ponos-poll", "ponos-stop", "ponos-start"}

// injection kills a tool at a system call.
type injection struct {
	stage int
	call  string
	when  int
}

func (i injection) String() string {
	return fmt.Sprintf("%s at %s number %d", stageNames[i.stage], i.call, i.when)
}

// newAgents makes three agents on the spool, one with and one without accounting and one of mode local,
// and one of Arkindex.
func (w *world) newAgents() {
	for i, a := range []*agent{{name: "a", accounting: true}, {name: "b"}, {name: "c", accounting: true}, {name: "d", local: true}} {
		a.w, a.mount, a.calmed = w, w.mounts[i+1], make(chan struct{})
		a.config = w.file(a.name + ".yaml")
		queue := "queue: spool:" + w.mounts[0].sub + "\n"
		if a.name == "c" {
			queue = fmt.Sprintf("url: %s\nfarm_id: %s\nseed: %s\n", w.url, server.FarmID, server.Seed)
		}
		where := `slurm: {base: {time: 10, mem: 50M}, cpu: {partition: cpu}, gpu: {partition: gpu_spot, gres: 'gpu:1'}, stop_wait: 20s, arrays: true, config_flag: "", pack: {jobs: 2, cpus: 2, time: 12m, linger: 5s}}`
		if a.local {
			where = "mode: local\nlocal: {max_jobs: 3, cpus: 3, gpus: 1, memory: 1G, stop_wait: 20s}"
		}
		text := fmt.Sprintf(`%sdata_dir: %s
pid_file: %s
environments: {timeout: 30s}
prepare: {give_up: 240h}
logging: {path: %s, task_format: "[agent %%(levelname)s %%(asctime)s] %%(message)s"}
%s
`, queue, a.mount.sub, w.file("log", a.name+".pid"), w.file("log", a.name+".log"), where)
		w.must(os.WriteFile(a.config, []byte(text), 0o600))
		a.env = append(w.env[:len(w.env):len(w.env)], "PONOS_CONFIG="+a.config, "SLURM_CONF="+w.slurmConf(a.accounting))
		w.agents = append(w.agents, a)
		if out, err := a.tool("ponos-setup"); err != nil {
			w.t.Fatalf("ponos-setup of agent %s: %v\n%s", a.name, err, out)
		}
	}
}

// at is the environment of a tool whose clock is ahead.
func (a *agent) at(ahead time.Duration) []string {
	if ahead == 0 {
		return a.env
	}
	return append(slices.Clone(a.env), fmt.Sprintf("%s=%+ds", clock.Variable, int(ahead.Seconds())))
}

// setClock moves the agent's clock: of the tools that are started from now on.
func (a *agent) setClock(ahead time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.ahead = ahead
}

// tool runs one of the tools as this agent's user would.
func (a *agent) tool(name string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	a.mu.Lock()
	ahead := a.ahead
	a.mu.Unlock()
	c := exec.CommandContext(ctx, name, args...)
	c.Env = a.at(ahead)
	out, err := c.CombinedOutput()
	return string(out), err
}

// supervise keeps the agent running, as a loop or as turns, until the context ends.
func (a *agent) supervise(ctx context.Context, random *rand.Rand) {
	for ctx.Err() == nil {
		a.mu.Lock()
		wait, calm := a.hold, a.calm
		a.mu.Unlock()
		if wait {
			time.Sleep(50 * time.Millisecond)
			continue
		}
		// In the end, each turn is taken with the clock that the agent is to have.
		loop := random.IntN(2) == 0 && !calm
		p, err := a.start(loop, random.IntN(2) == 0)
		if err != nil {
			a.w.problem("agent %s: %v", a.name, err)
			return
		}
		select {
		case <-p.done:
		case <-ctx.Done():
		case <-a.calmed:
		case <-time.After(time.Duration(5+random.IntN(25)) * time.Second):
		}
		switch {
		case loop && p.straced: // strace would get the signal
			p.kill()
		case loop:
			_ = p.stages[0].Process.Signal(syscall.SIGTERM)
		}
		a.finish(p)
		pause := time.Duration(random.IntN(600)) * time.Millisecond
		if !loop {
			pause += 500 * time.Millisecond
		}
		time.Sleep(pause)
	}
}

// patience is how long a pipeline may take to end, whatever Slurm and the queue do.
const patience = 3 * time.Minute

// finish waits for the end of a pipeline.
func (a *agent) finish(p *pipeline) {
	select {
	case <-p.done:
	case <-time.After(patience):
		a.w.problem("agent %s: its pipeline has not ended after %v:\n%s", a.name, patience, p.stacks())
		p.kill()
		<-p.done
	}
	a.mu.Lock()
	a.pipeline = nil
	a.mu.Unlock()
}

// stacks tells where the processes of a pipeline hang.
func (p *pipeline) stacks() string {
	var b strings.Builder
	for _, c := range p.stages {
		out, _ := exec.Command("ps", "-o", "pid,ppid,stat,wchan,args", "--ppid", fmt.Sprint(c.Process.Pid), "-p", fmt.Sprint(c.Process.Pid)).CombinedOutput()
		b.Write(out)
	}
	return b.String()
}

// kill kills all of a pipeline.
func (p *pipeline) kill() { _ = syscall.Kill(-p.stages[0].Process.Pid, syscall.SIGKILL) }

// start starts the pipeline, with a turn a second or for one turn, and with pilot jobs or without.
func (a *agent) start(loop, pack bool) (*pipeline, error) {
	a.mu.Lock()
	injected, ahead := a.straced, a.ahead
	a.straced = nil
	a.mu.Unlock()
	p := &pipeline{done: make(chan struct{}), straced: injected != nil}
	complaints, err := os.OpenFile(a.w.file("log", a.name+".err"), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	defer complaints.Close()
	outcomes, err := os.OpenFile(a.w.file("log", a.name+".out"), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	defer outcomes.Close()
	var in *os.File
	for i, name := range stageNames {
		args := []string{name}
		if i == 0 && loop {
			args = append(args, "--every", "1s")
		}
		if i == 2 && pack && !a.local {
			args = append(args, "--pack")
		}
		if injected != nil && injected.stage == i {
			args = append([]string{"strace", "-f", "-b", "execve", "-qqq", "-o", "/dev/null", "-e", "trace=" + injected.call, "-e",
				fmt.Sprintf("inject=%s:signal=KILL:when=%d", injected.call, injected.when)}, args...)
		}
		c := exec.Command(args[0], args[1:]...)
		c.Env, c.Stderr, c.Stdin, c.Dir = a.at(ahead), complaints, in, a.w.file("home")
		c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		if i > 0 {
			c.SysProcAttr.Pgid = p.stages[0].Process.Pid
		}
		var next, out *os.File
		c.Stdout = outcomes
		if i < len(stageNames)-1 {
			if next, out, err = os.Pipe(); err != nil {
				return nil, err
			}
			c.Stdout = out
		}
		err := c.Start()
		if in != nil {
			in.Close()
		}
		if out != nil {
			out.Close()
		}
		if err != nil {
			if i > 0 {
				p.kill()
			}
			return nil, err
		}
		in = next
		p.stages = append(p.stages, c)
	}
	go func() {
		// The first stays a zombie until the last: it is the leader of their group.
		for _, c := range p.stages[1:] {
			_ = c.Wait()
		}
		_ = p.stages[0].Wait()
		close(p.done)
	}()
	a.mu.Lock()
	a.pipeline = p
	a.starts++
	a.mu.Unlock()
	return p, nil
}

// current is the pipeline that runs.
func (a *agent) current() *pipeline {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.pipeline
}

// pause keeps the agent from running: the pipeline is killed, and none is started
// until resume.
func (a *agent) pause() {
	a.mu.Lock()
	a.hold = true
	p := a.pipeline
	a.mu.Unlock()
	if p != nil {
		p.kill()
		<-p.done
	}
}

func (a *agent) resume() {
	a.mu.Lock()
	a.hold = false
	a.mu.Unlock()
}
