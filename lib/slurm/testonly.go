package slurm

import "strings"

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
