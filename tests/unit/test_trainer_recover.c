/* SPDX-License-Identifier: Apache-2.0
 * After a loss all survivors take the state of the one that got furthest, all of it or nothing. The other ranks are stood in for: libhvd's calls end here. */
#include "tests/unit/small_net.h"

#include "commands/train.h"

enum { RANKS = 3, NEVER = -1, BEFORE = 4 * 2 * (RANKS + 1) /* images a step of the world with the lost rank */ };

int __wrap_hvd_allgather(struct hvd *h, const void *in, void *out, size_t n, enum hvd_type type);
int __wrap_hvd_broadcast(struct hvd *h, void *buffer, size_t n, enum hvd_type type, int root);
int __wrap_hvd_lost(const struct hvd *h);
const char *__wrap_hvd_error(const struct hvd *h);
int __wrap_engine_made(struct engine *engine, uint64_t *steps);
int __wrap_world_recover(struct world *w, char lost[512], struct error *e);
int __wrap_world_same(struct world *w, uint64_t value, const char *what, const char *cure, struct error *e);
int __wrap_train_open_loader(struct train *t, struct error *e);
void __wrap_train_set_schedule(struct train *t);

/* What every rank has, and how this one fares. */
static struct {
	uint64_t step[RANKS], stage[RANKS];
	struct model_values values[RANKS];
	struct checkpoint_notes at[RANKS];
	struct train *own;
	int broadcasts, lost_at; /* the broadcast in which another rank is lost, NEVER: none */
	int roots[16];
	int worlds;              /* that can still be formed */
	int damaged;             /* the first parameter arrives with another value */
	int gone;                /* the rank that is lost, NEVER: none is */
	uint64_t made;           /* steps of the engine since it was told one */
} play;

static float *part(const struct model_values *v, int i)
{
	return (float *const[]){ v->params, v->mean, v->variance, v->moment1, v->moment2 }[i];
}

int __wrap_hvd_allgather(struct hvd *h, const void *in, void *out, size_t n, enum hvd_type type)
{
	(void)h;
	assert_true(n == 2 && type == HVD_U64);
	for (int r = 0; r < RANKS; r++)
		memcpy((uint64_t *)out + 2 * r, (uint64_t[]){ play.step[r], play.stage[r] }, 2 * sizeof(uint64_t));
	memcpy((uint64_t *)out + 2 * play.own->world->at->rank, in, 2 * sizeof(uint64_t));
	return 0;
}

int __wrap_hvd_broadcast(struct hvd *h, void *buffer, size_t n, enum hvd_type type, int root)
{
	int k = play.broadcasts++ % 6;
	(void)h;
	if (play.broadcasts - 1 == play.lost_at)
		return HVD_EPEER;
	play.roots[k] = root;
	if (root != play.own->world->at->rank)
		memcpy(buffer, k ? (void *)part(&play.values[root], k - 1) : &play.at[root], type == HVD_U8 ? n : n * sizeof(float));
	if (play.damaged && k == 1)
		*(float *)buffer += 1;
	return 0;
}

int __wrap_hvd_lost(const struct hvd *h)
{
	(void)h;
	return play.gone;
}

const char *__wrap_hvd_error(const struct hvd *h)
{
	(void)h;
	return "rank 2 is lost";
}

/* As one whose steps come to their end later. */
int __wrap_engine_made(struct engine *engine, uint64_t *steps)
{
	(void)engine;
	*steps = play.made;
	return 0;
}

int __wrap_world_recover(struct world *w, char lost[512], struct error *e)
{
	(void)w;
	if (!play.worlds)
		return 0;
	play.worlds--;
	play.broadcasts += (6 - play.broadcasts % 6) % 6;
	*e = (struct error){ 0 };
	strcpy(lost, "rank 2 is lost");
	return 1;
}

/* The root has the hash of its own values. */
int __wrap_world_same(struct world *w, uint64_t value, const char *what, const char *cure, struct error *e)
{
	uint64_t theirs = 0;
	(void)w;
	for (int i = 0; i < 5; i++) {
		size_t n = i == 1 || i == 2 ? play.own->model.plan.n_bn_channels : play.own->model.plan.n_weights;
		theirs = world_hash(theirs, part(&play.values[play.roots[0]], i), n * sizeof(float));
	}
	return theirs == value ? 0 : fail(e, EXIT_INTERNAL, "%s differs between ranks: %s", what, cure);
}

