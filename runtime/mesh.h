/* SPDX-License-Identifier: Apache-2.0
 * The control mesh: one authenticated link between every two ranks, for small exchanges and for liveness. A watching
 * thread per rank reads all links, sends a sign of life a few times per deadline, and names a rank that is lost. */
#ifndef HVD_RUNTIME_MESH_H
#define HVD_RUNTIME_MESH_H

#include "links.h"
#include "wire.h"

#include <pthread.h>
#include <stdatomic.h>

#define PATIENCE 3.0 /* seconds that others wait longer than a rank that has something to say, so that it reaches them */
#define MOMENT 1.0 /* seconds in which a process ends whose links have: a GPU takes its time */

enum op_kind { OP_ALLREDUCE, OP_BROADCAST, OP_ALLGATHER, OP_REDUCE_SCATTER, OP_ALLTOALL, OP_BARRIER };
enum { OP_KINDS = OP_BARRIER + 1 };
const char *op_name(unsigned kind);

enum doing { DOING_START, DOING_RECOVER, DOING_COMPUTE, DOING_PLAN, DOING_ALLOC, DOING_SPLIT, DOING_ACCUMULATE, DOING_BUCKET, DOING_OP /* + enum op_kind */ };

/* What a rank is doing, as it tells the others in every sign of life. */
struct activity {
	uint32_t what, index; /* enum doing; bucket number */
	uint64_t sequence;    /* collectives begun so far */
	double seconds;       /* since when */
};

/* What it tells them of a fault. */
struct fault_notice {
	int32_t status, rank; /* status 0: asks who it is for to give its sender up */
	uint32_t cause;
	int32_t reporter; /* who noticed it; the notice may come through others */
	char text[WHY_BYTES];
};

enum cause {
	CAUSE_NONE,     /* no rank is lost: the text says what is wrong */
	CAUSE_CLOSED,   /* its link ended without a goodbye */
	CAUSE_SILENT,   /* no sign of life for the deadline */
	CAUSE_LATE,     /* alive, but did not take part in a collective within the deadline */
	CAUSE_LEFT,     /* closed its handle while others wait for it */
	CAUSE_GARBLED,  /* sent what is no message */
	CAUSE_CUT,      /* alive, but a link with it broke */
	CAUSE_UNABLE,   /* said so itself: it could not recover */
	CAUSE_DISMISSED, /* the others have settled that they go on without it */
	CAUSE_VANISHED, /* its link broke while this process stood still: it may have gone on before it ended */
};

struct message {
	struct message *next;
	struct wire_header header;
	int fd; /* -1: none */
	uint8_t *data;
};

enum fate {
	ALIVE,
	DEAD,    /* its link is closed: it will not go on by itself */
	UNHEARD, /* given up, or vanished: it may well be alive somewhere, or have gone on */
};

struct peer {
	char host[HOST_BYTES]; /* empty: not known yet */
	int fd;          /* -1: this rank itself, or the link is closed */
	bool member;     /* of the world as it is now; others hear that they are none, and nothing more */
	bool left;       /* said goodbye */
	bool silent;     /* given up without a sign of life: stopped, or out of reach */
	bool broke;      /* the link ended with an error: what was said last may be lost */
	bool garbled;    /* sent what is no message: nothing more that it sends is believed */
	enum fate fate;
	double heard;    /* when the last byte came, of lived() */
	double knocking; /* since when, of lived(): the link has ended, and fd connects to its listener, which ends with the process; 0: no */
	struct activity doing;
	struct wire_reader in;
	struct {
		uint8_t *bytes;
		size_t begin, end, room;
	} out;
	struct message *inbox;
};

/* Ranks are numbered here as at the start, for good; the world's ranks are the members, in that order. */
struct mesh {
	int rank, size;
	int *member, members, me; /* member[w]: the mesh's number of the world's rank w; me: this rank's w */
	double deadline;
	double parted; /* when a link last ended that is one of two ranks who may both live, of lived(): the other may knock here for a moment */
	double still, awoke; /* for how long this process has stood still so far; when it did for a moment last, of lived() */
	struct peer *peer; /* [size] */
	struct card *cards; /* [size] */
	struct links links; /* open while the world is formed; with on_death continue to the end: who finds nobody listening there knows that this process is gone */
	pthread_mutex_t lock;
	pthread_cond_t changed;
	pthread_t watcher;
	struct pollfd *polled; /* [size + 1], the watcher's */
	bool watching, stop;
	int wake;  /* eventfd: the watcher looks at its links anew */
	int alarm; /* eventfd: readable while there is a fault */

	_Atomic int failed; /* status of the fault, 0: none */
	_Atomic int lost;   /* rank, -1: none */
	enum cause cause;   /* of the fault */
	_Atomic bool given_up; /* others go on without this rank */
	_Atomic bool accused;  /* another, whom this one gave up for that, has given this one up */
	char fault[WHY_BYTES + 200];

