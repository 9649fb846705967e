/* Pools with a source: their memory is that of a pair of functions of the program. */
#define _DEFAULT_SOURCE
#include "support/find_support.h"
#include "support/source_support.h"

#include "cache/cache.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

enum { SEGMENT = 20 * MIB };

#define sourced_make(test, from, ...)                                                              \
    pool_make(test, .name = "sourced", .source = source_of(from, 0), __VA_ARGS__)

static void sourced_end(struct cache_test *test, struct source *source)
{
    cache_give_back(test);
    source_close(source);
    cache_verify_empty(test);
}

/* A test of a pool with a source whose segments have so many bytes; 0: as many as a block needs. */
#define SOURCED_TEST(title, segment_bytes)                                                         \
    static void title##_sourced(struct cache_test *test, struct source *source, vmm_pool *pool);   \
    CACHE_TEST(title)                                                                              \
    {                                                                                              \
        struct source *source = source_open(test);                                                 \
        vmm_pool *pool =                                                                           \
            pool_make(test, .name = "sourced", .source = source_of(source, segment_bytes));        \
        title##_sourced(test, source, pool);                                                       \
        sourced_end(test, source);                                                                 \
    }                                                                                              \
    static void title##_sourced(struct cache_test *test __attribute__((unused)),                   \
                                struct source *source __attribute__((unused)),                     \
                                vmm_pool *pool __attribute__((unused)))

/* ---- Blocks -------------------------------------------------------------------------------- */

SOURCED_TEST(blocks_lie_in_segments_of_the_source, SEGMENT)
{
    char *large = pool_alloc(test, pool, 5 * MIB, 1);
    assert_int_equal(source->last_bytes, SEGMENT);
    char *small = pool_alloc(test, pool, 100, 1);
    assert_int_equal(source->last_bytes, 2 * MIB);
    char *more = pool_alloc(test, pool, 6 * MIB, 1); /* in the first segment */
    assert_int_equal(source->allocs, 2);
    vmm_item item = VMM_ITEM_INIT;
    assert_ok(both_find(source->cache, large, &item)); /* the source knows the address */
    assert_ok(both_find(source->cache, more + 1, &item));
    assert_ok(both_find(source->cache, small + 99, &item));
    assert_int_equal(pool_reserved(pool), SEGMENT + 2 * MIB);
    assert_int_equal(cache_stats(test).reserved_bytes.current, SEGMENT + 2 * MIB);
    block_fill(test, large, 5 * MIB, 1, 1);
    block_fill(test, more, 6 * MIB, 2, 1);
    block_check(test, large, 5 * MIB, 1, 1);
    block_check(test, more, 6 * MIB, 2, 1);
    sourced_verify(test);
}

/* Segments are sorted, and lie apart from each other and from the arena. */
SOURCED_TEST(the_check_finds_segments_that_overlap, 0)
{
    struct vm *vm = &test->cache->vm;
    (void)pool_alloc(test, pool, 5 * MIB, 1);
    (void)pool_alloc(test, pool, 7 * MIB, 1);
    assert_ok(vmm__sourced_check(vm));
    struct sourced_segment *second = vm->segments.sorted[1];
    const uint64_t wrong[] = { vm->segments.sorted[0]->outer + 2 * MIB, vm->arena.address };
    uint64_t outer = second->outer;
    for (int i = 0; i < 2; i++) {
        second->outer = wrong[i];
        assert_status(vmm__sourced_check(vm), VMM_ERR_INTERNAL);
        assert_non_null(strstr(vmm_last_error(), "overlaps"));
    }
    second->outer = outer;
    assert_ok(vmm__sourced_check(vm));
}

SOURCED_TEST(a_segment_is_as_large_as_a_block_that_needs_more, 0)
{
    (void)pool_alloc(test, pool, 33 * MIB + 1, 1);
    assert_int_equal(source->last_bytes, 34 * MIB);
}

SOURCED_TEST(freed_blocks_are_cached_in_stream_order, 0)
{
    void *first = pool_alloc(test, pool, 8 * MIB, 1);
    bool is_certain = flight_begin(test, first, 8 * MIB, 1);
    block_free(test, first);
    assert_ptr_equal(pool_alloc(test, pool, 8 * MIB, 1), first); /* the same stream: at once */
    block_free(test, first);
    void *other = pool_alloc(test, pool, 8 * MIB, 2);
    if (is_certain)
        assert_ptr_not_equal(other, first);
    flight_end(test);
    block_free(test, other);
    work_verify(test);
    uint64_t allocs = source->allocs;
    (void)pool_alloc(test, pool, 8 * MIB, 3); /* an idle segment of another stream */
    assert_int_equal(source->allocs, allocs);
}

