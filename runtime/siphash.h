/* SPDX-License-Identifier: Apache-2.0
 * SipHash-2-4 with a 128-bit result (Aumasson, Bernstein: "SipHash: a fast short-input PRF", 2012), used as the
 * message authentication code of the mesh's handshake. */
#ifndef HVD_RUNTIME_SIPHASH_H
#define HVD_RUNTIME_SIPHASH_H

#include <stddef.h>
#include <stdint.h>

void siphash128(const uint8_t key[16], const void *data, size_t n, uint8_t out[16]);

#endif
