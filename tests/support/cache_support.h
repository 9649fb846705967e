/*
 * A cache on the chosen driver for each API test, and the steps that most of them take.
 *
 * One driver serves all tests of a program. Each test gets a fresh cache with a limit of CACHE_LIMIT. Its end verifies
 * the cache, frees all blocks that the test left, closes its shares, ends its pools and further caches, and then fails
 * if the cache keeps memory, if a check on the device found a wrong place, or if the driver has anything outstanding.
 * So a test ends with its last check, and a free stands in it only for what the free does.
 *
 *   CACHE_TEST(a_test)
 *   {
 *       void *block = block_alloc(test, MIB, 0);
 *       ...
 *   }
 *
 *   CACHE_MAIN()
 */
#ifndef VMM_CACHE_SUPPORT_H
#define VMM_CACHE_SUPPORT_H

#include "support/driver_choice.h"
#include "support/made_support.h"

#include <stdlib.h>

enum { CACHE_STREAMS = 4, CACHE_SECONDS = 8, CACHE_SHARES = 256 };
#define LARGE_CHUNK  (16 * MIB)
#define CACHE_LIMIT  (128 * MIB)
#define CACHE_DEVICE (8192 * MIB) /* of sim and host; on a smaller device chunks are smaller */

struct cache_test {
    struct driver *driver;
    vmm_cache *cache;
    vmm_stream streams[CACHE_STREAMS];
    bool captured[CACHE_STREAMS];      /* see capture_begin() */
    uint64_t free_bytes;               /* of the device, before the cache */
    uint64_t stalls;                   /* of the driver, before the cache */
    vmm_cache *seconds[CACHE_SECONDS]; /* see cache_second(); some have ended */
    vmm_share *shares[CACHE_SHARES];
};

#define CACHE_TEST(name) TEST_WITH(name, cache_setup, cache_teardown, struct cache_test *test)
/* The main() of a program with such tests. */
#define CACHE_MAIN() DRIVER_MAIN(cache_group_setup, cache_group_teardown)

int cache_group_setup(void **state);
int cache_group_teardown(void **state);
/* The first streams of a device take memory that CUDA keeps: a program that makes many calls this before any test
 * measures what is free. */
void cache_streams_warm(struct cache_test *test, unsigned count);
int cache_setup(void **state);
int cache_teardown(void **state);

/* Destroys the test's cache and creates another one; NULL: without a limit. */
void cache_restart(struct cache_test *test, const vmm_config *config);
/* The same with a config of these fields: cache_restart_with(test, .decay_ms = 1, .zero = VMM_ON). */
#define cache_restart_with(test, ...) cache_restart(test, &CONFIG(__VA_ARGS__))

/* Creates another cache on the driver of the test, whose end ends it if the test does not. */
vmm_cache *cache_second(struct cache_test *test);

/* The end of the test closes the share if the test does not. */
void share_note(vmm_share *share);

/* Frees all live blocks and destroys all pools. */
void cache_give_back(struct cache_test *test);

/* Waits for all work, so that nothing imported stays mapped. */
void imports_vanish(vmm_cache *cache);

/* ---- Steps that must succeed ---------------------------------------------------------------- */

void *block_alloc(struct cache_test *test, size_t bytes, unsigned stream);
void block_free(struct cache_test *test, void *block);
/* Allocates and fills a block; sets it to NULL on out of memory. */
void block_try_fill(struct cache_test *test, size_t bytes, unsigned stream, uint32_t word,
                    void **block);
void block_use(struct cache_test *test, void *block, unsigned stream);
size_t cache_trim(struct cache_test *test, size_t keep_bytes);
/* Leaves a stream of an empty cache with so much idle memory, in chunks of LARGE_CHUNK bytes. The cache has no limit
 * yet, and a footprint_permille of 50 or more. */
void large_chunks_make(struct cache_test *test, size_t bytes, unsigned stream);
vmm_stats cache_stats(struct cache_test *test);
/* Trims; fails if any memory stays reserved. */
void cache_trim_all(struct cache_test *test);

/* How often the host has waited for the device since the cache was created. */
uint64_t cache_stalls(struct cache_test *test);

/* Submit work to a stream: fill the block with a pattern, compare the block with it. */
void block_fill(struct cache_test *test, void *block, size_t bytes, uint32_t word, unsigned stream);
void block_check(struct cache_test *test, void *block, size_t bytes, uint32_t word,
                 unsigned stream);
/* Waits for all work; fails if any check found a wrong place. */
void work_verify(struct cache_test *test);
/* Orders later work of one stream after all earlier work of another. */
void stream_follow(struct cache_test *test, unsigned later, unsigned earlier);

/* Between these calls the stream is captured and accepts no work. The teardown ends captures of a failed test. */
void capture_begin(struct cache_test *test, unsigned stream);
void capture_begin_silently(struct cache_test *test, unsigned stream); /* unannounced */
void capture_end(struct cache_test *test, unsigned stream);

/*
 * Submits work on the block that lasts until flight_end(). Returns whether that is certain: on cuda it
 * is much work, which may end earlier. One flight at a time.
 */
bool flight_begin(struct cache_test *test, void *block, size_t bytes, unsigned stream);
void flight_end(struct cache_test *test);

/* ---- Walks ---------------------------------------------------------------------------------- */

/* Sums over a walk. */
struct occupancy_scan {
    uint64_t chunk_bytes; /* mapped ranges */
    uint64_t idle_bytes;
    uint64_t limbo_bytes;
    uint64_t asleep_bytes;
    uint64_t live_blocks;
    uint64_t live_bytes;
    uint64_t requested_bytes;
    uint64_t waiting_blocks;
    uint64_t waiting_bytes;
    uint64_t retained_bytes; /* free in graph pools; not part of idle_bytes */
    uint64_t largest_free_bytes;
};

/* Walks, and fails unless addresses rise, chunks precede their blocks, and blocks fill each chunk that
 * is not in limbo. */
struct occupancy_scan cache_scan(struct cache_test *test);

/* Fails unless all invariants hold and the statistics equal the sums of a walk. */
void cache_verify(struct cache_test *test);

/* After all frees: waits for all work, trims, and fails unless the cache is empty. */
void cache_verify_empty(struct cache_test *test);

/* ---- Random blocks -------------------------------------------------------------------------- */

/* The next number of a sequence that depends on *seed alone. */
uint64_t random_next(uint64_t *seed);

/* A size: mostly small, rarely as large as `most`. */
size_t random_bytes(uint64_t *seed, size_t most);

#endif
