# count.sh FILE: a stand-in for your program. Its result becomes an artifact of the task.
set -eu
wc -w <"$1" >"$PONOS_DATA/current/words"
echo "$1 has $(cat "$PONOS_DATA/current/words") words"
