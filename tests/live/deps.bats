#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# contrib/deps.sh: what it says and when; packages are hidden in a mount namespace, never removed. And tests/run: what it counts as failed, and where it runs no tests.
bats_require_minimum_version 1.5.0
load helpers

# COMMAND… where DIRECTORY is empty
without() {
	unshare --user --map-root-user --mount bash -c 'mount -t tmpfs tmpfs "$0" && exec "$@"' "$@"
}

# the same as an ordinary user
user_without() { without "$1" unshare --user --map-user=4243 "${@:2}"; }

setup_file() {
	[ -z "$("$TOP/contrib/deps.sh" --install check 2>&1)" ] || skip "packages are missing here already"
}

@test "all there: --install is silent, --list says so" {
	run -0 "$TOP/contrib/deps.sh" --install
	[ -z "$output" ]
	run -0 "$TOP/contrib/deps.sh" --list
	[ "$output" = "all packages are there" ]
}

@test "--list names the missing package and the command that installs it" {
	run -0 without /usr/include/cjson "$TOP/contrib/deps.sh" --list
	case ${lines[1]} in
	*apt-get*)
		[ "${lines[0]}" = "missing: libcjson-dev" ]
		[ "${lines[1]}" = "as root: apt-get install --no-install-recommends libcjson-dev" ]
		;;
	*) [ "${lines[0]}" = "missing: cjson-devel" ] ;;
	esac
}

@test "build, demo and check need more and more" {
	run -0 without /usr/include/slurm "$TOP/contrib/deps.sh" --list build
	[[ ${lines[0]} == "missing: "* ]]
	# bats puts a second bats in front of PATH
	export PATH=/usr/local/bin:/usr/bin:/bin
	run -0 unshare --user --map-root-user --mount bash -c 'mount --bind /dev/null "$(command -v bats)" && "$0" --list demo' "$TOP/contrib/deps.sh"
	[ "$output" = "all packages are there" ]
	run -0 unshare --user --map-root-user --mount bash -c 'mount --bind /dev/null "$(command -v bats)" && "$0" --list check' "$TOP/contrib/deps.sh"
	[ "${lines[0]}" = "missing: bats" ]
}

@test "tests of the runtime are linked where there is no NCCL" {
	local build=$BATS_TEST_TMPDIR/build test
	run -0 env -u MAKEFLAGS -u MAKELEVEL make -s -C "$TOP" -j2 HAVE_NCCL= CFLAGS=-O0 HARDEN=-fPIC BUILD="$build" "$build"/tests/test_runtime_{stamps,nccl,nccl_losses,choice}
	for test in stamps nccl nccl_losses; do
		run -0 "$build/tests/test_runtime_$test"
		[[ $output == *"built without nccl.h"* ]]
	done
}

@test "make fuzz builds where it is told to" {
	local build=$BATS_TEST_TMPDIR/build
	run -0 env -u MAKEFLAGS -u MAKELEVEL -u SAN -u DEBUG make -n -C "$TOP" fuzz BUILD="$build"
	[[ $output == *"$build/san/fuzz_spank 60"* && $output == *"-o $build/san/obj/"* && $output != *" build/"* ]]
}

@test "oneDNN is for tests alone: without it, or with a release that has another API, chexnet is built" {
	local include=$BATS_TEST_TMPDIR/include build=$BATS_TEST_TMPDIR/build
	run -0 make -s -C "$TOP" -n BUILD="$build" "$build/chexnet"
	[[ $output == *trainer/engine/cpu/cpu.c* && $output != *baseline.c* && $output != *-ldnnl* ]]
	mkdir -p "$include/oneapi/dnnl"
	local major minor
	while read -r major minor; do # Ubuntu 22.04 has 2.2
		printf '#define DNNL_VERSION_%s\n' "MAJOR $major" "MINOR $minor" >"$include/oneapi/dnnl/dnnl.h"
		run -0 make -s -C "$TOP" -n BUILD="$build" CC="gcc -I$include" all "$build/tests/test_trainer_cpu"
		[[ $output == *"oneDNN, which tests and benchmarks compare the CPU engine with: no oneDNN from 2.4 to 3"* ]]
		[[ $output == *"/chexnet "* && $output != *baseline.c* && $output != *-ldnnl* ]]
	done <<<$'1 9\n2 2\n2 3\n4 0'
	for minor in 2.4 3.0; do
		printf '#define DNNL_VERSION_%s\n' "MAJOR ${minor%.*}" "MINOR ${minor#*.}" >"$include/oneapi/dnnl/dnnl.h"
		run -0 make -s -C "$TOP" -n BUILD="$build" CC="gcc -I$include" "$build/tests/test_trainer_cpu"
		[[ $output == *baseline.c* && $output == *-ldnnl* ]]
	done
}

