// Package life is the story of an order as a machine without effects: what was heard goes in, and what follows
// comes out. Who has the order carries that out, and tells the machine what came of it.
//
//	            ┌───── none was made, or lists lack it, or the bill ────┐
//	            ▼                                                       │
//	┌───────► waits ────────────────── a request is sent ────────────► asked
//	│           │ a list shows one                                      │ its id, or a list shows it
//	│           └─────────────────────────┬─────────────────────────────┘
//	│                                     ▼
//	├── the machine is at fault, lost ─ boots ──── its container runs ────► runs
//	├── lost, if the task may run again ──│──────────────────────────────────┤
//	│                                     └────────── it is gone, ───────────┤
//	│                                          maybe after its end           ▼
//	└── the bill shows no end ◄────────────────────────────────────────── unbilled
//
// From each of them the order may be over: the task has ended. An instance that a step leaves behind is doomed:
// it is destroyed until it is gone, and as long as there is one, nothing else is ordered for the task.
//
// One answer proves little where the market may be wrong: such answers are counted as doubts (unlisted, silent,
// offline), and something follows only when there were enough of them for long enough. A list that lacks an instance
// never proves that it is gone: then it is asked for by its id.
package life

import (
	"maps"
	"slices"
	"time"

	"github.com/ponos-tools/ponos/lib/task"
)

// Phase is where an order is in its story.
type Phase string

// The phases of an order.
const (
	Waits    Phase = "waits"    // it has no instance
	Asked    Phase = "asked"    // a request for one was sent, and is not answered: there may be one
	Boots    Phase = "boots"    // it has one, whose container was not seen running
	Runs     Phase = "runs"     // its container was seen running
	Unbilled Phase = "unbilled" // it is gone, maybe after the end of the task: the bill will show that
	Over     Phase = "over"     // the task has ended
)

// Doubt is what speaks against an instance, or against a request for one, and proves little by itself.
type Doubt string

// The doubts.
const (
	Unlisted Doubt = "unlisted" // a list lacks it
	Silent   Doubt = "silent"   // its container does not run, and has not said how the task has ended
	Offline  Doubt = "offline"  // its host does not answer
)

// Looks is how often in a row the same was seen, and when first and last.
type Looks struct {
	Times int       `json:"times"`
	First time.Time `json:"first"`
	Last  time.Time `json:"last"`
}

// State is where an order stands: its phase, what counts for its deadlines, and the evidence.
type State struct {
	Phase  Phase           `json:"phase"`
	Since  time.Time       `json:"since,omitzero"` // since when it is in this phase: deadlines count from here
	Doubts map[Doubt]Looks `json:"doubts,omitempty"`

	Instance int64     `json:"instance,omitempty"`
	Created  time.Time `json:"created,omitzero"` // when the instance was
	Ran      time.Time `json:"ran,omitzero"`     // when it was first seen running
	Told     string    `json:"told,omitempty"`   // the last word of its entrypoint in its label: see [Word]

	Number int `json:"number"`           // of its label: each instance gets another one
	Tries  int `json:"tries"`            // instances so far
	Losses int `json:"losses,omitempty"` // of these, lost after the task may have begun
	// Asked is when a request was given up whose answer never came, and which no list has answered: there may
	// have been an instance that only the bill shows.
	Asked    time.Time `json:"asked,omitzero"`
	Rejected int       `json:"rejected,omitempty"` // offers in a row with which the market has rejected the order
	Held     time.Time `json:"held,omitzero"`      // until when it is not tried again for that reason

	Doomed []Doomed `json:"doomed,omitempty"`
	Status string   `json:"status,omitempty"` // the reason of where it is
}

// Doomed is an instance that is to be destroyed.
type Doomed struct {
	ID     int64     `json:"id"`
	Absent int       `json:"absent,omitempty"` // how many lists in a row lacked it
	Seen   time.Time `json:"seen,omitzero"`    // the last list that showed or lacked it
	Shown  int       `json:"shown,omitempty"`  // how many lists have shown it
	// Counted says that the start of the task there is counted as a loss, or that it was none.
	Counted bool `json:"counted,omitempty"`
}

// End is how a task has ended.
type End struct {
	State     task.State `json:"state"`
	Code      int        `json:"code"`
	Reason    string     `json:"reason,omitempty"`
	Cancelled bool       `json:"cancelled,omitempty"`
}

