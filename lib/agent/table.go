package agent

import (
	"math/bits"

	"github.com/ponos-tools/ponos/lib/task"
	"github.com/ponos-tools/ponos/lib/task/runner"
)

// The table of decisions: what follows from the record of a task (what the agent has decided and done), from what its place
// shows of the job, and from what the queue says. It is pure. Each case that can be has exactly one row; the files beside this
// one do what the row says, and nothing else decides.
//
//	record         queue          the place shows                          and                      what follows
//
//	tracked        doubts         (any)                                                             ask
//	tracked        mute           (any)                                                             keep
//	tracked        lacks theirs   (any)                                    not enough               miss
//	tracked        lacks theirs   (no end)                                 enough                   leave
//	tracked        lacks theirs   (an end)                                 enough                   finish
//	tracked        ended stopped  (any)                                                             quit
//	tracked        has            (any)                                    other                    change
//	tracked        has            (any)                                    renamed                  rename
//	tracked        has            (any)                                    spare                    trim
//	tracked        has            odd old                                                           reset
//	tracked        has            gone vanished                                                     count
//	tracked        has            waits                                    not told                 follow
//	tracked        has            waits                                    told                     report
//	tracked        has            runs                                     not told                 report
//	tracked        has            runs                                     told, due                ask
//	tracked        has            runs                                     told, not due            follow
//	tracked        has            outlived                                                          cut
//	tracked        has            unbegun                                                           again
//	tracked        has            cancelled                                stop                     stopped
//	tracked        has            cancelled                                not stop                 end
//	tracked        has            failed                                   rules, not stop          retry
//	tracked        has            failed                                   not rules, or stop       end
//	tracked        has            complete                                                          end
//
//	left           doubts         odd old                                                           reset
//	left           doubts         gone                                                              count
//	left           doubts         waits runs                               not paid                 reset
//	left           doubts         waits runs                               paid                     ask
//	left           doubts         vanished (an end)                                                 ask
//	left           has ...        (any)                                                             take
//	left           mute           (any)                                                             keep
//	left           lacks theirs   vanished (an end)                                                 finish
//	left           lacks theirs   waits runs                                                        dismiss
//
//	fresh meant    doubts         (any)                                                             ask
//	fresh meant    mute           (any)                                                             keep
//	fresh          ended          waits                                    not strange              scrap
//	fresh          stopped        waits runs                               not strange              scrap
//	fresh          ended stopped  (any other), or strange                                           forget
//	fresh meant    lacks theirs   old, or strange                                                   forget
//	fresh meant    theirs         (any other)                              not paid, not strange    yield
//	fresh meant    lacks          (any other)                              not strange              hold
//	fresh meant    theirs         (any other)                              paid, not strange        hold
//	fresh meant    has            (an end)                                 not paid                 adopt
//	fresh meant    has            (any other), or paid                                              hold
//	meant          ended stopped  (as if the queue has it)                                          adopt, hold
//	claimed        (any)          (any)                                                             keep
//	done           (any)          runs                                     late                     scrap
//	done           (any)          (any other), or not late                                          keep
//
//	fresh ──hold───► tracked ──end, stopped, quit──► done          again, retry: tracked, until ponos-start has submitted it again
//	  │               │ ▲
//	  └──yield──► left ◄┘ leave / take
type row struct {
	known  known
	word   word
	seen   seen
	with   note // all of these
	not    note // none of these
	follow verdict
}

// known is what the record says of a task. A row has a set of them, as of all that it compares.
type known uint16

const (
	fresh   known = 1 << iota // there is no record
	meant                     // a start was recorded, and no job
	claimed                   // the record names another job, or this one as one of an earlier attempt
	tracked                   // the job is followed
	left                      // the queue says that another agent has the task; its job is watched
	done                      // the task has ended, and this was a job of it
)

// word is what the queue says of a task.
type word uint16

const (
	has     word = 1 << iota // it gives the task to this agent, or has not been asked and was not found to do otherwise
	doubts                   // it did not have the task before, or nobody knows: it is to be asked
	mute                     // it did not answer, or its answer counts for nothing as it could not list its actions
	lacks                    // it does not have the task
	theirs                   // another agent has it
	ended                    // the task has ended
	stopped                  // the task was stopped
)

// seen is what the place of a job shows of it.
type seen uint16

const (
	odd       seen = 1 << iota // nothing that anything follows from
	old                        // an old record only
	gone                       // no trace
	vanished                   // no trace, in so many looks that this is a fact
	waits                      // it has not begun
	runs                       // it runs
	outlived                   // it is shown as running, and its command has ended long ago
	unbegun                    // it is over, and provably has not run the command
	cancelled                  // it was cancelled
	failed                     // it has failed
	complete                   // it has ended in another way
)

