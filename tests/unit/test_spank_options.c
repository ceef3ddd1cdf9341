/* SPDX-License-Identifier: Apache-2.0
 * The words of --hvd, --hvd-bind and plugstack.conf: every key, every error, and any text at all. */
#include "test.h"

#include "../../spank/devices.h"
#include "../../spank/options.h"

static char error[512];

static struct options parsed(int scopes, const char *text)
{
	struct options o = options_default();
	error[0] = '\0';
	if (options_parse(&o, scopes, "--hvd", text, error, sizeof error))
		fail_msg("%s: %s", text, error);
	return o;
}

static void rejects(int scopes, const char *text, const char *line)
{
	struct options o = options_default(), before = o;
	assert_int_equal(options_parse(&o, scopes, scopes == SCOPE_BIND ? "--hvd-bind" : "--hvd", text, error, sizeof error), -1);
	assert_string_equal(error, line);
	assert_memory_equal(&o, &before, sizeof o);
}

static void every_key_of_hvd(void **state)
{
	struct options o = parsed(SCOPE_HVD, "on_death=continue,deadline=12.5,backend=cpu,trace=/scratch/t,iface=ib0");
	(void)state;
	assert_int_equal(o.on_death, DEATH_CONTINUE);
	assert_string_equal(o.deadline, "12.5");
	assert_int_equal(o.backend, 2);
	assert_string_equal(o.trace, "/scratch/t");
	assert_string_equal(o.iface, "ib0");
	assert_false(o.off);
	assert_true(parsed(SCOPE_HVD, "off").off);
	assert_true(options_given(&o, "deadline"));
	assert_false(options_given(&o, "off"));
}

static void every_key_of_bind(void **state)
{
	struct options o = parsed(SCOPE_BIND, "numa,pack,smt=off,ids=index,gpus-per-task=4,share,nic=hint,verbose");
	(void)state;
	assert_int_equal(o.policy, POLICY_NUMA);
	assert_int_equal(o.order, ORDER_PACK);
	assert_true(o.no_smt);
	assert_int_equal(o.ids, IDS_INDEX);
	assert_int_equal(o.gpus_per_task, 4);
	assert_true(o.share && o.nic_hint && o.verbose);
	assert_int_equal(parsed(SCOPE_BIND, "gpu").policy, POLICY_GPU);
	assert_int_equal(parsed(SCOPE_BIND, "none").policy, POLICY_NONE);
	assert_int_equal(parsed(SCOPE_BIND, "socket,interleave").order, ORDER_INTERLEAVE);
	assert_int_equal(parsed(SCOPE_BIND, "smt=on").no_smt, 0);
}

static void no_text_is_no_key(void **state)
{
	struct options o = parsed(SCOPE_HVD, NULL), p = parsed(SCOPE_HVD, "");
	(void)state;
	assert_true(o.given == 0 && p.given == 0);
	assert_int_equal(o.gpus_per_task, 1);
	assert_int_equal(o.policy, POLICY_SOCKET);
}

