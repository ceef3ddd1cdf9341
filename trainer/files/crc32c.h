/* SPDX-License-Identifier: Apache-2.0
 * CRC-32C (Castagnoli; RFC 3720 appendix B.4 has test vectors) and the mask that TFRecord and TensorBoard files put on it. */
#ifndef DATA_CRC32C_H
#define DATA_CRC32C_H

#include <stddef.h>
#include <stdint.h>

/* Of data, continuing from crc (0 to begin). Thread-safe. */
uint32_t crc32c(uint32_t crc, const void *data, size_t size);

/* The table version, for machines without the instruction and for the test that both agree. */
uint32_t crc32c_portable(uint32_t crc, const void *data, size_t size);

static inline uint32_t crc32c_mask(uint32_t crc)
{
	return (crc >> 15 | crc << 17) + 0xA282EAD8u;
}

#endif
