package chaos

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/ponos-tools/ponos/testscripts/harness"
	"github.com/ponos-tools/ponos/testscripts/outage"
)

var (
	seed       = flag.Uint64("seed", 1, "what the choices of the run are made from")
	lasting    = flag.Duration("time", 75*time.Second, "how long faults are injected")
	accounting = flag.Bool("accounting", true, "the cluster has accounting")
	keep       = flag.Bool("keep", false, "keep the directory of a run that went well")
	onlyKind   = flag.String("only", "", "inject only kinds of faults whose names begin with one of these, separated by commas")
)

func TestMain(m *testing.M) {
	if program, ok := standIns[filepath.Base(os.Args[0])]; ok {
		if self, err := os.Executable(); err == nil && filepath.Base(filepath.Dir(self)) == "bin" {
			os.Exit(program(filepath.Dir(filepath.Dir(self))))
		}
	}
	harness.Main(m, nil, "ponos-setup", "ponos-poll", "ponos-start", "ponos-stop", "ponos-submit", "ponos-list", "ponos-cancel")
}

// tasksPerTenMinutes is how many tasks a run of ten minutes has.
const tasksPerTenMinutes = 300

// Whatever breaks while agents work, in the end each task has had its effect once,
// is in the state that its command led to, has its log, and left nothing behind.
func TestChaos(t *testing.T) {
	t.Parallel()
	harness.Programs(t, "strace", "git", "python3")
	began := time.Now()
	w := newWorld(t, *seed)
	random := rand.New(rand.NewPCG(*seed, 17))
	w.newAgents()
	tasksRandom := rand.New(rand.NewPCG(*seed, 23))
	w.startInPeace(tasksRandom)
	t.Logf("seed %d: the world stands after %v", *seed, time.Since(began).Round(time.Second))

	supervision, endSupervision := context.WithCancel(context.Background())
	defer endSupervision()
	var agents sync.WaitGroup
	for i, a := range w.agents {
		r := rand.New(rand.NewPCG(*seed, uint64(100+i)))
		agents.Go(func() { a.supervise(supervision, r) })
	}

	began = time.Now()
	var load sync.WaitGroup
	number := max(40, int(tasksPerTenMinutes*lasting.Seconds()/600))
	load.Go(func() {
		pause := time.Duration(float64(*lasting) * 0.8 / float64(number))
		for n := beginning; n < number; {
			items := newItems(tasksRandom, n, number-n)
			if tasksRandom.IntN(2) == 0 && (!items[0].ark || !items[0].gpu) {
				c := w.push(tasksRandom)
				for _, i := range items {
					i.commit = c
				}
			}
			for _, i := range items {
				w.tasks.submit(tasksRandom, i)
				n++
			}
			if tasksRandom.IntN(4) == 0 {
				stopped := time.Now()
				if detail, ok := w.tasks.stop(tasksRandom); ok {
					w.record.add(event{Kind: "task-stop-asked", Began: stopped, Ended: time.Now(), Detail: detail})
				}
			}
			time.Sleep(time.Until(began.Add(time.Duration(n) * pause)))
		}
	})
	w.inject(random, began.Add(*lasting))
	load.Wait()
	w.mend()
	t.Logf("faults from %v on: %v, %d tasks", began.Format("15:04:05"), time.Since(began).Round(time.Second), number)

	peace := time.Now()
	left := w.drain()
	endSupervision()
	agents.Wait()
	t.Logf("over after %v of peace", time.Since(peace).Round(time.Second))
	w.tidy()
	w.report(left)
	t.Logf("checked after %v", time.Since(peace).Round(time.Second))
}

// inject injects faults until a time: each kind in turn, in a random order.
func (w *world) inject(random *rand.Rand, end time.Time) {
	all := kinds()
	if *onlyKind != "" {
		all = slices.DeleteFunc(all, func(k kind) bool {
			return !slices.ContainsFunc(strings.Split(*onlyKind, ","), func(begin string) bool { return strings.HasPrefix(k.name, begin) })
		})
	}
	if !*accounting {
		all = slices.DeleteFunc(all, func(k kind) bool { return k.lane == "slurmdbd" })
	}
	var running sync.WaitGroup
	defer running.Wait()
	l := lanes{busy: map[string]bool{}}
	var next []kind
	for time.Now().Before(end) {
		if len(next) == 0 {
			next = slices.Clone(all)
			random.Shuffle(len(next), func(i, j int) { next[i], next[j] = next[j], next[i] })
		}
		// The first whose lane is free.
		at := slices.IndexFunc(next, func(k kind) bool { return l.take(k.lane) })
		if at >= 0 {
			k := next[at]
			next = slices.Delete(next, at, at+1)
			r := rand.New(rand.NewPCG(random.Uint64(), 5))
			running.Go(func() {
				defer l.free(k.lane)
				began := time.Now()
				if detail, ok := k.do(w, r); ok {
					w.record.add(event{Kind: k.name, Began: began, Ended: time.Now(), Detail: detail, Fault: true})
				}
			})
		}
		time.Sleep(time.Duration(200+random.IntN(800)) * time.Millisecond)
	}
}

