/*
 * The guard: what stands between the program and handout when vmm_config.zero or vmm_config.guard says so. It
 * clears what is handed out, keeps records of who allocated and freed what, and has memory around blocks and after
 * their end watched.
 *
 * With VMM_GUARD_ON the block of a pool and the block that the program knows differ: canaries lie before
 * and after what the program gets. A block above 1 MiB lies alone on granules of its own, flush with
 * their end, and before a fence (policy/fence.h); when it is freed its memory goes back to the driver. Smaller
 * ones are filled with poison when they are freed, and kept in quarantine for a while before the pool has them back.
 *
 * Owns: the records, a stream to look at memory that no work uses any more. Invariants:
 *  1. with a guard no pool is entered the fast way, so every call comes by here;
 *  2. nothing is written or read on a stream that is being captured but zeros: blocks that were allocated or
 *     freed there are not watched;
 *  3. when a block enters the quarantine as poison, the host has seen its stream's work end;
 *  4. what the guard submits to a block's stream comes before the block goes back to its pool, and before the
 *     stream's last mark, so whoever has the memory next comes after it; on the guard's own stream, it has ended
 *     before: a block that is doubtful, as a look at it there failed, is in quarantine until one succeeds;
 *  5. the pools, and the program, are called with no lock of the guard's but the gate held, the program's functions
 *     with none at all.
 * May be called by: entry. Locks: `gate` lets one thread at a time take blocks out of the program's hands and look
 * at memory, it guards the buffer; then the cache's locks; then records.lock, a leaf, which guards
 * the records and the last misuse.
 */
#ifndef VMM_GUARD_GUARD_H
#define VMM_GUARD_GUARD_H

#include "guard/misuse.h"

enum {
    GUARD_FRONT_BYTES = 512, /* of canaries before a block: as much as its alignment */
    GUARD_BACK_BYTES = 64,   /* and at least so many behind it */
    GUARD_BUFFER_BYTES = 65536
};

struct guard {
    vmm_guard mode;
    bool zero;
    vmm_cache *cache;
    vmm_stream stream; /* of its own; NULL unless memory is watched */
    struct lock gate;
    unsigned char *buffer;
    uint64_t kept_bytes_most; /* in quarantine */
    _Atomic uint64_t given;   /* blocks that the quarantine has given back */
    struct records records;
    struct misuse_state misuse;
};

static inline bool vmm__guard_watches(const struct guard *guard)
{
    return guard->mode >= VMM_GUARD_ON;
}

/* Puts a guard into a cache if its configuration asks for one, before there are pools. */
vmm_status vmm__guard_open(vmm_cache *cache, const vmm_config *config);

/* Looks for corruption a last time if work has ended, but for that of streams which are being captured, and ends the
 * guard. ERR_CORRUPTED; what the driver said, if a look may still be under way. */
vmm_status vmm__guard_close(vmm_cache *cache, bool work_has_ended);

/* What vmm_alloc() promises. */
vmm_status vmm__guard_alloc(const struct guard_call *call, size_t bytes, vmm_stream stream,
                            void **out);

/* What vmm_free() promises. *looks: whether to ask what is due. ERR_CORRUPTED: the block was taken back. Where only
 * zeros are asked for: VMM_NOT_READY if the address is nobody's. */
vmm_status vmm__guard_free(const struct guard_call *call, uint64_t address, bool *looks);

/* What vmm_stream_end() promises, with or without a guard: see vmm__stream_end(). */
vmm_status vmm__guard_stream_end(vmm_cache *cache, vmm_stream stream, bool *is_gone);

/* The rest does nothing in a cache without a guard. */

/* Makes the program's address of a live block the pool's. ERR_UNKNOWN_POINTER. */
vmm_status vmm__guard_inner(const struct guard_call *call, void **block);

/* Gives the pools back what is in quarantine. ERR_CORRUPTED, once all of it was. */
vmm_status vmm__guard_flush(const struct guard_call *call);

/* See vmm_guard_check(). */
vmm_status vmm__guard_check(const struct guard_call *call);

#endif
