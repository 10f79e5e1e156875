package pack

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/google/renameio/v2"

	"github.com/ponos-tools/ponos/lib/clock"
	"github.com/ponos-tools/ponos/lib/runner"
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

// A Ticket is what a pilot must know about a task. All of it is in its name.
type Ticket struct {
	At      time.Time
	Key     string // unique
	CPUs    int
	GPUs    int
	Mem     int64         // bytes; 0: no limit
	Limit   time.Duration // of the task's time
	Attempt int
	Task    task.ID
}

// Job returns the name of the task's job until a pilot has taken it.
func (t Ticket) Job() string { return jobPrefix + t.Key }

const jobPrefix = "pack."

// name returns a file name by which tickets sort by time.
func (t Ticket) name() string {
	size := strconv.Itoa(t.CPUs)
	if t.GPUs > 0 {
		size += "+" + strconv.Itoa(t.GPUs)
	}
	return fmt.Sprintf("%020d.%s.%s.%d.%d.%d.%s", t.At.UnixNano(), t.Key, size, t.Mem, int64(t.Limit/time.Second), t.Attempt, t.Task)
}

// parseTicket parses the name of a ticket.
func parseTicket(name string) (t Ticket, ok bool) {
	f := strings.Split(name, ".")
	if len(f) != 7 {
		return t, false
	}
	cpus, gpus, _ := strings.Cut(f[2], "+")
	var n [6]int64
	for i, text := range []string{f[0], cpus, f[3], f[4], f[5], cmp.Or(gpus, "0")} {
		v, err := strconv.ParseInt(text, 10, 64)
		if err != nil || v < 0 {
			return t, false
		}
		n[i] = v
	}
	id, err := task.ParseID(f[6])
	if err != nil || f[1] == "" || n[1] < 1 || n[1] > 1<<20 || n[3] > 1<<32 || n[4] > 1<<32 || n[5] > 1<<20 {
		return t, false
	}
	t = Ticket{At: time.Unix(0, n[0]), Key: f[1], CPUs: int(n[1]), GPUs: int(n[5]), Mem: n[2], Limit: time.Duration(n[3]) * time.Second, Attempt: int(n[4]), Task: id}
	return t, t.name() == name
}

// IsJob reports whether a job is that of a packed task: PILOT.N, or the job of its ticket.
func IsJob(job string) bool { return strings.Contains(job, ".") }

// IsTicket reports whether a job is that of a ticket that no pilot had taken.
func IsTicket(job string) bool { return strings.HasPrefix(job, jobPrefix) }

// PilotOf returns the pilot of a packed task's job; "" before one has taken it.
func PilotOf(job string) string {
	at := strings.LastIndexByte(job, '.')
	if at < 0 || IsTicket(job) {
		return ""
	}
	return job[:at]
}

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

// Note is what a task's directory records of its ticket.
type Note struct {
	Class  string `json:"class"`
	Ticket string `json:"ticket"`
	Name   string `json:"name,omitempty"` // of the job that the task would have; see Ran
}

// ReadNote reads the note in the directory of a task: that of its last attempt that was packed. It is
// not ok if there is none.
func ReadNote(dir string) (n Note, t Ticket, ok bool, err error) {
	b, err := os.ReadFile(filepath.Join(dir, ticketFile))
	if errors.Is(err, fs.ErrNotExist) {
		return n, t, false, nil
	}
	if err == nil {
		err = json.Unmarshal(b, &n)
	}
	if err != nil {
		return n, t, false, err
	}
	t, ok = parseTicket(n.Ticket)
	if !ok || n.Class == "" || n.Class != filepath.Base(n.Class) {
		return n, t, false, fmt.Errorf("%q is damaged", filepath.Join(dir, ticketFile))
	}
	return n, t, true, nil
}

// Put creates the ticket of a task, after recording it in the directory of the task. Name is that of
// the job that the task would have.
func (d Dir) Put(class string, t Ticket, dir, name string) error {
	b, err := json.Marshal(Note{class, t.name(), name})
	if err != nil {
		return err
	}
	if err := renameio.WriteFile(filepath.Join(dir, ticketFile), b, 0o600, renameio.WithTempDir(dir)); err != nil {
		return err
	}
	return d.Again(class, t)
}

