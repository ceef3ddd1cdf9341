# SPDX-License-Identifier: Apache-2.0
# For the tests of placement: what tasks see, and what the machine's description says should be there.
# shellcheck shell=bash disable=SC2034,SC2154

# What a task sees, a line: host, local rank, its CPUs, its GPUs. The number of threads comes from the variable.
# shellcheck disable=SC2016
look='echo "task $(hostname) $SLURM_LOCALID $(taskset -cp $$ | sed "s/.*: //") ${CUDA_VISIBLE_DEVICES-unset}"'

tasks() { grep '^task ' <<<"$output" | sort; }

# "0-2,5" to "0 1 2 5 ", and "0-6:2", as newer tasksets print it, to "0 2 4 6 "
cpu_numbers() {
	local part stride numbers=()
	for part in ${1//,/ }; do
		stride=1
		[[ $part != *:* ]] || stride=${part#*:} part=${part%:*}
		# shellcheck disable=SC2207
		numbers+=($(seq "${part%-*}" "$stride" "${part#*-}"))
	done
	printf '%s\n' "${numbers[@]}" | sort -nu | tr '\n' ' '
}

# "0x00000001,0x000000f0" to "4 5 6 7 32 ", the form in which hwloc writes a cpuset
mask_numbers() {
	local words bit cpu=0 i
	IFS=, read -ra words <<<"$1"
	for ((i = ${#words[@]} - 1; i >= 0; i--)); do
		for ((bit = 0; bit < 32; bit++, cpu++)); do
			(( (words[i] >> bit) & 1 )) && printf '%s ' "$cpu"
		done
	done
	return 0
}

gpu_bus() { # UUID: its PCI address, from the driver's files
	grep -l "GPU UUID:.*$1\$" "$CLUSTER"/proc/gpus/*/information | sed 's|.*gpus/||; s|/information||'
}

package_cpus() { # PCI address: the CPUs of its package, from the topology file
	mask_numbers "$(awk -v bus="$1" '
		/<object type="Package"/ { match($0, /cpuset="[^"]*"/); set = substr($0, RSTART + 8, RLENGTH - 9) }
		index($0, "pci_busid=\"" bus "\"") { print set }' "$CLUSTER/topology.xml")"
}

# Every line of tasks: exactly one GPU, all different on a node unless shared, and exactly the CPUs of that GPU's package.
tasks_are_near_their_gpus() { # NUMBER OF TASKS [shared]
	local task host local_rank cpus uuid bus
	[ "$(tasks | wc -l)" -eq "$1" ]
	[ "${2-}" = shared ] || [ -z "$(tasks | awk '{ print $2, $5 }' | sort | uniq -d)" ]
	while read -r task host local_rank cpus uuid; do
		bus=$(gpu_bus "$uuid")
		[ -n "$bus" ]
		[[ $uuid != *,* ]]
		echo "$host task $local_rank: GPU $bus, CPUs $(cpu_numbers "$cpus")of $(package_cpus "$bus")"
		[ "$(cpu_numbers "$cpus")" = "$(package_cpus "$bus")" ]
	done < <(tasks)
}

tasks_of_nodes() { # "2 2": how many tasks each node has
	echo "$output"
	[ "$status" -eq 0 ]
	[ "$(tasks | cut -d' ' -f2 | uniq -c | awk '{ print $1 }' | xargs)" = "$1" ]
}
