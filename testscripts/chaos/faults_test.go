package chaos

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/ponos-tools/ponos/lib/agent/queue/spool"
	"github.com/ponos-tools/ponos/testscripts/arkindex/server"
)

// kind is a kind of fault. It does it, waits for as long as it lasts, and mends
// it. It reports what it was done to, and whether it could be done at all.
type kind struct {
	name string
	lane string // faults of one lane come one after the other
	do   func(w *world, random *rand.Rand) (detail string, ok bool)
}

// seconds is a random time, in tenths of seconds.
func seconds(random *rand.Rand, from, to int) time.Duration {
	return time.Duration(from*10+random.IntN((to-from)*10+1)) * 100 * time.Millisecond
}

func (w *world) anAgent(random *rand.Rand) *agent { return w.agents[random.IntN(len(w.agents))] }

// kinds are all kinds of faults.
func kinds() []kind {
	var all []kind
	add := func(name, lane string, do func(*world, *rand.Rand) (string, bool)) {
		all = append(all, kind{name, lane, do})
	}

	// The tools.
	add("tool-killed", "", func(w *world, r *rand.Rand) (string, bool) {
		a := w.anAgent(r)
		p := a.current()
		if p == nil || p.straced {
			return "", false
		}
		at := r.IntN(len(p.stages))
		return a.name + " " + stageNames[at], p.stages[at].Process.Kill() == nil
	})
	add("pipeline-killed", "", func(w *world, r *rand.Rand) (string, bool) {
		a := w.anAgent(r)
		p := a.current()
		if p == nil {
			return "", false
		}
		p.kill()
		return a.name, true
	})
	add("killed-at-system-call", "strace", func(w *world, r *rand.Rand) (string, bool) {
		a := w.anAgent(r)
		i := injection{stage: r.IntN(len(stageNames)), call: systemCalls[r.IntN(len(systemCalls))], when: 1 + r.IntN(12)}
		a.mu.Lock()
		a.straced = &i
		a.mu.Unlock()
		for range 100 {
			a.mu.Lock()
			taken := a.straced == nil
			a.mu.Unlock()
			if taken {
				return a.name + " " + i.String(), true
			}
			time.Sleep(100 * time.Millisecond)
		}
		return "", false
	})
	add("tool-terminated", "", func(w *world, r *rand.Rand) (string, bool) {
		a := w.anAgent(r)
		p := a.current()
		if p == nil || p.straced {
			return "", false
		}
		at := r.IntN(len(p.stages))
		return a.name + " " + stageNames[at], p.stages[at].Process.Signal(syscall.SIGTERM) == nil
	})
	add("tool-stopped", "", func(w *world, r *rand.Rand) (string, bool) {
		a := w.anAgent(r)
		p := a.current()
		if p == nil || p.straced {
			return "", false
		}
		at := r.IntN(len(p.stages))
		if p.stages[at].Process.Signal(syscall.SIGSTOP) != nil {
			return "", false
		}
		time.Sleep(seconds(r, 1, 4))
		_ = p.stages[at].Process.Signal(syscall.SIGCONT)
		return a.name + " " + stageNames[at], true
	})
	add("pid-file-stale", "", func(w *world, r *rand.Rand) (string, bool) {
		a := w.anAgent(r)
		a.pause()
		defer a.resume()
		return a.name, os.WriteFile(w.file("log", a.name+".pid"), []byte("1\n"), 0o600) == nil
	})

	add("local-worker-killed", "", func(w *world, _ *rand.Rand) (string, bool) {
		for _, pid := range w.processes() { // its task goes on, and its job records the end
			args, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
			if strings.Contains(string(args), "ponos-worker\x00local\x00") {
				return "", syscall.Kill(pid, syscall.SIGKILL) == nil
			}
		}
		return "", false
	})

	clock := func(steps ...time.Duration) func(*world, *rand.Rand) (string, bool) {
		return func(w *world, r *rand.Rand) (string, bool) {
			a := w.anAgent(r)
			step := steps[r.IntN(len(steps))]
			a.pause() // a clock is read when a tool starts
			a.setClock(step)
			a.resume()
			time.Sleep(seconds(r, 5, 15))
			a.pause()
			a.setClock(0)
			a.resume()
			return fmt.Sprintf("%s %v", a.name, step), true
		}
	}
	add("clock-forward", "clock", clock(3*time.Minute, time.Hour, 30*time.Hour))
	add("clock-back", "clock", clock(-3*time.Minute, -time.Hour, -30*time.Hour))

	// Slurm's daemons.
	daemon := func(name string, signal syscall.Signal) func(w *world, r *rand.Rand) (string, bool) {
		return func(w *world, r *rand.Rand) (string, bool) {
			if w.killDaemon(name, signal, 20*time.Second) != nil {
				return "", false
			}
			down := seconds(r, 0, 5)
			time.Sleep(down)
			if err := w.startDaemon(name); err != nil {
				w.problem("%v", err)
			}
			return fmt.Sprintf("down for %v", down), true
		}
	}
	frozen := func(name string) func(w *world, r *rand.Rand) (string, bool) {
		return func(w *world, r *rand.Rand) (string, bool) {
			if w.signalDaemon(name, syscall.SIGSTOP) != nil {
				return "", false
			}
			time.Sleep(seconds(r, 1, 6))
			return "", w.signalDaemon(name, syscall.SIGCONT) == nil
		}
	}
	add("slurmctld-killed", "slurmctld", daemon("slurmctld", syscall.SIGKILL))
	add("slurmctld-restarted", "slurmctld", daemon("slurmctld", syscall.SIGTERM))
	add("slurmctld-stopped", "slurmctld", frozen("slurmctld"))
	add("slurmdbd-killed", "slurmdbd", daemon("slurmdbd", syscall.SIGKILL))
	add("slurmdbd-restarted", "slurmdbd", daemon("slurmdbd", syscall.SIGTERM))
	add("slurmdbd-stopped", "slurmdbd", frozen("slurmdbd"))
	add("munged-killed", "munged", daemon("munged", syscall.SIGKILL))
	add("munged-stopped", "munged", frozen("munged"))
	add("slurmd-killed", "node", func(w *world, r *rand.Rand) (string, bool) {
		node := clusterNodes[r.IntN(len(clusterNodes))]
		detail, ok := daemon("slurmd-"+node, syscall.SIGKILL)(w, r)
		return node + " " + detail, ok
	})

	// Nodes and jobs.
	node := func(state string) func(w *world, r *rand.Rand) (string, bool) {
		return func(w *world, r *rand.Rand) (string, bool) {
			name := clusterNodes[r.IntN(len(clusterNodes))]
			if _, err := w.slurm("scontrol", "update", "nodename="+name, "state="+state, "reason=chaos"); err != nil {
				return "", false
			}
			time.Sleep(seconds(r, 1, 5))
			_, _ = w.slurm("scontrol", "update", "nodename="+name, "state=resume")
			return name, true
		}
	}
	add("node-down", "node", node("down"))
	add("node-drained", "node", node("drain"))
	onJob := func(states string, do func(w *world, r *rand.Rand, j job) bool) func(w *world, r *rand.Rand) (string, bool) {
		return func(w *world, r *rand.Rand) (string, bool) {
			jobs, err := w.jobs()
			if err != nil {
				return "", false
			}
			var some []job
			for _, j := range jobs {
				if strings.Contains(states, j.state) {
					some = append(some, j)
				}
			}
			if len(some) == 0 {
				return "", false
			}
			j := some[r.IntN(len(some))]
			return fmt.Sprintf("job %s of task %s, %s", j.id, j.task, j.state), do(w, r, j)
		}
	}
	scontrol := func(w *world, args ...string) bool {
		_, err := w.slurm("scontrol", args...)
		return err == nil
	}
	add("job-requeued", "job", onJob("RUNNING", func(w *world, _ *rand.Rand, j job) bool { return scontrol(w, "requeue", j.id) }))
	add("job-requeued-and-held", "job", onJob("RUNNING", func(w *world, r *rand.Rand, j job) bool {
		if !scontrol(w, "requeuehold", j.id) {
			return false
		}
		time.Sleep(seconds(r, 1, 4))
		_ = w.release(j.id)
		return true
	}))
	add("job-held", "job", onJob("PENDING", func(w *world, r *rand.Rand, j job) bool {
		if !scontrol(w, "hold", j.id) {
			return false
		}
		time.Sleep(seconds(r, 1, 4))
		_ = w.release(j.id)
		return true
	}))
	add("job-suspended", "job", onJob("RUNNING", func(w *world, r *rand.Rand, j job) bool {
		if !scontrol(w, "suspend", j.id) {
			return false
		}
		time.Sleep(seconds(r, 1, 4))
		for deadline := time.Now().Add(15 * time.Second); time.Now().Before(deadline); time.Sleep(500 * time.Millisecond) {
			if scontrol(w, "resume", j.id) || !w.listed(j.id) {
				break
			}
		}
		return true
	}))
	add("job-cancelled", "job", onJob("RUNNING PENDING", func(w *world, _ *rand.Rand, j job) bool { return w.cancel(j) == nil }))
	add("job-preempted", "job", func(w *world, r *rand.Rand) (string, bool) {
		jobs, err := w.jobs()
		if err != nil || !strings.Contains(fmt.Sprint(jobs), "RUNNING gpu_spot") {
			return "", false
		}
		out, err := w.slurm("sbatch", "--parsable", "--output=/dev/null", "--job-name=chaos", "-p", "gpu", "-N2", "--gres=gpu:4", "--mem=50M", "-t1", "--wrap", "sleep 3")
		if err != nil {
			return "", false
		}
		time.Sleep(seconds(r, 3, 6))
		id := strings.TrimSpace(out)
		for deadline := time.Now().Add(15 * time.Second); time.Now().Before(deadline); time.Sleep(500 * time.Millisecond) {
			// By its name too: a slurmctld that was killed gives the number to another job.
			if _, err := w.slurm("scancel", "--name=chaos", id); err == nil || !w.listed(id) {
				break
			}
		}
		return "by job " + id, true
	})

	// Slurm's commands.
	for _, c := range []string{"sbatch-killed-before", "sbatch-killed-after", "sbatch-lies", "sbatch-id-and-failure", "sbatch-refused-connection", "sbatch-slow"} {
		add(c, "sbatch", standIn(c))
	}
	for _, c := range []string{"squeue-empty", "squeue-cut", "squeue-rows-missing", "squeue-fails", "squeue-slow", "squeue-old"} {
		add(c, "squeue", standIn(c))
	}
	for _, c := range []string{"sacct-empty", "sacct-cut", "sacct-rows-missing", "sacct-fails", "sacct-slow"} {
		add(c, "sacct", standIn(c))
	}
	add("scancel-killed", "scancel", standIn("scancel-killed"))
	add("scancel-fails", "scancel", standIn("scancel-fails"))

	// File systems.
	onMount := func(do func(w *world, m *mount, r *rand.Rand) bool) func(w *world, r *rand.Rand) (string, bool) {
		return func(w *world, r *rand.Rand) (string, bool) {
			m := w.mounts[r.IntN(len(w.mounts))]
			if !m.TryLock() {
				return "", false
			}
			defer m.Unlock()
			return m.name, do(w, m, r)
		}
	}
	full := func(inodes bool) func(w *world, r *rand.Rand) (string, bool) {
		return onMount(func(w *world, m *mount, r *rand.Rand) bool {
			free := -1
			if inodes {
				free = r.IntN(3)
			}
			if m.limit(r.IntN(2), free) != nil {
				return false
			}
			time.Sleep(seconds(r, 1, 4))
			if err := m.unlimit(); err != nil {
				w.problem("%s stays full: %v", m.path, err)
			}
			return true
		})
	}
	add("disk-full", "", full(false))
	add("inodes-full", "", full(true))
	add("read-only", "", onMount(func(w *world, m *mount, r *rand.Rand) bool {
		if m.readOnly(true) != nil {
			return false
		}
		time.Sleep(seconds(r, 1, 4))
		if err := m.readOnly(false); err != nil {
			w.problem("%s stays read-only: %v", m.path, err)
		}
		return true
	}))
	add("directory-gone", "", onMount(func(w *world, m *mount, r *rand.Rand) bool {
		return w.away(m, "", func(string) { time.Sleep(seconds(r, 1, 4)) })
	}))
	add("directory-empty", "", onMount(func(w *world, m *mount, r *rand.Rand) bool {
		return w.away(m, "", func(path string) {
			if err := os.Mkdir(path, 0o700); err != nil {
				w.problem("%v", err)
			}
			time.Sleep(seconds(r, 1, 4))
		})
	}))
	add("directory-late", "", onMount(func(w *world, m *mount, r *rand.Rand) bool {
		for _, a := range w.agents {
			if m.name == "spool" || a.name == m.name {
				a.pause()
				defer a.resume()
			}
		}
		return w.away(m, "", func(string) {
			for _, a := range w.agents {
				a.resume() // starts without its directory
			}
			time.Sleep(seconds(r, 2, 5))
		})
	}))
	add("state-directory-gone", "", func(w *world, r *rand.Rand) (string, bool) {
		m := w.mounts[1+r.IntN(3)]
		if !m.TryLock() {
			return "", false
		}
		defer m.Unlock()
		return m.name, w.away(m, "state", func(string) { time.Sleep(seconds(r, 1, 4)) })
	})
	add("another-spool", "", func(w *world, r *rand.Rand) (string, bool) {
		m := w.mounts[0]
		if !m.TryLock() {
			return "", false
		}
		defer m.Unlock()
		return "", w.away(m, "", func(path string) {
			if _, err := spool.Make(path, time.Now()); err != nil {
				w.problem("%v", err)
			}
			time.Sleep(seconds(r, 1, 4))
		}, "spool.json")
	})

	// Network.
	for _, f := range []server.Fault{
		{Kind: "slow", Delay: 4 * time.Second}, {Kind: "reset", Count: 3}, {Kind: "lost", Count: 2}, {Kind: "half", Count: 2},
		{Kind: "html", Status: 502, Count: 3}, {Kind: "html", Status: 404, Count: 3}, {Kind: "status", Status: 500, Count: 4},
		{Kind: "status", Status: 429, RetryAfter: 1, Count: 3}, {Kind: "empty", Count: 2},
	} {
		name := "net-" + f.Kind
		if f.Status != 0 {
			name += fmt.Sprintf("-%d", f.Status)
		}
		add(name, "net", func(w *world, r *rand.Rand) (string, bool) {
			w.arkindex.Break(f)
			time.Sleep(seconds(r, 1, 3))
			return "", true
		})
	}
	add("net-tokens-expire", "net", func(w *world, r *rand.Rand) (string, bool) {
		w.arkindex.ExpireTokens(false)
		return "", true
	})
	ofCode(add)
	// The server counts these itself, where a request has come twice.
	add("(net-doubled)", "net", func(w *world, r *rand.Rand) (string, bool) {
		w.doubles.Store(int32(1 + r.IntN(3)))
		return "", false
	})
	return all
}

