package vast

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/ponos-tools/ponos/lib/clock"
	"github.com/ponos-tools/ponos/lib/runner"
	"github.com/ponos-tools/ponos/lib/task"
	"github.com/ponos-tools/ponos/lib/vastai"
)

// logLines is how many lines of a log are asked for.
const logLines = 1000

// listen reads an instance's log where that is due, and ends the task if the wrapper
// has said its last word. Over says that its container does not run.
func (r *Runner) listen(ctx context.Context, v *view, o *order, over, stopped bool) error {
	now := r.now()
	over = over || o.told() != nil
	due := now.Sub(o.LogAt) >= r.LogInterval && v.logs > 0
	if !over && !due {
		return nil
	}
	if over && v.endings <= 0 {
		return nil
	}
	if _, err := os.Stat(o.Dir); err != nil {
		// The agent has yet to take it up, or does not want it.
		if o.Dead++; !over || o.Dead < deadLooks {
			return nil
		}
	}
	v.logs--
	if over {
		v.endings--
	}
	said, err := r.readLog(ctx, o, false)
	if ctx.Err() != nil {
		return err
	}
	r.unread(o, err)
	if said != nil {
		return r.finish(o, verdict(*said))
	}
	if !over {
		o.Dead, o.DeadAt = 0, time.Time{}
		return nil
	}
	if o.Dead++; o.DeadAt.IsZero() {
		o.DeadAt = now
	}
	// It may be started again, and its log may lag behind.
	if o.Dead < deadLooks || now.Sub(o.DeadAt) < r.Settle {
		return nil
	}
	reason := "the container has ended without an exit code"
	if stopped {
		reason = "the instance was stopped, and there is no exit code of the task"
	}
	if err != nil {
		r.remark(o, "the end of the log could not be read: "+why(err))
		reason += ": its log could not be read"
	} else if o.told() != nil {
		r.remark(o, "the end of the log is missing")
	}
	return r.finish(o, o.unless(end{State: task.Error, Reason: reason}))
}

// verdict is the end that the wrapper tells.
func verdict(said ending) end {
	switch said.word {
	case "late":
		return end{State: task.Error, Reason: "the task has run longer than max_runtime"}
	case "lost":
		return end{State: task.Error, Reason: "the container was restarted in the middle of the task"}
	case "unarmed":
		return end{State: task.Error, Reason: "the image has no program that could stop the instance at the end, so the task was not run: it needs curl, python3, or wget and vast_api.switch_url"}
	case "nowhere":
		return end{State: task.Error, Reason: "the container has no directory to note its end in: /tmp may not be written to"}
	}
	e := end{State: task.Completed, Code: said.code}
	if said.code != 0 {
		e.State, e.Reason = task.Failed, fmt.Sprintf("exit code %d", said.code)
		if said.code > 128 && said.code < 192 {
			e.Reason = fmt.Sprintf("ended by signal %d", said.code-128)
		}
	}
	return e
}

// last reads the log once more before an instance goes, and ends the task.
func (r *Runner) last(ctx context.Context, o *order, e end) error {
	said, err := r.readLog(ctx, o, true)
	if err != nil {
		r.warn("the end of the log could not be read", o, err)
		r.remark(o, "the end of the log could not be read: "+why(err))
		e = o.unless(e)
	} else if said != nil && !e.Cancelled {
		e = verdict(*said)
	}
	return r.finish(o, e)
}

// maxKnown bounds how much of the output that is there is compared.
const maxKnown = 4 << 20

// readLog appends what is new in an instance's log to the task's output. Last says that
// it is not read again.
func (r *Runner) readLog(ctx context.Context, o *order, last bool) (*ending, error) {
	if o.Instance == 0 {
		return nil, vastai.ErrNotReady
	}
	if o.Mute >= deadLooks { // the others are not to wait for it
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, muteTime)
		defer cancel()
	}
	text, err := r.API.Log(ctx, o.Instance, logLines)
	o.LogAt = r.now()
	if err != nil {
		return nil, err
	}
	if bytes.HasPrefix(text, []byte("Error response from daemon")) || bytes.HasPrefix(text, []byte("No such container")) {
		return nil, vastai.ErrNotReady
	}
	shown, said := split(text, o.Nonce)
	// A line that is not whole is read when it is.
	if n := len(shown); n > 0 && said == nil && !last && !bytes.HasSuffix(shown[n-1], []byte("\n")) {
		shown = shown[:n-1]
	} else if n > 0 && !bytes.HasSuffix(shown[n-1], []byte("\n")) {
		shown[n-1] = append(bytes.Clone(shown[n-1]), '\n')
	}
	return said, r.append(o, shown)
}

