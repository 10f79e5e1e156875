package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/renameio/v2"
	"github.com/google/uuid"

	"github.com/ponos-tools/ponos/lib/base/clock"
	"github.com/ponos-tools/ponos/lib/base/fault"
	"github.com/ponos-tools/ponos/lib/base/lock"
	"github.com/ponos-tools/ponos/lib/base/remove"
	"github.com/ponos-tools/ponos/lib/base/replace"
	"github.com/ponos-tools/ponos/lib/task"
	"github.com/ponos-tools/ponos/lib/task/runner"
)

// Store is the state directory of an agent.
type Store struct {
	Dir string
	id  string // what identifyFile held when the store was opened
}

const (
	// identifyFile tells one state directory from another. Turns write it, once it is created.
	identifyFile = "id"
	// What the last version had in place of identity.Recovered, and a copy of the cluster's name.
	lastRecovered, lastCluster = "recovered", "cluster"
)

// linksDir has a link NAME.INDEX for each element of a job array, which leads to the directory of
// its task, where the output goes.
const linksDir = "arrays"

func (s *Store) links() string { return filepath.Join(s.Dir, linksDir) }

// submittedDir has a link for each task that was submitted and has not ended, which names the attempt.
// It is what is left of a task that removes its own directory: without it, such a task would count as new.
const submittedDir = "submitted"

func (s *Store) submitted(id task.ID) string {
	return filepath.Join(s.Dir, submittedDir, string(id))
}

// markSubmitted records that a job of an attempt may exist from now on.
func (s *Store) markSubmitted(id task.ID, attempt int) error {
	err := os.Symlink(strconv.Itoa(attempt), s.submitted(id))
	if errors.Is(err, fs.ErrExist) && s.Submitted(id) != attempt {
		err = errors.Join(os.Remove(s.submitted(id)), os.Symlink(strconv.Itoa(attempt), s.submitted(id)))
	} else if errors.Is(err, fs.ErrExist) {
		err = nil
	}
	return err
}

// Submitted returns the last attempt of a task of which a job may exist, or 0.
func (s *Store) Submitted(id task.ID) int {
	attempt, _ := os.Readlink(s.submitted(id))
	n, _ := strconv.Atoi(attempt)
	return n
}

// identity is the content of identifyFile.
type identity struct {
	ID   string    `json:"id"`
	Made time.Time `json:"made"`
	// Recovered says that jobs from before that were looked for.
	Recovered bool `json:"recovered,omitempty"`
}

// OpenStore opens a state directory. It creates missing directories.
func OpenStore(dir string, now time.Time) (*Store, error) {
	for _, d := range []string{"tasks", "done", linksDir, submittedDir} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o700); err != nil {
			return nil, fmt.Errorf("state directory: %w", err)
		}
	}
	s := &Store{Dir: dir}
	id, err := s.identify()
	if errors.Is(err, fs.ErrNotExist) {
		b, marshalErr := json.Marshal(identity{ID: uuid.NewString(), Made: now.UTC()})
		if marshalErr != nil {
			return nil, marshalErr
		}
		if err := lock.WriteNew(filepath.Join(dir, identifyFile), append(b, '\n')); err != nil {
			return nil, fmt.Errorf("state directory: %w", err)
		}
		id, err = s.identify()
	}
	if err != nil {
		return nil, fmt.Errorf("state directory: %w", err)
	}
	s.id = id.ID
	return s, nil
}

func (s *Store) identify() (identity, error) {
	path := filepath.Join(s.Dir, identifyFile)
	b, err := os.ReadFile(path)
	if err != nil {
		return identity{}, err
	}
	var id identity
	if err := json.Unmarshal(b, &id); err != nil || id.ID == "" {
		return identity{}, fmt.Errorf("%q is damaged; remove it if the directory is the agent's", path)
	}
	return id, nil
}

// ID is the identity of the state directory.
func (s *Store) ID() string { return s.id }

// StateID returns the identity of a state directory. The error is fs.ErrNotExist if there is none.
func StateID(dir string) (string, error) {
	id, err := (&Store{Dir: dir}).identify()
	return id.ID, err
}

