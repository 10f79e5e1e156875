package local

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/ponos-tools/ponos/lib/task/runner"
	"github.com/ponos-tools/ponos/testscripts/needs"
)

// A job that a worker takes while the disk is full waits again, and runs once there is room. A job
// that can never run does not keep the others waiting.
func TestFullDisk(t *testing.T) {
	state := t.TempDir()
	r := &Runner{Dir: filepath.Join(state, "local"), MaxJobs: 1, Worker: []string{"true"}}
	if err := os.Mkdir(r.Dir, 0o700); err != nil {
		t.Fatal(err)
	}
	start := func(name string) (dir string) {
		t.Helper()
		dir = filepath.Join(state, name)
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		needs.Mount(t, dir, "tmpfs", 0, "nr_inodes=5")
		if err := os.WriteFile(filepath.Join(dir, "job.sh"), []byte("echo ran >>"+state+"/"+name+".ran\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := r.Start(context.Background(), runner.Submission{Dir: dir, Attempt: 1}); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	remount := func(dir, options string) {
		t.Helper()
		if err := syscall.Mount("ponos-test", dir, "tmpfs", syscall.MS_REMOUNT, options); err != nil {
			t.Fatal(err)
		}
	}
	waiting := func() int {
		t.Helper()
		list, err := os.ReadDir(filepath.Join(r.Dir, waitingDir))
		if err != nil {
			t.Fatal(err)
		}
		return len(list)
	}
	broken, full := start("broken"), start("full")
	if err := os.Remove(filepath.Join(broken, ticketFile)); err != nil {
		t.Fatal(err)
	}
	remount(full, "nr_inodes=3")
	for try := range 3 { // the first one takes the other job
		if err := Work(r.Dir, 1); err == nil || try > 0 && !errors.Is(err, syscall.ENOSPC) {
			t.Errorf("worker %d: %v", try, err)
		}
		if n := waiting(); n != 1 {
			t.Fatalf("worker %d: %d jobs wait", try, n)
		}
	}
	remount(full, "nr_inodes=100")
	if err := Work(r.Dir, 1); err != nil || waiting() != 0 {
		t.Errorf("%v; %d jobs wait", err, waiting())
	}
	if b, err := os.ReadFile(filepath.Join(state, "full.ran")); err != nil || strings.Count(string(b), "ran") != 1 {
		t.Errorf("it ran: %q, %v", b, err)
	}
}
