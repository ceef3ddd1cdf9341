#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What the plugin costs, in the real srun, slurmstepd and tasks: its callbacks alone, between those of a second plugin
# that is loaded before and after it and looks at the clock (spank_clock.c); the same without the plugin between them.
# Then the whole srun without the plugin, with it but without its options, and with them. They take turns, N rounds; a
# cost of the whole srun is the median over the rounds of the difference to the same round's srun without the plugin.
# Then hvd-map: on the node, and on every XML of ../shared/topologies.
set -eu
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
BUILD=$(realpath "${BUILD:-build}") N=${N:-31}
dir=$BUILD/tests/tmp/bench_spank

timed() { # FILE COMMAND…: one more time in µs
	local file=$1 begin end
	shift
	begin=$(date +%s%N)
	"$@" >/dev/null 2>"$dir/said" || { cat "$dir/said" >&2; exit 1; }
	end=$(date +%s%N)
	echo "$(((end - begin) / 1000))" >>"$dir/$file"
}

real_machines() {
	local xml
	[ -d ../shared/topologies ] || { echo "hvd-map on real machines: no ../shared/topologies"; return 0; }
	for xml in ../shared/topologies/*.xml; do
		for ((i = 0; i < 5; i++)); do
			timed "map_${xml##*/}" "$BUILD/hvd-map" --topology "$xml" --json
		done
		echo "$(sort -n "$dir/map_${xml##*/}" | sed -n 3p) ${xml##*/}"
	done | sort -n | awk '{ v[NR] = $1 / 1000; name = $2 } END { printf "hvd-map on %d machines, medians of 5: %.1f to %.1f ms (%s)\n", NR, v[1], v[NR], name }'
}

if [ "${1-}" != inside ]; then
	command -v srun >/dev/null || { echo "Slurm is not installed"; exit 0; }
	[ -e "$BUILD/spank_hvd.so" ] || { echo "spank_hvd.so is not built"; exit 0; }
	mkdir -p "$dir"
	${CC:-gcc} -O2 -shared -fPIC -o "$dir/clock.so" tests/bench/spank_clock.c
	ln -sf clock.so "$dir/before.so"
	ln -sf clock.so "$dir/after.so"
	# where this is ended, the cluster may not be yet: without its directory nothing could end it
	trap 'contrib/cluster/hvd-cluster --dir "$dir/cluster" down 2>/dev/null || true; rm -rf "$dir"' EXIT
	contrib/cluster/hvd-cluster --dir "$dir/cluster" --nodes 1 --plugin "$BUILD/spank_hvd.so" run \
		env BUILD="$BUILD" N="$N" bash tests/bench/spank.sh inside
	real_machines
	exit
fi

stack=$dir/cluster/etc/plugstack.conf
line=$(cat "$stack")

# Of the numbers on stdin: the median of the whole file, and its quartiles, in ms
median() { sort -n | awk '{ v[NR] = $1 } END { printf "%8.2f  (%.2f to %.2f)", v[int((NR + 1) / 2)] / 1000, v[int((NR + 3) / 4)] / 1000, v[int((3 * NR + 3) / 4)] / 1000 }'; }

step() { srun -Q --mpi=none --overcommit --gpus=2 "$@" true; }
share() { step --hvd-bind=socket,share "$@"; }

clocked() { # FILE PLUGIN COMMAND…: with the clock around the plugin's line, or around nothing
	printf '%s\n' "required $dir/before.so $dir/$1" "$2" "required $dir/after.so $dir/$1" >"$stack"
	touch "$dir/$1"
	"${@:3}" >/dev/null 2>"$dir/said" || { cat "$dir/said" >&2; exit 1; }
}

# WORD FILE: of a clock's lines that begin with WORD, the median, quartiles and number, in µs
callbacks() {
	awk -v w="$1" '$1 == w { print $2 }' "$2" | sort -n |
		awk '{ v[NR] = $1 } END { printf "%8.1f  (%.1f to %.1f, %d times)", v[int((NR + 1) / 2)], v[int((NR + 3) / 4)], v[int((3 * NR + 3) / 4)], NR }'
}

for ((i = 0; i < N; i++)); do
	clocked nothing "" step -n8
	clocked unasked "$line" step -n8
	clocked placement "$line" share -n8
	clocked all "$line" share -n8 --hvd
	clocked chosen "$line" share -n8 --hvd --cpu-bind=cores
	clocked gpus "$line" share -n8 --hvd --gpu-bind=closest
	clocked none "$line" step -n2 --hvd-bind=none
	clocked always "$line enable=always" step -n2
	echo "" >"$stack"
	timed without2 step -n2
	timed help_without srun --help
	echo "$line" >"$stack"
	timed loaded step -n2
	timed help_loaded srun --help
	timed bound2 share -n2
	timed map "$BUILD/hvd-map" --topology "$dir/cluster/topology.xml" --proc "$dir/cluster/proc" --json
done
cd "$dir"
echo "callbacks alone, µs: medians of $N rounds of 8 tasks (quartiles)"
for what in "nothing between the clocks:nothing" "plugin, none of its options:unasked" "--hvd-bind=socket:placement" "--hvd:all" "--hvd, and the user's --cpu-bind:chosen" "--hvd, and the user's --gpu-bind:gpus" "--hvd-bind=none, 2 tasks:none" "enable=always, 2 tasks:always"; do
	echo "  ${what%:*}"
	for part in task node srun; do echo "    $part $(callbacks $part "${what##*:}")"; done
done
echo "the whole srun, one node, ms: medians of $N rounds (quartiles)"
echo "  srun of 2 tasks without the plugin          $(median <without2)"
echo "  plugin, none of its options: added          $(paste loaded without2 | awk '{ print $1 - $2 }' | median)"
echo "  of that in srun (seen from srun --help)     $(paste help_loaded help_without | awk '{ print $1 - $2 }' | median)"
echo "  --hvd-bind=socket, 2 tasks: added           $(paste bound2 without2 | awk '{ print $1 - $2 }' | median)"
echo "hvd-map on the node                           $(median <map)"
