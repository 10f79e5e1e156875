package journal

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/ponos-tools/ponos/lib/base/fault"
	"github.com/ponos-tools/ponos/lib/pool"
	"github.com/ponos-tools/ponos/lib/pool/wire"
)

// joblogHeader is the first line of GNU parallel's job log.
const joblogHeader = "Seq\tHost\tStarttime\tJobRuntime\tSend\tReceive\tExitval\tSignal\tCommand\n"

// Entry is what is known of a task from earlier runs.
type Entry struct {
	Hash    uint64 // 0: not known
	Attempt int32  // the last one
	Worker  uint16 // that it was handed to last, see Orphans; 0: none
	State   State
	took    uint8 // class of its duration; 0: not known
}

// Durations are kept in classes a fifth apart, from a tenth of a millisecond on: there may be
// very many tasks.
const (
	shortest = 1e-4 // seconds
	apart    = 1.2
)

func (e *Entry) setSeconds(seconds float64) {
	class := math.Log(max(seconds, shortest)/shortest) / math.Log(apart)
	e.took = uint8(min(class, math.MaxUint8-1)) + 1
}

// Seconds is how long the task took, to about a tenth, if it ended well; 0: not known.
func (e Entry) Seconds() float64 {
	if e.took == 0 || e.State != OK {
		return 0
	}
	return shortest * math.Pow(apart, float64(e.took)-0.5)
}

// State says how far a task has come.
type State uint8

// The states of a task.
const (
	Unknown State = iota
	Started       // it was handed to a node, and no end is known
	Failed
	Cancelled
	OK
)

// History is what earlier runs did.
type History struct {
	Sessions int
	Losses   int64 // attempts of which the end is not known

	// Call is that of the last scheduler, and Done and Failed are how many tasks have ended since the first
	// one of that call began, without those that count as not run.
	Call         string
	Done, Failed int64
	// Tails is how many bytes of output of tasks the journal has.
	Tails int64

	last int64

	pages map[int64]*page // by number
	cut   spans           // of which there is nothing else, unless they have an entry
	// deaths counts how often in a row a task was handed out before its scheduler died, without the last
	// time.
	deaths  map[int64]int
	session string          // of the last scheduler
	stopped map[string]bool // the sessions of schedulers that have not died
	workers []knownWorker
	plain   bool              // hashes are of commands without quotes
	current map[string]uint16 // the worker of a node
}

// page has the entries of tasks that follow each other. Those that were cut have none, as a run may go on for years.
type page [pageSize]Entry

const pageSize = 64 // one that has failed among millions keeps a page

// Get returns what is known of a task.
func (h *History) Get(seq int64) Entry {
	if h == nil || seq < 0 {
		return Entry{}
	}
	if p := h.pages[seq/pageSize]; p != nil && p[seq%pageSize] != (Entry{}) {
		return p[seq%pageSize]
	}
	if h.cut.has(seq) {
		return wasCut
	}
	return Entry{}
}

// wasCut is the entry of a task that was cut.
var wasCut = Entry{Attempt: 1, State: OK}

// Cut returns the tasks that were cut from the journal. They have succeeded.
func (h *History) Cut() []Span {
	if h == nil {
		return nil
	}
	return h.cut
}

// AllCut reports whether the tasks from first to last were.
func (h *History) AllCut(first, last int64) bool { return h.cut.all(first, last) }

// all returns the entries, in no order.
func (h *History) all() iter.Seq[*Entry] {
	return func(yield func(*Entry) bool) {
		for _, p := range h.pages {
			for i := range p {
				if !yield(&p[i]) {
					return
				}
			}
		}
	}
}

// Deaths is how often in a row a task was handed out before its scheduler died, as far as is known: no
// end of the attempt was recorded.
func (h *History) Deaths(seq int64) int {
	e := h.Get(seq)
	if e.State != Started || !h.died(&e) {
		return 0
	}
	return h.deaths[seq] + 1
}

// died reports whether the scheduler that has handed out a task has died.
func (h *History) died(e *Entry) bool {
	return e.Worker == 0 || !h.stopped[h.workers[e.Worker-1].Session]
}

