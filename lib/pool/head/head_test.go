package head

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ponos-tools/ponos/lib/command"
	"github.com/ponos-tools/ponos/lib/pool"
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
	cut    func() // ends the connection
	down   bool   // cannot be reached
	broken bool   // nothing starts

	mu      sync.Mutex
	next    int
	running map[int]chan syscall.Signal
	ran     []string
	overlap bool
}

// processes are those of one worker at a machine.
type processes struct {
	*machine
	handle command.Handler
}

func (m *machine) Reap() {}

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

// lose ends the connection.
func (m *machine) lose() {
	m.mu.Lock()
	cut := m.cut
	m.mu.Unlock()
	if cut != nil {
		cut()
	}
}

func (m processes) Start(l command.Launch) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.broken {
		go m.tell(command.SpawnEvent{Tag: l.Tag, Err: syscall.ENOENT})
		return
	}
	m.next++
	pid, killed := m.next, make(chan syscall.Signal, 1)
	m.running[pid] = killed
	m.ran = append(m.ran, strings.Join(l.Argv[1:], " "))
	if len(m.running) > m.cpus {
		m.overlap = true
	}
	go func() {
		m.tell(command.SpawnEvent{Tag: l.Tag, PID: pid})
		seconds, _ := strconv.ParseFloat(l.Argv[1], 64)
		e := command.SpawnEvent{Tag: l.Tag, PID: pid, Ended: true}
		select {
		case <-time.After(time.Duration(seconds * float64(time.Second))):
			if len(l.Argv) > 2 {
				n, _ := strconv.Atoi(l.Argv[2])
				e.Status = syscall.WaitStatus(n << 8)
			}
		case s := <-killed:
			e.Status = syscall.WaitStatus(s)
		}
		m.mu.Lock()
		delete(m.running, pid)
		m.mu.Unlock()
		m.tell(e)
	}()
}

func (m processes) tell(e command.SpawnEvent) {
	if next := m.handle(e); next != nil {
		m.Start(*next)
	}
}

// pipes is a connection in memory.
type pipes struct {
	io.Reader
	io.Writer
	close func()
	done  chan error
}

func (p *pipes) Close() error { p.close(); return <-p.done }

// lab is a head with nodes of that kind.
type lab struct {
	*testing.T
	dir   string
	nodes []*machine
	cfg   Config
	said  bytes.Buffer
	out   bytes.Buffer
	mu    sync.Mutex
}

func newLab(t *testing.T, cpus ...int) *lab {
	l := &lab{T: t, dir: t.TempDir()}
	for i, n := range cpus {
		m := &machine{name: fmt.Sprint("n", i+1), cpus: n}
		l.nodes = append(l.nodes, m)
		l.cfg.Nodes = append(l.cfg.Nodes, NodeSpec{Name: m.name})
	}
	l.cfg.Policy = Policy{
		ConnectTimeout: time.Minute, ConnectAtOnce: 8, MinNodes: 1, NodeTimeout: 2 * time.Minute, Reconnects: 3, LostRetries: 3,
		ReadAhead: 1000000, TermGrace: 20 * time.Second, TrackSeq: true,
	}
	l.cfg.Setup = wire.Setup{Dir: wire.Text(l.dir), Shell: "/bin/sh", Grace: 10, Silence: 120, Session: "s"}
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
	m.running = map[int]chan syscall.Signal{}
	toWorker, fromHead := io.Pipe()
	toHead, fromWorker := io.Pipe()
	p := &pipes{Reader: toHead, Writer: fromHead, done: make(chan error, 2)}
	var once sync.Once
	p.close = func() {
		once.Do(func() {
			fromHead.Close()
			toHead.CloseWithError(io.EOF)
			toWorker.CloseWithError(io.EOF)
			fromWorker.Close()
		})
	}
	m.cut = p.close
	var ids []pool.CPU
	for i := range m.cpus {
		ids = append(ids, pool.CPU{ID: i, Core: i})
	}
	go func() {
		_ = worker.Run(worker.Options{
			In: toWorker, Out: fromWorker,
			Processes: func(_ int, handle command.Handler) worker.Processes { return processes{m, handle} },
			Hello:     wire.Hello{Protocol: wire.Protocol, Host: m.name, PID: 1, CPUs: ids, Mem: 1 << 30}, Environ: []string{"PATH=/bin:/usr/bin"}, Temp: l.dir,
		})
		p.done <- nil
		p.done <- nil
		p.close()
	}()
	return p, nil
}

