/*
 * Makes a number of pairs, an allocation and a free each. Nothing else depends on the number, so the difference of two
 * instruction counts of callgrind leaves out the start-up.
 *
 * usage: pairs BYTES|contended|listed|mixed|recorded COUNT
 *   contended: pairs of 512 bytes in a contended lane, through the magazine of a thread that is not its bias owner
 *   listed:    the same by the bias owner
 *   mixed:     replacements in a live set of 2000 blocks of 512 B to 8 MiB, after warm-up rounds that grow the cache to
 *              what the set needs
 *   recorded:  pairs of 512 bytes that are recorded, with the instructions of the thread that writes the file
 */
#define _POSIX_C_SOURCE 200809L
#include "cache/cache.h"
#include "cache/streams.h"
#include "cost.h"

#include <string.h>

#define LIVE        2000
#define DRAWS       8192
#define WARM_ROUNDS 4

static void pairs_run(vmm_cache *cache, size_t bytes, unsigned long count)
{
    cost_free(cache, cost_alloc(cache, bytes));
    for (unsigned long i = 0; i < count; i++)
        cost_free(cache, cost_alloc(cache, bytes));
}

/* Puts the lane at once into the state that threads waiting for each other would reach after some time. */
static void lane_contend(vmm_cache *cache, bool may_bias)
{
    struct lane *lane;
    cost_require(vmm__stream_lane(cache, NULL, &lane) == VMM_OK, "vmm__stream_lane");
    if (!may_bias)
        vmm__biased_disable(&lane->lock);
    vmm__lane_lock(lane);
    vmm__magazines_make_locked(lane);
    vmm__lane_unlock(lane);
    (void)vmm__thread_slot_mine();
}

/* Draws sizes uniformly over powers of two, and uniformly within each. */
static void draws_fill(struct cost_draw *draws)
{
    uint64_t state = 1;
    for (size_t i = 0; i < DRAWS; i++) {
        size_t base = (size_t)512 << (cost_random(&state) % 14);
        draws[i].bytes = base + cost_random(&state) % base;
        draws[i].index = cost_random(&state) % LIVE;
    }
}

static void mixed_run(vmm_cache *cache, unsigned long count)
{
    static struct cost_draw draws[DRAWS];
    static struct cost_block live[LIVE];
    draws_fill(draws);
    for (size_t i = 0; i < LIVE; i++)
        live[i].address = cost_alloc(cache, draws[i].bytes);
    for (unsigned long i = 0; i < WARM_ROUNDS * DRAWS + count; i++)
        cost_replace(cache, live, &draws[i % DRAWS]);
    for (size_t i = 0; i < LIVE; i++)
        cost_free(cache, live[i].address);
}

/* The file has no name. */
static void recording_begin(vmm_cache *cache)
{
    char path[64];
    FILE *file = tmpfile();
    cost_require(file != NULL, "tmpfile");
    (void)snprintf(path, sizeof path, "/proc/self/fd/%d", fileno(file));
    cost_require(vmm_trace_start(cache, path, NULL) == VMM_OK, "vmm_trace_start");
}

int main(int argc, char **argv)
{
    if (argc != 3) {
        fprintf(stderr, "usage: pairs BYTES|contended|listed|mixed COUNT\n");
        return 2;
    }
    unsigned long count = strtoul(argv[2], NULL, 10);
    vmm_cache *cache = cost_cache_create();
    bool is_recorded = strcmp(argv[1], "recorded") == 0;
    if (is_recorded)
        recording_begin(cache);
    bool is_listed = strcmp(argv[1], "listed") == 0;
    bool is_contended = is_listed || strcmp(argv[1], "contended") == 0;
    if (is_contended)
        lane_contend(cache, is_listed);
    if (strcmp(argv[1], "mixed") == 0)
        mixed_run(cache, count);
    else
        pairs_run(cache, is_contended || is_recorded ? 512 : strtoul(argv[1], NULL, 10), count);
    cost_cache_end(cache);
    return 0;
}
