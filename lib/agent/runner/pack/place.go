package pack

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/google/renameio/v2"

	"github.com/ponos-tools/ponos/lib/task"
)

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
	Begun  bool   // the job script of the task runs
	number int    // which of the pilot's tickets it is
	path   string
}

// Job returns the job of the task of a taken ticket.
func (p Place) Job() string { return p.Pilot + "." + strconv.Itoa(p.number) }

// Restore records a taken ticket again in the directory of its task, which the task has removed.
func (p Place) Restore(dir string) error {
	b, err := json.Marshal(Note{Class: p.Class, Ticket: p.Ticket.name()})
	if err != nil {
		return err
	}
	return renameio.WriteFile(filepath.Join(dir, ticketFile), b, 0o600, renameio.WithTempDir(dir))
}

// Drop removes a ticket that is no longer needed.
func (p Place) Drop() error {
	err := os.Remove(p.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
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
			taken, err := d.Taken(class, pilot)
			if err != nil {
				return nil, err
			}
			for _, place := range taken {
				all[place.Ticket.Key] = place
			}
		}
	}
	return all, nil
}

// Taken returns the tickets of a class that a pilot has taken.
func (d Dir) Taken(class, pilot string) ([]Place, error) {
	dir := filepath.Join(d.Class(class), takenDir, pilot)
	all, err := names(dir)
	places := make([]Place, 0, len(all))
	for _, name := range all {
		if n, t, ok := parseTaken(name); ok {
			begun := slices.Contains(all, begunFile+strconv.Itoa(n))
			places = append(places, Place{class, t, true, pilot, begun, n, filepath.Join(dir, name)})
		}
	}
	return places, err
}

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

// find returns where a ticket of a class is that was taken.
func (d Dir) find(class string, t Ticket) (Place, bool, error) {
	pilots, err := d.Pilots(class)
	if err != nil {
		return Place{}, false, err
	}
	for _, pilot := range pilots {
		all, err := d.Taken(class, pilot)
		if err != nil {
			return Place{}, false, err
		}
		for _, place := range all {
			if place.Ticket.Key == t.Key {
				return place, true, nil
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

// Cancel marks a task as cancelled: in its directory, and where its pilot sees it soon. Gone says
// that no pilot has the ticket.
func (d Dir) Cancel(dir string) (gone bool, err error) {
	n, t, ok, err := ReadNote(dir)
	if err == nil && !ok {
		return d.cancelUnrecorded(task.ID(filepath.Base(dir)))
	}
	if err != nil {
		return false, err
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
	return false, place.cancel()
}

// cancelUnrecorded is Cancel for a task that has removed the record of its ticket.
func (d Dir) cancelUnrecorded(id task.ID) (gone bool, err error) {
	places, err := d.Places()
	if err != nil {
		return false, err
	}
	for _, place := range places {
		if place.Ticket.Task == id && place.Begun {
			return false, place.cancel()
		}
	}
	return true, nil
}

// cancel marks a taken ticket. On NFS, the content of an open file is fresh on all hosts; a new name
// may not be.
func (p Place) cancel() error {
	f, err := os.OpenFile(p.path, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return ignoreMissing(err)
	}
	_, err = f.WriteString("cancelled\n")
	return errors.Join(err, f.Close())
}

// Cancelled reports whether the ticket with a key was cancelled.
func Cancelled(dir, key string) bool {
	_, err := os.Stat(filepath.Join(dir, cancelFile+key))
	return err == nil
}
