/* SPDX-License-Identifier: Apache-2.0
 * The 14 findings of ChestX-ray14, in the order of labels, bits, logits and tables everywhere in this program. */
#ifndef DATA_FINDINGS_H
#define DATA_FINDINGS_H

#include <stddef.h>
#include <stdint.h>

#include "error.h"

enum { FINDINGS = 14 };
#define ALL_FINDINGS ((1u << FINDINGS) - 1)
enum { LEAST_POSITIVES = 5 }; /* patients with a finding, and without it, that an interval of its AUROC, or a p-value, needs: learn/few.h */

extern const char *const finding_names[FINDINGS]; /* "Atelectasis", … as NIH spells them */

/* Index of a finding as NIH, its box list ("Infiltrate") or common usage ("Pleural Thickening", "PT") spells it; -1: none. */
int finding_index(const char *name, int length);

enum { FINDING_HINT = 256 };
/* What to say about an unknown finding: "did you mean Mass?", or all 14 when none is near enough to be meant. Returns text. */
const char *finding_hint(const char *name, int length, char text[FINDING_HINT]);

/* A set of findings written with `between` between them; `nothing` ("No Finding") is a word for none, NULL: there is no such word.
 * An unknown finding and one that comes twice are errors: the reason alone is in *why. */
int findings_read(const char *text, char between, const char *nothing, uint32_t *set, struct error *why);

/* That set as findings_read() takes it, cut where `size` ends. Returns text. */
const char *findings_write(char *text, size_t size, uint32_t set, const char *between);

#endif
