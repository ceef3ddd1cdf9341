/* SPDX-License-Identifier: Apache-2.0
 * Where a training starts: its output directory, and the file that it goes on from. */
#include "commands/train.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "clock.h"
#include "data/window.h"
#include "files/file.h"

/* ---- one training a directory ------------------------------------------------------------------------ */

enum { CLAIM_SECONDS = 5 }; /* in which a run that was just told to end may still save */

/* "n1, process 4711, Slurm job 7, run 0" */
static void describe_self(const struct train *t, char *text, size_t size)
{
	const char *job = getenv("SLURM_JOB_ID"), *restarts = getenv("SLURM_RESTART_COUNT");
	int used = snprintf(text, size, "%s, process %d", t->world->places[t->world->at->rank].host, (int)getpid());

	if (job)
		snprintf(text + used, size - (size_t)used, ", Slurm job %s, run %s", job, restarts ? restarts : "0");
}

/* Whether the holder is an earlier run of this job: Slurm starts it again only when that is gone, but a file server may keep the lock of
 * a node that went down. One that Slurm only lost sight of finds out in train_keep_output(). */
static int earlier_run(const char *holder, const char *self)
{
	const char *there = strstr(holder, ", Slurm job "), *here = strstr(self, ", Slurm job ");
	const char *run = here ? strstr(here, ", run ") : NULL;

	return there && run && strncmp(there, here, (size_t)(run + 6 - here)) == 0 && strcmp(there, here) != 0;
}

/* What a holder of the lock that has just come, and knows of no job either, is likely to be. */
static const char *likely(const struct train *t, const char *path, const char *holder)
{
	struct stat st;
	int begun = stat(path, &st) == 0 && time(NULL) - st.st_mtime < 60;

	return begun && t->world->at->size == 1 && *holder && !strstr(holder, ", Slurm job ") && !getenv("SLURM_JOB_ID")
		? "; if one srun started both, they are no world, as nothing gave them its SLURM_* and PMIX_* variables (apptainer's --cleanenv keeps them back)" : "";
}

/* How a file begins, "" where none is or a file system zeroed it. */
static void read_start(const char *path, char *text, size_t size)
{
	int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	ssize_t n = fd < 0 ? 0 : read(fd, text, size - 1);

	text[n > 0 ? n : 0] = '\0';
	if (fd >= 0)
		close(fd);
}

int train_claim_output(struct train *t, struct error *e)
{
	char path[4200], self[300], holder[300], half[FILE_NAME];
	double begin = now();
	int why;

	snprintf(path, sizeof path, "%s/lock", t->output);
	describe_self(t, self, sizeof self);
	read_start(path, holder, sizeof holder);
	if (*holder && !strstr(holder, ", process "))
		return fail(e, EXIT_USAGE, "%s is there and no training's, and would be written over: --output=DIR chooses another place", path);
	/* not so long that the ranks that wait for this one give it up */
	while ((why = file_lock(&t->lock, path, e)) == EWOULDBLOCK && now() - begin < CLAIM_SECONDS && now() - begin < t->world->deadline / 2)
		usleep(100000);
	if (why == EWOULDBLOCK) {
		read_start(path, holder, sizeof holder);
		if (!earlier_run(holder, self))
			return fail(e, EXIT_USAGE, "%s: another training writes to it%s%s%s: --output=DIR chooses another place; if that one's node went down, "
				    "remove %s%s", t->output, *holder ? " (" : "", holder, *holder ? ")" : "", path, likely(t, path, holder));
		unlink(path);
		why = file_lock(&t->lock, path, e);
	}
	if (e->code)
		return -e->code;
	if (why) {
		int left = checkpoint_sweep(t->output, 0, half);

		log_say(&t->log, "%s: cannot be locked (%s): see to it that no other training writes to %s%s%s%s", path, strerror(why), t->output,
			left ? ", and remove what killed ones left there half-written: " : "", left ? half : "", left > 1 ? " and others like it" : "");
		return 0;
	}
	checkpoint_sweep(t->output, 1, half);
	if (ftruncate(t->lock, 0) || pwrite(t->lock, self, strlen(self), 0) < 0)
		return 0; /* a full disk: whose it is is told to nobody */
	return 0;
}

