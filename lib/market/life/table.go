package life

import (
	"fmt"
	"slices"
	"time"

	"github.com/ponos-tools/ponos/lib/task"
)

// row says what follows when something is heard in some phases, and a condition holds.
type row struct {
	in   []Phase
	on   Kind
	when func(*step) bool // nil: always
	then func(*step)
}

var (
	waiting = []Phase{Waits, Held}
	without = []Phase{Waits, Held, Asked}
	present = []Phase{Boots, Runs}
	with    = []Phase{Boots, Runs, Unbilled}
	all     = []Phase{Waits, Held, Asked, Boots, Runs, Unbilled, Over}
)

// table is what follows: of the rows that fit, the first one. Where none fits, nothing does.
var table = []row{
	// Nothing is ordered while an instance may run the task.
	{waiting, Turn, (*step).hasDoomed, func(x *step) {
		x.wait("instance %d may still run the task, and is being destroyed", x.Doomed()[0])
	}},
	{[]Phase{Held}, Turn, func(x *step) bool { return x.HeldUntil().After(x.e.At) }, func(x *step) {
		x.wait("the order is held for %v: %s", x.HeldUntil().Sub(x.e.At).Round(time.Second), x.Status)
	}},
	{waiting, Turn, nil, does(Order)},
	{[]Phase{Asked}, Turn, nil, does(Find)},
	{[]Phase{Over}, Turn, func(x *step) bool { return !x.hasDoomed() && x.isSettled() }, does(Close)},

	{without, Unwanted, (*step).hasDoomed, does(Nothing)},
	{[]Phase{Asked}, Unwanted, func(x *step) bool { return x.e.Hidden || !x.isSettled() }, does(Nothing)},
	{without, Unwanted, func(x *step) bool { return len(x.Tries) > 0 }, func(x *step) {
		x.finish(End{State: task.Stopped, Reason: "its task has ended"})
	}},
	{without, Unwanted, nil, does(Forget)},

	// A request, and its answer.
	{waiting, Sent, nil, func(x *step) {
		x.Tries = append(x.Tries, Try{Number: x.Number(), Terms: x.e.Terms, Born: x.e.At})
		x.Phase, x.Since = Asked, x.e.At
	}},
	{[]Phase{Asked}, Made, nil, func(x *step) { x.has(x.e.At) }},
	{[]Phase{Asked}, Refused, nil, (*step).refused},
	{[]Phase{Asked}, Rejected, nil, (*step).reject},
	{[]Phase{Asked}, Flawed, nil, func(x *step) {
		x.own().ID = x.e.ID // it may appear in lists for a while, and must not be taken for the next one
		x.give(Spare)
		x.do.Action = Destroy
	}},
	{[]Phase{Asked}, NoAnswer, nil, func(x *step) { x.own().Born = x.e.At }},

	// A request that was not answered. If its instance appears later, its label shows that it is not needed.
	{without, Found, func(x *step) bool { return x.Try(x.e.ID) == nil }, (*step).find},
	{[]Phase{Asked}, Missing, func(x *step) bool { return x.isUnmade() && x.e.Itself }, does(AskBill)},
	{[]Phase{Asked}, Missing, (*step).isUnmade, func(x *step) { x.give(Unmade) }},
	{[]Phase{Asked}, Missing, nil, func(x *step) { x.wait("it is not known yet whether an order has gone through") }},
	// The bill does not show it either.
	{[]Phase{Asked}, Billed, func(x *step) bool { return !x.e.Complete && x.e.At.Sub(x.Pending()) < x.r.BillWait }, func(x *step) {
		x.wait("it is not known whether an order has gone through before the agent was away: waiting for the bill, which shows it")
	}},
	{[]Phase{Asked}, Billed, func(x *step) bool { return !x.e.Complete && x.r.BillWait > 0 }, func(x *step) { x.give(Unmade) }},
	{[]Phase{Asked}, Billed, nil, func(x *step) {
		x.lose("the answer to an order was lost before the agent was away, and whether the task has run is not known", false)
	}},

	// An instance that lists lack.
	{with, Missing, (*step).isMissing, does(AskID)},
	{[]Phase{Unbilled}, Shown, nil, (*step).back},
	{[]Phase{Unbilled}, There, nil, (*step).back},
	{with, Gone, nil, does(AskBill)},
	{with, Billed, (*step).hasTold, (*step).readTold},
	{with, Billed, (*step).awaitsBill, func(x *step) {
		if x.Phase != Unbilled {
			x.do.Action = Await
		}
		x.Phase, x.Status = Unbilled, Awaited
	}},
	{with, Billed, func(x *step) bool { return x.e.Itself }, func(x *step) {
		x.fail("the instance has disappeared while the agent was away: whether its task had ended, and how, is not known")
	}},
	{with, Billed, (*step).isUnseen, func(x *step) {
		x.lose("the instance has disappeared before it was seen running, and whether the task has run is not known", false)
	}},
	{with, Billed, nil, func(x *step) {
		x.lose("the instance has disappeared: its host was lost, or it was destroyed from outside", false)
	}},

	// What its row shows.
	{with, Tells, nil, func(x *step) { x.own().Told = x.e.Word }},
	{[]Phase{Boots}, Wrong, nil, func(x *step) { x.fault(x.e.Why, true) }},
	{with, Unbegun, nil, func(x *step) { x.part(Fault, x.e.Why, NeverBegan); x.faulty(x.e.Why, true) }},
	{[]Phase{Boots}, NoImage, nil, func(x *step) { x.fail(x.e.Why) }},
	{[]Phase{Boots}, Loads, func(x *step) bool { return x.r.Boot > 0 && x.e.At.Sub(x.Since) > x.r.Boot }, func(x *step) {
		x.fault("the image was not loaded within boot_timeout", true)
	}},
	{[]Phase{Boots}, Loads, nil, func(x *step) { x.Status = Loading }},
	{[]Phase{Boots}, Running, nil, func(x *step) { x.run(Listen) }},
	{[]Phase{Boots}, Exits, nil, func(x *step) { x.run(ListenOver) }},
	{[]Phase{Runs}, Running, (*step).isLate, (*step).tooLate},
	{[]Phase{Runs}, Exits, (*step).isLate, (*step).tooLate},
	{[]Phase{Runs}, Running, nil, does(Listen)},
	{[]Phase{Runs}, Exits, nil, does(ListenOver)},
	{present, Halts, nil, does(ListenOver)}, // its log shows whether it ran
	{[]Phase{Runs}, Wanes, nil, does(ListenOver)},
	{[]Phase{Boots}, Wanes, nil, does(AskAccount)},
	{present, Falters, func(x *step) bool { return x.lasted(Offline) < offlineTime }, func(x *step) {
		x.Status = "the host is " + x.e.Why
	}},
	{present, Falters, (*step).isUnseen, func(x *step) {
		x.lose("the host was lost: it is "+x.e.Why+" since before the task was seen running, and whether it has run is not known", true)
	}},
	{present, Falters, nil, func(x *step) { x.lose("the host was lost: it is "+x.e.Why, true) }},

	// What its log says. An instance that is outbid, or not paid for, is stopped without a word.
	{present, Said, nil, func(x *step) { x.finish(x.e.End) }},
	{present, Quiet, func(x *step) bool { return !x.isSilent() }, does(Nothing)},
	{present, Quiet, (*step).hasTold, (*step).readTold},
	{present, Quiet, func(x *step) bool { return x.e.Stopped && x.e.Bid }, func(x *step) {
		x.lose("the instance was stopped: it was outbid", false)
	}},
	{present, Quiet, func(x *step) bool { return x.e.Stopped }, func(x *step) { x.do = Do{Action: AskAccount, Why: x.e.Why} }},
	{present, Quiet, nil, func(x *step) { x.fail("the container has ended without an exit code" + x.e.Why) }},

	// Money. When there is none, the market stops all instances.
	{present, Unpaid, (*step).isSilent, func(x *step) { x.lose("the instance was stopped: "+x.e.Why, false) }},
	{[]Phase{Boots}, Unpaid, nil, func(x *step) { x.part(Fault, x.e.Why, Faulty); x.Status = x.e.Why }},
	{present, Paid, (*step).isSilent, func(x *step) {
		x.fail("the instance was stopped, without an exit code of the task" + x.e.Why)
	}},
	{[]Phase{Boots}, Paid, nil, func(x *step) { x.fault("the machine has stopped it before it ran", true) }},
	{with, Limit, nil, func(x *step) { x.do = Do{Action: Read, End: x.e.End} }},
	{with, Cancel, nil, func(x *step) { x.do = Do{Action: Read, End: x.e.End} }},
	{without, Cancel, nil, func(x *step) { x.finish(x.e.End) }},
	{with, Last, nil, func(x *step) { x.finish(x.lastEnd()) }},

	// What is to be destroyed, until it is gone.
	{all, Double, func(x *step) bool { return x.e.ID > 0 && (x.e.ID != x.Instance() || x.Phase == Over) }, (*step).doom},
	{all, Unseen, (*step).isUnknown, func(x *step) { x.doom(); x.gone() }},
	{without, DoomedShown, (*step).hasBegun, (*step).begun},
	{all, DoomedLost, func(x *step) bool {
		d := x.doomed()
		return d != nil && (x.Phase != Over || d.Looks[Unlisted].Times >= 2)
	}, does(AskID)},
	{all, DoomedGone, nil, (*step).gone},
}

