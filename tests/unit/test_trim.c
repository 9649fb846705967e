/* Trim: whole chunks only, how many, which ones, and unfinished ones through limbo. */
#include "support/policy_support.h"

#include "base/handle.h"
#include "cache/idle/idle_scan.h"
#include "cache/idle/trim.h"
#include "cache/pool/pools.h"

/* The first run of up to `bytes`, rounded up to a chunk, in a free block of the lane's large heap. */
static bool run_find(struct scene *scene, struct block *block, uint64_t bytes, struct idle_run *run)
{
    struct idle_scan scan = vmm__idle_scan(&scene->lane->large, NULL, IDLE_ANY);
    return vmm__idle_next(scene->cache, &scan, block, block->address, bytes, run);
}

POLICY_TEST(only_whole_chunks_are_runs)
{
    struct heap *heap = &scene->lane->large;
    struct block *whole = extent(scene, heap, 20, 12, 4);
    struct idle_run run;
    assert_true(run_find(scene, whole, UINT64_MAX, &run));
    assert_int_equal(run.bytes, 12 * GRANULE);
    assert_true(run_find(scene, whole, 1, &run));
    assert_int_equal(run.bytes, 4 * GRANULE);
    assert_true(run_find(scene, whole, 4 * GRANULE + 1, &run));
    assert_int_equal(run.bytes, 8 * GRANULE);
    struct block *live = block_make_live(heap, whole, 512);
    assert_true(run_find(scene, live->next, UINT64_MAX, &run));
    assert_int_equal(run.address, scene_address(scene, 24));
    assert_int_equal(run.bytes, 8 * GRANULE);
    struct block *high = block_make_live(heap, live->next, 8 * GRANULE);
    assert_false(run_find(scene, high->next, UINT64_MAX, &run));
    high = vmm__heap_give(heap, high);
    struct block *middle = block_make_live(heap, high, 4 * GRANULE);
    assert_true(run_find(scene, middle->next, UINT64_MAX, &run));
    assert_int_equal(run.bytes, 4 * GRANULE);
    assert_int_equal(run.address, scene_address(scene, 28));
}

POLICY_TEST(runs_are_cut_to_whole_chunks)
{
    const struct vm *memory = &scene->cache->vm;
    struct heap *heap = &scene->lane->large;
    struct block *block = extent(scene, heap, 20, 4, 1);
    (void)extent(scene, heap, 24, 4, 2);
    struct idle_run run = { .heap = heap, .address = block->address, .bytes = 8 * GRANULE };
    static const struct {
        uint64_t most_granules;
        uint64_t granules;
    } cuts[] = { { 9, 8 }, { 8, 8 }, { 7, 6 }, { 6, 6 }, { 5, 4 }, { 4, 4 }, { 3, 3 }, { 1, 1 } };
    for (size_t i = 0; i < sizeof cuts / sizeof *cuts; i++) {
        assert_true(vmm__idle_cut(memory, cuts[i].most_granules * GRANULE, &run));
        assert_int_equal(run.bytes, cuts[i].granules * GRANULE);
    }
    assert_false(vmm__idle_cut(memory, GRANULE - 1, &run));
    assert_int_equal(run.bytes, 0);
}

static uint64_t run_trim(struct scene *scene, struct trim_request *trim)
{
    uint64_t put_bytes = vmm__trim_idle(scene->cache, trim);
    assert_ok(vmm__cache_check(scene->cache));
    return put_bytes;
}

POLICY_TEST(trim_stops_at_the_target)
{
    (void)extent(scene, &scene->lane->large, 10, 8, 2);
    (void)extent(scene, &scene->other->large, 30, 8, 2);
    (void)extent(scene, &scene->other->small, 50, 4, 1);
    assert_int_equal(run_trim(scene, &(struct trim_request){ .bytes = 0, .when = IDLE_ANY }), 0);
    assert_int_equal(
        run_trim(scene, &(struct trim_request){ .bytes = 3 * GRANULE, .when = IDLE_ANY }),
        4 * GRANULE);
    assert_int_equal(scene->cache->vm.counts.limbo_bytes, 4 * GRANULE);
    assert_int_equal(
        run_trim(scene, &(struct trim_request){ .bytes = UINT64_MAX, .when = IDLE_ANY }),
        16 * GRANULE);
    assert_int_equal(
        run_trim(scene, &(struct trim_request){ .bytes = UINT64_MAX, .when = IDLE_ANY }), 0);
    assert_ok(vmm__limbo_drain(&scene->cache->vm, NULL));
    assert_int_equal(scene_reserved_bytes(scene), 0);
}