// systemCalls are those after which something can be seen from outside.
var systemCalls = []string{
	"renameat", "unlinkat", "mkdirat", "symlinkat", "openat", "write", "fsync", "flock", "ftruncate", "clone,clone3,vfork", "connect", "fchmodat", "exit_group",
}

var clusterNodes = []string{"cpu1", "cpu2", "gpu1", "gpu2", "small1"}

// standIn lays out a fault for a program, and waits until it has been taken. The
// program notes it itself.
func standIn(name string) func(w *world, r *rand.Rand) (string, bool) {
	program, _, _ := strings.Cut(name, "-")
	return func(w *world, r *rand.Rand) (string, bool) {
		path := w.file("faults", program+"."+name)
		if os.WriteFile(path+".new", []byte(name), 0o600) != nil || os.Rename(path+".new", path) != nil {
			return "", false
		}
		for range 60 {
			if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
				return "", false // noted by the program
			}
			time.Sleep(100 * time.Millisecond)
		}
		_ = os.Remove(path)
		return "", false
	}
}

// release releases a held job, as far as that can be done in some seconds; in the end,
// releaseAll does the rest.
func (w *world) release(job string) (err error) {
	for deadline := time.Now().Add(15 * time.Second); time.Now().Before(deadline); time.Sleep(500 * time.Millisecond) {
		if _, err = w.slurm("scontrol", "release", job); err == nil || !w.listed(job) {
			return nil
		}
	}
	return err
}

