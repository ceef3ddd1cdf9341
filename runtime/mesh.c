/* SPDX-License-Identifier: Apache-2.0
 * Forming the mesh, and exchanges over it. */
#include "mesh.h"

#include "hvd.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#define NOBODY_THERE "nobody listens at its address (it has ended, or given up; or HVD_IFACE: no loopback, and the same network on all nodes)"

/* What rank 0 publishes: all zeros where it failed before it could be joined. */
struct invitation {
	struct card card;
	uint8_t secret[16];
};

uint64_t mesh_tag(struct mesh *m)
{
	return ++m->tags;
}

/* Forms links. A failure says why, or which are missing; boot: of ranks that have no card yet, or NULL. */
static int form(struct mesh *m, struct boot *boot, struct link *link, int n, double until, char *why)
{
	enum { ROOM = WHY_BYTES - 200 /* of names, before what they did not do */ };
	int status = links_form(&m->links, link, n, m->cards, until, why), used = 0;
	bool more = false, far = false;
	if (status && atomic_load(&m->failed))
		return refuse(why, status, "%s", m->fault);
	if (!status || why[0])
		return status;
	for (int i = 0; i < n; i++) {
		char host[HOST_BYTES];
		if (link[i].fd >= 0)
			continue;
		if (used >= ROOM) {
			more = true;
			continue;
		}
		snprintf(host, sizeof host, "%s", m->cards[link[i].rank].host);
		if (boot)
			boot->host_of(boot, link[i].rank, host);
		far |= strcmp(host, m->links.card.host) != 0;
		used += snprintf(why + used, (size_t)(WHY_BYTES - used), "%srank %d on %.63s", used ? ", " : "", link[i].rank, host);
	}
	snprintf(why + used, (size_t)(WHY_BYTES - used), "%s did not %s within %.3g s%s", more ? " and more" : "", boot ? "join" : "answer",
		 m->deadline, !boot ? "" : far ? " (not started, ended early, not calling hvd_init, or behind a firewall)" : " (not started, ended early, or not calling hvd_init)");
	return status;
}

/* A rank of this world that listens no more has heard why, which comes here a moment later. */
static int because(struct mesh *m, int status, char *why)
{
	return status && m->links.refused && mesh_reason(m, -1) ? refuse(why, status, "%s", m->fault) : status;
}

/* Control links to ranks first … last; lower ones are connected to. */
static int form_control(struct mesh *m, struct boot *boot, int first, int last, double until, char *why)
{
	struct link *link = calloc((size_t)m->size, sizeof *link);
	int n = 0;
	if (!link)
		return refuse(why, HVD_ESYS, "no memory for %d ranks", m->size);
	for (int i = first; i <= last; i++)
		if (i != m->rank)
			link[n++] = (struct link){ i, -1 };
	int status = form(m, boot, link, n, until, why);
	pthread_mutex_lock(&m->lock);
	for (int i = 0; i < n; i++)
		if (link[i].fd >= 0) {
			m->peer[link[i].rank].fd = link[i].fd;
			m->peer[link[i].rank].heard = lived();
		}
	m->links.links = 0;
	pthread_mutex_unlock(&m->lock);
	eventfd_write(m->wake, 1); /* the watcher reads them from now on */
	free(link);
	return status;
}

/* Rank 0: everybody connects. Those that do hear of those that do not. */
static int host(struct mesh *m, struct boot *boot, double until, char *why)
{
	struct invitation invitation = { .card = m->links.card };
	if (getrandom(invitation.secret, sizeof invitation.secret, 0) != sizeof invitation.secret)
		return refuse(why, HVD_ESYS, "no random numbers: %s", strerror(errno));
	memcpy(m->links.secret, invitation.secret, sizeof m->links.secret);
	int status = boot->publish(boot, &invitation, sizeof invitation, why);
	return status ? status : form_control(m, boot, 1, m->size - 1, until, why);
}

