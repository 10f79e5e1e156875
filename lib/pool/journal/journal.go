package journal

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/ponos-tools/ponos/lib/base/clock"
	"github.com/ponos-tools/ponos/lib/base/fault"
	"github.com/ponos-tools/ponos/lib/base/lock"
	"github.com/ponos-tools/ponos/lib/base/shell"
	"github.com/ponos-tools/ponos/lib/pool"
	"github.com/ponos-tools/ponos/lib/pool/wire"
)

// Names of files below the run directory.
const (
	File    = "journal.ndjson"
	Joblog  = "joblog"
	RunFile = "run.json"
	Socket  = "ctl.sock"
)

// Kinds of records.
const (
	Begin = "begin" // a scheduler has started
	Send  = "send"  // tasks were handed to a node
	Try   = "try"   // an attempt ended, and was not the last
	End   = "end"   // a task ended
	Node  = "node"  // a node came, went, …
	Stop  = "stop"  // the scheduler has ended
	// Output: output of a task that had ended well is lost.
	Output = "output"
	// Retry: tasks that have failed, or were cancelled, are to run again.
	Retry = "retry"
	// Cuts: tasks have ended well, and their records were removed; see [Cut].
	Cuts = "cut"
)

// The formats of records, which those that begin a part of a journal have. A reader that knows less refuses a journal;
// records get new fields without a new format.
const (
	Format    = 1
	CutFormat = 2 // of a journal that has Cuts: without them, tasks would run again
)

// Limits of what the journal keeps of tasks that have not succeeded.
const (
	MaxCommand = 4 << 10  // bytes of a command
	MaxTails   = 64 << 20 // bytes of output of all tasks
)

// Record is a line of the journal.
type Record struct {
	Kind    string       `json:"k"`
	Time    float64      `json:"t"` // seconds since 1970
	Seq     int64        `json:"seq,omitempty"`
	Attempt int32        `json:"attempt,omitempty"`
	Hash    string       `json:"hash,omitempty"`
	ID      string       `json:"id,omitempty"`
	Node    string       `json:"node,omitempty"`
	What    wire.Outcome `json:"what,omitempty"`
	Exit    int          `json:"exit,omitempty"`
	Signal  int          `json:"signal,omitempty"`
	Start   float64      `json:"start,omitempty"`
	Seconds float64      `json:"seconds,omitempty"`
	User    float64      `json:"user,omitempty"`
	System  float64      `json:"system,omitempty"`
	MaxRSS  int64        `json:"maxrss,omitempty"`
	Error   wire.Text    `json:"error,omitempty"`
	// Of a task that has not succeeded: its command, at most MaxCommand bytes of it, and the ends of its output.
	Command wire.Text `json:"command,omitempty"`
	Stdout  wire.Tail `json:"stdout,omitzero"`
	Stderr  wire.Tail `json:"stderr,omitzero"`
	By      string    `json:"by,omitempty"`    // why it was cancelled
	Tasks   string    `json:"tasks,omitempty"` // of send, retry and cut: "1-4,7"
	Session string    `json:"session,omitempty"`
	Version string    `json:"version,omitempty"`
	Format  int       `json:"format,omitempty"` // of begin and cut: that of the records, see Format
	Host    string    `json:"host,omitempty"`
	PID     int       `json:"pid,omitempty"`
	Retry   bool      `json:"retry,omitempty"` // of begin: tasks that have failed run again
	Call    string    `json:"call,omitempty"`  // of begin: for which call of the user, of which there may be several schedulers
	Counts  *Counts   `json:"counts,omitempty"`
	// Worker is that of a node which is up, or of which nothing is left.
	Worker *wire.Identity `json:"worker,omitempty"`
}

// ByDependency is the By of a task that was cancelled for what it depends on.
const ByDependency = "dependency"

// Events of nodes that are used later.
const (
	Up   = "up"
	Gone = "gone" // nothing is left of its worker
)

// Counts are the sums at the end of a run.
type Counts struct {
	Done      int64 `json:"done"`
	Failed    int64 `json:"failed"`
	Cancelled int64 `json:"cancelled,omitempty"`
	Left      int64 `json:"left"`
	Lost      int64 `json:"lost"` // attempts that were lost, and may have run in part
}

