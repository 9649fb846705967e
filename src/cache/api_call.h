/*
 * A call of a public function, as the API hands it down: who calls.
 *
 * Lives on the stack of the public function, and does not change.
 * Owns: nothing. May be called by: debug, api. Locks: none.
 */
#ifndef VMM_CACHE_API_CALL_H
#define VMM_CACHE_API_CALL_H

#include "cache/request.h"

struct api_call {
    vmm_cache *cache;
    const char *function;
    const void *caller; /* its return address */
    bool is_use;        /* it records another stream's use of the block */
};

#endif
