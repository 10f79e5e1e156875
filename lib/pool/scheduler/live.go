package scheduler

import (
	"bytes"

	"github.com/ponos-tools/ponos/lib/pool/journal"
	"github.com/ponos-tools/ponos/lib/pool/wire"
)

// live is the output of a task that is printed while it runs.
type live struct {
	conn *conn
	tag  string
	rest [2][]byte // lines that have not ended
}

// maxPartLine bounds what is kept of a line that does not end.
const maxPartLine = 1 << 20

// liveOf returns the live output of an attempt.
func (p *printer) liveOf(c *conn, key wire.Key) *live {
	l := p.lives[key]
	if l == nil {
		l = &live{conn: c}
		if a := c.attempts[key.Seq]; a != nil && p.h.Tag {
			l.tag = tagOf(a.task)
		}
		p.lives[key] = l
	}
	return l
}

// liveData takes what a running task has printed. Its node may send more when there
// is room for it.
func (p *printer) liveData(c *conn, d *wire.Data) {
	if a := c.attempts[d.Seq]; a == nil || a.task.Attempt != d.Attempt {
		return
	}
	stream := 0
	if d.Stderr {
		stream = 1
	}
	p.putLive(p.liveOf(c, d.Key), stream, d.Bytes)
	p.owed[c] += int64(len(d.Bytes))
	p.payCredit()
}

func (p *printer) payCredit() {
	if len(p.owed) == 0 || !p.room() {
		return
	}
	for c, n := range p.owed {
		c.send(&wire.Message{Credit: n})
	}
	clear(p.owed)
}

// putLive prints a piece, or the lines that are whole with it.
func (p *printer) putLive(l *live, stream int, b []byte) {
	if p.h.Live == LiveRaw {
		p.write1(stream, b)
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
		p.write1(stream, b)
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
	p.write1(stream, out.Bytes())
}

// endLive prints what was left of the output of an attempt that has ended.
func (p *printer) endLive(r *journal.Record, out output, tag string) {
	key := wire.Key{Seq: r.Seq, Attempt: r.Attempt}
	l := p.lives[key]
	delete(p.lives, key)
	if l == nil {
		l = &live{tag: tag}
	}
	if out.empty() {
		p.flushLive(l)
		return
	}
	p.push(&item{out: out, key: key, live: l, offset: out.from[0]})
}

func (p *printer) flushLive(l *live) {
	for i, b := range l.rest {
		p.writeTagged(l, i, b)
	}
	l.rest = [2][]byte{}
}

// lostLive prints what is known of tasks whose node is gone.
func (p *printer) lostLive(c *conn) {
	for key, l := range p.lives {
		if l.conn == c {
			p.flushLive(l)
			delete(p.lives, key)
		}
	}
	delete(p.owed, c)
}
