#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What the plugin costs: the same srun without the plugin, with it but without its options, and with them. Runs take
# turns; medians of N.
set -eu
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
BUILD=$(realpath "${BUILD:-build}") N=${N:-21}
dir=$BUILD/tests/tmp/bench_spank

if [ "${1-}" != inside ]; then
	command -v srun >/dev/null || { echo "Slurm is not installed"; exit 0; }
	[ -e "$BUILD/spank_hvd.so" ] || { echo "spank_hvd.so is not built"; exit 0; }
	mkdir -p "$dir"
	trap 'rm -rf "$dir"' EXIT
	contrib/cluster/hvd-cluster --dir "$dir/cluster" --nodes 1 --plugin "$BUILD/spank_hvd.so" run \
		env BUILD="$BUILD" N="$N" bash tests/bench/spank.sh inside
	exit
fi

stack=$dir/cluster/etc/plugstack.conf
line=$(cat "$stack")

timed() { # FILE LINE OF PLUGSTACK.CONF  COMMAND…: one more time in ms
	local file=$1 begin end
	echo "$2" >"$stack"
	shift 2
	begin=$(date +%s%N)
	"$@" 2>/dev/null
	end=$(date +%s%N)
	echo "$(((end - begin) / 1000))" >>"$dir/$file"
}

median() { sort -n "$dir/$1" | awk '{ v[NR] = $1 } END { printf "%.2f", v[int((NR + 1) / 2)] / 1000 }'; }

for ((i = 0; i < N; i++)); do
	timed without "" srun -Q -n2 --gpus=2 true
	timed loaded "$line" srun -Q -n2 --gpus=2 true
	timed bound "$line" srun -Q -n2 --gpus=2 --gpu-bind=socket true
	timed map "$line" "$BUILD/hvd-map" --topology "$dir/cluster/topology.xml" --proc "$dir/cluster/proc" --json >/dev/null
done
printf 'srun of 2 tasks on one node, median of %d, ms\n' "$N"
printf '  without the plugin          %8s\n' "$(median without)"
printf '  plugin, none of its options %8s\n' "$(median loaded)"
printf '  --gpu-bind=socket           %8s\n' "$(median bound)"
printf 'hvd-map on the node           %8s\n' "$(median map)"