// Kind is what was heard.
type Kind string

// What is heard of an order: by the clock, from the market, from the entrypoint, and about money.
const (
	Turn     Kind = "turn"     // time has passed
	Unwanted Kind = "unwanted" // its task is over, and it has no instance; Hidden: a row of the list cannot be read
	Cancel   Kind = "cancel"   // the queue stops the task, with End
	Limit    Kind = "limit"    // it has cost too much, or the agent has: End

	Sent     Kind = "sent"     // a request for an instance is sent
	Made     Kind = "made"     // its answer: ID
	Refused  Kind = "refused"  // its answer: there is none, and another offer may do
	Rejected Kind = "rejected" // its answer: there is none; Lacking: with no offer, as the key has no permission
	Flawed   Kind = "flawed"   // its answer: a failure, and yet ID
	NoAnswer Kind = "no answer"

	Found   Kind = "found"  // a list shows ID with its label and Number
	Double  Kind = "double" // a list shows another one: ID
	Missing Kind = "missing"
	Shown   Kind = "shown"
	There   Kind = "there" // asked by its id, the market knows it
	Gone    Kind = "gone"  // asked by its id, the market says that there is none
	Billed  Kind = "billed"
	Tells   Kind = "tells"   // its label has Word
	Loads   Kind = "loads"   // its row: the host loads the image
	Running Kind = "running" // its row: the container runs
	Exits   Kind = "exits"   // its row: the container has ended
	Halts   Kind = "halts"   // its row: it is stopped
	Wanes   Kind = "wanes"   // its row: it is to be stopped, and its container does not run
	Falters Kind = "falters" // its row: the host is offline, or worse: Why
	Wrong   Kind = "wrong"   // it is not what was ordered, or its machine cannot run the image: Why
	NoImage Kind = "no image"
	Unbegun Kind = "unbegun" // its entrypoint has said that the command never began, and ended: Why

	Heard Kind = "heard" // its log was read, and the container goes on
	Said  Kind = "said"  // its log has the last word: End
	Quiet Kind = "quiet" // its container has ended, and its log has no last word
	Last  Kind = "last"  // its log was read for the last time: End, and Word if there was one

	Unpaid Kind = "unpaid" // the account has no credit: Why
	Paid   Kind = "paid"   // it has some

	DoomedShown Kind = "doomed shown" // a list shows a doomed one: ID; Begun: its container runs, or has run
	DoomedLost  Kind = "doomed lost"  // a list lacks it
	DoomedGone  Kind = "doomed gone"  // asked by its id, the market says that there is none
)

// Event is something that was heard, with what matters of it.
type Event struct {
	Kind   Kind
	At     time.Time // when the market was asked, or by the clock
	ID     int64
	Number int
	Born   time.Time // when an instance that was found was created
	Why    string    // in words
	Word   string    // of the entrypoint
	End    End

	Many     bool // the list lacks others too, and may be at fault
	Hidden   bool // the list has a row that cannot be read, and may be of this order
	Lacking  bool
	Stopped  bool // it is stopped, or is to be
	Bid      bool // it is lost to a higher bid
	Itself   bool // it was not shown, or not looked for, for as long as it takes to destroy itself after the end of the task
	Complete bool // its bill is
	Begun    bool
}

// Rules are what the configuration, and the market, allow.
type Rules struct {
	Settle   time.Duration // how long lists may lag
	Boot     time.Duration // 0, like the next two: no limit
	Runtime  time.Duration
	BillWait time.Duration // 0: no bill is read
	Retries  int           // after losses
	Machines int           // on how many a task is tried whose machines are at fault
}

// How long what proves nothing by itself has to last.
const (
	ManySettles = 10 // many missing instances, or one that is not known by its id, in times of Settle
	SilentTimes = 3
	offlineTime = 5 * time.Minute
	// OffersInARow with which an order is rejected hold it, for firstHold and then twice as long each time.
	OffersInARow = 5
	firstHold    = 5 * time.Minute
	longestHold  = time.Hour
)

// Action is what follows.
type Action string

