package chaos

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/ponos-tools/ponos/lib/agent/queue/spool"
	"github.com/ponos-tools/ponos/lib/executor/outside"
	"github.com/ponos-tools/ponos/lib/task"
	"github.com/ponos-tools/ponos/testscripts/arkindex/server"
)

// item is a task that was submitted.
type item struct {
	id     string
	number int
	lines  int
	millis int
	code   int
	parent *item // nil: none
	alone  bool  // gets no parent
	gpu    bool
	ark    bool
	commit *commit // nil: it has no code
	model  bool    // it has a file of the object store
	at     time.Time

	stopAsked time.Time // when it was asked to be stopped, if it was
	// When its job was cancelled behind the agent's back, if it was: from when Slurm was asked until it had answered.
	cancelled, cancelEnd time.Time
}

// tasks are all that were submitted.
type tasks struct {
	w  *world
	mu sync.Mutex
	// list has the tasks of both queues, in order.
	list []*item
	// pilots are the jobs of pilots that were cancelled behind an agent's back.
	pilots []string
}

func newTasks(w *world) *tasks { return &tasks{w: w} }

func (s *tasks) all() []*item {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.list)
}

func (s *tasks) byID(id string) *item {
	for _, i := range s.all() {
		if i.id == id {
			return i
		}
	}
	return nil
}

// beginning is how many tasks startInPeace submits.
const beginning = 6

// startInPeace submits tasks that are alike, and has agents take them: half as a job array, half in a
// pilot job. What comes later may have neither.
func (w *world) startInPeace(random *rand.Rand) {
	for n := range beginning {
		w.tasks.submit(random, &item{number: n, lines: 3, millis: 500, alone: true})
		if n%(beginning/2) == beginning/2-1 {
			a := w.agents[n*2/beginning]
			p, err := a.start(false, n == beginning-1)
			w.must(err)
			a.finish(p)
		}
	}
}

// newItems are the next tasks, at most so many: one, or in half of the cases several at once
// that are alike, which go to Slurm as a job array. One task in three is of Arkindex, one in
// four takes a GPU, one in six fails, and half of those of Arkindex need a model.
func newItems(random *rand.Rand, number, most int) []*item {
	size := 1
	if random.IntN(2) == 0 {
		size = min(3+random.IntN(6), most)
	}
	list := make([]*item, size)
	ark, gpu, model := random.IntN(3) == 0, random.IntN(4) == 0, random.IntN(2) == 0
	for n := range list {
		list[n] = &item{number: number + n, lines: 2 + random.IntN(8), millis: 200 + random.IntN(6000), ark: ark, gpu: gpu, model: ark && model}
		if random.IntN(6) == 0 {
			list[n].code = 1 + random.IntN(100)
		}
	}
	return list
}

// submit submits a task, one in four with a parent.
func (s *tasks) submit(random *rand.Rand, i *item) {
	var candidates []*item
	for _, other := range s.all() {
		if other.ark == i.ark {
			candidates = append(candidates, other)
		}
	}
	if !i.alone && random.IntN(4) == 0 && len(candidates) > 0 {
		i.parent = candidates[max(0, len(candidates)-1-random.IntN(10))]
	}
	work := []string{s.w.file("bin/work"), strconv.Itoa(i.number), strconv.Itoa(i.lines), strconv.Itoa(i.millis), strconv.Itoa(i.code), i.wants()}
	slug := fmt.Sprintf("t%03d", i.number)
	i.at = time.Now()
	if i.ark {
		command, err := json.Marshal(work)
		s.w.must(err)
		i.id = server.NewID()
		t := &server.Task{ID: i.id, Slug: slug, Command: command, RequiresGPU: i.gpu}
		spec := server.Spec{Tasks: []*server.Task{t}}
		if i.commit != nil {
			t.WorkerRun = server.NewID()
			spec.WorkerRuns = []*server.WorkerRun{{ID: t.WorkerRun, Slug: "work", Repository: s.w.repository(), Revision: i.commit.hash}}
		}
		if i.model {
			t.Files = map[string]string{filepath.Base(aModel): aModel}
		}
		if i.parent != nil {
			t.Parents = []string{i.parent.id}
		}
		if err := s.w.arkindex.Add(spec); err != nil {
			s.w.problem("task %s: %v", slug, err)
			return
		}
	} else {
		args := []string{"--spool", s.w.mounts[0].sub, "--slug", slug}
		if i.parent != nil {
			args = append(args, "--after", i.parent.id)
		}
		if i.gpu {
			args = append(args, "--gpu")
		}
		if i.commit != nil {
			args = append(args, "--repository", s.w.repository(), "--revision", i.commit.hash)
		}
		args = append(append(args, "--"), work...)
		for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(300 * time.Millisecond) {
			// Submitting is tried again only where it has said that it failed.
			c := exec.Command("ponos-submit", args...)
			c.Env = s.w.env
			out, err := c.Output()
			if err == nil {
				i.id = strings.TrimSpace(string(out))
				break
			}
			if time.Now().After(deadline) {
				s.w.problem("ponos-submit does not get task %s into the spool: %v", slug, err)
				return
			}
		}
	}
	s.mu.Lock()
	s.list = append(s.list, i)
	s.mu.Unlock()
}

