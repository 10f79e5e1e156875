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
	"slices"
	"time"

	"github.com/ponos-tools/ponos/lib/task"
)

// Phase is where an order is in its story.
type Phase string

// The phases of an order.
const (
	Waits    Phase = "waits"    // it has no instance
	Held     Phase = "held"     // like that, and it is not tried again for a while: the market has rejected it several times
	Asked    Phase = "asked"    // a request for one was sent, and is not answered: there may be one
	Boots    Phase = "boots"    // it has one, whose container was not seen running
	Runs     Phase = "runs"     // its container was seen running
	Unbilled Phase = "unbilled" // it is gone, maybe after the end of the task: the bill will show that
	Over     Phase = "over"     // the task has ended
)

// Doubt is what speaks against a try, and proves little by itself.
type Doubt string

// The doubts.
const (
	Unlisted Doubt = "unlisted" // a list lacks it
	Silent   Doubt = "silent"   // its container does not run, and has not said how the task has ended
	Offline  Doubt = "offline"  // its host does not answer
	Mute     Doubt = "mute"     // its log cannot be read
	Stubborn Doubt = "stubborn" // a list shows it although it is to be destroyed
)

// State is where an order stands: its phase, since when, and the evidence.
type State struct {
	Phase    Phase     `json:"phase"`
	Since    time.Time `json:"since,omitzero"`     // since when it is in this phase: deadlines count from here
	Status   string    `json:"status,omitempty"`   // the reason of where it is
	Rejected int       `json:"rejected,omitempty"` // offers in a row with which the market has rejected it
	Tries    []Try     `json:"tries,omitempty"`
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

	Sent     Kind = "sent"     // a request for an instance is sent, with Terms
	Made     Kind = "made"     // its answer: ID
	Refused  Kind = "refused"  // its answer: there is none, and another offer may do
	Rejected Kind = "rejected" // its answer: there is none; Lacking: with no offer, as the key has no permission
	Flawed   Kind = "flawed"   // its answer: a failure, and yet ID
	NoAnswer Kind = "no answer"

	Found   Kind = "found"  // a list shows ID with its label and Number
	Double  Kind = "double" // a list shows another one: ID, and Number if that is known
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

	Heard   Kind = "heard"   // its log was read, and the container goes on
	Said    Kind = "said"    // its log has the last word: End
	Quiet   Kind = "quiet"   // its container has ended, and its log has no last word
	Deaf    Kind = "deaf"    // its log could not be read
	Legible Kind = "legible" // its log could be read
	Last    Kind = "last"    // its log was read for the last time: End, and Word if there was one

	Unseen Kind = "unseen" // the bill shows ID, of a label with Number, which no list has shown
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
	Terms  Terms
	Born   time.Time // when an instance that was found was made
	Why    string    // in words
	Word   string    // of the entrypoint
	End    End

	Many     bool // the list lacks others too, and may be at fault
	Hidden   bool // the list has a row that cannot be read, and may be of this order
	Lacking  bool
	Stopped  bool // it is stopped, or is to be
	Bid      bool // it is lost to a higher bid
	Itself   bool // it was not shown, or not looked for, for as long as it takes to destroy itself after the end of the task
	Complete bool // its bill is, or will never be
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
	x.Tries = slices.Clone(s.Tries)
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
	own, doomed := x.own(), x.doomed()
	switch x.e.Kind {
	case Missing:
		own.look(Unlisted, x.e.At)
	case Quiet:
		own.look(Silent, x.e.At)
	case Falters:
		own.look(Offline, x.e.At)
	case Deaf:
		own.look(Mute, x.e.At)
	case Shown, There:
		own.forget(Unlisted)
	case Running, Exits:
		own.forget(Offline)
	case Heard:
		own.forget(Silent)
	case Legible:
		own.forget(Mute)
	case DoomedShown:
		doomed.forget(Unlisted)
		doomed.look(Stubborn, x.e.At)
	case DoomedLost:
		doomed.look(Unlisted, x.e.At)
	}
}

// Own returns the try that the order has now; without one, an empty one that is none of its own.
func (s State) Own() *Try {
	if t := s.own(); t != nil {
		return t
	}
	return &Try{}
}