	struct hvd *owner; /* hears of faults from the watcher, once the world is formed; NULL: nobody yet */
	_Atomic bool told; /* it has heard of the one there is */
	_Atomic uint64_t sent; /* messages of mesh_send() so far */

	_Atomic bool armed; /* the process ends when a rank is lost; once the world is formed */

	_Atomic uint32_t what, index;
	_Atomic uint64_t sequence;
	_Atomic double since;
	uint32_t rounds; /* of agreements so far */
	struct mesh *next; /* of those that fork.c knows */
	uint64_t tags;   /* the last that was drawn: the round of the world's agreement << 32, and a count */
};

struct hvd_conf;

int mesh_open(struct mesh *m, struct boot *boot, const struct hvd_conf *conf, char *why);
/* Other links between members, for data; collective, also for those that want none. The caller closes them. */
int mesh_link(struct mesh *m, struct link *link, int n, char *why);
/* Says goodbye if nothing failed. Who the others were is known until mesh_free(). */
void mesh_close(struct mesh *m);
void mesh_free(struct mesh *m);

/* Of an exchange: all members draw one, also those that have no part in it, and nobody ever draws it again. */
uint64_t mesh_tag(struct mesh *m);
/* Never waits (descriptors excepted). At most WIRE_PAYLOAD_MAX bytes. fd -1: none; only to ranks of this node. Returns 0 or a fault. */
int mesh_send(struct mesh *m, int to, uint64_t tag, const void *data, size_t bytes, int fd);
/* What that rank sent with this tag, in the same call and of the same size, by `until` of lived(). *fd: the descriptor that came with it, the
 * caller's, or -1; fd NULL: none is wanted. Returns 0 or the fault that there is now. */
int mesh_receive(struct mesh *m, int from, uint64_t tag, void *data, size_t bytes, int *fd, double until);
/* The same, but a fault does not matter. False: this rank is gone, or given up now because nothing came, or this one is. */
bool mesh_receive_despite(struct mesh *m, int from, uint64_t tag, void *data, size_t bytes, double until);
/* What any rank has sent with this tag and of this size, which stays there; false: nothing yet. */
bool mesh_heard(struct mesh *m, uint64_t tag, void *data, size_t bytes);
/* Nobody here waits any more for messages of exchanges before that tag. */
void mesh_drop_older(struct mesh *m, uint64_t tag);
/* all: [members][bytes]. */
int mesh_gather(struct mesh *m, const void *mine, size_t bytes, void *all);

/* Record a fault (the first one stays), tell every rank, and wake whoever waits: this rank … (the text goes on), or `rank` is lost. Return the recorded status. */
int mesh_fault(struct mesh *m, int status, const char *format, ...) __attribute__((format(printf, 3, 4)));
int mesh_lose(struct mesh *m, int rank, enum cause cause);
/* Another link to `rank` broke: if a death is behind it, the control link tells of that. Of two that live the lower one says it, or is asked to, so that they do not both accuse. */
int mesh_cut(struct mesh *m, int rank);
/* A wait passed the deadline: the rank that is furthest behind is lost, or `suspect` if none is (-1: nobody, returns 1); where that one, or else another, is as far, but
 * in another call, that is the fault. Or there is one by now. */
int mesh_late(struct mesh *m, int suspect);
/* A fault: that rank is in another call, enum doing. */
int mesh_differ(struct mesh *m, int rank, uint32_t what);

/* The fault that is behind a failure of a link or a device; it may become known a moment later. 0: none, or that rank's goodbye (-1: nobody's). */
int mesh_reason(struct mesh *m, int rank);

/* The members with fate ALIVE are the world now, and there is no fault any more, unless one of them died meanwhile (returns
 * false). Ranks that were given up hear of it. Tags begin anew, with the round of the agreement; messages of exchanges before it are dropped. */
bool mesh_shrink(struct mesh *m, const uint8_t *fate);

void mesh_doing(struct mesh *m, enum doing what, uint32_t index);

/* Waits until the owner has heard of the fault there is, if there is one; false: conf.on_lost() keeps it from that, for longer than the deadline. */
bool watch_told(struct mesh *m);

/* Processes that the program forks from now on close this mesh's links at once, those that are being formed, too; until forks_forget(). */
void forks_let_go(struct mesh *m);
void forks_forget(const struct mesh *m);

int watch_start(struct mesh *m);
void watch_stop(struct mesh *m);

/* fault.c; the lock is held */
void note_standstill(struct mesh *m);
void dismiss_locked(struct mesh *m, int rank);
void peer_flush(struct peer *p);
/* False: no memory, or it has read nothing for long. */
bool peer_post(struct peer *p, const struct wire_header *header, const void *data);
struct activity own_activity(struct mesh *m);
int fault_locked(struct mesh *m, int status, int rank, enum cause cause, int reporter, const char *text);

#endif
