package harness

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Blocks returns the shell commands that a section of a page in man/ shows.
func Blocks(t *testing.T, page, section string) []string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(Root(), "man", page))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "\n# "+section+"\n")
	rest, _, _ = strings.Cut(rest, "\n# ")
	var blocks []string
	for i, part := range strings.Split(rest, "\n```") {
		if block, ok := strings.CutPrefix(part, "sh\n"); ok && i%2 == 1 {
			blocks = append(blocks, block)
		}
	}
	if len(blocks) == 0 {
		t.Fatalf("%s: %s shows no commands", page, section)
	}
	return blocks
}
