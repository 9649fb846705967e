/*
 * Debug mode, and vmm_config.zero: a layer between the public functions and the lanes. It clears new blocks, records
 * who allocated and freed each block, and finds writes outside blocks and after their free.
 *
 * With VMM_DEBUG_ON the program's block is a part of the lane's block, with canaries before and after it. A block above
 * 1 MiB lies alone on its own granules, at their end and before a guard page (cache/grow/guard_page.h); its free
 * releases its memory to the driver. The free of a smaller block fills it with poison and puts it into quarantine for a
 * while, before it returns to its lane.
 *
 * Owns: the records, and a stream on which it checks memory that no work uses. Invariants:
 *  1. while this layer is open no call takes the fast path, so every call passes through it;
 *  2. on a stream that is being captured it writes only zeros and reads nothing, and it does not watch blocks that were
 *     allocated or freed there;
 *  3. when a block enters the quarantine as poison, the host has seen the end of its stream's work;
 *  4. the work that it submits to a block's stream comes before the block returns to its lane and before the stream's
 *     last event, so it precedes the work of the next owner. Its work on its own stream has ended by then: a block is
 *     doubtful after a failed check there, and stays in quarantine until a check succeeds;
 *  5. it calls the lanes with no lock of its own except the gate, and the program's functions with no lock at all.
 * May be called by: api. Locks, in this order: `gate` lets one thread at a time free or check blocks, and guards the
 * buffer; then the cache's locks; then records.lock, a leaf, which guards the records and the last misuse.
 */
#ifndef VMM_DEBUG_DEBUG_MODE_H
#define VMM_DEBUG_DEBUG_MODE_H

#include "debug/misuse.h"

enum {
    DEBUG_FRONT_BYTES = 512, /* of canaries before a block: its alignment */
    DEBUG_BACK_BYTES = 64,   /* of canaries after it, at least */
    DEBUG_BUFFER_BYTES = 65536
};

struct debug {
    vmm_debug_mode mode;
    bool zero;
    vmm_cache *cache;
    vmm_stream stream; /* its own; NULL unless it watches memory */
    struct mutex gate;
    unsigned char *buffer;
    uint64_t kept_bytes_most; /* the bound of the quarantine */
    _Atomic uint64_t given;   /* blocks that have left the quarantine */
    struct records records;
    struct misuse_state misuse;
};

static inline bool vmm__debug_mode_watches(vmm_debug_mode mode)
{
    return mode == VMM_DEBUG_ON || mode == VMM_DEBUG_STOP;
}

static inline bool vmm__debug_watches_memory(const struct debug *debug)
{
    return vmm__debug_mode_watches(debug->mode);
}

/* Opens debug mode in a cache that has no lanes yet, if the configuration asks for it or for zeros. */
vmm_status vmm__debug_open(vmm_cache *cache, const vmm_config *config);

/* Closes debug mode. Checks all blocks before that if work has ended, except that of streams which are being captured.
 * ERR_CORRUPTED; the driver's status, if a check may still run or its stream stays. */
vmm_status vmm__debug_close(vmm_cache *cache, bool work_has_ended);

/* See vmm_alloc(). */
vmm_status vmm__debug_alloc(const struct api_call *call, const struct request *request, void **out);

/* See vmm_free(). *should_poll: whether the caller should poll now. ERR_CORRUPTED: the block is freed anyway.
 * VMM__NOT_FOUND, only with zeros and without debug mode: no block has this address. */
vmm_status vmm__debug_free(const struct api_call *call, uint64_t address, bool *should_poll);

/* See vmm__stream_end(). Works in every cache. */
vmm_status vmm__debug_stream_end(vmm_cache *cache, vmm_stream stream);

/* The following functions do nothing in a cache without debug mode. */

/* Replaces the program's address of a live block by the lane's. ERR_UNKNOWN_POINTER. */
vmm_status vmm__debug_inner(const struct api_call *call, void **block);

/* Empties the quarantine into the lanes. Returns ERR_CORRUPTED after it has emptied all of it. */
vmm_status vmm__debug_flush(const struct api_call *call);

/* See vmm_debug_check(). */
vmm_status vmm__debug_check(const struct api_call *call);

#endif
