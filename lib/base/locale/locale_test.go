package locale

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestUTF8(t *testing.T) {
	for _, c := range []struct {
		all, ctype, lang, term string
		want                   bool
	}{
		{lang: "en_US.UTF-8", want: true},
		{lang: "de_DE.utf8@euro", want: true},
		{lang: "C.UTF-8", term: "xterm-256color", want: true},
		{ctype: "UTF-8", want: true},
		{all: "C", lang: "en_US.UTF-8"},
		{all: "POSIX", ctype: "en_US.UTF-8"},
		{ctype: "C", lang: "en_US.UTF-8"},
		{all: "C.UTF-8", ctype: "C", lang: "C", want: true},
		{lang: "de_DE@euro"},
		{lang: "de_DE.ISO-8859-1"},
		{}, // cron
		{lang: "en_US.UTF-8", term: "dumb"},
	} {
		t.Setenv("LC_ALL", c.all)
		t.Setenv("LC_CTYPE", c.ctype)
		t.Setenv("LANG", c.lang)
		t.Setenv("TERM", c.term)
		if UTF8() != c.want {
			t.Errorf("%+v: %v", c, !c.want)
		}
	}
}

// Literals of the tools that are more than ASCII go through Symbols, which has a character for each.
func TestAllSymbols(t *testing.T) {
	t.Setenv("LC_ALL", "C")
	// This is never drawn on a terminal: a spelling of units that is accepted.
	elsewhere := []string{"lib/base/unit/duration.go", "lib/base/locale/locale.go"}
	root := filepath.Join("..", "..", "..")
	drawn := 0
	for _, dir := range []string{"lib", "cmd"} {
		err := filepath.WalkDir(filepath.Join(root, dir), func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			for _, name := range elsewhere {
				if path == filepath.Join(root, name) {
					return nil
				}
			}
			set := token.NewFileSet()
			file, err := parser.ParseFile(set, path, nil, parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			var inside []ast.Node
			ast.Inspect(file, func(n ast.Node) bool {
				if call, ok := n.(*ast.CallExpr); ok {
					if f, ok := call.Fun.(*ast.SelectorExpr); ok && f.Sel.Name == "Symbols" {
						inside = append(inside, n)
					}
				}
				literal, ok := n.(*ast.BasicLit)
				if !ok || literal.Kind != token.STRING && literal.Kind != token.CHAR || isASCII(literal.Value) {
					return true
				}
				for _, call := range inside {
					if call.Pos() <= n.Pos() && n.End() <= call.End() {
						drawn++
						text, err := strconv.Unquote(literal.Value)
						if plain := Symbols(text); err != nil || !isASCII(plain) || len(plain) != utf8.RuneCountInString(text) {
							t.Errorf("%s: %s becomes %q", set.Position(n.Pos()), literal.Value, plain)
						}
						return true
					}
				}
				t.Errorf("%s: %s is printed in an ASCII locale too: use locale.Symbols, or ASCII", set.Position(n.Pos()), literal.Value)
				return true
			})
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if drawn < 10 {
		t.Errorf("found %d literals in calls of Symbols", drawn)
	}
}

// What one drawing tells apart by symbols, it tells apart in ASCII.
func TestDistinct(t *testing.T) {
	t.Setenv("LC_ALL", "C")
	for _, signs := range []string{"·▁▂▃▄▅▆▇█", "·▒▓█PRx", "█░│"} {
		seen := map[rune]bool{}
		for _, r := range Symbols(signs) {
			if seen[r] {
				t.Errorf("%s becomes %s", signs, Symbols(signs))
			}
			seen[r] = true
		}
	}
}

func isASCII(s string) bool {
	return strings.IndexFunc(s, func(r rune) bool { return r >= utf8.RuneSelf }) < 0
}
