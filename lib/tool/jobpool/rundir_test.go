package jobpool

import (
	"os"
	"path/filepath"
	"sync"
	"testing"
)

// Pools that start at the same time, in one job or with the same process id on several hosts, get directories of their own.
func TestNewDirectories(t *testing.T) {
	dir := filepath.Join(t.TempDir(), baseDir, "7")
	names := make([]string, 20)
	var all sync.WaitGroup
	for i := range names {
		all.Go(func() { names[i] = newDir(dir) })
	}
	all.Wait()
	seen := map[string]bool{}
	for _, name := range names {
		if _, err := os.Stat(name); err != nil || seen[name] {
			t.Errorf("%q, %v", names, err)
		}
		seen[name] = true
	}
	if !seen[dir] {
		t.Errorf("%q is not used", dir)
	}
}
