package pack

import (
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/google/renameio/v2"

	"github.com/ponos-tools/ponos/lib/base/clock"
	"github.com/ponos-tools/ponos/lib/base/lock"
	"github.com/ponos-tools/ponos/lib/task"
)

// Dir is the directory of an agent in which tickets and pilots meet. It has a directory for each
// class of pilots, whose jobs have the same options.
type Dir struct {
	Path  string
	Tasks string // the parent of the directories of tasks
}

// The files of a class, and of a task that is or was packed.
const (
	waitingDir = "waiting"
	takenDir   = "taken" // followed by the pilot: the tickets that it has
	pilotFile  = "pilot.json"
	triesFile  = "tries.json" // submissions since a pilot began
	lastFile   = "submitted"  // when a pilot was last submitted
	lockFile   = "lock"
	outputFile = "pilots.out"
	runsDir    = "runs" // what pilots record of ended tasks, a file for each

	ticketFile = "pack.json"
	endFile    = "pack-end." // followed by the job: why it was ended in its pilot
	cancelFile = "pack-cancelled."
)

// Pilot describes the pilots of a class.
type Pilot struct {
	Options []string      `json:"options"` // of sbatch
	CPUs    int           `json:"cpus"`
	GPUs    int           `json:"gpus,omitempty"`
	Mem     int64         `json:"mem,omitempty"` // bytes; 0: unknown
	Time    time.Duration `json:"time"`          // the time limit
	Linger  time.Duration `json:"linger"`        // how long a pilot waits for tasks
	Grace   time.Duration `json:"grace"`         // between the request to end a task and SIGKILL
	Tasks   string        `json:"tasks"`         // as in Dir
	// Program is what the pilots run: its digest, see lib/agent/program; "": any.
	Program string `json:"program,omitempty"`
}

// Class returns the directory of a class.
func (d Dir) Class(class string) string { return filepath.Join(d.Path, class) }

// Task returns the directory of a task.
func (d Dir) Task(id task.ID) string { return filepath.Join(d.Tasks, string(id)) }

// Output returns the file to which the pilots of a class write.
func (d Dir) Output(class string) string { return filepath.Join(d.Path, class, outputFile) }

// Make creates missing directories and files of a class, but not a missing state directory.
func (d Dir) Make(class string, p Pilot) error {
	dir := d.Class(class)
	for _, path := range []string{d.Path, dir, filepath.Join(dir, waitingDir), filepath.Join(dir, takenDir)} {
		if err := mkdir(path); err != nil {
			return err
		}
	}
	b, err := json.Marshal(p)
	if err != nil {
		return err
	}
	if was, err := os.ReadFile(filepath.Join(dir, pilotFile)); err == nil && string(was) == string(b) {
		return nil
	}
	return renameio.WriteFile(filepath.Join(dir, pilotFile), b, 0o600, renameio.WithTempDir(dir))
}

// ReadPilot reads the description of the pilots of a class.
func (d Dir) ReadPilot(class string) (p Pilot, err error) {
	b, err := os.ReadFile(filepath.Join(d.Class(class), pilotFile))
	if err == nil {
		err = json.Unmarshal(b, &p)
	}
	return p, err
}

// Classes returns the names of all classes.
func (d Dir) Classes() ([]string, error) { return names(d.Path) }

// names lists a directory, sorted; a missing one is empty, and so is the file of a dismissed pilot.
func names(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		return nil, nil
	}
	list := make([]string, len(entries))
	for i, e := range entries {
		list[i] = e.Name()
	}
	return list, err
}

// Pilots returns the pilots that have or had tickets of a class, and those that were dismissed.
func (d Dir) Pilots(class string) ([]string, error) {
	return names(filepath.Join(d.Class(class), takenDir))
}

// Dismiss makes a pilot that has not begun end as soon as it begins: it creates a file in the place
// of the pilot's directory. It reports false if the pilot has begun or has tickets.
func (d Dir) Dismiss(class, pilot string) (bool, error) {
	path := filepath.Join(d.Class(class), takenDir, pilot)
	removeStarts(path)
	_ = syscall.Rmdir(path) // of an earlier start, if it is empty
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return true, f.Close()
}

// Dismissed reports whether a pilot was dismissed.
func (d Dir) Dismissed(class, pilot string) bool { return dismissed(d.Class(class), pilot) }

func dismissed(dir, pilot string) bool {
	info, err := os.Lstat(filepath.Join(dir, takenDir, pilot))
	return err == nil && info.Mode().IsRegular()
}

// Forget removes what a pilot has left, except its tickets. If it still runs, it may take tickets again.
func (d Dir) Forget(class, pilot string) {
	path := filepath.Join(d.Class(class), takenDir, pilot)
	removeStarts(path)
	_ = os.Remove(path) // fails for a directory with tickets
}

// startFile, followed by a number, is created in the directory of a pilot by its start of that number
// if it was requeued, and by Supersede. An earlier start may still run, on a node that Slurm cannot
// reach: it ends when it sees the file.
const startFile = "start."

