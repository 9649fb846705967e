/* Views: what a block in one is to every public function, and what stays bounded. */
#include "support/graph_support.h"

#include "base/hostmem.h"
#include "cache/cache.h"

#include <string.h>

/* Blocks in a row: every second one is freed, so that each hole is too small for the request. */
enum { PIECES = 16, HOLES = PIECES / 2 };
#define PIECE (4 * MIB)
#define WHOLE (24 * MIB)

/* ---- A block in a view ------------------------------------------------------------------------- */

struct scene {
    size_t bytes; /* of a piece */
    void *pieces[PIECES];
};

static void scene_begin(struct cache_test *test, struct scene *scene, size_t bytes)
{
    scene->bytes = bytes;
    for (uint32_t i = 0; i < PIECES; i++) {
        scene->pieces[i] = block_alloc(test, bytes, 1);
        block_fill(test, scene->pieces[i], bytes, 100 + i, 1);
    }
    for (uint32_t i = 0; i < PIECES; i += 2)
        block_free(test, scene->pieces[i]);
}

/* The other blocks have kept their contents. */
static void scene_end(struct cache_test *test, struct scene *scene)
{
    for (uint32_t i = 1; i < PIECES; i += 2) {
        block_check(test, scene->pieces[i], scene->bytes, 100 + i, 1);
        block_free(test, scene->pieces[i]);
    }
    cache_verify_empty(test);
}

static const struct views *views_of(struct cache_test *test)
{
    return &test->cache->views;
}

static bool is_in_view(struct cache_test *test, const void *block)
{
    return vmm__views_contain(views_of(test), (uintptr_t)block);
}

/* The further places of the chunk under an address. */
static uint32_t places_at(struct cache_test *test, const void *address)
{
    const struct vm *vm = &test->cache->vm;
    return vmm__vm_chunk(vm, vmm__arena_granule(&vm->arena, (uintptr_t)address))->places;
}

static uint64_t driver_calls(struct cache_test *test)
{
    vmm_stats stats = cache_stats(test);
    return stats.reserve_calls + stats.address_free_calls + stats.create_calls + stats.map_calls +
           stats.access_calls + stats.unmap_calls + stats.release_calls + stats.event_calls;
}

/* Allocates a block that must be in a view, without new memory. */
static void *view_alloc(struct cache_test *test, size_t bytes)
{
    vmm_stats before = cache_stats(test);
    void *block = block_alloc(test, bytes, 1);
    vmm_stats after = cache_stats(test);
    assert_true(is_in_view(test, block));
    assert_int_equal(after.reserved_bytes.current, before.reserved_bytes.current);
    assert_int_equal(after.create_calls, before.create_calls);
    assert_int_equal(after.unmap_calls, before.unmap_calls);
    return block;
}

CACHE_TEST(free_memory_in_holes_serves_a_larger_request)
{
    static const size_t sizes[] = { PIECE, 5 * MIB, 5 * MIB + 512, 3 * MIB };
    static const size_t wholes[] = { WHOLE, 21 * MIB + 512, 17 * MIB, 8 * MIB + 1 };
    for (unsigned i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        struct scene scene;
        scene_begin(test, &scene, sizes[i]);
        void *block = view_alloc(test, wholes[i]);
        block_fill(test, block, wholes[i], 7, 1);
        block_check(test, block, wholes[i], 7, 1);
        cache_verify(test);
        block_free(test, block);
        scene_end(test, &scene);
    }
}

CACHE_TEST(new_memory_serves_what_needs_a_view_if_views_are_off)
{
    struct scene scene;
    cache_restart_with(test, .views = VMM_OFF);
    scene_begin(test, &scene, PIECE);
    vmm_stats before = cache_stats(test);
    void *block = block_alloc(test, WHOLE, 1);
    vmm_stats after = cache_stats(test);
    assert_false(is_in_view(test, block));
    assert_int_equal(after.views, 0);
    assert_int_equal(after.places, 0);
    assert_true(after.reserved_bytes.current > before.reserved_bytes.current);
    block_fill(test, block, WHOLE, 7, 1);
    block_check(test, block, WHOLE, 7, 1);
    block_free(test, block);
    scene_end(test, &scene);
}

