/* Blocks that two caches of one process share: export, send, receive, import, close. */
#define _GNU_SOURCE
#include "support/folder_support.h"
#include "support/share_support.h"

#include "base/handle.h"
#include "base/hostmem.h"
#include "driver/sim/sim.h"

#include <pthread.h>
#include <string.h>

/* ---- The same memory ----------------------------------------------------------------------- */

CACHE_TEST(an_import_shows_the_exporters_bytes_and_answers)
{
    static const size_t sizes[] = { 1, 5000, MIB, 3 * MIB, 20 * MIB };
    vmm_cache *other = cache_second(test);
    vmm_pool *pool = shareable_make(test->cache);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        size_t bytes = (sizes[i] + 511) / 512 * 512;
        void *block = block_from(test, pool, bytes, 0);
        vmm_share *share = export_of(test->cache, block);
        vmm_share *received = share_pass(share, i % 2 == 0 ? SOCK_STREAM : SOCK_SEQPACKET);
        void *imported = import_of(other, received, test->streams[0]);
        assert_ptr_not_equal(imported, block);
        assert_ok(vmm_share_close(received, 0));
        block_fill(test, block, bytes, EXPORT_WORD, 0);
        block_check(test, imported, bytes, EXPORT_WORD, 0);
        block_fill(test, imported, bytes, ANSWER_WORD, 0);
        block_check(test, block, bytes, ANSWER_WORD, 0);
        work_verify(test);
        assert_ok(vmm_free(other, imported));
        assert_ok(vmm_free(test->cache, block));
        assert_ok(vmm_share_close(share, 1));
    }
}

/* An import needs addresses only, and counts in no limit. */
CACHE_TEST(a_share_larger_than_the_importers_device_is_imported)
{
    enum { IMPORTS = 3 };
    void *imported[IMPORTS];
    if (driver_choice_kind() != VMM_DRIVER_HOST)
        return; /* sim devices share no memory between drivers, and a GPU has the size that it has */
    vmm_cache *other = cache_with(.driver = driver_choice_kind(), .device_bytes = 32 * MIB);
    void *block = block_from(test, shareable_make(test->cache), 100 * MIB, 0);
    vmm_share *share = export_of(test->cache, block);
    for (int i = 0; i < IMPORTS; i++)
        assert_ok(vmm_share_import(other, share, NULL, &imported[i]));
    for (int i = 0; i < IMPORTS; i++)
        assert_ok(vmm_free(other, imported[i]));
    assert_ok(vmm_destroy(other));
}

CACHE_TEST(blocks_of_a_shareable_pool_share_no_memory)
{
    vmm_pool *pool = shareable_make(test->cache);
    void *small = block_from(test, pool, 100, 0);
    (void)block_from(test, pool, 100, 0);
    assert_int_equal(cache_stats(test).reserved_bytes.current, 2 * GRANULE);
    assert_int_equal(cache_stats(test).chunks.current, 2);
    assert_int_equal(item_of(test->cache, small).bytes, GRANULE);
    block_free(test, small);
    assert_ptr_equal(block_from(test, pool, 5000, 0), small); /* of the same size in granules */
    block_free(test, small);
    (void)block_from(test, pool, 10 * MIB + 1, 0);
    assert_int_equal(cache_stats(test).chunks.current, 3); /* one chunk, however large */
    void *elsewhere = block_alloc(test, 1, 0);
    assert_ptr_not_equal(elsewhere, small);
}

CACHE_TEST(a_pool_that_shares_keeps_its_idle_memory)
{
    vmm_pool *pool = shareable_make(test->cache);
    block_free(test, block_from(test, pool, 8 * MIB, 0));
    void *ordinary = block_alloc(test, 8 * MIB, 0);
    assert_int_equal(cache_stats(test).reserved_bytes.current, 16 * MIB);
    block_free(test, ordinary);
    void *shared = block_from(test, pool, 4 * MIB, 0); /* not a part of the idle block either */
    assert_true(cache_stats(test).reserved_bytes.current >= 20 * MIB);
    block_free(test, shared);
    (void)block_alloc(test, CACHE_LIMIT, 0); /* idle memory still goes when memory runs out */
}

