package spool

import (
	"os"
	"time"

	"github.com/ponos-tools/ponos/lib/base/clock"
	"github.com/ponos-tools/ponos/lib/task/queue"
)

// lastTurn is what the last turn has seen of the spool. What comes after it is news: a task with a later id, one more stop, and, while
// tasks wait for others, the end of any task. What it misses, such as a task of a host whose clock is behind, is seen at the next turn.
type lastTurn struct {
	newest    string // the name of the last file of new/
	stops     int
	waits     bool      // tasks of new/ wait for others
	done      time.Time // when done/ had changed
	new, stop seen
}

// seen is a directory at the last look.
type seen struct {
	at    time.Time // when it had changed
	again bool      // it is listed once more, as a change right after that may have had the same time
}

// moved reports whether a directory is to be listed.
func (s *seen) moved(dir string) bool {
	at, again := changed(dir), s.again
	s.at, s.again = at, !at.Equal(s.at)
	return s.again || again
}

// changed is when a directory has changed. It is opened, as servers of NFS are asked then. Zero: that is not known.
func changed(dir string) time.Time {
	f, err := os.Open(dir)
	if err != nil {
		return time.Time{}
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return time.Time{}
	}
	return clock.Modified(info)
}

// Fresh reports whether there is news since the last call of Actions. It looks at three directories, and lists those that have
// changed.
func (q *Queue) Fresh() bool {
	k := &q.last
	if k.waits && !changed(q.path(doneDir, "")).Equal(k.done) {
		return true
	}
	if k.new.moved(q.path(newDir, "")) {
		later := false
		_ = q.eachName(newDir, func(name string) { // the next turn tells
			if id, _ := fileParts(name); id != "" && name > k.newest {
				later = true
			}
		})
		if later {
			return true
		}
	}
	if k.stop.moved(q.path(stopDir, "")) {
		stops := 0
		_ = q.eachName(stopDir, func(string) { stops++ })
		if stops > k.stops {
			return true
		}
		k.stops = stops
	}
	return false
}

// Left reports whether the spool has tasks that are not over and that this agent could take, or has taken, or the command of a group
// that is over is to run.
func (q *Queue) Left() (left bool, err error) {
	for _, dir := range []string{newDir, activeDir} {
		if err := q.eachName(dir, func(name string) {
			id, agent := fileParts(name)
			left = left || id != "" && (dir == newDir && q.others[id] == "" && !q.behind[id] || agent == q.Agent || agent == stopper)
		}); err != nil {
			return false, err
		}
	}
	if left {
		return true, nil
	}
	return q.toTell()
}

// Look notices that tasks have changed, and with logs those, by the times of directories.
func (s *Spool) Look(logs bool) queue.Look {
	dirs := map[string]*seen{newDir: {}, activeDir: {}, doneDir: {}}
	if logs {
		dirs[logsDir] = &seen{}
	}
	return func() (changed bool) {
		for name, dir := range dirs {
			changed = dir.moved(s.path(name, "")) || changed
		}
		return changed
	}
}
