package scheduler

import (
	"encoding/json"
	"fmt"
	"unicode/utf8"

	"github.com/ponos-tools/ponos/lib/base/clock"
	"github.com/ponos-tools/ponos/lib/base/fault"
	"github.com/ponos-tools/ponos/lib/pool"
	"github.com/ponos-tools/ponos/lib/pool/core"
	"github.com/ponos-tools/ponos/lib/pool/input"
	"github.com/ponos-tools/ponos/lib/pool/journal"
	"github.com/ponos-tools/ponos/lib/pool/wire"
)

// Request is a request over the control socket: one JSON object per line.
type Request struct {
	Op string `json:"op"`
	// Tag is copied to the answer, so that a program can send several requests.
	Tag   json.RawMessage `json:"tag,omitempty"`
	Task  *input.Object   `json:"task,omitempty"`  // run
	Wait  bool            `json:"wait,omitempty"`  // run: answer when it has ended
	Seqs  []int64         `json:"seqs,omitempty"`  // wait, retry, cancel, explain
	All   bool            `json:"all,omitempty"`   // retry, cancel
	CPUs  int             `json:"cpus,omitempty"`  // setcpus
	Nodes []string        `json:"nodes,omitempty"` // nodes to add, as of --nodes, or to remove
	Now   bool            `json:"now,omitempty"`   // removenodes: what runs there is ended

	// Answer is called once for each answer, by the goroutine of the scheduler.
	Answer func(*Answer) `json:"-"`
	// Base is what tasks of this connection need unless they say more.
	Base *pool.Spec `json:"-"`
}

// Answer is the answer to a request.
type Answer struct {
	Tag    json.RawMessage `json:"tag,omitempty"`
	Error  string          `json:"error,omitempty"`
	Seq    int64           `json:"seq,omitempty"`
	Result *TaskEnd        `json:"result,omitempty"`
	Tasks  []TaskInfo      `json:"tasks,omitempty"`
	Status *Status         `json:"status,omitempty"`
	Count  int             `json:"count,omitempty"` // of tasks a request was for
	// Reasons say what a task waits for (explain).
	Reasons []string `json:"reasons,omitempty"`
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
	// Output that is not valid UTF-8, as base64.
	StdoutBytes []byte `json:"stdout_b64,omitempty"`
	StderrBytes []byte `json:"stderr_b64,omitempty"`
}

// TaskInfo is a task that has not ended.
type TaskInfo struct {
	Seq     int64   `json:"seq"`
	ID      string  `json:"id,omitempty"`
	State   string  `json:"state"` // running, queued, judging, lost, held, depends, waiting
	Node    string  `json:"node,omitempty"`
	PID     int     `json:"pid,omitempty"`
	Attempt int32   `json:"attempt,omitempty"`
	Need    string  `json:"need"` // what it takes, or, before it was sent to a node, what it could take
	Seconds float64 `json:"seconds,omitempty"`
	Reason  string  `json:"reason,omitempty"`
	Command string  `json:"command"`
}

// maxListed limits a list of waiting tasks.
const maxListed = 1000

func (s *scheduler) request(r *Request) {
	a := &Answer{Tag: r.Tag}
	switch r.Op {
	case "status":
		a.Status = s.core.Status(clock.Now())
	case "list":
		a.Tasks = s.list()
	case "explain":
		s.explain(r, a)
	case "drain":
		s.handle(core.Drain{Why: "drained by request"})
	case "retry":
		s.handle(core.Retry{Seqs: r.Seqs, All: r.All})
		a.Count = s.counted
	case "cancel":
		s.handle(core.Cancel{Seqs: r.Seqs, All: r.All})
		a.Count = s.counted
	case "addnodes":
		s.addNodes(r, a)
	case "removenodes":
		s.handle(core.RemoveNodes{Names: r.Nodes, Now: r.Now})
		a.Count = s.counted
	case "run":
		s.runTask(r, a)
		return
	case "wait":
		s.waitFor(r, a)
		return
	case "setcpus":
		if r.CPUs < 1 || r.CPUs > 1<<14 {
			a.Error = fmt.Sprintf("setcpus: invalid number of CPUs %d", r.CPUs)
			break
		}
		r.Base.Need.CPUs = r.CPUs
	default:
		a.Error = fmt.Sprintf(
			"unknown request %q: expected run, wait, cancel, setcpus, list, explain, retry, status, addnodes, removenodes or drain",
			r.Op)
	}
	r.Answer(a)
}

