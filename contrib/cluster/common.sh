# SPDX-License-Identifier: Apache-2.0
# What hvd-cluster and lab.sh share: messages, process identity, the settings of one cluster.
# shellcheck shell=bash disable=SC2034

PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin

say() { echo "hvd-cluster: $*" >&2; }
die() {
	say "$*"
	exit 1
}

# ---- processes: a pid file holds "pid starttime", so a recycled pid is never taken for ours ---------
start_time() { # PID; fails for a process that is gone or only waits to be reaped
	local stat
	{ read -r stat <"/proc/$1/stat"; } 2>/dev/null || return 1
	stat=${stat##*) }
	# shellcheck disable=SC2086
	set -- $stat
	[ "$1" != Z ] && [ "$1" != X ] && echo "${20}"
}

note_pid() { # FILE PID
	echo "$2 $(start_time "$2")" >"$1.new" && mv "$1.new" "$1"
}

live_pid() { # FILE: prints the pid if that very process still runs
	local pid start
	[ -r "$1" ] && read -r pid start <"$1" && [ -n "${start:-}" ] &&
		[ "$(start_time "$pid")" = "$start" ] && echo "$pid"
}

child_of() { # PID: its first child
	local children
	children=$(cat "/proc/$1/task/$1/children" 2>/dev/null)
	[ -n "$children" ] || children=$(ps -o pid= --ppid "$1" 2>/dev/null)
	# shellcheck disable=SC2086
	set -- $children
	[ -n "${1:-}" ] && echo "$1"
}

# For a process that outlives its caller: whoever reads from the caller's pipes must see them end.
close_inherited_files() {
	local fd
	for fd in "/proc/$BASHPID/fd"/*; do
		fd=${fd##*/}
		[ "$fd" -le 2 ] || [ "$fd" -ge 255 ] || eval "exec $fd>&-"
	done
}

# ---- settings: options of `up`, kept in DIR/settings for the commands that follow -------------------
SETTINGS=(DIR TOP ID NODES SOCKETS CORES THREADS GPUS GPU_ORDER CORE_ORDER INVENTORY PLUGIN PLUGSTACK_ARGS
	CGROUP CONSTRAIN_DEVICES CONF SHIM AS_USER EXPOSED HIDDEN PRIVILEGED ACCOUNT_UID ACCOUNT_GID SUBNET)

ACCOUNT=hvd # the ordinary user, who exists only inside
SUBNET=198.18.0

default_settings() {
	NODES=2 SOCKETS=2 CORES=1 THREADS=1 GPUS=2 GPU_ORDER=block CORE_ORDER=block INVENTORY=''
	PLUGIN='' PLUGSTACK_ARGS='' CGROUP=none CONSTRAIN_DEVICES=yes CONF='' SHIM='' AS_USER=''
	EXPOSED=() HIDDEN=() PRIVILEGED='' ACCOUNT_UID=4242 ACCOUNT_GID=4242 ID=''
}

save_settings() { declare -p "${SETTINGS[@]}" >"$DIR/settings"; }

load_settings() { # `declare` inside a function would make locals
	local text
	text=$(sed 's/^declare \(-[-a-z]*\) /declare -g \1 /' "$DIR/settings") && eval "$text"
}

cpus_per_node() { echo $((SOCKETS * CORES * THREADS)); }