int train_keep_output(struct train *t, struct error *e)
{
	char path[4200], holder[300];

	snprintf(path, sizeof path, "%s/lock", t->output);
	if (!file_lock_taken(t->lock, path))
		return -e->code;
	read_start(path, holder, sizeof holder);
	e->code = 0; /* a file that was half-written is gone because the other training has tidied up */
	return fail(e, EXIT_INTERNAL, "%s: another training has taken it over%s%s%s, as where Slurm lost this one's node and started the job again: this one ends", t->output,
		    *holder ? " (" : "", holder, *holder ? ")" : "");
}

void train_release_output(struct train *t)
{
	char path[4200];

	snprintf(path, sizeof path, "%s/lock", t->output);
	file_unlock(&t->lock, path);
	if (t->made_output)
		rmdir(t->output); /* only of a start that was refused it is empty */
}

/* ---- where it starts --------------------------------------------------------------------------------- */

int train_open_logs(struct train *t, struct error *e)
{
	char path[4200];

	snprintf(path, sizeof path, "%s/log.jsonl", t->output);
	if (log_events_to(&t->log, t->conf->log_json ? t->conf->log_json : path, e) < 0)
		return -e->code;
	world_on_lost_log(t->log.json, &t->at.step, t->output);
	snprintf(path, sizeof path, "%s/tensorboard", t->output);
	return t->conf->tensorboard ? events_open(&t->events, path, e) : 0;
}

/* chexnet-DATE-TIME; trainings that start in the same second, as a job array's do, get a number behind it. Returns as mkdir() does. */
static int make_dated(char *path, size_t size)
{
	time_t seconds = time(NULL);
	struct tm local;
	size_t used = strftime(path, size, "chexnet-%Y%m%d-%H%M%S", localtime_r(&seconds, &local));
	int rc = mkdir(path, 0777);

	for (int n = 2; rc && errno == EEXIST && n < 10000; n++) {
		snprintf(path + used, size - used, "-%d", n);
		rc = mkdir(path, 0777);
	}
	return rc;
}

/* What a training that went back was killed in. */
static int end_take_over(struct train *t, struct error *e)
{
	struct checkpoint_left left;

	if (checkpoint_take_over(t->output, &left, e) < 0)
		return -e->code;
	tell_left(t, &left);
	return 0;
}

/* What was not this training's stays: many a directory has a test.csv, such as a list of labels. */
static int spare_files(const struct train *t, int found, struct error *e)
{
	const int tested = t->test && dataset_count(t->test);
	char model[FILE_PATH], predictions[FILE_PATH], log[FILE_PATH], start[sizeof "{\""];
	struct error other = { 0 };

	if (path_join(model, e, "%s/model.safetensors", t->output) < 0 || path_join(predictions, e, "%s/test.csv", t->output) < 0 ||
	    path_join(log, e, "%s/log.jsonl", t->output) < 0)
		return -e->code;
	const char *kept = found ? NULL : access(model, F_OK) == 0 ? model : tested && access(predictions, F_OK) == 0 ? predictions : NULL;

	if (kept)
		return fail(e, EXIT_USAGE, "%s is there already, without a checkpoint to go on from: --output=DIR chooses another place", kept);
	if (tested && output_replaces(predictions, "# rows=", "file of predictions", &other))
		return other.code == EXIT_INTERNAL ? fail(e, other.code, "%s", other.text) :
			fail(e, EXIT_USAGE, "%s is there and no file of predictions, and would be written over: --output=DIR chooses another place", predictions);
	read_start(log, start, sizeof start);
	if (!found && !t->conf->log_json && *start && strcmp(start, "{\"") != 0)
		return fail(e, EXIT_USAGE, "%s is there and no log of JSON objects, and would be written to: --output=DIR chooses another place, --log-json=FILE another log", log);
	return 0;
}

static int make_output(struct train *t, struct error *e)
{
	char latest[4200];

	if (t->conf->output && path_join(t->output, e, "%s", t->conf->output) < 0)
		return -e->code;
	if (!t->conf->output && make_dated(t->output, sizeof t->output))
		return fail(e, EXIT_INTERNAL, "%s: cannot be made here: %s: --output=DIR chooses another place", t->output, strerror(errno));
	t->made_output = !t->conf->output || access(t->output, F_OK);
	if (directory_ensure(t->output, e) < 0 || directory_check(t->output, e) < 0)
		return -e->code;
	if (train_claim_output(t, e) < 0 || end_take_over(t, e) < 0)
		return -e->code;
	int found = checkpoint_latest(latest, sizeof latest, t->output, e);

	if (found > 0 && !t->conf->resume)
		return fail(e, EXIT_USAGE, "%s is there already: --resume=auto goes on from it, --output=DIR chooses another place", latest);
	if (found < 0 || spare_files(t, found, e) < 0)
		return -e->code;
	return output_replaces(t->conf->log_json, "{\"", "log of JSON objects", e);
}