/* Looks rank 0 up and connects to it. */
static int find_host(struct mesh *m, struct boot *boot, double until, char *why)
{
	struct invitation invitation;
	int status = boot->lookup(boot, &invitation, sizeof invitation, until, why);
	if (status)
		return status;
	if (!invitation.card.magic[0])
		return refuse(why, HVD_EBOOT, "rank 0 cannot set up its part, and says why%s", m->cards[0].magic[0] ? "; " NOBODY_THERE : ""); /* it may have waited for this rank in vain */
	memcpy(m->links.secret, invitation.secret, sizeof m->links.secret);
	m->cards[0] = invitation.card;
	pthread_mutex_lock(&m->lock); /* the watcher may be naming it */
	snprintf(m->peer[0].host, HOST_BYTES, "%.63s", invitation.card.host);
	pthread_mutex_unlock(&m->lock);
	const struct card *a = &m->links.card, *b = &m->cards[0];
	const bool alike = !memcmp(a->magic, b->magic, sizeof a->magic);
	if (alike && (status = form_control(m, NULL, 0, 0, until, why))) /* first: what is wrong then comes to the others, too */
		return status;
	if (!alike || strncmp(a->version, b->version, sizeof a->version))
		return refuse(why, HVD_EBOOT, "rank %d on %.63s has libhvd %.24s (%.4s), rank 0 on %.63s has %.24s (%.4s): install one version on all nodes", m->rank,
			      a->host, a->version, a->magic, b->host, b->version, b->magic);
	return 0;
}

static int join(struct mesh *m, struct boot *boot, double until, char *why)
{
	bool refused = false;
	int status = find_host(m, boot, until, why);
	while (m->links.refused && !boot->over && lived() < until) { /* by a card of an earlier world, whose listener is closed: PMIx may have no other yet (a sub-world has no earlier one) */
		refused = true;
		m->links.refused = false;
		usleep(10000);
		status = find_host(m, boot, until, why);
	}
	if (status && refused && lived() >= until)
		return refuse(why, status, "rank 0 on %.63s does not answer within %.3g s: " NOBODY_THERE, m->cards[0].host, m->deadline);
	return status;
}

/* Everybody's card, on every rank. */
static int exchange_cards(struct mesh *m, char *why)
{
	if (mesh_gather(m, &m->links.card, sizeof m->links.card, m->cards))
		return refuse(why, HVD_EBOOT, "%s", m->fault);
	pthread_mutex_lock(&m->lock);
	for (int i = 0; i < m->size; i++)
		snprintf(m->peer[i].host, HOST_BYTES, "%.63s", m->cards[i].host);
	pthread_mutex_unlock(&m->lock);
	return 0;
}

static int prepare(struct mesh *m, struct boot *boot, const struct hvd_conf *conf, char *why)
{
	*m = (struct mesh){ .rank = boot->rank, .size = boot->size, .me = boot->rank, .members = boot->size, .deadline = conf->deadline, .wake = -1, .alarm = -1,
			    .still = now() - lived(), .awoke = -conf->deadline, .lost = -1,
			    .links = { .rank = boot->rank, .listener = { -1, -1, -1 }, .alarm = -1, .lock = &m->lock } };
	pthread_mutex_init(&m->lock, NULL);
	condition_init(&m->changed);
	mesh_doing(m, DOING_START, 0);
	m->peer = calloc((size_t)m->size, sizeof *m->peer);
	m->cards = calloc((size_t)m->size, sizeof *m->cards);
	m->member = calloc((size_t)m->size, sizeof *m->member);
	m->polled = calloc((size_t)m->size + 1, sizeof *m->polled);
	for (int i = 0; m->peer && i < m->size; i++)
		m->peer[i].fd = m->peer[i].in.fd = -1;
	m->wake = m->peer ? eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK) : -1; /* without peers there is nothing for mesh_close() */
	m->alarm = m->peer ? eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK) : -1;
	if (!m->peer || !m->cards || !m->member || !m->polled || m->wake < 0 || m->alarm < 0)
		return refuse(why, HVD_ESYS, "no memory or descriptors for %d ranks", m->size);
	for (int i = 0; i < m->size; i++) {
		m->peer[i].member = true;
		m->member[i] = i;
		if (boot->over) /* known in the world above */
			boot->host_of(boot, i, m->peer[i].host);
	}
	snprintf(m->peer[m->rank].host, HOST_BYTES, "%s", boot->host);
	return 0;
}

