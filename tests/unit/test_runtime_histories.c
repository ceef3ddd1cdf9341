/* SPDX-License-Identifier: Apache-2.0
 * Worlds that go on after losses (on_death continue), or end of them (abort), through very many histories: ranks are killed or stand still, control links and links for data between
 * live ranks break, two of these in each history, the second at any moment of what the first one set off. Whatever happens, there are never two worlds, and
 * nobody waits without end; sums are right, and those that go on have the same state, with no step lost or done twice. TEST_HISTORIES=N: so many of each kind; a failure names its seed, and TEST_SEED=SEED begins there. */
#include "tests/unit/test.h"

#include "tests/unit/simulation.h"

#include "runtime/chain.h"

#include <math.h>
#include <sys/wait.h>
#include <unistd.h>

enum fault { KILL, FREEZE, RESET, CUT, FAULTS };
static const char *const fault_names[] = { "kill", "freeze", "reset", "cut" };

enum { ABORT = 1 << FAULTS /* beside the kinds of faults: on_death abort */, TOGETHER = ABORT << 1 /* all stand still, then two die */, FAULTS_A_HISTORY = 2, COMMITS_MAX = 512, GRADIENTS = 100, MEMBERS = 1 << RANKS_MAX };
static double deadline = 4;
#define QUIET (10 * deadline) /* simulated seconds after the last fault in which everything has come to its end */

/* What a rank does besides libhvd. */
static struct program {
	struct boot boot;
	unsigned members; /* of its world, a bit each */
	int step;         /* collectives in that world */
	struct chain chain;
	struct state { /* of the training */
		int step;
		uint32_t hash; /* of the sums of all steps */
	} at;
	bool recovers;
	double since;     /* it recovers */
} programs[RANKS_MAX];

static unsigned committed[COMMITS_MAX]; /* the members of each world in which a rank came out of a collective */
static int commits, formed, on_death, wrong_sums, too_far;
static double longest; /* recovery of this history */
static struct {
	bool there;
	unsigned char card[1024];
} published;

/* ---- what a rank does ------------------------------------------------------------------------------------- */

static int publish(struct boot *b, const void *card, size_t bytes, char *why)
{
	(void)b;
	(void)why;
	if (bytes > sizeof published.card)
		return HVD_EBOOT;
	memcpy(published.card, card, bytes);
	published.there = true;
	return 0;
}

static int lookup(struct boot *b, void *card, size_t bytes, double until, char *why)
{
	(void)b;
	(void)until;
	(void)why;
	while (!published.there)
		wait_until(FOR_TIME, simulated + 0.001);
	memcpy(card, published.card, bytes);
	return 0;
}

/* Links for data, as between nodes. Then all exchange something. */
static int form_links(struct hvd *h)
{
	struct mesh *m = h->mesh;
	struct chain *c = &programs[m->rank].chain;
	struct link link[2];
	int mine = 1, n = 0, status;
	chain_close(c);
	if (m->me)
		link[n++] = (struct link){ m->member[m->me - 1], -1 };
	if (m->me + 1 < m->members)
		link[n++] = (struct link){ m->member[m->me + 1], -1 };
	status = mesh_link(m, link, n, h->error);
	if (!status)
		status = chain_open(c, m, link, n, m->members);
	if (!status)
		free(gathered(h, &mine, sizeof mine, &status));
	return status;
}

static const struct backend back_end = { .name = "cpu", .recover = form_links };

static unsigned members_of(const struct mesh *m)
{
	unsigned members = 0;
	for (int w = 0; w < m->members; w++)
		members |= 1u << m->member[w];
	return members;
}

static float gradient(int rank, int step, int i)
{
	return (float)((rank * 7 + step * 3 + i) % 101);
}

/* A step of the training: a sum over this rank's world. */
static int collective(int rank)
{
	struct program *p = &programs[rank];
	struct mesh *m = &processes[rank].m;
	struct op op = { .kind = OP_ALLREDUCE, .n = GRADIENTS, .type = HVD_F32, .op = HVD_SUM };
	struct stamp stamp = { .n = op.n, .piece = op.n, .kind = op.kind, .type = op.type, .op = op.op };
	float sum[GRADIENTS];
	int status = atomic_load(&m->failed);
	if (status)
		return status;
	mesh_doing(m, DOING_OP, 0);
	for (int i = 0; i < GRADIENTS; i++)
		sum[i] = gradient(rank, p->at.step, i);
	if (m->members > 1)
		status = chain_reduce(&p->chain, &stamp, &op, (uint8_t *[]){ (uint8_t *)sum }, 1, 0, 0, op.n, 1);
	if (status)
		return status;
	for (int i = 0; i < GRADIENTS; i++) {
		float right = 0;
		for (int w = 0; w < m->members; w++)
			right += gradient(m->member[w], p->at.step, i);
		wrong_sums += sum[i] < right || sum[i] > right;
		p->at.hash = (p->at.hash ^ (uint32_t)sum[i]) * 0x01000193;
	}
	p->at.step++;
	if (++p->step <= 2 && commits < COMMITS_MAX)
		committed[commits++] = p->members;
	mesh_doing(m, DOING_COMPUTE, 0);
	return 0;
}

