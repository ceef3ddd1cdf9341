/* SPDX-License-Identifier: Apache-2.0 */
#include "data/nih.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "data/hash.h"
#include "files/csv.h"

/* A column's place in a data row. The header names "OriginalImage[Width,Height]" without quotes, so commas within brackets
 * do not end a name; whether the data has one field or two there is seen by the number of fields. */
enum { VIEW = 3, AGE, SEX, FOLLOW_UP, NEEDED = 3, WANTED = FOLLOW_UP + 1 };
static const char *const wanted[WANTED] = { "Image Index", "Finding Labels", "Patient ID", [VIEW] = "View Position", [AGE] = "Patient Age",
					    [SEX] = "Patient Gender", [FOLLOW_UP] = "Follow-up #" };
static const char other_sex[] = "Patient Sex"; /* as some copies of the table of 2020 say */

struct columns {
	int narrow[WANTED], wide[WANTED]; /* field of a wanted column when bracketed names stand for one field, or for several */
	int n_narrow, n_wide;
};

/* The header's names, put together again where the brackets say so. */
static int join_header(const struct csv *c, char names[CSV_FIELDS][128], int widths[CSV_FIELDS])
{
	int n = 0;

	for (int i = 0; i < c->n; n++) {
		int open = 0, length = 0;
		widths[n] = 0;
		names[n][0] = '\0';
		do {
			length += snprintf(names[n] + length, sizeof names[n] - (size_t)length, "%s%s", widths[n] ? "," : "", c->field[i]);
			length = length < (int)sizeof names[n] ? length : (int)sizeof names[n] - 1;
			for (const char *p = c->field[i]; *p; p++) {
				open += (*p == '[') - (*p == ']');
				widths[n] += *p == ',';
			}
			widths[n]++;
			i++;
		} while (open > 0 && i < c->n);
	}
	while (n && names[n - 1][0] == '\0') /* the 2017 table ends its header with a comma */
		n--;
	return n;
}

static int read_columns(struct csv *c, struct columns *columns, struct error *e)
{
	char names[CSV_FIELDS][128], list[512] = "";
	int widths[CSV_FIELDS], rc = csv_next(c, e);

	if (rc < 0)
		return rc;
	if (rc == 0)
		return fail(e, EXIT_DATA, "%s: empty", c->path);
	int n = join_header(c, names, widths);
	*columns = (struct columns){ .n_narrow = n };
	for (int w = 0; w < WANTED; w++)
		columns->narrow[w] = -1;
	for (int i = 0; i < n; i++) {
		for (int w = 0; w < WANTED; w++)
			if (strcmp(names[i], wanted[w]) == 0 || (w == SEX && strcmp(names[i], other_sex) == 0)) {
				if (columns->narrow[w] >= 0)
					return fail(e, EXIT_DATA, "%s: columns %d and %d are both \"%s\": leave the one that is meant", c->path, columns->narrow[w] + 1, i + 1, wanted[w]);
				columns->narrow[w] = i;
				columns->wide[w] = columns->n_wide;
			}
		columns->n_wide += widths[i];
		size_t used = strlen(list);
		snprintf(list + used, sizeof list - used, "%s%.127s", i ? ", " : "", names[i]);
	}
	for (int w = 0; w < NEEDED; w++)
		if (columns->narrow[w] < 0)
			return fail(e, EXIT_DATA, "%s: no column \"%s\" (there are: %s)%s", c->path, wanted[w], list,
				    n == 1 && strpbrk(list, ";\t") ? ": what sets columns apart is to be a comma" : "");
	return 0;
}

static int row_fields(const struct csv *c, const struct columns *columns, const char *field[WANTED], struct error *e)
{
	int n = c->n, wide = 1;

	if (n > columns->n_wide && c->field[n - 1][0] == '\0')
		n--;
	if (n != columns->n_wide) {
		wide = 0;
		if (n != columns->n_narrow)
			return fail(e, EXIT_DATA, "%s:%zu: %d field%s where the header has %d", c->path, c->line, n, n == 1 ? "" : "s", columns->n_wide);
	}
	for (int w = 0; w < WANTED; w++)
		field[w] = columns->narrow[w] < 0 ? "" : c->field[wide ? columns->wide[w] : columns->narrow[w]];
	return 0;
}

/* NIH's names are PPPPPPPP_FFF.png: patient and follow-up. */
static int is_nih_name(const char *id)
{
	static const char digits[] = "0123456789";
	return strlen(id) == 16 && strspn(id, digits) == 8 && id[8] == '_' && strspn(id + 9, digits) == 3 && strcmp(id + 12, ".png") == 0;
}

