/*
 * The sleep or the wake of one pool: its chunks, their contents and mappings. A request (sleep.h) runs it for each
 * pool.
 *
 * Owns: the stream of the copies; makes the backup of a pool. May be called by: cache/pool, api. Locks: the calls take
 * the grow lock, and the lanes' locks inside, except those that say otherwise. The pool's phase keeps all other calls
 * from its chunks.
 */
#ifndef VMM_CACHE_POOL_POOL_SLEEP_H
#define VMM_CACHE_POOL_POOL_SLEEP_H

#include "cache/cache.h"
#include "cache/claim.h"
#include "cache/pool/chunk_copy.h"

/* The chunks of one pool, in the order of their homes. */
struct chunk_list {
    struct chunk **items;
    uint64_t count;
    uint64_t capacity;
};

/* One pool of a request. */
struct pool_sleep {
    struct vmm_cache *cache;
    struct pool *pool;
    const vmm_sleep_options *options;
    struct chunk_list chunks;
    struct chunk_copy copy;
    struct claim *claim; /* of the call, if the device refuses a wake */
    bool ends_asleep;    /* what becomes of the pool when the request ends */
    bool has_contents;   /* they are saved, loaded or cleared */
    bool has_unfinished; /* copies may still run, because the driver failed to wait */
};

/* Puts a pool to sleep. On failure wakes what sleeps already; `ends_asleep` is set if that fails, too. */
vmm_status vmm__pool_sleep(struct pool_sleep *job);

/* Wakes a pool. On failure a part of it may be awake. VMM__PENDING: it has to give way. */
vmm_status vmm__pool_wake(struct pool_sleep *job);

/* Puts what woke of a pool back to sleep. Leaves it as it is if copies may still write to its memory. */
void vmm__pool_sleep_again(struct pool_sleep *job);

/* Ends the wake of a pool: reports the mappings to the program, or, if `ends_asleep` is set, puts what woke back to
 * sleep. */
void vmm__pool_wake_end(struct pool_sleep *job);

/* Frees the list of chunks. */
void vmm__pool_sleep_free(struct pool_sleep *job);

/* Releases the chunks of a pool that sleeps and has no live blocks. The caller holds the grow lock. ERR_HOST_OOM,
 * ERR_DRIVER, ERR_INVALID_ARGUMENT (freed blocks wait for streams). */
vmm_status vmm__pool_sleep_release_locked(struct pool *pool);

/* Ends the stream of the copies, at the end of the cache; takes no lock. */
vmm_status vmm__pool_sleep_transfers_close(struct vmm_cache *cache);

#endif
