/* SPDX-License-Identifier: Apache-2.0 */
#include "commands/stop.h"

#include <stddef.h>

volatile sig_atomic_t stop_asked;

static void on_signal(int number)
{
	stop_asked = number;
}

void stop_as_asked(void)
{
	if (stop_asked)
		raise(stop_asked);
}

void stop_at_signals(void)
{
	struct sigaction action = { .sa_handler = on_signal, .sa_flags = SA_RESETHAND }, hangup;

	sigaction(SIGINT, &action, NULL);
	sigaction(SIGTERM, &action, NULL);
	sigaction(SIGUSR1, &action, NULL); /* as #SBATCH --signal=USR1@120 sends to whatever command the job runs */
	if (sigaction(SIGHUP, NULL, &hangup) == 0 && hangup.sa_handler != SIG_IGN) /* not under nohup */
		sigaction(SIGHUP, &action, NULL);
}
