#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The inside of a private cluster; hvd-cluster starts it, nobody calls it by hand.
#
#   lab.sh init DIR                 first process of the lab: controller, bridge, login side
#   lab.sh boot DIR NODE            in the lab: wire node NODE and start its namespaces
#   lab.sh node DIR NODE            first process of a node: munged, slurmd
#   lab.sh enter DIR root|user CMD… in the lab: CMD as root or as the ordinary user
#   lab.sh enter-node DIR NODE root|user CMD…   in the lab: CMD inside a node
#   lab.sh crash DIR NODE           in the lab: power loss of a node
#   lab.sh link DIR NODE up|down    in the lab: a node's network cable
#
#   host
#    └ lab: pid, mount, net, uts, ipc [, user] namespaces; host name ctl; bridge br0 198.18.0.1/24
#       ├ n1: namespaces of its own; host name n1; eth0 198.18.0.11
#       └ n2 …
#
# All processes of a cluster live in the lab's pid namespace: killing its first process ends them, and
# with them go the network, the mounts and the device nodes. A node dies the same way.
set -euE -o pipefail
here=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")
# shellcheck source=contrib/cluster/common.sh
. "$here/common.sh"
# shellcheck source=contrib/cluster/cgroup.sh
. "$here/cgroup.sh"

# `up` waits for DIR/state: ok, or the first thing that went wrong.
report() {
	[ -e "$DIR/state" ] || { echo "$*" >"$DIR/state.$BASHPID" && mv "$DIR/state.$BASHPID" "$DIR/state"; }
}

report_failures() { trap 'report "$(hostname): \"$BASH_COMMAND\" failed (lab.sh, line $LINENO)"; exit 1' ERR; }

# ---- who runs what --------------------------------------------------------------------------------
# Without privileges the namespaces are set up as the user namespace's root, but slurmd as that root
# would die in setgroups(). So daemons and jobs run in a second user namespace, as the caller's own uid.
as_daemon() {
	cd "$DIR/log" # where a core goes, which Slurm's daemons allow themselves
	if [ "$PRIVILEGED" = yes ]; then exec "$@"; fi
	exec unshare --user --map-user="$ACCOUNT_UID" --map-group="$ACCOUNT_GID" -- "$@"
}

start_munged() { # returns when its socket is there
	(as_daemon munged --force --key-file="$DIR/etc/munge.key" --socket=/run/munge/munge.socket.2 \
		--pid-file=/run/munge/munged.pid --seed-file=/run/munge/seed --log-file="$DIR/log/munged-$(hostname).log") \
		>>"$DIR/log/lab.log" 2>&1
}

# ---- private mounts -------------------------------------------------------------------------------
scratch() { # a directory to build a mount in before it is moved to its place
	mkdir -p "$DIR/mnt/$(hostname)"
	echo "$DIR/mnt/$(hostname)"
}

hide() { # DIRECTORY MODE: empty from here on, but for the exposed paths below it
	local path at
	at=$(scratch)
	mount -n -t tmpfs -o "mode=$2" tmpfs "$at"
	for path in "${EXPOSED[@]}"; do
		case $path in "$1"/*)
			mkdir -p "$at/${path#"$1"/}"
			mount -n --rbind "$path" "$at/${path#"$1"/}"
			;;
		esac
	done
	mount -n --move "$at" "$1"
}

# In a user namespace mknod is denied: bind something that is a character device. For a GPU any will do,
# as nobody opens it.
device() { # DIRECTORY NAME MAJOR MINOR
	local stand_in=/dev/$2
	mknod -m 666 "$1/$2" c "$3" "$4" 2>/dev/null && return
	case $2 in nvidia*) stand_in=/dev/null ;; esac
	: >"$1/$2"
	mount -n --bind "$stand_in" "$1/$2"
}

private_dev() { # GPUS
	local at gpu
	at=$(scratch)
	mount -n -t tmpfs -o mode=755 tmpfs "$at"
	device "$at" null 1 3
	device "$at" zero 1 5
	device "$at" full 1 7
	device "$at" random 1 8
	device "$at" urandom 1 9
	device "$at" tty 5 0
	mkdir "$at/pts" "$at/shm"
	mount -n -t tmpfs -o mode=1777 tmpfs "$at/shm"
	mount -n -t devpts -o newinstance,ptmxmode=0666,mode=620 devpts "$at/pts"
	ln -s pts/ptmx "$at/ptmx"
	ln -s /proc/self/fd "$at/fd"
	ln -s fd/0 "$at/stdin"
	ln -s fd/1 "$at/stdout"
	ln -s fd/2 "$at/stderr"
	for ((gpu = 0; gpu < $1; gpu++)); do device "$at" "nvidia$gpu" 195 "$gpu"; done
	[ "$1" = 0 ] || device "$at" nvidiactl 195 255
	mount -n --move "$at" /dev
}

# An overlay where the kernel allows one, else a copy. The upper directory is filled before mounting:
# in a user namespace the files of unmapped owners cannot be replaced afterwards.
private_etc() {
	local upper=/run/etc/upper at
	mkdir -p $upper /run/etc/work
	cp "$DIR/etc/hosts" "$DIR/etc/passwd" "$DIR/etc/group" $upper
	: >$upper/resolv.conf # no name server can be reached: what is in no file is unknown at once, where slurmd 24.11 waited 10 s as it started
	[ ! -e /run/affshim.so ] || echo /run/affshim.so >$upper/ld.so.preload
	mount -n -t overlay -o lowerdir=/etc,upperdir=$upper,workdir=/run/etc/work overlay /etc 2>/dev/null && return
	at=$(scratch)
	mount -n -t tmpfs -o mode=755 tmpfs "$at"
	cp -a /etc/. "$at" 2>/dev/null || true # shadow and the like cannot be read by everybody
	cp --remove-destination $upper/* "$at"
	mount -n --move "$at" /etc
}

# The masks of the pretended CPUs. Made at full size first: once /etc/ld.so.preload names the shim, every
# new process maps this file.
prepare_shim() {
	[ -n "$SHIM" ] || return 0
	local cpus
	cpus=$(cpus_per_node)
	# shellcheck disable=SC2059
	printf "\\x$(printf %x $((cpus % 256)))\\x$(printf %x $((cpus / 256)))" >/dev/shm/.hvd-affinity
	truncate -s 512K /dev/shm/.hvd-affinity
	chmod 666 /dev/shm/.hvd-affinity
	cp "$DIR/affshim.so" /run/affshim.so
}

private_mounts() { # lab|node
	local path gpus=0
	[ "$1" = lab ] || gpus=$GPUS
	for path in "${HIDDEN[@]}"; do hide "$path" 755; done
	hide /tmp 1777
	hide /run 755
	mkdir -p /run/slurm/state /run/slurm/spool /run/munge /run/lock /run/netns
	private_dev "$gpus"
	[ "$1" = lab ] || prepare_shim
	private_etc
	forget_foreign_cgroups
	# a network namespace has a sysfs of its own, which some kernels deny to a user namespace
	mount -n -t sysfs -o ro sysfs /sys 2>/dev/null || [ "$CGROUP" = none ]
	mount_cgroups "$1"
}

stay() { # as first process of a pid namespace: lives for ever and reaps whatever is orphaned
	while :; do
		sleep infinity &
		wait $!
	done
}

# ---- the lab --------------------------------------------------------------------------------------
init() {
	report_failures
	hostname ctl
	private_mounts lab
	ip link set lo up
	ip link add br0 type bridge
	ip addr add "$SUBNET.1/24" dev br0
	ip link set br0 up
	start_munged
	(as_daemon slurmctld -D) </dev/null >>"$DIR/log/slurmctld.out" 2>&1 &
	local controller=$! node
	for ((node = 1; node <= NODES; node++)); do "$here/lab.sh" boot "$DIR" "$node" & done
	trap - ERR
	wait_for_nodes $controller
	stay
}

wait_for_nodes() { # CONTROLLER-PID
	local try
	for ((try = 0; try < 600; try++)); do
		[ ! -e "$DIR/state" ] || return 0
		kill -0 "$1" 2>/dev/null || { report "slurmctld stopped"; return 0; }
		if [ "$( (as_daemon sinfo -h -N -o '%N %T') 2>/dev/null | sort -u | grep -c ' idle$')" = "$NODES" ]; then
			report ok
			return 0
		fi
		sleep 0.05
	done
	report "$NODES nodes were not idle within 30 s"
}

# ---- nodes ----------------------------------------------------------------------------------------
boot() { # NODE
	umask 022 # as in `up`
	report_failures
	local node=n$1
	[ ! -e "$DIR/pids/$node" ] || ! live_pid "$DIR/pids/$node" >/dev/null || die "$node is running"
	[ -e "/run/netns/$node" ] || ip netns add "$node"
	ip link del "v$1" 2>/dev/null || true
	ip link add "v$1" type veth peer name eth0 netns "$node"
	ip link set "v$1" master br0 up
	ip -n "$node" link set lo up
	ip -n "$node" addr add "$SUBNET.$((10 + $1))/24" dev eth0
	ip -n "$node" link set eth0 up
	ip -n "$node" route add default via "$SUBNET.1"
	enter_node_group "$1"
	note_pid "$DIR/pids/$node" "$BASHPID"
	exec nsenter --net="/run/netns/$node" "$here/lab.sh" unshare-node "$DIR" "$1"
}

unshare_node() { # NODE
	exec_unshare "/sys/fs/cgroup/n$1" "--mount --uts --ipc --pid --fork --kill-child --mount-proc" "$here/lab.sh" node "$DIR" "$1"
}

node() { # NODE
	report_failures
	hostname "n$1"
	private_mounts node
	start_munged
	local slurmd status=0
	trap - ERR
	(export HWLOC_XMLFILE=$DIR/topology.xml && as_daemon slurmd -D) </dev/null >>"$DIR/log/slurmd-n$1.out" 2>&1 &
	slurmd=$!
	# the node stays up when slurmd dies, so that a test can kill slurmd alone
	wait $slurmd || status=$?
	echo "slurmd on n$1 ended with status $status" >>"$DIR/log/lab.log"
	report "slurmd on n$1 ended with status $status"
	stay
}

node_init() { # NODE: the pid, as seen from the lab, of the node's first process
	local parent
	parent=$(live_pid "$DIR/pids/n$1") && child_of "$parent" || die "node $1 is not running"
}

# ---- visitors -------------------------------------------------------------------------------------
# When nsenter is killed from outside, the command inside must not go on: it gets SIGTERM.
enter() { # root|user CMD…
	local who=$1
	shift
	if [ "$PRIVILEGED$who" = yesroot ]; then exec setpriv --pdeathsig TERM "$@"; fi
	export HOME=$DIR/home USER=$ACCOUNT LOGNAME=$ACCOUNT
	if [ "$PRIVILEGED" = yes ]; then
		exec setpriv --reuid $ACCOUNT --regid $ACCOUNT --init-groups --pdeathsig TERM "$@"
	fi
	as_daemon setpriv --pdeathsig TERM "$@"
}

enter_node() { # NODE root|user CMD…
	local init namespaces="-m -u -i -n -p"
	init=$(node_init "$1")
	[ "$CGROUP" = none ] || namespaces+=" -C"
	shift
	# shellcheck disable=SC2086
	exec setpriv --pdeathsig TERM nsenter -t "$init" $namespaces \
		"--wdns=$PWD" "$here/lab.sh" enter "$DIR" "$@"
}

crash() { # NODE
	local init
	init=$(node_init "$1")
	kill -KILL "$init"
}

link() { # NODE up|down
	ip link set "v$1" "$2"
}

main() {
	local command=$1 DIR_ARGUMENT=$2
	shift 2
	DIR=$DIR_ARGUMENT
	load_settings
	export SLURM_CONF=$DIR/etc/slurm.conf HVD_CLUSTER_DIR=$DIR
	case $command in
	init | boot | node | enter | crash | link) "$command" "$@" ;;
	unshare-node) unshare_node "$@" ;;
	enter-node) enter_node "$@" ;;
	*) die "lab.sh: no command $command" ;;
	esac
}
main "$@"
