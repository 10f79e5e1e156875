package run

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/ponos-tools/ponos/lib/agent/tasklist"
	"github.com/ponos-tools/ponos/lib/base/clock"
	"github.com/ponos-tools/ponos/lib/base/fault"
	"github.com/ponos-tools/ponos/lib/base/shell"
	"github.com/ponos-tools/ponos/lib/task"
	"github.com/ponos-tools/ponos/lib/task/queue"
)

// end says how the tasks have ended, and what can be done next.
func (r *running) end(tasks []queue.Summary) error {
	bad := slices.DeleteFunc(slices.Clone(tasks), func(t queue.Summary) bool { return t.State == task.Completed })
	if r.single == "" {
		fmt.Fprintf(r.stderr, "%s: %s: %s, in %s\n", name, r.group, tasklist.CountOf(tasks), clock.Since(r.began).Truncate(time.Second))
	}
	for _, line := range failures(bad, r.why) {
		fmt.Fprintf(r.stderr, "%s: %s\n", name, line)
	}
	var next []string
	if len(bad) > 0 {
		next = append(next, "a log: ponos-log "+shell.Quote(task.Clean(bad[0].Slug)))
	}
	if r.single == "" {
		list := "ponos-list --group " + r.group
		files := list + " --files"
		if e, err := r.spool.Read(tasks[0]); err == nil && e.Source.InPlace {
			files = "in " + shell.Quote(task.Clean(e.Source.Directory))
		}
		next = append(next, "files: "+files, "a table: "+list+" --table FILE")
	}
	if len(next) > 0 {
		fmt.Fprintf(r.stderr, "%s: %s\n", name, strings.Join(next, "; "))
		r.name()
	}
	if len(bad) == 0 {
		return nil
	}
	err := fmt.Errorf("%d of %d tasks did not complete", len(bad), len(tasks))
	if len(tasks) == 1 {
		err = fmt.Errorf("task %s: %s: %s", bad[0].ID.Short(), bad[0].State, task.Clean(bad[0].Reason))
	}
	code, when := r.code(bad[0])
	return fault.Wrap(fault.Failed, fault.Hint(err,
		fmt.Sprintf("to run what failed again, %s: ponos-retry --group %s%s && %s", when, r.group, code, r.again())))
}

// code is the option by which a retry gets the code as it is then.
func (r *running) code(bad queue.Summary) (option, when string) {
	e, err := r.spool.Read(bad)
	switch {
	case err != nil || e.Source.InPlace:
		return "", "with the code that is there now"
	case e.Source.Repository != "":
		return " --repository " + shell.Quote(e.Source.Repository), "with its newest commit"
	case e.Source.Directory != "":
		return " --directory " + shell.Quote(e.Source.Directory), "with the code that is there now"
	}
	return "", "as it was"
}

// failures are lines for tasks that did not complete: by their reasons, those of most tasks first.
func failures(bad []queue.Summary, why func(queue.Summary) string) (lines []string) {
	by := map[string][]queue.Summary{}
	for _, t := range bad {
		key := string(t.State) + ": " + task.Clean(t.Reason)
		by[key] = append(by[key], t)
	}
	keys := slices.SortedFunc(maps.Keys(by), func(a, b string) int {
		if n := len(by[b]) - len(by[a]); n != 0 {
			return n
		}
		return strings.Compare(a, b)
	})
	const most = 5
	for _, key := range keys[:min(len(keys), most)] {
		var names []string
		for _, t := range by[key] {
			names = append(names, task.Clean(t.Slug))
		}
		line := fmt.Sprintf("%d %s (%s)", len(by[key]), key, task.SomeOf(names))
		if own, ok := strings.CutPrefix(why(by[key][0]), task.Clean(by[key][0].Reason)+": "); ok {
			line += ": " + own
		}
		lines = append(lines, line)
	}
	if n := len(keys) - most; n > 0 {
		lines = append(lines, fmt.Sprintf("and %d more reasons", n))
	}
	return lines
}
