#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# hvd-map as a user types it, and the plugin as a file. No cluster.

load helpers

setup_file() {
	[ -x "$BUILD/hvd-map" ] || skip "hvd-map is not built (no hwloc headers)"
	rm -rf "$SCRATCH"
	mkdir -p "$SCRATCH"
	"$TOP/contrib/cluster/make_inventory" cores=4 gpus=4 gpu_order=interleave numa=package "$SCRATCH" >/dev/null
}
teardown_file() { rm -rf "$SCRATCH"; }

map() { "$BUILD/hvd-map" --topology "$SCRATCH/topology.xml" --proc "$SCRATCH/proc" "$@"; }

@test "the plugin shows Slurm its entry points and nothing else, and is hardened" {
	need_plugin
	[ -z "${SAN:-}" ] || skip "the plugin is built with sanitizers"
	local names
	names=$(nm -D --defined-only "$BUILD/spank_hvd.so" | awk '{ print $3 }')
	echo "$names"
	[ -z "$(grep -v '^slurm_spank_\|^plugin_\|^spank_plugin_version$' <<<"$names")" ]
	[ "$(wc -l <<<"$names")" -le 12 ]
	readelf -lW "$BUILD/spank_hvd.so" >"$SCRATCH/segments"
	grep -q GNU_RELRO "$SCRATCH/segments"
	grep -q 'GNU_STACK.* RW ' "$SCRATCH/segments"
	readelf -dW "$BUILD/spank_hvd.so" >"$SCRATCH/dynamic"
	grep -Eq 'BIND_NOW|FLAGS.*NOW' "$SCRATCH/dynamic"
	# not Slurm's library, which has another version in every release, and not hwloc, which clients do without
	[ "$(grep -c '(NEEDED)' "$SCRATCH/dynamic")" -eq "$(grep -c '(NEEDED).*\[libc\.so' "$SCRATCH/dynamic")" ]
	! grep -Eq 'RPATH|RUNPATH' "$SCRATCH/dynamic" || false
}

@test "nothing that could start a process or a shell is even linked" {
	need_plugin
	[ -z "${SAN:-}" ] || skip "the plugin is built with sanitizers"
	! nm -D --undefined-only "$BUILD/spank_hvd.so" | grep -E ' (fork|vfork|clone|exec[a-z]*|posix_spawn[a-z]*|system|popen)(@|$)' || false
}

@test "an ordinary user can ask, and gets the contract's JSON" {
	output=$(map --tasks 2 --policy numa --json 2>"$SCRATCH/warnings")
	echo "$output"
	[ "$output" = '[{"task":0,"gpus":["0000:15:00.0"],"cpus":"0-3","numa":[0],"package":[0],"nic":"mlx5_0","threads":3,"distance":0},
 {"task":1,"gpus":["0000:1b:00.0"],"cpus":"4-7","numa":[1],"package":[1],"nic":"mlx5_1","threads":3,"distance":0}]' ]
	[ "$(cat "$SCRATCH/warnings")" = 'hvd-map: no task uses GPU 0000:21:00.0 0000:27:00.0' ]
	[ "$(id -u)" = 0 ] || return 0
	chmod -R a+rX "$SCRATCH"
	setpriv --reuid 65534 --regid 65534 --clear-groups test -r "$SCRATCH/topology.xml" || skip "others may not enter this directory"
	run setpriv --reuid 65534 --regid 65534 --clear-groups "$BUILD/hvd-map" --topology "$SCRATCH/topology.xml" --json
	[ "$status" -eq 0 ]
	[[ $output == '[{"task":0,'* ]]
}

