// Package tasklist finds the tasks of a spool that a user selects: by ids, short ids, names and
// filters. The tools share it that list tasks, show their logs, cancel them and retry them.
package tasklist

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/ponos-tools/ponos/lib/agent/assembly"
	"github.com/ponos-tools/ponos/lib/agent/config"
	"github.com/ponos-tools/ponos/lib/base/fault"
	"github.com/ponos-tools/ponos/lib/base/place"
	"github.com/ponos-tools/ponos/lib/base/spelling"
	"github.com/ponos-tools/ponos/lib/base/unit"
	"github.com/ponos-tools/ponos/lib/task"
	"github.com/ponos-tools/ponos/lib/task/queue"
)

// Make is Open that makes a new spool, unless the places that are remembered say that there was one.
func Make(configFile, dir string, places place.Memory) (queue.Client, error) {
	return open(configFile, dir, &places)
}

// Open opens the queue that a command line selects, which must exist: the spool in dir, or else that of the configuration.
func Open(configFile, dir string) (queue.Client, error) { return open(configFile, dir, nil) }

func open(configFile, dir string, before *place.Memory) (queue.Client, error) {
	if dir == "" {
		cfg, err := assembly.Configuration(configFile)
		if err != nil {
			return nil, err
		}
		return assembly.Client(cfg, before)
	}
	dir, err := config.Expand(dir)
	if err != nil {
		return nil, err
	}
	if _, err := os.Stat(filepath.Join(dir, "new")); errors.Is(err, fs.ErrNotExist) && before == nil {
		return nil, fault.Hint(fault.Errorf(fault.Usage, "--spool: %q is not a spool", dir), "the first submission creates it")
	}
	return assembly.ClientOf(dir, before)
}

// States are the values of a filter by state: the states, and words for several of them.
var States = []string{"pending", "running", "stopping", "completed", "failed", "error", "stopped", "unfinished", "ended", "unsuccessful"}

func matches(word string, s task.State) bool {
	switch word {
	case "unfinished":
		return !s.Final()
	case "ended":
		return s.Final()
	case "unsuccessful":
		return s.Final() && s != task.Completed
	}
	return word == string(s)
}

// Filter selects tasks. The zero value selects all.
type Filter struct {
	States []string  // any of these; none: any state
	Group  string    // a shell pattern; "": any
	Name   string    // a shell pattern; "": any
	Since  time.Time // submitted then or later; zero: any
	Until  time.Time // submitted before; zero: any
}

// NewFilter parses a filter from the values of the flags state (a comma-separated list), group, name,
// since and until (durations before now, dates, or dates with times).
func NewFilter(flag func(name string) string, now time.Time) (Filter, error) {
	f := Filter{Group: flag("group"), Name: flag("name")}
	if states := flag("state"); states != "" {
		f.States = strings.Split(states, ",")
	}
	for _, name := range []string{"group", "name"} {
		if _, err := path.Match(flag(name), ""); err != nil {
			return f, fault.Errorf(fault.Usage, "--%s: invalid pattern %q", name, flag(name))
		}
	}
	var err error
	if f.Since, err = instant(flag("since"), now); err != nil {
		return f, fault.Errorf(fault.Usage, "--since: %w", err)
	}
	if f.Until, err = instant(flag("until"), now); err != nil {
		return f, fault.Errorf(fault.Usage, "--until: %w", err)
	}
	return f, nil
}

func instant(s string, now time.Time) (time.Time, error) {
	if s == "" {
		return time.Time{}, nil
	}
	for _, layout := range []string{
		time.DateOnly, time.DateTime, "2006-01-02T15:04:05", "2006-01-02T15:04", "2006-01-02 15:04", time.RFC3339,
	} {
		if t, err := time.ParseInLocation(layout, s, time.Local); err == nil {
			return t, nil
		}
	}
	d, err := unit.Duration(s)
	if err != nil {
		return time.Time{}, fmt.Errorf("invalid time %q: expected a duration such as 2h, or a time such as %s",
			s, now.Format("2006-01-02T15:04"))
	}
	return now.Add(-d), nil
}

// Empty reports whether the filter selects all tasks.
func (f Filter) Empty() bool {
	return len(f.States) == 0 && f.Group == "" && f.Name == "" && f.Since.IsZero() && f.Until.IsZero()
}