// releaseAll releases the jobs that Slurm holds since a node could not launch them, and
// resumes those that it has forgotten to resume, as an administrator does. A slurmctld 22.05
// that was killed while it asked slurmdbd for the number of a job changes that job never
// more, and all that is left is to cancel it.
func (w *world) releaseAll() {
	jobs, err := w.jobs()
	if err != nil {
		w.problem("%v", err)
	}
	for _, j := range jobs {
		if j.state == "SUSPENDED" {
			_, _ = w.slurm("scontrol", "resume", j.id)
		}
		if j.state != "PENDING" || !strings.Contains(j.reason, "held") && !strings.Contains(j.reason, "Held") {
			continue
		}
		err := w.release(j.id)
		if err != nil && strings.Contains(err.Error(), "the DB index is being set") {
			err = w.cancel(j)
		}
		if err != nil {
			w.problem("job %s stays held: %v", j.id, err)
		}
	}
}

// cancel cancels the job of a task behind its agent's back.
func (w *world) cancel(j job) error {
	of := func() (list []*item) {
		if i := w.tasks.byID(j.task); i != nil {
			return []*item{i}
		}
		for _, i := range w.tasks.all() {
			if r := w.effect(i).last(); j.task == pilotJob && strings.HasPrefix(r.job, j.id+".") && (!r.over() || time.Since(r.ended) < 2*time.Second) {
				list = append(list, i)
			}
		}
		return list
	}
	began := time.Now()
	cancelled := func(list []*item) {
		w.tasks.mu.Lock()
		defer w.tasks.mu.Unlock()
		for _, i := range list {
			i.cancelled, i.cancelEnd = began, time.Now()
		}
		if j.task == pilotJob {
			w.tasks.pilots = append(w.tasks.pilots, j.id)
		}
	}
	list := of()
	if j.task != pilotJob && len(list) == 0 {
		return fmt.Errorf("job %s: its task is not known", j.id)
	}
	cancelled(list) // before: what follows may be quick
	_, err := w.slurm("scancel", j.id)
	cancelled(append(list, of()...)) // a controller may take its time, and a pilot job may have begun a task meanwhile
	return err
}

