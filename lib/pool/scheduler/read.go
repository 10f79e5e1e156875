package scheduler

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"syscall"

	"github.com/ponos-tools/ponos/lib/base/clock"
	"github.com/ponos-tools/ponos/lib/base/fault"
	"github.com/ponos-tools/ponos/lib/pool"
	"github.com/ponos-tools/ponos/lib/pool/core"
	"github.com/ponos-tools/ponos/lib/pool/input"
	"github.com/ponos-tools/ponos/lib/pool/journal"
)

// reader reads the input ahead, in pieces.
type reader struct {
	batches chan []entry
	used    chan []entry // batches to be used again
	inputs  []core.Input // the same
	err     error
	cancel  map[string]bool // tasks, by id or number, that are not to run
	why     string          // tasks that were added cannot be taken
	unread  string          // cancellations cannot be read
}

type entry struct {
	task *pool.Task
	err  error
}

func (r *reader) start(s *scheduler) {
	r.used = make(chan []entry, 2)
	r.follow(s)
}

// follow continues to read.
func (r *reader) follow(s *scheduler) {
	out := make(chan []entry)
	r.batches = out
	go func() {
		defer close(out)
		for {
			var batch []entry
			select {
			case batch = <-r.used:
			default:
				batch = make([]entry, 0, mostRead)
			}
			for len(batch) < mostRead {
				t, err := s.Source.Next()
				batch = append(batch, entry{t, err})
				// A task that was read must not wait for what a pipe delivers later.
				if err != nil && !isBadTask(err) || !s.Source.Ready() {
					break
				}
			}
			last := batch[len(batch)-1].err
			select {
			case out <- batch:
			case <-s.ctx.Done():
				return
			}
			if last != nil && !isBadTask(last) {
				return
			}
		}
	}()
}

// mostRead is how many tasks are read at a time.
const mostRead = 256

// isBadTask reports an error after which the input continues.
func isBadTask(err error) bool {
	var bad *input.BadTask
	return errors.As(err, &bad)
}

// read passes on what was read, with what is known of it.
func (s *scheduler) read(batch []entry) {
	in := s.reader.inputs[:0]
	var last core.Event
	for _, e := range batch {
		var bad *input.BadTask
		switch {
		case e.err == nil:
			past, err := s.pastOf(e.task)
			if err != nil {
				s.reader.err = err
				last = core.InputFailed{Why: "the input differs from that of the previous run"}
				break
			}
			in = append(in, core.Input{Task: e.task, Past: past, Cancelled: s.reader.cancels(e.task)})
			continue
		case errors.As(e.err, &bad):
			t := &pool.Task{Seq: bad.Seq, Text: bad.Text, Spec: &pool.Spec{}}
			past := core.Past{}
			if s.History.Get(t.Seq).State == journal.OK {
				past.State = core.Succeeded
			}
			in = append(in, core.Input{Task: t, Past: past, Bad: bad.Err.Error(), Said: bad.Error()})
			continue
		case errors.Is(e.err, io.EOF):
			last = core.InputEnded{}
		default:
			s.reader.err = fault.Wrap(fault.Usage, e.err)
			last = core.InputFailed{Why: "the input cannot be read"}
		}
		break
	}
	if len(in) > 0 {
		s.handle(core.Tasks{Inputs: in})
	}
	clear(in)
	s.reader.inputs = in
	clear(batch)
	select {
	case s.reader.used <- batch[:0]:
	default:
	}
	if last != nil {
		s.handle(last)
	}
}

var pastStates = map[journal.State]core.PastState{
	journal.Unknown: core.Unrun, journal.Started: core.Started, journal.Failed: core.Failed,
	journal.Cancelled: core.Cancelled, journal.OK: core.Succeeded,
}

// pastOf looks up a task in earlier runs.
func (s *scheduler) pastOf(t *pool.Task) (core.Past, error) {
	if s.History.Last() < 1 {
		return core.Past{}, nil
	}
	e := s.History.Get(t.Seq)
	t.Attempt = e.Attempt
	if !s.ForceResume {
		if err := s.History.Same(t); err != nil {
			return core.Past{}, err
		}
	}
	past := core.Past{State: pastStates[e.State], Worker: e.Worker, Seconds: e.Seconds()}
	if !s.Elastic { // else the jobs of schedulers may end at any time
		past.Deaths = s.History.Deaths(t.Seq)
	}
	return past, nil
}

