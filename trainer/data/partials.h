/* SPDX-License-Identifier: Apache-2.0
 * The half-written files of this process, so that they go with it where a signal ends it. */
#ifndef DATA_PARTIALS_H
#define DATA_PARTIALS_H

/* From now on SIGINT, SIGTERM, SIGHUP and SIGPIPE, where one of them would just end the process, remove what partials_add() named before they
 * do. A command that sets a handler of its own afterwards has its own way. */
void partials_go_with_signals(void);

/* `path` stays where it is until partials_forget(). What there is no room for, with more than 64 at once, is left where a signal comes. Thread-safe. */
void partials_add(const char *path);
void partials_forget(const char *path);

/* Removes them; may be called from a signal handler. */
void partials_remove(void);

#endif
