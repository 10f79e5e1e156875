package scheduler

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"time"

	"github.com/ponos-tools/ponos/lib/base/fault"
	"github.com/ponos-tools/ponos/lib/pool/core"
	"github.com/ponos-tools/ponos/lib/pool/wire"
)

// conn is a connection to a worker.
type conn struct {
	link  Link
	w     *wire.Writer
	hello *wire.Hello
	runs  []*wire.Message // tasks, sent when the journal has them
	out   []*wire.Message // the rest
	left  chan struct{}   // closed when the worker has answered Leave, or is gone
}

// flush sends what is queued.
func (c *conn) flush() {
	for _, m := range c.runs {
		c.w.SendSoon(m)
	}
	clear(c.runs)
	c.runs = c.runs[:0]
	for _, m := range c.out {
		c.w.SendSoon(m)
	}
	clear(c.out)
	c.out = c.out[:0]
	c.w.Flush()
}

// message queues a message for a worker, if it is connected.
func (s *scheduler) message(w *core.Worker, m *wire.Message) {
	if c := s.conns[w]; c != nil {
		c.out = append(c.out, m)
	}
}

// connect reaches a worker. The first ones are reached at short intervals: all at once would slow
// each other down, and the first task starts as soon as the first worker is there.
func (s *scheduler) connect(w *core.Worker, within time.Duration) {
	apart := time.Duration(0)
	if s.opened < len(s.Nodes) {
		apart = time.Duration(s.opened) * 50 * time.Millisecond / time.Duration(runtime.NumCPU())
		s.opened++
	}
	spec := w.Node.Spec
	time.AfterFunc(apart, func() {
		select {
		case s.gate <- struct{}{}:
		case <-s.ctx.Done():
			return
		}
		link, in, hello, err := s.dial(spec, within)
		<-s.gate
		if err == nil {
			context.AfterFunc(s.ctx, func() { link.Close() }) // in case no goroutine takes it any more
			s.send(func(s *scheduler) {
				c := &conn{link: link, w: wire.NewWriter(link), hello: hello, left: make(chan struct{})}
				s.conns[w] = c
				s.handle(core.Connected{Worker: w, Hello: hello})
				go s.listen(w, c, in)
			})
			return
		}
		var permanent Permanent
		e := core.NotConnected{Worker: w, Why: fault.Text(err), Permanent: errors.As(err, &permanent) || errors.Is(err, wire.ErrProtocol)}
		s.send(func(s *scheduler) { s.handle(e) })
	})
}

// setup sends the first message to a worker.
func (s *scheduler) setup(e core.Setup) {
	c := s.conns[e.Worker]
	if !s.noteLease(e.Until) {
		s.apply(core.Close{Worker: e.Worker})
		s.handle(core.ConnectionLost{Worker: e.Worker, Why: "the run directory cannot be written"})
		return
	}
	setup := s.Setup
	setup.Node, setup.Pin = e.Worker.Name(), e.Pin
	setup.Threads = min(16, max(2, len(c.hello.CPUs)))
	setup.HideGPUs, setup.GPUVar = len(c.hello.GPUs) > 0, c.hello.GPUVar
	if e.Worker.Node.Spec.Local {
		setup.Env, setup.Near = nil, true
	}
	setup.Orphans = e.Orphans
	if s.Reach != nil {
		setup.Reach = s.Reach()
	}
	c.w.Send(&wire.Message{Setup: &setup})
}

// leave disconnects from workers that are to continue. Each of them confirms before its connection is
// cut, as srun or ssh may not report the cut.
func (s *scheduler) leave(conns []*conn) {
	for _, c := range conns {
		c.w.Send(&wire.Message{Leave: true})
	}
	late := time.After(2 * time.Second)
	for _, c := range conns {
		for here := true; here; {
			select {
			case e := <-s.events: // the ends of tasks that came before the answer
				e(s)
			case <-c.left:
				here = false
			case <-late:
				here, late = false, closed
			}
		}
	}
	for _, c := range conns {
		c.link.Leave()
	}
}

// closed is a timer that has run.
var closed = func() <-chan time.Time { c := make(chan time.Time); close(c); return c }()