@test "Slurm, PMIx and hwloc may have prefixes of their own" {
	local site=$BATS_TEST_TMPDIR/site build=$BATS_TEST_TMPDIR/build part header library
	make_site() { env -u MAKEFLAGS -u MAKELEVEL make -s -C "$TOP" -j2 CFLAGS="-O0 -H" BUILD="$build" "$@"; }
	mkdir -p "$site"/{slurm,pmix,hwloc}/{include,lib} "$site/slurm/bin" "$site/slurm/lib64/slurm"
	for part in slurm pmix hwloc; do
		for header in /usr/include/"$part"* /usr/lib/*/pmix2/include/*; do
			[[ ! -e $header || ${header##*/} != "$part"* ]] || cp -r "$header" "$site/$part/include/"
		done
	done
	for library in libpmix.so.2 libhwloc.so.15; do
		part=${library%%.*}
		cp -L "$(PATH=$PATH:/sbin ldconfig -p | awk -v l=$library '$1 == l { print $NF; exit }')" "$site/${part#lib}/lib/"
	done
	: >"$site/slurm/lib64/slurm/task_affinity.so"
	run -0 make_site SLURM_HOME="$site/slurm" PMIX_HOME="$site/pmix" HWLOC_HOME="$site/hwloc" "$build"/{spank_hvd.so,hvd-map,libhvd.so,examples/mean}
	for header in slurm/include/slurm/spank.h hwloc/include/hwloc.h pmix/include/pmix.h; do grep -qF " $site/$header" <<<"$output"; done
	# their libraries are found without LD_LIBRARY_PATH, the plugin's too
	LD_DEBUG=libs run -0 "$build/hvd-map" --topology live
	grep -qF "calling init: $site/hwloc/lib/libhwloc.so.15" <<<"$output"
	LD_DEBUG=libs run env PMIX_NAMESPACE=1.0 PMIX_RANK=0 "$build/examples/mean"
	grep -qF "calling init: $site/pmix/lib/libpmix.so.2" <<<"$output"
	readelf -d "$build/spank_hvd.so" | grep -qF "[$site/hwloc/lib]"
	# Slurm's is known by the scontrol in PATH, be it a link; a wrong prefix is refused
	ln -s "$site/slurm/bin" "$site/bin"
	printf '#!/bin/sh\nexit 1\n' >"$site/slurm/bin/scontrol"
	chmod +x "$site/slurm/bin/scontrol"
	PATH=$site/bin:$PATH run -0 make_site -B -n "$build/spank_hvd.so"
	[[ $output == *"-isystem $site/slurm/include"* ]]
	PATH=$site/bin:$PATH run -0 make_site -n install-files DESTDIR="$BATS_TEST_TMPDIR/root"
	[[ $output == *"/root$site/slurm/lib64/slurm"* ]]
	run -2 make_site PMIX_HOME="$site/none" left-out
	[[ $output == *"PMIX_HOME=$site/none: there is no include/pmix.h"* ]]
}