@test "escapes in a description that somebody sent do not reach the terminal" {
	sed 's/name="mlx5_0"/name="\x1b[31mmlx5_0"/; s/\(<info name="PCIDevice" value="\)/\1\x1b[32m/' "$SCRATCH/topology.xml" >"$SCRATCH/sent.xml"
	grep -q $'\033' "$SCRATCH/sent.xml"
	run "$BUILD/hvd-map" --topology "$SCRATCH/sent.xml" --proc "$SCRATCH/proc"
	echo "$output"
	[ "$status" -eq 0 ]
	[[ $output == *"NIC [31mmlx5_0, "* ]]
	! grep -q $'\033' <<<"$output" || false
}

@test "each option decides what it says" {
	"$TOP/contrib/cluster/make_inventory" cores=2 threads=2 gpus=4 gpu_order=interleave numa=package minors=3,2,1,0 "$SCRATCH/smt" >/dev/null
	"$TOP/contrib/cluster/make_inventory" sockets=3 gpus=0 "$SCRATCH/bare" >/dev/null
	plan() { # DIRECTORY [OPTION…]: "GPU CPUs" for each task
		"$BUILD/hvd-map" --topology "$SCRATCH/$1/topology.xml" "${@:2}" --json 2>"$SCRATCH/warnings" |
			python3 -c 'import json, sys; print(*(",".join(g[5:7] for g in t["gpus"]) + " " + t["cpus"] for t in json.load(sys.stdin)), sep="; ")'
	}
	[ "$(plan smt)" = '15 0-1,4-5; 1b 2-3,6-7; 21 0-1,4-5; 27 2-3,6-7' ]
	[ "$(plan smt --policy pack)" = '15 0-1,4-5; 21 0-1,4-5; 1b 2-3,6-7; 27 2-3,6-7' ]
	[ "$(plan smt --policy smt=off --tasks 2)" = '15 0-1; 1b 2-3' ]
	[ "$(plan smt --policy gpus-per-task=2)" = '15,21 0-1,4-5; 1b,27 2-3,6-7' ]
	[ "$(plan smt --policy share --tasks 5 | grep -o ';' | wc -l)" -eq 4 ]
	[ "$(plan smt --gpus 3,0000:15:00.0)" = '15 0-1,4-5; 27 2-3,6-7' ]
	[ "$(plan smt --cpus 1,3,7 --gpus 0,1)" = '15 1; 1b 3,7' ]
	[ "$(plan bare)" = ' 0;  1;  2' ]
	plan . --cpus 0,4-6
	grep '^hvd-map: 2 tasks share 1 core near their GPUs, of the step'"'"'s 4: ' "$SCRATCH/warnings"
	# as plugstack.conf has it
	echo AutoDetect=nvml >"$SCRATCH/auto.conf"
	for words in '' '--numbers minor' '--numbers bus'; do
		# shellcheck disable=SC2086
		run "$BUILD/hvd-map" selfcheck --gres "$SCRATCH/auto.conf" --topology "$SCRATCH/smt/topology.xml" --proc "$SCRATCH/smt/proc" $words
		echo "$output"
		[ "$words: $status" = "$words: $([ "$words" = '--numbers bus' ] && echo 0 || echo 65)" ]
	done
}

@test "memory is the main one of the CPUs, not the HBM that has the same ones" {
	mkdir -p "$SCRATCH/hbm"
	sed 's/nodeset="0x00000001"/nodeset="0x00000005"/g; s/nodeset="0x00000003"/nodeset="0x00000007"/g
		/<object type="NUMANode" os_index="0"/ { s/0x00000005/0x00000001/g; h; s/os_index="0"/os_index="2"/; s/nodeset="0x00000001"/nodeset="0x00000004"/g; s/gp_index="[0-9]*"/gp_index="999"/; s|>$|/>|; G }' \
		"$SCRATCH/topology.xml" >"$SCRATCH/hbm/topology.xml"
	run "$BUILD/hvd-map" --topology "$SCRATCH/hbm/topology.xml" --json
	echo "$output"
	[ "$(grep -o '"numa":[^"]*' <<<"$output" | xargs)" = 'numa:[0], numa:[1], numa:[0], numa:[1],' ]
}