static int read_sample(const struct csv *c, const char *const field[WANTED], struct sample *s, struct error *e)
{
	const char *id = field[0];
	struct error why = { 0 };

	if (!is_nih_name(id))
		return fail(e, EXIT_DATA, "%s:%zu: \"%.40s\" is no NIH image name (00000001_000.png)", c->path, c->line, id);
	unsigned long named = strtoul(id, NULL, 10);
	if (!*field[2] || field[2][strspn(field[2], "0123456789")])
		return fail(e, EXIT_DATA, "%s:%zu: patient ID \"%.40s\" is no number of digits alone", c->path, c->line, field[2]);
	if (strtoul(field[2], NULL, 10) != named) /* of what is too large, the largest one there is */
		return fail(e, EXIT_DATA, "%s:%zu: image %s belongs to patient %lu by its name, but to %.40s by its row", c->path, c->line, id, named, field[2]);
	*s = (struct sample){ .patient = (uint32_t)named, .known = ALL_FINDINGS };
	memcpy(s->id, id, strlen(id) + 1);
	if (findings_read(field[1], '|', "No Finding", &s->labels, &why))
		return fail(e, EXIT_DATA, "%s:%zu: %s", c->path, c->line, why.text);
	return 0;
}

/* "58", or as in 2017 "058Y", "011M" and "004D" for months and days. */
static float read_age(const char *text)
{
	char *unit;
	float age = strtof(text, &unit);

	if (unit == text || *text == '-' || (*unit && (unit[1] || !strchr("YMD", *unit))))
		return -1;
	age /= *unit == 'M' ? 12 : *unit == 'D' ? 365.25f : 1;
	return age <= 120 ? age : -1;
}

/* What is missing, or written otherwise, is not told: labels and patients do not depend on it. */
static struct nih_facts read_facts(const char *const field[WANTED])
{
	const char *view = field[VIEW], *sex = field[SEX], *number = field[FOLLOW_UP];
	size_t digits = strspn(number, "0123456789");

	return (struct nih_facts){
		.view = strcmp(view, "AP") == 0 || strcmp(view, "PA") == 0 ? view[0] : 0,
		.sex = strcmp(sex, "M") == 0 || strcmp(sex, "F") == 0 ? sex[0] : 0,
		.age = read_age(field[AGE]),
		.follow_up = digits && digits < 9 && !number[digits] ? atoi(number) : -1,
	};
}

static int by_id(const void *a, const void *b)
{
	const struct nih_image *const *x = a, *const *y = b;
	return strcmp((*x)->sample.id, (*y)->sample.id);
}

static int sort_ids(struct nih *n, struct error *e)
{
	n->by_id = malloc((n->count + 1) * sizeof(struct nih_image *));
	if (!n->by_id)
		return fail(e, EXIT_INTERNAL, "no memory for %zu rows", n->count);
	for (size_t i = 0; i < n->count; i++)
		n->by_id[i] = &n->images[i];
	qsort(n->by_id, n->count, sizeof(struct nih_image *), by_id);
	for (size_t i = 1; i < n->count; i++)
		if (strcmp(n->by_id[i]->sample.id, n->by_id[i - 1]->sample.id) == 0)
			return fail(e, EXIT_DATA, "%s: two rows for image %s", n->table, n->by_id[i]->sample.id);
	return 0;
}

/* NIH's names are Data_Entry_2017.csv and Data_Entry_2017_v2020.csv; columns and rows are the same in both. */
static const char *generation_of(const char *table)
{
	const char *name = strrchr(table, '/') ? strrchr(table, '/') : table;

	return strstr(name, "2020") ? "2020" : strstr(name, "2017") ? "2017" : "2017 or 2020";
}

static int read_table(struct nih *n, struct error *e)
{
	struct csv c;
	struct columns columns = { 0 };
	const char *field[WANTED] = { 0 };
	size_t room = 0;
	int rc = csv_open(&c, n->table, e);

	if (rc)
		return rc;
	n->hash = hash_bytes(n->hash, c.text, c.size);
	n->generation = generation_of(n->table);
	rc = read_columns(&c, &columns, e);
	while (!rc && (rc = csv_next(&c, e)) > 0) {
		if (n->count == room) {
			room = room * 2 + 1024;
			struct nih_image *grown = realloc(n->images, room * sizeof *grown);
			if (!grown) {
				rc = fail(e, EXIT_INTERNAL, "%s: no memory for %zu rows", n->table, room);
				break;
			}
			n->images = grown;
		}
		struct nih_image *image = &n->images[n->count++];
		*image = (struct nih_image){ .folder = -1 };
		rc = row_fields(&c, &columns, field, e);
		if (!rc)
			rc = read_sample(&c, field, &image->sample, e);
		if (!rc)
			image->facts = read_facts(field);
	}
	csv_close(&c);
	if (!rc && n->count == 0)
		rc = fail(e, EXIT_DATA, "%s: a header but no rows", n->table);
	if (!rc)
		rc = sort_ids(n, e);
	return rc;
}