/* All take the state of the rank that got furthest. */
static int take_furthest(struct hvd *h, struct program *p)
{
	int status;
	struct state *all = gathered(h, &p->at, sizeof p->at, &status), furthest = p->at;
	for (int w = 0; !status && w < h->world.size; w++)
		furthest = all[w].step > furthest.step ? all[w] : furthest;
	too_far += furthest.step > p->at.step + 1;
	p->at = furthest;
	free(all);
	return status;
}

static int recover(int rank)
{
	struct program *p = &programs[rank];
	if (!below(3))
		wait_until(FOR_TIME, simulated + share() * 0.05);
	p->recovers = true;
	p->since = simulated;
	int status = hvd_recover(&processes[rank].h);
	p->recovers = false;
	longest = fmax(longest, simulated - p->since);
	p->members = members_of(&processes[rank].m);
	p->step = 0;
	if (!status)
		status = take_furthest(&processes[rank].h, p);
	return status;
}

/* on_death abort: what the watcher does in the place of _exit(). */
static void end_of_loss(void *arg, const char *line)
{
	(void)arg;
	(void)line;
	end_process_of(current);
	wait_until(OVER, 0);
}

static void *run_program(void *arg)
{
	struct program *p = arg;
	int rank = (int)(p - programs);
	struct process *self = &processes[rank];
	char why[WHY_BYTES];
	int status = mesh_open(&self->m, &p->boot, &self->conf, why);
	if (!status) {
		describe_world(&self->h);
		status = form_links(&self->h);
	}
	if (!self->conf.on_death)
		links_close(&self->m.links);
	if (!status) {
		arm(&self->h);
		p->members = members_of(&self->m);
		formed++;
	}
	while (!status) {
		status = collective(rank);
		while (on_death && status == HVD_EPEER)
			status = recover(rank);
		if (!status)
			wait_until(FOR_TIME, simulated + 0.05 + share() * 0.15);
		else if (!on_death)
			wait_until(OVER, 0); /* the watcher ends it */
	}
	mesh_close(&self->m);
	end_process_of(rank);
	return NULL;
}

/* ---- a history ---------------------------------------------------------------------------------------------- */

static void break_link(struct stream *s)
{
	for (int end = 0; end < 2; end++) {
		if (s->held[end] && below(2))
			s->held[end] = (size_t)below((int)s->held[end]); /* what was on its way is lost from there on */
		if (!s->closed[0] && !s->closed[1])
			s->error[end] = ECONNRESET;
	}
}

/* The newest of its links with another. */
static void break_data_link(int rank)
{
	int i = streams_there - 1;
	while (i >= 0 && (!streams[i].number || (streams[i].rank[0] != rank && streams[i].rank[1] != rank)))
		i--;
	if (i >= 0)
		break_link(&streams[i]);
}

static enum fault hurt(unsigned kinds)
{
	static const double times[4][2] = { { 0, 0.5 }, { 0.5, 3 }, { 3, 6 }, { 4, 14 } }; /* around what is a moment to the mesh, and around the deadline */
	enum fault kind = (enum fault)below(FAULTS);
	int a = below(ranks), b = (a + 1 + below(ranks - 1)) % ranks;
	while (!(kinds >> kind & 1))
		kind = (enum fault)below(FAULTS);
	switch (kind) {
	case KILL:
		processes[a].killed = true;
		end_process_of(a);
		break;
	case FREEZE: {
		const double *t = times[below(4)];
		processes[a].frozen = !processes[a].dead;
		processes[a].thaws = simulated + t[0] + share() * (t[1] - t[0]);
		break;
	}
	case RESET:
		break_link(stream_between(a, b, 0));
		break;
	case CUT:
		break_data_link(a);
		break;
	case FAULTS:
		break;
	}
	return kind;
}

