package agent

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/ponos-tools/ponos/lib/base/remove"
	"github.com/ponos-tools/ponos/lib/task/runner"
)

// taskLine formats a line of the agent in a task's log by logging.task_format: Python's %-format
// with message, levelname, asctime and name.
func taskLine(format, level, message string, now time.Time) string {
	replace := strings.NewReplacer(
		"%(levelname)s", level,
		"%(asctime)s", asctime(now),
		"%(name)s", "ponos",
		"%(message)s", message,
		"%%", "%",
	)
	return replace.Replace(format) + "\n"
}

// asctime formats a time by Python's default: local time with milliseconds behind a comma.
func asctime(t time.Time) string {
	return t.Format("2006-01-02 15:04:05") + fmt.Sprintf(",%03d", t.Nanosecond()/1e6)
}

// line is a line of the agent in a task's log.
type line struct{ level, text string }

// said reports whether the agent has said some lines, one after the other, at any time. With atEnd,
// nothing may follow them.
func (a *Agent) said(log []byte, atEnd bool, lines ...line) bool {
	for text := string(log); text != ""; {
		rest, ok := text, true
		for _, l := range lines {
			if rest, ok = a.cutLine(rest, l); !ok {
				break
			}
		}
		if ok && (rest == "" || !atEnd) {
			return true
		}
		_, text, _ = strings.Cut(text, "\n")
	}
	return false
}

// cutLine removes a line from the beginning of a text, whatever the time in it.
func (a *Agent) cutLine(text string, l line) (rest string, ok bool) {
	at := asctime(time.Time{})
	for i, part := range strings.Split(taskLine(a.TaskFormat, l.level, l.text, time.Time{}), at) {
		if i > 0 {
			text = text[min(len(text), len(at)):]
		}
		if text, ok = strings.CutPrefix(text, part); !ok {
			return text, false
		}
	}
	return text, true
}

// taskLog is the agent's part of a task's log.
type taskLog struct {
	agent *Agent
	file  *os.File
	err   error // of the first line that could not be written
}

// openLog opens one of the agent's two parts of the log for appending. What the task has put in its
// place, such as a link or a pipe, is removed.
func (a *Agent) openLog(d Dir, name string) (*taskLog, error) {
	if info, err := os.Lstat(d.file(name)); err == nil && !info.Mode().IsRegular() {
		if err := remove.All(d.file(name)); err != nil {
			return nil, err
		}
	}
	// The task may be faster: no link is followed, and no process is waited for to read a pipe.
	f, err := os.OpenFile(d.file(name), os.O_WRONLY|os.O_CREATE|os.O_APPEND|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0o600)
	if err == nil && name != headFile {
		err = endLine(d, name, f)
	}
	return &taskLog{agent: a, file: f}, err
}

// openLead opens the part of the log in which the agent writes while no job runs: that before the output, or the output itself if an
// earlier job has written some. So the lines are in the order of time, and a log that people follow only grows.
func (a *Agent) openLead(d Dir) (log *taskLog, behind bool, err error) {
	if info, err := os.Lstat(d.file(runner.Output)); err == nil && info.Mode().IsRegular() && info.Size() > 0 {
		if log, err = a.openLog(d, runner.Output); err == nil { // else the task has taken it away
			return log, true, nil
		}
	}
	log, err = a.openLog(d, headFile)
	return log, false, err
}

// openPart opens a part of a task's log for reading. The error is fs.ErrNotExist if it is not a
// regular file, or not one that the agent may read.
func openPart(d Dir, name string) (*os.File, error) {
	// Opening a fifo without O_NONBLOCK would block until a process opens it for writing.
	open := func() (*os.File, error) {
		return os.OpenFile(d.file(name), os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	}
	info, err := os.Lstat(d.file(name))
	if err == nil && !info.Mode().IsRegular() {
		return nil, fs.ErrNotExist
	}
	f, err := open()
	if errors.Is(err, fs.ErrPermission) && os.Chmod(d.file(name), 0o600) == nil { // the task has taken it away
		f, err = open()
	}
	if errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.ELOOP) || errors.Is(err, syscall.ENXIO) {
		return nil, fs.ErrNotExist
	}
	return f, err
}

