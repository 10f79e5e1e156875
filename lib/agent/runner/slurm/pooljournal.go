package slurm

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/ponos-tools/ponos/lib/advise/usage"
	"github.com/ponos-tools/ponos/lib/agent/record"
	"github.com/ponos-tools/ponos/lib/base/lock"
	"github.com/ponos-tools/ponos/lib/pool/input"
	"github.com/ponos-tools/ponos/lib/pool/journal"
	"github.com/ponos-tools/ponos/lib/pool/pilot"
	"github.com/ponos-tools/ponos/lib/pool/wire"
)

// packEnd is what a pool knows of the end of a job that its record lacks.
type packEnd struct {
	Why   string `json:"why"`
	Used  int64  `json:"used,omitempty"`  // bytes
	Limit int64  `json:"limit,omitempty"` // bytes, or nanoseconds
}

// Why a pool has ended a task, or how it saw its end.
const (
	packStopped = "stopped" // it was cancelled
	packTimeout = "timeout"
	packOOM     = "oom"
	packKilled  = "killed"  // its job script was killed from outside
	packLost    = "lost"    // the worker of its pilot was
	packUnbegun = "unbegun" // the job script has ended before it began the command
	packOver    = "over"    // by itself
)

func readEnd(dir, job string) (e packEnd) {
	b, err := os.ReadFile(filepath.Join(dir, endFile+job))
	if err == nil {
		_ = json.Unmarshal(b, &e)
	}
	return e
}

// position is how far the journal of a run was read.
type position struct {
	Inode  uint64 `json:"inode"`
	Offset int64  `json:"offset"`
}

// collect reads what is new in the journal of a run, and notes in the directories of tasks the ends that their records lack.
func (p *packs) collect(class string) error {
	run := p.run(class)
	held, err := lock.Try(filepath.Join(run, pilot.Dir, "read.lock"))
	if errors.Is(err, lock.ErrHeld) || errors.Is(err, fs.ErrNotExist) {
		return nil // another tool does it
	}
	if err != nil {
		return err
	}
	defer held.Close()
	f, err := os.Open(filepath.Join(run, journal.File))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	var at position
	if b, err := os.ReadFile(filepath.Join(run, pilot.Dir, readFile)); err == nil {
		_ = json.Unmarshal(b, &at)
	}
	var st syscall.Stat_t
	if err := syscall.Fstat(int(f.Fd()), &st); err != nil {
		return err
	}
	if st.Ino != at.Inode || st.Size < at.Offset { // it was cut
		at = position{Inode: st.Ino}
	}
	if st.Size == at.Offset {
		return nil
	}
	in := bufio.NewReader(io.NewSectionReader(f, at.Offset, st.Size-at.Offset))
	var lines []usage.Run
	b := book{packs: p, run: run}
	for {
		line, err := in.ReadBytes('\n')
		if err != nil {
			break // the last one may not be whole
		}
		var rec journal.Record
		if json.Unmarshal(line, &rec) == nil && (rec.Kind == journal.End || rec.Kind == journal.Try) {
			ran, err := b.take(&rec)
			if err != nil {
				return err
			}
			if ran != nil {
				lines = append(lines, *ran)
			}
		}
		at.Offset += int64(len(line))
	}
	if err := keepRuns(run, lines); err != nil {
		return err
	}
	return writeJSON(filepath.Join(run, pilot.Dir), readFile, at)
}

// book knows the tasks of a run by their numbers.
type book struct {
	*packs
	run   string
	known map[int64]string // directories of tasks; nil: not read yet
}

// dirOf returns the directory of a task.
func (b *book) dirOf(rec *journal.Record) (string, error) {
	if b.known == nil {
		b.known = map[int64]string{}
		offers, err := input.Offers(b.run)
		if err != nil {
			return "", err
		}
		for _, o := range offers {
			if o.First == 0 {
				continue
			}
			lines, err := linesOf(&o)
			if err != nil {
				return "", err
			}
			for i, line := range lines {
				b.known[o.First+int64(i)] = string(line.Cwd)
			}
		}
	}
	return b.known[rec.Seq], nil
}

// take notes how a start has ended, and returns how the task has run, if others can learn from that.
func (b *book) take(rec *journal.Record) (*usage.Run, error) {
	dir, err := b.dirOf(rec)
	if err != nil || dir == "" || rec.Node == "" {
		return nil, err
	}
	job := startOf(rec.Node, rec.Seq, rec.Attempt)
	n, ok, err := readNote(dir)
	if err != nil || !ok {
		return nil, nil // it has ended, or removed its directory
	}
	owner, err := record.ReadOwner(dir, n.Attempt)
	if err != nil {
		return nil, nil
	}
	run, err := record.ReadRun(dir, job)
	if err != nil {
		return nil, nil
	}
	end, state := packEnd{}, ""
	switch {
	case rec.What == wire.Timeout:
		end, state = packEnd{Why: packTimeout, Limit: int64(n.Limit)}, "TIMEOUT"
	case rec.What == wire.OutOfMemory:
		end, state = packEnd{Why: packOOM, Used: max(rec.MaxRSS, n.Mem), Limit: n.Mem}, "OUT_OF_MEMORY"
	case rec.What == wire.Cancelled:
		end.Why = packStopped
	case rec.What == wire.OK, run.Ended:
		if end.Why = packOver; run.Ended {
			state = "COMPLETED"
			if run.Code != 0 {
				state = "FAILED"
			}
		}
	case owner == "" && rec.Kind == journal.End:
		end.Why, job = packUnbegun, n.job()
	case owner == job && !run.Over() && run.Begun && rec.What == wire.Lost:
		end.Why = packLost
	case owner == job && !run.Over() && run.Begun && rec.What != wire.Stopped:
		end.Why = packKilled
	case owner == job && !run.Begun && rec.Kind == journal.End:
		end.Why = packUnbegun
	}
	told := rec.What != wire.OK || n.Mem > 0 && run.Code == killed
	if end.Why != "" && told && (owner == job || isTicket(job)) && readEnd(dir, job).Why == "" {
		if err := writeJSON(dir, endFile+job, end); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
	}
	if owner != job || state == "" || n.Name == "" {
		return nil, nil
	}
	if rec.MaxRSS > run.Used.Memory+run.Used.Memory/8 && run.Over() {
		_ = record.WriteUsed(dir, job, run.Restart, record.Used{CPU: run.Used.CPU, Memory: rec.MaxRSS})
	}
	ran := usage.Run{
		Name: n.Name, State: state, Submit: int64(rec.Start), Start: int64(rec.Start), End: int64(rec.Start + rec.Seconds),
		Elapsed: time.Duration(rec.Seconds * float64(time.Second)), Limit: n.Limit, Nodes: 1, Tasks: 1, CPUs: float64(n.CPUs),
		MemMB: float64(n.Mem >> 20), CPUSeconds: rec.User + rec.System, PeakMB: usage.Unknown, GPUPart: usage.Unknown,
	}
	if peak := max(rec.MaxRSS, run.Used.Memory); peak > 0 {
		ran.PeakMB = float64(peak) / (1 << 20)
	}
	return &ran, nil
}
