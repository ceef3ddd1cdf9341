/* SPDX-License-Identifier: Apache-2.0
 * Mapped files, and what becomes of a program whose mapped file is cut by somebody else: the kernel sends SIGBUS to the thread that reads
 * behind the new end, in the middle of a checksum or a copy, where no error can be returned. */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "files/file.h"
#include "files/partials.h"

/* A mapped file, for the handler: it may run at any time, so whatever it finds in the list is whole. */
struct mapping {
	_Atomic(struct mapping *) next;
	const uint8_t *data;
	size_t size;
	char path[];
};

static _Atomic(struct mapping *) mappings;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of those who change the list */
static pthread_once_t once = PTHREAD_ONCE_INIT;
static struct sigaction before;
static void (*_Atomic listener)(const char *line);

static void on_lost_page(int signal, siginfo_t *info, void *context)
{
	static const char program[] = "chexnet: ";
	void (*const tell)(const char *line) = atomic_load(&listener);
	const uint8_t *at = info->si_addr;
	char line[FILE_PATH + 128];

	(void)context;
	for (const struct mapping *m = info->si_code > 0 ? atomic_load(&mappings) : NULL; m; m = atomic_load(&m->next)) {
		if (at < m->data || at >= m->data + m->size)
			continue;
		int n = snprintf(line, sizeof line, "%s%s: byte %zu cannot be read any more: the file was cut, or its storage failed\n", program, m->path,
				 (size_t)(at - m->data));
		partials_remove();
		const int told = write(STDERR_FILENO, line, (size_t)n) >= 0;
		line[n - 1] = '\0';
		if (tell)
			tell(line + sizeof program - 1);
		_exit(told ? EXIT_DATA : EXIT_INTERNAL);
	}
	/* none of ours: what was to happen happens as soon as the instruction is tried again, or what somebody sent comes again */
	sigaction(SIGBUS, &before, NULL);
	if (info->si_code <= 0)
		raise(signal);
}

void file_on_lost_page(void (*tell)(const char *line))
{
	atomic_store(&listener, tell);
}

static void install(void)
{
	struct sigaction action = { .sa_sigaction = on_lost_page, .sa_flags = SA_SIGINFO };

	sigemptyset(&action.sa_mask);
	sigaction(SIGBUS, &action, &before);
}

static int remember(const struct mapped_file *file, const char *path)
{
	size_t length = strlen(path) + 1;
	struct mapping *m = malloc(sizeof *m + length);

	if (!m)
		return -1;
	m->data = file->data;
	m->size = file->size;
	memcpy(m->path, path, length);
	pthread_once(&once, install);
	pthread_mutex_lock(&lock);
	atomic_init(&m->next, atomic_load(&mappings));
	atomic_store(&mappings, m);
	pthread_mutex_unlock(&lock);
	return 0;
}

static void forget(const uint8_t *data)
{
	pthread_mutex_lock(&lock);
	for (_Atomic(struct mapping *) *from = &mappings; *from; from = &(*from)->next) {
		struct mapping *m = atomic_load(from);
		if (m->data != data)
			continue;
		atomic_store(from, atomic_load(&m->next));
		free(m);
		break;
	}
	pthread_mutex_unlock(&lock);
}

int file_map(struct mapped_file *file, const char *path, struct error *e)
{
	size_t size;
	int fd = file_open_regular(path, &size, e);

	*file = (struct mapped_file){ 0 };
	if (fd < 0)
		return fd;
	void *data = size ? mmap(NULL, size, PROT_READ, MAP_SHARED, fd, 0) : NULL;
	int why = errno;
	close(fd);
	if (data == MAP_FAILED)
		return fail(e, EXIT_INTERNAL, "%s: cannot be mapped: %s", path, strerror(why));
	*file = (struct mapped_file){ .data = data, .size = size };
	if (data && remember(file, path)) {
		file_unmap(file);
		return fail(e, EXIT_INTERNAL, "%s: no memory", path);
	}
	return 0;
}

void file_unmap(struct mapped_file *file)
{
	if (file->data) {
		forget(file->data);
		munmap((void *)file->data, file->size);
	}
	*file = (struct mapped_file){ 0 };
}