// listen passes on what comes from a worker, until the connection ends.
func (s *scheduler) listen(w *core.Worker, c *conn, in *wire.Reader) {
	defer close(c.left)
	for {
		var batch []wire.Message
		var err error
		for len(batch) == 0 || len(batch) < 256 && in.Buffered() {
			var m wire.Message
			if err = in.Next(&m); err != nil {
				break
			}
			if m.Left {
				return
			}
			batch = append(batch, m)
		}
		if len(batch) > 0 {
			s.send(func(s *scheduler) { s.handle(core.Received{Worker: w, Messages: batch}) })
		}
		if err != nil {
			s.hungUp(w, c)
			return
		}
		if s.ctx.Err() != nil {
			return
		}
	}
}

// hungUp reports the end of a connection: the program behind it has mostly ended already, and its
// status says how.
func (s *scheduler) hungUp(w *core.Worker, c *conn) {
	why := "the connection ended"
	closed := make(chan error, 1)
	go func() {
		closed <- c.link.Close()
		_ = c.w.Close()
	}()
	tell := func(why string, end core.End) {
		s.send(func(s *scheduler) {
			delete(s.conns, w)
			s.handle(core.ConnectionLost{Worker: w, Why: why, End: end})
		})
	}
	select {
	case err := <-closed:
		if err != nil {
			why += ": " + fault.Text(err)
		} else if c.link.End() == core.Died {
			why = "its worker died"
		}
		tell(why, c.link.End())
	case <-time.After(200 * time.Millisecond):
		tell(why, core.Unknown)
		if err := <-closed; err != nil {
			s.send(func(s *scheduler) { s.Message("node %s: its connection ended: %v", w.Name(), fault.Text(err)) })
		}
	}
	s.workerEnded(w, c.link.End())
}

// workerEnded reports what is known of a worker whose connection has ended. First it reads what the
// worker has left in the run directory.
func (s *scheduler) workerEnded(w *core.Worker, end core.End) {
	if end == core.Unknown {
		return
	}
	s.send(func(s *scheduler) {
		s.readSpools()
		s.handle(core.WorkerEnded{Worker: w, End: end})
	})
}

// dial opens one connection and waits for the worker's greeting.
func (s *scheduler) dial(spec NodeSpec, limit time.Duration) (Link, *wire.Reader, *wire.Hello, error) {
	if !s.dials.begin() {
		return nil, nil, nil, context.Canceled
	}
	defer s.dials.wait.Done()
	link, err := s.Dial(s.ctx, spec)
	if err != nil {
		return nil, nil, nil, err
	}
	in := wire.NewReader(link)
	type greeting struct {
		hello *wire.Hello
		err   error
	}
	got := make(chan greeting, 1)
	go func() {
		hello, err := in.Greeting()
		got <- greeting{hello, err}
	}()
	late := time.NewTimer(max(limit, 5*time.Second))
	defer late.Stop()
	select {
	case g := <-got:
		if g.err != nil {
			if e := link.Close(); e != nil {
				g.err = fmt.Errorf("%w (%w)", g.err, e)
			}
			return nil, nil, nil, g.err
		}
		return link, in, g.hello, nil
	case <-late.C:
		link.Abort()
		return nil, nil, nil, errors.New("no answer in time")
	case <-s.ctx.Done():
		link.Abort()
		return nil, nil, nil, s.ctx.Err()
	}
}

// closeLinks ends all connections, at once.
func (s *scheduler) closeLinks() {
	var wait sync.WaitGroup
	for _, c := range s.conns {
		wait.Go(func() {
			_ = c.w.Close()
			_ = c.link.Close()
		})
	}
	wait.Wait()
}

// dials are the connections that are being opened.
type dials struct {
	mu    sync.Mutex
	wait  sync.WaitGroup
	ended bool
}

func (d *dials) begin() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.ended {
		d.wait.Add(1)
	}
	return !d.ended
}

// end prevents new ones, and waits for those that are being opened.
func (d *dials) end() {
	d.mu.Lock()
	d.ended = true
	d.mu.Unlock()
	d.wait.Wait()
}

// describe describes, for the first of several nodes, the others.
func describe(e core.Start) {
	for i := range e.Run.Nodes {
		spec := e.Worker.Node.Spec
		if i > 0 {
			spec = e.Others[i-1].Node.Spec
		}
		p := &e.Run.Nodes[i]
		p.Host, p.Job, p.Most, p.Group = cmp.Or(spec.Host, spec.Name), spec.Job, spec.Most, spec.Group
		p.Pilot, p.Local = spec.Socket != "", spec.Local
	}
}