func (s State) own() *Try {
	if at := slices.IndexFunc(s.Tries, func(t Try) bool { return t.Fate == Current }); at >= 0 {
		return &s.Tries[at]
	}
	return nil
}

// Last returns the own try, or else the last one that was.
func (s State) Last() Try {
	if t := s.own(); t != nil {
		return *t
	}
	for _, t := range slices.Backward(s.Tries) {
		if t.Fate != Spare {
			return t
		}
	}
	return Try{}
}

// Try returns the one of an instance; nil: it is not known.
func (s State) Try(id int64) *Try {
	if at := slices.IndexFunc(s.Tries, func(t Try) bool { return t.ID == id && id > 0 }); at >= 0 {
		return &s.Tries[at]
	}
	return nil
}

// Instance returns the id of its own instance; 0: it has none.
func (s State) Instance() int64 { return s.Own().ID }

// Number returns that of its present label, or of the next one: each instance gets another one.
func (s State) Number() int {
	if t := s.own(); t != nil {
		return t.Number
	}
	n := 0
	for _, t := range s.Tries {
		n = max(n, t.Number)
	}
	return n + 1
}

func (s State) count(is func(t Try) bool) (n int) {
	for _, t := range s.Tries {
		if is(t) {
			n++
		}
	}
	return n
}

// Instances returns how many it has had so far.
func (s State) Instances() int {
	return s.count(func(t Try) bool { return t.ID > 0 && t.Fate != Spare && t.Fate != Unmade })
}

// Losses returns how many tries were lost after the task may have begun.
func (s State) Losses() int { return s.count(func(t Try) bool { return t.Fate == WasLost }) }

// Pending returns when the market may last have carried out a request that is not answered; zero: there is none.
func (s State) Pending() (last time.Time) {
	for _, t := range s.Tries {
		if t.ID == 0 && t.Born.After(last) {
			last = t.Born
		}
	}
	return last
}

// Most is how many instances there may be that cost money.
func (s State) Most() int {
	n := s.count(s.isThere)
	if s.Phase == Asked || s.Phase == Over && !s.Pending().IsZero() {
		n++
	}
	return n
}

// isThere reports whether the instance of a try may be there.
func (s State) isThere(t Try) bool {
	return t.ID > 0 && t.Gone.IsZero() && (s.Phase != Unbilled || t.Fate != Current)
}

// isDoomed reports whether a try has an instance that is to be destroyed.
func (s State) isDoomed(t Try) bool {
	return t.ID > 0 && t.Gone.IsZero() && (t.Fate != Current || s.Phase == Over)
}

// IsDoomed reports whether an instance is to be destroyed.
func (s State) IsDoomed(id int64) bool { t := s.Try(id); return t != nil && s.isDoomed(*t) }

// Doomed returns the instances that are to be destroyed, until they are gone.
func (s State) Doomed() (ids []int64) {
	for _, t := range s.Tries {
		if s.isDoomed(t) {
			ids = append(ids, t.ID)
		}
	}
	return ids
}

// MissingSince is since when lists lack the instance; zero: they do not.
func (s State) MissingSince() time.Time { return s.Own().Looks[Unlisted].First }

// HeldUntil is until when it is not tried again.
func (s State) HeldUntil() time.Time {
	if s.Phase != Held {
		return time.Time{}
	}
	return s.Since.Add(min(firstHold<<max(0, min(s.Rejected/OffersInARow-1, 10)), longestHold))
}

// Rewind moves times in the future to the present, as after the clock was set back: nothing would follow until then.
func (s *State) Rewind(now time.Time) {
	fix := func(t *time.Time) {
		if t.After(now.Add(time.Minute)) {
			*t = now.Add(-time.Millisecond)
		}
	}
	fix(&s.Since)
	for n := range s.Tries {
		t := &s.Tries[n]
		for _, at := range []*time.Time{&t.Born, &t.Ran, &t.Seen, &t.Gone} {
			fix(at)
		}
		for d, l := range t.Looks {
			fix(&l.First)
			fix(&l.Last)
			t.Looks[d] = l
		}
	}
}
