package wire

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/ponos-tools/ponos/lib/executor/outside"
	"github.com/ponos-tools/ponos/lib/pool"
)

// Protocol is the version of what is in this file.
const Protocol = 3

// Text is a string that need not be UTF-8, such as a command or a path.
type Text string

// long is the size from which a text is written in the shorter form: control characters take six bytes each.
const long = 64 << 10

// MarshalJSON writes a string, or {"b64": …} if JSON has no string for it.
func (t Text) MarshalJSON() ([]byte, error) {
	if utf8.ValidString(string(t)) {
		b := appendString(nil, string(t))
		if len(t) < long || len(b) < len(t)/3*4 {
			return b, nil
		}
	}
	return json.Marshal(struct {
		B64 []byte `json:"b64"`
	}{[]byte(t)})
}

// UnmarshalJSON reads what MarshalJSON writes, and strings in which Python has escaped bytes that are not UTF-8.
func (t *Text) UnmarshalJSON(b []byte) error {
	if len(b) > 0 && b[0] == '{' {
		var v struct {
			B64 []byte `json:"b64"`
		}
		err := json.Unmarshal(b, &v)
		*t = Text(v.B64)
		return err
	}
	var s string
	if err := json.Unmarshal(b, &s); err != nil {
		return err
	}
	if strings.ContainsRune(s, utf8.RuneError) {
		var err error
		if s, err = unescape(b); err != nil {
			return err
		}
	}
	*t = Text(s)
	return nil
}

// unescape decodes a JSON string with lone surrogates, for which encoding/json has a replacement character:
// those of "surrogateescape" are bytes, and others are errors.
func unescape(b []byte) (string, error) {
	var out strings.Builder
	from := 1
	text := func(to int) error {
		var s string
		err := json.Unmarshal(slices.Concat([]byte{'"'}, b[from:to], []byte{'"'}), &s)
		out.WriteString(s)
		return err
	}
	for i := 1; i < len(b)-1; {
		switch r := escaped(b[i:]); {
		case r < 0 && b[i] == '\\':
			i += 2
		case r < 0:
			i++
		case !utf16.IsSurrogate(r):
			i += 6
		case utf16.DecodeRune(r, escaped(b[i+6:])) != utf8.RuneError:
			i += 12
		case r < 0xdc80 || r > 0xdcff:
			return "", fmt.Errorf("invalid escape %s: it is half of a character", b[i:i+6])
		default:
			if err := text(i); err != nil {
				return "", err
			}
			out.WriteByte(byte(r))
			i += 6
			from = i
		}
	}
	err := text(len(b) - 1)
	return out.String(), err
}

// escaped returns the code of the \uXXXX with which b begins, or -1.
func escaped(b []byte) rune {
	if len(b) < 6 || b[0] != '\\' || b[1] != 'u' {
		return -1
	}
	n, err := strconv.ParseUint(string(b[2:6]), 16, 16)
	if err != nil {
		return -1
	}
	return rune(n)
}

// appendString appends s as a JSON string. HTML needs no care here.
func appendString(b []byte, s string) []byte {
	const hex = "0123456789abcdef"
	b = append(b, '"')
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c == '"' || c == '\\':
			b = append(b, '\\', c)
		case c == '\n':
			b = append(b, '\\', 'n')
		case c == '\t':
			b = append(b, '\\', 't')
		case c < ' ':
			b = append(b, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		default:
			b = append(b, c)
		}
	}
	return append(b, '"')
}

// Texts converts strings.
func Texts(s []string) []Text {
	if s == nil {
		return nil
	}
	out := make([]Text, len(s))
	for i, x := range s {
		out[i] = Text(x)
	}
	return out
}

// Strings converts texts.
func Strings(t []Text) []string {
	if t == nil {
		return nil
	}
	out := make([]string, len(t))
	for i, x := range t {
		out[i] = string(x)
	}
	return out
}