static struct nih_image *find(const struct nih *n, const char *id)
{
	struct nih_image key, *pointer = &key, **found;

	snprintf(key.sample.id, sizeof key.sample.id, "%s", id);
	found = bsearch(&pointer, n->by_id, n->count, sizeof(struct nih_image *), by_id);
	return found ? *found : NULL;
}

const struct nih_image *nih_find(const struct nih *n, const char *id)
{
	return find(n, id);
}

static int read_list(struct nih *n, const char *path, enum nih_list list, struct error *e)
{
	struct csv c;
	int rc = csv_open(&c, path, e);

	if (rc)
		return rc;
	n->hash = hash_bytes(n->hash, c.text, c.size);
	while ((rc = csv_next(&c, e)) > 0) {
		struct nih_image *image = c.n == 1 ? find(n, c.field[0]) : NULL;
		if (!image)
			rc = fail(e, EXIT_DATA, "%s:%zu: image \"%.40s\" has no row in %s", path, c.line, c.field[0], n->table);
		else if (image->list == list)
			rc = fail(e, EXIT_DATA, "%s:%zu: image %s comes twice", path, c.line, c.field[0]);
		else if (image->list != NIH_UNLISTED)
			rc = fail(e, EXIT_DATA, "%s:%zu: image %s is in both lists", path, c.line, c.field[0]);
		if (rc < 0)
			break;
		image->list = list;
	}
	csv_close(&c);
	return rc;
}

int nih_open_tables(struct nih *n, const char *table, const char *train_val_list, const char *test_list, struct error *e)
{
	*n = (struct nih){ 0 };
	int rc = path_join(n->table, e, "%s", table);
	if (!rc)
		rc = read_table(n, e);
	if (!rc && train_val_list && test_list) {
		n->has_lists = 1;
		rc = read_list(n, train_val_list, NIH_TRAIN_VAL, e);
		if (!rc)
			rc = read_list(n, test_list, NIH_TEST, e);
		for (size_t i = 0; i < n->count; i++)
			n->unlisted += n->images[i].list == NIH_UNLISTED;
	}
	if (rc)
		nih_close(n);
	return rc;
}

void nih_close(struct nih *n)
{
	free(n->images);
	free(n->by_id);
	free(n->folders);
	*n = (struct nih){ 0 };
}

/* Of a directory's Data_Entry_2017*.csv the only one, or of NIH's two the corrected one. Somebody's own beside another is not chosen by its name:
 * its labels are others. */
static int choose_table(const glob_t *g, char path[FILE_PATH], struct error *e)
{
	static const char *const published[] = { "/Data_Entry_2017.csv", "/Data_Entry_2017_v2020.csv" }; /* the better one is the later one */
	const char *best = NULL, *own = NULL;
	int rank = -1;

	for (size_t i = 0; i < g->gl_pathc; i++) {
		const char *table = g->gl_pathv[i], *name = strrchr(table, '/');
		int is = strcmp(name, published[0]) == 0 ? 0 : strcmp(name, published[1]) == 0 ? 1 : -1;
		if (is < 0 && own)
			return fail(e, EXIT_DATA, "%s and %s: two label tables: move the one that is not meant away", own, table);
		if (is < 0)
			own = table;
		else if (is > rank) {
			best = table;
			rank = is;
		}
	}
	if (own && best)
		return fail(e, EXIT_DATA, "%s and %s: two label tables: move the one that is not meant away", best, own);
	best = best ? best : own;
	return path_join(path, e, "%s", best);
}

static int find_table(const char *directory, char path[FILE_PATH], struct error *e)
{
	glob_t g;
	struct stat st;
	int rc = 0;

	if (stat(directory, &st))
		return fail(e, fault_of(errno), "%s: %s", directory, strerror(errno));
	if (!S_ISDIR(st.st_mode))
		return fail(e, EXIT_DATA, "%s: not a directory", directory);
	if (path_glob(&g, directory, "Data_Entry_2017*.csv", e))
		return -e->code;
	if (g.gl_pathc == 0)
		rc = fail(e, EXIT_DATA, "%s: no Data_Entry_2017*.csv: not NIH's layout, and another data set (CheXpert, MIMIC-CXR) goes through TFRecords: chexnet prepare --help", directory);
	else
		rc = choose_table(&g, path, e);
	globfree(&g);
	return rc;
}

static int has_png_suffix(const char *name)
{
	size_t length = strlen(name);
	return length > 4 && strcmp(name + length - 4, ".png") == 0;
}