/* Chunks are released whole, but not one that would take more than the bound. */
POLICY_TEST(trim_stays_below_its_bound)
{
    (void)extent(scene, &scene->lane->large, 10, 4, 4);
    (void)extent(scene, &scene->other->large, 30, 3, 1);
    struct trim_request trim = { .bytes = 2 * GRANULE,
                                 .most_bytes = 3 * GRANULE,
                                 .when = IDLE_ANY };
    assert_int_equal(run_trim(scene, &trim), 2 * GRANULE);
    trim = (struct trim_request){ .bytes = GRANULE, .most_bytes = 4 * GRANULE, .when = IDLE_ANY };
    assert_int_equal(run_trim(scene, &trim), 4 * GRANULE);
}

POLICY_TEST(a_part_leaves_the_floor)
{
    (void)extent(scene, &scene->lane->large, 10, 4, 4);
    (void)extent(scene, &scene->other->large, 30, 4, 4);
    assert_int_equal(vmm__trim_part(scene->cache, GRANULE, 5 * GRANULE), 0);
    assert_int_equal(vmm__trim_part(scene->cache, 3 * GRANULE, 5 * GRANULE), 0);
    assert_int_equal(vmm__trim_part(scene->cache, GRANULE, 4 * GRANULE), 4 * GRANULE);
    assert_int_equal(scene_reserved_bytes(scene), 4 * GRANULE);
}

/* What another pool was promised stays, although its chunks are larger than what is missing. */
POLICY_TEST(a_trim_for_a_pool_leaves_what_another_was_promised)
{
    vmm_pool *pool;
    struct lane *lane;
    vmm_pool_options options = VMM_POOL_OPTIONS_INIT;
    options.reserve_bytes = 6 * GRANULE;
    assert_ok(vmm_pool_create(scene->cache, &options, &pool));
    assert_ok(vmm__pool_lane(vmm__handle_find(HANDLE_POOL, pool), STREAM(1), &lane));
    (void)extent(scene, &lane->large, 10, 8, 4);
    struct trim_request trim = { .bytes = GRANULE, .when = IDLE_ANY, .taker = &scene->cache->pool };
    assert_int_equal(run_trim(scene, &trim), 0);
    trim.taker = NULL;
    assert_int_equal(run_trim(scene, &trim), 4 * GRANULE);
    assert_ok(vmm_pool_destroy(pool, 0));
}

POLICY_TEST(trim_leaves_the_kept_block)
{
    struct block *keep = extent(scene, &scene->lane->large, 10, 8, 2);
    (void)extent(scene, &scene->lane->large, 30, 2, 2);
    struct trim_request trim = { .bytes = UINT64_MAX, .when = IDLE_ANY, .keep = keep };
    assert_int_equal(run_trim(scene, &trim), 2 * GRANULE);
    assert_int_equal(keep->node.size, 8 * GRANULE);
}

/* One free block, whose middle is still in use. */
POLICY_TEST(trim_goes_on_behind_unfinished_chunks)
{
    struct heap *heap = &scene->lane->large;
    struct block *low = block_make_live(heap, extent(scene, heap, 10, 12, 4), 4 * GRANULE);
    struct block *middle = block_make_live(heap, low->next, 4 * GRANULE);
    (void)vmm__heap_give(heap, low);
    assert_ok(vmm__clock_query(heap->clock, vmm__clock_now(heap->clock)));
    struct block *block = block_free_busy(scene, heap, middle);
    assert_int_equal(block->node.size, 12 * GRANULE);
    struct trim_request trim = { .bytes = UINT64_MAX, .when = IDLE_FINISHED };
    assert_int_equal(run_trim(scene, &trim), 8 * GRANULE);
    assert_int_equal(heap->free_bytes, 4 * GRANULE);
}

POLICY_TEST(unfinished_chunks_stay_unless_any_may_go)
{
    struct heap *heap = &scene->lane->large;
    struct block *block = block_make_live(heap, extent(scene, heap, 10, 4, 4), 4 * GRANULE);
    (void)block_free_busy(scene, heap, block);
    (void)extent(scene, &scene->other->large, 30, 2, 2);
    struct trim_request trim = { .bytes = UINT64_MAX, .when = IDLE_FINISHED };
    assert_int_equal(run_trim(scene, &trim), 2 * GRANULE);
    trim.when = IDLE_ANY;
    assert_int_equal(run_trim(scene, &trim), 4 * GRANULE);
    uint64_t released = 0;
    assert_ok(vmm__limbo_drain(&scene->cache->vm, &released));
    assert_int_equal(released, 2 * GRANULE);
    assert_int_equal(scene->driver->counts.stalls, 0);
    assert_int_equal(mismatches(scene->driver), 0);
    assert_ok(vmm__limbo_drain(&scene->cache->vm, &released));
    assert_int_equal(released, 6 * GRANULE);
}

