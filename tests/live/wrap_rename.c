/* SPDX-License-Identifier: Apache-2.0
 * Linked into a copy of chexnet with --wrap=rename and --wrap=renameat2: it is killed before file TEST_DIE of those that are to get another name, or then
 * another training takes over its directory "lost", as with TEST_LOST. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

int __real_rename(const char *from, const char *to);
int __wrap_rename(const char *from, const char *to);
int __real_renameat2(int from_directory, const char *from, int to_directory, const char *to, unsigned flags);
int __wrap_renameat2(int from_directory, const char *from, int to_directory, const char *to, unsigned flags);

static void count(void)
{
	static int made;
	const char *die = getenv("TEST_DIE"), *lost = getenv("TEST_LOST");

	made++;
	if (die && made == atoi(die))
		raise(SIGKILL);
	if (lost && made == atoi(lost) && system("rm -f lost/lock lost/*.partial-* && printf 'n9, process 9, Slurm job 9, run 1' >lost/lock"))
		abort();
}

int __wrap_rename(const char *from, const char *to)
{
	count();
	return __real_rename(from, to);
}

int __wrap_renameat2(int from_directory, const char *from, int to_directory, const char *to, unsigned flags)
{
	count();
	return __real_renameat2(from_directory, from, to_directory, to, flags);
}
