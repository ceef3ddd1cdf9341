#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# deps.sh - the packages slurm-hvd is built and run with
#
# SYNOPSIS
#     contrib/deps.sh --list    [build|demo|check]
#     contrib/deps.sh --install [build|demo|check]
#
# DESCRIPTION
#     --list prints what is missing and the command that installs it. --install does it: as root on Debian
#     and Ubuntu; else it prints the command, and on a terminal asks whether to run it with sudo. It prints
#     nothing when all is there. build: what `make` needs; demo: and what `make demo` needs; check (also
#     without a word): and what `make check` needs.
#
#     Services that come with the packages (munge, slurmctld, slurmd) are not started: the demo and the
#     tests run their own, inside a private cluster. On a machine with systemd they are enabled for the next
#     boot as the packages see fit; `systemctl disable munge` undoes that.
#
# EXIT STATUS
#     0: all is there, or --list, or check can go on without; 1: something is missing and stays so
set -u -o pipefail
PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin
export LC_ALL=C

# For     probe                       Debian, Ubuntu             Fedora, Rocky
table='
build     command:gcc                 gcc                        gcc
build     command:make                make                       make
build     header:stdio.h              libc6-dev                  glibc-devel
build     header:slurm/spank.h        libslurm-dev               slurm-devel
build     header:hwloc.h              libhwloc-dev               hwloc-devel
build     header:pmix.h               libpmix-dev                pmix-devel
build     header:turbojpeg.h          libturbojpeg0-dev          turbojpeg-devel
build     header:jpeglib.h            libjpeg-dev                libjpeg-turbo-devel
build     header:spng.h               libspng-dev                libspng-devel
build     header:libdeflate.h         libdeflate-dev             libdeflate-devel
build     header:cjson/cJSON.h        libcjson-dev               cjson-devel
demo      command:slurmctld           slurmctld                  slurm-slurmctld
demo      command:slurmd              slurmd                     slurm-slurmd
demo      command:srun                slurm-client               slurm
demo      command:munged              munge                      munge
demo      library:libpmix.so.2        libpmix2                   pmix
demo      command:ip                  iproute2                   iproute
demo      command:unshare             util-linux                 util-linux
demo      command:ps                  procps                     procps-ng
check     header:cmocka.h             libcmocka-dev              libcmocka-devel
check     command:bats                bats                       bats
check     command:g++                 g++                        gcc-c++
check     command:python3             python3                    python3
check     header:oneapi/dnnl/dnnl.h   libdnnl-dev                onednn-devel
check     header:zstd.h               libzstd-dev                libzstd-devel
check     command:rpmbuild            rpm                        rpm-build
check     command:dh                  debhelper                  debhelper
'

say() { echo "deps: $*" >&2; }

usage() {
	sed -n '4,/^set -u/{/^set -u/d;s/^# \{0,1\}//;p}' "$0"
	exit "$1"
}

is_there() { # KIND:NAME
	local place
	case $1 in
	command:*) [ -x "$(command -v "${1#*:}")" ] ;;
	header:*)
		for place in /usr/local/include /usr/include /usr/include/*-linux-gnu* /usr/lib/*/pmix2/include /usr/lib64/pmix/include; do
			[ ! -e "$place/${1#*:}" ] || return 0
		done
		return 1
		;;
	library:*)
		for place in /usr/local/lib /usr/lib64 /usr/lib /usr/lib/*-linux-gnu* /usr/lib/*-linux-gnu*/pmix2/lib; do
			[ ! -e "$place/${1#*:}" ] || return 0
		done
		return 1
		;;
	esac
}

# Sets MISSING: package names of this system, or Fedora's where the system is not known.
find_missing() { # build|demo|check
	local use probe debian fedora
	MISSING=()
	while read -r use probe debian fedora; do
		case $1:$use in *: | build:demo | build:check | demo:check) continue ;; esac
		is_there "$probe" && continue
		if [ "$INSTALLER" = apt-get ]; then MISSING+=("$debian"); else MISSING+=("$fedora"); fi
	done <<<"$table"
}

# Packages start their daemons when they are installed, unless this file says no.
forbid_services() {
	[ ! -e /usr/sbin/policy-rc.d ] || return 0
	trap 'rm -f /usr/sbin/policy-rc.d' EXIT
	trap 'exit 130' INT
	trap 'exit 143' TERM
	printf '#!/bin/sh\nexit 101\n' >/usr/sbin/policy-rc.d && chmod 755 /usr/sbin/policy-rc.d
}

