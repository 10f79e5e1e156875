package scheduler

import (
	"bytes"

	"github.com/ponos-tools/ponos/lib/pool"
	"github.com/ponos-tools/ponos/lib/pool/core"
	"github.com/ponos-tools/ponos/lib/pool/wire"
)

// live is the output of a task that is printed while it runs.
type live struct {
	worker *core.Worker
	tag    string
	rest   [2][]byte // lines that have not ended
	item   *item     // the task, with a result when it has ended
}

// maxPartLine limits what is kept of a line that does not end.
const maxPartLine = 1 << 20

// liveData takes what a running task has printed. Its node may send more when there
// is room for it.
func (p *printer) liveData(w *core.Worker, t *pool.Task, d *wire.Data) {
	stream := 0
	if d.Stderr {
		stream = 1
	}
	l := p.lives[d.Key]
	if l == nil {
		l = &live{worker: w, item: &item{}}
		if p.s.Tag {
			l.tag = tagOf(t)
		}
		p.lives[d.Key] = l
	}
	p.putLive(l, stream, d.Bytes)
	p.owed[w] += int64(len(d.Bytes))
	p.payCredit()
}

func (p *printer) payCredit() {
	if len(p.owed) == 0 || !p.room() {
		return
	}
	for w, n := range p.owed {
		p.s.message(w, &wire.Message{Credit: n})
	}
	clear(p.owed)
}

// putLive prints a piece, or the lines that it completes.
func (p *printer) putLive(l *live, stream int, b []byte) {
	if p.s.Live == LiveRaw {
		p.write1(l.item, stream, b)
		return
	}
	b = append(l.rest[stream], b...)
	l.rest[stream] = nil
	end := bytes.LastIndexByte(b, '\n') + 1
	if rest := b[end:]; len(rest) > maxPartLine {
		end = len(b)
	} else if len(rest) > 0 {
		l.rest[stream] = bytes.Clone(rest)
	}
	p.writeTagged(l, stream, b[:end])
}

func (p *printer) writeTagged(l *live, stream int, b []byte) {
	if len(b) == 0 {
		return
	}
	if l.tag == "" {
		p.write1(l.item, stream, b)
		return
	}
	var out bytes.Buffer
	for line := range bytes.Lines(b) {
		out.WriteString(l.tag)
		out.Write(line)
	}
	if b[len(b)-1] != '\n' {
		out.WriteByte('\n')
	}
	p.write1(l.item, stream, out.Bytes())
}

// endLive prints what was left of the output of an attempt that has ended.
func (p *printer) endLive(it *item) {
	l := p.lives[it.key()]
	delete(p.lives, it.key())
	if l == nil {
		l = &live{tag: it.tag, item: &item{}}
	}
	l.item.task, l.item.result = it.task, it.result
	if l.item.unprinted != "" {
		p.lose(l.item, l.item.unprinted)
	}
	if it.out.Empty() {
		p.flushLive(l)
		return
	}
	it.live, it.offset = l, it.out.From[0]
	p.push(it)
}

func (p *printer) flushLive(l *live) {
	for i, b := range l.rest {
		p.writeTagged(l, i, b)
	}
	l.rest = [2][]byte{}
}

// lostLive prints what is known of tasks whose node is gone.
func (p *printer) lostLive(w *core.Worker) {
	for key, l := range p.lives {
		if l.worker == w {
			p.flushLive(l)
			delete(p.lives, key)
		}
	}
	delete(p.owed, w)
}
