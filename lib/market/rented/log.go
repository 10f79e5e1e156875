package rented

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/ponos-tools/ponos/lib/market/entry"
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
	over = over || o.Own().Told != ""
	due := now.Sub(o.Log.At) >= r.LogInterval && v.logs > 0
	if !over && !due || over && v.endings <= 0 {
		return e, false, nil
	}
	quiet := life.Event{Kind: life.Quiet, At: now, Stopped: cause.Stopped, Bid: cause.Bid}
	if _, err := os.Stat(r.dir(o)); err != nil {
		// The agent has yet to adopt it, or does not want it.
		if !over || o.Own().Looks[life.Silent].Times+1 < life.SilentTimes {
			r.step(o, quiet)
			return e, false, nil
		}
	}
	v.logs--
	if over {
		v.endings--
	}
	s, err := r.readLog(ctx, v, o, false)
	if ctx.Err() != nil {
		return e, false, context.Cause(ctx)
	}
	if errors.Is(err, errNoTime) {
		return e, false, nil
	}
	r.unread(o, err)
	if s != nil && s.word != "" {
		o.unread = s.elsewhere()
		return s.event(now), true, nil
	}
	if !over {
		return life.Event{Kind: life.Heard, At: now}, true, nil
	}
	if o.unread = err; err != nil {
		quiet.Why = ": its log could not be read"
	}
	return quiet, true, nil
}

// event is what a log says of the end.
func (s *said) event(at time.Time) life.Event {
	if why, never := life.Never(s.word); never {
		if s.why != "" {
			why += ": " + s.why
		}
		return life.Event{Kind: life.Unbegun, At: at, Why: why}
	}
	end, _ := life.Word(s.word)
	return life.Event{Kind: life.Said, At: at, End: end}
}

// readLast reads the log once more before an instance is destroyed, and the task ends.
func (r *Runner) readLast(ctx context.Context, o *order, e life.End) life.Event {
	out := life.Event{Kind: life.Last, At: r.now(), End: e}
	switch s, err := r.readLog(ctx, nil, o, true); {
	case err != nil:
		r.warn("the end of the log could not be read", o, err)
		o.unread = err
	case e.Cancelled:
	case isEnd(s.word):
		out.Word, o.unread = s.word, s.elsewhere()
	case isEnd(o.Own().Told):
		o.unread = errEndless
	}
	return out
}

// elsewhere returns why the log lacks output, if its container says so.
func (s *said) elsewhere() error {
	if s.why != entry.Elsewhere {
		return nil
	}
	return errors.New(s.why)
}

// errEndless says that the log lacks the line that says how much output there is.
var errEndless = errors.New("it lacks its last line")

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
		at := slices.IndexFunc(v.all, func(i vastai.Instance) bool { return i.ID == o.Instance() })
		if o.Phase == life.Over || at < 0 {
			continue
		}
		i := v.all[at]
		stage, _ := i.Stage()
		ended := stage == vastai.Exited || i.Halted() && o.Phase == life.Runs
		if l, ok := ParseLabel(i.Label); ok && l.End != "" {
			ended = true // and its container leaves the instance to the agent
		}
		mute[i.ID] = isMute(o)
		switch {
		case ended:
			over = append(over, i.ID)
		case stage == vastai.Runs && now.Sub(o.Log.At) >= r.LogInterval:
			due = append(due, i.ID)
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

// isMute reports whether the log of an order could not be read lately.
func isMute(o *order) bool { return o.Own().Looks[life.Mute].Times >= life.SilentTimes }

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
		if l, ok := v.read[o.Instance()]; ok {
			return l.text, l.err
		}
	}
	return r.log(ctx, o.Instance(), logLines, isMute(o))
}

// said is what a log says.
type said struct {
	word string // the last one of the entrypoint; "": none
	why  string // in its words
	all  int64  // bytes of output that there are; -1: unknown
	// pieces are its output, in the order of the log, and other what is none.
	pieces []entry.Piece
	other  []byte
	lines  int
}

// parse reads a log. Whole says that its last line is complete.
func parse(text []byte, nonce string, whole bool) said {
	s := said{all: -1}
	prefix := []byte(entry.Marker + " " + nonce + " ")
	for line := range bytes.Lines(text) {
		s.lines++
		if rest, ok := bytes.CutPrefix(line, prefix); ok && nonce != "" {
			word, more, _ := strings.Cut(strings.TrimSpace(string(rest)), " ")
			if _, never := life.Never(word); never || isEnd(word) {
				s.word, s.why, s.all = word, task.Clean(more), -1
				if n, err := strconv.ParseInt(more, 10, 64); err == nil && n >= 0 {
					s.all, s.why = n, ""
				}
			}
			continue
		}
		if !whole && !bytes.HasSuffix(line, []byte("\n")) {
			break // it is read once it is complete
		}
		if p, ok := entry.Parse(line); ok {
			s.pieces = append(s.pieces, p)
		} else {
			s.other = append(s.other, line...)
		}
	}
	return s
}

