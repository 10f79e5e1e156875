package input

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/ponos-tools/ponos/lib/base/clock"
	"github.com/ponos-tools/ponos/lib/base/fault"
	"github.com/ponos-tools/ponos/lib/pool"
	"github.com/ponos-tools/ponos/lib/pool/wire"
)

// Directories of a run for tasks that are added to it: see [Growing].
const (
	Offered = "in"
	Closing = "in.closing"
	Added   = "added"
)

// Version is that of the files of additions.
const Version = 1

// Addition are tasks for a run that has begun: a file of JSON.
type Addition struct {
	Version int                  `json:"version"`
	Text    wire.Text            `json:"text"`            // as the input of a run: one command per line
	JSON    bool                 `json:"jsonl,omitempty"` // or one object per line
	Set     map[string]wire.Text `json:"set,omitempty"`   // what they need, by the names of [Set]
	// After are ids or numbers of the tasks that must have succeeded before these start.
	After []string `json:"after,omitempty"`
	// Key is the writer's, by which it finds the addition again; see [Offers].
	Key string `json:"-"`
}

// Cancellation asks to end tasks: a file of JSON, which stays until they have ended.
type Cancellation struct {
	Version int      `json:"version"`
	Cancel  []string `json:"cancel"` // ids or numbers, or [All]
	name    string
}

// All are all tasks.
const All = "all"

// Tasks is where tasks come from.
type Tasks interface {
	// Next returns the next task; io.EOF at the end. After a *[BadTask] it can be called again.
	Next() (*pool.Task, error)
	// Ready reports whether the next task is there without waiting for it.
	Ready() bool
}

// Growing are the tasks of an input, followed by those that were added to the run. After io.EOF, Next
// continues if more were taken.
//
// An addition is a file, with one writer. Each step of its way is one rename or removal, so that it is in
// one place at any time, whoever is killed:
//
//	(RUN/.add-N) ──Offer──► RUN/in/TIME-N[.KEY] ──Take──► RUN/added/FIRST-LAST[.KEY] ──► stays with the run
//
// The name in added has the numbers of its tasks, which they keep when the run is resumed. The run takes
// tasks as long as it has a directory in:
//
//	       Begin           Shut
//	none ─────────► in ─────────────► in.closing
//	  ▲              │ ▲                 │
//	  └───Close──────┘ └──────Reopen─────┘
//
// Shut lets what was offered be taken, and no more be offered: also by schedulers that begin later, after a kill or a
// failure, until Reopen. Close removes the directory of a run that comes to its end without. It only succeeds when
// the directory is empty: nothing can be offered to a run that has just ended. A [Cancellation] lies there, too.
type Growing struct {
	input Tasks // nil: at its end
	run   string
	base  pool.Spec
	shell bool
	look  bool // also read what is not taken yet
	files []addedFile
	last  int64        // number of the last task that was read
	taken int64        // number of the last task of a file in added
	tasks []*pool.Task // of the addition that is being read
}

// addedFile is an addition with the numbers of its tasks.
type addedFile struct {
	name        string
	first, last int64
}

// Grow lets an input, nil for none, grow by what is added to a run.
func Grow(t Tasks, run string, base pool.Spec, shell bool) *Growing {
	g := &Growing{input: t, run: run, base: base, shell: shell}
	if files, err := g.list(); err == nil && len(files) > 0 { // Next reports an error
		g.taken = files[len(files)-1].last
	}
	return g
}

// Look is as Grow, for who does not run the tasks: what was offered is read, and left where it is.
func Look(t Tasks, run string, base pool.Spec, shell bool) *Growing {
	g := Grow(t, run, base, shell)
	g.look = true
	return g
}

// Ready implements [Tasks].
func (g *Growing) Ready() bool {
	if g.input != nil {
		return g.input.Ready()
	}
	return len(g.tasks) > 0
}

// Next implements [Tasks].
func (g *Growing) Next() (*pool.Task, error) {
	if g.input != nil {
		t, err := g.input.Next()
		var bad *BadTask
		switch {
		case err == nil:
			g.last = t.Seq
		case errors.As(err, &bad):
			g.last = bad.Seq
		}
		if !errors.Is(err, io.EOF) {
			return t, err
		}
		g.input = nil
	}
	if len(g.tasks) == 0 {
		if err := g.open(); err != nil {
			return nil, err
		}
	}
	t := g.tasks[0]
	g.tasks = g.tasks[1:]
	g.last++
	t.Seq = g.last
	return t, nil
}