// listed reports whether Slurm knows a job, as far as that can be asked.
func (w *world) listed(job string) bool {
	out, err := w.slurm("squeue", "-h", "-r", "-o", "%i")
	if err != nil {
		return true
	}
	for line := range strings.Lines(out) {
		if strings.TrimSpace(line) == job {
			return true
		}
	}
	return false
}

// away moves the used directory of a file system away, or one in it, for as long
// as during takes. What stands in its place in the end must have stayed empty.
// Known is a file that the fault itself makes there.
func (w *world) away(m *mount, sub string, during func(path string), known ...string) bool {
	path := filepath.Join(m.sub, sub)
	hidden := filepath.Join(m.path, "away")
	if os.Rename(path, hidden) != nil {
		return false
	}
	during(path)
	var made []string
	_ = filepath.WalkDir(path, func(p string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			made = append(made, p)
		}
		return nil
	})
	for _, p := range made {
		// An agent looks whether the spool is the right one, and then leaves its sign. Between
		// the two, another one may come into its place: a name there that nobody reads for more
		// than a name. No task may be there.
		if m.name == "spool" && strings.HasSuffix(p, ".json") && !slices.Contains(known, filepath.Base(p)) && filepath.Base(filepath.Dir(p)) != "agents" {
			w.problem("in the place of the spool that was away, somebody made %s", p)
		}
	}
	aside := filepath.Join(m.path, fmt.Sprintf("wrong-%d", time.Now().UnixNano()))
	for range 100 {
		// What was made in the meantime goes aside, whoever is still at it.
		if err := os.Rename(path, aside); err != nil && !errors.Is(err, fs.ErrNotExist) {
			w.problem("%v", err)
		}
		if os.Rename(hidden, path) == nil {
			_ = os.RemoveAll(aside)
			return true
		}
		time.Sleep(10 * time.Millisecond)
		_ = os.RemoveAll(aside)
	}
	w.problem("%s is not back", path)
	return true
}

// lanes keep faults of one lane apart.
type lanes struct {
	mu   sync.Mutex
	busy map[string]bool
}

func (l *lanes) take(name string) bool {
	if name == "" {
		return true
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.busy[name] {
		return false
	}
	l.busy[name] = true
	return true
}

func (l *lanes) free(name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.busy, name)
}