// What follows, and is to be carried out.
const (
	Nothing    Action = ""
	Wait       Action = "wait"    // for Why
	Order      Action = "order"   // search, and send a request: Sent
	Find       Action = "find"    // ask for a list: Found or Missing
	Note       Action = "note"    // the instance is the order's own now
	AskID      Action = "ask id"  // There or Gone
	AskBill    Action = "bill"    // Billed
	AskAccount Action = "account" // Unpaid or Paid, with this Why
	Listen     Action = "listen"  // Heard, Said or nothing
	ListenOver Action = "listen to the end"
	Read       Action = "read"    // the log for the last time: Last, with this End
	Destroy    Action = "destroy" // an instance without an order's success
	Fault      Action = "fault"   // the instance is given up: Why; Avoid its machine
	Lost       Action = "lost"    // the instance is given up, and a start of the task with it: Why
	Hold       Action = "hold"
	Await      Action = "await" // the bill, and say so
	Finish     Action = "finish"
	Close      Action = "close"  // nothing of it is left
	Forget     Action = "forget" // nothing of it ever was
)

// Do is what follows. Where the order is over by it, End says how the task has ended.
type Do struct {
	Action Action
	Why    string
	Avoid  bool
	End    End
}

// Next returns where an order stands after an event, and what follows. It changes nothing of s.
func (s State) Next(e Event, r Rules) (State, Do) {
	x := &step{State: s, e: e, r: r}
	x.Doubts, x.Doomed = maps.Clone(s.Doubts), slices.Clone(s.Doomed)
	x.weigh()
	if at := x.row(); at >= 0 {
		table[at].then(x)
	}
	return x.State, x.do
}

// step is a state on its way to the next one.
type step struct {
	State
	e  Event
	r  Rules
	do Do
}

// row returns the first row of the table that fits; -1: nothing follows.
func (x *step) row() int {
	return slices.IndexFunc(table, func(w row) bool {
		return slices.Contains(w.in, x.Phase) && w.on == x.e.Kind && (w.when == nil || w.when(x))
	})
}

// weigh counts what was heard as evidence. A list that was seen before counts once.
func (x *step) weigh() {
	switch x.e.Kind {
	case Missing:
		x.look(Unlisted)
	case Quiet:
		x.look(Silent)
	case Falters:
		x.look(Offline)
	case Shown, There:
		delete(x.Doubts, Unlisted)
	case Running, Exits:
		delete(x.Doubts, Offline)
	case Heard:
		delete(x.Doubts, Silent)
	}
}

func (x *step) look(d Doubt) {
	l := x.Doubts[d]
	if l.Times > 0 && !x.e.At.After(l.Last) {
		return
	}
	if l.Last = x.e.At; l.Times == 0 {
		l.First = x.e.At
	}
	l.Times++
	if x.Doubts == nil {
		x.Doubts = map[Doubt]Looks{}
	}
	x.Doubts[d] = l
}

// lasted is how long a doubt has lasted.
func (x *step) lasted(d Doubt) time.Duration { return x.e.At.Sub(x.Doubts[d].First) }

// Pending returns when the market may last have carried out a request that is not answered; zero: there is none.
func (s State) Pending() time.Time {
	if s.Phase == Asked && s.Since.After(s.Asked) {
		return s.Since
	}
	return s.Asked
}

// Most is how many instances there may be that cost money.
func (s State) Most() int {
	n := len(s.Doomed)
	if s.Phase == Boots || s.Phase == Runs || s.Phase == Asked || s.Phase == Over && !s.Asked.IsZero() {
		n++
	}
	return n
}

// MissingSince is since when lists lack the instance; zero: they do not.
func (s State) MissingSince() time.Time { return s.Doubts[Unlisted].First }

// IsDoomed reports whether an instance is to be destroyed.
func (s State) IsDoomed(id int64) bool {
	return slices.ContainsFunc(s.Doomed, func(d Doomed) bool { return d.ID == id })
}

// Rewind moves times in the future to the present, as after the clock was set back: nothing would follow until then.
func (s *State) Rewind(now time.Time) {
	fix := func(t *time.Time, slack time.Duration) {
		if t.After(now.Add(slack)) {
			*t = now.Add(-time.Millisecond)
		}
	}
	for _, t := range []*time.Time{&s.Since, &s.Created, &s.Ran, &s.Asked} {
		fix(t, time.Minute)
	}
	fix(&s.Held, 2*longestHold)
	for d, l := range s.Doubts {
		fix(&l.First, time.Minute)
		fix(&l.Last, time.Minute)
		s.Doubts[d] = l
	}
}
