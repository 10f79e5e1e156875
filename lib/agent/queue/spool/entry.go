package spool

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/google/renameio/v2"
	"golang.org/x/sys/unix"

	"github.com/ponos-tools/ponos/lib/agent/code/kept"
	"github.com/ponos-tools/ponos/lib/base/clock"
	"github.com/ponos-tools/ponos/lib/base/fault"
	"github.com/ponos-tools/ponos/lib/base/place"
	"github.com/ponos-tools/ponos/lib/task"
	"github.com/ponos-tools/ponos/lib/task/need"
	"github.com/ponos-tools/ponos/lib/task/queue"
)

// directories of a spool.
const (
	newDir, activeDir, doneDir = "new", "active", "done"
	stopDir, logsDir, tmpDir   = "stop", "logs", "tmp"
	artifactsDir, sourcesDir   = "artifacts", "sources"
	agentsDir, absentDir       = "agents", "absent"
	// batchesDir, undeliveredDir: see batch.go
)

// maxEntry limits the size of a task file in bytes.
const maxEntry = 1 << 20

var _ queue.Client = (*Spool)(nil)

// Spool is the directory itself, without an agent.
type Spool struct {
	Dir string
	ID  string // of this spool and no other, wherever it is mounted
	// Now is the clock; nil: that of lib/base/clock.
	Now func() time.Time

	owner int // whom the directory belongs to
}

func (s *Spool) now() time.Time {
	if s.Now != nil {
		return s.Now()
	}
	return clock.Now()
}

func (s *Spool) path(dir, name string) string { return filepath.Join(s.Dir, dir, name) }

// Add puts a new task into the spool.
func (s *Spool) Add(e queue.Entry) error {
	e.State = task.Pending
	if err := checkText(e); err != nil {
		return err
	}
	return s.write(s.path(newDir, string(e.ID)+".json"), e)
}

// write replaces a file atomically.
func (s *Spool) write(path string, e queue.Entry) error {
	b, err := json.MarshalIndent(e, "", "  ")
	if err != nil {
		return err
	}
	if len(b) > maxEntry {
		return fault.Errorf(fault.Usage, "task %s takes %d bytes, more than %d", e.ID, len(b), maxEntry)
	}
	err = renameio.WriteFile(path, append(b, '\n'), 0o600, renameio.WithTempDir(s.path(tmpDir, "")))
	if err != nil {
		return fault.Errorf(fault.Unavailable, "spool: %w", err)
	}
	return nil
}

// errBad says that a file is not a valid task, and never will be.
var errBad = errors.New("not a task")

// read reads a task file. The contents are checked: if they are invalid, the error
// wraps errBad.
func (s *Spool) read(path string) (queue.Entry, error) {
	b, err := s.content(path)
	if err != nil {
		return queue.Entry{}, err
	}
	e, err := ParseEntry(b)
	if err != nil {
		return queue.Entry{}, fmt.Errorf("%s: %w: %w", path, errBad, err)
	}
	if name, _, _ := strings.Cut(strings.TrimSuffix(filepath.Base(path), ".json"), "@"); name != string(e.ID) {
		return queue.Entry{}, fmt.Errorf("%s: %w: it is task %q", path, errBad, e.ID)
	}
	return e, nil
}

// content reads a file that says what to run: it must be of the owner of the spool, or of root. The error wraps errBad if the file never
// will be one.
func (s *Spool) content(path string) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if errors.Is(err, unix.ELOOP) {
		return nil, fmt.Errorf("%s: a link, which is not followed", path)
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	switch {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("%s: %w: not a plain file", path, errBad)
	case info.Size() > maxEntry:
		return nil, fmt.Errorf("%s: %w: larger than %d bytes", path, errBad, maxEntry)
	}
	if by := place.Owner(info); by != s.owner && by != 0 {
		return nil, fmt.Errorf("%s: %w of this spool: it belongs to user %s", path, errBad, place.UserName(by))
	}
	return io.ReadAll(io.LimitReader(f, maxEntry))
}