static int no_state(const char *path, struct error *e)
{
	return fail(e, EXIT_DATA, "%s holds a model but no state to resume from: --weights=%s starts from it", path, path);
}

/* Reads all of a checkpoint to see whether training can go on from it. */
static int check_whole(const char *path, struct error *e)
{
	struct checkpoint *c;
	struct net_conf net;
	struct net_plan plan = { 0 };
	struct model_values values = { 0 };

	if (checkpoint_open(&c, path, &net, NULL, e) < 0)
		return -e->code;
	if (!checkpoint_resumable(c))
		no_state(path, e);
	else if (net_plan_make(&plan, &net, e) == 0 && model_values_alloc(&values, &plan, 1, e) == 0)
		checkpoint_load(c, &plan, &values, NULL, e);
	model_values_free(&values);
	net_plan_free(&plan);
	checkpoint_close(c);
	return -e->code;
}

/* For --resume=auto: the latest checkpoint that is whole. What is left out on the way is named. 1: found, 0: there is no checkpoint at
 * all, negative: there are, and none is whole. */
static int latest_whole(struct train *t, char *path, size_t size, struct error *e)
{
	uint64_t step = UINT64_MAX;
	int found = checkpoint_below(path, size, t->output, &step, e);

	while (found > 0) {
		struct error why = { 0 };

		if (check_whole(path, &why) == 0)
			return 1;
		if (why.code == EXIT_INTERNAL) /* it may be whole */
			return fail(e, EXIT_INTERNAL, "%s", why.text);
		found = checkpoint_below(path, size, t->output, &step, e);
		if (found > 0)
			log_say(&t->log, "%s: --resume=auto goes back to %s", why.text, path);
		else if (found == 0)
			return fail(e, EXIT_DATA, "%s; no checkpoint of %s is whole: another --output=DIR starts anew", why.text, t->output);
	}
	return found;
}

/* The file to start from, or "" for a fresh start; only --resume=auto may find nothing. */
static int choose_file(struct train *t, char *path, size_t size, int *resume, struct error *e)
{
	const char *asked = t->conf->resume;

	*path = '\0';
	*resume = asked != NULL;
	if (asked && strcmp(asked, "auto") == 0) {
		int found = latest_whole(t, path, size, e);

		if (found == 0)
			*resume = 0;
		if (found != 0)
			return found < 0 ? found : 0;
	} else if (asked) {
		struct stat st;

		snprintf(path, size, "%s", asked);
		if (stat(path, &st) == 0 && S_ISDIR(st.st_mode))
			return fail(e, EXIT_USAGE, "--resume=%s: a directory: name a checkpoint of it, or --resume=auto with --output=%s goes on from its last", path, path);
	}
	if (!*path && t->conf->weights)
		snprintf(path, size, "%s", t->conf->weights);
	return 0;
}

/* A network as a user would ask for it. */
static void describe_network(const struct net_plan *plan, char *text, size_t size)
{
	size_t used = (size_t)snprintf(text, size, "--model=%s", plan->model);

	if (strcmp(plan->model, "densenet") != 0 && strcmp(plan->model, "resnet") != 0)
		return;
	if (plan->family == NET_DENSENET)
		used += (size_t)snprintf(text + used, size - used, " --growth=%d", plan->growth);
	used += (size_t)snprintf(text + used, size - used, " --init-channels=%d --blocks=", plan->init_channels);
	for (int b = 0; b < plan->n_blocks && used < size; b++)
		used += (size_t)snprintf(text + used, size - used, "%s%d", b ? "," : "", plan->block[b]);
}

static int same_network(const struct net_plan *a, const struct net_plan *b)
{
	return a->family == b->family && a->growth == b->growth && a->init_channels == b->init_channels && a->n_blocks == b->n_blocks &&
	       memcmp(a->block, b->block, (size_t)a->n_blocks * sizeof a->block[0]) == 0;
}

