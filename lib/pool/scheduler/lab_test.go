package scheduler

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/ponos-tools/ponos/lib/executor"
	"github.com/ponos-tools/ponos/lib/pool"
	"github.com/ponos-tools/ponos/lib/pool/core"
	"github.com/ponos-tools/ponos/lib/pool/input"
	"github.com/ponos-tools/ponos/lib/pool/journal"
	"github.com/ponos-tools/ponos/lib/pool/wire"
	"github.com/ponos-tools/ponos/lib/pool/worker"
)

// machine is a node whose processes are goroutines: a task is "SECONDS [STATUS]",
// and runs in the time of the test's bubble.
type machine struct {
	name   string
	cpus   int
	lab    *lab
	cut    func() // ends the connection
	part   func() // ends it as the scheduler sees it; the worker hears nothing
	down   bool   // cannot be reached
	broken bool   // nothing starts
	// stubborn tasks are ended by SIGKILL only.
	stubborn bool
	// fails says how a command ends instead, if it does, one at a time; may be nil.
	fails func() (time.Duration, bool)

	mu      sync.Mutex
	next    int
	running map[int]chan syscall.Signal
	ran     []string
	overlap bool
}

// processes are those of one worker there.
type processes struct {
	*machine
	handle executor.Handler
}

func (p processes) Reap() {}

func (p processes) tell(e executor.SpawnEvent) {
	if next := p.handle(e); next != nil {
		p.Start(*next)
	}
}

func (m *machine) Signal(pid int, sig syscall.Signal) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := m.running[pid]
	if c == nil {
		return syscall.ESRCH
	}
	if sig != syscall.SIGCONT {
		select {
		case c <- sig:
		default:
		}
	}
	return nil
}

// clear reports whether nothing runs of the workers before.
func (m *machine) clear(wire.Identity, bool) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.running) == 0
}

// lose ends the connection.
func (m *machine) lose() {
	m.mu.Lock()
	cut := m.cut
	m.mu.Unlock()
	if cut != nil {
		cut()
	}
}

// partition ends the connection without the worker noticing.
func (m *machine) partition() {
	m.mu.Lock()
	part := m.part
	m.mu.Unlock()
	if part != nil {
		part()
	}
}

func (p processes) Start(l executor.Launch) {
	m := p.machine
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.broken {
		go p.tell(executor.SpawnEvent{Tag: l.Tag, Err: syscall.ENOENT})
		return
	}
	m.next++
	pid, killed := m.next, make(chan syscall.Signal, 1)
	m.running[pid] = killed
	m.ran = append(m.ran, strings.Join(l.Argv[1:], " "))
	if len(m.running) > m.cpus {
		m.overlap = true
	}
	var seq string
	for _, kv := range l.Env {
		if v, ok := strings.CutPrefix(kv, "JOBPOOL_SEQ="); ok {
			seq = v
		}
	}
	m.lab.count(seq, 1)
	go func() {
		p.tell(executor.SpawnEvent{Tag: l.Tag, PID: pid})
		seconds, _ := strconv.ParseFloat(l.Argv[1], 64)
		e := executor.SpawnEvent{Tag: l.Tag, PID: pid, Ended: true}
		status := strings.Join(l.Argv[2:], "")
		if m.fails != nil {
			m.mu.Lock()
			d, fails := m.fails()
			m.mu.Unlock()
			if fails {
				seconds, status = d.Seconds(), "1"
			}
		}
		select {
		case <-time.After(time.Duration(seconds * float64(time.Second))):
			n, _ := strconv.Atoi(status)
			e.Status = syscall.WaitStatus(n << 8)
		case s := <-killed:
			if m.stubborn && s != syscall.SIGKILL {
				s = <-killed
			}
			e.Status = syscall.WaitStatus(s)
		}
		m.mu.Lock()
		delete(m.running, pid)
		m.mu.Unlock()
		m.lab.count(seq, -1)
		p.tell(e)
	}()
}

// pipes is a connection in memory.
type pipes struct {
	io.Reader
	io.Writer
	close func()
	done  chan struct{}
	apart atomic.Bool
}

func (p *pipes) Close() error {
	if p.apart.Load() {
		return errors.New("no route to host")
	}
	p.close()
	<-p.done
	return nil
}

func (p *pipes) Write(b []byte) (int, error) {
	if p.apart.Load() {
		return len(b), nil
	}
	return p.Writer.Write(b)
}
func (p *pipes) End() core.End { return core.Unknown }
func (p *pipes) Abort()        { p.Close() }
func (p *pipes) Leave()        { p.Close() }

// oneCPU is what a task needs.
var oneCPU = pool.Spec{Need: pool.Need{CPUs: 1}}

// lab is a scheduler with nodes of that kind.
type lab struct {
	*testing.T
	dir    string
	nodes  []*machine
	cfg    Config
	minCut int64 // see journal.Journal
	said   bytes.Buffer
	out    bytes.Buffer
	mu     sync.Mutex
	began  time.Time
	live   map[string]int // how often a task runs at present
	twice  bool
	// workers are those that have not ended.
	workers sync.WaitGroup
}

// count notes that a task starts or ends.
func (l *lab) count(seq string, n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.live[seq] += n; l.live[seq] > 1 {
		l.twice = true
	}
}

