package docs

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/ponos-tools/ponos/lib/base/app"
	"github.com/ponos-tools/ponos/testscripts/harness"
)

func TestMain(m *testing.M) {
	entries, err := os.ReadDir(filepath.Join(harness.Root(), "cmd"))
	if err != nil {
		panic(err)
	}
	for _, e := range entries {
		tools = append(tools, e.Name())
	}
	harness.Main(m, nil, tools...)
}

// tools are all programs of the project.
var tools []string

func describe(t *testing.T, tool string) app.Description {
	t.Helper()
	out, err := exec.Command(filepath.Join(harness.Bin, tool), "--describe").Output()
	var d app.Description
	if err == nil {
		err = json.Unmarshal(out, &d)
	}
	if err != nil {
		t.Fatalf("%s --describe: %v", tool, err)
	}
	return d
}

func read(t *testing.T, path ...string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(append([]string{harness.Root()}, path...)...))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// dashed is the name of a flag as it is typed.
func dashed(name string) string {
	if len(name) == 1 {
		return "-" + name
	}
	return "--" + name
}

// tag is a line of a page that is explained below: "**-c**, **--config** *FILE*".
type tag struct {
	section string
	flags   []string
	text    string
}

var flagName = regexp.MustCompile(`\*\*(--?[A-Za-z0-9][A-Za-z0-9-]*)\*\*`)

// tags are the flags that a page explains.
func tags(page string) []tag {
	var all []tag
	section, inCode := "", false
	lines := strings.Split(page, "\n")
	for i, line := range lines {
		if strings.HasPrefix(line, "```") {
			inCode = !inCode
		}
		if name, ok := strings.CutPrefix(line, "# "); ok && !inCode {
			section = name
		}
		if !inCode && strings.HasPrefix(line, "**-") && i+1 < len(lines) && strings.HasPrefix(lines[i+1], ":") {
			found := tag{section: section, text: line}
			for _, m := range flagName.FindAllStringSubmatch(line, -1) {
				found.flags = append(found.flags, m[1])
			}
			all = append(all, found)
		}
	}
	return all
}

// walk visits a tool and its commands.
func walk(d app.Description, path string, visit func(path string, d app.Description)) {
	visit(path, d)
	for _, c := range d.Commands {
		walk(c, path+" "+c.Name, visit)
	}
}

func TestEveryFlagIsInItsManPage(t *testing.T) {
	for _, tool := range tools {
		page := read(t, "man", tool+".1.md")
		explained := tags(page)
		exists := map[string]bool{}
		walk(describe(t, tool), tool, func(path string, d app.Description) {
			for _, f := range d.Flags {
				var names []string
				for _, n := range f.Names {
					names = append(names, dashed(n))
					exists[dashed(n)] = true
				}
				i := slices.IndexFunc(explained, func(g tag) bool {
					return containsAll(g.flags, names) && (path != tool || g.section == "OPTIONS") &&
						(f.Value == "" || strings.Contains(flagName.ReplaceAllString(g.text, ""), "*"))
				})
				if i < 0 {
					t.Errorf("man/%s.1.md does not explain %s %s of %q as an option", tool, strings.Join(names, ", "), f.Value, path)
				}
			}
		})
		for _, g := range explained {
			for _, name := range g.flags {
				if !exists[name] {
					t.Errorf("man/%s.1.md explains %s, which is not there", tool, name)
				}
			}
		}
		for _, section := range []string{"NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS", "EXIT STATUS", "ENVIRONMENT", "FILES", "EXAMPLES", "SEE ALSO"} {
			if !strings.Contains(page, "\n# "+section+"\n") {
				t.Errorf("man/%s.1.md has no section %s", tool, section)
			}
		}
		// The program of all tools has the variables of the tool that it runs.
		if _, variables, _ := strings.Cut(page, "\n# ENVIRONMENT\n"); tool != "ponos" && !strings.Contains(variables, "LC_ALL") {
			t.Errorf("man/%s.1.md does not say which variables choose between symbols and ASCII", tool)
		}
	}
}

func containsAll(list, wanted []string) bool {
	return !slices.ContainsFunc(wanted, func(w string) bool { return !slices.Contains(list, w) })
}

