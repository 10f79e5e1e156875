package life

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ponos-tools/ponos/lib/task"
)

// machine is an instance as it is, whatever the market says of it.
type machine struct {
	id     int64
	number int    // of its label
	state  string // loads, runs, ended, offline, stopped
	begun  bool   // the entrypoint has begun the command
	word   string // in its label, when it has ended
	age    int    // turns since its end
	after  bool   // it began the command when the order had given it up
}

// world is a market that lies as far as markets do: lists lack what exists, for any number of turns; answers are lost, on
// the way there or back; a destroy does nothing, whatever it answers; a bill comes late. It tells the truth of one
// instance that is asked for by its id, if it answers, and of its own requests after some time.
type world struct {
	*testing.T
	choose func(n int) int // what happens next, of n

	s      State
	r      Rules
	now    time.Time
	there  []*machine
	gone   []*machine
	late   *machine // of a request whose answer was lost: it is made when lists lag no more
	next   int64
	honest bool
	closed bool
	wanted bool // by the queue
	ended  int  // how often the order came to its end
	story  []string
}

func (w *world) bad(format string, args ...any) {
	w.Helper()
	b, _ := json.MarshalIndent(w.s, "", " ")
	w.Fatalf("%s\n%s\n%s", fmt.Sprintf(format, args...), strings.Join(w.story, "\n"), b)
}

func (w *world) lies(n int) bool { return !w.honest && w.choose(n) == 0 }

// hear says an event, and checks what always holds.
func (w *world) hear(e Event) Do {
	w.Helper()
	if e.At.IsZero() {
		e.At = w.now
	}
	h, _, wrong := hear(w.s, e, w.r)
	after, do := h.after, h.do
	if after.Phase != w.s.Phase || do.Action != Nothing {
		w.story = append(w.story, fmt.Sprintf("%s: %s ─ %s %d ─► %s, %s", w.now.Format(time.TimeOnly), w.s.Phase, e.Kind, e.ID, after.Phase, do.Action))
	}
	if after.Phase == Over && w.s.Phase != Over {
		w.ended++
		said := func(m *machine) bool { end, known := Word(m.word); return known && end == do.End }
		if !do.End.Cancelled && do.End.State != task.Error && do.End.State != task.Stopped && !slices.ContainsFunc(slices.Concat(w.there, w.gone), said) {
			w.bad("no entrypoint has said that the task has ended so: %+v", do.End)
		}
	}
	if w.s = after; wrong != "" {
		w.bad("%s", wrong)
	}
	return do
}

// copied is a state that shares nothing with it.
func copied(s State) State {
	s.Tries = slices.Clone(s.Tries)
	for n := range s.Tries {
		s.Tries[n].Looks = maps.Clone(s.Tries[n].Looks)
	}
	return s
}

// hear says an event, and returns which row it meets, and what is wrong with the answer, whatever has happened before.
func hear(was State, e Event, r Rules) (h heard, at int, wrong string) {
	before := copied(was)
	after, do := was.Next(e, r)
	x := &step{State: copied(was), e: e, r: r}
	x.weigh()
	at = x.row()
	h = heard{before, x.State, e, r, after, do}
	ends := after.Phase == Over && was.Phase != Over
	own := after.own()
	switch {
	case !reflect.DeepEqual(before, copied(was)):
		return h, at, "the state that it began with has changed"
	case was.Phase == Over && after.Phase != Over:
		return h, at, "an order that is over is not any more"
	case after.Phase != Over && (own == nil) != slices.Contains(waiting, after.Phase), own != nil && after.Phase == Asked && own.ID != 0,
		own != nil && slices.Contains(with, after.Phase) && own.ID == 0, after.count(func(t Try) bool { return t.Fate == Current }) > 1:
		return h, at, fmt.Sprintf("%s with %+v", after.Phase, after.Tries)
	case after.Losses() > r.Retries:
		return h, at, fmt.Sprintf("lost %d times", after.Losses())
	case after.Number() < was.Number() && e.Kind != Found:
		return h, at, "a label is used again"
	case ends != (do.End.State != "") && do.Action != Read:
		return h, at, "over without an end, or an end while it is not over"
	case after.IsDoomed(after.Instance()) && after.Phase != Over:
		return h, at, "its own instance is doomed"
	case was.Instance() != 0 && after.Instance() != was.Instance() && !after.IsDoomed(was.Instance()):
		return h, at, "an instance is forgotten"
	case do.Action == Order && (len(was.Doomed()) > 0 || !h.in(Waits, Held)):
		return h, at, "ordered while an instance may run the task"
	case do.Action == Close && (len(was.Doomed()) > 0 || was.Phase != Over):
		return h, at, "closed while there may be an instance"
	case slices.Contains(waiting, after.Phase) && len(after.Doomed()) > 0 && e.Kind == Turn && do.Action != Wait:
		return h, at, "it waits, and does not say for what"
	}
	for _, t := range was.Tries {
		if t.ID != 0 && after.Try(t.ID) == nil {
			return h, at, "what it has cost is forgotten"
		}
	}
	if left := func(t Try) bool { return t.Fate != Current }; after.count(left) < was.count(left) {
		return h, at, "a try is forgotten"
	}
	return h, at, h.broken()
}