SOURCED_TEST(addresses_of_the_source_need_no_alignment_above_512, 0)
{
    source->shift = 512;
    char *block = pool_alloc(test, pool, 3 * MIB, 1);
    (void)pool_alloc(test, pool, 1000, 1);
    assert_int_equal((uintptr_t)block % 512, 0);
    block_fill(test, block, 3 * MIB, 7, 1);
    block_check(test, block, 3 * MIB, 7, 1);
    vmm_item item = VMM_ITEM_INIT;
    assert_ok(both_find(test->cache, block + 17, &item));
    assert_int_equal(item.address, (uintptr_t)block);
    sourced_verify(test);
}

SOURCED_TEST(pushes_and_routes_lead_to_a_source, 0)
{
    assert_ok(vmm_pool_push(pool));
    void *pushed = block_alloc(test, 3 * MIB, 1);
    assert_ok(vmm_pool_pop(pool));
    assert_ok(vmm_pool_route(pool, NULL, NULL));
    void *routed = block_alloc(test, 300, 1);
    assert_ok(vmm_pool_unroute(pool));
    assert_ptr_equal(block_find(test, pushed).pool, pool);
    assert_ptr_equal(block_find(test, routed).pool, pool);
}

SOURCED_TEST(a_block_that_another_stream_uses_waits, 0)
{
    void *block = pool_alloc(test, pool, 4 * MIB, 1);
    bool is_certain = flight_begin(test, block, 4 * MIB, 2);
    assert_ok(vmm_record_stream(test->cache, block, test->streams[2]));
    block_free(test, block);
    if (is_certain) {
        assert_int_equal(cache_scan(test).waiting_blocks, 1);
        assert_int_equal(pool_trim(pool, 0), 0);
    }
    flight_end(test);
    work_verify(test);
    assert_int_equal(pool_trim(pool, 0), 4 * MIB);
    assert_int_equal(source->frees, 1);
}

SOURCED_TEST(names_pins_and_wrong_pointers_know_the_outer_address, 0)
{
    char line[64];
    char *block = pool_alloc(test, pool, 3 * MIB, 1);
    assert_ok(vmm_name(test->cache, block, "logits"));
    assert_string_equal(block_find(test, block).name, "logits");
    assert_ok(vmm_pin(test->cache, block));
    assert_int_equal(cache_stats(test).unmovable_bytes, 3 * MIB);
    assert_ok(vmm_unpin(test->cache, block));
    assert_status(vmm_free(test->cache, block + 512), VMM_ERR_UNKNOWN_POINTER);
    (void)snprintf(line, sizeof line, "byte 512 of the block at 0x%llx",
                   (unsigned long long)(uintptr_t)block);
    assert_non_null(strstr(vmm_last_error(), line));
    block_free(test, block);
    assert_status(vmm_free(test->cache, block), VMM_ERR_UNKNOWN_POINTER);
    (void)snprintf(line, sizeof line, "0x%llx", (unsigned long long)(uintptr_t)block);
    assert_non_null(strstr(vmm_last_error(), line));
}

/* A segment's inner addresses may have been those of other blocks. */
SOURCED_TEST(a_stale_pointer_frees_no_block_of_a_source, 0)
{
    char *stale[64];
    char *live[64];
    vmm_item item = VMM_ITEM_INIT;
    for (int i = 0; i < 64; i++)
        stale[i] = pool_alloc(test, vmm_cache_pool(test->cache), 1, (unsigned)i % 4);
    for (int i = 0; i < 64; i++)
        block_free(test, stale[i]);
    cache_trim_all(test);
    for (int i = 0; i < 64; i++)
        live[i] = pool_alloc(test, pool, 1, (unsigned)i % 4);
    uint64_t inner = vmm__sourced_inner(&test->cache->vm, (uintptr_t)live[0]);
    assert_int_not_equal(inner, (uintptr_t)live[0]);
    void *pointer = (void *)(uintptr_t)inner;
    assert_status(vmm_free(test->cache, pointer), VMM_ERR_UNKNOWN_POINTER);
    assert_status(vmm_pin(test->cache, pointer), VMM_ERR_UNKNOWN_POINTER);
    assert_status(both_find(test->cache, pointer, &item), VMM_ERR_UNKNOWN_POINTER);
    assert_status(vmm_record_stream(test->cache, pointer, test->streams[2]),
                  VMM_ERR_UNKNOWN_POINTER);
    assert_refused(vmm_pool_place(pool, pointer, 1, test->streams[0]), "no free memory there");
    for (int i = 0; i < 64; i++) {
        assert_status(vmm_free(test->cache, stale[i]), VMM_ERR_UNKNOWN_POINTER);
        assert_int_equal(block_find(test, live[i]).requested_bytes, 1);
    }
}