// from returns the output from an offset on, up to where, and where it begins; joined says that nothing is missing.
func (s said) from(at int64) (more []byte, to int64, joined bool) {
	to, joined = at, true
	for _, p := range s.pieces {
		end := p.At + int64(len(p.Text))
		if end <= to {
			continue
		}
		if p.At > to {
			joined = false
			more = append(more, missing...)
			to = p.At
		}
		more = append(more, p.Text[to-p.At:]...)
		to = end
	}
	if to < s.all {
		joined = false
		more, to = append(more, missing...), s.all
	}
	return more, to, joined
}

// missing is the line that replaces lines that could not be read.
const missing = "[some lines are missing here]\n"

// maxOther limits what is published of a container that never came to its output, or that has none of the entrypoint's offsets:
// one of a build before vast-entry, which was never released. Its end counts, and this much of its output is read with it.
const maxOther = 64 << 10

// readLog appends what is new in an instance's log to the task's output. Last says that it is not
// read again. Where a task has written more since the last look than is shown, more is requested.
func (r *Runner) readLog(ctx context.Context, v *view, o *order, last bool) (*said, error) {
	if o.Instance() == 0 {
		return nil, vastai.ErrNotReady
	}
	text, err := r.fetch(ctx, v, o)
	if errors.Is(err, errNoTime) {
		return nil, err
	}
	o.Log.At = r.now()
	if err != nil {
		return nil, err
	}
	at, err := r.written(o)
	if err != nil {
		return nil, err
	}
	for lines := logLines; ; lines *= 10 {
		s := parse(text, o.Nonce, last)
		more, to, joined := s.from(at)
		if !joined && s.lines >= lines-1 && lines < mostLines {
			if deeper, err := r.log(ctx, o.Instance(), 10*lines, false); err == nil && len(deeper) >= len(text) {
				text = deeper
				continue
			}
		}
		if (last || s.word != "") && len(s.pieces) == 0 && at == 0 {
			if cut := len(s.other) - maxOther; cut > 0 || s.lines >= lines-1 {
				_, s.other, _ = bytes.Cut(s.other[max(cut, 0):], []byte("\n"))
				more = append(more, missing...)
			}
			more = append(more, s.other...)
		}
		return &s, r.publish(o, more, to)
	}
}

// written returns how much of an instance's output is in that of its task.
func (r *Runner) written(o *order) (int64, error) {
	size, err := r.sizeOf(o)
	if err != nil {
		return 0, err
	}
	if size < o.Log.From { // what was to be written was not
		if err := r.moved(o, size, o.Log.Read); err != nil {
			return 0, err
		}
	}
	return o.Log.Read + size - o.Log.From, nil
}

func (r *Runner) sizeOf(o *order) (int64, error) {
	info, err := os.Stat(filepath.Join(r.dir(o), runner.Output))
	if errors.Is(err, os.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

// moved records where output of the instance is in that of the task, and nothing else of the order.
func (r *Runner) moved(o *order, from, read int64) error {
	o.Log.From, o.Log.Read = from, read
	if len(o.saved) == 0 {
		return nil
	}
	disk, err := parseOrder(o.saved)
	if err != nil {
		return err
	}
	disk.saved, disk.Log.From, disk.Log.Read = o.saved, from, read
	err = r.save(disk)
	o.saved = disk.saved
	return err
}

// publish appends to the task's output what brings it to an offset of the instance's. Where that is not that text itself, it
// is recorded before: if this process is killed in between, nothing is written twice.
func (r *Runner) publish(o *order, more []byte, to int64) error {
	f, err := os.OpenFile(filepath.Join(r.dir(o), runner.Output), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
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
	at, err := r.written(o)
	if err != nil {
		return err
	}
	if at+int64(len(more)) != to {
		size, err := r.sizeOf(o)
		if err != nil {
			return err
		}
		if err := r.moved(o, size+int64(len(more)), to); err != nil {
			return err
		}
	}
	if _, err := f.Write(more); err != nil {
		return err
	}
	return f.Sync()
}

// remark adds a line of the runner to the task's output.
func (r *Runner) remark(o *order, words string) {
	if at, err := r.written(o); err == nil {
		_ = r.publish(o, []byte("["+words+"]\n"), at) // the reason of the task's end says the same
	}
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
	if o.End == nil {
		if o.Instance() == 0 {
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
	since := latest(o.Last().Born, r.now().Add(-2*r.API.Unit/5))
	for {
		list, err := r.API.List(ctx, since)
		if err != nil {
			return err
		}
		v := r.view(list)
		for _, i := range v.byTask[o.name()] {
			r.double(o, i)
		}
		if err := r.sweep(ctx, v, o, nil); err != nil {
			return err
		}
		if err := r.save(o); err != nil {
			return err
		}
		if !slices.ContainsFunc(o.Doomed(), func(id int64) bool { return o.Try(id).Looks[life.Unlisted].Times == 0 }) {
			return nil // absent once; Jobs checks again
		}
		r.flush(ctx, v)
		v.destroys.Wait()
		// Only a list from now on shows the result.
		since = r.now()
		if since.After(until) {
			return fmt.Errorf("instance %d still exists %v after it was destroyed; trying again", o.Instance(), r.StopWait)
		}
		if err := r.API.Sleep(ctx, max(100*time.Millisecond, 2*r.API.Unit/5)); err != nil {
			return err
		}
	}
}
