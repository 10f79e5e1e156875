# search.sh: finds the best learning rate in two rounds: a coarse one, then one around the best result.
# Called again, it continues where it was interrupted: --key submits only what is missing.
set -eu
cd "$(dirname "$0")"

# try ROUND RATE...: trains with each rate and three seeds, and prints the rate with the least mean loss.
try() {
	round=$1
	shift
	{
		printf 'rate\tseed\n'
		for rate; do for seed in 1 2 3; do printf '%s\t%s\n' "$rate" "$seed"; done; done
	} >"round$round.tsv"
	ponos-submit --key "round$round" --directory . --each "round$round.tsv" --retry 'oom: mem*2 <= 64G, lost' -- sh train.sh {rate} {seed} >/dev/null
	# Failed tasks are not in the mean.
	ponos-submit --wait --group "round$round" || true
	ponos-list --group "round$round" --artifacts losses >/dev/null
	for rate; do
		cat losses/rate-"$rate"_seed-*/loss | awk -v rate="$rate" '{ sum += $1 } END { if (NR) print sum / NR, rate }'
	done | sort -g | head -n 1 | cut -d ' ' -f 2
}

best=$(try 1 0.001 0.01 0.1 1)
echo "after round 1: rate $best"
best=$(try 2 $(awk -v best="$best" 'BEGIN { for (f = 0.5; f < 8; f *= 2) print best * f }'))
echo "after round 2: rate $best"
