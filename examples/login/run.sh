#!/bin/bash
# run.sh HOST COMMAND [ARG...]: copies this directory to HOST, runs COMMAND there by "ponos run", and fetches the files that its
# tasks have kept into a directory of results/.
set -euo pipefail
(($# >= 2)) || { echo "usage: run.sh HOST COMMAND [ARG...]" >&2; exit 2; }
host=$1 group=$(date +%Y%m%d-%H%M%S)-$$
shift

# quote WORD...: the words as a line for the shell of the other host.
quote() {
	local word
	for word; do printf "'%s' " "${word//\'/\'\\\'\'}"; done
}
project=$(quote "$(basename "$PWD")")

tar -cz --exclude=./results --exclude=./.git . | ssh "$host" "cd && mkdir -p $project && tar -xzC $project"
status=0
ssh "$host" "cd && cd $project && ponos run --group $group --directory . -- $(quote "$@")" || status=$?
ssh "$host" "cd && mkdir -p results/$group && ponos list --group $group --artifacts results/$group >/dev/null && tar -chz results/$group" | tar -xz
exit "$status"
