/* SPDX-License-Identifier: Apache-2.0
 * The half-written files of this process, so that they go with it where a signal ends it. */
#ifndef FILES_PARTIALS_H
#define FILES_PARTIALS_H

/* From now on SIGINT, SIGTERM, SIGHUP and SIGPIPE, where one of them would just end the process, remove what partials_add() named before they
 * do. A command that sets a handler of its own afterwards has its own way. */
void partials_go_with_signals(void);

/* To be called before the file is made, after it was, and when it has its name or is gone: a signal that comes while open() is at work, or to
 * another thread, finds it. `path` stays where it is meanwhile. With more than 64 at once, others are left where a signal comes. Thread-safe. */
void partials_add(const char *path);
void partials_made(const char *path);
void partials_forget(const char *path);

/* Removes them; may be called from a signal handler. */
void partials_remove(void);

#endif
