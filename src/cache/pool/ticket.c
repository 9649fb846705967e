/* Tickets: see ticket.h. */
#include "cache/pool/ticket.h"
#include "base/handle.h"
#include "base/hostmem.h"
#include "base/worker.h"
#include "cache/cache.h"

#include <string.h>

static void ticket_free(struct ticket *ticket)
{
    vmm__host_free(ticket->order.pools, ticket->capacity * sizeof *ticket->order.pools);
    vmm__host_free(ticket, sizeof *ticket);
}

static struct ticket *ticket_make(const struct sleep_order *order)
{
    struct ticket *ticket = vmm__host_alloc(1, sizeof *ticket);
    if (ticket == NULL)
        return NULL;
    ticket->order = *order;
    ticket->capacity = order->count + 1;
    ticket->order.pools = vmm__host_alloc(ticket->capacity, sizeof *ticket->order.pools);
    if (ticket->order.pools == NULL) {
        vmm__host_free(ticket, sizeof *ticket);
        return NULL;
    }
    memcpy(ticket->order.pools, order->pools, order->count * sizeof *order->pools);
    return ticket;
}

static void *ticket_main(void *context)
{
    struct ticket *ticket = context;
    ticket->status = vmm__sleep_run(&ticket->order);
    vmm__error_save(&ticket->line);
    atomic_store_explicit(&ticket->is_done, true, memory_order_release);
    return NULL;
}

static void list_enter(struct vmm_cache *cache, struct ticket *ticket)
{
    vmm__fair_lock(&cache->grow_lock);
    ticket->next = cache->tickets;
    cache->tickets = ticket;
    vmm__fair_unlock(&cache->grow_lock);
}

static void list_leave(struct vmm_cache *cache, const struct ticket *ticket)
{
    vmm__fair_lock(&cache->grow_lock);
    struct ticket **link = &cache->tickets;
    while (*link != ticket)
        link = &(*link)->next;
    *link = ticket->next;
    vmm__fair_unlock(&cache->grow_lock);
}

vmm_status vmm__ticket_open(const struct sleep_order *order, vmm_ticket **out)
{
    struct ticket *ticket = ticket_make(order);
    if (ticket == NULL)
        return vmm__error(VMM_ERR_HOST_OOM, "sleep: no host memory for a ticket");
    ticket->handle = vmm__handle_open(HANDLE_TICKET, ticket);
    if (ticket->handle == NULL) {
        ticket_free(ticket);
        return vmm__error(VMM_ERR_HOST_OOM, "sleep: the process has no handle left for a ticket");
    }
    list_enter(order->cache, ticket);
    if (vmm__worker_start(&ticket->thread, ticket_main, ticket) == 0) {
        *out = ticket->handle;
        return VMM_OK;
    }
    list_leave(order->cache, ticket);
    (void)vmm__handle_close(ticket->handle);
    ticket_free(ticket);
    return vmm__error(VMM_ERR_HOST_OOM, "sleep: could not start a thread");
}

vmm_status vmm__ticket_end(struct ticket *ticket)
{
    (void)pthread_join(ticket->thread, NULL);
    list_leave(ticket->order.cache, ticket);
    vmm_status status = ticket->status;
    if (status != VMM_OK)
        vmm__error_restore(&ticket->line);
    ticket_free(ticket);
    return status;
}

void vmm__tickets_end(struct vmm_cache *cache)
{
    struct error_line line;
    vmm__error_save(&line);
    while (cache->tickets != NULL) {
        (void)vmm__handle_close(cache->tickets->handle);
        (void)vmm__ticket_end(cache->tickets);
    }
    vmm__error_restore(&line);
}
