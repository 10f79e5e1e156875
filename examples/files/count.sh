# count.sh FILE: a stand-in for your program. It leaves what it has made with the task, as an artifact.
set -eu
wc -w <"$1" >"$PONOS_DATA/current/words"
echo "$1 has $(cat "$PONOS_DATA/current/words") words"
