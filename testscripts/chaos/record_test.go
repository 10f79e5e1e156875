package chaos

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

// event is something that was done to the world, or that a stand-in did.
type event struct {
	Kind   string    `json:"kind"`
	Began  time.Time `json:"began"`
	Ended  time.Time `json:"ended"`
	Detail string    `json:"detail,omitempty"`
	// Fault is set for what counts as a fault, and not as the course of things.
	Fault bool `json:"fault,omitempty"`
}

func (e event) String() string {
	return fmt.Sprintf("%s +%5.1fs %-22s %s", e.Began.Format("15:04:05.000"), e.Ended.Sub(e.Began).Seconds(), e.Kind, e.Detail)
}

// record keeps the events in a file, to which the stand-ins write as well.
type record struct {
	dir string
	mu  sync.Mutex
}

func eventsFile(dir string) string { return filepath.Join(dir, "events.jsonl") }

// add appends an event. Lines are short enough to be written at once.
func (r *record) add(e event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	note(r.dir, e)
}

func note(dir string, e event) {
	b, err := json.Marshal(e)
	if err != nil {
		return
	}
	f, err := os.OpenFile(eventsFile(dir), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o666)
	if err != nil {
		return
	}
	defer f.Close()
	_, _ = f.Write(append(b, '\n'))
}

// events reads them back, in the order of their beginnings.
func (r *record) events() []event {
	b, _ := os.ReadFile(eventsFile(r.dir))
	var all []event
	for line := range strings.Lines(string(b)) {
		var e event
		if json.Unmarshal([]byte(line), &e) == nil {
			all = append(all, e)
		}
	}
	slices.SortStableFunc(all, func(a, b event) int { return a.Began.Compare(b.Began) })
	return all
}

// table counts the faults by their kind. A fault is survived unless it lies in the
// life of a task that came out wrong.
func table(events []event, broken []span) string {
	counts, suspects := map[string]int{}, map[string]int{}
	total, survived := 0, 0
	for _, e := range events {
		if !e.Fault {
			continue
		}
		counts[e.Kind]++
		total++
		if slices.ContainsFunc(broken, func(s span) bool { return !e.Ended.Before(s.from) && !e.Began.After(s.to) }) {
			suspects[e.Kind]++
		} else {
			survived++
		}
	}
	var kinds []string
	for kind := range counts {
		kinds = append(kinds, kind)
	}
	slices.Sort(kinds)
	var b strings.Builder
	fmt.Fprintf(&b, "%-24s %6s %9s\n", "kind of fault", "count", "survived")
	for _, kind := range kinds {
		fmt.Fprintf(&b, "%-24s %6d %9d\n", kind, counts[kind], counts[kind]-suspects[kind])
	}
	fmt.Fprintf(&b, "%-24s %6d %9d\n", fmt.Sprintf("%d kinds", len(kinds)), total, survived)
	return b.String()
}

// span is the life of a task.
type span struct{ from, to time.Time }

// arraysOf counts the job arrays that were submitted, and their elements.
func arraysOf(events []event) (arrays, elements int) {
	for _, e := range events {
		f := strings.Fields(e.Detail) // task ID,ID job JOB status 0
		if e.Kind == "submitted" && len(f) == 6 && strings.Contains(f[1], ",") {
			arrays++
			elements += 1 + strings.Count(f[1], ",")
		}
	}
	return arrays, elements
}
