package journal

import (
	"cmp"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ponos-tools/ponos/lib/base/fault"
	"github.com/ponos-tools/ponos/lib/pool/wire"
)

// Past is a run as its journal has it, whether it has a scheduler or not.
type Past struct {
	Begin, End time.Time // of the first scheduler, and of the last record
	Host       string    // of the last scheduler
	Why        string    // it has ended before all was done; "": it has not, or was killed
	Killed     bool      // the last scheduler has recorded no end
	Left       int64     // tasks that were not run, or not to their end, as the last scheduler says
	Done       int64     // tasks that have succeeded
	// Tasks are those that have begun or were refused, and have not succeeded, by their numbers.
	Tasks []PastTask
}

// PastTask is a task with its last record: an end, a try, or that it was handed to a node.
type PastTask struct {
	Record
	Command string // "": not known
}

// Ended reports whether the task has ended, and in which way: "failed", "cancelled", or else "left".
func (t *PastTask) Ended() string {
	switch {
	case t.Kind != End:
		return "left"
	case t.What == wire.Cancelled || t.What == wire.Stopped:
		return "cancelled"
	}
	return "failed"
}

// ReadPast reads the journal and the job log of a run directory.
func ReadPast(dir string) (*Past, error) {
	f, err := os.Open(filepath.Join(dir, File))
	if errors.Is(err, os.ErrNotExist) {
		return nil, fault.Errorf(fault.Unavailable, "no run in %q", dir)
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	p := &Past{Killed: true}
	done, open := map[int64]bool{}, map[int64]Record{}
	var begin, end float64
	var bad error
	err = eachRecord(f, func(r *Record) {
		begin, end = cmp.Or(begin, r.Time), max(end, r.Time)
		switch r.Kind {
		case Begin:
			p.Host, p.Killed, p.Why, p.Left = r.Host, true, "", 0
		case Stop:
			p.Killed, p.Why = false, string(r.Error)
			if r.Counts != nil {
				p.Left = r.Counts.Left
			}
		case Send:
			bad = cmp.Or(bad, parseSeqs(r.Tasks, func(seq int64) {
				delete(done, seq)
				open[seq] = Record{Kind: Send, Seq: seq, Node: r.Node, Time: r.Time}
			}))
		case Try, End, Output:
			if delete(done, r.Seq); r.Kind == End && r.What == wire.OK {
				done[r.Seq] = true
				delete(open, r.Seq)
				return
			}
			x := *r
			if r.Kind == Output {
				x.Kind, x.What = End, wire.OutputLost
			}
			open[r.Seq] = x
		}
	})
	if err = cmp.Or(err, bad); err != nil {
		return nil, fault.Errorf(fault.Unavailable, "%s: %w", filepath.Join(dir, File), err)
	}
	p.Begin, p.End, p.Done = unix(begin), unix(end), int64(len(done))
	for _, r := range open {
		p.Tasks = append(p.Tasks, PastTask{Record: r})
	}
	slices.SortFunc(p.Tasks, func(a, b PastTask) int { return cmp.Compare(a.Seq, b.Seq) })
	p.commands(filepath.Join(dir, Joblog))
	return p, nil
}

// commands adds the commands of the job log, which may be elsewhere.
func (p *Past) commands(name string) {
	f, err := os.Open(name)
	if err != nil {
		return
	}
	defer f.Close()
	_ = lines(f, func(line []byte) error {
		if f := strings.SplitN(string(line), "\t", 9); len(f) == 9 {
			seq, _ := strconv.ParseInt(f[0], 10, 64)
			if i, ok := slices.BinarySearchFunc(p.Tasks, seq, func(t PastTask, seq int64) int { return cmp.Compare(t.Seq, seq) }); ok {
				p.Tasks[i].Command = f[8]
			}
		}
		return nil
	})
}

// ReadTask returns what the journal of a run directory has of one task: the ends of its attempts.
func ReadTask(dir string, seq int64) ([]Record, error) {
	f, err := os.Open(filepath.Join(dir, File))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var out []Record
	err = eachRecord(f, func(r *Record) {
		if r.Seq == seq && (r.Kind == Try || r.Kind == End || r.Kind == Output) {
			out = append(out, *r)
		}
	})
	return out, err
}