/* This rank cannot do its part, and nobody waits for it: rank 0 says so by its card, others to rank 0 (of a sub-world, over the world above). */
static int excuse(struct mesh *m, struct boot *boot, int status, double until, const char *why)
{
	char in_vain[WHY_BYTES];
	if (m->rank == 0)
		boot->publish(boot, &(struct invitation){ 0 }, sizeof(struct invitation), in_vain);
	else if (m->links.card.magic[0] && !boot->over && !join(m, boot, until, in_vain))
		mesh_fault(m, status, "cannot join: %s", why);
	return status;
}

int mesh_open(struct mesh *m, struct boot *boot, const struct hvd_conf *conf, char *why)
{
	struct links *l = &m->links;
	double until = lived() + conf->deadline;
	int status = prepare(m, boot, conf, why);
	if (m->size == 1)
		return status;
	if (!status) {
		forks_let_go(m);
		pthread_mutex_lock(&m->lock);
		status = links_listen(l, boot->host, conf->interface, boot->nodes > 1, why);
		pthread_mutex_unlock(&m->lock);
	}
	if (!status)
		status = watch_start(m) ? refuse(why, HVD_ESYS, "%s: cannot start a thread: out of memory, or of threads (ulimit -v, -u)", boot->host) : 0;
	if (status)
		return excuse(m, boot, status, until, why);
	l->alarm = m->alarm;
	l->again = m->deadline < 4 ? 1000 : (int)(m->deadline / 4 * 1e3); /* it takes no less than a second; oftener, and it would give up sooner (tcp_retries2) */
	l->boot = boot->over ? boot : NULL;
	status = m->rank == 0 ? host(m, boot, until, why) : join(m, boot, until, why);
	if (!status)
		status = exchange_cards(m, why);
	if (!status && m->rank)
		status = because(m, form_control(m, NULL, 1, m->size - 1, until, why), why);
	if (status)
		mesh_fault(m, status, m->rank ? "cannot join: %s" : "waits in vain: %s", why);
	return status && m->rank == 0 ? excuse(m, boot, status, until, why) : status; /* for those that it has not heard yet */
}

int mesh_link(struct mesh *m, struct link *link, int n, char *why)
{
	const uint64_t tag = mesh_tag(m);
	int status = 0;
	m->links.told = true; /* who has nothing to say may be a rank that asks whether this process is there */
	for (int i = 0; i < n; i++) /* who accepts says when: before, it may be forming other links */
		if (link[i].rank > m->rank)
			mesh_send(m, link[i].rank, tag, NULL, 0, -1);
	for (int i = 0; !status && i < n; i++)
		if (link[i].rank < m->rank)
			status = mesh_receive(m, link[i].rank, tag, NULL, 0, NULL, lived() + m->deadline);
	if (!status)
		status = because(m, form(m, NULL, link, n, lived() + m->deadline, why), why);
	pthread_mutex_lock(&m->lock);
	m->links.links = 0; /* whoever has these as well does not hide that this rank has ended */
	pthread_mutex_unlock(&m->lock);
	for (int i = 0; status && i < n; i++)
		close_fd(&link[i].fd);
	return status;
}

/* Somebody who was told goodbye has not read it yet and closed the other end in turn; a failed world tells nothing more. */
static bool unread(struct mesh *m)
{
	bool any = false;
	pthread_mutex_lock(&m->lock);
	for (int i = 0; i < m->size && !atomic_load(&m->failed); i++)
		any |= m->peer[i].fd >= 0 && m->peer[i].fate == ALIVE;
	pthread_mutex_unlock(&m->lock);
	return any;
}

static void message_free(struct message *message)
{
	close_fd(&message->fd);
	free(message->data);
	free(message);
}

static void drop_older(struct peer *p, uint64_t tag)
{
	for (struct message **at = &p->inbox; *at;) {
		struct message *found = *at;
		if (found->header.tag < tag) {
			*at = found->next;
			message_free(found);
		} else {
			at = &found->next;
		}
	}
}

