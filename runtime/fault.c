/* SPDX-License-Identifier: Apache-2.0
 * What goes wrong, which rank is behind it, in words, and whom that is told: the other ranks, the world above, and Slurm. */
#include "world.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#define OUTBOX_MAX (64u << 20)

/* ---- words ---------------------------------------------------------------------------------------- */

const char *op_name(unsigned kind)
{
	static const char *const names[] = { "an all-reduce", "a broadcast", "an all-gather", "a reduce-scatter", "an all-to-all", "a barrier" };
	return kind < COUNT(names) ? names[kind] : "an unknown collective";
}

/* "in hvd_split" */
static void name_activity(uint32_t what, uint32_t index, char text[48])
{
	static const char *const words[] = { "starting", "in hvd_recover", "computing", "in hvd_plan_open", "in hvd_alloc", "in hvd_split",
					     "in hvd_plan_accumulate" };
	if (what == DOING_BUCKET)
		snprintf(text, 48, "all-reducing bucket %u", index);
	else
		snprintf(text, 48, "%s%s", what < DOING_BUCKET ? "" : "in ", what < DOING_BUCKET ? words[what] : op_name(what - DOING_OP));
}

struct activity own_activity(struct mesh *m)
{
	return (struct activity){
		.what = atomic_load(&m->what),
		.index = atomic_load(&m->index),
		.sequence = atomic_load(&m->sequence),
		.seconds = lived() - atomic_load(&m->since),
	};
}

static const char *const reasons[] = {
	[CAUSE_NONE] = "",
	[CAUSE_CLOSED] = "it died, or ended without hvd_close()",
	[CAUSE_SILENT] = "no sign of life (stopped, or its node is gone)",
	[CAUSE_LATE] = "alive, but it did not come along within the deadline",
	[CAUSE_LEFT] = "it called hvd_close() while others wait for it",
	[CAUSE_GARBLED] = "what it sent is no message of libhvd's (damaged on the way, or in its memory)",
	[CAUSE_CUT] = "alive, but a link with it broke",
	[CAUSE_UNABLE] = "it cannot go on",
	[CAUSE_DISMISSED] = "they go on without it",
	[CAUSE_VANISHED] = "it died, or ended without hvd_close(), while others stood still",
};

/* "rank 3 on n2" */
static void name_rank(const struct mesh *m, int rank, char text[96])
{
	const char *host = m->peer[rank].host;
	snprintf(text, 96, "rank %d%s%.63s", rank, *host ? " on " : "", host);
}

static void compose(struct mesh *m, int rank, enum cause cause, int reporter, const char *text)
{
	char who[96], whom[96], here[48], there[48], said[64] = "";
	struct activity mine = own_activity(m);
	name_activity(mine.what, mine.index, here);
	name_rank(m, rank < 0 && reporter >= 0 ? reporter : m->rank, who);
	if (reporter >= 0)
		snprintf(said, sizeof said, " (says rank %d)", reporter);
	if (rank < 0) {
		snprintf(m->fault, sizeof m->fault, "%s %s", who, text);
	} else if (rank == m->rank) {
		snprintf(m->fault, sizeof m->fault, "%s was given up by the others%s: %s; it was %s for %.2f s", who, said, reasons[cause], here, mine.seconds);
	} else {
		struct peer *p = &m->peer[rank];
		char heard[112] = "never heard of";
		name_rank(m, rank, whom);
		name_activity(p->doing.what, p->doing.index, there);
		if (p->heard > 0) /* there was a link to it */
			snprintf(heard, sizeof heard, "heard of %.1f s ago, %s for %.2f s", lived() - p->heard, there, p->doing.seconds);
		snprintf(m->fault, sizeof m->fault, "%s lost %s%s: %s; %s; rank %d was %s for %.2f s", who, whom, said, reasons[cause], heard, m->rank, here,
			 mine.seconds);
	}
}

/* ---- telling -------------------------------------------------------------------------------------- */

void peer_flush(struct peer *p)
{
	while (p->fd >= 0 && p->out.begin < p->out.end) {
		ssize_t n = send(p->fd, p->out.bytes + p->out.begin, p->out.end - p->out.begin, MSG_NOSIGNAL | MSG_DONTWAIT);
		if (n <= 0)
			return; /* full: the watcher goes on; broken: reading tells */
		p->out.begin += (size_t)n;
	}
	p->out.begin = p->out.end = 0;
	if (p->fd >= 0 && !p->member)
		shutdown(p->fd, SHUT_WR); /* it has been told all */
}

bool peer_post(struct peer *p, const struct wire_header *header, const void *data)
{
	size_t more = sizeof *header + header->bytes;
	if (p->fd < 0 || p->knocking || !p->member)
		return true; /* it is, or will be, known to be out of reach */
	if (p->out.end + more > p->out.room) {
		size_t room = p->out.end + more + 4096;
		uint8_t *bytes = room <= OUTBOX_MAX ? realloc(p->out.bytes, room) : NULL;
		if (!bytes)
			return false;
		p->out.bytes = bytes;
		p->out.room = room;
	}
	memcpy(p->out.bytes + p->out.end, header, sizeof *header);
	if (header->bytes)
		memcpy(p->out.bytes + p->out.end + sizeof *header, data, header->bytes);
	p->out.end += more;
	peer_flush(p);
	return true;
}