SOURCED_TEST(a_block_is_resized_in_its_segment_or_copied, SEGMENT)
{
    void *block = pool_alloc(test, pool, 5 * MIB, 1);
    block_fill(test, block, 5 * MIB, 3, 1);
    void *grown = NULL;
    assert_ok(vmm_resize(test->cache, block, 12 * MIB, &grown));
    assert_ptr_equal(grown, block);
    void *moved = NULL;
    assert_ok(vmm_resize(test->cache, grown, 24 * MIB, &moved));
    assert_ptr_not_equal(moved, block);
    assert_int_equal(source->allocs, 2);
    block_check(test, moved, 5 * MIB, 3, 1);
    work_verify(test);
    sourced_verify(test);
}

SOURCED_TEST(a_placed_block_returns_to_its_address, 0)
{
    char *block = pool_alloc(test, pool, 3 * MIB, 1);
    char *small = pool_alloc(test, pool, 700, 1);
    assert_ok(vmm_pool_retain(pool));
    block_free(test, block);
    block_free(test, small);
    assert_ok(vmm_pool_place(pool, small, 700, test->streams[1]));
    assert_ok(vmm_pool_place(pool, block, 3 * MIB, test->streams[1]));
    assert_refused(vmm_pool_place(pool, block, 3 * MIB, test->streams[1]), "in the way");
    assert_ptr_equal(block_find(test, block).pool, pool);
    assert_ok(vmm_pool_drop(pool));
}

/* ---- Segments back ------------------------------------------------------------------------- */

SOURCED_TEST(a_trim_gives_whole_idle_segments_back, SEGMENT)
{
    void *kept = pool_alloc(test, pool, 2 * MIB, 1);
    void *beside = pool_alloc(test, pool, 10 * MIB, 1);
    void *alone = pool_alloc(test, pool, 30 * MIB, 1);
    assert_int_equal(source->allocs, 2);
    block_free(test, beside);
    block_free(test, alone);
    work_verify(test);
    assert_int_equal(cache_trim(test, 0), 30 * MIB);
    assert_int_equal(source->frees, 1);
    assert_int_equal(pool_reserved(pool), SEGMENT);
    sourced_verify(test);
    block_free(test, kept);
    assert_int_equal(pool_trim(pool, 0), SEGMENT);
    assert_int_equal(source->frees, 2);
}

SOURCED_TEST(idle_segments_go_back_before_a_request_of_another_pool_fails, 0)
{
    block_free(test, pool_alloc(test, pool, 64 * MIB, 1));
    void *block = block_alloc(test, CACHE_LIMIT - 16 * MIB, 2);
    assert_ptr_equal(block_find(test, block).pool, vmm_cache_pool(test->cache));
    assert_int_equal(source->frees, 1);
}

SOURCED_TEST(a_pool_with_live_blocks_stays, 0)
{
    (void)pool_alloc(test, pool, 64 * MIB, 1);
    assert_refused(vmm_pool_destroy(pool, 0), "has live blocks");
    assert_refused(vmm_pool_destroy(pool, 1), "that of its source");
}

SOURCED_TEST(the_end_of_a_pool_waits_for_its_work, 0)
{
    for (int i = 0; i < 8; i++) {
        void *block = pool_alloc(test, pool, 8 * MIB, (unsigned)i % 4);
        block_fill(test, block, 8 * MIB, 3, (unsigned)i % 4);
        block_free(test, block);
    }
}