int __wrap_train_open_loader(struct train *t, struct error *e)
{
	(void)t, (void)e;
	return 0;
}

void __wrap_train_set_schedule(struct train *t)
{
	assert_int_equal(t->at.global_batch, 4 * 2 * RANKS); /* it goes by that */
	t->schedule.global_batch = t->at.global_batch;
}

static struct train_conf conf = { .batch = 4, .accumulate = 2 };
static struct hvd_world shape = { .size = RANKS };
static struct world world = { .at = &shape, .continues = 1 };

static void fill(struct model_values *v, const struct net_plan *plan, int rank)
{
	for (int i = 0; i < 5; i++)
		for (size_t k = 0; k < (i == 1 || i == 2 ? plan->n_bn_channels : plan->n_weights); k++)
			part(v, i)[k] = (float)(1 + rank * 1000 + i * 100) + (float)(k % 89) / 97;
}

/* A run whose rank `rank` is at steps[rank], the others at theirs. */
static void set_up(struct net *n, struct train *t, int rank, const uint64_t steps[RANKS])
{
	static const struct net_conf net = { .model = "densenet", .image_size = 32, .classes = 3, .growth = 4, .init_channels = 8, .n_blocks = 1, .block = { 2 } };
	struct error e = { 0 };
	make_net(n, &net, 2, 1);
	memset(&play, 0, sizeof play);
	play.lost_at = play.gone = NEVER;
	play.worlds = 1;
	shape.rank = rank;
	*t = (struct train){ .conf = &conf, .world = &world, .log = { .speaks = 1, .json = -1 },
			     .schedule = { .rate = 1, .base_batch = 8 }, .model = { .world = &world, .plan = n->plan } };
	for (int r = 0; r < RANKS; r++) {
		assert_int_equal(model_values_alloc(&play.values[r], &n->plan, 1, &e), 0);
		fill(&play.values[r], &n->plan, r);
		play.step[r] = steps[r];
		play.at[r] = (struct checkpoint_notes){ .step = steps[r], .position = BEFORE * steps[r], .global_batch = BEFORE, .seed = 7, .best_auroc = 0.1 * r, .rate_factor = 1 };
	}
	assert_int_equal(model_values_alloc(&t->values, &n->plan, 1, &e), 0);
	t->model.engine = open_engine(n, ENGINE_REFERENCE, PRECISION_FP32, VARIANT_BEST, 1);
	t->at = play.at[rank];
	assert_int_equal(model_put(&t->model, &play.values[rank], &e), 0);
	assert_int_equal(model_put_steps(&t->model, &t->at, &e), 0);
	play.own = t;
}

static void tear_down(struct net *n, struct train *t)
{
	for (int r = 0; r < RANKS; r++)
		model_values_free(&play.values[r]);
	model_values_free(&t->values);
	engine_close(t->model.engine);
	free_net(n);
}

/* Step, position, parameters, statistics and moments in the engine are those of rank `of`. */
static void assert_state(struct train *t, int of)
{
	struct model_values now;
	struct error e = { 0 };
	assert_int_equal(t->at.step, play.at[of].step);
	assert_int_equal(t->at.position, play.at[of].position);
	assert_true(t->at.best_auroc == play.at[of].best_auroc);
	assert_int_equal(t->model.step_base, play.at[of].step);
	assert_int_equal(model_values_alloc(&now, &t->model.plan, 1, &e), 0);
	assert_int_equal(model_get(&t->model, &now, &e), 0);
	for (int i = 0; i < 5; i++)
		assert_memory_equal(part(&now, i), part(&play.values[of], i),
				    (i == 1 || i == 2 ? t->model.plan.n_bn_channels : t->model.plan.n_weights) * sizeof(float));
	model_values_free(&now);
}