// Command is a task's command as one line.
func Command(t *pool.Task) string {
	if t.Spec.Argv {
		return shell.Join(strings.Split(t.Text, "\x00"))
	}
	return t.Text
}

// Hash tells commands apart: of the command and, where the task has its own, its
// directory, environment and standard input.
func Hash(t *pool.Task) uint64 {
	text := Command(t)
	if t.Spec.Dir != "" || len(t.Spec.Env) > 0 {
		text += "\x00" + t.Spec.Dir + "\x00" + strings.Join(t.Spec.Env, "\x00")
	}
	if t.Extra != nil && t.Extra.Stdin != "" {
		sum := sha256.Sum256([]byte(t.Extra.Stdin))
		text += "\x00stdin\x00" + string(sum[:])
	}
	return HashText(text)
}

// HashText is the Hash of a command that has no more.
func HashText(command string) uint64 {
	sum := sha256.Sum256([]byte(command))
	return binary.BigEndian.Uint64(sum[:8])
}

// FormatHash writes a hash as in the journal.
func FormatHash(h uint64) string { return fmt.Sprintf("%016x", h) }

// Journal writes a run directory.
type Journal struct {
	Dir string
	// MinCut is the size in bytes from which the journal is cut; 0: 16 MiB.
	MinCut int64

	lock    *lock.Lock // nil: the file system has no locks
	holder  string     // what the file of the lock says while this scheduler has it
	checked time.Time  // when the holder was last read
	taken   bool       // the file has another holder

	ownJoblog bool // the job log is that of the run directory
	file      *file
	joblog    *file
	kept      int64 // size after the last cut
	lease     *os.File
	sends     map[sendKey][]int64
	order     []sendKey
	closing   chan struct{}
	synced    chan struct{}
}

type sendKey struct {
	node    string
	attempt int32
}

// probeTime is how long Held may keep the lock of a run to find out whether it is taken.
const probeTime = 200 * time.Millisecond

// ErrTaken says that another scheduler has taken the run directory. That can happen if the lock of a
// file is not visible on other hosts, or was lost with a connection to the file server.
var ErrTaken = errors.New("another scheduler has taken the run directory")

// Create makes or reopens a run directory and locks it.
func Create(dir, joblog string) (*Journal, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fault.Errorf(fault.Usage, "run directory: %w", err)
	}
	j := &Journal{Dir: dir, sends: map[sendKey][]int64{}}
	var err error
	lapsed := false // a scheduler of which no lock shows that it has ended may have had the directory
	j.lock, err = lock.TryFor(filepath.Join(dir, "lock"), probeTime)
	switch {
	case errors.Is(err, lock.ErrHeld):
		if j.lock, err = takeOver(dir); err != nil {
			return nil, err
		}
		lapsed = true
	case lock.Missing(err), err == nil && heldElsewhere(dir):
		holder, _ := Holder(dir)
		lapsed = holder != "" // it has not ended in good order
		if err := heldByLease(dir); err != nil {
			if j.lock != nil {
				_ = j.lock.Close()
			}
			return nil, err
		}
	case err != nil:
		return nil, fmt.Errorf("run directory: %w", err)
	}
	if err := j.writeLease(clock.Now().Add(opening)); err != nil {
		return nil, fmt.Errorf("run directory: %w", err)
	}
	j.holder, j.checked = fmt.Sprintf("process %d on %s, session %08x\n", os.Getpid(), hostname(), rand.Uint32()), clock.Now()
	if err := os.WriteFile(filepath.Join(dir, "lock"), []byte(j.holder), 0o600); err != nil {
		return nil, fmt.Errorf("run directory: %w", err)
	}
	mode := os.FileMode(0o666) // that of files the user has named, as the umask has it
	if joblog == "" {
		joblog, mode, j.ownJoblog = filepath.Join(dir, Joblog), 0o600, true
	}
	j.removeCuts() // of a scheduler that was killed
	if lapsed {
		if err := errors.Join(detach(filepath.Join(dir, File)), detach(joblog)); err != nil {
			return nil, fmt.Errorf("run directory: %w", err)
		}
	}
	if j.file, err = open(filepath.Join(dir, File), 0o600); err != nil {
		return nil, err
	}
	if j.joblog, err = open(joblog, mode); err != nil {
		return nil, err
	}
	if j.joblog.size == 0 {
		j.joblog.pending.WriteString(joblogHeader)
	}
	j.closing, j.synced = make(chan struct{}), make(chan struct{})
	go j.sync()
	return j, nil
}