CACHE_TEST(the_end_of_the_cache_gives_live_segments_back)
{
    struct source *source = source_open(test);
    vmm_pool_options options = { .struct_size = sizeof options, .source = source_of(source, 0) };
    vmm_cache *cache = cache_second(test);
    vmm_pool *pool = pool_in_with(cache, &options);
    void *block = block_in_pool(pool, 8, test->streams[2]);
    assert_ok(vmm_alloc_from(pool, 8 * MIB, test->streams[1], &block));
    block_fill(test, block, 8 * MIB, 3, 1);
    assert_ok(vmm_destroy(cache));
    assert_int_equal(source->frees, 2);
    source_close(source);
}

CACHE_TEST(decay_gives_segments_back)
{
    cache_restart_with(test, .decay_ms = 1, .decay_thread = VMM_OFF);
    struct source *source = source_open(test);
    vmm_pool *pool = sourced_make(test, source, .limit_bytes = 0);
    block_free(test, pool_alloc(test, pool, 8 * MIB, 1));
    work_verify(test);
    for (int i = 0; i < 1000 && source->frees == 0; i++) {
        usleep(2000);
        assert_ok(vmm_poll(test->cache));
    }
    assert_int_equal(source->frees, 1);
    sourced_end(test, source);
}

CACHE_TEST(without_caching_each_free_gives_a_segment_back)
{
    cache_restart_with(test, .no_caching = VMM_ON);
    struct source *source = source_open(test);
    vmm_pool *pool = pool_make(test, .source = source_of(source, SEGMENT));
    void *block = pool_alloc(test, pool, 3 * MIB, 1);
    void *small = pool_alloc(test, pool, 3, 1);
    assert_int_equal(source->live_bytes, 6 * MIB);
    block_free(test, block);
    block_free(test, small);
    assert_int_equal(source->frees, 2);
    sourced_end(test, source);
}

/* ---- Refusals ------------------------------------------------------------------------------ */

SOURCED_TEST(a_source_without_memory_is_out_of_memory, 0)
{
    source->refusals = 1000;
    void *block = test;
    assert_status(vmm_alloc_from(pool, 3 * MIB, test->streams[1], &block), VMM_ERR_DEVICE_OOM);
    assert_non_null(strstr(vmm_last_error(), "pool sourced"));
    assert_non_null(strstr(vmm_last_error(), "source"));
    assert_ptr_equal(block, test);
    source->refusals = 0;
    block_free(test, pool_alloc(test, pool, 3 * MIB, 1));
}

SOURCED_TEST(a_source_is_asked_again_after_memory_was_released, 0)
{
    block_free(test, block_alloc(test, 64 * MIB, 1));
    work_verify(test);
    source->refusals = 1;
    block_free(test, pool_alloc(test, pool, 30 * MIB, 1));
    assert_true(cache_stats(test).reserved_bytes.current <= 64 * MIB);
}

CACHE_TEST(limits_count_segments)
{
    struct source *source = source_open(test);
    vmm_pool *pool = sourced_make(test, source, .limit_bytes = 16 * MIB);
    void *block = pool_alloc(test, pool, 10 * MIB, 1);
    void *more = NULL;
    assert_status(vmm_alloc_from(pool, 8 * MIB, test->streams[1], &more), VMM_ERR_DEVICE_OOM);
    assert_non_null(strstr(vmm_last_error(), "pool sourced"));
    assert_int_equal(source->allocs, 1);
    assert_ok(vmm_pool_limit_set(pool, 0));
    assert_status(vmm_alloc_from(pool, CACHE_LIMIT, test->streams[1], &more), VMM_ERR_DEVICE_OOM);
    assert_int_equal(source->allocs, 1);
    block_free(test, block);
    sourced_end(test, source);
}

SOURCED_TEST(memory_that_cannot_be_used_goes_back_at_once, 0)
{
    void *block = NULL;
    source->shift = 8;
    assert_refused(vmm_alloc_from(pool, 3 * MIB, test->streams[1], &block), "no multiple of 512");
    source->shift = 0;
    source->same = block_alloc(test, 8 * MIB, 1);
    assert_refused(vmm_alloc_from(pool, 3 * MIB, test->streams[1], &block), "of this cache");
    block_free(test, source->same);
    source->same = NULL;
    void *first = pool_alloc(test, pool, 3 * MIB, 1);
    source->same = (char *)first + 2 * MIB;
    assert_refused(vmm_alloc_from(pool, 8 * MIB, test->streams[1], &block), "gave before");
    source->same = (char *)first - 512; /* and ends in it */
    assert_refused(vmm_alloc_from(pool, 8 * MIB, test->streams[1], &block), "gave before");
    source->same = NULL;
    assert_null(block);
    assert_int_equal(source->allocs, source->frees + 1);
}

