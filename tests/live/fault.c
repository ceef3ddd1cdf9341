/* SPDX-License-Identifier: Apache-2.0
 * Preloaded into srun, or into slurmd and what it starts: makes the N-th call that spank_hvd.so makes fail, as a full
 * memory, a missing file, a kernel without the call, an hwloc without the function or a Slurm without the item would. N is the number in $HVD_FAULT; "$HVD_FAULT.log" tells what failed. */
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int wanted, calls;

__attribute__((constructor)) static void read_wish(void)
{
	const char *path = getenv("HVD_FAULT");
	FILE *f = path ? fopen(path, "r") : NULL;
	if (f && fscanf(f, "%d", &wanted) != 1)
		wanted = 0;
	if (f)
		fclose(f);
}

static int fails(const char *function, const void *caller)
{
	Dl_info where;
	char path[4096], line[128];

	if (!wanted || !dladdr(caller, &where) || !where.dli_fname || !strstr(where.dli_fname, "spank_hvd"))
		return 0;
	if (++calls != wanted)
		return 0;
	snprintf(path, sizeof path, "%s.log", getenv("HVD_FAULT"));
	int n = snprintf(line, sizeof line, "%d %s\n", calls, function);
	int fd = open(path, O_WRONLY | O_APPEND | O_CREAT, 0666);
	if (fd >= 0 && write(fd, line, (size_t)n) == n)
		close(fd);
	errno = EIO;
	return 1;
}

/* dlsym is one of the functions below, so the real one has to be had in another way. */
static void *real_dlsym(void *library, const char *name)
{
	static const char *const versions[] = { "GLIBC_2.34", "GLIBC_2.2.5", "GLIBC_2.17" };
	static void *(*real)(void *, const char *);

	for (size_t i = 0; !real && i < sizeof versions / sizeof *versions; i++)
		real = (void *(*)(void *, const char *))dlvsym(RTLD_NEXT, "dlsym", versions[i]);
	return real(library, name);
}

