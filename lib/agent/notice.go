package agent

import (
	"os"
	"path/filepath"

	"github.com/ponos-tools/ponos/lib/agent/record"
	"github.com/ponos-tools/ponos/lib/task"
)

// notices are what is seen between two turns: that the journals of tasks say more than the last turn has reported. A task is
//
//	silent ──its journal grows──► hasBegun ──► hasEnded
//
// and what it is beyond what was reported is news, until a turn reports it.
type notices struct {
	tasks []noticed // those that have jobs, or are offered to be started
	next  int       // the one to look at next
}

type noticed struct {
	id       task.ID
	job      string // "": it is in the record of the task, once that is submitted
	restarts int
	size     int64 // of the journal at the last look
	reported phase
	seen     phase
}

// phase is how far the start of a job has come.
type phase int

const (
	silent phase = iota
	hasBegun
	hasEnded
)

// after takes over what a turn has found. What was seen of a start stays.
func (n *notices) after(tracked []*Tracked, starts []task.ID) {
	seen := make(map[task.ID]noticed, len(n.tasks))
	for _, t := range n.tasks {
		if t.seen > silent {
			seen[t.id] = t
		}
	}
	n.tasks = n.tasks[:0]
	for _, k := range tracked {
		t := noticed{id: k.Task, job: k.Job, restarts: k.Restarts}
		if k.Reported == task.Running {
			t.reported = hasBegun
		}
		if before := seen[k.Task]; before.job == k.Job && before.restarts == k.Restarts {
			t.size, t.seen = before.size, before.seen
		}
		n.tasks = append(n.tasks, t)
	}
	for _, id := range starts {
		n.tasks = append(n.tasks, noticed{id: id})
	}
}

// News is what looks have shown since the last turn.
type News int

const (
	NoNews   News = iota
	SomeNews      // a command has begun or ended
	AllEnded      // the commands of all jobs have ended: a later turn would not see more of them
)

// Noticed looks at the journals of some of the tasks whose end was not seen, in turn, and reports what all looks have shown. A look is
// an open or two of a file, which also asks a server of NFS.
func (a *Agent) Noticed(most int) News {
	all := a.notices.tasks
	for range len(all) {
		if most == 0 {
			break
		}
		a.notices.next = (a.notices.next + 1) % len(all)
		if t := &all[a.notices.next]; t.seen != hasEnded {
			a.look(t)
			most--
		}
	}
	ended, news := 0, NoNews
	for _, t := range all {
		if t.seen > t.reported {
			news = SomeNews
		}
		if t.seen == hasEnded {
			ended++
		}
	}
	if ended > 0 && ended == len(all) {
		return AllEnded
	}
	return news
}

// look looks at the journal of a task.
func (a *Agent) look(t *noticed) {
	d := a.Store.Task(t.id)
	if t.job == "" {
		r, err := d.Read()
		if err != nil || r.Job == "" {
			return
		}
		t.job = r.Job
	}
	size := sizeOf(filepath.Join(d.Path, record.Journal(t.job, t.restarts)))
	if size == t.size {
		return
	}
	run, err := record.ReadRun(d.Path, t.job)
	if err != nil {
		return
	}
	switch t.size = size; {
	case run.Over():
		t.seen = hasEnded
	case run.Begun:
		t.seen = max(t.seen, hasBegun)
	}
}

// sizeOf is the size of a file in bytes, which is opened, as servers of NFS are asked then; 0: there is none.
func sizeOf(path string) int64 {
	f, err := os.Open(path)
	if err != nil {
		return 0
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return 0
	}
	return info.Size()
}
