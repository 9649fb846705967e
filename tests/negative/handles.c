/* Handles that are no share or no ticket, for every call that names one. */
#include "negative.h"

#include "base/handle.h"

#include <sys/socket.h>
#include <unistd.h>

#define NO_SHARE  "is not a share, or was closed"
#define NO_TICKET "is not a ticket, or has ended"

enum { SHARE_BYTES = 3 << 20 };

/* ---- Calls --------------------------------------------------------------------------------- */

static vmm_status share_refuse(struct stage *stage, vmm_share *share)
{
    void *out = &out;
    must_be(VMM_ERR_INVALID_ARGUMENT, vmm_share_send(share, -1));
    must(stage_error_says(NO_SHARE));
    must_be(VMM_ERR_INVALID_ARGUMENT, vmm_share_import(stage->cache, share, NULL, &out));
    must(stage_error_says(NO_SHARE));
    must(out == &out);
    must_be(VMM_ERR_INVALID_ARGUMENT, vmm_share_close(share, 0));
    return vmm_share_close(share, 1);
}

static vmm_status ticket_refuse(vmm_ticket *ticket)
{
    int done = 7;
    must_be(VMM_ERR_INVALID_ARGUMENT, vmm_ticket_poll(ticket, &done));
    must(stage_error_says(NO_TICKET));
    must(done == 7);
    return vmm_ticket_wait(ticket);
}

/* ---- Handles ------------------------------------------------------------------------------- */

/* A block of a new shareable pool, and its share. */
static void share_open(struct stage *stage, vmm_pool **pool, void **block, vmm_share **share)
{
    vmm_pool_options options = VMM_POOL_OPTIONS_INIT;
    options.shareable = VMM_SHARE_MACHINE;
    must_ok(vmm_pool_create(stage->cache, &options, pool));
    must_ok(vmm_alloc_from(*pool, SHARE_BYTES, NULL, block));
    must_ok(vmm_share_export(stage->cache, *block, share));
}

/* A share of the cache that has been closed, with one bit changed. UINT64_MAX: none. */
static vmm_status share_stale(struct stage *stage, uint64_t bit)
{
    vmm_pool *pool;
    vmm_share *share;
    void *block;
    share_open(stage, &pool, &block, &share);
    uintptr_t changed = (uintptr_t)share ^ (bit == UINT64_MAX ? 0 : (uintptr_t)1 << bit);
    if (bit == UINT64_MAX)
        must_ok(vmm_share_close(share, 0));
    vmm_status status = share_refuse(stage, (vmm_share *)changed);
    if (bit != UINT64_MAX)
        must_ok(vmm_share_close(share, 0));
    must_ok(vmm_free(stage->cache, block));
    must_ok(vmm_pool_destroy(pool, 0));
    return status;
}

/* A ticket that has ended, with one bit changed. UINT64_MAX: none. */
static vmm_status ticket_stale(struct stage *stage, uint64_t bit)
{
    vmm_ticket *ticket;
    vmm_pool *pool;
    must_ok(vmm_pool_create(stage->cache, NULL, &pool));
    must_ok(vmm_pool_sleep(&pool, 1, NULL, &ticket));
    uintptr_t changed = (uintptr_t)ticket ^ (bit == UINT64_MAX ? 0 : (uintptr_t)1 << bit);
    if (bit == UINT64_MAX)
        must_ok(vmm_ticket_wait(ticket));
    vmm_status status = ticket_refuse((vmm_ticket *)changed);
    if (bit != UINT64_MAX)
        must_ok(vmm_ticket_wait(ticket));
    must_ok(vmm_pool_destroy(pool, 0));
    return status;
}

static vmm_status share_garbage(struct stage *stage, uint64_t value)
{
    return share_refuse(stage, (vmm_share *)(uintptr_t)value);
}

static vmm_status ticket_garbage(struct stage *stage, uint64_t value)
{
    (void)stage;
    return ticket_refuse((vmm_ticket *)(uintptr_t)value);
}

static vmm_status share_is_a_pool(struct stage *stage, uint64_t value)
{
    (void)value;
    return share_refuse(stage, (vmm_share *)(void *)vmm_cache_pool(stage->cache));
}

static vmm_status ticket_is_a_pool(struct stage *stage, uint64_t value)
{
    (void)value;
    return ticket_refuse((vmm_ticket *)(void *)vmm_cache_pool(stage->cache));
}

/* ---- Sockets ------------------------------------------------------------------------------- */

static vmm_status receive_nothing(struct stage *stage, uint64_t bytes)
{
    int sockets[2];
    char message[64] = "no share";
    vmm_share *out = (vmm_share *)(void *)&out;
    (void)stage;
    must(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) == 0);
    must(write(sockets[0], message, bytes) == (ssize_t)bytes);
    (void)close(sockets[0]);
    vmm_status status = vmm_share_receive(sockets[1], &out);
    must(out == (vmm_share *)(void *)&out);
    (void)close(sockets[1]);
    return status;
}

/* Descriptors need a Unix socket. */
static vmm_status send_elsewhere(struct stage *stage, uint64_t domain)
{
    vmm_pool *pool;
    vmm_share *share;
    void *block;
    int internet = socket((int)domain, SOCK_STREAM, 0);
    must(internet >= 0);
    share_open(stage, &pool, &block, &share);
    vmm_status status = vmm_share_send(share, internet);
    must(stage_error_says("is not a Unix socket"));
    (void)close(internet);
    must_ok(vmm_share_close(share, 0)); /* nothing was sent */
    must_ok(vmm_free(stage->cache, block));
    must_ok(vmm_pool_destroy(pool, 0));
    return status;
}

/* The case makes the share or the ticket, which statistics may show. */
#define STALE(name, call, value, words)                                                            \
    {                                                                                              \
        name, NULL, call, value, VMM_ERR_INVALID_ARGUMENT, words, true                             \
    }

static const struct negative_case cases[] = {
    STALE("a share that was closed", share_stale, UINT64_MAX, NO_SHARE),
    STALE("a share with another kind", share_stale, 4, NO_SHARE),
    STALE("a share with another slot", share_stale, 7, NO_SHARE),
    STALE("a share with another use", share_stale, 40, NO_SHARE),
    STALE("a share without fabric handles, and TCP", send_elsewhere, AF_INET, "fabric handles"),
    WRONG("no share", share_garbage, 0, NO_SHARE),
    WRONG("a small number as a share", share_garbage, 8, NO_SHARE),
    WRONG("ones as a share", share_garbage, UINT64_MAX, NO_SHARE),
    WRONG("a pool as a share", share_is_a_pool, 0, NO_SHARE),
    STALE("a ticket that has ended", ticket_stale, UINT64_MAX, NO_TICKET),
    STALE("a ticket with another kind", ticket_stale, 3, NO_TICKET),
    STALE("a ticket with another slot", ticket_stale, 7, NO_TICKET),
    STALE("a ticket with another use", ticket_stale, 40, NO_TICKET),
    WRONG("no ticket", ticket_garbage, 0, NO_TICKET),
    WRONG("a small number as a ticket", ticket_garbage, 8, NO_TICKET),
    WRONG("ones as a ticket", ticket_garbage, UINT64_MAX, NO_TICKET),
    WRONG("a pool as a ticket", ticket_is_a_pool, 0, NO_TICKET),
    WRONG("a socket that was closed", receive_nothing, 0, "has closed the socket"),
    WRONG("a message that is cut short", receive_nothing, 9, "it is cut short"),
};

NEGATIVE_GROUP(negative_handles, "handles");
