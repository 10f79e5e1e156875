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

	"github.com/ponos-tools/ponos/lib/queue/spool"
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
	gpu    bool
	ark    bool
	at     time.Time

	stopAsked time.Time // when it was asked to be stopped, if it was
	cancelled time.Time // when its job was cancelled behind the agent's back, if it was
}

// tasks are all that were submitted.
type tasks struct {
	w  *world
	mu sync.Mutex
	// list has the tasks of both queues, in order.
	list []*item
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

// submit submits a task of a random kind: one in three to Arkindex, one in four
// with a parent, one in six that fails.
func (s *tasks) submit(random *rand.Rand, number int) {
	i := &item{number: number, lines: 2 + random.IntN(8), millis: 200 + random.IntN(6000), ark: random.IntN(3) == 0, gpu: random.IntN(4) == 0}
	if random.IntN(6) == 0 {
		i.code = 1 + random.IntN(100)
	}
	var candidates []*item
	for _, other := range s.all() {
		if other.ark == i.ark {
			candidates = append(candidates, other)
		}
	}
	if random.IntN(4) == 0 && len(candidates) > 0 {
		i.parent = candidates[max(0, len(candidates)-1-random.IntN(10))]
	}
	work := []string{s.w.file("bin/work"), strconv.Itoa(i.number), strconv.Itoa(i.lines), strconv.Itoa(i.millis), strconv.Itoa(i.code)}
	slug := fmt.Sprintf("t%03d", number)
	i.at = time.Now()
	if i.ark {
		command, err := json.Marshal(work)
		s.w.must(err)
		i.id = server.NewID()
		t := &server.Task{ID: i.id, Slug: slug, Command: command, RequiresGPU: i.gpu}
		if i.parent != nil {
			t.Parents = []string{i.parent.id}
		}
		if err := s.w.arkindex.Add(server.Spec{Tasks: []*server.Task{t}}); err != nil {
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
	return err != nil || !strings.Contains(string(b), `"foreign":true`)
}

// effect is what the command of a task did.
type effect struct {
	starts   []start
	codes    []int
	ends     []time.Time
	ended    time.Time // the last of them
	overlaps int
	asked    bool // it got SIGTERM
	lost     bool // its output could not be written
	raw      string
}

type start struct {
	at           time.Time
	job, restart string
}

func (w *world) effect(i *item) effect {
	b, _ := os.ReadFile(w.file("effects", i.id))
	e := effect{raw: string(b)}
	for line := range strings.Lines(string(b)) {
		f := strings.Fields(line)
		if len(f) < 2 {
			continue
		}
		at, _ := time.Parse(time.RFC3339Nano, f[0])
		switch {
		case f[1] == "S" && len(f) == 4:
			e.starts = append(e.starts, start{at, f[2], f[3]})
		case f[1] == "E" && len(f) == 3:
			code, _ := strconv.Atoi(f[2])
			e.codes, e.ends, e.ended = append(e.codes, code), append(e.ends, at), at
		case f[1] == "T":
			e.asked = true
		case f[1] == "L":
			e.lost = true
		case f[1] == "O":
			e.overlaps++
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
	again := len(e.starts) > 1 && len(e.codes) > 0 && !e.endedAsAsked(s)
	if len(e.codes) > 1 && again {
		say("its command took effect %d times", len(e.codes))
	}
	if e.overlaps > 0 {
		say("its command ran twice at a time")
	}
	if at := strings.Index(e.raw, " E "); at >= 0 && strings.Contains(e.raw[at:], " S ") && again {
		say("its command ran again after its end")
	}
	ran := len(e.codes) > 0
	failedParent := i.parent != nil && w.state(i.parent).state != "completed"
	if failedParent && len(e.starts) > 0 {
		say("it ran although its parent is %q", w.state(i.parent).state)
	}
	stopped, cancelled := !i.stopAsked.IsZero(), !i.cancelled.IsZero()
	switch s.state {
	case "completed":
		if !ran || e.codes[0] != 0 {
			say("it is completed, but its command did not end with 0")
		}
	case "failed":
		switch {
		case ran && e.codes[0] != 0:
			if !i.ark && s.code != e.codes[0] {
				say("it failed with exit code %d, its command ended with %d", s.code, e.codes[0])
			}
		case ran:
			say("it failed, but its command ended with 0")
		case !cancelled && !stopped:
			say("it failed, but its command did not end")
		}
	case "error":
		switch {
		case ran && cancelled && i.cancelled.Sub(e.ended).Abs() < 2*time.Second:
			// Which of the two came first, nobody can tell.
		case ran:
			say("it is an error, but its command ended with %d: %s", e.codes[0], s.reason)
		case failedParent, cancelled:
		case len(e.starts) > 0 && !e.asked && w.lostBySlurm(i, s):
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
	e.lost = e.lost || w.strayed(i, e)
	wrong = append(wrong, checkLog(i, s, e)...)
	return wrong
}

var cancelledAt = regexp.MustCompile(`(?m)JOB \d+ ON \S+ CANCELLED AT (\S+)`)

// endedAsAsked reports whether the command failed in the second in which its job was asked
// to end: whether it had been asked itself, nobody can tell, and it is run again.
func (e effect) endedAsAsked(s seen) bool {
	for n, code := range e.codes {
		for _, m := range cancelledAt.FindAllStringSubmatch(s.log, -1) {
			at, err := time.ParseInLocation("2006-01-02T15:04:05", m[1], time.Local)
			if err == nil && code != 0 && at.Sub(e.ends[n]).Abs() < 1500*time.Millisecond {
				return true
			}
		}
	}
	return false
}

// lostBySlurm reports whether Slurm itself has lost a job while its command ran: a controller
// that is killed does not know of a job that has just begun, or that it was to begin again.
func (w *world) lostBySlurm(i *item, s seen) bool {
	says := s.reason + s.log
	if !strings.Contains(says, "the job was killed while its command ran") && !strings.Contains(says, "the job is gone without a trace") {
		return false
	}
	starts := w.effect(i).starts
	last := starts[len(starts)-1].at
	for _, e := range w.record.events() {
		if e.Kind == "slurmctld-killed" && e.Began.Before(last.Add(30*time.Second)) && e.Ended.After(last.Add(-10*time.Second)) {
			return true
		}
	}
	return false
}

// strayed reports whether a job may have begun in a directory that took the place of the
// task's for a moment, and is gone with what was written there.
func (w *world) strayed(i *item, e effect) bool {
	for _, event := range w.record.events() {
		if event.Kind != "state-directory-gone" {
			continue
		}
		for _, s := range e.starts {
			if event.Began.Before(s.at) && event.Ended.After(i.at) {
				return true
			}
		}
	}
	return false
}

var outputLine = regexp.MustCompile(`^line (\d+)/(\d+) of (\d+) run (\S+)$`)

// checkLog says what is wrong with a log: it must have the output of the last run
// as a whole if that came to its end, and its last line must be about the state.
func checkLog(i *item, s seen, e effect) (wrong []string) {
	lines := strings.Split(strings.TrimRight(s.log, "\n"), "\n")
	if len(e.codes) > 0 && !e.lost {
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
	if len(e.starts) > 0 && (s.state == "completed" || s.state == "failed") {
		if last := lines[len(lines)-1]; !strings.Contains(last, "task "+s.state) {
			wrong = append(wrong, fmt.Sprintf("it is %s, and the last line of its log is %q", s.state, last))
		}
	}
	return wrong
}
