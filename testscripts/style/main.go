// Command style measures the style of Go code: go run ./testscripts/style DIR... prints a
// row for each directory. The figures inform; nothing is refused for them.
package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
)

// figures are what is counted in code that is neither generated nor a test; fuzz targets
// and lines of tests are in addition.
type figures struct {
	files, longFiles, lines, testLines, fuzz int
	functions                                []int // their lengths in lines
	exported, documented                     int
	variables, panics, now                   int
	exec                                     map[string]bool // packages that run programs
}

func main() {
	w := tabwriter.NewWriter(os.Stdout, 0, 8, 2, ' ', 0)
	fmt.Fprintln(w, "DIRECTORY\tFILES\t>500\tLINES\tTEST LINES\tFUZZ\tFUNCTIONS\tMEAN\tP95\t>80\tEXPORTED\tDOCUMENTED\tVARIABLES\tPANICS\tTIME.NOW\tEXEC")
	for _, dir := range os.Args[1:] {
		f, err := measure(dir)
		if err != nil {
			fmt.Fprintln(os.Stderr, "style:", err)
			os.Exit(1)
		}
		mean, most, long := f.lengths()
		fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%d\t%d\t%d\t%.1f\t%d\t%.1f%%\t%d\t%d%%\t%d\t%d\t%d\t%d\n", dir, f.files, f.longFiles, f.lines, f.testLines, f.fuzz,
			len(f.functions), mean, most, long, f.exported, f.commented(), f.variables, f.panics, f.now, len(f.exec))
	}
	if err := w.Flush(); err != nil {
		os.Exit(1)
	}
}

// measure counts the code below a directory.
func measure(dir string) (figures, error) {
	f := figures{exec: map[string]bool{}}
	err := filepath.WalkDir(dir, f.visit)
	return f, err
}

// lengths returns the mean length of functions, the length that 95 % do not exceed, in lines, and the
// percentage of those with more than 80.
func (f *figures) lengths() (mean float64, most int, long float64) {
	sum := 0
	for _, n := range f.functions {
		sum += n
		if n > 80 {
			long++
		}
	}
	sorted := slices.Sorted(slices.Values(f.functions))
	n := max(1, len(sorted))
	return float64(sum) / float64(n), append(sorted, 0)[n*95/100], 100 * long / float64(n)
}

// commented returns the percentage of exported names that have a comment.
func (f *figures) commented() int { return 100 * f.documented / max(1, f.exported) }

// visit adds a file to the figures.
func (f *figures) visit(path string, d fs.DirEntry, err error) error {
	switch {
	case err != nil:
		return err
	case d.IsDir() && slices.Contains([]string{"vendor", "testdata", ".git"}, d.Name()):
		return fs.SkipDir
	case d.IsDir() || !strings.HasSuffix(path, ".go"):
		return nil
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	text, files := string(b), token.NewFileSet()
	parsed, err := parser.ParseFile(files, path, b, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil || ast.IsGenerated(parsed) {
		return err
	}
	lines := strings.Count(text, "\n")
	if strings.HasSuffix(path, "_test.go") || strings.Contains("/"+path, "/testscripts/") || strings.Contains("/"+path, "/internal/test/") {
		f.testLines += lines
		f.fuzz += strings.Count(text, "\nfunc Fuzz")
		return nil
	}
	f.files++
	f.lines += lines
	if lines > 500 {
		f.longFiles++
	}
	f.panics += strings.Count(text, "panic(")
	f.now += strings.Count(text, "time.Now()")
	if strings.Contains(text, `"os/exec"`) || strings.Contains(text, `/execabs"`) {
		f.exec[filepath.Dir(path)] = true
	}
	for _, decl := range parsed.Decls {
		f.declaration(files, decl)
	}
	return nil
}

func (f *figures) declaration(files *token.FileSet, decl ast.Decl) {
	name := func(exported bool, docs ...*ast.CommentGroup) {
		if exported {
			f.exported++
			if slices.ContainsFunc(docs, func(c *ast.CommentGroup) bool { return c != nil }) {
				f.documented++
			}
		}
	}
	switch x := decl.(type) {
	case *ast.FuncDecl:
		f.functions = append(f.functions, files.Position(x.End()).Line-files.Position(x.Pos()).Line+1)
		name(x.Name.IsExported(), x.Doc)
	case *ast.GenDecl:
		for _, s := range x.Specs {
			switch s := s.(type) {
			case *ast.TypeSpec:
				name(s.Name.IsExported(), s.Doc, x.Doc)
			case *ast.ValueSpec:
				if x.Tok == token.VAR {
					f.variables += len(s.Names)
				}
			}
		}
	}
}
