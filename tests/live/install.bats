#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# make install as root, programs that use what it installed, make uninstall. /etc and the loader's cache are copies.

load helpers

setup_file() {
	[ "$(id -u)" = 0 ] || skip "only root may tell the loader where libraries are"
	unshare --mount true 2>/dev/null || skip "no mount namespaces here"
	[ -e "$BUILD/libhvd.so" ] || skip "libhvd.so is not built (no PMIx headers)"
	[ -z "${SAN:-}" ] || skip "the library is built with sanitizers"
	rm -rf "$SCRATCH"
	mkdir -p "$SCRATCH"
}
teardown_file() { rm -rf --one-file-system "$SCRATCH"; }

@test "a program links with -lhvd and starts; after make uninstall nothing remains" {
	export PREFIX=$SCRATCH/prefix
	cp -a /etc "$SCRATCH/etc"
	mkdir -p "$PREFIX/lib" "$SCRATCH/cache/ldconfig"
	echo "$PREFIX/lib" >"$SCRATCH/etc/ld.so.conf.d/test.conf"
	# shellcheck disable=SC2016
	run unshare --mount --propagation private env -u MAKEFLAGS -u MAKELEVEL bash -ec '
		mount --bind "$SCRATCH/etc" /etc
		mount --bind "$SCRATCH/cache" /var/cache
		make -s -C "$TOP" install prefix="$PREFIX" slurm_plugindir="$PREFIX/slurm" >/dev/null
		# no plugin of Slurm is there: the line needs the whole path
		grep -qx "optional $PREFIX/slurm/spank_hvd.so" "$PREFIX/share/slurm-hvd/etc/plugstack.conf.d/hvd.conf"
		cmp "$TOP/LICENSE" "$PREFIX/share/doc/slurm-hvd/LICENSE"
		"${CC:-gcc}" -std=gnu11 -Wall -Wextra -Werror -I"$PREFIX/include" "$TOP/contrib/examples/mean.c" -L"$PREFIX/lib" -lhvd -o "$SCRATCH/mean"
		"$SCRATCH/mean"
		! command -v pkg-config >/dev/null || export PKG_CONFIG_PATH="$PREFIX/lib/pkgconfig"
		for p in "$PREFIX"/share/slurm-hvd/examples/*.c; do
			command -v pkg-config >/dev/null || break
			"${CC:-gcc}" -std=gnu11 -Wall -Wextra -Werror "$p" $(pkg-config --cflags --libs libhvd) -o "$SCRATCH/example"
			[ "$(pkg-config --variable=libdir libhvd)" = "$PREFIX/lib" ]
			[ "$(pkg-config --modversion libhvd)" = "$("$PREFIX/bin/hvd-bench" --version | cut -d" " -f2)" ]
		done
		make -s -C "$TOP" uninstall prefix="$PREFIX" slurm_plugindir="$PREFIX/slurm" >/dev/null
		if ldconfig -p | grep libhvd; then exit 1; fi
		find "$PREFIX" ! -type d'
	echo "$output"
	[ "$status" -eq 0 ]
	[[ $output == "rank 0 of 1, "*" mean 0.000" ]]
}

@test "an installation that fails half-way leaves every old file as it was, and says that it failed" {
	local file
	staged() { env -u MAKEFLAGS -u MAKELEVEL PATH="$1$PATH" make -s -C "$TOP" install-files DESTDIR="$SCRATCH/twice" prefix=/opt/hvd slurm_plugindir=/opt/hvd/slurm; }
	mkdir -p "$SCRATCH/bin" "$SCRATCH/twice/opt/hvd/slurm"
	staged ""
	cat >"$SCRATCH/bin/install" <<-'E'
		#!/bin/bash
		# a full disk: half of the file, and an error
		real=/usr/bin/install from=${*: -2:1} to=${*: -1}
		case $from in */"$BROKEN") ;; *) exec "$real" "$@" ;; esac
		[ ! -d "$to" ] || to=$to/$BROKEN
		head -c 1000 "$from" >"$to"
		exit 1
	E
	chmod 755 "$SCRATCH/bin/install"
	for file in slurm/spank_hvd.so lib/libhvd.so.0 bin/hvd-map; do
		[ -e "$SCRATCH/twice/opt/hvd/$file" ] || continue
		run env BROKEN="${file##*/}" bash -c "$(declare -f staged); staged '$SCRATCH/bin:'"
		echo "$file: status $status: $output"
		[ "$status" -ne 0 ]
		cmp "$SCRATCH/twice/opt/hvd/$file" "$BUILD/${file##*/}"
		[ -z "$(find "$SCRATCH/twice" -name '*.new')" ]
	done
}

@test "without the plugin, which Slurm's headers are needed for, make install does not say to enable it" {
	mkdir -p "$SCRATCH/part"
	cp "$BUILD/hvd-map" "$SCRATCH/part/"
	staged() { env -u MAKEFLAGS -u MAKELEVEL make -s -C "$TOP" install-files BUILD="$SCRATCH/part" DESTDIR="$SCRATCH/alone" prefix=/opt/hvd slurm_plugindir=/opt/hvd/slurm; }
	run staged
	echo "$output"
	[ "$status" -eq 0 ]
	[ -x "$SCRATCH/alone/opt/hvd/bin/hvd-map" ]
	[ -z "$output" ]
	: >"$SCRATCH/part/spank_hvd.so"
	run staged
	[ "$output" = 'Next: copy /opt/hvd/share/slurm-hvd/etc/plugstack.conf.d/hvd.conf to /etc/slurm/plugstack.conf.d/ (README.md, "For admins")' ]
}

