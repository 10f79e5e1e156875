package docs

import (
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/ponos-tools/ponos/testscripts/harness"
)

// TestTargets holds "make help" to the targets of the Makefile, and what CONTRIBUTING.md calls to both.
func TestTargets(t *testing.T) {
	t.Parallel()
	found := regexp.MustCompile(`(?m)^\.PHONY: (.*)$`).FindStringSubmatch(read(t, "Makefile"))
	if found == nil {
		t.Fatal("the Makefile has no .PHONY")
	}
	targets := strings.Fields(found[1])
	help := exec.Command("make", "-s", "--no-print-directory", "help")
	help.Dir = harness.Root()
	out, err := help.CombinedOutput()
	if err != nil {
		t.Fatalf("make help: %v\n%s", err, out)
	}
	var listed []string
	for line := range strings.Lines(string(out)) {
		name, _, _ := strings.Cut(strings.TrimSpace(line), " ")
		listed = append(listed, name)
	}
	slices.Sort(targets)
	slices.Sort(listed)
	if !slices.Equal(targets, listed) {
		t.Errorf("make help lists %q, and the targets are %q", listed, targets)
	}
	contributing := read(t, "CONTRIBUTING.md")
	for _, m := range regexp.MustCompile("`make ([a-z][a-z -]*)").FindAllStringSubmatch(contributing, -1) {
		for name := range strings.FieldsSeq(m[1]) {
			if !slices.Contains(targets, name) {
				t.Errorf("CONTRIBUTING.md: make has no target %q", name)
			}
		}
	}
	if !strings.Contains(contributing, "`make cover`") {
		t.Error("CONTRIBUTING.md does not explain make cover")
	}
}