static int scan_folder(struct nih *n, int folder, struct error *e)
{
	char path[FILE_PATH];
	struct dirent *entry;

	if (path_join(path, e, "%s/%s", n->directory, n->folders[folder]))
		return -e->code;
	DIR *dir = opendir(path);
	if (!dir)
		return fail(e, fault_of(errno), "%s: cannot be listed: %s", path, strerror(errno));
	while (errno = 0, (entry = readdir(dir))) {
		if (!has_png_suffix(entry->d_name))
			continue;
		struct nih_image *image = find(n, entry->d_name);
		if (!image) {
			n->extra++;
		} else if (image->folder >= 0) {
			closedir(dir);
			return fail(e, EXIT_DATA, "%s: image %s is in %s too", path, image->sample.id, n->folders[image->folder]);
		} else {
			image->folder = folder;
		}
	}
	int why = errno;
	closedir(dir);
	return why ? fail(e, EXIT_INTERNAL, "%s: cannot be listed: %s", path, strerror(why)) : 0;
}

static int add_folders(struct nih *n, const char *pattern, struct error *e)
{
	glob_t g;
	struct stat st;

	if (path_glob(&g, n->directory, pattern, e) || g.gl_pathc == 0)
		return -e->code;
	char(*grown)[256] = realloc(n->folders, ((size_t)n->n_folders + g.gl_pathc) * sizeof *grown);
	int rc = grown ? 0 : fail(e, EXIT_INTERNAL, "no memory");
	if (grown)
		n->folders = grown;
	for (size_t i = 0; !rc && i < g.gl_pathc; i++)
		if (stat(g.gl_pathv[i], &st))
			rc = fail(e, fault_of(errno), "%s: cannot be read: %s", g.gl_pathv[i], strerror(errno));
		else if (S_ISDIR(st.st_mode))
			snprintf(n->folders[n->n_folders++], sizeof n->folders[0], "%s", g.gl_pathv[i] + strlen(n->directory) + 1);
	globfree(&g);
	return rc;
}

/* NIH publishes the images in twelve archives: what is to be done where they were left as they are, or "". */
static const char *unpack_advice(const struct nih *n, char text[FILE_PATH + 128])
{
	static const char *const patterns[] = { "images*.tar.gz", "images/*.tar.gz" };
	struct error none = { 0 };
	size_t archives = 0;

	for (size_t i = 0; i < sizeof patterns / sizeof patterns[0]; i++) {
		glob_t g;
		if (path_glob(&g, n->directory, patterns[i], &none) == 0) {
			archives += g.gl_pathc;
			globfree(&g);
		}
	}
	*text = '\0';
	if (archives)
		snprintf(text, FILE_PATH + 128, "; unpack the %zu archive%s there first (tar -xzf images_001.tar.gz -C %s …)", archives, archives == 1 ? "" : "s", n->directory);
	return text;
}

int nih_check_files(const struct nih *n, struct error *e)
{
	struct sample_names missing = { .count = 0 };
	char advice[FILE_PATH + 128];

	for (size_t i = 0; i < n->count; i++)
		if (n->images[i].folder < 0)
			sample_names_add(&missing, n->images[i].sample.id);
	if (missing.count)
		return fail(e, EXIT_DATA, "%s: %zu of %zu images have a row but no file in images/ or images_*/: %s: they go there, or out of the table and the lists%s", n->table,
			    missing.count, n->count, missing.text, unpack_advice(n, advice));
	return 0;
}

int nih_open(struct nih *n, const char *directory, struct error *e)
{
	static const char *const patterns[] = { "images", "images_[0-9]*", "images_[0-9]*/images" };
	char table[FILE_PATH], train_val[FILE_PATH], test[FILE_PATH], advice[FILE_PATH + 128];

	*n = (struct nih){ 0 };
	if (find_table(directory, table, e) || path_join(train_val, e, "%s/train_val_list.txt", directory) ||
	    path_join(test, e, "%s/test_list.txt", directory))
		return -e->code;
	int lists = path_there(train_val, e) > 0 && path_there(test, e) > 0;
	if (e->code || nih_open_tables(n, table, lists ? train_val : NULL, lists ? test : NULL, e))
		return -e->code;
	int rc = path_join(n->directory, e, "%s", directory);
	for (size_t i = 0; !rc && i < sizeof patterns / sizeof patterns[0]; i++)
		rc = add_folders(n, patterns[i], e);
	if (!rc && n->n_folders == 0)
		rc = fail(e, EXIT_DATA, "%s: no images/ or images_001/ …: not NIH's layout%s", directory, unpack_advice(n, advice));
	for (int i = 0; !rc && i < n->n_folders; i++)
		rc = scan_folder(n, i, e);
	if (rc)
		nih_close(n);
	return rc;
}

int nih_path(const struct nih *n, const struct nih_image *image, char path[FILE_PATH], struct error *e)
{
	return path_join(path, e, "%s/%s/%s", n->directory, n->folders[image->folder], image->sample.id);
}
