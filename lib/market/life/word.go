package life

import (
	"fmt"
	"strconv"

	"github.com/ponos-tools/ponos/lib/task"
)

// words are what an entrypoint may say of the end of its task, instead of an exit code.
var words = map[string]string{
	"late": "the task has run longer than max_runtime",
	"lost": "the container was restarted in the middle of the task",
	"unloaded": "checkpoint_load has failed, so the task was not run: " +
		"it would have started from the beginning, and replaced the saved checkpoints",
	"nowhere": "the container cannot record the end of the task: /tmp is not writable",
}

// never are words of an entrypoint that has not begun the command, with their reasons.
var never = map[string]string{
	"unarmed":  "the container could not fetch or start vast-entry",
	"unfit":    "the machine is not what was ordered, or does not work",
	"unwanted": "the instance is no longer there for this task",
	"unasked":  "the container could not ask whether its instance is still there for this task",
}

// Never returns why the command has not begun, if the last word of its entrypoint says so.
func Never(s string) (why string, is bool) {
	why, is = never[s]
	return why, is
}

// Word returns how a task has ended by the last word of its entrypoint: an exit code, or one of the words.
func Word(s string) (End, bool) {
	if why, known := words[s]; known {
		return End{State: task.Error, Reason: why}, true
	}
	code, err := strconv.Atoi(s)
	if err != nil || code < 0 || code > 255 || strconv.Itoa(code) != s {
		return End{}, false
	}
	e := End{State: task.Completed, Code: code}
	if code != 0 {
		e.State, e.Reason = task.Failed, fmt.Sprintf("exit code %d", code)
	}
	if code > 128 && code < 192 {
		e.Reason = fmt.Sprintf("ended by signal %d", code-128)
	}
	return e, true
}
