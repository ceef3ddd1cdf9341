/* SPDX-License-Identifier: Apache-2.0
 * What a rank reads from a socket or a file that others wrote: messages of the mesh in any cut, and plan files. No reader may
 * crash, read beyond what it was given, or hold what cannot be. With clang -fsanitize=fuzzer -DLIBFUZZER it is a libFuzzer target; compiled alone it mutates examples:
 *
 *     fuzz_runtime SECONDS [SEED]
 */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "../../runtime/boot.h"
#include "../../runtime/planner.h"
#include "../../runtime/transport.h"
#include "../../runtime/wire.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(int truth, const char *what)
{
	if (truth)
		return;
	fprintf(stderr, "not true: %s\n", what);
	abort();
}

/* The first byte says how the rest is cut. */
static void messages(const uint8_t *data, size_t size)
{
	struct wire_reader r = { .fd = -1 };
	size_t step = size ? 1 + data[0] % 61 : 1;
	int link[2], whole = 0;
	check(!socketpair(AF_UNIX, SOCK_STREAM, 0, link), "a pair of sockets");
	for (size_t at = 1; at < size && whole >= 0; at += step) {
		size_t n = size - at < step ? size - at : step;
		check(send(link[0], data + at, n, 0) == (ssize_t)n, "there is room");
		while ((whole = wire_read(&r, link[1])) > 0) {
			check(r.header.bytes <= WIRE_PAYLOAD_MAX && r.header.kind >= WIRE_DATA && r.header.kind <= WIRE_BYE, "a message is one");
			if (r.header.tag % 2)
				free(wire_next(&r));
			else
				wire_skip(&r);
		}
	}
	wire_free(&r);
	close(link[0]);
	close(link[1]);
}

static void plan(const uint8_t *data, size_t size)
{
	enum { GRADIENTS = 9 };
	static char path[64];
	int last[GRADIENTS], ranks;
	char why[WHY_BYTES] = "";
	snprintf(path, sizeof path, "/tmp/fuzz-plan.%d", (int)getpid());
	FILE *f = fopen(path, "w");
	check(f && fwrite(data, 1, size, f) == size && !fclose(f), "a file is written");
	int buckets = plan_read(path, 0xabc, GRADIENTS, last, &ranks, why);
	struct profile p;
	if (!profile_read(path, &p, why))
		check(p.n > 0 && p.ranks > 0 && p.step > 0 && p.ready[0] >= 0 && p.ready[p.n - 1] <= p.step && p.cost.latency >= 0, "measurements make sense");
	free(p.bytes);
	free(p.ready);
	unlink(path);
	check(buckets > 0 || (buckets < 0 && *why), "a plan, or a reason");
	check(buckets <= GRADIENTS && (buckets < 0 || last[buckets - 1] == GRADIENTS - 1), "the last bucket ends with the last gradient");
	for (int b = 0; b < buckets; b++)
		check(last[b] >= (b ? last[b - 1] + 1 : 0), "buckets follow each other");
}

static void log_lines(const uint8_t *data, size_t size)
{
	char *text = malloc(size + 1);
	struct pair p;
	check(text != NULL, "memory");
	memcpy(text, data, size);
	text[size] = 0;
	if (transport_line(text, &p))
		check(p.from >= 0 && p.to >= 0 && *p.how && strlen(p.how) < sizeof p.how, "a pair has two ranks and a way");
	free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	messages(data, size);
	log_lines(data, size);
	if (size && data[0] % 16 == 'h' % 16) /* files are slow */
		plan(data, size);
	return 0;
}

#ifndef LIBFUZZER
int main(int argc, char **argv)
{
	static const char *const text[] = {
		"hvd plan 1: 9 gradients, hash abc, 3 buckets; the last gradient of each\n2\n5\n8\n"
		"measured by 2 ranks: step 0.5 s, all-reduce 0.1 s + 0.2 s a byte; bytes and seconds of each gradient\n"
		"4 0.01\n4 0.02\n4 0.03\n4 0.04\n4 0.05\n4 0.06\n4 0.07\n4 0.08\n4 0.09\n",
		"n1:12:34 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/IPC\n",
		"n1:12:34 [0] NCCL INFO Channel 01/0 : 3[3] -> 12[0] [send] via NET/IB/0/GDRDMA\n",
	};
	struct {
		struct wire_header header;
		char payload[40];
	} message[3] = { { { .kind = WIRE_DATA, .tag = 7, .bytes = 40 }, "abc" }, { { .kind = WIRE_BEAT, .bytes = 40 }, "" }, { { .kind = WIRE_FAULT, .bytes = 40 }, "" } };
	static uint8_t input[4096];
	double seconds = argc > 1 ? atof(argv[1]) : 10;
	unsigned random = argc > 2 ? (unsigned)atol(argv[2]) : (unsigned)time(NULL);
	long rounds = 0;
	printf("fuzz_runtime: seed %u\n", random);
	for (time_t end = time(NULL) + (time_t)seconds; time(NULL) < end; rounds++) {
		int example = rand_r(&random) % 4;
		size_t size = example < 3 ? strlen(text[example]) : sizeof message + 1;
		memset(input, 0, sizeof input);
		memcpy(input + (example == 3), example < 3 ? (const void *)text[example] : (const void *)message, example < 3 ? size : size - 1);
		for (int i = rand_r(&random) % 8; i > 0; i--)
			input[(size_t)rand_r(&random) % size] = (uint8_t)rand_r(&random);
		if (rand_r(&random) % 4 == 0)
			size = (size_t)rand_r(&random) % size;
		LLVMFuzzerTestOneInput(input, size);
	}
	printf("fuzz_runtime: %ld inputs, nothing found\n", rounds);
	return 0;
}
#endif