static void begin_history(int count, uint64_t seed)
{
	begin_simulation(count, seed);
	memset(programs, 0, sizeof programs);
	published.there = false;
	commits = formed = wrong_sums = too_far = 0;
	longest = 0;
	int a_node = 1 << below(3); /* ranks of a node: one, two, four */
	for (int r = 0; r < count; r++) {
		struct process *p = &processes[r];
		programs[r].boot = (struct boot){ .rank = r, .size = count, .nodes = 1, .publish = publish, .lookup = lookup };
		snprintf(programs[r].boot.host, HOST_BYTES, "n%d", r / a_node);
		programs[r].chain = (struct chain){ .prev.fd = -1, .next.fd = -1 };
		p->conf = (struct hvd_conf){ .size = sizeof p->conf, .deadline = deadline, .on_death = on_death, .on_lost = end_of_loss };
		p->h = (struct hvd){ .conf = p->conf, .mesh = &p->m, .backend = &back_end };
		p->h.stop = &p->h.stop_word;
		task(r, run_program, &programs[r]);
	}
	while (formed < count && one_step())
		;
}

/* What must not be, or NULL. */
static const char *verdict(void)
{
	for (int i = 0; i < commits; i++)
		for (int k = 0; k < i; k++)
			if (!(committed[i] & committed[k]))
				return "two worlds";
	if (wrong_sums || too_far)
		return wrong_sums ? "a wrong sum" : "more than one step apart";
	for (int r = 0; r < ranks; r++)
		for (int q = 0; q < r; q++)
			if (!processes[r].dead && !processes[q].dead && programs[r].at.step == programs[q].at.step && programs[r].at.hash != programs[q].at.hash)
				return "survivors that differ";
	for (int r = 0; r < ranks; r++)
		if (!processes[r].dead && (programs[r].recovers || atomic_load(&processes[r].m.failed)))
			return "a wait without end";
	for (int r = 0; !on_death && r < ranks; r++)
		if (processes[r].dead != processes[0].dead)
			return "some have ended";
	return NULL;
}

static void run_until(double t)
{
	while (simulated < t && one_step())
		;
}

/* Runs one; text: what happened. Returns how many ranks go on at its end. */
static int run_history(int count, uint64_t seed, unsigned kinds, char text[64])
{
	begin_history(count, seed);
	int left = FAULTS_A_HISTORY, on = 0;
	double at = simulated + 0.2 + share() * 0.2, last = at;
	long steps = 0, when = -1; /* the second one comes at that step, or at `at` */
	*text = 0;
	while (simulated < last + QUIET && one_step()) {
		steps++;
		if (!left || (simulated < at && (when < 0 || steps < when)))
			continue;
		snprintf(text + strlen(text), 64 - strlen(text), "%s%s", *text ? ", " : "", fault_names[hurt(kinds)]);
		left--;
		last = simulated;
		double q = share();
		when = steps + (long)pow(10, share() * 4.5);
		at = simulated + (q < 0.3 ? QUIET : q < 0.5 ? share() * 0.01 : q < 0.8 ? share() * 3 : share() * 12);
	}
	for (int r = 0; r < count; r++)
		on += !processes[r].dead;
	return on;
}

/* One rank stands still, or two. Their links break, or are full of signs of life, so that they do not hear of what the others do; those end when they wake,
 * just before or a little later. Returns how many go on: of those that stood still, who must know that the others have not gone on without them. */
static int run_awakening(int count, uint64_t seed, char text[64])
{
	begin_history(count, seed);
	int still = below(count), second = count > 3 && below(4) ? (still + 1 + below(count - 1)) % count : still, on = 0;
	bool breaks = below(2);
	double at = simulated + 0.2 + share() * 0.2, wakes = at + share() * (breaks ? 3 : 3 * deadline);
	unsigned asleep = 1u << still | 1u << second;
	run_until(at);
	for (int r = 0; r < count; r++) {
		processes[r].frozen = asleep >> r & 1;
		processes[r].thaws = wakes + share() * 0.005;
	}
	run_until(at + share() * 0.1);
	for (int r = 0; breaks && r < count; r++)
		for (int q = 0; q < r; q++)
			if ((asleep >> r ^ asleep >> q) & 1)
				break_link(stream_between(q, r, 0));
	run_until(wakes - 0.5 + share() * 3);
	for (int r = 0; r < count; r++) {
		processes[r].killed = !(asleep >> r & 1);
		if (processes[r].killed)
			end_process_of(r);
	}
	run_until(simulated + 3 * deadline);
	for (int r = 0; r < count; r++)
		on += !processes[r].dead;
	snprintf(text, 64, "%d and %d, %s, %.1f s", still, second, breaks ? "reset" : "no reset", wakes - at);
	return on;
}

