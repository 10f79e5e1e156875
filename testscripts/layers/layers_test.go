// Package layers holds what the architecture asks of the source.
package layers

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

const root = "../.."

// pure returns the files of the packages that the linter knows as pure.
func pure(t *testing.T) (files []string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, ".golangci.yml"))
	if err != nil {
		t.Fatal(err)
	}
	var configuration struct {
		Linters struct {
			Settings struct {
				Depguard struct {
					Rules map[string]struct{ Files []string }
				}
			}
		}
	}
	if err := yaml.Unmarshal(text, &configuration); err != nil {
		t.Fatal(err)
	}
	for _, pattern := range configuration.Linters.Settings.Depguard.Rules["pure"].Files {
		if name, found := strings.CutPrefix(pattern, "**/"); found {
			matches, err := filepath.Glob(filepath.Join(root, name))
			if err != nil || len(matches) == 0 {
				t.Errorf("%s: no such package (%v)", pattern, err)
			}
			files = append(files, matches...)
		}
	}
	return files
}

// effect returns what a pure package must not do and no import shows: start goroutines, wait, look at
// the clock, or make system calls. It may name errors and signals.
func effect(n ast.Node) string {
	switch n := n.(type) {
	case *ast.GoStmt:
		return "go"
	case *ast.SelectorExpr:
		of, ok := n.X.(*ast.Ident)
		if name := n.Sel.Name; ok && (of.Name == "time" && waits.MatchString(name) || of.Name == "syscall" && !numbers.MatchString(name)) {
			return of.Name + "." + name
		}
	}
	return ""
}

var (
	waits   = regexp.MustCompile(`^(Now|Since|Until|Sleep|After|AfterFunc|Tick|NewTicker|NewTimer)$`)
	numbers = regexp.MustCompile(`^(Errno|E[A-Z0-9]+|Signal|SIG[A-Z0-9]+)$`)
)

func TestPurePackagesHaveNoEffects(t *testing.T) {
	t.Parallel()
	for _, name := range pure(t) {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		files := token.NewFileSet()
		file, err := parser.ParseFile(files, name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if what := effect(n); what != "" {
				t.Errorf("%s: %s in a pure package", files.Position(n.Pos()), what)
			}
			return true
		})
	}
}

func TestEffectsAreSeen(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"go f()": "go", "time.Sleep(1)": "time.Sleep", "x := time.Now()": "time.Now", "syscall.Open(a, b, c)": "syscall.Open",
		"f(time.Second, syscall.ENOSPC, syscall.SIGTERM, t.After(u))": "",
	} {
		file, err := parser.ParseFile(token.NewFileSet(), "", "package p\nfunc g() { "+text+" }", parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		ast.Inspect(file, func(n ast.Node) bool {
			got += effect(n)
			return true
		})
		if got != want {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
}

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