static void errors_name_key_and_cure(void **state)
{
	(void)state;
	rejects(SCOPE_HVD, "on_deth=continue", "--hvd: unknown key 'on_deth', the nearest known one is 'on_death'");
	rejects(SCOPE_HVD, "dead", "--hvd: unknown key 'dead', the nearest known one is 'deadline'");
	rejects(SCOPE_HVD, "socket", "--hvd: 'socket' is a word of --hvd-bind");
	rejects(SCOPE_BIND, "trace=x", "--hvd-bind: 'trace' is a word of --hvd");
	rejects(SCOPE_HVD, "verbos", "--hvd: unknown key 'verbos'; 'verbose' is a word of --hvd-bind");
	rejects(SCOPE_BIND, "on_deth=continue", "--hvd-bind: unknown key 'on_deth'; 'on_death' is a word of --hvd");
	rejects(SCOPE_HVD, "by-site", "--hvd: unknown key 'by-site', the nearest known one is 'deadline'");
	rejects(SCOPE_BIND, "nume", "--hvd-bind: unknown key 'nume', the nearest known one is 'numa'");
	rejects(SCOPE_HVD, "on_death=maybe", "--hvd: on_death=maybe: abort|continue expected");
	rejects(SCOPE_HVD, "on_death", "--hvd: on_death=: abort|continue expected");
	rejects(SCOPE_HVD, "deadline=0", "--hvd: deadline=0: a number from 1 to 86400 expected");
	rejects(SCOPE_HVD, "deadline=1e3", "--hvd: deadline=1e3: a number from 1 to 86400 expected");
	rejects(SCOPE_HVD, "deadline=0.9", "--hvd: deadline=0.9: a number from 1 to 86400 expected");
	rejects(SCOPE_HVD, "deadline=2.", "--hvd: deadline=2.: a number from 1 to 86400 expected");
	rejects(SCOPE_HVD, "deadline=2.5.1", "--hvd: deadline=2.5.1: a number from 1 to 86400 expected");
	rejects(SCOPE_HVD, "deadline=86400.01", "--hvd: deadline=86400.01: a number from 1 to 86400 expected");
	rejects(SCOPE_HVD, "deadline=2.00000000000001", "--hvd: deadline=2.00000000000001: a number from 1 to 86400 expected");
	rejects(SCOPE_HVD, "deadline=-1", "--hvd: deadline=-1: a number from 1 to 86400 expected");
	rejects(SCOPE_HVD, "deadline=99999999999999999999", "--hvd: deadline=99999999999999999999: a number from 1 to 86400 expected");
	rejects(SCOPE_HVD, "off=1", "--hvd: off takes no value");
	rejects(SCOPE_HVD, "trace=", "--hvd: trace=…: 1 to 1023 printable characters expected");
	rejects(SCOPE_BIND, "socket,numa", "--hvd-bind: 'socket' and 'numa' exclude each other: say one of them once");
	rejects(SCOPE_BIND, "share,share", "--hvd-bind: 'share' is given twice");
	rejects(SCOPE_BIND, "socket,,share", "--hvd-bind: unknown key '', the nearest known one is 'gpu'");
	rejects(SCOPE_BIND, "gpus-per-task=65", "--hvd-bind: gpus-per-task=65: a number from 1 to 64 expected");
	rejects(SCOPE_HVD, "trace=a\nb", "--hvd: longer than 4095 characters, or with control characters in it");
	rejects(SCOPE_HVD, "\302\233J", "--hvd: longer than 4095 characters, or with control characters in it"); /* a terminal's escape, too */
	assert_string_equal(parsed(SCOPE_HVD, "trace=\302\241\303\233").trace, "\302\241\303\233");
}

static void texts_are_as_long_as_their_field_has_room(void **state)
{
	char text[2048];
	(void)state;
	snprintf(text, sizeof text, "trace=%01023d,iface=%063d", 7, 7);
	struct options o = parsed(SCOPE_HVD, text);
	assert_true(strlen(o.trace) == 1023 && strlen(o.iface) == 63);
	snprintf(text, sizeof text, "trace=%01024d", 7);
	rejects(SCOPE_HVD, text, "--hvd: trace=…: 1 to 1023 printable characters expected");
	snprintf(text, sizeof text, "iface=%064d", 7);
	rejects(SCOPE_HVD, text, "--hvd: iface=…: 1 to 63 printable characters expected");
}

static void later_texts_replace_keys_of_earlier_ones(void **state)
{
	struct options o = parsed(SCOPE_BIND, "numa,ids=index");
	char text[256];
	(void)state;
	assert_int_equal(options_parse(&o, SCOPE_BIND, "x", "socket", error, sizeof error), 0);
	assert_string_equal(options_print(&o, SCOPE_BIND, text, sizeof text), "socket,ids=index");
}

static void what_is_printed_reads_back(void **state)
{
	static const char *const texts[] = {
		"on", "off", "on_death=abort,deadline=86400,backend=nccl,trace=/a b/c=d,iface=eth0.12", "gpu,spread,smt=on,ids=uuid,gpus-per-task=64,share,nic=hint,verbose",
		"joined,keep-cpus,keep-gpus,keep-memory,whole-job,hide-gpus,by-site",
	};
	(void)state;
	for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
		char text[4096];
		struct options o = parsed(SCOPE_HVD | SCOPE_BIND | SCOPE_STEP, texts[i]), again;
		options_print(&o, SCOPE_HVD | SCOPE_BIND | SCOPE_STEP, text, sizeof text);
		again = parsed(SCOPE_HVD | SCOPE_BIND | SCOPE_STEP, text);
		assert_memory_equal(&o, &again, sizeof o);
		assert_int_equal(strlen(text), strlen(texts[i]));
	}
}

