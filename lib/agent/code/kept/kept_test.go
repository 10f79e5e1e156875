package kept

import (
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// write makes files, and links where the content begins with "->".
func write(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, content := range files {
		name = filepath.Join(dir, name)
		err := os.MkdirAll(filepath.Dir(name), 0o700)
		if to, isLink := strings.CutPrefix(content, "->"); err == nil && isLink {
			err = os.Symlink(to, name)
		} else if err == nil {
			err = os.WriteFile(name, []byte(content), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// list is what a directory has.
func list(t *testing.T, dir string) (names []string) {
	t.Helper()
	if err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			name, _ := filepath.Rel(dir, path)
			names = append(names, name)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return names
}

func TestWhatIsKept(t *testing.T) {
	code := map[string]string{"train.py": "one", "lib/a.py": "a", "data": "->/data", "grown": "12"}
	work := map[string]string{
		"train.py": "two", "lib/a.py": "a", "data": "->/data", "grown": "123", "model.pt": "12345678", "results/b/a.csv": "x",
		"latest": "->model.pt", "lib/__pycache__/a.pyc": "c", ".git/HEAD": "h",
	}
	for _, c := range []struct {
		about    string
		patterns []string
		limit    int64
		want     []string
		left     []string
	}{
		{"all that is new or changed", nil, 1 << 20, []string{"grown", "latest", "model.pt", "results/b/a.csv", "train.py"}, nil},
		{"the smallest, as far as there is room", nil, 7, []string{"grown", "results/b/a.csv", "train.py"}, []string{"latest", "model.pt"}},
		{"what patterns select", []string{"*.pt", "results"}, 1 << 20, []string{"model.pt", "results/b/a.csv"}, nil},
		{"a path as a pattern", []string{"./results/*"}, 1 << 20, []string{"results/b/a.csv"}, nil},
		{"nothing", []string{None}, 1 << 20, nil, nil},
		{"no room", nil, 0, nil, nil},
	} {
		dir := t.TempDir()
		write(t, filepath.Join(dir, "code"), code)
		write(t, filepath.Join(dir, "work"), work)
		to := filepath.Join(dir, "kept", "files")
		p, err := New(filepath.Join(dir, "work"), filepath.Join(dir, "code"), c.patterns, c.limit)
		if err != nil || !reflect.DeepEqual(p.Files, c.want) || !reflect.DeepEqual(p.Left, c.left) {
			t.Errorf("%s: %v, left %v, %v; want %v and %v", c.about, p.Files, p.Left, err, c.want, c.left)
		}
		if err := p.Move(to); err != nil {
			t.Errorf("%s: %v", c.about, err)
		}
		if c.want == nil {
			if _, err := os.Lstat(to); err == nil {
				t.Errorf("%s: there is a directory", c.about)
			}
		} else if got := list(t, to); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: kept %v, want %v", c.about, got, c.want)
		}
	}
}

// A task that is run again does not replace what it has written before.
func TestKeptTwice(t *testing.T) {
	dir := t.TempDir()
	for _, content := range []string{"first", "second"} {
		work := filepath.Join(dir, "work")
		write(t, work, map[string]string{"model.pt": content})
		p, err := New(work, "", nil, 100)
		if err == nil {
			err = p.Move(filepath.Join(dir, "files"))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for name, want := range map[string]string{"files/model.pt": "second", "files.1/model.pt": "first"} {
		if got, err := os.ReadFile(filepath.Join(dir, name)); string(got) != want || err != nil {
			t.Errorf("%s: %q, %v; want %q", name, got, err, want)
		}
	}
}

// What was interrupted is done again, with the same result.
func TestInterruptedMove(t *testing.T) {
	dir := t.TempDir()
	work, code := filepath.Join(dir, "work"), filepath.Join(dir, "code")
	write(t, code, map[string]string{"a": "a", "b": "b"})
	write(t, work, map[string]string{"a": "a", "b": "b", "new": "x"})
	p, err := New(work, code, nil, 100)
	if err == nil {
		err = p.prune(".")
	}
	if err == nil {
		p, err = New(work, code, nil, 100)
	}
	if err == nil {
		err = p.Move(filepath.Join(dir, "files"))
	}
	if got := list(t, filepath.Join(dir, "files")); err != nil || !reflect.DeepEqual(got, []string{"new"}) {
		t.Errorf("%v, %v", got, err)
	}
}

// Another file system gets a copy.
func TestCopy(t *testing.T) {
	dir := t.TempDir()
	work, to := filepath.Join(dir, "work"), filepath.Join(dir, "files")
	files := map[string]string{"latest": "->model.pt", "model.pt": "x"}
	write(t, work, files)
	write(t, to+".new", map[string]string{"left": "by a killed tool"})
	p, err := New(work, "", nil, 100)
	if err == nil {
		err = p.copy(to)
	}
	if got := list(t, to); err != nil || !reflect.DeepEqual(got, []string{"latest", "model.pt"}) {
		t.Errorf("%v, %v", got, err)
	}
	if _, err := os.Lstat(work); err == nil {
		t.Error("the original is there")
	}
}

func TestOddFilesAreNamed(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "work"), map[string]string{"a.pt": "1", "run/log": "2"})
	for _, name := range []string{"queue", "run/other.pt"} {
		if err := syscall.Mkfifo(filepath.Join(dir, "work", name), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	l, err := net.Listen("unix", filepath.Join(dir, "work", "socket"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for _, c := range []struct{ patterns, odd []string }{
		{nil, []string{"queue", "run/other.pt", "socket"}}, {[]string{"*.pt"}, []string{"run/other.pt"}}, {[]string{None}, nil},
	} {
		p, err := New(filepath.Join(dir, "work"), "", c.patterns, 1<<20)
		if err != nil || !slices.Equal(p.Odd, c.odd) {
			t.Errorf("%q: %q, %v; want %q", c.patterns, p.Odd, err, c.odd)
		}
	}
}