// stop asks for a task to be stopped that is not over.
func (s *tasks) stop(random *rand.Rand) (string, bool) {
	list := s.all()
	if len(list) == 0 {
		return "", false
	}
	i := list[len(list)-1-random.IntN(min(len(list), 12))]
	if i.ark {
		if s.w.arkindex.Stop(i.id) != nil {
			return "", false
		}
	} else {
		if st := s.w.state(i); st.state == "" || task.State(st.state).Final() {
			return "", false
		}
		c := exec.Command("ponos-cancel", "--spool", s.w.mounts[0].sub, i.id)
		c.Env = s.w.env
		if c.Run() != nil {
			return "", false
		}
	}
	s.mu.Lock()
	i.stopAsked = time.Now()
	s.mu.Unlock()
	return fmt.Sprintf("task %s (t%03d)", i.id, i.number), true
}

// seen is what a queue says of a task.
type seen struct {
	state, reason string
	code          int
	log           string
	raw           string
}

// state asks the queue's own files for a task, "" if it cannot be found.
func (w *world) state(i *item) seen {
	if i.ark {
		t, ok := w.arkindex.Task(i.id)
		if !ok {
			return seen{}
		}
		return seen{state: t.State, log: string(w.arkindex.Log(i.id)), raw: strings.Join(t.History, ",")}
	}
	root := w.mounts[0].sub
	paths := []string{filepath.Join(root, "done", i.id+".json")}
	active, _ := filepath.Glob(filepath.Join(root, "active", i.id+"@*.json"))
	paths = append(append(paths, active...), filepath.Join(root, "new", i.id+".json"))
	for _, path := range paths {
		b, err := os.ReadFile(path)
		if err != nil {
			continue
		}
		e, err := spool.ParseEntry(b)
		if err != nil {
			return seen{raw: string(b)}
		}
		log, _ := os.ReadFile(filepath.Join(root, "logs", i.id+".log"))
		return seen{state: string(e.State), reason: e.Reason, code: e.ExitCode, log: string(log), raw: filepath.Base(filepath.Dir(path)) + ": " + string(b)}
	}
	return seen{}
}

// over reports whether nothing is left to happen to a task. Arkindex leaves the
// children of failed parents as they are.
func (w *world) over(i *item) bool {
	s := w.state(i)
	if i.ark && i.parent != nil && s.state == "unscheduled" {
		p := w.state(i.parent)
		return w.over(i.parent) && p.state != "completed"
	}
	return task.State(s.state).Final()
}

// has reports whether a task is an agent's, or may become so.
func (w *world) has(a *agent, i *item) bool {
	if i.ark || a.name == "c" {
		return i.ark && a.name == "c"
	}
	b, err := os.ReadFile(filepath.Join(a.mount.sub, "state/tasks", i.id, "task.json"))
	return err != nil || !strings.Contains(string(b), `"reassigned":true`)
}

// effect is what the command of a task did.
type effect struct {
	runs     []run
	overlaps int
	lacks    string // of its code and data
	raw      string
}

// run is one start of a command.
type run struct {
	began        time.Time
	job, restart string
	raw          string    // the raw id of the job
	ended        time.Time // zero: it did not come to its end
	code         int
	asked        bool // it got SIGTERM
	lost         bool // its output could not be written
}

func (r run) over() bool { return !r.ended.IsZero() }

// last is the last run, a zero one if there is none.
func (e effect) last() run {
	if len(e.runs) == 0 {
		return run{}
	}
	return e.runs[len(e.runs)-1]
}

func (w *world) effect(i *item) effect {
	b, _ := os.ReadFile(w.file("effects", i.id))
	return parseEffect(string(b))
}