// mend ends all faults, and lets the agents work in peace.
func (w *world) mend() {
	w.arkindex.Mend()
	for _, s := range []*outage.Server{w.code.git, w.code.index, w.code.store} {
		w.must(s.Break(""))
	}
	w.doubles.Store(0)
	names, _ := filepath.Glob(w.file("faults", "*"))
	for _, name := range names {
		_ = os.Remove(name)
	}
	for _, m := range w.mounts {
		w.must(m.unlimit())
		w.must(m.readOnly(false))
	}
	for _, daemon := range []string{"munged", "slurmdbd", "slurmctld"} {
		_ = w.signalDaemon(daemon, syscall.SIGCONT)
		w.must(w.startDaemon(daemon))
	}
	// A slurmctld that was killed may take jobs for running that have ended since,
	// until their nodes register again.
	for _, node := range clusterNodes {
		_ = w.killDaemon("slurmd-"+node, syscall.SIGTERM, 20*time.Second)
		w.must(w.startDaemon("slurmd-" + node))
	}
	w.must(w.answers(2 * time.Minute))
	w.releaseAll()
	for _, a := range w.agents {
		a.mu.Lock()
		a.calm, a.hold, a.straced = true, false, nil
		a.mu.Unlock()
		close(a.calmed)
	}
}

const (
	// drainTime bounds how long the tasks may take once nothing is broken any more.
	drainTime = harness.Patience
	// What waits for something to turn up waits for minutes: after some time of
	// peace the agents' clocks go forward by a step at a time, which is an hour in all.
	drainStep  = 2 * time.Minute
	drainSteps = 30
)

// drain waits until all tasks are over, and returns those that are not.
func (w *world) drain() (left []*item) {
	began, steps := time.Now(), 0
	for deadline := began.Add(drainTime); ; time.Sleep(time.Second) {
		if want := int((time.Since(began) - 15*time.Second) / (4 * time.Second)); want > steps && steps < drainSteps {
			steps++
			for _, a := range w.agents {
				a.setClock(time.Duration(steps) * drainStep)
			}
			w.releaseAll() // a job is held some time after its launch has failed
		}
		left = nil
		for _, i := range w.tasks.all() {
			if !w.over(i) {
				left = append(left, i)
			}
		}
		if len(left) == 0 || time.Now().After(deadline) {
			return left
		}
	}
}

// tidy lets two days pass for all files, and has the agents take turns, in which they
// remove what killed tools have left.
func (w *world) tidy() {
	ago := time.Now().Add(-48 * time.Hour)
	for _, m := range w.mounts {
		w.must(filepath.WalkDir(m.path, func(path string, d os.DirEntry, err error) error {
			if err == nil && d.Type().IsRegular() {
				err = os.Chtimes(path, ago, ago)
			}
			return err
		}))
	}
	for _, a := range w.agents {
		a.setClock(49 * time.Hour)
		for range 2 {
			p, err := a.start(false, false)
			w.must(err)
			a.finish(p)
		}
	}
}

// report checks everything and prints the table.
func (w *world) report(left []*item) {
	t := w.t
	events := w.record.events()
	states := map[string]int{}
	var broken []span
	ends := time.Now()
	for _, i := range w.tasks.all() {
		s := w.state(i)
		states[s.state]++
		wrong := w.check(i)
		if len(wrong) == 0 {
			continue
		}
		broken = append(broken, span{i.at, ends})
		t.Errorf("task %s (t%03d): %s\n%s", i.id, i.number, strings.Join(wrong, "; "), w.story(i, events))
	}
	if len(left) > 0 {
		t.Errorf("%d tasks are not over", len(left))
	}
	w.checkLeft()
	for _, problem := range w.problems {
		t.Errorf("%s", problem)
	}
	arrays, elements := arraysOf(events)
	if arrays == 0 {
		t.Errorf("no job array was submitted")
	}
	packed, local, prepared := 0, 0, 0
	for _, i := range w.tasks.all() {
		if i.commit != nil && len(w.effect(i).runs) > 0 {
			prepared++
		}
		switch job := w.effect(i).last().job; {
		case strings.Contains(job, "."):
			packed++
		case strings.Contains(job, "-"):
			local++
		}
	}
	if local == 0 {
		t.Errorf("no task ran on this machine")
	}
	if prepared == 0 {
		t.Errorf("no task with code ran")
	}
	if packed == 0 {
		t.Errorf("no task ran in a pilot job")
	}
	text := table(events, broken)
	starts := 0
	for _, a := range w.agents {
		starts += a.starts
	}
	counts := fmt.Sprintf("seed %d, %v: %d tasks %v, %d broken; %d arrays of %d tasks; %d tasks in pilot jobs; %d on this machine; %d with code; %d starts of agents", *seed, *lasting, len(w.tasks.all()), states, len(broken), arrays, elements, packed, local, prepared, starts)
	_ = os.WriteFile(w.dir+".result", []byte(counts+"\n"+text), 0o644)
	t.Logf("%s\n%s", counts, text)
	if *keep && !t.Failed() {
		t.Errorf("kept %s", w.dir)
	}
	if t.Failed() {
		t.Logf("see %s", w.dir)
	}
}