func (w *world) find(id int64) *machine {
	for _, m := range w.there {
		if m.id == id {
			return m
		}
	}
	return nil
}

func (w *world) remove(m *machine) {
	w.there = slices.DeleteFunc(w.there, func(o *machine) bool { return o == m })
	w.gone = append(w.gone, m)
}

// destroy asks the market to destroy an instance.
func (w *world) destroy(id int64) {
	if m := w.find(id); m != nil && !w.lies(2) {
		w.remove(m)
	}
}

// make makes an instance of the order's present label.
func (w *world) make() *machine {
	w.next++
	m := &machine{id: w.next, number: w.s.Number(), state: "loads"}
	w.there = append(w.there, m)
	return m
}

// live lets time pass for the instances, and says what must never be.
func (w *world) live() {
	w.now = w.now.Add(time.Minute)
	if w.late != nil && w.now.Sub(w.s.Pending()) > 0 {
		w.there = append(w.there, w.late)
		w.late = nil
	}
	for _, m := range slices.Clone(w.there) {
		happens := w.choose(8)
		switch {
		case m.state == "ended":
			if m.age++; m.age > 10 && m.word != "" {
				w.remove(m) // it destroys itself
			}
		case happens == 0 && !w.honest:
			w.remove(m) // its host is lost
		case happens == 1 && !w.honest:
			m.state = "offline"
		case happens == 2 && !w.honest:
			m.state = "stopped" // by the market
		case happens < 6 && m.begun:
			m.state = "runs"
			if w.choose(4) == 0 {
				m.state, m.word = "ended", []string{"0", "1", "late", ""}[w.choose(4)]
			}
		case happens == 6 && m.state == "loads" && w.choose(4) == 0 && !w.honest:
			m.state, m.word = "ended", "unfit"
		case happens < 6:
			m.state, m.begun, m.after = "runs", true, m.id != w.s.Instance() && m.number <= w.s.Number() && m != w.late
		}
	}
	running := 0
	for _, m := range w.there {
		if m.begun && m.state != "ended" && m.state != "stopped" {
			running++
		}
	}
	if running > 1 {
		w.bad("%d machines run the task", running)
	}
	// The command begins once, and once more for each loss that was counted. The agent cannot know of a start between its
	// last look at a machine that it has given up, and the end of that.
	begun := 0
	for _, m := range slices.Concat(w.there, w.gone) {
		if m.begun && !m.after {
			begun++
		}
	}
	if begun > 1+w.s.Losses() {
		w.bad("the command began %d times, and %d losses were counted", begun, w.s.Losses())
	}
}

// request carries an order out.
func (w *world) request() {
	w.hear(Event{Kind: Sent})
	answer := w.choose(8)
	if w.honest {
		answer = 7
	}
	switch answer {
	case 0:
		w.hear(Event{Kind: Refused})
	case 1:
		w.hear(Event{Kind: Rejected, Why: "no", Lacking: w.choose(2) == 0})
	case 2:
		w.hear(Event{Kind: Flawed, ID: w.make().id})
	case 3: // lost on the way there
		w.hear(Event{Kind: NoAnswer})
	case 4: // lost on the way back, or the agent was killed before it came
		w.late = w.make()
		w.there = w.there[:len(w.there)-1]
		if w.choose(2) == 0 {
			w.hear(Event{Kind: NoAnswer})
		}
	default:
		w.hear(Event{Kind: Made, ID: w.make().id})
	}
}

