run=$dir/run.$job.$restart
read -r node </proc/sys/kernel/hostname

# Slurm makes the file of the output with the umask of the user.
if [ -f /dev/fd/1 ]; then chmod go-rwx /dev/fd/1; fi

# Slurm sends SIGTERM to the command as well, which may take its time to end.
asked=
trap 'asked=1' TERM
# Before that, Slurm warns with SIGCONT.
settle=
trap 'settle=1.5' CONT
# Other signals (scancel --batch --signal=USR1) would end this script and leave the command, or the end of that unrecorded.
trap : HUP INT QUIT USR1 USR2 ALRM

# persist COMMAND... repeats a command until it succeeds. A full disk, an exhausted
# quota and a file system that does not answer mostly pass. It gives up when the job is
# asked to end, and when the task's directory is gone for 10 minutes.
persist() {
	local pause=1 gone=0 tries=0
	until "$@"; do
		if [ -n "$asked" ] || [ "$gone" -ge 600 ]; then return 1; fi
		if [ -d "$dir" ]; then gone=0; else gone=$((gone + pause)); fi
		echo "job $job: trying again in $pause s" >&2
		sleep "$pause"
		# What passes, mostly passes soon; and a job may be killed any time.
		tries=$((tries + 1))
		if [ "$tries" -ge 15 ]; then pause=$((pause < 30 ? 2 * pause : 60)); elif [ "$tries" -ge 5 ]; then pause=2; fi
	done
}

# own makes this job the one that runs the task. Only after another owner's name was
# read, the job has nothing to do: all else that keeps the link from being made is an error.
own() {
	local words now
	if words=$(LC_ALL=C ln -s -- "$job" "$owner" 2>&1); then return 0; fi
	now=$(readlink -- "$owner")
	if [ "$now" = "$job" ]; then return 0; fi
	if [ -n "$now" ]; then
		echo "job $job: the task is run by job $now"
		exit 0
	fi
	echo "job $job: it cannot take the task: $words" >&2
	return 1
}

# keep opens the journal of this start. Descriptor 5 leads to it wherever the directory is
# by the end of the command: it may have been moved away, or not be mounted here for a while.
keep() { (umask 077 && : >>"$run") && exec 5>>"$run"; }

# note WORD adds a line to the journal of this start, and brings it to the disk. What
# an earlier try has left of the line stays a line of its own. If another file is in its
# place by now, that gets the line too.
note() {
	local noted=1
	if printf '\n%s;\n' "$1" >&5 && sync -- /dev/fd/5; then noted=0; fi
	if ! [ "$run" -ef /dev/fd/5 ] && (umask 077 && printf '\n%s;\n' "$1" >>"$run") && sync -- "$run"; then noted=0; fi
	return "$noted"
}

# restore brings back the owner and the journal if the task has removed its own directory, or what is in it: it would
# count as not begun, and be run again. A directory that has been moved away or is not mounted stays away.
restore() {
	if ! [ -d "$dir" ]; then
		if [ "$(stat -L -c %h /dev/fd/5)" != 0 ]; then return 0; fi
		(umask 077 && mkdir -- "$dir")
	fi
	[ -L "$owner" ] || ln -s -- "$job" "$owner"
	[ -e "$run" ] || (umask 077 && cat /dev/fd/5 >>"$run")
}

# end_if_done reads what each start of this job has recorded, and ends the script if the
# command has ended in one of them: a job that is begun again does not run it again.
# A command of which it is only known that it exited has ended by itself, unless a signal
# ended it: this script was killed right after it.
end_if_done() {
	local file text line exited code=
	if ! ls -- "$dir" >/dev/null; then return 1; fi
	for file in "$dir/run.$job."*; do
		if ! [ -e "$file" ]; then continue; fi
		if ! text=$(cat -- "$file"); then return 1; fi
		exited=
		while read -r line; do
			case $line in
			begun* | cut*) exited= ;;
			esac
			if [[ $line =~ ^(exited|ended)\ ([0-9]+)\;$ ]]; then
				case ${BASH_REMATCH[1]} in
				ended) code=${BASH_REMATCH[2]} ;;
				*) if [ "${BASH_REMATCH[2]}" -lt 128 ]; then exited=${BASH_REMATCH[2]}; fi ;;
				esac
			fi
		done <<<"$text"
		code=${code:-$exited}
	done
	if [ -n "$code" ]; then
		echo "job $job: the command has ended before, with exit code $code; it is not run again"
		exit "$code"
	fi
}

