# Becomes the program $ponos_file of this machine below $ponos_bin, with the arguments of this script. Until that is there and
# starts, and until $ponos_dir is there, which NFS may show late, nothing has begun: a request to end ends this
# script, other signals do nothing.
shopt -s execfail

ponos_become() {
	local program=$1
	shift
	ponos_words=$(exec -a "$ponos_file" "$program" --version 2>&1)
	case $?:$ponos_words in
	0:*"$ponos_file "*) ;;
	0:*) # another program, or an empty file
		ponos_words="it does not say that it is $ponos_file"
		return 1
		;;
	*:) # it was killed
		ponos_words="it says nothing"
		return 1
		;;
	*)
		ponos_words=${ponos_words%%$'\n'*}
		return 1
		;;
	esac
	# No signal may end what has not yet begun to listen.
	trap '' QUIT USR1 USR2 ALRM
	exec -a "$ponos_file" "$program" "$@"
}

ponos_machine=${BASH_VERSINFO[5]%%-*} # of this shell
[ -e "$ponos_bin/$ponos_machine" ] || ponos_machine=$(uname -m)
# With less address space, in KiB, a 64-bit program does not start.
ponos_space=$(ulimit -v)
if [ "$ponos_space" = unlimited ] || [ "$ponos_space" -ge 1048576 ]; then ponos_space=; fi

ponos_waited=0
while :; do
	trap 'exit 143' TERM
	trap : HUP INT QUIT USR1 USR2 ALRM
	ponos_program=$ponos_bin/$ponos_machine/$ponos_file
	if [ -n "$ponos_space" ] && [ "$ponos_machine" = x86_64 ] && [ -r "$ponos_bin/i686/$ponos_file" ]; then
		ponos_program=$ponos_bin/i686/$ponos_file
	fi
	if ! [ -d "$ponos_dir" ]; then
		ponos_missing=$ponos_dir
	elif ! [ -r "$ponos_program" ]; then
		ponos_missing=$ponos_program
	elif [ -x "$ponos_program" ]; then
		ponos_become "$ponos_program" "$@"
		ponos_missing="a start of $ponos_program, which failed: $ponos_words"
	else
		# Programs may not be run there: it is run from a copy without a name, of which nothing is left.
		ponos_missing="a place with room from which this node runs programs: not ${ponos_program%/*/*/*}"
		for ponos_place in "${TMPDIR:-/tmp}" /tmp /dev/shm; do
			ponos_copy=$(mktemp "$ponos_place/$ponos_file.XXXXXX" 2>/dev/null) || continue
			exec 3<"$ponos_copy" 4>"$ponos_copy"
			rm -f -- "$ponos_copy"
			if cat -- "$ponos_program" >&4 2>/dev/null && chmod 700 /proc/self/fd/4 && exec 4>&- && [ -x /proc/self/fd/3 ]; then
				ponos_become /proc/self/fd/3 "$@"
				ponos_missing="a start of a copy of $ponos_program, which failed: $ponos_words"
				break
			fi
		done
		exec 3<&- 4>&-
	fi
	if [ "$ponos_waited" = 600 ]; then break; fi
	[ "$ponos_waited" != 0 ] || echo "job ${SLURM_JOB_ID:-}: waiting for $ponos_missing" >&2
	ponos_waited=$((ponos_waited + 1))
	sleep 1
done
echo "job ${SLURM_JOB_ID:-}: waited 10 minutes for $ponos_missing" >&2
exit 143
