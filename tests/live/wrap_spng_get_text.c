/* SPDX-License-Identifier: Apache-2.0
 * Linked into a copy of chexnet with --wrap=spng_get_text: there is no memory for what a PNG file says of itself. */
#include <spng.h>

int __wrap_spng_get_text(spng_ctx *png, struct spng_text *text, uint32_t *n);

int __wrap_spng_get_text(spng_ctx *png, struct spng_text *text, uint32_t *n)
{
	(void)png, (void)text, (void)n;
	return SPNG_EMEM;
}
