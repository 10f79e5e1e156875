package life

import (
	"cmp"
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
	known State // with what was weighed
	e     Event
	r     Rules
	after State
	do    Do
}

func (h heard) in(phases ...Phase) bool { return slices.Contains(phases, h.was.Phase) }

func (h heard) looks(d Doubt) Looks { return h.known.Own().Looks[d] }

func (h heard) lasted(d Doubt) time.Duration { return h.e.At.Sub(h.looks(d).First) }

// kept is the state as it was, with what was weighed, and with changes; where it stands otherwise, that is what is wrong.
func (h heard) kept(action Action, changes ...func(s *State)) string {
	want, got := copied(h.known), copied(h.after)
	for _, change := range changes {
		change(&want)
	}
	for _, s := range []*State{&want, &got} {
		if len(s.Tries) == 0 {
			s.Tries = nil
		}
		for n := range s.Tries {
			if len(s.Tries[n].Looks) == 0 {
				s.Tries[n].Looks = nil
			}
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
func (h heard) waits(s *State) { s.Phase, s.Since = Waits, h.e.At }

// gives is a state whose own try is given up.
func (h heard) gives(f Fate) func(s *State) {
	return func(s *State) {
		t := s.own()
		t.Fate = f
		maps.DeleteFunc(t.Looks, func(d Doubt, _ Looks) bool { return d != Unlisted || t.ID == 0 })
		for d, l := range t.Looks {
			t.Looks[d] = Looks{First: l.First, Last: l.Last}
		}
		h.waits(s)
	}
}

// refused is a state whose request has made nothing.
func (h heard) refused(s *State) {
	s.Tries = slices.DeleteFunc(s.Tries, func(t Try) bool { return t.Fate == Current })
	h.waits(s)
}

// owns is a state whose own try has an instance.
func (h heard) owns(number int, born time.Time) func(s *State) {
	return func(s *State) {
		if s.own() == nil {
			s.Tries = append(s.Tries, Try{})
		}
		t := s.own()
		t.Number, t.ID, t.Born, t.Looks = number, h.e.ID, born, nil
		s.Phase, s.Since, s.Status, s.Rejected = Boots, h.e.At, Loading, 0
	}
}

// over wants an end, after which the instance is to be destroyed.
func (h heard) over(state task.State, reason string) string {
	switch d := h.do; {
	case h.after.Phase != Over || d.Action != Finish:
		return "it is not over"
	case d.End.State != state || !strings.Contains(d.End.Reason, reason):
		return fmt.Sprintf("it ends with %+v, and not as %s with %q", d.End, state, reason)
	case h.was.Instance() != 0 && !h.after.IsDoomed(h.was.Instance()):
		return "its instance is left"
	case h.after.Own().Looks[Unlisted].Times > 0:
		return "lists from before the end prove that its instance is gone"
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

// given wants the instance to be given up for good, and the machine avoided or not.
func (h heard) given(action Action, why string, avoid bool, fate Fate) string {
	d := h.do
	if d.Action != action || !strings.Contains(d.Why, why) || d.Avoid != avoid || h.after.Status == h.was.Status {
		return fmt.Sprintf("it does %+v", d)
	}
	d.Avoid = false
	over := h.after.Phase == Over
	h.do.Avoid = false
	return h.kept(action, h.gives(fate), func(s *State) {
		if s.Status = h.after.Status; over {
			s.Phase = Over
		}
	})
}

// lost wants a start of the task to be counted, or its end by the rules.
func (h heard) lost(why string, avoid bool) string {
	told, is := Word(h.was.Own().Told)
	switch {
	case is:
		return h.read(told)
	case h.was.Losses() >= h.r.Retries:
		if h.do.Avoid != avoid {
			return "the machine counts wrongly"
		}
		return h.over(task.Error, why)
	case h.after.Losses() != h.was.Losses()+1 || h.after.Phase != Waits || !h.after.Since.Equal(h.e.At):
		return "a loss is not counted"
	}
	return h.given(Lost, why, avoid, WasLost)
}

// fault wants another machine, or the end where that was tried often enough.
func (h heard) fault(why string, avoid bool, fate Fate) string {
	if told, is := Word(h.was.Own().Told); is && fate == Faulty {
		return h.read(told)
	}
	if h.was.Instances()-h.was.Losses() >= h.r.Machines {
		if h.do.Avoid != avoid || h.after.Phase != Over || !strings.HasPrefix(h.do.End.Reason, "no machine could run the image: ") ||
			!strings.Contains(h.do.End.Reason, why) {
			return "it is not over, or not for that"
		}
	} else if h.after.Phase != Waits || !h.after.Since.Equal(h.e.At) || h.after.Losses() != h.was.Losses() {
		return "it does not wait for another machine"
	}
	return h.given(Fault, why, avoid, fate)
}

// broken says which promise is broken, or "". It knows nothing of the rows.
func (h heard) broken() string {
	was, e, r := h.was, h.e, h.r
	own := was.Own()
	told, isTold := Word(own.Told)
	settled := was.Pending().IsZero() || e.At.Sub(was.Pending()) > 2*r.Settle
	silent := h.looks(Silent).Times >= SilentTimes && h.lasted(Silent) >= r.Settle
	late := r.Runtime > 0 && e.At.Sub(own.Ran) > r.Runtime+time.Minute
	has, boots, runs := h.in(Boots, Runs, Unbilled), h.in(Boots), h.in(Runs)
	ran := func(s *State) { s.Phase, s.Since, s.own().Ran = Runs, e.At, e.At }
	status := func(text string) func(s *State) { return func(s *State) { s.Status = text } }
	switch {
	case e.Kind == Turn && h.in(Waits, Held) && len(was.Doomed()) > 0 && !strings.HasPrefix(h.do.Why, "instance "),
		e.Kind == Turn && h.in(Held) && len(was.Doomed()) == 0 && was.HeldUntil().After(e.At) && !strings.HasPrefix(h.do.Why, "the order is held"):
		return "it does not say what it waits for"
	case e.Kind == Turn && h.in(Waits, Held) && (len(was.Doomed()) > 0 || was.HeldUntil().After(e.At)):
		return h.kept(Wait)
	case e.Kind == Turn && h.in(Waits, Held):
		return h.kept(Order)
	case e.Kind == Turn && h.in(Asked):
		return h.kept(Find)
	case e.Kind == Turn && h.in(Over) && settled && len(was.Doomed()) == 0:
		return h.kept(Close)

	case e.Kind == Unwanted && h.in(Waits, Held, Asked) && (len(was.Doomed()) > 0 || h.in(Asked) && (e.Hidden || !settled)):
		return h.kept(Nothing)
	case e.Kind == Unwanted && h.in(Waits, Held, Asked) && len(was.Tries) == 0:
		return h.kept(Forget)
	case e.Kind == Unwanted && h.in(Waits, Held, Asked):
		return h.over(task.Stopped, "its task has ended")

	case e.Kind == Sent && h.in(Waits, Held):
		return h.kept(Nothing, func(s *State) {
			s.Tries = append(s.Tries, Try{Number: was.Number(), Terms: e.Terms, Born: e.At})
			s.Phase, s.Since = Asked, e.At
		})
	case e.Kind == Made && h.in(Asked):
		return h.kept(Note, h.owns(own.Number, e.At))
	case e.Kind == Refused && h.in(Asked):
		return h.kept(Nothing, h.refused)
	case e.Kind == Rejected && h.in(Asked):
		held := e.Lacking || (was.Rejected+1)%OffersInARow == 0
		if until := h.after.HeldUntil(); held != until.After(e.At) || h.after.Rejected <= was.Rejected {
			return "rejections are not counted, or hold the order wrongly"
		}
		return h.kept(map[bool]Action{true: Hold}[held], h.refused, status(e.Why), func(s *State) { s.Phase, s.Rejected = h.after.Phase, h.after.Rejected })
	case e.Kind == Flawed && h.in(Asked):
		if !h.after.IsDoomed(e.ID) {
			return "a contract is left"
		}
		return h.kept(Destroy, func(s *State) { s.own().ID = e.ID }, h.gives(Spare))
	case e.Kind == NoAnswer && h.in(Asked):
		return h.kept(Nothing, func(s *State) { s.own().Born = e.At })

	case e.Kind == Found && h.in(Waits, Held, Asked) && was.Try(e.ID) == nil:
		if c := h.after.Own().Born; c.IsZero() || c.After(e.At) || h.in(Asked) && c.Before(was.Since) {
			return "it was created at a time that cannot be"
		}
		return h.kept(Note, h.owns(cmp.Or(e.Number, was.Number()), h.after.Own().Born))
	case e.Kind == Missing && h.in(Asked) && h.looks(Unlisted).Times >= 2 && e.At.Sub(was.Pending()) >= ManySettles*r.Settle && e.Itself:
		return h.kept(AskBill)
	case e.Kind == Missing && h.in(Asked) && h.looks(Unlisted).Times >= 2 && e.At.Sub(was.Pending()) >= ManySettles*r.Settle,
		e.Kind == Billed && h.in(Asked) && !e.Complete && r.BillWait > 0 && e.At.Sub(was.Pending()) >= r.BillWait:
		return h.kept(Nothing, h.gives(Unmade))
	case e.Kind == Billed && h.in(Asked) && !e.Complete && e.At.Sub(was.Pending()) < r.BillWait:
		if !strings.Contains(h.do.Why, "waiting for the bill") {
			return "it does not say what it waits for"
		}
		return h.kept(Wait)
	case e.Kind == Billed && h.in(Asked):
		return h.lost("the answer to an order was lost before the agent was away, and whether the task has run is not known", false)
	case e.Kind == Missing && h.in(Asked):
		if !strings.HasSuffix(h.do.Why, "whether an order has gone through") {
			return "it does not say what it waits for"
		}
		return h.kept(Wait)

	case e.Kind == Missing && has:
		patience := map[bool]time.Duration{false: r.Settle, true: ManySettles * r.Settle}[e.Many]
		ask := h.looks(Unlisted).Times >= 2 && e.At.Sub(own.Born) >= r.Settle && h.lasted(Unlisted) >= patience
		return h.kept(map[bool]Action{true: AskID}[ask])
	case (e.Kind == Shown || e.Kind == There) && h.in(Unbilled):
		return h.kept(Nothing, func(s *State) { s.Phase = map[bool]Phase{true: Boots, false: Runs}[own.Ran.IsZero()] })
	case e.Kind == Gone && has:
		return h.kept(AskBill)
	case e.Kind == Billed && has && isTold:
		return h.read(told)
	case e.Kind == Billed && has && e.Itself && !e.Complete && h.lasted(Unlisted) < r.BillWait:
		return h.kept(map[bool]Action{true: Await}[!h.in(Unbilled)], status(Awaited), func(s *State) { s.Phase = Unbilled })
	case e.Kind == Billed && has && e.Itself:
		return h.over(task.Error, "whether its task had ended")
	case e.Kind == Billed && has && own.Ran.IsZero():
		return h.lost("before it was seen running", false)
	case e.Kind == Billed && has:
		return h.lost("its host was lost, or it was destroyed", false)

	case e.Kind == Tells && has:
		return h.kept(Nothing, func(s *State) { s.own().Told = e.Word })
	case e.Kind == Wrong && boots:
		return h.fault(e.Why, true, Faulty)
	case e.Kind == Unbegun && has:
		return h.fault(e.Why, true, NeverBegan)
	case e.Kind == NoImage && boots && h.do.End.Reason != e.Why, e.Kind == Cancel && h.in(Waits, Held, Asked) && h.do.End != e.End:
		return "it ends otherwise than it was said"
	case e.Kind == NoImage && boots:
		return h.over(task.Error, e.Why)
	case e.Kind == Loads && boots && r.Boot > 0 && e.At.Sub(was.Since) > r.Boot:
		return h.fault("boot_timeout", true, Faulty)
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
	case e.Kind == Falters && (boots || runs) && own.Ran.IsZero():
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
		if h.after.Phase != Waits || h.after.Status != e.Why || h.after.Losses() != was.Losses() {
			return "it does not wait for credit"
		}
		return h.given(Fault, e.Why, false, Faulty)
	case e.Kind == Paid && (boots || runs) && silent:
		return h.over(task.Error, "was stopped, without an exit code of the task"+e.Why)
	case e.Kind == Paid && boots:
		return h.fault("the machine has stopped it before it ran", true, Faulty)

	case (e.Kind == Limit || e.Kind == Cancel) && has:
		return h.read(e.End)
	case e.Kind == Cancel && h.in(Waits, Held, Asked):
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

	case e.Kind == Double && e.ID > 0 && (e.ID != was.Instance() || h.in(Over)):
		if !h.after.IsDoomed(e.ID) || len(h.after.Tries)-len(was.Tries) > 1 {
			return "an instance that nobody needs is left"
		}
		return h.kept(Nothing, func(s *State) { s.Tries = copied(h.after).Tries })
	case e.Kind == Unseen && e.ID > 0 && was.Try(e.ID) == nil && (!h.in(Asked) || own.Number != e.Number):
		if t := h.after.Try(e.ID); t == nil || t.Gone.IsZero() {
			return "what the bill has shown is not known, or to be destroyed"
		}
		return h.kept(Nothing, func(s *State) { s.Tries = copied(h.after).Tries })
	case e.Kind == DoomedShown && h.in(Waits, Held, Asked) && e.Begun && was.IsDoomed(e.ID) && was.Try(e.ID).Fate != WasLost && was.Try(e.ID).Fate != NeverBegan:
		switch {
		case was.Losses() >= r.Retries:
			return h.over(task.Error, "may have begun the task before it was gone")
		case h.after.Losses() != was.Losses()+1 || h.do.Action != Lost || h.after.Phase != was.Phase || !strings.Contains(h.do.Why, "may have begun"):
			return "a loss is not counted"
		}
		return h.kept(Lost, func(s *State) { s.Try(e.ID).Fate, s.Status = WasLost, h.after.Status })
	case e.Kind == DoomedShown && was.IsDoomed(e.ID):
		d, last := h.after.Try(e.ID).Looks, was.Try(e.ID).Looks[Stubborn]
		if d[Unlisted].Times != 0 || (e.At.After(last.Last) || last.Last.IsZero()) && d[Stubborn].Times != last.Times+1 {
			return "that an instance remains is not counted"
		}
		return h.kept(Nothing)
	case e.Kind == DoomedLost && was.IsDoomed(e.ID):
		last := was.Try(e.ID).Looks[Unlisted]
		absent := last.Times
		if last.Last.IsZero() || e.At.After(last.Last) {
			absent++
		}
		if h.known.Try(e.ID).Looks[Unlisted].Times != absent {
			return "an absence is not counted"
		}
		return h.kept(map[bool]Action{true: AskID}[!h.in(Over) || absent >= 2])
	case e.Kind == DoomedGone && was.IsDoomed(e.ID):
		return h.gone()
	default:
		return h.kept(Nothing)
	}
}

// gone wants that an instance counts as gone since it was missed.
func (h heard) gone() string {
	since := h.e.At
	if first := h.known.Try(h.e.ID).Looks[Unlisted].First; !first.IsZero() {
		since = first
	}
	return h.kept(Nothing, func(s *State) { t := s.Try(h.e.ID); t.Gone, t.Looks = since, nil })
}