// The words of states that others look for.
const (
	Loading = "the machine loads the image"
	Awaited = "the instance has disappeared, maybe after the end of its task: waiting for the bill, which shows the exit code"
)

func does(a Action) func(*step) { return func(x *step) { x.do.Action = a } }

func (x *step) hasDoomed() bool { return len(x.Doomed()) > 0 }
func (x *step) isUnseen() bool  { return x.Own().Ran.IsZero() }
func (x *step) hasTold() bool   { _, told := Word(x.Own().Told); return told }

// saw is how often in a row a doubt was seen, and lasted for how long.
func (x *step) saw(d Doubt) int              { return x.Own().Looks[d].Times }
func (x *step) lasted(d Doubt) time.Duration { return x.e.At.Sub(x.Own().Looks[d].First) }

// isSettled reports whether an instance of a request that was not answered would have been listed long ago.
func (x *step) isSettled() bool {
	p := x.Pending()
	return p.IsZero() || x.e.At.Sub(p) > 2*x.r.Settle
}

// isUnmade reports whether enough lists lack the instance of a request that was not answered. Nothing else tells of it, as its id
// is not known, so they have to for long.
func (x *step) isUnmade() bool {
	return x.saw(Unlisted) >= 2 && x.e.At.Sub(x.Pending()) >= ManySettles*x.r.Settle
}