CACHE_TEST(a_view_is_found_again_without_a_driver_call)
{
    struct scene scene;
    scene_begin(test, &scene, PIECE);
    void *block = view_alloc(test, WHOLE);
    block_free(test, block);
    uint64_t calls = driver_calls(test);
    for (uint32_t round = 0; round < 100; round++) {
        size_t bytes = WHOLE - round % 16 * 512;
        block = view_alloc(test, bytes);
        block_fill(test, block, bytes, round, 1);
        block_check(test, block, bytes, round, 1);
        block_free(test, block);
    }
    assert_int_equal(driver_calls(test), calls);
    scene_end(test, &scene);
}

/* ---- Statistics -------------------------------------------------------------------------------- */

CACHE_TEST(statistics_count_views)
{
    struct scene scene;
    scene_begin(test, &scene, PIECE);
    vmm_stats stats = cache_stats(test);
    assert_int_equal(stats.views, 0);
    assert_int_equal(stats.places, 0);
    assert_int_equal(stats.occupied_bytes, 0);
    uint64_t plans = stats.plans; /* the scene's own */
    void *block = view_alloc(test, WHOLE);
    stats = cache_stats(test);
    assert_int_equal(stats.views, 1);
    assert_int_equal(stats.stitches, 1);
    assert_int_equal(stats.view_hits, 0);
    assert_int_equal(stats.plans, plans + 1);
    assert_true(stats.planning_ns > 0);
    assert_true(stats.places > 1 && stats.places_max == 1);
    assert_int_equal(stats.view_bytes, WHOLE);
    assert_int_equal(stats.occupied_bytes, WHOLE);
    block_free(test, block);
    assert_int_equal(cache_stats(test).occupied_bytes, 0);
    block = view_alloc(test, WHOLE - 16 * KIB);
    stats = cache_stats(test);
    assert_int_equal(stats.view_hits, 1);
    assert_int_equal(stats.occupied_bytes, WHOLE - 16 * KIB);
    block_free(test, block);
    work_verify(test);
    (void)cache_trim(test, 0);
    stats = cache_stats(test);
    assert_true(stats.views == 0 && stats.places == 0 && stats.view_bytes == 0);
    assert_true(stats.stitches == 1 && stats.places_max == 1);
    scene_end(test, &scene);
}

/* ---- The public functions ---------------------------------------------------------------------- */

static void assert_not_found(struct cache_test *test, const void *address)
{
    vmm_item item = VMM_ITEM_INIT;
    assert_status(vmm_find(test->cache, address, &item), VMM_ERR_UNKNOWN_POINTER);
}

CACHE_TEST(a_block_in_a_view_is_found)
{
    struct scene scene;
    scene_begin(test, &scene, 5 * MIB);
    size_t bytes = 21 * MIB + 1;
    unsigned char *block = view_alloc(test, bytes);
    uint64_t block_bytes = vmm_block_bytes(test->cache, bytes);
    for (uint64_t offset = 0; offset < block_bytes; offset += 512) {
        vmm_item item = VMM_ITEM_INIT;
        assert_ok(vmm_find(test->cache, block + offset, &item));
        assert_int_equal(item.address, (uintptr_t)block);
        assert_int_equal(item.bytes, block_bytes);
        assert_int_equal(item.requested_bytes, bytes);
        assert_int_equal(item.state, VMM_ITEM_LIVE);
        assert_ptr_equal(item.stream, test->streams[1]);
        assert_false(item.is_small);
        assert_true(item.is_view);
    }
    assert_not_found(test, block - 1);
    assert_not_found(test, block + block_bytes);
    block_free(test, block);
    assert_not_found(test, block);
    scene_end(test, &scene);
}

struct tour {
    uint64_t address;
    uint64_t bytes;
    vmm_item_state state;
    vmm_item before; /* the item before the present one */
    unsigned hits;
    bool is_wrong;
};

static int item_toured(void *context, const vmm_item *item)
{
    struct tour *tour = context;
    bool overlaps =
        item->address < tour->address + tour->bytes && item->address + item->bytes > tour->address;
    bool is_exact = item->address == tour->address && item->bytes == tour->bytes;
    if (overlaps && !is_exact)
        tour->is_wrong = true;
    if (is_exact && item->kind == VMM_ITEM_CHUNK && item->state != VMM_ITEM_LIVE)
        tour->is_wrong = true;
    if (item->is_view != is_exact && overlaps)
        tour->is_wrong = true;
    if (is_exact && item->kind == VMM_ITEM_BLOCK) {
        tour->hits++;
        if (item->state != tour->state || tour->before.kind != VMM_ITEM_CHUNK ||
            tour->before.address != item->address || tour->before.bytes != item->bytes)
            tour->is_wrong = true;
    }
    tour->before = *item;
    return 0;
}

