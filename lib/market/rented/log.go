package rented

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/ponos-tools/ponos/lib/market/life"
	"github.com/ponos-tools/ponos/lib/market/vastai"
	"github.com/ponos-tools/ponos/lib/task"
	"github.com/ponos-tools/ponos/lib/task/runner"
)

// logLines is how many lines of a log are requested, and mostLines how many where those do not reach
// back to what is known: ten times as many each time.
const (
	logLines  = 1000
	mostLines = 1_000_000
)

// listen reads an instance's log when that is due, and returns what it says. Over says that its container does not run,
// as cause has shown.
func (r *Runner) listen(ctx context.Context, v *view, o *order, over bool, cause life.Event) (e life.Event, more bool, err error) {
	now := r.now()
	over = over || o.Told != ""
	due := now.Sub(o.LogAt) >= r.LogInterval && v.logs > 0
	if !over && !due || over && v.endings <= 0 {
		return e, false, nil
	}
	quiet := life.Event{Kind: life.Quiet, At: now, Stopped: cause.Stopped, Bid: cause.Bid}
	if _, err := os.Stat(o.Dir); err != nil {
		// The agent has yet to adopt it, or does not want it.
		if !over || o.Doubts[life.Silent].Times+1 < life.SilentTimes {
			r.step(o, quiet)
			return e, false, nil
		}
	}
	v.logs--
	if over {
		v.endings--
	}
	said, err := r.readLog(ctx, v, o, false)
	if ctx.Err() != nil {
		return e, false, context.Cause(ctx)
	}
	if errors.Is(err, errNoTime) {
		return e, false, nil
	}
	r.unread(o, err)
	if said != nil {
		return life.Event{Kind: life.Said, At: now, End: *said}, true, nil
	}
	if !over {
		return life.Event{Kind: life.Heard, At: now}, true, nil
	}
	if o.unread = err; err != nil {
		quiet.Why = ": its log could not be read"
	}
	return quiet, true, nil
}

// readLast reads the log once more before an instance is destroyed, and the task ends.
func (r *Runner) readLast(ctx context.Context, o *order, e life.End) life.Event {
	out := life.Event{Kind: life.Last, At: r.now(), End: e}
	said, err := r.readLog(ctx, nil, o, true)
	if err != nil {
		r.warn("the end of the log could not be read", o, err)
		o.unread = err
	} else if said != nil && !e.Cancelled {
		out.End = *said
	}
	return out
}

// logText is the answer to a request for a log.
type logText struct {
	text []byte
	err  error
}

// errNoTime says that a turn had no time for a log: the next one reads it.
var errNoTime = errors.New("there was no time to read the log")

// logTime is the longest wait for one log.
const logTime = 30 * time.Second

// logReaders is how many logs are requested at a time: hosts are slow.
const logReaders = 6

// prefetch reads the logs that this turn needs concurrently, within the time of a turn.
func (r *Runner) prefetch(ctx context.Context, v *view, orders []*order) {
	now := r.now()
	var over, due []int64
	mute := map[int64]bool{}
	for _, o := range orders {
		at := slices.IndexFunc(v.all, func(i vastai.Instance) bool { return i.ID == o.Instance })
		if o.Phase == life.Over || at < 0 {
			continue
		}
		i := v.all[at]
		stage, _ := i.Stage()
		ended := stage == vastai.Exited || i.Halted() && o.Phase == life.Runs
		if l, ok := ParseLabel(i.Label); ok && l.End != "" {
			ended = true // and its container leaves the instance to the agent
		}
		mute[o.Instance] = o.Mute >= life.SilentTimes
		switch {
		case ended:
			over = append(over, o.Instance)
		case stage == vastai.Runs && now.Sub(o.LogAt) >= r.LogInterval:
			due = append(due, o.Instance)
		}
	}
	ids := append(over[:min(len(over), v.endings)], due[:min(len(due), v.logs)]...)
	if len(ids) < 2 {
		return // the log is read when its order is processed
	}
	bounded, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		if r.API.Sleep(bounded, turnUnits*r.API.Unit) == nil {
			cancel()
		}
	}()
	next := make(chan int64)
	var mu sync.Mutex
	var readers sync.WaitGroup
	for range min(logReaders, len(ids)) {
		readers.Go(func() {
			// Each reader reads at least one log, and finishes it: otherwise a market that takes
			// longer than a turn would never deliver one.
			for n := 0; ; n++ {
				id, more := <-next
				if !more {
					return
				}
				l := logText{err: errNoTime}
				if n == 0 || bounded.Err() == nil {
					l.text, l.err = r.log(ctx, id, logLines, mute[id])
				}
				mu.Lock()
				v.read[id] = l
				mu.Unlock()
			}
		})
	}
	for _, id := range ids {
		next <- id
	}
	close(next)
	readers.Wait()
}

// log requests the log of an instance. If that could not be read lately, the timeout is shorter.
func (r *Runner) log(ctx context.Context, id int64, lines int, mute bool) ([]byte, error) {
	limit := r.LogTime
	if limit == 0 {
		limit = logTime
	}
	if mute {
		limit /= 3
	}
	bounded, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return r.API.Log(bounded, id, lines)
}

// fetch returns the log of an order, which this turn has already read or requests now.
func (r *Runner) fetch(ctx context.Context, v *view, o *order) ([]byte, error) {
	if v != nil {
		if l, ok := v.read[o.Instance]; ok {
			return l.text, l.err
		}
	}
	return r.log(ctx, o.Instance, logLines, o.Mute >= life.SilentTimes)
}

