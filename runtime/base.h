/* SPDX-License-Identifier: Apache-2.0
 * What every file of libhvd may use, and what needs none of them: time, threads, files, and how a reason is told. */
#ifndef HVD_RUNTIME_BASE_H
#define HVD_RUNTIME_BASE_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <time.h>

#define WHY_BYTES 400
#define COUNT(a) (sizeof(a) / sizeof(a)[0])

/* Writes the reason; returns `status`. */
int refuse(char why[WHY_BYTES], int status, const char *format, ...) __attribute__((format(printf, 3, 4)));

static inline double now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* now(), less the time that this process stood still (SIGSTOP, scontrol suspend). Every deadline is told in it: a wait that this process slept
 * through says nothing about the others, who may just have awoken too. Whoever waits asks at least every LOOK_MS. */
double lived(void);
#define LOOK_MS 200

void condition_init(pthread_cond_t *c);
/* Waits for the condition, and no longer than LOOK_MS. */
void condition_wait(pthread_cond_t *c, pthread_mutex_t *lock);

/* Whether to look again at what should come soon, before sleeping: on a core that is idle until then it takes tens of µs to be woken. Only for so long, and only while
 * nobody else wants the core: if the late rank runs on it, whoever sleeps is woken sooner. *until: 0 at first. */
bool look_again(double *until);

/* A thread to which no signal is delivered: they are for the program's own. Returns 0 or an error number. */
int thread_start(pthread_t *thread, void *(*run)(void *), void *arg);
/* The file is that long; reserve: and its disk has room for it. Returns 0 or an error number: beyond the limit of ulimit -f EFBIG, and no signal. */
int file_extend(int fd, size_t bytes, bool reserve);

#endif
