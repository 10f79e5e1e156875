package slurm

import (
	"regexp"
	"strconv"
	"strings"
	"time"
)

// TestStart is sbatch's answer to --test-only: when a job could start, if no
// job were before it in the queue.
type TestStart struct {
	Start     int64 // seconds since 1970
	CPUs      uint64
	Nodes     string
	Partition string
}

// testStart is the sentence of sbatch --test-only, on stderr. The partition is
// missing in old versions.
var testStart = regexp.MustCompile(`(?m)^sbatch: Job \d+ to start at (\S+) (?:a )?using (\d+) processors on (?:nodes )?(\S+)(?: in partition (\S+))?\s*$`)

// ParseTestStart reads sbatch's answer. ok is false if there is none in it.
// The components of a heterogeneous job start together: the latest counts.
func ParseTestStart(stderr string) (answer TestStart, ok bool) {
	for _, m := range testStart.FindAllStringSubmatch(stderr, -1) {
		t, err := time.ParseInLocation("2006-01-02T15:04:05", m[1], time.Local)
		cpus, err2 := strconv.ParseUint(m[2], 10, 32)
		if err != nil || err2 != nil {
			return TestStart{}, false
		}
		if !ok || t.Unix() > answer.Start {
			answer = TestStart{t.Unix(), cpus, m[3], m[4]}
		}
		ok = true
	}
	return answer, ok
}

// TestRefusal is why sbatch --test-only says no, in its own words.
func TestRefusal(stderr string) string {
	var said []string
	for line := range strings.Lines(stderr) {
		line = strings.TrimSpace(line)
		line = strings.TrimPrefix(line, "sbatch: ")
		line = strings.TrimPrefix(line, "error: ")
		line = strings.TrimPrefix(line, "allocation failure: ")
		line = strings.TrimPrefix(line, "Batch job submission failed: ")
		if line != "" && !strings.HasPrefix(line, "Try \"sbatch") {
			said = append(said, line)
		}
	}
	if len(said) > 2 {
		said = said[len(said)-2:]
	}
	return strings.Join(said, ": ")
}
