package docs

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ponos-tools/ponos/testscripts/harness"
)

// notOutside are parsers of what does not come from outside.
var notOutside = map[string]string{
	"vastai.parseOffer":    "a row of what parseOffers reads, which has a target",
	"config.ParseDuration": "values of the configuration: its own target has them",
	"task.ParseKind":       "the word of --kind, and of records that ParseLine reads",
	"gpu.ParseCapability":  "the project's own table",
}

// Each parser of outside text, which is a function whose name begins with Parse or
// parse and that takes text, bytes or a reader, is called by a fuzz target of its
// package.
func TestParsersHaveFuzzTargets(t *testing.T) {
	type room struct {
		name    string
		parsers []string
		fuzzed  map[string]bool
	}
	rooms := map[string]*room{}
	files := token.NewFileSet()
	err := filepath.WalkDir(filepath.Join(harness.Root(), "lib"), func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() || !strings.HasSuffix(path, ".go") {
			return err
		}
		file, err := parser.ParseFile(files, path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		dir := filepath.Dir(path)
		r := rooms[dir]
		if r == nil {
			r = &room{name: strings.TrimSuffix(file.Name.Name, "_test"), fuzzed: map[string]bool{}}
			rooms[dir] = r
		}
		test := strings.HasSuffix(path, "_test.go")
		for _, d := range file.Decls {
			f, ok := d.(*ast.FuncDecl)
			switch {
			case !ok || f.Recv != nil:
			case test && strings.HasPrefix(f.Name.Name, "Fuzz"):
				ast.Inspect(f, func(n ast.Node) bool {
					if id, ok := n.(*ast.Ident); ok {
						r.fuzzed[id.Name] = true
					}
					return true
				})
			case !test && isParser(f):
				r.parsers = append(r.parsers, f.Name.Name)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	checked := 0
	for dir, r := range rooms {
		for _, p := range r.parsers {
			checked++
			if _, ok := notOutside[r.name+"."+p]; !ok && !r.fuzzed[p] {
				t.Errorf("%s: no fuzz target calls %s", strings.TrimPrefix(dir, harness.Root()+"/"), p)
			}
		}
	}
	if checked < 30 {
		t.Errorf("only %d parsers were found", checked)
	}
}

// isParser reports whether a function reads text: an exported one of any kind of
// text, another one if it takes bytes or a reader.
func isParser(f *ast.FuncDecl) bool {
	name := f.Name.Name
	if !strings.HasPrefix(name, "Parse") && !strings.HasPrefix(name, "parse") || len(f.Type.Params.List) == 0 {
		return false
	}
	switch first := f.Type.Params.List[0].Type.(type) {
	case *ast.Ident:
		return first.Name == "string" && ast.IsExported(name)
	case *ast.ArrayType:
		element, ok := first.Elt.(*ast.Ident)
		return ok && element.Name == "byte"
	case *ast.SelectorExpr:
		return first.Sel.Name == "Reader"
	}
	return false
}
