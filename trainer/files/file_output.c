/* SPDX-License-Identifier: Apache-2.0
 * Files and directories that are written, and whether they can be. */
#include "files/file.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "files/partials.h"

enum { OUTPUT_BUFFER = 1 << 18 };

#define PARTIAL ".partial-%08x" /* no word, so that checkpoint_sweep() takes nobody's */

static int is_standard_output(const struct stat *st)
{
	struct stat out;

	return fstat(STDOUT_FILENO, &out) == 0 && out.st_dev == st->st_dev && out.st_ino == st->st_ino;
}

int is_mounted(const char *path)
{
	struct statx st;

	return statx(AT_FDCWD, path, 0, STATX_TYPE, &st) == 0 && (st.stx_attributes & STATX_ATTR_MOUNT_ROOT);
}

/* EXIT_USAGE where nothing can be made, as in /proc, or a name is too long; otherwise what is in the way may change. */
static enum exit_code place_fault(int why)
{
	return fault_of(why) == EXIT_DATA || why == EISDIR ? EXIT_USAGE : EXIT_INTERNAL;
}

/* What a link stands for, also where that is not there yet: a rename would put the file in the link's place. */
static int follow_links(char path[FILE_PATH], struct error *e)
{
	char target[FILE_PATH], next[FILE_PATH];
	ssize_t n;

	for (int links = 0; (n = readlink(path, target, sizeof target - 1)) >= 0; links++) {
		const char *slash = strrchr(path, '/');
		target[n] = '\0';
		if (links == 40) /* as the kernel does */
			return fail(e, EXIT_USAGE, "%s: cannot be written: %s", path, strerror(ELOOP));
		if (path_join(next, e, "%.*s%s", *target == '/' || !slash ? 0 : (int)(slash - path) + 1, path, target))
			return -e->code;
		strcpy(path, next);
	}
	return 0;
}

/* Says where the bytes go. A rename would put a file in a device's place, and would not reach an open file that has no name any more, of which
 * /dev/fd/N tells none. A link that the kernel does not follow, as one that another user left in /tmp, is not followed here either. */
static int output_place(struct output_file *out, const char *path, struct error *e)
{
	struct stat st;
	int there = stat(path, &st) == 0;

	*out = (struct output_file){ .fd = -1 };
	if (there ? S_ISDIR(st.st_mode) : errno != ENOENT)
		return fail(e, place_fault(there ? EISDIR : errno), "%s: cannot be written: %s", path, strerror(there ? EISDIR : errno));
	if (path_join(out->path, e, "%s", path) || (there && (!S_ISREG(st.st_mode) || is_standard_output(&st) || is_mounted(path))) || follow_links(out->path, e))
		return -e->code;
	if (there && strcmp(out->path, path) != 0 && lstat(out->path, &st))
		return path_join(out->path, e, "%s", path);
	return path_join(out->partial, e, "%s" PARTIAL, out->path, 0u);
}

/* The list of users and groups (ACL) of the file at path, or none. */
static int keep_list(int fd, const char *path)
{
	static const char name[] = "system.posix_acl_access";
	char old[4096], own[sizeof old];
	const ssize_t n = getxattr(path, name, old, sizeof old), m = fgetxattr(fd, name, own, sizeof own);

	if (n == m && (n < 0 || memcmp(old, own, (size_t)n) == 0))
		return 0; /* also where it is the directory's, and names who has no number in a container */
	return n < 0 ? fremovexattr(fd, name) : fsetxattr(fd, name, old, (size_t)n, 0);
}

/* Whether the old file of that name lies beside the new one. By what was opened: links on the way to it may lead elsewhere by now. */
static int lies_beside(int fd, const char *path, const struct stat *old)
{
	char link[32], place[FILE_PATH], beside[FILE_PATH];
	const char *slash = strrchr(path, '/');
	struct error none = { 0 };
	struct stat st;

	snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
	const ssize_t n = readlink(link, place, sizeof place - 1);
	if (n < 0)
		return 0;
	place[n] = '\0';
	return path_join(beside, &none, "%s/%s", dirname(place), slash ? slash + 1 : path) == 0 && lstat(beside, &st) == 0 && st.st_dev == old->st_dev && st.st_ino == old->st_ino;
}