// opening is how long a scheduler may take from its lock to its first lease.
const opening = 45 * time.Second

// expired reports whether the scheduler that has a run directory has not renewed its lease: it does not run, as Slurm has suspended
// its job, or its host is away. It may continue.
func expired(dir string) bool {
	holder, _ := Holder(dir)
	until := LeaseEnd(dir)
	return holder != "" && !until.IsZero() && clock.Now().After(until)
}

// takeOver takes the lock of a run directory from a scheduler that holds it and does not run: by another file in its place. That
// scheduler finds the name of another one when it continues, see mine.
func takeOver(dir string) (*lock.Lock, error) {
	name := filepath.Join(dir, "lock")
	busy := func() error {
		holder, _ := Holder(dir)
		return fault.Errorf(fault.Busy, "run directory %q is in use by %s", dir, holder)
	}
	if !expired(dir) {
		return nil, busy()
	}
	one, err := lock.Try(name + ".taking") // at a time
	if errors.Is(err, lock.ErrHeld) || err == nil && !expired(dir) {
		return nil, busy()
	}
	if err != nil {
		return nil, fmt.Errorf("run directory: %w", err)
	}
	defer one.Close()
	taken, err := lock.Try(name + ".new")
	if err == nil {
		err = os.Rename(name+".new", name)
	}
	if err != nil {
		return nil, fmt.Errorf("run directory: %w", err)
	}
	return taken, nil
}

// Held reports whether a scheduler holds a run directory, as far as its file system can
// tell.
func Held(dir string) bool {
	held, err := lock.Held(filepath.Join(dir, "lock"))
	return held && !expired(dir) || (lock.Missing(err) || heldElsewhere(dir)) && heldByLease(dir) != nil
}

func hostname() string {
	host, _ := os.Hostname()
	return host
}

// Holder returns the scheduler that has a run directory, as its lock file names it: "process N on HOST",
// and HOST; empty if there is none. It may have ended, if it was killed.
func Holder(dir string) (holder, host string) {
	b, _ := os.ReadFile(filepath.Join(dir, "lock"))
	holder, _, _ = strings.Cut(strings.TrimSpace(string(b)), ", session ")
	_, host, _ = strings.Cut(holder, " on ")
	return holder, host
}

// heldElsewhere reports whether the scheduler that held a run directory last is, or was, on
// another host, and its lock cannot be seen here.
func heldElsewhere(dir string) bool {
	holder, host := Holder(dir)
	return holder != "" && host != hostname() && localLocks(dir)
}

var localLocks = lock.Local // tests have no such file system