@test "another release of Slurm, NCCL that came later, another version: make compiles anew what they are in, once" {
	local slurm=$BATS_TEST_TMPDIR/slurm build=$BATS_TEST_TMPDIR/build
	make_it() { run -0 env -u MAKEFLAGS -u MAKELEVEL -u SAN -u DEBUG make -C "$TOP" -j2 CFLAGS=-O0 HARDEN=-fPIC BUILD="$build" "$@"; }
	mkdir -p "$slurm/include"
	cp -r /usr/include/slurm "$slurm/include/"
	# as a package has it: older than what was built here
	sed -i 's/\(#define SLURM_VERSION_NUMBER 0x[0-9a-f]*\)[0-9a-f][0-9a-f]/\1ee/' "$slurm/include/slurm/slurm_version.h"
	find "$slurm" -exec touch -d 2020-01-01 {} +
	make_it "$build/spank_hvd.so"
	make_it "$build/spank_hvd.so" SLURM_HOME="$slurm"
	[[ $output == *"-c -o $build/obj/spank/spank_hvd.o"* ]]
	make_it "$build/spank_hvd.so" SLURM_HOME="$slurm"
	[[ $output == *"is up to date"* ]]

	make_it "$build/obj/runtime/choose.o" HAVE_NCCL=
	nm "$build/obj/runtime/choose.o" | grep -q ' T nccl_usable'
	mkdir -p "$build/obj/tests/unit"
	touch "$build/obj/tests/unit/test_runtime_nccl.o" # which passes over all without it
	make_it -n "$build/obj/tests/unit/test_runtime_nccl.o" HAVE_NCCL=y
	[[ $output == *"-c -o $build/obj/tests/unit/test_runtime_nccl.o"* ]]
	make_it "$build/obj/runtime/choose.o" HAVE_NCCL=y
	nm "$build/obj/runtime/choose.o" | grep -q ' U nccl_usable'
	# what is not found now was found when it was made
	make_it "$build/obj/runtime/choose.o" HAVE_NCCL=
	[[ $output == *"is up to date"* ]]

	make_it "$build/hvd-trace"
	make_it "$build/hvd-trace" VERSION=9.8.7
	[ "$("$build/hvd-trace" --version)" = "hvd-trace 9.8.7" ]
}

@test "a changed header is seen, however BUILD was written when its objects were made" {
	local build=$BATS_TEST_TMPDIR/build object=obj/spank/cpulist.o
	make_it() { run -0 env -u MAKEFLAGS -u MAKELEVEL -u SAN -u DEBUG make -C "$TOP" CFLAGS=-O0 HARDEN=-fPIC "$@"; }
	make_it BUILD="$build" "$build/$object"
	make_it BUILD="$build/../build" "$build/../build/$object"
	[[ $output == *"is up to date"* ]]
	for again in "$build" "$build/../build"; do
		make_it -n -W spank/cpulist.h BUILD="$again" "$again/$object"
		[[ $output == *"-c -o $again/$object"* ]]
	done
	local beside=./$(realpath --relative-to="$TOP" "$build") # which make itself takes the ./ from
	rm "$build/$object"
	make_it BUILD="$beside" "$beside/$object"
	make_it -n -W spank/cpulist.h BUILD="$build" "$build/$object"
	[[ $output == *"-c -o $build/$object"* ]]
}

@test "CFLAGS may have a _FORTIFY_SOURCE of its own, or no -O or -O0, which take none: no warning, and the caller's counts" {
	local flags build=$BATS_TEST_TMPDIR/build
	for flags in "-O2 -D_FORTIFY_SOURCE=3" "-O2 -Wp,-U_FORTIFY_SOURCE -Wp,-D_FORTIFY_SOURCE=3" -O0 -g -O2; do
		run -0 env -u MAKEFLAGS -u MAKELEVEL -u SAN -u DEBUG make -B -C "$TOP" BUILD="$build" STRICT=1 CFLAGS="$flags" "$build/obj/spank/cpulist.o"
		[[ $flags != -O2 || $output == *-D_FORTIFY_SOURCE=2* ]]
		[[ $flags == -O2 || $output != *-D_FORTIFY_SOURCE=2* ]]
	done
}

@test "make tests removes a test program whose source is gone, as tests/run would run it" {
	local build=$BATS_TEST_TMPDIR/build
	mkdir -p "$build/tests"
	touch "$build"/tests/test_{spank_argv,spank_gone}
	run -0 env -u MAKEFLAGS -u MAKELEVEL make -n -C "$TOP" BUILD="$build" tests
	[ "$(grep '^rm -f .*/test_' <<<"$output")" = "rm -f $build/tests/test_spank_gone" ]
}