static void collect(const char *name, const char *value, void *data)
{
	sprintf((char *)data + strlen(data), "%s=%s;", name, value);
}

static void given_keys_travel_to_tasks(void **state)
{
	char text[1024] = "";
	struct options o = parsed(SCOPE_HVD | SCOPE_BIND, "iface=ib0,deadline=9.25,on_death=continue,numa,trace=/t,backend=cpu");
	(void)state;
	options_export(&o, collect, text);
	assert_string_equal(text, "HVD_ON_DEATH=continue;HVD_DEADLINE=9.25;HVD_BACKEND=cpu;HVD_TRACE=/t;HVD_IFACE=ib0;");
	text[0] = '\0';
	o = parsed(SCOPE_HVD, "on,deadline=9"); /* a word is srun's */
	options_export(&o, collect, text);
	assert_string_equal(text, "HVD_DEADLINE=9;");
	text[0] = '\0';
	o = options_default();
	options_export(&o, collect, text);
	assert_string_equal(text, "");
}

static void a_text_that_no_list_can_hold_is_the_users_own(void **state)
{
	struct options o = options_default();
	(void)state;

	assert_int_equal(options_parse(&o, SCOPE_HVD, "--hvd", "trace=/x,iface=eth0", error, sizeof error), 0);
	assert_false(options_leave_text(&o, "TRACE", "/y"));
	assert_false(options_leave_text(&o, "DEADLINE", "1,2"));
	assert_true(options_given(&o, "trace"));
	assert_true(options_leave_text(&o, "TRACE", "/a,b"));
	assert_false(options_given(&o, "trace"));
	assert_true(options_given(&o, "iface"));
}

static void arguments_of_plugstack_conf(void **state)
{
	char *good[] = { "hvd=deadline=60", "hvd-bind=numa,verbose", "enable=always", "aliases=off", "topology=/etc/hvd/a,b.xml", "proc=/etc/hvd/proc", "verbose-max=3", "numbers=minor" };
	char *bad[] = { "enable=always", "toplogy=/x" }, *relative[] = { "proc=here" }, *off[] = { "hvd=off" }, *on[] = { "hvd=on" }, *value[] = { "aliases=maybe" }, *nested[] = { "hvd-bind=sockets" };
	char *windows[] = { "enable=always", "proc=/etc/hvd/proc\r" }, *lone[] = { "\r" };
	char *several[] = { "bogus=1", "verbose-max=2", "enable=maybe" }, *count[] = { "verbose-max=many" }, *many[] = { "verbose-max=100001" };
	struct site site;
	(void)state;

	assert_int_equal(site_parse(&site, 8, good, error, sizeof error), 0);
	assert_string_equal(site.defaults.deadline, "60");
	assert_int_equal(site.defaults.policy, POLICY_NUMA);
	assert_int_equal(site.enable, ENABLE_ALWAYS);
	assert_int_equal(site.aliases, 0);
	assert_string_equal(site.topology, "/etc/hvd/a,b.xml");
	assert_string_equal(site.proc, "/etc/hvd/proc");
	assert_int_equal(site.verbose_max, 3);
	assert_int_equal(site.numbers, NUMBERS_MINOR);

	assert_int_equal(site_parse(&site, 0, NULL, error, sizeof error), 0);
	assert_int_equal(site.verbose_max, 64);
	assert_int_equal(site.enable, ENABLE_OPTION);
	assert_int_equal(site.aliases, 1);

	/* a misspelt word is told, and the others count */
	assert_int_equal(site_parse(&site, 2, bad, error, sizeof error), -1);
	assert_string_equal(error, "plugstack.conf: unknown key 'toplogy'; known are hvd|hvd-bind|enable|aliases|topology|proc|verbose-max|numbers");
	assert_int_equal(site.enable, ENABLE_ALWAYS);
	/* of a line as Windows ends it, the last */
	assert_int_equal(site_parse(&site, 2, windows, error, sizeof error), -1);
	assert_string_equal(error, "plugstack.conf: the line ends as on Windows (CR), so that 'proc=/etc/hvd/proc' is not read: sed -i 's/\\r$//' cures the file");
	assert_int_equal(site.enable, ENABLE_ALWAYS);
	assert_string_equal(site.proc, "");
	assert_int_equal(site_parse(&site, 1, lone, error, sizeof error), -1);
	assert_null(strchr(error, '\r'));
	assert_int_equal(site_parse(&site, 1, relative, error, sizeof error), -1);
	assert_string_equal(error, "plugstack.conf: proc=here: an absolute path expected");
	assert_int_equal(site_parse(&site, 1, value, error, sizeof error), -1);
	assert_string_equal(error, "plugstack.conf: aliases=maybe: off|on expected");
	assert_int_equal(site_parse(&site, 1, count, error, sizeof error), -1);
	assert_string_equal(error, "plugstack.conf: verbose-max=many: a number from 0 to 100000 expected");
	assert_int_equal(site_parse(&site, 1, many, error, sizeof error), -1);
	assert_int_equal(site.verbose_max, 64);
	assert_int_equal(site_parse(&site, 1, nested, error, sizeof error), -1);
	assert_string_equal(error, "plugstack.conf: hvd-bind: unknown key 'sockets', the nearest known one is 'socket'");
	assert_int_equal(site_parse(&site, 3, several, error, sizeof error), -1);
	assert_non_null(strstr(error, "unknown key 'bogus'"));
	assert_non_null(strstr(error, "; plugstack.conf: enable=maybe: option|always|never expected"));
	assert_int_equal(site.verbose_max, 2);
	assert_int_equal(site_parse(&site, 3, several, error, 20), -1);
	assert_int_equal(strlen(error), 19);
	assert_int_equal(site_parse(&site, 1, off, error, sizeof error), -1);
	assert_string_equal(error, "plugstack.conf: hvd=off switches nothing off: write enable=never");
	assert_int_equal(site_parse(&site, 1, on, error, sizeof error), -1);
	assert_string_equal(error, "plugstack.conf: hvd=on switches nothing on: steps join where their user says --hvd");
}