@test "wrong words are 64, wrong files 65, each with a line" {
	run map --tasks 9
	[ "$status" -eq 64 ]
	[ "$output" = "hvd-map: 9 tasks but 4 GPUs" ]
	run map --policy soket
	[ "$status" -eq 64 ]
	[[ $output == *"unknown key 'soket', the nearest known one is 'socket'"* ]]
	run map --gpus 7
	[ "$status" -eq 64 ]
	[[ $output == *"no GPU '7' here (there are 4)"* ]]
	run map --gpus 1,2,0000:1b:00.0
	[ "$status" -eq 64 ]
	[ "$output" = "hvd-map: --gpus: the same GPU twice" ]
	run map selfcheck again
	[ "$status" -eq 64 ]
	[[ $output == "hvd-map: 'again' is not an option"* ]]
	if [ -c /dev/full ]; then
		run bash -c '"$@" >/dev/full' - "$BUILD/hvd-map" --topology "$SCRATCH/topology.xml" --json
		[ "$status" -eq 1 ]
		[[ $output == *"hvd-map: the output cannot be written" ]]
		for word in --help --version; do
			run bash -c '"$@" >/dev/full' - "$BUILD/hvd-map" "$word"
			[ "$status" -eq 1 ]
			[ "$output" = "hvd-map: the output cannot be written" ]
		done
	fi
	run "$BUILD/hvd-map" --topology "$SCRATCH/nothing.xml"
	[ "$status" -eq 65 ]
	[[ $output == *"nothing.xml: No such file or directory"* ]]
	for words in "--topology" "selfcheck --gres"; do
		[ -e /sys/class/net/lo/speed ] || continue # which can be opened and, of this device, not be read
		# shellcheck disable=SC2086 # words
		run "$BUILD/hvd-map" $words /sys/class/net/lo/speed
		[ "$status" -eq 65 ]
		[[ $output == *"/sys/class/net/lo/speed: Invalid argument"* ]]
	done
	run "$BUILD/hvd-map" --topology "$SCRATCH/gres.conf"
	[ "$status" -eq 65 ]
	[[ $output == *"not an hwloc 2 topology"* ]]
}

@test "--users names the process that holds a GPU's memory; MIG instances keep their names" {
	mkdir -p "$SCRATCH/lib"
	"${CC:-gcc}" -shared -fPIC -o "$SCRATCH/lib/libnvidia-ml.so.1" "$BATS_TEST_DIRNAME/nvml.c"
	[ -z "${SAN:-}" ] || skip "hvd-map is built with sanitizers"
	run env LD_LIBRARY_PATH="$SCRATCH/lib" NVML_USER=$$ "$BUILD/hvd-map" --topology "$SCRATCH/topology.xml" --proc "$SCRATCH/proc" --users
	echo "$output"
	grep -qx "hvd-map: GPU 0000:1b:00.0 already holds memory of [^ ]* (pid $$, uid $(id -u), 5.0 GiB)" <<<"$output"
	[ "$(grep -c 'already holds' <<<"$output")" -eq 1 ]
	run map --gpus MIG-2f1c2a8e,1b --json
	[ "$status" -eq 64 ]
	run map --gpus MIG-2f1c2a8e,MIG-2f1c2a8e --json
	[ "$status" -eq 64 ]
	run map --gpus MIG-2f1c2a8e,1 --json
	echo "$output"
	grep -q '"gpus":\["MIG-2f1c2a8e"\]' <<<"$output"
	# the only GPU of the node that is divided must be the one
	mkdir -p "$SCRATCH/proc/capabilities/gpu1/mig/gi3"
	run map --gpus MIG-2f1c2a8e --json
	rm -r "$SCRATCH/proc/capabilities"
	echo "$output"
	[[ $output == '[{"task":0,"gpus":["MIG-2f1c2a8e"],"cpus":"4-7",'* ]]
}