// run does the tasks, a line each, and returns how it went.
func (l *lab) run(tasks string) *Result {
	l.Helper()
	var err error
	if l.cfg.Journal, err = journal.Create(filepath.Join(l.dir, "run"), ""); err != nil {
		l.Fatal(err)
	}
	if l.cfg.History, err = journal.Load(filepath.Join(l.dir, "run")); err != nil {
		l.Fatal(err)
	}
	if !l.cfg.Serve {
		o := input.Options{Name: "in", Base: pool.Spec{Need: pool.Need{CPUs: 1}}}
		o.JSON = strings.HasPrefix(tasks, "{")
		l.cfg.Source = input.NewReader(strings.NewReader(tasks), o)
	}
	r := Run(l.Context(), l.cfg)
	if err := l.cfg.Journal.Close(); err != nil {
		l.Error(err)
	}
	for _, m := range l.nodes {
		if m.overlap {
			l.Errorf("node %s had more tasks than CPUs", m.name)
		}
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

func TestTasksRunInParallel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, 4, 2)
		began := time.Now()
		l.want(l.run(tasks(60, "sleep 10")), 60, 0, 0, 0)
		if d := time.Since(began); d > 102*time.Second || d < 100*time.Second {
			t.Errorf("took %v; want 100s: 6 at a time", d)
		}
	})
}

func TestShortTasksFollowEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, 3, 1)
		l.want(l.run(tasks(4000, "sleep 0.01")), 4000, 0, 0, 0)
		for seq, n := range l.ends() {
			if n != 1 {
				t.Errorf("task %d ended %d times", seq, n)
			}
		}
	})
}

func TestFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, 1, 1)
		l.cfg.Retries = 2
		l.want(l.run("sleep 1 3\nsleep 1\n"), 1, 1, 0, 1)
		if n := len(l.nodes[0].ran) + len(l.nodes[1].ran); n != 4 {
			t.Errorf("%d attempts; want 3 and 1", n)
		}
	})
}

func TestTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, 1)
		began := time.Now()
		l.want(l.run(`{"cmd":"sleep 1000","timeout":5}`+"\n"), 0, 1, 0, 1)
		if d := time.Since(began); d > 6*time.Second {
			t.Errorf("ended after %v", d)
		}
	})
}

func TestDependencies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, 4)
		r := l.run(`{"id":"c","after":["a","b"],"cmd":"sleep 1"}
{"id":"a","cmd":"sleep 5"}
{"id":"b","after":2,"cmd":"sleep 5"}
{"id":"x","cmd":"sleep 1 1"}
{"after":"x","cmd":"sleep 1"}
{"after":"nobody","cmd":"sleep 1"}
{"id":"a","cmd":"sleep 1"}
`)
		l.want(r, 3, 4, 0, 1)
		if got := strings.Join(l.nodes[0].ran, ", "); got != "5, 1 1, 5, 1" {
			t.Errorf("ran %s", got)
		}
		l.says(`it waits for "nobody", which never ends`)
		l.says(`id "a" is that of another task`)
	})
}

func TestWhatFitsNoNodeIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, 2, 4)
		l.want(l.run(`{"cmd":"sleep 1","cpus":5}
{"cmd":"sleep 1","cpus":4}
{"cmd":"sleep 1","mem":"2G"}
`), 1, 2, 0, 1)
		l.says("task 1: it fits no node: it wants 5 CPUs")
		l.says("task 3: it fits no node: it wants 1 CPUs, 2.0G")
	})
}

func TestLostNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, 2, 2)
		go func() {
			time.Sleep(15 * time.Second)
			l.nodes[0].lose()
		}()
		r := l.run(tasks(8, "sleep 10"))
		l.want(r, 8, 0, 0, 0)
		if r.Lost != 2 {
			t.Errorf("%d attempts lost; want 2", r.Lost)
		}
		l.says("node n1: lost with 2 tasks")
	})
}

func TestTaskThatKillsNodesIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, 1)
		l.cfg.Reconnects = 10
		stop := make(chan bool)
		go func() {
			for {
				select {
				case <-time.After(100 * time.Second):
					l.nodes[0].lose()
				case <-stop:
					return
				}
			}
		}()
		r := l.run(tasks(1, "sleep 1000"))
		close(stop)
		l.want(r, 0, 1, 0, 1)
		if r.Lost != 4 {
			t.Errorf("%d attempts lost; want 4", r.Lost)
		}
	})
}

func TestUnreachableNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, 1, 1)
		l.nodes[0].down = true
		l.want(l.run(tasks(90, "sleep 1")), 90, 0, 0, 0)
		l.says("node n1: not used: no route to host")
		l = newLab(t, 1)
		l.nodes[0].down = true
		l.want(l.run(tasks(3, "sleep 1")), 0, 0, 3, 3)
		l = newLab(t, 1, 1)
		l.nodes[0].down = true
		l.cfg.MinNodes = 2
		l.want(l.run(tasks(300, "sleep 1")), 0, 0, 300, 3)
	})
}

func TestBlackHole(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, 2, 2)
		go func() {
			time.Sleep(10500 * time.Millisecond)
			l.nodes[0].mu.Lock()
			l.nodes[0].broken = true
			l.nodes[0].mu.Unlock()
		}()
		l.want(l.run(tasks(100, "sleep 1")), 100, 0, 0, 0)
		l.says("node n1: gets nothing more: 5 tasks in a row could not be started")
	})
}

func TestDrainAndResume(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, 2)
		signals := make(chan os.Signal, 1)
		l.cfg.Signals = signals
		go func() {
			time.Sleep(25 * time.Second)
			signals <- syscall.SIGUSR1
		}()
		l.want(l.run(tasks(10, "sleep 10")), 6, 0, 4, 75)
		l.want(l.run(tasks(10, "sleep 10")), 4, 0, 0, 0)
		for seq, n := range l.ends() {
			if n != 1 {
				t.Errorf("task %d ended %d times", seq, n)
			}
		}
		if r := l.run(tasks(10, "sleep 11")); r.Exit != 2 || r.Err == nil {
			t.Errorf("another list: exit %d, %v", r.Exit, r.Err)
		}
	})
}

func TestEndOfTheJob(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, 2)
		ends := make(chan time.Time, 1)
		ends <- time.Now().Add(100 * time.Second)
		l.cfg.Ends, l.cfg.EndMargin, l.cfg.TimePerTask = ends, 10*time.Second, 20*time.Second
		began := time.Now()
		l.want(l.run(tasks(20, "sleep 20")), 8, 0, 12, 75)
		if d := time.Since(began); d > 81*time.Second {
			t.Errorf("took %v; want 80s: the fifth round would not end in time", d)
		}
		// What runs over its time is ended early enough to say so.
		l = newLab(t, 2)
		ends <- time.Now().Add(100 * time.Second)
		l.cfg.Ends, l.cfg.EndMargin = ends, 10*time.Second
		l.want(l.run(tasks(3, "sleep 200")), 0, 0, 3, 75)
		if len(l.ends()) != 0 {
			t.Errorf("ends %v; want none", l.ends())
		}
	})
}

func TestSignals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, tt := range []struct {
			send []os.Signal
			done int64
			exit int
		}{
			{[]os.Signal{syscall.SIGINT}, 2, 130},
			{[]os.Signal{syscall.SIGINT, syscall.SIGINT}, 0, 130},
			{[]os.Signal{syscall.SIGINT, syscall.SIGINT, syscall.SIGINT}, 0, 130},
			{[]os.Signal{syscall.SIGTERM}, 0, 143},
		} {
			l := newLab(t, 2)
			signals := make(chan os.Signal, 8)
			l.cfg.Signals = signals
			go func() {
				for _, s := range tt.send {
					time.Sleep(5 * time.Second)
					signals <- s
				}
			}()
			l.want(l.run(tasks(5, "sleep 60")), tt.done, 0, 5-tt.done, tt.exit)
		}
	})
}

func TestHalt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, tt := range []struct {
			halt         Halt
			done, failed int64
			exit         int
		}{
			{Halt{Fail: 1}, 1, 1, 1},
			{Halt{Fail: 1, Now: true}, 0, 1, 1},
			{Halt{Success: 1, Now: true}, 1, 1, 0},
			{Halt{Percent: 90}, 9, 1, 1},
		} {
			l := newLab(t, 2)
			l.cfg.Halt = tt.halt
			r := l.run("sleep 1 1\n" + tasks(9, "sleep 5"))
			if r.Done != tt.done || r.Failed != tt.failed || r.Exit != tt.exit {
				t.Errorf("%+v: %d done, %d failed, exit %d; want %d, %d, %d", tt.halt, r.Done, r.Failed, r.Exit, tt.done, tt.failed, tt.exit)
			}
		}
	})
}

