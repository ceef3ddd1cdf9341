/* SPDX-License-Identifier: Apache-2.0 */
#include "trace.h"

#include "siphash.h"
#include "world.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define PINGS 8

/* This rank's clock against rank 0's: the answer that came back soonest tells it best. Rank 0 answers one after the other. */
static int align_clocks(struct hvd *h, struct trace_file *t)
{
	struct mesh *m = h->mesh;
	uint64_t tag = mesh_tag(m);
	double best = 1e9;
	for (int i = 0; i < (m->rank ? PINGS : PINGS * (m->size - 1)); i++) {
		int peer = m->rank ? 0 : 1 + i / PINGS;
		double sent = now(), theirs;
		if (m->rank)
			mesh_send(m, 0, tag, &sent, sizeof sent, -1);
		int status = mesh_receive(m, peer, tag, &theirs, sizeof theirs, NULL, lived() + m->deadline);
		if (status)
			return explain(h, status);
		double received = now();
		if (!m->rank)
			mesh_send(m, peer, tag, &received, sizeof received, -1);
		else if (received - sent < best) {
			best = received - sent;
			t->offset = (int64_t)((theirs - (sent + received) / 2) * 1e9);
			t->within = (int64_t)(best / 2 * 1e9);
		}
	}
	if (llabs(t->offset) <= t->within)
		t->offset = 0; /* one clock: ranks of one machine */
	return 0;
}

static int name_file(struct hvd *h, uint32_t world, char path[4096])
{
	const char *job = getenv("SLURM_JOB_ID"), *step = getenv("SLURM_STEP_ID");
	char number[16] = "";
	if (world > 1)
		snprintf(number, sizeof number, ".%u", world);
	int n = snprintf(path, 4096, "%s/%s.%s%s-rank%05d.hvdtrace", h->conf.trace, job ? job : "local", step ? step : "0", number, h->world.rank);
	return n < 4096 ? 0 : fail(h, HVD_ESYS, "HVD_TRACE: %.100s… is too long: %d bytes with a file's name, at most 4095", h->conf.trace, n);
}

/* A later world of the step, or the step of a requeued job, leaves the traces of those before alone: it has the first number that no rank's files have. */
static int number_world(struct hvd *h, char path[4096])
{
	uint32_t mine = 1;
	int status;
	struct stat there; /* a link to nothing, too */
	while (!(status = name_file(h, mine, path)) && !lstat(path, &there))
		mine++;
	if (status)
		return status;
	uint32_t *all = gathered(h, &mine, sizeof mine, &status);
	for (int r = 0; !status && r < h->world.size; r++)
		mine = all[r] > mine ? all[r] : mine;
	free(all);
	return status ? status : name_file(h, mine, path);
}

int trace_open(struct hvd *h)
{
	char path[4096];
	if (!h->conf.trace)
		return 0;
	if (mkdir(h->conf.trace, 0777) && errno != EEXIST)
		return fail(h, HVD_ESYS, "HVD_TRACE: cannot make %.200s: %s", h->conf.trace, strerror(errno));
	int status, fd;
	do { /* a world of one may find that another has just taken its number */
		status = number_world(h, path);
		if (status)
			return status;
		fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
	} while (fd < 0 && errno == EEXIST && h->world.size == 1);
	int error = fd < 0 ? errno : file_extend(fd, sizeof(struct trace_file), true); /* a full disk is said here, and no SIGBUS later */
	if (error) {
		if (fd >= 0)
			unlink(path);
		close_fd(&fd);
		return fail(h, HVD_ESYS, "HVD_TRACE: cannot write %.200s: %s", path, strerror(error));
	}
	struct trace_file *t = mmap(NULL, sizeof *t, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(fd);
	if (t == MAP_FAILED)
		return fail(h, HVD_ESYS, "HVD_TRACE: cannot map %.200s: %s", path, strerror(errno));
	memcpy(t->magic, TRACE_MAGIC, sizeof t->magic);
	snprintf(t->host, sizeof t->host, "%s", hvd_host(h, h->world.rank));
	siphash128(h->mesh->links.secret, "trace", 5, t->world); /* which does not give the secret away */
	t->rank = (uint32_t)h->world.rank;
	t->size = (uint32_t)h->world.size;
	h->trace = t;
	return align_clocks(h, t);
}

void trace_close(struct hvd *h)
{
	if (h->trace)
		munmap(h->trace, sizeof *h->trace);
	h->trace = NULL;
}

void trace_add(struct hvd *h, enum trace_kind kind, double begin, double end, uint32_t step, uint32_t index, uint64_t bytes)
{
	struct trace_file *t = h->trace;
	if (!t)
		return;
	struct trace_record *r = &t->record[atomic_fetch_add(&t->written, 1) % TRACE_RECORDS];
	*r = (struct trace_record){ (uint64_t)(begin * 1e9), (uint64_t)(end * 1e9), step, index, kind, bytes < UINT32_MAX ? (uint32_t)bytes : UINT32_MAX };
}

/* The number of a name; the last one is shared by all that find no room. */
static uint32_t name_number(struct trace_file *t, const char *name)
{
	uint32_t n = atomic_load(&t->names), i = 0;
	while (i < n && strncmp(t->name[i], name, TRACE_NAME_BYTES - 1))
		i++;
	if (i < n || n == TRACE_NAMES)
		return i < n ? i : TRACE_NAMES - 1;
	snprintf(t->name[n], TRACE_NAME_BYTES, "%s", n < TRACE_NAMES - 1 ? name : "other");
	atomic_store(&t->names, n + 1);
	return n;
}

double hvd_mark(struct hvd *h, const char *name, double since)
{
	double t = now();
	if (h->trace && name)
		trace_add(h, TRACE_MARK, since, t, h->step, name_number(h->trace, name), 0);
	return t;
}