CACHE_TEST(a_lane_of_a_destroyed_pool_serves_pools_of_its_kind)
{
    vmm_pool_options options = VMM_POOL_OPTIONS_INIT;
    vmm_pool *ordinary;
    void *blocks[3];
    for (int round = 0; round < 2; round++) {
        vmm_pool *pool = shareable_make(test->cache);
        blocks[0] = block_from(test, pool, 100, 0);
        assert_int_equal(item_of(test->cache, blocks[0]).bytes, GRANULE);
        assert_ok(vmm_pool_create(test->cache, &options, &ordinary));
        blocks[1] = block_from(test, ordinary, 100, 0);
        blocks[2] = block_from(test, ordinary, 100, 0);
        assert_int_equal(cache_stats(test).reserved_bytes.current, 2 * GRANULE);
        for (int i = 0; i < 3; i++)
            block_free(test, blocks[i]);
        assert_ok(vmm_wait(test->cache));
        (void)cache_trim(test, 0);
        assert_ok(vmm_pool_destroy(round == 0 ? ordinary : pool, 0));
        assert_ok(vmm_pool_destroy(round == 0 ? pool : ordinary, 0));
    }
}

CACHE_TEST(idle_memory_of_another_stream_is_released_when_memory_runs_out)
{
    vmm_pool *pool = shareable_make(test->cache);
    assert_ok(vmm_pool_limit_set(pool, 8 * MIB));
    block_free(test, block_from(test, pool, 8 * MIB, 1));
    void *block = block_from(test, pool, 4 * MIB, 0);
    assert_int_equal(item_of(test->cache, block).bytes, 4 * MIB);
    block_free(test, block);
    assert_ok(vmm_wait(test->cache));
    block = block_from(test, pool, 6 * MIB, 0);
    assert_int_equal(cache_stats(test).reserved_bytes.current, 6 * MIB);
}

/* ---- Statistics and reports ---------------------------------------------------------------- */

static int imported_sum(void *context, const vmm_item *item)
{
    uint64_t *bytes = context;
    if (item->is_imported && item->kind == VMM_ITEM_CHUNK)
        *bytes += item->bytes;
    return 0;
}

CACHE_TEST(imported_bytes_are_a_statistic_of_their_own)
{
    vmm_cache *other = cache_second(test);
    vmm_pool *pool = shareable_make(test->cache);
    void *block = block_from(test, pool, 5 * MIB, 1);
    vmm_share *share = export_of(test->cache, block);
    assert_ok(vmm_limit_set(other, GRANULE));
    void *imported = import_of(other, share, test->streams[1]); /* beyond the limit */
    vmm_stats stats = stats_of(other);
    assert_int_equal(stats.imported_bytes, 6 * MIB);
    assert_int_equal(stats.reserved_bytes.current, 0);
    assert_int_equal(stats.allocated_bytes.current, 0);
    assert_int_equal(stats.active_bytes.current, 0);
    assert_int_equal(stats.retained_bytes, 0);
    assert_int_equal(stats.chunks.current, 0);
    vmm_item item = item_of(other, (char *)imported + 4 * MIB);
    assert_true(item.is_imported && !item.is_small && !item.is_view);
    assert_ptr_equal((void *)(uintptr_t)item.address, imported);
    assert_int_equal(item.requested_bytes, 5 * MIB);
    assert_ptr_equal(item.stream, test->streams[1]);
    assert_null(item.pool);
    assert_false(item_of(test->cache, block).is_imported);
    uint64_t walked = 0;
    assert_ok(vmm_walk(other, imported_sum, &walked));
    assert_int_equal(walked, 6 * MIB);
    assert_ok(vmm_trim(other, 0, NULL));
    assert_ok(vmm_compact(other, 0, NULL, NULL));
    assert_int_equal(stats_of(other).imported_bytes, 6 * MIB);
    assert_ok(vmm_free(other, imported));
    assert_status(vmm_free(other, imported), VMM_ERR_UNKNOWN_POINTER);
}

static void changes_count(void *context, const vmm_change *change)
{
    int *sum = context;
    if (change->is_imported)
        *sum += change->kind == VMM_CHANGE_MAP ? 1 : 10;
}

CACHE_TEST(the_listener_learns_of_imports)
{
    int changes = 0;
    vmm_share *share;
    (void)block_shared(test, MIB, &share);
    assert_ok(vmm_listen(test->cache, changes_count, &changes));
    void *imported = import_of(test->cache, share, test->streams[0]);
    assert_int_equal(changes, 1);
    block_free(test, imported);
    imports_vanish(test->cache);
    assert_int_equal(changes, 11);
    assert_ok(vmm_listen(test->cache, NULL, NULL));
}

