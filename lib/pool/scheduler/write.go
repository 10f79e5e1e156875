package scheduler

import (
	"cmp"
	"errors"
	"io"
	"os"
	"syscall"

	"github.com/ponos-tools/ponos/lib/base/fault"
	"github.com/ponos-tools/ponos/lib/pool/core"
	"github.com/ponos-tools/ponos/lib/pool/wire"
)

type chunk struct {
	w  io.Writer
	b  []byte
	of *item // the end of the task, which may be to come

	file       string // that has the bytes, if they are not here
	from, size int64
	drop       bool // nothing to write: its worker need not keep the output any more
}

// under returns how much a chunk counts as being written. A file takes the whole limit.
func (c *chunk) under() int {
	switch {
	case c.file != "":
		return maxUnder
	case c.drop:
		return 1
	}
	return len(c.b)
}

// joins reports whether another chunk is written with this one.
func (c *chunk) joins(next *chunk) bool {
	return c.file == "" && !c.drop && next.file == "" && !next.drop && next.w == c.w && len(c.b) < 64<<10
}

// writeFile copies what is in a file. The first error is that of writing.
func (c *chunk) writeFile(buf []byte) (failed, missing error) {
	f, err := os.Open(c.file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	for done := int64(0); done < c.size; {
		n, err := f.ReadAt(buf[:min(int64(len(buf)), c.size-done)], c.from+done)
		if _, err := c.w.Write(buf[:n]); err != nil {
			return err, nil
		}
		if done += int64(n); n == 0 {
			return nil, cmp.Or(err, io.ErrUnexpectedEOF)
		}
	}
	return nil, nil
}

func (p *printer) write1(it *item, stream int, b []byte) {
	w := p.s.Stdout
	if stream == 1 {
		w = p.s.Stderr
	}
	p.add(chunk{w: w, b: b, of: it})
}

func (p *printer) add(c chunk) {
	p.mu.Lock()
	p.chunks = append(p.chunks, c)
	p.under += c.under()
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

// unwritten is why the output of a task could not be printed, or not all of it.
type unwritten struct {
	of  *item
	why string
}

// write is the goroutine that writes.
func (p *printer) write() {
	defer close(p.done)
	var buf []byte
	for {
		p.mu.Lock()
		for len(p.chunks) == 0 && !p.closed {
			p.ready.Wait()
		}
		chunks := p.chunks
		p.chunks = nil
		broken := p.err
		p.mu.Unlock()
		if len(chunks) == 0 {
			return
		}
		total := 0
		var lost []unwritten
		var printed []*item
		for i := 0; i < len(chunks); {
			c := chunks[i]
			j := i + 1
			for ; j < len(chunks) && c.joins(&chunks[j]); j++ {
				c.b = append(c.b[:len(c.b):len(c.b)], chunks[j].b...)
			}
			before, missing := broken, error(nil)
			switch {
			case c.drop:
				printed = append(printed, c.of)
			case broken != nil:
			case c.file != "":
				if buf == nil {
					buf = make([]byte, wire.Piece)
				}
				p.s.clearProgress()
				broken, missing = c.writeFile(buf)
			default:
				p.s.clearProgress()
				_, broken = c.w.Write(c.b)
			}
			if broken != nil && before == nil {
				p.broken(broken)
			}
			for _, c := range chunks[i:j] {
				total += c.under()
				if err := cmp.Or(broken, missing); err != nil && !c.drop && !errors.Is(err, syscall.EPIPE) {
					lost = append(lost, unwritten{c.of, fault.Text(err)})
				}
			}
			i = j
		}
		p.s.send(func(*scheduler) { p.written(total, lost, printed) })
	}
}

// broken reports that nothing more can be written.
func (p *printer) broken(err error) {
	p.mu.Lock()
	p.err = err
	p.mu.Unlock()
	p.s.send(func(s *scheduler) {
		s.handle(core.OutputBroken{Why: fault.Text(err), Closed: errors.Is(err, syscall.EPIPE)})
	})
}

// written continues after so many bytes were written.
func (p *printer) written(total int, lost []unwritten, printed []*item) {
	for i, l := range lost {
		if i > 0 && lost[i-1].of == l.of {
			continue
		}
		if l.of.unprinted = l.why; l.of.result != nil {
			p.lose(l.of, l.why)
		}
	}
	for _, it := range printed {
		k := it.key()
		p.s.message(it.out.Worker, &wire.Message{Drop: &k})
	}
	p.mu.Lock()
	p.under -= total
	p.mu.Unlock()
	p.payCredit()
	p.pump()
}