// list returns all tasks that have not ended.
func (s *scheduler) list() []TaskInfo {
	s.handle(core.Printing{Choked: s.choked}) // advances its clock
	all := s.core.List(maxListed)
	out := make([]TaskInfo, len(all))
	for i, x := range all {
		out[i] = TaskInfo{
			Seq: x.Task.Seq, ID: x.Task.ID(), State: x.State, Node: x.Node, PID: x.PID, Attempt: x.Task.Attempt, Seconds: x.Seconds,
			Reason: x.Reason, Command: journal.Command(x.Task), Need: x.Task.Need().String(),
		}
	}
	return out
}

// explain answers with what a task waits for.
func (s *scheduler) explain(r *Request, a *Answer) {
	if len(r.Seqs) != 1 {
		a.Error = "explain: name one task"
		return
	}
	a.Seq = r.Seqs[0]
	if a.Reasons = s.core.Explain(a.Seq, clock.Now()); a.Reasons == nil {
		a.Error = fmt.Sprintf("explain: task %d is not waiting: it has ended, or was not read yet", a.Seq)
	}
}

// runTask takes a task from a program.
func (s *scheduler) runTask(r *Request, a *Answer) {
	fail := func(format string, args ...any) {
		a.Error = fmt.Sprintf(format, args...)
		r.Answer(a)
	}
	switch {
	case !s.Serve:
		fail("run: only a pool of \"jobpool serve\" takes tasks from programs; \"jobpool ctl add\" adds tasks to this one")
		return
	case r.Task == nil:
		fail("run: the task is missing")
		return
	}
	t, err := r.Task.Task(s.lastSeq()+1, *r.Base)
	if err != nil {
		fail("run: %v", fault.Text(err))
		return
	}
	a.Seq = t.Seq
	if r.Wait {
		s.waitEnd(t.Seq, r, a)
	}
	s.handle(core.Submit{Task: t})
	switch {
	case s.refused != "":
		delete(s.waiters, t.Seq)
		a.Seq = 0
		fail("run: %s", s.refused)
	case !r.Wait:
		r.Answer(a)
	}
}

// waitFor answers at the end of each of the tasks.
func (s *scheduler) waitFor(r *Request, a *Answer) {
	if len(r.Seqs) == 0 {
		a.Error = "wait: no task is named"
		r.Answer(a)
		return
	}
	for _, seq := range r.Seqs {
		one := *a
		one.Seq = seq
		if end := s.recent.ends[seq]; end != nil {
			one.Result = end
			r.Answer(&one)
			continue
		}
		if len(s.waiters[seq]) == 0 && !s.core.Knows(seq) {
			one.Error = fmt.Sprintf("wait: unknown task %d", seq)
			r.Answer(&one)
			continue
		}
		s.waitEnd(seq, r, &one)
	}
}

func (s *scheduler) waitEnd(seq int64, r *Request, a *Answer) {
	s.waiters[seq] = append(s.waiters[seq], func(res *core.Result, id string, out [2][]byte) {
		a.Result = taskEnd(res, id, out)
		r.Answer(a)
	})
}

// maxRecent limits how many results are kept for later requests.
const maxRecent = 10000

// recent are the last results.
type recent struct {
	ends map[int64]*TaskEnd
	seqs []int64
}

func (c *recent) add(r *core.Result, id string, out [2][]byte) {
	if c.ends == nil {
		c.ends = map[int64]*TaskEnd{}
	}
	c.ends[r.Seq] = taskEnd(r, id, out)
	c.seqs = append(c.seqs, r.Seq)
	if len(c.seqs) > maxRecent {
		delete(c.ends, c.seqs[0])
		c.seqs = c.seqs[1:]
	}
}

func taskEnd(r *core.Result, id string, out [2][]byte) *TaskEnd {
	e := &TaskEnd{
		Seq: r.Seq, ID: id, What: r.What, Exit: r.Exit, Signal: r.Signal, Error: string(r.Error),
		Node: r.Node, Attempt: r.Attempt, Seconds: r.Seconds, MaxRSS: r.MaxRSS,
	}
	if e.Stdout = string(out[0]); !utf8.Valid(out[0]) {
		e.Stdout, e.StdoutBytes = "", out[0]
	}
	if e.Stderr = string(out[1]); !utf8.Valid(out[1]) {
		e.Stderr, e.StderrBytes = "", out[1]
	}
	return e
}