SOURCED_TEST(what_needs_mappings_is_refused, 0)
{
    void *block = pool_alloc(test, pool, 3 * MIB, 1);
    void *out = NULL;
    vmm_share *share = NULL;
    assert_refused(vmm_pool_sleep(&pool, 1, NULL, NULL), "pool sourced has a source");
    assert_status(vmm_reserve(pool, 64 * MIB, 0, test->streams[1], &out), VMM_ERR_UNSUPPORTED);
    assert_non_null(strstr(vmm_last_error(), "pool sourced has a source"));
    assert_status(vmm_alloc_aligned(pool, 3 * MIB, 4096, test->streams[1], &out),
                  VMM_ERR_UNSUPPORTED);
    assert_non_null(strstr(vmm_last_error(), "pool sourced"));
    assert_refused(vmm_share_export(test->cache, block, &share), "is memory of a source");
    assert_status(vmm_commit(test->cache, block, 0, 2 * MIB), VMM_ERR_UNKNOWN_POINTER);
    assert_ok(vmm_alloc_aligned(pool, 3 * MIB, 512, test->streams[1], &out));
}

CACHE_TEST(wrong_options_are_refused)
{
    vmm_pool *pool = NULL;
    struct source *source = source_open(test);
    vmm_pool_options options = VMM_POOL_OPTIONS_INIT;
    options.source.alloc = source_alloc;
    assert_refused(vmm_pool_create(test->cache, &options, &pool), "no function free");
    options.source = (vmm_segment_source){ .free = source_free };
    assert_refused(vmm_pool_create(test->cache, &options, &pool), "no function alloc");
    options.source = (vmm_segment_source){ .segment_bytes = 1 };
    assert_refused(vmm_pool_create(test->cache, &options, &pool), "no function alloc");
    options.source = (vmm_segment_source)source_of(source, 0);
    options.shareable = 1;
    assert_refused(vmm_pool_create(test->cache, &options, &pool), "cannot be exported");
    assert_null(pool);
    source_close(source);
}

/* ---- With other options -------------------------------------------------------------------- */

CACHE_TEST(a_pool_with_no_split_has_a_segment_for_each_block)
{
    struct source *source = source_open(test);
    vmm_pool *pool = pool_make(test, .no_split = 1, .source = source_of(source, SEGMENT));
    void *block = pool_alloc(test, pool, 3 * MIB, 1);
    void *small = pool_alloc(test, pool, 3, 1);
    assert_int_equal(source->live_bytes, 6 * MIB);
    block_free(test, block);
    assert_ptr_equal(pool_alloc(test, pool, 4 * MIB, 1), block);
    assert_int_equal(source->allocs, 2);
    sourced_verify(test);
    block_free(test, block);
    block_free(test, small);
    sourced_end(test, source);
}

CACHE_TEST(a_pool_with_use_on_oom_lends_its_segments)
{
    struct source *source = source_open(test);
    vmm_pool *pool = sourced_make(test, source, .use_on_oom = 1);
    assert_ok(vmm_pool_retain(pool));
    void *first = pool_alloc(test, pool, 96 * MIB, 1);
    block_free(test, first);
    void *block = block_alloc(test, 64 * MIB, 2);
    assert_ptr_equal(block, first);
    assert_ptr_equal(block_find(test, block).pool, pool);
    block_fill(test, block, 64 * MIB, 5, 2);
    block_check(test, block, 64 * MIB, 5, 2);
    work_verify(test);
    block_free(test, block);
    assert_ok(vmm_pool_drop(pool));
    sourced_end(test, source);
}

CACHE_TEST(a_graph_pool_keeps_its_segments_until_its_end)
{
    struct source *source = source_open(test);
    vmm_pool *pool = sourced_make(test, source, .kind = VMM_POOL_GRAPH);
    void *first = pool_alloc(test, pool, 8 * MIB, 1);
    assert_ok(vmm_pool_route(pool, NULL, NULL));
    capture_begin(test, 1);
    void *block = block_alloc(test, 8 * MIB, 1);
    block_free(test, block);
    assert_ptr_equal(block_alloc(test, 8 * MIB, 1), block);
    assert_refused(vmm_pool_destroy(pool, 0), "is pushed or routed");
    block_free(test, block);
    block_free(test, first);
    assert_ok(vmm_pool_unroute(pool));
    assert_refused(vmm_pool_destroy(pool, 0), "capture");
    capture_end(test, 1);
    work_verify(test);
    assert_int_equal(pool_trim(pool, 0), 0);
    assert_int_equal(source->frees, 0);
    sourced_end(test, source);
}

