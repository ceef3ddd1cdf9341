/* SPDX-License-Identifier: Apache-2.0
 * Where options end and the user's program begins: our reading against the function by which Slurm itself reads. */
#include "test.h"

#include <dlfcn.h>
#include <glob.h>
#include <limits.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../../spank/argv.h"

enum { LINES = 34000 /* of each of three clients */, WORDS = 24 };

static struct option *(*slurm_table)(void *opt, char **letters);

/* Slurm's option state begins with one pointer for each client; the one that is set says whose options are meant. */
static struct {
	void *salloc, *sbatch, *scron, *srun;
	char rest[65536];
} slurm_opt;
static char client_opt[65536];

static void write_file(const char *path, const char *text)
{
	FILE *f = fopen(path, "w");
	assert_non_null(f);
	fputs(text, f);
	fclose(f);
}

/* The library of the installed Slurm, with an empty plugin stack of its own. */
static int load_slurm(void **state)
{
	static const char *const places[] = { "/usr/lib/*/slurm-wlm/libslurmfull.so", "/usr/lib64/slurm/libslurmfull.so", "/usr/lib/slurm/libslurmfull.so" };
	char dir[4096], conf[4200], stack[4200], text[PATH_MAX + 4200];
	const char *build = getenv("BUILD") ? getenv("BUILD") : "build";
	glob_t found = { 0 };
	(void)state;

	for (size_t i = 0; i < sizeof places / sizeof *places; i++)
		glob(places[i], i ? GLOB_APPEND : 0, NULL, &found);
	void *library = found.gl_pathc ? dlopen(found.gl_pathv[0], RTLD_NOW | RTLD_GLOBAL) : NULL;
	globfree(&found);
	if (!library)
		return 0;
	snprintf(dir, sizeof dir, "%s/tests/tmp/argv.%d", build, (int)getpid());
	snprintf(text, sizeof text, "mkdir -p '%s'", dir);
	assert_int_equal(system(text), 0);
	assert_non_null(realpath(dir, text));
	strcpy(dir, text);
	snprintf(conf, sizeof conf, "%s/slurm.conf", dir);
	snprintf(stack, sizeof stack, "%s/plugstack.conf", dir);
	write_file(stack, "");
	snprintf(text, sizeof text, "ClusterName=x\nSlurmctldHost=localhost\nNodeName=localhost\nPartitionName=p Nodes=ALL\nPlugStackConfig=%s\n", stack);
	write_file(conf, text);

	int (*conf_init)(const char *) = (int (*)(const char *))dlsym(library, "slurm_conf_init");
	int (*spank_init)(void *) = (int (*)(void *))dlsym(library, "spank_init");
	slurm_table = (struct option *(*)(void *, char **))dlsym(library, "slurm_option_table_create");
	if (!conf_init || !spank_init || !slurm_table || conf_init(conf) || spank_init(NULL))
		slurm_table = NULL;
	unlink(conf);
	unlink(stack);
	rmdir(dir);
	return 0;
}

/* Slurm's tables come from its own allocator, so they are made once and kept. */
static struct option *table_of_slurm(enum program program, char **letters)
{
	static struct option *table[3];
	static char *table_letters[3];

	if (!table[program]) {
		memset(&slurm_opt, 0, sizeof slurm_opt);
		*(program == PROGRAM_SRUN ? &slurm_opt.srun : program == PROGRAM_SBATCH ? &slurm_opt.sbatch : &slurm_opt.salloc) = client_opt;
		table[program] = slurm_table(&slurm_opt, &table_letters[program]);
	}
	*letters = table_letters[program];
	return table[program];
}

/* ---- random command lines ------------------------------------------------------------------------ */

static unsigned seed;

static int pick(int n)
{
	return (int)((unsigned)rand_r(&seed) % (unsigned)n);
}

/* One word: an option of the table in one of its spellings, one that no table has, a value, an operand. */
static void make_word(const struct option *table, int rows, char *word, size_t size)
{
	static const char *const others[] = { "2", "socket", "./app", "-", "--", ":", "--hvd-bind=socket", "--no-such", "-n2", "-vn", "gpu:2", "--gpu-bin=socket", "--n" };
	const struct option *o = &table[pick(rows)];
	int letter = o->val > ' ' && o->val < 127 ? o->val : 'n';

	switch (pick(8)) {
	case 0: case 1:
		snprintf(word, size, "--%s", o->name);
		break;
	case 2: case 3:
		snprintf(word, size, "--%s=%d", o->name, pick(9));
		break;
	case 4:
		snprintf(word, size, "-%c", letter);
		break;
	case 5:
		snprintf(word, size, "-%c%d", letter, pick(9));
		break;
	case 6: /* an abbreviation, perhaps ambiguous */
		snprintf(word, size, "--%.*s", 1 + pick((int)strlen(o->name)), o->name);
		break;
	default:
		snprintf(word, size, "%s", others[pick((int)(sizeof others / sizeof *others))]);
	}
}

