/* SPDX-License-Identifier: Apache-2.0
 * PMIx, all of it: Init, one Put by rank 0, one Get by the first rank of each other node (node.h has why), Finalize before any work.
 *
 * While a PMIx client is connected, Slurm kills the whole step as soon as one rank ends, and tells nobody why; so PMIx
 * is finalised once the mesh stands. No fence is used: a fence without data is no barrier on Slurm (its tree is node-local
 * on small jobs), and one with a missing rank hangs its neighbours past every timeout. A Get waits for the key by itself. */
#include "boot.h"

#include "hvd.h"
#include "library.h"
#include "node.h"

#include <dlfcn.h>
#include <pmix.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#define PMIX_FUNCTIONS(F) \
	F(PMIx_Init) F(PMIx_Finalize) F(PMIx_Get) F(PMIx_Get_nb) F(PMIx_Put) F(PMIx_Commit) F(PMIx_Error_string) F(PMIx_Get_version)

struct pmix {
	PMIX_FUNCTIONS(LIBRARY_MEMBER)
	pmix_proc_t me;
	pmix_status_t refused; /* what PMIx_Init() said, 0: not that it failed */
	bool open;
	struct node node; /* the way that spares PMIx */
	char key[24]; /* of rank 0's card; numbered, because PMIx keeps the cards of worlds that this process formed before … */
	bool asked;   /* … and of those that an earlier program of the step formed: nobody listens there, and the card is asked for once more */
	bool refresh; /* … of rank 0's server, not of this node's, which remembers */
	struct {
		_Atomic bool done;
		pmix_status_t status;
		size_t bytes;
		uint8_t card[CARD_BYTES_MAX];
	} get; /* of rank 0's card, which PMIx may answer until it is finalised */
};

static int load(struct pmix *p, char *why)
{
	static const char *const names[] = { PMIX_FUNCTIONS(LIBRARY_NAME) };
	void *library = library_open("libpmix.so.2", NULL);
	const char *missing = library ? library_bind(library, names, COUNT(names), p) : NULL;
	if (!library)
		return refuse(why, HVD_EBOOT, "PMIx: %.160s (needed: libpmix.so.2, of OpenPMIx %d.%d or near; Debian: libpmix2)", dlerror(), (int)PMIX_VERSION_MAJOR, (int)PMIX_VERSION_MINOR);
	if (missing)
		return refuse(why, HVD_EBOOT, "PMIx: libpmix.so.2 has no %s; libhvd was built with OpenPMIx %d.%d", missing, (int)PMIX_VERSION_MAJOR, (int)PMIX_VERSION_MINOR);
	return 0;
}

static int unusable(const struct pmix *p, const char *what, pmix_status_t rc, char *why)
{
	const char *server = getenv("PMIX_VERSION");
	return refuse(why, HVD_EBOOT, "PMIx: %s failed: %s%s (the library here is %.60s, Slurm's PMIx is %.40s, libhvd was built with %ld.%ld.%ld)", what,
		      p->PMIx_Error_string(rc), rc == PMIX_ERR_UNREACH ? "; in a container: has it the host's network, and are you yourself in it, not root?" :
		      rc == PMIX_ERR_INVALID_CRED ? "; you are not the step's user, or not of its group: in a container, be yourself, not root" : "",
		      p->PMIx_Get_version(), server ? server : "unknown", (long)PMIX_VERSION_MAJOR, (long)PMIX_VERSION_MINOR, (long)PMIX_VERSION_RELEASE);
}

static void drop(pmix_value_t *v)
{
	if (v->type == PMIX_STRING)
		free(v->data.string);
	free(v);
}

static uint32_t number(const struct pmix *p, const char *key, uint32_t otherwise)
{
	pmix_proc_t all = p->me;
	pmix_value_t *v;
	all.rank = PMIX_RANK_WILDCARD;
	if (p->PMIx_Get(&all, key, NULL, 0, &v))
		return otherwise;
	uint32_t n = v->type == PMIX_UINT32 ? v->data.uint32 : otherwise;
	drop(v);
	return n;
}

