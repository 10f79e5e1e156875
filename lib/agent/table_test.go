package agent

import (
	"fmt"
	"testing"
	"time"

	"github.com/ponos-tools/ponos/lib/task"
	"github.com/ponos-tools/ponos/lib/task/runner"
)

// cases calls do with every case that can be, until it returns false.
func cases(do func(facts) bool) {
	for known := fresh; known <= done; known <<= 1 {
		for word := has; word <= stopped; word <<= 1 {
			for seen := odd; seen <= complete; seen <<= 1 {
				for notes := note(0); notes < late<<1; notes++ {
					if x := (facts{known, word, seen, notes}); x.legal() && !do(x) {
						return
					}
				}
			}
		}
	}
}

// unsound says which promise the table breaks for a case, or "". It knows nothing of the rows.
func unsound(x facts) string {
	var all []verdict
	for _, r := range table {
		if r.fits(x) {
			all = append(all, r.follow)
		}
	}
	if len(all) != 1 {
		return fmt.Sprintf("%d rows", len(all))
	}
	v, in := all[0], func(set ...verdict) bool {
		for _, s := range set {
			if all[0] == s {
				return true
			}
		}
		return false
	}
	may := map[known][]verdict{
		fresh: {ask, keep, scrap, forget, yield, adopt, hold}, claimed: {keep}, left: {ask, keep, reset, count, take, finish, dismiss}, done: {keep, scrap},
		tracked: {ask, keep, reset, count, miss, leave, finish, quit, change, rename, trim, follow, report, again, retry, cut, asked, end},
	}
	may[meant] = may[fresh]
	blindly := x.seen&(odd|old|gone) != 0 || x.seen == vanished && x.known != left
	ours := x.word == has || x.known == meant && x.word&(ended|stopped) != 0
	switch {
	case !in(may[x.known]...):
		return "what cannot be done"
	case x.word == mute && x.known != done && v != keep:
		return "something changes though the queue did not answer"
	case x.word&(doubts|mute) == 0 && x.known&(tracked|fresh|meant) != 0 && v == keep:
		return "nothing follows from an answer"
	case x.known&(fresh|meant) != 0 && x.word == doubts && v != ask:
		return "a job is adopted or forgotten unasked"
	case x.known == tracked && x.word == doubts && v != ask:
		return "something follows before the queue was asked"
	case blindly && x.known == tracked && x.notes&other == 0 && in(end, asked, retry, again, cut, finish, dismiss):
		return "a task ends by a look that proves nothing"
	case x.word&(doubts|mute) != 0 && !in(ask, keep, reset, count) && x.known != done:
		return "something follows from an answer that there is not"
	case x.word == mute && v == ask, x.word == has && v == ask && x.notes&due == 0:
		return "the queue is asked twice"
	case x.known == tracked && x.word&absent != 0 && x.notes&enough == 0 && v != miss:
		return "a task that is not listed once or twice is given up"
	case x.known == tracked && x.word&absent != 0 && x.notes&enough != 0 && !in(leave, finish):
		return "a task that the queue lacks is not given up"
	case in(leave, finish) && x.word&absent == 0:
		return "a task is given up that the queue has"
	case v == finish && x.seen&(waits|runs|odd|old|gone) != 0:
		return "a job that may run is forgotten"
	case x.known == left && x.word == doubts && x.seen&(odd|old) != 0 && v == ask:
		return "the queue is asked for nothing"
	case v == dismiss && x.seen&(final|vanished) != 0:
		return "a job is ended that has ended"
	case v == leave && x.seen&final != 0:
		return "a job that has ended is watched"
	case in(dismiss, scrap, quit) && x.word&(absent|ended|stopped) == 0 && x.known != done:
		return "a job is ended though the queue has its task"
	case v == dismiss && x.notes&paid == 0 && x.known != left:
		return "a job is ended that may be another agent's"
	case x.notes&strange != 0 && x.known&(fresh|meant) != 0 && !ours && in(hold, adopt, yield, scrap):
		return "a strange job is touched"
	case ours && x.known&(fresh|meant) != 0 && !in(hold, adopt):
		return "a job of this agent is lost"
	case in(hold, adopt) && x.known&(fresh|meant) == 0, v == adopt && x.notes&paid != 0, v == adopt && x.seen&final == 0:
		return "a job is adopted at the wrong time"
	case x.known&(fresh|meant) != 0 && x.seen&final != 0 && x.notes&paid == 0 && v == hold && x.word == has:
		return "an end is believed without its journal"
	case x.known&(fresh|meant) != 0 && v == hold && x.word&(ended|stopped) != 0 && x.seen&final != 0 && x.notes&paid == 0:
		return "an end is believed without its journal"
	case x.known&(fresh|meant) != 0 && x.word&absent != 0 && x.notes&strange == 0 && x.seen != old && !in(hold, yield):
		return "a job whose task is not listed once is not watched"
	case x.known&(fresh|meant) != 0 && x.word&absent != 0 && (x.notes&strange != 0 || x.seen == old) && v != forget:
		return "what is not this agent's is kept"
	case v == yield && (x.word != theirs || x.notes&paid != 0), x.known&(fresh|meant) != 0 && x.word == theirs &&
		x.seen != old && x.notes&(strange|paid) == 0 && v != yield:
		return "another agent's job is not left to it"
	case x.known&(fresh|meant) != 0 && x.word&absent != 0 && x.seen == old && v != forget:
		return "an old record is taken for a job"
	case x.known == fresh && x.word == stopped && x.seen&(waits|runs) != 0 && x.notes&strange == 0 && v != scrap,
		x.known == fresh && x.word == ended && x.seen == waits && x.notes&strange == 0 && v != scrap:
		return "a job goes on though its task has ended"
	case x.known == fresh && x.word == ended && x.seen == runs && v != forget:
		return "a job that runs is cancelled though nobody has stopped its task"
	case x.known == fresh && x.word&(ended|stopped) != 0 && !in(scrap, forget):
		return "a task that has ended is begun"
	case x.known == done && (v == scrap) != (x.seen == runs && x.notes&late != 0), x.known&(done|claimed) != 0 && !in(keep, scrap):
		return "a task that was processed is touched"
	case x.known&(tracked|left|fresh|meant) != 0 && x.word == doubts && in(keep):
		return "nobody asks, and nothing is ever decided"
	case x.known == left && x.word&(has|ended|stopped) != 0 && v != take:
		return "a task that was given back is not taken"
	case x.known == left && x.word == doubts && x.seen&(final|vanished) != 0 && v != ask:
		return "the job of a task that was left has ended, and nobody asks"
	case x.known == left && x.word == doubts && x.seen&(waits|runs) != 0 && (v == ask) != (x.notes&paid != 0):
		return "a job that costs money is not watched, or another one costs requests"
	case x.known == left && x.word&absent != 0 && !in(finish, dismiss):
		return "a task that was left is not let go"
	case x.known == left && x.word == doubts && x.seen == gone && v != count:
		return "an absence is not counted"
	case x.known == left && x.word == doubts && x.seen&(gone|vanished) == 0 && v == count:
		return "an absence is counted of what is there"
	}
	if x.known != tracked || x.word != has {
		if x.known == tracked && x.word&(ended|stopped) != 0 && v != quit {
			return "the task has ended in the queue, and its job costs money"
		}
		return ""
	}
	switch {
	case (x.notes&other != 0) != (v == change), x.notes&other == 0 && (x.notes&renamed != 0) != (v == rename):
		return "the job that counts is not recorded"
	case x.notes&(other|renamed) != 0:
		return ""
	case (x.notes&spare != 0) != (v == trim):
		return "jobs that nobody needs go on"
	case v == trim:
		return ""
	case (x.seen&(odd|old) != 0) != (v == reset), (x.seen&(gone|vanished) != 0) != (v == count):
		return "an absence is not counted, or counted of what is there"
	case x.seen == runs && (x.notes&due != 0) != (v == ask):
		return "the queue is not asked in time"
	case x.seen == runs && v != ask && (x.notes&told == 0) != (v == report), x.seen == waits && (x.notes&told != 0) != (v == report):
		return "the queue is not told what its task does"
	case x.seen&(waits|runs) != 0 && !in(report, follow, ask):
		return "a task ends whose job has not"
	case (x.seen == unbegun) != (v == again), (x.seen == outlived) != (v == cut):
		return "what has not begun is lost, or run twice"
	case (x.seen == cancelled && x.notes&stop != 0) != (v == asked):
		return "a stop is not reported as one"
	case (x.seen == failed && x.notes&rules != 0 && x.notes&stop == 0) != (v == retry):
		return "a task is not tried again, or against its rules"
	case x.seen&(cancelled|failed|complete) != 0 && !in(asked, retry, end):
		return "a task does not end"
	}
	return ""
}