void mesh_close(struct mesh *m)
{
	if (!m->peer)
		return;
	struct activity mine = own_activity(m); /* the others may wait for their devices, and look for who is behind */
	pthread_mutex_lock(&m->lock);
	for (int i = 0; i < m->size && !atomic_load(&m->failed); i++) {
		peer_post(&m->peer[i], &(struct wire_header){ .kind = WIRE_BEAT, .bytes = sizeof mine }, &mine);
		peer_post(&m->peer[i], &(struct wire_header){ .kind = WIRE_BYE }, NULL);
		m->peer[i].member = false;
		peer_flush(&m->peer[i]);
	}
	pthread_mutex_unlock(&m->lock);
	for (double until = lived() + PATIENCE; unread(m) && lived() < until;) /* what is on its way is lost with a link that is closed before */
		usleep(1000);
	while (!atomic_load(&m->failed) && lived() < m->parted + 1.5 * MOMENT) /* who finds nobody here before takes this rank for dead, and does the same work again */
		usleep(1000);
	watch_stop(m);
	forks_forget(m);
	links_close(&m->links); /* before its links end: it will not go on */
	for (int i = 0; i < m->size; i++) {
		struct peer *p = &m->peer[i];
		close_fd(&p->fd);
		drop_older(p, UINT64_MAX);
		wire_free(&p->in);
		free(p->out.bytes);
	}
	close(m->wake);
	close(m->alarm);
	pthread_cond_destroy(&m->changed);
	pthread_mutex_destroy(&m->lock);
}

void mesh_free(struct mesh *m)
{
	if (!m)
		return;
	free(m->peer);
	free(m->cards);
	free(m->member);
	free(m->polled);
	free(m);
}

void mesh_doing(struct mesh *m, enum doing what, uint32_t index)
{
	atomic_store_explicit(&m->index, index, memory_order_relaxed);
	atomic_store_explicit(&m->what, what, memory_order_relaxed);
	atomic_store_explicit(&m->since, lived(), memory_order_relaxed);
	if (what > DOING_COMPUTE)
		atomic_fetch_add_explicit(&m->sequence, 1, memory_order_relaxed);
}

/* Returns 0 or a fault. */
static int send_with_descriptor(struct mesh *m, int to, const struct wire_header *header, const void *data, int fd)
{
	struct peer *p = &m->peer[to];
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(sizeof(int))];
	} control = { .bytes = { 0 } };
	struct iovec parts[2] = { { (void *)(uintptr_t)header, sizeof *header }, { (void *)(uintptr_t)data, header->bytes } };
	struct msghdr message = { .msg_iov = parts, .msg_iovlen = 2, .msg_control = control.bytes, .msg_controllen = sizeof control.bytes };
	struct cmsghdr *c = CMSG_FIRSTHDR(&message);
	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN(sizeof fd);
	memcpy(CMSG_DATA(c), &fd, sizeof fd);
	for (double until = lived() + m->deadline; !atomic_load(&m->failed) && lived() < until; usleep(1000)) {
		pthread_mutex_lock(&m->lock);
		peer_flush(p);
		bool gone = p->fd < 0, sent = !gone && !p->knocking && p->out.begin == p->out.end && sendmsg(p->fd, &message, MSG_NOSIGNAL) >= 0;
		pthread_mutex_unlock(&m->lock);
		if (sent || gone)
			return sent ? 0 : mesh_lose(m, to, CAUSE_CLOSED);
	}
	return mesh_late(m, to);
}

int mesh_send(struct mesh *m, int to, uint64_t tag, const void *data, size_t bytes, int fd)
{
	struct wire_header header = { .kind = WIRE_DATA, .what = (uint16_t)atomic_load(&m->what), .tag = tag, .bytes = (uint32_t)bytes };
	atomic_fetch_add(&m->sent, 1);
	if (fd >= 0)
		return send_with_descriptor(m, to, &header, data, fd);
	pthread_mutex_lock(&m->lock);
	bool posted = bytes <= WIRE_PAYLOAD_MAX && peer_post(&m->peer[to], &header, data);
	int status = posted ? 0 : fault_locked(m, HVD_ESYS, -1, CAUSE_NONE, -1, "has no room for a message to another rank");
	pthread_mutex_unlock(&m->lock);
	return status;
}

static struct message *take(struct peer *p, uint64_t tag)
{
	struct message **at = &p->inbox, *found;
	while ((found = *at) && found->header.tag != tag)
		at = &found->next;
	if (found)
		*at = found->next;
	return found;
}

/* Takes the message apart. False: it is another one than the caller waits for. */
static bool unpack(struct mesh *m, struct message *message, void *data, size_t bytes, int *fd)
{
	bool right = message->header.what == atomic_load(&m->what) && message->header.bytes == bytes;
	if (right && bytes)
		memcpy(data, message->data, bytes);
	if (right && fd) {
		*fd = message->fd;
		message->fd = -1;
	}
	message_free(message);
	return right;
}

