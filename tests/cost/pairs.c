/*
 * Does a number of pairs, an allocation and a free each, and nothing else that depends on the number:
 * callgrind counts its instructions with two numbers, and what the start cost cancels.
 *
 * usage: pairs BYTES|crowded|mixed COUNT
 *   crowded: pairs of 512 bytes in a pool that threads crowd, by the magazine of one that cannot enter
 *   mixed:   replacements in a live set of 2000 blocks of 512 B to 8 MiB, after rounds in which the cache
 *            has come to hold what they need
 */
#include "cost.h"
#include "policy/cache.h"

#include <string.h>

#define LIVE        2000
#define DRAWS       8192
#define WARM_ROUNDS 4

static void pairs_do(vmm_cache *cache, size_t bytes, unsigned long count)
{
    cost_free(cache, cost_alloc(cache, bytes));
    for (unsigned long i = 0; i < count; i++)
        cost_free(cache, cost_alloc(cache, bytes));
}

/* What threads come to by themselves that wait for each other, but not always as soon. */
static void pool_crowd(vmm_cache *cache)
{
    struct pool *pool;
    cost_require(vmm__cache_pool(cache, NULL, &pool) == VMM_OK, "vmm__cache_pool");
    vmm__biased_deny(&pool->lock);
    atomic_store(&pool->is_crowded, true);
}

/* As many of each power of two, and evenly within one. */
static void draws_make(struct cost_draw *draws)
{
    uint64_t state = 1;
    for (size_t i = 0; i < DRAWS; i++) {
        size_t base = (size_t)512 << (cost_random(&state) % 14);
        draws[i].bytes = base + cost_random(&state) % base;
        draws[i].index = cost_random(&state) % LIVE;
    }
}

static void mixed_do(vmm_cache *cache, unsigned long count)
{
    static struct cost_draw draws[DRAWS];
    static struct cost_block live[LIVE];
    draws_make(draws);
    for (size_t i = 0; i < LIVE; i++)
        live[i].address = cost_alloc(cache, draws[i].bytes);
    for (unsigned long i = 0; i < WARM_ROUNDS * DRAWS + count; i++)
        cost_replace(cache, live, &draws[i % DRAWS]);
    for (size_t i = 0; i < LIVE; i++)
        cost_free(cache, live[i].address);
}

int main(int argc, char **argv)
{
    if (argc != 3) {
        fprintf(stderr, "usage: pairs BYTES|mixed COUNT\n");
        return 2;
    }
    unsigned long count = strtoul(argv[2], NULL, 10);
    vmm_cache *cache = cost_cache_create();
    bool is_crowded = strcmp(argv[1], "crowded") == 0;
    if (is_crowded)
        pool_crowd(cache);
    if (strcmp(argv[1], "mixed") == 0)
        mixed_do(cache, count);
    else
        pairs_do(cache, is_crowded ? 512 : strtoul(argv[1], NULL, 10), count);
    cost_cache_end(cache);
    return 0;
}
