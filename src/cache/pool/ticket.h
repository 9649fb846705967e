/*
 * Tickets: sleeps and wakes that a thread of the library carries out. See vmm_ticket.
 *
 * Owns: the thread of each ticket. Invariants:
 *  1. a ticket is in the list of its cache, and its handle is open, until a thread has waited for it or the cache ends;
 *  2. the record of a ticket that has ended serves later ones, and is freed with its cache: a thread that polls may
 *     read it while another one ends the ticket.
 * May be called by: api. Locks: the grow lock guards the lists.
 */
#ifndef VMM_CACHE_POOL_TICKET_H
#define VMM_CACHE_POOL_TICKET_H

#include "base/error.h"
#include "cache/pool/sleep.h"

#include <pthread.h>

struct ticket {
    struct vmm_cache *cache; /* the record's, as long as it exists */
    struct ticket *next;
    vmm_ticket *handle;
    struct sleep_request request; /* with a copy of the pools */
    uint64_t capacity;            /* of that copy */
    bool is_awaited;              /* a thread waits for it; guarded by the grow lock */
    pthread_t thread;
    _Atomic bool is_done;
    vmm_status status; /* once it is done */
    struct error_line line;
};

/* Carries out a request that has begun, on a thread of its own. ERR_HOST_OOM: the request has not been carried out. */
vmm_status vmm__ticket_open(const struct sleep_request *request, vmm_ticket **out);

/* Makes the calling thread the one that waits for the ticket of a handle. False if another thread waits, or the ticket
 * has ended, so that its record may serve another one. Takes the grow lock. */
bool vmm__ticket_claim(struct ticket *ticket, const vmm_ticket *handle);

/* Waits for a ticket, and ends it: the caller has claimed it, or ends the cache. Returns what the work returned. */
vmm_status vmm__ticket_end(struct ticket *ticket);

/* Whether the calling thread carries out the request of this ticket. */
bool vmm__ticket_is_run_here(const struct ticket *ticket);

/* Waits for all tickets of a cache, and frees their records. */
void vmm__tickets_end(struct vmm_cache *cache);

#endif
