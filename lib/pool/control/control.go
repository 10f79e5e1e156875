// Package control is the socket in the run directory through which users and programs send requests
// to a running scheduler: JSON objects, one per line, in both directions. Only its owner may use it.
package control

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unicode/utf8"

	"github.com/ponos-tools/ponos/lib/base/fault"
	"github.com/ponos-tools/ponos/lib/pool"
	"github.com/ponos-tools/ponos/lib/pool/journal"
	"github.com/ponos-tools/ponos/lib/pool/scheduler"
)

// maxRequest limits the length of a line.
const maxRequest = 8 << 20

// maxAnswers limits the bytes that wait for a program that does not read.
const maxAnswers = 64 << 20

// ended is the answer to a request that arrives as the pool ends. It is also used when a connection
// ends without an answer, so that the user sees the same in both cases.
const ended = "the pool has ended"

// Server listens in a run directory.
type Server struct {
	Requests chan *scheduler.Request
	listener net.Listener
	path     string
	done     chan struct{}

	mu      sync.Mutex
	clients map[*client]bool
	served  sync.WaitGroup // by their writers
}

// at returns a path that is short enough for a socket, however long the directory's path is.
func at(dir string) (path string, close func(), err error) {
	d, err := os.Open(dir)
	if err != nil {
		return "", nil, err
	}
	return fmt.Sprintf("/proc/self/fd/%d/%s", d.Fd(), journal.Socket), func() { d.Close() }, nil
}

// Listen creates the socket. base is what tasks need by default.
func Listen(dir string, base pool.Spec) (*Server, error) {
	path, done, err := at(dir)
	if err != nil {
		return nil, err
	}
	defer done()
	_ = os.Remove(path) // of a scheduler that was killed: the run directory is locked
	old := umask(0o177)
	l, err := net.Listen("unix", path)
	umask(old)
	if err != nil {
		return nil, err
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	s := &Server{Requests: make(chan *scheduler.Request), listener: l, path: filepath.Join(dir, journal.Socket),
		done: make(chan struct{}), clients: map[*client]bool{}}
	go s.accept(base)
	return s, nil
}

// lastAnswers limits the time for which Close waits for programs that do not read.
const lastAnswers = time.Second

// Close removes the socket, and ends all connections when the answers that were given have been sent.
func (s *Server) Close() {
	close(s.done)
	s.listener.Close()
	_ = os.Remove(s.path)
	s.mu.Lock()
	for c := range s.clients {
		c.end()
	}
	s.mu.Unlock()
	sent := make(chan struct{})
	go func() { s.served.Wait(); close(sent) }()
	select {
	case <-sent:
	case <-time.After(lastAnswers):
	}
}

// add keeps a connection for Close, unless the pool has ended.
func (s *Server) add(c *client) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-s.done:
		return false
	default:
	}
	s.clients[c] = true
	s.served.Add(1)
	return true
}

func (s *Server) remove(c *client) {
	s.mu.Lock()
	delete(s.clients, c)
	s.mu.Unlock()
	s.served.Done()
}

func (s *Server) accept(base pool.Spec) {
	for {
		c, err := s.listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		} else if err != nil { // too many files are open: others will be closed
			time.Sleep(100 * time.Millisecond)
			continue
		}
		go s.serve(c, base)
	}
}

// client is one connection.
type client struct {
	c      net.Conn
	mu     sync.Mutex
	ready  sync.Cond
	out    []byte
	open   int // answers that are pending
	closed bool
}

// decode reads a request. What is not UTF-8 is an error, as it would be decoded to other text.
func decode(line []byte, r *scheduler.Request) error {
	if !utf8.Valid(line) {
		return errors.New("not valid UTF-8")
	}
	d := json.NewDecoder(bytes.NewReader(line))
	d.DisallowUnknownFields()
	return d.Decode(r)
}

