// Package layers holds what the architecture asks of the source.
package layers

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const root = "../.."

// A test that writes a program and runs it can meet "text file busy": testscripts/executable is for that.
func TestProgramsOfTestsAreWrittenWhole(t *testing.T) {
	t.Parallel()
	direct := regexp.MustCompile(`os\.WriteFile\(.*, 0o[1357][0-7][0-7]\)`)
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		for n, line := range strings.Split(string(text), "\n") {
			if direct.MatchString(line) {
				t.Errorf("%s:%d: use executable.Write: %s", path, n+1, strings.TrimSpace(line))
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}
