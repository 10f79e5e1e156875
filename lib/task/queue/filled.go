package queue

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/ponos-tools/ponos/lib/task"
)

// A Filled is a Queue that people fill as a Client, and beside which they wait.
type Filled interface {
	Queue
	// Fresh reports whether there is news since the last call of Actions. It costs a few looks at directories.
	Fresh() bool
	// Left reports whether there are tasks that are not over and that this agent could take, or has taken, or the command of a
	// group that is over is to run.
	Left() (bool, error)
	// Over returns the groups that are over, one try of whose command this call begins. The caller runs the commands, and calls
	// Ran for each; if it is killed before, the next call of this agent returns the group again.
	Over() ([]Over, error)
	// Ran records how the command of a group has ended. The error says what follows where it has failed.
	Ran(o Over, failed error) error
	// Bill records what a task has cost by the bill, if it has ended with that attempt.
	Bill(id task.ID, attempt int, cost float64) error
	// SignOff says that this agent takes no more turns.
	SignOff() error
	// States is Client.List without reasons.
	States() ([]Summary, error)
}

// Over is a group of which no task is left, and whose command this agent is to run.
type Over struct {
	OnEnd
	Group string
	Try   int                // from 1; more than 1: the command may have run before
	Tasks map[task.State]int // those that were retried are left out
}

// Environment is what the command is told: the group and its figures, as NAME=VALUE.
func (o Over) Environment() []string {
	total := 0
	for _, n := range o.Tasks {
		total += n
	}
	env := []string{"PONOS_GROUP=" + o.Group, fmt.Sprintf("PONOS_TRY=%d", o.Try), fmt.Sprintf("PONOS_TASKS=%d", total)}
	for _, s := range []task.State{task.Completed, task.Failed, task.Error, task.Stopped} {
		env = append(env, fmt.Sprintf("PONOS_%s=%d", strings.ToUpper(string(s)), o.Tasks[s]))
	}
	return env
}

// Where is the directory in which the command runs: that of the submission, if it is there.
func (o Over) Where() string {
	if info, err := os.Stat(o.Directory); filepath.IsAbs(o.Directory) && err == nil && info.IsDir() {
		return o.Directory
	}
	return string(filepath.Separator)
}
