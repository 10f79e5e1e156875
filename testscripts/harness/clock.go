package harness

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/ponos-tools/ponos/lib/base/clock"
)

// RecordedAt returns the time when the records of a directory were captured, as a
// value of [clock.Variable]: tools that read them are to have the clock of that day.
// Its file "now" has that time in seconds since 1970.
func RecordedAt(dir string) (string, error) {
	text, err := os.ReadFile(filepath.Join(dir, "now"))
	if err != nil {
		return "", err
	}
	seconds, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	if err != nil {
		return "", err
	}
	return time.Unix(seconds, 0).UTC().Format(time.RFC3339), nil
}

// Clock is what moves the clock of the tools that a test runs: that of the test itself,
// if it is moved.
func Clock() (variables []string) {
	for _, name := range []string{clock.Variable, clock.DayVariable} {
		if value, ok := os.LookupEnv(name); ok {
			variables = append(variables, name+"="+value)
		}
	}
	return variables
}

// Zone is the time zone of the tools that a test runs: UTC, unless testscripts/calendar/run
// asks for another.
func Zone() string {
	if zone := os.Getenv("PONOS_TEST_ZONE"); zone != "" {
		return zone
	}
	return "UTC"
}
