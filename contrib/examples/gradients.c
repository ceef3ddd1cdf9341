/* SPDX-License-Identifier: Apache-2.0
 * A training loop without a network: gradients are declared once, each is reported as it becomes ready, and the
 * buckets are averaged over all ranks while the rest is still being computed. With srun --hvd=on_death=continue the
 * ranks that are left go on when one dies.
 *
 *   cc gradients.c -lhvd -o gradients && srun --hvd -n4 ./gradients [STEPS [MILLISECONDS A STEP]] */
#include <hvd.h>

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { LAYERS = 20, FLOATS = 50000 };

static int give_up(struct hvd *h, const char *what)
{
	fprintf(stderr, "gradients: %s: %s\n", what, hvd_error(h));
	hvd_close(h);
	return 70;
}

/* The gradient of a layer on a rank in a step: any numbers do. */
static void backward(float *gradient, int layer, int rank, int step, double seconds)
{
	struct timespec t = { .tv_sec = (time_t)seconds, .tv_nsec = (long)((seconds - (double)(time_t)seconds) * 1e9) };
	for (int i = 0; i < FLOATS; i++)
		gradient[i] = (float)(rank + layer + step);
	nanosleep(&t, NULL);
}

/* One step; 0 or a failure. */
static int train(struct hvd *h, struct hvd_plan *plan, int step, double seconds)
{
	float *slab = hvd_plan_slab(plan);
	for (int i = 0; i < LAYERS; i++) {
		backward(slab + (size_t)i * FLOATS, i, hvd_world(h)->rank, step, seconds / LAYERS);
		int status = hvd_plan_ready(plan, i);
		if (status)
			return status;
	}
	return hvd_plan_finish(plan);
}

static int mean_is_right(const struct hvd *h, const struct hvd_plan *plan, int step)
{
	for (int i = 0; i < LAYERS; i++)
		if (hvd_plan_slab(plan)[(size_t)i * FLOATS] != (float)(hvd_world(h)->size - 1) / 2 + (float)(i + step))
			return 0;
	return 1;
}

/* After a death: who is left, and which step comes next? A real trainer also takes the parameters of the rank that got furthest. */
static int go_on(struct hvd *h, int *step)
{
	int status = hvd_recover(h);
	if (status)
		return status;
	fprintf(stderr, "gradients: going on as rank %d of %d\n", hvd_world(h)->rank, hvd_world(h)->size);
	return hvd_allreduce(h, step, step, 1, HVD_I32, HVD_MAX);
}

int main(int argc, char **argv)
{
	int steps = argc > 1 ? atoi(argv[1]) : 100, status = 0;
	double seconds = argc > 2 ? atof(argv[2]) / 1e3 : 0.02;
	struct hvd_tensor tensors[LAYERS];
	char names[LAYERS][32];
	struct hvd *h;
	struct hvd_plan *plan;

	if (hvd_init(&h, NULL))
		return give_up(h, "hvd_init");
	for (int i = 0; i < LAYERS; i++) { /* in the order in which the backward pass finishes them */
		snprintf(names[i], sizeof names[i], "layer%d.weight", LAYERS - 1 - i);
		tensors[i] = (struct hvd_tensor){ names[i], FLOATS };
	}
	if (hvd_plan_open(h, &plan, tensors, LAYERS, 0))
		return give_up(h, "hvd_plan_open");
	for (int step = 0; step < steps;) {
		status = train(h, plan, step, seconds);
		if (status == HVD_EPEER) {
			while ((status = go_on(h, &step)) == HVD_EPEER)
				; /* another one died meanwhile */
			if (!status)
				continue;
		}
		if (status)
			return give_up(h, "a step");
		if (!mean_is_right(h, plan, step))
			return give_up(h, "a mean is wrong");
		if (hvd_world(h)->rank == 0) {
			printf("step %d: %d buckets averaged over %d ranks, %.1f ms not hidden\n", step, hvd_plan_buckets(plan), hvd_world(h)->size,
			       hvd_plan_exposed(plan) * 1e3);
			fflush(stdout);
		}
		step++;
	}
	hvd_plan_close(plan);
	return hvd_close(h) ? 70 : 0;
}
