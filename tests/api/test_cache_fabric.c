/* Pools with fabric handles: shares that need no Unix socket. */
#define _GNU_SOURCE
#include "support/share_support.h"
#include "support/tcp_support.h"

#include "base/handle.h"

#include <stdio.h>
#include <string.h>

/* ---- Steps --------------------------------------------------------------------------------- */

/* No GPU was at hand that has fabric handles: there the pool is refused, and that is all that a test can see. Returns
 * NULL then. */
static vmm_pool *fabric_try(struct cache_test *test)
{
    vmm_pool_options options = VMM_POOL_OPTIONS_INIT;
    vmm_pool *pool = NULL;
    options.shareable = VMM_SHARE_FABRIC;
    vmm_status status = vmm_pool_create(test->cache, &options, &pool);
    if (driver_choice_kind() != VMM_DRIVER_CUDA || status == VMM_OK) {
        assert_status(status, VMM_OK);
        return pool;
    }
    assert_status(status, VMM_ERR_UNSUPPORTED);
    assert_null(pool);
    assert_non_null(strstr(vmm_last_error(), "vmm_pool_create: shareable: "));
    assert_non_null(strstr(vmm_last_error(), "has no fabric handles: '"));
    assert_non_null(strstr(vmm_last_error(), test->driver->device_name));
    (void)fprintf(stderr, "skipped: %s\n", vmm_last_error());
    return NULL;
}

/* Skips the test without fabric handles, so it comes before everything that must be undone. */
static vmm_pool *fabric_make(struct cache_test *test)
{
    vmm_pool *pool = fabric_try(test);
    if (pool == NULL)
        skip();
    return pool;
}

static void tcp_open(int sockets[2])
{
    assert_true(tcp_pair(sockets));
}

static void sockets_close(const int sockets[2])
{
    assert_int_equal(close(sockets[0]), 0);
    assert_int_equal(close(sockets[1]), 0);
}

/* What arrives when a share is sent through TCP. */
static vmm_share *tcp_pass(vmm_share *share)
{
    int sockets[2];
    vmm_share *received;
    tcp_open(sockets);
    assert_ok(vmm_share_send(share, sockets[0]));
    assert_ok(vmm_share_receive(sockets[1], &received));
    sockets_close(sockets);
    return received;
}

/* Imports a share into another cache, checks the exporter's word there, and answers. */
static void share_use(struct cache_test *test, vmm_share *share, void *block, size_t bytes)
{
    vmm_cache *other = cache_second(test);
    block_fill(test, block, bytes, EXPORT_WORD, 0);
    work_verify(test);
    void *imported = import_of(other, share, test->streams[0]);
    assert_int_equal(item_of(other, imported).requested_bytes, bytes);
    block_check(test, imported, bytes, EXPORT_WORD, 0);
    block_fill(test, imported, bytes, ANSWER_WORD, 0);
    block_check(test, block, bytes, ANSWER_WORD, 0);
    work_verify(test);
    assert_ok(vmm_free(other, imported));
    importer_end(other);
}

/* After a share was sent, received and used. */
static void share_end(struct cache_test *test, vmm_share *share, vmm_share *received, void *block)
{
    assert_ok(vmm_share_close(received, 0));
    assert_ok(vmm_share_close(share, 1));
    block_free(test, block);
}

/* ---- Shares -------------------------------------------------------------------------------- */

CACHE_TEST(a_share_goes_through_tcp)
{
    static const size_t sizes[] = { 1, 3 * MIB, 37 * MIB };
    vmm_pool *pool = fabric_make(test);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        void *block = block_from(test, pool, sizes[i], 0);
        vmm_share *share = export_of(test->cache, block);
        vmm_share *received = tcp_pass(share);
        share_use(test, received, block, sizes[i]);
        assert_status(vmm_share_close(share, 0), VMM_ERR_INVALID_ARGUMENT); /* it was sent */
        share_end(test, share, received, block);
    }
}

CACHE_TEST(through_a_unix_socket_its_descriptors_go)
{
    vmm_pool *pool = fabric_make(test);
    void *block = block_from(test, pool, 3 * MIB, 0);
    vmm_share *share = export_of(test->cache, block);
    vmm_share *received = share_pass(share, SOCK_STREAM);
    int sockets[2];
    share_use(test, received, block, 3 * MIB);
    tcp_open(sockets);
    assert_status(vmm_share_send(received, sockets[0]), VMM_ERR_INVALID_ARGUMENT);
    assert_non_null(strstr(vmm_last_error(), "no fabric handles"));
    sockets_close(sockets);
    share_end(test, share, received, block);
}

CACHE_TEST(a_share_that_came_through_tcp_is_sent_on)
{
    vmm_pool *pool = fabric_make(test);
    void *block = block_from(test, pool, 3 * MIB, 0);
    vmm_share *share = export_of(test->cache, block);
    vmm_share *received = tcp_pass(share);
    vmm_share *on[] = { tcp_pass(received), share_pass(received, SOCK_STREAM),
                        share_pass(received, SOCK_SEQPACKET) };
    assert_ok(vmm_share_close(received, 0));
    for (size_t i = 0; i < sizeof on / sizeof *on; i++) {
        share_use(test, on[i], block, 3 * MIB);
        vmm_share *again = tcp_pass(on[i]);
        assert_ok(vmm_share_close(on[i], 0));
        share_use(test, again, block, 3 * MIB);
        assert_ok(vmm_share_close(again, 0));
    }
}

