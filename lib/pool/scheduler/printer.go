package scheduler

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"

	"github.com/ponos-tools/ponos/lib/base/fault"
	"github.com/ponos-tools/ponos/lib/pool"
	"github.com/ponos-tools/ponos/lib/pool/core"
	"github.com/ponos-tools/ponos/lib/pool/journal"
	"github.com/ponos-tools/ponos/lib/pool/wire"
)

// Limits on what waits to be printed.
const (
	maxQueued  = 32 << 20 // bytes; more stops the start of tasks
	maxHeld    = 1000     // outputs that are still at their nodes
	maxUnder   = 4 << 20  // bytes that are being written to the terminal or file
	maxStored  = 16 << 20 // bytes out of order in memory; more goes to a file
	maxCollect = 8 << 20  // bytes of output that are returned for a request
)

// item is the output of one task.
type item struct {
	task    *pool.Task
	result  *core.Result
	out     core.Output
	tag     string
	collect func([2][]byte)
	stream  int
	offset  int64
	asked   bool
	got     [2][]byte
	cut     bool  // the line is not at its start
	live    *live // what came before was printed while the task ran
	// unprinted says why something could not be written, maybe before the task has ended.
	unprinted string
}

func (it *item) key() wire.Key { return it.result.Key }

func (it *item) length() int { return len(it.out.Bytes[0]) + len(it.out.Bytes[1]) }

// printer prints the output of tasks, one task at a time. The goroutine of the scheduler decides what
// to print, another one writes. Failures to print are reported to the core, for each task.
type printer struct {
	s       *scheduler
	queue   []*item
	bytes   int // in queue
	pulling int // in queue, to be fetched
	// With KeepOrder, by the numbers of tasks:
	stored  map[int64]*item
	memory  int
	spill   *os.File
	spillAt int64
	next    int64
	skips   map[int64]bool
	// With Live:
	lives map[wire.Key]*live
	owed  map[*core.Worker]int64 // bytes that a worker may send more when there is room

	mu     sync.Mutex
	ready  sync.Cond
	chunks []chunk
	under  int // bytes in chunks and being written
	closed bool
	err    error
	done   chan struct{}
}

func newPrinter(s *scheduler) *printer {
	p := &printer{
		s: s, stored: map[int64]*item{}, skips: map[int64]bool{}, next: 1,
		done: make(chan struct{}), lives: map[wire.Key]*live{}, owed: map[*core.Worker]int64{},
	}
	p.ready.L = &p.mu
	go p.write()
	return p
}

// print takes the output of a task that has ended.
func (p *printer) print(t *pool.Task, r *core.Result, out core.Output) {
	it := &item{task: t, result: r, out: out}
	if p.s.Tag {
		it.tag = tagOf(t)
	}
	if p.s.Live != LiveNone {
		p.endLive(it)
		return
	}
	if p.s.KeepOrder {
		p.inOrder(it)
		return
	}
	if !out.Empty() {
		p.push(it)
	}
}

// tagOf is what --tag prints before each line.
func tagOf(t *pool.Task) string { return cmp.Or(t.Tag, journal.Command(t)) + "\t" }

// collect has the output of a task returned.
func (p *printer) collect(t *pool.Task, r *core.Result, out core.Output, f func([2][]byte)) {
	if out.Worker == nil && out.Files[0] == "" {
		f(out.Bytes)
		return
	}
	p.push(&item{task: t, result: r, out: out, collect: f})
}

// discard forgets output that is not to be printed; output that was printed in part is completed.
func (p *printer) discard(r *core.Result, out core.Output) {
	if p.s.Live != LiveNone {
		p.endLive(&item{result: r, out: out})
		return
	}
	if out.Worker != nil {
		k := r.Key
		p.s.message(out.Worker, &wire.Message{Drop: &k})
	}
}

// skip notes that a task prints nothing.
func (p *printer) skip(seq int64) {
	if p.s.KeepOrder {
		p.skips[seq] = true
		p.advance()
	}
}

func (p *printer) inOrder(it *item) {
	if it.out.Empty() {
		p.skip(it.task.Seq)
		return
	}
	n := it.length()
	if n == 0 || p.memory+n <= maxStored || p.store(it) != nil {
		p.memory += n
	}
	p.stored[it.task.Seq] = it
	p.advance()
}

