// Package rooms holds the architecture: the list "What a room may import" of CONTRIBUTING.md,
// the rules that the linter is given, and the packages that are there agree.
package rooms

import (
	"flag"
	"fmt"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const (
	root    = "../.."
	project = "github.com/ponos-tools/ponos/"
	begin   = "        # Made of the list in CONTRIBUTING.md by \"make rooms\".\n"
	end     = "        # End of what is made.\n"
)

var update = flag.Bool("update", false, "write the rules of the linter")

// The packages of the standard library that neither read nor change anything outside of the
// program. What is pure takes its time as an argument.
var pure = []string{
	"bytes", "cmp", "container/heap", "container/list", "encoding", "encoding/binary", "encoding/hex", "encoding/json",
	"errors", "fmt", "hash", "hash/fnv", "iter", "maps", "math", "math/big", "math/bits", "math/rand/v2", "regexp", "slices",
	"sort", "strconv", "strings", "time", "unicode", "unicode/utf8", "unique",
}

// A room is a package, with what it may import besides the standard library.
type room struct {
	name    string   // "lib/queue/spool"
	rooms   []string // likewise
	modules []string // "github.com/google/uuid"
	pure    bool     // of the standard library, only what is pure
	extra   []string // and these of its packages
}

func (r *room) allows(path string) bool {
	return slices.Contains(r.rooms, path) || slices.ContainsFunc(r.modules, func(module string) bool {
		return path == module || strings.HasPrefix(path, module+"/")
	})
}

// The rules of .golangci.yml for this room, one of depguard's lists.
func (r *room) rule() string {
	allow := []string{"$gostd"}
	if r.pure {
		allow = allow[:0]
		for _, name := range slices.Concat(pure, r.extra) {
			allow = append(allow, name+"$")
		}
	}
	for _, name := range r.rooms {
		allow = append(allow, project+name+"$")
	}
	allow = append(allow, r.modules...)
	return fmt.Sprintf("        %s:\n          list-mode: strict\n          files: [\"**/%s/*.go\", \"!$test\"]\n          allow: [%s]\n",
		r.name, r.name, strings.Join(allow, ", "))
}

// The rooms in the order of CONTRIBUTING.md, each with what it may import.
func list(t *testing.T) []room {
	t.Helper()
	modules := requirements(t)
	var rooms []room
	for _, line := range block(t, "### What a room may import") {
		name, imports, found := strings.Cut(line, ":")
		if !found {
			t.Fatalf("CONTRIBUTING.md: %q is not a room, a colon, and what it may import", line)
		}
		r := room{name: name}
		ours, others, _ := strings.Cut(imports, ";")
		for _, word := range strings.Fields(ours) {
			if word == "pure" {
				r.pure = true
			} else {
				r.rooms = append(r.rooms, "lib/"+word)
			}
		}
		for _, word := range strings.Fields(others) {
			module, found := modules[word]
			if !found && r.pure {
				r.extra = append(r.extra, word)
				continue
			}
			if !found {
				t.Fatalf("CONTRIBUTING.md: %s: go.mod requires no module %q", name, word)
			}
			r.modules = append(r.modules, module)
		}
		rooms = append(rooms, r)
	}
	return rooms
}

// The lines of the first block of code after a heading of CONTRIBUTING.md.
func block(t *testing.T, heading string) []string {
	t.Helper()
	text := read(t, "CONTRIBUTING.md")
	_, after, found := strings.Cut(text, "\n"+heading+"\n")
	if !found {
		t.Fatalf("CONTRIBUTING.md has no %q", heading)
	}
	_, after, _ = strings.Cut(after, "\n```\n")
	body, _, found := strings.Cut(after, "\n```\n")
	if !found {
		t.Fatalf("CONTRIBUTING.md has no block of code after %q", heading)
	}
	return strings.Split(body, "\n")
}

// The modules that go.mod requires, by the last element of their path that is not a version.
func requirements(t *testing.T) map[string]string {
	t.Helper()
	modules := map[string]string{}
	for line := range strings.Lines(read(t, "go.mod")) {
		fields := strings.Fields(line)
		if len(fields) != 2 || !strings.Contains(fields[0], "/") || !strings.HasPrefix(fields[1], "v") {
			continue
		}
		name := path.Base(fields[0])
		if len(name) == 2 && name[0] == 'v' {
			name = path.Base(path.Dir(fields[0]))
		}
		modules[name] = fields[0]
	}
	return modules
}

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestImportsPointDown(t *testing.T) {
	rooms := list(t)
	for i, r := range rooms {
		for _, imported := range r.rooms {
			below := slices.IndexFunc(rooms, func(other room) bool { return other.name == imported })
			switch {
			case below < 0:
				t.Errorf("%s may import %s, which is not in the list", r.name, imported)
			case below <= i:
				t.Errorf("%s may import %s, which is above it", r.name, imported)
			}
		}
	}
}

func TestEachPackageIsARoom(t *testing.T) {
	var listed, there []string
	for _, r := range list(t) {
		listed = append(listed, r.name)
	}
	for _, top := range []string{"cmd", "lib"} {
		err := filepath.WalkDir(filepath.Join(root, top), func(file string, entry fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(file, ".go") || strings.HasSuffix(file, "_test.go") {
				return err
			}
			dir, err := filepath.Rel(root, filepath.Dir(file))
			if err == nil && !slices.Contains(there, dir) {
				there = append(there, dir)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	slices.Sort(listed)
	slices.Sort(there)
	if !slices.Equal(listed, there) {
		t.Errorf("\"What a room may import\" in CONTRIBUTING.md lists\n%v\nbut the packages are\n%v", listed, there)
	}
}

// The list that says what each room is for has the same order.
func TestBothListsHaveTheSameOrder(t *testing.T) {
	var described, listed []string
	for _, line := range block(t, "## Rooms") {
		name, _, _ := strings.Cut(line, " ")
		if strings.HasPrefix(name, "lib/") && holdsGo(t, name) {
			described = append(described, name)
		}
	}
	for _, r := range list(t) {
		// A room within another one is described on the line of that one.
		if strings.HasPrefix(r.name, "lib/") && strings.Count(r.name, "/") == 1 {
			listed = append(listed, r.name)
		}
	}
	if !slices.Equal(described, listed) {
		t.Errorf("CONTRIBUTING.md describes\n%v\nand says what they may import of\n%v", described, listed)
	}
}

func holdsGo(t *testing.T, dir string) bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root, dir, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	return len(files) > 0
}

func TestTheLinterHasTheseRules(t *testing.T) {
	var made strings.Builder
	for _, r := range list(t) {
		made.WriteString(r.rule())
	}
	configuration := read(t, ".golangci.yml")
	before, rest, found := strings.Cut(configuration, begin)
	is, after, ended := strings.Cut(rest, end)
	if !found || !ended {
		t.Fatal(".golangci.yml lacks the lines between which the rules are")
	}
	if is == made.String() {
		return
	}
	if !*update {
		t.Fatal(".golangci.yml does not have the rules that follow from CONTRIBUTING.md: run \"make rooms\"")
	}
	if err := os.WriteFile(filepath.Join(root, ".golangci.yml"), []byte(before+begin+made.String()+end+after), 0o644); err != nil {
		t.Fatal(err)
	}
}

// What a room imports and need not, or must not.
func TestRoomsImportWhatIsListed(t *testing.T) {
	for _, r := range list(t) {
		used := map[string]bool{}
		files, err := filepath.Glob(filepath.Join(root, r.name, "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			for _, imported := range imports(t, file) {
				used[strings.TrimPrefix(imported, project)] = true
			}
		}
		for _, name := range slices.Concat(r.rooms, r.modules, r.extra) {
			is := false
			for imported := range used {
				is = is || imported == name || !strings.HasPrefix(name, "lib/") && strings.HasPrefix(imported, name+"/")
			}
			if !is {
				t.Errorf("%s does not import %s: take it off the list in CONTRIBUTING.md", r.name, name)
			}
		}
		for imported := range used {
			if standard := !strings.Contains(strings.Split(imported, "/")[0], ".") && !strings.HasPrefix(imported, "lib/"); standard {
				if r.pure && !slices.Contains(pure, imported) && !slices.Contains(r.extra, imported) {
					t.Errorf("%s is pure, and imports %s", r.name, imported)
				}
			} else if !r.allows(imported) {
				t.Errorf("%s imports %s, which is not in its line of CONTRIBUTING.md", r.name, imported)
			}
		}
	}
}

// The paths that a Go file imports.
func imports(t *testing.T, file string) []string {
	t.Helper()
	parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ImportsOnly)
	if err != nil {
		t.Fatal(err)
	}
	var paths []string
	for _, spec := range parsed.Imports {
		imported, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			t.Fatal(err)
		}
		paths = append(paths, imported)
	}
	return paths
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
