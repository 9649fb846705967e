/*
 * Outcomes of internal functions that are neither success nor a public error.
 *
 * An internal function that returns a vmm_status may return one of these where its comment names it. Its caller
 * handles that outcome; no public function returns one. Each outcome has one meaning:
 *
 *   PENDING    earlier work has not finished yet, or cannot be asked for while a capture is under way
 *   NO_FIT     no free memory in reach is large enough
 *   NOT_FOUND  an address or an id belongs to nothing that the callee owns
 *   IN_USE     an id is taken already
 *   NOTHING    a step had nothing to give; the next step may
 *   STRANDS    a block fits, but would strand too many free bytes: see strand_bytes of heaps
 *
 * Owns: nothing. May be called by: everything. Locks: none.
 */
#ifndef VMM_BASE_OUTCOME_H
#define VMM_BASE_OUTCOME_H

#include "vmmcache/vmmcache.h"

#define VMM__PENDING   ((vmm_status)0x10001)
#define VMM__NO_FIT    ((vmm_status)0x10002)
#define VMM__NOT_FOUND ((vmm_status)0x10003)
#define VMM__IN_USE    ((vmm_status)0x10004)
#define VMM__NOTHING   ((vmm_status)0x10005)
#define VMM__STRANDS   ((vmm_status)0x10006)

#endif
