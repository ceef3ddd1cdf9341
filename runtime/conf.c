/* SPDX-License-Identifier: Apache-2.0
 * The one place where libhvd reads its settings from the environment. */
#include "world.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *setting(const char *name)
{
	const char *value = getenv(name);
	return value && *value ? value : NULL;
}

static bool one_of(const char *value, const char *const *words)
{
	for (; *words; words++)
		if (!strcmp(value, *words))
			return true;
	return false;
}

int hvd_conf_default(struct hvd_conf *conf, char why[256])
{
	static const char *const backends[] = { "auto", "cpu", "nccl", NULL };
	static const char *const deaths[] = { "abort", "continue", NULL };

	*conf = (struct hvd_conf){ .size = sizeof *conf, .backend = "auto", .deadline = 60 };
	const char *backend = setting("HVD_BACKEND");
	if (backend) {
		if (!one_of(backend, backends)) {
			snprintf(why, 256, "HVD_BACKEND=%.64s: must be auto, cpu or nccl", backend);
			return HVD_EINVAL;
		}
		conf->backend = backend;
	}
	const char *death = setting("HVD_ON_DEATH");
	if (death) {
		if (!one_of(death, deaths)) {
			snprintf(why, 256, "HVD_ON_DEATH=%.64s: must be abort or continue", death);
			return HVD_EINVAL;
		}
		conf->on_death = !strcmp(death, "continue");
	}
	const char *deadline = setting("HVD_DEADLINE");
	if (deadline) {
		char *end;
		conf->deadline = strtod(deadline, &end);
		if (*end || !(conf->deadline >= 1 && conf->deadline <= 86400)) {
			snprintf(why, 256, "HVD_DEADLINE=%.64s: must be seconds, from 1 to 86400", deadline);
			return HVD_EINVAL;
		}
	}
	conf->interface = setting("HVD_IFACE");
	conf->trace = setting("HVD_TRACE");
	return 0;
}
