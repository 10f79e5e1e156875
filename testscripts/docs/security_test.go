package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/ponos-tools/ponos/testscripts/harness"
)

var quoted = regexp.MustCompile("`([^`]+)`")

// Each attempt in SECURITY.md names tests that are there.
func TestSecurityNamesItsTests(t *testing.T) {
	b, err := os.ReadFile(filepath.Join(harness.Root(), "SECURITY.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, table, found := strings.Cut(string(b), "| attacker | attempt | what stops it | tests |\n|---|---|---|---|\n")
	if !found {
		t.Fatal("SECURITY.md has no table of attempts")
	}
	rows := 0
	for line := range strings.Lines(table) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), " | ")
		if len(cells) < 4 {
			break
		}
		rows++
		names := quoted.FindAllStringSubmatch(cells[3], -1)
		if len(names) == 0 {
			t.Errorf("%s: no test", cells[1])
		}
		for _, name := range names {
			file, function, isGo := strings.Cut(name[1], ":")
			text, err := os.ReadFile(filepath.Join(harness.Root(), file))
			switch {
			case err != nil:
				t.Errorf("%s: %v", cells[1], err)
			case isGo && (!strings.HasSuffix(file, "_test.go") || !strings.HasPrefix(function, "Test") || !strings.Contains(string(text), "\nfunc "+function+"(t *testing.T)")):
				t.Errorf("%s: %s has no %s", cells[1], file, function)
			case !isGo && !strings.HasSuffix(file, ".txtar"):
				t.Errorf("%s: %s is not a test", cells[1], name[1])
			}
		}
	}
	if rows < 20 {
		t.Errorf("the table has %d rows", rows)
	}
}