/* A trim counts all that it releases, and no imported memory. */
CACHE_TEST(a_trim_counts_what_it_releases)
{
    vmm_pool *pool = shareable_make(test->cache);
    void *block = block_from(test, pool, 4 * MIB, 0);
    void *ordinary = block_alloc(test, 8 * MIB, 1);
    vmm_share *share = export_of(test->cache, block);
    void *imported = import_of(test->cache, share, test->streams[1]);
    bool is_certain = flight_begin(test, ordinary, 8 * MIB, 1);
    block_free(test, ordinary);
    block_free(test, imported);
    size_t released = cache_trim(test, 0);
    flight_end(test);
    assert_ok(vmm_wait(test->cache));
    assert_int_equal(released + cache_trim(test, 0), 8 * MIB);
    assert_true(!is_certain || released == 0);
    assert_int_equal(cache_stats(test).imported_bytes, 0);
}

/* A driver call for each chunk would cost 0.7 ms. */
CACHE_TEST(further_shares_open_no_descriptor)
{
    vmm_share *first;
    void *block = block_shared(test, 8 * MIB, &first);
    uint64_t calls = vmm__driver_calls(test->driver, DRIVER_CALL_share_export);
    vmm_share *second = export_of(test->cache, block);
    assert_int_equal(vmm__driver_calls(test->driver, DRIVER_CALL_share_export), calls);
    assert_ok(vmm_share_close(first, 0));
    first = export_of(test->cache, block);
    assert_int_equal(vmm__driver_calls(test->driver, DRIVER_CALL_share_export), calls);
    assert_ok(vmm_share_close(first, 0));
    (void)import_of(test->cache, second, test->streams[0]);
}

/* ---- The end of imported memory ------------------------------------------------------------ */

CACHE_TEST(imported_memory_stays_until_its_work_has_ended)
{
    vmm_cache *other = cache_second(test);
    vmm_share *share;
    (void)block_shared(test, 4 * MIB, &share);
    void *imported = import_of(other, share, test->streams[1]);
    bool is_certain = flight_begin(test, imported, 4 * MIB, 1);
    assert_ok(vmm_free(other, imported));
    if (is_certain)
        assert_int_equal(stats_of(other).imported_bytes, 4 * MIB);
    flight_end(test);
    imports_vanish(other);
    imported = import_of(other, share, test->streams[1]);
    assert_ok(vmm_record_stream(other, imported, test->streams[2]));
    is_certain = flight_begin(test, imported, 4 * MIB, 2);
    assert_ok(vmm_free(other, imported));
    assert_ok(vmm_poll(other));
    if (is_certain)
        assert_int_equal(stats_of(other).imported_bytes, 4 * MIB);
    flight_end(test);
    assert_ok(vmm_wait(other));
    assert_ok(vmm_trim(other, 0, NULL));
    assert_int_equal(stats_of(other).imported_bytes, 0);
}

CACHE_TEST(a_destroyed_cache_leaves_no_import)
{
    vmm_cache *other = cache_second(test);
    vmm_share *share;
    void *block = block_shared(test, 4 * MIB, &share);
    void *imported = import_of(other, share, test->streams[1]);
    (void)import_of(other, share, test->streams[2]);
    block_fill(test, imported, 4 * MIB, EXPORT_WORD, 1);
    assert_ok(vmm_destroy(other));
    block_check(test, block, 4 * MIB, EXPORT_WORD, 1);
}

/* A forged share may name any part of its chunks. */
CACHE_TEST(a_part_of_a_chunk_can_be_imported_and_does_not_move)
{
    vmm_cache *other = cache_second(test);
    vmm_share *share;
    void *block = block_shared(test, 8 * MIB, &share);
    vmm_share *received = share_pass(share, SOCK_STREAM);
    struct share *record = vmm__handle_find(HANDLE_SHARE, received);
    record->head.offset = 6 * MIB;
    record->head.bytes = 2 * MIB;
    void *imported = import_of(other, received, test->streams[0]);
    assert_int_equal(item_of(other, imported).bytes, 2 * MIB);
    assert_int_equal(stats_of(other).imported_bytes, 8 * MIB);
    assert_int_equal(stats_of(other).retained_bytes, 0);
    assert_ok(vmm_compact(other, 0, NULL, NULL));
    assert_ok(vmm_trim(other, 0, NULL));
    assert_int_equal(stats_of(other).reserved_bytes.current, 0);
    block_fill(test, imported, 2 * MIB, EXPORT_WORD, 0);
    block_check(test, (char *)block + 6 * MIB, 2 * MIB, EXPORT_WORD, 0);
}

