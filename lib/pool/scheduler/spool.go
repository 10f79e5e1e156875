package scheduler

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ponos-tools/ponos/lib/base/clock"
	"github.com/ponos-tools/ponos/lib/pool/core"
	"github.com/ponos-tools/ponos/lib/pool/journal"
	"github.com/ponos-tools/ponos/lib/pool/wire"
	"github.com/ponos-tools/ponos/lib/pool/worker"
)

const spoolDir = worker.SpoolDir

// spools are the files in which orphans leave results.
type spools struct {
	files map[*core.Worker]*spoolFile
	next  time.Time
}

type spoolFile struct {
	path    string
	size    int64     // that was read
	touched time.Time // as the file system says
	ended   bool
}

// spoolPath is the file of a worker.
func (s *scheduler) spoolPath(w wire.Identity) string {
	pid := 0
	if len(w.Processes) > 0 {
		pid = w.Processes[0].PID
	}
	return filepath.Join(s.Journal.Dir, spoolDir, fmt.Sprintf("%s-%s-%d", w.Session, w.Node, pid))
}

// spoolIdentity is whose file it is.
func spoolIdentity(path string) (wire.Identity, bool) {
	name := filepath.Base(path)
	first, last := strings.IndexByte(name, '-'), strings.LastIndexByte(name, '-')
	pid, err := strconv.Atoi(name[last+1:])
	if err != nil || first == last {
		return wire.Identity{}, false
	}
	return wire.Identity{Session: name[:first], Node: name[first+1 : last], Processes: []wire.Process{{PID: pid}}, Finish: true}, true
}

func (p *spools) tick(s *scheduler) {
	if t := clock.Now(); t.After(p.next) {
		p.next = t.Add(time.Second)
		s.readSpools()
	}
}

// readSpools reads what is new in the files.
func (s *scheduler) readSpools() {
	for _, w := range s.core.Spooling() {
		if s.spools.files == nil {
			s.spools.files = map[*core.Worker]*spoolFile{}
		}
		f := s.spools.files[w]
		if f == nil {
			f = &spoolFile{path: s.spoolPath(w.Identity)}
			s.spools.files[w] = f
		}
		e := core.Spooled{Worker: w}
		f.read(&e)
		if w.Identity.Session != s.Setup.Session {
			e.Running = slices.DeleteFunc(e.Running, func(k wire.Key) bool {
				h := s.History.Get(k.Seq)
				return h.State != journal.Started || h.Attempt != k.Attempt
			})
			e.Done = slices.DeleteFunc(e.Done, func(d core.SpooledDone) bool { return s.History.AllCut(d.Done.Seq, d.Done.Seq) })
		}
		f.ended = f.ended || e.Ended
		s.handle(e)
	}
}

// tidy removes files that are no longer needed.
func (p *spools) tidy() {
	for w, f := range p.files {
		if f.ended || w.State == core.Gone {
			_ = os.Remove(f.path)
		}
	}
}

func (f *spoolFile) read(e *core.Spooled) {
	file, err := os.Open(f.path)
	if err != nil {
		e.Missing = true
		return
	}
	defer file.Close()
	if st, err := file.Stat(); err == nil && !st.ModTime().Equal(f.touched) {
		f.touched, e.Touched = st.ModTime(), true
	}
	if _, err := file.Seek(f.size, 0); err != nil {
		return
	}
	in := bufio.NewReader(file)
	for {
		line, err := in.ReadBytes('\n')
		if err != nil {
			return // an unfinished line is read again
		}
		f.size += int64(len(line))
		var m worker.Spool
		if json.Unmarshal(line, &m) != nil {
			continue
		}
		if m.Running != nil {
			e.Running, e.Listed = m.Running, true
		}
		if d := m.Done; d != nil {
			d.Out, d.Err = m.Out, m.Err
			one := core.SpooledDone{Done: d}
			if d.OutSize+d.ErrSize > 0 {
				for i := range one.Files {
					one.Files[i] = filepath.Join(filepath.Dir(f.path), fmt.Sprintf("%d.%d.%d", d.Seq, d.Attempt, i+1))
				}
				d.OutSize, d.ErrSize = 0, 0
			}
			e.Done = append(e.Done, one)
		}
		e.Ended = e.Ended || m.End
	}
}
