//go:build !race

package agent

import (
	"fmt"
	"hash/maphash"
	"strings"
	"testing"
	"time"
)

// modelWithout is what is taken out of the job script, to see that the promises need it.
type modelWithout struct{ PassingOn, OpenJournal bool }

// broken says which promise a world breaks, or "".
func (w world) broken() string {
	for t, k := range w.Tasks {
		if k.Ended > 1 {
			return fmt.Sprintf("task %d: a command that had ended was run again", t)
		}
		if k.Final == 1 && k.Ended != 1 {
			return fmt.Sprintf("task %d is completed, and its command has not ended", t)
		}
		if k.Final == 2 && k.Ended == 1 && !k.Failed || k.Final == 3 && k.Ended == 1 {
			return fmt.Sprintf("task %d has ended as an error, and its command by itself", t)
		}
		at := 0
		for _, job := range w.Jobs {
			for _, step := range job.Steps {
				if int(job.Task) == t && job.State != none && (step == executes || step == forks) {
					at++
				}
			}
		}
		if at > 1 {
			return fmt.Sprintf("task %d: its command runs twice at a time", t)
		}
		if k.Final == 3 && at > 0 {
			return fmt.Sprintf("task %d has ended as an error while its command runs", t)
		}
	}
	return ""
}

func TestEveryInterleaving(t *testing.T) {
	for _, bound := range []struct {
		tasks, faults, jobs int
		accounts            bool
	}{{1, 2, 3, false}, {1, 3, 2, false}, {2, 1, 2, false}, {1, 1, 2, true}, {1, 4, 1, true}} {
		if testing.Short() && bound.faults > 1 {
			continue
		}
		began := time.Now()
		what, counts := explore(bound.tasks, int8(bound.faults), bound.jobs, bound.accounts, modelWithout{})
		if what != "" {
			t.Fatal(what)
		}
		t.Logf("%d tasks, %d faults, %d jobs, accounting %v: %s, in %v", bound.tasks, bound.faults, bound.jobs, bound.accounts, counts, time.Since(began).Round(time.Millisecond))
	}
}

// What a step of the job script is for shows where it is missing.
func TestModelSeesWhatIsMissing(t *testing.T) {
	for _, tt := range []struct {
		without modelWithout
		faults  int8
		want    string
	}{
		{modelWithout{PassingOn: true}, 1, "job 0 looks whether it was asked to end\n  job 0 is "},
		{modelWithout{OpenJournal: true}, 2, "the directory of task 0 is away\n  the command of task 0 ends in job 0\n"},
	} {
		if what, _ := explore(1, tt.faults, 2, false, tt.without); !strings.Contains(what, tt.want) {
			t.Errorf("without %+v: %q; want %q", tt.without, what, tt.want)
		}
	}
}

// explore goes through every interleaving with so many tasks, faults and jobs. It returns
// which promise is broken, and the way to it.
func explore(tasks int, faults int8, jobs int, accounts bool, without modelWithout) (broken, counts string) {
	first := world{Faults: faults, Accounts: accounts, Without: without}
	for i := tasks; i < modelTasks; i++ {
		first.Tasks[i] = modelTask{Final: 1, Ended: 1}
	}
	for i := jobs; i < modelJobs; i++ {
		first.Jobs[i] = modelJob{State: unknownJob, Task: modelTasks}
	}
	// The worlds by their numbers, and the number of the one before each. Which were seen is
	// told by two hashes, which take less memory.
	seeds := [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}
	sum := func(w world) [2]uint64 {
		return [2]uint64{maphash.Comparable(seeds[0], w), maphash.Comparable(seeds[1], w)}
	}
	seen, worlds, before := map[[2]uint64]bool{sum(first): true}, []world{first}, []int32{0}
	path := func(at int32) (text string) {
		for ; at != 0; at = before[at] {
			name := ""
			worlds[before[at]].moves(func(_ bool, next world, format string, args ...any) {
				if next == worlds[at] && name == "" {
					name = fmt.Sprintf("\n  "+format, args...)
				}
			})
			text = name + text
		}
		return text
	}
	ends, moves := 0, 0
	for queue := []int32{0}; len(queue) > 0; {
		at := queue[len(queue)-1]
		queue = queue[:len(queue)-1]
		w := worlds[at]
		if what := w.broken(); what != "" {
			return what + ":" + path(at), ""
		}
		stuck := true
		w.moves(func(fault bool, next world, _ string, _ ...any) {
			moves++
			stuck = stuck && fault
			if hash := sum(next); !seen[hash] {
				n := int32(len(worlds))
				seen[hash], worlds, before, queue = true, append(worlds, next), append(before, at), append(queue, n)
			}
		})
		if !stuck {
			continue
		}
		ends++
		for i, k := range w.Tasks {
			if k.Final == 0 && w.room() {
				return fmt.Sprintf("task %d is lost: nothing is left to happen:%s", i, path(at)), ""
			}
		}
	}
	return "", fmt.Sprintf("%d states, %d moves, %d ends", len(seen), moves, ends)
}

// ordered is the same world as far as anything can follow from it: with the starters in a
// fixed order, and without what nobody asks for any more.
func (w world) ordered() world {
	for j := range w.Jobs {
		job := &w.Jobs[j]
		if job.State == unknownJob {
			*job = modelJob{Task: job.Task, State: unknownJob, Account: job.Account, Element: job.Element, Erased: job.Erased}
		}
		if job.State != running {
			job.Asked, job.Heard = false, false
		}
		if job.State != over {
			job.Unable, job.Shown = false, 0
		}
		if t := int(job.Task); t < modelTasks && w.Tasks[t].Final != 0 && job.State != none && !w.atWork(t) {
			// What is still to begin finds no directory.
			*job, w.Journals[j] = modelJob{Task: modelTasks, State: unknownJob}, [modelRuns]journal{}
		}
	}
	for t, k := range w.Tasks {
		if k.Final != 0 && !w.atWork(t) {
			w.Tasks[t] = modelTask{Final: k.Final, Ended: k.Ended, Failed: k.Failed}
			for i := range w.Starters {
				if w.Starters[i].Step != 0 && int(w.Starters[i].Task) == t {
					w.Starters[i], w.Made[i] = modelStarter{}, starterJob{}
				}
			}
		}
	}
	less := func(a, b int) bool {
		x, y := w.Starters[a], w.Starters[b]
		return x.Task < y.Task || x.Task == y.Task && (x.Step < y.Step || x.Step == y.Step && w.Made[a].Job < w.Made[b].Job)
	}
	if less(1, 0) {
		w.Starters[0], w.Starters[1] = w.Starters[1], w.Starters[0]
		w.Made[0], w.Made[1] = w.Made[1], w.Made[0]
	}
	return w
}

// atWork reports whether a script of a task is where it does not look for its directory.
func (w world) atWork(t int) bool {
	for _, job := range w.Jobs {
		for _, step := range job.Steps {
			if int(job.Task) == t && (step == forks || step == executes || step == executed || step == fails) {
				return true
			}
		}
	}
	return false
}

// room reports whether the small world has room for another job.
func (w world) room() bool {
	for _, job := range w.Jobs {
		if job.State == none {
			return true
		}
	}
	return false
}
