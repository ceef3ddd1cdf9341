#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# All-reduce of DenseNet-121's gradient (27.9 MB) and of 256 bytes by 4 ranks, on one node and on two; slowest rank. Each run
# is a median over rounds, every result is checked; runs take turns, and the table has the medians of N runs.
# hvd-bench checks libhvd's sums against the serial sum, bit for bit.
set -eu
# shellcheck source=tests/bench/cluster.bash
. "$(dirname "${BASH_SOURCE[0]}")/cluster.bash"
enter_cluster
N=${N:-5} BYTES=27872824
build_mpi_rival
gloo=
if "$python" -c 'import torch.distributed' 2>/dev/null; then
	gloo=tests/bench/rival_gloo.py
else
	echo "rival left out: $python has no PyTorch (Gloo); PYTHON=… names another"
fi
rivals=(${gloo:+gloo} ${MPI:+mpi mpi-without-cma})

run() { # WHO BYTES ROUNDS SRUN-OPTION…: microseconds
	local who=$1 bytes=$2 rounds=$3
	shift 3
	case $who in
	libhvd) step "$@" "$BUILD/hvd-bench" -b "$bytes" -e "$bytes" -n "$rounds" | awk 'END { print $3; exit $NF != 0 }' ;;
	mpi) step "$@" "$MPI" "$bytes" "$rounds" ;;
	mpi-without-cma) OMPI_MCA_btl_vader_single_copy_mechanism=none step "$@" "$MPI" "$bytes" "$rounds" ;;
	gloo)
		rm -f "$dir/store"
		GLOO_SOCKET_IFNAME=eth0 step "$@" "$python" "$gloo" "$dir/store" "$bytes" "$rounds"
		;;
	esac
}

row() { # TITLE BYTES ROUNDS SRUN-OPTION…
	local title=$1 who i ours
	shift
	for ((i = 0; i < N; i++)); do
		for who in libhvd "${rivals[@]}"; do
			run "$who" "$@" >"$dir/one" && cat "$dir/one" >>"$dir/$who" || echo "$who failed: $title" >&2
		done
	done
	ours=$(median <"$dir/libhvd")
	for who in libhvd "${rivals[@]}"; do
		[ ! -s "$dir/$who" ] || printf '%-28s %-16s %10s us (%s)%s\n' "$title" "$who" "$(median <"$dir/$who")" "$(spread <"$dir/$who")" \
			"$([ "$who" = libhvd ] || echo ": $(ratio "$(median <"$dir/$who")" "$ours") times libhvd's")"
		rm -f "$dir/$who"
	done
}

row "27.9 MB, one node" $BYTES 9 -N1 -n4
row "27.9 MB, two nodes" $BYTES 9 -N2 -n4
row "256 B, one node (goal 70)" 256 1000 -N1 -n4
row "256 B, two nodes (goal 70)" 256 1000 -N2 -n4
row "256 B, one node, 2 ranks" 256 1000 -N1 -n2
