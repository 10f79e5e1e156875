package scheduler

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/ponos-tools/ponos/lib/pool"
	reader "github.com/ponos-tools/ponos/lib/pool/input"
	"github.com/ponos-tools/ponos/lib/pool/journal"
	"github.com/ponos-tools/ponos/lib/pool/wire"
)

// Request is what comes over the control socket: a JSON object a line.
type Request struct {
	Op string `json:"op"`
	// Tag comes back in the answer, so that a program can ask several things.
	Tag  string         `json:"tag,omitempty"`
	Task *reader.Object `json:"task,omitempty"` // run
	Wait bool           `json:"wait,omitempty"` // run: answer when it has ended
	Seqs []int64        `json:"seqs,omitempty"` // wait, retry, cancel
	All  bool           `json:"all,omitempty"`  // retry, cancel
	CPUs int            `json:"cpus,omitempty"` // setcpus

	// Answer is called once for each answer, by the goroutine of the head.
	Answer func(*Answer) `json:"-"`
	// Base is what tasks of this connection need unless they say more.
	Base *pool.Spec `json:"-"`
}

// Answer is the answer to a request.
type Answer struct {
	Tag    string     `json:"tag,omitempty"`
	Error  string     `json:"error,omitempty"`
	Seq    int64      `json:"seq,omitempty"`
	Result *TaskEnd   `json:"result,omitempty"`
	Tasks  []TaskInfo `json:"tasks,omitempty"`
	Status *Status    `json:"status,omitempty"`
	Count  int        `json:"count,omitempty"` // of tasks a request was for
}

// TaskEnd is how a task has ended.
type TaskEnd struct {
	Seq     int64        `json:"seq"`
	ID      string       `json:"id,omitempty"`
	What    wire.Outcome `json:"what"`
	Exit    int          `json:"exit"`
	Signal  int          `json:"signal,omitempty"`
	Error   string       `json:"error,omitempty"`
	Node    string       `json:"node,omitempty"`
	Attempt int32        `json:"attempt"`
	Seconds float64      `json:"seconds"`
	MaxRSS  int64        `json:"maxrss,omitempty"`
	Stdout  string       `json:"stdout,omitempty"`
	Stderr  string       `json:"stderr,omitempty"`
	// Output that is no UTF-8, as base64.
	StdoutBytes []byte `json:"stdout_b64,omitempty"`
	StderrBytes []byte `json:"stderr_b64,omitempty"`
}

// TaskInfo is a task that has not ended.
type TaskInfo struct {
	Seq     int64   `json:"seq"`
	ID      string  `json:"id,omitempty"`
	State   string  `json:"state"` // running, queued, lost, held, depends, waiting
	Node    string  `json:"node,omitempty"`
	PID     int     `json:"pid,omitempty"`
	Attempt int32   `json:"attempt,omitempty"`
	Seconds float64 `json:"seconds,omitempty"`
	Reason  string  `json:"reason,omitempty"`
	Command string  `json:"command"`
}

// maxListed bounds a list of waiting tasks.
const maxListed = 1000

func (h *head) request(r *Request) {
	a := &Answer{Tag: r.Tag}
	switch r.Op {
	case "status":
		a.Status = h.status()
	case "list":
		a.Tasks = h.list()
	case "drain":
		h.drain("drained by request")
	case "retry":
		a.Count = h.retry(r)
	case "cancel":
		a.Count = h.cancelTasks(r)
	case "run":
		h.runTask(r, a)
		return
	case "wait":
		h.waitFor(r, a)
		return
	case "setcpus":
		if r.CPUs < 1 || r.CPUs > 1<<14 {
			a.Error = fmt.Sprintf("setcpus: %d is not a number of CPUs", r.CPUs)
			break
		}
		r.Base.Need.CPUs = r.CPUs
	default:
		a.Error = fmt.Sprintf("unknown request %q, want run, wait, cancel, setcpus, list, retry, status or drain", r.Op)
	}
	r.Answer(a)
}

// list tells of all tasks that have not ended.
func (h *head) list() []TaskInfo {
	var out []TaskInfo
	for _, a := range sorted(h.active) {
		i := info(a.task, "running")
		i.Node, i.PID, i.Attempt, i.Seconds = a.conn.name(), a.pid, a.task.Attempt, time.Since(a.sent).Seconds()
		if a.slot == nil {
			i.State = "queued"
		}
		out = append(out, i)
	}
	for _, t := range h.held {
		i := info(t.task, "held")
		i.Node, i.Attempt, i.Reason = t.record.Node, t.task.Attempt, describe(t.record)
		out = append(out, i)
	}
	for _, f := range h.formers {
		for _, l := range f.tasks {
			i := info(l.task, "lost")
			i.Node, i.Attempt, i.Reason = f.Node, l.task.Attempt, "may still run there"
			out = append(out, i)
		}
	}
	for _, tasks := range h.deps.waits {
		for _, t := range tasks {
			i := info(t, "depends")
			i.Reason = "waits for " + h.deps.unmet(t)
			out = append(out, i)
		}
	}
	slices.SortFunc(out, func(a, b TaskInfo) int { return cmp.Compare(a.Seq, b.Seq) })
	h.pool.Each(func(t *pool.Task) bool {
		out = append(out, info(t, "waiting"))
		return len(out) < maxListed
	})
	return out
}

func info(t *pool.Task, state string) TaskInfo {
	return TaskInfo{Seq: t.Seq, ID: t.ID(), State: state, Command: journal.Command(t)}
}

