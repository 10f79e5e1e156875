package record

import (
	"errors"
	"fmt"
	"hash/maphash"
	"testing"
)

// world is a task, its directory, and the jobs that are to run it: all that a start sees or changes.
type world struct {
	owner string
	files [3]string // journals: of job 1 with restart 0 and 1, and of job 2
	procs [3]process
	n     int // processes that were started
	most  int // processes that may be started
	left  int // faults that may still happen
}

// process is one start of a job.
type process struct {
	Start
	do      Do
	life    life
	asked   bool
	told    bool // its command was asked to end
	command life
	code    int     // of the command, once it has ended
	over    [3]bool // what it has seen in /proc, while it looks
	looking bool
	gaveUp  bool // it could not record the end
}

// life is that of a process.
type life int

const (
	none life = iota
	running
	ended
	killed
)

// file is the journal of a start.
func (p *process) file() int {
	if p.Job == "2" {
		return 2
	}
	return p.Restart
}

// read is what a start of a job finds, as read does.
func (w *world) read(job string) (last Run, begun []Begun) {
	for i, text := range w.files {
		if (i == 2) != (job == "2") || text == "" {
			continue
		}
		r := ParseRun([]byte(text))
		r.Restart = i % 2
		if r.Ended == last.Ended && (r.Restart > last.Restart || !last.Begun) || r.Ended && !last.Ended {
			last = r
		}
		begun = append(begun, parseBegun([]byte(text), r.Restart)...)
	}
	return last, begun
}

// explorer visits all worlds that can come to be.
type explorer struct {
	t    *testing.T
	seed maphash.Seed
	seen map[uint64]bool // hashes of worlds
	// what was reached, so that none of it is missing
	refused, answered, waited, cut, lost, again int
}

func (e *explorer) fail(w world, format string, args ...any) {
	e.t.Helper()
	e.t.Fatalf("%s\n%+v", fmt.Sprintf(format, args...), w)
}

func (e *explorer) visit(w world) {
	commands := 0
	for i := range w.procs {
		p := &w.procs[i]
		p.tries, p.do.Say, p.do.After = 0, "", 0
		if p.life != running { // only who it was counts
			p.Start = Start{Job: p.Job, Host: p.Host, Restart: p.Restart, Process: p.Process}
			p.do, p.over, p.looking, p.told = Do{}, [3]bool{}, false, false
		}
		if p.waited < elsewhere {
			p.waited = min(p.waited, 1)
		}
		p.waited = min(p.waited, elsewhere)
		if p.command == running {
			commands++
		}
		if p.command != none && !ParseRun([]byte(w.files[p.file()])).Begun {
			e.fail(w, "the command of start %d has run, and its journal does not say so", i)
		}
	}
	if commands > 1 {
		e.fail(w, "the command runs twice at the same time")
	}
	hash := maphash.Comparable(e.seed, w)
	if e.seen[hash] {
		return
	}
	e.seen[hash] = true
	for i := range w.procs[:w.n] {
		e.step(w, i)
		e.harm(w, i)
	}
	e.begin(w)
}

// begin has Slurm start a job: the first one, a second one of the same task, or the first one once more, with the
// same restart count or the next one.
func (e *explorer) begin(w world) {
	if w.n == w.most {
		return
	}
	for _, next := range []struct {
		job, host string
		restart   int
	}{{"1", "a", 0}, {"1", "b", 0}, {"1", "a", 1}, {"1", "b", 1}, {"2", "a", 0}} {
		w := w
		ok := w.n > 0 || next.job+next.host == "1a" && next.restart == 0
		for i := range w.procs[:w.n] {
			p := &w.procs[i]
			if p.Job != next.job {
				continue
			}
			// A start of another restart count on another host has ended.
			ok = ok && p.Restart <= next.restart && (p.Host == next.host || p.Restart == next.restart || p.life != running)
		}
		if !ok {
			continue
		}
		p := &w.procs[w.n]
		*p = process{Start: Start{Job: next.job, Host: next.host, Restart: next.restart, Process: Process{w.n + 1, 1}}, life: running}
		p.do = p.First()
		w.n++
		e.visit(w)
	}
}

// harm does to a start what may happen to it at any time.
func (e *explorer) harm(w world, i int) {
	p := w.procs[i]
	if p.life == running && !p.asked && w.left > 0 {
		w := w
		w.left--
		w.procs[i].asked = true // its command hears of it before, after, or not at all
		e.visit(w)
		if p.command == running {
			w.procs[i].told = true
			e.visit(w)
		}
	}
	if p.life == running && w.left > 0 {
		w := w
		w.left--
		w.procs[i].life = killed
		if p.command == running {
			w.procs[i].command = killed
		}
		e.visit(w)
	}
	if p.command != running {
		return
	}
	codes := []int{0, 7}
	if p.told {
		codes = []int{0, terminated}
	}
	for _, code := range codes {
		w := w
		w.procs[i].command, w.procs[i].code = ended, code
		e.visit(w)
	}
}

// step has a start do what it is to do next, with all results that this can have.
func (e *explorer) step(w world, i int) {
	p := &w.procs[i]
	if p.life != running {
		return
	}
	if w.left > 0 && p.do.Step != Exit && p.do.Step != Settle && (p.do.Step != Execute || p.command == none) {
		e.failing(w, i)
	}
	saw := Saw{}
	switch p.do.Step {
	case Claim:
		if w.owner == "" {
			w.owner = p.Job
		}
		saw.Owner = w.owner
	case Look, Confirm:
		if !e.look(&w, i, &saw) {
			e.visit(w)
			return
		}
	case Begin, End, Seal:
		w.files[p.file()] += "\n" + p.do.Line + ";\n"
	case Execute:
		if p.command == none {
			e.start(w, i)
			return
		}
		if p.command == running {
			return
		}
		saw.Code = p.code
		if p.command == killed {
			saw.Code = 137
		}
	case Exit:
		e.exit(w, i)
		return
	}
	p.do = p.Next(saw, p.asked)
	if p.do.Step == Open { // which nobody else sees
		p.do = p.Next(Saw{}, p.asked)
	}
	e.visit(w)
}