// note is what else decides.
type note uint16

const (
	other   note = 1 << iota // another job counts than the recorded one
	renamed                  // the recorded one has another name now
	spare                    // other jobs of the task wait, which it does not need
	strange                  // another process may have started the job
	told                     // the queue was told that the task runs
	due                      // it is time to ask the queue for the state of a task whose job costs money
	paid                     // jobs cost money
	stop                     // this agent was asked to stop the task
	rules                    // the task has retry rules
	enough                   // with this turn, the queue has lacked the task in enough turns
	late                     // the task has ended long ago
)

// verdict is what follows.
type verdict string

const (
	ask     verdict = "ask"     // ask the queue, and decide again
	keep    verdict = "keep"    // change nothing
	reset   verdict = "reset"   // the job is not missing; nothing else follows
	count   verdict = "count"   // count one more look without the job
	miss    verdict = "miss"    // count one more turn in which the queue lacks the task
	leave   verdict = "leave"   // watch the job from now on
	take    verdict = "take"    // follow the job again
	change  verdict = "change"  // record the job that counts
	rename  verdict = "rename"  // record the present name of the job, and decide again
	trim    verdict = "trim"    // cancel the spare jobs, and decide again
	follow  verdict = "follow"  // publish what is new in the log
	report  verdict = "report"  // report the state of the job, and follow
	again   verdict = "again"   // have the task submitted again, or end it after too many times
	retry   verdict = "retry"   // begin another attempt if the rules say so, or end the task
	cut     verdict = "cut"     // cancel the job, then as failed or complete
	end     verdict = "end"     // publish the end of the job as that of the task
	finish  verdict = "finish"  // move the directory away, without a word to the queue
	quit    verdict = "quit"    // end the job, and the task as the queue says
	dismiss verdict = "dismiss" // end the job, and finish
	adopt   verdict = "adopt"   // record the job; the next turn reads its journal and acts on its end
	hold    verdict = "hold"    // record the job, and decide again
	yield   verdict = "yield"   // record the job, and watch it
	scrap   verdict = "scrap"   // cancel the job, and forget the task
	forget  verdict = "forget"  // remove the directory of the task, unless a job may exist
	asked   verdict = "stopped" // publish that the task was stopped
)

const (
	anyWord = has | doubts | mute | lacks | theirs | ended | stopped
	absent  = lacks | theirs
	final   = outlived | unbegun | cancelled | failed | complete
	blind   = odd | old | gone | vanished
	anySeen = blind | waits | runs | final
)

var table = []row{
	{tracked, doubts, anySeen, 0, 0, ask},
	{tracked, mute, anySeen, 0, 0, keep},
	{tracked, absent, anySeen, 0, enough, miss},
	{tracked, absent, blind | waits | runs, enough, 0, leave},
	{tracked, absent, final, enough, 0, finish},
	{tracked, ended | stopped, anySeen, 0, 0, quit},
	{tracked, has, anySeen, other, 0, change},
	{tracked, has, anySeen, renamed, other, rename},
	{tracked, has, anySeen, spare, other | renamed, trim},
	{tracked, has, odd | old, 0, other | renamed | spare, reset},
	{tracked, has, gone | vanished, 0, other | renamed | spare, count},
	{tracked, has, waits, 0, other | renamed | spare | told, follow},
	{tracked, has, waits, told, other | renamed | spare, report},
	{tracked, has, runs, 0, other | renamed | spare | told, report},
	{tracked, has, runs, told | due, other | renamed | spare, ask},
	{tracked, has, runs, told, other | renamed | spare | due, follow},
	{tracked, has, outlived, 0, other | renamed | spare, cut},
	{tracked, has, unbegun, 0, other | renamed | spare, again},
	{tracked, has, cancelled, stop, other | renamed | spare, asked},
	{tracked, has, cancelled, 0, other | renamed | spare | stop, end},
	{tracked, has, failed, rules, other | renamed | spare | stop, retry},
	{tracked, has, failed, 0, other | renamed | spare | stop | rules, end},
	{tracked, has, failed, stop, other | renamed | spare, end},
	{tracked, has, complete, 0, other | renamed | spare, end},

	{left, doubts, odd | old, 0, 0, reset},
	{left, doubts, gone, 0, 0, count},
	{left, doubts, waits | runs, 0, paid, reset},
	{left, doubts, waits | runs, paid, 0, ask},
	{left, doubts, vanished | final, 0, 0, ask},
	{left, has | ended | stopped, anySeen, 0, 0, take},
	{left, mute, anySeen, 0, 0, keep},
	{left, absent, vanished | final, 0, 0, finish},
	{left, absent, waits | runs, 0, 0, dismiss},

	{fresh | meant, doubts, anySeen, 0, 0, ask},
	{fresh | meant, mute, anySeen, 0, 0, keep},
	{fresh, ended, waits, 0, strange, scrap},
	{fresh, ended, waits, strange, 0, forget},
	{fresh, ended, anySeen &^ waits, 0, 0, forget},
	{fresh, stopped, waits | runs, 0, strange, scrap},
	{fresh, stopped, waits | runs, strange, 0, forget},
	{fresh, stopped, anySeen &^ (waits | runs), 0, 0, forget},
	{fresh | meant, absent, old, 0, 0, forget},
	{fresh | meant, absent, anySeen &^ old, strange, 0, forget},
	{fresh | meant, theirs, anySeen &^ old, 0, strange | paid, yield},
	{fresh | meant, theirs, anySeen &^ old, paid, strange, hold},
	{fresh | meant, lacks, anySeen &^ old, 0, strange, hold},
	{fresh | meant, has, final, 0, paid, adopt},
	{fresh | meant, has, final, paid, 0, hold},
	{fresh | meant, has, anySeen &^ final, 0, 0, hold},
	{meant, ended | stopped, final, 0, paid, adopt},
	{meant, ended | stopped, final, paid, 0, hold},
	{meant, ended | stopped, anySeen &^ final, 0, 0, hold},
	{claimed, anyWord, anySeen, 0, 0, keep},
	{done, anyWord, runs, late, 0, scrap},
	{done, anyWord, runs, 0, late, keep},
	{done, anyWord, anySeen &^ runs, 0, 0, keep},
}