static bool same(const struct argv_scan *a, const struct argv_scan *b)
{
	if (a->components != b->components || a->options != b->options)
		return false;
	for (int c = 0; c < a->components; c++)
		if (a->command[c] != b->command[c])
			return false;
	for (int i = 0; i < a->options; i++)
		if (a->option[i].slot != b->option[i].slot || a->option[i].value != b->option[i].value || strcmp(a->option[i].name, b->option[i].name))
			return false;
	return true;
}

/* Every option of a that the word may stand for is in b too and takes a value in the same way. A word that only one of
 * the two releases knows, or abbreviates differently, is no question of the boundary. */
static bool means_the_same(const struct option *a, const struct option *b, const char *word)
{
	if (strncmp(word, "--", 2) || !word[2])
		return true;
	size_t n = strcspn(word + 2, "=");
	for (; a->name; a++) {
		const struct option *other = b;
		if (strncmp(a->name, word + 2, n))
			continue;
		while (other->name && strcmp(other->name, a->name))
			other++;
		if (!other->name || other->has_arg != a->has_arg)
			return false;
	}
	return true;
}

static void compare_tables(enum program program, const char *who)
{
	struct option own[ARGV_MAX_KNOWN];
	char own_letters[3 * 64], *letters = NULL;
	struct option *table = table_of_slurm(program, &letters);
	static struct argv_scan a, b;
	int rows = 0, differ = 0, lines = 0;

	assert_non_null(table);
	while (table[rows].name)
		rows++;
	argv_known(program, own, own_letters);
	while (lines < LINES) {
		char words[WORDS][64];
		char *argv[WORDS + 1];
		int argc = 1 + pick(WORDS - 1);
		for (int i = 0; i < argc; i++) {
			make_word(table, rows, words[i], sizeof words[i]);
			argv[i] = words[i];
		}
		argv[argc] = NULL;
		bool fair = true;
		for (int i = 1; i < argc && fair; i++)
			fair = means_the_same(own, table, argv[i]) && means_the_same(table, own, argv[i]);
		if (!fair)
			continue;
		lines++;
		assert_int_equal(argv_scan(argc, argv, table, letters, program == PROGRAM_SRUN, &a), 0);
		assert_int_equal(argv_scan(argc, argv, own, own_letters, program == PROGRAM_SRUN, &b), 0);
		if (!same(&a, &b)) {
			differ++;
			print_message("# %s:", who);
			for (int i = 0; i < argc; i++)
				print_message(" %s", argv[i]);
			print_message("\n");
		}
	}
	assert_int_equal(differ, 0);
}

static void own_table_reads_as_slurm_does(void **state)
{
	(void)state;
	seed = getenv("SEED") ? (unsigned)atoi(getenv("SEED")) : 20261;
	print_message("# SEED=%u\n", seed);
	if (!slurm_table)
		skip_because("no libslurmfull.so of an installed Slurm");
	compare_tables(PROGRAM_SRUN, "srun");
	compare_tables(PROGRAM_SBATCH, "sbatch");
	compare_tables(PROGRAM_SALLOC, "salloc");
}

static void every_option_of_slurm_is_known(void **state)
{
	(void)state;
	if (!slurm_table)
		skip_because("no libslurmfull.so of an installed Slurm");
	for (int program = PROGRAM_SRUN; program <= PROGRAM_SALLOC; program++) {
		struct option own[ARGV_MAX_KNOWN];
		char own_letters[3 * 64], *letters = NULL;
		struct option *table = table_of_slurm((enum program)program, &letters);
		argv_known((enum program)program, own, own_letters);
		for (const struct option *o = table; o->name; o++) {
			const struct option *k = own;
			while (k->name && strcmp(k->name, o->name))
				k++;
			if (!k->name || (k->has_arg == required_argument) != (o->has_arg == required_argument))
				fail_msg("--%s takes %sthe next word in this Slurm, and %s here", o->name, o->has_arg == required_argument ? "" : "not ", k->name ? "not" : "is not known");
		}
	}
}