/* Whether a walk shows the block, in that state, in a range of exactly its size. */
static bool is_walked(struct cache_test *test, const void *block, uint64_t bytes,
                      vmm_item_state state)
{
    struct tour tour = { .address = (uintptr_t)block,
                         .bytes = vmm_block_bytes(test->cache, bytes),
                         .state = state };
    assert_ok(vmm_walk(test->cache, item_toured, &tour));
    assert_false(tour.is_wrong && tour.hits > 0);
    assert_true(tour.hits <= 1);
    return tour.hits == 1;
}

CACHE_TEST(a_block_in_a_view_is_a_range_of_its_own)
{
    struct scene scene;
    scene_begin(test, &scene, 5 * MIB);
    void *first = view_alloc(test, 9 * MIB);
    void *second = view_alloc(test, 9 * MIB);
    assert_true(is_walked(test, first, 9 * MIB, VMM_ITEM_LIVE));
    assert_true(is_walked(test, second, 9 * MIB, VMM_ITEM_LIVE));
    cache_verify(test);
    block_free(test, first);
    assert_false(is_walked(test, first, 9 * MIB, VMM_ITEM_LIVE));
    assert_true(is_walked(test, second, 9 * MIB, VMM_ITEM_LIVE));
    cache_verify(test);
    block_free(test, second);
    scene_end(test, &scene);
}

CACHE_TEST(a_block_in_a_view_waits_for_other_streams)
{
    struct scene scene;
    scene_begin(test, &scene, PIECE);
    void *block = view_alloc(test, WHOLE);
    work_verify(test);
    block_use(test, block, 2);
    bool is_sure = flight_begin(test, block, WHOLE, 2);
    block_free(test, block);
    if (is_sure) {
        assert_true(is_walked(test, block, WHOLE, VMM_ITEM_WAITING));
        cache_verify(test);
        void *other = block_alloc(test, WHOLE, 1);
        assert_ptr_not_equal(other, block);
        block_fill(test, other, WHOLE, 8, 1);
        block_free(test, other);
    }
    flight_end(test);
    (void)cache_trim(test, SIZE_MAX);
    assert_false(is_walked(test, block, WHOLE, VMM_ITEM_WAITING));
    scene_end(test, &scene);
}

CACHE_TEST(a_block_in_a_view_can_be_pinned)
{
    struct scene scene;
    scene_begin(test, &scene, PIECE);
    unsigned char *block = view_alloc(test, WHOLE);
    assert_ok(vmm_pin(test->cache, block));
    assert_ok(vmm_pin(test->cache, block));
    assert_int_equal(cache_stats(test).unmovable_bytes, WHOLE);
    cache_verify(test);
    assert_ok(vmm_unpin(test->cache, block));
    assert_int_equal(cache_stats(test).unmovable_bytes, 0);
    assert_ok(vmm_pin(test->cache, block));
    assert_status(vmm_pin(test->cache, block + PIECE), VMM_ERR_UNKNOWN_POINTER);
    block_free(test, block);
    assert_int_equal(cache_stats(test).unmovable_bytes, 0);
    scene_end(test, &scene);
}

CACHE_TEST(blocks_in_views_survive_vmm_compact)
{
    struct scene scene;
    scene_begin(test, &scene, 5 * MIB);
    void *block = view_alloc(test, 21 * MIB);
    block_fill(test, block, 21 * MIB, 9, 1);
    assert_ok(vmm_compact(test->cache, 0, NULL, NULL));
    cache_verify(test);
    assert_true(is_in_view(test, block));
    block_check(test, block, 21 * MIB, 9, 1);
    block_free(test, block);
    assert_ok(vmm_compact(test->cache, 0, NULL, NULL)); /* no block uses the view now */
    cache_verify(test);
    scene_end(test, &scene);
}

/* ---- Wrong pointers ---------------------------------------------------------------------------- */

