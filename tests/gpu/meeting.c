/* SPDX-License-Identifier: Apache-2.0 */
#include "meeting.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "runtime/boot.h"
#include "runtime/world.h"

enum { WORLDS = 4, PLACES = 16, NOTES = 16 };

struct meeting {
	struct {
		_Atomic size_t bytes; /* of rank 0's card, 0: none yet */
		uint8_t bytes_of_card[1024];
	} card[WORLDS];
	_Atomic int place[PLACES];
	double note[MEETING_RANKS][NOTES];
};

static struct meeting *meeting;
static int ranks, rank, world;

int meeting_make(int n)
{
	ranks = n;
	meeting = mmap(NULL, sizeof *meeting, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	return meeting == MAP_FAILED || n > MEETING_RANKS ? -1 : 0;
}

static int publish(struct boot *b, const void *card, size_t bytes, char *why)
{
	(void)b;
	if (bytes > sizeof meeting->card[world].bytes_of_card) {
		snprintf(why, WHY_BYTES, "a card of %zu bytes", bytes);
		return HVD_EBOOT;
	}
	memcpy(meeting->card[world].bytes_of_card, card, bytes);
	meeting->card[world].bytes = bytes;
	return 0;
}

static int lookup(struct boot *b, void *card, size_t bytes, double until, char *why)
{
	(void)b;
	while (meeting->card[world].bytes != bytes) {
		if (lived() > until) {
			snprintf(why, WHY_BYTES, "rank 0 did not join");
			return HVD_EBOOT;
		}
		usleep(1000);
	}
	memcpy(card, meeting->card[world].bytes_of_card, bytes);
	return 0;
}

static void host_of(struct boot *b, int of, char host[HOST_BYTES])
{
	(void)b, (void)of;
	snprintf(host, HOST_BYTES, "here");
}

static void finish(struct boot *b)
{
	(void)b;
}

static int find(struct boot *b, char *why)
{
	(void)why;
	*b = (struct boot){ .rank = rank, .size = ranks, .nodes = 1, .publish = publish, .lookup = lookup, .host_of = host_of, .finish = finish };
	host_of(b, rank, b->host);
	return 0;
}

int meeting_join(struct hvd **h, const struct hvd_conf *conf, int me, int number)
{
	rank = me;
	world = number;
	return hvd_init_from(h, conf, find);
}

void meeting_wait(int place, int n)
{
	meeting->place[place]++;
	while (meeting->place[place] < n)
		usleep(200);
}

int meeting_traced(const char *folder, int of, int *steps)
{
	char path[300];
	snprintf(path, sizeof path, "%s/local.0-rank%05d.hvdtrace", folder, of);
	int fd = open(path, O_RDONLY), reduced = 0;
	const struct trace_file *t = fd < 0 ? MAP_FAILED : mmap(NULL, sizeof *t, PROT_READ, MAP_SHARED, fd, 0);
	if (t == MAP_FAILED)
		return -1;
	*steps = 0;
	for (uint64_t i = 0; i < t->written && i < TRACE_RECORDS; i++) {
		const struct trace_record *r = &t->record[i];
		reduced += r->kind == TRACE_BUCKET && r->end >= r->begin;
		*steps += r->kind == TRACE_WAIT && r->end >= r->begin && r->step == (uint32_t)*steps;
	}
	munmap((void *)(uintptr_t)t, sizeof *t);
	close(fd);
	unlink(path);
	return reduced;
}

double *meeting_notes(int of)
{
	return meeting->note[of];
}
