/* SPDX-License-Identifier: Apache-2.0 */
#include "files/partials.h"

#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <unistd.h>

enum { ROOM = 64 };

static _Atomic(const char *) partials[ROOM];
static _Atomic pid_t owner; /* a child of ours has them too, and they are not its own */

static _Atomic int ending;      /* a signal has come, perhaps to another thread */

void partials_add(const char *path)
{
	atomic_store(&owner, getpid());
	for (int i = 0; i < ROOM; i++) {
		const char *none = NULL;
		if (atomic_compare_exchange_strong(&partials[i], &none, path))
			return;
	}
}

void partials_forget(const char *path)
{
	for (int i = 0; i < ROOM; i++) {
		const char *it = path;
		if (atomic_compare_exchange_strong(&partials[i], &it, NULL))
			return;
	}
}

void partials_made(const char *path)
{
	if (!atomic_load(&ending))
		return; /* whoever ends the process sees the file, which is there already */
	unlink(path);
	for (;;)
		pause();
}

void partials_remove(void)
{
	if (atomic_load(&owner) != getpid())
		return;
	for (int i = 0; i < ROOM; i++) {
		const char *path = atomic_load(&partials[i]);
		if (path)
			unlink(path);
	}
}

static void on_signal(int number)
{
	atomic_store(&ending, 1);
	partials_remove();
	raise(number); /* as soon as this returns the process ends by it: SA_RESETHAND */
}

void partials_go_with_signals(void)
{
	static const int numbers[] = { SIGINT, SIGTERM, SIGHUP, SIGPIPE, SIGUSR1 };
	struct sigaction action = { .sa_handler = on_signal, .sa_flags = SA_RESETHAND }, before;

	for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++)
		if (sigaction(numbers[i], NULL, &before) == 0 && before.sa_handler == SIG_DFL) /* not under nohup */
			sigaction(numbers[i], &action, NULL);
}
