/* SPDX-License-Identifier: Apache-2.0
 * The one place where libhvd reads its settings from the environment. */
#include "world.h"

#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *setting(const char *name)
{
	const char *value = getenv(name);
	return value && *value ? value : NULL;
}

/* *chosen: the number of the word that the setting is, untouched without one. words: NULL-ended. */
static int word(const char *name, const char *const *words, int *chosen, char why[256])
{
	const char *value = setting(name);
	if (!value)
		return 0;
	for (int i = 0; words[i]; i++)
		if (!strcmp(value, words[i])) {
			*chosen = i;
			return 0;
		}
	int n = snprintf(why, 256, "%s=%.64s: must be one of", name, value);
	for (int i = 0; words[i]; i++)
		n += snprintf(why + n, (size_t)(256 - n), " %s", words[i]);
	return HVD_EINVAL;
}

static const char *const backends[] = { "auto", "cpu", "nccl", NULL };

int conf_check(const struct hvd_conf *conf, char why[256])
{
	int backend = 0;
	while (conf->backend && backends[backend] && strcmp(conf->backend, backends[backend]))
		backend++;
	const char *wrong = !backends[backend] ? "backend" : !(conf->deadline > 0 && conf->deadline <= 86400) ? "deadline" :
			    conf->on_death < 0 || conf->on_death > 1 ? "on_death" : conf->wire != HVD_F32 && conf->wire != HVD_BF16 ? "wire" : NULL;
	if (wrong)
		snprintf(why, 256, "hvd_init: %s in struct hvd_conf is none that there is: fill it with hvd_conf_default() first", wrong);
	return wrong ? HVD_EINVAL : 0;
}

int hvd_conf_default(struct hvd_conf *conf, char why[256])
{
	static const char *const deaths[] = { "abort", "continue", NULL };
	static const char *const wires[] = { "f32", "bf16", NULL }, *const switches[] = { "0", "1", NULL };
	int backend = 0, wire = 0;

	*conf = (struct hvd_conf){ .size = sizeof *conf, .deadline = 60, .interface = setting("HVD_IFACE"), .trace = setting("HVD_TRACE"),
				   .plan = setting("HVD_PLAN") };
	if (word("HVD_BACKEND", backends, &backend, why) || word("HVD_ON_DEATH", deaths, &conf->on_death, why) ||
	    word("HVD_WIRE", wires, &wire, why) || word("HVD_SYNC", switches, &conf->sync, why))
		return HVD_EINVAL;
	conf->backend = backends[backend];
	conf->wire = wire ? HVD_BF16 : HVD_F32;
	const char *deadline = setting("HVD_DEADLINE");
	if (deadline) {
		char *end;
		locale_t c = newlocale(LC_NUMERIC_MASK, "C", NULL), own = uselocale(c); /* the program's may have another decimal point */
		conf->deadline = strtod(deadline, &end);
		uselocale(own);
		if (c)
			freelocale(c);
		/* digits, as srun --hvd=deadline has them: no sign, exponent or space */
		if (*end || deadline[strspn(deadline, "0123456789.")] || end[-1] == '.' || !(conf->deadline >= 1 && conf->deadline <= 86400)) {
			snprintf(why, 256, "HVD_DEADLINE=%.64s: must be seconds, from 1 to 86400", deadline);
			return HVD_EINVAL;
		}
	}
	return 0;
}
