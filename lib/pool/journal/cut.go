package journal

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/ponos-tools/ponos/lib/base/clock"
	"github.com/ponos-tools/ponos/lib/pool/wire"
)

// Span are the numbers of tasks from First to Last.
type Span struct{ First, Last int64 }

// spans are sorted, and have gaps between them.
type spans []Span

func (s spans) has(seq int64) bool {
	i, exact := slices.BinarySearchFunc(s, seq, func(x Span, seq int64) int { return cmp.Compare(x.First, seq) })
	return exact || i > 0 && seq <= s[i-1].Last
}

func (s spans) all(first, last int64) bool {
	return slices.ContainsFunc(s, func(x Span) bool { return x.First <= first && last <= x.Last })
}

func (s spans) count() (n int64) {
	for _, x := range s {
		n += x.Last - x.First + 1
	}
	return n
}

// join returns the numbers of both.
func (s spans) join(more spans) spans {
	all := append(slices.Clone(s), more...)
	slices.SortFunc(all, func(a, b Span) int { return cmp.Compare(a.First, b.First) })
	out := all[:0]
	for _, x := range all {
		if n := len(out); n > 0 && x.First <= out[n-1].Last+1 {
			out[n-1].Last = max(out[n-1].Last, x.Last)
			continue
		}
		out = append(out, x)
	}
	return out
}

func (s spans) String() string {
	var b []byte
	for i, x := range s {
		if i > 0 {
			b = append(b, ',')
		}
		if b = strconv.AppendInt(b, x.First, 10); x.Last > x.First {
			b = strconv.AppendInt(append(b, '-'), x.Last, 10)
		}
	}
	return string(b)
}

// parseSpans reads what String has written.
func parseSpans(text string) (s spans, err error) {
	err = eachSpan(text, func(x Span) { s = append(s, x) })
	return spans{}.join(s), err
}

// minCut is the size of a journal, in bytes, from which it is cut.
const minCut = 16 << 20

// A Cut makes a journal shorter while it is written. In its place comes a file that has, of what there was when the cut
// began, no records of tasks that are done with:
//
//	BeginCut ──► Work, by any goroutine, beside the scheduler ──► EndCut: one rename
//
// A task is done with when it has ended once, and well, and has no id by which others may name it. A record [Cuts] has
// their numbers. Nodes of which nothing is left, and that no other task knows, go as well.
type Cut struct {
	journal, joblog part
	done            spans
	tails           int64 // bytes of output that went with them
}

// part is a file up to a size, and what it has become.
type part struct {
	*file
	size int64
	to   *os.File // nil: it stays
}

// BeginCut begins a cut, if the journal is more than twice as long as after the last one; else it returns nil. It must
// be called after Flush.
func (j *Journal) BeginCut() *Cut {
	if j.file.size < max(cmp.Or(j.MinCut, minCut), 2*j.kept) || j.Pending() > 0 {
		return nil
	}
	c := &Cut{journal: part{file: j.file, size: j.file.size}}
	if j.ownJoblog {
		c.joblog = part{file: j.joblog, size: j.joblog.size}
	}
	return c
}

// Work writes the files that come in the place of the old ones.
func (c *Cut) Work() error {
	var k keeper
	if err := eachRecord(c.journal.reader(), k.look); err != nil {
		return err
	}
	k.decide()
	err := c.journal.rewrite(func(w io.Writer) error { return k.write(c.journal.reader(), w) })
	if c.done, c.tails = k.done, k.tails; err == nil && c.joblog.file != nil {
		err = c.joblog.rewrite(func(w io.Writer) error { return k.writeJoblog(c.joblog.reader(), w) })
	}
	return err
}

// EndCut puts the files in place, with what was added to the old ones since the cut began, and returns how many bytes
// of output went. Failed is what Work has returned.
func (j *Journal) EndCut(c *Cut, failed error) (tails int64, err error) {
	defer c.journal.drop()
	defer c.joblog.drop()
	if err = cmp.Or(failed, j.Mine()); err == nil {
		err = c.journal.place()
	}
	j.kept = j.file.size // tried again when it is twice as long
	if err != nil {
		return 0, err
	}
	if c.joblog.to != nil {
		err = c.joblog.place()
	}
	return c.tails, err
}

