package pack

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/ponos-tools/ponos/lib/agent/record"
	"github.com/ponos-tools/ponos/lib/base/clock"
	"github.com/ponos-tools/ponos/lib/base/fault"
)

const (
	// maxRuns is how many tasks a pilot records: more teach nothing.
	maxRuns = 1000
	// keptRuns is how many pilots of a class are remembered.
	keptRuns = 20
)

// Ran is how a task has run in a pilot. Accounting does not know it.
type Ran struct {
	Name    string        `json:"name"` // see Note
	State   string        `json:"state"`
	Start   int64         `json:"start"` // Unix time
	End     int64         `json:"end"`
	Elapsed time.Duration `json:"elapsed"` // without the time in which the pilot was suspended
	Limit   time.Duration `json:"limit"`
	CPUs    int           `json:"cpus"`
	CPUTime time.Duration `json:"cpu_time"` // of processes for which the task has waited
	Mem     int64         `json:"mem,omitempty"`
	Peak    int64         `json:"peak"` // bytes
}

// Runs returns how tasks have run in pilots that ended after a time. Damaged lines are left out, and
// files that cannot be read, which are an error as well.
func (d Dir) Runs(since time.Time) ([]Ran, error) {
	classes, err := d.Classes()
	if err != nil {
		return nil, err
	}
	var all []Ran
	var errs []error
	for _, class := range classes {
		dir := filepath.Join(d.Class(class), runsDir)
		pilots, err := names(dir)
		errs = append(errs, err)
		for _, pilot := range pilots {
			b, err := readRuns(filepath.Join(dir, pilot), since)
			errs = append(errs, ignoreMissing(err)) // it may be removed meanwhile
			for line := range bytes.Lines(b) {
				var r Ran
				if json.Unmarshal(line, &r) == nil && r.plausible() {
					all = append(all, r)
				}
			}
		}
	}
	return all, errors.Join(errs...)
}

// readRuns reads the file of a pilot, at most as much as a pilot records, if it was written after a
// time. The clocks of nodes may differ from this one; the file system has one clock for all.
func readRuns(path string, since time.Time) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || clock.Modified(info).Before(since) {
		return nil, err
	}
	return io.ReadAll(io.LimitReader(f, maxRuns<<10))
}

// plausible reports whether a task can have run so. What is learned from damaged records would
// apply to all later tasks of that name.
func (r *Ran) plausible() bool {
	return r.Name != "" && r.Start > 0 && r.End >= r.Start && r.Limit > 0 && r.CPUs > 0 &&
		r.Elapsed >= 0 && r.Elapsed.Seconds() <= float64(r.End-r.Start+1) && r.CPUTime >= 0 &&
		r.Mem >= 0 && r.Peak >= 0 && r.Peak < 1<<50
}

// Prune removes what old pilots of a class have recorded.
func (d Dir) Prune(class string) error {
	dir := filepath.Join(d.Class(class), runsDir)
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) || len(entries) <= keptRuns {
		return ignoreMissing(err)
	}
	type file struct {
		name string
		at   time.Time
	}
	files := make([]file, 0, len(entries))
	for _, e := range entries {
		if info, err := e.Info(); err == nil {
			files = append(files, file{e.Name(), clock.Modified(info)})
		}
	}
	slices.SortFunc(files, func(a, b file) int { return b.at.Compare(a.at) })
	var errs []error
	for _, f := range files[min(len(files), keptRuns):] {
		errs = append(errs, ignoreMissing(os.Remove(filepath.Join(dir, f.name))))
	}
	return errors.Join(errs...)
}

// noteRun records how a task has run, if it has ended by itself or at a limit.
func (w *worker) noteRun(r *running, run record.Run) {
	state := "COMPLETED"
	switch {
	case r.end.Why == Timeout:
		state = "TIMEOUT"
	case r.end.Why == OOM:
		state = "OUT_OF_MEMORY"
	case r.end.Why != "" || !run.Ended:
		return
	case run.Code != 0:
		state = "FAILED"
	}
	if r.name == "" || w.recorded.Add(1) > maxRuns {
		return
	}
	b, err := json.Marshal(Ran{
		Name: r.name, State: state, Start: r.begun.Unix(), End: r.over.Unix(), Elapsed: r.over.Sub(r.begun) - r.how.Away,
		Limit: r.ticket.Limit, CPUs: r.ticket.CPUs, CPUTime: r.how.CPUTime(), Mem: r.ticket.Mem,
		Peak: max(r.how.Peak, r.how.MaxRSS()), // a short task may never have been measured
	})
	if err == nil {
		err = w.appendRun(append(b, '\n'))
	}
	if err != nil {
		fmt.Fprintf(w.out, "pilot %s: task %s: how it ran: %v\n", w.id, r.ticket.Task, fault.Text(err))
	}
}

func (w *worker) appendRun(line []byte) error {
	dir := filepath.Join(w.dir, runsDir)
	if err := mkdir(dir); err != nil {
		return err
	}
	f, err := os.OpenFile(filepath.Join(dir, w.id), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(line)
	return errors.Join(err, f.Close())
}
