package spool

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"slices"

	"github.com/google/renameio/v2"

	"github.com/ponos-tools/ponos/lib/base/fault"
	"github.com/ponos-tools/ponos/lib/task"
)

const (
	// waitsSuffix, appended to the name of an agent, names the file that says why its tasks wait:
	// reasons, each with the ids of tasks.
	waitsSuffix = ".waits"
	// maxWaits limits how many tasks are in it, as it is written whenever a reason changes.
	maxWaits     = 10_000
	maxWaitsFile = 4 << 20 // bytes
)

// Explain records why tasks of this agent wait.
func (q *Queue) Explain(why map[task.ID]string) error {
	if _, err := task.ParseID(q.Agent); err != nil {
		return nil
	}
	by := map[string][]task.ID{}
	for i, id := range slices.Sorted(maps.Keys(why)) {
		if i == maxWaits {
			break
		}
		reason := task.Clean(why[id])
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

// explain sets the reasons of tasks that wait for their jobs, or for room in their group. A file that cannot be read is ignored.
func (s *Spool) explain(all []Summary) {
	taken := map[string]int{}
	for _, t := range all {
		if t.Agent != "" && !t.State.Final() {
			taken[t.Group]++
		}
	}
	for i, t := range all {
		if t.State == task.Pending && t.Agent == "" && t.Reason == "" && t.Waits == "" && t.AtMost > 0 && taken[t.Group] >= t.AtMost {
			all[i].Reason = fmt.Sprintf("waits for room in its group: at most %d at a time", t.AtMost)
		}
	}
	known := map[string]map[task.ID]string{}
	for i, t := range all {
		if t.State != task.Pending || t.Agent == "" || t.Reason != "" {
			continue
		}
		why, ok := known[t.Agent]
		if !ok {
			why = s.waits(t.Agent)
			known[t.Agent] = why
		}
		all[i].Reason = why[t.ID]
	}
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