// Message is one line, and the bytes that it announces. Exactly one field is set.
type Message struct {
	// From the scheduler.
	Setup *Setup `json:"setup,omitempty"`
	Run   *Run   `json:"run,omitempty"`
	Kill  *Kill  `json:"kill,omitempty"`
	Unrun *Key   `json:"unrun,omitempty"` // give back, if it has not started
	Get   *Get   `json:"get,omitempty"`
	Drop  *Key   `json:"drop,omitempty"` // its output is not wanted any more
	// Sweep ends what is left here of a task of several nodes, whose command has ended.
	Sweep *Key `json:"sweep,omitempty"`
	// Feed is a part of the standard input of a task, which comes before the task: see
	// Writer.
	Feed *Feed `json:"feed,omitempty"`
	// Credit is how many bytes of live output more the scheduler takes.
	Credit int64 `json:"credit,omitempty"`
	Lease  int64 `json:"lease,omitempty"` // the clock value of renew: the lease lasts Setup.Lease from then
	Bye    bool  `json:"bye,omitempty"`   // end everything
	Leave  bool  `json:"leave,omitempty"` // the scheduler disconnects: continue as if it were gone, and answer with Left

	// From the worker.
	Hello   *Hello  `json:"hello,omitempty"`
	Done    *Done   `json:"done,omitempty"`
	Started []Start `json:"started,omitempty"` // what has been running for a moment
	Back    *Key    `json:"back,omitempty"`    // the answer to unrun
	Data    *Data   `json:"data,omitempty"`
	Signal  string  `json:"signal,omitempty"` // the worker got this one, at At by its clock
	At      float64 `json:"at,omitempty"`     // seconds since 1970
	Note    Text    `json:"note,omitempty"`   // a line for the user
	Fatal   Text    `json:"fatal,omitempty"`  // why the worker cannot go on
	Renew   int64   `json:"renew,omitempty"`  // its clock, at which it asks for a lease
	Swept   *Key    `json:"swept,omitempty"`  // the answer to sweep
	Clear   bool    `json:"clear,omitempty"`  // nothing is left of Setup.Orphans
	Left    bool    `json:"left,omitempty"`   // the answer to leave: nothing more comes
	// Enforce answers Setup.LimitMem: how the worker limits memory.
	Enforce MemLimit `json:"enforce,omitempty"`
}

// MemLimit says how the memory of tasks is limited; empty: not at all.
type MemLimit string

// The ways.
const (
	ByKernel MemLimit = "kernel"   // in a cgroup of the task
	Measured MemLimit = "measured" // by the worker, at intervals
)

// Key identifies one attempt at one task.
type Key struct {
	Seq     int64 `json:"q"`
	Attempt int32 `json:"a"`
}

// Hello is the worker's greeting: what its node has.
type Hello struct {
	Version  string     `json:"version"`
	Protocol int        `json:"protocol"`
	Host     string     `json:"host"`
	PID      int        `json:"pid"`
	CPUs     []pool.CPU `json:"cpus"` // those it may use
	Mem      int64      `json:"mem"`
	GPUs     []pool.GPU `json:"gpus,omitempty"`
	GPUVar   string     `json:"gpu_var,omitempty"` // the variable that names them
	// Kernel identifies boot and process namespace: process ids of two workers are comparable if it
	// is equal. Empty: unknown.
	Kernel    string    `json:"kernel,omitempty"`
	Processes []Process `json:"processes,omitempty"` // the worker, its supervisor
	Clock     int64     `json:"clock,omitempty"`     // as Renew
}

// Process is a process of a machine, whatever other gets its id later.
type Process struct {
	PID   int    `json:"pid"`
	Start uint64 `json:"start"` // clock ticks after the boot
}

// Identity tells a worker apart from all others.
type Identity struct {
	Session   string    `json:"session"`
	Node      string    `json:"node"`
	Kernel    string    `json:"kernel,omitempty"`
	Processes []Process `json:"processes,omitempty"`
	Finish    bool      `json:"finish,omitempty"` // it lets its tasks end
}

// Setup is the scheduler's answer: what is the same for all tasks.
type Setup struct {
	Run      Text    `json:"run,omitempty"` // the run directory
	Session  string  `json:"session"`       // names this start of the scheduler
	Node     string  `json:"node"`
	Dir      Text    `json:"dir"`
	Env      []Text  `json:"env,omitempty"` // in addition to the worker's own
	Shell    Text    `json:"shell"`         // "": commands are split at blanks
	Always   bool    `json:"always,omitempty"`
	Pin      bool    `json:"pin,omitempty"`
	Threads  int     `json:"threads"` // that start tasks
	HideGPUs bool    `json:"hide_gpus,omitempty"`
	GPUVar   string  `json:"gpu_var,omitempty"`
	Output   Output  `json:"output"`
	Grace    float64 `json:"grace"` // seconds between SIGTERM and SIGKILL
	// Lease is for how many seconds a worker may have tasks running without contact to the scheduler:
	// it ends them in time, and nothing is left afterwards.
	Lease  float64 `json:"lease"`
	Finish bool    `json:"finish,omitempty"`
	Keep   bool    `json:"keep,omitempty"` // what tasks leave behind
	Noop   bool    `json:"noop,omitempty"` // start nothing: measures the rest
	Near   bool    `json:"near,omitempty"` // the scheduler is on this machine, and can open its files
	// Nice is the niceness of tasks, unless the worker's is higher.
	Nice int `json:"nice,omitempty"`
	// MemFree keeps tasks from starting while less memory is available, in bytes.
	MemFree int64 `json:"mem_free,omitempty"`
	// LimitMem limits the memory of tasks to what they have requested.
	LimitMem bool `json:"limit_mem,omitempty"`
	// Orphans are workers of this machine that may still be there. The worker tells
	// when they are gone.
	Orphans []Identity `json:"orphans,omitempty"`
	// Teardown is run when the last worker of the run leaves the node, if a [Run] with
	// Prepare has begun there.
	Teardown Text `json:"teardown,omitempty"`
	// Reach says how nodes reach each other, for tasks of several.
	Reach Reach `json:"reach,omitzero"`
}

