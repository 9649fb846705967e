/*
 * Shared by the files of debug mode:
 *
 *   debug_mode.c  open, close, and the blocks in reports
 *   alloc.c       allocation
 *   free.c        free and the quarantine
 *   check.c       checks of all blocks, and what a call has found
 *   canary.c      canaries and poison
 *   counts.c      what statistics count
 *   misuse.c      reports of misuse
 *   records.c     records of blocks
 *   nvtx.c        NVTX annotations, without debug mode
 *
 * Owns: nothing. May be called by: debug. Locks: see debug_mode.h.
 */
#ifndef VMM_DEBUG_INTERNAL_H
#define VMM_DEBUG_INTERNAL_H

#include "base/arith.h"
#include "debug/debug_mode.h"

/* The size of the lane's block for a request with canaries; UINT64_MAX on overflow. */
static inline uint64_t vmm__debug_padded_bytes(uint64_t bytes)
{
    uint64_t padded;
    if (!vmm__add_checked(bytes, DEBUG_FRONT_BYTES + DEBUG_BACK_BYTES, &padded))
        return UINT64_MAX;
    return vmm__lane_block_bytes(padded);
}

/* Returns whether a block lies alone on its granules, unless graphs use its lane. */
static inline bool vmm__debug_is_large(uint64_t bytes)
{
    return vmm__debug_padded_bytes(bytes) > LANE_SMALL_LARGEST_BYTES;
}

/* The size of the program's block in reports: vmm_block_bytes(), or less for a block with an alignment. */
uint64_t vmm__debug_shown_bytes(const struct debug *debug, const struct record *record);

/*
 * Statistics count what the program has: neither canaries nor what an alignment skips, nor blocks in quarantine. So the
 * lane's counters hide a part of each watched block: from its allocation on, and all of it in quarantine.
 */
void vmm__debug_count(struct debug *debug, struct record *record);
void vmm__debug_count_kept(struct debug *debug, struct record *record);

/* Lets the counters have the lane's whole block, which is about to be freed, or hides the part again if that failed. */
void vmm__debug_count_lane(struct debug *debug, const struct record *record, bool is_freeing);

/* The misuse that a call has found so far. */
struct finding {
    struct error_line first; /* of the first one; empty: none */
};

/* Records a byte that differs, and lets the call continue. */
void vmm__finding_note(const struct api_call *call, const struct record *record, uint64_t wrong,
                       struct finding *finding);

/* Ends a call: reports the first misuse and returns ERR_CORRUPTED, or returns `status`. The caller holds no lock. */
vmm_status vmm__finding_end(const struct api_call *call, const struct finding *finding,
                            vmm_status status);

/* Reports a pointer to no live block; returns ERR_UNKNOWN_POINTER. The caller holds no lock. */
vmm_status vmm__debug_unknown(const struct api_call *call, uint64_t address);

/* Returns whether a stream is being captured; true if the driver cannot tell. */
bool vmm__debug_is_captured(const struct debug *debug, vmm_stream stream);

/* Empties the quarantine for a request that needs memory: see struct debug_view. */
uint64_t vmm__debug_give(struct debug *debug);

/* Checks all blocks whose canaries are written: every block, if the device has no work left. The caller holds the gate,
 * or is the only user of the cache. */
vmm_status vmm__debug_check_all(const struct api_call *call, bool work_has_ended,
                                struct finding *finding);

/* For close: makes sure that no check still runs on the device. Fails if it cannot. */
vmm_status vmm__debug_settle(struct debug *debug);

/* Writes canaries around a new block, in order of its stream. */
vmm_status vmm__canary_put(struct debug *debug, const struct record *record);

/* Fills a block that is being freed with poison, in order of its stream. */
vmm_status vmm__canary_poison(struct debug *debug, const struct record *record);

/* Compares the canaries around a block, and its poison if it is in quarantine, after the work that the stream has so
 * far. ERR_CORRUPTED, without an error line: *wrong is the address of the first byte that differs. Any other failure on
 * the stream of debug mode makes the block doubtful, until a check succeeds there. The caller holds the gate. */
vmm_status vmm__canary_check(struct debug *debug, struct record *record, vmm_stream stream,
                             uint64_t *wrong);

#endif
