package pilot

import (
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ponos-tools/ponos/lib/base/clock"
	"github.com/ponos-tools/ponos/lib/base/command"
	"github.com/ponos-tools/ponos/lib/base/fault"
	"github.com/ponos-tools/ponos/lib/base/place"
)

// Listen opens the socket of a pilot at a node, in a directory that only the user can enter.
func Listen() (*net.UnixListener, error) {
	removeDead()
	dir, err := os.MkdirTemp("", "jobpool-")
	if err != nil {
		return nil, err
	}
	return net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(dir, "pilot.sock"), Net: "unix"})
}

// removeDead removes the directories of the user's killed pilots on this machine: no process listens
// there.
func removeDead() {
	names, _ := filepath.Glob(filepath.Join(os.TempDir(), "jobpool-*", "pilot.sock"))
	for _, name := range names {
		st, err := os.Lstat(filepath.Dir(name))
		// Another one may be about to listen.
		if err != nil || !st.IsDir() || !place.Mine(st) || clock.Since(clock.Modified(st)) < time.Minute {
			continue
		}
		c, err := net.Dial("unix", name)
		if err == nil {
			_ = c.Close()
		} else if errors.Is(err, syscall.ECONNREFUSED) {
			_ = os.RemoveAll(filepath.Dir(name))
		}
	}
}

// Close closes the socket and removes its directory.
func Close(l *net.UnixListener) {
	name := l.Addr().String()
	_ = l.Close()
	_ = os.RemoveAll(filepath.Dir(name))
}

// Host starts workers at a node.
type Host struct {
	Worker command.Cmd
	// HungUp is the signal that a worker gets when its bridge ends before it: Slurm ends steps in a way
	// that leaves their streams open, and what is written there is lost. 0: none.
	HungUp syscall.Signal
	// Complain is called with the errors of bridges that get no worker.
	Complain func(error)

	mu      sync.Mutex
	ended   bool
	workers map[*command.Work]bool
	serving sync.WaitGroup
}

// Serve starts a worker for each bridge that comes, with its standard streams, until the
// socket is closed.
func (h *Host) Serve(l *net.UnixListener) {
	for {
		c, err := l.AcceptUnix()
		if err != nil {
			return
		}
		h.serving.Go(func() {
			defer c.Close()
			status, err := h.attend(c)
			if errors.Is(err, io.EOF) {
				return // it has only checked whether a process listens
			}
			if err != nil {
				h.Complain(err)
				return
			}
			_, _ = c.Write([]byte{byte(status)})
		})
	}
}

// End has all workers end what they run, and waits for them, at most that long.
func (h *Host) End(limit time.Duration) {
	h.mu.Lock()
	h.ended = true
	h.mu.Unlock()
	h.Signal(syscall.SIGTERM)
	done := make(chan struct{})
	go func() {
		h.serving.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(limit):
		h.Signal(syscall.SIGKILL)
	}
}

// Signal sends a signal to all workers.
func (h *Host) Signal(s syscall.Signal) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for w := range h.workers {
		_ = w.Signal(s)
	}
}

// run starts a worker, unless all are to end.
func (h *Host) run(in, out *os.File) (*command.Work, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ended {
		return nil, errors.New("the job ends")
	}
	c := h.Worker
	c.Stdin, c.Stdout, c.DieWithParent = in, out, true
	w, err := command.StartWork(c)
	if err == nil {
		if h.workers == nil {
			h.workers = map[*command.Work]bool{}
		}
		h.workers[w] = true
	}
	return w, err
}

// attend runs a worker for a bridge and returns its exit status.
func (h *Host) attend(c *net.UnixConn) (int, error) {
	files, err := receive(c)
	if err != nil {
		return 0, err
	}
	w, err := h.run(files[0], files[1])
	for _, f := range files {
		_ = f.Close()
	}
	if err != nil {
		return 0, err
	}
	defer func() {
		h.mu.Lock()
		delete(h.workers, w)
		h.mu.Unlock()
	}()
	if h.HungUp != 0 {
		go func() {
			if _, err := c.Read(make([]byte, 1)); errors.Is(err, io.EOF) {
				_ = w.Signal(h.HungUp)
			}
		}()
	}
	return w.Status()
}

// streams is how many files a bridge hands over.
const streams = 2

// receive takes the standard input and output of a bridge.
func receive(c *net.UnixConn) ([]*os.File, error) {
	b, oob := make([]byte, 1), make([]byte, unix.CmsgSpace(4*streams))
	sent, n, _, _, err := c.ReadMsgUnix(b, oob)
	if err == nil && sent == 0 {
		err = io.EOF
	}
	if err != nil {
		return nil, err
	}
	messages, err := unix.ParseSocketControlMessage(oob[:n])
	if err != nil || len(messages) != 1 {
		return nil, errors.New("a bridge has sent no files")
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil || len(fds) != streams {
		return nil, errors.New("a bridge has sent no files")
	}
	files := make([]*os.File, len(fds))
	for i, fd := range fds {
		unix.CloseOnExec(fd)
		files[i] = os.NewFile(uintptr(fd), "bridge")
	}
	return files, nil
}

// Bridge hands its standard streams to the pilot of this node, waits for the worker that
// gets them, and returns its exit status.
func Bridge(socket string) (int, error) {
	c, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: socket, Net: "unix"})
	if err != nil {
		return 0, fault.Errorf(fault.Unavailable, "the pilot of this node does not answer: %w", err)
	}
	defer c.Close()
	if _, _, err := c.WriteMsgUnix([]byte{0}, unix.UnixRights(0, 1), nil); err != nil {
		return 0, err
	}
	// The end of the connection must be seen where the worker ends, and nowhere else.
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return 0, err
	}
	for fd := range streams {
		if err := syscall.Dup3(int(null.Fd()), fd, 0); err != nil {
			return 0, err
		}
	}
	b := make([]byte, 1)
	if _, err := io.ReadFull(c, b); err != nil {
		return 0, fault.Errorf(fault.Unavailable, "the pilot of this node is gone: %w", err)
	}
	return int(b[0]), nil
}