func parseEffect(text string) effect {
	e := effect{raw: text}
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) < 2 {
			continue
		}
		at, _ := time.Parse(time.RFC3339Nano, f[0])
		if f[1] == "S" && len(f) == 5 {
			e.runs = append(e.runs, run{began: at, job: f[2], restart: f[3], raw: f[4]})
			continue
		}
		if f[1] == "O" { // before the line of its beginning
			e.overlaps++
		}
		if len(e.runs) == 0 {
			continue
		}
		last := &e.runs[len(e.runs)-1]
		switch {
		case f[1] == "E" && len(f) == 3:
			last.code, _ = strconv.Atoi(f[2])
			last.ended = at
		case f[1] == "T":
			last.asked = true
		case f[1] == "W":
			e.lacks = strings.Join(f[2:], " ")
		case f[1] == "L":
			last.lost = true
		}
	}
	return e
}

// check says what is wrong with a task in the end; nil: nothing.
func (w *world) check(i *item) (wrong []string) {
	say := func(format string, args ...any) { wrong = append(wrong, fmt.Sprintf(format, args...)) }
	s, e := w.state(i), w.effect(i)
	if !w.over(i) {
		say("it is not over: %q", s.state)
		return wrong
	}
	if e.overlaps > 0 {
		say("its command ran twice at a time")
	}
	if e.lacks != "" {
		say("its command did not find %s", e.lacks)
	}
	for n, r := range e.runs[:max(0, len(e.runs)-1)] {
		if r.over() && !w.endedAsAsked(i, r, s.log) {
			say("its command ran again after run %d had ended with %d", n, r.code)
		}
	}
	last := e.last()
	ran := last.over()
	failedParent := i.parent != nil && w.state(i.parent).state != "completed"
	if failedParent && len(e.runs) > 0 {
		say("it ran although its parent is %q", w.state(i.parent).state)
	}
	stopped, cancelled := !i.stopAsked.IsZero(), !i.cancelled.IsZero()
	if pilot, _, packed := strings.Cut(last.job, "."); packed && slices.Contains(w.tasks.pilots, pilot) {
		// A controller that has forgotten that a job runs cancels it at once, and has it killed later:
		// the pilot begins tasks in between.
		cancelled = true
	}
	if m := lostWithPilot.FindStringSubmatch(s.reason + s.log); m != nil && slices.Contains(w.tasks.pilots, m[1]) {
		cancelled = true // before the command began, so that the task did not write where it ran
	}
	switch s.state {
	case "completed":
		if !ran || last.code != 0 {
			say("it is completed, but its command did not end with 0")
		}
		if i.ark && string(w.arkindex.Artifact(i.id, "result")) != result(i.number) {
			say("its artifact is %q", w.arkindex.Artifact(i.id, "result"))
		}
	case "failed":
		switch {
		case ran && last.code != 0:
			if !i.ark && s.code != last.code {
				say("it failed with exit code %d, its command ended with %d", s.code, last.code)
			}
		case ran:
			say("it failed, but its command ended with 0")
		case !cancelled && !stopped:
			say("it failed, but its command did not end")
		}
	case "error":
		switch {
		case ran && cancelled && last.ended.After(i.cancelled.Add(-2*time.Second)) && last.ended.Before(i.cancelEnd.Add(2*time.Second)):
			// Which of the two came first, nobody can tell.
		case ran && cancelled && w.endedAsAsked(i, last, s.log):
			// It was to run again, and was cancelled while it waited for that.
		case ran:
			say("it is an error, but its command ended with %d: %s", last.code, s.reason)
		case failedParent, cancelled:
		case len(e.runs) > 0 && w.lostBySlurm(s, last):
		default:
			say("it is an error: %s", s.reason)
		}
	case "stopped":
		if !stopped {
			say("it was stopped, but that was not asked for")
		}
	case "unscheduled":
		// Arkindex: the child of a parent that failed.
	default:
		say("it is %q", s.state)
	}
	return append(wrong, checkLog(i, s, e)...)
}

var lostWithPilot = regexp.MustCompile(`the task was lost with its pilot job (\d+): the job was cancelled`)

var cancelledAt = regexp.MustCompile(`(?m)JOB (\d+) ON \S+ CANCELLED AT (\S+)`)

