// Package clock is where the tools learn the time, so that tests can give them
// another: [Now], and the times of files that are compared with it.
//
// The variable PONOS_TEST_CLOCK moves the clock of a process. It is for tests only,
// and read once, when the process starts:
//
//	+960h                 the clock is 40 days ahead
//	-36h                  the clock is a day and a half behind
//	2026-11-18T12:00:00Z  the clock says so at the start of the process, and runs on
//
// PONOS_TEST_DAY, in the same form, moves the day of all tests (testscripts/calendar/run):
// an offset is counted from there, and a time of the clock stands whatever the day is.
//
// A process with a variable that is neither ends at once, as a test that asked for
// another clock must not pass on today's.
//
// Only decisions and records take their time from here. Deadlines of the kernel and
// of the standard library (connections, contexts, timers) are the machine's own.
package clock

import (
	"fmt"
	"io/fs"
	"os"
	"strings"
	"time"
)

// The variables of the environment that move the clock.
const (
	Variable    = "PONOS_TEST_CLOCK"
	DayVariable = "PONOS_TEST_DAY"
)

// offset is how far the clock is ahead of the machine's.
var offset = mustOffset(os.Getenv(Variable), os.Getenv(DayVariable), time.Now())

// Now returns the time. As that of [time.Now], it has a monotonic reading, so that
// a duration between two of them does not change when the system clock is set.
func Now() time.Time {
	if offset == 0 {
		return time.Now()
	}
	return time.Now().Add(offset)
}

// Since returns the time that has passed since t, a time of [Now].
func Since(t time.Time) time.Duration { return Now().Sub(t) }

// Until returns the time that is left until t, a time of [Now].
func Until(t time.Time) time.Duration { return t.Sub(Now()) }

// Modified returns when a file was last changed, as a time to compare with [Now].
func Modified(info fs.FileInfo) time.Time { return info.ModTime().Add(offset) }

// Touch sets the times of a file to now.
func Touch(path string) error {
	now := time.Now()
	return os.Chtimes(path, now, now)
}

// parse returns the offset that the values of [Variable] and [DayVariable] ask for.
func parse(value, day string, start time.Time) (time.Duration, error) {
	moved, absolute, err := parseOne(Variable, value, start)
	if err != nil || absolute {
		return moved, err
	}
	from, _, err := parseOne(DayVariable, day, start)
	return from + moved, err
}

// parseOne returns the offset that one variable asks for, and whether it says so by a time.
func parseOne(name, value string, start time.Time) (offset time.Duration, absolute bool, err error) {
	switch {
	case value == "":
		return 0, false, nil
	case strings.HasPrefix(value, "+"), strings.HasPrefix(value, "-"):
		d, err := time.ParseDuration(value)
		if err != nil {
			return 0, false, fmt.Errorf("%s: invalid offset %q", name, value)
		}
		return d, false, nil
	}
	t, err := time.Parse(time.RFC3339, value)
	if err != nil {
		return 0, false, fmt.Errorf("%s: invalid time %q", name, value)
	}
	return t.Sub(start), true, nil
}

func mustOffset(value, day string, start time.Time) time.Duration {
	d, err := parse(value, day, start)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	return d
}
