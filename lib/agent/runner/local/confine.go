package local

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/ponos-tools/ponos/lib/base/fault"
	"github.com/ponos-tools/ponos/lib/base/unit"
	"github.com/ponos-tools/ponos/lib/executor"
	"github.com/ponos-tools/ponos/lib/executor/cgroup"
)

const (
	oomFile   = "oom."    // followed by the job
	groupFile = "cgroup." // followed by the job; it holds the path of its group
)

// An excess records how much a job used when it was killed for exceeding a limit.
type excess struct {
	Used  int64 `json:"used"`  // bytes; 0: the kernel enforced the limit
	Limit int64 `json:"limit"` // bytes
}

func (e excess) String() string {
	if e.Used == 0 {
		return fmt.Sprintf("out of memory: it needs more than the requested %s", unit.ShortSize(e.Limit))
	}
	return fmt.Sprintf("out of memory: it used %s of the requested %s", unit.ShortSize(e.Used&^(1<<20-1)), unit.ShortSize(e.Limit))
}

// newLimiter limits the memory of a job. The path of its cgroup is recorded, so that other processes can ask
// the kernel how the job ended.
func newLimiter(dir, job string) *executor.Limiter {
	m := executor.NewLimiter()
	m.Note = func(g cgroup.Group) error {
		b, err := json.Marshal(g)
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(dir, groupFile+job), b, 0o600)
	}
	return m
}

// groupOf returns the group of a job, which may be gone.
func groupOf(dir, job string) (g cgroup.Group, ok bool) {
	b, err := os.ReadFile(filepath.Join(dir, groupFile+job))
	return g, err == nil && json.Unmarshal(b, &g) == nil
}

// note records that a job was killed for its memory.
func (e excess) note(dir, job string, output io.Writer) bool {
	b, err := json.Marshal(e)
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, oomFile+job), b, 0o600)
	}
	if err != nil {
		fmt.Fprintf(output, "job %s: %v\n", job, fault.Text(err))
		return false
	}
	fmt.Fprintf(output, "job %s: %s\n", job, e)
	return true
}

// exceeded returns what a job used if it was killed for it. Its worker records that before it removes
// the cgroup of the job, and may have been killed before that.
func exceeded(dir, job string) (e excess, ok bool) {
	if e, ok = noted(dir, job); ok {
		return e, true
	}
	g, ok := groupOf(dir, job)
	if !ok {
		return e, false
	}
	if g.Killed() {
		return excess{Limit: g.Limit}, true
	}
	return noted(dir, job)
}

func noted(dir, job string) (e excess, ok bool) {
	b, err := os.ReadFile(filepath.Join(dir, oomFile+job))
	return e, err == nil && json.Unmarshal(b, &e) == nil
}