// Has reports whether the filter selects a task.
func (f Filter) Has(s queue.Summary) bool {
	if len(f.States) > 0 && !slices.ContainsFunc(f.States, func(w string) bool { return matches(w, s.State) }) {
		return false
	}
	if f.Group != "" && !match(f.Group, s.Group) || f.Name != "" && !match(f.Name, s.Slug) {
		return false
	}
	return (f.Since.IsZero() || !s.Created.Before(f.Since)) && (f.Until.IsZero() || s.Created.Before(f.Until))
}

// unknown says that no task has the group or the name of the filter; nil if some have.
func (f Filter) unknown(all []queue.Summary) error {
	groups, names := map[string]bool{}, map[string]bool{}
	for _, s := range all {
		groups[s.Group], names[s.Slug] = true, true
	}
	for _, word := range []struct {
		text, given string
		known       map[string]bool
	}{{"no task is in group %q", f.Group, groups}, {"no task has the name %q", f.Name, names}} {
		known := slices.Sorted(maps.Keys(word.known))
		if word.given == "" || slices.ContainsFunc(known, func(s string) bool { return match(word.given, s) }) {
			continue
		}
		err := fmt.Errorf(word.text, task.Clean(word.given))
		if near := spelling.Nearest(word.given, known[:min(len(known), maxNear)]); near != "" {
			return fault.Hint(err, fmt.Sprintf("did you mean %q?", task.Clean(near)))
		}
		return err
	}
	return nil
}

// Nothing says that the filter selects none of these tasks, and why; nil if the filter is empty.
func (f Filter) Nothing(all []queue.Summary) error {
	if err := f.unknown(all); err != nil || f.Empty() {
		return err
	}
	rest, others, earlier := f, 0, 0
	rest.States = nil
	for _, s := range all {
		switch {
		case s.Retried && f.Has(s):
			earlier++
		case !s.Retried && rest.Has(s):
			others++
		}
	}
	text := "no task matches"
	if len(f.States) > 0 && others > 0 {
		if text = "no task"; !rest.Empty() {
			text += " that matches"
		}
		text += " " + is(f.States)
	}
	switch earlier {
	case 0:
		return errors.New(text)
	case 1:
		return errors.New(text + ", but for 1 that was retried")
	}
	return fmt.Errorf("%s, but for %d that were retried", text, earlier)
}

// is says in which states no task is.
func is(states []string) string {
	if len(states) == 1 {
		switch states[0] {
		case "unfinished", "unsuccessful":
			return "is " + states[0]
		case "ended":
			return "has ended"
		}
	}
	return "is in state " + task.Clean(strings.Join(states, " or "))
}

// maxNear limits among how many names the nearest is looked for.
const maxNear = 1000

// match is path.Match in which '*' and '?' also match slashes.
func match(pattern, s string) bool {
	if pattern == s {
		return true
	}
	flat := strings.NewReplacer("/", "\x00")
	ok, err := path.Match(flat.Replace(pattern), flat.Replace(s))
	return err == nil && ok
}

// shortest is the least number of characters that are accepted as a part of an id.
const shortest = 4

// Find returns the tasks that a word selects: the one with this id, those with this name, or the one
// whose id begins or ends with it. Of retried tasks, a name selects only the last attempt. If there
// is none, that is an error.
func Find(all []queue.Summary, word string) ([]queue.Summary, error) {
	var named, short []queue.Summary
	for _, s := range all {
		switch {
		case string(s.ID) == word:
			return []queue.Summary{s}, nil
		case s.Slug == word && !s.Retried:
			named = append(named, s)
		case len(word) >= shortest && (strings.HasPrefix(string(s.ID), word) || strings.HasSuffix(string(s.ID), word)):
			short = append(short, s)
		}
	}
	switch {
	case len(named) > 0:
		return named, nil
	case len(short) == 1:
		return short, nil
	case len(short) > 1:
		return nil, fault.Hint(
			fmt.Errorf("%q begins or ends the ids of %d tasks", task.Clean(word), len(short)),
			"give more of it: "+some(short))
	}
	err := fmt.Errorf("no task has the id or the name %q", task.Clean(word))
	names := make([]string, 0, len(all))
	for _, s := range all[max(0, len(all)-maxNear):] {
		names = append(names, s.Slug)
	}
	if near := spelling.Nearest(word, names); near != "" && len(word) < 64 {
		return nil, fault.Hint(err, fmt.Sprintf("did you mean %q?", task.Clean(near)))
	}
	return nil, err
}