@test "the slower of different GPUs is named" {
	sed -i 's/^Model:.*/Model: \t\t Tesla T4/' "$SCRATCH"/proc/gpus/*1b*/information
	sed -i 's/^Model:.*/Model: \t\t NVIDIA A100-SXM4-80GB/' "$SCRATCH"/proc/gpus/*15*/information
	run map --gpus 0,1
	echo "$output"
	grep -q 'the slower GPU here is 0000:1b:00.0, a Tesla T4 with 320 GB/s' <<<"$output"
}

@test "selfcheck finds gres.conf beside slurm.conf, and the wrong core" {
	unset SLURMD_NODENAME
	printf 'NodeName=%s Name=gpu File=/dev/nvidia[0,2] Cores=0-3\nName=gpu File=/dev/nvidia[1,3] Cores=3-7\n' "$(hostname -s)" >"$SCRATCH/gres.conf"
	SLURM_CONF=$SCRATCH/slurm.conf run map selfcheck
	echo "$output"
	[ "$status" -eq 65 ]
	[ "$(grep -c ': on its socket$' <<<"$output")" -eq 2 ]
	[ "$(grep -c 'has Cores=3-7, but its socket has the cores 4-7: write Cores=4-7$' <<<"$output")" -eq 2 ]
	# whom Slurm calls otherwise than its host name
	printf 'NodeName=gpu[1-4] Name=gpu File=/dev/nvidia[0,2] Cores=0-3\nNodeName=gpu[1-4] Name=gpu File=/dev/nvidia[1,3] Cores=4-7\n' >"$SCRATCH/nodes.conf"
	run map selfcheck --gres "$SCRATCH/nodes.conf"
	[ "$status" -eq 65 ]
	[ "${lines[0]}" = "WRONG: gres.conf names 0 GPUs, and there are 4: it has lines for other nodes than $(hostname -s); if that is not Slurm's name of this one, set SLURMD_NODENAME to it" ]
	SLURMD_NODENAME=gpu3 run map selfcheck --gres "$SCRATCH/nodes.conf"
	echo "$output"
	[ "$(grep -c ': on its socket$' <<<"$output")" -eq 4 ]
	# before the driver is there
	run "$BUILD/hvd-map" selfcheck --topology "$SCRATCH/topology.xml" --gres "$SCRATCH/gres.conf"
	echo "$output"
	[ "$status" -eq 65 ]
	[[ $output == 'NOT CHECKED: 4 GPUs, but no driver that says which device file is whose: load it and check again, or '* ]]
	[ ! -e /etc/slurm/gres.conf ] && [ ! -e /run/slurm/conf/gres.conf ] || return 0
	SLURM_CONF='' run map selfcheck
	[ "$status" -eq 65 ]
	[[ $output == *"hvd-map: /etc/slurm/gres.conf: No such file or directory: name yours with --gres FILE" ]]
}

