/* SPDX-License-Identifier: Apache-2.0
 * chexnet train: the order of things. */
#include "commands/train.h"

#include <string.h>

#include "commands/commands.h"
#include "commands/knobs.h"

/* What follows the last step, or the last before it stops early. Return values as train_steps(). */
static int end_run(struct train *t, int rc, struct error *e)
{
	if (tell_summary(t, e) < 0)
		return -e->code;
	return rc == 0 ? train_finish(t, e) : rc;
}

int train_run(struct world *world, const struct train_conf *conf)
{
	struct train t;
	struct error e = { 0 };
	int rc = train_setup(&t, world, conf, &e);

	if (rc == 0)
		rc = train_steps(&t, &e);
	if (rc >= 0)
		rc = end_run(&t, rc, &e);
	/* a loss before is train_steps()'s, and what it could not mend is no end to be judged */
	while (rc < 0 && t.loader && t.stage >= TRAIN_STOPPED && train_recover(&t, &e) == 0)
		rc = end_run(&t, t.stage == TRAIN_STOPPED ? EXIT_RESUMABLE : 0, &e);
	if (rc < 0)
		rc = world_end(world, &e);
	tell_events_end(&t);
	tell_end(&t, rc, e.code ? e.text : rc == EXIT_RESUMABLE ? "stopped early" : "done");
	train_close(&t);
	return rc;
}

static int run(int argc, char **argv)
{
	struct train_conf conf = { 0 };
	struct error e = { 0 };
	struct world world;
	char command[2000];
	int rc = train_read_options(&command_train, argc, argv, &conf, command, sizeof command, &e);

	if (rc == 0 && conf.resume && strcmp(conf.resume, "auto") == 0 && !conf.output)
		rc = fail(&e, EXIT_USAGE, "--resume=auto looks in --output=DIR, which is not given");
	if (rc != 0)
		return rc < 0 ? world_refuse("train", model_on_cpu(conf.engine.engine), &e) : EXIT_DONE;
	train_catch_signals();
	if (world_open(&world, "train", model_on_cpu(conf.engine.engine), &e) < 0)
		return world_end(&world, &e);
	rc = train_run(&world, &conf);
	world_close(&world);
	return rc;
}

const struct command command_train = {
	.name = "train",
	.summary = "train a network on all tasks of a job step, or on this machine",
	.description = "Trains a network. In a job step every task is a rank; gradients are averaged over all ranks while the backward pass runs. The order of "
		       "images depends on the seed alone, so 1 rank accumulating 4 micro-batches and 4 ranks see the same images in the same steps. Each epoch "
		       "the validation split is scored and the best weights are kept, the last ones where there is none; at the end they are judged on the test split and written to "
		       "OUTPUT/model.safetensors. A finding that no training image shows, or every one, is not learnt and not judged, and a line says so. SIGTERM, SIGUSR1, SIGINT and SIGHUP save a checkpoint and end with exit code 75.",
	.options = train_options,
	.advice = knob_advice,
	.run = run,
};
