package agent

import (
	_ "embed"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/ponos-tools/ponos/lib/agent/code/environment"
	"github.com/ponos-tools/ponos/lib/agent/record"
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
}

// protocol is the part of a job script that is the same for all tasks. It is a file of its own, so
// that linters of shell scripts can check it.
//
//go:embed protocol.sh
var protocol string

func (s script) text() []byte {
	header := fmt.Sprintf("# Job script of task %s (%s), made by ponos-start.\n# The command: %s\n",
		s.Task.ID, s.Task.Label(), task.Clean(strings.Join(s.Command, " ")))
	return job(header,
		"task="+string(s.Task.ID)+"\ndir="+shell.Quote(s.Dir.Path)+
			"\njob=${SLURM_JOB_ID:-${PONOS_JOB:?this script is run by Slurm or by ponos-start}}\n",
		s.Env, s.Attempt, s.Tried)
}

func (s script) write() error { return s.Dir.replace(scriptFile, s.text(), 0o700) }

// job returns a job script: header holds comments, which sets task, dir and job.
func job(header, which string, env environment.Environment, attempt, tried int) []byte {
	work := "$dir/" + workDir
	if env.Place != "" {
		work = shell.Quote(env.Place)
	}
	return []byte("#!/bin/bash\n" + header + "\n" + which +
		"work=" + work + "\n" +
		"source=" + shell.Quote(env.Source) + "\n" +
		"venv=" + shell.Quote(env.Venv) + "\n" +
		"restart=${SLURM_RESTART_COUNT:-0}\n" +
		"owner=$dir/" + record.Owner(attempt) + "\n" +
		"tried=" + strconv.Itoa(tried) + "\n" +
		// The workers of mode local and of pilots say which program they are.
		"if [ -x \"${1:-}\" ]; then\n" +
		"\texec \"$@\" exec --task=\"$task\" --job=\"$job\" --restart=\"$restart\" --attempt=" + strconv.Itoa(attempt) +
		" --tried=\"$tried\" --source=\"$source\" --place=" + shell.Quote(env.Place) + " --venv=\"$venv\" -- \"$dir\"\nfi\n" + protocol)
}

// shared returns how a task runs as an element of a job array.
func (a *Agent) shared(s script) *runner.Shared {
	return &runner.Shared{
		Like: strings.Join([]string{s.Env.Source, s.Env.Place, s.Env.Venv, strconv.Itoa(s.Attempt), strconv.Itoa(s.Tried)}, "\x00"),
		Script: func(ids []task.ID) []byte {
			words := make([]string, len(ids))
			for i, id := range ids {
				words[i] = string(id)
			}
			return job(fmt.Sprintf("# Job script of %d tasks, made by ponos-start.\n", len(ids)),
				"tasks=("+strings.Join(words, " ")+")\ntask=${tasks[${SLURM_ARRAY_TASK_ID:?this script is run by Slurm}]:?}\n"+
					"dir="+shell.Quote(filepath.Dir(s.Dir.Path))+"/$task\njob=${SLURM_ARRAY_JOB_ID:?}_$SLURM_ARRAY_TASK_ID\n",
				s.Env, s.Attempt, s.Tried)
		},
		Alone: s.write,
		Links: a.Store.links(),
	}
}
