package slurm

import (
	"os"
	"strings"
)

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

// SubmitEnv is the environment in which the user would run sbatch by hand: with
// the defaults of SBATCH_ variables, such as the account.
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