// endedAsAsked reports whether a run ended by itself after its job was asked to end, or in
// that moment. Slurm signals the command and the job script one after the other, so a
// failure in between may be the answer to the request; and a command that begins while Slurm
// makes its list of processes hears nothing. The script waits 0.3 s for its own
// signal, and the run is then one that was cut short, which is repeated when Slurm begins
// the job again: so do all batch systems, and a run that failed has no result to keep. One
// that ends with 0 may have saved what it has to go on with, so it is repeated if the job
// was asked before, or warned: what Slurm sends before it asks is what it sends to a job that it resumes.
// Two witnesses are asked for it: what the script has seen, and Slurm's own line.
func (w *world) endedAsAsked(i *item, r run, log string) bool {
	cut, warned := false, false
	for _, name := range glob(w.file("fs/*/data/state/*", i.id, fmt.Sprintf("run.%s.%s", r.job, r.restart))) {
		b, _ := os.ReadFile(name)
		cut = cut || strings.Contains(string(b), fmt.Sprintf("\ncut %d;\n", r.code))
		warned = warned || strings.Contains(string(b), "\nexited 0;\n")
	}
	late := outside.Notice
	if r.code == 0 && !warned {
		late = 0
	}
	if strings.Contains(r.job, ".") { // Slurm tells it to the pilot
		for _, name := range glob(w.file("fs/*/data/state/pools/*/pilots/*.log")) {
			b, _ := os.ReadFile(name)
			log += string(b)
		}
	}
	for _, m := range cancelledAt.FindAllStringSubmatch(log, -1) {
		// Slurm's time is that of the second in which it sent the signals.
		at, err := time.ParseInLocation("2006-01-02T15:04:05", m[2], time.Local)
		if cut && err == nil && m[1] == r.raw && at.Add(time.Second).After(r.began) && !at.After(r.ended.Add(late)) {
			return true
		}
	}
	return false
}

func glob(pattern string) []string {
	names, _ := filepath.Glob(pattern)
	return names
}

// lostBySlurm reports whether Slurm itself has lost a job while its command ran: a controller
// that is killed forgets what came after it last saved its state, and ends such a job when its
// node registers. The command was asked to end or killed half-way, as by a failure of the node: it
// may have had effects, so it is not run again, and the task ends as an error that says so.
func (w *world) lostBySlurm(s seen, r run) bool {
	says, words := s.reason+s.log, []string{
		"the job was killed while its command ran", "the job is gone without a trace", "the controller of Slurm has forgotten the job",
		// The id of the pilot is that of a later job, which Slurm takes for ended when the pilot ends.
		"the task was lost with its pilot job " + r.raw + ": exit code 1",
	}
	if r.asked {
		words = []string{"the command ended with exit code 143 after the job was asked to end, and the job is gone from Slurm", "the task was lost with its pilot job " + r.raw + ": the job is gone without a trace"}
	}
	if !slices.ContainsFunc(words, func(w string) bool { return strings.Contains(says, w) }) {
		return false
	}
	for _, e := range w.record.events() {
		if e.Kind == "slurmctld-killed" && e.Began.Before(r.began.Add(30*time.Second)) && e.Ended.After(r.began.Add(-10*time.Second)) {
			return true
		}
	}
	return false
}

var outputLine = regexp.MustCompile(`^line (\d+)/(\d+) of (\d+) run (\S+)$`)

// checkLog says what is wrong with a log: it must have the output of the last run
// as a whole if that came to its end, and its last line must be about the state.
func checkLog(i *item, s seen, e effect) (wrong []string) {
	lines := strings.Split(strings.TrimRight(s.log, "\n"), "\n")
	if last := e.last(); last.over() && !last.lost {
		next, whole := 1, false
		for _, line := range lines {
			m := outputLine.FindStringSubmatch(line)
			if m == nil {
				continue
			}
			number, _ := strconv.Atoi(m[1])
			if number == 1 {
				next, whole = 1, false
			}
			if number != next || m[2] != strconv.Itoa(i.lines) || m[3] != strconv.Itoa(i.number) {
				next = -1
				continue
			}
			next++
			whole = number == i.lines
		}
		if !whole {
			wrong = append(wrong, "its log lacks lines of its output")
		}
	}
	if len(e.runs) > 0 && (s.state == "completed" || s.state == "failed") {
		if last := lines[len(lines)-1]; !strings.Contains(last, "task "+s.state) {
			wrong = append(wrong, fmt.Sprintf("it is %s, and the last line of its log is %q", s.state, last))
		}
	}
	return wrong
}