SOURCED_TEST(the_functions_of_a_source_may_call_the_cache, 0)
{
    source->calls = test->cache;
    block_free(test, pool_alloc(test, pool, 3 * MIB, 1));
    work_verify(test);
    assert_int_equal(cache_trim(test, 0), 4 * MIB);
    block_free(test, pool_alloc(test, pool, 3 * MIB, 1));
}

/* ---- Reports ------------------------------------------------------------------------------- */

static int item_note(void *context, const vmm_item *item)
{
    uint64_t *sums = context;
    sums[item->kind] += item->bytes;
    return 0;
}

SOURCED_TEST(a_walk_shows_segments_at_their_addresses, SEGMENT)
{
    uint64_t sums[2] = { 0, 0 };
    for (unsigned i = 0; i < 6; i++)
        (void)pool_alloc(test, pool, (7 + 3 * i) * MIB / 2, i % 4);
    (void)block_alloc(test, 3 * MIB, 1);
    sourced_verify(test); /* addresses rise */
    assert_ok(vmm_pool_walk(pool, item_note, sums));
    assert_int_equal(sums[VMM_ITEM_CHUNK], pool_reserved(pool));
    assert_int_equal(sums[VMM_ITEM_BLOCK], pool_reserved(pool));
}

/* ---- Random calls -------------------------------------------------------------------------- */

SOURCED_TEST(random_calls_keep_contents_and_sums, 8 * MIB)
{
    enum { BLOCKS = 24, ROUNDS = 600 };
    void *blocks[BLOCKS] = { NULL };
    size_t sizes[BLOCKS];
    uint64_t seed = 11;
    for (int round = 0; round < ROUNDS; round++) {
        unsigned i = (unsigned)(random_next(&seed) % BLOCKS);
        unsigned stream = i % 4;
        if (blocks[i] != NULL && sizes[i] >= 512)
            block_check(test, blocks[i], sizes[i] & ~(size_t)511, i, stream);
        block_free(test, blocks[i]);
        blocks[i] = NULL;
        sizes[i] = random_bytes(&seed, 12 * MIB);
        source->refusals = random_next(&seed) % 16 == 0 ? 1 : 0;
        vmm_status status = vmm_alloc_from(i % 3 == 0 ? vmm_cache_pool(test->cache) : pool,
                                           sizes[i], test->streams[stream], &blocks[i]);
        if (status != VMM_ERR_DEVICE_OOM)
            assert_ok(status);
        if (status == VMM_OK && sizes[i] >= 512)
            block_fill(test, blocks[i], sizes[i] & ~(size_t)511, i, stream);
        if (round % 50 == 0) {
            work_verify(test);
            (void)pool_trim(pool, 0);
            sourced_verify(test);
            assert_int_equal(source->live_bytes, pool_reserved(pool));
        }
    }
}

/* ---- Threads ------------------------------------------------------------------------------- */

enum { THREADS = 4, STEPS = 300, SLOTS = 32 };

struct crowd {
    struct cache_test *test;
    vmm_pool *pool;
    _Atomic(void *) slots[SLOTS]; /* any thread frees what any other made */
    atomic_uint seed;
};

static void *crowd_run(void *context)
{
    struct crowd *crowd = context;
    uint64_t seed = ++crowd->seed;
    for (int step = 0; step < STEPS; step++) {
        uint64_t bits = random_next(&seed);
        void *block = NULL;
        vmm_stream stream = crowd->test->streams[bits % 4];
        vmm_status status =
            vmm_alloc_from(crowd->pool, random_bytes(&seed, 6 * MIB), stream, &block);
        assert_true(status == VMM_OK || status == VMM_ERR_DEVICE_OOM);
        if (block != NULL && bits % 8 == 0)
            assert_ok(vmm_record_stream(crowd->test->cache, block, crowd->test->streams[0]));
        block = atomic_exchange(&crowd->slots[bits / 8 % SLOTS], block);
        assert_ok(vmm_free(crowd->test->cache, block));
        if (bits % 64 == 0)
            assert_ok(vmm_pool_trim(crowd->pool, 0, NULL));
    }
    return NULL;
}

