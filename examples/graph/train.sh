# train.sh SEED FILE: trains with a seed, and writes the loss. Replace it by your program.
set -eu
awk -v seed="$1" '{ sum += ($1 - seed) ^ 2 } END { print sum / NR, "seed", seed }' data.txt >"$2"