// ParseEntry reads and checks the contents of a task file.
func ParseEntry(b []byte) (queue.Entry, error) {
	var e queue.Entry
	if err := json.Unmarshal(b, &e); err != nil {
		return queue.Entry{}, err
	}
	ids := append([]task.ID{e.ID}, e.After...)
	if e.RetryOf != "" {
		ids = append(ids, e.RetryOf)
	}
	for _, id := range ids {
		if _, err := task.ParseID(string(id)); err != nil {
			return queue.Entry{}, err
		}
	}
	if slices.Contains(e.After, e.ID) {
		return queue.Entry{}, errors.New("the task is its own parent")
	}
	if !e.State.Known() {
		return queue.Entry{}, fmt.Errorf("invalid state %q", e.State)
	}
	if err := errors.Join(
		queue.CheckGroup(e.Group), queue.CheckKey(e.Key), queue.CheckParameters(e.Parameters), need.Check(e.Request),
	); err != nil {
		return queue.Entry{}, err
	}
	if _, err := need.ParseRules(e.Retry); err != nil {
		return queue.Entry{}, fmt.Errorf("retry: %w", err)
	}
	if e.AtMost < 0 || e.AtMost > 0 && e.Group == "" {
		return queue.Entry{}, errors.New("at_most: expected a positive number of tasks of a group")
	}
	if e.OnEnd.Command != "" && e.Group == "" {
		return queue.Entry{}, errors.New("on_end: the task has no group")
	}
	for _, pattern := range e.Keep {
		if err := kept.CheckPattern(pattern); err != nil {
			return queue.Entry{}, fmt.Errorf("keep: %w", err)
		}
	}
	for _, f := range e.Files {
		if f.Name == "" || f.Name != filepath.Base(f.Name) || f.Name == "." || f.Name == ".." {
			return queue.Entry{}, fmt.Errorf("invalid file name %q", f.Name)
		}
	}
	return e, nil
}

// Find returns a task in any state, without an agent if none has taken it. The error wraps queue.ErrGone if there is none.
func (s *Spool) Find(id task.ID) (queue.Entry, error) {
	e, err := s.locate(id)
	if e.Agent == stopper {
		e.Agent = ""
	}
	return e, err
}

// locate is Find in which the agent may be stopper.
func (s *Spool) locate(id task.ID) (queue.Entry, error) {
	// A task only moves forward, and during a move it is always in some directory; but the first
	// round misses a task that moves between two of its listings.
	for range 2 {
		for _, find := range []func() (string, error){
			func() (string, error) { return s.path(doneDir, string(id)+".json"), nil },
			func() (string, error) { return s.active(id) },
			func() (string, error) { return s.path(newDir, string(id)+".json"), nil },
		} {
			path, err := find()
			if err != nil {
				return queue.Entry{}, err
			}
			if path == "" {
				continue
			}
			e, err := s.readFile(path)
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
			if err != nil {
				return queue.Entry{}, fault.Errorf(fault.Unavailable, "spool: %w", err)
			}
			return e, nil
		}
	}
	// An empty directory in the place of the spool proves nothing about its tasks.
	if err := s.Check(); err != nil {
		return queue.Entry{}, err
	}
	return queue.Entry{}, fault.Wrap(fault.Unavailable, queue.ErrGone)
}

// readFile reads a task, and who has taken it by the name of its file.
func (s *Spool) readFile(path string) (queue.Entry, error) {
	e, err := s.read(path)
	if err != nil {
		return e, err
	}
	if _, agent := fileParts(filepath.Base(path)); agent != "" {
		e.Agent = agent
	}
	if e.Agent == stopper {
		e.State = task.Stopping
	}
	return e, nil
}

// active returns the path of an active task, or "".
func (s *Spool) active(id task.ID) (string, error) {
	entries, err := os.ReadDir(s.path(activeDir, ""))
	if err != nil {
		if err := s.Check(); err != nil {
			return "", err
		}
		return "", fault.Errorf(fault.Unavailable, "spool: %w", err)
	}
	for _, e := range entries {
		if found, agent := fileParts(e.Name()); found == id && agent != "" {
			return s.path(activeDir, e.Name()), nil
		}
	}
	return "", nil
}

// fileParts splits the name of a task file: ID.json or ID@AGENT.json.
func fileParts(name string) (id task.ID, agent string) {
	base, ok := strings.CutSuffix(name, ".json")
	if !ok {
		return "", ""
	}
	text, agent, _ := strings.Cut(base, "@")
	parsed, err := task.ParseID(text)
	if err != nil {
		return "", ""
	}
	return parsed, agent
}

// RequestStop requests the stop of a task; one that no agent has taken yet is stopped at once. The
// task must exist.
func (s *Spool) RequestStop(id task.ID) error {
	e, err := s.locate(id)
	if err != nil || e.State.Final() {
		return err
	}
	return s.requestStop(e)
}

// requestStop is RequestStop of a task that has not ended.
func (s *Spool) requestStop(e queue.Entry) error {
	id := e.ID
	if err := renameio.WriteFile(s.path(stopDir, string(id)), nil, 0o600, renameio.WithTempDir(s.path(tmpDir, ""))); err != nil {
		return fault.Errorf(fault.Unavailable, "spool: %w", err)
	}
	switch e.Agent {
	case "":
		if err := os.Rename(s.path(newDir, string(id)+".json"), s.path(activeDir, string(id)+"@"+stopper+".json")); err != nil {
			return nil // an agent was faster, and will find the request
		}
		fallthrough
	case stopper:
		// From here on the stop is recorded, even if the disk is too full for the end of the task:
		// the next turn of an agent, or the next request, finishes it.
		if s.finishStopped(e) != nil {
			return s.Check()
		}
	}
	return nil
}