// Last is the highest number that a task has had.
func (h *History) Last() int64 {
	if h == nil {
		return 0
	}
	return h.last
}

func (h *History) at(seq int64) *Entry {
	h.last = max(h.last, seq)
	p := h.pages[seq/pageSize]
	if p == nil {
		if h.pages == nil {
			h.pages = map[int64]*page{}
		}
		p = new(page)
		h.pages[seq/pageSize] = p
	}
	e := &p[seq%pageSize]
	if *e == (Entry{}) && h.cut.has(seq) {
		*e = wasCut
	}
	return e
}

// Load reads the journal of a run directory; none is an empty history.
func Load(dir string) (*History, error) {
	name := filepath.Join(dir, File)
	f, err := os.Open(name)
	if errors.Is(err, os.ErrNotExist) {
		return &History{}, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	h, err := Read(f)
	if err != nil {
		return nil, fault.Hint(fault.Errorf(fault.Usage, "%s:%w", name, err),
			fmt.Sprintf("to continue from the job log instead: --resume --joblog %s, with another directory for --run",
				filepath.Join(dir, Joblog)))
	}
	return h, nil
}

// Read reads a journal. A last line that was cut off is left out.
func Read(r io.Reader) (*History, error) {
	h := &History{}
	err := eachRecord(r, h.add)
	for e := range h.all() {
		if e.State == Started {
			h.Losses++
		}
	}
	return h, err
}

// eachRecord calls do for each record of a journal.
func eachRecord(f io.Reader, do func(*Record) error) error {
	return lines(f, func(line []byte) error {
		var r Record
		if err := json.Unmarshal(line, &r); err != nil {
			return errors.New("not a record of a journal")
		}
		if r.Format > CutFormat {
			return fmt.Errorf("the journal has format %d, of a newer jobpool: this one knows format %d", r.Format, CutFormat)
		}
		return do(&r)
	})
}

// lines calls f for each whole line, and numbers its errors.
func lines(r io.Reader, f func(line []byte) error) error {
	in := bufio.NewReaderSize(r, 256<<10)
	for n := 1; ; n++ {
		var line []byte
		b, err := in.ReadSlice('\n')
		for errors.Is(err, bufio.ErrBufferFull) {
			if line = append(line, b...); len(line) > 2*wire.MaxLine {
				return fmt.Errorf("%d: line is too long", n)
			}
			b, err = in.ReadSlice('\n')
		}
		if line != nil {
			b = append(line, b...)
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if b = bytes.TrimSpace(b); len(b) == 0 {
			continue
		}
		if err := f(b); err != nil {
			return fmt.Errorf("%d: %w", n, err)
		}
	}
}

func (h *History) add(r *Record) error {
	if r.Seq < 0 || r.Seq > MaxSeq {
		return fmt.Errorf("task number %d is out of range", r.Seq)
	}
	h.Tails += r.tails()
	switch r.Kind {
	case Begin:
		h.Sessions++
		h.session = r.Session
		if r.Call == "" || r.Call != h.Call {
			h.Call, h.Done, h.Failed = r.Call, 0, 0
		}
		if r.Retry {
			h.reopen()
		}
	case Stop:
		if h.stopped == nil {
			h.stopped = map[string]bool{}
		}
		h.stopped[h.session] = true
	case Node:
		h.node(r)
	case Send:
		return parseSeqs(r.Tasks, func(seq int64) {
			e := h.at(seq)
			switch {
			case e.State == Started && h.died(e):
				if h.deaths == nil {
					h.deaths = map[int64]int{}
				}
				h.deaths[seq]++
			case e.State == Started:
				delete(h.deaths, seq)
			}
			if e.State != OK {
				e.State, e.Worker = Started, h.current[r.Node]
			}
			e.Attempt = max(e.Attempt, r.Attempt)
		})
	case Try:
		delete(h.deaths, r.Seq)
		e := h.at(r.Seq)
		e.Attempt = max(e.Attempt, r.Attempt)
		if e.State == Started {
			e.State = Unknown
		}
		h.hash(e, r.Hash)
	case End:
		delete(h.deaths, r.Seq)
		e := h.at(r.Seq)
		e.Attempt = max(e.Attempt, r.Attempt)
		switch {
		case r.What == wire.OK:
			e.State = OK
			h.Done++
			e.setSeconds(r.Seconds)
		case r.What == wire.Refused, r.What == wire.Lost, r.By == ByDependency:
			e.State = Unknown // it has not run to its end, and may now
		case r.What == wire.Cancelled:
			e.State = Cancelled
			h.Failed++
		default:
			e.State = Failed
			h.Failed++
		}
		h.hash(e, r.Hash)
	case Retry:
		return parseSeqs(r.Tasks, func(seq int64) { h.at(seq).reopen() })
	case Cuts:
		more, err := parseSpans(r.Tasks)
		h.cut = h.cut.join(more)
		for _, x := range more {
			h.last = max(h.last, x.Last)
		}
		h.Done += more.count()
		return err
	case Output:
		e := h.at(r.Seq)
		e.State, e.Attempt = Failed, max(e.Attempt, r.Attempt)
		h.Done, h.Failed = h.Done-1, h.Failed+1
	}
	return nil
}

// reopen makes tasks that have failed ones that are to run, even if the run that was to do so ends before
// it has.
func (h *History) reopen() {
	for e := range h.all() {
		e.reopen()
	}
}

func (e *Entry) reopen() {
	if e.State == Failed || e.State == Cancelled {
		e.State = Unknown
	}
}

// HashOf is the hash of a task as this history has it.
func (h *History) HashOf(t *pool.Task) uint64 {
	if h != nil && h.plain {
		return HashText(unquoted(Command(t)))
	}
	return Hash(t)
}

// Same returns an error if another command was run as the task with that number.
func (h *History) Same(t *pool.Task) error {
	if e := h.Get(t.Seq); e.Hash == 0 || e.Hash == h.HashOf(t) {
		return nil
	}
	return fault.Hint(
		fault.Errorf(fault.Usage, "task %d is now %.200q, which is not what was run as task %d", t.Seq, Command(t), t.Seq),
		"the list has changed: resume it with the list that it had, or with --force-resume if the change is intended")
}

// unquoted returns a command without its quotes: GNU parallel and jobpool quote arguments
// differently.
func unquoted(command string) string {
	return strings.NewReplacer(`\`, "", "'", "", `"`, "").Replace(command)
}

func (h *History) hash(e *Entry, text string) {
	if v, err := strconv.ParseUint(text, 16, 64); err == nil {
		e.Hash = v
	}
}

// LoadJoblog reads the job log of GNU parallel or of jobpool.
func LoadJoblog(name string) (*History, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	h, err := ReadJoblog(f)
	if err != nil {
		return nil, fault.Errorf(fault.Usage, "%s:%w", name, err)
	}
	return h, nil
}

// ReadJoblog reads a job log. If a task occurs several times, the last line counts.
func ReadJoblog(r io.Reader) (*History, error) {
	h := &History{plain: true}
	first := true
	err := lines(r, func(line []byte) error {
		if first {
			first = false
			if string(line) != strings.TrimSpace(joblogHeader) {
				return errors.New("not a job log: the first line is not its header")
			}
			return nil
		}
		f := strings.SplitN(string(line), "\t", 9)
		if len(f) != 9 {
			return fmt.Errorf("%d fields, expected 9", len(f))
		}
		seq, err := strconv.ParseInt(f[0], 10, 64)
		if err != nil || seq < 1 || seq > MaxSeq {
			return fmt.Errorf("task number %q", f[0])
		}
		e := h.at(seq)
		e.Attempt = max(1, e.Attempt)
		e.Hash = HashText(unquoted(strings.ReplaceAll(f[8], "\\n", "\n")))
		if e.State = Failed; f[6] == "0" && f[7] == "0" {
			e.State = OK
		}
		return nil
	})
	return h, err
}
