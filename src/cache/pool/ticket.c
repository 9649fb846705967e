/* Tickets: see ticket.h. */
#include "cache/pool/ticket.h"
#include "base/handle.h"
#include "base/hostmem.h"
#include "base/list.h"
#include "base/worker.h"
#include "cache/cache.h"

#include <string.h>

/* The ticket whose request this thread carries out; NULL: none. */
static _Thread_local const struct ticket *current;

static void pools_free(struct ticket *ticket)
{
    vmm__host_free(ticket->request.pools, ticket->capacity * sizeof *ticket->request.pools);
    ticket->request.pools = NULL;
}

/* Takes the record of a ticket that has ended, or makes one. NULL: no host memory. */
static struct ticket *record_take(struct vmm_cache *cache)
{
    vmm__fair_lock(&cache->grow_lock);
    struct ticket *ticket = cache->ended_tickets;
    if (ticket != NULL)
        cache->ended_tickets = ticket->next;
    vmm__fair_unlock(&cache->grow_lock);
    if (ticket != NULL)
        return ticket;
    ticket = vmm__host_alloc(1, sizeof *ticket);
    if (ticket != NULL)
        ticket->cache = cache;
    return ticket;
}

static void record_give(struct ticket *ticket)
{
    struct vmm_cache *cache = ticket->cache;
    pools_free(ticket);
    VMM_HOLD_FAIR(&cache->grow_lock);
    ticket->next = cache->ended_tickets;
    cache->ended_tickets = ticket;
}

static struct ticket *ticket_make(const struct sleep_request *request)
{
    struct ticket *ticket = record_take(request->cache);
    if (ticket == NULL)
        return NULL;
    ticket->request = *request;
    ticket->capacity = request->count + 1;
    ticket->is_awaited = false;
    ticket->request.pools = vmm__host_alloc(ticket->capacity, sizeof *ticket->request.pools);
    atomic_store_explicit(&ticket->is_done, false, memory_order_relaxed);
    if (ticket->request.pools == NULL) {
        record_give(ticket);
        return NULL;
    }
    memcpy(ticket->request.pools, request->pools, request->count * sizeof *request->pools);
    return ticket;
}

static void *ticket_main(void *context)
{
    struct ticket *ticket = context;
    current = ticket;
    ticket->status = vmm__sleep_run(&ticket->request);
    vmm__error_save(&ticket->line);
    atomic_store_explicit(&ticket->is_done, true, memory_order_release);
    return NULL;
}

static void list_enter(struct vmm_cache *cache, struct ticket *ticket)
{
    VMM_HOLD_FAIR(&cache->grow_lock);
    ticket->next = cache->tickets;
    cache->tickets = ticket;
}

/* From now on nothing finds the ticket. */
static void list_leave(struct vmm_cache *cache, const struct ticket *ticket)
{
    VMM_HOLD_FAIR(&cache->grow_lock);
    VMM_LIST_REMOVE(&cache->tickets, ticket, next);
    (void)vmm__handle_close(ticket->handle);
}

vmm_status vmm__ticket_open(const struct sleep_request *request, vmm_ticket **out)
{
    struct ticket *ticket = ticket_make(request);
    if (ticket == NULL)
        return vmm__error(VMM_ERR_HOST_OOM, "sleep: no host memory for a ticket");
    ticket->handle = vmm__handle_open(HANDLE_TICKET, ticket);
    if (ticket->handle == NULL) {
        record_give(ticket);
        return vmm__error(VMM_ERR_HOST_OOM, "sleep: the process has no handle left for a ticket");
    }
    list_enter(request->cache, ticket);
    if (vmm__worker_start(&ticket->thread, ticket_main, ticket) == 0) {
        *out = ticket->handle;
        return VMM_OK;
    }
    list_leave(request->cache, ticket);
    record_give(ticket);
    return vmm__error(VMM_ERR_HOST_OOM, "sleep: could not start a thread");
}

bool vmm__ticket_is_run_here(const struct ticket *ticket)
{
    return current == ticket;
}

bool vmm__ticket_claim(struct ticket *ticket, const vmm_ticket *handle)
{
    struct vmm_cache *cache = ticket->cache;
    VMM_HOLD_FAIR(&cache->grow_lock);
    bool is_mine = vmm__handle_find(HANDLE_TICKET, handle) == ticket && !ticket->is_awaited;
    if (is_mine)
        ticket->is_awaited = true;
    return is_mine;
}

vmm_status vmm__ticket_end(struct ticket *ticket)
{
    (void)pthread_join(ticket->thread, NULL);
    list_leave(ticket->cache, ticket);
    vmm_status status = ticket->status;
    if (status != VMM_OK)
        vmm__error_restore(&ticket->line);
    record_give(ticket);
    return status;
}

static void records_free(struct vmm_cache *cache)
{
    while (cache->ended_tickets != NULL) {
        struct ticket *ticket = cache->ended_tickets;
        cache->ended_tickets = ticket->next;
        vmm__host_free(ticket, sizeof *ticket);
    }
}

void vmm__tickets_end(struct vmm_cache *cache)
{
    VMM_QUIET();
    while (cache->tickets != NULL)
        (void)vmm__ticket_end(cache->tickets);
    records_free(cache);
}
