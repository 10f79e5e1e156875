package spool

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/google/renameio/v2"

	"github.com/ponos-tools/ponos/lib/base/fault"
	"github.com/ponos-tools/ponos/lib/task"
	"github.com/ponos-tools/ponos/lib/task/queue"
)

func summarize(e queue.Entry) queue.Summary {
	s := queue.Summary{
		ID: e.ID, Slug: e.Slug, Group: e.Group, State: e.State, Reason: e.Reason, ExitCode: e.ExitCode, Agent: e.Agent,
		Attempt: e.Tries(), AtMost: e.AtMost,
		RetryOf: e.RetryOf, Created: e.Created, Started: e.Started, Ended: e.Ended,
	}
	var after []string
	for _, id := range e.After {
		after = append(after, string(id))
	}
	s.Waits = strings.Join(after, " ")
	return s
}

// where is the first letter of the directory in which the file of a task is, unless somebody has put it there by hand.
func where(r queue.Summary) byte {
	switch {
	case r.State.Final():
		return doneDir[0]
	case r.State == task.Pending && r.Agent == "":
		return newDir[0]
	}
	return activeDir[0]
}

// indexFile is a cache of summaries. It is used only for files of new/ and done/, of which those never change;
// it may be removed at any time, and is then rebuilt in a few seconds. Its time of modification is that of these directories when it
// was made, the later one.
const indexFile = "index"

// indexMagic is the first line of an index in this format.
const indexMagic = "ponos index 3\n"

// List returns the tasks of the spool, the oldest first, with the reasons of those that wait. Files
// that are not tasks are left out.
func (s *Spool) List() ([]queue.Summary, error) {
	all, err := s.States()
	if err == nil {
		s.explain(all)
	}
	return all, err
}

// States is List without what tasks wait for.
func (s *Spool) States() ([]queue.Summary, error) { return s.states(false) }

// Glance is States for a person who waits: new/ and done/ are not listed while their times of modification are those of the index, which
// may hide a change of the moment in which it was made.
func (s *Spool) Glance() ([]queue.Summary, error) { return s.states(true) }