static bool last_error_names(const void *block)
{
    char name[32];
    (void)snprintf(name, sizeof name, "block at 0x%llx,", (unsigned long long)(uintptr_t)block);
    return strstr(vmm_last_error(), name) != NULL;
}

typedef vmm_status (*refusal)(struct cache_test *test, void *address);

static vmm_status refuse_free(struct cache_test *test, void *address)
{
    return vmm_free(test->cache, address);
}

static vmm_status refuse_use(struct cache_test *test, void *address)
{
    return vmm_record_stream(test->cache, address, test->streams[2]);
}

static vmm_status refuse_pin(struct cache_test *test, void *address)
{
    return vmm_pin(test->cache, address);
}

static vmm_status refuse_unpin(struct cache_test *test, void *address)
{
    return vmm_unpin(test->cache, address);
}

CACHE_TEST(a_home_in_use_is_refused_by_name)
{
    static const refusal refusals[] = { refuse_free, refuse_use, refuse_pin, refuse_unpin };
    struct scene scene;
    scene_begin(test, &scene, PIECE);
    unsigned char *block = view_alloc(test, WHOLE);
    for (unsigned kind = 0; kind < 4; kind++) {
        unsigned named = 0;
        for (unsigned i = 0; i < PIECES; i += 2) {
            unsigned char *home = scene.pieces[i];
            assert_status(refusals[kind](test, home), VMM_ERR_UNKNOWN_POINTER);
            named += last_error_names(block) ? 1 : 0;
            assert_status(refusals[kind](test, home + 512), VMM_ERR_UNKNOWN_POINTER);
            assert_not_found(test, home);
            named += last_error_names(block) ? 1 : 0;
        }
        assert_int_equal(named, 2 * (WHOLE / PIECE));
        assert_status(refusals[kind](test, block + PIECE), VMM_ERR_UNKNOWN_POINTER);
        assert_true(last_error_names(block));
    }
    cache_verify(test);
    block_free(test, block);
    for (unsigned kind = 0; kind < 4; kind++) {
        assert_status(refusals[kind](test, block), VMM_ERR_UNKNOWN_POINTER); /* a second free */
        assert_status(refusals[kind](test, block + PIECE), VMM_ERR_UNKNOWN_POINTER);
    }
    cache_verify(test);
    scene_end(test, &scene);
}

/* ---- Releasing --------------------------------------------------------------------------------- */

CACHE_TEST(a_trim_releases_chunks_with_several_places)
{
    struct scene scene;
    scene_begin(test, &scene, PIECE);
    void *blocks[2] = { view_alloc(test, WHOLE), NULL };
    block_free(test, blocks[0]);
    void *between = block_alloc(test, PIECE, 1); /* cuts the first view's run */
    blocks[1] = view_alloc(test, WHOLE);
    assert_true(places_at(test, blocks[1]) > 0);
    block_free(test, between);
    work_verify(test);
    bool is_sure = flight_begin(test, blocks[1], WHOLE, 1);
    block_free(test, blocks[1]);
    (void)cache_trim(test, 0);
    if (is_sure)
        assert_true(cache_stats(test).reserved_bytes.current >= HOLES * PIECE + WHOLE);
    flight_end(test);
    (void)cache_trim(test, 0);
    assert_int_equal(cache_stats(test).reserved_bytes.current, HOLES * PIECE);
    cache_verify(test);
    scene_end(test, &scene);
    assert_int_equal(test->driver->mapped_bytes, 0);
}

CACHE_TEST(a_graph_pool_keeps_its_views)
{
    struct graph graph;
    void *pieces[PIECES];
    graph_begin(test, &graph, 1, 1);
    for (unsigned i = 0; i < PIECES; i++)
        pieces[i] = graph_alloc(test, &graph, PIECE);
    for (unsigned i = 0; i < PIECES; i += 2)
        graph_free(test, &graph, pieces[i]);
    assert_ok(
        vmm_limit_set(test->cache, PIECES * PIECE)); /* what the graph retains extends the target */
    void *block = graph_alloc(test, &graph, WHOLE);
    assert_true(is_in_view(test, block));
    assert_ok(vmm_limit_set(test->cache, CACHE_LIMIT));
    graph_free(test, &graph, block);
    graph_end(test, &graph);
    uint32_t places = places_at(test, block);
    assert_true(places > 0);
    for (unsigned round = 0; round < 3; round++) {
        memory_exhaust(test, &graph);
        (void)cache_trim(test, 0);
        assert_true(is_in_view(test, block));
        assert_int_equal(places_at(test, block), places);
        graph_replay(test, &graph, round + 1);
        work_verify(test);
    }
    cache_verify(test);
    graph_empty(test, &graph);
    graph_release(test, &graph);
}