/* ---- The end of exported memory ------------------------------------------------------------ */

CACHE_TEST(an_exported_block_stays_after_its_free)
{
    vmm_pool *pool = shareable_make(test->cache);
    void *block = block_from(test, pool, 4 * MIB, 0);
    vmm_share *first = export_of(test->cache, block);
    vmm_share *second = export_of(test->cache, block);
    block_fill(test, block, 4 * MIB, EXPORT_WORD, 0);
    block_free(test, block);
    assert_status(vmm_free(test->cache, block), VMM_ERR_UNKNOWN_POINTER);
    assert_status(vmm_share_export(test->cache, block, &(vmm_share *){ NULL }),
                  VMM_ERR_UNKNOWN_POINTER);
    void *next = block_from(test, pool, 4 * MIB, 0);
    assert_ptr_not_equal(next, block);
    (void)cache_trim(test, 0);
    assert_ok(vmm_compact(test->cache, 0, NULL, NULL));
    vmm_stats stats = cache_stats(test);
    assert_int_equal(stats.reserved_bytes.current, 8 * MIB);
    assert_int_equal(stats.active_bytes.current, 8 * MIB);
    assert_int_equal(stats.allocated_bytes.current, 4 * MIB);
    assert_int_equal(stats.unmovable_bytes, 4 * MIB);
    assert_ok(vmm_share_close(first, 0));
    assert_int_equal(cache_stats(test).active_bytes.current, 8 * MIB);
    void *imported = import_of(test->cache, second, test->streams[0]);
    block_check(test, imported, 4 * MIB, EXPORT_WORD, 0);
    work_verify(test);
    block_free(test, imported);
    assert_ok(vmm_share_close(second, 0));
    assert_int_equal(cache_stats(test).active_bytes.current, 4 * MIB);
    assert_int_equal(cache_stats(test).unmovable_bytes, 0);
    assert_ptr_equal(block_from(test, pool, 4 * MIB, 0), block);
}

CACHE_TEST(an_exported_block_waits_for_other_streams_too)
{
    vmm_pool *pool = shareable_make(test->cache);
    for (int closes_first = 0; closes_first < 2; closes_first++) {
        void *block = block_from(test, pool, 4 * MIB, 0);
        vmm_share *share = export_of(test->cache, block);
        block_use(test, block, 1);
        bool is_certain = flight_begin(test, block, 4 * MIB, 1);
        block_free(test, block);
        if (closes_first)
            assert_ok(vmm_share_close(share, 0));
        if (is_certain)
            assert_int_equal(cache_stats(test).active_bytes.current, 4 * MIB);
        flight_end(test);
        assert_ok(vmm_wait(test->cache));
        (void)cache_trim(test, 0);
        assert_int_equal(cache_stats(test).active_bytes.current, closes_first ? 0 : 4 * MIB);
        if (!closes_first)
            assert_ok(vmm_share_close(share, 0));
        assert_int_equal(cache_stats(test).active_bytes.current, 0);
    }
}

CACHE_TEST(a_pin_and_an_export_end_by_themselves)
{
    vmm_pool *pool = shareable_make(test->cache);
    void *block = block_from(test, pool, 4 * MIB, 0);
    assert_ok(vmm_pin(test->cache, block));
    vmm_share *share = export_of(test->cache, block);
    assert_ok(vmm_unpin(test->cache, block));
    assert_int_equal(cache_stats(test).unmovable_bytes, 4 * MIB);
    assert_ok(vmm_pin(test->cache, block));
    assert_ok(vmm_share_close(share, 0));
    assert_int_equal(cache_stats(test).unmovable_bytes, 4 * MIB);
    block_free(test, block);
    assert_int_equal(cache_stats(test).unmovable_bytes, 0);
}

CACHE_TEST(an_export_outlives_its_pool)
{
    vmm_pool *pool = shareable_make(test->cache);
    void *live = block_from(test, pool, 4 * MIB, 0);
    void *freed = block_from(test, pool, 6 * MIB, 0);
    (void)export_of(test->cache, live);
    vmm_share *share_of_freed = export_of(test->cache, freed);
    block_fill(test, freed, 6 * MIB, EXPORT_WORD, 0);
    block_free(test, freed);
    assert_ok(vmm_pool_destroy(pool, 1));
    void *ordinary = block_alloc(test, 6 * MIB, 0);
    block_fill(test, ordinary, 6 * MIB, NEIGHBOUR_WORD, 0);
    void *imported = import_of(test->cache, share_of_freed, test->streams[0]);
    block_check(test, imported, 6 * MIB, EXPORT_WORD, 0);
}