CACHE_TEST(further_shares_export_nothing_again)
{
    vmm_pool *pool = fabric_make(test);
    void *block = block_from(test, pool, 3 * MIB, 0);
    vmm_share *first = export_of(test->cache, block);
    uint64_t exports = vmm__driver_calls(test->driver, DRIVER_CALL_fabric_export);
    vmm_share *second = export_of(test->cache, block);
    assert_int_equal(vmm__driver_calls(test->driver, DRIVER_CALL_fabric_export), exports);
    assert_ok(vmm_share_close(first, 0));
    vmm_share *received = tcp_pass(second);
    share_use(test, received, block, 3 * MIB);
    share_end(test, second, received, block);
}

CACHE_TEST(memory_of_a_wake_has_fabric_handles)
{
    vmm_pool *pool = fabric_make(test);
    void *block = block_from(test, pool, 3 * MIB, 0);
    assert_ok(vmm_pool_sleep(&pool, 1, NULL, NULL));
    assert_ok(vmm_pool_wake(&pool, 1, NULL, NULL));
    vmm_share *share = export_of(test->cache, block);
    vmm_share *received = tcp_pass(share);
    share_use(test, received, block, 3 * MIB);
    share_end(test, share, received, block);
}

CACHE_TEST(a_pool_is_made_during_a_capture)
{
    capture_begin(test, 1);
    vmm_pool *pool = fabric_try(test);
    if (pool != NULL)
        (void)block_from(test, pool, 3 * MIB, 1);
    capture_end(test, 1);
    if (pool == NULL)
        skip();
}

/* ---- Refusals ------------------------------------------------------------------------------ */

CACHE_TEST(shares_without_fabric_handles_need_a_unix_socket)
{
    const vmm_config configs[] = { CONFIG(.limit_bytes = 0), CONFIG(.shareable = VMM_ON) };
    for (size_t i = 0; i < sizeof configs / sizeof *configs; i++) {
        int sockets[2];
        cache_restart(test, &configs[i]);
        void *block = i == 0 ? block_from(test, shareable_make(test->cache), MIB, 0)
                             : block_alloc(test, MIB, 0);
        vmm_share *share = export_of(test->cache, block);
        tcp_open(sockets);
        assert_status(vmm_share_send(share, sockets[0]), VMM_ERR_INVALID_ARGUMENT);
        assert_non_null(strstr(vmm_last_error(), "is not a Unix socket"));
        sockets_close(sockets);
        assert_ok(vmm_share_close(share, 0)); /* nothing was sent */
        block_free(test, block);
    }
}

CACHE_TEST(a_wrong_reach_is_refused)
{
    static const int wrong[] = { -1, VMM_SHARE_FABRIC + 1, INT32_MAX, INT32_MIN };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        vmm_pool_options options = VMM_POOL_OPTIONS_INIT;
        vmm_pool *pool = NULL;
        options.shareable = wrong[i];
        assert_status(vmm_pool_create(test->cache, &options, &pool), VMM_ERR_INVALID_ARGUMENT);
        assert_non_null(strstr(vmm_last_error(), "shareable"));
        assert_null(pool);
    }
}

/* The importer comes too late: the exporter's memory has gone. */
CACHE_TEST(memory_that_was_released_is_not_imported)
{
    vmm_pool *pool = fabric_make(test);
    vmm_cache *other = cache_second(test);
    void *block = block_from(test, pool, 3 * MIB, 0);
    vmm_share *share = export_of(test->cache, block);
    vmm_share *received = tcp_pass(share);
    void *imported = NULL;
    assert_ok(vmm_share_close(share, 1));
    block_free(test, block);
    assert_ok(vmm_wait(test->cache));
    (void)cache_trim(test, 0);
    assert_status(vmm_share_import(other, received, NULL, &imported), VMM_ERR_DRIVER);
    assert_true(strlen(vmm_last_error()) > 10);
    assert_null(imported);
}

/* Each byte of a handle counts, but for those that the driver leaves unused. */
CACHE_TEST(a_forged_handle_is_refused)
{
    vmm_pool *pool = fabric_make(test);
    vmm_cache *other = cache_second(test);
    void *block = block_from(test, pool, 3 * MIB, 0);
    vmm_share *share = export_of(test->cache, block);
    vmm_share *received = tcp_pass(share);
    struct share *record = vmm__handle_find(HANDLE_SHARE, received);
    struct driver_fabric *fabric = &record->chunks[0].exported->fabric;
    for (size_t i = 0; i < 24; i++) { /* a magic number, and what names the memory */
        void *imported = NULL;
        fabric->bytes[i] ^= 1;
        assert_status(vmm_share_import(other, received, NULL, &imported), VMM_ERR_DRIVER);
        assert_null(imported);
        fabric->bytes[i] ^= 1;
    }
    share_use(test, received, block, 3 * MIB);
    record->chunks[0].bytes += GRANULE;
    void *imported = NULL;
    assert_status(vmm_share_import(other, received, NULL, &imported), VMM_ERR_DRIVER);
    record->chunks[0].bytes -= GRANULE;
    importer_end(other);
    share_end(test, share, received, block);
}

CACHE_MAIN()
