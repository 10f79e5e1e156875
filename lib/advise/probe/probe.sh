#!/bin/sh
# Records what this node has: its GPUs, as their drivers report them, and its local disk.
# In a job of Slurm: sh probe.sh [DIR [ROOT]]. The file is DIR/NODE@CLUSTER; see lfind(1). ROOT has /proc and /sys.
export LC_ALL=C
umask 022
node=${SLURMD_NODENAME:-$(hostname -s)}
cluster=${SLURM_CLUSTER_NAME:-$(timeout 20 scontrol show config 2>/dev/null | sed -n 's/^ClusterName *= *//p')}
dir=${1:-${XDG_STATE_HOME:-$HOME/.local/state}/ponos/nodes}
proc=${2:-}/proc/driver/nvidia/gpus
drm=${2:-}/sys/class/drm

# nvidia asks for what the driver knows; older ones know fewer fields.
nvidia() { timeout 20 nvidia-smi --format=csv,noheader,nounits --query-gpu="$1" 2>/dev/null; }

gpus() {
	if out=$(nvidia name,memory.total,mig.mode.current,compute_cap) || out=$(nvidia name,memory.total,mig.mode.current) ||
		out=$(nvidia name,memory.total); then
		printf '%s\n' "$out" | sed -n 's/..*/nvidia &/p'
		timeout 20 nvidia-smi -L 2>/dev/null | sed -n 's/^GPU [0-9]*: \(.*\) (UUID.*/of \1/p; s/^ *MIG \([0-9][^ ]*\) .*/slice \1/p'
	fi
	for info in "$proc"/*/information; do
		[ -r "$info" ] && sed -n 's/^Model:[[:blank:]]*/installed /p' "$info"
	done
	found=
	if out=$(timeout 20 rocm-smi --showproductname --showmeminfo vram 2>/dev/null) && [ -n "$out" ]; then
		found=$(printf '%s\n' "$out" | awk '
			match($0, /^GPU\[[0-9]+\]/) { i = substr($0, 5, RLENGTH - 5) + 0; if (i >= n) n = i + 1 }
			/Card [Ss]eries:/ { sub(/.*Card [Ss]eries:[ \t]*/, ""); name[i] = $0 }
			/VRAM Total Memory \(B\):/ { sub(/.*:[ \t]*/, ""); bytes[i] = $0 }
			END { for (i = 0; i < n; i++) if (bytes[i]) printf "amd %s, %d\n", name[i], bytes[i] / 1048576 }')
	fi
	if [ -z "$found" ]; then
		found=$(for card in "$drm"/card[0-9]*/device; do
			[ -r "$card/mem_info_vram_total" ] && [ "$(cat "$card/vendor")" = 0x1002 ] &&
				echo "amd $(cat "$card/product_name" 2>/dev/null), $(($(cat "$card/mem_info_vram_total") / 1048576))"
		done)
	fi
	[ -n "$found" ] && printf '%s\n' "$found"
	timeout 20 xpu-smi discovery --dump 2,16 2>/dev/null | sed -n 's/^"\(.*\)","\([0-9][0-9]*\).*MiB"$/intel \1, \2/p'
}

found=$(gpus)
[ -n "$found" ] && [ -n "$cluster" ] || exit 0
mkdir -p "$dir" && file=$dir/.$node@$cluster.$$ || exit
trap 'rm -f "$file"' EXIT
{
	echo "date $(date -u +%Y-%m-%dT%H:%M:%SZ)"
	printf '%s\n' "$found"
	df -Pk /tmp 2>/dev/null | awk 'NR == 2 { print "disk " int($2 / 1024) }'
} >"$file" && mv "$file" "$dir/$node@$cluster"
