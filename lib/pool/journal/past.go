package journal

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/ponos-tools/ponos/lib/base/fault"
	"github.com/ponos-tools/ponos/lib/pool/wire"
)

// Past is a run as its journal has it, whether it has a scheduler or not.
type Past struct {
	Begin, End time.Time // of the first scheduler, and of the last record
	Why        string    // it has ended before all was done; "": it has not, or was killed
	Killed     bool      // the last scheduler has recorded no end
	Left       int64     // tasks that were not run, or not to their end, as the last scheduler says
	Done       int64     // tasks that have succeeded
	// Tasks are those that have begun or were refused, and have not succeeded, by their numbers.
	Tasks []PastTask
}

// PastTask is a task with its last record: an end, a try, or that it was handed to a node.
type PastTask struct{ Record }

// The states of a task that has not succeeded.
const (
	TaskFailed    = "failed"
	TaskCancelled = "cancelled"
	TaskLeft      = "left"
)

// State is how far the task has come.
func (t *PastTask) State() string {
	switch {
	case t.Kind != End:
		return TaskLeft
	case t.What == wire.Cancelled || t.What == wire.Stopped:
		return TaskCancelled
	}
	return TaskFailed
}

// Count returns how many tasks are in a state.
func (p *Past) Count(state string) (n int64) {
	for i := range p.Tasks {
		if p.Tasks[i].State() == state {
			n++
		}
	}
	return n
}

// readAll calls do for each record of the journal of a run directory.
func readAll(dir string, do func(*Record) error) error {
	name := filepath.Join(dir, File)
	f, err := os.Open(name)
	if errors.Is(err, os.ErrNotExist) {
		return fault.Errorf(fault.Unavailable, "no run in %q", dir)
	}
	if err != nil {
		return err
	}
	defer f.Close()
	if err := eachRecord(f, do); err != nil {
		return fault.Errorf(fault.Unavailable, "%s:%w", name, err)
	}
	return nil
}

// ReadPast reads the journal of a run directory.
func ReadPast(dir string) (*Past, error) {
	p := &Past{Killed: true}
	done, open := map[int64]bool{}, map[int64]*PastTask{}
	var cut spans
	var begin, end float64
	err := readAll(dir, func(r *Record) error {
		begin, end = cmp.Or(begin, r.Time), max(end, r.Time)
		switch r.Kind {
		case Begin:
			p.Killed, p.Why, p.Left = true, "", 0
			for _, t := range open {
				if r.Retry {
					t.reopen()
				}
			}
		case Stop:
			p.Killed, p.Why = false, string(r.Error)
			if r.Counts != nil {
				p.Left = r.Counts.Left
			}
		case Cuts:
			more, err := parseSpans(r.Tasks)
			cut = cut.join(more)
			return err
		case Send:
			return parseSeqs(r.Tasks, func(seq int64) {
				delete(done, seq)
				open[seq] = &PastTask{Record{Kind: Send, Seq: seq, Node: r.Node, Time: r.Time}}
			})
		case Retry:
			return parseSeqs(r.Tasks, func(seq int64) {
				if t := open[seq]; t != nil {
					t.reopen()
				}
			})
		case Try, End, Output:
			if delete(done, r.Seq); r.Kind == End && r.What == wire.OK {
				done[r.Seq] = true
				delete(open, r.Seq)
				return nil
			}
			t := &PastTask{*r}
			if r.Kind == Output {
				t.Kind, t.What = End, wire.OutputLost
			}
			open[r.Seq] = t
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	p.Begin, p.End, p.Done = unix(begin), unix(end), cut.count()
	for seq := range done {
		if !cut.has(seq) {
			p.Done++
		}
	}
	for seq, t := range open {
		if p.Tasks = append(p.Tasks, *t); cut.has(seq) { // its output was lost after that
			p.Done--
		}
	}
	slices.SortFunc(p.Tasks, func(a, b PastTask) int { return cmp.Compare(a.Seq, b.Seq) })
	return p, nil
}

// reopen makes an end one that was not the last.
func (t *PastTask) reopen() {
	if t.Kind == End {
		t.Kind = Try
	}
}

// ReadTask returns what the journal of a run directory has of one task: the ends of its attempts, or that they were cut.
func ReadTask(dir string, seq int64) ([]Record, error) {
	var out []Record
	err := readAll(dir, func(r *Record) error {
		if r.Kind == Cuts {
			cut, err := parseSpans(r.Tasks)
			if cut.has(seq) {
				out = append(out, *r)
			}
			return err
		}
		if r.Seq == seq && (r.Kind == Try || r.Kind == End || r.Kind == Output) {
			out = append(out, *r)
		}
		return nil
	})
	return out, err
}

// tails is how many bytes of output a record has.
func (r *Record) tails() int64 { return int64(len(r.Stdout.Text) + len(r.Stderr.Text)) }

// Tasks names tasks by their numbers, which it sorts: "task 3", "tasks 1-4, 7".
func Tasks(seqs []int64) string {
	const most = 10
	parts := strings.Split(FormatSeqs(seqs), ",")
	if len(parts) > most {
		parts = append(parts[:most], "...")
	}
	if len(seqs) == 1 {
		return "task " + parts[0]
	}
	return fmt.Sprintf("tasks %s", strings.Join(parts, ", "))
}
