/* SPDX-License-Identifier: Apache-2.0 */
#include "cpulist.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct cpuset cpuset_and(const struct cpuset *a, const struct cpuset *b)
{
	struct cpuset r;
	for (int i = 0; i < CPUSET_WORDS; i++)
		r.word[i] = a->word[i] & b->word[i];
	return r;
}

struct cpuset cpuset_or(const struct cpuset *a, const struct cpuset *b)
{
	struct cpuset r;
	for (int i = 0; i < CPUSET_WORDS; i++)
		r.word[i] = a->word[i] | b->word[i];
	return r;
}

int cpuset_count(const struct cpuset *s)
{
	int n = 0;
	for (int i = 0; i < CPUSET_WORDS; i++)
		n += __builtin_popcountll(s->word[i]);
	return n;
}

bool cpuset_empty(const struct cpuset *s)
{
	return cpuset_next(s, 0) < 0;
}

bool cpuset_equal(const struct cpuset *a, const struct cpuset *b)
{
	return !memcmp(a, b, sizeof *a);
}

bool cpuset_intersects(const struct cpuset *a, const struct cpuset *b)
{
	struct cpuset both = cpuset_and(a, b);
	return !cpuset_empty(&both);
}

bool cpuset_within(const struct cpuset *a, const struct cpuset *b)
{
	struct cpuset both = cpuset_and(a, b);
	return cpuset_equal(&both, a);
}

int cpuset_next(const struct cpuset *s, int from)
{
	for (int i = from / 64; i < CPUSET_WORDS; i++) {
		uint64_t w = s->word[i];
		if (i == from / 64)
			w &= ~UINT64_C(0) << (from % 64);
		if (w)
			return i * 64 + __builtin_ctzll(w);
	}
	return -1;
}

/* Reads digits at *p; -1 where there are none or the number does not fit a set. */
static int parse_number(const char **p)
{
	int n = 0;
	if (!isdigit((unsigned char)**p))
		return -1;
	for (; isdigit((unsigned char)**p); ++*p) {
		n = n * 10 + (**p - '0');
		if (n >= CPUSET_MAX)
			return -1;
	}
	return n;
}

static void skip_space(const char **p)
{
	while (isspace((unsigned char)**p))
		++*p;
}

static int parse_range(const char **p, struct cpuset *out)
{
	int stride = 1, first = parse_number(p), last = first;
	if (first < 0)
		return -1;
	if (**p == '-') {
		++*p;
		last = parse_number(p);
		if (last < first)
			return -1;
		if (**p == ':') {
			++*p;
			stride = parse_number(p);
			if (stride < 1)
				return -1;
		}
	}
	for (int n = first; n <= last; n += stride)
		cpuset_add(out, n);
	return 0;
}

int cpulist_parse(const char *text, struct cpuset *out)
{
	const char *p = text;

	*out = (struct cpuset){ 0 };
	skip_space(&p);
	while (*p) {
		if (parse_range(&p, out))
			goto fail;
		skip_space(&p);
		if (!*p)
			break;
		if (*p++ != ',')
			goto fail;
		skip_space(&p);
		if (!*p)
			goto fail;
	}
	return 0;
fail:
	*out = (struct cpuset){ 0 };
	return -1;
}

char *cpulist_print(const struct cpuset *s, char *buf, size_t size)
{
	static const char ellipsis[] = "…";
	size_t used = 0;

	buf[0] = '\0';
	for (int first = cpuset_next(s, 0), last; first >= 0; first = cpuset_next(s, last + 1)) {
		char range[32];
		for (last = first; cpuset_has(s, last + 1); last++)
			;
		int n = snprintf(range, sizeof range, last > first ? "%s%d-%d" : "%s%d", used ? "," : "", first, last);
		if (used + (size_t)n + sizeof ellipsis > size) {
			snprintf(buf + used, size - used, "%s", ellipsis);
			break;
		}
		memcpy(buf + used, range, (size_t)n + 1);
		used += (size_t)n;
	}
	return buf;
}