CACHE_TEST(importers_keep_the_memory_of_a_destroyed_cache)
{
    vmm_cache *other = cache_second(test);
    vmm_pool *pool = shareable_make(other);
    void *block = block_in_pool(pool, 4 * MIB, test->streams[0]);
    vmm_share *share = export_of(other, block);
    void *imported = import_of(test->cache, share, test->streams[0]);
    block_fill(test, block, 4 * MIB, EXPORT_WORD, 0);
    assert_status(vmm_share_send(share, -1), VMM_ERR_DRIVER);
    assert_ok(vmm_destroy(other));
    block_check(test, imported, 4 * MIB, EXPORT_WORD, 0);
    work_verify(test);
    void *again =
        import_of(test->cache, share, test->streams[0]); /* the share outlives the cache */
    block_check(test, again, 4 * MIB, EXPORT_WORD, 0);
}

/* ---- Refusals ------------------------------------------------------------------------------ */

CACHE_TEST(what_cannot_be_exported_is_refused)
{
    vmm_share *share = NULL;
    vmm_pool *pool = shareable_make(test->cache);
    void *ordinary = block_alloc(test, 4 * MIB, 0);
    void *block = block_from(test, pool, 4 * MIB, 0);
    assert_status(vmm_share_export(test->cache, ordinary, &share), VMM_ERR_INVALID_ARGUMENT);
    assert_non_null(strstr(vmm_last_error(), "not of a shareable pool"));
    assert_int_equal(cache_stats(test).unmovable_bytes, 0);
    assert_status(vmm_share_export(test->cache, (char *)block + 512, &share),
                  VMM_ERR_UNKNOWN_POINTER);
    assert_status(vmm_share_export(test->cache, &share, &share), VMM_ERR_UNKNOWN_POINTER);
    assert_status(vmm_share_export(test->cache, block, NULL), VMM_ERR_INVALID_ARGUMENT);
    assert_status(vmm_share_export(NULL, block, &share), VMM_ERR_INVALID_ARGUMENT);
    assert_null(share);
    share = export_of(test->cache, block);
    void *imported = import_of(test->cache, share, NULL);
    assert_status(vmm_share_export(test->cache, imported, &share), VMM_ERR_INVALID_ARGUMENT);
    assert_ok(vmm_share_close(share, 0));
}

/* The memory of a destroyed pool serves other requests, several in one chunk. */
CACHE_TEST(a_block_that_shares_its_chunk_is_not_exported)
{
    vmm_share *share;
    vmm_pool *pool = shareable_make(test->cache);
    void *whole = block_from(test, pool, 8 * MIB, 0);
    assert_ok(vmm_limit_set(test->cache, 8 * MIB));
    block_free(test, whole);
    assert_ok(vmm_wait(test->cache));
    assert_ok(vmm_pool_destroy(pool, 0));
    void *low = block_alloc(test, MIB + 16 * KIB, 0);
    void *high = block_alloc(test, 7 * MIB - 16 * KIB, 0);
    assert_ptr_equal(low, whole); /* it took over the chunk */
    assert_ptr_equal(high, (char *)whole + MIB + 16 * KIB);
    assert_status(vmm_share_export(test->cache, low, &share), VMM_ERR_INVALID_ARGUMENT);
    assert_status(vmm_share_export(test->cache, high, &share), VMM_ERR_INVALID_ARGUMENT);
}

