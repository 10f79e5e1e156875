package slurm

import (
	"os"
	"regexp"
	"testing"

	"github.com/ponos-tools/ponos/lib/task"
)

// TestManual holds the table of states in ponos(7) to the code.
func TestManual(t *testing.T) {
	page, err := os.ReadFile("../../../../man/ponos.7.md")
	if err != nil {
		t.Fatal(err)
	}
	name := regexp.MustCompile(`\b[A-Z][A-Z_]{4,}\b`)
	n := 0
	for _, row := range regexp.MustCompile(`(?m)^\*([a-z]+)\*\n:   ([A-Z]{5}.*)`).FindAllStringSubmatch(string(page), -1) {
		for _, word := range name.FindAllString(row[2], -1) {
			// Whether it has started, and who has cancelled it, is not part of the name.
			if word == "SUSPENDED" || row[1] == string(task.Stopped) {
				continue
			}
			n++
			if s, ok := state(word); !ok || string(s) != row[1] {
				t.Errorf("%s is %q; the page says %q", word, s, row[1])
			}
		}
	}
	if n < 20 {
		t.Errorf("only %d states are found", n)
	}
}
