package journal

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/ponos-tools/ponos/lib/base/clock"
	"github.com/ponos-tools/ponos/lib/base/lock"
)

// How long runs are kept in directories that were not chosen by the user: of those that are done, the
// last KeepRuns, and no longer than KeepDone; others for KeepOpen.
const (
	KeepRuns = 50
	KeepDone = 30 * 24 * time.Hour
	KeepOpen = 180 * 24 * time.Hour
)

// mostTidied limits how many are removed at a time.
const mostTidied = 200

// Tidy removes old runs from a directory that holds nothing else, except the run that is beginning. A
// run in progress stays, and so does one with output of tasks.
func Tidy(base, current string) {
	entries, err := os.ReadDir(base)
	if err != nil {
		return
	}
	type run struct {
		dir  string
		at   time.Time
		done bool
	}
	var runs []run
	for _, e := range entries {
		dir := filepath.Join(base, e.Name())
		st, err := os.Lstat(filepath.Join(dir, File))
		if !e.IsDir() || e.Name() == current || err != nil || !st.Mode().IsRegular() {
			continue
		}
		if logs, _ := os.ReadDir(filepath.Join(dir, "logs")); len(logs) > 0 {
			continue
		}
		runs = append(runs, run{dir, clock.Modified(st), done(filepath.Join(dir, File))})
	}
	slices.SortFunc(runs, func(a, b run) int { return b.at.Compare(a.at) })
	var old []run
	kept := 0
	for _, r := range runs {
		age := clock.Since(r.at)
		switch {
		case !r.done && age > KeepOpen, r.done && (age > KeepDone || kept >= KeepRuns):
			old = append(old, r)
		case r.done:
			kept++
		}
	}
	slices.Reverse(old)
	for _, r := range old[:min(len(old), mostTidied)] {
		remove(r.dir)
	}
}

// done reports whether the journal ends with the end of a run in which everything was done.
func done(name string) bool {
	f, err := os.Open(name)
	if err != nil {
		return false
	}
	defer f.Close()
	const enough = 64 << 10
	if st, err := f.Stat(); err == nil {
		_, _ = f.Seek(max(0, st.Size()-enough), io.SeekStart)
	}
	b, err := io.ReadAll(f)
	if err != nil {
		return false
	}
	b = bytes.TrimSpace(b)
	var r Record
	if json.Unmarshal(b[bytes.LastIndexByte(b, '\n')+1:], &r) != nil || r.Kind != Stop {
		return false
	}
	return r.Error == "" && (r.Counts == nil || r.Counts.Failed+r.Counts.Cancelled+r.Counts.Left == 0)
}

// remove removes a run that is not in progress.
func remove(dir string) {
	held, err := lock.Try(filepath.Join(dir, "lock"))
	if err == nil {
		defer held.Close()
	} else if !lock.Missing(err) {
		return
	}
	if clock.Now().Before(LeaseEnd(dir)) { // perhaps by a host that does not see the lock
		return
	}
	_ = os.RemoveAll(dir)
}
