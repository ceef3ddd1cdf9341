# SPDX-License-Identifier: Apache-2.0
# The files a Slurm cluster is configured by, written to DIR/etc from the settings.
# shellcheck shell=bash disable=SC2154

write_configuration() {
	mkdir -p "$DIR/etc"
	write_slurm_conf
	write_cgroup_conf
	write_inventory
	write_plugstack_conf
	write_hosts
	write_accounts
	(umask 077 && head -c 128 /dev/urandom >"$DIR/etc/munge.key")
}

write_slurm_conf() {
	local slurm_user=root track=proctrack/linuxproc task=task/affinity
	[ "$PRIVILEGED" = yes ] || slurm_user=$ACCOUNT
	[ "$CGROUP" = none ] || track=proctrack/cgroup task=task/affinity,task/cgroup
	# MpiDefault=none: whether a step gets PMIx is the plugin's (or the user's) doing.
	# cred_expire is also the delay before a requeued job starts: 120 s without it.
	cat >"$DIR/etc/slurm.conf" <<-E
	ClusterName=hvd
	SlurmctldHost=ctl($SUBNET.1)
	SlurmUser=$slurm_user
	SlurmdUser=$slurm_user
	AuthType=auth/munge
	AuthInfo=cred_expire=5
	StateSaveLocation=/run/slurm/state
	SlurmdSpoolDir=/run/slurm/spool
	SlurmctldPidFile=/run/slurm/slurmctld.pid
	SlurmdPidFile=/run/slurm/slurmd.pid
	SlurmctldLogFile=$DIR/log/slurmctld.log
	SlurmdLogFile=$DIR/log/slurmd-%h.log
	ProctrackType=$track
	TaskPlugin=$task
	JobAcctGatherType=jobacct_gather/none
	MpiDefault=none
	MailProg=/bin/true
	SelectType=select/cons_tres
	SelectTypeParameters=CR_Core
	SchedulerType=sched/backfill
	SchedulerParameters=bf_interval=1,sched_interval=1,batch_sched_delay=0,sched_min_interval=0
	GresTypes=gpu
	PlugStackConfig=$DIR/etc/plugstack.conf
	ReturnToService=2
	SlurmctldTimeout=10
	SlurmdTimeout=6
	MessageTimeout=5
	TCPTimeout=2
	InactiveLimit=0
	KillWait=2
	UnkillableStepTimeout=25
	MinJobAge=300
	CompleteWait=0
	EpilogMsgTime=0
	NodeName=n[1-$NODES] NodeAddr=$SUBNET.[11-$((10 + NODES))] CPUs=$(cpus_per_node) Sockets=$SOCKETS CoresPerSocket=$CORES ThreadsPerCore=$THREADS RealMemory=1000 State=UNKNOWN$([ "$GPUS" = 0 ] || echo " Gres=gpu:$GPUS")
	PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP OverSubscribe=NO
	E
	[ -z "$CONF" ] || cat "$CONF" >>"$DIR/etc/slurm.conf"
}

write_cgroup_conf() {
	local version
	version=$(slurmd -V | sed 's/[^0-9]*\([0-9]*\).*/\1/')
	case $CGROUP in
	# slurmd looks for control groups even when nothing uses them; the word to stop it came with 24.05
	none) echo "CgroupPlugin=$([ "${version:-0}" -lt 24 ] && echo cgroup/v1 || echo disabled)" ;;
	v1) printf '%s\n' CgroupPlugin=cgroup/v1 CgroupMountpoint=/sys/fs/cgroup ;;
	v2) printf '%s\n' CgroupPlugin=cgroup/v2 IgnoreSystemd=yes ;;
	esac >"$DIR/etc/cgroup.conf"
	[ "$CGROUP" != none ] || return 0
	printf '%s\n' ConstrainCores=yes "ConstrainDevices=$CONSTRAIN_DEVICES" ConstrainRAMSpace=no >>"$DIR/etc/cgroup.conf"
	# before 23 Slurm mounts missing controllers by itself unless told otherwise; later the key is
	# unknown, and v2 wants EnableControllers in its place
	if [ "${version:-0}" -lt 23 ]; then
		echo "CgroupAutomount=$([ "$CGROUP" = v1 ] && echo no || echo yes)"
	elif [ "$CGROUP" = v2 ]; then
		echo EnableControllers=yes
	fi >>"$DIR/etc/cgroup.conf"
}

# What the nodes consist of: a topology that slurmd and the plugin both read in place of this machine's,
# a stand-in for /proc/driver/nvidia, and gres.conf to match.
write_inventory() {
	# shellcheck disable=SC2086
	"$TOP/contrib/cluster/make_inventory" sockets="$SOCKETS" cores="$CORES" threads="$THREADS" gpus="$GPUS" \
		gpu_order="$GPU_ORDER" core_order="$CORE_ORDER" $INVENTORY "$DIR" || die "no such node can be described"
	mv "$DIR/gres.conf" "$DIR/etc/"
}

write_plugstack_conf() {
	[ -z "$PLUGIN" ] || echo "required $PLUGIN topology=$DIR/topology.xml proc=$DIR/proc $PLUGSTACK_ARGS"
} >"$DIR/etc/plugstack.conf"

write_hosts() {
	local node
	printf '%s\n' "127.0.0.1 localhost" "$SUBNET.1 ctl" >"$DIR/etc/hosts"
	for ((node = 1; node <= NODES; node++)); do echo "$SUBNET.$((10 + node)) n$node"; done >>"$DIR/etc/hosts"
}

# The ordinary user's account. Without privileges it is another name for the caller, who may have no
# account at all (a container's uid, a directory service).
write_accounts() {
	cp /etc/passwd /etc/group "$DIR/etc/"
	sed -i "/^$ACCOUNT:/d;/^[^:]*:[^:]*:$ACCOUNT_UID:/d" "$DIR/etc/passwd"
	sed -i "/^$ACCOUNT:/d;/^[^:]*:[^:]*:$ACCOUNT_GID:/d" "$DIR/etc/group"
	echo "$ACCOUNT:x:$ACCOUNT_UID:$ACCOUNT_GID::$DIR/home:/bin/bash" >>"$DIR/etc/passwd"
	echo "$ACCOUNT:x:$ACCOUNT_GID:" >>"$DIR/etc/group"
}
