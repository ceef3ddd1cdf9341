/* SPDX-License-Identifier: Apache-2.0
 * ChestX-ray14 as NIH publishes it: a label table (2017 or the corrected one of 2020), images/ or images_001 … images_012/,
 * train_val_list.txt and test_list.txt. */
#ifndef DATA_NIH_H
#define DATA_NIH_H

#include "data/dataset.h"
#include "files/file.h"

enum { NIH_PATIENTS = 30805 }; /* numbered from 1 */

enum nih_list { NIH_UNLISTED, NIH_TRAIN_VAL, NIH_TEST };
enum split_policy { SPLIT_OFFICIAL, SPLIT_CHEXNET, SPLIT_FILE };

extern const char *const split_policy_names[]; /* "official", "chexnet", "file", NULL */

/* What a table tells of an image besides its findings. */
struct nih_facts {
	char view;     /* 'A': from front to back, as of who lies in bed (AP); 'P': PA; 0: not told */
	char sex;      /* 'M', 'F'; 0: not told */
	float age;     /* years; negative: not told, or no age (the table of 2017 has 414 years) */
	int follow_up; /* number of the image among its patient's, from 0; negative: not told */
};

struct nih_image {
	struct sample sample;
	int folder;         /* index into folders; -1: no file */
	enum nih_list list;
	struct nih_facts facts;
};

struct nih {
	char directory[FILE_PATH], table[FILE_PATH];
	const char *generation;    /* of the labels: "2017" or "2020", "2017 or 2020" where the table's name does not tell */
	struct nih_image *images;  /* in the table's order */
	struct nih_image **by_id;  /* sorted */
	size_t count;
	char (*folders)[256];      /* below directory: "images", "images_001/images" */
	int n_folders;
	size_t extra;              /* image files without a row: left out */
	size_t unlisted;           /* rows that are in neither list: left out of the official split */
	int has_lists;
	uint64_t hash;             /* of table and lists, byte for byte */
};

/* Reads tables and lists and finds the files of the rows. Errors are EXIT_DATA and name file and line. */
int nih_open(struct nih *n, const char *directory, struct error *e);
/* EXIT_DATA where rows have no file: how many, and the first of them. */
int nih_check_files(const struct nih *n, struct error *e);

/* The table and lists alone: for checks that need no images. */
int nih_open_tables(struct nih *n, const char *table, const char *train_val_list, const char *test_list, struct error *e);
void nih_close(struct nih *n);

const struct nih_image *nih_find(const struct nih *n, const char *id); /* NULL: no row */
int nih_path(const struct nih *n, const struct nih_image *image, char path[FILE_PATH], struct error *e);

/* A division of the user's own: rows of two columns, image and split ("00000001_000.png,train"); images without a row are in no
 * split. Errors name file and line: an image that the table does not know or that comes twice, a split of another name. */
int nih_divide_file(const struct nih *n, const char *path, uint8_t *split, struct error *e);

/* Divides the images: split [count] gets enum split. Official: NIH's test list is the test split, and a tenth of the patients of
 * the other list, chosen by seed, the validation split. Chexnet: 70/10/20 % of all patients, chosen by seed. */
int nih_divide(const struct nih *n, enum split_policy policy, uint64_t seed, uint8_t *split, struct error *e);

#endif