/* Slurm's node name; gethostname() is the same for several slurmd on one host. */
static void host_of(struct boot *b, int rank, char host[HOST_BYTES])
{
	const struct pmix *p = b->state;
	pmix_proc_t proc = p->me;
	pmix_value_t *v;
	const char *own = rank == b->rank ? getenv("SLURMD_NODENAME") : NULL; /* after a second PMIx_Init, PMIx does not know it */
	proc.rank = (pmix_rank_t)rank;
	snprintf(host, HOST_BYTES, "%s", own ? own : "an unknown node");
	if (!p->open || p->PMIx_Get(&proc, PMIX_HOSTNAME, NULL, 0, &v))
		return;
	if (v->type == PMIX_STRING && v->data.string)
		snprintf(host, HOST_BYTES, "%s", v->data.string);
	drop(v);
}

static int number_in(const char *variable)
{
	const char *value = getenv(variable);
	return value ? atoi(value) : -1;
}

/* Has PMIx take this one of the ways that the server offers in the variable `offers`, unless the user chose. True: unsetenv(choice) later. */
static bool choose(const char *choice, const char *offers, const char *way)
{
	const char *offered = getenv(offers);
	return offered && strstr(offered, way) && !getenv(choice) && !setenv(choice, way, 1);
}

/* PMIx_Init(), of the process and not of a world: PMIx 4 dies of another one after one that failed. It may come back after the deadline, and the next world then has it. */
static struct {
	pmix_status_t (*call)(pmix_proc_t *, pmix_info_t *, size_t);
	pmix_proc_t me;
	pmix_status_t status;
	bool begun;
	_Atomic bool over;
} init;

static void *call_init(__attribute__((unused)) void *arg)
{
	init.status = init.call(&init.me, NULL, 0);
	init.over = true;
	return NULL;
}

/* A server that is stopped lets a rank wait for ever; only PMIx 4 heeds a bound of its own. */
static pmix_status_t init_within(struct pmix *p, double deadline)
{
	pthread_t thread;
	if (!init.begun) {
		init.call = p->PMIx_Init;
		init.over = false;
		if (thread_start(&thread, call_init, NULL))
			return PMIX_ERR_OUT_OF_RESOURCE;
		pthread_detach(thread);
		init.begun = true;
	}
	for (double until = lived() + deadline; !init.over && lived() < until;)
		usleep(50);
	if (!init.over)
		return PMIX_ERR_UNREACH;
	init.begun = init.status;
	p->me = init.me;
	return init.status;
}

/* Identity without munge: munged would be asked twice, and slurmstepd serves nobody else until it has the second answer; neither way
 * proves anything about the server. Facts about the job in a message: for shared memory, slurmstepd first writes all it knows there
 * (54.7 ms from main() to the first all-reduce, 40.9 with a message: medians of 15, 8 ranks on 2 cores). Who is not the
 * step's user, as in a user namespace, would be refused, and is not to ask: PMIx 5.0.9 hangs, and slurmstepd with it, as soon as a refused client comes again, as all do. */
static pmix_status_t initialise(struct pmix *p, double deadline)
{
	bool native = choose("PMIX_MCA_psec", "PMIX_SECURITY_MODE", "native"), hash = choose("PMIX_MCA_gds", "PMIX_GDS_MODULE", "hash");
	const char *psec = getenv("PMIX_MCA_psec");
	int user = number_in("SLURM_JOB_UID"), group = number_in("SLURM_JOB_GID");
	bool stranger = (user >= 0 && (uid_t)user != geteuid()) || (group >= 0 && (gid_t)group != getegid());
	bool natively = psec && strstr(psec, "native") && (!strstr(psec, "munge") || access("/run/munge/munge.socket.2", F_OK)); /* enroot says munge,native */
	pmix_status_t rc = natively && stranger && !strncmp(getenv("PMIX_NAMESPACE"), "slurm.", 6) ? PMIX_ERR_INVALID_CRED : init_within(p, deadline);
	if (native)
		unsetenv("PMIX_MCA_psec");
	if (hash)
		unsetenv("PMIX_MCA_gds");
	return rc;
}

static int connect_to_pmix(struct boot *b, char *why)
{
	struct pmix *p = b->state;
	if (p->open)
		return 0;
	if (load(p, why))
		return HVD_EBOOT;
	p->refused = p->refused ? p->refused : initialise(p, b->deadline); /* which would wait once more */
	if (p->refused)
		return unusable(p, "PMIx_Init", p->refused, why);
	p->open = true;
	int size = (int)number(p, PMIX_JOB_SIZE, 0);
	b->size = b->size ? b->size : size;
	return b->size == size ? 0 : refuse(why, HVD_EBOOT, "the step has %d tasks, PMIx counts %d", b->size, size);
}