// Check reports an error unless the state directory is still the one that was opened: not
// unmounted, and not replaced.
func (s *Store) Check() error {
	id, err := s.identify()
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fault.Hint(
			fault.Errorf(fault.Unavailable, "state directory %q: it is gone, or not mounted", s.Dir),
			"the agent continues when it is mounted again")
	case err != nil:
		return fault.Errorf(fault.Unavailable, "state directory: %w", err)
	case id.ID != s.id:
		return fault.Errorf(fault.Unavailable, "state directory %q: it was %s, and is %s now", s.Dir, s.id, id.ID)
	}
	return nil
}

// born returns when the state directory was created.
func (s *Store) born() (time.Time, error) {
	id, err := s.identify()
	return id.Made, err
}

// recovered reports whether jobs from before the creation of the state directory were looked for.
func (s *Store) recovered() bool {
	id, err := s.identify()
	return err == nil && id.Recovered
}

// setRecovered records that, in a turn.
func (s *Store) setRecovered() error {
	id, err := s.identify()
	if err != nil || id.Recovered {
		return err
	}
	id.Recovered = true
	b, err := json.Marshal(id)
	if err != nil {
		return err
	}
	return renameio.WriteFile(filepath.Join(s.Dir, identifyFile), append(b, '\n'), 0o600, renameio.WithTempDir(s.Dir))
}

// takeOver takes over what the last version has left, in a turn.
func (s *Store) takeOver() error {
	for _, name := range []string{lastRecovered, lastCluster} {
		last := filepath.Join(s.Dir, name)
		if _, err := os.Lstat(last); err != nil {
			continue
		}
		if name == lastRecovered {
			if err := s.setRecovered(); err != nil {
				return fmt.Errorf("state directory: %w", err)
			}
		}
		if err := os.Remove(last); err != nil {
			return fmt.Errorf("state directory: %w", err)
		}
	}
	return nil
}

// Record is what the agent has decided and done about a task. It holds no secret. Whoever writes it holds the lock of the task, and
// it is of one version: that of a later one is left alone.
//
//	Job, Missing ...  the job, and what turns know of it: see Tracked
//	the rest          what its next start needs, and how it has ended
type Record struct {
	Tracked
	Version     int  `json:"version,omitempty"`
	RequiresGPU bool `json:"requires_gpu,omitempty"`
	// What the task needs, and the results of earlier attempts in this directory.
	Request  task.Request   `json:"request,omitzero"`
	Changed  []string       `json:"changed,omitempty"` // options of sbatch by which this attempt differs
	Attempts []task.Attempt `json:"attempts,omitempty"`
	Code     string         `json:"code,omitempty"`     // directory of which the working directory is a copy
	Keep     []string       `json:"keep,omitempty"`     // what is kept of the working directory: see lib/agent/code/kept
	Left     []string       `json:"left,omitempty"`     // what was not kept of it, as there was no room
	Program  string         `json:"program,omitempty"`  // that the job runs: its digest, see lib/agent/program
	LogFrom  int64          `json:"log_from,omitempty"` // offset at which this attempt's output begins
	Runner   string         `json:"runner,omitempty"`
	Intent   time.Time      `json:"intent,omitzero"` // a job may exist from this time on
	Final    string         `json:"final,omitempty"` // the final state that was reported
	Ended    time.Time      `json:"ended,omitzero"`  // when it was reported
	// Tries counts submissions since the last job that began: those whose job did not begin, and
	// those whose outcome is unknown. The next one is not made before Retry.
	Tries   int       `json:"tries,omitempty"`
	Retry   time.Time `json:"retry,omitzero"`
	Problem string    `json:"problem,omitempty"` // why the last try failed
	// Preparing is there while the task waits for its code.
	Preparing *Preparing `json:"preparing,omitempty"`
}

// recordVersion is the version of records; 0 was that of records that did not say it, which mean the same.
const recordVersion = 1

// line returns a record as a line of its file.
func (r Record) line() ([]byte, error) {
	r.Version = recordVersion
	b, err := json.Marshal(r)
	return append(b, '\n'), err
}

// Dir is a task's directory.
type Dir struct {
	Path string
	id   task.ID
}

// The files of a task's directory, besides those of package runner.
const (
	recordFile  = "task.json"
	lockFile    = "lock"
	stopFile    = "stop"     // a stop of the task is requested
	headFile    = "head.log" // the agent's lines before the job's output
	tailFile    = "tail.log" // the agent's lines after the job's output
	envFile     = runner.EnvFile
	commandFile = runner.CommandFile
	scriptFile  = "job.sh"
	viewDir     = "view"           // what PONOS_DATA names
	workDir     = "work"           // the job's own copy of the source
	copyDir     = workDir + ".new" // the same, as long as the job script copies it
	// For a worker without network access: its configuration, and the API that it is given.
	configurationFile = "configuration.yaml"
	schemaFile        = "schema.json"
)

