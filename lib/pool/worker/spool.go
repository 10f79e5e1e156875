package worker

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/ponos-tools/ponos/lib/base/fault"
	"github.com/ponos-tools/ponos/lib/pool/wire"
)

// Spool is a line of the file in which a worker without a scheduler leaves results for the next one.
type Spool struct {
	Node    string     `json:"node,omitempty"` // the first line
	Session string     `json:"session,omitempty"`
	Running []wire.Key `json:"running,omitempty"` // what it lets end
	Done    *wire.Done `json:"done,omitempty"`
	Out     []byte     `json:"out,omitempty"` // what it printed, if it is not in files
	Err     []byte     `json:"err,omitempty"`
	End     bool       `json:"end,omitempty"`
}

// SpoolDir is the directory of these files below the run directory.
const SpoolDir = "spool"

// alive is how often the file is touched, so that others see that it is in use.
const alive = 5 * time.Second

type spool struct {
	w    *worker
	mu   sync.Mutex
	f    *os.File
	next time.Time
	used bool
}

func newSpool(w *worker) (*spool, error) {
	dir := filepath.Join(string(w.setup.Run), SpoolDir)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	name := fmt.Sprintf("%s-%s-%d", w.setup.Session, w.setup.Node, w.Hello.PID)
	f, err := os.OpenFile(filepath.Join(dir, name), os.O_CREATE|os.O_EXCL|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	s := &spool{w: w, f: f}
	s.write(&Spool{Node: w.setup.Node, Session: w.setup.Session})
	return s, nil
}

func (s *spool) write(line *Spool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	b, err := json.Marshal(line)
	if err == nil {
		_, _ = s.f.Write(append(b, '\n'))
	}
}

// begin records what is still to come when the scheduler is gone.
func (s *spool) begin(jobs map[wire.Key]*job) {
	if s == nil {
		return
	}
	s.used = true
	line := &Spool{Running: []wire.Key{}}
	for k := range jobs {
		line.Running = append(line.Running, k)
	}
	s.write(line)
}

// done keeps a result, with the output the scheduler would have fetched.
func (s *spool) done(d *wire.Done) {
	s.w.logs.mu.Lock()
	c := s.w.logs.held[d.Key]
	s.w.logs.mu.Unlock()
	if c != nil && !c.keep {
		for i := range c.path {
			err := copyFile(c.path[i], filepath.Join(filepath.Dir(s.f.Name()), fmt.Sprintf("%d.%d.%d", d.Seq, d.Attempt, i+1)))
			if err != nil && d.Lost == "" {
				d.Lost = wire.Text("spool: " + fault.Text(err))
			}
		}
	}
	s.write(&Spool{Done: d, Out: d.Out, Err: d.Err})
}

func copyFile(from, to string) error {
	b, err := os.Open(from)
	if err != nil {
		return err
	}
	defer b.Close()
	f, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.ReadFrom(b)
	return errors.Join(err, f.Close())
}

func (s *spool) tick(now time.Time) {
	if s == nil || now.Before(s.next) {
		return
	}
	s.next = now.Add(alive)
	clock := s.w.Clock()
	if os.Chtimes(s.f.Name(), now, now) == nil {
		s.w.lease.extend(clock + int64(spoolLease))
	}
}

// end closes the file; it is removed if it was not needed.
func (s *spool) end() {
	if s == nil {
		return
	}
	if s.used {
		s.write(&Spool{End: true})
	} else {
		os.Remove(s.f.Name())
	}
	s.f.Close()
}