/* Whoever may read what this takes the place of may read this, and nobody else: predictions name patients. */
void file_keep_rights(int fd, const char *path, const struct stat *old, int owner)
{
	struct stat own;
	/* one without a number in a container's user namespace, which cannot be given, may be the directory's, as the old file's was */
	const int same = (fstat(fd, &own) == 0 && own.st_gid == old->st_gid) || fchown(fd, (uid_t)-1, old->st_gid) == 0;
	const mode_t all = old->st_mode & S_IRWXO, closed = (old->st_mode & S_IRWXU) | all << 3 | all;

	fchmod(fd, same ? old->st_mode & (S_ISDIR(old->st_mode) ? 03777 : 0777) : closed);
	if (same && keep_list(fd, path))
		fchmod(fd, closed);
	/* root's alone to give; elsewhere it could have come to stand for a file of the system's */
	if (owner && lies_beside(fd, path, old))
		(void)!fchown(fd, old->st_uid, (gid_t)-1);
}

/* A new file: what has a name like it, a link above all, is somebody's, and another run may write the same output now. */
static int open_partial(struct output_file *out)
{
	size_t length = strlen(out->path);
	unsigned any;
	struct stat old;
	int there = stat(out->path, &old) == 0, fd;

	do {
		if (getrandom(&any, sizeof any, 0) < 0)
			return -1;
		snprintf(out->partial + length, sizeof out->partial - length, PARTIAL, any);
		partials_add(out->partial);
		fd = open(out->partial, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, there ? 0600 : 0666);
		if (fd < 0)
			partials_forget(out->partial);
	} while (fd < 0 && errno == EEXIST);
	if (fd >= 0 && there)
		file_keep_rights(fd, out->path, &old, 1);
	if (fd >= 0)
		partials_made(out->partial);
	return fd;
}

/* With `remove`, the file goes; otherwise it has its name. */
static void forget_partial(const struct output_file *out, int remove)
{
	if (!*out->partial)
		return;
	if (remove)
		unlink(out->partial);
	partials_forget(out->partial);
}

static int open_directly(const struct output_file *out)
{
	struct stat st;

	if (stat(out->path, &st) || !is_standard_output(&st))
		return open(out->path, O_WRONLY | O_TRUNC | O_CLOEXEC);
	fflush(stdout); /* what was printed before comes before */
	return fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
}

int output_check(const char *path, struct error *e)
{
	struct output_file out;

	if (output_place(&out, path, e))
		return -e->code;
	out.fd = *out.partial ? open_partial(&out) : -1;
	if (*out.partial ? out.fd < 0 : access(out.path, W_OK))
		return fail(e, place_fault(errno), "%s: cannot be written: %s", path, strerror(errno));
	if (out.fd >= 0) {
		close(out.fd);
		forget_partial(&out, 1);
	}
	return 0;
}

/* EXIT_USAGE where there is no directory for what path names. */
static int check_parent(const char *path, struct error *e)
{
	struct stat st;
	char copy[FILE_PATH];

	if (path_join(copy, e, "%s", path))
		return -e->code;
	const char *parent = dirname(copy);
	int missing = stat(parent, &st) ? errno == ENOENT || errno == ENOTDIR : !S_ISDIR(st.st_mode);

	return missing ? fail(e, EXIT_USAGE, "%s: cannot be made: there is no directory %.400s", path, parent) : 0;
}

/* A file by its directory and its name in there, of which the links are followed. */
struct place {
	struct stat directory;
	char path[FILE_PATH];
	const char *name; /* in path */
};