// Task returns the directory of a task, which need not exist.
func (s *Store) Task(id task.ID) Dir { return Dir{filepath.Join(s.Dir, "tasks", string(id)), id} }

func (s *Store) done(id task.ID) Dir { return Dir{filepath.Join(s.Dir, "done", string(id)), id} }

// TryTurn takes the lock of a turn, or fails with lock.ErrHeld.
func (s *Store) TryTurn() (*lock.Lock, error) { return lock.Try(filepath.Join(s.Dir, "turn.lock")) }

// Create creates the directory of a task, but none of its parents: nothing is created in the place
// of a state directory that is gone.
func (s *Store) Create(id task.ID) (Dir, error) {
	d := s.Task(id)
	err := os.Mkdir(d.Path, 0o700)
	if errors.Is(err, fs.ErrExist) {
		err = nil
	}
	return d, err
}

// IDs lists the tasks that have not ended.
func (s *Store) IDs() ([]task.ID, error) {
	f, err := os.Open(filepath.Join(s.Dir, "tasks"))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	names, err := f.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	ids := make([]task.ID, 0, len(names))
	for _, name := range names {
		if id, err := task.ParseID(name); err == nil {
			ids = append(ids, id)
		}
	}
	return ids, nil
}

// removedAtEnd are the files and directories of a task that hold secrets or are large.
var removedAtEnd = []string{envFile, commandFile, configurationFile, schemaFile, viewDir, workDir, copyDir}

// Finish moves a task's directory to done/ and replaces that of an earlier attempt. Files that
// hold secrets or are large are removed, also those that a killed tool had not yet given their names;
// scripts and logs stay for a while. What the task has left in directories of its own, and the
// agent's user cannot remove, such as files of root or a mounted file system, stays as well: left
// says why.
func (s *Store) Finish(id task.ID) (left, err error) {
	from, to := s.Task(id), s.done(id)
	entries, err := os.ReadDir(from.Path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		if !isTemporary(e.Name()) && !slices.Contains(removedAtEnd, e.Name()) {
			continue
		}
		switch err := remove.All(from.file(e.Name())); {
		case err != nil && e.IsDir():
			left = errors.Join(left, err)
		case err != nil:
			return nil, err
		}
	}
	if remove.All(to.Path) != nil { // it is kept under another name until Prune can remove it
		if err := os.Rename(to.Path, to.Path+".left."+uuid.NewString()); err != nil {
			return left, err
		}
	}
	if err := os.Rename(from.Path, to.Path); err != nil {
		return left, err
	}
	return left, s.forgetSubmitted(id)
}

func (s *Store) forgetSubmitted(id task.ID) error {
	err := os.Remove(s.submitted(id))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// finish is Finish, with a warning about what the task has left.
func (a *Agent) finish(id task.ID) error {
	// Of a task that no end was published of. Otherwise that has moved the directory away.
	if d := a.Store.Task(id); a.KeepSize > 0 {
		if r, err := d.Read(); err == nil && r.Code != "" {
			if err := a.keepFiles(d, &r, r.Process, new(task.Report)); err != nil {
				return err
			}
		}
	}
	left, err := a.Store.Finish(id)
	if left != nil && err == nil {
		a.Log.Warn("the task has left files that cannot be removed; remove them as their owner",
			"task", id, "directory", a.Store.done(id).Path, "error", left)
	}
	return err
}

// Finished returns the record of a task that has ended. A record that cannot be read counts as
// none; but a missing state directory is an error.
func (s *Store) Finished(id task.ID) (r Record, ok bool, err error) {
	if r, err = s.done(id).Read(); err == nil {
		return r, true, nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return r, false, nil
	}
	if err := s.Check(); err != nil {
		return r, false, err
	}
	r, err = s.done(id).Read() // the directory may have been missing for a moment
	return r, err == nil, nil
}

// Prune removes the remaining files of tasks that ended before a time. What cannot be removed is
// reported, and tried again after the same time.
func (s *Store) Prune(before time.Time) error {
	entries, err := os.ReadDir(filepath.Join(s.Dir, "done"))
	if err != nil {
		return err
	}
	var errs []error
	for _, e := range entries {
		if info, err := e.Info(); err == nil && clock.Modified(info).Before(before) {
			path := filepath.Join(s.Dir, "done", e.Name())
			if err := remove.All(path); err != nil {
				errs = append(errs, err, clock.Touch(path))
			}
		}
	}
	return errors.Join(append(errs, s.pruneSubmitted(before))...)
}

// pruneSubmitted removes the links of tasks that ended while a tool was killed.
func (s *Store) pruneSubmitted(before time.Time) error {
	entries, err := os.ReadDir(filepath.Join(s.Dir, submittedDir))
	errs := []error{err}
	for _, e := range entries {
		id := task.ID(e.Name())
		info, err := e.Info()
		if err != nil || !clock.Modified(info).Before(before) {
			continue
		}
		if _, err := os.Lstat(s.Task(id).Path); errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, s.forgetSubmitted(id))
		}
	}
	return errors.Join(errs...)
}

