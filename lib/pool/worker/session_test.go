package worker

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/ponos-tools/ponos/lib/executor"
	"github.com/ponos-tools/ponos/lib/executor/proc"
	"github.com/ponos-tools/ponos/lib/pool"
	"github.com/ponos-tools/ponos/lib/pool/wire"
)

// As in jobpool, the main thread starts no processes: its children are those that were reparented.
func init() { runtime.LockOSThread() }

// long is how long a test waits for what it expects.
const long = time.Minute

// spawner starts the processes of all tests: it waits for all children of the process, so there can be
// one only, and no test starts processes in another way.
var spawner = sync.OnceValue(func() *executor.Spawner {
	if err := executor.AdoptOrphans(); err != nil {
		panic(err)
	}
	return executor.NewSpawner(2, func(e executor.SpawnEvent) *executor.Launch {
		o := e.Tag.(owned)
		e.Tag = o.tag
		return own(o.handle(e), o.handle)
	})
})

// owned is the tag of a process of one of the workers.
type owned struct {
	handle executor.Handler
	tag    any
}

func own(l *executor.Launch, handle executor.Handler) *executor.Launch {
	if l != nil {
		l.Tag = owned{handle, l.Tag}
	}
	return l
}

// processes are those of one worker.
type processes struct{ handle executor.Handler }

func (p processes) Start(l executor.Launch) { spawner().Start(*own(&l, p.handle)) }

func (p processes) Signal(pid int, sig syscall.Signal) error { return spawner().Signal(pid, sig) }

func (p processes) Reap() { spawner().Reap() }

// session is a scheduler for one worker with real processes.
type session struct {
	t        *testing.T
	to       *wire.Writer
	hangUp   func() error
	messages chan wire.Message
	said     []wire.Message // not yet expected by the test
	pids     map[int64]int  // of tasks that were reported to run
	end      chan error
	over     bool
	signals  chan os.Signal
	clock    atomic.Int64
	looked   atomic.Int64 // how often the worker has looked at the clock: at every tick
	dir      string       // in which tasks run
	temp     string       // of the worker
}

// open starts a worker. Its tasks return what they print.
func open(t *testing.T, edit func(*Options, *wire.Setup)) *session {
	t.Helper()
	s := &session{
		t: t, messages: make(chan wire.Message, 1000), end: make(chan error, 1), signals: make(chan os.Signal, 1),
		pids: map[int64]int{}, dir: t.TempDir(), temp: t.TempDir(),
	}
	s.clock.Store(int64(time.Hour))
	in, toWorker := io.Pipe()
	fromWorker, out := io.Pipe()
	o := Options{
		In: in, Out: out, Hello: wire.Hello{Protocol: wire.Protocol, Host: "host", PID: os.Getpid(), Clock: s.clock.Load()}, Temp: s.temp,
		Processes: func(_ int, handle executor.Handler) executor.System { return processes{handle} },
		Signals:   s.signals, Environ: []string{"PATH=/usr/local/bin:/usr/bin:/bin", "JOBPOOL_OLD=1", "WHO=worker"},
		Clock: func() int64 { s.looked.Add(1); return s.clock.Load() }, Orphans: proc.Orphans(),
	}
	setup := wire.Setup{
		Session: fmt.Sprintf("test-%d-%s", os.Getpid(), t.Name()), Node: "n1", Dir: wire.Text(s.dir), Shell: "/bin/sh", Threads: 1,
		Output: wire.Output{Return: true}, Grace: 30, Lease: 1e6,
	}
	if edit != nil {
		edit(&o, &setup)
	}
	spawner()
	s.to, s.hangUp = wire.NewWriter(toWorker), toWorker.Close
	go func() {
		s.end <- Run(o)
		out.Close()
		in.Close()
	}()
	r := wire.NewReader(fromWorker)
	greeted := make(chan error, 1)
	go func() {
		defer close(s.messages)
		_, err := r.Greeting()
		greeted <- err
		for err == nil {
			var m wire.Message
			if err = r.Next(&m); err == nil {
				s.messages <- m
			}
		}
		if !errors.Is(err, io.EOF) {
			t.Errorf("what the worker says cannot be read: %v", err)
		}
	}()
	if err := <-greeted; err != nil {
		t.Fatal(err)
	}
	s.send(&wire.Message{Setup: &setup})
	t.Cleanup(func() {
		if !s.over {
			s.bye()
		}
	})
	return s
}