/* Any text has an answer, an error is one line, and what is accepted reads back. */
static void any_text_has_an_answer(void **state)
{
	static const char *const pieces[] = { "on", "off", "on_death", "=", ",", "continue", "deadline", "socket", "gpus-per-task", "9", "0", "trace", "/", "x", "\x80", "\n", " ", "share", "smt=off" };
	unsigned seed = getenv("SEED") ? (unsigned)atoi(getenv("SEED")) : 99;
	(void)state;
	print_message("# SEED=%u\n", seed);
	for (int i = 0; i < 200000; i++) {
		char text[6000] = "", back[4096];
		struct options o = options_default();
		int n = rand_r(&seed) % (i % 1000 ? 12 : 900);
		for (int k = 0; k < n; k++)
			strcat(text, pieces[(unsigned)rand_r(&seed) % (sizeof pieces / sizeof *pieces)]);
		if (options_parse(&o, SCOPE_HVD | SCOPE_BIND, "--hvd", text, error, sizeof error)) {
			assert_true(error[0] && strlen(error) < sizeof error && !strchr(error, '\n'));
			continue;
		}
		struct options again = options_default();
		options_print(&o, SCOPE_HVD | SCOPE_BIND, back, sizeof back);
		assert_int_equal(options_parse(&again, SCOPE_HVD | SCOPE_BIND, "--hvd", back, error, sizeof error), 0);
		assert_memory_equal(&o, &again, sizeof o);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_key_of_hvd),
		cmocka_unit_test(every_key_of_bind),
		cmocka_unit_test(no_text_is_no_key),
		cmocka_unit_test(errors_name_key_and_cure),
		cmocka_unit_test(texts_are_as_long_as_their_field_has_room),
		cmocka_unit_test(later_texts_replace_keys_of_earlier_ones),
		cmocka_unit_test(what_is_printed_reads_back),
		cmocka_unit_test(given_keys_travel_to_tasks),
		cmocka_unit_test(a_text_that_no_list_can_hold_is_the_users_own),
		cmocka_unit_test(arguments_of_plugstack_conf),
		cmocka_unit_test(any_text_has_an_answer),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
