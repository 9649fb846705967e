/*
 * What the files of the guard share:
 *
 *   guard.c    opens and closes it; how reports see its blocks
 *   take.c     allocation
 *   give.c     free, quarantine
 *   look.c     looking at blocks that nobody gives back; what a call has found
 *   canary.c   canaries and poison
 *   misuse.c   the story of a misuse
 *   record.c   records
 *   stack.c    stacks
 */
#ifndef VMM_GUARD_GUARD_INTERNAL_H
#define VMM_GUARD_GUARD_INTERNAL_H

#include "base/arith.h"
#include "guard/guard.h"

/* What is asked of the pool for a block with canaries; UINT64_MAX if that is no size. */
static inline uint64_t vmm__guard_padded_bytes(uint64_t bytes)
{
    uint64_t padded;
    if (!vmm__add_checked(bytes, GUARD_FRONT_BYTES + GUARD_BACK_BYTES, &padded))
        return UINT64_MAX;
    return vmm__pool_place_bytes(padded);
}

/* Whether a block lies alone, unless graphs hold its pool. */
static inline bool vmm__guard_is_large(uint64_t bytes)
{
    return vmm__guard_padded_bytes(bytes) > POOL_SMALL_LARGEST_BYTES;
}

/* What a call has found so far. */
struct finding {
    struct error_line first; /* empty: nothing */
};

/* Tells a byte that differs; the call goes on. */
void vmm__finding_note(const struct guard_call *call, const struct record *record, uint64_t wrong,
                       struct finding *finding);

/* The status of a call that has done its work; with no lock held. */
vmm_status vmm__finding_end(const struct guard_call *call, const struct finding *finding,
                            vmm_status status);

/* Tells that a pointer names no live block; with no lock held. */
vmm_status vmm__guard_unknown(const struct guard_call *call, uint64_t address);

/* Whether a stream is being captured. If the driver does not say, it may be. */
bool vmm__guard_is_captured(const struct guard *guard, vmm_stream stream);

/* See guard_view. */
uint64_t vmm__guard_give(struct guard *guard);

/* Looks at all blocks whose canaries are known to be there: at all, if the device has no work left. The caller holds
 * the gate. */
vmm_status vmm__guard_check_all(const struct guard_call *call, bool work_has_ended,
                                struct finding *finding);

/* At the end: makes sure that no look of the guard's is under way any more. */
vmm_status vmm__guard_settle(struct guard *guard);

#endif
