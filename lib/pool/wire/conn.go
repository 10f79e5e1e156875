package wire

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
)

// Writer sends messages. Messages that are sent during a write are written together by the next one,
// so that a busy connection needs few writes.
type Writer struct {
	w      io.Writer
	mu     sync.Mutex
	ready  sync.Cond
	next   bytes.Buffer
	due    bool // next is to be written now
	timer  *time.Timer
	err    error
	closed bool
	done   chan struct{}
}

// feed is how much of a task's standard input goes into one message.
const feed = 512 << 10

// MaxStdin limits the standard input of a task.
const MaxStdin = 1 << 30

// Delay is how long a message that may wait does.
const Delay = 5 * time.Millisecond

// soon is how much of what may wait is written at once.
const soon = 32 << 10

// NewWriter starts to write to w.
func NewWriter(w io.Writer) *Writer {
	c := &Writer{w: w, done: make(chan struct{})}
	c.ready.L = &c.mu
	c.timer = time.AfterFunc(time.Hour, c.Flush)
	c.timer.Stop()
	go c.run()
	return c
}

// Greet sends the greeting.
func (c *Writer) Greet(h *Hello) {
	b, err := json.Marshal(h)
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil {
		c.err = err
		return
	}
	c.next.WriteString("\n" + Magic)
	c.next.Write(b)
	c.next.WriteByte('\n')
	c.write()
}

// Send queues a message to be written at once. An error in writing shows in Err,
// and as the end of what is read.
func (c *Writer) Send(m *Message) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.add(m) {
		c.write()
	}
}

// SendSoon queues a message that may wait for others for the time of Delay. Each write wakes up all
// processes of the connection: over srun, these are four.
func (c *Writer) SendSoon(m *Message) {
	c.mu.Lock()
	defer c.mu.Unlock()
	first := c.next.Len() == 0
	switch {
	case !c.add(m):
	case c.next.Len() >= soon:
		c.write()
	case first:
		c.timer.Reset(Delay)
	}
}

// Flush has everything written now.
func (c *Writer) Flush() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.next.Len() > 0 {
		c.write()
	}
}

func (c *Writer) add(m *Message) bool {
	if c.err != nil || c.closed {
		return false
	}
	if m.Run != nil && len(m.Run.Stdin) > feed {
		// The length of a line is limited, so a long standard input is sent ahead in parts.
		run := *m.Run
		for len(run.Stdin) > feed && c.err == nil {
			c.err = marshal(&c.next, &Message{Feed: &Feed{Bytes: []byte(run.Stdin[:feed])}})
			run.Stdin = run.Stdin[feed:]
		}
		m = &Message{Run: &run}
	}
	if err := marshal(&c.next, m); err != nil {
		c.err = err
	}
	return true
}

func (c *Writer) write() {
	if !c.due {
		c.due = true
		c.ready.Signal()
	}
}

// Close writes what is left and returns the first error.
func (c *Writer) Close() error {
	c.mu.Lock()
	c.closed = true
	c.timer.Stop()
	c.ready.Signal()
	c.mu.Unlock()
	<-c.done
	return c.err
}

func (c *Writer) run() {
	defer close(c.done)
	var now bytes.Buffer
	for {
		c.mu.Lock()
		for !c.due && !c.closed {
			c.ready.Wait()
		}
		c.due = false
		if c.next.Len() == 0 || c.err != nil {
			c.mu.Unlock()
			return
		}
		now, c.next = c.next, now
		c.mu.Unlock()
		_, err := c.w.Write(now.Bytes())
		if now.Cap() > 8<<20 {
			now = bytes.Buffer{}
		}
		now.Reset()
		if err != nil {
			c.mu.Lock()
			c.err = err
			c.mu.Unlock()
			return
		}
	}
}

// ErrProtocol reports a worker of another version.
var ErrProtocol = errors.New("versions differ")

// ErrTooLong reports a line over MaxLine.
var ErrTooLong = errors.New("line is too long")