/* A view needs addresses beside those of the memory that it joins. Here they are fewer than the addresses that new
 * memory needs: a hole of exactly the request's size is all there is. */
#define GRANULE (2 * MIB)

CACHE_TEST(new_memory_serves_a_request_if_a_view_finds_no_addresses)
{
    enum { GRANULES = 63, HOLE = 22, FIRST = GRANULES - HOLE, ENDS = 3 };
    void *blocks[GRANULES];
    cache_restart_with(test, .arena_bytes = GRANULES * GRANULE, .footprint_permille = 50);
    block_free(test, block_alloc(test, GRANULES * GRANULE, 1));
    (void)cache_trim(test, HOLE * GRANULE);
    block_free(test, block_alloc(test, GRANULES * GRANULE, 1)); /* in chunks of six granules */
    for (unsigned i = 0; i < GRANULES; i++)
        blocks[i] = block_alloc(test, GRANULE, 1);
    for (unsigned i = FIRST; i < GRANULES; i++)
        block_free(test, blocks[i]);
    for (unsigned i = 0; i < ENDS; i++) { /* a free head and a free tail, which a view could join */
        block_free(test, blocks[6 + i]);
        block_free(test, blocks[21 + i]);
    }
    work_verify(test);
    (void)cache_trim(test, 0);
    assert_int_equal(cache_stats(test).reserved_bytes.current, FIRST * GRANULE);
    void *block = block_alloc(test, HOLE * GRANULE, 1);
    assert_ptr_equal(block, blocks[FIRST]);
    cache_verify(test);
    block_free(test, block);
    for (unsigned i = 0; i < FIRST; i++) {
        if (!(i >= 6 && i < 6 + ENDS) && !(i >= 21 && i < 21 + ENDS))
            block_free(test, blocks[i]);
    }
}

/* ---- Bounds ------------------------------------------------------------------------------------ */

enum { PASSES = 50, SLOTS = 24, PLACES_MOST = 32 };

/* The most addresses that a chunk has, its home included. */
static uint32_t places_most(struct cache_test *test)
{
    const struct vm *vm = &test->cache->vm;
    uint32_t most = 0;
    for (uint32_t id = 1; id < vm->record_high; id++) {
        if (vm->records[id].state == CHUNK_HELD && vm->records[id].places + 1 > most)
            most = vm->records[id].places + 1;
    }
    return most;
}

/* Allocates and frees blocks whose sizes differ from pass to pass by up to 10 %. */
static void pass_run(struct cache_test *test, void **blocks, uint64_t *seed)
{
    for (unsigned step = 0; step < 4 * SLOTS; step++) {
        unsigned slot = (unsigned)(random_next(seed) % SLOTS);
        size_t bytes = (1 + slot % 8) * MIB + MIB / 2;
        bytes += random_next(seed) % (bytes / 10);
        if (blocks[slot] != NULL)
            block_free(test, blocks[slot]);
        blocks[slot] = NULL;
        if (step < 3 * SLOTS)
            block_try_fill(test, bytes, 1, slot, &blocks[slot]);
    }
}

CACHE_TEST(places_and_records_are_bounded)
{
    void *blocks[SLOTS] = { NULL };
    uint64_t seed = 3;
    uint64_t host_bytes = 0;
    uint32_t most = 0;
    for (unsigned pass = 0; pass < PASSES; pass++) {
        pass_run(test, blocks, &seed);
        uint32_t places = places_most(test);
        assert_true(places <= PLACES_MOST);
        most = places > most ? places : most;
        if (pass == PASSES / 5)
            host_bytes = vmm__host_outstanding();
    }
    assert_true(most > 8); /* else the bound was not tested */
    assert_true(vmm__host_outstanding() <= host_bytes + host_bytes / 4);
    for (unsigned slot = 0; slot < SLOTS; slot++) {
        if (blocks[slot] != NULL)
            block_free(test, blocks[slot]);
    }
}

CACHE_MAIN()