// open reads the next addition; io.EOF if there is none.
func (g *Growing) open() error {
	if len(g.files) == 0 {
		if err := g.find(); err != nil {
			return err
		}
	}
	f := g.files[0]
	g.files = g.files[1:]
	if f.first > 0 && f.first <= g.last {
		return fault.Hint(
			fault.Errorf(fault.Usage, "the input has more tasks than before: task %d is one that was added to the run", f.first),
			"resume it with the list that it had")
	}
	tasks, err := readTasks(f.name, g.base, g.shell)
	if f.first == 0 { // it would be taken so
		f.first, f.last = g.last+1, g.last+int64(max(1, len(tasks)))
	}
	if n := f.last - f.first + 1; err == nil && int64(len(tasks)) != n {
		err = fmt.Errorf("it has %d tasks, and had %d when it was taken", len(tasks), n)
	}
	if g.last = f.first - 1; err == nil {
		g.tasks = tasks
		return nil
	}
	if f.first < f.last {
		return fault.Errorf(fault.Usage, "%s: %w", f.name, err)
	}
	g.last++ // one task stands for what could not be read
	return &BadTask{Seq: g.last, Where: f.name, Text: f.name, Err: err}
}

// find finds additions to be read; io.EOF if there are none.
func (g *Growing) find() error {
	all, err := g.list()
	if err != nil {
		return err
	}
	if g.files = slices.DeleteFunc(all, func(f addedFile) bool { return f.last <= g.last }); len(g.files) == 0 && g.look {
		g.look = false // once
		if g.files, err = g.waiting(false); err != nil {
			return err
		}
	}
	if len(g.files) == 0 {
		return io.EOF
	}
	return nil
}

// list returns the additions that were taken, by their numbers.
func (g *Growing) list() (out []addedFile, err error) {
	entries, err := os.ReadDir(filepath.Join(g.run, Added))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	for _, e := range entries {
		if first, last, ok := numbers(e.Name()); ok {
			out = append(out, addedFile{filepath.Join(g.run, Added, e.Name()), first, last})
		}
	}
	slices.SortFunc(out, func(a, b addedFile) int { return int(a.first - b.first) })
	return out, nil
}

// numbers returns those of the tasks of an addition that was taken.
func numbers(name string) (first, last int64, ok bool) {
	name, _, _ = strings.Cut(name, ".")
	low, high, _ := strings.Cut(name, "-")
	first, err := strconv.ParseInt(low, 10, 64)
	last, e2 := strconv.ParseInt(high, 10, 64)
	return first, last, err == nil && e2 == nil && 0 < first && first <= last
}

// Keyed is an addition of a run whose writer has given it a key.
type Keyed struct {
	Key         string
	First, Last int64 // its tasks; 0: it was not taken yet
	name        string
}

// Offers returns the additions with keys, but those whose tasks all are done with. One that is taken meanwhile is among them.
func Offers(run string) (all []Keyed, err error) {
	for _, dir := range []string{Offered, Closing, Added} {
		entries, err := os.ReadDir(filepath.Join(run, dir))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		for _, e := range entries {
			_, key, _ := strings.Cut(e.Name(), ".")
			if key == "" || strings.HasPrefix(e.Name(), ".") || strings.HasSuffix(e.Name(), cancelling) {
				continue
			}
			o := Keyed{Key: key, name: filepath.Join(run, dir, e.Name())}
			if dir == Added {
				o.First, o.Last, _ = numbers(e.Name())
			}
			all = append(all, o)
		}
	}
	return all, nil
}

// Text returns the input of the addition.
func (o *Keyed) Text() (string, error) {
	a := new(Addition)
	err := readFile(o.name, a)
	return string(a.Text), err
}

// waiting returns the additions that were not taken yet, or the cancellations, by their names, which begin with
// a time.
func (g *Growing) waiting(cancels bool) (out []addedFile, err error) {
	for _, dir := range []string{Closing, Offered} {
		entries, err := os.ReadDir(filepath.Join(g.run, dir))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		for _, e := range entries {
			own := strings.HasPrefix(e.Name(), ".") // the file system's
			if !own && cancels == (e.Type().IsRegular() && strings.HasSuffix(e.Name(), cancelling)) {
				out = append(out, addedFile{name: filepath.Join(g.run, dir, e.Name())})
			}
		}
	}
	return out, nil
}

