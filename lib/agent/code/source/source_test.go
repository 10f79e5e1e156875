package source

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ponos-tools/ponos/lib/agent/queue/spool"
	"github.com/ponos-tools/ponos/lib/base/fault"
	"github.com/ponos-tools/ponos/lib/task"
	"github.com/ponos-tools/ponos/testscripts/needs"
)

func TestCommitOf(t *testing.T) {
	a, b, c := strings.Repeat("a", 40), strings.Repeat("b", 40), strings.Repeat("c", 40)
	for _, tt := range []struct{ revision, out, want string }{
		{"HEAD", "", ""},
		{"HEAD", a + "\tHEAD\n", a},
		{"HEAD", a + "\tHEAD\n" + b + "\trefs/remotes/origin/HEAD\n", a}, // of a clone that is served
		{"HEAD", b + "\trefs/remotes/origin/HEAD\n", ""},
		{"main", a + "\trefs/heads/main\n", a},
		{"main", a + "\trefs/heads/main\n" + b + "\trefs/heads/old/main\n" + c + "\trefs/remotes/origin/main\n", a},
		{"main", b + "\trefs/heads/old/main\n", ""},
		{"v1", a + "\trefs/tags/v1\n" + b + "\trefs/tags/v1^{}\n", b},                              // an annotated tag
		{"v1", c + "\trefs/heads/v1\n" + a + "\trefs/tags/v1\n" + b + "\trefs/tags/v1^{}\n", b},    // as git rev-parse
		{"v1", a + "\trefs/tags/v1\n" + b + "\trefs/tags/x/v1\n" + c + "\trefs/tags/x/v1^{}\n", a}, // of another tag
		{"heads/x", a + "\trefs/heads/x\n", a},
		{"refs/heads/x", a + "\trefs/heads/x\n" + b + "\trefs/heads/refs/heads/x\n", a},
		{"main", "no reference\n" + a + "\trefs/heads/main", a},
	} {
		if got := commitOf(tt.out, tt.revision); got != tt.want {
			t.Errorf("%s in\n%s: %q; want %q", tt.revision, tt.out, got, tt.want)
		}
	}
}

func TestNames(t *testing.T) {
	for status, want := range map[string]string{
		"":                                  "",
		" M a\x00?? dir/\x00":               "a|dir/",
		" D with space\x00?? new\nline\x00": "with space|new\nline",
		" M \x00x\x00":                      "", // cut off
	} {
		if got := strings.Join(changed(status), "|"); got != want {
			t.Errorf("%q: %q; want %q", status, got, want)
		}
	}
}

func TestListed(t *testing.T) {
	const file, link, submodule = "H 100644 e69de29 0\t", "H 120000 e69de29 0\t", "H 160000 e69de29 0\t"
	for _, tt := range []struct {
		name, known, fresh, want string
	}{
		{"nothing", "", "", ""},
		{"sorted, with new ones", file + "b\x00" + link + "a\x00", "c\x00", "a|b|c"},
		{"a conflict has a line for each side", "M 100644 1 1\tx\x00M 100644 2 2\tx\x00M 100644 3 3\tx\x00", "", "x"},
		{"removed", file + "gone\x00", "", "gone"},
		{"a tab in a name", file + "a\tb\x00", "", "a\tb"},
		{"sparse, and yet there", "S 100644 e69de29 0\there\x00", "", "here"},
		{"sparse", "S 100644 e69de29 0\tgone\x00", "", `error --dirty: "gone" is not in the work tree, which is sparse`},
		{"submodule", submodule + "sub\x00", "", `error --dirty: "sub" is a submodule, which is not included`},
		{"another repository", file + "a\x00", "x/\x00", `error --dirty: "x/" is another repository, which is not included`},
		{"an escape in a name", submodule + "\x1b[2J\x00", "", `error --dirty: "[2J" is a submodule, which is not included`},
	} {
		names, err := listed(tt.known, tt.fresh, func(name string) bool { return name != "gone" })
		got := strings.Join(names, "|")
		if err != nil {
			got = "error " + err.Error()
		}
		if got != tt.want {
			t.Errorf("%s: %q; want %q", tt.name, got, tt.want)
		}
	}
}

func FuzzGit(f *testing.F) {
	f.Add("\t", "0", "")
	f.Add("H 100644 e69de29 0\ta\x00S 100644 e69de29 0\tb\x00", "c\x00d/\x00", "aaaa\trefs/heads/x\nbbbb\tHEAD\n")
	f.Fuzz(func(t *testing.T, known, fresh, references string) {
		for _, name := range changed(known) {
			if name == "" {
				t.Errorf("%q: a file without a name", known)
			}
		}
		names, err := listed(known, fresh, func(string) bool { return true })
		if err == nil && (!slices.IsSorted(names) || len(slices.Compact(slices.Clone(names))) < len(names) || slices.Contains(names, "")) {
			t.Errorf("%q and %q: %q", known, fresh, names)
		}
		if commit := commitOf(references, "x"); !strings.Contains(references, commit) {
			t.Errorf("%q: %q", references, commit)
		}
	})
}