// store moves the bytes of an item to a file.
func (p *printer) store(it *item) error {
	if p.spill == nil {
		f, err := os.CreateTemp(p.s.Journal.Dir, ".order-")
		if err != nil {
			return err
		}
		_ = os.Remove(f.Name())
		p.spill = f
	}
	at := p.spillAt
	for _, b := range it.out.Bytes {
		if _, err := p.spill.WriteAt(b, at); err != nil {
			return err
		}
		at += int64(len(b))
	}
	it.offset = p.spillAt
	p.spillAt = at
	for i, b := range it.out.Bytes {
		it.out.Size[i] = int64(len(b))
	}
	it.out.Bytes = [2][]byte{}
	return nil
}

func (p *printer) advance() {
	for {
		it := p.stored[p.next]
		switch {
		case it != nil:
			delete(p.stored, p.next)
			p.unstore(it)
			p.push(it)
		case p.skips[p.next]:
			delete(p.skips, p.next)
		default:
			return
		}
		p.next++
	}
}

// unstore gets the bytes of an item back.
func (p *printer) unstore(it *item) {
	if it.out.Worker != nil || it.out.Size[0]+it.out.Size[1] == 0 {
		p.memory -= it.length()
		return
	}
	at := it.offset
	for i := range it.out.Bytes {
		it.out.Bytes[i] = make([]byte, it.out.Size[i])
		if _, err := p.spill.ReadAt(it.out.Bytes[i], at); err != nil {
			p.lose(it, fault.Text(err))
			it.out.Bytes[i] = nil
		}
		at += it.out.Size[i]
	}
	it.offset, it.out.Size = 0, [2]int64{}
}

// rest prints what is available although something before it is missing.
func (p *printer) rest() {
	for len(p.stored) > 0 {
		least := int64(-1)
		for place := range p.stored {
			if least < 0 || place < least {
				least = place
			}
		}
		p.next = least
		p.advance()
	}
}

func (p *printer) push(it *item) {
	p.queue = append(p.queue, it)
	p.bytes += it.length()
	if it.out.Worker != nil {
		p.pulling++
	}
	p.pump()
}

// pump continues as far as it can without waiting.
func (p *printer) pump() {
	for len(p.queue) > 0 && p.room() {
		it := p.queue[0]
		switch {
		case it.out.Worker != nil && p.s.conns[it.out.Worker] == nil:
			p.pulling--
			p.lose(it, "it was still at node "+it.out.Worker.Name()+" when that was lost")
		case it.out.Worker != nil && it.out.Near[0] != "" && it.tag == "" && it.live == nil && it.collect == nil:
			p.pulling--
			p.printNear(it)
		case it.out.Worker != nil:
			if !it.asked {
				p.ask(it)
			}
			return
		case it.out.Files[0] != "":
			p.copyFiles(it)
		default:
			for i, b := range it.out.Bytes {
				p.put(it, i, b)
			}
			p.bytes -= it.length()
		}
		p.pop()
	}
}

func (p *printer) pop() {
	it := p.queue[0]
	p.queue[0] = nil
	p.queue = p.queue[1:]
	if it.live != nil {
		p.flushLive(it.live)
	} else if it.collect != nil {
		it.collect(it.got)
	} else if it.cut && it.tag != "" {
		p.write1(it, it.stream, []byte("\n"))
	}
}

// lose tells the core that output of a task is lost.
func (p *printer) lose(it *item, why string) {
	if it.task == nil {
		return
	}
	p.s.handle(core.OutputLost{Task: it.task, Result: it.result, Why: why})
	if it.collect != nil && it.result.What == wire.OK { // the client also gets the failure
		it.result.What, it.result.Error = wire.OutputLost, wire.Text(why)
	}
}

// ask requests the next piece of an output.
func (p *printer) ask(it *item) {
	for it.stream < 2 && it.offset >= it.out.Size[it.stream] {
		it.stream++
		it.offset = it.out.From[1]
	}
	if it.stream == 2 {
		it.stream = 1
		p.pulling--
		k := it.key()
		p.s.message(it.out.Worker, &wire.Message{Drop: &k})
		p.pop()
		p.pump()
		return
	}
	it.asked = true
	p.s.message(it.out.Worker, &wire.Message{Get: &wire.Get{Key: it.key(), Stderr: it.stream == 1, Offset: it.offset}})
}

