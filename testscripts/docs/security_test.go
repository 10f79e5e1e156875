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
			if problem := missing(name[1]); problem != "" {
				t.Errorf("%s: %s", cells[1], problem)
			}
		}
	}
	if rows < 20 {
		t.Errorf("the table has %d rows", rows)
	}
}

// missing returns why a name, FILE_test.go:TestNAME, FILE_test.go:FuzzNAME or a script, is not that of a test; "" if it is.
func missing(name string) string {
	file, function, isGo := strings.Cut(name, ":")
	text, err := os.ReadFile(filepath.Join(harness.Root(), file))
	switch {
	case err != nil:
		return err.Error()
	case isGo && (!strings.HasSuffix(file, "_test.go") || !strings.Contains(string(text), "\nfunc "+function+"(t *testing.T)") &&
		!strings.Contains(string(text), "\nfunc "+function+"(f *testing.F)")):
		return file + " has no " + function
	case !isGo && !strings.HasSuffix(file, ".txtar"):
		return name + " is not a test"
	}
	return ""
}