// carry carries out what follows.
func (w *world) carry(do Do, m *machine, stopped bool) {
	for range 10 {
		switch do.Action {
		case AskID:
			if w.lies(3) {
				return // no answer
			}
			if w.find(w.s.Instance()) != nil {
				do = w.hear(Event{Kind: There})
			} else {
				do = w.hear(Event{Kind: Gone})
			}
		case AskBill:
			late := w.lies(2)
			e := Event{Kind: Billed, Complete: !late, Itself: true}
			for _, g := range w.gone {
				if g.id == w.s.Instance() {
					e.Itself = g.word != "" || w.lies(2)
					if _, end := Word(g.word); end && !late {
						w.hear(Event{Kind: Tells, Word: g.word})
					}
				}
			}
			do = w.hear(e)
		case AskAccount:
			if w.lies(3) {
				return
			}
			do = w.hear(Event{Kind: []Kind{Paid, Unpaid}[w.choose(2)], Why: "no credit"})
		case Listen, ListenOver:
			end, said := Word(m.word)
			_, never := Never(m.word)
			switch {
			case w.lies(4):
				return // there was no time
			case never && !w.lies(3):
				do = w.hear(Event{Kind: Unbegun, Why: "unfit"})
			case said && !w.lies(3):
				do = w.hear(Event{Kind: Said, End: end})
			case do.Action == Listen && m.word == "":
				do = w.hear(Event{Kind: Heard})
			default:
				do = w.hear(Event{Kind: Quiet, Stopped: stopped, Bid: w.choose(2) == 0})
			}
		case Read:
			e := Event{Kind: Last, End: do.End}
			if m != nil && !w.lies(2) {
				e.Word = m.word // a word that is no end counts for nothing
			}
			do = w.hear(e)
		default:
			return
		}
	}
	w.bad("what follows does not end")
}

// turn is a turn of the agent: it lists, and looks at its order.
func (w *world) turn() {
	w.live()
	none, many := w.lies(4), w.lies(6) // a list that lacks all
	listed := map[int64]*machine{}
	for _, m := range w.there {
		// Of a request whose answer was lost, only lists tell: they lack it for a short time.
		if (none || w.lies(4)) && (m.id == w.s.Instance() || w.s.IsDoomed(m.id)) {
			continue
		}
		listed[m.id] = m
	}
	if w.closed && len(listed) == 0 {
		return
	}
	w.closed = false
	for _, m := range listed {
		if w.s.Instance() != 0 || w.s.Phase == Over || m.number != w.s.Number() {
			w.hear(Event{Kind: Double, ID: m.id, Number: m.number})
		}
	}
	w.sweep(listed)
	switch w.s.Phase {
	case Waits, Held, Asked:
		w.without(listed)
	case Boots, Runs, Unbilled:
		if w.with(listed, many); w.s.Instance() == 0 {
			w.sweep(listed) // what the list shows of an instance that is given up counts
		}
	}
	if do := w.hear(Event{Kind: Turn}); w.s.Phase == Over && do.Action == Close {
		w.closed = true
	}
}

// sweep looks at what is to be destroyed.
func (w *world) sweep(listed map[int64]*machine) {
	for _, id := range w.s.Doomed() {
		if m := listed[id]; m != nil {
			w.hear(Event{Kind: DoomedShown, ID: id, Begun: m.state != "loads"})
			if m.begun {
				m.after = false
			}
			w.destroy(id) // in bulk: some 404 that is said to be for all, and some success without effect
			continue
		}
		if do := w.hear(Event{Kind: DoomedLost, ID: id}); do.Action != AskID || w.lies(3) {
			continue
		}
		if w.find(id) == nil {
			w.hear(Event{Kind: DoomedGone, ID: id})
		} else {
			w.destroy(id)
		}
	}
}

func (w *world) without(listed map[int64]*machine) {
	for _, m := range listed {
		if m.number == w.s.Number() && w.s.Try(m.id) == nil {
			if !w.wanted {
				w.hear(Event{Kind: Double, ID: m.id, Number: m.number})
				continue
			}
			w.hear(Event{Kind: Found, ID: m.id, Number: m.number, Born: w.now.Add(time.Duration(w.choose(3)-1) * time.Minute)})
			return
		}
	}
	if !w.wanted {
		w.closed = w.hear(Event{Kind: Unwanted, Hidden: w.lies(3)}).Action == Forget
		return
	}
	if w.s.Phase == Asked {
		if w.hear(Event{Kind: Missing}); w.s.Phase == Asked && w.s.Own().Looks[Unlisted].Times > 40 {
			w.bad("nothing follows from 40 lists")
		}
	}
	if !slices.Contains(waiting, w.s.Phase) {
		return
	}
	if do := w.hear(Event{Kind: Turn}); do.Action == Order {
		w.request()
	}
}

