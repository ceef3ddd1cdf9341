/* SPDX-License-Identifier: Apache-2.0
 * The message authentication code against published vectors, and the parser of control messages against any bytes. */
#include "tests/unit/test.h"

#include "runtime/siphash.h"
#include "runtime/wire.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

static void siphash_gives_the_reference_vectors(void **state)
{
	(void)state;
	/* vectors_sip128 of the reference implementation: key 00…0f, input 00…(n-1); n = 0, 1, 15, 40 checked with OpenSSL too */
	static const struct {
		size_t n;
		const char *hex;
	} vectors[] = {
		{ 0, "a3817f04ba25a8e66df67214c7550293" },
		{ 1, "da87c1d86b99af44347659119b22fc45" },
		{ 15, "5493e99933b0a8117e08ec0f97cfc3d9" },
		{ 40, "df6a301e95c95dad97ae0cc8c6913bd8" },
	};
	uint8_t key[16], in[64], out[16];
	for (int i = 0; i < 16; i++)
		key[i] = (uint8_t)i;
	for (int i = 0; i < 64; i++)
		in[i] = (uint8_t)i;
	for (size_t v = 0; v < sizeof vectors / sizeof vectors[0]; v++) {
		char hex[33];
		siphash128(key, in, vectors[v].n, out);
		for (int i = 0; i < 16; i++)
			snprintf(hex + 2 * i, 3, "%02x", out[i]);
		assert_string_equal(hex, vectors[v].hex);
	}
}

/* Feeds bytes in cuts of any size; returns the number of complete messages, or -1 if the bytes were refused. */
static int feed(const uint8_t *bytes, size_t n, unsigned *random, size_t *payload_bytes)
{
	struct wire_reader r = { .fd = -1 };
	int messages = 0, link[2], whole = 0;
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, link), 0);
	*payload_bytes = 0;
	for (size_t at = 0, cut; at < n && whole >= 0; at += cut) {
		cut = 1 + (size_t)rand_r(random) % (n - at);
		assert_int_equal(send(link[0], bytes + at, cut, 0), cut);
		while ((whole = wire_read(&r, link[1])) > 0) {
			*payload_bytes += r.header.bytes;
			messages++;
			if (messages % 2)
				free(wire_next(&r));
			else
				wire_skip(&r);
		}
	}
	wire_free(&r);
	close(link[0]);
	close(link[1]);
	return whole < 0 ? -1 : messages;
}

static void messages_survive_any_cut(void **state)
{
	(void)state;
	unsigned seed = (unsigned)time(NULL), random = seed;
	printf("# seed %u\n", seed);
	for (int round = 0; round < 300; round++) {
		uint8_t stream[8192];
		size_t n = 0, payloads = 0, got;
		int sent = 0;
		while (n < 4000) {
			struct wire_header h = { .kind = 1 + (uint32_t)rand_r(&random) % 4, .bytes = (uint32_t)rand_r(&random) % 600 };
			memcpy(stream + n, &h, sizeof h);
			memset(stream + n + sizeof h, sent, h.bytes);
			n += sizeof h + h.bytes;
			payloads += h.bytes;
			sent++;
		}
		assert_int_equal(feed(stream, n, &random, &got), sent);
		assert_int_equal(got, payloads);
	}
}

static void garbage_is_refused_or_waits_for_more(void **state)
{
	(void)state;
	unsigned seed = (unsigned)time(NULL), random = seed;
	size_t got;
	int refused = 0;
	printf("# seed %u\n", seed);
	for (int round = 0; round < 3000; round++) {
		uint8_t bytes[256];
		size_t n = 1 + (size_t)rand_r(&random) % sizeof bytes;
		for (size_t i = 0; i < n; i++)
			bytes[i] = (uint8_t)(round % 2 ? rand_r(&random) : rand_r(&random) % 5);
		refused += feed(bytes, n, &random, &got) < 0;
	}
	assert_true(refused > 1000);
	struct wire_header huge = { .kind = WIRE_DATA, .bytes = WIRE_PAYLOAD_MAX + 1 };
	assert_int_equal(feed((const uint8_t *)&huge, sizeof huge, &random, &got), -1);
	struct wire_header both[2] = { huge, { .kind = WIRE_BYE, .tag = 7 } };
	struct wire_reader r = { .fd = -1 };
	int link[2];
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, link), 0);
	assert_int_equal(send(link[0], both, sizeof both, 0), sizeof both);
	assert_true(wire_read(&r, link[1]) == -1 && errno == EPROTO);
	assert_true(wire_read(&r, link[1]) == 1 && r.header.tag == 7); /* what follows is read as another */
	close(link[0]);
	close(link[1]);
}