@test "an ordinary user is told what to type; the demo cannot go on, the tests can" {
	run -1 user_without /usr/include/cjson "$TOP/contrib/deps.sh" --install demo
	[[ $output == "deps: missing: "*cjson*"; as root: "*install*cjson* ]]
	run -0 user_without /usr/include/cjson "$TOP/contrib/deps.sh" --install check
	[[ $output == "deps: missing: "*cjson* ]]
}

@test "apt-get fails: what it said first, each line once, and where the rest is" {
	local bin=$BATS_TEST_TMPDIR/bin
	mkdir "$bin"
	printf '%s\n' '#!/bin/sh' 'case "$*" in *update*) echo "W: Failed to fetch http://mirror  Temporary failure resolving" ;;' \
		'*) for i in 1 2 3 4 5 6 7 8 9; do echo "E: Unable to locate package $i"; done; exit 100 ;; esac' >"$bin/apt-get"
	chmod +x "$bin/apt-get"
	# where services are forbidden is a place of its own, too
	TMPDIR=$BATS_TEST_TMPDIR run -1 without /usr/sbin bash -c 'mount -t tmpfs tmpfs /usr/include/cjson && PATH=$1:$PATH exec "$0" --install build' "$TOP/contrib/deps.sh" "$bin"
	[ "${lines[1]}" = "W: Failed to fetch http://mirror  Temporary failure resolving" ] || [ "${lines[1]}" = "E: Unable to locate package 1" ]
	[ "$(grep -c '^W: ' <<<"$output")" -eq 1 ]
	[[ ${lines[11]} == "deps: apt-get failed; everything it said is in $BATS_TEST_TMPDIR/"* ]]
}

@test "a package that this release of the system lacks keeps no other away" {
	local bin=$BATS_TEST_TMPDIR/bin asked=$BATS_TEST_TMPDIR/asked
	mkdir "$bin"
	printf '%s\n' '#!/bin/sh' 'case $2 in libcjson-dev) ;; *) echo "  Candidate: 1.2-3" && seq 100000 ;; esac' >"$bin/apt-cache"
	printf '%s\n' '#!/bin/sh' "echo \"\$*\" >>'$asked'" 'case $* in *libcjson-dev*) exit 100 ;; esac' >"$bin/apt-get"
	chmod +x "$bin"/apt-*
	TMPDIR=$BATS_TEST_TMPDIR run -1 without /usr/sbin bash -c \
		'mount -t tmpfs tmpfs /usr/include/cjson && mount -t tmpfs tmpfs /usr/include/slurm && PATH=$1:$PATH exec "$0" --install build' "$TOP/contrib/deps.sh" "$bin"
	grep -q ' install .* libslurm-dev$' "$asked"
	[[ $output == *"deps: apt has no package libcjson-dev"$'\n'"deps: missing: "* ]]
}

