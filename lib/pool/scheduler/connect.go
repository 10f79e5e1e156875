package scheduler

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"time"

	"github.com/ponos-tools/ponos/lib/pool/wire"
)

// connectAll opens all nodes at once, as far as that is good for ssh and Slurm.
func (h *head) connectAll() {
	gate := make(chan struct{}, max(1, h.ConnectAtOnce))
	h.opening = len(h.Nodes)
	// One a little after the other: they would only be in each other's way, and the
	// first task starts when the first is there.
	apart := 50 * time.Millisecond / time.Duration(runtime.NumCPU())
	for i, spec := range h.Nodes {
		n := &nodeState{spec: spec}
		h.nodes = append(h.nodes, n)
		time.AfterFunc(time.Duration(i)*apart, func() { h.connect(n, gate, h.ConnectTimeout) })
	}
}

// connect tries to reach a node until the time is up.
func (h *head) connect(n *nodeState, gate chan struct{}, limit time.Duration) {
	end := time.Now().Add(limit)
	pauses := []time.Duration{1, 2, 4, 8, 15}
	for try := 0; ; try++ {
		gate <- struct{}{}
		link, in, hello, err := h.dial(n.spec, time.Until(end))
		<-gate
		if err == nil {
			context.AfterFunc(h.ctx, func() { link.Close() }) // in case nobody takes it any more
			h.send(func(h *head) { h.nodeUp(n, link, in, hello) })
			return
		}
		pause := pauses[min(try, len(pauses)-1)] * time.Second
		var permanent Permanent
		if errors.As(err, &permanent) || errors.Is(err, wire.ErrProtocol) || time.Now().Add(pause).After(end) {
			h.send(func(h *head) { h.nodeFailed(n, err) })
			return
		}
		select {
		case <-time.After(pause):
		case <-h.ctx.Done():
			return
		}
	}
}

// dial opens one connection and waits for the worker's greeting.
func (h *head) dial(spec NodeSpec, limit time.Duration) (Link, *wire.Reader, *wire.Hello, error) {
	if !h.dials.begin() {
		return nil, nil, nil, context.Canceled
	}
	defer h.dials.wait.Done()
	link, err := h.Dial(h.ctx, spec)
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
	case <-h.ctx.Done():
		link.Abort()
		return nil, nil, nil, h.ctx.Err()
	}
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

// end lets none begin any more, and waits for those under way.
func (d *dials) end() {
	d.mu.Lock()
	d.ended = true
	d.mu.Unlock()
	d.wait.Wait()
}