# startof PID prints when a process was started, in the kernel's own units.
startof() {
	local stat
	stat=$(cat "/proc/$1/stat" 2>/dev/null) || return 1
	set -- ${stat##*) }
	[ "$1" != Z ] && echo "${20}"
}

# await_earlier waits until what began before under the same restart count is surely gone:
# Slurm's controller, restarted, may begin a job that it does not remember to have begun.
# The new start sees on this host that its process has ended; on another one, Slurm ends
# it when that node registers, and NFS shows within 60 s what it has written.
await_earlier() {
	local word host pid start waited=0
	while read -r word host pid start; do
		if [ "$word" != begun ]; then continue; fi
		echo "job $job: it has begun before, on $host"
		while :; do
			if [ "$host" = "$node" ] && [ "$(startof "$pid")" != "${start%;}" ]; then break; fi
			if [ "$host" != "$node" ] && [ "$waited" -ge 65 ]; then break; fi
			if [ -n "$asked" ]; then exit 143; fi
			sleep 1
			waited=$((waited + 1))
			persist end_if_done || exit 143
		done
	done <"$run"
	persist end_if_done || exit 143
}

persist own || exit 143
persist end_if_done || exit 143
if [ -e "$run" ]; then await_earlier; fi
[ "$restart" = 0 ] || echo "job $job: restart $restart on $node"
[ "$tried" = 0 ] || echo "job $job: attempt $((tried + 1)) on $node"

# The variables and the command, each word ended by a zero byte. The last variable
# shows that all of them were read.
for try in 1 2 3 4 5 6; do
	mapfile -d '' -t variables <"$dir/env"
	mapfile -d '' -t command <"$dir/command"
	if [ "${variables[*]: -1}" = PONOS_TASK="$task" ] && [ "${#command[@]}" != 0 ]; then break; fi
	if [ "$try" = 6 ] || [ -n "$asked" ]; then
		echo "job $job: the files of the task are damaged"
		exit 1
	fi
	sleep 5
done

# This shell does not pass on the values of variables that it sets itself.
plain=() special=()
for word in "${variables[@]}"; do
	case ${word%%=*} in
	_ | BASHOPTS | BASHPID | BASH_* | DIRSTACK | EPOCHREALTIME | EPOCHSECONDS | EUID | FUNCNAME | GROUPS | HISTCMD | LINENO | PPID | \
		RANDOM | SECONDS | SHELLOPTS | SRANDOM | UID) special+=("$word") ;;
	*) plain+=("$word") ;;
	esac
done
if [ "${#special[@]}" != 0 ]; then command=(/usr/bin/env -- "${special[@]}" "${command[@]}"); fi

# The task may write where it runs, so it gets a copy of its source. After a restart
# that is still there, in the state in which the task has left it. Without a source, the task runs in a directory that
# is there.
copy() {
	if [ -d "$work" ]; then return 0; fi
	if [ -z "$source" ]; then
		echo "job $job: node $node has no directory $work"
		exit 1
	fi
	rm -f -- "$work"
	if [ -d "$work.new" ]; then chmod -R u+rwx -- "$work.new"; fi
	rm -rf -- "$work.new" && cp -R -- "$source" "$work.new" && mv -- "$work.new" "$work"
}
enter() { [ -x "$work" ] || chmod u+rwx -- "$work" && cd -- "$work"; }
persist copy || exit 143
persist enter || exit 143

# A job that was asked to end before its command is there does not begin it: the command
# would not hear of it, and run beside or before that of the next start.
[ -z "$asked" ] || exit 143
persist keep || exit 143
# From here on the command may have run.
persist note "begun $node $$ $(startof $$)" || exit 143

# The variables are for the command alone, whatever they are called: no variables of this script are used from where they
# are set.
# Descriptors 3 and 4 hold the locks of a local job, which is this script and not what it leaves behind; 5 is the journal.
set -- "$venv" "${#plain[@]}" "${plain[@]}" "${command[@]}"
if [ -n "$asked" ]; then
	persist note "cut 143"
	exit 143
fi
# A request to end that comes between this line and the fork reaches this script alone, which passes it on. So that it
# can, its shell is the end of a pipeline in which it learns that the command has begun. A job in the background would
# not do: it ignores SIGINT.
shopt -s lastpipe
exec 6>&1
(
	unset variables plain special command "${!SLURM_ARRAY_@}"
	# An element of an array runs one task, which must not see the others. What acts on its own job uses these: for one
	# element, the raw id is that of the array.
	export PONOS_JOB="$job" PONOS_JOB_ID="${SLURM_JOB_ID:-}"
	echo "$BASHPID"
	export -- "${@:3:$2}"
	if [ -n "$1" ]; then export VIRTUAL_ENV="$1" PATH="$1/bin:$PATH"; fi
	shift "$(($2 + 2))"
	exec -- "$@" >&6 3>&- 4>&- 5>&- 6>&-
) | {
	until read -r pid || [ "$?" -le 128 ]; do :; done
	read -r _
	if [ -n "$asked" ] && [ -n "$pid" ]; then kill -TERM "$pid" 2>/dev/null; fi
}
code=${PIPESTATUS[0]}

# A job that is asked to end is not done: Slurm may begin it again. It may have sent its
# signal to the command a moment before it sends it to this script, which is waited for
# after a failure or a warning. What is known is recorded before, as this script may be killed.
word=ended
if [ -n "$asked" ]; then
	word=cut
elif [ "$code" != 0 ] || [ -n "$settle" ]; then
	word=exited
fi
restore
persist note "$word $code"
if [ "$word" = exited ]; then
	sleep "${settle:-0.3}"
	seal() {
		if [ -n "$asked" ]; then word=cut; else word=ended; fi
		note "$word $code"
	}
	persist seal
fi
exit "$code"
