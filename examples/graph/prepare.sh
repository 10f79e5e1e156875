# prepare.sh FILE: writes the data. Replace it by your program.
set -eu
seq 10 >"$1"
