/* SPDX-License-Identifier: Apache-2.0 */
/*
 * CPU affinity for nodes with more CPUs than this machine has: sched_setaffinity, sched_getaffinity and
 * their pthread forms work on pretended masks. A node's /etc/ld.so.preload names this library, so Slurm's
 * daemons, plugins, tasks, taskset, nproc and hwloc all see them. Not fooled: /proc/PID/status, static
 * programs, raw system calls, and the kernel's scheduler.
 *
 * The masks live in a table in the node's own /dev/shm, which the node's first process makes; without that
 * file every call goes through to the kernel. A process without an entry has the mask of its nearest
 * ancestor with one, else all CPUs. All threads of a process share one mask.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define TABLE_FILE "/dev/shm/.hvd-affinity"
#define WORDS 4      /* 256 CPUs */
#define SLOTS 8192   /* processes that ever set a mask, of one node's life */
#define ANCESTORS 64 /* generations looked up */

struct mask {
	uint64_t word[WORDS];
};

struct entry {
	volatile int pid;    /* 0: free */
	uint64_t start_time; /* /proc/PID/stat field 22: tells a recycled pid */
	struct mask mask;
};

struct table {
	uint64_t cpus; /* of the pretended node; written by lab.sh */
	struct entry entry[SLOTS];
};

static struct table *table;

static int read_stat(int pid, int *parent, uint64_t *start_time)
{
	char path[64], text[1024];
	snprintf(path, sizeof(path), "/proc/%d/stat", pid);
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -1;
	ssize_t length = read(fd, text, sizeof(text) - 1);
	close(fd);
	if (length <= 0)
		return -1;
	text[length] = '\0';

	/* the command's name, in parentheses, may hold anything; the fields after it are plain */
	char *at = strrchr(text, ')');
	if (!at || sscanf(at + 1, " %*c %d", parent) != 1)
		return -1;
	for (int field = 2; field < 22 && at; field++)
		at = strchr(at + 1, ' ');
	if (!at)
		return -1;
	*start_time = strtoull(at, NULL, 10);
	return 0;
}

/* The entry of `pid`; with `make`, a new one if there is none. NULL: none, or the table is full. */
static struct entry *find(int pid, bool make)
{
	unsigned first = (unsigned)pid * 2654435761u % SLOTS;
	for (unsigned i = 0; i < SLOTS; i++) {
		struct entry *e = &table->entry[(first + i) % SLOTS];
		if (!e->pid && !make)
			return NULL;
		if (!e->pid)
			__sync_bool_compare_and_swap(&e->pid, 0, pid);
		if (e->pid == pid)
			return e;
	}
	return NULL;
}

static struct mask all_cpus(void)
{
	struct mask all = {{0}};
	for (uint64_t cpu = 0; cpu < table->cpus; cpu++)
		all.word[cpu / 64] |= UINT64_C(1) << cpu % 64;
	return all;
}

static int get_mask(int pid, struct mask *mask)
{
	for (int p = pid, generation = 0; p > 0 && generation < ANCESTORS; generation++) {
		int parent;
		uint64_t start_time;
		if (read_stat(p, &parent, &start_time)) {
			if (p != pid)
				break;
			errno = ESRCH;
			return -1;
		}
		struct entry *e = find(p, false);
		if (e && e->start_time == start_time) {
			*mask = e->mask;
			return 0;
		}
		p = parent;
	}
	*mask = all_cpus();
	return 0;
}

static int put_mask(int pid, const struct mask *mask)
{
	int parent;
	uint64_t start_time;
	if (read_stat(pid, &parent, &start_time)) {
		errno = ESRCH;
		return -1;
	}
	struct entry *e = find(pid, true);
	if (!e) {
		errno = ENOMEM;
		return -1;
	}
	e->mask = *mask;
	e->start_time = start_time;
	return 0;
}

/* A mask outlives the parent it came from: children write down what they inherited. */
static void keep_inherited(void)
{
	int saved = errno;
	struct mask mine, all = all_cpus();
	if (!get_mask(getpid(), &mine) && memcmp(&mine, &all, sizeof(all)))
		put_mask(getpid(), &mine);
	errno = saved;
}

__attribute__((constructor)) static void open_table(void)
{
	int fd = open(TABLE_FILE, O_RDWR | O_CLOEXEC);
	if (fd < 0)
		return;
	void *map = mmap(NULL, sizeof(*table), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(fd);
	if (map == MAP_FAILED)
		return;
	table = map;
	keep_inherited();
	pthread_atfork(NULL, NULL, keep_inherited);
}

int sched_setaffinity(pid_t pid, size_t length, const cpu_set_t *set)
{
	if (!table)
		return syscall(SYS_sched_setaffinity, pid, length, set) < 0 ? -1 : 0;
	struct mask mask = {{0}}, all = all_cpus();
	bool empty = true;
	memcpy(&mask, set, length < sizeof(mask) ? length : sizeof(mask));
	for (int i = 0; i < WORDS; i++) {
		mask.word[i] &= all.word[i];
		empty = empty && !mask.word[i];
	}
	if (empty) {
		errno = EINVAL;
		return -1;
	}
	return put_mask(pid ? pid : getpid(), &mask);
}

int sched_getaffinity(pid_t pid, size_t length, cpu_set_t *set)
{
	if (!table) {
		long written = syscall(SYS_sched_getaffinity, pid, length, set);
		if (written < 0)
			return -1;
		memset((char *)set + written, 0, length - (size_t)written);
		return 0;
	}
	struct mask mask;
	if (get_mask(pid ? pid : getpid(), &mask))
		return -1;
	memset(set, 0, length);
	memcpy(set, &mask, length < sizeof(mask) ? length : sizeof(mask));
	return 0;
}

int pthread_setaffinity_np(pthread_t thread, size_t length, const cpu_set_t *set)
{
	(void)thread;
	return sched_setaffinity(0, length, set) ? errno : 0;
}

int pthread_getaffinity_np(pthread_t thread, size_t length, cpu_set_t *set)
{
	(void)thread;
	return sched_getaffinity(0, length, set) ? errno : 0;
}
