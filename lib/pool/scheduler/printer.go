package scheduler

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"syscall"

	"github.com/ponos-tools/ponos/lib/pool"
	"github.com/ponos-tools/ponos/lib/pool/journal"
	"github.com/ponos-tools/ponos/lib/pool/wire"
)

// output is what a task has printed: here, or still at its node.
type output struct {
	bytes [2][]byte
	conn  *conn // where to fetch it; nil: it is here
	size  [2]int64
	from  [2]int64  // what is before was printed already
	files [2]string // where it lies, from a worker that outlived its head
}

func (o *output) empty() bool {
	return o.conn == nil && len(o.bytes[0]) == 0 && len(o.bytes[1]) == 0 && o.files[0] == ""
}

func (o *output) length() int { return len(o.bytes[0]) + len(o.bytes[1]) }

// Bounds of what waits to be printed.
const (
	maxQueued  = 32 << 20 // bytes; more stops the start of tasks
	maxHeld    = 1000     // outputs that are still at their nodes
	maxUnder   = 1 << 20  // bytes on their way to the terminal or file
	maxStored  = 16 << 20 // bytes out of order in memory; more goes to a file
	maxCollect = 8 << 20  // bytes of output that are returned for a request
)

// item is the output of one task, in its turn.
type item struct {
	out     output
	key     wire.Key
	tag     string
	collect func([2][]byte)
	stream  int
	offset  int64
	asked   bool
	got     [2][]byte
	cut     bool  // the line is not at its start
	live    *live // what came before was printed while the task ran
}

// printer puts out what tasks have printed, a task at a time. The goroutine of
// the head decides, another one writes.
type printer struct {
	h       *head
	queue   []*item
	bytes   int // in queue
	pulling int // in queue, to be fetched
	// With KeepOrder:
	stored  map[int64]*item
	memory  int
	spill   *os.File
	spillAt int64
	next    int64
	skips   map[int64]bool
	// With Live:
	lives map[wire.Key]*live
	owed  map[*conn]int64 // bytes that a node may send more when there is room

	mu     sync.Mutex
	ready  sync.Cond
	chunks []chunk
	under  int // bytes in chunks and being written
	closed bool
	err    error
	done   chan struct{}
}

type chunk struct {
	w io.Writer
	b []byte
}

func newPrinter(h *head) *printer {
	p := &printer{h: h, stored: map[int64]*item{}, skips: map[int64]bool{}, next: 1, done: make(chan struct{}), lives: map[wire.Key]*live{}, owed: map[*conn]int64{}}
	p.ready.L = &p.mu
	go p.write()
	return p
}

// print takes the output of a task that has ended.
func (p *printer) print(t *pool.Task, r *journal.Record, out output) {
	it := &item{out: out, key: wire.Key{Seq: r.Seq, Attempt: r.Attempt}}
	if p.h.Tag {
		it.tag = tagOf(t)
	}
	if p.h.Live != LiveNone {
		p.endLive(r, out, it.tag)
		return
	}
	if p.h.KeepOrder {
		p.inOrder(it)
		return
	}
	if !out.empty() {
		p.push(it)
	}
}

// tagOf is what --tag prints before each line.
func tagOf(t *pool.Task) string { return cmp.Or(t.Tag, journal.Command(t)) + "\t" }

// collect has the output of a task returned.
func (p *printer) collect(_ *pool.Task, r *journal.Record, out output, f func([2][]byte)) {
	if out.conn == nil {
		f(out.bytes)
		return
	}
	p.push(&item{out: out, key: wire.Key{Seq: r.Seq, Attempt: r.Attempt}, collect: f})
}

// discard forgets output that nobody is to see; what was printed in part is printed
// whole.
func (p *printer) discard(r *journal.Record, out output) {
	if p.h.Live != LiveNone {
		p.endLive(r, out, "")
		return
	}
	if out.conn != nil {
		out.conn.send(&wire.Message{Drop: &wire.Key{Seq: r.Seq, Attempt: r.Attempt}})
	}
}

// skip notes that a task prints nothing.
func (p *printer) skip(seq int64) {
	if p.h.KeepOrder {
		p.skips[seq] = true
		p.advance()
	}
}