int mesh_receive(struct mesh *m, int from, uint64_t tag, void *data, size_t bytes, int *fd, double until)
{
	struct peer *p = &m->peer[from];
	struct message *found;
	pthread_mutex_lock(&m->lock);
	while (!(found = take(p, tag)) && !atomic_load(&m->failed) && !p->left && lived() < until)
		condition_wait(&m->changed, &m->lock);
	bool left = p->left;
	pthread_mutex_unlock(&m->lock);
	if (!found)
		return left ? mesh_lose(m, from, CAUSE_LEFT) : mesh_late(m, from);
	const uint32_t what = found->header.what;
	return unpack(m, found, data, bytes, fd) ? 0 : mesh_differ(m, from, what);
}

bool mesh_receive_despite(struct mesh *m, int from, uint64_t tag, void *data, size_t bytes, double until)
{
	struct peer *p = &m->peer[from];
	struct message *found;
	pthread_mutex_lock(&m->lock);
	while (!(found = take(p, tag)) && p->fd >= 0 && p->fate == ALIVE && !m->given_up && lived() < until)
		condition_wait(&m->changed, &m->lock);
	pthread_mutex_unlock(&m->lock);
	if (!found && lived() >= until)
		mesh_lose(m, from, CAUSE_LATE);
	return found && unpack(m, found, data, bytes, NULL);
}

bool mesh_heard(struct mesh *m, uint64_t tag, void *data, size_t bytes)
{
	bool heard = false;
	pthread_mutex_lock(&m->lock);
	for (int i = 0; i < m->size; i++)
		for (const struct message *k = m->peer[i].inbox; k; k = k->next)
			if (k->header.tag == tag && k->header.bytes == bytes)
				heard = memcpy(data, k->data, bytes);
	pthread_mutex_unlock(&m->lock);
	return heard;
}

void mesh_drop_older(struct mesh *m, uint64_t tag)
{
	pthread_mutex_lock(&m->lock);
	for (int i = 0; i < m->size; i++)
		drop_older(&m->peer[i], tag);
	pthread_mutex_unlock(&m->lock);
}

/* Through the first member: 2 (members - 1) messages. What is told is small: long before all is too much for one, the first has no memory for as many. */
int mesh_gather(struct mesh *m, const void *mine, size_t bytes, void *all)
{
	const size_t whole = bytes * (size_t)m->members;
	uint8_t *table = all;
	uint64_t tag = mesh_tag(m);
	double until = lived() + m->deadline;
	int status = 0;
	memcpy(table + (size_t)m->me * bytes, mine, bytes);
	if (m->me) {
		mesh_send(m, m->member[0], tag, mine, bytes, -1);
		return mesh_receive(m, m->member[0], tag, table, whole, NULL, until + PATIENCE);
	}
	for (int w = 1; !status && w < m->members; w++)
		status = mesh_receive(m, m->member[w], tag, table + (size_t)w * bytes, bytes, NULL, until);
	for (int w = 1; !status && w < m->members; w++)
		status = mesh_send(m, m->member[w], tag, table, whole, -1);
	return status;
}

bool mesh_shrink(struct mesh *m, const uint8_t *fate)
{
	const uint64_t round = (uint64_t)m->rounds << 32;
	eventfd_t count;
	bool all = true;
	pthread_mutex_lock(&m->lock);
	m->members = 0;
	for (int i = 0; i < m->size; i++) {
		struct peer *p = &m->peer[i];
		all &= fate[i] != ALIVE || (p->fate == ALIVE && !p->left);
		if (i == m->rank)
			m->me = m->members;
		drop_older(p, round);
		if (fate[i] == ALIVE)
			m->member[m->members++] = i;
		else if (p->member)
			dismiss_locked(m, i);
	}
	if (all) {
		m->accused = false;
		m->lost = -1;
		m->tags = round;
		atomic_store(&m->sequence, round);
		atomic_store(&m->failed, 0);
		m->told = false;
		eventfd_read(m->alarm, &count);
	}
	pthread_mutex_unlock(&m->lock);
	return all;
}
