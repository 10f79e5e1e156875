package worker

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/ponos-tools/ponos/lib/base/fault"
	"github.com/ponos-tools/ponos/lib/pool/wire"
)

// capture is where the output of one task goes: standard output and standard
// error.
type capture struct {
	files  [2]descriptor
	path   [2]string // "": it is never requested
	shared bool      // the null device
	keep   bool      // the files are the user's
	named  bool      // and have names of their own: they stay, empty or not
}

// descriptor is an open file. os.File makes more system calls than are needed, which matters for many
// short tasks.
type descriptor int

const noFile descriptor = -1

func openFile(name string, flags int, mode uint32) (descriptor, error) {
	for {
		fd, err := syscall.Open(name, flags|syscall.O_CREAT|syscall.O_RDWR|syscall.O_APPEND|syscall.O_CLOEXEC, mode)
		switch {
		case errors.Is(err, syscall.EINTR):
		case err != nil:
			return noFile, &os.PathError{Op: "open", Path: name, Err: err}
		default:
			return descriptor(fd), nil
		}
	}
}

func (d descriptor) size() int64 {
	var st syscall.Stat_t
	if syscall.Fstat(int(d), &st) != nil {
		return 0
	}
	return st.Size
}

// room returns how many bytes are free on the file system of an open file, or else of a path; a large
// number if that is unknown.
func room(f descriptor, path string) int64 {
	var st syscall.Statfs_t
	err := error(syscall.ENOENT)
	switch {
	case f != noFile:
		err = syscall.Fstatfs(int(f), &st)
	case path != "":
		err = syscall.Statfs(path, &st)
	}
	if err != nil || st.Blocks == 0 {
		return 1 << 62
	}
	if os.Geteuid() == 0 {
		return int64(st.Bfree) * st.Bsize
	}
	return int64(st.Bavail) * st.Bsize
}

// full reports whether a file system with one of the files is full. A task may not have noticed, or
// not have reported, that it could not write.
func (c *capture) full() bool {
	for i, f := range c.files {
		if room(f, c.path[i]) <= 0 {
			return true
		}
	}
	return false
}

// ReadAt makes a descriptor an io.ReaderAt.
func (d descriptor) ReadAt(b []byte, at int64) (int, error) {
	n, err := syscall.Pread(int(d), b, at)
	switch {
	case err != nil:
		return 0, err
	case n < len(b):
		return n, io.EOF
	}
	return n, nil
}

// blank is an open file that is empty. To rename it costs far less than to create a new one, above
// all on a parallel file system, and tasks that print nothing leave no files.
type blank struct {
	file descriptor
	path string
}

// maxBlank limits how many are kept.
const maxBlank = 64

// logs is where the output of the tasks of this node goes.
type logs struct {
	w      *worker
	mode   wire.Output
	null   *capture
	free   []*capture // empty, to be used again
	blank  []blank    // logs of tasks that printed nothing, to be used again
	made   map[int64]bool
	number int

	merged [2]*os.File
	work   chan func() // what may take long, in order
	idle   sync.WaitGroup
	fulls  atomic.Int64 // how often there was no room for output
	freed  sync.Mutex   // one removal of output at a time

	mu   sync.Mutex
	held map[wire.Key]*capture // until the scheduler has fetched it
}

func newLogs(w *worker, mode wire.Output) (*logs, error) {
	l := &logs{w: w, mode: mode, made: map[int64]bool{}, held: map[wire.Key]*capture{}}
	null := descriptor(w.null.Fd())
	l.null = &capture{files: [2]descriptor{null, null}, shared: true}
	dir := filepath.Join(string(w.setup.Run), "logs")
	if mode.Files || mode.Merged {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, err
		}
	}
	if mode.Merged {
		for i, ext := range []string{".out", ".err"} {
			f, err := os.OpenFile(filepath.Join(dir, w.setup.Node+ext), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
			if err != nil {
				return nil, err
			}
			l.merged[i] = f
		}
	}
	l.work = make(chan func(), 1024)
	go func() {
		for f := range l.work {
			f()
			l.idle.Done()
		}
	}()
	return l, nil
}