func (p *printer) inOrder(it *item) {
	if it.out.empty() {
		p.skip(it.key.Seq)
		return
	}
	n := it.out.length()
	if n == 0 || p.memory+n <= maxStored || p.store(it) != nil {
		p.memory += n
	}
	p.stored[it.key.Seq] = it
	p.advance()
}

// store moves the bytes of an item to a file.
func (p *printer) store(it *item) error {
	if p.spill == nil {
		f, err := os.CreateTemp(p.h.Journal.Dir, ".order-")
		if err != nil {
			return err
		}
		_ = os.Remove(f.Name())
		p.spill = f
	}
	for i, b := range it.out.bytes {
		if _, err := p.spill.WriteAt(b, p.spillAt); err != nil {
			return err
		}
		it.out.size[i] = int64(len(b))
		if i == 0 {
			it.offset = p.spillAt
		}
		p.spillAt += int64(len(b))
	}
	it.out.bytes = [2][]byte{}
	return nil
}

func (p *printer) advance() {
	for {
		it := p.stored[p.next]
		switch {
		case it != nil:
			delete(p.stored, p.next)
			if it.out.conn == nil && it.out.size[0]+it.out.size[1] > 0 {
				at := it.offset
				for i := range it.out.bytes {
					it.out.bytes[i] = make([]byte, it.out.size[i])
					_, _ = p.spill.ReadAt(it.out.bytes[i], at)
					at += it.out.size[i]
				}
				it.offset, it.out.size = 0, [2]int64{}
			} else {
				p.memory -= it.out.length()
			}
			p.push(it)
		case p.skips[p.next]:
			delete(p.skips, p.next)
		default:
			return
		}
		p.next++
	}
}

// rest prints what is there although something before it is missing.
func (p *printer) rest() {
	for len(p.stored) > 0 {
		least := int64(-1)
		for seq := range p.stored {
			if least < 0 || seq < least {
				least = seq
			}
		}
		p.next = least
		p.advance()
	}
}

func (p *printer) push(it *item) {
	p.queue = append(p.queue, it)
	p.bytes += it.out.length()
	if it.out.conn != nil {
		p.pulling++
	}
	p.pump()
}

// pump moves on as far as it goes without waiting.
func (p *printer) pump() {
	for len(p.queue) > 0 && p.room() {
		it := p.queue[0]
		switch {
		case it.out.conn != nil:
			if !it.asked {
				p.ask(it)
			}
			return
		case it.out.files[0] != "":
			p.copyFiles(it)
		default:
			for i, b := range it.out.bytes {
				p.put(it, i, b)
			}
			p.bytes -= it.out.length()
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
		p.write1(it.stream, []byte("\n"))
	}
}

// ask requests the next piece of an output.
func (p *printer) ask(it *item) {
	for it.stream < 2 && it.offset >= it.out.size[it.stream] {
		it.stream++
		it.offset = it.out.from[1]
	}
	if it.stream == 2 {
		it.stream = 1
		p.discardHeld(it)
		p.pop()
		p.pump()
		return
	}
	it.asked = true
	it.out.conn.send(&wire.Message{Get: &wire.Get{Key: it.key, Stderr: it.stream == 1, Offset: it.offset}})
}

func (p *printer) discardHeld(it *item) {
	p.pulling--
	k := it.key
	it.out.conn.send(&wire.Message{Drop: &k})
}

// data takes a piece that was requested.
func (p *printer) data(d *wire.Data) {
	if len(p.queue) == 0 {
		return
	}
	it := p.queue[0]
	if it.key != d.Key || !it.asked {
		return
	}
	it.asked = false
	if d.Error != "" || len(d.Bytes) == 0 {
		if d.Error != "" {
			p.h.Message("task %d: its output cannot be had: %s", d.Seq, d.Error)
		}
		it.offset = it.out.size[it.stream]
	} else {
		it.offset += int64(len(d.Bytes))
		p.put(it, it.stream, d.Bytes)
	}
	if p.room() {
		p.ask(it)
	}
}

// lost gives up what was to be fetched from a node.
func (p *printer) lost(c *conn) {
	p.lostLive(c)
	kept := p.queue[:0]
	for _, it := range p.queue {
		if it.out.conn != c {
			kept = append(kept, it)
			continue
		}
		p.pulling--
		p.h.Message("task %d: its output was lost with node %s", it.key.Seq, c.name())
		if it.collect != nil {
			it.collect(it.got)
		}
	}
	p.queue = kept
	for seq, it := range p.stored {
		if it.out.conn == c {
			p.h.Message("task %d: its output was lost with node %s", seq, c.name())
			delete(p.stored, seq)
			p.skips[seq] = true
		}
	}
	p.advance()
	p.pump()
}

// put writes a piece of a stream, with the tag before each line.
func (p *printer) put(it *item, stream int, b []byte) {
	if len(b) == 0 {
		return
	}
	if it.collect != nil {
		if room := maxCollect - len(it.got[stream]); room < len(b) {
			b = b[:room]
		}
		it.got[stream] = append(it.got[stream], b...)
		return
	}
	if it.live != nil {
		p.putLive(it.live, stream, b)
		return
	}
	if it.tag == "" {
		p.write1(stream, b)
		return
	}
	if it.cut && it.stream != stream {
		p.write1(it.stream, []byte("\n"))
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
	p.write1(stream, out.Bytes())
}

func (p *printer) copyFiles(it *item) {
	for i, name := range it.out.files {
		b, err := os.ReadFile(name)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			p.h.Message("task %d: its output cannot be had: %v", it.key.Seq, err)
		}
		p.put(it, i, b)
		_ = os.Remove(name)
	}
}

func (p *printer) write1(stream int, b []byte) {
	w := p.h.Stdout
	if stream == 1 {
		w = p.h.Stderr
	}
	p.mu.Lock()
	p.chunks = append(p.chunks, chunk{w, b})
	p.under += len(b)
	p.ready.Signal()
	p.mu.Unlock()
}

func (p *printer) room() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.under < maxUnder || p.err != nil
}

