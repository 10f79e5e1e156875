package life

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/ponos-tools/ponos/lib/task"
)

// heard is an event, what is known when it has been weighed, and what follows.
type heard struct {
	was   State
	looks map[Doubt]Looks
	e     Event
	r     Rules
	after State
	do    Do
}

func (h heard) in(phases ...Phase) bool { return slices.Contains(phases, h.was.Phase) }

func (h heard) lasted(d Doubt) time.Duration { return h.e.At.Sub(h.looks[d].First) }

func (h heard) doomed(id int64) *Doomed {
	if at := slices.IndexFunc(h.after.Doomed, func(d Doomed) bool { return d.ID == id }); at >= 0 {
		return &h.after.Doomed[at]
	}
	return nil
}

// kept is the state as it was, with what was weighed, and with changes; where it stands otherwise, that is what is wrong.
func (h heard) kept(action Action, changes ...func(s *State)) string {
	want := h.was
	want.Doubts, want.Doomed = maps.Clone(h.looks), slices.Clone(h.was.Doomed)
	for _, change := range changes {
		change(&want)
	}
	got := h.after
	for _, s := range []*State{&want, &got} {
		if len(s.Doubts) == 0 {
			s.Doubts = nil
		}
		if len(s.Doomed) == 0 {
			s.Doomed = nil
		}
	}
	switch {
	case !reflect.DeepEqual(want, got):
		return fmt.Sprintf("it is %+v, and not %+v", got, want)
	case h.do.Action != action:
		return fmt.Sprintf("it does %q, and not %q", h.do.Action, action)
	case h.do.Avoid:
		return "a machine is avoided for nothing"
	}
	return ""
}

// waits is a state without an instance, from now on.
func (h heard) waits(s *State) { s.Phase, s.Since, s.Doubts = Waits, h.e.At, nil }

// unmade is a state whose request is given up.
func (h heard) unmade(s *State) {
	s.Asked, s.Number = h.was.Pending(), s.Number+1
	h.waits(s)
}

// owns is a state with a new instance.
func (h heard) owns(created time.Time) func(s *State) {
	return func(s *State) {
		s.Phase, s.Since, s.Instance, s.Created, s.Tries = Boots, h.e.At, h.e.ID, created, s.Tries+1
		s.Ran, s.Told, s.Doubts, s.Status, s.Rejected, s.Held = time.Time{}, "", nil, Loading, 0, time.Time{}
	}
}

// over wants an end, after which the instance is to be destroyed.
func (h heard) over(state task.State, reason string) string {
	switch d := h.do; {
	case h.after.Phase != Over || d.Action != Finish:
		return "it is not over"
	case d.End.State != state || !strings.Contains(d.End.Reason, reason):
		return fmt.Sprintf("it ends with %+v, and not as %s with %q", d.End, state, reason)
	case h.was.Instance != 0 && !h.after.IsDoomed(h.was.Instance):
		return "its instance is left"
	}
	return ""
}

// read wants the log to be read for the last time.
func (h heard) read(e End) string {
	if h.do.End != e {
		return fmt.Sprintf("the end that counts without a log is %+v", h.do.End)
	}
	return h.kept(Read)
}

// given wants the instance to be given up, and the machine avoided or not. Counted: a start of the task there is counted.
func (h heard) given(action Action, why string, avoid, counted bool) string {
	d := h.doomed(h.was.Instance)
	switch {
	case d == nil || d.Counted != counted:
		return fmt.Sprintf("the instance is %+v", d)
	case h.do.Action != action || !strings.Contains(h.do.Why, why) || h.do.Avoid != avoid:
		return fmt.Sprintf("it does %+v", h.do)
	case h.after.Instance != 0 || !h.after.Ran.IsZero() || h.after.Told != "" || h.after.Number != h.was.Number+1 || h.after.Status == h.was.Status:
		return "something of the instance is left"
	}
	return ""
}

// lost wants a start of the task to be counted, or its end by the rules.
func (h heard) lost(why string, avoid bool) string {
	told, is := Word(h.was.Told)
	switch {
	case is:
		return h.read(told)
	case h.was.Losses >= h.r.Retries:
		if h.do.Avoid != avoid {
			return "the machine counts wrongly"
		}
		return h.over(task.Error, why)
	case h.after.Losses != h.was.Losses+1 || h.after.Phase != Waits || !h.after.Since.Equal(h.e.At) || h.after.Doubts != nil:
		return "a loss is not counted"
	}
	return h.given(Lost, why, avoid, true)
}