@test "make without a compiler says that, not that every header is missing; a BUILD of two words is refused in one line" {
	run -0 env -u MAKEFLAGS -u MAKELEVEL make -s -C "$TOP" left-out CC=/nonexistent/gcc
	[ "${lines[0]}" = "left out: everything: /nonexistent/gcc cannot compile here (Debian: gcc libc6-dev)" ]
	run -2 env -u MAKEFLAGS -u MAKELEVEL make -C "$TOP" -s BUILD="$BATS_TEST_TMPDIR/b c" left-out
	[[ ${#lines[@]} -eq 1 && $output == *"make needs one path without spaces"* ]]
	# a build below a source tree whose own path has one: make needs no whole path, Slurm does
	run -1 env BUILD="$BATS_TEST_TMPDIR/b c/build" "$TOP/tests/run" no_such_test
	[[ ${#lines[@]} -eq 1 && $output == "tests/run: $BATS_TEST_TMPDIR/b c/build: slurm.conf cannot hold this path, choose another: make check BUILD=DIR" ]]
}

@test "wrong usage: exit status 64" {
	run -64 "$TOP/contrib/deps.sh"
	run -64 "$TOP/contrib/deps.sh" --install everything
	run -64 "$TOP/contrib/deps.sh" --list build demo
}

@test "tests/run runs nothing where a name is no test's, and says which" {
	mkdir -p "$BATS_TEST_TMPDIR/tests"
	printf '%s\n' '#!/bin/sh' 'echo 1..1' 'echo ok 1 - short' >"$BATS_TEST_TMPDIR/tests/test_short"
	chmod 755 "$BATS_TEST_TMPDIR/tests/test_short"
	run -0 env BUILD="$BATS_TEST_TMPDIR" "$TOP/tests/run" test_short
	run -64 env BUILD="$BATS_TEST_TMPDIR" "$TOP/tests/run" test_short "live options"
	[[ ${#lines[@]} -eq 1 && $output == "tests/run: no test here has live options in its name "* ]]
	run -64 env BUILD="$BATS_TEST_TMPDIR" "$TOP/tests/run" no_such_test
	[[ ${#lines[@]} -eq 1 && $output == "tests/run: no test here has no_such_test in its name "* ]]
}

@test "a second tests/run in the same build ends at once with a line, and spoils nothing of the first" {
	mkdir -p "$BATS_TEST_TMPDIR/tests"
	printf '%s\n' '#!/bin/bash' 'cd "${0%/*}"' 'setsid sleep 60 & echo $! >>left' 'until [ -e go ]; do sleep 0.1; done' 'echo 1..1' 'echo ok 1 - waits' >"$BATS_TEST_TMPDIR/tests/test_waits"
	chmod +x "$BATS_TEST_TMPDIR/tests/test_waits"
	BUILD=$BATS_TEST_TMPDIR "$TOP/tests/run" test_waits >"$BATS_TEST_TMPDIR/told" 2>&1 3>&- &
	wait_for 20 test -s "$BATS_TEST_TMPDIR/tests/left"
	run timeout 5 env BUILD="$BATS_TEST_TMPDIR" "$TOP/tests/run" test_waits
	touch "$BATS_TEST_TMPDIR/tests/go"
	echo "$output"
	[[ $status -eq 1 && $output == "tests/run: another tests/run works in $BATS_TEST_TMPDIR: wait for it, or choose another with BUILD=DIR" ]]
	wait $!
	[ "$(tail -n 1 "$BATS_TEST_TMPDIR/told")" = "1 passed, 0 failed, 0 skipped" ]
	# what a test left running does not keep the next one out
	run -0 env BUILD="$BATS_TEST_TMPDIR" "$TOP/tests/run" test_waits
	xargs kill <"$BATS_TEST_TMPDIR/tests/left"
}

@test "tests/slurm-releases says when another one works on a suite, and leaves its log alone" {
	[ "$(id -u)" -eq 0 ] || skip "needs root"
	local work=$BATS_TEST_TMPDIR/build/slurm-releases
	mkdir -p "$BATS_TEST_TMPDIR"/{tests,bin} "$work"
	cp "$TOP"/tests/{slurm-releases,debian_root.bash} "$BATS_TEST_TMPDIR/tests/"
	printf '#!/bin/sh\nexit 1\n' | tee "$BATS_TEST_TMPDIR/bin/"{debootstrap,unshare,apt-get} >/dev/null
	chmod +x "$BATS_TEST_TMPDIR"/bin/*
	export PATH=$BATS_TEST_TMPDIR/bin:$PATH
	echo "7 passed, 0 failed, 0 skipped" >"$work/sid.log"
	exec {held}>"$work/sid.lock"
	flock "$held"
	run -1 "$BATS_TEST_TMPDIR/tests/slurm-releases" sid -- true
	[ "$output" = "slurm-releases: another slurm-releases works on sid" ]
	run -1 "$BATS_TEST_TMPDIR/tests/slurm-releases" sid trixie
	echo "$output"
	[ "${lines[0]}" = "slurm-releases: another slurm-releases works on sid" ]
	[ "${lines[-2]}" = "sid: not run" ]
	[[ ${lines[-1]} == "trixie "*"$work/trixie.log" ]]
	[ "$(<"$work/sid.log")" = "7 passed, 0 failed, 0 skipped" ]
	exec {held}>&-
	run -1 "$BATS_TEST_TMPDIR/tests/slurm-releases" sid -- true
	[ "$output" = "slurm-releases: no root of sid: $work/sid.log" ]
}

@test "tests/run says why it runs no live tests where bats is older than they are" {
	mkdir -p "$BATS_TEST_TMPDIR/tests" "$BATS_TEST_TMPDIR/bin"
	printf '%s\n' '#!/bin/sh' 'echo 1..1' 'echo ok 1 - short' >"$BATS_TEST_TMPDIR/tests/test_short"
	printf '%s\n' '#!/bin/sh' 'echo Bats 1.2.1' >"$BATS_TEST_TMPDIR/bin/bats"
	chmod 755 "$BATS_TEST_TMPDIR"/{tests/test_short,bin/bats}
	run -0 env BUILD="$BATS_TEST_TMPDIR" PATH="$BATS_TEST_TMPDIR/bin:$PATH" "$TOP/tests/run"
	echo "$output"
	[[ $output == *"live tests left out: Bats 1.2.1; they need bats 1.5 or later"$'\n'"1 passed, 0 failed, 0 skipped" ]]
}

@test "tests/run counts a program as failed that fails, dies, stops early, says nothing or takes too long, and hides the words of a cluster around it" {
	local name
	mkdir -p "$BATS_TEST_TMPDIR/tests"
	program() { printf '%s\n' '#!/bin/bash' "${@:2}" >"$BATS_TEST_TMPDIR/tests/test_$1" && chmod +x "$BATS_TEST_TMPDIR/tests/test_$1"; }
	program fails 'echo 1..1' 'echo not ok 1 - a'
	program dies 'echo 1..1' 'echo ok 1 - a' 'kill -SEGV $$'
	program stops 'echo 1..2' 'echo ok 1 - a'
	program silent :
	program slow 'echo 1..1' 'exec sleep 100'
	# and one that compiles, where CC is more than one word
	program compiles 'echo 1..1' '"$CC" --version >&2 && echo ok 1 - a'
	# what the user's own cluster is to do is not for the tests'
	program asks 'echo 1..1' '[ "${SLURM_PARTITION-}${SBATCH_PARTITION-}${HVD_IFACE-}${SLURM_HOME-}" = /opt ] && echo ok 1 - a'
	SLURM_PARTITION=none SBATCH_PARTITION=none HVD_IFACE=ib7 SLURM_HOME=/opt run -1 env BUILD="$BATS_TEST_TMPDIR" CC="env gcc" TEST_LIMIT=2 "$TOP/tests/run" test_
	echo "$output"
	for name in fails dies stops silent slow; do [[ $output == *"failed: test_$name: not ok "* ]]; done
	[ "${lines[-1]}" = "4 passed, 5 failed, 0 skipped" ]
}

@test "tests/run heeds Ctrl-C at once, and what it ran has ended" {
	local runner
	mkdir -p "$BATS_TEST_TMPDIR/tests"
	printf '%s\n' '#!/bin/bash' "echo \$\$ >'$BATS_TEST_TMPDIR/pid'" 'exec sleep 100' >"$BATS_TEST_TMPDIR/tests/test_sleeps"
	chmod +x "$BATS_TEST_TMPDIR/tests/test_sleeps"
	BUILD=$BATS_TEST_TMPDIR env --default-signal=INT "$TOP/tests/run" test_sleeps >"$BATS_TEST_TMPDIR/told" 2>&1 3>&- &
	runner=$!
	wait_for 20 test -s "$BATS_TEST_TMPDIR/pid"
	kill -INT $runner
	ended() { ! grep -qs '^State:.[^ZX]' /proc/$runner/status; }
	wait_for 10 ended || { kill "$(<"$BATS_TEST_TMPDIR/pid")" && false; }
	run -130 wait $runner
	[ ! -e "/proc/$(<"$BATS_TEST_TMPDIR/pid")" ]
}
