package agent

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/ponos-tools/ponos/lib/task"
)

func FuzzRecord(f *testing.F) {
	f.Add([]byte(`{"id":"a","attempt":1,"job":"7"}` + "\n"))
	f.Add([]byte(`{"id":"a","attempt":1}` + "\n" + `{"id":"a","att`))
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, b []byte) {
		d := Dir{dir, "a"}
		if err := os.WriteFile(d.file(recordFile), b, 0o600); err != nil {
			t.Fatal(err)
		}
		if r, err := d.Read(); err == nil && r.Task != "a" {
			t.Errorf("%q is read as %+v", b, r)
		}
	})
}

// The configuration of workers comes with a repository.
func FuzzWorkers(f *testing.F) {
	f.Add("version: 2\nworkers:\n  - slug: a\n    docker: {command: 'worker-run --x'}\n  - arkindex/*.yml\n", "slug: b\ndocker:\n  command: b\n")
	f.Add("version: 2\nworkers: [../../etc/*, '[', /etc/passwd]\n", "- a\n")
	f.Add("", "&a [*a, *a]\n")
	f.Fuzz(func(t *testing.T, old, current string) {
		source := t.TempDir()
		if err := os.Mkdir(filepath.Join(source, "arkindex"), 0o700); err != nil {
			t.Fatal(err)
		}
		for name, text := range map[string]string{".arkindex.yml": old, "arkindex/b.yml": current} {
			if err := os.WriteFile(filepath.Join(source, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		words, err := commandOf(task.Task{Worker: "b"}, source)
		if (err == nil) == (len(words) == 0) {
			t.Errorf("%q, %v", words, err)
		}
	})
}