CACHE_TEST(threads_share_a_source)
{
    struct source *source = source_open(test);
    struct crowd crowd = { .test = test,
                           .pool = pool_make(test, .source = source_of(source, 8 * MIB)) };
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, crowd_run, &crowd), 0);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    sourced_verify(test);
    for (int i = 0; i < SLOTS; i++)
        block_free(test, crowd.slots[i]);
    work_verify(test);
    sourced_verify(test);
    sourced_end(test, source);
}

/* ---- Wakes --------------------------------------------------------------------------------- */

/* A wake gives no segment back, so it needs idle memory of the cache itself, whichever comes first. */
CACHE_TEST(a_wake_releases_idle_memory_behind_idle_segments)
{
    for (unsigned is_last = 0; is_last < 2; is_last++) {
        cache_restart_with(test, .limit_bytes = 64 * MIB);
        struct source *source = source_open(test);
        vmm_pool *sleeper = pool_make(test, .name = "sleeper");
        vmm_pool *pools[2];
        pools[is_last] = sourced_make(test, source, .limit_bytes = 0);
        pools[1 - is_last] = pool_make(test, .name = "idle");
        (void)pool_alloc(test, sleeper, 24 * MIB, 1);
        assert_ok(vmm_pool_sleep(&sleeper, 1, NULL, NULL));
        for (unsigned i = 0; i < 2; i++)
            block_free(test, pool_alloc(test, pools[i], 24 * MIB, 2));
        assert_ok(vmm_wait(test->cache));
        assert_ok(vmm_pool_wake(&sleeper, 1, NULL, NULL));
        assert_int_equal(pool_reserved(pools[is_last]), 24 * MIB);
        assert_int_equal(source->frees, 0);
        sourced_end(test, source);
    }
}

/* ---- Waits --------------------------------------------------------------------------------- */

enum { FREES = 256, PATIENCE_MS = 5000 };

struct passer {
    vmm_cache *cache;
    void *blocks[FREES];
    atomic_int steps; /* that have ended */
    bool has_failed;
};

static void *passer_main(void *context)
{
    struct passer *passer = context;
    passer->has_failed = vmm_poll(passer->cache) != VMM_OK;
    atomic_fetch_add(&passer->steps, 1);
    for (unsigned i = 0; i < FREES; i++)
        passer->has_failed |= vmm_free(passer->cache, passer->blocks[i]) != VMM_OK;
    atomic_fetch_add(&passer->steps, 1);
    return NULL;
}

/* Segments may be ready while another thread allocates, which may wait for the device. Then vmm_poll() and the work
 * that is due after a free leave them to a later call. */
CACHE_TEST(polls_and_frees_do_not_wait_for_a_thread_that_allocates)
{
    struct passer passer = { .has_failed = false };
    pthread_t thread;
    cache_restart_with(test, .decay_ms = 1, .decay_thread = VMM_OFF);
    passer.cache = test->cache;
    for (unsigned i = 0; i < FREES; i++)
        passer.blocks[i] = block_alloc(test, 4096, 1);
    vmm__fair_lock(&test->cache->grow_lock); /* as that thread does */
    atomic_store(&test->cache->vm.segments.has_ready, true);
    (void)usleep(5000); /* decay is due */
    assert_int_equal(pthread_create(&thread, NULL, passer_main, &passer), 0);
    for (int i = 0; i < PATIENCE_MS && atomic_load(&passer.steps) < 2; i++)
        (void)usleep(1000);
    int steps = atomic_load(&passer.steps);
    vmm__fair_unlock(&test->cache->grow_lock);
    (void)pthread_join(thread, NULL);
    assert_int_equal(steps, 2);
    assert_false(passer.has_failed);
    assert_ok(vmm_poll(test->cache));
    assert_false(atomic_load(&test->cache->vm.segments.has_ready));
}

/* The end of a pool while another thread runs a function of its source. */
struct crosser {
    struct source *source;
    struct cache_test *test;
    void *block;
    bool gives; /* a segment back; else it gets one */
    atomic_bool has_begun;
    bool has_failed;
};

static void *alloc_slowly(void *context, size_t bytes, vmm_stream stream)
{
    struct crosser *crosser = context;
    atomic_store(&crosser->has_begun, !crosser->gives);
    (void)usleep(crosser->gives ? 0 : 50000);
    return source_alloc(crosser->source, bytes, stream);
}