/* -1 where there is no such directory. */
static int find_place(struct place *p, const char *path)
{
	struct error none = { 0 };
	char directory[FILE_PATH];

	if (path_join(p->path, &none, "%s", path) || follow_links(p->path, &none))
		return -1;
	strcpy(directory, p->path);
	p->name = basename(p->path);
	return stat(dirname(directory), &p->directory);
}

/* Whether two paths name one file, also one that is not there yet. */
static int is_one_file(const char *path, const char *other)
{
	struct stat a, b;
	struct place p, q;

	if (stat(path, &a) == 0 && stat(other, &b) == 0)
		return S_ISREG(a.st_mode) && a.st_dev == b.st_dev && a.st_ino == b.st_ino;
	if (find_place(&p, path) || find_place(&q, other))
		return strcmp(path, other) == 0;
	return p.directory.st_dev == q.directory.st_dev && p.directory.st_ino == q.directory.st_ino && strcmp(p.name, q.name) == 0;
}

int output_spares(const char *path, const char *other, struct error *e)
{
	if (!path || !other || !is_one_file(path, other))
		return 0;
	return fail(e, EXIT_USAGE, "%s: would be written over %s: choose another name", path, strcmp(path, other) ? other : "itself");
}

int output_replaces(const char *path, const char *start, const char *kind, struct error *e)
{
	char text[64];
	size_t length = strlen(start);
	struct stat st;

	if (!path || strncmp(path, "/dev/", 5) == 0)
		return 0;
	if (stat(path, &st))
		return errno == ENOENT || errno == ENOTDIR ? check_parent(path, e) : 0;
	if (S_ISDIR(st.st_mode))
		return fail(e, EXIT_USAGE, "%s: is a directory, not a place for a file", path);
	if (!S_ISREG(st.st_mode) || st.st_size == 0 || is_standard_output(&st))
		return 0; /* a stream that was opened by whoever started the program is there to be written to */
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : read(fd, text, length < sizeof text ? length : sizeof text);
	int why = errno;

	if (fd >= 0)
		close(fd);
	if (n < 0)
		return fail(e, EXIT_INTERNAL, "%s: is there and cannot be read, so nothing tells that it is a %s, and it is left as it is: %s", path, kind, strerror(why));
	return memcmp(text, start, (size_t)n) != 0 ? fail(e, EXIT_USAGE, "%s: is there and no %s, so it is left as it is: choose another name", path, kind) : 0;
}

int output_open(struct output_file *out, const char *path, struct error *e)
{
	if (output_place(out, path, e))
		return -e->code;
	out->buffer = malloc(OUTPUT_BUFFER);
	if (!out->buffer)
		return fail(e, EXIT_INTERNAL, "%s: no memory", path);
	out->fd = *out->partial ? open_partial(out) : open_directly(out);
	if (out->fd < 0) {
		int why = errno;
		free(out->buffer);
		out->buffer = NULL;
		return fail(e, EXIT_INTERNAL, "%s: cannot be written: %s", path, strerror(why));
	}
	return 0;
}

/* Returns the number of bytes that were not written. */
static size_t write_all(int fd, const uint8_t *data, size_t size)
{
	while (size) {
		ssize_t n = write(fd, data, size);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			break;
		data += n;
		size -= (size_t)n;
	}
	return size;
}

int output_flush(struct output_file *out, struct error *e)
{
	size_t left = write_all(out->fd, out->buffer, out->filled);

	out->filled = 0;
	if (left)
		return fail(e, EXIT_INTERNAL, "%s: writing failed after %llu bytes: %s", out->path, (unsigned long long)(out->size - left),
			    strerror(errno));
	return 0;
}

int output_write(struct output_file *out, const void *data, size_t size, struct error *e)
{
	const uint8_t *p = data;

	while (size) {
		size_t room = OUTPUT_BUFFER - out->filled, n = size < room ? size : room;
		memcpy(out->buffer + out->filled, p, n);
		out->filled += n;
		out->size += n;
		p += n;
		size -= n;
		if (out->filled == OUTPUT_BUFFER && output_flush(out, e))
			return -e->code;
	}
	return 0;
}