// maxKnown limits how much of the existing output is compared, in bytes for each thousand lines.
const maxKnown = 4 << 20

// readLog appends what is new in an instance's log to the task's output. Last says that it is not
// read again. Where a task has written more since the last look than is shown, more is requested.
func (r *Runner) readLog(ctx context.Context, v *view, o *order, last bool) (*life.End, error) {
	if o.Instance == 0 {
		return nil, vastai.ErrNotReady
	}
	text, err := r.fetch(ctx, v, o)
	if errors.Is(err, errNoTime) {
		return nil, err
	}
	o.LogAt = r.now()
	if err != nil {
		return nil, err
	}
	var said *life.End
	for lines := logLines; ; lines *= 10 {
		shown, end := split(text, o.Nonce)
		if said == nil {
			said = end
		}
		// An incomplete line is read once it is complete.
		if n := len(shown); n > 0 && said == nil && !last && !bytes.HasSuffix(shown[n-1], []byte("\n")) {
			shown = shown[:n-1]
		} else if n > 0 && !bytes.HasSuffix(shown[n-1], []byte("\n")) {
			shown[n-1] = append(bytes.Clone(shown[n-1]), '\n')
		}
		known, err := r.known(o, lines)
		if err != nil {
			return said, err
		}
		more, joined := merge(known, shown)
		whole := bytes.Count(text, []byte("\n")) < lines-1 // nothing came before
		if !joined && !whole && lines < mostLines {
			if deeper, err := r.log(ctx, o.Instance, 10*lines, false); err == nil && len(deeper) >= len(text) {
				text = deeper
				continue
			}
		}
		if !joined && (len(known) > 0 || !whole) && len(more) > 0 {
			more = slices.Insert(slices.Clone(more), 0, []byte(missing))
		}
		return said, r.append(o, more)
	}
}

// known returns the last lines of an instance's output so far, twice as many as are shown.
func (r *Runner) known(o *order, lines int) ([][]byte, error) {
	f, err := os.Open(filepath.Join(o.Dir, runner.Output))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	most := int64(lines/logLines) * maxKnown
	from := max(0, min(o.LogFrom, info.Size()), info.Size()-most)
	b, err := io.ReadAll(io.NewSectionReader(f, from, most))
	if err != nil {
		return nil, err
	}
	known := slices.Collect(bytes.Lines(b))
	return known[max(0, len(known)-2*lines):], nil
}

func (r *Runner) append(o *order, more [][]byte) error {
	f, err := os.OpenFile(filepath.Join(o.Dir, runner.Output), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if errors.Is(err, os.ErrNotExist) {
		return nil // not adopted yet: the log is read again then
	}
	if err != nil {
		return err
	}
	defer f.Close()
	if len(more) == 0 {
		return nil
	}
	if _, err := f.Write(bytes.Join(more, nil)); err != nil {
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
	_, _ = fmt.Fprintf(f, "[%s]\n", words) // the reason of the task's end says the same
}

// Stop destroys the instance of a task, after reading its log a last time, and waits until it is
// gone.
func (r *Runner) Stop(ctx context.Context, ref runner.Ref) error {
	if err := r.prepare(); err != nil {
		return err
	}
	l, ok := ParseLabel(ref.Job)
	if !ok {
		return fmt.Errorf("not a job of this runner: %.80q", ref.Job)
	}
	name := nameOf(l.Task, l.Attempt)
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
		o, err = newOrder(l.Task, l.Attempt), nil
	}
	if err != nil {
		return err
	}
	if o.Dir = ref.Dir; o.End == nil {
		if o.Instance == 0 {
			if _, err := r.findInstance(ctx, o); err != nil && !errors.Is(err, runner.ErrLater) {
				return err
			}
		}
		stopped := life.End{State: task.Stopped, Reason: "stopped at the request of the queue", Cancelled: true}
		if err := r.hear(ctx, nil, o, life.Event{Kind: life.Cancel, At: r.now(), End: stopped}); err != nil {
			return err
		}
	}
	return r.gone(ctx, o)
}

// gone destroys all instances of an ended order, and waits until a list does not show them. If that
// takes too long, Jobs continues it.
func (r *Runner) gone(ctx context.Context, o *order) error {
	until := r.now().Add(r.StopWait)
	// Older lists do not show an instance that was just ordered.
	since := latest(o.Created, r.now().Add(-2*r.API.Unit/5))
	for {
		list, err := r.API.List(ctx, since)
		if err != nil {
			return err
		}
		v := r.view(list)
		for _, i := range v.byTask[o.name()] {
			r.step(o, life.Event{Kind: life.Double, ID: i.ID})
		}
		if err := r.sweep(ctx, v, o, nil); err != nil {
			return err
		}
		if err := r.save(o); err != nil {
			return err
		}
		if len(o.Doomed) == 0 || !slices.ContainsFunc(o.Doomed, func(d life.Doomed) bool { return d.Absent == 0 }) {
			return nil // absent once; Jobs checks again
		}
		r.flush(ctx, v)
		v.destroys.Wait()
		// Only a list from now on shows the result.
		since = r.now()
		if since.After(until) {
			return fmt.Errorf("instance %d still exists %v after it was destroyed; trying again", o.Instance, r.StopWait)
		}
		if err := r.API.Sleep(ctx, max(100*time.Millisecond, 2*r.API.Unit/5)); err != nil {
			return err
		}
	}
}