static void free_slowly(void *context, void *segment, size_t bytes)
{
    struct crosser *crosser = context;
    atomic_store(&crosser->has_begun, crosser->gives);
    (void)usleep(crosser->gives ? 50000 : 0);
    source_free(crosser->source, segment, bytes);
}

static void *crosser_main(void *context)
{
    struct crosser *crosser = context;
    struct cache_test *test = crosser->test;
    vmm_status status = crosser->gives
                            ? vmm_trim(test->cache, 0, NULL)
                            : vmm_alloc(test->cache, 3 * MIB, test->streams[1], &crosser->block);
    crosser->has_failed = status != VMM_OK;
    return NULL;
}

static pthread_t crosser_start(struct crosser *crosser)
{
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, crosser_main, crosser), 0);
    while (!atomic_load(&crosser->has_begun))
        (void)usleep(100);
    return thread;
}

/* Afterwards the program may free what the functions of the source use. */
CACHE_TEST(the_end_of_a_pool_waits_for_a_segment_that_goes_back)
{
    struct crosser crosser = { .source = source_open(test), .test = test, .gives = true };
    vmm_pool *pool = pool_make(test, .source = { alloc_slowly, free_slowly, &crosser, 0 });
    block_free(test, pool_alloc(test, pool, 3 * MIB, 1));
    pthread_t thread = crosser_start(&crosser);
    vmm_status status = vmm_pool_destroy(pool, 0);
    unsigned frees = crosser.source->frees;
    (void)pthread_join(thread, NULL);
    assert_ok(status);
    assert_int_equal(frees, 1);
    assert_false(crosser.has_failed);
    source_close(crosser.source);
}

/* A request to which a route led knows nothing of the route's end. */
CACHE_TEST(the_end_of_a_pool_waits_for_a_segment_that_comes)
{
    struct crosser crosser = { .source = source_open(test), .test = test };
    vmm_pool *pool = pool_make(test, .source = { alloc_slowly, free_slowly, &crosser, 0 });
    assert_ok(vmm_pool_route(pool, NULL, NULL));
    pthread_t thread = crosser_start(&crosser);
    vmm_status unrouted = vmm_pool_unroute(pool);
    vmm_status status = vmm_pool_destroy(pool, 0);
    (void)pthread_join(thread, NULL);
    assert_ok(unrouted);
    assert_status(status, VMM_ERR_INVALID_ARGUMENT);
    assert_false(crosser.has_failed);
    assert_in_pool(test, crosser.block, pool);
    sourced_end(test, crosser.source);
}

/* ---- Lines of errors ------------------------------------------------------------------------ */

static uint64_t clock_read(void *context)
{
    return *(const uint64_t *)context;
}

static void free_after_failure(void *context, void *segment, size_t bytes)
{
    struct source *source = context;
    assert_status(vmm_free(source->cache, context), VMM_ERR_UNKNOWN_POINTER);
    source_free(context, segment, bytes);
}

CACHE_TEST(a_source_does_not_change_the_line_of_a_call_that_fails)
{
    static uint64_t now_ns = 1; /* the cache reads it until the end of the test */
    cache_restart_with(test, .decay_ms = 1, .clock = clock_read, .clock_context = &now_ns);
    struct source *source = source_open(test);
    vmm_pool *pool = pool_make(test, .source = { source_alloc, free_after_failure, source, 0 });
    vmm_pool *sleeper = pool_make(test, .name = "sleeper");
    void *block = pool_alloc(test, sleeper, 100, 1);
    block_free(test, pool_alloc(test, pool, 3 * MIB, 1));
    assert_ok(vmm_pool_sleep(&sleeper, 1, NULL, NULL)); /* waits for the work */
    for (int period = 0; period < 3; period++) {
        void *out;
        now_ns += 1000000;
        assert_status(vmm_alloc_aligned(sleeper, 100, 4096, test->streams[1], &out),
                      VMM_ERR_ASLEEP);
        assert_non_null(strstr(vmm_last_error(), "pool sleeper sleeps"));
    }
    assert_int_equal(source->frees, 1); /* by a call that failed */
    assert_ok(vmm_pool_wake(&sleeper, 1, NULL, NULL));
    block_free(test, block);
    assert_ok(vmm_pool_destroy(sleeper, 0));
    sourced_end(test, source);
}

CACHE_MAIN()