func (l *logs) later(f func()) {
	l.idle.Add(1)
	l.work <- f
}

// flush waits for what is under way.
func (l *logs) flush() { l.idle.Wait() }

func (l *logs) close() {
	close(l.work)
	l.shrink()
}

// LogFile is the name of a task's log below the run directory.
func LogFile(seq int64, attempt int32, stderr bool) string {
	ext := ".out"
	if stderr {
		ext = ".err"
	}
	if attempt > 1 {
		ext = fmt.Sprintf(".%d%s", attempt, ext)
	}
	return fmt.Sprintf("logs/%03d/%06d%s", seq/1000, seq, ext)
}

// open makes the files for a task.
func (l *logs) open(j *job) (*capture, error) {
	key := j.run.Key
	if len(j.run.Files) == resultFiles {
		return openResults(j.run.Key, wire.Strings(j.run.Files))
	}
	if l.mode.Files {
		if shard := key.Seq / 1000; !l.made[shard] {
			dir := filepath.Dir(filepath.Join(string(l.w.setup.Run), LogFile(key.Seq, 1, false)))
			if err := os.MkdirAll(dir, 0o700); err != nil {
				return nil, err
			}
			l.made[shard] = true
		}
		c := &capture{files: [2]descriptor{noFile, noFile}, keep: true}
		for i := range c.files {
			c.path[i] = filepath.Join(string(l.w.setup.Run), LogFile(key.Seq, key.Attempt, i == 1))
			if l.rename(c, i) {
				continue
			}
			var err error
			if c.files[i], err = openFile(c.path[i], syscall.O_TRUNC, 0o600); err != nil {
				c.close()
				return nil, err
			}
		}
		return c, nil
	}
	if !l.mode.Return && !l.mode.Merged && !j.run.Capture {
		return l.null, nil
	}
	if n := len(l.free); n > 0 {
		c := l.free[n-1]
		l.free = l.free[:n-1]
		return c, nil
	}
	c := &capture{files: [2]descriptor{noFile, noFile}}
	for i := range c.files {
		l.number++
		c.path[i] = filepath.Join(l.w.Temp, fmt.Sprint(l.number))
		var err error
		if c.files[i], err = openFile(c.path[i], syscall.O_EXCL, 0o600); err != nil {
			c.discard()
			return nil, err
		}
	}
	return c, nil
}

// resultFiles are standard output, standard error, and the number of the task.
const resultFiles = 3

// openResults makes the files that a task has of its own.
func openResults(key wire.Key, names []string) (*capture, error) {
	c := &capture{files: [2]descriptor{noFile, noFile}, keep: true, named: true}
	for i, name := range names {
		err := os.MkdirAll(filepath.Dir(name), 0o777)
		if err == nil && i == len(c.files) {
			err = os.WriteFile(name, []byte(fmt.Sprint(key.Seq)), 0o666)
		} else if err == nil {
			c.path[i] = name
			c.files[i], err = openFile(name, syscall.O_TRUNC, 0o666)
		}
		if err != nil {
			c.close()
			return nil, err
		}
	}
	return c, nil
}

// rename makes a blank file the log of a stream.
func (l *logs) rename(c *capture, stream int) bool {
	n := len(l.blank)
	if n == 0 {
		return false
	}
	b := l.blank[n-1]
	l.blank = l.blank[:n-1]
	if os.Rename(b.path, c.path[stream]) != nil {
		_ = syscall.Close(int(b.file))
		return false
	}
	c.files[stream] = b.file
	return true
}

