// Package executable writes programs that a test runs at once. A file that is open for
// writing cannot be run ("text file busy"), and a process that another goroutine has just
// started keeps all files of the test open until it has become its own program.
package executable

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// Write writes an executable file, while no process is being started.
func Write(tb testing.TB, path, text string) {
	tb.Helper()
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		tb.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
		tb.Fatal(err)
	}
	// The permissions of a file that was there, or that the umask has cut.
	if err := os.Chmod(path, 0o755); err != nil {
		tb.Fatal(err)
	}
}

// Settle waits until no process is being started: no other process has a file open that
// was closed before.
func Settle() {
	syscall.ForkLock.RLock()
	syscall.ForkLock.RUnlock() //nolint:staticcheck // An empty critical section is the wait.
}