CACHE_TEST(a_forged_share_is_not_imported)
{
    void *out = NULL;
    vmm_share *share;
    (void)block_shared(test, 4 * MIB, &share);
    struct share *record = vmm__handle_find(HANDLE_SHARE, share);
    record->chunks[0].bytes = 3 * MIB;
    assert_status(vmm_share_import(test->cache, share, NULL, &out), VMM_ERR_INVALID_ARGUMENT);
    assert_non_null(strstr(vmm_last_error(), "granules"));
    record->chunks[0].bytes = -(uint64_t)GRANULE;
    assert_status(vmm_share_import(test->cache, share, NULL, &out), VMM_ERR_ADDRESS_SPACE);
    assert_non_null(strstr(vmm_last_error(), "more than the arena has"));
    record->chunks[0].bytes = 6 * MIB;
    assert_status(vmm_share_import(test->cache, share, NULL, &out), VMM_ERR_DRIVER);
    assert_null(strstr(vmm_last_error(), "another device"));
    record->head.uuid[0] ^= 1;
    assert_status(vmm_share_import(test->cache, share, NULL, &out), VMM_ERR_DRIVER);
    assert_non_null(strstr(vmm_last_error(), "another device"));
    assert_non_null(strstr(vmm_last_error(), "6291456")); /* the driver's own reason */
    record->chunks[0].bytes = 4 * MIB;
    int descriptor = record->chunks[0].exported->descriptor;
    record->chunks[0].exported->descriptor = STDERR_FILENO; /* of another kind */
    assert_status(vmm_share_import(test->cache, share, NULL, &out), VMM_ERR_DRIVER);
    record->chunks[0].exported->descriptor = descriptor;
    assert_null(out);
    assert_int_equal(cache_stats(test).imported_bytes, 0);
}

CACHE_TEST(a_stale_share_is_refused)
{
    void *out = NULL;
    vmm_pool *pool = shareable_make(test->cache);
    void *block = block_from(test, pool, 1, 0);
    vmm_share *share = export_of(test->cache, block);
    assert_ok(vmm_share_close(share, 0));
    assert_status(vmm_share_close(share, 1), VMM_ERR_INVALID_ARGUMENT);
    assert_status(vmm_share_send(share, 0), VMM_ERR_INVALID_ARGUMENT);
    assert_status(vmm_share_import(test->cache, share, NULL, &out), VMM_ERR_INVALID_ARGUMENT);
    assert_status(vmm_share_close((vmm_share *)pool, 1), VMM_ERR_INVALID_ARGUMENT);
    assert_status(vmm_share_close(NULL, 1), VMM_ERR_INVALID_ARGUMENT);
    assert_null(out);
}

CACHE_TEST(a_share_that_was_sent_is_closed_by_force)
{
    vmm_share *share;
    (void)block_shared(test, 1, &share);
    vmm_share *received = share_pass(share, SOCK_STREAM);
    vmm_share *passed_on = share_pass(received, SOCK_STREAM);
    assert_ok(vmm_share_close(received, 0));
    (void)import_of(test->cache, passed_on, NULL);
    assert_ok(vmm_share_close(passed_on, 0));
    assert_status(vmm_share_close(share, 0), VMM_ERR_INVALID_ARGUMENT);
}

/* Nothing has left the process, so no importer exists. */
CACHE_TEST(a_share_whose_send_failed_at_once_was_not_sent)
{
    int sockets[2];
    vmm_share *share;
    (void)block_shared(test, 1, &share);
    assert_status(vmm_share_send(share, -1), VMM_ERR_DRIVER);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets), 0);
    (void)close(sockets[1]);
    assert_status(vmm_share_send(share, sockets[0]), VMM_ERR_DRIVER);
    (void)close(sockets[0]);
}

CACHE_TEST(sockets_that_may_lose_a_part_are_refused)
{
    int sockets[2];
    vmm_share *share;
    vmm_share *received = NULL;
    (void)block_shared(test, 1, &share);
    assert_int_equal(socketpair(AF_UNIX, SOCK_DGRAM, 0, sockets), 0);
    assert_status(vmm_share_send(share, sockets[0]), VMM_ERR_INVALID_ARGUMENT);
    assert_non_null(strstr(vmm_last_error(), "neither the type SOCK_STREAM nor SOCK_SEQPACKET"));
    assert_status(vmm_share_receive(sockets[1], &received), VMM_ERR_INVALID_ARGUMENT);
    assert_null(received);
    (void)close(sockets[0]);
    (void)close(sockets[1]);
    assert_ok(vmm_share_close(share, 0));
}

CACHE_TEST(a_device_that_cannot_share_refuses_the_pool)
{
    vmm_pool_options options = VMM_POOL_OPTIONS_INIT;
    vmm_pool *pool = NULL;
    bool has_sharing = test->driver->has_sharing;
    options.shareable = 1;
    test->driver->has_sharing = false;
    assert_status(vmm_pool_create(test->cache, &options, &pool), VMM_ERR_UNSUPPORTED);
    test->driver->has_sharing = has_sharing;
    assert_null(pool);
    assert_non_null(strstr(vmm_last_error(), "cannot share memory"));
}

/* ---- Sleep --------------------------------------------------------------------------------- */