func newLab(t *testing.T, cpus ...int) *lab {
	l := &lab{T: t, dir: t.TempDir(), began: time.Now(), live: map[string]int{}}
	for i, n := range cpus {
		m := &machine{name: fmt.Sprint("n", i+1), cpus: n, lab: l}
		l.nodes = append(l.nodes, m)
		l.cfg.Nodes = append(l.cfg.Nodes, NodeSpec{Name: m.name})
	}
	l.cfg.Policy = Policy{ConnectAtOnce: 8, Policy: core.Policy{
		ConnectTimeout: time.Minute, MinNodes: 1, NodeTimeout: 2 * time.Minute, Reconnects: 3, LostRetries: 3,
		ReadAhead: 1000000, TermGrace: 20 * time.Second,
	}}
	l.cfg.Setup = wire.Setup{Dir: wire.Text(l.dir), Shell: "/bin/sh", Grace: 10, Lease: 132, Session: "s"}
	l.cfg.Stdout, l.cfg.Stderr = &l.out, &l.out
	l.cfg.Message = func(format string, args ...any) {
		l.mu.Lock()
		fmt.Fprintf(&l.said, format+"\n", args...)
		l.mu.Unlock()
	}
	l.cfg.Dial = l.dial
	return l
}

func (l *lab) dial(_ context.Context, spec NodeSpec) (Link, error) {
	var m *machine
	for _, n := range l.nodes {
		if n.name == spec.Name {
			m = n
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.down {
		return nil, errors.New("no route to host")
	}
	if m.running == nil {
		m.running = map[int]chan syscall.Signal{}
	}
	toWorker, fromScheduler := io.Pipe()
	toScheduler, fromWorker := io.Pipe()
	p := &pipes{Reader: toScheduler, Writer: fromScheduler, done: make(chan struct{})}
	var once sync.Once
	p.close = func() {
		once.Do(func() {
			fromScheduler.Close()
			toScheduler.CloseWithError(io.EOF)
			toWorker.CloseWithError(io.EOF)
			fromWorker.Close()
		})
	}
	m.cut = p.close
	m.part = func() {
		p.apart.Store(true)
		toScheduler.CloseWithError(io.EOF)
	}
	var ids []pool.CPU
	for i := range m.cpus {
		ids = append(ids, pool.CPU{ID: i, Core: i})
	}
	temp, err := os.MkdirTemp(l.dir, m.name)
	if err != nil {
		return nil, err
	}
	l.workers.Go(func() {
		_ = worker.Run(worker.Options{
			In: toWorker, Out: fromWorker, Processes: func(_ int, handle executor.Handler) executor.System { return processes{m, handle} },
			Hello: wire.Hello{Protocol: wire.Protocol, Host: m.name, PID: 1, CPUs: ids, Mem: 1 << 30, Kernel: m.name, Clock: int64(time.Since(l.began))}, Environ: []string{"PATH=/bin:/usr/bin"}, Temp: temp,
			Clock: func() int64 { return int64(time.Since(l.began)) }, Clear: m.clear,
		})
		close(p.done)
		p.close()
	})
	return p, nil
}

// run does the tasks, a line each, and returns how it went.
func (l *lab) run(tasks string) *Result {
	l.Helper()
	var err error
	if l.cfg.Journal, err = journal.Create(filepath.Join(l.dir, "run"), ""); err != nil {
		l.Fatal(err)
	}
	if l.cfg.Journal.MinCut = l.minCut; l.cfg.Serve {
		if err := l.cfg.Journal.Cut(); err != nil {
			l.Fatal(err)
		}
	}
	if l.cfg.History, err = journal.Load(filepath.Join(l.dir, "run")); err != nil {
		l.Fatal(err)
	}
	var list input.Tasks
	if !l.cfg.Serve {
		o := input.Options{Name: "in", Base: oneCPU}
		o.JSON = strings.HasPrefix(tasks, "{")
		list = input.NewReader(strings.NewReader(tasks), o)
	}
	if err := input.Begin(filepath.Join(l.dir, "run")); err != nil {
		l.Fatal(err)
	}
	l.cfg.Added = input.Grow(list, filepath.Join(l.dir, "run"), oneCPU, false)
	if err := l.cfg.Added.Forget(l.cfg.History.AllCut); err != nil {
		l.Fatal(err)
	}
	l.cfg.Source = l.cfg.Added
	r := Run(l.Context(), l.cfg)
	if err := l.cfg.Journal.Close(); err != nil {
		l.Error(err)
	}
	l.mu.Lock()
	twice := l.twice
	l.mu.Unlock()
	for _, m := range l.nodes {
		if m.overlap {
			l.Errorf("node %s had more tasks than CPUs", m.name)
		}
	}
	if twice {
		l.Error("a task ran twice at the same time")
	}
	return r
}

// ends returns how often each task has ended in the journal.
func (l *lab) ends() map[int64]int {
	b, err := os.ReadFile(filepath.Join(l.dir, "run", journal.File))
	if err != nil {
		l.Fatal(err)
	}
	out := map[int64]int{}
	for line := range strings.Lines(string(b)) {
		if strings.HasPrefix(line, `{"k":"end"`) {
			var seq int64
			_, rest, _ := strings.Cut(line, `"seq":`)
			fmt.Sscan(strings.SplitN(rest, ",", 2)[0], &seq)
			out[seq]++
		}
	}
	return out
}

func (l *lab) want(r *Result, done, failed, left int64, exit int) {
	l.Helper()
	if r.Done != done || r.Failed+r.Cancelled != failed || r.Left != left || r.Exit != exit {
		l.Errorf("%d done, %d failed, %d left, exit %d (%s); want %d, %d, %d, %d\n%s", r.Done, r.Failed+r.Cancelled, r.Left, r.Exit, r.Why, done, failed, left, exit, &l.said)
	}
}

func (l *lab) says(text string) {
	l.Helper()
	if !strings.Contains(l.said.String(), text) {
		l.Errorf("nothing said of %q:\n%s", text, &l.said)
	}
}

func tasks(n int, text string) string { return strings.Repeat(text+"\n", n) }
