/* vmm_compact() on every driver: what it moves, what it leaves alone, and when it is refused. */
#define _GNU_SOURCE
#include "support/graph_support.h"

#include "cache/cache.h"
#include "support/pool_calls.h"
#include "support/thread_support.h"

#include <string.h>

/* Blocks of 3 MiB fill large chunks, and of every two one goes: a third of the memory comes free. */
#define PIECE (3 * MIB)
#define HOLED (96 * MIB)
enum { PIECES = (int)(HOLED / PIECE), CHUNKS = HOLED / LARGE_CHUNK, NS_PER_MS = 1000000 };

static void *pieces[PIECES]; /* NULL: given back */

static void piece_check(struct cache_test *test, int i)
{
    block_check(test, pieces[i], PIECE, (uint32_t)i + 1, 1);
}

static void checkerboard_create(struct cache_test *test)
{
    for (int i = 0; i < PIECES; i++) {
        pieces[i] = block_alloc(test, PIECE, 1);
        block_fill(test, pieces[i], PIECE, (uint32_t)i + 1, 1);
    }
    for (int i = 0; i < PIECES; i += 2) {
        piece_check(test, i);
        block_free(test, pieces[i]);
        pieces[i] = NULL;
    }
}

static void checkerboard_begun(struct cache_test *test, vmm_config config)
{
    config.footprint_permille = VMM_FOOTPRINT_ANY;
    cache_restart(test, &config);
    if (config.no_caching != VMM_ON)
        large_chunks_make(test, HOLED, 1);
    checkerboard_create(test);
}

static void pieces_check(struct cache_test *test)
{
    for (int i = 1; i < PIECES; i += 2)
        piece_check(test, i);
    work_verify(test);
    cache_verify(test);
}

static void pieces_free(struct cache_test *test)
{
    for (int i = 1; i < PIECES; i += 2)
        block_free(test, pieces[i]);
}

static uint64_t reserved(struct cache_test *test)
{
    return cache_stats(test).reserved_bytes.current;
}

/* ---- What moves ------------------------------------------------------------------------------- */

CACHE_TEST(compaction_releases_a_checkerboard)
{
    static const vmm_switch kinds[] = { VMM_DEFAULT, VMM_OFF, VMM_ON };
    for (int i = 0; i < 3; i++) {
        checkerboard_begun(test, CONFIG(.compaction = kinds[i]));
        uint64_t before = reserved(test);
        uint64_t moved = 0;
        uint64_t released = 0;
        assert_ok(vmm_compact(test->cache, 0, &moved, &released));
        assert_int_equal(reserved(test), before - released);
        assert_int_equal(released, HOLED / 3);
        assert_int_equal(moved, HOLED / 3 * 2);
        assert_int_equal(cache_stats(test).compactions, 1);
        pieces_check(test);
        assert_ok(vmm_compact(test->cache, 0, &moved, &released));
        assert_int_equal(moved + released, 0);
        assert_int_equal(cache_stats(test).compactions, 1);
        pieces_free(test);
        (void)cache_trim(test, 0);
        assert_int_equal(reserved(test), 0);
    }
}

CACHE_TEST(compaction_releases_idle_memory)
{
    uint64_t moved = 1;
    uint64_t released = 0;
    block_free(test, block_alloc(test, 48 * MIB, 1));
    block_free(test, block_alloc(test, 100, 2));
    uint64_t before = reserved(test);
    assert_ok(vmm_compact(test->cache, 0, &moved, &released));
    assert_int_equal(released, before);
    assert_int_equal(reserved(test) + moved, 0);
    assert_ok(vmm_compact(test->cache, 0, NULL, NULL));
}

/* Only chunks without room at another place stay. */
CACHE_TEST(under_a_limit_compaction_moves_what_has_room)
{
    uint64_t moved;
    uint64_t released;
    checkerboard_begun(test, (vmm_config)VMM_CONFIG_INIT);
    assert_ok(vmm_limit_set(test->cache, HOLED));
    assert_ok(vmm_compact(test->cache, 0, &moved, &released));
    assert_int_equal(moved + released, 0);
    assert_ok(vmm_limit_set(test->cache, HOLED + HOLED / CHUNKS));
    assert_ok(vmm_compact(test->cache, 0, &moved, &released));
    assert_int_equal(released, HOLED / 3);
    pieces_check(test);
    pieces_free(test);
}

/* Under a limit, the free tail of one chunk and the free head of another one serve a block. Then both chunks hold
 * nothing else; the first piece and the last one stay. */