CACHE_TEST(exported_blocks_do_not_sleep)
{
    vmm_share *share = NULL;
    vmm_pool *pool = shareable_make(test->cache);
    void *block = block_from(test, pool, 4 * MIB, 0);
    share = export_of(test->cache, block);
    vmm_share *second = export_of(test->cache, block);
    assert_status(vmm_pool_sleep(&pool, 1, NULL, NULL), VMM_ERR_INVALID_ARGUMENT);
    assert_non_null(strstr(vmm_last_error(), "has exported blocks"));
    assert_ok(vmm_share_close(second, 0));
    assert_status(vmm_pool_sleep(&pool, 1, NULL, NULL), VMM_ERR_INVALID_ARGUMENT);
    assert_ok(vmm_share_close(share, 0));
    block_fill(test, block, 4 * MIB, EXPORT_WORD, 0);
    assert_ok(vmm_pool_sleep(&pool, 1, NULL, NULL));
    assert_status(vmm_share_export(test->cache, block, &share), VMM_ERR_ASLEEP);
    assert_ok(vmm_pool_wake(&pool, 1, NULL, NULL));
    share = export_of(test->cache, block); /* its new memory can be shared, too */
    void *imported = import_of(test->cache, share, test->streams[0]);
    block_check(test, imported, 4 * MIB, EXPORT_WORD, 0);
    work_verify(test);
    block_free(test, imported);
    assert_ok(vmm_share_close(share, 0));
}

/* ---- Captures, other settings -------------------------------------------------------------- */

CACHE_TEST(shares_work_during_a_capture)
{
    vmm_pool *pool = shareable_make(test->cache);
    (void)block_from(test, pool, 4 * MIB, 1);
    capture_begin(test, 1);
    void *block = block_from(test, pool, 4 * MIB, 1);
    vmm_share *share = export_of(test->cache, block);
    void *imported = import_of(test->cache, share, test->streams[1]);
    block_free(test, imported);
    assert_ok(vmm_poll(test->cache));
    assert_int_equal(cache_stats(test).imported_bytes, 4 * MIB);
    capture_end(test, 1);
}

static int stream_takes(void *context, vmm_stream stream)
{
    (void)context;
    (void)stream;
    return 1;
}

CACHE_TEST(pushes_and_routes_do_not_apply_to_shares)
{
    vmm_pool *pool = shareable_make(test->cache);
    void *block = block_from(test, pool, 4 * MIB, 0);
    vmm_pool *active = pool_in_with(test->cache, NULL);
    for (int is_route = 0; is_route <= 1; is_route++) {
        assert_ok(is_route ? vmm_pool_route(active, stream_takes, NULL) : vmm_pool_push(active));
        vmm_share *share = export_of(test->cache, block);
        void *imported = import_of(test->cache, share, test->streams[0]);
        assert_ptr_equal(item_of(test->cache, block).pool, pool);
        assert_null(item_of(test->cache, imported).pool);
        block_free(test, imported);
        assert_ok(vmm_share_close(share, 0));
        assert_ok(is_route ? vmm_pool_unroute(active) : vmm_pool_pop(active));
    }
}

CACHE_TEST(debug_mode_and_no_caching_share)
{
    const vmm_config configs[] = { CONFIG(.debug = VMM_DEBUG_ON), CONFIG(.debug = VMM_DEBUG_RECORD),
                                   CONFIG(.no_caching = VMM_ON), CONFIG(.zero = VMM_ON) };
    static const size_t sizes[] = { 512, 3 * MIB };
    for (size_t i = 0; i < 2 * sizeof configs / sizeof *configs; i++) {
        size_t bytes = sizes[i % 2];
        cache_restart(test, &configs[i / 2]);
        void *block = block_from(test, shareable_make(test->cache), bytes, 0);
        if (configs[i / 2].debug != VMM_DEBUG_ON)
            assert_int_equal(item_of(test->cache, block).bytes % GRANULE, 0);
        block_fill(test, block, bytes, EXPORT_WORD, 0);
        vmm_share *share = export_of(test->cache, block);
        vmm_share *received = share_pass(share, SOCK_STREAM);
        block_free(test, block);
        void *imported = import_of(test->cache, received, test->streams[0]);
        block_check(test, imported, bytes, EXPORT_WORD, 0);
        work_verify(test);
        assert_int_equal(item_of(test->cache, imported).requested_bytes, bytes);
        assert_ok(vmm_record_stream(test->cache, imported, test->streams[1]));
        assert_ok(vmm_pin(test->cache, imported));
        assert_ok(vmm_debug_check(test->cache));
        block_free(test, imported);
        imports_vanish(test->cache);
        assert_ok(vmm_share_close(received, 0));
        assert_ok(vmm_share_close(share, 1));
        if (configs[i / 2].no_caching == VMM_ON)
            assert_int_equal(cache_stats(test).reserved_bytes.current, 0);
        assert_ok(vmm_wait(test->cache));
        (void)cache_trim(test, 0);
        assert_int_equal(cache_stats(test).reserved_bytes.current, 0);
    }
}