// keepBlank takes the files of an ended task that are empty, unless something that
// is still alive may write to them.
func (l *logs) keepBlank(c *capture) {
	for i, f := range c.files {
		if !c.keep || c.named || f == noFile || l.w.setup.Keep || l.w.exec.Strange() || len(l.blank) >= maxBlank || f.size() > 0 {
			continue
		}
		l.blank = append(l.blank, blank{f, c.path[i]})
		c.files[i] = noFile
	}
}

func (c *capture) close() {
	for i, f := range c.files {
		if f != noFile && !c.shared {
			_ = syscall.Close(int(f))
			c.files[i] = noFile
		}
	}
}

// discard removes output that is no longer needed.
func (c *capture) discard() {
	if c.shared {
		return
	}
	c.close()
	if c.keep {
		return
	}
	for _, p := range c.path {
		if p != "" {
			os.Remove(p)
		}
	}
}

// finish reports the end of a task with its output.
func (l *logs) finish(j *job, d *wire.Done) {
	c := j.out
	send := func() { l.w.report(d) }
	if c != nil && !c.shared && d.Lost == "" && (l.noteFull(c) || l.fulls.Load() != j.fulls) {
		d.Lost = "the disk is full where it is written: some of it may be missing"
	}
	switch {
	case c == nil || c.shared:
		l.inOrder(send)
		return
	case d.Failed() && (c.named || !l.mode.Files):
		d.Tails = c.tails()
	}
	switch {
	case l.mode.Merged:
		l.later(func() {
			l.merge(c, d)
			if l.mode.Return || j.run.Capture {
				l.inline(j, c, d)
			} else {
				l.remove(c)
			}
			send()
		})
		return
	case l.mode.Return || j.run.Capture:
		if !l.inline(j, c, d) && !c.keep {
			l.recycle(c)
		}
	default:
		l.keepBlank(c)
		c.close()
	}
	send()
}

// noteFull reports whether there is no room left for output: running tasks may not have noticed, or
// not have reported it.
func (l *logs) noteFull(c *capture) bool {
	l.freed.Lock()
	defer l.freed.Unlock()
	full := c.full()
	if full {
		l.fulls.Add(1)
	}
	return full
}

// remove removes the output of a task.
func (l *logs) remove(c *capture) {
	if c.shared || c.keep {
		c.discard() // which removes nothing
		return
	}
	l.removing(c, func() {
		// A program that is being started may have the file open until it runs; its content would
		// only be freed then, and the free space could not be attributed.
		for _, p := range c.path {
			if p != "" {
				_ = syscall.Truncate(p, 0)
			}
		}
		c.discard()
	})
}

// removing removes output of a task, and records if there was no room until then: before, or if all
// free space is what this has freed, as others may have filled the rest meanwhile.
func (l *logs) removing(c *capture, remove func()) {
	l.freed.Lock()
	defer l.freed.Unlock()
	full := c.full()
	var freed [2]int64 // bytes
	for i, f := range c.files {
		var st syscall.Stat_t
		if f != noFile && syscall.Fstat(int(f), &st) == nil || f == noFile && c.path[i] != "" && syscall.Stat(c.path[i], &st) == nil {
			freed[i] = st.Blocks * 512
		}
	}
	remove()
	for i, n := range freed {
		if n == 0 || full {
			continue
		}
		full = room(noFile, filepath.Dir(c.path[i])) <= freed[0]+freed[1]
	}
	if full {
		l.fulls.Add(1)
	}
}

// inOrder keeps reports in the order of the ends while some take longer.
func (l *logs) inOrder(f func()) {
	if l.mode.Merged {
		l.later(f)
		return
	}
	f()
}

// shrink closes what is kept to be used again.
func (l *logs) shrink() {
	for _, c := range l.free {
		c.discard()
	}
	l.free = nil
	for _, b := range l.blank {
		_ = syscall.Close(int(b.file))
		os.Remove(b.path)
	}
	l.blank = nil
}