// readTail returns the agent's lines after a job's output.
func readTail(d Dir) ([]byte, error) {
	f, err := openPart(d, tailFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(f)
}

// endLine begins what follows a job's output, in a file of its own or in the same one, with a line break if the last line of the output
// has none.
func endLine(d Dir, name string, f *os.File) error {
	if info, err := f.Stat(); err != nil || name == tailFile && info.Size() > 0 {
		return err
	}
	output, err := openPart(d, runner.Output)
	if err != nil {
		return nil // there is no output, or it is not a regular file
	}
	defer output.Close()
	last := make([]byte, 1)
	if info, err := output.Stat(); err != nil || !info.Mode().IsRegular() || info.Size() == 0 {
		return err
	} else if _, err := output.ReadAt(last, info.Size()-1); err != nil || last[0] == '\n' {
		return nil
	}
	_, err = f.WriteString("\n")
	return err
}

// Say writes a line of the agent. Close returns the first write error, for example of a full disk.
func (l *taskLog) Say(level, format string, args ...any) {
	text := strings.TrimRight(fmt.Sprintf(format, args...), "\n")
	for line := range strings.SplitSeq(text, "\n") {
		if _, err := l.file.WriteString(taskLine(l.agent.TaskFormat, level, line, l.agent.now())); l.err == nil {
			l.err = err
		}
	}
}

// Write copies the output of git and pip unchanged.
func (l *taskLog) Write(p []byte) (int, error) { return l.file.Write(p) }

func (l *taskLog) Close() error { return errors.Join(l.err, l.file.Close()) }

// wholeLog is a task's log: the agent's lines before the job, the job's output, and the agent's
// lines after it.
type wholeLog struct {
	files []*os.File
	sizes []int64
	total int64
	at    int64
}

var logFiles = []string{headFile, runner.Output, tailFile}

// logSize is the size of a task's log in bytes, and that of the job's output
// within it.
func logSize(d Dir) (total, output int64) {
	for _, name := range logFiles {
		if info, err := os.Lstat(d.file(name)); err == nil && info.Mode().IsRegular() {
			total += info.Size()
			if name == runner.Output {
				output = info.Size()
			}
		}
	}
	return total, output
}

// openWhole opens a task's log at its present size: what is appended later is not read. A part
// that was replaced by a link is not followed.
func openWhole(d Dir) (*wholeLog, error) {
	w := &wholeLog{}
	for _, name := range logFiles {
		f, err := openPart(d, name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		var info os.FileInfo
		if err == nil {
			info, err = f.Stat()
		}
		if err != nil {
			return nil, errors.Join(err, w.Close())
		}
		if !info.Mode().IsRegular() {
			f.Close()
			continue
		}
		w.files, w.sizes = append(w.files, f), append(w.sizes, info.Size())
		w.total += info.Size()
	}
	return w, nil
}

func (w *wholeLog) Close() error {
	var errs []error
	for _, f := range w.files {
		errs = append(errs, f.Close())
	}
	return errors.Join(errs...)
}

func (w *wholeLog) Read(p []byte) (int, error) {
	start := int64(0)
	for i, f := range w.files {
		if w.at < start+w.sizes[i] {
			want := min(int64(len(p)), start+w.sizes[i]-w.at)
			n, err := f.ReadAt(p[:want], w.at-start)
			w.at += int64(n)
			if n > 0 {
				return n, nil
			}
			if err == io.EOF { // the file was truncated
				err = io.ErrUnexpectedEOF
			}
			return 0, err
		}
		start += w.sizes[i]
	}
	return 0, io.EOF
}

func (w *wholeLog) Seek(offset int64, whence int) (int64, error) {
	switch whence {
	case io.SeekCurrent:
		offset += w.at
	case io.SeekEnd:
		offset += w.total
	}
	if offset < 0 {
		return 0, errors.New("seek before the beginning of the log")
	}
	w.at = offset
	return offset, nil
}