// One is Find for a word that must select exactly one task.
func One(all []queue.Summary, word string) (queue.Summary, error) {
	found, err := Find(all, word)
	if err != nil {
		return queue.Summary{}, err
	}
	if len(found) > 1 {
		return queue.Summary{}, fault.Hint(
			fmt.Errorf("%d tasks are called %q", len(found), task.Clean(word)), "name one by its id: "+some(found))
	}
	return found[0], nil
}

// some returns the ids of a few tasks.
func some(found []queue.Summary) string {
	var ids []string
	for _, s := range found[:min(3, len(found))] {
		ids = append(ids, string(s.ID))
	}
	if len(found) > 3 {
		ids = append(ids, "...")
	}
	return strings.Join(ids, ", ")
}

// Select returns the tasks that words select and that match the filter, each once, in the order of
// the words; without words all that match the filter, except those that were retried, the oldest
// first. The errors are those of words that select nothing.
func Select(all []queue.Summary, words []string, f Filter) ([]queue.Summary, []error) {
	var found []queue.Summary
	var errs []error
	if len(words) == 0 {
		n := 0
		for _, s := range all {
			if !s.Retried && f.Has(s) {
				n++
			}
		}
		if n == len(all) {
			return slices.Clip(all), nil
		}
		found = make([]queue.Summary, 0, n)
		for _, s := range all {
			if !s.Retried && f.Has(s) {
				found = append(found, s)
			}
		}
		return found, nil
	}
	byID := make(map[string]int, len(all))
	for i, s := range all {
		byID[string(s.ID)] = i
	}
	seen := map[task.ID]bool{}
	for _, w := range words {
		var these []queue.Summary
		if i, ok := byID[w]; ok { // there may be many words
			these = all[i : i+1]
		} else {
			var err error
			if these, err = Find(all, w); err != nil {
				errs = append(errs, err)
			}
		}
		for _, s := range these {
			if !seen[s.ID] && f.Has(s) {
				seen[s.ID] = true
				found = append(found, s)
			}
		}
	}
	return found, errs
}

// Attempts returns tasks, each behind those that it retries, the first attempt first; each once.
func Attempts(all, found []queue.Summary) []queue.Summary {
	byID := make(map[task.ID]queue.Summary, len(all))
	for _, s := range all {
		byID[s.ID] = s
	}
	var out []queue.Summary
	seen := map[task.ID]bool{}
	for _, s := range found {
		var chain []queue.Summary
		for at, ok := s, true; ok && !seen[at.ID]; at, ok = byID[at.RetryOf] {
			seen[at.ID] = true
			chain = append(chain, at)
		}
		slices.Reverse(chain)
		out = append(out, chain...)
	}
	return out
}

// maxWords limits how many ids are read from a pipe.
const maxWords = 1_000_000

// ReadWords reads ids from a pipe: the first word of each line, so that a table is accepted, whose
// header is left out.
func ReadWords(r io.Reader) ([]string, error) {
	var words []string
	lines := bufio.NewScanner(r)
	for n := 1; lines.Scan(); n++ {
		fields := strings.Fields(lines.Text())
		if n == 1 && len(fields) > 1 && fields[0] == "TASK" && fields[1] == "NAME" {
			continue
		}
		if len(fields) > 0 {
			words = append(words, fields[0])
		}
		if len(words) > maxWords {
			return nil, fault.Errorf(fault.Usage, "standard input: more than %d lines", maxWords)
		}
	}
	if err := lines.Err(); errors.Is(err, bufio.ErrTooLong) {
		return nil, fault.Errorf(fault.Usage, "standard input: a line is longer than %d bytes", bufio.MaxScanTokenSize)
	} else if err != nil {
		return nil, fault.Errorf(fault.Usage, "standard input: %w", err)
	}
	return words, nil
}

// Count is the number of tasks in each state.
type Count struct {
	Total int
	By    map[task.State]int
}

// CountOf counts tasks.
func CountOf(all []queue.Summary) Count {
	c := Count{len(all), map[task.State]int{}}
	for _, s := range all {
		c.By[s.State]++
	}
	return c
}

// String formats the counts for people, as in "3 tasks: 1 running, 2 completed".
func (c Count) String() string {
	text := fmt.Sprintf("%d tasks", c.Total)
	if c.Total == 1 {
		text = "1 task"
	}
	var parts []string
	for _, s := range []task.State{
		task.Unscheduled, task.Pending, task.Running, task.Stopping,
		task.Completed, task.Failed, task.Error, task.Stopped,
	} {
		if n := c.By[s]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, s))
		}
	}
	if len(parts) == 0 {
		return text
	}
	return text + ": " + strings.Join(parts, ", ")
}