// Reach is how a node is reached: see package transport.
type Reach struct {
	Kind     string `json:"kind"`
	Command  Text   `json:"command,omitempty"`
	Options  []Text `json:"options,omitempty"`
	External bool   `json:"external,omitempty"`
}

// LeaseSlack is how long before the end of its lease a worker has killed what runs,
// in seconds.
const LeaseSlack = 2

// Over is the exit status of a worker that has left no processes.
const Over = 86

// Output says where the output of tasks goes.
type Output struct {
	Return bool `json:"return,omitempty"` // to the scheduler
	Files  bool `json:"files,omitempty"`  // a file for each task and stream
	Merged bool `json:"merged,omitempty"` // a file for each node and stream
	Live   bool `json:"live,omitempty"`   // to the scheduler while tasks run
}

// Run is a task to run.
type Run struct {
	Key
	Text    Text      `json:"c"`
	Argv    bool      `json:"v,omitempty"` // Text is an argument list, NUL between
	Dir     Text      `json:"d,omitempty"`
	Env     []Text    `json:"e,omitempty"`
	Need    pool.Need `json:"n"`
	CPUs    []int     `json:"p,omitempty"`
	GPUs    []string  `json:"g,omitempty"`
	Slot    int       `json:"k,omitempty"` // its number
	Mark    bool      `json:"m,omitempty"` // "{%}" stands for it in Text
	Follow  bool      `json:"f,omitempty"` // on the slot of a task with that need
	Again   bool      `json:"r,omitempty"` // it was to follow; start it now, if it has not been
	Timeout float64   `json:"t,omitempty"` // seconds
	ID      Text      `json:"i,omitempty"`
	Stdin   Text      `json:"s,omitempty"`
	Capture bool      `json:"o,omitempty"`
	Prepare bool      `json:"pr,omitempty"` // sets the node up: nothing is run if that was done
	Files   []Text    `json:"fo,omitempty"` // where its output and its number go
	Nodes   []Node    `json:"ps,omitempty"` // its nodes, if they are several: the first is this one
}

// Node is a node of a task of several nodes.
type Node struct {
	Node string   `json:"n"`
	CPUs []int    `json:"p,omitempty"`
	GPUs []string `json:"g,omitempty"`
	Host string   `json:"h"`           // the machine
	Job  string   `json:"j,omitempty"` // of Slurm
	Most int      `json:"c,omitempty"` // CPUs that the job has there
	// Group is the component of a heterogeneous job; -1: of none.
	Group int  `json:"x"`
	Pilot bool `json:"pi,omitempty"` // the job is another than the scheduler's
	Local bool `json:"l,omitempty"`  // the scheduler is there
}

// Feed is a part of the standard input of the task that comes next.
type Feed struct {
	Bytes []byte `json:"-"` // follow the line
	Len   int    `json:"n"`
}

// Kill ends a task: SIGTERM, and SIGKILL after the grace time.
type Kill struct {
	Key
	Why Outcome `json:"why"`
	Now bool    `json:"now,omitempty"` // SIGKILL at once
}

// Outcome says how a task ended.
type Outcome string

// The outcomes.
const (
	OK          Outcome = "ok"
	Failed      Outcome = "failed"    // exit status or signal
	NoStart     Outcome = "nostart"   // could not be started
	Timeout     Outcome = "timeout"   // its own time limit
	OutOfMemory Outcome = "oom"       // it used more memory than it had requested
	Cancelled   Outcome = "cancelled" // by the user, or what it depends on failed
	Refused     Outcome = "refused"   // fits no node
	Lost        Outcome = "lost"      // its node or the connection went
	Stopped     Outcome = "stopped"   // ended because the run ended; it can be resumed
	// OutputLost: it ended, but not all that it printed could be kept.
	OutputLost Outcome = "output"
)

