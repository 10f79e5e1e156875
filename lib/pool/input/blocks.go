package input

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"github.com/ponos-tools/ponos/lib/base/fault"
	"github.com/ponos-tools/ponos/lib/pool"
)

// Cut says where a stream is cut into blocks.
type Cut struct {
	Size    int64  // bytes that are read for a block; it ends with the last record in them
	Records int    // records in a block, whatever their size; 0: as Size says
	Lines   int    // a record is so many lines; 0: as End says
	End     string // what a record ends with; empty: a block is cut anywhere
	Header  bool   // the first line is the beginning of every block
}

// Blocks makes a task of each block of a stream, which becomes its standard input.
type Blocks struct {
	Cut
	r      io.Reader
	name   string
	header []byte
	buf    []byte // what was read and not yet given out
	begun  bool
	eof    bool
	tmpl   *template
	spec   *pool.Spec
	seq    int64
}

// NewBlocks reads r, with the template and base of o. The template has no place for
// arguments.
func NewBlocks(r io.Reader, c Cut, o Options) (*Blocks, error) {
	if len(o.Template) == 0 {
		return nil, fault.Errorf(fault.Usage, "--pipe: a command is required")
	}
	if c.Lines > 0 && c.End != "\n" {
		return nil, fault.Errorf(fault.Usage, "--pipe: --max-lines cannot be combined with --recend")
	}
	if err := noOperators(o.Template, o.Quote); err != nil {
		return nil, err
	}
	s := syntax{mark: o.Mark, plus: o.Plus}
	b := &Blocks{Cut: c, r: r, name: o.Name}
	var err error
	if b.tmpl, err = newTemplate(o.Template, s, o.Shell, false); err != nil {
		return nil, err
	}
	if _, some := positions(b.tmpl.words); some {
		return nil, fault.Hint(
			fault.Errorf(fault.Usage, "--pipe: no argument to put in place of {}"),
			"the command reads its block from standard input")
	}
	spec := o.Base
	spec.Argv, spec.SlotMark = !b.tmpl.line, b.tmpl.slot
	b.spec = &spec
	return b, nil
}

// Ready is false: blocks are large, and each is taken when it is asked for.
func (b *Blocks) Ready() bool { return false }

// Next returns the task of the next block; io.EOF at the end.
func (b *Blocks) Next() (*pool.Task, error) {
	block, err := b.block()
	if err != nil {
		return nil, err
	}
	b.seq++
	t := &pool.Task{Seq: b.seq, Spec: b.spec, Extra: &pool.Extra{Stdin: string(b.header) + string(block)}}
	if t.Text, _, err = b.tmpl.fill(nil, b.seq); err != nil {
		return nil, fault.Wrap(fault.Usage, err)
	}
	return t, nil
}

func (b *Blocks) block() ([]byte, error) {
	if b.Header && !b.begun {
		lines := newRecords(b.r, b.name, &Options{})
		line, err := lines.next()
		switch {
		case errors.As(err, new(errLong)):
			return nil, fault.Errorf(fault.Usage, "%s: the header is longer than 1 MiB", b.name)
		case err != nil:
			return nil, err
		}
		b.begun, b.header, b.r = true, []byte(line+"\n"), lines.r
	}
	s := scan{cut: &b.Cut}
	for {
		if b.Records > 0 {
			if end := s.nth(b.buf); end > 0 {
				return b.take(end), nil
			}
		}
		if b.eof {
			if len(b.buf) == 0 {
				return nil, io.EOF
			}
			if end := s.last(b.buf); b.Records == 0 && b.Lines > 1 && end > 0 {
				return b.take(end), nil
			}
			return b.take(len(b.buf)), nil
		}
		n := b.Size
		if b.Records > 0 {
			n = 64 << 10
		} else if have := int64(len(b.buf)); have < b.Size {
			n -= have
		}
		if err := b.read(n); err != nil {
			return nil, err
		}
		if b.Records == 0 && !b.eof {
			if end := s.last(b.buf); end > 0 {
				return b.take(end), nil
			}
		}
	}
}

func (b *Blocks) take(n int) []byte {
	block := b.buf[:n]
	b.buf = b.buf[n:]
	return block
}

// read appends n bytes, or what is left.
func (b *Blocks) read(n int64) error {
	if int64(len(b.buf))+n > maxBlock {
		return fault.Errorf(fault.Usage, "%s: a block without the end of a record in it is longer than %d bytes", b.name, maxBlock)
	}
	have := len(b.buf)
	b.buf = append(b.buf, make([]byte, n)...)
	got, err := io.ReadFull(b.r, b.buf[have:])
	b.buf = b.buf[:have+got]
	switch {
	case errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF):
		b.eof = true
	case err != nil:
		return fmt.Errorf("%s: %w", b.name, err)
	}
	return nil
}

// maxBlock limits a block.
const maxBlock = 1 << 30

// scan looks for the ends of records.
type scan struct {
	cut   *Cut
	from  int // what is before was looked at
	count int // records there
}

// mark returns the text with which a record ends.
func (c *Cut) mark() []byte {
	if c.Lines > 0 {
		return []byte("\n")
	}
	return []byte(c.End)
}

// nth returns where a block with all its records ends, or 0.
func (s *scan) nth(buf []byte) int {
	mark := s.cut.mark()
	if len(mark) == 0 {
		return 0
	}
	want := s.cut.Records * max(1, s.cut.Lines)
	for {
		at := bytes.Index(buf[s.from:], mark)
		if at < 0 {
			s.from = max(s.from, len(buf)-len(mark)+1)
			return 0
		}
		s.from += at + len(mark)
		if s.count++; s.count == want {
			return s.from
		}
	}
}

// last returns where the last whole record ends, or 0.
func (s *scan) last(buf []byte) int {
	mark := s.cut.mark()
	switch {
	case len(mark) == 0:
		return len(buf)
	case s.cut.Lines > 1:
		found := 0
		for n := 0; ; n++ {
			at := bytes.IndexByte(buf[s.from:], '\n')
			if n > 0 && n%s.cut.Lines == 0 {
				found = s.from
			}
			if at < 0 {
				s.from = 0
				return found
			}
			s.from += at + 1
		}
	}
	if at := bytes.LastIndex(buf, mark); at >= 0 {
		return at + len(mark)
	}
	return 0
}