// look sees what is alive, and in a second step what is on the disk. It reports whether it has done both.
func (e *explorer) look(w *world, i int, saw *Saw) bool {
	p := &w.procs[i]
	if !p.looking {
		p.looking, p.over = true, [3]bool{}
		_, before := w.read(p.Job)
		for _, b := range before {
			if b.PID > 0 && b.Host == p.Host {
				p.over[b.PID-1] = w.procs[b.PID-1].life != running
			}
		}
		return false
	}
	p.looking = false
	saw.Run, saw.Begun = w.read(p.Job)
	for n, b := range saw.Begun {
		saw.Begun[n].Alive = b.Host == p.Host && b.PID > 0 && !p.over[b.PID-1]
	}
	if p.waited == 1 { // enough time passes: what is on the other host is ended, and what it has written is seen
		for j := range w.procs[:w.n] {
			if o := &w.procs[j]; o.Host != p.Host && o.Job == p.Job {
				if o.life == running {
					o.life = killed
				}
				if o.command == running {
					o.command = killed
				}
			}
		}
		e.waited++
		p.waited = elsewhere
		saw.Run, saw.Begun = w.read(p.Job)
		for n, b := range saw.Begun {
			saw.Begun[n].Alive = b.Host == p.Host && b.PID > 0 && !p.over[b.PID-1]
		}
	}
	return true
}

// start starts the command.
func (e *explorer) start(w world, i int) {
	p := &w.procs[i]
	run, _ := w.read(p.Job)
	switch {
	case w.owner != p.Job:
		e.fail(w, "start %d runs the command of job %s", i, w.owner)
	case run.Ended:
		e.fail(w, "start %d runs the command, which has ended", i)
	}
	for j, o := range w.procs[:w.n] {
		if j == i || o.command == none {
			continue
		}
		e.again++
		if o.command == ended && !o.asked && o.life != killed && !o.gaveUp {
			e.fail(w, "start %d runs the command, which has ended in start %d", i, j)
		}
	}
	p.command, p.told = running, p.asked // which is passed on
	e.visit(w)
}

// failing has the step of a start fail, in all ways.
func (e *explorer) failing(w world, i int) {
	w.left--
	p := &w.procs[i]
	p.looking = false
	results := []string{""}
	if p.do.Line != "" { // nothing of the line is written, a part of it, or all
		results = []string{"", "\n" + p.do.Line[:len(p.do.Line)/2], "\n" + p.do.Line + ";\n"}
	}
	for _, written := range results {
		for _, gone := range []bool{false, true} {
			w := w
			p := &w.procs[i]
			w.files[p.file()] += written
			if gone {
				p.gone = away
				p.gaveUp = p.gaveUp || p.do.Step == End
			}
			p.do = p.Next(Saw{Err: errors.New("fault"), Gone: gone}, p.asked)
			p.gone = 0
			e.visit(w)
		}
	}
}

// exit checks how a start has ended.
func (e *explorer) exit(w world, i int) {
	p := &w.procs[i]
	p.life = ended
	run, _ := w.read(p.Job)
	own := ParseRun([]byte(w.files[p.file()]))
	shared := false // with another start, which notes its own end
	for j, o := range w.procs[:w.n] {
		shared = shared || j != i && o.file() == p.file()
	}
	switch {
	case p.command == none && w.owner != p.Job && p.do.Code == 0:
		e.refused++
	case p.command == none && run.Ended:
		if e.answered++; p.do.Code != run.Code && p.do.Code != terminated {
			e.fail(w, "start %d answers %d, and the command has ended with %d", i, p.do.Code, run.Code)
		}
	case p.command == none && p.do.Code != terminated:
		e.fail(w, "start %d ends with %d, and has run nothing", i, p.do.Code)
	case p.command == ended && p.do.Code != p.code:
		e.fail(w, "start %d ends with %d, its command with %d", i, p.do.Code, p.code)
	case p.command == ended && !own.Over(): // a fault has kept it from the journal
		if e.lost++; !p.gaveUp && !shared && !p.asked {
			e.fail(w, "the end of start %d is not recorded", i)
		}
	case p.command == ended && own.Code != p.code && !shared && !p.gaveUp:
		e.fail(w, "start %d has recorded %d, its command has ended with %d", i, own.Code, p.code)
	case own.Cut:
		e.cut++
	}
	e.visit(w)
}

// Whatever is killed, fails, is begun again or is begun elsewhere, at any step: the command does not run twice at
// a time, is not run again after it has ended, and no job says of it what is not so.
func TestEveryInterleaving(t *testing.T) {
	t.Parallel()
	e := &explorer{t: t, seed: maphash.MakeSeed(), seen: map[uint64]bool{}}
	e.visit(world{most: 2, left: 2})
	e.visit(world{most: 3})
	t.Logf("%d worlds; refused %d, answered %d, waited %d, cut %d, lost %d, again %d",
		len(e.seen), e.refused, e.answered, e.waited, e.cut, e.lost, e.again)
	for name, n := range map[string]int{
		"refused": e.refused, "answered": e.answered, "waited": e.waited, "cut": e.cut, "again": e.again, "lost": e.lost,
	} {
		if n == 0 {
			t.Errorf("no start was %s", name)
		}
	}
}