func TestEveryFlagIsCompleted(t *testing.T) {
	for _, tool := range tools {
		bash, zsh, fish := read(t, "completions/bash", tool), read(t, "completions/zsh", "_"+tool), read(t, "completions/fish", tool+".fish")
		walk(describe(t, tool), tool, func(path string, d app.Description) {
			for _, f := range d.Flags {
				for _, n := range f.Names {
					inFish := " -l " + n + " "
					if len(n) == 1 {
						inFish = " -s " + n + " "
					}
					name := regexp.QuoteMeta(dashed(n))
					if !regexp.MustCompile("[ ']"+name+"[ ']").MatchString(bash) || !strings.Contains(fish, inFish) ||
						!regexp.MustCompile(`[{,*]`+name+`[+=]?[,}\[]`).MatchString(zsh) {
						t.Errorf("%s of %q is not completed by all shells", dashed(n), path)
					}
				}
			}
		})
	}
}

// TestBashCompletes asks the completion for the words after a command line.
func TestBashCompletes(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"config.yaml", "folder/x"} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for line, want := range map[string]string{
		"ponos-submit --re":          "--repository --revision --retry",
		"ponos-submit --config con":  "config.yaml",
		"ponos-submit --config = co": "config.yaml",
		"ponos-submit -d fo":         "folder",
		"ponos-submit -- --con":      "",
		"ponos-stop -":               "--config -c --jobs -j --verbose -v --version -V --help -h",
		"ponos-poll --every x":       "",
	} {
		tool, _, _ := strings.Cut(line, " ")
		script := `. "$1"; COMP_WORDS=($2); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _` + strings.ReplaceAll(tool, "-", "_") + `; echo "${COMPREPLY[*]}"`
		cmd := exec.Command("bash", "-c", script, "bash", filepath.Join(harness.Root(), "completions/bash", tool), line)
		cmd.Dir = dir
		out, err := cmd.CombinedOutput()
		if got := strings.TrimSpace(string(out)); err != nil || got != want {
			t.Errorf("%q: %q, %v; want %q", line, got, err, want)
		}
	}
}

func TestOtherShellsReadTheirCompletions(t *testing.T) {
	harness.Programs(t, "zsh", "fish")
	for shell, pattern := range map[string]string{"bash": "bash/*", "zsh": "zsh/_*", "fish": "fish/*.fish"} {
		paths, err := filepath.Glob(filepath.Join(harness.Root(), "completions", pattern))
		if err != nil || len(paths) != len(tools) {
			t.Errorf("%s: %d completions of %d tools, %v", shell, len(paths), len(tools), err)
		}
		for _, path := range paths {
			if out, err := exec.Command(shell, "-n", path).CombinedOutput(); err != nil || len(out) > 0 {
				t.Errorf("%s -n %s: %v\n%s", shell, path, err, out)
			}
		}
	}
}

func TestCommittedFilesAreWhatTheGeneratorsMake(t *testing.T) {
	sources, err := filepath.Glob(filepath.Join(harness.Root(), "man/*.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, g := range []struct {
		pkg, committed, with string
		args                 []string
	}{
		{"./man/generate", "man", "make man", sources},
		{"./completions/generate", "completions", "make completions", append([]string{"-bin", harness.Bin}, tools...)},
	} {
		dir := t.TempDir()
		cmd := exec.Command("go", append([]string{"run", g.pkg, "-out", dir}, g.args...)...)
		cmd.Dir = harness.Root()
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", g.pkg, err, out)
		}
		made, committed := files(t, dir), files(t, filepath.Join(harness.Root(), g.committed))
		for name, text := range made {
			if committed[name] != text {
				t.Errorf("%s/%s is not what %q makes", g.committed, name, g.with)
			}
		}
		for name := range committed {
			if _, ok := made[name]; !ok && !slices.Contains([]string{".md", ".go", ".svg"}, filepath.Ext(name)) {
				t.Errorf("%s/%s belongs to no tool or source", g.committed, name)
			}
		}
	}
}

