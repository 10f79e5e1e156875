package agent

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/ponos-tools/ponos/lib/agent/code/kept"
	"github.com/ponos-tools/ponos/lib/agent/code/transfer"
	"github.com/ponos-tools/ponos/lib/base/fault"
	"github.com/ponos-tools/ponos/lib/base/unit"
	"github.com/ponos-tools/ponos/lib/task"
)

// keepFiles keeps what a task has written to its working directory, and completes its report and its log. It may be repeated:
// what is left out is in the record before anything is moved. What can never be kept is told, and does not hinder the
// end of the task.
func (a *Agent) keepFiles(d Dir, record *Record, process string, r *task.Report) error {
	room := a.KeepSize
	if room > 0 && r.State != task.Completed && full(d.file(workDir)) {
		room = 0
		r.Reason = joinReasons(r.Reason, fullDisk)
	}
	plan, err := kept.New(d.file(workDir), record.Code, record.Keep, room)
	if err == nil && len(plan.Left) > 0 && record.Task != "" {
		record.Left = plan.Left
		err = d.Write(*record)
	}
	if err != nil {
		return a.keptNot(d, r, err)
	}
	if n := len(plan.Files); n > 0 {
		a.tellOnce(d, "INFO", fmt.Sprintf("kept, %s in all: %s", unit.ShortSize(plan.Size), task.SomeOf(plan.Files)))
	}
	if len(plan.Odd) > 0 {
		a.tellOnce(d, "WARNING", "not kept, as these are pipes, sockets or devices: "+task.SomeOf(plan.Odd))
	}
	to := a.Transfers.Kept(process, d.id)
	if err := plan.Move(to); err != nil {
		return a.keptNot(d, r, err)
	}
	if info, err := os.Lstat(to); err == nil && info.IsDir() {
		r.Kept = to
	}
	if len(record.Left) > 0 {
		lost := fmt.Sprintf("not kept, as there is room for %s: %s", unit.ShortSize(a.KeepSize), task.SomeOf(record.Left))
		r.Reason = joinReasons(r.Reason, lost)
	}
	return nil
}

// fullDisk is the reason of a task that has not completed, and left a full disk: what it has written makes way for other tasks.
// What a completed task has written stays, and someone has to make room.
const fullDisk = "nothing is kept of the working directory, as the disk is full"

// full reports whether the file system of a path has less than 1 % left.
func full(path string) bool {
	var s unix.Statfs_t
	return unix.Statfs(path, &s) == nil && s.Bavail < s.Blocks/100
}

// keptNot returns an error that may pass, and tells of another one.
func (a *Agent) keptNot(d Dir, r *task.Report, err error) error {
	if !transfer.Lasting(err) {
		return fmt.Errorf("the files of the task: %w", err)
	}
	a.tellOnce(d, "ERROR", "the files in the working directory are not kept: "+fault.Text(err))
	r.Reason = joinReasons(r.Reason, "the files in the working directory are not kept: see the log")
	return nil
}

// joinReasons adds to a reason.
func joinReasons(reason, more string) string {
	if reason == "" {
		return more
	}
	return reason + "; " + more
}
