package worker

import (
	"fmt"
	"hash/fnv"
	"os"
	"path/filepath"
	"strings"

	"github.com/ponos-tools/ponos/lib/base/place"
	"github.com/ponos-tools/ponos/lib/executor/proc"
)

// makeTemp creates the directory of a worker, and removes those of workers of this machine that were
// killed with their supervisor. The name has the process to which it belongs.
func makeTemp() (string, error) {
	kernel := fnv.New32a()
	kernel.Write([]byte(proc.Kernel()))
	prefix := fmt.Sprintf("jobpool-%08x-", kernel.Sum32())
	old, _ := filepath.Glob(filepath.Join(os.TempDir(), prefix+"*"))
	for _, dir := range old {
		var pid int
		var start uint64
		name := strings.TrimPrefix(filepath.Base(dir), prefix)
		if n, _ := fmt.Sscanf(name, "%d.%d-", &pid, &start); n != 2 {
			continue
		}
		if at, alive := proc.Started(pid); alive && at == start {
			continue
		}
		if st, err := os.Lstat(dir); err == nil && st.IsDir() && place.Mine(st) {
			os.RemoveAll(dir)
		}
	}
	start, _ := proc.Started(os.Getpid())
	return os.MkdirTemp("", fmt.Sprintf("%s%d.%d-", prefix, os.Getpid(), start))
}
