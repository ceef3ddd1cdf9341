/* SPDX-License-Identifier: Apache-2.0
 * What asks a training to stop, and what stood it still. */
#include "commands/train.h"

#include <pthread.h>
#include <signal.h>

volatile sig_atomic_t train_stop;

static void on_signal(int number)
{
	(void)number;
	train_stop = 1;
}

/* A second Ctrl-C ends at once. Under nohup a terminal that closes is nothing to heed, and a reader of standard output that leaves never is:
 * log.c says so. */
void train_catch_signals(void)
{
	struct sigaction gentle = { .sa_handler = on_signal, .sa_flags = SA_RESTART };
	struct sigaction once = { .sa_handler = on_signal, .sa_flags = (int)(SA_RESTART | SA_RESETHAND) };
	struct sigaction hangup;
	sigset_t waking;

	sigemptyset(&waking);
	sigaddset(&waking, SIGCONT); /* it wakes all the same, and is kept for train_was_suspended() */
	pthread_sigmask(SIG_BLOCK, &waking, NULL);
	if (sigaction(SIGHUP, NULL, &hangup) == 0 && hangup.sa_handler != SIG_IGN)
		sigaction(SIGHUP, &gentle, NULL);
	signal(SIGPIPE, SIG_IGN);
	sigaction(SIGTERM, &gentle, NULL);
	sigaction(SIGUSR1, &gentle, NULL);
	sigaction(SIGINT, &once, NULL);
}

int train_was_suspended(void)
{
	static const struct timespec at_once;
	sigset_t waking;

	sigemptyset(&waking);
	sigaddset(&waking, SIGCONT);
	return sigtimedwait(&waking, NULL, &at_once) == SIGCONT;
}