// Again creates a ticket that was lost.
func (d Dir) Again(class string, t Ticket) error {
	f, err := os.OpenFile(filepath.Join(d.Class(class), waitingDir, t.name()), os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	return f.Close()
}

// Withdraw removes a pending ticket. It reports whether no pilot has it.
func (d Dir) Withdraw(class string, t Ticket) (bool, error) {
	err := os.Remove(filepath.Join(d.Class(class), waitingDir, t.name()))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// Waits reports whether a ticket is pending.
func (d Dir) Waits(class string, t Ticket) (bool, error) {
	_, err := os.Lstat(filepath.Join(d.Class(class), waitingDir, t.name()))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// A Place is where a ticket is.
type Place struct {
	Class  string
	Ticket Ticket
	Taken  bool
	Pilot  string // the pilot that has taken it
	path   string
}

// Places returns where the tickets are, by their keys. A ticket that is taken meanwhile is included.
func (d Dir) Places() (map[string]Place, error) {
	classes, err := d.Classes()
	if err != nil {
		return nil, err
	}
	all := map[string]Place{}
	for _, class := range classes {
		dir := d.Class(class)
		waiting, err := names(filepath.Join(dir, waitingDir))
		if err != nil {
			return nil, err
		}
		for _, name := range waiting {
			if t, ok := parseTicket(name); ok {
				all[t.Key] = Place{Class: class, Ticket: t, path: filepath.Join(dir, waitingDir, name)}
			}
		}
		pilots, err := names(filepath.Join(dir, takenDir))
		if err != nil {
			return nil, err
		}
		for _, pilot := range pilots {
			taken, err := names(filepath.Join(dir, takenDir, pilot))
			if err != nil {
				return nil, err
			}
			for _, name := range taken {
				if _, t, ok := parseTaken(name); ok {
					all[t.Key] = Place{class, t, true, pilot, filepath.Join(dir, takenDir, pilot, name)}
				}
			}
		}
	}
	return all, nil
}

// Classes returns the names of all classes.
func (d Dir) Classes() ([]string, error) { return names(d.Path) }

// Waiting returns the pending tickets of a class.
func (d Dir) Waiting(class string) ([]Ticket, error) {
	all, err := names(filepath.Join(d.Class(class), waitingDir))
	tickets := make([]Ticket, 0, len(all))
	for _, name := range all {
		if t, ok := parseTicket(name); ok {
			tickets = append(tickets, t)
		}
	}
	return tickets, err
}

// Drop removes a ticket that is no longer needed.
func (p Place) Drop() error {
	err := os.Remove(p.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

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

// Forget removes what a pilot has left, except its tickets. For a pilot that still runs, this is
// harmless.
func (d Dir) Forget(class, pilot string) {
	_ = os.Remove(filepath.Join(d.Class(class), takenDir, pilot)) // fails for a directory with tickets
}

// Quiet reports whether no ticket of a class was created, taken or withdrawn for some time.
func (d Dir) Quiet(class string, since time.Duration) (bool, error) {
	info, err := os.Stat(filepath.Join(d.Class(class), waitingDir))
	return err == nil && clock.Since(clock.Modified(info)) >= since, err
}

// taken returns the name of a ticket that a pilot has taken as its n-th.
func taken(n int, name string) string { return strconv.Itoa(n) + "~" + name }

func parseTaken(name string) (n int, t Ticket, ok bool) {
	number, rest, _ := strings.Cut(name, "~")
	n, err := strconv.Atoi(number)
	t, ok = parseTicket(rest)
	return n, t, ok && err == nil && n > 0
}

// Cancel marks a task as cancelled: in its directory, and where its pilot sees it soon. Gone says
// that no pilot has the ticket.
func (d Dir) Cancel(dir string) (gone bool, err error) {
	n, t, ok, err := ReadNote(dir)
	if err != nil || !ok {
		return err == nil, err
	}
	if err := os.WriteFile(filepath.Join(dir, cancelFile+t.Key), nil, 0o600); err != nil {
		return false, err
	}
	if gone, err := d.Withdraw(n.Class, t); gone || err != nil {
		return gone, err
	}
	place, found, err := d.find(n.Class, t)
	if err != nil || !found {
		return err == nil, err
	}
	// On NFS, the content of an open file is fresh on all hosts; a new name may not be.
	f, err := os.OpenFile(place.path, os.O_WRONLY|os.O_APPEND, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	_, err = f.WriteString("cancelled\n")
	return false, errors.Join(err, f.Close())
}

// find returns where a ticket of a class is that was taken.
func (d Dir) find(class string, t Ticket) (Place, bool, error) {
	dir := filepath.Join(d.Class(class), takenDir)
	pilots, err := names(dir)
	if err != nil {
		return Place{}, false, err
	}
	for _, pilot := range pilots {
		all, err := names(filepath.Join(dir, pilot))
		if err != nil {
			return Place{}, false, err
		}
		for _, name := range all {
			if _, other, ok := parseTaken(name); ok && other.Key == t.Key {
				return Place{class, t, true, pilot, filepath.Join(dir, pilot, name)}, true, nil
			}
		}
	}
	return Place{}, false, nil
}

// Holder returns the pilot that has the ticket of a task's directory; "" if none has.
func (d Dir) Holder(dir string) (string, error) {
	n, t, ok, err := ReadNote(dir)
	if err != nil || !ok {
		return "", err
	}
	place, _, err := d.find(n.Class, t)
	return place.Pilot, err
}

// Cancelled reports whether the ticket with a key was cancelled.
func Cancelled(dir, key string) bool {
	_, err := os.Stat(filepath.Join(dir, cancelFile+key))
	return err == nil
}

// Why a pilot has ended a task.
const (
	Stopped = "stopped" // it was cancelled
	Timeout = "timeout"
	OOM     = "oom"
	Killed  = "killed"  // its job script was killed from outside
	Unbegun = "unbegun" // the job script has ended before it began the command
)

// An End is what a pilot records of a task that it has ended, or that could not begin.
type End struct {
	Why   string `json:"why"`
	Used  int64  `json:"used,omitempty"`  // bytes
	Limit int64  `json:"limit,omitempty"` // bytes, or nanoseconds
}

// ReadEnd returns the end of a job; it is the zero value if the job has ended by itself.
func ReadEnd(dir, job string) (e End) {
	b, err := os.ReadFile(filepath.Join(dir, endFile+job))
	if err == nil {
		_ = json.Unmarshal(b, &e) // a truncated file counts as none
	}
	return e
}

func (e End) note(dir, job string) error {
	b, err := json.Marshal(e)
	if err != nil {
		return err
	}
	return renameio.WriteFile(filepath.Join(dir, endFile+job), b, 0o600, renameio.WithTempDir(dir))
}

// Owner returns the packed job that owns a task; "" if none does.
func Owner(dir string, attempt int) (string, error) {
	owner, err := runner.ReadOwner(dir, attempt)
	if !IsJob(owner) {
		return "", err
	}
	return owner, err
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
