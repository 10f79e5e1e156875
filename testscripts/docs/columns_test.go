package docs

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/ponos-tools/ponos/testscripts/harness"
)

// pageOf is the man page of the tool in a directory of lib/tool.
var pageOf = map[string]string{
	"cancel": "ponos-cancel", "list": "ponos-list", "logs": "ponos-log", "offers": "vast-offers", "poll": "ponos-poll",
	"reap": "vast-reap", "retry": "ponos-retry", "run": "ponos-run", "setup": "ponos-setup", "start": "ponos-start", "stop": "ponos-stop",
	"submit": "ponos-submit", "task": "ponos-task", "worker": "ponos-worker",
}

// columns are the titles of the tables of a tool, with their positions.
func columns(t *testing.T, dir string) map[string]string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	titles := map[string]string{}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		set := token.NewFileSet()
		parsed, err := parser.ParseFile(set, file, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(parsed, func(n ast.Node) bool {
			field, ok := n.(*ast.KeyValueExpr)
			if !ok {
				return true
			}
			name, ok := field.Key.(*ast.Ident)
			if !ok || name.Name != "Header" && name.Name != "title" {
				return true
			}
			values := []ast.Expr{field.Value}
			if list, ok := field.Value.(*ast.CompositeLit); ok {
				values = list.Elts
			}
			for _, v := range values {
				if literal, ok := v.(*ast.BasicLit); ok {
					if title, err := strconv.Unquote(literal.Value); err == nil && strings.TrimSpace(title) != "" {
						titles[strings.ToUpper(strings.TrimSpace(title))] = set.Position(literal.Pos()).String()
					}
				}
			}
			return true
		})
	}
	return titles
}

// A reader of a table finds in the man page what each column means.
func TestColumnsAreExplained(t *testing.T) {
	tools, err := filepath.Glob(filepath.Join(harness.Root(), "lib/tool/*/main.go"))
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, tool := range tools {
		dir := filepath.Dir(tool)
		page := filepath.Base(dir)
		if name, ok := pageOf[page]; ok {
			page = name
		}
		text := strings.ToUpper(read(t, "man", page+".1.md"))
		// Lower-case words of the prose do not count: a column is in capitals there.
		capitals := read(t, "man", page+".1.md")
		for title, at := range columns(t, dir) {
			found++
			first := regexp.MustCompile(`(^|[^A-Z])` + regexp.QuoteMeta(strings.Fields(title)[0]) + `([^A-Z]|$)`)
			if !strings.Contains(text, title) || !first.MatchString(capitals) {
				t.Errorf("%s: man/%s.1.md does not explain the column %s", at, page, title)
			}
		}
	}
	if found < 60 {
		t.Errorf("found %d columns", found)
	}
}

// The page of a file says where the file is.
func TestPagesOfFiles(t *testing.T) {
	pages, err := filepath.Glob(filepath.Join(harness.Root(), "man/*.[58].md"))
	if err != nil || len(pages) < 3 {
		t.Fatal(pages, err)
	}
	for _, page := range pages {
		if name := filepath.Base(page); !strings.Contains(read(t, "man", name), "\n# FILES\n") {
			t.Errorf("man/%s has no section FILES", name)
		}
	}
}

// Each page of a tool answers what a reader asks before the first call.
func TestNotes(t *testing.T) {
	for _, tool := range tools {
		if tool == "ponos" { // it is the other tools
			continue
		}
		_, notes, _ := strings.Cut(read(t, "man", tool+".1.md"), "\n# NOTES\n")
		notes, _, _ = strings.Cut(notes, "\n# ")
		for _, question := range []string{"Requirements", "Changes", "Ctrl-C"} {
			if !strings.Contains(notes, "\n**"+question+"**\n:") {
				t.Errorf("man/%s.1.md has no %q below NOTES", tool, question)
			}
		}
		if !strings.Contains(notes, " root") && !strings.Contains(notes, "access to the spool") {
			t.Errorf("man/%s.1.md does not say whether the tool needs root", tool)
		}
	}
}