// cancelling ends the names of cancellations.
const cancelling = ".cancel"

// Cancellations returns those that were not removed, and removes what is none.
func (g *Growing) Cancellations() (out []Cancellation, err error) {
	files, err := g.waiting(true)
	for _, f := range files {
		c := Cancellation{name: f.name}
		if e := readFile(f.name, &c); e != nil {
			err = errors.Join(err, fmt.Errorf("%s: %w", f.name, e), os.Remove(f.name))
			continue
		}
		out = append(out, c)
	}
	return out, err
}

// Remove removes a cancellation.
func (c *Cancellation) Remove() error { return os.Remove(c.name) }

// Take takes what was offered, or the first part of it, where last is the highest number of a task so far, and reports whether Next
// has more. It must not be called before Next has returned io.EOF, nor beside it.
func (g *Growing) Take(last int64) (more bool, err error) {
	files, err := g.waiting(false)
	if err != nil || len(files) == 0 {
		return false, err
	}
	if err := os.Mkdir(filepath.Join(g.run, Added), 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return false, err
	}
	g.taken = max(g.taken, last)
	for _, f := range files[:min(len(files), mostTaken)] {
		tasks, bad := readTasks(f.name, g.base, g.shell)
		n := int64(len(tasks))
		if bad != nil {
			n = 1 // it stands for what cannot be read
		}
		if n == 0 {
			err = os.Remove(f.name)
		} else {
			first := g.taken + 1
			_, key, keyed := strings.Cut(filepath.Base(f.name), ".")
			if keyed {
				key = "." + key
			}
			err = os.Rename(f.name, filepath.Join(g.run, Added, fmt.Sprintf("%010d-%010d%s", first, first+n-1, key)))
		}
		if err != nil {
			break
		}
		if g.taken += n; n > 0 {
			more = true
		}
	}
	if more { // a task that has begun must not get another number after a power failure
		err = errors.Join(err, syncDir(filepath.Join(g.run, Added)))
	}
	return more, err
}

// mostTaken is how many additions are taken at a time: a file server may need milliseconds for each.
const mostTaken = 500

// Forget removes the additions whose tasks all are done with, as the journal says: a run may go on for years. The first one
// stays, as its name shows how many tasks the input had.
func (g *Growing) Forget(done func(first, last int64) bool) error {
	files, err := g.list()
	for _, f := range files[min(1, len(files)):] {
		if done(f.first, f.last) {
			err = errors.Join(err, os.Remove(f.name))
		}
	}
	return err
}

// Last is the highest number that a task of an addition has.
func (g *Growing) Last() int64 { return g.taken }

// Open reports whether tasks can be offered.
func (g *Growing) Open() bool {
	_, err := os.Lstat(filepath.Join(g.run, Offered))
	return !errors.Is(err, fs.ErrNotExist)
}

