package agent

import (
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/renameio/v2"
	"golang.org/x/sys/unix"

	"github.com/ponos-tools/ponos/lib/agent/record"
	"github.com/ponos-tools/ponos/lib/task"
	"github.com/ponos-tools/ponos/lib/task/runner"
)

// Tracked is the part of a record that a turn reads, and changes, of each task with a job. Turns keep those of all tasks in one
// file beside the records (cache): with 10,000 tasks, to read the records would cost each turn 0.2 s more, and 20,000 round trips on NFS.
// What is newer there than in the record is found out again if it is lost.
type Tracked struct {
	runner.Ref
	Process    string       `json:"process,omitempty"`
	Since      time.Time    `json:"since,omitzero"`  // when Reported was reported
	Absent     task.Absence `json:"absent,omitzero"` // of the task in the queue
	Reported   task.State   `json:"reported,omitempty"`
	LogSize    int64        `json:"log_size,omitempty"` // bytes of the log that are published
	Output     int64        `json:"output,omitempty"`   // how many of them are the job's output
	Restarts   int          `json:"restarts,omitempty"`
	Asked      time.Time    `json:"asked,omitzero"`       // when the queue was last asked for the state of a task whose job costs money
	Reassigned bool         `json:"reassigned,omitempty"` // the queue says that it belongs to another agent

	output int64 // size of the job's output now
	idle   bool  // its job ran in the last turn, and has not begun the command
	cached bool  // it was read from the cache
}

const trackedFile = "tracked.jsonl"

// newRecord is the record of a task of which nothing is known.
func newRecord(id task.ID) Record {
	return Record{Tracked: Tracked{Ref: runner.Ref{Task: id, Attempt: 1}}}
}

// take makes a job that of the task.
func (k *Tracked) take(job string, submitted time.Time) {
	k.Job, k.Submitted = job, submitted
	k.Missing, k.Unaccounted, k.Absent = task.Absence{}, task.Absence{}, task.Absence{}
}

// release makes the job one of an earlier attempt: the task has none from now on.
func (k *Tracked) release() {
	of := k.Ref
	*k = Tracked{Process: k.Process, Ref: runner.Ref{
		Task: of.Task, Label: of.Label, Attempt: of.Attempt, Before: of.Before.And(of.Job), Lost: of.Lost, Rules: of.Rules, Dir: of.Dir,
	}}
}

// cache is the state of tracked.jsonl. Each change appends a line, and the last line of a task
// counts, so that a turn writes only what has changed; a task without a job in it is no longer known.
type cache struct {
	lines   int
	damaged bool
	stale   []task.ID // tasks in it that no longer have a directory
	unread  []failure // records that cannot be read: the state of these tasks is unknown
	waiting []Record  // tasks to be submitted again
}

// readCache reads the cache. A missing or damaged one is rebuilt over the next turns.
func (s *Store) readCache() (tracked []Tracked, index map[task.ID]int, c cache, err error) {
	b, err := os.ReadFile(filepath.Join(s.Dir, trackedFile))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, nil, c, err
	}
	text := string(b)
	c.lines = strings.Count(text, "\n")
	tracked = make([]Tracked, 0, c.lines)
	index = make(map[task.ID]int, c.lines)
	for line := range strings.Lines(text) {
		k, ok := parseTracked(line)
		if !ok {
			c.damaged = true
			continue
		}
		k.cached, k.Dir = true, s.Task(k.Task).Path
		if i, ok := index[k.Task]; ok {
			tracked[i] = k
		} else {
			index[k.Task] = len(tracked)
			tracked = append(tracked, k)
		}
	}
	return tracked, index, c, nil
}

// loadTracked returns the tasks with jobs, and the index of each: those of the cache, and those that
// were started since it was written.
func (s *Store) loadTracked() ([]Tracked, map[task.ID]int, cache, error) {
	tracked, index, c, err := s.readCache()
	if err != nil {
		return nil, nil, c, err
	}
	ids, err := s.IDs()
	if err != nil {
		return nil, nil, c, err
	}
	cached := len(tracked)
	present := make([]bool, cached)
	for _, id := range ids {
		if i, ok := index[id]; ok && tracked[i].Job != "" {
			present[i] = true
			continue
		}
		r, err := s.Task(id).Read()
		if err == nil && r.Job == "" && !r.Retry.IsZero() {
			c.waiting = append(c.waiting, r)
		}
		if errors.Is(err, fs.ErrNotExist) || err == nil && r.Job == "" {
			continue // being prepared, or not yet submitted
		}
		if err != nil { // only this task fails
			c.unread = append(c.unread, failure{id, err})
			continue
		}
		tracked = append(tracked, r.Tracked)
	}
	at := 0
	for i := range tracked {
		k := tracked[i]
		if i < cached && !present[i] {
			if k.Job != "" {
				c.stale = append(c.stale, k.Task)
			}
			if index[k.Task] == i {
				delete(index, k.Task)
			}
			continue
		}
		if at != i {
			tracked[at] = k
		}
		index[k.Task] = at
		at++
	}
	return tracked[:at], index, c, nil
}

// saveTracked brings the cache up to date. It need not reach the disk: what is lost is found out and
// reported again.
func (s *Store) saveTracked(c cache, tracked []*Tracked, changes []Tracked) error {
	for _, id := range c.stale {
		changes = append(changes, Tracked{Ref: runner.Ref{Task: id}})
	}
	if len(changes) == 0 && !c.damaged {
		return nil
	}
	path := filepath.Join(s.Dir, trackedFile)
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	if c.damaged || c.lines+len(changes) > 2*len(tracked)+1000 {
		for _, k := range tracked {
			if err := encoder.Encode(k); err != nil {
				return err
			}
		}
		return renameio.WriteFile(path, b.Bytes(), 0o600, renameio.WithTempDir(s.Dir))
	}
	for _, k := range changes {
		if err := encoder.Encode(k); err != nil {
			return err
		}
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(b.Bytes())
	return errors.Join(err, f.Close())
}

// statters is how many outputs are measured at the same time: stat is slow on network file
// systems.
const statters = 16

// measureOutputs records how large the output of each running task is, and whether its command has begun, with one stat each:
// a turn without changes needs nothing else of a task's files.
func (s *Store) measureOutputs(tracked []Tracked) error {
	tasks, err := os.Open(filepath.Join(s.Dir, "tasks"))
	if err != nil {
		return err
	}
	defer tasks.Close()
	dir := int(tasks.Fd())
	var wg sync.WaitGroup
	for part := range slices.Chunk(tracked, max(1, (len(tracked)+statters-1)/statters)) {
		wg.Go(func() {
			var info unix.Stat_t
			for i := range part {
				k := &part[i]
				if k.Reported != task.Running {
					continue
				}
				k.output = -1 // the error is reported where the file is read
				err := unix.Fstatat(dir, string(k.Task)+"/"+runner.Output, &info, 0)
				switch {
				case err == nil:
					k.output = info.Size
				case errors.Is(err, fs.ErrNotExist):
					k.output = 0
				}
				err = unix.Fstatat(dir, string(k.Task)+"/"+record.Journal(k.Job, k.Restarts), &info, 0)
				k.idle = !k.Lost && (err == nil && info.Size == 0 || errors.Is(err, fs.ErrNotExist))
			}
		})
	}
	wg.Wait()
	return nil
}
