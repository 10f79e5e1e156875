package spool

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/google/renameio/v2"

	"github.com/ponos-tools/ponos/lib/base/command"
	"github.com/ponos-tools/ponos/lib/base/fault"
	"github.com/ponos-tools/ponos/lib/task"
	"github.com/ponos-tools/ponos/lib/task/queue"
)

// overDir has a mark for each group with a command that is to run when none of its tasks is left:
//
//	GROUP.json         a task of the group has ended: the command is due when no other one is left
//	GROUP@AGENT.json   that agent runs the command, was killed while it did, or tries it again: it has failed
//	GROUP@.json        the command is given up, and nobody runs it: why is kept for those who look at the group
//
//	due ──► begun ──► removed
//	          │ ▲
//	          ▼ │ a pause
//	        failed ──10 tries, or there is no such program──► given up ──a later command of the group──► removed
//
// A mark is written before the file of the task is in done/, and removed after the command has ended, so the command runs at least
// once. A task that ends while it runs leaves a new mark.
const overDir = "over"

// mark is the content of a file of overDir.
type mark struct {
	queue.OnEnd
	Tries  int       `json:"tries,omitempty"`  // that were begun
	Next   time.Time `json:"next,omitzero"`    // no try before
	Failed string    `json:"failed,omitempty"` // how the last try that ended has failed
}

// maxTries is how often a command that fails is tried, and patience how often by an agent that ends when nothing is left: the next
// agent tries it again.
const (
	maxTries = 10
	patience = 3
)

// leaveMark notes that a task with a command for its group ends.
func (s *Spool) leaveMark(e queue.Entry) error {
	if e.OnEnd.Command == "" {
		return nil
	}
	path := s.path(overDir, e.Group+".json")
	if m, err := s.readMark(path); err == nil && m == (mark{OnEnd: e.OnEnd}) {
		return nil // of another task of the group
	}
	err := os.Mkdir(s.path(overDir, ""), 0o700) // spools of earlier versions have none
	if err == nil || errors.Is(err, fs.ErrExist) {
		err = s.writeMark(path, mark{OnEnd: e.OnEnd})
	}
	if err != nil {
		return fault.Errorf(fault.Unavailable, "spool: %w", err)
	}
	return nil
}

func (s *Spool) writeMark(path string, m mark) error {
	text, err := json.Marshal(m)
	if err != nil {
		return err
	}
	return renameio.WriteFile(path, append(text, '\n'), 0o600, renameio.WithTempDir(s.path(tmpDir, "")))
}

func (s *Spool) readMark(path string) (m mark, err error) {
	text, err := s.content(path)
	if err == nil {
		err = json.Unmarshal(text, &m)
	}
	return m, err
}

// Over returns the groups that are over, one try of whose command this call begins. The caller runs the commands, and calls Ran
// for each; if it is killed before, the next call of this agent returns the group again.
func (q *Queue) Over() ([]queue.Over, error) {
	marks, err := q.marks()
	if err != nil {
		return nil, err
	}
	var due []queue.Over
	var errs []error
	for _, group := range slices.Sorted(maps.Keys(marks)) {
		o, err := q.begin(group, marks[group])
		if err != nil && !errors.Is(err, fs.ErrNotExist) { // else another agent was faster
			errs = append(errs, fault.Errorf(fault.Unavailable, "spool: on_end of group %s: %w", group, err))
		}
		if o != nil {
			due = append(due, *o)
		}
	}
	return due, errors.Join(errs...)
}

// marks are the paths of the marks that this agent may take, by their groups. A new mark takes the place of an own one.
func (q *Queue) marks() (map[string]string, error) {
	files, err := os.ReadDir(q.path(overDir, ""))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fault.Errorf(fault.Unavailable, "spool: %w", err)
	}
	marks := map[string]string{}
	for _, f := range files {
		base, isMark := strings.CutSuffix(f.Name(), ".json")
		group, agent, claimed := strings.Cut(base, "@")
		if !isMark || group == "" || queue.CheckGroup(group) != nil || claimed && agent != q.Agent || marks[group] != "" {
			continue
		}
		marks[group] = q.path(overDir, f.Name())
	}
	return marks, nil
}

// toTell reports whether the command of a group of which no task is left has not run yet, or has failed a few times and is to be tried
// again.
func (q *Queue) toTell() (bool, error) {
	marks, err := q.marks()
	for group, path := range marks {
		if m, err := q.readMark(path); err != nil || m.Tries >= patience && m.Failed != "" {
			continue // what cannot be read is reported where it is to run
		}
		if left, err := q.left(group); !left || err != nil {
			return err == nil, err
		}
	}
	return false, err
}