/* A file brings its network: one that was typed beside it has to be the same. */
static int check_network(const struct train *t, const char *path, const struct net_conf *held, struct error *e)
{
	struct network asked = network_from_options(&t->conf->network);
	struct net_plan here = { 0 }, there = { 0 };
	char want[160], have[160];

	if (!t->conf->network.model_typed)
		return 0;
	asked.image_size = held->image_size;
	asked.classes = held->classes;
	struct net_conf conf = network_conf(&asked);

	if (net_plan_make(&here, &conf, e) == 0 && net_plan_make(&there, held, e) == 0 && !same_network(&here, &there)) {
		describe_network(&here, want, sizeof want);
		describe_network(&there, have, sizeof have);
		fail(e, EXIT_USAGE, "%s holds a network of %s, not of %s: it brings its own, so leave --model out", path, have, want);
	}
	net_plan_free(&here);
	net_plan_free(&there);
	return -e->code;
}

static const char *stored_words(const char *stored_as)
{
	return strcmp(stored_as, "jpeg") == 0 ? "as jpeg" : "exactly (png, packed)";
}

/* With --resume=auto beside it, --weights would count only where there is no checkpoint. */
#define ANEW "--weights=%s in place of --resume, with another --output, starts anew from its weights"

static int check_resumable(struct train *t, const struct checkpoint *c, const char *path, const struct checkpoint_notes *notes, struct error *e)
{
	if (!checkpoint_resumable(c))
		return no_state(path, e);
	if (notes->data_hash != dataset_hash(t->train))
		return fail(e, EXIT_DATA, "%s was trained on other data (hash %016llx, here %016llx): " ANEW, path,
			    (unsigned long long)notes->data_hash, (unsigned long long)dataset_hash(t->train), path);
	if (*notes->stored_as && strcmp(notes->stored_as, dataset_stored_as(t->train)) != 0)
		return fail(e, EXIT_DATA, "%s was trained on images stored %s, and these are stored %s, which makes other pixels: prepare them with the --format of then, or "
			    ANEW, path, stored_words(notes->stored_as), stored_words(dataset_stored_as(t->train)), path);
	if (*notes->optimizer && strcmp(notes->optimizer, optimizer_choices[t->conf->optimizer]) != 0)
		return fail(e, EXIT_USAGE, "%s was trained with --optimizer=%s, whose moments mean nothing to %s: " ANEW, path,
			    notes->optimizer, optimizer_choices[t->conf->optimizer], path);
	if (*notes->mask && strcmp(notes->mask, t->mask) != 0)
		return fail(e, EXIT_USAGE, "%s was trained %s: give the --mask of then, or " ANEW, path,
			    strcmp(notes->mask, "none") == 0 ? "without --mask" : t->conf->mask ? "with another --mask" : "with a --mask", path);
	if (notes->window && notes->window_layout != window_layout(t->train))
		return fail(e, EXIT_DATA, "%s was trained in shuffle windows of %d files, and the same images lie in other files now, so the order cannot go on: "
			    "prepare them with the --shards of then, or " ANEW, path, notes->window, path);
	return 0;
}

/* Checkpoints of two courses in one directory could not be told apart, and those of the other one would go with --keep. */
static int check_course(const struct train *t, const char *path, struct error *e)
{
	char latest[4200];
	int found = checkpoint_latest(latest, sizeof latest, t->output, e), own = found > 0 ? checkpoint_is_of(path, t->output, e) : 1;

	if (found < 0 || own < 0)
		return -e->code;
	return own ? 0 : fail(e, EXIT_USAGE, "%s has checkpoints of its own, up to %s, and %s is none of them: --resume=auto goes on from its last, another --output=DIR from %s",
			      t->output, strrchr(latest, '/') + 1, path, path);
}

/* Whether OUTPUT holds checkpoints after `step`. */
static int holds_later(const struct train *t, uint64_t step)
{
	char later[4200];
	struct error why = { 0 };
	uint64_t last = UINT64_MAX;

	return checkpoint_below(later, sizeof later, t->output, &last, &why) > 0 && last > step;
}

/* What another validation split says of weights is not to be compared with what this one will say. */
static void forget_other_validations(struct train *t, struct checkpoint_notes *notes)
{
	const int judged_alike = notes->untrained == train_untaught(t);

	if (!t->validates || !notes->val_hash || (notes->val_hash == dataset_hash(t->val) && judged_alike))
		return;
	log_say(&t->log, "the validation split was another one%s: the best weights are looked for from here on", judged_alike ? "" : ", or other findings were judged");
	notes->validated = notes->best_step = 0;
	notes->best_auroc = notes->best_loss = 0;
	notes->stale = 0;
}