apt() { # of all output, a terminal sees one line that says how far it got
	local kind percent
	if [ -t 2 ]; then
		DEBIAN_FRONTEND=noninteractive apt-get -q -y -o DPkg::Lock::Timeout=300 -o APT::Status-Fd=9 "$@" </dev/null 9>&1 >>"$LOG" 2>&1 |
			while IFS=: read -r kind _ percent _; do
				case $kind in dlstatus | pmstatus) printf '\rdeps: %s: %3.0f %% ' "$1" "$percent" >&2 ;; esac
			done
		local status=$?
		printf '\r\033[K' >&2
		return $status
	fi
	DEBIAN_FRONTEND=noninteractive apt-get -q -y -o DPkg::Lock::Timeout=300 "$@" </dev/null >>"$LOG" 2>&1
}

find_known() { # sets KNOWN: those of the missing ones that apt can install
	local package
	KNOWN=()
	for package in "${MISSING[@]}"; do
		if [[ $(apt-cache policy "$package" 2>/dev/null) == *"Candidate: "[0-9]* ]]; then KNOWN+=("$package"); fi
	done
	[ ${#KNOWN[@]} -eq ${#MISSING[@]} ]
}

install_missing() {
	LOG=$(mktemp)
	say "installing ${#MISSING[@]} packages (a minute or two): ${MISSING[*]}"
	forbid_services
	# a machine whose package lists were never fetched, or were removed to save space
	find_known || { apt update; find_known; } || [ ${#KNOWN[@]} -eq 0 ] ||
		say "apt has no package $(printf '%s\n' "${MISSING[@]}" | grep -vxF "$(printf '%s\n' "${KNOWN[@]}")" | paste -sd' ')"
	[ ${#KNOWN[@]} -gt 0 ] || KNOWN=("${MISSING[@]}") # apt-get says why
	if ! apt install --no-install-recommends "${KNOWN[@]}"; then
		# the lists may be older than what the mirror still holds
		if ! { apt update && apt install --no-install-recommends "${KNOWN[@]}"; }; then
			# the first words say why, such as that there is no network; the last only what follows from it
			{ grep '^[EW]: ' "$LOG" || tail -n 15 "$LOG"; } | awk '!seen[$0]++' | head -n 15 >&2
			say "apt-get failed; everything it said is in $LOG"
			return 1
		fi
	fi
	rm -f "$LOG"
}

command_line() {
	if [ "$INSTALLER" = apt-get ]; then
		echo "apt-get install --no-install-recommends ${MISSING[*]}"
	elif [ -n "$INSTALLER" ]; then
		echo "$INSTALLER install ${MISSING[*]}"
	else
		echo "install (Fedora's names): ${MISSING[*]}"
	fi
}

main() {
	local mode=${1:-} want=${2:-check} answer
	case $mode in --list | --install) ;; -h | --help) usage 0 ;; *) usage 64 >&2 ;; esac
	case $want$# in build[12] | demo[12] | check[12]) ;; *) usage 64 >&2 ;; esac
	INSTALLER=
	for answer in apt-get dnf yum; do
		if [ -z "$INSTALLER" ] && command -v $answer >/dev/null; then INSTALLER=$answer; fi
	done

	find_missing "$want"
	if [ ${#MISSING[@]} -eq 0 ]; then
		[ "$mode" = --install ] || echo "all packages are there"
		return 0
	fi
	if [ "$mode" = --list ]; then
		printf 'missing: %s\n' "${MISSING[*]}" "$(command_line)" | sed '2s/^missing: /as root: /'
		return 0
	fi
	if [ "$INSTALLER" = apt-get ] && [ "$(id -u)" = 0 ]; then
		install_missing || return 1
	elif [ "$INSTALLER" = apt-get ] && [ -t 0 ] && [ -t 2 ] && command -v sudo >/dev/null; then
		read -r -p "missing: ${MISSING[*]}. Install them with sudo? [y/N] " answer
		case $answer in [yY]*) sudo "$0" --install "$want" || return 1 ;; esac
	fi
	find_missing "$want"
	[ ${#MISSING[@]} -gt 0 ] || return 0
	say "missing: ${MISSING[*]}; as root: $(command_line)"
	# the tests that need none of these can still run, and the others say why they do not
	[ "$want" = check ] && is_there command:gcc
}
main "$@"
