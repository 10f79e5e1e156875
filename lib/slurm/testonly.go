package slurm

import (
	"os"
	"strings"
	"time"
)

// TestRefusal returns the message of sbatch --test-only about a job that it refuses.
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

// SubmitEnv returns the environment in which a user runs sbatch by hand, which includes the
// defaults of SBATCH_ variables.
func (c *Client) SubmitEnv() []string {
	env := c.Env
	if env == nil {
		env = os.Environ()
	}
	clean := c.environ()
	for _, v := range env {
		if strings.HasPrefix(v, "SBATCH_") && !strings.HasPrefix(v, "SBATCH_TEST_ONLY=") {
			clean = append(clean, v)
		}
	}
	return clean
}

// StartEstimate is the answer of sbatch --test-only.
type StartEstimate struct {
	Start     time.Time
	Nodes     string // hostlist
	Partition string
}

// ParseStartEstimate parses what sbatch --test-only prints to standard error if Slurm would
// accept the job.
func ParseStartEstimate(text string) (StartEstimate, error) {
	for line := range strings.Lines(text) {
		_, rest, ok := strings.Cut(line, " to start at ")
		words := strings.Fields(rest)
		if !ok || !strings.Contains(line, "sbatch: Job ") || len(words) == 0 {
			continue
		}
		start, err := ParseTime(words[0])
		if err != nil || start == 0 {
			continue
		}
		e := StartEstimate{Start: time.Unix(start, 0)}
		for i := 1; i+1 < len(words); i++ {
			switch words[i] {
			case "nodes":
				e.Nodes = words[i+1]
			case "partition":
				e.Partition = words[i+1]
			}
		}
		return e, nil
	}
	return StartEstimate{}, parseError("sbatch --test-only", 1, "%.80q has no start", strings.TrimSpace(text))
}
