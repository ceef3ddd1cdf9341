/* SPDX-License-Identifier: Apache-2.0
 * All ranks take the same back end, and the same settings, or none starts. */
#include "backend.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct offer {
	char backend[8];
	double deadline;
	int32_t on_death, gpu; /* gpu: usable with NCCL */
	char why[128];         /* why not */
};

#ifndef HAVE_NCCL
bool nccl_usable(char why[128])
{
	snprintf(why, 128, "libhvd was built without NCCL");
	return false;
}
#endif

static int take_nccl(struct hvd *h)
{
#ifdef HAVE_NCCL
	return backend_nccl.open(h);
#else
	return fail(h, HVD_EBACKEND, "libhvd was built without NCCL");
#endif
}

static int settings_differ(struct hvd *h, const struct offer *all, int r)
{
	const struct offer *a = &all[0], *b = &all[r];
	const char *host = hvd_host(h, r);
	if (strncmp(a->backend, b->backend, sizeof a->backend))
		return fail(h, HVD_EMISMATCH, "rank %d on %.32s wants back end %.7s, rank 0 wants %.7s", r, host, b->backend, a->backend);
	if (a->deadline < b->deadline || a->deadline > b->deadline)
		return fail(h, HVD_EMISMATCH, "rank %d on %.32s has a deadline of %g s, rank 0 of %g s", r, host, b->deadline, a->deadline);
	if (a->on_death != b->on_death)
		return fail(h, HVD_EMISMATCH, "rank %d on %.32s has another on_death than rank 0", r, host);
	return 0;
}

static int decide(struct hvd *h, const struct offer *all)
{
	int with = -1, without = -1;
	for (int r = h->world.size - 1; r >= 0; r--)
		*(all[r].gpu ? &with : &without) = r;
	if (!strcmp(all[0].backend, "cpu") || (with < 0 && strcmp(all[0].backend, "nccl")))
		return 0;
	if (without < 0 && h->world.size > 1 && h->conf.on_death)
		return fail(h, HVD_EBACKEND, "on_death=continue works on the CPU only: add backend=cpu, or leave it out");
	if (without < 0)
		return take_nccl(h);
	const char *host = hvd_host(h, without), *why = all[without].why;
	if (with < 0)
		return fail(h, HVD_EBACKEND, "back end nccl: rank %d on %.32s: %s", without, host, why);
	return fail(h, HVD_EMISMATCH, "rank %d on %.32s cannot use a GPU: %s; rank %d on %.32s can. Set HVD_BACKEND=cpu to go on without", without, host,
		    why, with, hvd_host(h, with));
}

int choose_backend(struct hvd *h)
{
	const char *wish = h->conf.backend ? h->conf.backend : "auto";
	struct offer mine = { .deadline = h->conf.deadline, .on_death = h->conf.on_death };
	struct offer *all = calloc((size_t)h->world.size, sizeof *all);
	if (!all)
		return fail(h, HVD_ESYS, "no memory for %d ranks", h->world.size);
	snprintf(mine.backend, sizeof mine.backend, "%s", wish);
	mine.gpu = strcmp(wish, "cpu") && nccl_usable(mine.why);
	all[0] = mine;
	int status = h->world.size > 1 ? mesh_gather(h->mesh, &mine, sizeof mine, all) : 0;
	for (int r = 1; !status && r < h->world.size; r++)
		status = settings_differ(h, all, r);
	if (!status)
		status = decide(h, all);
	free(all);
	return status;
}
