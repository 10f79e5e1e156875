package worker

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/ponos-tools/ponos/lib/pool/wire"
)

// A disk that is full where merged logs lie is said of the task whose output is lost.
func TestMergeOnAFullDisk(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer full.Close()
	name := filepath.Join(t.TempDir(), "out")
	if err := os.WriteFile(name, []byte("hello"), 0o600); err != nil {
		t.Fatal(err)
	}
	c := &capture{}
	for i := range c.files {
		if c.files[i], err = openFile(name, syscall.O_RDONLY, 0); err != nil {
			t.Fatal(err)
		}
	}
	defer c.close()
	l := &logs{merged: [2]*os.File{full, full}}
	d := &wire.Done{}
	l.merge(c, d)
	if !strings.HasPrefix(string(d.Lost), "log: ") || !strings.Contains(string(d.Lost), "no space left") {
		t.Errorf("lost %q; want the reason", d.Lost)
	}
	if c.full() {
		t.Error("a disk with room is called full")
	}
}
