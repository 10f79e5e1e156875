package spool

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sys/unix"

	"github.com/ponos-tools/ponos/lib/base/fault"
	"github.com/ponos-tools/ponos/lib/base/shell"
	"github.com/ponos-tools/ponos/lib/task"
	"github.com/ponos-tools/ponos/lib/task/queue"
)

// A batch is a set of tasks that are submitted together. They are written to a directory in tmp/,
// which is then renamed to batches/NAME: at that moment either all of them are submitted, or none.
// From there each is moved to new/ by a rename. Only one rename can succeed, so whichever process
// moves a task (the submitter, or after its death an agent or another submitter), it arrives once.
// undelivered/NAME, written before the commit, says where to look.
const (
	batchesDir, undeliveredDir = "batches", "undelivered"

	manifestFile = "manifest"
)

// manifest is the record of a batch that has a key.
type manifest struct {
	Key     string            `json:"key"`
	Command string            `json:"command"` // hash of the template
	Made    time.Time         `json:"made"`
	Tasks   map[string]string `json:"tasks"` // hash of the parameters -> id
}

// AddAll submits tasks together: all of them or none, even if it is killed. It assigns increasing
// ids. With a key, tasks whose parameters were submitted with this key before are left out; the
// command is what they have in common, and must be the same each time, or the error is of kind
// fault.Usage.
func (s *Spool) AddAll(key string, command []string, entries []queue.Entry) (queue.Batch, error) {
	if len(entries) > queue.MaxBatch {
		return queue.Batch{}, fault.Errorf(fault.Usage, "%d tasks are more than %d at a time", len(entries), queue.MaxBatch)
	}
	_ = s.Deliver() // problems with the batches of others are reported by the agent
	if key == "" {
		m := manifest{Made: s.now().UTC()}
		return s.stage("b"+uuid.NewString(), m, entries, nil)
	}
	rows := identities(entries)
	hash := digest(command...)
	for range 100 {
		known, last, err := s.known(key, hash)
		if err != nil {
			return queue.Batch{}, err
		}
		m := manifest{Key: key, Command: hash, Made: s.now().UTC(), Tasks: map[string]string{}}
		b, err := s.stage(generation(key, last+1), m, entries, func(i int) (task.ID, string) { return known[rows[i]], rows[i] })
		if !errors.Is(err, fs.ErrExist) {
			return b, err
		}
		// Another call with this key was faster.
	}
	return queue.Batch{}, fault.Errorf(fault.Unavailable, "spool: other processes keep submitting with key %q", key)
}

// stage writes the tasks of a batch that are not in before, commits them and moves them to new/.
func (s *Spool) stage(name string, m manifest, entries []queue.Entry, before func(i int) (task.ID, string)) (queue.Batch, error) {
	b := queue.Batch{IDs: make([]task.ID, len(entries))}
	var fresh []int
	for i := range entries {
		row := ""
		if before != nil {
			if b.IDs[i], row = before(i); b.IDs[i] != "" {
				continue
			}
		}
		id, err := uuid.NewV7()
		if err != nil {
			return b, err
		}
		b.IDs[i] = task.ID(id.String())
		if m.Tasks != nil {
			m.Tasks[row] = id.String()
		}
		fresh = append(fresh, i)
	}
	if b.New = len(fresh); b.New == 0 {
		return b, nil
	}
	dir := s.path(tmpDir, "batch-"+uuid.NewString())
	if err := s.commit(dir, name, m, func() error {
		return parallel(len(fresh), func(n int) error {
			e := entries[fresh[n]]
			e.ID, e.State = b.IDs[fresh[n]], task.Pending
			return s.writeNew(filepath.Join(dir, string(e.ID)+".json"), e)
		})
	}); err != nil {
		_ = os.RemoveAll(dir)
		return b, err
	}
	// All of them are submitted. If the disk is full now, an agent or another submitter moves the rest.
	_ = s.deliver(name)
	return b, nil
}

// commit creates the directory of a batch and gives it its name.
func (s *Spool) commit(dir, name string, m manifest, fill func() error) error {
	unavailable := func(err error) error { return fault.Errorf(fault.Unavailable, "spool: %w", err) }
	for _, d := range []string{s.path(batchesDir, ""), s.path(undeliveredDir, "")} { // spools of earlier versions have none
		if err := os.MkdirAll(d, 0o700); err != nil {
			return unavailable(err)
		}
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		return unavailable(err)
	}
	text, err := json.Marshal(m)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, manifestFile), append(text, '\n'), 0o600); err != nil {
		return unavailable(err)
	}
	if err := fill(); err != nil {
		return err
	}
	hint := s.path(undeliveredDir, name)
	if err := os.WriteFile(hint, nil, 0o600); err != nil {
		return unavailable(err)
	}
	if err := syncAll(dir); err != nil {
		return unavailable(err)
	}
	if err := s.Check(); err != nil {
		return err
	}
	if err := os.Rename(dir, s.path(batchesDir, name)); err != nil {
		return unavailable(err)
	}
	return syncDir(s.path(batchesDir, ""))
}

// writeNew writes the file of a new task, without waiting for the disk.
func (s *Spool) writeNew(path string, e queue.Entry) error {
	if err := checkText(e); err != nil {
		return err
	}
	b, err := json.Marshal(e)
	if err != nil {
		return err
	}
	if len(b) > maxEntry {
		return fault.Errorf(fault.Usage, "a task takes %d bytes, more than %d", len(b), maxEntry)
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return fault.Errorf(fault.Unavailable, "spool: %w", err)
	}
	_, err = f.Write(append(b, '\n'))
	if err := errors.Join(err, f.Close()); err != nil {
		return fault.Errorf(fault.Unavailable, "spool: %w", err)
	}
	return nil
}