// Cut cuts a journal that no scheduler writes yet.
func (j *Journal) Cut() error {
	c := j.BeginCut()
	if c == nil {
		return nil
	}
	_, err := j.EndCut(c, c.Work())
	return err
}

// All reports whether the tasks from first to last are in no other record any more.
func (c *Cut) All(first, last int64) bool { return c.done.all(first, last) }

func (p *part) reader() io.Reader { return io.NewSectionReader(p.f, 0, p.size) }

func (p *part) rewrite(do func(io.Writer) error) error {
	name := p.name
	made, err := os.CreateTemp(filepath.Dir(name), cutPrefix+filepath.Base(name))
	if err != nil {
		return err
	}
	p.to = made
	w := bufio.NewWriterSize(made, 256<<10)
	return errors.Join(do(w), w.Flush(), made.Sync())
}

// cutPrefix begins the names of files that are not in place yet.
const cutPrefix = ".cut-"

// removeCuts removes what is not to be put in place any more.
func (j *Journal) removeCuts() {
	left, _ := filepath.Glob(filepath.Join(j.Dir, cutPrefix+"*"))
	for _, name := range left {
		_ = os.Remove(name)
	}
}

// place puts a file that was rewritten in the place of the old one, unless that has no name any more.
func (p *part) place() error {
	name := p.name
	named, err := os.Stat(name)
	if err != nil {
		return err
	}
	if old, err := p.f.Stat(); err != nil || !os.SameFile(named, old) {
		return errors.Join(err, os.ErrNotExist)
	}
	to, err := os.OpenFile(p.to.Name(), os.O_RDWR|os.O_APPEND, 0)
	if err != nil {
		return err
	}
	if _, err = io.Copy(to, io.NewSectionReader(p.f, p.size, p.file.size-p.size)); err == nil {
		err = errors.Join(to.Chmod(named.Mode().Perm()), to.Sync())
	}
	var st os.FileInfo
	if err == nil {
		st, err = to.Stat()
	}
	if err == nil {
		err = os.Rename(p.to.Name(), name)
	}
	if err != nil {
		return errors.Join(err, to.Close())
	}
	p.replace(to, st.Size())
	// After a power failure, the old one would lack what is written from now on.
	dir, err := os.Open(filepath.Dir(name))
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

// drop closes the file, and removes it where it was not put in place.
func (p *part) drop() {
	if p.to != nil {
		_ = os.Remove(p.to.Name())
		_ = p.to.Close()
	}
}

// keeper decides what of a journal is kept.
type keeper struct {
	tasks map[int64]fate
	sends []sending
	ups   []up           // in the order of their records
	last  map[string]int // the last of a node, counted from 1
	parts []cutting
	done  spans
	tails int64
}

// cutting is what is cut of the records after one begin. It comes first, as a task may have lost its output since.
type cutting struct {
	cut   spans   // before
	ended []int64 // well, at first
}

// fate is what becomes of a task.
type fate uint8

const (
	unended fate = iota
	well         // it has ended once, and well
	kept
)

// sending is that a task was handed to a worker, by its place in ups.
type sending struct {
	seq int64
	up  int
}

// up is a worker with its record.
type up struct {
	knownWorker
	kept bool
}

// look is called with each record.
func (k *keeper) look(r *Record) error {
	if k.tasks == nil {
		k.tasks, k.last, k.parts = map[int64]fate{}, map[string]int{}, make([]cutting, 1)
	}
	part := &k.parts[len(k.parts)-1]
	switch r.Kind {
	case Begin:
		k.parts = append(k.parts, cutting{})
	case Cuts:
		more, err := parseSpans(r.Tasks)
		part.cut = part.cut.join(more)
		return err
	case Node:
		if r.Worker == nil {
			break
		}
		if r.What == Up {
			k.ups = append(k.ups, up{knownWorker: knownWorker{Identity: *r.Worker}})
			k.last[r.Node] = len(k.ups)
		}
		for i := range k.ups {
			if r.What == Gone && k.ups[i].is(r.Worker) {
				k.ups[i].gone = true
			}
		}
	case Send:
		return parseSeqs(r.Tasks, func(seq int64) {
			if at := k.last[r.Node]; at > 0 {
				k.sends = append(k.sends, sending{seq, at - 1})
			}
		})
	case Output:
		k.tasks[r.Seq] = kept
	case End:
		if k.tasks[r.Seq] == unended && r.What == wire.OK && r.ID == "" {
			k.tasks[r.Seq] = well
			part.ended = append(part.ended, r.Seq)
		} else {
			k.tasks[r.Seq] = kept
		}
	}
	return nil
}

// decide is called after the last record.
func (k *keeper) decide() {
	for _, s := range k.sends {
		if k.tasks[s.seq] != well {
			k.ups[s.up].kept = true
		}
	}
	for i := range k.ups {
		k.ups[i].kept = k.ups[i].kept || !k.ups[i].gone
	}
	for i := range k.parts {
		p := &k.parts[i]
		var more spans
		slices.Sort(p.ended)
		for _, seq := range p.ended {
			if k.tasks[seq] != well {
				continue
			}
			if n := len(more); n > 0 && more[n-1].Last+1 == seq {
				more[n-1].Last = seq
			} else {
				more = append(more, Span{seq, seq})
			}
		}
		p.cut, p.ended = p.cut.join(more), nil
		k.done = k.done.join(p.cut)
	}
}

// write writes the records that are kept.
func (k *keeper) write(from io.Reader, to io.Writer) error {
	e := json.NewEncoder(to)
	e.SetEscapeHTML(false)
	parts := 0
	cut := func() error {
		tasks := k.parts[parts].cut.String()
		if parts++; tasks == "" {
			return nil
		}
		return e.Encode(&Record{Kind: Cuts, Time: float64(clock.Now().UnixMilli()) / 1e3, Tasks: tasks, Format: CutFormat})
	}
	if err := cut(); err != nil {
		return err
	}
	nodes := 0
	return eachRecord(from, func(r *Record) error {
		switch r.Kind {
		case Begin:
			return errors.Join(e.Encode(r), cut())
		case Cuts:
			return nil
		case Send:
			var left []int64
			err := parseSeqs(r.Tasks, func(seq int64) {
				if k.tasks[seq] != well {
					left = append(left, seq)
				}
			})
			if err != nil || len(left) == 0 {
				return err
			}
			r.Tasks = FormatSeqs(left)
		case Node:
			if !k.keeps(r, &nodes) {
				return nil
			}
		case Try, End:
			if k.tasks[r.Seq] == well {
				k.tails += r.tails()
				return nil
			}
		}
		return e.Encode(r)
	})
}

// keeps reports whether the record of a node is kept. Nodes counts those that are up.
func (k *keeper) keeps(r *Record, nodes *int) bool {
	if r.Worker == nil {
		return false
	}
	switch r.What {
	case Up:
		*nodes++
		return k.ups[*nodes-1].kept
	case Gone:
		return slices.ContainsFunc(k.ups[:*nodes], func(u up) bool { return u.kept && u.is(r.Worker) })
	}
	return false
}

// writeJoblog writes the lines of a job log that are of tasks whose records are kept.
func (k *keeper) writeJoblog(from io.Reader, to io.Writer) error {
	in := bufio.NewReaderSize(from, 256<<10)
	for {
		line, err := in.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			err = nil
			if len(line) == 0 {
				return nil
			}
		}
		if err != nil {
			return err
		}
		field, _, _ := bytes.Cut(line, []byte("\t"))
		if seq, err := strconv.ParseInt(string(field), 10, 64); err == nil && k.tasks[seq] == well {
			continue
		}
		if _, err := to.Write(line); err != nil {
			return err
		}
	}
}
