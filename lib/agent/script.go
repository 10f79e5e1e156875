package agent

import (
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
	Command []string
}

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
	line("")
	line("# One job runs the task. Should a second one have been submitted for it, this ends here.")
	line(`owner=$dir/%s`, runner.Owner(s.Attempt))
	line(`if ! ln -s "$job" "$owner" 2>/dev/null && [ "$(readlink "$owner")" != "$job" ]; then`)
	line(`	echo "job $job: the task is run by job $(readlink "$owner")"`)
	line(`	exit 0`)
	line(`fi`)
	line(`[ "$restart" = 0 ] || echo "job $job: restart $restart on $(hostname)"`)
	line("")
	line("# The variables and the command, each word ended by a zero byte.")
	line(`mapfile -d '' -t variables <"$dir/%s"`, envFile)
	line(`mapfile -d '' -t command <"$dir/%s"`, commandFile)
	line(`if [ "${variables[*]: -1}" != PONOS_TASK=%s ] || [ "${#command[@]}" = 0 ]; then`, s.Task.ID)
	line(`	echo "job $job: the files of the task are damaged"`)
	line(`	exit 1`)
	line(`fi`)
	line("")
	line("# The task may write where it runs, so it gets a copy of its source. After a restart that is still there.")
	line(`work=$dir/%s`, workDir)
	line(`if [ ! -d "$work" ]; then`)
	line(`	rm -rf "$work.new" && cp -R "$source" "$work.new" && mv "$work.new" "$work" || exit 1`)
	line(`fi`)
	line(`cd "$work" || exit 1`)
	line("")
	line("# SIGTERM goes to the command as well, which may take its time to end.")
	line(`trap : TERM`)
	line("# The variables are for the command alone, whatever they are called: from where they are set on, this uses none of its own.")
	line("# Descriptors 3 and 4 hold the locks of a local job, which is this script and not what it leaves behind.")
	line(`set -- "$venv" "${#variables[@]}" "${variables[@]}" "${command[@]}"`)
	line(`(`)
	line(`	unset variables command`)
	line(`	export -- "${@:3:$2}"`)
	line(`	if [ -n "$1" ]; then export VIRTUAL_ENV="$1" PATH="$1/bin:$PATH"; fi`)
	line(`	shift "$(($2 + 2))"`)
	line(`	exec -- "$@" 3>&- 4>&-`)
	line(`)`)
	line(`code=$?`)
	line("")
	line("# For clusters that keep no accounts of exit codes.")
	line(`umask 077`)
	line(`echo "$restart $code" >"$dir/exit.new" && mv "$dir/exit.new" "$dir/exit.$job"`)
	line(`exit "$code"`)
	return []byte(b.String())
}

// quote quotes a path of ours for the shell.
func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }
