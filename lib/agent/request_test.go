package agent

import (
	"fmt"
	"slices"
	"testing"

	"github.com/ponos-tools/ponos/lib/task"
)

// eachRequest calls do with every case of a request, until it returns false.
func eachRequest(do func(request) bool) {
	for _, kind := range []task.Kind{task.Start, task.Stop} {
		for _, known := range []known{fresh, meant, tracked, done} {
			for word := has; word <= stopped; word <<= 1 {
				for h := range int(shown) << 1 {
					if !do(request{kind, known, word, hitch(h)}) {
						return
					}
				}
			}
		}
	}
}

// improper says which promise the table breaks for a request, or "". It knows nothing of the rows.
func improper(x request) string {
	var all []verdict
	for _, r := range requests {
		if r.fits(x) {
			all = append(all, r.follow)
		}
	}
	if len(all) != 1 {
		return fmt.Sprintf("%d rows", len(all))
	}
	v, hindered := all[0], x.hitch&(busy|pauses|stopping) != 0
	if x.kind == task.Stop {
		switch {
		case !slices.Contains([]verdict{keep, finish, ask, end}, v):
			return "what cannot be done for a stop"
		case (x.hitch&busy != 0) && v != keep:
			return "it is stopped twice at a time"
		case x.hitch&busy != 0:
		case x.known == done && v != finish:
			return "what has ended is stopped, or stays"
		case x.known == tracked && v != end, x.known == meant && x.hitch&shown != 0 && v != end:
			return "a job goes on that was to be stopped"
		case x.known&(done|tracked) != 0 || x.known == meant && x.hitch&shown != 0:
		case x.word == doubts && v != ask, x.word != doubts && v == ask:
			return "a stop follows unasked, or is asked twice"
		case x.word&(ended|stopped) != 0 && v != finish:
			return "a stop that comes after the end changes something"
		case x.word == mute && (v == end) != (x.hitch&shown != 0), x.word == mute && v != end && v != keep:
			return "a stop without a job is told as done though the queue does not answer, or a job goes on"
		case x.word&(has|lacks|theirs) != 0 && v != end:
			return "a stop is lost"
		}
		return ""
	}
	may := map[known][]verdict{
		done: {finish}, tracked: {keep}, meant: {keep, ask, fail, forget, begin}, fresh: {keep, ask, fail, forget, adopt, trace, begin},
	}
	switch {
	case !slices.Contains(may[x.known], v):
		return "what cannot be done for a start"
	case x.known&(done|tracked) != 0:
	case hindered && v != keep:
		return "a task begins beside another process, before its time or while it is stopped"
	case hindered:
	case (x.word == doubts) != (v == ask):
		return "something follows unasked, or the queue is asked twice"
	case x.word == mute && x.hitch&broken == 0 && v != keep, x.word == mute && x.hitch&broken != 0 && v != fail:
		return "something follows without an answer, or a task that cannot be read waits for ever"
	case x.word&(lacks|theirs|ended|stopped) != 0 && v != forget:
		return "a task of others or one that has ended is begun, or its directory stays"
	case x.word != has:
	case x.hitch&heldBack != 0 && v != forget:
		return "a task of a kind that is held begins"
	case x.hitch&heldBack != 0:
	case x.known == meant && v != begin:
		return "a start that was recorded is not repeated"
	case x.known == meant:
	case (x.hitch&owned != 0) != (v == adopt):
		return "a job that has begun the task is not taken up, or a task without one waits for it"
	case x.hitch&owned == 0 && (x.hitch&begun != 0) != (v == trace):
		return "a task that may have run is run again, or a new one is looked for"
	case x.hitch&(owned|begun) == 0 && v != begin:
		return "a task does not begin"
	}
	return ""
}

// The whole table is walked: each case has one row, and keeps the promises; without any row, and with any other verdict, one is broken.
func TestRequests(t *testing.T) {
	whole, n := requests, 0
	defer func() { requests = whole }()
	eachRequest(func(x request) bool {
		n++
		what := improper(x)
		if what != "" {
			t.Errorf("%+v: %s", x, what)
		}
		return what == ""
	})
	t.Logf("%d cases, %d rows", n, len(whole))
	verdicts := []verdict{ask, keep, forget, adopt, finish, end, begin, trace, fail}
	breaks := func(r requestRow) (found bool) {
		eachRequest(func(x request) bool { found = r.fits(x) && improper(x) != ""; return !found })
		return found
	}
	for i, r := range whole {
		if requests = slices.Delete(slices.Clone(whole), i, i+1); !breaks(r) {
			t.Errorf("without row %d (%+v) nothing breaks", i, r)
		}
		for _, v := range verdicts {
			requests = slices.Clone(whole)
			requests[i].follow = v
			if v != r.follow && !breaks(r) {
				t.Errorf("row %d (%+v) may as well say %s", i, r, v)
			}
		}
	}
}
