package agent

import (
	"errors"

	"github.com/ponos-tools/ponos/lib/task"
	"github.com/ponos-tools/ponos/lib/task/queue"
)

// The table of requests: what is done about a start or a stop of a task, which the queue lists or somebody asks for by name. It is
// pure, as the table of decisions, whose words it uses. ponos-poll passes on what it does not keep; ponos-start and ponos-stop decide
// under the lock of the task, and again when they have asked the queue.
//
//	request  record        queue                          and                               what follows
//
//	start    done          (any)                                                            finish
//	start    tracked       (any)                                                            keep
//	start    fresh meant   (any)                          busy, pauses or stopping          keep
//	start    fresh meant   doubts                         none of these                     ask
//	start    fresh meant   mute                           broken                            fail
//	start    fresh meant   mute                           not broken                        keep
//	start    fresh meant   lacks theirs ended stopped                                       forget
//	start    fresh meant   has                            held                              forget
//	start    fresh         has                            owned                             adopt
//	start    fresh         has                            begun, not owned                  trace
//	start    fresh         has                            neither                           begin
//	start    meant         has                            not held                          begin
//
//	stop     (any)         (any)                          busy                              keep
//	stop     done          (any)                                                            finish
//	stop     tracked       (any)                                                            end
//	stop     meant         (any)                          shown                             end
//	stop     fresh         doubts                         (any)                             ask
//	stop     fresh         ended stopped                  (any)                             finish
//	stop     fresh         has lacks theirs               (any)                             end
//	stop     fresh         mute                           shown                             end
//	stop     fresh         mute                           not shown                         keep
//	stop     meant         as fresh                       not shown                         as fresh
type requestRow struct {
	kind   task.Kind
	known  known
	word   word
	with   hitch // all of these
	not    hitch // none of these
	follow verdict
}

// hitch is what else decides on a request.
type hitch uint8

const (
	busy     hitch = 1 << iota // a process works on the task; of a stop: it is stopping it already
	pauses                     // its next attempt is not to begin yet
	stopping                   // a process was asked to stop it
	broken                     // the queue has the task, in a way that cannot be used
	heldBack                   // its kind is held
	owned                      // a job has begun the task, of which there is no record
	begun                      // a job of it was submitted, of which there is no record
	shown                      // its place shows a job of it
)

// What follows from a request only. As in the other table, end publishes the end of the task, here after that of its job.
const (
	begin verdict = "begin" // prepare the task, and submit it
	trace verdict = "trace" // look for its job, and begin only if that is found again when it is submitted
	fail  verdict = "fail"  // publish that it cannot be started
)

var requests = []requestRow{
	{task.Start, done, anyWord, 0, 0, finish},
	{task.Start, tracked, anyWord, 0, 0, keep},
	{task.Start, fresh | meant, anyWord, busy, 0, keep},
	{task.Start, fresh | meant, anyWord, pauses, busy, keep},
	{task.Start, fresh | meant, anyWord, stopping, busy | pauses, keep},
	{task.Start, fresh | meant, doubts, 0, busy | pauses | stopping, ask},
	{task.Start, fresh | meant, mute, broken, busy | pauses | stopping, fail},
	{task.Start, fresh | meant, mute, 0, busy | pauses | stopping | broken, keep},
	{task.Start, fresh | meant, absent | ended | stopped, 0, busy | pauses | stopping, forget},
	{task.Start, fresh | meant, has, heldBack, busy | pauses | stopping, forget},
	{task.Start, fresh, has, owned, busy | pauses | stopping | heldBack, adopt},
	{task.Start, fresh, has, begun, busy | pauses | stopping | heldBack | owned, trace},
	{task.Start, fresh, has, 0, busy | pauses | stopping | heldBack | owned | begun, begin},
	{task.Start, meant, has, 0, busy | pauses | stopping | heldBack, begin},

	{task.Stop, fresh | meant | tracked | done, anyWord, busy, 0, keep},
	{task.Stop, done, anyWord, 0, busy, finish},
	{task.Stop, tracked, anyWord, 0, busy, end},
	{task.Stop, meant, anyWord, shown, busy, end},
	{task.Stop, fresh, doubts, 0, busy, ask},
	{task.Stop, fresh, ended | stopped, 0, busy, finish},
	{task.Stop, fresh, has | absent, 0, busy, end},
	{task.Stop, fresh, mute, shown, busy, end},
	{task.Stop, fresh, mute, 0, busy | shown, keep},
	{task.Stop, meant, doubts, 0, busy | shown, ask},
	{task.Stop, meant, ended | stopped, 0, busy | shown, finish},
	{task.Stop, meant, has | absent, 0, busy | shown, end},
	{task.Stop, meant, mute, 0, busy | shown, keep},
}

// request is one case of the table.
type request struct {
	kind  task.Kind
	known known
	word  word
	hitch hitch
}

func (r requestRow) fits(x request) bool {
	return r.kind == x.kind && r.known&x.known != 0 && r.word&x.word != 0 && x.hitch&r.with == r.with && x.hitch&r.not == 0
}

// follow returns what is done about a request.
func (x request) follow() verdict {
	for _, r := range requests {
		if r.fits(x) {
			return r.follow
		}
	}
	return keep // the walk of all cases shows that there is none
}

// requestOf returns the case of a request that the queue was not asked about yet.
func requestOf(kind task.Kind, r Record) request {
	x := request{kind, fresh, doubts, 0}
	switch {
	case r.Final != "": // the process was killed right before it moved the directory
		x.known = done
	case r.Job != "":
		x.known = tracked
	case !r.Intent.IsZero():
		x.known = meant
	}
	return x
}

// set adds what holds.
func (x *request) set(h hitch, holds bool) {
	if holds {
		x.hitch |= h
	}
}

// hear takes an answer of the queue about the task.
func (x *request) hear(t task.Task, err error) {
	x.word = wordOf(t, err)
	switch {
	case errors.Is(err, queue.ErrBroken):
		x.set(broken, true)
	case x.kind == task.Start && x.word == has && t.State == task.Stopping:
		x.word = stopped
	}
}
