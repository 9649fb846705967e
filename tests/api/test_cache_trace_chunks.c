/* What a recording says of chunks: its notes lead to the mappings that there are, whatever has moved them. */
#include "support/cache_support.h"
#include "support/source_support.h"
#include "support/trace_support.h"

#include "cache/cache.h"

#include <inttypes.h>
#include <string.h>

enum { MAPPINGS = 4096, SLOTS = 48, ROUNDS = 3000 };

struct mapping {
    uint64_t address;
    uint64_t chunk;
    uint64_t bytes; /* 0: not the home */
};

static struct mapping mappings[MAPPINGS];
static unsigned mapping_count;

static struct mapping *mapping_find(uint64_t address)
{
    for (unsigned i = 0; i < mapping_count; i++) {
        if (mappings[i].address == address)
            return &mappings[i];
    }
    return NULL;
}

/* A note `gone` may be of an address where nothing is mapped. */
static void line_read(const char *line)
{
    struct mapping read = { .address = 0 };
    if (sscanf(line, "#@ home %" SCNu64 " %" SCNu64 " %" SCNu64, &read.chunk, &read.address,
               &read.bytes) == 3 ||
        sscanf(line, "#@ place %" SCNu64 " %" SCNu64, &read.chunk, &read.address) == 2) {
        assert_null(mapping_find(read.address));
        assert_true(mapping_count < MAPPINGS);
        mappings[mapping_count++] = read;
    } else if (sscanf(line, "#@ gone %" SCNu64, &read.address) == 1) {
        struct mapping *gone = mapping_find(read.address);
        if (gone != NULL)
            *gone = mappings[--mapping_count];
    }
}

static void mappings_read(const char *path)
{
    char line[TRACE_LINE + 2];
    FILE *file = trace_open(path);
    assert_non_null(file);
    mapping_count = 0;
    while (fgets(line, sizeof line, file) != NULL)
        line_read(line);
    (void)fclose(file);
}

static void mapping_expect(uint64_t address, uint64_t chunk, uint64_t bytes)
{
    const struct mapping *found = mapping_find(address);
    assert_non_null(found);
    assert_int_equal(found->chunk, chunk);
    assert_int_equal(found->bytes, bytes);
}

/* Ends the recording. Its mappings are those of the cache. Returns how many are in views. */
static unsigned recording_compare(struct cache_test *test, const char *path)
{
    const struct vm *vm = &test->cache->vm;
    unsigned homes = 0;
    unsigned places = 0;
    assert_ok(vmm_trace_stop(test->cache));
    mappings_read(path);
    for (uint32_t id = 1; id < vm->record_high; id++) {
        const struct chunk *chunk = &vm->records[id];
        if (!chunk->is_mapped || chunk->is_alias)
            continue;
        uint64_t home = vmm__sourced_outer(vm, vmm__chunk_address(vm, chunk));
        mapping_expect(home, id, vmm__chunk_bytes(vm, chunk));
        homes++;
        for (uint64_t at = chunk->place; at != NO_GRANULE; at = vm->next_places[at], places++)
            mapping_expect(vmm__arena_address(&vm->arena, at), id, 0);
    }
    assert_int_equal(mapping_count, homes + places);
    return places;
}

static const char *recording_begin(struct cache_test *test)
{
    const char *path = trace_path();
    assert_ok(vmm_trace_start(test->cache, path, NULL));
    return path;
}

/* ---- Steps ------------------------------------------------------------------------------------ */

static void slot_step(struct cache_test *test, void **slot, uint64_t *seed)
{
    size_t bytes = random_bytes(seed, 24 * MIB);
    if (*slot == NULL) {
        if (vmm_alloc(test->cache, bytes, test->streams[random_next(seed) % 2], slot) != VMM_OK)
            *slot = NULL;
    } else if (random_next(seed) % 4 == 0) {
        (void)!vmm_resize(test->cache, *slot, bytes, slot);
    } else {
        block_free(test, *slot);
        *slot = NULL;
    }
}