// The whole table is walked: each case has one row, and keeps the promises.
func TestTable(t *testing.T) {
	n := 0
	cases(func(x facts) bool {
		n++
		what := unsound(x)
		if what != "" {
			t.Errorf("%+v: %s", x, what)
		}
		return what == ""
	})
	t.Logf("%d cases, %d rows", n, len(table))
}

// What the agent remembers and what a place shows make the case.
func TestFacts(t *testing.T) {
	now := time.Date(2026, 11, 20, 18, 0, 0, 0, time.UTC)
	once, before := task.Absence{}.Again(now), task.Absence{}.Again(now.Add(-time.Minute))
	a := &Agent{Now: func() time.Time { return now }, Runner: codeRunner{}, Store: &Store{Dir: t.TempDir()}}
	for _, tt := range []struct {
		name                 string
		known                Tracked
		job                  runner.Job
		want                 verdict
		missing, unaccounted task.Absence
	}{
		{"waits, as the queue thinks anyhow", Tracked{}, runner.Job{Sight: runner.Waits}, follow, task.Absence{}, task.Absence{}},
		{"begins", Tracked{}, runner.Job{Sight: runner.Runs}, report, task.Absence{}, task.Absence{}},
		{"goes on", Tracked{Reported: task.Running}, runner.Job{Sight: runner.Runs}, follow, task.Absence{}, task.Absence{}},
		{"was preempted and requeued", Tracked{Reported: task.Running}, runner.Job{Sight: runner.Waits}, report, task.Absence{}, task.Absence{}},
		{"ends", Tracked{Reported: task.Running}, runner.Job{Sight: runner.Ended, End: runner.End{State: task.Failed, ExitCode: 3}}, end, task.Absence{}, task.Absence{}},
		{"ends, and has rules", Tracked{Ref: runner.Ref{Rules: "exit: 1"}}, runner.Job{Sight: runner.Ended, End: runner.End{State: task.Failed}}, retry, task.Absence{}, task.Absence{}},
		{"ends before it was seen", Tracked{}, runner.Job{Sight: runner.Ended, End: runner.End{State: task.Completed}}, end, task.Absence{}, task.Absence{}},
		{"was cancelled by others", Tracked{}, runner.Job{Sight: runner.Cancelled, End: runner.End{State: task.Error}}, end, task.Absence{}, task.Absence{}},
		{"is shown, though its command has ended", Tracked{}, runner.Job{Sight: runner.Outlived, End: runner.End{State: task.Completed}}, cut, task.Absence{}, task.Absence{}},
		{"has not begun, and never will", Tracked{}, runner.Job{Sight: runner.Unbegun, End: runner.End{State: task.Error}}, again, task.Absence{}, task.Absence{}},
		{"is missing for the first time", Tracked{Reported: task.Running}, runner.Job{Sight: runner.Traceless}, count, once, task.Absence{}},
		{"is still missing", Tracked{Ref: runner.Ref{Missing: before}}, runner.Job{Sight: runner.Traceless}, count, before.Again(now), task.Absence{}},
		{"is still missing, and not in accounting", Tracked{Ref: runner.Ref{Missing: before, Unaccounted: before}}, runner.Job{Sight: runner.Unaccounted}, count, before.Again(now), before.Again(now)},
		{"is still missing, but in accounting", Tracked{Ref: runner.Ref{Missing: before, Unaccounted: before}}, runner.Job{Sight: runner.Traceless}, count, before.Again(now), task.Absence{}},
		{"is back", Tracked{Ref: runner.Ref{Missing: before}, Reported: task.Running}, runner.Job{Sight: runner.Runs}, follow, task.Absence{}, task.Absence{}},
		{"is in an unknown state", Tracked{Ref: runner.Ref{Missing: before}}, runner.Job{Sight: runner.Unclear}, reset, task.Absence{}, task.Absence{}},
		{"was renamed", Tracked{}, runner.Job{Sight: runner.Runs, Claim: runner.Renamed}, rename, task.Absence{}, task.Absence{}},
		{"another one counts", Tracked{}, runner.Job{Sight: runner.Runs, Claim: runner.Other}, change, task.Absence{}, task.Absence{}},
		{"others wait", Tracked{}, runner.Job{Sight: runner.Runs, Spare: []string{"8"}}, trim, task.Absence{}, task.Absence{}},
		{"its task was not in the queue", Tracked{Absent: before}, runner.Job{Sight: runner.Runs}, ask, task.Absence{}, task.Absence{}},
		{"its task is another agent's", Tracked{Reassigned: true}, runner.Job{Sight: runner.Ended, End: runner.End{State: task.Completed}}, ask, task.Absence{}, task.Absence{}},
	} {
		tt.job.ID = "7"
		if got := decide(a.factsOf(&tt.known, &tt.job)); got != tt.want {
			t.Errorf("a job that %s: %s; want %s", tt.name, got, tt.want)
		}
		if missing, unaccounted := looked(tt.known, &tt.job, now); missing != tt.missing || unaccounted != tt.unaccounted {
			t.Errorf("a job that %s: missing %+v, %+v", tt.name, missing, unaccounted)
		}
	}
}