// Close ends that tasks can be offered, when all have ended. It fails if some were that are not taken yet.
func (g *Growing) Close() error {
	if files, err := g.waiting(false); err != nil || len(files) > 0 {
		return cmp.Or(err, error(syscall.ENOTEMPTY))
	}
	if files, err := g.waiting(true); err == nil {
		for _, f := range files {
			_ = os.Remove(f.name) // else the directory stays
		}
	}
	if err := os.Remove(filepath.Join(g.run, Offered)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// Begin lets tasks be offered to a run, unless it is shut, and removes what writers have left that were killed.
func Begin(run string) error {
	names, _ := filepath.Glob(filepath.Join(run, staged+"*"))
	for _, name := range names {
		if st, err := os.Lstat(name); err == nil && clock.Since(clock.Modified(st)) > time.Hour {
			_ = os.Remove(name)
		}
	}
	if _, err := os.Lstat(filepath.Join(run, Closing)); !errors.Is(err, fs.ErrNotExist) {
		return err // it stays shut
	}
	if err := os.Mkdir(filepath.Join(run, Offered), 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return nil
}

// Shut ends that tasks can be offered. Those that were will be taken.
func Shut(run string) error {
	return os.Rename(filepath.Join(run, Offered), filepath.Join(run, Closing))
}

// Reopen lets tasks be offered to a run that was shut. The error is [fs.ErrNotExist] if it has ended without.
func Reopen(run string) error {
	err := os.Rename(filepath.Join(run, Closing), filepath.Join(run, Offered))
	if errors.Is(err, fs.ErrNotExist) {
		_, err = os.Lstat(filepath.Join(run, Offered))
	}
	return err
}

// staged begins the names of additions that are being written.
const staged = ".add-"

// Offer writes an addition for the scheduler of a run, and returns how many tasks it has. If one of them
// cannot be read, or there are none, nothing is written. The error is [fs.ErrNotExist] if the run takes no
// more.
func Offer(run string, a *Addition) (int, error) {
	tasks, err := a.tasks(pool.Spec{Need: pool.Need{CPUs: 1}}, false)
	if slices.Contains(a.After, "") {
		err = errors.New("after: the task is not named")
	}
	if err != nil {
		return 0, fault.Wrap(fault.Usage, err)
	}
	if len(tasks) == 0 {
		return 0, nil
	}
	a.Version = Version
	suffix := ""
	if a.Key != "" {
		suffix = "." + a.Key
	}
	if err := put(run, Offered, suffix, a); err != nil {
		return 0, err
	}
	return len(tasks), nil
}

// Withdraw asks the scheduler of a run, or the next one, to cancel tasks. The error is [fs.ErrNotExist] if all have
// ended.
func Withdraw(run string, tasks []string) error {
	c := &Cancellation{Version: Version, Cancel: tasks}
	err := put(run, Offered, cancelling, c)
	if errors.Is(err, fs.ErrNotExist) {
		err = put(run, Closing, cancelling, c)
	}
	return err
}

// put writes a file and moves it into a directory of a run, under a name of its own.
func put(run, dir, suffix string, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	if len(b) >= maxAddition {
		return fault.Errorf(fault.Usage, "too many tasks at a time: at most %d MiB", maxAddition>>20)
	}
	in := filepath.Join(run, dir)
	if _, err := os.Lstat(in); err != nil {
		return err
	}
	number := fmt.Sprintf("%016x", rand.Uint64())
	temporary := filepath.Join(run, staged+number)
	f, err := os.OpenFile(temporary, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(append(b, '\n'))
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		err = os.Rename(temporary, filepath.Join(in, fmt.Sprintf("%020d-%s%s", clock.Now().UnixNano(), number, suffix)))
	}
	if err != nil {
		_ = os.Remove(temporary) // else Begin does
		return err
	}
	return syncDir(in)
}

func syncDir(name string) error {
	d, err := os.Open(name)
	if errors.Is(err, fs.ErrNotExist) { // shut in this moment, which does not matter to what is in it
		return nil
	}
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// maxAddition limits the size of an addition.
const maxAddition = 64 << 20

// readTasks reads the tasks of a file. An error concerns all of them.
func readTasks(name string, base pool.Spec, shell bool) ([]*pool.Task, error) {
	a := new(Addition)
	if err := readFile(name, a); err != nil {
		return nil, err
	}
	return a.tasks(base, shell)
}

// readFile reads a file that others may have written.
func readFile(name string, v any) error {
	st, err := os.Lstat(name)
	if err != nil {
		return err
	}
	if !st.Mode().IsRegular() || st.Size() > maxAddition {
		return fmt.Errorf("not a regular file of at most %d MiB", maxAddition>>20)
	}
	b, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	var format struct{ Version int }
	if err := json.Unmarshal(b, &format); err != nil {
		return err
	}
	if format.Version != Version {
		return fmt.Errorf("it has version %d, and this jobpool knows version %d", format.Version, Version)
	}
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	return d.Decode(v)
}

// tasks are the tasks of an addition, without numbers. An error is that of the first one that cannot be read.
func (a *Addition) tasks(base pool.Spec, shell bool) (out []*pool.Task, err error) {
	for name, value := range a.Set {
		if err := Set(&base, name, string(value)); err != nil {
			return nil, err
		}
	}
	in, err := Open(strings.NewReader(string(a.Text)), nil, Options{JSON: a.JSON, Base: base, Shell: shell, Name: "standard input"})
	if err != nil {
		return nil, err
	}
	for {
		t, err := in.Next()
		switch {
		case errors.Is(err, io.EOF):
			return out, nil
		case err != nil:
			return nil, err
		}
		if len(a.After) > 0 {
			if t.Extra == nil {
				t.Extra = &pool.Extra{}
			}
			t.Extra.After = append(t.Extra.After, a.After...)
		}
		out = append(out, t)
	}
}