/* A rank that stands still (SIGSTOP, a debugger) would keep the job step for ever: a rank of its node ends it, and where there is none, the
 * first survivor has Slurm end the step. */
static void end_silent_locked(struct mesh *m, int rank)
{
	struct peer *p = &m->peer[rank];
	const char *job = getenv("SLURM_JOB_ID"), *step = getenv("SLURM_STEP_ID"), *first_group = getenv("SLURM_JOB_ID_HET_GROUP_0");
	const char *space = getenv("PMIX_NAMESPACE"); /* an mpirun's is not Slurm's: the step is what that runs in, maybe the user's shell */
	const bool groups = job && first_group && !strcmp(job, first_group);
	char variable[48], name[128][64] /* as many groups as Slurm allows */, *command[COUNT(name) + 3] = { "scancel", "--signal=KILL" };
	bool alone = true, first = true;
	if (!p->silent)
		return; /* it hears that it was given up */
	if (p->fd >= 0 && !strcmp(p->host, m->peer[m->rank].host)) {
		pid_t process = fcntl(p->fd, F_GETOWN);
		if (process > 0)
			kill(process, SIGKILL);
		return;
	}
	for (int i = 0; i < m->size; i++) {
		alone &= i == rank || m->peer[i].fate != ALIVE || strcmp(p->host, m->peer[i].host);
		first &= i >= m->rank || m->peer[i].fate != ALIVE;
	}
	if (!alone || !first || !m->armed || !job || !step || (space && strncmp(space, "slurm.", 6)))
		return;
	for (size_t g = 0; job && g < COUNT(name); job = groups ? getenv(variable) : NULL, g++) { /* each group has its own step of this number, all tasks the first one's job */
		snprintf(command[g + 2] = name[g], sizeof name[g], "%s.%s", job, step);
		snprintf(variable, sizeof variable, "SLURM_JOB_ID_HET_GROUP_%zu", g + 1);
	}
	posix_spawnp(&(pid_t){ 0 }, command[0], NULL, NULL, command, environ); /* without scancel the step lasts until its time limit; a SIGTERM of Slurm's does not end it before */
}

/* A rank that may be alive is told that the others go on without it; it is no longer listened to. Where it stands still its link may be
 * full, so the watcher keeps that until all is said. */
void dismiss_locked(struct mesh *m, int rank)
{
	struct peer *p = &m->peer[rank];
	struct fault_notice body = { HVD_EPEER, rank, CAUSE_DISMISSED, m->rank, "" };
	peer_post(p, &(struct wire_header){ .kind = WIRE_FAULT, .bytes = sizeof body }, &body);
	end_silent_locked(m, rank);
	p->member = false;
	peer_flush(p);
}

void note_standstill(struct mesh *m)
{
	double t = lived(), still = now() - t;
	if (still - m->still > MOMENT / 2)
		m->awoke = t;
	m->still = still;
}

/* This process stood still for a moment, less than a deadline ago: a link that broke may be one that the other end has given up. Who goes on without this
 * rank says so before its link ends, but not on one that broke. */
static bool just_awoke(struct mesh *m)
{
	note_standstill(m);
	return lived() - m->awoke < m->deadline;
}

int fault_locked(struct mesh *m, int status, int rank, enum cause cause, int reporter, const char *text)
{
	int before = atomic_load(&m->failed);
	if (rank >= 0 && (cause == CAUSE_CLOSED || cause == CAUSE_CUT || cause == CAUSE_LATE) && m->peer[rank].left)
		cause = CAUSE_LEFT; /* a data link ended after its goodbye */
	else if (cause == CAUSE_LATE && reporter < 0 && rank != m->rank && lived() - m->peer[rank].heard > m->deadline / 2)
		cause = CAUSE_SILENT;
	else if (cause == CAUSE_CLOSED && reporter < 0 && m->peer[rank].broke && m->owner && m->links.listener[0] >= 0 && just_awoke(m))
		cause = CAUSE_VANISHED;
	bool news = rank >= 0 && rank != m->rank && m->peer[rank].fate == ALIVE;
	if (news) {
		bool ended = cause == CAUSE_LEFT || cause == CAUSE_UNABLE || cause == CAUSE_CLOSED;
		m->peer[rank].fate = ended ? DEAD : UNHEARD;
		if (!ended && (m->peer[rank].knocking || m->peer[rank].fd < 0))
			m->parted = m->peer[rank].knocking ? m->peer[rank].knocking : lived();
		m->peer[rank].silent = cause == CAUSE_SILENT;
	}
	if (rank >= 0 && !m->peer[rank].member)
		return before ? before : HVD_EPEER; /* it is known, and the world goes on without it */
	if (before && !news)
		return before;
	if (!before) {
		m->lost = rank;
		m->cause = cause;
		compose(m, rank, cause, reporter, text);
	}
	struct fault_notice body = { status, rank, cause, reporter >= 0 ? reporter : m->rank, "" };
	if (status == HVD_ESYS && reporter < 0 && m->what == DOING_RECOVER) /* the others can go on without what this rank lacks */
		body = (struct fault_notice){ HVD_EPEER, m->rank, CAUSE_UNABLE, m->rank, "" };
	snprintf(body.text, sizeof body.text, "%s", text ? text : "");
	/* A further loss may be one that others form a world with: they hear of it, but not that rank, with which others may yet go on. */
	for (int i = 0; i < m->size && (rank != m->rank || reporter < 0); i++)
		if (!before || i != rank)
			peer_post(&m->peer[i], &(struct wire_header){ .kind = WIRE_FAULT, .bytes = sizeof body }, &body);
	if (news && !before && m->armed) /* before the program hears of it, and ends */
		end_silent_locked(m, rank);
	status = before ? before : status;
	atomic_store(&m->failed, status);
	pthread_cond_broadcast(&m->changed);
	eventfd_write(m->alarm, 1);
	eventfd_write(m->wake, 1);
	return status;
}