func (s *session) send(m *wire.Message) { s.to.Send(m) }

// task is a task for one CPU.
func task(seq int64, text string) *wire.Run {
	return &wire.Run{Key: wire.Key{Seq: seq, Attempt: 1}, Text: wire.Text(text), Need: pool.Need{CPUs: 1}, Slot: 1}
}

func (s *session) run(r *wire.Run) { s.send(&wire.Message{Run: r}) }

// next returns the first message, of those that were not returned yet, that is accepted.
func (s *session) next(what string, accepts func(*wire.Message) bool) wire.Message {
	s.t.Helper()
	for i, m := range s.said {
		if accepts(&m) {
			s.said = slices.Delete(s.said, i, i+1)
			return m
		}
	}
	timeout := time.After(long)
	for {
		select {
		case m, open := <-s.messages:
			switch {
			case !open:
				s.t.Fatalf("%s: the worker has ended, and has not said that", what)
			case accepts(&m):
				return m
			}
			s.said = append(s.said, m)
		case <-timeout:
			s.t.Fatalf("%s: the worker has not said that, but %.2000s", what, fmt.Sprintf("%+v", s.said))
		}
	}
}

// done returns how a task has ended.
func (s *session) done(seq int64) *wire.Done {
	s.t.Helper()
	m := s.next(fmt.Sprintf("the end of task %d", seq), func(m *wire.Message) bool { return m.Done != nil && m.Done.Seq == seq })
	return m.Done
}

// runs waits until a task runs, and returns its process.
func (s *session) runs(seq int64) int {
	s.t.Helper()
	for s.pids[seq] == 0 {
		m := s.next(fmt.Sprintf("the start of task %d", seq), func(m *wire.Message) bool { return m.Started != nil })
		for _, st := range m.Started {
			s.pids[st.Seq] = st.PID
		}
	}
	return s.pids[seq]
}

// rest waits for the end of the worker, and returns what the test has not expected, without requests
// for leases.
func (s *session) rest() []wire.Message {
	s.t.Helper()
	s.over = true
	select {
	case err := <-s.end:
		if err != nil {
			s.t.Errorf("the worker has failed: %v", err)
		}
	case <-time.After(long):
		s.t.Fatal("the worker does not end")
	}
	_ = s.hangUp()
	for m := range s.messages {
		s.said = append(s.said, m)
	}
	return slices.DeleteFunc(s.said, func(m wire.Message) bool { return m.Renew != 0 })
}

// bye ends the worker.
func (s *session) bye() []wire.Message {
	s.t.Helper()
	s.send(&wire.Message{Bye: true})
	return s.rest()
}

// lose ends the connection.
func (s *session) lose() {
	s.t.Helper()
	_ = s.to.Close()
	_ = s.hangUp()
}

// ended says how a task has ended. Its directory is DIR.
func (s *session) ended(d *wire.Done) string {
	text := "ok"
	switch {
	case d.Signal != 0:
		text = fmt.Sprintf("signal %d", d.Signal)
	case d.Exit != 0:
		text = fmt.Sprintf("exit %d", d.Exit)
	}
	if d.What != "" {
		text = string(d.What) + " " + text
	}
	for _, x := range []struct {
		name  string
		value string
	}{{"", string(d.Error)}, {" out", string(d.Out)}, {" err", string(d.Err)}, {" lost", string(d.Lost)}} {
		if x.value != "" {
			text += fmt.Sprintf("%s %q", x.name, strings.ReplaceAll(x.value, s.dir, "DIR"))
		}
	}
	return text
}

// until waits for something to happen.
func until(t *testing.T, what string, happens func() bool) {
	t.Helper()
	for end := time.Now().Add(long); !happens(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("does not happen: %s", what)
		}
	}
}

// gone reports whether a process has ended.
func gone(pid int) bool {
	_, alive := proc.Started(pid)
	return !alive
}

// content returns what a file has; nothing if it does not exist.
func content(t *testing.T, dir, name string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	return string(b)
}

// ticks waits until the worker has looked at the time.
func ticks(s *session) {
	s.t.Helper()
	before := s.looked.Load() // a look may be under way, with the time of before
	until(s.t, "the worker looks at the time", func() bool { return s.looked.Load() > before+2 })
}

func itoa(n int) string { return strconv.Itoa(n) }

func atoi(s string) int {
	n, _ := strconv.Atoi(s)
	return n
}
