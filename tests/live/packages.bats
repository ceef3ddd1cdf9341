#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# RPMs and Debian packages of what is built here: nothing is left out of them, and what comes out of them runs.

load helpers

setup_file() {
	local part
	for part in spank_hvd.so hvd-map libhvd.so.0 chexnet; do
		[ -e "$BUILD/$part" ] || skip "$part is not built"
	done
	[ -z "${SAN:-}" ] || skip "what is built here is built with sanitizers"
	rm -rf "$SCRATCH"
	mkdir -p "$SCRATCH/tmp"
	export HOME=$SCRATCH TMPDIR=$SCRATCH/tmp VERSION
	VERSION=$(sed -n 's/^VERSION *:= //p' "$TOP/Makefile")
	RELEASE=$(printf '#include <slurm/slurm.h>\nSLURM_VERSION_NUMBER\n' | "${CC:-gcc}" -E -x c - | tail -n 1)
	RELEASE=$(printf '%d.%02d' $((RELEASE >> 16)) $((RELEASE >> 8 & 255)))
	export RELEASE
}
teardown_file() { rm -rf --one-file-system "$SCRATCH"; }

# The sources as they are, where a package may put files of its own, and BUILD with what is built of them.
copy_tree() { # DIRECTORY
	mkdir -p "$1"
	cp -a "$TOP"/{Makefile,spank,runtime,trainer,etc,contrib,README.md,LICENSE} "$1/"
	mkdir "$1/tests"
}

# A PREFIX that packages were unpacked into.
runs() { # PREFIX LIBRARIES
	local program
	for program in chexnet hvd-bench hvd-trace hvd-map; do
		[[ $(LD_LIBRARY_PATH=$2 "$1/bin/$program" --version) == *" $VERSION"* ]]
	done
	grep -q '^optional .*spank_hvd.so$' "$1/share/slurm-hvd/etc/plugstack.conf.d/hvd.conf"
}

@test "rpmbuild makes RPMs of the tree, and the plugin's asks for the release of Slurm that it was built for" {
	local rpm rpms=$SCRATCH/rpm/RPMS/$(uname -m) cuda=
	command -v rpmbuild >/dev/null || skip "no rpmbuild (package rpm)"
	[ ! -e "$BUILD/libchexnet_cuda.so" ] || cuda="--with cuda"
	copy_tree "$SCRATCH/rpm/tree"
	cd "$SCRATCH/rpm/tree"
	# shellcheck disable=SC2086
	run env -u MAKEFLAGS -u MAKELEVEL rpmbuild -bb --build-in-place --nodeps $cuda --define "_topdir $SCRATCH/rpm" --define "_tmppath $TMPDIR" \
		--define "debug_package %{nil}" --dbpath "$SCRATCH/rpm/db" contrib/packaging/slurm-hvd.spec
	echo "$output"
	[ "$status" -eq 0 ]
	mkdir "$SCRATCH/rpm/root"
	cd "$SCRATCH/rpm/root"
	for rpm in slurm-hvd libhvd libhvd-devel chexnet; do
		rpm=$rpms/$rpm-$VERSION-1.slurm$RELEASE$(rpm --eval '%{?dist}').$(uname -m).rpm
		rpm2archive - <"$rpm" | tar -xz
	done
	rpm -qp --dbpath "$SCRATCH/rpm/db" --requires "$rpms/slurm-hvd-$VERSION"-*.rpm >"$SCRATCH/requires"
	grep -qxF "(slurm >= $RELEASE with slurm < $RELEASE.99)" "$SCRATCH/requires"
	grep -qxF "libhwloc.so.15()(64bit)" "$SCRATCH/requires"
	rpm -qp --dbpath "$SCRATCH/rpm/db" --requires "$rpms/chexnet-$VERSION"-*.rpm | grep -qxF "libhvd.so.0()(64bit)"
	[ -e usr/lib64/slurm/spank_hvd.so ]
	runs "$PWD/usr" "$PWD/usr/lib64"
}

@test "dpkg's tools make Debian packages of the tree, and the plugin's asks for the release of Slurm that it was built for" {
	local deb debs=$SCRATCH/deb
	command -v dh >/dev/null || skip "no debhelper"
	copy_tree "$debs/tree"
	cp -r "$TOP/contrib/packaging/debian" "$debs/tree/"
	cd "$debs/tree"
	run env -u MAKEFLAGS -u MAKELEVEL DEB_BUILD_OPTIONS="noautodbgsym nostrip" debian/rules binary
	echo "$output"
	[ "$status" -eq 0 ]
	mkdir "$debs/root"
	for deb in slurm-hvd libhvd0 hvd-tools libhvd-dev chexnet; do
		deb=$(echo "$debs/${deb}_$VERSION"-*.deb)
		dpkg-deb -x "$deb" "$debs/root"
	done
	[[ $(dpkg-deb -f "$(echo "$debs/slurm-hvd_$VERSION"-*.deb)" Depends) == *"slurm-wlm-basic-plugins (>= $RELEASE), slurm-wlm-basic-plugins (<< $RELEASE.99)"* ]]
	[[ $(dpkg-deb -f "$(echo "$debs/chexnet_$VERSION"-*.deb)" Depends) == *"libhvd0 ("* ]]
	[ -e "$debs"/root/usr/lib/*/slurm-wlm/spank_hvd.so ]
	# of the plugin's directory of this system, so that the line needs no path
	grep -qx 'optional spank_hvd.so' "$debs/root/usr/share/slurm-hvd/etc/plugstack.conf.d/hvd.conf"
	runs "$debs/root/usr" "$(echo "$debs"/root/usr/lib/*-linux-gnu)"
}