// leftoverAge is the age from which a temporary file is taken to be that of a killed tool.
const leftoverAge = 24 * time.Hour

// removeLeftovers removes temporary files from before a time, in the directories that the agent
// itself writes to.
func (s *Store) removeLeftovers(before time.Time) error {
	var errs []error
	errs = append(errs, s.removeUnbegun(before), s.removeLinks(before))
	dirs := []string{s.Dir, filepath.Join(s.Dir, "local")}
	for _, name := range []string{"tasks", "done", "local"} {
		entries, err := os.ReadDir(filepath.Join(s.Dir, name))
		if !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
		for _, e := range entries {
			if e.IsDir() {
				dirs = append(dirs, filepath.Join(s.Dir, name, e.Name()))
			}
		}
	}
	for _, dir := range dirs {
		entries, _ := os.ReadDir(dir) // the task may have ended
		for _, e := range entries {
			if !isTemporary(e.Name()) || !e.Type().IsRegular() {
				continue
			}
			info, err := e.Info()
			if err == nil && clock.Modified(info).Before(before) {
				err = os.Remove(filepath.Join(dir, e.Name()))
			}
			if !errors.Is(err, fs.ErrNotExist) {
				errs = append(errs, err)
			}
		}
	}
	return errors.Join(errs...)
}

// removeLinks removes the links from before a time to tasks that have ended.
func (s *Store) removeLinks(before time.Time) error {
	if err := s.Check(); err != nil {
		return err
	}
	entries, err := os.ReadDir(s.links())
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	errs := []error{err}
	for _, e := range entries {
		path := filepath.Join(s.links(), e.Name())
		if info, err := e.Info(); err != nil || !clock.Modified(info).Before(before) {
			continue
		}
		if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, os.Remove(path))
		}
	}
	return errors.Join(errs...)
}

// removeUnbegun removes directories from before a time that have no record: the process that
// created them was killed right after it, and the task may be another agent's now.
func (s *Store) removeUnbegun(before time.Time) error {
	ids, err := s.IDs()
	if err != nil {
		return err
	}
	var errs []error
	for _, id := range ids {
		d := s.Task(id)
		info, err := os.Stat(d.file(lockFile))
		if errors.Is(err, fs.ErrNotExist) { // it was killed before it could lock it, or the disk was full
			if info, err := os.Stat(d.Path); err == nil && clock.Modified(info).Before(before) {
				_ = os.Remove(d.Path) // if it is empty
			}
			continue
		}
		if err != nil || !clock.Modified(info).Before(before) {
			continue
		}
		if _, err := os.Stat(d.file(recordFile)); !errors.Is(err, fs.ErrNotExist) {
			continue
		}
		held, err := d.TryLock()
		if err != nil {
			continue // another process works on the task
		}
		if _, err := os.Stat(d.file(recordFile)); errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, remove.All(d.Path))
		}
		errs = append(errs, held.Close())
	}
	return errors.Join(errs...)
}

// isTemporary reports whether a file is a temporary one that is to be renamed.
func isTemporary(name string) bool {
	last := name[len(name)-1]
	return name[0] == '.' && ('0' <= last && last <= '9' || strings.HasSuffix(name, ".new"))
}