static void everybody_takes_the_furthest_state(void **state)
{
	static const struct {
		uint64_t steps[RANKS];
		int furthest;
	} cases[] = { { { 4, 4, 4 }, 0 }, { { 4, 5, 4 }, 1 }, { { 4, 4, 5 }, 2 }, { { 4, 5, 5 }, 1 }, { { 5, 4, 5 }, 0 } };
	(void)state;
	for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++)
		for (int rank = 0; rank < RANKS; rank++) {
			struct net n;
			struct train t;
			struct error e = { 0 };
			set_up(&n, &t, rank, cases[c].steps);
			for (int s = 0; s < SIGNALS; s++) /* of the step that was not made by all: nobody may take them for the next one's */
				t.model.own[s] = t.model.heard[s] = 1;
			assert_int_equal(train_recover(&t, &e), 0);
			for (int s = 0; s < SIGNALS; s++)
				assert_true(t.model.own[s] == 0 && t.model.heard[s] == 0);
			assert_int_equal(play.broadcasts, 6);
			for (int k = 0; k < 6; k++)
				assert_int_equal(play.roots[k], cases[c].furthest);
			assert_state(&t, cases[c].furthest);
			assert_int_equal(t.at.global_batch, 4 * 2 * RANKS);
			tear_down(&n, &t);
		}
}

/* A GPU may be a step behind what it was given, or have made one that counts as failed. */
static void steps_and_position_become_those_of_the_weights(void **state)
{
	static const uint64_t steps[RANKS] = { 4, 4, 4 };
	(void)state;
	for (int counted = 3; counted <= 5; counted++) {
		struct net n;
		struct train t;
		struct error e = { 0 };
		set_up(&n, &t, 0, steps);
		play.gone = 1;
		play.made = 1;
		t.model.step_base = 3;
		t.at.step = (uint64_t)counted;
		t.at.position = BEFORE * t.at.step;
		assert_int_equal(train_recover(&t, &e), 0);
		assert_int_equal(play.roots[0], 0);
		assert_state(&t, 0);
		tear_down(&n, &t);
	}
}

/* Where one has heard that all is saved and another not, it is for all of them, also where these have another state to give. */
static void what_one_knows_to_be_saved_is_saved_for_all(void **state)
{
	static const uint64_t steps[RANKS] = { 5, 5, 5 };
	(void)state;
	for (int knows = 0; knows < RANKS; knows++)
		for (int rank = 0; rank < RANKS; rank++) {
			struct net n;
			struct train t;
			struct error e = { 0 };
			set_up(&n, &t, rank, steps);
			play.stage[knows] = TRAIN_MADE;
			t.stage = play.stage[rank];
			play.lost_at = 5;
			assert_true(train_recover(&t, &e) < 0);
			assert_int_equal(t.stage, play.stage[rank]);
			play.worlds = 1;
			play.lost_at = NEVER;
			assert_int_equal(train_recover(&t, &e), 0);
			assert_int_equal(t.stage, TRAIN_MADE);
			assert_state(&t, 0);
			tear_down(&n, &t);
		}
}

/* Whichever of the messages the next loss comes in: the state is this rank's own until it holds all of the new one. */
static void a_second_loss_leaves_the_state_as_it_was(void **state)
{
	static const uint64_t steps[RANKS] = { 4, 5, 4 };
	(void)state;
	for (int at = 0; at < 6; at++) {
		struct net n;
		struct train t;
		struct error e = { 0 };
		set_up(&n, &t, 0, steps);
		play.lost_at = at;
		assert_true(train_recover(&t, &e) < 0);
		assert_state(&t, 0);

		play.worlds = 1; /* and then it goes through */
		play.lost_at = NEVER;
		assert_int_equal(train_recover(&t, &e), 0);
		assert_state(&t, 1);
		tear_down(&n, &t);
	}
}

static void a_state_that_arrives_with_another_hash_is_refused(void **state)
{
	static const uint64_t steps[RANKS] = { 4, 5, 4 };
	struct net n;
	struct train t;
	struct error e = { 0 };
	(void)state;
	set_up(&n, &t, 0, steps);
	play.damaged = 1;
	assert_true(train_recover(&t, &e) < 0);
	assert_non_null(strstr(e.text, "the model differs between ranks"));
	assert_state(&t, 0);
	tear_down(&n, &t);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(everybody_takes_the_furthest_state),
		cmocka_unit_test(steps_and_position_become_those_of_the_weights),
		cmocka_unit_test(what_one_knows_to_be_saved_is_saved_for_all),
		cmocka_unit_test(a_second_loss_leaves_the_state_as_it_was),
		cmocka_unit_test(a_state_that_arrives_with_another_hash_is_refused),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