/* Every third message brings the descriptor of a pipe, which holds its number; those before and after it wait at the link, too. */
static void a_descriptor_comes_with_its_message(void **state)
{
	(void)state;
	enum { MESSAGES = 30 };
	struct wire_reader r = { .fd = -1 };
	int link[2], hole[2];
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, link), 0);
	for (uint8_t i = 0; i < MESSAGES; i++) {
		union {
			struct cmsghdr align;
			char bytes[CMSG_SPACE(sizeof(int))];
		} control = { .bytes = { 0 } };
		struct wire_header header = { .kind = WIRE_DATA, .tag = i, .bytes = i };
		uint8_t payload[MESSAGES] = { 0 };
		struct iovec parts[2] = { { &header, sizeof header }, { payload, i } };
		struct msghdr message = { .msg_iov = parts, .msg_iovlen = 2 };
		if (i % 3 == 0) {
			assert_int_equal(pipe(hole), 0);
			assert_int_equal(write(hole[1], &i, 1), 1);
			message.msg_control = control.bytes;
			message.msg_controllen = sizeof control.bytes;
			*CMSG_FIRSTHDR(&message) = (struct cmsghdr){ .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(sizeof(int)) };
			memcpy(CMSG_DATA(CMSG_FIRSTHDR(&message)), &hole[0], sizeof(int));
		}
		assert_int_equal(sendmsg(link[0], &message, 0), sizeof header + i);
		if (i % 3 == 0) {
			close(hole[0]);
			close(hole[1]);
		}
	}
	for (uint8_t i = 0, number; i < MESSAGES; i++) {
		assert_int_equal(wire_read(&r, link[1]), 1);
		assert_true(r.header.tag == i && r.header.bytes == i);
		assert_int_equal(r.fd >= 0, i % 3 == 0);
		if (r.fd >= 0) {
			assert_int_equal(read(r.fd, &number, 1), 1);
			assert_int_equal(number, i);
		}
		wire_skip(&r); /* closes it */
		assert_int_equal(r.fd, -1);
	}
	assert_int_equal(wire_read(&r, link[1]), 0);
	close(link[0]);
	assert_true(wire_read(&r, link[1]) == -1 && !errno);
	close(link[1]);
	wire_free(&r);
}

static int open_descriptors(void)
{
	int n = 0;
	for (int fd = 0; fd < 256; fd++)
		n += fcntl(fd, F_GETFD) >= 0;
	return n;
}

/* Nothing stays open of what a peer sends along, whoever wants it or not. */
static void descriptors_that_nobody_takes_are_closed(void **state)
{
	(void)state;
	struct wire_reader r = { .fd = -1 };
	struct wire_header header = { .kind = WIRE_DATA };
	int link[2], before;
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, link), 0);
	before = open_descriptors();
	for (int half = 0; half < 2; half++) { /* one with either half of a header */
		union {
			struct cmsghdr align;
			char bytes[CMSG_SPACE(sizeof(int))];
		} control = { .bytes = { 0 } };
		struct iovec part = { (char *)&header + half * sizeof header / 2, sizeof header / 2 };
		struct msghdr message = { .msg_iov = &part, .msg_iovlen = 1, .msg_control = control.bytes, .msg_controllen = sizeof control.bytes };
		*CMSG_FIRSTHDR(&message) = (struct cmsghdr){ .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(sizeof(int)) };
		memcpy(CMSG_DATA(CMSG_FIRSTHDR(&message)), &link[0], sizeof(int));
		assert_int_equal(sendmsg(link[0], &message, 0), sizeof header / 2);
		assert_int_equal(wire_read(&r, link[1]), half);
	}
	assert_true(r.fd >= 0);
	assert_int_equal(open_descriptors(), before + 1);
	wire_free(&r);
	assert_int_equal(open_descriptors(), before);
	close(link[0]);
	close(link[1]);
}

/* A link that breaks is an end with a reason, not one that may still bring something. */
static void a_broken_link_ends_with_its_reason(void **state)
{
	(void)state;
	struct wire_reader r = { .fd = -1 };
	int link[2];
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, link), 0);
	assert_int_equal(write(link[1], "unread", 6), 6);
	close(link[0]); /* with something unread: a reset */
	assert_int_equal(wire_read(&r, link[1]), -1);
	assert_int_equal(errno, ECONNRESET);
	close(link[1]);
	wire_free(&r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(siphash_gives_the_reference_vectors),
		cmocka_unit_test(messages_survive_any_cut),
		cmocka_unit_test(a_descriptor_comes_with_its_message),
		cmocka_unit_test(descriptors_that_nobody_takes_are_closed),
		cmocka_unit_test(a_broken_link_ends_with_its_reason),
		cmocka_unit_test(garbage_is_refused_or_waits_for_more),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