@test "make install asks Slurm once for its plugin directory" {
	mkdir -p "$SCRATCH/fake"
	printf '#!/bin/sh\necho asked >>"%s/asked"\necho "PluginDir               = /opt/slurm/lib:/else"\n' "$SCRATCH" >"$SCRATCH/fake/scontrol"
	chmod 755 "$SCRATCH/fake/scontrol"
	env -u MAKEFLAGS -u MAKELEVEL PATH="$SCRATCH/fake:$PATH" make -s -C "$TOP" install DESTDIR="$SCRATCH/once" prefix=/opt/hvd
	[ "$(wc -l <"$SCRATCH/asked")" -eq 1 ]
	[ ! -e "$BUILD/spank_hvd.so" ] || [ -e "$SCRATCH/once/opt/slurm/lib/spank_hvd.so" ]
}

@test "PREFIX on make's command line means prefix; in the environment it is somebody else's" {
	[[ $(env -u MAKEFLAGS -u MAKELEVEL make -n -C "$TOP" install-files PREFIX=/opt/hvd) == *'"/opt/hvd/bin" '* ]]
	[[ $(env -u MAKEFLAGS -u MAKELEVEL PREFIX=/opt/hvd make -n -C "$TOP" install-files) == *'"/usr/local/bin" '* ]]
}

@test "make clean removes the directory that BUILD names and no other, and none that holds the sources" {
	local tree="$SCRATCH/clean/tree"
	mkdir -p "$tree/build/obj" "$tree/other/obj" "$tree/trainer/engine/cuda"
	cp "$TOP/Makefile" "$tree/"
	cp "$TOP/trainer/engine/cuda/cuda.mk" "$tree/trainer/engine/cuda/"
	clean() { run env -u MAKEFLAGS -u MAKELEVEL -u BUILD make -s -C "$tree" clean "$@"; }
	clean BUILD=other
	[ "$status" -eq 0 ]
	[ ! -e "$tree/other" ]
	[ -d "$tree/build/obj" ]
	for holds in . "$tree" ..; do
		clean BUILD="$holds"
		[ "$status" -ne 0 ]
		[[ $output == *"make clean: $holds holds the sources: nothing is removed"* ]]
		[ -e "$tree/Makefile" ]
	done
	clean
	[ "$status" -eq 0 ]
	[ ! -e "$tree/build" ]
	[ -e "$tree/Makefile" ]
}

@test "make uninstall leaves what is not its own in a directory for documents that others use, too" {
	local docs=$SCRATCH/docs/usr/share/doc
	staged() { env -u MAKEFLAGS -u MAKELEVEL make -s -C "$TOP" "$1" DESTDIR="$SCRATCH/docs" prefix=/usr docdir=/usr/share/doc slurm_plugindir=/usr/lib/slurm; }
	staged install-files
	[ -e "$docs/README.md" ]
	mkdir "$docs/others"
	echo theirs >"$docs/others/README"
	staged uninstall
	[ "$(find "$SCRATCH/docs" ! -type d)" = "$docs/others/README" ]
}

@test "programs find libhvd where a prefix has libraries as the system has them, and the batch script runs what was installed" {
	local libdir
	libdir=/opt/hvd/lib/$("${CC:-gcc}" -print-multiarch)
	staged() { env -u MAKEFLAGS -u MAKELEVEL make -s -C "$TOP" "$1" DESTDIR="$SCRATCH/lib" prefix=/opt/hvd libdir="$libdir" slurm_plugindir=/opt/hvd/slurm; }
	staged install
	# and the batch script runs what was installed
	bash -n "$SCRATCH/lib/opt/hvd/share/slurm-hvd/sbatch/chexnet.sbatch"
	grep -qxF 'srun --gpu-bind=socket --hvd /opt/hvd/bin/chexnet "$@"' "$SCRATCH/lib/opt/hvd/share/slurm-hvd/sbatch/chexnet.sbatch"
	for program in "$SCRATCH"/lib/opt/hvd/bin/*; do LD_LIBRARY_PATH='' "$program" --version; done
	staged uninstall
	[ -z "$(find "$SCRATCH/lib" ! -type d)" ]
}

@test "an installed chexnet finds its CUDA engine; after make uninstall that is gone too" {
	[ -e "$BUILD/libchexnet_cuda.so" ] || skip "libchexnet_cuda.so is not built (no nvcc)"
	staged() { env -u MAKEFLAGS -u MAKELEVEL make -s -C "$TOP" "$1" DESTDIR="$SCRATCH/staged" prefix=/opt/hvd slurm_plugindir=/opt/hvd/slurm; }
	(umask 077 && staged install)
	[ -z "$(find "$SCRATCH/staged" ! -perm -o=r)" ] # for all users, whatever root's umask
	# the memory of a training on a GPU that need not be here: the CUDA engine's answer
	run "$SCRATCH/staged/opt/hvd/bin/chexnet" bench --plan --gpu=h200 --batch=4
	echo "$output"
	[ "$status" -eq 0 ]
	staged uninstall
	[ -z "$(find "$SCRATCH/staged" ! -type d)" ]
}