POLICY_TEST(trim_purges_empty_slabs)
{
    void *block;
    assert_ok(vmm_alloc(scene->cache, 100, STREAM(1), &block));
    assert_ok(vmm_free(scene->cache, block));
    size_t released;
    assert_ok(vmm_trim(scene->cache, 0, &released));
    assert_int_equal(released, GRANULE);
}

/* Without host memory for the block records, trim releases nothing and loses nothing. */
POLICY_TEST(trim_survives_without_host_memory)
{
    struct heap *heap = &scene->lane->large;
    struct block *block = extent(scene, heap, 10, 8, 2);
    while (heap->store.spare_count > 0)
        block = block_make_live(heap, block, 512)->next;
    (void)vmm__host_fail_at(1);
    assert_int_equal(
        run_trim(scene, &(struct trim_request){ .bytes = UINT64_MAX, .when = IDLE_ANY }), 0);
    (void)vmm__host_fail_at(0);
    assert_int_equal(
        run_trim(scene, &(struct trim_request){ .bytes = UINT64_MAX, .when = IDLE_ANY }),
        6 * GRANULE);
}

POLICY_TEST(a_failed_event_keeps_the_memory)
{
    struct heap *heap = &scene->lane->large;
    struct block *block = block_make_live(heap, extent(scene, heap, 10, 4, 4), 4 * GRANULE);
    (void)block_free_busy(scene, heap, block);
    size_t released = 5;
    vmm__sim_fail_at(scene->driver, 1, VMM_ERR_DRIVER, true);
    assert_status(vmm_trim(scene->cache, 0, &released), VMM_ERR_DRIVER);
    assert_int_equal(released, 5);
    vmm__sim_fail_at(scene->driver, 0, VMM_OK, false);
    assert_ok(vmm__cache_check(scene->cache));
    assert_int_equal(scene_reserved_bytes(scene), 4 * GRANULE);
    assert_int_equal(mismatches(scene->driver), 0);
    assert_ok(vmm_trim(scene->cache, 0, &released));
    assert_int_equal(released, 4 * GRANULE);
}

/* Frees the slot's block, or allocates one if it has none. */
static void slot_toggle(struct scene *scene, vmm_cache *cache, void **slot, unsigned number)
{
    uint64_t bytes = (1 + number % 3) * GRANULE;
    vmm_stream stream = STREAM(1 + number % 3);
    if (*slot != NULL) {
        assert_ok(vmm_free(cache, *slot));
        *slot = NULL;
        return;
    }
    assert_ok(vmm_alloc(cache, bytes, stream, slot));
    memory_fill(scene->driver, (uintptr_t)*slot, bytes, number, stream);
}

/* The peak of reserved bytes of a program whose work lags 40 operations behind and that trims every `trim_every`
 * operations; 0: never. */
static uint64_t lagging_peak(struct scene *scene, unsigned trim_every)
{
    enum { SLOTS = 9, OPERATIONS = 600 };
    vmm_cache *cache;
    void *slots[SLOTS] = { NULL };
    uint64_t stalls = scene->driver->counts.stalls;
    assert_ok(vmm__cache_create_on(NULL, scene->driver, &cache));
    vmm__sim_lag_set(scene->driver, 40);
    for (unsigned i = 0; i < OPERATIONS; i++) {
        slot_toggle(scene, cache, &slots[i % SLOTS], i % SLOTS);
        if (trim_every != 0 && i % trim_every == 0)
            assert_ok(vmm_trim(cache, 0, NULL));
        assert_ok(vmm__cache_check(cache));
    }
    uint64_t peak_bytes = vmm__stat_read(&cache->vm.reserved_bytes).peak;
    assert_int_equal(scene->driver->counts.stalls, stalls);
    assert_int_equal(mismatches(scene->driver), 0);
    vmm__sim_lag_set(scene->driver, 0);
    assert_ok(vmm_destroy(cache));
    return peak_bytes;
}

/* Chunks that a trim leaves because of unfinished work stay usable for their stream, so trims never raise the peak. */
POLICY_TEST(trims_do_not_raise_the_peak_while_work_lags)
{
    uint64_t peak_bytes = lagging_peak(scene, 0);
    for (unsigned trim_every = 1; trim_every <= 30; trim_every++)
        assert_in_range(lagging_peak(scene, trim_every), 1, peak_bytes);
}
