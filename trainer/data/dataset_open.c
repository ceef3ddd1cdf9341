/* SPDX-License-Identifier: Apache-2.0
 * Which kind of data set a directory, or none, stands for. */
#include "data/dataset.h"

#include "data/manifest.h"
#include "data/source.h"
#include "data/synth.h"

int dataset_open(struct dataset **d, const char *directory, const char *split, struct error *e)
{
	struct synth_conf builtin = SYNTH_BUILTIN;
	int s = split_index(split);

	*d = NULL;
	if (s < 0)
		return fail(e, EXIT_USAGE, "no split is called %s (train, val, test)", split);
	return directory ? records_open(d, directory, (enum split)s, e) : dataset_open_synthetic(d, &builtin, split, e);
}

int dataset_has(const char *directory, const char *split, struct error *e)
{
	struct manifest m;
	int s = split_index(split);

	if (s < 0 || !directory)
		return s >= 0;
	return manifest_read(&m, directory, e) ? -e->code : m.split[s].images > 0;
}
