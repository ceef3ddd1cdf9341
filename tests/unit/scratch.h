/* SPDX-License-Identifier: Apache-2.0
 * A directory for a test program's files: made empty at the start, gone at the end. */
#ifndef TESTS_SCRATCH_H
#define TESTS_SCRATCH_H

#include <sys/stat.h>
#include <unistd.h>

#include "files/file.h"
#include "test.h"

static char scratch[2048];

static inline int scratch_make(void **state)
{
	const char *build = getenv("BUILD");

	(void)state;
	snprintf(scratch, sizeof scratch, "%s", build ? build : "build");
	mkdir(scratch, 0777);
	strcat(scratch, "/tests");
	mkdir(scratch, 0777);
	strcat(scratch, "/tmp");
	mkdir(scratch, 0777);
	snprintf(scratch + strlen(scratch), 64, "/unit-%ld", (long)getpid());
	return mkdir(scratch, 0777);
}

static inline int scratch_remove(void **state)
{
	(void)state;
	directory_remove(scratch);
	return 0;
}

/* A path in it, in one of four buffers. */
__attribute__((format(printf, 1, 2))) static inline const char *scratch_path(const char *format, ...)
{
	static char paths[4][FILE_PATH];
	static int next;
	char *path = paths[next++ % 4];
	va_list args;

	int n = snprintf(path, FILE_PATH, "%s/", scratch);
	va_start(args, format);
	vsnprintf(path + n, FILE_PATH - (size_t)n, format, args);
	va_end(args);
	return path;
}

static inline void scratch_write(const char *path, const void *data, size_t size)
{
	FILE *f = fopen(path, "wb");
	assert_non_null(f);
	assert_int_equal(fwrite(data, 1, size, f), size);
	assert_int_equal(fclose(f), 0);
}

#endif
