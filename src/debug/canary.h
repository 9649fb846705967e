/*
 * Writes and compares the canaries around a block and the poison in it.
 *
 * Owns: nothing. May be called by: debug. Locks: the caller of vmm__canary_check() holds the gate.
 */
#ifndef VMM_DEBUG_CANARY_H
#define VMM_DEBUG_CANARY_H

#include "debug/debug_mode.h"

/* Writes canaries around a new block, in order of its stream. */
vmm_status vmm__canary_put(struct debug *debug, const struct record *record);

/* Fills a block that is being freed with poison, in order of its stream. */
vmm_status vmm__canary_poison(struct debug *debug, const struct record *record);

/* Compares the canaries around a block, and its poison if it is in quarantine, after the work that the stream has so
 * far. ERR_CORRUPTED, without an error line: *wrong is the address of the first byte that differs. Any other failure on
 * the stream of debug mode makes the block doubtful, until a check succeeds there. */
vmm_status vmm__canary_check(struct debug *debug, struct record *record, vmm_stream stream,
                             uint64_t *wrong);

#endif