/* All ranks stand still, as on a machine that does, or some. Two of all die about when those wake. */
static int run_standstill(int count, uint64_t seed, char text[64])
{
	begin_history(count, seed);
	int victim[2] = { below(count), below(count - 1) }, on = 0;
	double at = simulated + 0.2 + share() * 0.2, wakes = at + 0.3 + share() * 2, t = wakes - 0.02;
	victim[1] += victim[1] >= victim[0];
	run_until(at);
	for (int r = 0, all = below(2); r < count; r++) {
		processes[r].frozen = all || below(2);
		processes[r].thaws = wakes + share() * 0.005;
	}
	for (int i = 0; i < 2; i++) {
		run_until(t += share() * 0.1);
		processes[victim[i]].killed = true;
		end_process_of(victim[i]);
	}
	run_until(simulated + 3 * deadline);
	for (int r = 0; r < count; r++)
		on += !processes[r].dead;
	snprintf(text, 64, "%d and %d die, %.1f s", victim[0], victim[1], wakes - at);
	return on;
}

/* ---- tests -------------------------------------------------------------------------------------------------- */

static uint64_t number(const char *variable, uint64_t otherwise)
{
	const char *text = getenv(variable);
	return text ? strtoull(text, NULL, 0) : otherwise;
}

/* In a process of its own: dead ones of the simulation free nothing. kinds 0: awakenings, TOGETHER: standstills. limit: of a recovery, simulated seconds. */
static void run_histories(int count, unsigned kinds, double limit)
{
#ifdef __SANITIZE_THREAD__
	skip_because("ThreadSanitizer does not follow tasks from stack to stack");
#endif
	uint64_t n = number("TEST_HISTORIES", kinds && !(kinds & ABORT) ? 500 : 250), first = number("TEST_SEED", 1000);
	pid_t child = fork();
	assert_int_not_equal(child, -1);
	if (!child) {
		int wrong = 0, went_on = 0, lost = 0, costly = 0; /* costly: where more ranks were lost than there were faults */
		char text[64];
		for (uint64_t seed = first; seed < first + n; seed++) {
			on_death = !(kinds & ABORT);
			int on = kinds == TOGETHER ? run_standstill(count, seed, text) : kinds ? run_history(count, seed, kinds, text) : run_awakening(count, seed, text);
			const char *what = formed < count ? "no world" : verdict();
			if (!what && kinds == TOGETHER && on && on < count - 2)
				what = "some go on, others stop";
			what = what ? what : longest > limit ? "a recovery that waits for a deadline" : NULL;
			costly += isfinite(limit) && on < count - FAULTS_A_HISTORY;
			went_on += on;
			lost += !on;
			if (what && wrong++ < 5)
				printf("# %d ranks, TEST_SEED=%llu (%s): %s; recovery %.2f s, %d go on\n", count, (unsigned long long)seed, text, what, longest, on);
		}
		printf("# %d ranks: %llu histories, %d wrong; %.2f ranks went on, in %d none, in %d more were lost than hurt\n", count, (unsigned long long)n, wrong, (double)went_on / (double)n, lost, costly);
		fflush(stdout);
		_exit(wrong || 100 * costly > (int)n || (kinds && on_death && 2 * went_on < (int)n)); /* where hardly anybody ever goes on nothing is tested */
	}
	int status;
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
}

static void no_history_makes_two_worlds_or_a_wait_without_end(void **state)
{
	(void)state;
	for (int count = 2; count <= 4; count++)
		run_histories(count, 1 << KILL | 1 << FREEZE | 1 << RESET | 1 << CUT, INFINITY);
}

static void no_recovery_waits_for_a_deadline_where_every_live_rank_runs(void **state)
{
	(void)state;
	for (int count = 3; count <= RANKS_MAX; count++)
		run_histories(count, 1 << KILL | 1 << RESET | 1 << CUT, 0.9 * deadline);
}

static void with_on_death_abort_all_end_of_a_loss_or_none(void **state)
{
	(void)state;
	for (int count = 2; count <= 4; count++)
		run_histories(count, ABORT | 1 << KILL | 1 << FREEZE | 1 << RESET | 1 << CUT, INFINITY);
}

static void who_stood_still_together_go_on_together_or_not_at_all(void **state)
{
	(void)state;
	deadline = 4;
	for (int count = 4; count <= RANKS_MAX; count++)
		run_histories(count, TOGETHER, INFINITY);
}

static void who_wakes_when_the_others_have_gone_on_makes_no_second_world(void **state)
{
	(void)state;
	deadline = 40;
	for (int count = 2; count <= RANKS_MAX; count++)
		run_histories(count, 0, INFINITY);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(no_history_makes_two_worlds_or_a_wait_without_end),
		cmocka_unit_test(no_recovery_waits_for_a_deadline_where_every_live_rank_runs),
		cmocka_unit_test(with_on_death_abort_all_end_of_a_loss_or_none),
		cmocka_unit_test(who_stood_still_together_go_on_together_or_not_at_all),
		cmocka_unit_test(who_wakes_when_the_others_have_gone_on_makes_no_second_world),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