#define REAL(type, name, ...) ((type (*)(__VA_ARGS__))real_dlsym(RTLD_NEXT, #name))
#define FAULT(type, name, failure, parameters, arguments, ...) \
	type name parameters; \
	type name parameters \
	{ \
		if (fails(#name, __builtin_return_address(0))) \
			return failure; \
		return REAL(type, name, __VA_ARGS__) arguments; \
	}

enum { ESPANK_ERROR = 3000 };

FAULT(int, spank_getenv, ESPANK_ERROR, (void *s, const char *n, char *b, int l), (s, n, b, l), void *, const char *, char *, int)
FAULT(int, spank_setenv, ESPANK_ERROR, (void *s, const char *n, const char *v, int o), (s, n, v, o), void *, const char *, const char *, int)
FAULT(int, spank_unsetenv, ESPANK_ERROR, (void *s, const char *n), (s, n), void *, const char *)
FAULT(int, spank_option_register, ESPANK_ERROR, (void *s, void *o), (s, o), void *, void *)
FAULT(void *, dlopen, NULL, (const char *f, int m), (f, m), const char *, int)
FAULT(int, fstat, -1, (int f, struct stat *s), (f, s), int, struct stat *)
FAULT(ssize_t, read, -1, (int f, void *b, size_t n), (f, b, n), int, void *, size_t)
FAULT(DIR *, opendir, NULL, (const char *n), (n), const char *)
FAULT(DIR *, fdopendir, NULL, (int f), (f), int)
FAULT(struct dirent *, readdir, NULL, (DIR *d), (d), DIR *)
FAULT(ssize_t, readlink, -1, (const char *p, char *b, size_t n), (p, b, n), const char *, char *, size_t)
FAULT(int, stat, -1, (const char *p, struct stat *s), (p, s), const char *, struct stat *)
FAULT(int, faccessat, -1, (int d, const char *p, int m, int f), (d, p, m, f), int, const char *, int, int)
FAULT(int, setenv, -1, (const char *n, const char *v, int o), (n, v, o), const char *, const char *, int)
FAULT(char *, strdup, NULL, (const char *t), (t), const char *)
FAULT(int, gethostname, -1, (char *b, size_t n), (b, n), char *, size_t)
FAULT(int, access, -1, (const char *n, int m), (n, m), const char *, int)
FAULT(int, sched_setaffinity, -1, (pid_t p, size_t n, const cpu_set_t *s), (p, n, s), pid_t, size_t, const cpu_set_t *)
FAULT(int, sched_getaffinity, -1, (pid_t p, size_t n, cpu_set_t *s), (p, n, s), pid_t, size_t, cpu_set_t *)

/* The C library's own names: dlsym itself needs memory. */
void *__libc_malloc(size_t n);
void *__libc_calloc(size_t n, size_t m);

void *malloc(size_t n)
{
	return fails("malloc", __builtin_return_address(0)) ? NULL : __libc_malloc(n);
}

void *calloc(size_t n, size_t m)
{
	return fails("calloc", __builtin_return_address(0)) ? NULL : __libc_calloc(n, m);
}

int spank_get_item(void *s, int item, ...);
int spank_get_item(void *s, int item, ...)
{
	va_list args;
	va_start(args, item);
	void *a = va_arg(args, void *), *b = va_arg(args, void *);
	va_end(args);
	if (fails("spank_get_item", __builtin_return_address(0)))
		return ESPANK_ERROR;
	return ((int (*)(void *, int, ...))real_dlsym(RTLD_NEXT, "spank_get_item"))(s, item, a, b);
}

#define FAULT_OPEN(name, parameters, arguments, last, ...) \
	int name parameters \
	{ \
		va_list args; \
		va_start(args, last); \
		mode_t mode = va_arg(args, mode_t); \
		va_end(args); \
		return fails(#name, __builtin_return_address(0)) ? -1 : REAL(int, name, __VA_ARGS__, ...) arguments; \
	}

FAULT_OPEN(open, (const char *p, int f, ...), (p, f, mode), f, const char *, int)
FAULT_OPEN(openat, (int d, const char *p, int f, ...), (d, p, f, mode), f, int, const char *, int)

long syscall(long number, ...)
{
	long argument[6];
	va_list args;
	va_start(args, number);
	for (int i = 0; i < 6; i++)
		argument[i] = va_arg(args, long);
	va_end(args);
	if (fails("syscall", __builtin_return_address(0)))
		return -1;
	return REAL(long, syscall, long, ...)(number, argument[0], argument[1], argument[2], argument[3], argument[4], argument[5]);
}

/* The functions of hwloc are asked for by name, so what is handed out is a function in front of them. */
#define HWLOC(name, parameters, arguments, ...) \
	static int (*real_##name)(__VA_ARGS__); \
	static int fault_##name parameters { return fails(#name, __builtin_return_address(0)) ? -1 : real_##name arguments; }

HWLOC(hwloc_topology_init, (void *t), (t), void *)
HWLOC(hwloc_topology_load, (void *t), (t), void *)
HWLOC(hwloc_topology_set_flags, (void *t, unsigned long f), (t, f), void *, unsigned long)
HWLOC(hwloc_topology_set_xmlbuffer, (void *t, const char *x, int n), (t, x, n), void *, const char *, int)
HWLOC(hwloc_topology_set_components, (void *t, unsigned long f, const char *n), (t, f, n), void *, unsigned long, const char *)
HWLOC(hwloc_topology_set_io_types_filter, (void *t, int f), (t, f), void *, int)
HWLOC(hwloc_get_type_depth, (void *t, int k), (t, k), void *, int)

void *dlsym(void *library, const char *name)
{
	if (fails(name, __builtin_return_address(0)))
		return NULL;
	void *symbol = real_dlsym(library, name), *front = NULL;
#define IN_FRONT(function) \
	if (symbol && !strcmp(name, #function)) { \
		*(void **)&real_##function = symbol; \
		front = (void *)fault_##function; \
	}
	IN_FRONT(hwloc_topology_init)
	IN_FRONT(hwloc_topology_load)
	IN_FRONT(hwloc_topology_set_flags)
	IN_FRONT(hwloc_topology_set_xmlbuffer)
	IN_FRONT(hwloc_topology_set_components)
	IN_FRONT(hwloc_topology_set_io_types_filter)
	IN_FRONT(hwloc_get_type_depth)
	return front ? front : symbol;
}
