/* SPDX-License-Identifier: Apache-2.0
 * The 14 findings of ChestX-ray14, in the order of labels, bits, logits and tables everywhere in this program. */
#ifndef DATA_FINDINGS_H
#define DATA_FINDINGS_H

enum { FINDINGS = 14 };

extern const char *const finding_names[FINDINGS]; /* "Atelectasis", … as NIH spells them */

/* Index of a finding as NIH, its box list ("Infiltrate") or common usage ("Pleural Thickening", "PT") spells it; -1: none. */
int finding_index(const char *name, int length);

/* The finding whose name is nearest to an unknown one, for the error message; NULL when none is near enough to be meant. */
const char *finding_nearest(const char *name, int length);

#endif