// Done tells that a task has ended.
type Done struct {
	Key
	What    Outcome `json:"w,omitempty"` // empty: as exit and signal say
	Exit    int     `json:"x,omitempty"`
	Signal  int     `json:"s,omitempty"`
	Error   Text    `json:"e,omitempty"` // why it could not be started
	Start   float64 `json:"b"`           // seconds since 1970
	Seconds float64 `json:"r"`
	User    float64 `json:"u,omitempty"` // CPU seconds
	System  float64 `json:"y,omitempty"`
	MaxRSS  int64   `json:"m,omitempty"` // bytes
	Next    *Key    `json:"n,omitempty"` // what follows on its slot
	Out     []byte  `json:"-"`           // follow the line
	Err     []byte  `json:"-"`
	OutLen  int     `json:"o,omitempty"`
	ErrLen  int     `json:"l,omitempty"`
	OutSize int64   `json:"os,omitempty"` // it is to be fetched with get
	ErrSize int64   `json:"ls,omitempty"`
	OutFrom int64   `json:"of,omitempty"` // from there on; the scheduler has what is before
	ErrFrom int64   `json:"lf,omitempty"`
	// Files hold it at the node, for a scheduler that is near.
	Files []Text `json:"f,omitempty"`
	// Lost says why not all of its output could be kept.
	Lost Text `json:"z,omitempty"`
	// Tails are the ends of standard output and standard error of a task that has failed, unless it has files of
	// its own.
	Tails [2]Tail `json:"k,omitzero"`
	// NoFile says that it did not start as the file system of the run directory has no file for its output.
	NoFile bool `json:"nf,omitempty"`
}

// Tail is the end of what a command has written to a stream.
type Tail struct {
	Size int64 `json:"size"`           // bytes that it has written
	Text Text  `json:"text,omitempty"` // the last ones of them
}

// TailSize is how many bytes of both streams are in the Tails of a task.
const TailSize = 64 << 10

// Failed reports whether the command did not run, or not well.
func (d *Done) Failed() bool { return d.What != "" || d.Exit != 0 || d.Signal != 0 || d.Lost != "" }

// Killed reports whether the command may have been ended because its job or node is being ended: Slurm
// signals all processes at once, and tasks end sooner than it becomes known that this is the cause.
func (d *Done) Killed() bool {
	return d.What == "" && (d.Signal == 15 || d.Signal == 9 || d.Exit == 128+15 || d.Exit == 128+9)
}

// Open returns for how long the end of a command may prove to be that of its job or node: a shell whose
// program was killed may go on, and succeed. To wait for that costs a task a small part of its time; the
// shortest are not worth that.
func (d *Done) Open() time.Duration {
	part := time.Duration(d.Seconds * float64(time.Second) / 20)
	switch {
	case d.What != "" || part < 5*time.Millisecond && !d.Killed():
		return 0
	case d.Killed():
		return outside.Notice
	}
	return min(part, outside.Notice)
}

// Start tells that a task runs.
type Start struct {
	Key
	PID int     `json:"p"`
	At  float64 `json:"b"`
}

// Get asks for a piece of a task's output.
type Get struct {
	Key
	Stderr bool  `json:"l,omitempty"`
	Offset int64 `json:"o"`
}

// Data is a piece of a task's output; an empty one is the end.
type Data struct {
	Key
	Stderr bool   `json:"l,omitempty"`
	Offset int64  `json:"o"`
	Bytes  []byte `json:"-"` // follow the line
	Len    int    `json:"n,omitempty"`
	Error  Text   `json:"e,omitempty"`
	Live   bool   `json:"v,omitempty"` // output of a running task, without a request
}

// Inline is how much output comes with Done; more is fetched in pieces of Piece.
const (
	Inline = 16 << 10
	Piece  = 512 << 10
)

// LiveCredit is how many bytes of live output a worker may send before the scheduler says
// that it takes more.
const LiveCredit = 1 << 20

// MaxLine limits a line.
const MaxLine = 4 << 20

// Magic starts the worker's greeting.
const Magic = "JOBPOOL1 "

// marshal appends m as a line, and the bytes that belong to it unchanged, with a newline at their
// end: some connections forward whole lines only.
func marshal(b *bytes.Buffer, m *Message) error {
	raw := m.raw()
	for _, r := range raw {
		*r.length = len(*r.bytes)
	}
	e := json.NewEncoder(b)
	e.SetEscapeHTML(false)
	if err := e.Encode(m); err != nil {
		return err
	}
	for _, r := range raw {
		if len(*r.bytes) > 0 {
			b.Write(*r.bytes)
			b.WriteByte('\n')
		}
		*r.length = 0
	}
	return nil
}

// rawBytes are bytes that follow the line of a message.
type rawBytes struct {
	bytes  *[]byte
	length *int
}

func (m *Message) raw() []rawBytes {
	switch {
	case m.Data != nil:
		return []rawBytes{{&m.Data.Bytes, &m.Data.Len}}
	case m.Feed != nil:
		return []rawBytes{{&m.Feed.Bytes, &m.Feed.Len}}
	case m.Done != nil:
		return []rawBytes{{&m.Done.Out, &m.Done.OutLen}, {&m.Done.Err, &m.Done.ErrLen}}
	}
	return nil
}
