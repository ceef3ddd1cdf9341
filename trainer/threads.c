/* SPDX-License-Identifier: Apache-2.0 */
#include "threads.h"

#include <omp.h>
#include <pthread.h>
#include <stdlib.h>

static void *await(void *lock)
{
	pthread_mutex_lock(lock);
	pthread_mutex_unlock(lock);
	return NULL;
}

int threads_check(int threads, struct error *e)
{
	const int most = omp_get_thread_limit(), asked = threads ? threads : omp_get_max_threads(), wanted = asked < most ? asked : most;
	pthread_mutex_t all_started = PTHREAD_MUTEX_INITIALIZER;
	pthread_t *thread = calloc((size_t)wanted, sizeof *thread);
	pthread_attr_t small; /* `ulimit -v` may have no room for the stacks of all, which few regions take */
	int n = 1; /* the caller is one of them */

	if (!thread)
		return fail(e, EXIT_INTERNAL, "no memory for %d threads", wanted);
	pthread_attr_init(&small);
	pthread_attr_setstacksize(&small, 256 << 10);
	pthread_mutex_lock(&all_started);
	while (n < wanted && pthread_create(&thread[n], &small, await, &all_started) == 0)
		n++;
	pthread_mutex_unlock(&all_started);
	for (int i = 1; i < n; i++)
		pthread_join(thread[i], NULL);
	pthread_attr_destroy(&small);
	free(thread);
	return n < wanted ? fail(e, EXIT_INTERNAL, "cannot start thread %d of %d: see the limits on processes and memory (ulimit -u, -v)", n + 1, wanted) : 0;
}
