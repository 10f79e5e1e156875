package agent

import (
	"testing"

	"github.com/ponos-tools/ponos/lib/task"
)

func TestWanted(t *testing.T) {
	actions := []task.Action{{Kind: task.Start, ID: "new"}, {Kind: task.Start, ID: "running"}, {Kind: task.Start, ID: "prepared"}, {Kind: task.Stop, ID: "running"}, {Kind: task.Stop, ID: "prepared"}, {Kind: task.Stop, ID: "ending"}, {Kind: task.Start, ID: "failed"}, {Kind: task.Stop, ID: "failed"}}
	got := wanted(actions, func(a task.Action) work {
		return map[task.ID]work{"running": {hasJob: true}, "prepared": {busy: true}, "ending": {busy: true, stopping: true}, "failed": {pauses: true}}[a.ID]
	})
	var text string
	for _, a := range got {
		text += string(a.Kind) + " " + string(a.ID) + ", "
	}
	if text != "start new, stop running, stop prepared, stop failed, " {
		t.Errorf("passed on: %s", text)
	}
}
