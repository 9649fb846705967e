/*
 * The error line of a request that ran out of memory or addresses: what it needed, what is live, idle and pinned, and
 * what would help. Changes no memory.
 *
 * Owns: nothing. May be called by: reclaim. Locks: the grow lock and the requesting lane's lock; other lanes' locks are
 * taken inside.
 */
#ifndef VMM_CACHE_RECLAIM_OOM_REPORT_H
#define VMM_CACHE_RECLAIM_OOM_REPORT_H

#include "cache/cache.h"

struct oom {
    vmm_status status;       /* ERR_DEVICE_OOM or ERR_ADDRESS_SPACE */
    const struct lane *lane; /* locked by the caller */
    uint64_t bytes;          /* as the program asked for */
    uint64_t grow_bytes;     /* needed from the driver for it: whole granules */
};

/* Passes the line to vmm__error() and returns the status. */
vmm_status vmm__oom_report(struct vmm_cache *cache, const struct oom *oom);

#endif
