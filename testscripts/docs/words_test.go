package docs

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
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

// otherTexts returns the files that are neither Go nor pages and have comments or messages.
func otherTexts(t *testing.T) (files []string) {
	t.Helper()
	for _, pattern := range []string{
		"CONTRIBUTING.md", "Makefile", ".ci/run", "lib/agent/protocol.sh", "lib/packaging/*", "lib/python/*/*.py", "lib/spank/ponos.c", "lib/systemd/*",
		"examples/*/*", "recipes/*", "recipes/*/*", "recipes/*/*/*", "testscripts/demo/run", "testscripts/demo/repository/*",
	} {
		found, err := filepath.Glob(filepath.Join(harness.Root(), pattern))
		found = slices.DeleteFunc(found, func(file string) bool {
			info, err := os.Stat(file)
			return err == nil && info.IsDir()
		})
		if err != nil || len(found) == 0 {
			t.Fatalf("%s: %d files, %v", pattern, len(found), err)
		}
		files = append(files, found...)
	}
	return files
}

var (
	// What begins a line of a comment in C, Python, a shell or a unit of systemd.
	commentMark = regexp.MustCompile(`^\s*(#+|//|/?\*+)(\s|$)`)
	// What systemd calls "wants" in units and names of directories.
	unitWants = regexp.MustCompile(`^Wants=|\.wants/`)
)

// otherText returns a file as one line without the marks of comments, as a phrase may continue on the next line,
// and its lines that are not comments, each in its place. A text such as CONTRIBUTING.md has none of these, and
// its list of words is left out.
func otherText(t *testing.T, name string) (text string, code []string) {
	t.Helper()
	text = read(t, name)
	if strings.HasSuffix(name, ".md") {
		before, words, found := strings.Cut(text, "\n## Words\n")
		_, after, next := strings.Cut(words, "\n## ")
		if name == "CONTRIBUTING.md" && (!found || !next) {
			t.Fatal("CONTRIBUTING.md has no section Words")
		}
		return strings.Join(strings.Fields(before+" "+after), " "), nil
	}
	var all []string
	for line := range strings.Lines(text) {
		mark := commentMark.FindString(line)
		all = append(all, line[len(mark):])
		if mark != "" {
			line = ""
		}
		code = append(code, line)
	}
	return strings.Join(strings.Fields(strings.Join(all, " ")), " "), code
}

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
	for _, file := range otherTexts(t) {
		where := strings.TrimPrefix(file, root+"/")
		text, code := otherText(t, where)
		check(where, text, false)
		for n, line := range code {
			check(where+":"+strconv.Itoa(n+1), unitWants.ReplaceAllString(line, ""), true)
		}
	}
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