// isMissing reports whether enough lists lack the instance to ask for it by its id. Lists lag.
func (x *step) isMissing() bool {
	patience := x.r.Settle
	if x.e.Many {
		patience *= ManySettles
	}
	return x.saw(Unlisted) >= 2 && x.e.At.Sub(x.Own().Born) >= x.r.Settle && x.lasted(Unlisted) >= patience
}

func (x *step) awaitsBill() bool {
	return x.e.Itself && !x.e.Complete && x.lasted(Unlisted) < x.r.BillWait
}

// isSilent reports whether the container has ended, and said nothing, for long enough: it may be started again, and
// its log may lag behind.
func (x *step) isSilent() bool {
	return x.saw(Silent) >= SilentTimes && x.lasted(Silent) >= x.r.Settle
}

func (x *step) isLate() bool {
	return x.r.Runtime > 0 && x.e.At.Sub(x.Own().Ran) > x.r.Runtime+time.Minute
}

func (x *step) tooLate() {
	late, _ := Word("late")
	x.do = Do{Action: Read, End: late}
}

func (x *step) wait(format string, args ...any) {
	x.do = Do{Action: Wait, Why: fmt.Sprintf(format, args...)}
}

func (x *step) want(p Phase) { x.Phase, x.Since = p, x.e.At }

// refused forgets a request that has made nothing.
func (x *step) refused() {
	x.Tries = slices.DeleteFunc(x.Tries, func(t Try) bool { return t.Fate == Current })
	x.want(Waits)
}

// has enters the id of the order's own instance.
func (x *step) has(born time.Time) {
	t := x.own()
	t.ID, t.Born, t.Looks = x.e.ID, born, nil
	x.Phase, x.Since, x.Status, x.Rejected = Boots, x.e.At, Loading, 0
	x.do.Action = Note
}

// find makes an instance that a list shows that of the order. The market's clock may differ.
func (x *step) find() {
	born := x.e.Born
	if born.IsZero() || born.After(x.e.At) {
		born = x.e.At
	}
	if x.Phase == Asked && born.Before(x.Since) {
		born = x.Since
	}
	if x.own() == nil {
		x.Tries = append(x.Tries, Try{Number: x.Number()})
	}
	if x.e.Number > 0 {
		x.own().Number = x.e.Number
	}
	x.has(born)
}

func (x *step) back() {
	if x.Phase = Runs; x.isUnseen() {
		x.Phase = Boots
	}
}

func (x *step) run(a Action) {
	x.Phase, x.Since, x.own().Ran = Runs, x.e.At, x.e.At
	x.do.Action = a
}

// reject counts an offer with which the market has rejected the order. The offer may be at fault, so the next one is
// tried; after several in a row, the order is held.
func (x *step) reject() {
	x.refused()
	x.Status = x.e.Why
	if x.Rejected++; x.e.Lacking {
		x.Rejected = (x.Rejected + OffersInARow - 1) / OffersInARow * OffersInARow // other offers do not help
	}
	if x.Rejected%OffersInARow == 0 {
		x.want(Held)
		x.do.Action = Hold
	}
}

// give gives the own try up: its instance, if there is one, is to be destroyed.
func (x *step) give(f Fate) {
	t := x.own()
	t.Fate = f
	t.retire()
	x.want(Waits)
}