// stopper stands for the agent in the name of a task file, if the task was stopped before an agent
// took it. If the disk is full then, or the tool is killed, the process that next sees such a task
// completes the stop.
const stopper = "stopped"

func (s *Spool) finishStopped(e queue.Entry) error {
	e.Agent = ""
	stopped := task.Report{State: task.Stopped, Reason: "stopped before it started"}
	return s.finish(e, s.path(activeDir, string(e.ID)+"@"+stopper+".json"), stopped)
}

// finish moves a task to done/. Its variables, which may be secrets, are removed.
func (s *Spool) finish(e queue.Entry, from string, r task.Report) error {
	e.State, e.Reason, e.ExitCode, e.Ended, e.Job, e.Kept = r.State, r.Reason, r.ExitCode, s.now().UTC(), r.Job, r.Kept
	e.Rent = r.Rent
	// The agent sees a job begin and end up to a turn later, or never begin. The clock of another
	// host is used within plausible bounds.
	if began := r.Began.UTC(); !r.Began.IsZero() && !began.Before(e.Created) &&
		(e.Started.IsZero() || began.Before(e.Started)) && !began.After(e.Ended) {
		e.Started = began
	}
	if ended := r.Ended.UTC(); !r.Ended.IsZero() && !e.Started.IsZero() && !ended.Before(e.Started) && ended.Before(e.Ended) {
		e.Ended = ended
	}
	if seconds := r.CPU.Seconds(); seconds > 0 {
		e.CPUSeconds = &seconds
	}
	if r.Memory > 0 {
		e.MaxMemory = &r.Memory
	}
	if len(e.Env) > 0 {
		e.Variables = slices.Sorted(maps.Keys(e.Env))
	}
	e.Env = nil
	if err := s.leaveMark(e); err != nil {
		return err
	}
	if err := s.write(s.path(doneDir, string(e.ID)+".json"), e); err != nil {
		return err
	}
	for _, path := range []string{from, s.path(absentDir, string(e.ID)), s.path(stopDir, string(e.ID))} {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fault.Errorf(fault.Unavailable, "spool: %w", err)
		}
	}
	// If another spool has replaced this one, the task is still in this one.
	return s.Check()
}

// AttemptLog returns the path of the output of an attempt that was followed by another one.
func (s *Spool) AttemptLog(id task.ID, attempt int) string {
	return s.path(logsDir, fmt.Sprintf("%s.%d.log", id, attempt))
}

// Log returns the path of a task's published log.
func (s *Spool) Log(id task.ID) string { return s.path(logsDir, string(id)+".log") }

// Artifacts returns the directory of a task's published artifacts.
func (s *Spool) Artifacts(id task.ID) string { return s.path(artifactsDir, string(id)) }

// SourcePath returns the path of the archive (.tar.gz) or patch (.patch) with a hash.
func (s *Spool) SourcePath(hash, suffix string) string { return s.path(sourcesDir, hash+suffix) }

// TempDir returns the directory for files before they get their names.
func (s *Spool) TempDir() string { return s.path(tmpDir, "") }

// names lists the task files of a directory, sorted: ids of the spool grow with
// time.
func (s *Spool) names(dir string) ([]string, error) {
	entries, err := os.ReadDir(s.path(dir, ""))
	if err != nil {
		return nil, fault.Errorf(fault.Unavailable, "spool: %w", err)
	}
	names := make([]string, 0, len(entries))
	for _, e := range entries {
		if id, _ := fileParts(e.Name()); id != "" {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

// checkText checks that a task can be written as JSON without changes: other bytes than UTF-8 would be
// replaced, and the command would get another word.
func checkText(e queue.Entry) error {
	for i, word := range e.Command {
		if !utf8.ValidString(word) {
			return fault.Errorf(fault.Usage, "word %d of the command, %.60q, is not UTF-8", i+1, word)
		}
	}
	for name, value := range e.Env {
		if !utf8.ValidString(value) {
			return fault.Errorf(fault.Usage, "variable %s: the value is not UTF-8", name)
		}
	}
	words := []string{e.Source.Repository, e.Source.Revision, e.Source.Archive}
	for _, f := range e.Files {
		words = append(words, f.Name, f.URL)
	}
	for _, word := range words {
		if !utf8.ValidString(word) {
			return fault.Errorf(fault.Usage, "%.200q is not UTF-8", word)
		}
	}
	return nil
}
