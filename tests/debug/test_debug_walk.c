/* What a walk and the statistics show in debug mode: the blocks that the program has, and nothing twice. */
#include "debug_support.h"
#include "support/made_support.h"

enum { BLOCKS = 48, STEPS = 400, SEEDS = 6, ALIGNMENTS = 22 /* up to 2 MiB */ };

struct program {
    struct cache_test *test;
    uint64_t seed;
    struct {
        void *address;
        size_t bytes;
        bool is_seen;
    } blocks[BLOCKS];
};

/* ---- Walk ------------------------------------------------------------------------------------ */

struct tour {
    struct program *program;
    uint64_t last;      /* address */
    uint64_t chunk_at;  /* of the last range of memory */
    uint64_t chunk_end; /* its end */
    uint64_t block_end;
    vmm_stats sums;
    const char *trouble; /* asserting inside a visit would leave locks behind */
};

static void live_toured(struct tour *tour, const vmm_item *item)
{
    struct program *program = tour->program;
    int i = 0;
    while (i < BLOCKS && (uintptr_t)program->blocks[i].address != item->address)
        i++;
    if (i == BLOCKS || program->blocks[i].is_seen ||
        program->blocks[i].bytes != item->requested_bytes || item->bytes < item->requested_bytes) {
        tour->trouble = "a live block that the program does not have, or twice";
        return;
    }
    program->blocks[i].is_seen = true;
    tour->sums.allocations.current++;
    tour->sums.requested_bytes.current += item->requested_bytes;
    tour->sums.allocated_bytes.current += item->bytes;
}

static int item_toured(void *context, const vmm_item *item)
{
    struct tour *tour = context;
    if (item->address < tour->last)
        tour->trouble = "addresses do not rise";
    tour->last = item->address;
    if (item->kind == VMM_ITEM_CHUNK) {
        if (item->address < tour->chunk_end)
            tour->trouble = "a range overlaps the one before";
        tour->chunk_at = item->address;
        tour->chunk_end = item->address + item->bytes;
        tour->sums.reserved_bytes.current += item->bytes;
        return tour->trouble != NULL;
    }
    if (item->address < tour->chunk_at || item->address >= tour->chunk_end)
        tour->trouble = "a block does not start in the range before it";
    if (item->address < tour->block_end)
        tour->trouble = "a block overlaps the one before";
    tour->block_end = item->address + item->bytes;
    if (item->state == VMM_ITEM_LIVE)
        live_toured(tour, item);
    return tour->trouble != NULL;
}

#define SUM_VERIFY(name) assert_int_equal(stats.name.current, tour.sums.name.current)

static void stats_verify(vmm_stats stats, const struct tour *sums)
{
    const struct tour tour = *sums;
    SUM_VERIFY(allocations);
    SUM_VERIFY(requested_bytes);
    SUM_VERIFY(allocated_bytes);
    SUM_VERIFY(reserved_bytes);
    assert_true(stats.active_bytes.current >= stats.allocated_bytes.current);
#define STAT_VERIFY(name, unit, kind, of, label, text)                                             \
    assert_true(stats.name.peak >= stats.name.current);                                            \
    assert_int_equal(stats.name.allocated - stats.name.freed, stats.name.current);
    VMM_STAT_MAP(STAT_VERIFY)
#undef STAT_VERIFY
}

static void program_verify(struct program *program)
{
    vmm_cache *cache = program->test->cache;
    struct tour tour = { .program = program };
    for (int i = 0; i < BLOCKS; i++)
        program->blocks[i].is_seen = false;
    assert_ok(vmm_walk(cache, item_toured, &tour));
    if (tour.trouble != NULL)
        fail_msg("walk: %s, at 0x%llx", tour.trouble, (unsigned long long)tour.last);
    for (int i = 0; i < BLOCKS; i++)
        assert_true(program->blocks[i].is_seen || program->blocks[i].address == NULL);
    stats_verify(cache_stats(program->test), &tour);
    vmm_stats stats = pool_stats(vmm_cache_pool(cache));
    stats_verify(stats, &tour);
}

/* ---- A random program ------------------------------------------------------------------------ */

static void block_toggle(struct program *program, int i)
{
    struct cache_test *test = program->test;
    uint64_t drawn = random_next(&program->seed);
    vmm_stream stream = test->streams[drawn % 2];
    size_t alignment = (size_t)1 << drawn / 2 % ALIGNMENTS;
    size_t bytes = random_bytes(&program->seed, 6 * MIB);
    void *block = program->blocks[i].address;
    vmm_status status;
    program->blocks[i].address = NULL;
    if (block != NULL) {
        block_free(test, block);
        return;
    }
    if (drawn >> 32 & 1)
        status = vmm_alloc(test->cache, bytes, stream, &block);
    else
        status = vmm_alloc_aligned(vmm_cache_pool(test->cache), bytes, alignment, stream, &block);
    if (status == VMM_ERR_DEVICE_OOM)
        return;
    assert_ok(status);
    program->blocks[i].address = block;
    program->blocks[i].bytes = bytes;
}

static void program_run(struct cache_test *test, vmm_debug_mode debug, uint64_t seed)
{
    struct program program = { .test = test, .seed = seed };
    debug_restart(test, debug, 0);
    for (int step = 0; step < STEPS; step++) {
        block_toggle(&program, (int)(random_next(&program.seed) % BLOCKS));
        program_verify(&program);
    }
    for (int i = 0; i < BLOCKS; i++) {
        if (program.blocks[i].address != NULL)
            block_toggle(&program, i);
    }
    program_verify(&program);
    cache_trim_all(test);
}

CACHE_TEST(records_change_nothing_that_is_shown)
{
    for (uint64_t seed = 1; seed <= SEEDS; seed++)
        program_run(test, VMM_DEBUG_RECORD, seed);
}

CACHE_TEST(canaries_and_quarantine_are_not_shown)
{
    for (uint64_t seed = 1; seed <= SEEDS; seed++)
        program_run(test, VMM_DEBUG_ON, seed);
}

CACHE_MAIN()
