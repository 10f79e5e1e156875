package sbatch

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// TestNamesElsewhere holds the names of options in the rest of the project against the table: a name that is no word of its own is a
// constant of this package, and others that a package sets or asks for are in the table.
func TestNamesElsewhere(t *testing.T) {
	constants := []string{CPUsPerGPU, CPUsPerTask, GPUsPerNode, JobName, MailType, MailUser, MemPerCPU, MemPerGPU, NoRequeue, OpenMode, TasksPerNode}
	methods := []string{"Get", "Has", "Says", "Set", "SetFlag", "SetInt", "SetMemory", "SetTime", "Value"}
	variables := []string{"all", "base", "cpu", "daemon", "found", "given", "gpu", "o", "options"} // that have sbatch.Options
	// A key of ponos.yaml and options of fairshare, which stand among those of sbatch.
	ours := []string{"find", "budget", "help-all", "json", "replay", "score"}
	asked := 0
	files := token.NewFileSet()
	visit := func(path string) {
		file, err := parser.ParseFile(files, path, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		imports := slices.ContainsFunc(file.Imports, func(i *ast.ImportSpec) bool { return strings.HasSuffix(i.Path.Value, `/lib/slurm/sbatch"`) })
		if !imports {
			return
		}
		text := func(e ast.Expr) string {
			l, ok := e.(*ast.BasicLit)
			if !ok || l.Kind != token.STRING {
				return ""
			}
			s, _ := strconv.Unquote(l.Value)
			return s
		}
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.BasicLit:
				if slices.Contains(constants, text(n)) || strings.Contains(text(n), CPUsPerTask) {
					t.Errorf("%s: %s: use the constant of lib/slurm/sbatch", files.Position(n.Pos()), n.Value)
				}
			case *ast.CallExpr:
				called, ok := n.Fun.(*ast.SelectorExpr)
				if !ok || len(n.Args) == 0 || !slices.Contains(methods, called.Sel.Name) {
					return true
				}
				of, ok := called.X.(*ast.Ident)
				if !ok || !slices.Contains(variables, of.Name) {
					return true
				}
				if name := text(n.Args[0]); name != "" && !slices.Contains(ours, name) {
					if asked++; byName[name] == nil {
						t.Errorf("%s: sbatch has no option %q", files.Position(n.Pos()), name)
					}
				}
			}
			return true
		})
	}
	for _, root := range []string{"../../../lib", "../../../cmd"} {
		if err := filepath.WalkDir(root, func(path string, _ fs.DirEntry, err error) error {
			if err == nil && strings.HasSuffix(path, ".go") && !strings.HasSuffix(path, "_test.go") && !strings.Contains(path, "slurm/sbatch/") {
				visit(path)
			}
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
	if asked < 50 {
		t.Errorf("only %d names were looked at", asked)
	}
}