// story tells what happened to a task.
func (w *world) story(i *item, events []event) string {
	s := w.state(i)
	var b strings.Builder
	fmt.Fprintf(&b, "submitted %s, number %d, %d lines, code %d, ark %v, wants %q", i.at.Format("15:04:05.000"), i.number, i.lines, i.code, i.ark, i.wants())
	if i.parent != nil {
		fmt.Fprintf(&b, ", parent %s", i.parent.id)
	}
	if !i.stopAsked.IsZero() {
		fmt.Fprintf(&b, ", stop asked %s", i.stopAsked.Format("15:04:05.000"))
	}
	if !i.cancelled.IsZero() {
		fmt.Fprintf(&b, ", job cancelled %s", i.cancelled.Format("15:04:05.000"))
	}
	fmt.Fprintf(&b, "\nqueue: %s\nlog:\n%s\neffect:\n%s\nevents about it:\n", s.raw, s.log, w.effect(i).raw)
	for _, e := range events {
		if strings.Contains(e.Detail, i.id) {
			fmt.Fprintln(&b, e)
		}
	}
	for _, a := range w.agents {
		log, _ := os.ReadFile(w.file("log", a.name+".log"))
		errs, _ := os.ReadFile(w.file("log", a.name+".err"))
		for line := range strings.Lines(string(log) + string(errs)) {
			if strings.Contains(line, i.id) {
				fmt.Fprintf(&b, "%s: %s", a.name, line)
			}
		}
	}
	return b.String()
}

// checkLeft looks for what must not be left: jobs, processes, locks, temporary
// files.
func (w *world) checkLeft() {
	for deadline := time.Now().Add(harness.Patience); len(w.processes()) > 0 && time.Now().Before(deadline); {
		time.Sleep(100 * time.Millisecond)
	}
	for _, pid := range w.processes() {
		args, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		w.t.Errorf("process %d is left: %q", pid, strings.ReplaceAll(string(args), "\x00", " "))
	}
	var jobs []job
	for deadline := time.Now().Add(harness.Patience); time.Now().Before(deadline); time.Sleep(500 * time.Millisecond) {
		var err error
		if jobs, err = w.jobs(); err == nil {
			jobs = slices.DeleteFunc(jobs, func(j job) bool {
				return !slices.Contains([]string{"RUNNING", "PENDING", "SUSPENDED", "COMPLETING", "REQUEUE_HOLD"}, j.state)
			})
			if len(jobs) == 0 {
				break
			}
		}
	}
	for _, j := range jobs {
		w.t.Errorf("job %s of task %s is left: %s, %s", j.id, j.task, j.state, j.reason)
	}
	for _, m := range w.mounts {
		_ = filepath.WalkDir(m.path, func(path string, d os.DirEntry, err error) error {
			if err != nil {
				w.t.Errorf("%v", err)
				return nil
			}
			if d.Type().IsRegular() {
				w.checkFile(m, path)
			}
			return nil
		})
	}
	names, _ := filepath.Glob(w.file("tmp", "*"))
	for _, name := range names {
		w.t.Errorf("temporary file %s is left", name)
	}
	for _, a := range w.agents {
		dirs, _ := filepath.Glob(filepath.Join(a.mount.sub, "state/tasks/*"))
		for _, dir := range dirs {
			// Jobs of other agents are kept in mind until Slurm has surely forgotten them.
			if i := w.tasks.byID(filepath.Base(dir)); i != nil && !w.has(a, i) {
				continue
			}
			w.t.Errorf("agent %s still has the task %s at work", a.name, filepath.Base(dir))
		}
	}
}

// checkFile looks at a file: none may be temporary, or locked.
func (w *world) checkFile(m *mount, path string) {
	name := filepath.Base(path)
	rel, _ := filepath.Rel(m.sub, path)
	if strings.HasPrefix(rel, "tmp/") || strings.HasSuffix(name, ".new") || strings.HasPrefix(name, ".") && name[len(name)-1] >= '0' && name[len(name)-1] <= '9' {
		w.t.Errorf("temporary file %s is left", path)
	}
	f, err := os.Open(path)
	if err != nil {
		w.t.Errorf("%v", err)
		return
	}
	defer f.Close()
	if syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) != nil {
		w.t.Errorf("%s is locked", path)
	}
}