// detach puts a copy in the place of a regular file: what a scheduler that was stopped still writes,
// when it continues, goes to the file that it has open, which has no name then.
func detach(name string) error {
	name, err := filepath.EvalSymlinks(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	from, err := os.Open(name)
	if err != nil {
		return err
	}
	defer from.Close()
	st, err := from.Stat()
	if err != nil || !st.Mode().IsRegular() {
		return err
	}
	to, err := os.CreateTemp(filepath.Dir(name), "."+filepath.Base(name))
	if err != nil {
		return err
	}
	_, err = io.Copy(to, from)
	if err = errors.Join(err, to.Chmod(st.Mode().Perm()), to.Sync(), to.Close()); err == nil {
		err = os.Rename(to.Name(), name)
	}
	if err != nil {
		return errors.Join(err, os.Remove(to.Name()))
	}
	return nil
}

// mine fails with ErrTaken if another scheduler has the run directory. It checks once a second: a
// scheduler that was stopped for longer than its lease, with its machine, checks before it writes or
// sends out anything.
func (j *Journal) mine() error {
	if clock.Since(j.checked).Abs() >= time.Second {
		return j.Mine()
	}
	if j.taken {
		return ErrTaken
	}
	return nil
}

// Mine fails with ErrTaken if another scheduler has the run directory now.
func (j *Journal) Mine() error {
	if now := clock.Now(); !j.taken {
		holder, err := os.ReadFile(filepath.Join(j.Dir, "lock"))
		j.checked = now
		j.taken = err == nil && len(holder) > 0 && string(holder) != j.holder // it is empty while it is written
	}
	if j.taken {
		return ErrTaken
	}
	return nil
}

// heldByLease stands in for a lock: a scheduler renews the lease file as long as it lives, and its
// name stays until it has ended.
func heldByLease(dir string) error {
	holder, _ := Holder(dir)
	if until := LeaseEnd(dir); holder != "" && clock.Now().Before(until) {
		return fault.Errorf(fault.Busy, "run directory %q, where files cannot be locked, may be in use until %s by %s", dir,
			until.Format("15:04:05"), holder)
	}
	return nil
}

// sync flushes what was written to disk, once a second.
func (j *Journal) sync() {
	defer close(j.synced)
	for {
		last := false
		select {
		case <-j.closing:
			last = true
		case <-time.After(time.Second):
		}
		j.file.sync()
		j.joblog.sync()
		if last {
			return
		}
	}
}

// Sent notes that a task is handed to a node.
func (j *Journal) Sent(node string, attempt int32, seq int64) {
	k := sendKey{node, attempt}
	if len(j.sends[k]) == 0 {
		j.order = append(j.order, k)
	}
	j.sends[k] = append(j.sends[k], seq)
}

// Add appends a record.
func (j *Journal) Add(r *Record) {
	j.flushSent(r.Time)
	j.file.add(r)
}

func (j *Journal) flushSent(now float64) {
	for _, k := range j.order {
		j.file.add(&Record{Kind: Send, Time: now, Node: k.node, Attempt: k.attempt, Tasks: FormatSeqs(j.sends[k])})
		j.sends[k] = j.sends[k][:0]
	}
	j.order = j.order[:0]
	if len(j.sends) > 1000 {
		clear(j.sends)
	}
}

// Ended appends the end of a task to the job log.
func (j *Journal) Ended(t *pool.Task, r *Record) {
	exit, signal := r.Exit, r.Signal
	if r.What == wire.Cancelled || r.What == wire.Timeout || r.What == wire.OutputLost && exit == 0 {
		exit = -1
	}
	fmt.Fprintf(&j.joblog.pending, "%d\t%s\t%.3f\t%10.3f\t0\t0\t%d\t%d\t%s\n",
		r.Seq, cmpOr(r.Node, ":"), r.Start, r.Seconds, exit, signal, strings.ReplaceAll(Command(t), "\n", "\\n"))
}

func cmpOr(a, b string) string {
	if a != "" {
		return a
	}
	return b
}

// Flush writes everything out. After an error nothing is lost: the next Flush continues where this
// one has failed; but after ErrTaken, nothing more is written.
func (j *Journal) Flush() error {
	if err := j.mine(); err != nil {
		return err
	}
	j.flushSent(float64(clock.Now().UnixMilli()) / 1e3)
	return errors.Join(j.file.flush(), j.joblog.flush())
}

// Pending is the number of bytes that could not be written yet.
func (j *Journal) Pending() int { return j.file.pending.Len() + j.joblog.pending.Len() }

// Removed reports whether the journal is no longer in the run directory: what it holds is lost.
func (j *Journal) Removed() bool {
	named, err := os.Stat(filepath.Join(j.Dir, File))
	written, writtenErr := j.file.f.Stat()
	return errors.Is(err, fs.ErrNotExist) || err == nil && writtenErr == nil && !os.SameFile(named, written)
}

// Close writes everything out and unlocks the run directory.
func (j *Journal) Close() error {
	err := j.Flush()
	close(j.closing)
	<-j.synced
	err = errors.Join(err, j.file.close(), j.joblog.close())
	if j.lease != nil {
		j.lease.Close()
	}
	if !j.taken {
		j.removeCuts()
		_ = os.Truncate(filepath.Join(j.Dir, "lock"), 0)
	}
	if j.lock != nil {
		_ = j.lock.Close()
	}
	return err
}

// file is a file to which pieces are appended.
type file struct {
	name    string
	mu      sync.Mutex // guards f against the goroutine that syncs
	f       *os.File
	size    int64
	pending bytes.Buffer
	dirty   bool
}

// open opens a file to append to. A last line that was cut off is removed: it
// was never acted upon.
func open(name string, mode os.FileMode) (*file, error) {
	f, err := os.OpenFile(name, os.O_CREATE|os.O_RDWR|os.O_APPEND, mode)
	if err != nil {
		return nil, err
	}
	st, err := f.Stat()
	if err != nil {
		f.Close()
		return nil, err
	}
	size := st.Size()
	if st.Mode().IsRegular() {
		whole := size
		b := make([]byte, 64<<10)
		for whole > 0 {
			n := min(int64(len(b)), whole)
			if _, err := f.ReadAt(b[:n], whole-n); err != nil {
				f.Close()
				return nil, err
			}
			if i := bytes.LastIndexByte(b[:n], '\n'); i >= 0 {
				whole += int64(i) + 1 - n
				break
			}
			whole -= n
		}
		if whole < size {
			if err := f.Truncate(whole); err != nil {
				f.Close()
				return nil, err
			}
			size = whole
		}
	}
	return &file{name: name, f: f, size: size}, nil
}

func (f *file) add(r *Record) {
	e := json.NewEncoder(&f.pending)
	e.SetEscapeHTML(false)
	_ = e.Encode(r) // a Record can always be encoded
}

func (f *file) flush() error {
	if f.pending.Len() == 0 {
		return nil
	}
	n, err := f.f.Write(f.pending.Bytes())
	f.size += int64(n)
	f.pending.Next(n)
	if f.pending.Len() == 0 && f.pending.Cap() > 1<<20 {
		f.pending = bytes.Buffer{}
	}
	f.mu.Lock()
	f.dirty = true
	f.mu.Unlock()
	return err
}

func (f *file) sync() {
	f.mu.Lock()
	dirty, file := f.dirty, f.f
	f.dirty = false
	f.mu.Unlock()
	if dirty {
		_ = file.Sync() // a pipe or a device has none, and one that was replaced is closed
	}
}

// replace continues with another file, of a size.
func (f *file) replace(with *os.File, size int64) {
	f.mu.Lock()
	old := f.f
	f.f, f.size = with, size
	f.mu.Unlock()
	_ = old.Close()
}

func (f *file) close() error { return f.f.Close() }

// FormatSeqs writes numbers of tasks, which it sorts, as "1-4,7".
func FormatSeqs(seqs []int64) string {
	slices.Sort(seqs)
	var b []byte
	for i := 0; i < len(seqs); {
		k := i
		for k+1 < len(seqs) && seqs[k+1] == seqs[k]+1 {
			k++
		}
		if len(b) > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendInt(b, seqs[i], 10)
		if k > i {
			b = strconv.AppendInt(append(b, '-'), seqs[k], 10)
		}
		i = k + 1
	}
	return string(b)
}

// Names reports whether a list of tasks, such as "1-4,7", has a number.
func Names(tasks string, seq int64) (found bool) {
	_ = eachSpan(tasks, func(x Span) { found = found || x.First <= seq && seq <= x.Last })
	return found
}

// parseSeqs calls f for each number of "1-4,7".
func parseSeqs(s string, f func(int64)) error {
	return eachSpan(s, func(x Span) {
		for seq := x.First; seq <= x.Last; seq++ {
			f(seq)
		}
	})
}

// eachSpan calls f for each part of "1-4,7".
func eachSpan(s string, f func(Span)) error {
	if s == "" {
		return nil
	}
	for part := range strings.SplitSeq(s, ",") {
		low, high, isRange := strings.Cut(part, "-")
		a, err := strconv.ParseInt(low, 10, 64)
		b := a
		if err == nil && isRange {
			b, err = strconv.ParseInt(high, 10, 64)
		}
		if err != nil || a < 1 || b > MaxSeq || b < a {
			return fmt.Errorf("invalid task list %q", s)
		}
		f(Span{a, b})
	}
	return nil
}

// MaxSeq limits the number of tasks of a run.
const MaxSeq = 1 << 31