static int publish(struct boot *b, const void *card, size_t bytes, char *why)
{
	struct pmix *p = b->state;
	pmix_value_t v = { .type = PMIX_BYTE_OBJECT };
	if (connect_to_pmix(b, why))
		return HVD_EBOOT;
	node_serve(&p->node, card, bytes);
	v.data.bo.bytes = (char *)(uintptr_t)card;
	v.data.bo.size = bytes;
	pmix_status_t rc = p->PMIx_Put(PMIX_GLOBAL, p->key, &v);
	if (!rc)
		rc = p->PMIx_Commit();
	return rc ? unusable(p, "publishing rank 0's card", rc, why) : 0;
}

static void answer(pmix_status_t status, pmix_value_t *v, void *data)
{
	struct pmix *p = data;
	p->get.status = status;
	if (!status && v && v->type == PMIX_BYTE_OBJECT && v->data.bo.size <= sizeof p->get.card) {
		p->get.bytes = v->data.bo.size;
		memcpy(p->get.card, v->data.bo.bytes, p->get.bytes);
	}
	p->get.done = true;
}

/* One Get of rank 0's key, into p->get. PMIX_ERR_TIMEOUT: not answered by `until`, or before that by a server which waits for less. */
static pmix_status_t ask(struct pmix *p, const char *key, double until)
{
	pmix_proc_t zero = p->me;
	zero.rank = 0;
	pmix_info_t anew = { .key = PMIX_GET_REFRESH_CACHE, .value = { .type = PMIX_BOOL, .data.flag = true } };
	p->get.done = false;
	p->get.bytes = 0;
	pmix_status_t rc = p->PMIx_Get_nb(&zero, key, &anew, p->refresh, answer, p);
	while (!rc && !p->get.done && lived() < until)
		usleep(200);
	return rc ? rc : p->get.done ? p->get.status : PMIX_ERR_TIMEOUT;
}

static int lookup(struct boot *b, void *card, size_t bytes, double until, char *why)
{
	struct pmix *p = b->state;
	double begin = lived(), shortcut = begin + (until - begin < 4 ? (until - begin) / 4 : 1);
	char host[HOST_BYTES];
	if (p->node.name[0] && p->node.listener < 0 && node_ask(&p->node, card, bytes, shortcut))
		return 0;
	pmix_status_t rc = connect_to_pmix(b, why);
	if (rc)
		return rc;
	if (p->asked) {
		host_of(b, 0, host);
		p->refresh = strcmp(host, b->host); /* rank 0's own server would answer nothing … */
		if (!p->refresh) { /* … and this client goes on saying what it was told: only a new one asks again */
			p->PMIx_Finalize(NULL, 0);
			p->open = false;
			if ((rc = connect_to_pmix(b, why)))
				return rc;
		}
	}
	/* PMIx 5.0 does so not for a key that it has, but for any that it has not */
	if (p->refresh && ask(p, "hvd.unpublished", until) == PMIX_ERR_NOT_SUPPORTED) {
		p->refresh = false; /* 5.0.1, which refuses the word, does it without */
		ask(p, "hvd.unpublished", until);
	}
	p->asked = true;
	/* A Get that reaches the node's server between rank 0's connection and its Commit is answered NOT-FOUND, and TIMEOUT after the server's own two seconds where rank 0 is
	 * of its node and has not connected. */
	while (((rc = ask(p, p->key, until)) == PMIX_ERR_NOT_FOUND || rc == PMIX_ERR_TIMEOUT) && lived() < until)
		usleep(2000);
	if (rc == PMIX_ERR_TIMEOUT || rc == PMIX_ERR_NOT_FOUND) {
		host_of(b, 0, host);
		return refuse(why, HVD_EBOOT, "rank 0 on %.63s did not join within %.0f s (not started, ended early, or not calling hvd_init)", host, lived() - begin);
	}
	if (rc)
		return unusable(p, "getting rank 0's card", rc, why);
	if (p->get.bytes != bytes)
		return refuse(why, HVD_EBOOT, "rank 0 runs another version of libhvd than rank %d on %.63s (%s): install one version on all nodes", b->rank, b->host, HVD_VERSION);
	memcpy(card, p->get.card, bytes);
	node_serve(&p->node, card, bytes);
	return 0;
}

static void finish(struct boot *b)
{
	struct pmix *p = b->state;
	node_close(&p->node);
	if (p->open)
		p->PMIx_Finalize(NULL, 0);
	free(p); /* the library stays mapped: its threads may be on their way out */
}