// retry lets held tasks run again.
func (h *head) retry(r *Request) (n int) {
	seqs := r.Seqs
	if r.All {
		seqs = slices.Sorted(maps.Keys(h.held))
	}
	for _, seq := range seqs {
		if t := h.held[seq]; t != nil {
			delete(h.held, seq)
			t.task.Fails, t.task.Losses, t.task.Avoid = 0, 0, nil
			h.pool.Push(t.task)
			n++
		}
	}
	return n
}

// cancelTasks ends tasks, wherever they are.
func (h *head) cancelTasks(r *Request) (n int) {
	seqs := r.Seqs
	if r.All {
		for _, t := range h.pool.TakeAll() { // one by one takes long when they are many
			h.cancelTask(t, "by request")
			n++
		}
		for _, t := range h.list() {
			seqs = append(seqs, t.Seq)
		}
	}
	for _, seq := range seqs {
		if a := h.active[seq]; a != nil {
			h.kill(a, wire.Cancelled, false)
			n++
			continue
		}
		t := h.pool.Remove(seq)
		if held := h.held[seq]; t == nil && held != nil {
			delete(h.held, seq)
			t = held.task
		}
		if t == nil {
			t = h.deps.remove(seq)
		}
		if t == nil {
			t = h.cancelLost(seq)
		}
		if t != nil {
			h.cancelTask(t, "by request")
			n++
		}
	}
	return n
}

// runTask takes a task from a program.
func (h *head) runTask(r *Request, a *Answer) {
	fail := func(format string, args ...any) {
		a.Error = fmt.Sprintf(format, args...)
		r.Answer(a)
	}
	switch {
	case !h.Serve:
		fail("run: this pool takes no tasks, start it with %q", "jobpool serve")
		return
	case h.phase != running:
		fail("run: the pool is %s", phases[h.phase])
		return
	case r.Task == nil:
		fail("run: the task is missing")
		return
	}
	t, err := r.Task.Task(h.lastSeq+1, *r.Base)
	if err != nil {
		fail("run: %v", err)
		return
	}
	if h.opening == 0 && !h.pool.Fits(t.Spec.Need) {
		fail("run: it fits no node: it wants %s", needs(t.Spec.Need))
		return
	}
	a.Seq = t.Seq
	if r.Wait {
		h.waitEnd(t.Seq, r, a)
	} else {
		r.Answer(a)
	}
	t.Attempt = h.History.Get(t.Seq).Attempt
	h.lastSeq = t.Seq
	h.stats.seen++
	if !h.deps.add(t) {
		h.refuseTwin(t)
		return
	}
	h.ready(t)
}

// waitFor answers at the end of each of the tasks.
func (h *head) waitFor(r *Request, a *Answer) {
	if len(r.Seqs) == 0 {
		a.Error = "wait: no task is named"
		r.Answer(a)
		return
	}
	for _, seq := range r.Seqs {
		one := *a
		one.Seq = seq
		if end := h.recent[seq]; end != nil {
			one.Result = end
			r.Answer(&one)
			continue
		}
		if !h.knows(seq) {
			one.Error = fmt.Sprintf("wait: there is no task %d", seq)
			r.Answer(&one)
			continue
		}
		h.waitEnd(seq, r, &one)
	}
}

// knows reports whether a task is still to end.
func (h *head) knows(seq int64) bool {
	if h.active[seq] != nil || h.held[seq] != nil || len(h.waiters[seq]) > 0 {
		return true
	}
	found := false
	for _, f := range h.formers {
		found = found || slices.ContainsFunc(f.tasks, func(l lostTask) bool { return l.task.Seq == seq })
	}
	if found {
		return true
	}
	h.pool.Each(func(t *pool.Task) bool { found = t.Seq == seq; return !found })
	for _, tasks := range h.deps.waits {
		found = found || slices.ContainsFunc(tasks, func(t *pool.Task) bool { return t.Seq == seq })
	}
	return found
}

func (h *head) waitEnd(seq int64, r *Request, a *Answer) {
	h.waiters[seq] = append(h.waiters[seq], func(rec *journal.Record, out [2][]byte) {
		a.Result = taskEnd(rec, out)
		r.Answer(a)
	})
}

// maxRecent bounds how many results are kept for those who ask later.
const maxRecent = 10000

// remember keeps a result for a later wait.
func (h *head) remember(rec *journal.Record, out [2][]byte) {
	if !h.Serve {
		return
	}
	if h.recent == nil {
		h.recent = map[int64]*TaskEnd{}
	}
	h.recent[rec.Seq] = taskEnd(rec, out)
	h.recentSeqs = append(h.recentSeqs, rec.Seq)
	if len(h.recentSeqs) > maxRecent {
		delete(h.recent, h.recentSeqs[0])
		h.recentSeqs = h.recentSeqs[1:]
	}
}

func taskEnd(rec *journal.Record, out [2][]byte) *TaskEnd {
	e := &TaskEnd{
		Seq: rec.Seq, ID: rec.ID, What: rec.What, Exit: rec.Exit, Signal: rec.Signal, Error: string(rec.Error),
		Node: rec.Node, Attempt: rec.Attempt, Seconds: rec.Seconds, MaxRSS: rec.MaxRSS,
	}
	if e.Stdout = string(out[0]); !utf8.Valid(out[0]) {
		e.Stdout, e.StdoutBytes = "", out[0]
	}
	if e.Stderr = string(out[1]); !utf8.Valid(out[1]) {
		e.Stderr, e.StderrBytes = "", out[1]
	}
	return e
}
