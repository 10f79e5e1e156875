package docs

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/ponos-tools/ponos/testscripts/harness"
)

// notAWord is a phrase of testdata/words.txt, with what stands for it.
type notAWord struct {
	phrase   *regexp.Regexp
	use      string
	messages bool // it is for messages and help only
}

// words returns the phrases of testdata/words.txt.
func words(t *testing.T) []notAWord {
	t.Helper()
	list, err := os.ReadFile("testdata/words.txt")
	if err != nil {
		t.Fatal(err)
	}
	var all []notAWord
	for line := range strings.Lines(string(list)) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		not, use, found := strings.Cut(strings.TrimSpace(line), " | ")
		if !found {
			t.Fatalf("words.txt: %q does not have \" | \"", line)
		}
		phrases, messages := strings.CutPrefix(not, "in messages:")
		for phrase := range strings.SplitSeq(phrases, ",") {
			pattern := strings.ReplaceAll(regexp.QuoteMeta(strings.TrimSpace(phrase)), `\.\.\.`, `[a-z]+`)
			all = append(all, notAWord{regexp.MustCompile(`(?i)\b` + pattern + `\b`), use, messages})
		}
	}
	return all
}

// What has "is no" in it and is plain English.
var plain = regexp.MustCompile(`(?i)\b(there (is|are|was|were) no|(is|are|was|were) no (longer|more|less|other|different)|if (and|or) no)\b`)

// faults returns a line for each phrase of a text that has a better one.
func faults(list []notAWord, text string, message bool) (all []string) {
	text = plain.ReplaceAllString(text, "")
	for _, w := range list {
		if at := w.phrase.FindString(text); at != "" && (message || !w.messages) {
			all = append(all, strconv.Quote(at)+": better: "+w.use)
		}
	}
	return all
}

// TestWords holds what people read, which is pages, messages and help, to testdata/words.txt.
func TestWords(t *testing.T) {
	list := words(t)
	if len(faults(list, "the name is no number, and x is wanted", true)) != 2 || len(faults(list, "there is no file, and x is wanted", false)) != 0 {
		t.Error("phrases of words.txt are not found, or others are")
	}
	root := harness.Root()
	pages, err := filepath.Glob(filepath.Join(root, "man/*.md"))
	if err != nil || len(pages) == 0 {
		t.Fatal(pages, err)
	}
	names := []string{"README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md", "examples/README.md", "recipes/README.md"}
	for _, page := range pages {
		names = append(names, filepath.Join("man", filepath.Base(page)))
	}
	for _, name := range names {
		for i, line := range strings.Split(read(t, name), "\n") {
			for _, fault := range faults(list, line, false) {
				t.Errorf("%s:%d: %s", name, i+1, fault)
			}
		}
	}
	for _, top := range []string{"cmd", "lib"} {
		err := filepath.WalkDir(filepath.Join(root, top), func(file string, _ fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(file, ".go") || strings.HasSuffix(file, "_test.go") {
				return err
			}
			files := token.NewFileSet()
			parsed, err := parser.ParseFile(files, file, nil, parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			ast.Inspect(parsed, func(n ast.Node) bool {
				literal, ok := n.(*ast.BasicLit)
				if !ok || literal.Kind != token.STRING {
					return true
				}
				text, err := strconv.Unquote(literal.Value)
				if err != nil {
					t.Errorf("%s: %v", files.Position(literal.Pos()), err)
				}
				for _, fault := range faults(list, text, true) {
					t.Errorf("%s: %s", files.Position(literal.Pos()), fault)
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