func (w *world) with(listed map[int64]*machine, many bool) {
	m := listed[w.s.Instance()]
	if !w.wanted && w.choose(2) == 0 {
		w.carry(w.hear(Event{Kind: Cancel, End: End{State: task.Stopped, Cancelled: true}}), m, false)
		return
	}
	if m == nil {
		w.carry(w.hear(Event{Kind: Missing, Many: many}), nil, false)
		return
	}
	w.hear(Event{Kind: Shown})
	if _, never := Never(m.word); never && !w.lies(3) {
		w.carry(w.hear(Event{Kind: Unbegun, Why: "unfit"}), m, false)
		return
	} else if m.word != "" && m.state == "ended" && !never && !w.lies(3) {
		w.hear(Event{Kind: Tells, Word: m.word})
	}
	if w.lies(30) {
		w.carry(w.hear(Event{Kind: Limit, End: End{State: task.Error, Reason: "too dear"}}), m, false)
		return
	}
	if w.s.Phase == Boots && w.lies(12) {
		w.hear(Event{Kind: Wrong, Why: "another GPU"})
		return
	}
	e := Event{}
	switch m.state {
	case "loads":
		if e.Kind = Loads; w.lies(12) {
			e.Kind, e.Why = NoImage, "no such image"
		}
	case "runs":
		e.Kind = Running
	case "ended":
		e.Kind = Exits
	case "offline":
		e.Kind, e.Why = Falters, "offline"
	default:
		e.Stopped = true
		e.Kind = []Kind{Halts, Wanes}[w.choose(2)]
	}
	w.carry(w.hear(e), m, e.Stopped)
}

// walk lets an order live for some turns.
func walk(t *testing.T, choose func(n int) int, turns int) {
	w := &world{T: t, choose: choose, wanted: true, now: time.Date(2026, 3, 1, 8, 0, 0, 0, time.UTC)}
	w.s = State{Phase: Waits}
	w.r = Rules{
		Settle: time.Minute, Boot: 5 * time.Minute, Runtime: 20 * time.Minute,
		BillWait: []time.Duration{0, time.Hour}[choose(2)], Retries: choose(3), Machines: choose(4),
	}
	for range turns {
		w.turn()
		if w.wanted && choose(20) == 0 {
			w.wanted = false
		}
	}
	// In the end the market is honest: the task ends, whether it is wanted or not, and nothing is left.
	w.wanted, w.honest = w.wanted && choose(2) == 0, true
	for range 300 {
		w.turn()
	}
	if len(w.there) > 0 || !w.closed {
		w.bad("left: %d instances, and an order that is %s", len(w.there), w.s.Phase)
	}
	if w.ended > 1 {
		w.bad("it has ended %d times", w.ended)
	}
}

// Whatever the market says and loses: one machine at a time, starts that are counted, and nothing left.
func TestWalks(t *testing.T) {
	walks := 4000
	if testing.Short() {
		walks = 500
	}
	for seed := range walks {
		r := rand.New(rand.NewPCG(42, uint64(seed)))
		walk(t, r.IntN, 10+r.IntN(60))
	}
}

// events are what may be heard at a time, in every variant that a condition looks at.
func events(at time.Time) []Event {
	var out []Event
	for _, k := range []Kind{
		Turn, Sent, Made, Refused, Flawed, NoAnswer, Shown, There, Gone, Loads, Running, Exits, Halts, Wanes, Falters, Wrong, NoImage, Heard,
		DoomedLost, DoomedGone, DoomedShown, Double, Found, Missing, Unwanted, Rejected, Quiet, Unpaid, Paid, Unbegun, Deaf, Legible,
	} {
		out = append(out, Event{Kind: k})
	}
	for _, k := range []Kind{Limit, Cancel, Said, Last} {
		out = append(out, Event{Kind: k, End: End{State: task.Stopped, Cancelled: k == Cancel}})
	}
	out = append(out,
		Event{Kind: Missing, Many: true}, Event{Kind: Missing, Itself: true}, Event{Kind: Unwanted, Hidden: true}, Event{Kind: Rejected, Lacking: true}, Event{Kind: Quiet, Stopped: true},
		Event{Kind: Quiet, Stopped: true, Bid: true}, Event{Kind: DoomedShown, Begun: true}, Event{Kind: Tells, Word: "3"}, Event{Kind: Tells, Word: "x"},
		Event{Kind: Billed}, Event{Kind: Billed, Itself: true}, Event{Kind: Billed, Itself: true, Complete: true},
		Event{Kind: Last, End: End{State: task.Error}, Word: "0"}, Event{Kind: Double, ID: 2}, Event{Kind: Double, ID: 3, Number: 1}, Event{Kind: Unseen, ID: 4, Number: 1}, Event{Kind: DoomedGone, ID: 2}, Event{Kind: DoomedLost, ID: 2})
	for n := range out {
		if out[n].At = at; out[n].ID == 0 {
			out[n].ID = 1
		}
		out[n].Why, out[n].Born = "why", at
	}
	return out
}

