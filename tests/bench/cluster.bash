# SPDX-License-Identifier: Apache-2.0
# For measurements in a private cluster of two nodes: after `enter_cluster` the script runs inside it, and $dir is its own.
# shellcheck shell=bash disable=SC2034
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit 1
BUILD=$(realpath "${BUILD:-build}")
dir=$BUILD/tests/tmp/bench_$(basename "$0" .sh)
python=${PYTHON:-python3}

enter_cluster() { # OPTION of hvd-cluster up…
	if [ -n "${BENCH_INSIDE:-}" ]; then
		scontrol update PartitionName=all OverSubscribe=EXCLUSIVE # a job has all cores of its nodes: to one with --overcommit Slurm gives a single one, on both nodes the same
		# Slurm 24.11 lets a job of more tasks than cores wait for ever for a node of its own
		timeout -s KILL 10 srun -Q -O -N1 -n"$((1 + $(nproc)))" true || {
			echo "nodes are not exclusive here: this Slurm did not start a step of more tasks than cores on one that is"
			scontrol update PartitionName=all OverSubscribe=NO
		}
		return
	fi
	command -v srun >/dev/null || { echo "left out: Slurm is not installed"; exit 0; }
	[ -x "$BUILD/hvd-bench" ] || { echo "left out: $BUILD/hvd-bench is not built"; exit 0; }
	rm -rf "$dir"
	mkdir -p "$dir"
	# where this is ended, the cluster may not be yet: without its directory nothing could end it
	trap 'contrib/cluster/hvd-cluster --dir "$dir/cluster" down 2>/dev/null || true; rm -rf --one-file-system "$dir"' EXIT
	contrib/cluster/hvd-cluster --dir "$dir/cluster" --plugin none "$@" run env BENCH_INSIDE=1 BUILD="$BUILD" bash "$0"
	exit
}

# More tasks than cores: Slurm would put them all on one core.
step() { srun -Q --mpi=pmix --overcommit --cpu-bind=none "$@"; }

median() { sort -g | awk '{ v[NR] = $1 } END { print v[int((NR + 1) / 2)] }'; }
spread() { sort -g | awk '{ v[NR] = $1 } END { printf "%s … %s", v[1], v[NR] }'; }
ratio() { awk -v a="$1" -v b="$2" 'BEGIN { printf "%.2f", a / b }'; }

# Sets MPI to the rival's program; empty where there is no Open MPI. Open MPI's tasks yield while they wait: otherwise, with more
# tasks than cores, it is several times slower.
build_mpi_rival() {
	MPI=
	if ! command -v mpicc >/dev/null; then
		echo "rival left out: no mpicc (Debian: libopenmpi-dev openmpi-bin)"
		return
	fi
	mkdir -p "$dir"
	mpicc -O2 -o "$dir/rival_mpi" tests/bench/rival_mpi.c || return
	MPI=$dir/rival_mpi
	export OMPI_MCA_mpi_yield_when_idle=1 OMPI_MCA_btl_base_warn_component_unused=0 PMIX_MCA_gds=hash
}
