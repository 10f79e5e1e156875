package docs

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/ponos-tools/ponos/testscripts/harness"
)

// notAWord is a phrase of the list "Words" in CONTRIBUTING.md, with what stands for it.
type notAWord struct {
	phrase   *regexp.Regexp
	use      string
	messages bool // it is for messages and help only
}

// words returns the table of CONTRIBUTING.md. An alternative is separated by a comma, and
// "..." stands for a word.
func words(t *testing.T) []notAWord {
	t.Helper()
	_, after, found := strings.Cut(read(t, "CONTRIBUTING.md"), "\n| Not | But |\n|---|---|\n")
	if !found {
		t.Fatal("CONTRIBUTING.md has no table of words")
	}
	table, _, _ := strings.Cut(after, "\n\n")
	var all []notAWord
	for row := range strings.Lines(table) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(row), "|"), "|")
		if len(cells) != 2 {
			t.Fatalf("CONTRIBUTING.md: %q is not a row of two cells", row)
		}
		phrases, messages := strings.CutPrefix(strings.TrimSpace(cells[0]), "in messages:")
		for phrase := range strings.SplitSeq(phrases, ",") {
			pattern := strings.ReplaceAll(regexp.QuoteMeta(strings.TrimSpace(phrase)), `\.\.\.`, `[a-z]+`)
			all = append(all, notAWord{regexp.MustCompile(`(?i)\b` + pattern + `\b`), strings.TrimSpace(cells[1]), messages})
		}
	}
	if len(all) < 10 {
		t.Fatalf("only %d phrases are in the table", len(all))
	}
	return all
}

// What has "is no" in it and is plain English.
var plain = regexp.MustCompile(`(?i)\b(there (is|are|was|were) no|(is|are|was|were) no (longer|more|less|other|different)|if (and|or) no)\b`)

// Comments and the texts that users read do not have the phrases that CONTRIBUTING.md replaces.
func TestWords(t *testing.T) {
	list := words(t)
	check := func(where, text string, message bool) {
		text = plain.ReplaceAllString(text, "")
		for _, w := range list {
			if w.messages && !message {
				continue
			}
			if at := w.phrase.FindString(text); at != "" {
				t.Errorf("%s: %q: better: %s", where, at, w.use)
			}
		}
	}
	root := harness.Root()
	pages, err := filepath.Glob(filepath.Join(root, "man/*.md"))
	if err != nil || len(pages) == 0 {
		t.Fatal(pages, err)
	}
	names := []string{"README.md", "SECURITY.md", "CHANGELOG.md", "examples/README.md", "recipes/README.md"}
	for _, page := range pages {
		names = append(names, filepath.Join("man", filepath.Base(page)))
	}
	for _, name := range names {
		line := 0
		for text := range strings.Lines(read(t, name)) {
			line++
			check(name+":"+strconv.Itoa(line), text, false)
		}
	}
	for _, top := range []string{"cmd", "lib", "man", "testscripts"} {
		err := filepath.WalkDir(filepath.Join(root, top), func(file string, _ fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(file, ".go") || strings.HasSuffix(file, "_test.go") {
				return err
			}
			files := token.NewFileSet()
			at := func(n ast.Node) string {
				return strings.TrimPrefix(files.Position(n.Pos()).String(), root+"/")
			}
			parsed, err := parser.ParseFile(files, file, nil, parser.SkipObjectResolution|parser.ParseComments)
			if err != nil {
				return err
			}
			for _, comment := range parsed.Comments {
				check(at(comment), strings.Join(strings.Fields(comment.Text()), " "), false)
			}
			if top == "man" || top == "testscripts" {
				return nil
			}
			ast.Inspect(parsed, func(n ast.Node) bool {
				if literal, ok := n.(*ast.BasicLit); ok && literal.Kind == token.STRING {
					if text, err := strconv.Unquote(literal.Value); err == nil {
						check(at(literal), text, true)
					}
				}
				return true
			})
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}
