package spool

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/google/renameio/v2"

	"github.com/ponos-tools/ponos/lib/base/fault"
	"github.com/ponos-tools/ponos/lib/task"
	"github.com/ponos-tools/ponos/lib/task/queue"
)

const (
	// waitsSuffix, appended to the name of an agent, names the file that says why its tasks wait:
	// reasons, each with the ids of tasks.
	waitsSuffix = ".waits"
	// maxWaits limits how many tasks are in it, as it is written whenever a reason changes.
	maxWaits     = 100_000
	maxWaitsFile = 8 << 20 // bytes
)

// Explain records why tasks of this agent wait, and those that it has left to others.
func (q *Queue) Explain(why map[task.ID]string) error {
	if _, err := task.ParseID(q.Agent); err != nil {
		return nil
	}
	all := map[task.ID]string{}
	maps.Copy(all, q.others)
	maps.Copy(all, why)
	by := map[string][]task.ID{}
	ids := slices.Sorted(maps.Keys(all)) // ids of a spool grow with time
	for _, id := range ids[max(0, len(ids)-maxWaits):] {
		reason := task.Clean(all[id])
		by[reason] = append(by[reason], id)
	}
	path := q.path(agentsDir, q.Agent+waitsSuffix)
	before, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) && len(by) == 0 {
		return nil
	}
	text, err := json.Marshal(by)
	if err == nil && !bytes.Equal(text, before) {
		err = renameio.WriteFile(path, text, 0o600, renameio.WithTempDir(q.path(tmpDir, "")))
	}
	if err != nil {
		return fault.Errorf(fault.Unavailable, "spool: %w", err)
	}
	return nil
}

// explain sets the reasons of tasks that wait. What cannot be read is ignored.
func (s *Spool) explain(all []queue.Summary) {
	if !slices.ContainsFunc(all, func(t queue.Summary) bool { return !t.State.Final() }) {
		return
	}
	k := known{now: s.now(), all: all, taken: map[string]int{}}
	k.beats, _ = s.Agents()
	for _, b := range k.beats {
		k.said = append(k.said, s.waits(b.Agent))
	}
	for _, t := range all {
		if t.Agent != "" && !t.State.Final() {
			k.taken[t.Group]++
		}
	}
	for i, t := range all {
		if !t.State.Final() {
			all[i].Reason = k.why(t)
		}
	}
}

// known is what a listing knows beyond the tasks themselves.
type known struct {
	now   time.Time
	all   []queue.Summary
	taken map[string]int // tasks of each group that agents have taken
	beats []queue.Beat
	said  []map[task.ID]string // what each of these agents says

	latest map[task.ID]int // places in all, of the last attempt of each task; nil: not made yet
}

// why says what a task waits for that has not ended; "" if it waits for nothing, or for the next turn
// only. The first of these counts:
//
//	nobody has it    a task that it comes after · room in its group · an agent · what an agent says
//	an agent has it  a turn of that agent · what that agent says · what was reported with its state
func (k *known) why(t queue.Summary) string {
	if t.Agent == "" {
		if t.State != task.Pending {
			return t.Reason
		}
		if why := k.parent(t); why != "" {
			return why
		}
		if t.AtMost > 0 && k.taken[t.Group] >= t.AtMost {
			return fmt.Sprintf("waits for room in its group: at most %d at a time", t.AtMost)
		}
		return k.offered(t)
	}
	for i, b := range k.beats {
		switch {
		case b.Agent != t.Agent:
		case t.State == task.Pending && b.Late(k.now):
			return fmt.Sprintf("its agent does not run: the last turn on host %s was at %s",
				task.Clean(b.Host), queue.Moment(b.Seen, k.now))
		case k.said[i][t.ID] != "":
			return k.said[i][t.ID]
		}
	}
	return t.Reason
}

// leftTo begins what an agent says of a task that it cannot run.
const leftTo = "left to another agent: "

// offered says why a task that could begin has not been taken. That agents leave it to others counts if all do that run.
func (k *known) offered(t queue.Summary) string {
	var last time.Time
	runs, takes, why, left := false, false, t.Reason, ""
	for i, b := range k.beats {
		if last = later(last, b.Seen); b.Late(k.now) {
			continue
		}
		runs = true
		if said := k.said[i][t.ID]; strings.HasPrefix(said, leftTo) {
			left = said
		} else {
			takes, why = true, cmp.Or(why, said)
		}
	}
	switch {
	case takes:
		return why
	case runs:
		return cmp.Or(why, left)
	case last.IsZero():
		return "no agent runs"
	}
	return "no agent runs: the last turn was at " + queue.Moment(last, k.now)
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// parent says which task a new one still comes after.
func (k *known) parent(t queue.Summary) string {
	if t.Waits == "" {
		return ""
	}
	if k.latest == nil {
		k.latest = make(map[task.ID]int, len(k.all))
		for i, s := range k.all {
			k.latest[s.ID] = i
		}
		for i, s := range slices.Backward(k.all) { // a retry is younger than what it retries
			if _, ok := k.latest[s.RetryOf]; ok && s.RetryOf != "" {
				k.latest[s.RetryOf] = k.latest[k.all[i].ID]
			}
		}
	}
	for id := range strings.FieldsSeq(t.Waits) {
		i, ok := k.latest[task.ID(id)]
		switch {
		case !ok:
			return "waits for task " + task.ID(id).Short()
		case k.all[i].State != task.Completed:
			return fmt.Sprintf("waits for task %s (%s)", k.all[i].ID.Short(), task.Clean(k.all[i].Slug))
		}
	}
	return ""
}

func (s *Spool) waits(agent string) map[task.ID]string {
	if _, err := task.ParseID(agent); err != nil {
		return nil
	}
	f, err := os.Open(s.path(agentsDir, agent+waitsSuffix))
	if err != nil {
		return nil
	}
	defer f.Close()
	var by map[string][]task.ID
	if text, err := io.ReadAll(io.LimitReader(f, maxWaitsFile)); err != nil || json.Unmarshal(text, &by) != nil {
		return nil
	}
	why := map[task.ID]string{}
	for reason, ids := range by {
		for _, id := range ids {
			why[id] = task.Clean(reason)
		}
	}
	return why
}
