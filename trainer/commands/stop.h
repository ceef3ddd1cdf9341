/* SPDX-License-Identifier: Apache-2.0
 * Commands that write a directory which appears whole or not at all: what asks them to stop leaves nothing half-written. */
#ifndef COMMANDS_STOP_H
#define COMMANDS_STOP_H

#include <signal.h>

extern volatile sig_atomic_t stop_asked; /* the signal; 0: none */

/* SIGINT, SIGTERM, SIGUSR1 and, but under nohup, SIGHUP set stop_asked; a second one of a kind ends the program at once. */
void stop_at_signals(void);

/* After everything is tidied up: where a signal asked, the program ends by it, as one that knows no signals does. */
void stop_as_asked(void);

#endif