// facts is one case of the table: one of each set, and its notes.
type facts struct {
	known known
	word  word
	seen  seen
	notes note
}

func (r row) fits(x facts) bool {
	return r.known&x.known != 0 && r.word&x.word != 0 && r.seen&x.seen != 0 && x.notes&r.with == r.with && x.notes&r.not == 0
}

// decide returns what follows from a case.
func decide(x facts) verdict {
	for i := range table {
		if table[i].fits(x) {
			return table[i].follow
		}
	}
	return keep // the walk of all cases shows that there is none
}

// legal reports whether a case can be.
func (x facts) legal() bool {
	one := bits.OnesCount16(uint16(x.known)) == 1 && bits.OnesCount16(uint16(x.word)) == 1 && bits.OnesCount16(uint16(x.seen)) == 1
	switch {
	case !one, x.notes&other != 0 && x.notes&renamed != 0:
		return false
	case x.notes&due != 0 && (x.known != tracked || x.notes&told == 0 || x.seen != runs):
		return false
	case x.known == left && x.word&absent != 0 && x.seen&(odd|old|gone) != 0: // it is not asked then
		return false
	}
	return true
}

// seenAs returns what a place shows of a job; enough says whether one more look without a trace makes that a fact.
func seenAs(job *runner.Job, fact bool) seen {
	switch job.Sight {
	case runner.Past:
		return old
	case runner.Traceless, runner.Unaccounted:
		if fact {
			return vanished
		}
		return gone
	case runner.Waits:
		return waits
	case runner.Runs:
		return runs
	case runner.Outlived:
		return outlived
	case runner.Unbegun:
		return unbegun
	case runner.Cancelled:
		return cancelled
	case runner.Ended:
		if job.State == task.Failed || job.State == task.Error {
			return failed
		}
		return complete
	}
	return odd
}

// notesOf returns what a job itself says.
func notesOf(job *runner.Job) (n note) {
	switch job.Claim {
	case runner.Other:
		n |= other
	case runner.Renamed:
		n |= renamed
	case runner.Strange:
		n |= strange
	}
	if len(job.Spare) > 0 {
		n |= spare
	}
	return n
}

// factsOf returns the case of a task that has a job, as far as its record and its place say it.
func (a *Agent) factsOf(k *Tracked, job *runner.Job) facts {
	x := facts{tracked, has, seenAs(job, k.Missing.Again(a.now()).Fact()), notesOf(job)}
	if k.Reassigned {
		x.known, x.word = left, doubts
	}
	if !k.Absent.IsZero() {
		x.word = doubts
	}
	if k.Absent.Again(a.now()).Fact() {
		x.notes |= enough
	}
	if k.Reported == task.Running {
		x.notes |= told
	}
	if k.Rules != "" {
		x.notes |= rules
	}
	if a.Runner.Can().Price != nil {
		x.notes |= paid
	}
	if x.known == tracked && x.seen == runs && x.notes&told != 0 && a.asks(k) {
		x.notes |= due
	}
	return x
}
