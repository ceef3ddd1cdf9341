/* SPDX-License-Identifier: Apache-2.0
 * Pictures of activation maps: what their colours and frames stand for, whose they are, and what the image's labels are. */
#include <ctype.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "learn/cam.h"
#include "report/parts.h"

/* "1.3-fold": a factor of the odds. */
static void put_fold(struct page *page, double logits)
{
	double fold = exp(logits);

	if (fold > 1000)
		page_put(page, "more than 1000-fold");
	else if (fold < 1.005)
		page_put(page, "less than 1.01-fold");
	else
		page_put(page, "%.*f-fold", fold < 1.095 ? 2 : fold < 9.95 ? 1 : 0, fold);
}

/* Below a picture, and for those who cannot see it. */
static void put_map(struct page *page, const struct cam_about *about)
{
	char name[32];
	double p = about->probability;

	page_put(page, "%s, probability %s%.3f%s; map of %s%d \xC3\x97 %d cells, ", finding_title(about->finding, name), p < 0.001 ? "&lt;&#8239;" : p > 0.999 ? "&gt;&#8239;" : "",
		 p < 0.001 ? 0.001 : p > 0.999 ? 0.999 : p, about->ten_crops ? " of ten crops" : "", about->ten_crops ? "the middle one, " : "", about->side, about->side);
	if (about->raised > 0) {
		page_put(page, "the coloured ones raise the odds ");
		put_fold(page, about->raised);
	} else {
		page_put(page, "none raises the odds");
	}
}

/* ---- whose maps -------------------------------------------------------------------------------------- */

enum maker { MAKER_UNKNOWN, MAKER_A, MAKER_MEMBER_OF_A, MAKER_B, MAKER_MEMBER_OF_B, MAKER_OTHER };

/* Whether these weights are, or are among, those of the predictions. */
static int made_with(const struct predictions *p, const char *hash)
{
	return p && strstr(p->about.weights_hash, hash) != NULL;
}

static enum maker maker_of(const struct report_input *in, const struct cam_about *about)
{
	const struct predictions *a = in->predictions, *b = in->other;

	if (!*about->weights_hash)
		return MAKER_UNKNOWN;
	if (made_with(a, about->weights_hash))
		return strchr(a->about.weights_hash, ',') ? MAKER_MEMBER_OF_A : MAKER_A;
	if (made_with(b, about->weights_hash))
		return strchr(b->about.weights_hash, ',') ? MAKER_MEMBER_OF_B : MAKER_B;
	return *a->about.weights_hash && (!b || *b->about.weights_hash) ? MAKER_OTHER : MAKER_UNKNOWN;
}

size_t report_foreign_pictures(const struct report_input *in)
{
	struct cam_about about;
	size_t n = 0;

	for (size_t i = 0; i < in->n_pictures; i++)
		n += cam_read_about(in->pictures[i].png, in->pictures[i].size, &about) > 0 && maker_of(in, &about) == MAKER_OTHER;
	return n;
}

static enum maker maker_by_log(const struct report_input *in)
{
	const char *hash = in->log ? json_get_text(in->log->end, "weights_hash") : NULL;
	struct cam_about about = { 0 };

	if (!hash || !in->predictions)
		return MAKER_UNKNOWN;
	snprintf(about.weights_hash, sizeof about.weights_hash, "%s", hash);
	return maker_of(in, &about);
}

int report_foreign_log(const struct report_input *in)
{
	return maker_by_log(in) == MAKER_OTHER;
}

/* A training has many weights, and the log names those that it ended with. */
const char *report_whose_log(const struct report_input *in)
{
	switch (maker_by_log(in)) {
	case MAKER_A:
		return NULL;
	case MAKER_MEMBER_OF_A:
		return "<b>The training log is that of one of the averaged models:</b> course, speed and options are its alone.";
	case MAKER_B:
		return "<b>The training log is that of the other model, B:</b> course, speed and options are those of its training. Whether A comes from the same one, it does not say.";
	case MAKER_MEMBER_OF_B:
		return "<b>The training log is that of one of the models that B averages:</b> course, speed and options are its alone.";
	case MAKER_OTHER:
		return "<b>The log of another training, or of other weights of the same one.</b> It ends with other weights than these predictions': its best validation says nothing about them, "
		       "and its course and options do so only where the training is the same.";
	default:
		return in->log && in->log->end ? "<b>Whose training log it is, is not known:</b> the files do not say whether it ends with the weights of these predictions." : NULL;
	}
}

