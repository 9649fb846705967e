/*
 * A cache on the chosen driver for each API test, and the steps that most of them take.
 *
 * One driver serves all tests of a program. Each test gets a fresh cache with a limit of
 * CACHE_LIMIT; its end destroys the cache, and fails if a check on the device found a wrong place
 * or if the driver has anything outstanding.
 *
 *   int main(int argc, char **argv)
 *   {
 *       static const struct CMUnitTest tests[] = { CACHE_TEST(a_test), ... };
 *       CACHE_MAIN(tests);
 *   }
 */
#ifndef VMM_CACHE_SUPPORT_H
#define VMM_CACHE_SUPPORT_H

#include "support/driver_choice.h"
#include "support/test_support.h"

#include "cache_on.h"

#include <stdlib.h>

enum { CACHE_STREAMS = 4 };
#define CACHE_LIMIT  (128 * MIB)
#define CACHE_DEVICE (512 * MIB) /* of sim and host */

struct cache_test {
    struct driver *driver;
    vmm_cache *cache;
    vmm_stream streams[CACHE_STREAMS];
    bool captured[CACHE_STREAMS]; /* see capture_begun() */
    uint64_t free_bytes;          /* of the device, before the cache */
    uint64_t stalls;              /* of the driver, before the cache */
};

#define CACHE_TEST(name) cmocka_unit_test_setup_teardown(name, cache_setup, cache_teardown)
#define CACHE_MAIN(tests)                                                                          \
    driver_choice_read(argc, argv);                                                                \
    return cmocka_run_group_tests(tests, cache_group_setup, cache_group_teardown)

int cache_group_setup(void **state);
int cache_group_teardown(void **state);
int cache_setup(void **state);
int cache_teardown(void **state);

/* Ends the test's cache and begins another one; NULL: with no limit. */
void cache_restart(struct cache_test *test, const vmm_config *config);

/* ---- Steps that must succeed ---------------------------------------------------------------- */

void *block_taken(struct cache_test *test, size_t bytes, unsigned stream);
void block_given(struct cache_test *test, void *block);
void block_used(struct cache_test *test, void *block, unsigned stream);
size_t cache_trimmed(struct cache_test *test, size_t keep_bytes);
vmm_stats cache_stats(struct cache_test *test);

/* Waits of the host for the device since the cache was made. */
uint64_t cache_stalls(struct cache_test *test);

/* Work on a stream: writing a pattern, comparing with it. */
void block_filled(struct cache_test *test, void *block, size_t bytes, uint32_t word,
                  unsigned stream);
void block_checked(struct cache_test *test, void *block, size_t bytes, uint32_t word,
                   unsigned stream);
/* Waits for all work; fails if any check found a wrong place. */
void work_verified(struct cache_test *test);
/* Lets later work of one stream come after all earlier work of another. */
void stream_follows(struct cache_test *test, unsigned later, unsigned earlier);

/* A stream is being captured: it takes no work. What is not ended when a test fails ends with it. */
void capture_begun(struct cache_test *test, unsigned stream);
void capture_ended(struct cache_test *test, unsigned stream);

/*
 * Puts work on the block into a stream that goes on until flight_end(). Returns whether that is
 * sure: on cuda it is a lot of work, which may end before. One flight at a time.
 */
bool flight_begin(struct cache_test *test, void *block, size_t bytes, unsigned stream);
void flight_end(struct cache_test *test);

/* ---- Surveys -------------------------------------------------------------------------------- */

/* Sums over a walk. */
struct survey {
    uint64_t chunks;
    uint64_t chunk_bytes;
    uint64_t idle_bytes;
    uint64_t limbo_bytes;
    uint64_t live_blocks;
    uint64_t live_bytes;
    uint64_t requested_bytes;
    uint64_t waiting_blocks;
    uint64_t waiting_bytes;
    uint64_t lent_bytes;
    uint64_t kept_bytes; /* free, in private pools; what is idle there is no idle memory */
    uint64_t twins;      /* second addresses of chunks: they count as no chunks */
    uint64_t largest_free_bytes;
};

/* Walks, and fails unless addresses rise, chunks and twins come before their blocks,
 * which fill those that are not in limbo. */
struct survey cache_survey(struct cache_test *test);

/* Fails unless all invariants hold and the statistics are what a walk adds up to. */
void cache_verified(struct cache_test *test);

/* ---- Random blocks -------------------------------------------------------------------------- */

/* The next number of a sequence that depends on *seed alone. */
uint64_t random_next(uint64_t *seed);

/* Mostly small, seldom as large as `most`. */
size_t random_bytes(uint64_t *seed, size_t most);

#endif