// cancels reports whether a task is not to run.
func (r *reader) cancels(t *pool.Task) bool {
	return len(r.cancel) > 0 && (r.cancel[t.ID()] || r.cancel[strconv.FormatInt(t.Seq, 10)] || r.cancel[input.All])
}

// lastSeq is the highest number of a task so far.
func (s *scheduler) lastSeq() int64 {
	last := max(s.core.LastSeq(), s.History.Last())
	if s.Added != nil {
		last = max(last, s.Added.Last())
	}
	return last
}

// inputEnded is called when nothing more is read, for now.
func (s *scheduler) inputEnded() {
	s.reader.batches = nil
	s.handle(core.InputEnded{})
	s.look()
}

// takeAdded takes tasks that were added to the run, once the input has been read, which gives them their
// numbers.
func (s *scheduler) takeAdded() {
	if s.Added == nil || s.reader.batches != nil || s.reader.err != nil || s.core.Phase() != core.Running {
		return
	}
	// A file that is taken is not held back, as all else is, until the journal has been written.
	if s.taken = s.Journal.Mine() != nil; s.taken {
		return
	}
	open := s.Added.Open()
	more, err := s.Added.Take(s.lastSeq())
	why := ""
	if err != nil {
		why = fault.Text(err)
	}
	if why != s.reader.why && why != "" {
		s.Message("tasks that were added cannot be taken for now: %s", why)
	}
	s.reader.why = why
	if more {
		s.handle(core.InputGrows{})
		s.reader.follow(s)
		return
	}
	s.handle(core.InputOpen{Open: open})
}

// look takes what was added to the run, and cancels tasks. A cancellation stays until all its tasks have ended, as
// the journal has it, so that the next scheduler knows it, and those that were added before it have been read.
func (s *scheduler) look() {
	cancel := s.cancellations() // before what was added, of which it may speak, is taken
	s.takeAdded()
	if len(cancel) == 0 {
		return
	}
	if s.taken = s.Journal.Mine() != nil; s.taken {
		return
	}
	read := s.reader.batches == nil && s.core.Phase() == core.Running && !s.paused && s.reader.why == ""
	for _, c := range cancel {
		all := slices.Contains(c.Cancel, input.All)
		if read && !all && !slices.ContainsFunc(c.Cancel, s.core.Has) {
			_ = c.Remove() // else it is tried again
			continue
		}
		s.handle(core.Cancel{Names: c.Cancel, All: all})
		if read && all {
			_ = c.Remove()
		}
	}
}

// cancellations returns those that are there, and keeps their tasks from being started.
func (s *scheduler) cancellations() []input.Cancellation {
	if s.Added == nil {
		return nil
	}
	cancel, err := s.Added.Cancellations()
	unread := ""
	if err != nil {
		unread = fault.Text(err)
	}
	if unread != s.reader.unread && unread != "" {
		s.Message("%s", unread)
	}
	s.reader.unread = unread
	s.reader.cancel = map[string]bool{}
	for _, c := range cancel {
		for _, name := range c.Cancel {
			s.reader.cancel[name] = name != ""
		}
	}
	return cancel
}

// closeAdded ends that tasks can be added to a run in which all have ended, and reports whether it could:
// others may have been added meanwhile.
func (s *scheduler) closeAdded() bool {
	if s.Added == nil {
		return true
	}
	if s.taken = s.Journal.Mine() != nil; s.taken {
		return false
	}
	err := s.Added.Close()
	if errors.Is(err, syscall.ENOTEMPTY) || errors.Is(err, syscall.EEXIST) {
		return false
	}
	if err != nil {
		s.Message("tasks that are added from now on wait until the run is resumed: %s", fault.Text(err))
	}
	return true
}

// addNodes takes nodes that a user has named.
func (s *scheduler) addNodes(r *Request, a *Answer) {
	if s.NamedNodes == nil {
		a.Error = "nodes: none can be added to this pool: it is on one machine, or has the nodes of its jobs"
		return
	}
	specs, err := s.NamedNodes(r.Nodes)
	if err != nil {
		a.Error = "nodes: " + fault.Text(err)
		return
	}
	for _, n := range s.core.Status(clock.Now()).Nodes {
		for i := range specs {
			if specs[i].Name == n.Name && n.State != "released" && n.State != "unreachable" {
				a.Error = fmt.Sprintf("nodes: %q is already in the pool: it is %s", n.Name, n.State)
				return
			}
		}
	}
	s.handle(core.AddNodes{Specs: specs})
	a.Count = len(specs)
}