/* Random calls near a limit: chunks enter views, are resized, moved and returned. */
static void steps_run(struct cache_test *test, void **slots, uint64_t *seed)
{
    for (unsigned round = 0; round < ROUNDS; round++) {
        slot_step(test, &slots[random_next(seed) % SLOTS], seed);
        if (round % 500 == 499)
            (void)cache_trim(test, random_next(seed) % CACHE_LIMIT);
    }
}

static void slots_free(struct cache_test *test, void **slots)
{
    for (unsigned i = 0; i < SLOTS; i++)
        assert_ok(vmm_free(test->cache, slots[i]));
}

/* ---- Tests ------------------------------------------------------------------------------------ */

CACHE_TEST(mappings_are_recorded_from_the_first_on)
{
    void *slots[SLOTS] = { NULL };
    uint64_t seed = 11;
    cache_restart_with(test, .footprint_permille = 0, .limit_bytes = CACHE_LIMIT);
    const char *path = recording_begin(test);
    steps_run(test, slots, &seed);
    assert_true(cache_stats(test).places > 0);
    assert_true(recording_compare(test, path) > 0);
    slots_free(test, slots);
}

CACHE_TEST(a_recording_begins_with_the_mappings_that_there_are)
{
    void *slots[SLOTS] = { NULL };
    uint64_t seed = 12;
    cache_restart_with(test, .footprint_permille = 0, .limit_bytes = CACHE_LIMIT);
    steps_run(test, slots, &seed);
    unsigned places = (unsigned)cache_stats(test).places;
    const char *path = recording_begin(test);
    assert_int_equal(recording_compare(test, path), places);
    path = recording_begin(test);
    steps_run(test, slots, &seed);
    (void)recording_compare(test, path);
    slots_free(test, slots);
    path = recording_begin(test);
    assert_ok(vmm_wait(test->cache));
    (void)cache_trim(test, 0);
    (void)recording_compare(test, path);
    assert_int_equal(mapping_count, 0);
}

/* Pieces of large chunks, of every two one is free: only a compaction makes room. */
CACHE_TEST(a_compaction_is_recorded)
{
    enum { PIECES = 32 };
    void *pieces[PIECES];
    cache_restart_with(test, .footprint_permille = VMM_FOOTPRINT_ANY, .compaction = VMM_ON);
    large_chunks_make(test, 96 * MIB, 1);
    assert_ok(vmm_limit_set(test->cache, CACHE_LIMIT));
    const char *path = recording_begin(test);
    for (int i = 0; i < PIECES; i++)
        pieces[i] = block_alloc(test, 3 * MIB, 1);
    for (int i = 0; i < PIECES; i += 2)
        block_free(test, pieces[i]);
    work_verify(test);
    (void)block_alloc(test, 48 * MIB, 2);
    assert_true(test->cache->counts.compactions > 0);
    (void)recording_compare(test, path);
}

CACHE_TEST(units_and_sleeping_chunks_keep_their_mappings)
{
    void *block = NULL;
    const char *path = recording_begin(test);
    vmm_pool *pool = pool_in_with(test->cache, NULL);
    assert_ok(vmm_reserve(pool, 16 * MIB, 0, test->streams[0], &block));
    assert_ok(vmm_commit(test->cache, block, 0, 8 * MIB));
    assert_ok(vmm_decommit(test->cache, block, 2 * MIB, 2 * MIB));
    assert_ok(vmm_pool_sleep(&pool, 1, NULL, NULL));
    (void)recording_compare(test, path);
    path = recording_begin(test);
    assert_ok(vmm_pool_wake(&pool, 1, NULL, NULL));
    (void)recording_compare(test, path);
}

CACHE_TEST(segments_of_a_source_have_the_addresses_of_the_source)
{
    struct source *source = source_open(test);
    vmm_pool *pool = pool_make(test, .source = source_of(source, 0));
    const char *path = recording_begin(test);
    void *block = block_in_pool(pool, 3 * MIB, test->streams[0]);
    (void)recording_compare(test, path);
    assert_true(mapping_count > 0 && mapping_find((uintptr_t)block) != NULL);
    block_free(test, block);
    path = recording_begin(test);
    assert_ok(vmm_pool_destroy(pool, 0));
    (void)recording_compare(test, path);
    source_close(source);
}

CACHE_MAIN()
