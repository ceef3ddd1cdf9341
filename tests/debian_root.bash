# SPDX-License-Identifier: Apache-2.0
# A Debian or Ubuntu in a directory of this machine: what fresh-root, slurm-releases and slurm-machine share. Needs root; mounts are
# made in the caller's own mount namespace.
# shellcheck shell=bash

# "URI suite component" a line, for the archives of Debian itself
apt_sources() {
	# shellcheck disable=SC2016
	apt-get indextargets --format '$(ORIGIN) $(REPO_URI) $(RELEASE) $(COMPONENT)' 'Created-By: Packages' |
		sed -n 's/^Debian //p' | sort -u
}

share_network() { # ROOT: the names and apt's proxies are this machine's
	apt-config dump Acquire | grep -iE '::proxy|::cainfo' >"$1/etc/apt/apt.conf.d/90host" || true
	cp -L /etc/resolv.conf /etc/hosts "$1/etc/"
}

mount_system() { # ROOT: /sys, /proc, /run, /tmp and /dev; nothing but /sys is this machine's
	local name
	mount --rbind /sys "$1/sys"
	mount -t proc proc "$1/proc"
	mount -t tmpfs -o mode=755 tmpfs "$1/run"
	mount -t tmpfs -o mode=1777 tmpfs "$1/tmp"
	mount -t tmpfs -o mode=755 tmpfs "$1/dev"
	mkdir "$1/dev/pts" "$1/dev/shm"
	mount -t tmpfs -o mode=1777 tmpfs "$1/dev/shm"
	mount -t devpts -o newinstance,ptmxmode=0666,mode=620 devpts "$1/dev/pts"
	ln -s pts/ptmx "$1/dev/ptmx"
	for name in null:3 zero:5 full:7 random:8 urandom:9; do
		mknod -m 666 "$1/dev/${name%:*}" c 1 "${name#*:}"
	done
	mknod -m 666 "$1/dev/tty" c 5 0
	for name in 0:stdin 1:stdout 2:stderr; do ln -s "/proc/self/fd/${name%:*}" "$1/dev/${name#*:}"; done
	ln -s /proc/self/fd "$1/dev/fd"
}

# Replaces the process. pivot_root and not chroot: inside a chroot the kernel denies user namespaces.
pivot_to() { # ROOT COMMAND…; ROOT/mnt/old must exist
	cd "$1"
	shift
	pivot_root . mnt/old
	umount -l /mnt/old
	cd /
	exec env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8 TERM="${TERM:-dumb}" "$@"
}
