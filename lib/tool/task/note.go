package task

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/ponos-tools/ponos/lib/agent/config"
	"github.com/ponos-tools/ponos/lib/base/fault"
	"github.com/ponos-tools/ponos/lib/task"
)

// Note is a line of a file of notes.
type Note struct {
	Type     string     `json:"type"` // "note"
	Task     task.ID    `json:"task"`
	State    task.State `json:"state"`
	Reason   string     `json:"reason,omitempty"`
	Job      string     `json:"job,omitempty"`
	Restarts int        `json:"restarts"`
	Node     string     `json:"node,omitempty"`
	Time     string     `json:"time"`
}

// maxReason limits a line, so that it is written at once.
const maxReason = 1000

func (t *tool) note(c *cli.Context) error {
	if !c.Args().Present() {
		return fault.Hint(fault.Errorf(fault.Usage, "the state is missing"), "for example: ponos-task note running \"on $SLURMD_NODENAME\"")
	}
	state := task.State(c.Args().First())
	if !state.Known() {
		return fault.Hint(fault.Errorf(fault.Usage, "invalid task state %q", string(state)),
			"one of unscheduled, pending, running, completed, failed, error, stopping, stopped, cancelled")
	}
	id, err := t.taskID()
	if given := c.String("task"); given != "" {
		if id, err = task.ParseID(given); err != nil {
			err = fault.Errorf(fault.Usage, "--task: %w", err)
		}
	}
	if err != nil {
		return err
	}
	if id == "" {
		// An epilog runs for every job, and most have no task.
		return nil
	}
	restarts, err := t.restarts()
	if err != nil {
		return err
	}
	reason := strings.Join(c.Args().Tail(), " ")
	if len(reason) > maxReason {
		reason = strings.ToValidUTF8(reason[:maxReason], "")
	}
	node := t.getenv("SLURMD_NODENAME")
	if node == "" {
		if node, err = os.Hostname(); err != nil {
			return err
		}
	}
	line, err := json.Marshal(Note{
		Type: "note", Task: id, State: state, Reason: reason, Job: t.getenv("SLURM_JOB_ID"),
		Restarts: restarts, Node: node, Time: t.now().UTC().Format(time.RFC3339),
	})
	if err != nil {
		return err
	}
	path, err := t.notes(c.String("file"))
	if err != nil {
		return err
	}
	if err := appendLine(path, append(line, '\n')); err != nil {
		return fmt.Errorf("noting: %w", err)
	}
	return nil
}

// notes is the file of notes. Its directory is made where it is the usual one.
func (t *tool) notes(given string) (string, error) {
	if given != "" {
		return given, nil
	}
	if path := t.getenv("PONOS_NOTES"); path != "" {
		return path, nil
	}
	dir := "/var/log/ponos"
	if os.Geteuid() != 0 {
		home, err := config.Expand("~/.local/state/ponos")
		if err != nil {
			return "", err
		}
		dir = home
	}
	return filepath.Join(dir, "notes.jsonl"), os.MkdirAll(dir, 0o755)
}

// appendLine appends a line by one write: on a local file system lines of several
// writers do not mix. A link is not followed, as root may write where others may.
func appendLine(path string, line []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0o644)
	if err != nil {
		return err
	}
	if _, err := f.Write(line); err != nil {
		f.Close()
		return err
	}
	return f.Close()
}