// choked reports whether too much waits to be printed to start more tasks.
func (p *printer) choked() bool { return p.bytes > maxQueued || p.pulling > maxHeld }

// busy reports whether something is still to be printed that can be.
func (p *printer) busy() bool {
	if len(p.queue) > 0 {
		return true
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.chunks) > 0 && p.err == nil
}

// write is the goroutine that writes.
func (p *printer) write() {
	defer close(p.done)
	for {
		p.mu.Lock()
		for len(p.chunks) == 0 && !p.closed {
			p.ready.Wait()
		}
		chunks := p.chunks
		p.chunks = nil
		broken := p.err != nil
		p.mu.Unlock()
		if len(chunks) == 0 {
			return
		}
		total := 0
		for i := 0; i < len(chunks); {
			b := chunks[i].b
			j := i + 1
			for j < len(chunks) && chunks[j].w == chunks[i].w && len(b) < 64<<10 {
				b = append(b[:len(b):len(b)], chunks[j].b...)
				j++
			}
			total += len(b)
			if !broken {
				p.h.clearProgress()
				if _, err := chunks[i].w.Write(b); err != nil {
					broken = true
					p.mu.Lock()
					p.err = err
					p.mu.Unlock()
					p.h.send(func(h *head) { h.outputBroken(err) })
				}
			}
			i = j
		}
		p.mu.Lock()
		p.under -= total
		p.mu.Unlock()
		p.h.send(func(*head) { p.resume() })
	}
}

// resume goes on after something was written.
func (p *printer) resume() {
	p.payCredit()
	if len(p.queue) > 0 && p.queue[0].out.conn != nil {
		if it := p.queue[0]; !it.asked && p.room() {
			p.ask(it)
		}
		return
	}
	p.pump()
}

// outputBroken ends the run when nobody reads what it prints.
func (h *head) outputBroken(err error) {
	if errors.Is(err, syscall.EPIPE) {
		h.why, h.exit = "the output was closed", 128+int(syscall.SIGPIPE)
		h.stop(killing, h.why, h.exit)
		return
	}
	h.Message("output: %v", err)
	h.stop(stopping, fmt.Sprintf("output: %v", err), 1)
}

// close prints what is left and returns the first error.
func (p *printer) close() error {
	p.mu.Lock()
	p.closed = true
	p.ready.Signal()
	p.mu.Unlock()
	<-p.done
	if p.spill != nil {
		p.spill.Close()
	}
	if errors.Is(p.err, syscall.EPIPE) {
		return nil
	}
	return p.err
}
