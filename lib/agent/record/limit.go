package record

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"
)

// written is how long the end of a command waits for those that it has left in the background, which may write to the same pipe.
const written = time.Second

// limited passes the output of a command on, up to a limit. What is beyond that, or cannot be written, is read nevertheless,
// so that the command goes on, and the log says how much is missing.
type limited struct {
	to    io.Writer
	limit int64
	job   string

	passed     int64 // bytes that were read and could be written
	over, lost int64 // bytes beyond the limit, and others that could not be written
	why        error // of the last that could not
	open       bool  // the last line that was written has no end
}

func (l *limited) Write(p []byte) (int, error) {
	keep := p[:min(int64(len(p)), l.limit-l.passed-l.lost)]
	if len(keep) > 0 {
		n, err := l.to.Write(keep)
		if n > 0 {
			l.open = keep[n-1] != '\n'
		}
		if l.passed += int64(n); err != nil {
			l.lost, l.why = l.lost+int64(len(keep)-n), err
		}
	}
	if over := int64(len(p) - len(keep)); over > 0 {
		if l.over == 0 {
			l.say("the output has more than %d bytes (max_task_log): the rest is left out", l.limit)
		}
		l.over += over
	}
	return len(p), nil
}

// say writes a line of its own.
func (l *limited) say(format string, args ...any) {
	text := fmt.Sprintf("job %s: "+format+"\n", append([]any{l.job}, args...)...)
	if l.open {
		text = "\n" + text
	}
	_, _ = io.WriteString(l.to, text)
	l.open = false
}

// end says how much is missing.
func (l *limited) end() {
	if l.over > 0 {
		l.say("%d bytes of the output are left out", l.over)
	}
	if l.lost > 0 {
		l.say("%d bytes of the output are lost: %v", l.lost, l.why)
	}
}

// output is where the command writes: to the file of the log itself, or, with a limit, to a pipe.
type output struct {
	files   []uintptr
	ends    []*os.File // of the pipe: to read, and to write
	limited *limited
	copying sync.WaitGroup
}

func newOutput(limit int64, job string, log io.Writer) (o *output, err error) {
	o = &output{files: []uintptr{0, 1, 2}, limited: &limited{to: log, limit: limit, job: job}}
	if limit == 0 {
		return o, nil
	}
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	o.ends, o.files = []*os.File{r, w}, []uintptr{0, w.Fd(), w.Fd()}
	o.copying.Go(func() {
		if _, err := io.Copy(o.limited, r); err != nil { // others may still write
			o.limited.say("the output of what the command has left in the background is lost")
		}
	})
	return o, nil
}

// begun leaves the pipe to the command.
func (o *output) begun() {
	if o.ends != nil {
		_ = o.ends[1].Close()
	}
}

// ended takes what the command has written.
func (o *output) ended() {
	if o.ends == nil {
		return
	}
	late := time.AfterFunc(written, func() { _ = o.ends[0].SetReadDeadline(time.Unix(1, 0)) })
	defer late.Stop()
	o.copying.Wait()
	_ = o.ends[0].Close()
	o.limited.end()
}