// Deliver moves tasks to new/ whose submitters were killed before they did.
func (s *Spool) Deliver() error {
	hints, err := os.ReadDir(s.path(undeliveredDir, ""))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fault.Errorf(fault.Unavailable, "spool: %w", err)
	}
	var errs []error
	for _, h := range hints {
		if _, err := task.ParseID(h.Name()); err == nil {
			errs = append(errs, s.deliver(h.Name()))
		}
	}
	return errors.Join(errs...)
}

// deliver moves the tasks of a batch to new/. A missing batch is not committed yet.
func (s *Spool) deliver(name string) error {
	dir := s.path(batchesDir, name)
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fault.Errorf(fault.Unavailable, "spool: %w", err)
	}
	lost := map[string]bool{}
	if retries(name) {
		if lost, err = s.claimRetries(dir, entries); err != nil {
			return err
		}
	}
	for _, e := range entries {
		if id, _ := fileParts(e.Name()); id == "" || lost[e.Name()] {
			continue
		}
		err := os.Rename(filepath.Join(dir, e.Name()), s.path(newDir, e.Name()))
		if err != nil && !errors.Is(err, fs.ErrNotExist) { // else another process was faster
			return fault.Errorf(fault.Unavailable, "spool: %w", err)
		}
	}
	if err := syncDir(s.path(newDir, "")); err != nil {
		return err
	}
	if !keyed(name) { // no submission refers to it again
		_ = os.Remove(filepath.Join(dir, manifestFile))
		_ = os.Remove(dir)
	}
	if err := os.Remove(s.path(undeliveredDir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fault.Errorf(fault.Unavailable, "spool: %w", err)
	}
	return nil
}

// generation returns the name of the n-th batch with a key.
func generation(key string, n int) string { return fmt.Sprintf("k%s-%d", digest(key), n) }

func keyed(name string) bool { return strings.HasPrefix(name, "k") }

// known returns the tasks that were submitted with a key, by their parameters, and the number of
// their batches.
func (s *Spool) known(key, command string) (map[string]task.ID, int, error) {
	known := map[string]task.ID{}
	for n := 1; ; n++ {
		b, err := os.ReadFile(filepath.Join(s.path(batchesDir, generation(key, n)), manifestFile))
		if errors.Is(err, fs.ErrNotExist) {
			return known, n - 1, nil
		}
		var m manifest
		if err == nil {
			err = json.Unmarshal(b, &m)
		}
		if err != nil {
			return nil, 0, fault.Errorf(fault.Unavailable, "spool: key %q: %w", key, err)
		}
		if m.Command != command {
			return nil, 0, fault.Hint(
				fault.Errorf(fault.Usage, "--key %q: its tasks run another command%s", key, s.example(m)),
				"use another key for another command")
		}
		for row, id := range m.Tasks {
			if known[row], err = task.ParseID(id); err != nil {
				return nil, 0, fault.Errorf(fault.Unavailable, "spool: key %q: %w", key, err)
			}
		}
	}
}

// example names the command of the oldest task of a batch, if the spool still has that.
func (s *Spool) example(m manifest) string {
	for _, text := range slices.Sorted(maps.Values(m.Tasks)) {
		id, err := task.ParseID(text)
		if err != nil {
			continue
		}
		if e, err := s.Find(id); err == nil {
			return fmt.Sprintf(": that of %s is %s", cmp.Or(e.Slug, text), shell.Join(e.Command))
		}
	}
	return ""
}

// identities distinguishes the tasks of a batch by their parameters. Tasks with equal parameters are
// numbered.
func identities(entries []queue.Entry) []string {
	rows, count := make([]string, len(entries)), map[string]int{}
	for i, e := range entries {
		var words []string
		for _, name := range slices.Sorted(maps.Keys(e.Parameters)) {
			words = append(words, name, e.Parameters[name])
		}
		row := digest(words...)
		count[row]++
		if n := count[row]; n > 1 {
			row = fmt.Sprintf("%s-%d", row, n)
		}
		rows[i] = row
	}
	return rows
}

// digest is a hash of words, of 32 hexadecimal digits.
func digest(words ...string) string {
	h := sha256.New()
	for _, w := range words {
		_ = binary.Write(h, binary.BigEndian, uint64(len(w)))
		h.Write([]byte(w))
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// parallel calls do for 0 to n-1, several at a time, and returns the first error.
func parallel(n int, do func(int) error) error {
	var group sync.WaitGroup
	var once sync.Once
	var first error
	next, stop := make(chan int), make(chan struct{})
	for range max(4, 2*runtime.GOMAXPROCS(0)) {
		group.Go(func() {
			for i := range next {
				if err := do(i); err != nil {
					once.Do(func() { first = err; close(stop) })
					return
				}
			}
		})
	}
feed:
	for i := range n {
		select {
		case next <- i:
		case <-stop:
			break feed
		}
	}
	close(next)
	group.Wait()
	return first
}

// syncAll flushes the file system of a directory: one call instead of one for each file.
func syncAll(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer f.Close()
	return unix.Syncfs(int(f.Fd()))
}

func syncDir(dir string) error {
	f, err := os.Open(dir)
	if err == nil {
		defer f.Close()
		if err = f.Sync(); errors.Is(err, unix.EINVAL) { // some file systems sync no directories
			err = nil
		}
	}
	if err != nil {
		return fault.Errorf(fault.Unavailable, "spool: %w", err)
	}
	return nil
}