func (s *Spool) states(glance bool) ([]queue.Summary, error) {
	changed := s.changed()
	all := s.readIndex()
	listed := []string{newDir, activeDir, doneDir} // a task only moves forward: in this order none is missed
	if glance && len(all) > 0 && modified(filepath.Join(s.Dir, indexFile)).Equal(changed) {
		listed = []string{activeDir}
	}
	var at map[task.ID]int32 // places in all
	place := func(id task.ID) (int32, bool) {
		if at == nil {
			at = make(map[task.ID]int32, len(all))
			for i, r := range all {
				at[r.ID] = int32(i)
			}
		}
		i, ok := at[id]
		return i, ok
	}
	now := make([]byte, len(all)) // where they are; 0: nowhere
	fresh := map[task.ID]byte{}   // where tasks are that are to be read
	active := map[task.ID]string{}
	if len(listed) == 1 {
		for i, r := range all {
			now[i] = where(r)
		}
	}
	for _, dir := range listed {
		if err := s.eachName(dir, func(name string) {
			if id, bare := strings.CutSuffix(name, ".json"); bare {
				if i, ok := place(task.ID(id)); ok {
					now[i] = dir[0]
					return
				}
			}
			id, agent := fileParts(name)
			if i, ok := place(id); ok {
				now[i] = dir[0]
			} else if id != "" {
				fresh[id] = dir[0]
			}
			if agent != "" && dir == activeDir {
				active[id] = name
			}
		}); err != nil {
			return nil, err
		}
	}
	retried, err := s.bareNames(retriedDir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	kept := all[:0]
	for i, r := range all {
		switch {
		case now[i] == where(r) && now[i] != activeDir[0]:
			kept = append(kept, r)
		case now[i] != 0:
			fresh[r.ID] = now[i]
		}
	}
	read, err := s.readAll(fresh, active)
	if err != nil {
		return nil, err
	}
	all = append(kept, read...)
	if older := func(a, b queue.Summary) int {
		if c := a.Created.Compare(b.Created); c != 0 {
			return c
		}
		return strings.Compare(string(a.ID), string(b.ID))
	}; !slices.IsSortedFunc(all, older) {
		slices.SortStableFunc(all, older)
	}
	s.refresh(all, fresh, changed)
	if len(retried) > 0 {
		again := make(map[task.ID]bool, len(retried))
		for _, name := range retried {
			again[task.ID(name)] = true
		}
		for i := range all {
			all[i].Retried = again[all[i].ID]
		}
	}
	return all, nil
}

// changed is when new/ or done/ has changed, the later time.
func (s *Spool) changed() (last time.Time) {
	for _, dir := range []string{newDir, doneDir} {
		if at := modified(s.path(dir, "")); at.After(last) {
			last = at
		}
	}
	return last
}

// modified is when a file was modified, by the clock of its server; zero if that is not known.
func modified(path string) time.Time {
	info, err := os.Stat(path)
	if err != nil {
		return time.Time{}
	}
	return info.ModTime() //nolint:forbidigo // it is compared with that of other files only
}

// bareNames lists a directory, in no order.
func (s *Spool) bareNames(dir string) (names []string, err error) {
	return names, s.eachName(dir, func(name string) { names = append(names, name) })
}

// eachName calls do for each name in a directory, in any order, without storing them.
func (s *Spool) eachName(dir string, do func(name string)) error {
	f, err := os.Open(s.path(dir, ""))
	if err != nil {
		return fault.Errorf(fault.Unavailable, "spool: %w", err)
	}
	defer f.Close()
	for {
		names, err := f.Readdirnames(4096)
		for _, name := range names {
			do(name)
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fault.Errorf(fault.Unavailable, "spool: %w", err)
		}
	}
}

// readAll reads the files of tasks.
func (s *Spool) readAll(there map[task.ID]byte, active map[task.ID]string) ([]queue.Summary, error) {
	ids := make([]task.ID, 0, len(there))
	for id := range there {
		ids = append(ids, id)
	}
	all := make([]queue.Summary, len(ids))
	err := parallel(len(ids), func(i int) error {
		id := ids[i]
		dir, name := newDir, string(id)+".json"
		switch there[id] {
		case 'a':
			dir = activeDir
			if name = active[id]; name == "" {
				return nil
			}
		case 'd':
			dir = doneDir
		}
		e, err := s.read(s.path(dir, name))
		if errors.Is(err, fs.ErrNotExist) { // it has moved on
			e, err = s.Find(id)
		}
		if err != nil {
			return nil // not a task, or a removed one
		}
		if _, agent := fileParts(name); dir == activeDir && agent == stopper {
			e.State = task.Stopping
		} else if dir == activeDir && agent != "" {
			e.Agent = agent
		}
		all[i] = summarize(e)
		return nil
	})
	return slices.DeleteFunc(all, func(r queue.Summary) bool { return r.ID == "" }), err
}

// An index is written when this many files had to be read, and more than this share of
// all.
const (
	refreshFiles = 200
	refreshShare = 50
)

// refresh writes the index if that saves the next reader much work. A failure does not matter.
func (s *Spool) refresh(all []queue.Summary, read map[task.ID]byte, changed time.Time) {
	misses := 0
	for _, where := range read {
		if where != 'a' {
			misses++
		}
	}
	if misses < refreshFiles || misses*refreshShare < len(all) || CheckOwner(s.Dir) != nil {
		return
	}
	b := []byte(indexMagic)
	text := func(s string) { b = append(binary.AppendUvarint(b, uint64(len(s))), s...) }
	number := func(n int64) { b = binary.AppendVarint(b, n) }
	instant := func(t time.Time) {
		if t.IsZero() {
			number(0)
		} else {
			number(t.UnixNano())
		}
	}
	text(s.ID)
	for _, r := range all {
		if where(r) == activeDir[0] {
			continue
		}
		b = append(b, where(r))
		for _, s := range []string{string(r.ID), r.Slug, r.Group, string(r.State), r.Reason, r.Agent, string(r.RetryOf), r.Waits} {
			text(s)
		}
		number(int64(r.ExitCode))
		number(int64(r.Attempt))
		number(int64(r.AtMost))
		instant(r.Created)
		instant(r.Started)
		instant(r.Ended)
	}
	b = binary.BigEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
	f, err := renameio.NewPendingFile(filepath.Join(s.Dir, indexFile),
		renameio.WithTempDir(s.path(tmpDir, "")), renameio.WithPermissions(0o600))
	if err != nil {
		return
	}
	defer f.Cleanup()
	_, err = f.Write(b)
	if err = errors.Join(err, os.Chtimes(f.Name(), changed, changed)); err == nil {
		_ = f.CloseAtomicallyReplace()
	}
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// maxIndex limits the size of an index in bytes.
const maxIndex = 1 << 30

// readIndex reads the index; nothing, unless it is complete and belongs to this spool.
func (s *Spool) readIndex() []queue.Summary {
	info, err := os.Stat(filepath.Join(s.Dir, indexFile))
	if err != nil || !info.Mode().IsRegular() || info.Size() > maxIndex {
		return nil
	}
	f, err := os.Open(filepath.Join(s.Dir, indexFile))
	if err != nil {
		return nil
	}
	defer f.Close()
	// Summaries keep parts of the text, so there is one copy of it only.
	var text strings.Builder
	text.Grow(int(info.Size()))
	if _, err := io.Copy(&text, io.LimitReader(f, maxIndex)); err != nil {
		return nil
	}
	return parseIndex(text.String(), s.ID)
}

// checksum is the CRC-32 of a text, without a copy of it.
func checksum(s string) (sum uint32) {
	var part [64 << 10]byte
	for len(s) > 0 {
		n := copy(part[:], s)
		sum, s = crc32.Update(sum, castagnoli, part[:n]), s[n:]
	}
	return sum
}

func parseIndex(s, spool string) []queue.Summary {
	end := len(s) - 4
	if end < len(indexMagic) || s[:len(indexMagic)] != indexMagic || checksum(s[:end]) != binary.BigEndian.Uint32([]byte(s[end:])) {
		return nil
	}
	d := decoder{rest: s[len(indexMagic):end]}
	if d.text() != spool {
		return nil
	}
	all := make([]queue.Summary, 0, len(s)/64) // few are shorter
	states := map[string]task.State{}
	for len(d.rest) > 0 && !d.bad {
		var r queue.Summary
		d.rest = d.rest[1:] // the directory, which follows from the rest
		r.ID, r.Slug, r.Group = task.ID(d.text()), d.text(), d.text()
		state := d.text()
		r.Reason, r.Agent, r.RetryOf, r.Waits = d.text(), d.text(), task.ID(d.text()), d.text()
		r.ExitCode, r.Attempt, r.AtMost = int(d.number()), int(d.number()), int(d.number())
		r.Created, r.Started, r.Ended = d.instant(), d.instant(), d.instant()
		known, ok := states[state]
		if !ok {
			known = task.State(state)
			states[state] = known
		}
		r.State = known
		all = append(all, r)
	}
	if d.bad {
		return nil
	}
	return all
}

// decoder reads an index; bad is set if it is truncated.
type decoder struct {
	rest string
	bad  bool
}

func (d *decoder) uvarint() uint64 {
	var n uint64
	for i := 0; i < len(d.rest) && i < binary.MaxVarintLen64; i++ {
		c := d.rest[i]
		n |= uint64(c&0x7f) << (7 * i)
		if c < 0x80 {
			d.rest = d.rest[i+1:]
			return n
		}
	}
	d.bad, d.rest = true, ""
	return 0
}

func (d *decoder) number() int64 {
	n := d.uvarint()
	if n&1 != 0 {
		return ^int64(n >> 1)
	}
	return int64(n >> 1)
}

func (d *decoder) text() string {
	n := d.uvarint()
	if n > uint64(len(d.rest)) {
		d.bad, d.rest = true, ""
		return ""
	}
	s := d.rest[:n]
	d.rest = d.rest[n:]
	return s
}

func (d *decoder) instant() time.Time {
	n := d.number()
	if n == 0 {
		return time.Time{}
	}
	return time.Unix(0, n).UTC()
}

// Read returns the complete task of a summary.
func (s *Spool) Read(r queue.Summary) (queue.Entry, error) {
	for _, dir := range []string{newDir, doneDir} {
		if where(r) == dir[0] {
			if e, err := s.read(s.path(dir, string(r.ID)+".json")); err == nil {
				return e, nil
			}
		}
	}
	return s.Find(r.ID)
}

// Cancel is RequestStop for the tasks of summaries. The errors are in the order of the tasks.
func (s *Spool) Cancel(all []queue.Summary) []error {
	errs := make([]error, len(all))
	taken := map[task.ID]string{}
	if entries, err := os.ReadDir(s.path(activeDir, "")); err == nil { // once, and not for each
		for _, entry := range entries {
			id, _ := fileParts(entry.Name())
			taken[id] = s.path(activeDir, entry.Name())
		}
	}
	_ = parallel(len(all), func(i int) error {
		path := taken[all[i].ID]
		if where(all[i]) == newDir[0] {
			path = s.path(newDir, string(all[i].ID)+".json")
		}
		if path != "" {
			if e, err := s.readFile(path); err == nil && !e.State.Final() {
				errs[i] = s.requestStop(e)
				return nil
			}
		}
		errs[i] = s.RequestStop(all[i].ID)
		return nil
	})
	return errs
}