CACHE_TEST(a_block_in_a_view_moves_with_its_chunks)
{
    size_t bytes = PIECE + PIECE / 2;
    checkerboard_begun(test, (vmm_config)VMM_CONFIG_INIT);
    assert_ok(vmm_limit_set(test->cache, HOLED));
    void *block = block_alloc(test, bytes, 1);
    assert_true(vmm__views_contain(&test->cache->views, (uintptr_t)block));
    block_fill(test, block, bytes, 77, 1);
    assert_ok(vmm_limit_set(test->cache, 2 * HOLED));
    for (int i = 3; i < PIECES - 1; i += 2)
        block_free(test, pieces[i]);
    assert_ok(vmm_compact(test->cache, 0, NULL, NULL));
    assert_int_equal(reserved(test), (2 + 2 + 1 + 2) * 2 * MIB);
    block_check(test, block, bytes, 77, 1);
    block_fill(test, block, bytes, 78, 1);
    piece_check(test, 1);
    piece_check(test, PIECES - 1);
    block_check(test, block, bytes, 78, 1);
    work_verify(test);
    cache_verify(test);
    block_free(test, block);
    block_free(test, pieces[1]);
    block_free(test, pieces[PIECES - 1]);
}

/* Every other block of 2 MiB is freed, in chunks of LARGE_CHUNK: no free memory can be used for larger requests. */
CACHE_TEST(compaction_makes_room_for_large_requests)
{
    enum { BLOCKS = HOLED / (2 * MIB) };
    void *blocks[BLOCKS];
    void *large[2];
    cache_restart_with(test, .footprint_permille = VMM_FOOTPRINT_ANY);
    large_chunks_make(test, HOLED, 1);
    assert_ok(vmm_limit_set(test->cache, HOLED + LARGE_CHUNK));
    for (int i = 0; i < BLOCKS; i++)
        blocks[i] = block_alloc(test, 2 * MIB, 1);
    for (int i = 0; i < BLOCKS; i += 2)
        block_free(test, blocks[i]);
    assert_status(vmm_alloc(test->cache, 32 * MIB, test->streams[1], large), VMM_ERR_DEVICE_OOM);
    assert_non_null(strstr(vmm_last_error(), "48.0 MiB pinned beside live blocks"));
    assert_non_null(strstr(vmm_last_error(), "vmm_compact()"));
    assert_ok(vmm_compact(test->cache, 0, NULL, NULL));
    for (int i = 0; i < 2; i++)
        large[i] = block_alloc(test, 32 * MIB, 1);
    assert_int_equal(reserved(test), HOLED + LARGE_CHUNK);
}

CACHE_TEST(without_caching_compaction_moves_nothing)
{
    uint64_t moved = 1;
    checkerboard_begun(test, CONFIG(.no_caching = 1));
    assert_ok(vmm_compact(test->cache, 0, &moved, NULL));
    assert_int_equal(moved, 0);
    pieces_check(test);
    pieces_free(test);
}

/* ---- The budget ------------------------------------------------------------------------------- */

static uint64_t clock_ns;

/* One millisecond passes from each reading to the next. */
static uint64_t clock_read(void *context)
{
    (void)context;
    return clock_ns += NS_PER_MS;
}

CACHE_TEST(a_budget_stops_compaction_between_chunks)
{
    uint64_t moved;
    uint64_t released;
    checkerboard_begun(test, CONFIG(.clock = clock_read));
    assert_ok(vmm_compact(test->cache, 1, &moved, &released));
    assert_int_equal(moved + released, 0);
    for (int i = 0; i < CHUNKS; i++) {
        uint64_t before = reserved(test);
        assert_ok(vmm_compact(test->cache, 2, &moved, &released));
        assert_true(moved > 0 && moved <= HOLED / CHUNKS);
        assert_int_equal(reserved(test), before - released);
        pieces_check(test);
    }
    assert_int_equal(reserved(test), HOLED / 3 * 2);
    assert_ok(vmm_compact(test->cache, UINT32_MAX, &moved, &released));
    assert_int_equal(moved + released, 0);
    pieces_free(test);
}

/* ---- What stays ------------------------------------------------------------------------------- */

static uint64_t handle_at(struct cache_test *test, const char *address)
{
    const struct vm *memory = &test->cache->vm;
    uint64_t granule = vmm__arena_granule(&memory->arena, (uintptr_t)address);
    return vmm__vm_chunk(memory, granule)->handle;
}

CACHE_TEST(pinned_blocks_stay)
{
    uint64_t released;
    checkerboard_begun(test, (vmm_config)VMM_CONFIG_INIT);
    char *pinned = pieces[1];
    uint64_t handles[] = { handle_at(test, pinned), handle_at(test, pinned + PIECE - 1) };
    assert_ok(vmm_pin(test->cache, pinned));
    assert_ok(vmm_compact(test->cache, 0, NULL, &released));
    assert_true(released > 0 && released < HOLED / 3);
    assert_true(handle_at(test, pinned) == handles[0]);
    assert_true(handle_at(test, pinned + PIECE - 1) == handles[1]);
    pieces_check(test);
    assert_ok(vmm_unpin(test->cache, pinned));
    assert_ok(vmm_compact(test->cache, 0, NULL, NULL));
    assert_int_equal(reserved(test), HOLED / 3 * 2);
    pieces_check(test);
    pieces_free(test);
}