// walkAll hears all events in all orders, also those that cannot follow each other, as far as the states that they lead to are new,
// and there are not too many. It calls do with each row that is met, and how, and returns how many states of each phase there were.
func walkAll(t *testing.T, most int, billWait time.Duration, do func(at int, h heard)) map[Phase]int {
	t.Helper()
	begin := time.Date(2026, 3, 1, 8, 0, 0, 0, time.UTC)
	r := Rules{Settle: time.Minute, Boot: 5 * time.Minute, Runtime: time.Hour, BillWait: billWait, Retries: 1, Machines: 2}
	type place struct {
		State
		at    time.Time
		after *place
		by    Event
	}
	seen := map[string]bool{}
	phases := map[Phase]int{}
	queue := []*place{{State: State{Phase: Waits}, at: begin}}
	for n := 0; n < len(queue) && n < most; n++ {
		p := queue[n]
		if phases[p.Phase]++; phases[p.Phase] > most/25 {
			continue // enough of those
		}
		for _, pass := range []time.Duration{time.Minute, 2 * time.Hour} {
			at := p.at.Add(pass)
			for _, e := range events(at) {
				if e.Kind == Made || e.Kind == Found || e.Kind == Flawed {
					for p.Try(e.ID) != nil { // no id is given twice
						e.ID++
					}
				}
				h, row, wrong := hear(p.State, e, r)
				if wrong != "" {
					story := fmt.Sprintf("%s %d", e.Kind, e.ID)
					for q := p; q.after != nil; q = q.after {
						story = fmt.Sprintf("%s %d, ", q.by.Kind, q.by.ID) + story
					}
					b, _ := json.MarshalIndent(h.after, "", " ")
					t.Fatalf("%s, after %s\n%s", wrong, story, b)
				}
				if row >= 0 {
					do(row, h)
				}
				if s := h.after; s.Instances() < 3 && len(s.Tries) < 4 && s.count(func(t Try) bool { return t.Fate == Spare }) < 2 && s.Rejected < 7 {
					if key := alike(s, at); !seen[key] {
						seen[key] = true
						queue = append(queue, &place{State: s, at: at, after: p, by: e})
					}
				}
			}
		}
	}
	return phases
}

// alike is the same for states that differ only a little in how long ago something was.
func alike(s State, at time.Time) string {
	if s.Phase == Boots || s.Phase == Runs {
		s.Tries = slices.DeleteFunc(slices.Clone(s.Tries), func(t Try) bool { return t.Fate != Current && t.Fate != WasLost })
	}
	old := func(t time.Time) string {
		if t.IsZero() {
			return "-"
		}
		return fmt.Sprint(at.Sub(t) > 0, at.Sub(t) >= time.Minute, at.Sub(t) > 30*time.Minute)
	}
	out := fmt.Sprint(s.Phase, old(s.Since), s.Rejected%5 == 4, s.HeldUntil().After(at))
	for _, t := range s.Tries {
		if !t.Gone.IsZero() && t.Fate != Current {
			out += fmt.Sprint("|", t.ID, t.Fate == WasLost)
			continue
		}
		out += fmt.Sprint("|", t.ID, t.Fate, t.Ran.IsZero(), t.Told, t.Gone.IsZero(), t.ID == 0 && at.Sub(t.Born) > 30*time.Minute)
		for _, d := range []Doubt{Unlisted, Silent, Offline} {
			l := t.Looks[d]
			if s.isDoomed(t) {
				out += fmt.Sprint(min(l.Times, 2))
				continue
			}
			out += fmt.Sprint(d, min(l.Times, 3), old(l.First))
		}
	}
	return out
}