func TestEvenTail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// Short tasks first, so that the nodes get tasks ahead; then long ones, which no
		// node may hoard.
		l := newLab(t, 2, 2)
		began := time.Now()
		l.want(l.run(tasks(40, "sleep 0.1")+tasks(4, "sleep 100")), 44, 0, 0, 0)
		if d := time.Since(began); d > 103*time.Second {
			t.Errorf("took %v; want 101s: all four at once", d)
		}
	})
}

// ask sends requests to a head that holds or serves.
func ask(requests chan<- *Request, r *Request) *Answer {
	got := make(chan *Answer, 1)
	r.Answer = func(a *Answer) { got <- a }
	r.Base = &pool.Spec{Need: pool.Need{CPUs: 1}}
	requests <- r
	return <-got
}

func TestHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, 2)
		requests := make(chan *Request)
		l.cfg.Hold, l.cfg.Requests = true, requests
		go func() {
			time.Sleep(time.Minute)
			a := ask(requests, &Request{Op: "list"})
			if len(a.Tasks) != 2 || a.Tasks[0].State != "held" {
				t.Errorf("list: %+v", a.Tasks)
			}
			ask(requests, &Request{Op: "retry", Seqs: []int64{1}})
			time.Sleep(time.Minute)
			if a := ask(requests, &Request{Op: "cancel", All: true}); a.Count != 2 {
				t.Errorf("cancelled %d", a.Count)
			}
		}()
		l.want(l.run("sleep 1 1\nsleep 1\nsleep 1 2\n"), 1, 2, 0, 1)
	})
}

func TestServe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, 2)
		requests := make(chan *Request)
		l.cfg.Serve, l.cfg.Requests = true, requests
		run := func(cmd string, cpus int) *Answer {
			o := &input.Object{Cmd: cmd}
			if err := o.Set(strconv.Itoa(cpus), "", "", ""); err != nil {
				t.Fatal(err)
			}
			return ask(requests, &Request{Op: "run", Task: o, Wait: true})
		}
		go func() {
			time.Sleep(time.Second)
			if a := run("sleep 5 4", 1); a.Result == nil || a.Result.Exit != 4 || a.Seq != 1 {
				t.Errorf("answer %+v", a)
			}
			if a := run("sleep 5", 3); !strings.Contains(a.Error, "fits no node") {
				t.Errorf("answer %+v", a)
			}
			if a := ask(requests, &Request{Op: "wait", Seqs: []int64{1}}); a.Result == nil || a.Result.Exit != 4 {
				t.Errorf("wait for what has ended: %+v", a)
			}
			if a := ask(requests, &Request{Op: "wait", Seqs: []int64{9}}); a.Error != "wait: there is no task 9" {
				t.Errorf("wait for nothing: %+v", a)
			}
			ask(requests, &Request{Op: "drain"})
		}()
		l.want(l.run(""), 0, 1, 0, 0)
	})
}

// TestStorm runs random tasks while nodes come and go at random: every task ends
// exactly once, and no CPU is ever given to two.
func TestStorm(t *testing.T) {
	for seed := range uint64(12) {
		synctest.Test(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 7))
			l := newLab(t, 1+r.IntN(4), 1+r.IntN(4), 4)
			l.cfg.LostRetries, l.cfg.Reconnects, l.cfg.Retries = 1000, 1000, 1
			var b strings.Builder
			for range 400 {
				status := 0
				if r.IntN(10) == 0 {
					status = 1
				}
				seconds := r.Float64() * 0.2
				if r.IntN(20) == 0 {
					seconds = 20
				}
				fmt.Fprintf(&b, "{\"cmd\":\"sleep %.3f %d\",\"cpus\":%d}\n", seconds, status, 1+r.IntN(4)*r.IntN(2))
			}
			stop, stopped := make(chan bool), make(chan bool)
			go func() {
				defer close(stopped)
				for {
					select {
					case <-stop:
						return
					case <-time.After(time.Duration(r.IntN(40)) * time.Second):
						l.nodes[r.IntN(len(l.nodes))].lose()
					}
				}
			}()
			res := l.run(b.String())
			close(stop)
			<-stopped
			if res.Done+res.Failed != 400 || res.Left != 0 {
				t.Errorf("seed %d: %+v\n%s", seed, res, &l.said)
			}
			ends := l.ends()
			for seq := int64(1); seq <= 400; seq++ {
				if ends[seq] != 1 {
					t.Errorf("seed %d: task %d ended %d times", seed, seq, ends[seq])
				}
			}
		})
	}
}