// Reader receives messages.
type Reader struct {
	r   *bufio.Reader
	fed []byte // the standard input of the task that comes next
}

// NewReader reads from r.
func NewReader(r io.Reader) *Reader { return &Reader{r: bufio.NewReaderSize(r, 64<<10)} }

// noise is how many bytes of other output are accepted before the greeting.
const noise = 64 << 10

// Greeting waits for the worker's greeting. Other lines before it are skipped;
// they are quoted in the error if it never comes.
func (c *Reader) Greeting() (*Hello, error) {
	var seen []string
	for read := 0; read < noise; {
		line, err := c.line()
		read += len(line) + 1
		if rest, ok := bytes.CutPrefix(line, []byte(Magic)); ok {
			h := new(Hello)
			if err := json.Unmarshal(rest, h); err != nil {
				return nil, fmt.Errorf("greeting cannot be read: %w", err)
			}
			if h.Protocol != Protocol {
				return nil, fmt.Errorf("%w: worker is version %q, protocol %d; expected protocol %d",
					ErrProtocol, h.Version, h.Protocol, Protocol)
			}
			return h, nil
		}
		if text := strings.TrimSpace(string(line)); text != "" {
			seen = append(seen, text)
		}
		if err != nil {
			return nil, quote("connection ended without a greeting", seen)
		}
	}
	return nil, quote("no greeting in the first 64 KiB", seen)
}

func quote(what string, seen []string) error {
	if len(seen) == 0 {
		return errors.New(what)
	}
	if len(seen) > 3 {
		seen = seen[len(seen)-3:]
	}
	text := strings.Join(seen, " | ")
	if len(text) > 300 {
		text = text[:300] + "..."
	}
	return fmt.Errorf("%s, but %q", what, text)
}

// Next returns the next message. The end is io.EOF.
func (c *Reader) Next(m *Message) error {
	for {
		line, err := c.line()
		if err != nil {
			return err // what was cut off is not a message
		}
		if len(bytes.TrimSpace(line)) == 0 {
			continue
		}
		*m = Message{}
		if err := json.Unmarshal(line, m); err != nil {
			return fmt.Errorf("message cannot be read: %w", err)
		}
		if err := c.rest(m); err != nil {
			return err
		}
		switch {
		case m.Feed != nil && len(c.fed)+len(m.Feed.Bytes) > MaxStdin:
			return ErrTooLong
		case m.Feed != nil:
			c.fed = append(c.fed, m.Feed.Bytes...)
			continue
		case m.Run != nil && c.fed != nil:
			m.Run.Stdin, c.fed = Text(c.fed)+m.Run.Stdin, nil
		}
		return nil
	}
}

// rest reads the bytes that follow the line of a message.
func (c *Reader) rest(m *Message) error {
	for _, r := range m.raw() {
		n := *r.length
		*r.length = 0
		if n == 0 {
			continue
		}
		if n < 0 || n > MaxLine {
			return ErrTooLong
		}
		b := make([]byte, n+1)
		if _, err := io.ReadFull(c.r, b); err != nil {
			return err
		}
		if b[n] != '\n' {
			return errors.New("message cannot be read: its bytes have another length than it says")
		}
		*r.bytes = b[:n:n]
	}
	return nil
}

// Buffered reports whether more is there without waiting.
func (c *Reader) Buffered() bool {
	n := c.r.Buffered()
	b, _ := c.r.Peek(n)
	return bytes.IndexByte(b, '\n') >= 0
}

func (c *Reader) line() ([]byte, error) {
	line, err := c.r.ReadSlice('\n')
	if err == nil {
		return line[:len(line)-1], nil
	}
	var long []byte
	for errors.Is(err, bufio.ErrBufferFull) {
		long = append(long, line...)
		if len(long) > MaxLine {
			return nil, ErrTooLong
		}
		line, err = c.r.ReadSlice('\n')
	}
	long = append(long, line...)
	if err != nil {
		return long, err
	}
	return long[:len(long)-1], nil
}
