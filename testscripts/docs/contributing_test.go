package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/ponos-tools/ponos/testscripts/harness"
)

// TestContributingNamesFiles holds that files and directories which CONTRIBUTING.md names exist. A file that is named
// without its directory is in one that was named before it, in the same paragraph or table.
func TestContributingNamesFiles(t *testing.T) {
	path := regexp.MustCompile("[`(]((?:lib|cmd|man|testscripts|examples)/[A-Za-z0-9_./-]*|[a-z_]+\\.(?:go|sh))[`)]")
	found := 0
	for part := range strings.SplitSeq(read(t, "CONTRIBUTING.md"), "\n\n") {
		if strings.HasPrefix(part, "```") {
			continue
		}
		near := map[string]bool{}
		for _, m := range path.FindAllStringSubmatch(part, -1) {
			name := m[1]
			if strings.Contains(name, "NAME") || strings.HasSuffix(name, "/<tool>/") {
				continue
			}
			found++
			if !strings.Contains(name, "/") {
				for dir := range near {
					if _, err := os.Stat(filepath.Join(harness.Root(), dir, name)); err == nil {
						name = filepath.Join(dir, name)
						break
					}
				}
			}
			info, err := os.Stat(filepath.Join(harness.Root(), name))
			if err != nil {
				t.Errorf("CONTRIBUTING.md names %s: %v", m[1], err)
				continue
			}
			if !info.IsDir() {
				name = filepath.Dir(name)
			}
			near[name] = true
		}
	}
	if found < 50 {
		t.Errorf("CONTRIBUTING.md names only %d files", found)
	}
}
