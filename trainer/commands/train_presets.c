/* SPDX-License-Identifier: Apache-2.0
 * Published trainings as options of ours. */
#include "commands/train.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_PRESET = 12 };

static const struct preset {
	const char *name;
	const char *words[MAX_PRESET]; /* NULL-terminated */
} presets[] = {
	/* Rajpurkar et al. 2017, arXiv 1711.05225: Adam 1e-3, batches of 16, a tenth on a plateau, images scaled to 224 and mirrored */
	{ "chexnet2017", { "--optimizer=adam", "--learning-rate=1e-3", "--batch=16", "--scaling=none", "--warmup-epochs=0", "--decay=plateau",
			   "--weight-decay=0", NULL } },
	/* Dell's ai-radiologist 2019: Adam 1e-3, 64 a GPU at 256 pixels, rate not scaled, 5 epochs of warm-up, 10 epochs, no decay */
	{ "dell2019", { "--optimizer=adam", "--learning-rate=1e-3", "--batch=64", "--image-size=256", "--scaling=none", "--warmup-epochs=5",
			"--decay=constant", "--epochs=10", "--weight-decay=0", NULL } },
	/* Zech's reproduce-chexnet: SGD 0.01 with momentum 0.9 and decay 1e-4, batches of 16, a tenth on a plateau, stop after 3 */
	{ "zech2022", { "--optimizer=sgd", "--learning-rate=0.01", "--momentum=0.9", "--batch=16", "--scaling=none", "--warmup-epochs=0",
			"--decay=plateau", "--patience=3", "--weight-decay=1e-4", NULL } },
};

enum { N_PRESETS = sizeof presets / sizeof presets[0] };

/* The last --preset on the command line, or NULL. */
static const char *asked_for(int argc, char **argv)
{
	const char *name = NULL;

	for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++) {
		if (strncmp(argv[i], "--preset=", 9) == 0)
			name = argv[i] + 9;
		else if (strcmp(argv[i], "--preset") == 0 && i + 1 < argc)
			name = argv[++i];
	}
	return name;
}

static const struct preset *find(const char *name, struct error *e)
{
	const char *names[N_PRESETS];

	for (int i = 0; i < N_PRESETS; i++) {
		if (strcmp(presets[i].name, name) == 0)
			return &presets[i];
		names[i] = presets[i].name;
	}
	const char *near = nearest_name(name, strlen(name), names, N_PRESETS);

	fail(e, EXIT_USAGE, "--preset=%s: %s%s%s", name, near ? "did you mean " : "must be chexnet2017, dell2019 or zech2022", near ? near : "", near ? "?" : "");
	return NULL;
}

char **train_presets(int *argc, char **argv, struct error *e)
{
	const char *name = asked_for(*argc, argv);
	const struct preset *p = name ? find(name, e) : NULL;
	int n = 0, typed = *argc;

	if (name && !p)
		return NULL;
	char **words = calloc((size_t)typed + MAX_PRESET + 1, sizeof *words);

	if (!words) {
		fail(e, EXIT_INTERNAL, "no memory");
		return NULL;
	}
	words[n++] = argv[0];
	for (int i = 0; p && p->words[i]; i++)
		words[n++] = (char *)p->words[i];
	for (int i = 1; i < typed; i++)
		words[n++] = argv[i];
	*argc = n;
	return words;
}