/* ---- Nothing is left ----------------------------------------------------------------------- */

static void cycle(vmm_cache *from, vmm_cache *to, vmm_pool *pool, const int sockets[2],
                  struct cache_test *test)
{
    void *block = block_from(test, pool, 4 * MIB, 0);
    vmm_share *share = export_of(from, block);
    vmm_share *received;
    assert_ok(vmm_share_send(share, sockets[0]));
    assert_ok(vmm_share_receive(sockets[1], &received));
    void *imported = import_of(to, received, test->streams[1]);
    assert_ok(vmm_share_close(received, 0));
    assert_ok(vmm_free(to, imported));
    assert_ok(vmm_free(from, block));
    assert_ok(vmm_share_close(share, 1));
}

CACHE_TEST(a_thousand_cycles_leave_nothing)
{
    int sockets[2];
    int cycles = IS_SLOW_BUILD ? 100 : 1000;
    vmm_cache *other = cache_second(test);
    vmm_pool *pool = shareable_make(test->cache);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets), 0);
    cycle(test->cache, other, pool, sockets, test);
    imports_vanish(other);
    int descriptors = descriptors_open();
    uint64_t mapped_bytes = test->driver->mapped_bytes;
    uint64_t host_bytes = vmm__host_outstanding();
    for (int i = 0; i < cycles; i++)
        cycle(test->cache, other, pool, sockets, test);
    imports_vanish(other);
    assert_int_equal(test->driver->imports, 0);
    assert_int_equal(test->driver->mapped_bytes, mapped_bytes);
    assert_int_equal(descriptors_open(), descriptors);
    assert_int_equal(vmm__host_outstanding(), host_bytes);
    (void)close(sockets[0]);
    (void)close(sockets[1]);
}

/* ---- Threads ------------------------------------------------------------------------------- */

enum { THREADS = 4 };

struct worker {
    struct cache_test *test;
    vmm_cache *other;
    vmm_pool *pool;
    int sockets[2];
    unsigned stream;
};

static void *worker_run(void *context)
{
    struct worker *worker = context;
    struct cache_test *test = worker->test;
    int cycles = IS_SLOW_BUILD ? 20 : 100;
    for (int i = 0; i < cycles; i++) {
        size_t bytes = (1 + (size_t)i % 4) * MIB;
        void *block = block_from(test, worker->pool, bytes, worker->stream);
        vmm_share *share = export_of(test->cache, block);
        vmm_share *received;
        assert_ok(vmm_share_send(share, worker->sockets[0]));
        assert_ok(vmm_share_receive(worker->sockets[1], &received));
        void *imported = import_of(worker->other, received, test->streams[worker->stream]);
        assert_ok(vmm_share_close(received, 0));
        block_fill(test, block, bytes, EXPORT_WORD + worker->stream, worker->stream);
        block_check(test, imported, bytes, EXPORT_WORD + worker->stream, worker->stream);
        assert_true(item_of(worker->other, imported).is_imported);
        assert_ok(vmm_free(worker->other, imported));
        block_free(test, block);
        assert_ok(vmm_share_close(share, 1));
        (void)cache_trim(test, 8 * MIB);
    }
    return NULL;
}

CACHE_TEST(threads_share_at_once)
{
    pthread_t threads[THREADS];
    struct worker workers[THREADS];
    vmm_cache *other = cache_second(test);
    vmm_pool *pool = shareable_make(test->cache);
    for (unsigned i = 0; i < THREADS; i++) {
        workers[i] = (struct worker){ .test = test, .other = other, .pool = pool, .stream = i };
        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, workers[i].sockets), 0);
        assert_int_equal(pthread_create(&threads[i], NULL, worker_run, &workers[i]), 0);
    }
    for (unsigned i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
        (void)close(workers[i].sockets[0]);
        (void)close(workers[i].sockets[1]);
    }
}

CACHE_MAIN()