// files are the contents of the files below a directory.
func files(t *testing.T, dir string) map[string]string {
	t.Helper()
	found := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, e os.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		b, err := os.ReadFile(path)
		name, relErr := filepath.Rel(dir, path)
		if relErr != nil {
			return relErr
		}
		found[name] = string(b)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func TestManPagesAreClean(t *testing.T) {
	pages, err := filepath.Glob(filepath.Join(harness.Root(), "man/*.[1-8]"))
	if err != nil {
		t.Fatal(err)
	}
	harness.Programs(t, "groff=groff-base", "mandoc")
	for _, check := range [][]string{{"groff", "-ww", "-man", "-Tutf8", "-z"}, {"mandoc", "-Tlint"}} {
		for _, page := range pages {
			out, _ := exec.Command(check[0], append(check[1:], page)...).CombinedOutput()
			for line := range strings.Lines(string(out)) {
				t.Errorf("%s: %s", check[0], line)
			}
		}
	}
}

// help is what a tool or command prints when it is asked for help.
func help(t *testing.T, path, flag string) []string {
	t.Helper()
	words := append(strings.Fields(path), flag)
	out, err := exec.Command(filepath.Join(harness.Bin, words[0]), words[1:]...).Output()
	if err != nil {
		t.Errorf("%s %s: %v", path, flag, err)
	}
	return strings.Split(strings.TrimSuffix(string(out), "\n"), "\n")
}

func TestHelpFitsATerminal(t *testing.T) {
	commands := 0
	for _, tool := range tools {
		walk(describe(t, tool), tool, func(path string, d app.Description) {
			commands++
			short, all := help(t, path, "--help"), help(t, path, "--help-all")
			if len(short) > 24 || len(short) < 3 {
				t.Errorf("%s --help has %d lines, more than 24 or fewer than 3", path, len(short))
			}
			for _, line := range append(short, all...) {
				if len([]rune(line)) > 80 {
					t.Errorf("the help of %s is wider than 80 columns: %s", path, line)
				}
			}
			text := strings.Join(all, "\n") + "\n"
			for _, f := range d.Flags {
				for _, n := range f.Names {
					if n != "help-all" && !regexp.MustCompile(`(?m)^ .*`+regexp.QuoteMeta(dashed(n))+`[ ,\n]`).MatchString(text) {
						t.Errorf("%s --help-all does not know %s", path, dashed(n))
					}
				}
			}
			tells := strings.Contains(strings.Join(short, "\n"), "more: "+path+" --help-all, man "+tool)
			if shortened := len(all) > 24; tells != shortened {
				t.Errorf("%s --help names --help-all: %v; it leaves something out: %v", path, tells, shortened)
			}
			if !tells && !slices.Equal(short, all) {
				t.Errorf("%s --help leaves something out and does not tell", path)
			}
		})
	}
	if commands < 2*len(tools) {
		t.Errorf("only %d commands of %d tools", commands, len(tools))
	}
}

// TestWordsAreExplained holds the values that shells complete together with help
// and page.
func TestWordsAreExplained(t *testing.T) {
	found := 0
	for _, tool := range tools {
		page := read(t, "man", tool+".1.md")
		walk(describe(t, tool), tool, func(path string, d app.Description) {
			for _, f := range d.Flags {
				for _, w := range f.Words {
					found++
					if !regexp.MustCompile(`\b` + regexp.QuoteMeta(w) + `\b`).MatchString(page) {
						t.Errorf("man/%s.1.md does not name %q, a value of %s", tool, w, dashed(f.Names[0]))
					}
				}
				if len(f.Words) > 0 && !f.List && slices.Contains([]string{"jobpool", "lfind", "fairshare"}, tool) {
					words := append(strings.Fields(path), dashed(f.Names[0]), "no-such-word")
					out, err := exec.Command(filepath.Join(harness.Bin, words[0]), words[1:]...).CombinedOutput()
					var exit *exec.ExitError
					if !errors.As(err, &exit) || exit.ExitCode() != 2 || !strings.Contains(string(out), `invalid value "no-such-word": expected one of `+strings.Join(f.Words, ", ")) {
						t.Errorf("%s: %v\n%s", strings.Join(words, " "), err, out)
					}
				}
			}
		})
	}
	if found == 0 {
		t.Error("no flag tells its values")
	}
}
