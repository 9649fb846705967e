/*
 * Canaries around a block and poison in it: writing and comparing.
 *
 * Owns: nothing. May be called by: guard. Locks: whoever compares holds the gate.
 */
#ifndef VMM_GUARD_CANARY_H
#define VMM_GUARD_CANARY_H

#include "guard/guard.h"

/* Writes canaries around a new block, in order of its stream. */
vmm_status vmm__canary_put(struct guard *guard, const struct record *record);

/* Fills a block that is being freed with poison, in order of its stream. */
vmm_status vmm__canary_poison(struct guard *guard, const struct record *record);

/* Compares the canaries around a block, and the poison in it if it is kept as such, after the work that the stream
 * has so far. ERR_CORRUPTED, without a line: *wrong is the address of the first byte that differs. Any other failure on
 * the guard's stream makes the block doubtful, until one that did not fail. */
vmm_status vmm__canary_check(struct guard *guard, struct record *record, vmm_stream stream,
                             uint64_t *wrong);

#endif