/* Who this rank is and where its node's ranks meet, from what Slurm says; false: ask PMIx. */
static bool known_from_slurm(struct boot *b, struct node *n)
{
	const char *space = getenv("PMIX_NAMESPACE"), *host = getenv("SLURMD_NODENAME");
	int rank = number_in("SLURM_PROCID"), node = number_in("SLURM_NODEID"), local = number_in("SLURM_LOCALID");
	b->nodes = number_in("SLURM_STEP_NUM_NODES");
	if (!host || rank < 0 || rank >= b->size || rank != number_in("PMIX_RANK") || node < 0 || node >= b->nodes || local < 0 || getenv("SLURM_HET_SIZE"))
		return false;
	if (snprintf(n->name, sizeof n->name, "hvd-%s-%d", space, node) >= (int)sizeof n->name - 1) {
		n->name[0] = 0;
		return false;
	}
	b->rank = rank;
	snprintf(b->host, sizeof b->host, "%s", host);
	if (!local)
		node_listen(n);
	return true;
}

static int boot_from_pmix(struct boot *b, char *why)
{
	static unsigned worlds; /* of this process so far */
	const rlim_t enough = 65536, few = 24; /* few: where PMIx tells of its own, or ends the process */
	struct rlimit files = { enough, enough };
	getrlimit(RLIMIT_NOFILE, &files);
	if (files.rlim_cur < files.rlim_max && files.rlim_cur < enough) {
		files.rlim_cur = files.rlim_max < enough ? files.rlim_max : enough;
		setrlimit(RLIMIT_NOFILE, &files);
	}
	if (files.rlim_cur < few)
		return refuse(why, HVD_ESYS, "%d open files are too few: raise the limit (ulimit -n)", (int)files.rlim_cur);
	struct pmix *p = b->state = calloc(1, sizeof *p);
	if (!p)
		return refuse(why, HVD_ESYS, "no memory for PMIx");
	snprintf(p->key, sizeof p->key, "hvd.card.%u", worlds++);
	p->node.listener = -1;
	pthread_mutex_init(&p->node.lock, NULL);
	b->publish = publish;
	b->lookup = lookup;
	b->host_of = host_of;
	b->finish = finish;
	if (known_from_slurm(b, &p->node))
		return 0;
	if (connect_to_pmix(b, why)) {
		finish(b);
		return HVD_EBOOT;
	}
	b->rank = (int)p->me.rank;
	b->nodes = (int)number(p, PMIX_NUM_NODES, 2);
	host_of(b, b->rank, b->host);
	return 0;
}

int boot_from_step(struct boot *b, char *why)
{
	const char *node = getenv("SLURMD_NODENAME"), *wishes = getenv("SLURM_HVD_STEP");
	const char *pmix = getenv("PMIX_NAMESPACE");
	int tasks = pmix && strncmp(pmix, "slurm.", 6) ? 0 : number_in("SLURM_STEP_NUM_TASKS"); /* in an mpirun's world the step is what that runs in */
	*b = (struct boot){ .deadline = b->deadline, .size = 1, .nodes = 1 };
	/* The Slurm plugin takes its variable out of the tasks that it has placed. "hide-gpus": srun has switched Slurm's own GPU binding
	 * off, so that all tasks of a node without the plugin would use the first GPU, where there is one. */
	if (wishes && strstr(wishes, "hide-gpus"))
		return refuse(why, HVD_EBOOT, "%s does not load spank_hvd.so, which srun counted on, so its tasks are not placed: is it installed there for its Slurm, and in its plugstack.conf? Or start without --hvd and --hvd-bind",
			      node ? node : "this node");
	if (tasks == 1 || (tasks < 1 && !pmix)) {
		if (node)
			snprintf(b->host, sizeof b->host, "%s", node);
		else if (gethostname(b->host, sizeof b->host))
			snprintf(b->host, sizeof b->host, "localhost");
		return 0;
	}
	if (!pmix)
		return refuse(why, HVD_EBOOT, "this step has %d tasks but no PMIx, so they cannot find each other: start it with `srun --hvd` and no other --mpi or SLURM_MPI_TYPE, or "
			      "with `srun --mpi=pmix`, and let a container have the variables PMIX_*", tasks);
	b->size = tasks > 0 ? tasks : 0;
	return boot_from_pmix(b, why);
}
