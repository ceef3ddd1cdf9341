/* SPDX-License-Identifier: Apache-2.0
 * What each policy gives on each machine, as tests/placement-rules.md says it for people: every row is checked. */
#include "spank_machine.h"

#include "../../spank/options.h"

struct rule {
	char machine[64], words[128], gpus[512], cpus[1024], nics[512];
	int tasks;
};

/* The next cell of "| a | b |" without the spaces around it. */
static const char *cell(const char *p, char *out, size_t size)
{
	size_t n;
	p += strspn(p, "| ");
	n = strcspn(p, "|");
	while (n && p[n - 1] == ' ')
		n--;
	assert_true(n < size);
	memcpy(out, p, n);
	out[n] = '\0';
	return strchr(p, '|');
}

/* Calls use() for every row of the rules that is about a machine whose description is here. Returns their number. */
static int for_each_rule(void (*use)(const struct rule *rule))
{
	FILE *f = fopen("tests/placement-rules.md", "r");
	char line[4096];
	int rows = 0;

	assert_non_null(f);
	while (fgets(line, sizeof line, f)) {
		struct rule r;
		char tasks[16];
		const char *p = line;
		if (line[0] != '|' || !strncmp(line, "| machine", 9) || line[1] == '-')
			continue;
		p = cell(p, r.machine, sizeof r.machine);
		p = cell(p, tasks, sizeof tasks);
		r.tasks = atoi(tasks);
		p = cell(p, r.words, sizeof r.words);
		/* an empty cell is one */
		if (!strncmp(p, "| |", 3)) {
			r.gpus[0] = '\0';
			p += 2;
		} else {
			p = cell(p, r.gpus, sizeof r.gpus);
		}
		p = cell(p, r.cpus, sizeof r.cpus);
		cell(p, r.nics, sizeof r.nics);
		if (!load_named(r.machine))
			continue;
		use(&r);
		rows++;
	}
	fclose(f);
	return rows;
}

/* Field n of "a;b;c"; the last field for all beyond. */
static void field(const char *text, int n, char *out, size_t size)
{
	for (const char *next; n > 0 && (next = strchr(text, ';')); n--)
		text = next + 1;
	snprintf(out, size, "%.*s", (int)strcspn(text, ";"), text);
}

static bool quiet;

/* The number of tasks that are not where the row says. */
static int wrong_tasks(const struct rule *rule)
{
	struct options o = options_default();
	struct plan plan;
	int wrong = 0;
	char error[256];

	if (options_parse(&o, SCOPE_BIND, "words", rule->words, error, sizeof error))
		fail_msg("%s", error);
	ask_for(rule->tasks, (enum policy)o.policy, (enum order)o.order);
	request->gpus_per_task = o.gpus_per_task;
	request->share = o.share;
	request->no_smt = o.no_smt;
	if (place_tasks(node, request, &plan))
		return rule->tasks;
	for (int t = 0; t < plan.tasks; t++) {
		const struct task_plan *p = &plan.task[t];
		char want[256], gpus[256] = "", cpus[256];
		for (int d = 0; d < p->devices; d++)
			snprintf(gpus + strlen(gpus), sizeof gpus - strlen(gpus), "%s%d", d ? "," : "", request->device[p->device[d]]);
		field(rule->gpus, t, want, sizeof want);
		bool here = !strcmp(gpus, want);
		field(rule->cpus, t, want, sizeof want);
		here &= !strcmp(cpulist_print(&p->cpus, cpus, sizeof cpus), want);
		field(rule->nics, t, want, sizeof want);
		here &= !strcmp(want, "-") || (p->nic >= 0 && !strcmp(node->nic[p->nic].name, want));
		if (!here && !quiet)
			print_message("# %s, %d tasks, %s: task %d has GPU %s, CPUs %s, NIC %s\n", rule->machine, rule->tasks, rule->words, t, gpus, cpus,
				p->nic >= 0 ? node->nic[p->nic].name : "none");
		wrong += !here;
	}
	plan_free(&plan);
	return wrong;
}

static void row_holds(const struct rule *rule)
{
	assert_int_equal(wrong_tasks(rule), 0);
}

static void rules_hold(void **state)
{
	int rows = for_each_rule(row_holds);
	(void)state;
	assert_true(rows >= (shared_dir() ? 67 : 20));
	if (!shared_dir())
		skip_because("the rows about published machines: no ../shared/topologies");
}

static void reversed_gpus_break_the_row(const struct rule *rule)
{
	if (node->gpus < 2)
		return;
	for (int a = 0, b = node->gpus - 1; a < b; a++, b--) {
		struct gpu other = node->gpu[a];
		node->gpu[a] = node->gpu[b];
		node->gpu[b] = other;
	}
	quiet = true;
	int wrong = wrong_tasks(rule);
	quiet = false;
	if (!wrong)
		fail_msg("%s with %d tasks, %s, does not notice", rule->machine, rule->tasks, rule->words);
}

/* With the GPUs named in the wrong order every row with more than one GPU must fail: the rows can tell. */
static void rules_notice_reversed_gpus(void **state)
{
	(void)state;
	assert_true(for_each_rule(reversed_gpus_break_the_row) > 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(rules_hold),
		cmocka_unit_test(rules_notice_reversed_gpus),
	};
	return cmocka_run_group_tests(tests, prepare, release);
}