// content are the names in an archive, each with its kind, its mode and what it holds.
func content(t *testing.T, archive string) string {
	t.Helper()
	f, err := os.Open(archive)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for in := tar.NewReader(z); ; {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			return strings.Join(lines, " ")
		}
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(in)
		if err != nil {
			t.Fatal(err)
		}
		lines = append(lines, h.Name+"="+h.Linkname+string(b))
		if h.FileInfo().Mode().Perm()&0o100 == 0 && h.Typeflag != tar.TypeSymlink {
			lines[len(lines)-1] += "!x"
		}
		if !h.ModTime.Equal(time.Unix(0, 0)) && !h.ModTime.IsZero() {
			t.Errorf("%s: a time makes equal directories different: %s", h.Name, h.ModTime)
		}
	}
}

func TestPackDirectory(t *testing.T) {
	top := t.TempDir()
	s, err := spool.Make(filepath.Join(top, "spool"), time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	dir, link := filepath.Join(top, "code"), filepath.Join(top, "link")
	for name, text := range map[string]string{
		"a.py": "1", "sub/run": "2", ".git/config": "x", "sub/__pycache__/a.pyc": "x", ".venv/bin/python": "x", "keep/.env": "3", "sub/.git": "gitdir: ../x",
	} {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(os.Chmod(filepath.Join(dir, "sub/run"), 0o700), os.Symlink("/nowhere", filepath.Join(dir, "z")), os.Symlink("code", link)); err != nil {
		t.Fatal(err)
	}
	const want = "a.py=1!x keep/= keep/.env=3!x sub/= sub/run=2 z=/nowhere"
	first := ""
	for _, name := range []string{dir, dir + "/", filepath.Join(dir, "sub", ".."), link, link + "/"} {
		made, _, err := Wanted{Directory: name}.Make(t.Context(), s)
		if err != nil || made.Directory != dir {
			t.Fatal(made, err)
		}
		archive := made.Archive
		if got := content(t, archive); got != want {
			t.Errorf("%s: %s; want %s", name, got, want)
		}
		if first == "" {
			first = archive
		} else if archive != first {
			t.Errorf("%s: the same contents are %s and %s", name, first, archive)
		}
	}
	for _, name := range []string{filepath.Join(top, "nowhere"), filepath.Join(dir, "a.py"), filepath.Join(dir, "a.py", "x")} {
		if _, _, err := (Wanted{Directory: name}).Make(t.Context(), s); !fault.Is(err, fault.Usage) || !strings.HasPrefix(err.Error(), "--directory") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if left, err := os.ReadDir(s.TempDir()); err != nil || len(left) > 0 {
		t.Errorf("left over: %v, %v", left, err)
	}
}

// edits are made one after the other: each is a change, or none.
func TestChanged(t *testing.T) {
	top, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	s, err := spool.Make(filepath.Join(top, "spool"), time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	code := filepath.Join(top, "code")
	write := func(name, text string) {
		t.Helper()
		path := filepath.Join(code, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	run := func(args ...string) {
		t.Helper()
		args = append([]string{"-C", code, "-c", "user.name=x", "-c", "user.email=x"}, args...)
		if out, err := exec.Command("git", args...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	made := func(w Wanted) task.Source {
		t.Helper()
		source, _, err := w.Make(t.Context(), s)
		if err != nil {
			t.Fatal(err)
		}
		return source
	}
	check := func(what string, source task.Source, want bool) {
		t.Helper()
		if got, err := Changed(t.Context(), source); got != want || err != nil {
			t.Errorf("%s: %v, %v; want %v", what, got, err, want)
		}
	}
	write("train.py", "bug")
	write("ids", "")
	directory := made(Wanted{Directory: code})
	check("as it was", directory, false)
	write("__pycache__/x", "1")
	check("what is not packed", directory, false)
	write("results.csv", "1")
	write("ids", "1")
	check("a new file", directory, false)
	if err := os.Chmod(filepath.Join(code, "train.py"), 0o700); err != nil {
		t.Fatal(err)
	}
	check("another mode", directory, true)
	if err := os.Remove(filepath.Join(code, "train.py")); err != nil {
		t.Fatal(err)
	}
	check("removed", directory, true)
	write("train.py", "fixed")
	check("edited", directory, true)
	check("no code", task.Source{}, false)
	check("a directory that is gone", task.Source{Directory: filepath.Join(top, "gone"), Archive: directory.Archive}, false)

	needs.Programs(t, "git")
	run("init", "-q")
	run("add", "train.py")
	run("commit", "-q", "-m", "first")
	head, named := made(Wanted{Repository: code}), made(Wanted{Repository: code, Revision: "HEAD"})
	check("committed", head, false)
	write("new.py", "0")
	check("a new file beside", head, false)
	write("train.py", "worse")
	check("edited, and not committed", head, true)
	dirty := made(Wanted{Repository: code, Dirty: true})
	check("with what is not committed", dirty, false)
	write("new.py", "1")
	check("the new file edited", dirty, true)
	run("add", ".")
	run("commit", "-q", "-m", "second")
	check("another commit", head, true)
	check("a revision that was named", named, false)
}