int mesh_fault(struct mesh *m, int status, const char *format, ...)
{
	char text[WHY_BYTES];
	va_list args;
	va_start(args, format);
	vsnprintf(text, sizeof text, format, args);
	va_end(args);
	pthread_mutex_lock(&m->lock);
	status = fault_locked(m, status, -1, CAUSE_NONE, -1, text);
	pthread_mutex_unlock(&m->lock);
	return status;
}

int mesh_lose(struct mesh *m, int rank, enum cause cause)
{
	pthread_mutex_lock(&m->lock);
	if (rank == m->rank)
		m->given_up = true;
	int status = fault_locked(m, HVD_EPEER, rank, cause, -1, NULL);
	pthread_mutex_unlock(&m->lock);
	return status;
}

int mesh_reason(struct mesh *m, int rank)
{
	bool left = false;
	for (double until = lived() + PATIENCE; !atomic_load(&m->failed) && !left && lived() < until; usleep(1000)) {
		pthread_mutex_lock(&m->lock);
		left = rank >= 0 && m->peer[rank].left;
		pthread_mutex_unlock(&m->lock);
	}
	return atomic_load(&m->failed);
}

int mesh_cut(struct mesh *m, int rank)
{
	struct fault_notice question = { 0, rank, CAUSE_CUT, m->rank, "" };
	int failed = mesh_reason(m, rank);
	pthread_mutex_lock(&m->lock);
	bool asks = !failed && rank < m->rank;
	if (asks)
		peer_post(&m->peer[rank], &(struct wire_header){ .kind = WIRE_FAULT, .bytes = sizeof question }, &question);
	pthread_mutex_unlock(&m->lock);
	failed = asks ? mesh_reason(m, rank) : failed;
	return failed ? failed : mesh_lose(m, rank, CAUSE_CUT);
}

int mesh_differ(struct mesh *m, int rank, uint32_t what)
{
	char here[48], there[48];
	name_activity(atomic_load(&m->what), 0, here);
	name_activity(what, 0, there);
	return mesh_fault(m, HVD_EMISMATCH, "is %s where rank %d is %s", here, rank, there);
}

/* As far as this rank, which waits in a call, and in another one. */
static bool elsewhere(const struct activity *theirs, const struct activity *mine)
{
	return theirs->sequence == mine->sequence && theirs->what != mine->what && theirs->what > DOING_COMPUTE;
}

int mesh_late(struct mesh *m, int suspect)
{
	const struct activity mine = own_activity(m);
	uint64_t least = mine.sequence;
	pthread_mutex_lock(&m->lock);
	for (int i = 0; i < m->size; i++) {
		struct peer *p = &m->peer[i];
		bool other = suspect >= 0 && least == mine.sequence && !elsewhere(&m->peer[suspect].doing, &mine) && elsewhere(&p->doing, &mine); /* for which the suspect waits, too */
		if (i != m->rank && p->member && (p->fate == ALIVE || p->left) && (p->doing.sequence < least || other))
			least = m->peer[suspect = i].doing.sequence;
	}
	const struct activity theirs = suspect < 0 ? mine : m->peer[suspect].doing;
	bool differs = elsewhere(&theirs, &mine);
	int failed = atomic_load(&m->failed), status = failed ? failed : suspect < 0 || differs ? 1 : fault_locked(m, HVD_EPEER, suspect, CAUSE_LATE, -1, NULL);
	pthread_mutex_unlock(&m->lock);
	return differs && !failed ? mesh_differ(m, suspect, theirs.what) : status;
}

void split_fault(struct hvd *h)
{
	struct mesh *m = h->mesh, *above = h->parent->mesh;
	int lost = m->lost;
	if (lost >= 0 && m->cause == CAUSE_CLOSED)
		mesh_cut(above, h->of_parent[lost]);
	else if (lost >= 0 && m->cause != CAUSE_LEFT) /* who closed the sub-world is alive */
		mesh_lose(above, h->of_parent[lost], m->cause);
}
