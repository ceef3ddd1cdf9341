/* SPDX-License-Identifier: Apache-2.0
 * All ranks take the same back end, and the same settings, or none starts. */
#include "backend.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct offer {
	char backend[8];
	double deadline;
	int32_t on_death, wire, trace, nccl; /* nccl: its version, 0: no GPU for it */
	char why[WHY_BYTES];   /* why not */
	char gpu[16];          /* its PCI address, "": not known */
	char hostid[32];       /* NCCL_HOSTID: the host that NCCL is to take this rank's for, "": its own */
};

#ifndef HAVE_NCCL
int nccl_usable(char why[WHY_BYTES], char gpu[16])
{
	(void)gpu;
	return refuse(why, 0, "libhvd was built without NCCL");
}

const struct backend backend_nccl = { .name = "nccl" }; /* never usable */
#endif

static int settings_differ(struct hvd *h, const struct offer *all, int r)
{
	const struct offer *a = &all[0], *b = &all[r];
	const char *host = hvd_host(h, r);
	if (strncmp(a->backend, b->backend, sizeof a->backend))
		return fail(h, HVD_EMISMATCH, "rank %d on %.63s wants back end %.7s, rank 0 wants %.7s", r, host, b->backend, a->backend);
	if (a->deadline < b->deadline || a->deadline > b->deadline)
		return fail(h, HVD_EMISMATCH, "rank %d on %.63s has a deadline of %g s, rank 0 of %g s", r, host, b->deadline, a->deadline);
	if (a->on_death != b->on_death)
		return fail(h, HVD_EMISMATCH, "rank %d on %.63s has another on_death than rank 0", r, host);
	if (a->wire != b->wire)
		return fail(h, HVD_EMISMATCH, "rank %d on %.63s has another HVD_WIRE than rank 0", r, host);
	if (a->trace != b->trace)
		return fail(h, HVD_EMISMATCH, "rank %d on %.63s has %s HVD_TRACE, rank 0 has %s", r, host, b->trace ? "an" : "no", a->trace ? "one" : "none");
	if (a->nccl && b->nccl && a->nccl != b->nccl)
		return fail(h, HVD_EMISMATCH, "rank %d on %.63s has NCCL %d, rank 0 has %d: install one version on all nodes", r, host, b->nccl, a->nccl);
	return 0;
}

/* NCCL refuses two ranks on one GPU, and takes MIG's instances of one for that, too; from 2.30 on it does not, and lets the user allow the other. */
static int share_gpu(struct hvd *h, const struct offer *all)
{
	for (int r = 1; all[0].nccl < 23000 && r < h->world.size; r++)
		for (int q = 0; q < r; q++)
			if (all[r].gpu[0] && !strcmp(all[q].gpu, all[r].gpu) && !strcmp(all[q].hostid, all[r].hostid) && !strcmp(hvd_host(h, q), hvd_host(h, r)))
				return fail(h, HVD_EBACKEND, "ranks %d and %d on %.63s both have GPU %s, or MIG instances of it, which NCCL before 2.30 refuses: srun --gpu-bind=socket --hvd gives each its own GPU where there are as many; NCCL 2.30 takes an instance each; HVD_BACKEND=cpu lets them share", q, r,
					    hvd_host(h, r), all[r].gpu);
	return 0;
}

static int decide(struct hvd *h, const struct offer *all)
{
	int with = -1, without = -1;
	for (int r = h->world.size - 1; r >= 0; r--)
		*(all[r].nccl ? &with : &without) = r;
	if (!strcmp(all[0].backend, "cpu") || (with < 0 && strcmp(all[0].backend, "nccl")))
		return 0;
	if (without < 0 && h->conf.wire == HVD_BF16)
		return fail(h, HVD_EBACKEND, "HVD_WIRE=bf16 is for the CPU: with NCCL, declare what the device computes");
	if (without < 0) {
		int alike = share_gpu(h, all), status = alike ? alike : backend_nccl.open(h);
		return status && !alike ? mesh_fault(h->mesh, status, "cannot open back end nccl: %s", h->error) : status; /* the others may be waiting for it there */
	}
	const char *host = hvd_host(h, without), *why = all[without].why;
	if (with < 0)
		return fail(h, HVD_EBACKEND, "back end nccl: rank %d on %.63s: %.255s", without, host, why);
	return fail(h, HVD_EMISMATCH, "rank %d on %.63s cannot use a GPU: %.255s; rank %d on %.63s can. Set HVD_BACKEND=cpu to go on without", without, host,
		    why, with, hvd_host(h, with));
}

int choose_backend(struct hvd *h)
{
	const char *wish = h->conf.backend ? h->conf.backend : "auto";
	struct offer mine = { .deadline = h->conf.deadline, .on_death = h->conf.on_death, .wire = h->conf.wire, .trace = h->conf.trace != NULL };
	snprintf(mine.backend, sizeof mine.backend, "%s", wish);
	mine.nccl = strcmp(wish, "cpu") ? nccl_usable(mine.why, mine.gpu) : 0;
	snprintf(mine.hostid, sizeof mine.hostid, "%s", getenv("NCCL_HOSTID") ? getenv("NCCL_HOSTID") : "");
	int status;
	struct offer *all = gathered(h, &mine, sizeof mine, &status);
	for (int r = 1; !status && r < h->world.size; r++)
		status = settings_differ(h, all, r);
	if (!status)
		status = decide(h, all);
	free(all);
	return status;
}
