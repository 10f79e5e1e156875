package agent

import (
	"fmt"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/ponos-tools/ponos/lib/agent/code/environment"
	"github.com/ponos-tools/ponos/lib/agent/program"
	"github.com/ponos-tools/ponos/lib/base/shell"
	"github.com/ponos-tools/ponos/lib/task"
	"github.com/ponos-tools/ponos/lib/task/runner"
)

// script is the job script of a task. Outside data is part of it only in comments: variables and
// command are read from files, so there is nothing to quote.
type script struct {
	Task    task.Task
	Dir     Dir
	Env     environment.Environment
	Attempt int
	Tried   int // attempts before this one
	Command []string
	// Programs is where nodes find the program that runs the command; "": its worker says that.
	Programs string
	MaxLog   int64 // bytes of the command's output that are kept; 0: all
}

func (s script) text() []byte {
	header := fmt.Sprintf("# Job script of task %s (%s), made by ponos-start.\n# The command: %s\n",
		s.Task.ID, s.Task.Label(), task.Clean(strings.Join(s.Command, " ")))
	return s.job(header, "ponos_task="+string(s.Task.ID)+"\nponos_dir="+shell.Quote(s.Dir.Path)+
		"\nponos_job=${SLURM_JOB_ID:-${PONOS_JOB:?this script is run by Slurm or by ponos-worker}}\n")
}

func (s script) write() error { return s.Dir.replace(scriptFile, s.text(), 0o700) }

// job returns a job script, which becomes the program that runs the command: ponos-worker exec. Header holds comments;
// which sets the task, its directory and the job. The worker of mode local gives the script the program
// as its arguments, and a pool the word pool.
func (s script) job(header, which string) []byte {
	become := "exec \"$@\"\n"
	if s.Programs != "" {
		become = "if [ \"$1\" = pool ]; then shift 2; set -- exec --pool \"$@\"; fi\n" +
			"if [ \"$1\" != exec ]; then exec \"$@\"; fi\n" + program.Text(s.Programs)
	}
	return []byte("#!/bin/bash\n" + header + "\n" + which +
		"set -- \"$@\" exec --task=\"$ponos_task\" --job=\"$ponos_job\" --restart=\"${SLURM_RESTART_COUNT:-0}\"" +
		fmt.Sprintf(" --attempt=%d --tried=%d", s.Attempt, s.Tried) + s.maxLog() +
		" --source=" + shell.Quote(s.Env.Source) + " --place=" + shell.Quote(s.Env.Place) + " --venv=" + shell.Quote(s.Env.Venv) +
		" -- \"$ponos_dir\"\n" + become)
}

func (s script) maxLog() string {
	if s.MaxLog == 0 {
		return ""
	}
	return fmt.Sprintf(" --max-log=%d", s.MaxLog)
}

// shared returns how a task runs as an element of a job array.
func (a *Agent) shared(s script) *runner.Shared {
	return &runner.Shared{
		Like: strings.Join(
			[]string{s.Env.Source, s.Env.Place, s.Env.Venv, strconv.Itoa(s.Attempt), strconv.Itoa(s.Tried), s.Programs}, "\x00"),
		Script: func(ids []task.ID) []byte {
			words := make([]string, len(ids))
			for i, id := range ids {
				words[i] = string(id)
			}
			return s.job(fmt.Sprintf("# Job script of %d tasks, made by ponos-start.\n", len(ids)),
				"ponos_tasks=("+strings.Join(words, " ")+")\n"+
					"ponos_task=${ponos_tasks[${SLURM_ARRAY_TASK_ID:?this script is run by Slurm}]:?}\n"+
					"ponos_dir="+shell.Quote(filepath.Dir(s.Dir.Path))+"/$ponos_task\n"+
					"ponos_job=${SLURM_ARRAY_JOB_ID:?}_$SLURM_ARRAY_TASK_ID\n")
		},
		Alone: s.write,
		Links: a.Store.links(),
	}
}
