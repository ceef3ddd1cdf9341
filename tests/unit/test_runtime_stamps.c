/* SPDX-License-Identifier: Apache-2.0
 * What the trace tells of a device: its own moments, in graphs as well, in which no call of libhvd comes by. */
#ifdef HAVE_NCCL

#include "tests/unit/nccl_world.h"

#include <malloc.h>
#include <pthread.h>
#include <time.h>

enum { STEPS = 3 };

/* What streams are to call, in order: a graph of one step. */
static struct {
	const void *stream;
	CUhostFn function;
	void *argument;
} node[8];
static int nodes;

static CUresult keep(CUstream stream, CUhostFn function, void *argument)
{
	must(nodes < 8);
	node[nodes].stream = stream;
	node[nodes].function = function;
	node[nodes++].argument = argument;
	return CUDA_SUCCESS;
}

/* A device that is faster than the program. */
static CUresult at_once(CUstream stream, CUhostFn function, void *argument)
{
	(void)stream;
	function(argument);
	return CUDA_SUCCESS;
}

/* Records of a kind and a step. */
static int records(const struct trace_file *t, enum trace_kind kind, uint32_t step)
{
	int n = 0;
	for (uint64_t i = 0; i < t->written; i++)
		n += t->record[i].kind == kind && t->record[i].step == step;
	return n;
}

static void launch(void *folder)
{
	static const struct hvd_tensor t[] = { { "a", 100 }, { "b", 100 } };
	struct hvd_conf conf = quick_conf();
	struct hvd_plan *p;
	conf.trace = folder;
	conf.deadline = 1;
	struct hvd *h = open_world(conf);
	works(h, hvd_plan_open(h, &p, t, 2, 1));
	call_back = keep;
	for (int i = 0; i < 2; i++)
		works(h, hvd_plan_ready(p, i));
	works(h, hvd_plan_finish(p));
	must(nodes == 6); /* before and after each bucket, where those are; and the wait for both, where the program's kernels are */
	for (int i = 0; i < nodes; i++)
		must(node[i].stream == (i < 4 ? (const void *)&own_stream : (const void *)&program_stream));
	for (uint32_t step = 0; step < STEPS; step++)
		must(!records(h->trace, TRACE_BUCKET, step) && !records(h->trace, TRACE_READY, step) && !records(h->trace, TRACE_WAIT, step));
	for (int step = 0; step < STEPS; step++)
		for (int i = 0; i < nodes; i++) {
			usleep(1000);
			node[i].function(node[i].argument);
		}
	for (uint32_t step = 0; step < STEPS; step++) {
		must(records(h->trace, TRACE_BUCKET, step) == 2);
		must(records(h->trace, TRACE_READY, step) == 1 && records(h->trace, TRACE_WAIT, step) == 1);
	}
	const struct trace_record *last = &h->trace->record[h->trace->written - 1];
	must(last->kind == TRACE_WAIT && last->end - last->begin >= 1000000 && last->begin == last[-1].begin);
	hvd_mark(h, "input", hvd_mark(h, NULL, 0)); /* of the step that the device is at */
	must(records(h->trace, TRACE_MARK, STEPS) == 1);
	call_back = at_once;
	for (int i = 0; i < 2; i++)
		works(h, hvd_plan_ready(p, i));
	works(h, hvd_plan_finish(p));
	must(records(h->trace, TRACE_WAIT, STEPS) == 1 && h->step == STEPS + 1);
	hvd_plan_close(p);
	graph_left = true; /* and may run yet: hvd_close() gives up at the deadline */
	hvd_close(h);
	for (int i = 0; i < nodes; i++)
		node[i].function(node[i].argument);
	_exit(0); /* that is kept for it */
}

/* A stream is still to call back when the world is closed, though what NCCL did is over. */
static void close_before_the_stream_is_through(void *folder)
{
	static const struct hvd_tensor t[] = { { "a", 100 } };
	struct hvd_conf conf = quick_conf();
	struct hvd_plan *p;
	conf.trace = folder;
	conf.deadline = 1;
	mallopt(M_PERTURB, 0x5a); /* what is freed is no stamp any more */
	struct hvd *h = open_world(conf);
	works(h, hvd_plan_open(h, &p, t, 1, 1));
	call_back = keep;
	works(h, hvd_plan_ready(p, 0));
	works(h, hvd_plan_finish(p));
	must(nodes == 4);
	behind = true;
	hvd_plan_close(p);
	works(h, hvd_close(h));
	for (int i = 0; i < nodes; i++)
		node[i].function(node[i].argument);
	_exit(0);
}

static void what_streams_call_after_the_end_is_nothing(void **state)
{
	(void)state;
	run_ranks_in_folder("ab", close_before_the_stream_is_through);
}

static _Thread_local bool dawdles;
static _Atomic bool dawdling, closed;

int __wrap_clock_gettime(clockid_t clock, struct timespec *t);
int __real_clock_gettime(clockid_t clock, struct timespec *t);
int __wrap_clock_gettime(clockid_t clock, struct timespec *t)
{
	for (int i = 0; dawdles && !closed && i < 4000; i++) {
		dawdling = true;
		usleep(1000);
	}
	return __real_clock_gettime(clock, t);
}

static void *call_slowly(void *arg)
{
	const int *which = arg;
	dawdles = true;
	node[*which].function(node[*which].argument);
	return NULL;
}

/* The driver's thread is in a call when the world ends without waiting for the device. */
static void close_during_a_call(void *folder)
{
	static const struct hvd_tensor t[] = { { "a", 100 } };
	struct hvd_conf conf = quick_conf();
	struct hvd_plan *p;
	pthread_t driver;
	int which = 1;
	conf.trace = folder;
	conf.deadline = 1;
	struct hvd *h = open_world(conf);
	works(h, hvd_plan_open(h, &p, t, 1, 1));
	call_back = keep;
	works(h, hvd_plan_ready(p, 0));
	works(h, hvd_plan_finish(p));
	hvd_plan_close(p);
	node[0].function(node[0].argument);
	must(!pthread_create(&driver, NULL, call_slowly, &which));
	while (!dawdling)
		usleep(1000);
	graph_left = true;
	hvd_close(h);
	void *other = malloc(sizeof *h); /* where h was, as a rule */
	must(other && memset(other, 0x5a, sizeof *h));
	closed = true;
	must(!pthread_join(driver, NULL));
	_exit(0);
}

static void a_call_of_the_driver_s_is_over_when_the_world_is(void **state)
{
	(void)state;
	run_ranks_in_folder("ab", close_during_a_call);
}

static void steps_of_a_graph_are_traced_like_others(void **state)
{
	(void)state;
	run_ranks_in_folder("ab", launch);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(steps_of_a_graph_are_traced_like_others),
		cmocka_unit_test(what_streams_call_after_the_end_is_nothing),
		cmocka_unit_test(a_call_of_the_driver_s_is_over_when_the_world_is),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}

#else

#include "tests/unit/test.h"

static void without_nccl(void **state)
{
	(void)state;
	skip_because("built without nccl.h");
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(without_nccl) };
	return cmocka_run_group_tests(tests, NULL, NULL);
}

#endif