static void put_maker(struct page *page, enum maker maker)
{
	if (maker == MAKER_MEMBER_OF_A)
		page_put(page, "<span>a map of one of the averaged models</span>");
	else if (maker == MAKER_B)
		page_put(page, "<span class=\"warn\">a map of the other model, B</span>");
	else if (maker == MAKER_MEMBER_OF_B)
		page_put(page, "<span class=\"warn\">a map of one of the models that B averages</span>");
	else if (maker == MAKER_OTHER)
		page_put(page, "<span class=\"warn\">a map of another model than these predictions'</span>");
}

/* ---- whose image ------------------------------------------------------------------------------------- */

/* An image's file need have no ending: the digits behind a DICOM UID's last dot are none. */
static int goes_by(const char *id, const char *stem, size_t n)
{
	const char *slash = strrchr(id, '/'), *file = slash ? slash + 1 : id, *dot = strrchr(file, '.');
	int ends = dot && !isdigit((unsigned char)dot[1]);

	return (strlen(file) == n || (ends && (size_t)(dot - file) == n)) && memcmp(file, stem, n) == 0;
}

/* A map is called after its image's file and its finding. Returns how many images of the predictions are called so, with the last of them. */
static size_t images_of(const struct predictions *p, const char *name, const struct sample **sample)
{
	const char *dot = strrchr(name, '.');
	size_t stem = dot ? (size_t)(dot - name) : strlen(name), n = 0;

	for (size_t i = 0; i < p->n; i++)
		if (goes_by(p->samples[i].id, name, stem)) {
			*sample = &p->samples[i];
			n++;
		}
	return n;
}

/* A map of a training image looks better than the model is, and a high probability does not say whether it is right. */
static void put_labels(struct page *page, const struct predictions *p, const char *name)
{
	const struct sample *x = NULL;
	char title[32];
	size_t n = images_of(p, name, &x);
	int positive = 0, known = 0;

	if (n == 0)
		page_put(page, "<span class=\"warn\">not an image of these predictions</span>");
	if (n != 1)
		return;
	page_put(page, "<span>labels: ");
	for (int f = 0; f < FINDINGS; f++) {
		known += x->known >> f & 1;
		if (x->labels & x->known & 1u << f)
			page_put(page, "%s%s", positive++ ? ", " : "", finding_title(f, title));
	}
	if (!positive)
		page_put(page, known ? "no finding" : "not known");
	if (known && known < FINDINGS)
		page_put(page, "; %d of %d not known", FINDINGS - known, FINDINGS);
	page_put(page, "</span>");
}

/* A name that is too long for a line breaks before the finding at its end. */
static void put_name(struct page *page, const char *name)
{
	const char *last = strrchr(name, '.');
	char image[NAME_MAX + 1];

	if (last && (size_t)(last - name) < sizeof image) {
		snprintf(image, sizeof image, "%.*s", (int)(last - name), name);
		page_text(page, image);
		page_put(page, "<wbr>");
		name = last;
	}
	page_text(page, name);
}

static void put_picture(struct page *page, const struct predictions *p, const struct report_picture *picture, const struct cam_about *about, enum maker maker)
{
	page_put(page, "<figure><figcaption><b>");
	put_name(page, picture->name);
	page_put(page, "</b>");
	if (about) {
		page_put(page, "<span>");
		put_map(page, about);
		page_put(page, "</span>");
		put_labels(page, p, picture->name);
		put_maker(page, maker);
	}
	page_put(page, "</figcaption><img alt=\"");
	page_text(page, picture->name);
	if (about) {
		page_put(page, ": ");
		put_map(page, about);
	}
	page_put(page, "\" src=\"");
	page_data(page, "image/png", picture->png, picture->size);
	page_put(page, "\"></figure>\n");
}