@test "a picture of node and tasks" {
	run map --svg "$SCRATCH/node.svg"
	[ "$status" -eq 0 ]
	[ "$(grep -c '>GPU 0000:' "$SCRATCH/node.svg")" -eq 4 ]
	[ "$(grep -c 'task [0-3]: GPU' "$SCRATCH/node.svg")" -eq 4 ]
	[[ $(tail -n 1 "$SCRATCH/node.svg") == '</svg>' ]]
	grep -q '>socket 0: 4 cores, ' "$SCRATCH/node.svg"
	mkdir "$SCRATCH/lone"
	"$TOP/contrib/cluster/make_inventory" "$SCRATCH/lone" >/dev/null
	"$BUILD/hvd-map" --topology "$SCRATCH/lone/topology.xml" --svg "$SCRATCH/lone/node.svg" >/dev/null
	grep -q '>socket 0: 1 core, ' "$SCRATCH/lone/node.svg"
	# the old picture stays until the new one is whole, and so does a link to it
	ln -s node.svg "$SCRATCH/link.svg"
	cp "$SCRATCH/node.svg" "$SCRATCH/old.svg"
	run bash -c 'ulimit -f 1; exec "$@"' - "$BUILD/hvd-map" --topology "$SCRATCH/topology.xml" --proc "$SCRATCH/proc" --tasks 2 --svg "$SCRATCH/link.svg"
	[ "$status" -eq 1 ]
	[[ $output == *"link.svg: cannot be written: File too large"* ]]
	cmp "$SCRATCH/node.svg" "$SCRATCH/old.svg"
	map --tasks 2 --svg "$SCRATCH/link.svg" >/dev/null
	[ -L "$SCRATCH/link.svg" ]
	[ "$(grep -c 'task [0-9]: GPU' "$SCRATCH/node.svg")" -eq 2 ]
	[ "$(cd "$SCRATCH" && echo *.svg*)" = "link.svg node.svg old.svg" ]
	if [ "$(id -u)" -eq 0 ]; then # and where root draws over a user's, it is the same file still, as no new one is given away
		chown 4242:4343 "$SCRATCH/node.svg"
		mine=$(stat -c %i:%u:%g "$SCRATCH/node.svg")
		map --svg "$SCRATCH/node.svg" >/dev/null
		[ "$(stat -c %i:%u:%g "$SCRATCH/node.svg")" = "$mine" ]
	fi
	# where nothing can be made beside it, it is written over; another file that has come there meanwhile is not
	local long
	long=$SCRATCH/$(printf '%0250d' 0)
	(cat "$SCRATCH/node.svg" && echo) >"$long"
	map --tasks 2 --svg "$long" >/dev/null
	map --tasks 2 --svg "$SCRATCH/node.svg" >/dev/null
	cmp "$long" "$SCRATCH/node.svg"
	exchanges "$long" "hvd-map: $long: another file has taken its place meanwhile" "$BUILD/hvd-map" --topology "$SCRATCH/topology.xml" --svg "$long"
	[ "$status" -eq 1 ]
	rm "$long"
	# with the table on standard output, behind it
	map >"$SCRATCH/table"
	map --svg "$SCRATCH/node.svg" >/dev/null
	map --svg /dev/stdout >"$SCRATCH/both"
	cmp "$SCRATCH/both" <(cat "$SCRATCH/table" "$SCRATCH/node.svg")
	echo precious >"$SCRATCH/thesis"
	run map --svg "$SCRATCH/thesis"
	[ "$status" -eq 64 ]
	[[ $output == *"thesis is there and no SVG: name another file, or remove it first"* ]]
	[ "$(cat "$SCRATCH/thesis")" = precious ]
	if [ -e /sys/class/net/lo/speed ]; then # which can be opened and, of this device, not be read
		run map --svg /sys/class/net/lo/speed
		[ "$status" -eq 1 ]
		[[ $output == *"/sys/class/net/lo/speed is there and cannot be read: Invalid argument: name another file"* ]]
	fi
	run map --svg "$SCRATCH/nowhere/node.svg"
	[ "$status" -eq 1 ]
	[[ $output == *"nowhere/node.svg: cannot be written: No such file or directory"* ]]
	run map --svg /dev/full
	[ "$status" -eq 1 ]
	[[ $output == *"/dev/full: cannot be written: No space left on device"* ]]
}

@test "every option stands in the usage and in the manual's synopsis" {
	local option options usage synopsis
	usage=$("$BUILD/hvd-map" --help | sed '/^ *hvd-map selfcheck/,$d')
	synopsis=$(sed -n '/^\.SH SYNOPSIS/,/selfcheck$/{s/\\//g;p}' "$TOP/spank/hvd-map.1")
	options=$("$BUILD/hvd-map" --help | sed -n 's/^  \(--[a-z-]*\) .*/\1/p' | grep -v '^--version\|^--gres\|^--numbers')
	[ "$(wc -l <<<"$options")" -ge 6 ]
	for option in $options; do
		echo "$option"
		[[ $usage == *"[$option"* && $synopsis == *"[ $option"* ]]
	done
}
