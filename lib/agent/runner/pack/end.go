package pack

import (
	"encoding/json"
	"os"
	"path/filepath"

	"github.com/google/renameio/v2"

	"github.com/ponos-tools/ponos/lib/agent/record"
)

// Why a pilot has ended a task.
const (
	Stopped = "stopped" // it was cancelled
	Timeout = "timeout"
	OOM     = "oom"
	Killed  = "killed"  // its job script was killed from outside
	Unbegun = "unbegun" // the job script has ended before it began the command
)

// An End is what a pilot records of a task that it has ended, or that could not begin.
type End struct {
	Why   string `json:"why"`
	Used  int64  `json:"used,omitempty"`  // bytes
	Limit int64  `json:"limit,omitempty"` // bytes, or nanoseconds
}

// ReadEnd returns the end of a job; it is the zero value if the job has ended by itself.
func ReadEnd(dir, job string) (e End) {
	b, err := os.ReadFile(filepath.Join(dir, endFile+job))
	if err == nil {
		_ = json.Unmarshal(b, &e) // a truncated file counts as none
	}
	return e
}

func (e End) note(dir, job string) error {
	b, err := json.Marshal(e)
	if err != nil {
		return err
	}
	return renameio.WriteFile(filepath.Join(dir, endFile+job), b, 0o600, renameio.WithTempDir(dir))
}

// Owner returns the packed job that owns a task; "" if none does.
func Owner(dir string, attempt int) (string, error) {
	owner, err := record.ReadOwner(dir, attempt)
	if !IsJob(owner) {
		return "", err
	}
	return owner, err
}
