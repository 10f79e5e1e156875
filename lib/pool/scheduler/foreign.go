package scheduler

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/ponos-tools/ponos/lib/pool"
	"github.com/ponos-tools/ponos/lib/pool/journal"
	"github.com/ponos-tools/ponos/lib/pool/wire"
	"github.com/ponos-tools/ponos/lib/pool/worker"
)

// foreign looks after tasks that run at workers which have lost their head, and
// leave the results in files.
type foreign struct {
	h     *head
	files []*spoolFile
	tasks map[int64]*foreignTask
	known int // of tasks, those that are in the input
	next  time.Time
}

type spoolFile struct {
	path    string
	node    string
	size    int64
	touched time.Time // as the file system says
	alive   time.Time // when that last changed
	until   time.Time // the worker may have tasks running until then anyhow
	listed  bool      // it is known which tasks it lets end
	ended   bool
}

type foreignTask struct {
	file *spoolFile
	task *pool.Task
	done *wire.Done
}

// stale is how long a worker may not touch its file before it is taken for dead. A
// worker that cannot touch it ends its tasks before that.
const stale = 2 * time.Minute

func newForeign(h *head) *foreign {
	f := &foreign{h: h, tasks: map[int64]*foreignTask{}}
	names, _ := filepath.Glob(filepath.Join(h.Journal.Dir, worker.SpoolDir, "*-*-*"))
	for _, name := range names {
		f.open(name).until = journal.LeaseEnd(h.Journal.Dir)
	}
	f.look(time.Now())
	return f
}

func (f *foreign) open(name string) *spoolFile {
	s := &spoolFile{path: name, alive: time.Now()}
	f.files = append(f.files, s)
	return s
}

// adopt waits for the worker of a lost connection, if it goes on.
func (f *foreign) adopt(c *conn) {
	s := f.open(f.path(c.identity()))
	s.node, s.until = c.name(), f.h.leaseOver(c.granted)
	for seq, a := range c.attempts {
		if a.unsent == nil {
			f.tasks[seq] = &foreignTask{file: s, task: a.task}
			f.known++
		}
	}
}

// path is the file of a worker.
func (f *foreign) path(w wire.Former) string {
	pid := 0
	if len(w.Processes) > 0 {
		pid = w.Processes[0].PID
	}
	return filepath.Join(f.h.Journal.Dir, worker.SpoolDir, fmt.Sprintf("%s-%s-%d", w.Session, w.Node, pid))
}

// knows reports whether the worker's file is yet to say what it lets end.
func (f *foreign) knows(w wire.Former) bool {
	path := f.path(w)
	return slices.ContainsFunc(f.files, func(s *spoolFile) bool { return s.path == path && !s.listed && !s.ended })
}

func (f *foreign) has(seq int64) bool { return f.tasks[seq] != nil }

// claim keeps a task from being run if it runs at such a worker, or has ended
// there.
func (f *foreign) claim(t *pool.Task) bool {
	ft := f.tasks[t.Seq]
	if ft == nil {
		return false
	}
	ft.task = t
	f.known++
	if ft.done != nil {
		f.settle(ft)
	}
	return true
}

func (f *foreign) waiting() bool { return f.known > 0 }

func (f *foreign) settle(ft *foreignTask) {
	f.known--
	delete(f.tasks, ft.task.Seq)
	d := ft.done
	if d.What == "" {
		if d.What = wire.OK; d.Exit != 0 || d.Signal != 0 {
			d.What = wire.Failed
		}
	}
	out := output{bytes: [2][]byte{d.Out, d.Err}}
	if d.OutSize+d.ErrSize > 0 {
		for i := range out.files {
			out.files[i] = filepath.Join(filepath.Dir(ft.file.path), fmt.Sprintf("%d.%d.%d", d.Seq, d.Attempt, i+1))
		}
	}
	ft.task.Attempt = max(ft.task.Attempt, d.Attempt)
	r := newRecord(ft.task, ft.file.node, d)
	if d.What == wire.Stopped {
		r.What = wire.Lost
	}
	f.h.settle(ft.task, nil, r, out)
}

func (f *foreign) tick(t time.Time) {
	if t.After(f.next) && len(f.files) > 0 {
		f.next = t.Add(time.Second)
		f.look(t)
	}
}

// look reads what is new in the files.
func (f *foreign) look(t time.Time) {
	kept := f.files[:0]
	for _, s := range f.files {
		f.read(s)
		st, err := os.Stat(s.path)
		if err == nil && !st.ModTime().Equal(s.touched) {
			s.touched, s.alive = st.ModTime(), t
		}
		dead := s.ended || t.After(s.until) && (t.Sub(s.alive) > stale || err != nil && t.Sub(s.alive) > 3*time.Second)
		if dead {
			s.ended = true
			f.giveUp(s, func(int64) bool { return true })
		}
		if dead && !f.uses(s) {
			_ = os.Remove(s.path)
			continue
		}
		kept = append(kept, s)
	}
	f.files = kept
}

// tidy removes the files that are of no use any more.
func (f *foreign) tidy() {
	for _, s := range f.files {
		if s.ended && !f.uses(s) {
			_ = os.Remove(s.path)
		}
	}
}

// over notes that a worker has ended.
func (f *foreign) over(w wire.Former) {
	for _, s := range f.files {
		if s.path == f.path(w) {
			f.read(s)
			s.ended = true
		}
	}
}

func (f *foreign) uses(s *spoolFile) bool {
	for _, ft := range f.tasks {
		if ft.file == s {
			return true
		}
	}
	return false
}

// giveUp has the tasks run again of which the result will never come.
func (f *foreign) giveUp(s *spoolFile, never func(seq int64) bool) {
	for seq, ft := range f.tasks {
		if ft.file != s || ft.done != nil || !never(seq) {
			continue
		}
		delete(f.tasks, seq)
		if t := ft.task; t != nil {
			f.known--
			r := newRecord(t, s.node, &wire.Done{Key: wire.Key{Seq: seq, Attempt: t.Attempt}, What: wire.Lost, Error: "its worker is gone"})
			f.h.settle(t, nil, r, output{})
		}
	}
}

func (f *foreign) read(s *spoolFile) {
	file, err := os.Open(s.path)
	if err != nil {
		return
	}
	defer file.Close()
	if _, err := file.Seek(s.size, 0); err != nil {
		return
	}
	in := bufio.NewReader(file)
	for {
		line, err := in.ReadBytes('\n')
		if err != nil {
			return // an unfinished line is read again
		}
		s.size += int64(len(line))
		var m worker.Spool
		if json.Unmarshal(line, &m) != nil {
			continue
		}
		switch {
		case m.Node != "":
			s.node = m.Node
		case m.Done != nil:
			f.done(s, m.Done)
		case m.End:
			s.ended = true
		}
		if m.Running != nil && !s.listed {
			s.listed = true
			f.giveUp(s, func(seq int64) bool {
				return !slices.ContainsFunc(m.Running, func(k wire.Key) bool { return k.Seq == seq })
			})
		}
		for _, k := range m.Running {
			if e := f.h.History.Get(k.Seq); f.tasks[k.Seq] == nil && e.State == journal.Started && e.Attempt == k.Attempt {
				f.tasks[k.Seq] = &foreignTask{file: s}
			}
		}
	}
}

func (f *foreign) done(s *spoolFile, d *wire.Done) {
	ft := f.tasks[d.Seq]
	if ft == nil || ft.file != s || ft.done != nil {
		return
	}
	ft.done = d
	if ft.task != nil {
		f.settle(ft)
	}
}
