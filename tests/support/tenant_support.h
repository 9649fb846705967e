/* Tenants: pools with blocks that each have a pattern of their own, for tests of sleep and wake. */
#ifndef VMM_TENANT_SUPPORT_H
#define VMM_TENANT_SUPPORT_H

#include "support/cache_support.h"

enum { TENANT_BLOCKS = 24, TENANT_SIZES = 6 };

/* Sizes from a slab's object to several chunks. */
extern const size_t tenant_sizes[TENANT_SIZES];

/* Block i belongs to stream i % 2 + 1. */
struct tenant {
    vmm_pool *pool;
    void *blocks[TENANT_BLOCKS];
    size_t bytes[TENANT_BLOCKS];
    uint32_t words[TENANT_BLOCKS];
    char
        *reserved; /* a block of vmm_reserve() on stream 1, with memory in some units; NULL: none */
};

/* The units of 2 MiB of that block, and those with memory. */
enum { TENANT_UNITS = 8, TENANT_COMMITTED = 0x36 };
#define TENANT_UNIT (2 * MIB)

/* Fills the units with memory, each with a word of its own. */
void tenant_reserved_fill(struct cache_test *test, const struct tenant *tenant);

vmm_pool *pool_make(struct cache_test *test, vmm_on_sleep on_sleep);
vmm_pool_phase phase_of(vmm_pool *pool);
void pool_sleep(vmm_pool *pool);
void pool_wake(vmm_pool *pool);

/* Allocates and fills block `number`. */
void tenant_add(struct cache_test *test, struct tenant *tenant, unsigned number, size_t bytes);

/* Adds the blocks that are missing. */
void tenant_refill(struct cache_test *test, struct tenant *tenant);

/* Blocks on two streams, some of them freed again, so that chunks are partly free. */
struct tenant tenant_make(struct cache_test *test, vmm_on_sleep on_sleep);

/* Fails unless every block has its pattern. */
void tenant_check(struct cache_test *test, const struct tenant *tenant);

void tenant_free(struct cache_test *test, struct tenant *tenant);

/* Wakes the pool, which keeps its blocks, and serves those that are missing. */
void tenant_wake_and_refill(struct cache_test *test, struct tenant *tenant);

/* Frees the blocks and destroys the pool; fails if anything is left in the cache. */
void tenant_end(struct cache_test *test, struct tenant *tenant);

#endif
