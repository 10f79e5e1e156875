package agent

import (
	_ "embed"
	"fmt"
	"strings"

	"github.com/ponos-tools/ponos/lib/environment"
	"github.com/ponos-tools/ponos/lib/runner"
	"github.com/ponos-tools/ponos/lib/task"
)

// script is the job script of a task. Nothing that comes from outside is part of
// it, but for comments: variables and command are read from files, so that no
// quoting can go wrong.
type script struct {
	Task    task.Task
	Dir     Dir
	Env     environment.Environment
	Attempt int
	Tried   int // attempts before this one
	Command []string
}

// protocol is the part of a job script that is the same for all tasks. In a file of its
// own, it can be read and checked as the shell script that it is.
//
//go:embed protocol.sh
var protocol string

func (s script) text() []byte {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	line("#!/bin/bash")
	line("# Job script of task %s (%s), made by ponos-start.", s.Task.ID, s.Task.Label())
	line("# The command: %s", task.Clean(strings.Join(s.Command, " ")))
	line("")
	line("dir=%s", quote(s.Dir.Path))
	line("source=%s", quote(s.Env.Source))
	line("venv=%s", quote(s.Env.Venv))
	line("job=${SLURM_JOB_ID:-${PONOS_JOB:?this script is run by Slurm or by ponos-start}}")
	line("restart=${SLURM_RESTART_COUNT:-0}")
	line("owner=$dir/%s", runner.Owner(s.Attempt))
	line("task=%s", s.Task.ID)
	line("tried=%d", s.Tried)
	b.WriteString(protocol)
	return []byte(b.String())
}

// quote quotes a path of ours for the shell.
func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }
