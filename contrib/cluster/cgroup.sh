# SPDX-License-Identifier: Apache-2.0
# Control groups of one cluster, versions 1 and 2, without systemd.
#
# The lab runs in a group hvd-ID below the caller's own, each node in a group below that, and each of them
# sees its own group as the root of a fresh mount. So Slurm's groups of two nodes cannot meet.
# shellcheck shell=bash disable=SC2154

CONTROLLERS="cpuset devices freezer cpuacct memory" # v1: those Slurm uses

cgroup_version() { # what this process may use: v1, v2 or none
	local root=/sys/fs/cgroup
	if [ "$(stat -fc %T $root 2>/dev/null)" = cgroup2fs ] && [ -w $root/cgroup.procs ] &&
		grep -qw cpuset $root/cgroup.controllers; then
		echo v2
	elif grep -q " $root/cpuset cgroup " /proc/mounts && [ -w $root/cpuset/tasks ]; then
		echo v1
	else
		echo none
	fi
}

own_group_v1() { # CONTROLLER: directory of the caller's group
	local path
	path=$(awk -F: -v c="$1" '{ n = split($2, a, ","); for (i = 1; i <= n; i++) if (a[i] == c) print $3 }' /proc/self/cgroup)
	echo "/sys/fs/cgroup/$1${path%/}"
}

make_group_v1() { # DIRECTORY: a cpuset takes no process before it has CPUs and memory nodes
	mkdir -p "$1"
	case $1 in /sys/fs/cgroup/cpuset/*)
		echo 1 >"$1/cgroup.clone_children"
		cat "$1/../cpuset.cpus" >"$1/cpuset.cpus"
		cat "$1/../cpuset.mems" >"$1/cpuset.mems"
		;;
	esac
}

enable_controllers_v2() { # DIRECTORY, which may hold no process, if it is not the system's root
	local controller
	for controller in cpuset cpu memory pids; do
		! grep -qw $controller "$1/cgroup.controllers" || echo "+$controller" >"$1/cgroup.subtree_control"
	done
}

# Before the lab's namespaces are made; the list lets `down` find the groups again.
make_lab_groups() {
	local controller group
	case $CGROUP in
	v1)
		for controller in $CONTROLLERS; do
			group=$(own_group_v1 "$controller")/hvd-$ID
			make_group_v1 "$group"
			echo "$group"
		done
		;;
	v2)
		enable_controllers_v2 /sys/fs/cgroup
		mkdir -p "/sys/fs/cgroup/hvd-$ID/lab"
		echo "/sys/fs/cgroup/hvd-$ID"
		;;
	esac >"$DIR/cgroups"
}

enter_lab_groups() { # moves the calling process
	local group
	while read -r group; do
		if [ "$CGROUP" = v1 ]; then echo 0 >"$group/tasks"; else echo 0 >"$group/lab/cgroup.procs"; fi
	done <"$DIR/cgroups"
}

remove_lab_groups() {
	local group try
	[ -s "$DIR/cgroups" ] || return 0
	while read -r group; do
		for try in {1..40}; do # the kernel empties a group a moment after its last process died
			[ -d "$group" ] || break
			find "$group" -depth -type d -exec rmdir {} \; 2>/dev/null
			[ -d "$group" ] && sleep 0.05
		done
		[ ! -d "$group" ] || say "left over: $group (rmdir it when its processes are gone)"
	done <"$DIR/cgroups"
}

enter_node_group() { # NODE, in the lab; with v1 moves the calling process
	local controller group
	case $CGROUP in
	v1)
		for controller in $CONTROLLERS; do
			group=/sys/fs/cgroup/$controller/n$1
			make_group_v1 "$group"
			echo "$BASHPID" >"$group/tasks"
		done
		;;
	v2)
		group=/sys/fs/cgroup/n$1
		[ ! -d "$group" ] || find "$group" -depth -type d -exec rmdir {} \; 2>/dev/null
		mkdir -p "$group"
		;;
	esac
}

# Replaces the calling process by `unshare OPTION… COMMAND…`, with a new cgroup namespace among the others. The root of a v2 namespace
# may hold no process, not even the unshare that waits for its child, and on a machine with systemd, which mounts cgroup2 with
# nsdelegate, none leaves its namespace: so there the child alone enters GROUP, and makes that the root.
# shellcheck disable=SC2016,SC2086
exec_unshare() { # GROUP OPTIONS COMMAND…
	local group=$1 options=$2
	shift 2
	case $CGROUP in
	none) exec unshare $options "$@" ;;
	v1) exec unshare --cgroup $options "$@" ;;
	v2) exec unshare $options bash -c 'echo 0 >"$0/cgroup.procs" && exec unshare --cgroup "$@"' "$group" "$@" ;;
	esac
}

# Slurm 23.11 and later refuse to start while a foreign cgroup2 mount is to be seen.
forget_foreign_cgroups() {
	[ "$CGROUP" != v2 ] || while umount -n -l /sys/fs/cgroup 2>/dev/null; do :; done
}

mount_cgroups() { # lab|node, in the new mount namespace: a view rooted at the own group
	local controller root=/sys/fs/cgroup
	case $CGROUP in
	v1)
		mount -n -t tmpfs -o mode=755 tmpfs $root
		for controller in $CONTROLLERS; do
			mkdir $root/"$controller"
			mount -n -t cgroup -o "$controller" cgroup $root/"$controller"
		done
		;;
	v2)
		mount -n -t cgroup2 cgroup2 $root
		mkdir -p $root/init $root/system.slice
		echo 0 >$root/init/cgroup.procs
		enable_controllers_v2 $root
		[ "$1" = lab ] || enable_controllers_v2 $root/system.slice
		;;
	esac
}
