/*
 * A call of a public function, as the API hands it down: who calls, and what an allocation asks for beside its bytes
 * and its stream.
 *
 * Lives on the stack of the public function, and does not change.
 * Owns: nothing. May be called by: debug, api. Locks: none.
 */
#ifndef VMM_CACHE_API_CALL_H
#define VMM_CACHE_API_CALL_H

#include "cache/cache.h"

struct api_call {
    vmm_cache *cache;
    const char *function;
    const void *caller; /* its return address */
    struct pool *pool;  /* that an allocation names; NULL: none */
    size_t alignment;   /* that an allocation asks for; 0: none */
    uint64_t place;     /* the address that an allocation asks for; 0: none */
    bool is_unborrowed; /* the block that it allocates must not come from another lane */
    bool is_use;        /* it records another stream's use of the block */
};

#endif