/* ---- what they show ---------------------------------------------------------------------------------- */

/* Shares of the image's sides that maps show, the least and the most of all pictures that tell. 0: none tells, as if all were shown. */
static int window_shares(const struct report_input *in, double share[2])
{
	struct cam_about about;
	int told = 0;

	share[0] = share[1] = 1;
	for (size_t i = 0; i < in->n_pictures; i++) {
		const struct report_picture *p = &in->pictures[i];

		if (cam_read_about(p->png, p->size, &about) <= 0 || !about.window.image_width)
			continue;
		double side = about.window.width / about.window.image_width;

		share[0] = told ? fmin(share[0], side) : side;
		share[1] = told ? fmax(share[1], side) : side;
		told++;
	}
	return told;
}

/* What is outside the window looks as if it had been found to be nothing. Probabilities of ten crops go by it too, maps do not. */
static void put_window(const struct report_input *in, struct page *page)
{
	double share[2];

	if (!window_shares(in, share))
		return;
	int several = share[1] - share[0] > 0.0005;

	if (share[0] > 0.9995) {
		page_put(page, "A map shows the whole of each image");
	} else {
		page_put(page, "A map shows only what is within the white frame, the middle %.3g", 100 * share[0]);
		if (several)
			page_put(page, " to %.3g", 100 * share[1]);
		page_put(page, "&nbsp;%% of each side: of the rest, %s%.0f&nbsp;%% of the image, it says nothing", several ? "up to " : "", 100 * (1 - share[0] * share[0]));
	}
	page_put(page, ". Where a picture is darkened there can be no colour, and the want of one means nothing. ");
}

void report_pictures(const struct report *r, struct page *page)
{
	size_t silent = 0, unframed = 0, unknown = 0;

	if (r->in->n_pictures == 0)
		return;
	page_put(page, "<section><h2>Where the model looks</h2><p class=\"lead\">Colour marks places that raised the probability of the finding that is named, the warmest the place "
		       "that raised it most in that image. Colours are full where all such places together raise the odds at least ");
	put_fold(page, CAM_FULL);
	page_put(page, ", and fainter where they add less. ");
	put_window(r->in, page);
	page_put(page, "A cell sums up what the network saw in it and around it, and colours are smoothed from cell to cell, so their edges "
		       "outline nothing. A model that cannot tell a finding has such places too: look at its AUROC first. Whoever made the maps chose the images: they are no sample of what the model gets right or wrong. Printed in gray, a map shows nothing. A warm place is not a diagnosis.</p>"
		       "<div class=\"multiples\">\n");
	for (size_t i = 0; i < r->in->n_pictures; i++) {
		struct cam_about about;
		int answer = cam_read_about(r->in->pictures[i].png, r->in->pictures[i].size, &about), told = answer > 0;

		page->failed |= answer < 0;
		enum maker maker = told ? maker_of(r->in, &about) : MAKER_UNKNOWN;

		put_picture(page, r->in->predictions, &r->in->pictures[i], told ? &about : NULL, maker);
		unknown += told && maker == MAKER_UNKNOWN;
		silent += !told;
		unframed += told && !about.window.image_width;
	}
	page_put(page, "</div>\n");
	if (r->in->more_pictures)
		page_put(page, "<p class=\"lead\">These are the first %zu of %zu pictures, by name.</p>\n", r->in->n_pictures, r->in->n_pictures + r->in->more_pictures);
	if (silent)
		page_put(page, "<p class=\"lead\">Pictures without a probability are none that this version of chexnet predict --maps made: nobody says what their colours stand for.</p>\n");
	if (unknown)
		page_put(page, "<p class=\"lead\">Of %zu of these pictures it is not known whether this model made them: they, or the predictions, do not say with which weights.</p>\n", unknown);
	if (unframed)
		page_put(page, "<p class=\"lead\">%zu of these pictures do not say which part of the image the network saw, as an earlier version made them: near their edges the want of a "
			       "colour may mean nothing.</p>\n", unframed);
	page_put(page, "</section>\n");
}