func (q *Queue) ownMark(group string) string { return q.path(overDir, group+"@"+q.Agent+".json") }

// begin begins a try for the group with a mark at path; nil: not now.
func (q *Queue) begin(group, path string) (*queue.Over, error) {
	m, err := q.readMark(path)
	if err != nil || q.now().Before(m.Next) {
		return nil, err
	}
	if left, err := q.left(group); left || err != nil {
		return nil, err
	}
	own := q.ownMark(group)
	if err := os.Rename(path, own); err != nil { //nolint:forbidigo // a claim
		return nil, err
	}
	// A task may have ended since, which the first mark was for too.
	left, err := q.left(group)
	if left || err != nil {
		return nil, err
	}
	all, err := q.List()
	if err != nil {
		return nil, err
	}
	o := queue.Over{OnEnd: m.OnEnd, Group: group, Try: m.Tries + 1, Tasks: map[task.State]int{}}
	for _, t := range all {
		if t.Group == group && !t.Retried {
			o.Tasks[t.State]++
		}
	}
	m.Tries, m.Next, m.Failed = o.Try, time.Time{}, ""
	return &o, q.writeMark(own, m)
}

// left reports whether a task of a group has not ended. Of each group it remembers one, as all tasks are read to find one.
func (q *Queue) left(group string) (bool, error) {
	if id, ok := q.witness[group]; ok {
		if _, err := os.Stat(q.path(doneDir, string(id)+".json")); errors.Is(err, fs.ErrNotExist) {
			return true, q.Check()
		}
		delete(q.witness, group)
	}
	all, err := q.List()
	if err != nil {
		return false, err
	}
	for _, t := range all {
		if t.Group == group && !t.State.Final() {
			if q.witness == nil {
				q.witness = map[string]task.ID{}
			}
			q.witness[group] = t.ID
			return true, nil
		}
	}
	return false, nil
}

// Ran records how the command of a group has ended. One that failed is tried again, after growing pauses, unless the shell has not found
// or cannot run a program; the error says so.
func (q *Queue) Ran(o queue.Over, failed error) error {
	own := q.ownMark(o.Group)
	given := q.path(overDir, o.Group+"@.json")
	remove := func(paths ...string) error {
		for _, path := range paths {
			if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return fault.Errorf(fault.Unavailable, "spool: %w", err)
			}
		}
		return nil
	}
	if failed == nil {
		return remove(given, own)
	}
	m := mark{OnEnd: o.OnEnd, Tries: o.Try, Failed: task.Clean(fault.Text(failed))}
	var exit *command.ExitError
	if o.Try >= maxTries || errors.As(failed, &exit) && (exit.Code == 126 || exit.Code == 127) {
		if err := q.writeMark(given, m); err != nil {
			return fault.Errorf(fault.Unavailable, "spool: %w", err)
		}
		return errors.Join(fmt.Errorf("on_end of group %s: %s", o.Group, m.failure(true)), remove(own))
	}
	pause := min(time.Hour, time.Minute<<(o.Try-1))
	m.Next = q.now().Add(pause).UTC()
	if err := q.writeMark(own, m); err != nil {
		return fault.Errorf(fault.Unavailable, "spool: %w", err)
	}
	return fmt.Errorf("on_end of group %s: %s: next try in %s", o.Group, m.failure(false), pause)
}

// failure says how the last try has failed.
func (m mark) failure(given bool) string {
	if given {
		return m.Failed + ": given up"
	}
	return fmt.Sprintf("%s: try %d of %d failed", m.Failed, m.Tries, maxTries)
}

// Failures says by groups why their commands have not run. A mark that cannot be read says nothing: the agent reports it.
func (s *Spool) Failures() (map[string]string, error) {
	files, err := os.ReadDir(s.path(overDir, ""))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fault.Errorf(fault.Unavailable, "spool: %w", err)
	}
	why := map[string]string{}
	for _, f := range files {
		base, isMark := strings.CutSuffix(f.Name(), ".json")
		group, agent, claimed := strings.Cut(base, "@")
		if !isMark || !claimed || queue.CheckGroup(group) != nil {
			continue
		}
		if m, err := s.readMark(s.path(overDir, f.Name())); err == nil && m.Failed != "" {
			why[group] = m.failure(agent == "")
		}
	}
	return why, nil
}
