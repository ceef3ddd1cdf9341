/* SPDX-License-Identifier: Apache-2.0
 * How a micro-batch comes to the device and its logits leave it, while the one before is computed: each of SLOTS micro-batches has pinned
 * host memory, room for its pixels on the device, and an event for its end. */
#ifndef CUDA_STAGING_H
#define CUDA_STAGING_H

#include <cstring>

#include "device.h"
#include "images.h"
#include "network.h"
#include "update.h"

struct staging_slot {
	uint8_t *pixels;  /* pinned [batch][source_size][source_size][channels] */
	char *words;      /* pinned, batch_words */
	float *logits;    /* pinned [batch][classes] */
	float *wanted;    /* where the caller wants the first `count` of them; NULL: nowhere */
	size_t count;
	uint64_t token;   /* of the micro-batch in it; 0: none */
	device_event copied, done;
};

struct staging {
	const engine_conf *conf = nullptr;
	device_stream copies = nullptr; /* of pixels, beside the stream that computes */
	staging_slot slot[STAGING_SLOTS] = {};
	batch_words at = {};
	uint8_t *kept = nullptr;        /* engine_keep()'s, on the device */
	size_t kept_images = 0;
	bool opened = false;

	size_t image_bytes() const
	{
		return (size_t)conf->source_size * (size_t)conf->source_size * (size_t)conf->channels;
	}
	staging_slot &of(uint64_t token)
	{
		return slot[token % STAGING_SLOTS];
	}
	/* Of the host's memory. */
	size_t host_bytes() const
	{
		return STAGING_SLOTS * ((size_t)conf->batch * (image_bytes() + (size_t)conf->plan->classes * sizeof(float)) + at.bytes);
	}
	/* All functions return 0 or the device's error code. */
	int open(const engine_conf *c)
	{
		conf = c;
		at = batch_words_of(conf->batch);
		int code = device_stream_make(&copies);
		opened = !code;
		for (staging_slot &s : slot) {
			code = code ? code : device_alloc_host((void **)&s.pixels, (size_t)conf->batch * image_bytes());
			code = code ? code : device_alloc_host((void **)&s.words, at.bytes);
			code = code ? code : device_alloc_host((void **)&s.logits, (size_t)conf->batch * (size_t)conf->plan->classes * sizeof(float));
			code = code ? code : device_event_make(&s.copied);
			code = code ? code : device_event_make(&s.done);
		}
		return code;
	}
	void close()
	{
		if (opened)
			device_wait(copies); /* a batch may be on its way that no step waits for */
		for (staging_slot &s : slot) {
			if (s.pixels)
				device_free_host(s.pixels);
			if (s.words)
				device_free_host(s.words);
			if (s.logits)
				device_free_host(s.logits);
			if (s.copied)
				device_event_free(s.copied);
			if (s.done)
				device_event_free(s.done);
		}
		if (kept)
			device_free(kept);
		if (opened)
			device_stream_free(copies);
	}
	/* Hands out the logits of a micro-batch that is through. */
	void deliver(staging_slot &s)
	{
		if (s.wanted)
			memcpy(s.wanted, s.logits, s.count * sizeof(float));
		s.wanted = nullptr;
		s.token = 0;
	}
	/* Waits until the slot of `token` is free. */
	int take(uint64_t token)
	{
		staging_slot &s = of(token);
		const int code = s.token ? device_event_wait(s.done) : 0;
		if (s.token && !code)
			deliver(s);
		return code;
	}
	/* 1: through (a slot that was taken again is), 0: not yet, negative: the device's error code. */
	int done(uint64_t token, int wait)
	{
		staging_slot &s = of(token);
		if (s.token != token)
			return 1;
		const int code = wait ? -device_event_wait(s.done) : device_event_come(s.done) - 1; /* 0: it is */
		if (!wait && code == -1)
			return 0;
		if (code)
			return wait ? code : code + 1;
		deliver(s);
		return 1;
	}
	/* Copies a batch into the slot of `token`, which was taken, and from there to pixels and words on the device; `stream` goes on when it is there. */
	int send(uint64_t token, const engine_batch *batch, const update_step &step, uint8_t *pixels, char *words, device_stream stream)
	{
		staging_slot &s = of(token);
		const size_t n = (size_t)batch->count, all = (size_t)conf->batch, image = image_bytes();
		int code = 0;
		if (!batch->kept) {
			memcpy(s.pixels, batch->pixels, n * image);
			code = device_upload(pixels, s.pixels, n * image, copies);
			code = code ? code : device_event_record(s.copied, copies);
			code = code ? code : device_stream_after(stream, s.copied);
		}
		memcpy(s.words, &step, sizeof step);
		image_window *window = (image_window *)(s.words + at.window);
		float *weight = (float *)(s.words + at.weight);
		uint32_t *labels = (uint32_t *)(s.words + at.labels), *known = (uint32_t *)(s.words + at.known);
		for (size_t i = 0; i < all; i++) {
			const size_t from = i < n ? i : 0; /* a short batch is filled up with its first image */
			const augment w = engine_window(conf, batch, (int)from);
			window[i] = { batch->kept ? kept + batch->kept[from] * image : pixels + from * image, w.x, w.y, w.flip };
			weight[i] = batch->weight ? batch->weight[from] : 1;
			labels[i] = batch->labels ? batch->labels[from] : 0;
			known[i] = batch->known ? batch->known[from] : ~0u;
		}
		return code ? code : device_upload(words, s.words, at.bytes, stream);
	}
	/* Everything of `token` is in the stream. logits: on the device, or NULL. */
	int sent(uint64_t token, const float *logits, float *wanted, size_t count, device_stream stream)
	{
		staging_slot &s = of(token);
		int code = logits ? device_download(s.logits, logits, count * sizeof(float), stream) : 0;
		code = code ? code : device_event_record(s.done, stream);
		s.wanted = code ? nullptr : wanted;
		s.count = count;
		s.token = code ? 0 : token;
		return code;
	}
	int keep(size_t total, size_t first, const uint8_t *from, size_t count, device_stream stream)
	{
		int code = 0;
		if (total != kept_images) {
			if (kept)
				device_free(kept);
			kept = nullptr;
			kept_images = 0;
			if (total)
				code = device_alloc((void **)&kept, total * image_bytes());
			kept_images = code ? 0 : total;
		}
		if (count && !code)
			code = device_upload(kept + first * image_bytes(), from, count * image_bytes(), stream);
		return code ? code : device_wait(stream);
	}
};

#endif