CACHE_TEST(memory_of_graphs_in_use_stays)
{
    struct graph graph;
    uint64_t moved = 1;
    uint64_t released = 1;
    graph_mix(test, &graph, 3, 1);
    (void)cache_trim(test, 0);
    assert_ok(vmm_compact(test->cache, 0, &moved, &released));
    assert_int_equal(moved + released, 0);
    graph_replay(test, &graph, 2);
    graph_discard(test, &graph);
    work_verify(test);
    assert_ok(vmm_compact(test->cache, 0, NULL, NULL));
    assert_int_equal(reserved(test), 0);
}

/* ---- When it is refused ----------------------------------------------------------------------- */

static void refused(struct cache_test *test, vmm_status expected)
{
    uint64_t moved = 77;
    uint64_t released = 78;
    uint64_t before = reserved(test);
    uint64_t stalls = cache_stalls(test);
    uint64_t copies = vmm__driver_calls(test->driver, DRIVER_CALL_copy);
    assert_status(vmm_compact(test->cache, 0, &moved, &released), expected);
    assert_true(moved == 77 && released == 78);
    assert_true(reserved(test) == before && cache_stalls(test) == stalls);
    assert_int_equal(vmm__driver_calls(test->driver, DRIVER_CALL_copy), copies);
}

CACHE_TEST(compaction_is_refused_during_a_capture)
{
    vmm_pool_id id = { 5, 0 };
    checkerboard_begun(test, (vmm_config)VMM_CONFIG_INIT);
    work_verify(test);
    assert_ok(graph_pool_begin(test->cache, id, NULL, NULL)); /* a route is no capture */
    assert_ok(vmm_compact(test->cache, 0, NULL, NULL));
    assert_ok(graph_pool_end(test->cache, id));
    assert_ok(graph_pool_release(test->cache, id));
    pieces_check(test);
    pieces_free(test);
    checkerboard_begun(test, (vmm_config)VMM_CONFIG_INIT);
    capture_begin(test, 1);
    refused(test, VMM_ERR_INVALID_ARGUMENT);
    capture_end(test, 1);
    assert_ok(vmm_compact(test->cache, 0, NULL, NULL));
    pieces_check(test);
    pieces_free(test);
}

CACHE_TEST(debug_mode_refuses_compaction)
{
    static const vmm_debug_mode debugs[] = { VMM_DEBUG_RECORD, VMM_DEBUG_ON };
    for (int i = 0; i < 2; i++) {
        cache_restart_with(test, .debug = debugs[i]);
        void *block = block_alloc(test, PIECE, 1);
        work_verify(test);
        if (debugs[i] == VMM_DEBUG_ON)
            refused(test, VMM_ERR_UNSUPPORTED);
        else
            assert_ok(vmm_compact(test->cache, 0, NULL, NULL));
        block_free(test, block);
    }
}

/* ---- What calls of other threads submit ---------------------------------------------------------- */

/* A driver that lets another thread allocate a block while a compaction gives idle memory back: it has waited for the
 * device, and holds no lane's lock. */
static struct {
    struct driver_ops table;
    const struct driver_ops *real;
    struct cache_test *test;
    vmm_status status;
    void *block; /* NULL: not yet */
} late;

static void *late_main(void *context)
{
    (void)context;
    late.status = vmm_alloc(late.test->cache, PIECE, late.test->streams[1], &late.block);
    return NULL;
}

static vmm_status late_unmap(struct driver *driver, uint64_t address, uint64_t bytes)
{
    if (late.block == NULL)
        (void)thread_run(late_main, NULL);
    return late.real->unmap(driver, address, bytes);
}

static void late_arm(struct cache_test *test)
{
    late.test = test;
    late.block = NULL;
    late.real = test->driver->ops;
    late.table = *late.real;
    late.table.unmap = late_unmap;
    test->driver->ops = &late.table;
}

/* The program submits no work meanwhile, but the library clears the new block. */
CACHE_TEST(compaction_waits_for_what_other_calls_clear)
{
    uint64_t moved = 0;
    checkerboard_begun(test, CONFIG(.zero = VMM_ON));
    block_free(test, block_alloc(test, 48 * MIB, 2));
    late_arm(test);
    vmm_status status = vmm_compact(test->cache, 0, &moved, NULL);
    test->driver->ops = late.real;
    assert_ok(status);
    assert_true(moved > 0);
    assert_non_null(late.block);
    assert_ok(late.status);
    pieces_check(test);
    block_free(test, late.block);
    pieces_free(test);
}

CACHE_MAIN()
