package core

import (
	"fmt"
	"slices"

	"github.com/ponos-tools/ponos/lib/pool"
	"github.com/ponos-tools/ponos/lib/pool/wire"
)

func (w *world) process(x *Worker) *process {
	for _, b := range w.nodes {
		for _, p := range b.processes {
			if p.worker == x && x != nil {
				return p
			}
		}
	}
	return nil
}

func (w *world) byIdentity(id *wire.Identity) *process {
	if id == nil {
		return nil
	}
	for _, b := range w.nodes {
		for _, p := range b.processes {
			if p.identity.Session == id.Session && len(id.Processes) > 0 && p.identity.Processes[0] == id.Processes[0] {
				return p
			}
		}
	}
	return nil
}

func (w *world) toWorker(x *Worker, m *wire.Message) {
	if p := w.process(x); p != nil && p.linked {
		p.inbox = append(p.inbox, m)
	}
}

func (w *world) connect(i int) {
	x := w.asked[i]
	w.asked = slices.Delete(w.asked, i, i+1)
	b := w.nodes[slices.IndexFunc(w.nodes, func(b *box) bool { return b.name == x.Name() })]
	if b.down {
		w.handle(NotConnected{Worker: x, Why: "no route to host"})
		return
	}
	w.pids++
	p := &process{id: w.pids, box: b, worker: x, linked: true, alive: true, running: map[wire.Key]*wire.Run{}, lease: w.now.Add(leaseTime)}
	p.identity = wire.Identity{Session: w.cfg.Session, Node: b.name, Kernel: b.name, Processes: []wire.Process{{PID: p.id}}}
	b.processes = append(b.processes, p)
	hello := &wire.Hello{Mem: 1 << 30, GPUs: []pool.GPU{{ID: "g", NUMA: -1}}, Kernel: b.name, Processes: p.identity.Processes}
	for id := range b.cpus {
		hello.CPUs = append(hello.CPUs, pool.CPU{ID: id, Core: id})
	}
	w.handle(Connected{x, hello})
}

// lost ends a connection as the core sees it.
func (w *world) lost(p *process, end End) {
	p.linked, p.outbox = false, nil
	w.handle(ConnectionLost{p.worker, "lost", end})
}

// stop is the end of a worker and of its tasks.
func (p *process) stop() {
	p.alive = false
	clear(p.running)
	p.queue, p.inbox, p.outbox = nil, nil, nil
}

// stopAlone is the end of a worker that has lost its scheduler. If that is gone as well, nobody
// knows what tasks of other nodes have started here: that ends with their commands.
func (p *process) stopAlone() {
	p.stop()
	if p.worker == nil && !slices.ContainsFunc(p.box.processes, func(q *process) bool { return q.alive }) {
		clear(p.box.remnants)
	}
}

// deliver lets a worker have the next message.
func (w *world) deliver(p *process) {
	m := p.inbox[0]
	p.inbox = p.inbox[1:]
	switch {
	case m.Run != nil && m.Run.Again:
		if i := slices.IndexFunc(p.queue, func(r *wire.Run) bool { return r.Key == m.Run.Key }); i >= 0 {
			p.queue = slices.Delete(p.queue, i, i+1)
			w.begin(p, m.Run)
		}
	case m.Run != nil && m.Run.Follow:
		p.queue = append(p.queue, m.Run)
	case m.Run != nil:
		w.begin(p, m.Run)
	case m.Unrun != nil:
		if i := slices.IndexFunc(p.queue, func(r *wire.Run) bool { return r.Key == *m.Unrun }); i >= 0 {
			p.queue = slices.Delete(p.queue, i, i+1)
			p.outbox = append(p.outbox, wire.Message{Back: m.Unrun})
		}
	case m.Sweep != nil:
		delete(p.box.remnants, *m.Sweep)
		p.outbox = append(p.outbox, wire.Message{Swept: m.Sweep})
	case m.Kill != nil && m.Kill.Why == wire.Lost: // of a task of several nodes
		if p.running[m.Kill.Key] != nil {
			delete(p.running, m.Kill.Key)
			p.outbox = append(p.outbox, wire.Message{Done: &wire.Done{Key: m.Kill.Key, What: wire.Lost}})
		}
	case m.Bye:
		p.stop()
		if w.core.Finished() {
			p.linked = false
		} else {
			w.lost(p, Left)
		}
	}
	w.check()
}

func (w *world) begin(p *process, r *wire.Run) {
	p.running[r.Key] = r
	w.begun[r.Seq]++
	if len(r.Nodes) != r.Need.Width() && (r.Nodes != nil || r.Need.Nodes > 1) {
		w.broken = fmt.Sprintf("task %d needs %v, and has %v", r.Seq, r.Need, r.Nodes)
	}
	for _, b := range w.nodes {
		for i, part := range r.Nodes {
			if i > 0 && part.Node == b.name {
				b.remnants[r.Key] = r.Need.CPUs
			}
		}
	}
}

// end lets a task end.
func (w *world) end(p *process, k wire.Key, exit int) {
	r := p.running[k]
	delete(p.running, k)
	d := &wire.Done{Key: k, Exit: exit, Seconds: 0.001}
	if i := slices.IndexFunc(p.queue, func(q *wire.Run) bool { return q.Need == r.Need }); i >= 0 {
		next := p.queue[i]
		p.queue = slices.Delete(p.queue, i, i+1)
		d.Next = &next.Key
		w.begin(p, next)
	}
	p.outbox = append(p.outbox, wire.Message{Done: d})
	w.check()
}

// hear lets the core have the next message of a worker.
func (w *world) hear(p *process) {
	m := p.outbox[0]
	p.outbox = p.outbox[1:]
	w.handle(Received{p.worker, []wire.Message{m}})
}
