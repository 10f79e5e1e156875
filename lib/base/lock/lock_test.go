package lock

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ponos-tools/ponos/lib/base/command"
)

func TestLock(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	if held, err := Held(path); held || err != nil {
		t.Fatalf("missing file: %v, %v", held, err)
	}
	l, err := Try(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Try(path); !errors.Is(err, ErrHeld) {
		t.Errorf("taken twice: %v", err)
	}
	if held, err := Held(path); !held || err != nil {
		t.Errorf("Held = %v, %v", held, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
	defer cancel()
	if _, err := Wait(ctx, path); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Wait gave %v", err)
	}
	l.Close()
	if l, err = Wait(t.Context(), path); err != nil {
		t.Fatal(err)
	}
	l.Close()
	if _, err := Try(filepath.Join(path, "x")); err == nil || errors.Is(err, ErrHeld) {
		t.Errorf("got %v", err)
	}
}

// A child that got the file keeps the lock after its parent has let go.
func TestChildKeepsTheLock(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	l, err := Try(path)
	if err != nil {
		t.Fatal(err)
	}
	fd, err := unix.Dup(int(l.File().Fd())) // the same open file
	if err != nil {
		t.Fatal(err)
	}
	inherited := os.NewFile(uintptr(fd), path)
	ready := filepath.Join(t.TempDir(), "ready")
	done := make(chan error)
	go func() {
		_, err := command.System.Run(t.Context(), command.Cmd{Name: "sh", Args: []string{"-c", `echo >"$1"; sleep 0.5`, "sh", ready}, ExtraFiles: []*os.File{inherited}})
		inherited.Close()
		done <- err
	}()
	for range 500 {
		if _, err := os.Stat(ready); err == nil {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	l.Close()
	if held, err := Held(path); !held || err != nil {
		t.Errorf("Held = %v, %v; want true", held, err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if held, err := Held(path); held || err != nil {
		t.Errorf("Held = %v, %v; want false", held, err)
	}
}

func TestSharedLock(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	open := func() *os.File {
		f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		return f
	}
	a, b := open(), open()
	if err := File(a, false); err != nil {
		t.Fatal(err)
	}
	if err := File(b, true); !errors.Is(err, ErrHeld) {
		t.Errorf("beside one who has it alone: %v", err)
	}
	if err := Share(a); err != nil {
		t.Fatal(err)
	}
	if err := File(b, true); err != nil {
		t.Errorf("beside one who shares it: %v", err)
	}
	if err := File(open(), false); !errors.Is(err, ErrHeld) {
		t.Errorf("alone beside two: %v", err)
	}
	if err := errors.Join(Unlock(a), Unlock(b)); err != nil {
		t.Fatal(err)
	}
	if err := File(open(), false); err != nil {
		t.Errorf("after all have released it: %v", err)
	}
}
