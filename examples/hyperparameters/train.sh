# train.sh RATE SEED: a stand-in for a training, whose loss is least at a rate of 0.03. The loss becomes an artifact of the task.
set -eu
awk -v rate="$1" -v seed="$2" 'BEGIN { print (log(rate / 0.03)) ^ 2 + seed / 100 }' >"$PONOS_DATA/current/loss"