func (s *Server) serve(conn net.Conn, base pool.Spec) {
	c := &client{c: conn}
	c.ready.L = &c.mu
	if !s.add(c) {
		conn.Close()
		return
	}
	go func() {
		defer s.remove(c)
		c.write()
	}()
	in := bufio.NewScanner(conn)
	in.Buffer(make([]byte, 0, 64<<10), maxRequest)
	for in.Scan() {
		if strings.TrimSpace(in.Text()) == "" {
			continue
		}
		r := &scheduler.Request{Base: &base, Answer: c.answer}
		if err := decode(in.Bytes(), r); err != nil {
			var who struct{ Tag json.RawMessage } // for which request the error is
			_ = json.Unmarshal(in.Bytes(), &who)
			c.expect(1)
			c.answer(&scheduler.Answer{Tag: who.Tag, Error: "request cannot be read: " + fault.Text(err)})
			continue
		}
		c.expect(max(1, len(r.Seqs)*btoi(r.Op == "wait")))
		select {
		case s.Requests <- r:
		case <-s.done:
			c.answer(&scheduler.Answer{Tag: r.Tag, Error: ended})
		}
	}
	if err := in.Err(); errors.Is(err, bufio.ErrTooLong) {
		c.expect(1)
		c.answer(&scheduler.Answer{Error: "request is longer than 8 MiB"})
	}
	c.mu.Lock() // requests that were received are still answered
	c.closed = true
	c.ready.Signal()
	c.mu.Unlock()
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

func (c *client) expect(n int) {
	c.mu.Lock()
	c.open += n
	c.mu.Unlock()
}

func (c *client) answer(a *scheduler.Answer) {
	b, err := json.Marshal(a)
	if err != nil {
		b, _ = json.Marshal(&scheduler.Answer{Tag: a.Tag, Error: fault.Text(err)})
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.open--
	if len(c.out) < maxAnswers {
		c.out = append(append(c.out, b...), '\n')
	} else {
		c.c.Close() // the program does not read
	}
	c.ready.Signal()
}

// end has the connection closed when its answers have been sent. Requests without one get none.
func (c *client) end() {
	c.mu.Lock()
	c.closed, c.open = true, 0
	c.ready.Signal()
	c.mu.Unlock()
}

func (c *client) write() {
	defer c.c.Close()
	for {
		c.mu.Lock()
		for len(c.out) == 0 && (!c.closed || c.open > 0) {
			c.ready.Wait()
		}
		out := c.out
		c.out = nil
		c.mu.Unlock()
		if len(out) == 0 {
			return
		}
		if _, err := c.c.Write(out); err != nil {
			return
		}
	}
}

// Client sends requests to the scheduler of a run directory.
type Client struct {
	c  Stream
	in *bufio.Reader
}

// Stream is a connection with a scheduler.
type Stream interface {
	io.ReadWriteCloser
	// CloseWrite closes the sending direction.
	CloseWrite() error
}

// NewClient uses an existing connection.
func NewClient(s Stream) *Client { return &Client{s, bufio.NewReaderSize(s, 64<<10)} }

// Dial connects to the scheduler of a run directory.
func Dial(dir string) (*Client, error) {
	path, done, err := at(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, NoRun(dir)
	}
	if err != nil {
		return nil, fault.Errorf(fault.Unavailable, "run directory: %w", err)
	}
	defer done()
	c, err := net.Dial("unix", path)
	if err == nil {
		return NewClient(c.(*net.UnixConn)), nil
	}
	if errors.Is(err, fs.ErrPermission) {
		return nil, fault.Hint(
			fault.Errorf(fault.Unavailable, "run directory %q: permission denied", dir),
			"only the user who started the run can control it")
	}
	err = fault.Errorf(fault.Unavailable, "no scheduler answers in %q", dir)
	own, _ := os.Hostname()
	if _, host := journal.Holder(dir); host != "" && host != own {
		away := &AwayError{Host: host, err: err}
		away.Job, away.Node = jobOf(dir)
		return nil, fault.Hint(away, "its scheduler is on "+host+": run this there")
	}
	return nil, fault.Hint(err, HowEnded(dir))
}

// NoRun is the error of a command for a run that there is not.
func NoRun(dir string) error {
	return fault.Hint(
		fault.Errorf(fault.Unavailable, "no run in %q", dir), "name its directory with --run, or call this where it was started")
}

// HowEnded says how the run of a directory has ended, as far as its journal can be read.
func HowEnded(dir string) string {
	text := "its run has ended"
	p, err := journal.ReadPast(dir)
	if err != nil {
		return text
	}
	text += fmt.Sprintf(": %d done, %d failed, %d cancelled", p.Done, p.Count(journal.TaskFailed), p.Count(journal.TaskCancelled))
	if n := p.Count(journal.TaskLeft); n > 0 {
		text += fmt.Sprintf(", %d left: repeat its command with --resume", n)
	}
	return text
}

// AwayError reports that the scheduler is on another host; Job and Node are empty unless that is a
// node of a Slurm job.
type AwayError struct {
	Host, Job, Node string
	err             error
}

func (e *AwayError) Error() string { return e.err.Error() }
func (e *AwayError) Unwrap() error { return e.err }

// jobOf returns the Slurm job of the scheduler of a run, and its node.
func jobOf(dir string) (job, node string) {
	b, err := os.ReadFile(filepath.Join(dir, journal.RunFile))
	var run struct {
		Job  string `json:"job"`
		Node string `json:"node"`
	}
	if err != nil || json.Unmarshal(b, &run) != nil || run.Node == "" {
		return "", ""
	}
	return run.Job, run.Node
}

// Send sends a request.
func (c *Client) Send(r *scheduler.Request) error {
	b, err := json.Marshal(r)
	if err == nil {
		_, err = c.c.Write(append(b, '\n'))
	}
	return err
}

// requests are lines that are sent to the scheduler.
type requests struct {
	in      *bufio.Reader
	to      io.Writer
	drained atomic.Bool // one of them asks for the end of the pool
}

// send copies the lines until their end.
func (r *requests) send() error {
	for begin := true; ; {
		part, err := r.in.ReadSlice('\n')
		whole := !errors.Is(err, bufio.ErrBufferFull)
		if begin && whole && bytes.Contains(part, []byte("drain")) {
			var q struct{ Op string }
			if json.Unmarshal(part, &q) == nil && q.Op == "drain" {
				r.drained.Store(true)
			}
		}
		if _, err := r.to.Write(part); err != nil {
			return err
		}
		if err != nil && whole {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
		begin = whole
	}
}

// Raw copies lines to the scheduler and answers to w, until all are answered. That the pool ends before
// the lines do is an error, unless one of them asked for it.
func (c *Client) Raw(r io.Reader, w io.Writer) error {
	lines := &requests{in: bufio.NewReaderSize(r, 64<<10), to: c.c}
	sent := make(chan error, 1)
	go func() {
		sent <- lines.send()
		_ = c.c.CloseWrite() // upon which the other side closes the connection
	}()
	_, err := io.Copy(w, c.in)
	if err != nil && !errors.Is(err, syscall.ECONNRESET) {
		return err
	}
	if lines.drained.Load() {
		return nil
	}
	if err != nil {
		return fault.Errorf(fault.Unavailable, ended)
	}
	select {
	case err := <-sent:
		return err
	default: // the pool has ended before the input
		return fault.Errorf(fault.Unavailable, ended)
	}
}

// Receive returns the next answer.
func (c *Client) Receive() (*scheduler.Answer, error) {
	line, err := c.in.ReadBytes('\n')
	if errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) {
		return nil, fault.Errorf(fault.Unavailable, ended)
	}
	if err != nil {
		return nil, fault.Wrap(fault.Unavailable, err)
	}
	a := new(scheduler.Answer)
	if err := json.Unmarshal(line, a); err != nil {
		return nil, err
	}
	switch a.Error {
	case "":
		return a, nil
	case ended:
		return nil, fault.Errorf(fault.Unavailable, ended)
	default:
		return nil, errors.New(a.Error)
	}
}

// Close ends the connection.
func (c *Client) Close() { c.c.Close() }
