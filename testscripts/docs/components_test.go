package docs

import (
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/ponos-tools/ponos/testscripts/harness"
)

// The page of each component names all of its packages, and tests that exist.
func TestPagesOfComponents(t *testing.T) {
	pages, err := filepath.Glob(filepath.Join(harness.Root(), "lib/*/doc.go"))
	if err != nil || len(pages) < 9 {
		t.Fatalf("%d components (%v)", len(pages), err)
	}
	for _, page := range pages {
		dir := filepath.Dir(page)
		t.Run(filepath.Base(dir), func(t *testing.T) {
			file, err := parser.ParseFile(token.NewFileSet(), page, nil, parser.ParseComments|parser.PackageClauseOnly)
			if err != nil {
				t.Fatal(err)
			}
			_, text, _ := strings.Cut(file.Doc.Text(), "\n# Packages\n")
			packages, text, _ := strings.Cut(text, "\n# Files\n")
			_, promises, found := strings.Cut(text, "\n# Promises, and the tests that hold them\n")
			if !found {
				t.Fatal("no sections of packages, files and promises")
			}
			named := regexp.MustCompile(`(?m)^\t([\w/-]+)  `).FindAllStringSubmatch(packages, -1)
			var names []string
			for _, name := range named {
				names = append(names, name[1])
			}
			if is := below(t, dir); !slices.Equal(names, is) {
				t.Errorf("the page has the packages %v, and there are %v", names, is)
			}
			for line := range strings.Lines(promises) {
				switch test := strings.TrimSpace(line); {
				case strings.HasPrefix(line, "\t    "):
					if problem := missing(test); problem != "" {
						t.Error(problem)
					}
				case test != "" && !strings.HasPrefix(line, "\t"):
					t.Errorf("neither a promise nor a test: %s", test)
				}
			}
			if !strings.Contains(promises, "\n\t    ") {
				t.Error("no tests")
			}
		})
	}
}

// below returns the packages within a component, in order.
func below(t *testing.T, dir string) (names []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, entry os.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(path, ".go") && filepath.Dir(path) != dir {
			name, _ := filepath.Rel(dir, filepath.Dir(path))
			if !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(names)
	return names
}