// data takes a piece that was requested.
func (p *printer) data(d *wire.Data) {
	if len(p.queue) == 0 {
		return
	}
	it := p.queue[0]
	if it.result == nil || it.key() != d.Key || !it.asked {
		return
	}
	it.asked = false
	if d.Error != "" || len(d.Bytes) == 0 {
		why := string(d.Error)
		if why == "" {
			why = fmt.Sprintf("%d bytes are missing at its node", it.out.Size[it.stream]-it.offset)
		}
		p.lose(it, why)
		it.offset = it.out.Size[it.stream]
	} else {
		it.offset += int64(len(d.Bytes))
		p.put(it, it.stream, d.Bytes)
	}
	if p.room() {
		p.ask(it)
	}
}

// lost gives up what was to be fetched from a worker.
func (p *printer) lost(w *core.Worker) {
	p.lostLive(w)
	var gone []*item
	kept := p.queue[:0]
	for _, it := range p.queue {
		if it.out.Worker != w {
			kept = append(kept, it)
			continue
		}
		p.pulling--
		gone = append(gone, it)
	}
	p.queue = kept
	for place, it := range p.stored {
		if it.out.Worker == w {
			gone = append(gone, it)
			delete(p.stored, place)
			p.skips[place] = true
		}
	}
	for _, it := range gone {
		p.lose(it, "it was still at node "+w.Name()+" when that was lost")
		if it.collect != nil {
			it.collect(it.got)
		}
	}
	p.advance()
	p.pump()
}

// needed are the workers that hold output to be printed.
func (p *printer) needed() map[*core.Worker]bool {
	out := map[*core.Worker]bool{}
	for _, it := range p.queue {
		out[it.out.Worker] = true
	}
	for _, it := range p.stored {
		out[it.out.Worker] = true
	}
	return out
}

// put writes a piece of a stream, with the tag before each line.
func (p *printer) put(it *item, stream int, b []byte) {
	if len(b) == 0 {
		return
	}
	if it.collect != nil {
		if room := maxCollect - len(it.got[stream]); room < len(b) {
			b = b[:room]
			p.lose(it, fmt.Sprintf("it is longer than %d MiB", maxCollect>>20))
		}
		it.got[stream] = append(it.got[stream], b...)
		return
	}
	if it.live != nil {
		p.putLive(it.live, stream, b)
		return
	}
	if it.tag == "" {
		p.write1(it, stream, b)
		return
	}
	if it.cut && it.stream != stream {
		p.write1(it, it.stream, []byte("\n"))
		it.cut = false
	}
	var out bytes.Buffer
	for line := range bytes.Lines(b) {
		if !it.cut {
			out.WriteString(it.tag)
		}
		out.Write(line)
		it.cut = line[len(line)-1] != '\n'
	}
	it.stream = stream
	p.write1(it, stream, out.Bytes())
}

func (p *printer) copyFiles(it *item) {
	for i, name := range it.out.Files {
		b, err := os.ReadFile(name)
		if err != nil {
			p.lose(it, fault.Text(err))
		}
		p.put(it, i, b)
		_ = os.Remove(name)
	}
}

// printNear prints the files of a worker of this machine.
func (p *printer) printNear(it *item) {
	for i, name := range it.out.Near {
		w := p.s.Stdout
		if i == 1 {
			w = p.s.Stderr
		}
		if n := it.out.Size[i] - it.out.From[i]; n > 0 {
			p.add(chunk{w: w, of: it, file: name, from: it.out.From[i], size: n})
		}
	}
	p.add(chunk{of: it, drop: true})
}

// busy reports whether something is still to be printed that can be.
func (p *printer) busy() bool {
	if len(p.queue) > 0 {
		return true
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.under > 0
}

// close prints what is left and returns the first error.
func (p *printer) close() error {
	p.mu.Lock()
	p.closed = true
	p.ready.Signal()
	p.mu.Unlock()
	for ended := false; !ended; {
		select {
		case <-p.done:
			ended = true
		case e := <-p.s.events:
			e(p.s)
		}
	}
	if p.spill != nil {
		p.spill.Close()
	}
	if errors.Is(p.err, syscall.EPIPE) {
		return nil
	}
	return p.err
}
