/* The thread that answers requests for shared blocks: see share_server.h. */
#define _GNU_SOURCE
#include "torch/share_server.h"
#include "base/error.h"
#include "base/mutex.h"
#include "base/time.h"
#include "base/worker.h"
#include "torch/share_socket.h"
#include "torch/shared_blocks.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* Processes that connect at the same time; further ones wait in the socket's queue, or take the place of the oldest. */
enum { PEERS_MOST = 64 };

/* A pause when no descriptor is left for a connection. */
enum { PAUSE_MS = 10 };

struct peer {
    int socket;
    uint64_t until_ns; /* when it must have sent its request */
    size_t received;   /* bytes of the request */
    struct share_request request;
};

struct server {
    int listener;
    uint32_t count;
    struct peer peers[PEERS_MOST]; /* the oldest first */
};

static struct mutex starting = VMM_MUTEX_INIT;
static struct server server;
static char server_name[SOCKET_NAME_BYTES];
static bool is_started;
static _Atomic int listener_of_parent = -1; /* for a child of fork() */

/* ---- Answers -------------------------------------------------------------------------------- */

static enum share_result result_of(const struct share_request *request, struct shared_block **block,
                                   vmm_share **share)
{
    if (request->magic != SHARE_MAGIC || request->version != SHARE_VERSION || request->zero != 0)
        return SHARE_REFUSED;
    *block = vmm__shared_block_send_begin(&request->token, share);
    return *block != NULL ? SHARE_GRANTED : SHARE_UNKNOWN;
}

/* If a peer does not read, the send fails after a while, and the peer is closed. */
static void request_answer(const struct peer *peer)
{
    struct shared_block *block = NULL;
    vmm_share *share = NULL;
    struct share_answer answer = { .magic = SHARE_MAGIC };
    (void)fcntl(peer->socket, F_SETFL, 0); /* from now on it waits, as long as it may */
    if (!vmm__share_wait_bound(peer->socket))
        return;
    answer.result = result_of(&peer->request, &block, &share);
    vmm_status status = vmm__share_bytes_send(peer->socket, &answer, sizeof answer);
    if (status == VMM_OK && block != NULL)
        (void)vmm_share_send(share, peer->socket);
    if (block != NULL)
        vmm__shared_block_send_end(block);
}

/* ---- Peers ---------------------------------------------------------------------------------- */

static void peer_end(uint32_t index)
{
    (void)close(server.peers[index].socket);
    server.count--;
    memmove(&server.peers[index], &server.peers[index + 1],
            (server.count - index) * sizeof *server.peers);
}

static void peer_add(int socket)
{
    if (server.count == PEERS_MOST)
        peer_end(0);
    server.peers[server.count++] =
        (struct peer){ .socket = socket,
                       .until_ns = vmm__time_ns() + PEER_SECONDS * UINT64_C(1000000000) };
}

static void peers_accept(void)
{
    int socket = accept4(server.listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (socket >= 0 && vmm__share_peer_is_own(socket))
        peer_add(socket);
    else if (socket >= 0)
        (void)close(socket);
    else if (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED)
        (void)poll(NULL, 0, PAUSE_MS);
}

/* Reads what has arrived of a request, and answers it. Returns whether the peer has to say more. */
static bool peer_serve(struct peer *peer)
{
    size_t missing = sizeof peer->request - peer->received;
    ssize_t got = recv(peer->socket, (char *)&peer->request + peer->received, missing, 0);
    if (got < 0)
        return errno == EAGAIN || errno == EINTR;
    if (got == 0)
        return false;
    peer->received += (size_t)got;
    if (peer->received < sizeof peer->request)
        return true;
    request_answer(peer);
    return false;
}

/* The newest first, because a peer that ends moves those behind it. */
static void peers_serve(const struct pollfd *polled, uint32_t count)
{
    uint64_t now_ns = vmm__time_ns();
    while (count-- > 0) {
        struct peer *peer = &server.peers[count];
        bool stays = peer->until_ns > now_ns;
        if (polled[count].revents != 0)
            stays = peer_serve(peer) && stays;
        if (!stays)
            peer_end(count);
    }
}

static int wait_ms(void)
{
    if (server.count == 0)
        return -1;
    uint64_t now_ns = vmm__time_ns();
    uint64_t until_ns = server.peers[0].until_ns; /* the oldest's */
    return until_ns <= now_ns ? 0 : (int)((until_ns - now_ns) / 1000000 + 1);
}

static void *server_main(void *context)
{
    struct pollfd polled[PEERS_MOST + 1];
    (void)context;
    for (;;) {
        uint32_t count = server.count;
        for (uint32_t i = 0; i < count; i++)
            polled[i] = (struct pollfd){ .fd = server.peers[i].socket, .events = POLLIN };
        polled[count] = (struct pollfd){ .fd = server.listener, .events = POLLIN };
        if (poll(polled, count + 1, wait_ms()) < 0)
            continue;
        peers_serve(polled, count);
        if (polled[count].revents != 0)
            peers_accept();
    }
    return NULL;
}

/* ---- Start ---------------------------------------------------------------------------------- */

static vmm_status start_locked(void)
{
    VMM_ASSERT_HELD(&starting);
    pthread_t thread;
    vmm_status status = vmm__share_listen(server_name, &server.listener);
    if (status != VMM_OK)
        return status;
    int failure = vmm__worker_start(&thread, server_main, NULL);
    if (failure != 0) {
        (void)close(server.listener);
        return vmm__error(VMM_ERR_HOST_OOM, "share: could not start a thread: %s",
                          strerror(failure));
    }
    (void)pthread_detach(thread);
    atomic_store_explicit(&listener_of_parent, server.listener, memory_order_relaxed);
    is_started = true;
    return VMM_OK;
}

vmm_status vmm__share_server_start(const char **name)
{
    VMM_HOLD(&starting);
    vmm_status status = is_started ? VMM_OK : start_locked();
    if (status == VMM_OK)
        *name = server_name;
    return status;
}

void vmm__share_server_forked(void)
{
    int listener = atomic_exchange_explicit(&listener_of_parent, -1, memory_order_relaxed);
    if (listener >= 0)
        (void)close(listener);
}