// Supersede ends all starts of a pilot before one with a number, wherever they still run. It reports
// false for a pilot that has begun none.
func (d Dir) Supersede(class, pilot string, start int) (bool, error) {
	f, err := os.OpenFile(filepath.Join(d.Class(class), takenDir, pilot, startFile+strconv.Itoa(start)), os.O_WRONLY|os.O_CREATE, 0o600)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return true, f.Close()
}

// Superseded returns for how long starts of a pilot before one with a number have been superseded, if
// they were.
func (d Dir) Superseded(class, pilot string, start int) (since time.Duration, ok bool, err error) {
	info, err := os.Lstat(filepath.Join(d.Class(class), takenDir, pilot, startFile+strconv.Itoa(start)))
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		return 0, false, nil
	}
	if err != nil {
		return 0, false, err
	}
	return clock.Since(clock.Modified(info)), true, nil
}

// AllStarts is the number with which Supersede ends all starts of a pilot: more than Slurm requeues.
const AllStarts = 1 << 20

// begunFile, followed by the number of a ticket, is in the directory of a pilot while the job script of
// the task runs. The task cannot remove it with its own directory.
const begunFile = "begun."

func parseStart(name string) (n int, ok bool) {
	number, ok := strings.CutPrefix(name, startFile)
	n, err := strconv.Atoi(number)
	return n, ok && err == nil
}

// removeStarts removes the files of starts from the directory of a pilot that has no tickets.
func removeStarts(path string) {
	all, _ := names(path)
	for _, name := range all {
		if _, _, ok := parseTaken(name); ok {
			return
		}
	}
	for _, name := range all {
		_ = os.Remove(filepath.Join(path, name))
	}
}

// Quiet reports whether no ticket of a class was created, taken or withdrawn for some time.
func (d Dir) Quiet(class string, since time.Duration) (bool, error) {
	info, err := os.Stat(filepath.Join(d.Class(class), waitingDir))
	return err == nil && clock.Since(clock.Modified(info)) >= since, err
}

// Use keeps classes from being removed until it is closed. Tickets are created in between. On a file
// system without locks, none are removed.
func (d Dir) Use() (io.Closer, error) {
	f, err := d.use()
	if err != nil {
		return nil, err
	}
	if err := lock.Share(f); err != nil && !lock.Missing(err) {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

func (d Dir) use() (*os.File, error) {
	return os.OpenFile(d.Path+".lock", os.O_RDWR|os.O_CREATE, 0o600)
}

// Remove removes a class that has no pilots, no tickets, and was not used for some time. It reports
// whether it did.
func (d Dir) Remove(class string, unused time.Duration) (bool, error) {
	dir := d.Class(class)
	for _, name := range []string{waitingDir, takenDir, runsDir, lastFile} {
		info, err := os.Stat(filepath.Join(dir, name))
		if err == nil && clock.Since(clock.Modified(info)) < unused {
			return false, nil
		}
		if err := ignoreMissing(err); err != nil {
			return false, err
		}
	}
	f, err := d.use()
	if err != nil {
		return false, err
	}
	defer f.Close()
	if lock.File(f, false) != nil {
		return false, nil
	}
	for _, name := range []string{waitingDir, takenDir} {
		left, err := names(filepath.Join(dir, name))
		if len(left) > 0 || err != nil {
			return false, err
		}
	}
	return true, os.RemoveAll(dir)
}

// Tries counts submissions of pilots since one began.
type Tries struct {
	Count   int       `json:"count"`
	At      time.Time `json:"at"`                // of the last one
	Problem string    `json:"problem,omitempty"` // why it failed; "": it did not
}

// ReadTries reads them; none since a pilot began.
func (d Dir) ReadTries(class string) (t Tries) {
	b, err := os.ReadFile(filepath.Join(d.Class(class), triesFile))
	if err == nil {
		_ = json.Unmarshal(b, &t)
	}
	return t
}

// Submitted reports whether pilots were submitted within a time.
func (d Dir) Submitted(class string, within time.Duration) bool {
	b, err := os.ReadFile(filepath.Join(d.Class(class), lastFile))
	if err != nil {
		return false
	}
	at, err := time.Parse(time.RFC3339Nano, string(b))
	return err == nil && clock.Since(at).Abs() < within
}

// Note notes them.
func (d Dir) Note(class string, t Tries) error {
	b, err := json.Marshal(t)
	if err != nil {
		return err
	}
	dir := d.Class(class)
	if err := os.WriteFile(filepath.Join(dir, lastFile), []byte(t.At.Format(time.RFC3339Nano)), 0o600); err != nil {
		return err
	}
	return renameio.WriteFile(filepath.Join(dir, triesFile), b, 0o600, renameio.WithTempDir(dir))
}

// Lock returns the path of the lock of processes that submit pilots of a class.
func (d Dir) Lock(class string) string { return filepath.Join(d.Class(class), lockFile) }