// part gives the own instance up, and says so.
func (x *step) part(a Action, why string, f Fate) {
	x.give(f)
	x.do = Do{Action: a, Why: why}
}

// fault gives up an instance whose machine is at fault, before it has run the task.
func (x *step) fault(why string, avoid bool) {
	if x.hasTold() { // its task had already ended
		x.readTold()
		return
	}
	x.part(Fault, why, Faulty)
	x.faulty(why, avoid)
}

// faulty says what becomes of an order whose machine was at fault.
func (x *step) faulty(why string, avoid bool) {
	x.do.Avoid = avoid
	if x.Status = why + "; another one is ordered when it is gone"; x.Instances()-x.Losses() >= x.r.Machines {
		x.end(End{State: task.Error, Reason: "no machine could run the image: " + why})
	}
}

// lose gives up an instance that was lost while the task ran, or may have. The task is started again on another machine,
// as often as the rules allow, once that one is gone.
func (x *step) lose(why string, avoid bool) {
	if x.hasTold() { // its task had already ended
		x.readTold()
		return
	}
	if x.Losses() >= x.r.Retries {
		if x.r.Retries > 0 {
			why += fmt.Sprintf("; the task was started again %d of %d times that retries_on_loss allows", x.Losses(), x.r.Retries)
		}
		x.fail(why)
		x.do.Avoid = avoid
		return
	}
	x.part(Lost, why, WasLost)
	x.do.Avoid, x.Status = avoid, x.again(why)
}

func (x *step) again(why string) string {
	return fmt.Sprintf("%s; the task is started again (%d of %d)", why, x.Losses(), x.r.Retries)
}

// isUnknown reports whether an instance is not that of the request that waits for an answer, nor another one that is known.
func (x *step) isUnknown() bool {
	return x.e.ID > 0 && x.Try(x.e.ID) == nil && (x.Phase != Asked || x.Number() != x.e.Number)
}

// hasBegun reports whether a doomed instance may have begun the task although it was given up before it was seen running.
func (x *step) hasBegun() bool {
	d := x.doomed()
	return d != nil && x.e.Begun && d.Fate != WasLost && d.Fate != NeverBegan
}

// begun counts that start: the task may not run again unless it may after a loss.
func (x *step) begun() {
	why := fmt.Sprintf("%s; instance %d may have begun the task before it was gone", x.Status, x.e.ID)
	if x.Losses() >= x.r.Retries {
		x.fail(why)
		return
	}
	x.doomed().Fate = WasLost
	x.Status = x.again(why)
	x.do = Do{Action: Lost, Why: why}
}

func (x *step) fail(why string) { x.finish(End{State: task.Error, Reason: why}) }

// readTold has the log read for the last time: the entrypoint has told the end elsewhere.
func (x *step) readTold() {
	e, _ := Word(x.own().Told)
	x.do = Do{Action: Read, End: e}
}

// lastEnd is how the task has ended, after a last look at its log: what the entrypoint has said counts, unless the queue
// has stopped the task.
func (x *step) lastEnd() End {
	if x.e.End.Cancelled {
		return x.e.End
	}
	for _, word := range []string{x.e.Word, x.own().Told} {
		if e, said := Word(word); said {
			return e
		}
	}
	return x.e.End
}

func (x *step) finish(e End) {
	x.do = Do{Action: Finish}
	x.end(e)
}

// end ends the order. Its instance is not needed any more.
func (x *step) end(e End) {
	x.Phase, x.do.End = Over, e
	if t := x.own(); t != nil {
		t.retire()
	}
}

// doom enters an instance that nobody needs: that of a request without an answer, by its label, or one that is not
// known. One that was gone is back.
func (x *step) doom() {
	t := x.Try(x.e.ID)
	if t == nil {
		at := slices.IndexFunc(x.Tries, func(t Try) bool {
			return t.ID == 0 && t.Number == x.e.Number && (t.Fate != Current || x.Phase == Over)
		})
		if at < 0 {
			at = len(x.Tries)
			x.Tries = append(x.Tries, Try{Number: x.e.Number, Fate: Spare})
		}
		t = &x.Tries[at]
		t.ID = x.e.ID
	}
	if !t.Gone.IsZero() {
		t.Gone, t.Looks = time.Time{}, nil
	}
}

func (x *step) doomed() *Try {
	if t := x.Try(x.e.ID); t != nil && x.isDoomed(*t) {
		return t
	}
	return nil
}

// gone enters that there is no such instance any more.
func (x *step) gone() {
	if d := x.doomed(); d != nil {
		d.Gone, d.Looks = d.until(x.e.At), nil
	}
}