// recycle uses the files of a task again, unless something that is still alive
// may write to them.
func (l *logs) recycle(c *capture) {
	if l.w.setup.Keep || l.w.exec.Strange() || len(l.free) > 64 {
		l.remove(c)
		return
	}
	if c.files[0].size()+c.files[1].size() > 0 {
		failed := false
		l.removing(c, func() {
			for _, f := range c.files {
				failed = failed || f.size() > 0 && syscall.Ftruncate(int(f), 0) != nil
			}
		})
		if failed {
			c.discard()
			return
		}
	}
	l.free = append(l.free, c)
}

// inline puts short output into the report; it reports whether there is more,
// which is then held for the scheduler to fetch.
func (l *logs) inline(j *job, c *capture, d *wire.Done) (held bool) {
	var size [2]int64
	for i, f := range c.files {
		size[i] = f.size()
	}
	from := j.sent
	rest := size[0] + size[1] - from[0] - from[1]
	if rest > wire.Inline || l.w.lost.Load() && size[0]+size[1] > 0 && l.w.spool != nil {
		d.OutSize, d.ErrSize = size[0], size[1]
		d.OutFrom, d.ErrFrom = from[0], from[1]
		if l.w.setup.Near {
			d.Files = wire.Texts(c.path[:])
		}
		c.close()
		l.mu.Lock()
		l.held[j.run.Key] = c
		l.mu.Unlock()
		return true
	}
	for i, dst := range []*[]byte{&d.Out, &d.Err} {
		if size[i] > from[i] {
			b := make([]byte, size[i]-from[i])
			n, err := c.files[i].ReadAt(b, from[i])
			if *dst = b[:n]; n < len(b) && d.Lost == "" {
				d.Lost = wire.Text(fmt.Sprintf("output cannot be read: %v", fault.Text(err)))
			}
		}
	}
	if c.keep || l.mode.Merged {
		l.keepBlank(c)
		l.remove(c)
	}
	return false
}

// get sends a piece of held output.
func (l *logs) get(g wire.Get) {
	l.mu.Lock()
	c := l.held[g.Key]
	l.mu.Unlock()
	l.later(func() {
		d := &wire.Data{Key: g.Key, Stderr: g.Stderr, Offset: g.Offset}
		if c == nil {
			d.Error = "its output is no longer kept"
		} else if b, err := piece(c.path[stream(g.Stderr)], g.Offset); err != nil {
			d.Error = wire.Text(fault.Text(err))
		} else {
			d.Bytes = b
		}
		l.w.out.Send(&wire.Message{Data: d})
	})
}

func stream(stderr bool) int {
	if stderr {
		return 1
	}
	return 0
}

func piece(path string, offset int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b := make([]byte, wire.Piece)
	n, err := f.ReadAt(b, offset)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return b[:n], err
}

func (l *logs) drop(k wire.Key) {
	l.mu.Lock()
	c := l.held[k]
	delete(l.held, k)
	l.mu.Unlock()
	if c != nil {
		l.remove(c)
	}
}

// merge appends the output of a task to the node's files.
func (l *logs) merge(c *capture, d *wire.Done) {
	for i, f := range l.merged {
		if _, err := io.Copy(f, io.NewSectionReader(c.files[i], 0, 1<<62)); err != nil && d.Lost == "" {
			d.Lost = wire.Text("log: " + fault.Text(err))
		}
	}
}

// tails are the ends of the streams, of which standard error gets the room that standard output leaves, and at
// least half.
func (c *capture) tails() (tails [2]wire.Tail) {
	for i, f := range c.files {
		tails[i].Size = f.size()
	}
	room := wire.TailSize - min(tails[0].Size, wire.TailSize/2)
	for _, i := range []int{1, 0} {
		b := make([]byte, min(tails[i].Size, room))
		n, _ := c.files[i].ReadAt(b, tails[i].Size-int64(len(b))) // what cannot be read is not kept
		tails[i].Text = wire.Text(b[:n])
		room = wire.TailSize - int64(len(b))
	}
	return tails
}