// TryLock takes the lock of a task, or fails with lock.ErrHeld.
func (d Dir) TryLock() (*lock.Lock, error) {
	return lock.TryFor(d.file(lockFile), 100*time.Millisecond)
}

// Lock waits for the lock of a task.
func (d Dir) Lock(ctx context.Context) (*lock.Lock, error) { return lock.Wait(ctx, d.file(lockFile)) }

// Busy reports whether a process works on the task.
func (d Dir) Busy() (bool, error) { return lock.Held(d.file(lockFile)) }

func (d Dir) file(name string) string { return filepath.Join(d.Path, name) }

// Read returns the record. The error is fs.ErrNotExist if there is none yet.
func (d Dir) Read() (Record, error) {
	b, err := os.ReadFile(d.file(recordFile))
	if err != nil {
		return Record{}, err
	}
	// The last whole line counts. A line that was cut off was never relied on.
	text := strings.TrimRight(string(b[:bytes.LastIndexByte(b, '\n')+1]), "\n")
	var r Record
	err = json.Unmarshal([]byte(text[strings.LastIndexByte(text, '\n')+1:]), &r)
	switch r.Dir = d.Path; {
	case r.Version > recordVersion:
		err = errors.New("it is of a later version of ponos, and left alone")
	case err == nil && r.Task != d.id:
		err = fmt.Errorf("it is of task %q", r.Task)
	}
	if err != nil {
		return Record{}, fmt.Errorf("%s: %w", d.file(recordFile), err)
	}
	return r, nil
}

// Write replaces the record; its contents are on disk when Write returns.
func (d Dir) Write(r Record) error {
	b, err := r.line()
	if err != nil {
		return err
	}
	return renameio.WriteFile(d.file(recordFile), b, 0o600, renameio.WithTempDir(d.Path))
}

// Stage writes a record beside the present one. Once its contents are on disk, keep makes it the
// record: the caller waits for the disk once for many of them.
func (d Dir) Stage(r Record) (keep func() error, err error) {
	b, err := r.line()
	if err != nil {
		return nil, err
	}
	return replace.Stage(d.file(recordFile), b, 0o600)
}

// Note appends a newer record without waiting for the disk, for what is found out again if it is
// lost. What a full disk has left of an older one stays a line of its own.
func (d Dir) Note(r Record) error {
	b, err := r.line()
	if err != nil {
		return err
	}
	f, err := os.OpenFile(d.file(recordFile), os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return err
	}
	_, err = f.Write(append([]byte("\n"), b...))
	return errors.Join(err, f.Close())
}

// noteJob notes the job of a task that was just submitted. The task may run, and have removed its own directory: its job
// is found again by what is outside of it. A missing state directory is an error.
func (s *Store) noteJob(d Dir, r Record) error {
	err := d.Note(r)
	if errors.Is(err, fs.ErrNotExist) {
		return s.Check()
	}
	return err
}

// replace replaces a file atomically. It does not wait for the disk: after a power failure the file
// may be empty, which its reader must check.
func (d Dir) replace(name string, b []byte, mode os.FileMode) error {
	// A new file has no reader before the task is submitted.
	f, err := os.OpenFile(d.file(name), os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err == nil {
		_, err = f.Write(b)
		return errors.Join(err, f.Close())
	}
	if !errors.Is(err, fs.ErrExist) {
		return err
	}
	return replace.File(d.file(name), b, mode)
}

// reclaim gives the agent back what it needs to do in the directory, if the task has taken it away.
func (d Dir) reclaim() {
	const all = 0o700
	if info, err := os.Lstat(d.Path); err == nil && info.IsDir() && info.Mode().Perm()&all != all {
		_ = os.Chmod(d.Path, all) // errors are those of what is done there
	}
}

// RequestStop marks the task as to be stopped, for the process that works on it.
func (d Dir) RequestStop() error {
	return os.WriteFile(d.file(stopFile), nil, 0o600)
}

// StopRequested reports whether the task is to be stopped.
func (d Dir) StopRequested() bool {
	_, err := os.Stat(d.file(stopFile))
	return err == nil
}

// forgetStop removes a stop mark that is older than a time, and reports whether there was one.
func (d Dir) forgetStop(before time.Time) bool {
	info, err := os.Stat(d.file(stopFile))
	return err == nil && clock.Modified(info).Before(before) && os.Remove(d.file(stopFile)) == nil
}