// fault wants another machine, or the end where that was tried often enough.
func (h heard) fault(why string, avoid, counted bool) string {
	if told, is := Word(h.was.Told); is && !counted {
		return h.read(told)
	}
	if h.was.Tries-h.was.Losses >= h.r.Machines {
		if h.do.Avoid != avoid || h.after.Phase != Over || !strings.HasPrefix(h.do.End.Reason, "no machine could run the image: ") ||
			!strings.Contains(h.do.End.Reason, why) {
			return "it is not over, or not for that"
		}
	} else if h.after.Phase != Waits || !h.after.Since.Equal(h.e.At) || h.after.Losses != h.was.Losses {
		return "it does not wait for another machine"
	}
	return h.given(Fault, why, avoid, counted)
}

// broken says which promise is broken, or "". It knows nothing of the rows.
func (h heard) broken() string {
	was, e, r := h.was, h.e, h.r
	told, isTold := Word(was.Told)
	settled := was.Pending().IsZero() || e.At.Sub(was.Pending()) > 2*r.Settle
	silent := h.looks[Silent].Times >= SilentTimes && h.lasted(Silent) >= r.Settle
	late := r.Runtime > 0 && e.At.Sub(was.Ran) > r.Runtime+time.Minute
	has, boots, runs := h.in(Boots, Runs, Unbilled), h.in(Boots), h.in(Runs)
	ran := func(s *State) { s.Phase, s.Since, s.Ran = Runs, e.At, e.At }
	status := func(text string) func(s *State) { return func(s *State) { s.Status = text } }
	switch {
	case e.Kind == Turn && h.in(Waits) && len(was.Doomed) > 0 && !strings.HasPrefix(h.do.Why, "instance "),
		e.Kind == Turn && h.in(Waits) && len(was.Doomed) == 0 && was.Held.After(e.At) && !strings.HasPrefix(h.do.Why, "the order is held"):
		return "it does not say what it waits for"
	case e.Kind == Turn && h.in(Waits) && (len(was.Doomed) > 0 || was.Held.After(e.At)):
		return h.kept(Wait)
	case e.Kind == Turn && h.in(Waits):
		return h.kept(Order)
	case e.Kind == Turn && h.in(Asked):
		return h.kept(Find)
	case e.Kind == Turn && h.in(Over) && settled && len(was.Doomed) == 0:
		return h.kept(Close)

	case e.Kind == Unwanted && h.in(Waits, Asked) && (len(was.Doomed) > 0 || h.in(Asked) && (e.Hidden || !settled)):
		return h.kept(Nothing)
	case e.Kind == Unwanted && h.in(Waits, Asked) && was.Tries == 0 && was.Pending().IsZero():
		return h.kept(Forget)
	case e.Kind == Unwanted && h.in(Waits, Asked):
		return h.over(task.Stopped, "its task has ended")

	case e.Kind == Sent && h.in(Waits):
		return h.kept(Nothing, func(s *State) { s.Phase, s.Since, s.Doubts = Asked, e.At, nil })
	case e.Kind == Made && h.in(Asked):
		return h.kept(Note, h.owns(e.At))
	case e.Kind == Refused && h.in(Asked):
		return h.kept(Nothing, h.waits)
	case e.Kind == Rejected && h.in(Asked):
		held := e.Lacking || (was.Rejected+1)%OffersInARow == 0
		if held != h.after.Held.After(e.At) && (held || h.after.Held != was.Held) || h.after.Rejected <= was.Rejected {
			return "rejections are not counted, or hold the order wrongly"
		}
		return h.kept(map[bool]Action{true: Hold}[held], h.waits, status(e.Why), func(s *State) { s.Held, s.Rejected = h.after.Held, h.after.Rejected })
	case e.Kind == Flawed && h.in(Asked):
		if h.doomed(e.ID) == nil {
			return "a contract is left"
		}
		return h.kept(Destroy, h.waits, func(s *State) { s.Number++; s.Doomed = h.after.Doomed })
	case e.Kind == NoAnswer && h.in(Asked):
		return h.kept(Nothing, func(s *State) { s.Asked = e.At })

	case e.Kind == Found && h.in(Waits, Asked) && !was.IsDoomed(e.ID):
		if c := h.after.Created; c.IsZero() || c.After(e.At) || h.in(Asked) && c.Before(was.Since) {
			return "it was created at a time that cannot be"
		}
		return h.kept(Note, h.owns(h.after.Created), func(s *State) { s.Asked, s.Number = time.Time{}, h.after.Number })
	case e.Kind == Missing && h.in(Asked) && h.looks[Unlisted].Times >= 2 && e.At.Sub(was.Pending()) >= ManySettles*r.Settle && e.Itself:
		return h.kept(AskBill)
	case e.Kind == Missing && h.in(Asked) && h.looks[Unlisted].Times >= 2 && e.At.Sub(was.Pending()) >= ManySettles*r.Settle,
		e.Kind == Billed && h.in(Asked) && r.BillWait > 0 && e.At.Sub(was.Pending()) >= r.BillWait:
		return h.kept(Nothing, h.unmade)
	case e.Kind == Billed && h.in(Asked) && e.At.Sub(was.Pending()) < r.BillWait:
		if !strings.Contains(h.do.Why, "waiting for the bill") {
			return "it does not say what it waits for"
		}
		return h.kept(Wait)
	case e.Kind == Billed && h.in(Asked) && was.Losses >= r.Retries:
		return h.over(task.Error, "whether the task has run is not known")
	case e.Kind == Billed && h.in(Asked):
		if !strings.Contains(h.do.Why, "whether the task has run is not known") {
			return "a start is counted without a word"
		}
		return h.kept(Lost, h.unmade, func(s *State) { s.Losses, s.Status = s.Losses+1, h.after.Status })
	case e.Kind == Missing && h.in(Asked):
		if !strings.HasSuffix(h.do.Why, "whether an order has gone through") {
			return "it does not say what it waits for"
		}
		return h.kept(Wait)

	case e.Kind == Missing && has:
		patience := map[bool]time.Duration{false: r.Settle, true: ManySettles * r.Settle}[e.Many]
		ask := h.looks[Unlisted].Times >= 2 && e.At.Sub(was.Created) >= r.Settle && h.lasted(Unlisted) >= patience
		return h.kept(map[bool]Action{true: AskID}[ask])
	case (e.Kind == Shown || e.Kind == There) && h.in(Unbilled):
		return h.kept(Nothing, func(s *State) { s.Phase = map[bool]Phase{true: Boots, false: Runs}[was.Ran.IsZero()] })
	case e.Kind == Gone && has:
		return h.kept(AskBill)
	case e.Kind == Billed && has && isTold:
		return h.read(told)
	case e.Kind == Billed && has && e.Itself && !e.Complete && h.lasted(Unlisted) < r.BillWait:
		return h.kept(map[bool]Action{true: Await}[!h.in(Unbilled)], status(Awaited), func(s *State) { s.Phase = Unbilled })
	case e.Kind == Billed && has && e.Itself:
		return h.over(task.Error, "whether its task had ended")
	case e.Kind == Billed && has && was.Ran.IsZero():
		return h.lost("before it was seen running", false)
	case e.Kind == Billed && has:
		return h.lost("its host was lost, or it was destroyed", false)

	case e.Kind == Tells && has:
		return h.kept(Nothing, func(s *State) { s.Told = e.Word })
	case e.Kind == Wrong && boots:
		return h.fault(e.Why, true, false)
	case e.Kind == Unbegun && has:
		return h.fault(e.Why, true, true)
	case e.Kind == NoImage && boots && h.do.End.Reason != e.Why, e.Kind == Cancel && h.in(Waits, Asked) && h.do.End != e.End:
		return "it ends otherwise than it was said"
	case e.Kind == NoImage && boots:
		return h.over(task.Error, e.Why)
	case e.Kind == Loads && boots && r.Boot > 0 && e.At.Sub(was.Since) > r.Boot:
		return h.fault("boot_timeout", true, false)
	case e.Kind == Loads && boots:
		return h.kept(Nothing, status(Loading))
	case e.Kind == Running && boots:
		return h.kept(Listen, ran)
	case e.Kind == Exits && boots:
		return h.kept(ListenOver, ran)
	case (e.Kind == Running || e.Kind == Exits) && runs && late:
		end, _ := Word("late")
		return h.read(end)
	case e.Kind == Running && runs:
		return h.kept(Listen)
	case e.Kind == Exits && runs, e.Kind == Halts && (boots || runs), e.Kind == Wanes && runs:
		return h.kept(ListenOver)
	case e.Kind == Wanes && boots && h.do.Why != "":
		return "no log was read"
	case e.Kind == Wanes && boots:
		return h.kept(AskAccount)
	case e.Kind == Falters && (boots || runs) && h.lasted(Offline) < offlineTime:
		return h.kept(Nothing, status("the host is "+e.Why))
	case e.Kind == Falters && (boots || runs) && was.Ran.IsZero():
		return h.lost("since before the task was seen running", true)
	case e.Kind == Falters && (boots || runs):
		if strings.Contains(h.do.Why+h.do.End.Reason, "before the task") {
			return "it was seen running"
		}
		return h.lost("the host was lost: it is "+e.Why, true)

	case e.Kind == Said && (boots || runs):
		if h.do.End != e.End {
			return "it ends otherwise than its log says"
		}
		return h.over(e.End.State, e.End.Reason)
	case e.Kind == Quiet && (boots || runs) && !silent:
		return h.kept(Nothing)
	case e.Kind == Quiet && (boots || runs) && isTold:
		return h.read(told)
	case e.Kind == Quiet && (boots || runs) && e.Stopped && e.Bid:
		return h.lost("it was outbid", false)
	case e.Kind == Quiet && (boots || runs) && e.Stopped:
		if h.do.Why != e.Why {
			return "why the log was not read is lost"
		}
		return h.kept(AskAccount)
	case e.Kind == Quiet && (boots || runs):
		return h.over(task.Error, "the container has ended without an exit code"+e.Why)
	case e.Kind == Unpaid && (boots || runs) && silent:
		return h.lost("the instance was stopped: "+e.Why, false)
	case e.Kind == Unpaid && boots:
		if h.after.Phase != Waits || h.after.Status != e.Why || h.after.Losses != was.Losses {
			return "it does not wait for credit"
		}
		return h.given(Fault, e.Why, false, false)
	case e.Kind == Paid && (boots || runs) && silent:
		return h.over(task.Error, "was stopped, without an exit code of the task"+e.Why)
	case e.Kind == Paid && boots:
		return h.fault("the machine has stopped it before it ran", true, false)

	case (e.Kind == Limit || e.Kind == Cancel) && has:
		return h.read(e.End)
	case e.Kind == Cancel && h.in(Waits, Asked):
		return h.over(e.End.State, e.End.Reason)
	case e.Kind == Last && has:
		want := e.End
		if word, is := Word(e.Word); is && !want.Cancelled {
			want = word
		} else if isTold && !want.Cancelled {
			want = told
		}
		if h.do.End != want {
			return fmt.Sprintf("it ends with %+v, and not %+v", h.do.End, want)
		}
		return h.over(want.State, want.Reason)

	case e.Kind == Double && e.ID > 0 && (e.ID != was.Instance || h.in(Over)):
		if h.doomed(e.ID) == nil || len(h.after.Doomed)-len(was.Doomed) > 1 {
			return "an instance that nobody needs is left"
		}
		return h.kept(Nothing, func(s *State) { s.Doomed = h.after.Doomed })
	case e.Kind == DoomedShown && h.in(Waits, Asked) && e.Begun && was.IsDoomed(e.ID) && !h.wasCounted():
		switch d := h.doomed(e.ID); {
		case d == nil || !d.Counted:
			return "a start is not counted"
		case was.Losses >= r.Retries:
			return h.over(task.Error, "may have begun the task before it was gone")
		case h.after.Losses != was.Losses+1 || h.do.Action != Lost || h.after.Phase != was.Phase || !strings.Contains(h.do.Why, "may have begun"):
			return "a loss is not counted"
		}
	case e.Kind == DoomedShown && was.IsDoomed(e.ID):
		if d := h.doomed(e.ID); d == nil || d.Absent != 0 || e.At.After(h.wasDoomed().Seen) && d.Shown != h.wasDoomed().Shown+1 {
			return "that an instance remains is not counted"
		}
		return h.kept(Nothing, func(s *State) { s.Doomed = h.after.Doomed })
	case e.Kind == DoomedLost && was.IsDoomed(e.ID):
		absent := h.wasDoomed().Absent
		if e.At.After(h.wasDoomed().Seen) {
			absent++
		}
		if d := h.doomed(e.ID); h.in(Over) && (d == nil) != (absent >= 2) || d != nil && d.Absent != absent || d == nil && !h.in(Over) {
			return "an absence is not counted, or proves too much"
		}
		return h.kept(map[bool]Action{true: AskID}[!h.in(Over)], func(s *State) { s.Doomed = h.after.Doomed })
	case e.Kind == DoomedGone && was.IsDoomed(e.ID):
		if h.doomed(e.ID) != nil {
			return "an instance that is gone is to be destroyed"
		}
		return h.kept(Nothing, func(s *State) { s.Doomed = h.after.Doomed })
	default:
		return h.kept(Nothing)
	}
	return ""
}

func (h heard) wasDoomed() Doomed {
	return h.was.Doomed[slices.IndexFunc(h.was.Doomed, func(d Doomed) bool { return d.ID == h.e.ID })]
}

func (h heard) wasCounted() bool { return h.wasDoomed().Counted }