/* ---- examples ------------------------------------------------------------------------------------ */

static struct argv_scan scan;

static void read_as(enum program program, char **argv)
{
	struct option own[ARGV_MAX_KNOWN];
	char letters[3 * 64];
	int argc = 0;

	while (argv[argc])
		argc++;
	argv_known(program, own, letters);
	assert_int_equal(argv_scan(argc, argv, own, letters, program == PROGRAM_SRUN, &scan), 0);
}

#define LINE(...) ((char *[]){ __VA_ARGS__, NULL })

static void the_program_ends_the_options(void **state)
{
	(void)state;
	read_as(PROGRAM_SRUN, LINE("srun", "-N2", "--gpu-bind", "socket", "./app", "--gpu-bind=socket"));
	assert_int_equal(scan.command[0], 4);
	assert_int_equal(scan.options, 2);
	assert_string_equal(argv_value(&scan, 0, "gpu-bind"), "socket");
	assert_int_equal(scan.option[1].slot, 2);
	read_as(PROGRAM_SRUN, LINE("srun", "--hvd", "--", "--gpu-bind=socket"));
	assert_null(argv_value(&scan, 0, "gpu-bind"));
	assert_string_equal(argv_value(&scan, 0, "hvd"), "");
	assert_int_equal(scan.command[0], 3);
}

static void short_letters_in_one_word(void **state)
{
	(void)state;
	read_as(PROGRAM_SRUN, LINE("srun", "-vn", "2", "--gpu-bin=socket", "./app", "-n", "7"));
	assert_string_equal(argv_value(&scan, 0, "ntasks"), "2");
	assert_string_equal(argv_value(&scan, 0, "gpu-bind"), "socket");
	assert_int_equal(scan.command[0], 4);
	/* -W takes a word in srun and none in sbatch */
	read_as(PROGRAM_SRUN, LINE("srun", "-W", "5", "./app"));
	assert_int_equal(scan.command[0], 3);
	read_as(PROGRAM_SBATCH, LINE("sbatch", "-W", "job.sh", "5"));
	assert_int_equal(scan.command[0], 2);
}

static void older_names_are_those_of_today(void **state)
{
	(void)state;
	read_as(PROGRAM_SRUN, LINE("srun", "--cpu_bind=cores", "--pack-group=1", "--tasks-per-node=3", "./app"));
	assert_string_equal(argv_value(&scan, 0, "cpu-bind"), "cores");
	assert_string_equal(argv_value(&scan, 0, "het-group"), "1");
	assert_string_equal(argv_value(&scan, 0, "ntasks-per-node"), "3");
}

static void components_of_a_heterogeneous_line(void **state)
{
	(void)state;
	read_as(PROGRAM_SRUN, LINE("srun", "-n1", "./a", "--gpu-bind=socket", ":", "-n2", "--gpu-bind", "socket", "./b", "-n", "9"));
	assert_int_equal(scan.components, 2);
	assert_null(argv_value(&scan, 0, "gpu-bind"));
	assert_string_equal(argv_value(&scan, 1, "gpu-bind"), "socket");
	assert_string_equal(argv_value(&scan, 1, "ntasks"), "2");
	/* sbatch's own ":" stands where the program would; behind a script it belongs to the script */
	read_as(PROGRAM_SBATCH, LINE("sbatch", "-N1", ":", "-N2", "job", ":", "-N3"));
	assert_int_equal(scan.components, 2);
	assert_string_equal(argv_value(&scan, 1, "nodes"), "2");
}

static void getopt_is_left_as_it_was(void **state)
{
	(void)state;
	optind = 7;
	opterr = 1;
	read_as(PROGRAM_SRUN, LINE("srun", "--no-such", "-n", "2", "./app"));
	assert_int_equal(optind, 7);
	assert_int_equal(opterr, 1);
	assert_string_equal(argv_value(&scan, 0, "ntasks"), "2");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_program_ends_the_options),
		cmocka_unit_test(short_letters_in_one_word),
		cmocka_unit_test(older_names_are_those_of_today),
		cmocka_unit_test(components_of_a_heterogeneous_line),
		cmocka_unit_test(getopt_is_left_as_it_was),
		cmocka_unit_test(every_option_of_slurm_is_known),
		cmocka_unit_test(own_table_reads_as_slurm_does),
	};
	return cmocka_run_group_tests(tests, load_slurm, NULL);
}