int output_write_at(struct output_file *out, const void *data, size_t size, uint64_t offset, struct error *e)
{
	const uint8_t *p = data;

	while (size) {
		ssize_t n = pwrite(out->fd, p, size, (off_t)offset);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return fail(e, EXIT_INTERNAL, "%s: writing failed at byte %llu: %s", out->path, (unsigned long long)offset, strerror(errno));
		p += n;
		size -= (size_t)n;
		offset += (uint64_t)n;
	}
	return 0;
}

int output_commit(struct output_file *out, struct error *e)
{
	int rc = output_flush(out, e);

	if (!rc && *out->partial && fsync(out->fd))
		rc = fail(e, EXIT_INTERNAL, "%s: cannot be brought to disk: %s", out->path, strerror(errno));
	if (close(out->fd) && !rc)
		rc = fail(e, EXIT_INTERNAL, "%s: closing failed: %s", out->path, strerror(errno));
	out->fd = -1;
	if (!rc && *out->partial && rename(out->partial, out->path))
		rc = fail(e, EXIT_INTERNAL, "%s: cannot take its name: %s", out->path, strerror(errno));
	forget_partial(out, rc != 0);
	free(out->buffer);
	out->buffer = NULL;
	return rc;
}

void output_discard(struct output_file *out)
{
	if (!out->buffer)
		return;
	if (out->fd >= 0)
		close(out->fd);
	forget_partial(out, 1);
	free(out->buffer);
	*out = (struct output_file){ .fd = -1 };
}

int file_write(const char *path, const void *data, size_t size, struct error *e)
{
	struct output_file out;

	if (output_open(&out, path, e))
		return -e->code;
	if (output_write(&out, data, size, e)) {
		output_discard(&out);
		return -e->code;
	}
	return output_commit(&out, e);
}

int file_put(const char *path, const void *data, size_t size, struct error *e)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);

	if (fd < 0)
		return fail(e, EXIT_INTERNAL, "%s: cannot be written: %s", path, strerror(errno));
	size_t left = write_all(fd, data, size);
	int rc = left ? fail(e, EXIT_INTERNAL, "%s: writing failed after %zu bytes: %s", path, size - left, strerror(errno)) : 0;
	if (close(fd) && !rc)
		rc = fail(e, EXIT_INTERNAL, "%s: closing failed: %s", path, strerror(errno));
	return rc;
}

int directory_ensure(const char *path, struct error *e)
{
	if (mkdir(path, 0777) == 0 || errno == EEXIST)
		return 0;
	int why = errno;
	return check_parent(path, e) ? -e->code : fail(e, place_fault(why), "%s: cannot be made: %s", path, strerror(why));
}

int directory_check(const char *path, struct error *e)
{
	struct stat st;
	char parent[FILE_PATH];

	if (path_join(parent, e, "%s", path))
		return -e->code;
	if (stat(path, &st) == 0) {
		if (!S_ISDIR(st.st_mode))
			return fail(e, EXIT_USAGE, "%s: cannot be written to: %s", path, strerror(ENOTDIR));
		return access(path, W_OK | X_OK) ? fail(e, EXIT_INTERNAL, "%s: cannot be written to: %s", path, strerror(errno)) : 0;
	}
	int why = errno;
	if (lstat(path, &st) == 0 && why == ENOENT)
		return fail(e, EXIT_USAGE, "%s: cannot be written to: a link to what is not there", path);
	if (check_parent(path, e))
		return -e->code;
	errno = why;
	if (errno != ENOENT || access(dirname(parent), W_OK | X_OK))
		return fail(e, place_fault(errno), "%s: cannot be made: %s", path, strerror(errno));
	return 0;
}