/* The best weights so far may be wanted in the end. They are in the output directory, or beside a checkpoint of another one, where those of a
 * course that was left are called .abandoned too, unless a validation after that checkpoint replaced them. */
static int find_best(struct train *t, const char *path, struct checkpoint_notes *notes, struct error *e)
{
	char best[4200], beside[FILE_PATH], directory[FILE_PATH] = ".";
	const char *slash = strrchr(path, '/');
	struct error why = { 0 };
	int held;

	if (notes->best_step == 0)
		return 0;
	snprintf(best, sizeof best, "%s/best.safetensors.new", t->output);
	held = checkpoint_holds_best(best, notes, &why);
	if (!held) {
		snprintf(best, sizeof best, "%s/best.safetensors", t->output);
		held = checkpoint_holds_best(best, notes, &why);
	}
	if (held)
		return held < 0 ? fail(e, EXIT_INTERNAL, "%s: where it stays so, remove or move it to go on without", why.text) : 0;
	if (slash)
		snprintf(directory, sizeof directory, "%.*s", slash == path ? 1 : (int)(slash - path), path);
	if (checkpoint_find_best(beside, directory, notes, &why) != 1 || file_read(&t->best, &t->best_size, beside, &why) < 0) {
		if (why.code)
			log_say(&t->log, "%s: the best weights are looked for from here on", why.text);
		else
			log_say(&t->log, "the weights of step %llu, the best so far, are gone: the best is looked for from here on", (unsigned long long)notes->best_step);
		notes->best_step = 0;
		notes->best_auroc = 0;
	}
	return 0;
}

int train_begin_output(struct train *t, struct error *e)
{
	char best[4200];
	struct checkpoint_left left = { 0 };

	snprintf(best, sizeof best, "%s/best.safetensors.new", t->output);
	if (t->best && file_write(best, t->best, t->best_size, e) == 0)
		parent_sync(best, e);
	free(t->best);
	t->best = NULL;
	if (!e->code && checkpoint_holds_best(best, &t->at, e) == 0)
		unlink(best); /* of a training that was killed before a checkpoint named it */
	if (!e->code && !train_leaves_later(t)) {
		left.best = checkpoint_take_over_best(t->output, &t->at, e);
		tell_left(t, &left);
	}
	return e->code ? -e->code : train_open_logs(t, e);
}

enum { IMAGENET_CLASSES = 1000 };

/* Whether patients behind --weights are not known: checkpoint_notes.unchecked. ImageNet has none. */
static int inherited_unchecked(const struct train *t, const struct net_conf *net, const struct checkpoint_notes *notes)
{
	if (!notes->data_hash && net->classes == IMAGENET_CLASSES)
		return 0;
	return notes->unchecked || notes->data_hash != dataset_hash(t->train);
}

int train_find_start(struct train *t, struct train_start *s, struct checkpoint **c, struct error *e)
{
	char path[4200];
	struct net_conf net;

	*c = NULL;
	*s = (struct train_start){ .network = network_from_options(&t->conf->network) };
	if (make_output(t, e) < 0 || choose_file(t, path, sizeof path, &s->resume, e) < 0)
		return -e->code;
	if (!*path)
		return 0;
	if (checkpoint_open(c, path, &net, &s->notes, e) < 0 || (s->resume && check_course(t, path, e) < 0) || check_network(t, path, &net, e) < 0)
		return -e->code;
	s->from_file = 1;
	s->network = network_of(&net);
	s->leaves = s->resume && holds_later(t, s->notes.step);
	if (s->resume) {
		if (check_resumable(t, *c, path, &s->notes, e) < 0)
			return -e->code;
		forget_other_validations(t, &s->notes);
		return find_best(t, path, &s->notes, e);
	}
	s->notes.unchecked = inherited_unchecked(t, &net, &s->notes);
	s->network.classes = FINDINGS;
	if (t->conf->network.image_size)
		s->network.image_size = t->conf->network.image_size;
	log_say(&t->log, "starts from the weights of %s", path);
	int then = s->notes.source_size, here = dataset_image_size(t->train);

	if (then && then != here && !t->conf->network.image_size)
		log_say(&t->log, "its images had %d pixels a side and these have %d: --image-size=%d would show about as much of them as its %d did", then, here,
			image_size_like(&s->network, s->network.image_size, then, here), s->network.image_size);
	return 0;
}
