/* SPDX-License-Identifier: Apache-2.0 */
#include "base.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

int refuse(char why[WHY_BYTES], int status, const char *format, ...)
{
	va_list args;
	va_start(args, format);
	vsnprintf(why, WHY_BYTES, format, args);
	va_end(args);
	return status;
}

void condition_init(pthread_cond_t *c)
{
	pthread_condattr_t monotonic;
	pthread_condattr_init(&monotonic);
	pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
	pthread_cond_init(c, &monotonic);
	pthread_condattr_destroy(&monotonic);
}

void condition_wait(pthread_cond_t *c, pthread_mutex_t *lock)
{
	double t = now() + LOOK_MS * 1e-3;
	pthread_cond_timedwait(c, lock, &(struct timespec){ .tv_sec = (time_t)t, .tv_nsec = (long)((t - (double)(time_t)t) * 1e9) });
}

bool look_again(double *until)
{
	const double longest = 100e-6, alone = 5e-6; /* seconds; alone: what a yield takes at most where nobody else wants the core */
	double begin = now();
	*until = *until > 0 ? *until : begin + longest;
	if (begin >= *until)
		return false;
	sched_yield();
	if (now() - begin > alone)
		*until = begin;
	return true;
}

double lived(void)
{
	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	static double asked, still; /* asked: when last, by whatever thread; still: for how long this process stood still */
	const double longest = 0.5; /* between two questions of a process that runs */
	pthread_mutex_lock(&lock);
	double t = now();
	if (asked > 0 && t - asked > longest)
		still += t - asked - longest;
	asked = t;
	t -= still;
	pthread_mutex_unlock(&lock);
	return t;
}

int file_extend(int fd, size_t bytes, bool reserve)
{
	sigset_t all, over, old;
	sigfillset(&all);
	sigemptyset(&over);
	sigaddset(&over, SIGXFSZ);
	pthread_sigmask(SIG_BLOCK, &all, &old); /* a profiler's would end it with EINTR on tmpfs, time after time */
	int error = reserve ? posix_fallocate(fd, 0, (off_t)bytes) : ftruncate(fd, (off_t)bytes) ? errno : 0;
	if (error == EFBIG && !sigismember(&old, SIGXFSZ))
		sigtimedwait(&over, NULL, &(struct timespec){ 0 });
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	return error;
}

int thread_start(pthread_t *thread, void *(*run)(void *), void *arg)
{
	sigset_t all, old;
	sigfillset(&all);
	pthread_sigmask(SIG_BLOCK, &all, &old);
	int error = pthread_create(thread, NULL, run, arg);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	return error;
}
