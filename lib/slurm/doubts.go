package slurm

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
)

// Doubts collects the records without which listings were read. The zero value is ready; Add is for Client.Odd.
type Doubts struct {
	mu  sync.Mutex
	all []doubt
}

type doubt struct {
	command string
	first   error
	count   int
}

// Add counts a record.
func (d *Doubts) Add(err error) {
	var e *Error
	if !errors.As(err, &e) {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	at := slices.IndexFunc(d.all, func(o doubt) bool { return o.command == e.Command })
	if at < 0 {
		at = len(d.all)
		d.all = append(d.all, doubt{command: e.Command, first: e})
	}
	d.all[at].count++
}

// Warnings returns a line for each command of which records are missing, which names the first of them, and forgets them.
func (d *Doubts) Warnings() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	slices.SortFunc(d.all, func(a, b doubt) int { return strings.Compare(a.command, b.command) })
	var lines []string
	for _, o := range d.all {
		others := map[bool]string{true: fmt.Sprintf(", and %d others", o.count-1)}[o.count > 1]
		lines = append(lines, fmt.Sprintf("records that cannot be read or believed are left out, of totals too: %v%s", o.first, others))
	}
	d.all = nil
	return lines
}
