/* SPDX-License-Identifier: Apache-2.0
 * Calibration in numbers, as TRIPOD+AI asks for it: in the large, the slope, and the scores of the probabilities. */
#include <math.h>

#include "report/parts.h"

static void put_measure(struct page *page, const struct interval *v, int digits, int sign)
{
	if (isnan(v->value)) {
		page_put(page, "<td class=\"n soft\">n/a</td>");
		return;
	}
	page_put(page, sign ? "<td class=\"n\">%+.*f" : "<td class=\"n\">%.*f", digits, v->value);
	if (!isnan(v->low))
		page_put(page, sign ? " <small>%+.*f to %+.*f</small>" : " <small>%.*f to %.*f</small>", digits, v->low, digits, v->high);
	page_put(page, "</td>");
}

/* With three digits that say something, whether there are many or few. */
static int digits_of(double value)
{
	return value < 0.1 ? 3 : value < 10 ? 2 : 1;
}

static void put_row(const struct report *r, struct page *page, int f)
{
	const struct calibration *c = &r->a.calibration.finding[f];
	const double expected = (double)c->positives / c->ratio.value;
	char name[32];

	page_put(page, "<tr><th scope=\"row\">%s</th><td class=\"n\">", finding_title(f, name));
	page_count(page, c->positives);
	page_put(page, "</td><td class=\"n\">%.*f</td>", expected < 100, expected);
	put_measure(page, &c->ratio, digits_of(c->ratio.value), 0);
	put_measure(page, &c->level, 2, 1);
	put_measure(page, &c->slope, 2, 0);
	put_measure(page, &c->brier, c->brier.value < 0.01 ? 4 : 3, 0);
	put_measure(page, &c->skill, 3, 1);
	page_put(page, "</tr>\n");
}

void report_calibration_table(const struct report *r, struct page *page)
{
	page_put(page, "<p class=\"lead\">In numbers, with 95&nbsp;%% confidence intervals that take a patient's images for one. Expected: the sum of the probabilities, how many images would show the finding if "
		       "these were right. Observed/expected: above 1 the finding is more frequent than the model says, below 1 less so. In the large: what would have to be added to every logit for both to be equal (the calibration "
		       "intercept, with the slope held at 1); 0 when calibrated. Both move where a finding is more common here than it was in training, or less so, as in NIH's two lists. Brier score: the mean squared error of the probability, 0 at best; of a rare finding it is small whatever the model says, so see "
		       "the skill.</p>\n");
	report_table(page, "Calibration of every finding in numbers", "");
	page_put(page, "<tr><th scope=\"col\">Finding</th><th scope=\"col\" class=\"n\">Images<br>with it</th><th scope=\"col\" class=\"n\">Expected</th><th scope=\"col\" class=\"n\">Observed/expected</th>"
		       "<th scope=\"col\" class=\"n\">In the large</th><th scope=\"col\" class=\"n\">Slope</th><th scope=\"col\" class=\"n\">Brier score</th><th scope=\"col\" class=\"n\">Brier skill</th></tr></thead><tbody>\n");
	for (int f = 0; f < FINDINGS; f++)
		if (r->a.calibration.finding[f].bins)
			put_row(r, page, f);
	page_put(page, "<tr class=\"mean\"><th scope=\"row\">Mean of %d</th><td></td><td></td><td></td><td></td><td></td><td></td>", r->a.calibration.judged);
	put_measure(page, &r->a.calibration.skill, 3, 1);
	page_put(page, "</tr>\n%s", report_table_end);
}