func (r *Runner) append(o *order, shown [][]byte) error {
	f, err := os.OpenFile(filepath.Join(o.Dir, runner.Output), os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600)
	if errors.Is(err, os.ErrNotExist) {
		return nil // not adopted yet: the log is read again then
	}
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	from := max(0, info.Size()-maxKnown)
	b, err := io.ReadAll(io.NewSectionReader(f, from, maxKnown))
	if err != nil {
		return err
	}
	known := slices.Collect(bytes.Lines(b))
	known = known[max(0, len(known)-2*logLines):]
	more := bytes.Join(merge(known, shown), nil)
	if len(more) == 0 {
		return nil
	}
	if _, err := f.Write(more); err != nil {
		return err
	}
	return f.Sync()
}

// remark adds a line of the runner to the task's output.
func (r *Runner) remark(o *order, words string) {
	f, err := os.OpenFile(filepath.Join(o.Dir, runner.Output), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return
	}
	defer f.Close()
	_, _ = fmt.Fprintf(f, "[%s]\n", words) // the reason of the task's end says it as well
}

// Stop destroys the instance of a task, after a last look at its log, and waits until
// it is gone.
func (r *Runner) Stop(ctx context.Context, ref runner.Ref) error {
	if err := r.prepare(); err != nil {
		return err
	}
	l, ok := ParseLabel(ref.Job)
	if !ok {
		return fmt.Errorf("%.80q is no job of this runner", ref.Job)
	}
	name := (&order{Task: l.Task, Attempt: l.Attempt}).name()
	held, err := r.hold(name, time.Minute)
	if err != nil {
		return err
	}
	defer held.Close()
	o, err := r.read(ordersDir, name)
	if errors.Is(err, os.ErrNotExist) {
		if _, err := r.read(doneDir, name); err == nil {
			return nil
		}
		o, err = &order{Task: l.Task, Attempt: l.Attempt, Number: 1, Dir: ref.Dir, Rebuilt: true}, nil
	}
	if err != nil {
		return err
	}
	if o.Dir = ref.Dir; o.End == nil {
		if o.Instance == 0 {
			if _, err := r.lookUp(ctx, o); err != nil && !errors.Is(err, runner.ErrLater) {
				return err
			}
		}
		e := end{State: task.Stopped, Reason: "stopped as the queue asked", Cancelled: true}
		if o.Ran.IsZero() && o.Instance == 0 {
			err = r.finish(o, e)
		} else {
			err = r.last(ctx, o, e)
		}
		if err != nil {
			return err
		}
	}
	return r.gone(ctx, o)
}

// gone destroys all that an ended order has, and waits until two lists do not show
// it. Should that take too long, Jobs goes on with it.
func (r *Runner) gone(ctx context.Context, o *order) error {
	until := clock.Now().Add(r.StopWait)
	for {
		list, err := r.API.List(ctx, "")
		if err != nil {
			return err
		}
		v := &view{began: r.now(), all: list, endings: maxEndings}
		for _, i := range list {
			if l, ok := ParseLabel(i.Label); ok && l.Agent == r.Agent && l.Task == o.Task && l.Attempt == o.Attempt {
				o.doom(i.ID)
			}
		}
		if err := r.sweep(ctx, v, o, nil); err != nil {
			return err
		}
		if err := r.save(o); err != nil {
			return err
		}
		if len(o.Doomed) == 0 || !slices.ContainsFunc(o.Doomed, func(d doomed) bool { return d.Absent == 0 }) {
			return nil // absent once; Jobs looks again
		}
		if clock.Now().After(until) {
			return fmt.Errorf("instance %d is not gone %v after it was destroyed; it is tried again", o.Instance, r.StopWait)
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(max(100*time.Millisecond, r.Spacing/3)):
		}
	}
}
