/* The physical parts of blocks, and descriptors of their memory: vmm_parts_walk(), vmm_dmabuf_export(). */
#define _GNU_SOURCE
#include "support/folder_support.h"
#include "support/pool_support.h"
#include "support/source_support.h"

#include "api/find.h"
#include "base/hostmem.h"
#include "cache/cache.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { PARTS_MOST = 64, PAGE = 4096, NO_FD = -7 };
#define GRANULE (2 * MIB)

/* ---- Steps ----------------------------------------------------------------------------------- */

struct parts {
    size_t count;
    uint64_t bytes;
    vmm_part items[PARTS_MOST];
};

static int part_keep(void *context, const vmm_part *part)
{
    struct parts *parts = context;
    assert_true(parts->count < PARTS_MOST);
    assert_int_equal(part->struct_size, sizeof *part);
    assert_true(part->bytes > 0 && part->offset + part->bytes <= part->handle_bytes);
    if (parts->count > 0)
        assert_true(part->address >=
                    parts->items[parts->count - 1].address + parts->items[parts->count - 1].bytes);
    parts->bytes += part->bytes;
    parts->items[parts->count++] = *part;
    return 0;
}

static struct parts parts_of(vmm_cache *cache, const void *block)
{
    struct parts parts = { .count = 0 };
    uint64_t host_bytes = vmm__host_outstanding();
    assert_ok(vmm_parts_walk(cache, block, part_keep, &parts));
    assert_true(vmm__host_outstanding() <= host_bytes); /* a lane may have shrunk */
    return parts;
}

/* Those of a block that has memory everywhere: they follow each other, from its start to its end. */
static struct parts parts_whole(vmm_cache *cache, const void *block)
{
    vmm_item item = VMM_ITEM_INIT;
    struct parts parts = parts_of(cache, block);
    assert_ok(vmm_find(cache, block, &item));
    assert_int_equal(parts.bytes, item.bytes);
    assert_int_equal(parts.items[0].address, (uintptr_t)block);
    for (size_t i = 1; i < parts.count; i++)
        assert_int_equal(parts.items[i].address,
                         parts.items[i - 1].address + parts.items[i - 1].bytes);
    return parts;
}

static bool is_same_memory(const struct parts *parts, const struct parts *others)
{
    size_t bytes = parts->count * sizeof parts->items[0];
    return parts->count == others->count && memcmp(parts->items, others->items, bytes) == 0;
}

static bool is_driver(vmm_driver_kind kind)
{
    return driver_choice_kind() == kind;
}

/* Exports a range. NO_FD: memory has no descriptor, on sim and on a GPU without dma-bufs, and the line says so. */
static int export(vmm_cache *cache, const void *block, size_t offset, size_t bytes)
{
    int fd = NO_FD;
    vmm_status status = vmm_dmabuf_export(cache, block, offset, bytes, &fd);
    if (status == VMM_OK) {
        assert_true((fcntl(fd, F_GETFD) & FD_CLOEXEC) != 0);
        assert_int_equal(lseek(fd, 0, SEEK_END), bytes);
        return fd;
    }
    assert_status(status, VMM_ERR_UNSUPPORTED);
    assert_int_equal(fd, NO_FD);
    assert_false(is_driver(VMM_DRIVER_HOST));
    assert_non_null(strstr(vmm_last_error(),
                           is_driver(VMM_DRIVER_SIM) ? "addresses have no memory" : "dma-buf"));
    (void)fprintf(stderr, "no descriptor: %s\n", vmm_last_error());
    return NO_FD;
}

static void export_end(int fd)
{
    if (fd != NO_FD)
        assert_int_equal(close(fd), 0);
}

#define assert_export_refused(cache, block, offset, bytes, words)                                  \
    do {                                                                                           \
        int refused_fd = NO_FD;                                                                    \
        assert_refused(vmm_dmabuf_export(cache, block, offset, bytes, &refused_fd), words);        \
        assert_int_equal(refused_fd, NO_FD);                                                       \
    } while (0)

static void *pinned(struct cache_test *test, void *block)
{
    assert_ok(vmm_pin(test->cache, block));
    return block;
}

static vmm_pool *shared_make(struct cache_test *test)
{
    return pool_make(test, .name = "shared", .shareable = VMM_SHARE_MACHINE);
}

/* ---- Parts ----------------------------------------------------------------------------------- */

CACHE_TEST(parts_add_up_to_the_block)
{
    static const size_t sizes[] = { 1, 600, 5000, MIB, 3 * MIB, 20 * MIB + 512 };
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        void *first = block_alloc(test, sizes[i], 1);
        void *second = block_alloc(test, sizes[i], 1);
        struct parts of_first = parts_whole(test->cache, first);
        struct parts of_second = parts_whole(test->cache, second);
        assert_false(is_same_memory(&of_first, &of_second));
        assert_true(of_first.items[0].handle != 0);
        block_free(test, first);
        block_free(test, second);
    }
}

CACHE_TEST(small_blocks_are_parts_of_one_allocation)
{
    void *first = block_alloc(test, 5000, 1);
    void *second = block_alloc(test, 5000, 1);
    struct parts of_first = parts_whole(test->cache, first);
    struct parts of_second = parts_whole(test->cache, second);
    assert_int_equal(of_first.count + of_second.count, 2);
    assert_int_equal(of_first.items[0].handle, of_second.items[0].handle);
    assert_int_equal(of_first.items[0].handle_bytes, GRANULE);
    assert_int_equal(of_second.items[0].offset - of_first.items[0].offset,
                     (char *)second - (char *)first);
}

CACHE_TEST(a_block_with_chunks_of_its_own_is_one_part)
{
    vmm_pool *pool = pool_make(test, .no_split = 1);
    void *block = pool_alloc(test, pool, 10 * MIB + 1, 1);
    struct parts parts = parts_whole(test->cache, block);
    assert_int_equal(parts.count, 1);
    assert_int_equal(parts.items[0].offset, 0);
    assert_int_equal(parts.items[0].bytes, 12 * MIB);
    assert_int_equal(parts.items[0].handle_bytes, 12 * MIB);
}

/* Every second block of a row is freed; the request is served from the holes, mapped side by side. */
CACHE_TEST(a_block_in_a_view_has_the_parts_that_were_free)
{
    enum { PIECES = 16 };
    void *pieces[PIECES];
    for (int i = 0; i < PIECES; i++)
        pieces[i] = block_alloc(test, 4 * MIB, 1);
    for (int i = 0; i < PIECES; i += 2)
        block_free(test, pieces[i]);
    void *block = block_alloc(test, 24 * MIB, 1);
    vmm_item item = VMM_ITEM_INIT;
    assert_ok(vmm_find(test->cache, block, &item));
    assert_true(item.is_view);
    struct parts parts = parts_whole(test->cache, block);
    assert_true(parts.count > 1);
    for (int i = 1; i < PIECES; i += 2) {
        struct parts other = parts_whole(test->cache, pieces[i]);
        for (size_t j = 0; j < parts.count; j++) {
            const vmm_part *part = &parts.items[j];
            if (part->handle == other.items[0].handle)
                assert_true(part->offset + part->bytes <= other.items[0].offset ||
                            other.items[0].offset + other.items[0].bytes <= part->offset);
        }
        block_free(test, pieces[i]);
    }
}

/* ---- What keeps them in place ---------------------------------------------------------------- */

CACHE_TEST(a_compaction_gives_other_parts_unless_the_block_is_pinned)
{
    enum { PIECES = 32 };
    void *pieces[PIECES];
    for (int is_pinned = 0; is_pinned < 2; is_pinned++) {
        cache_restart_with(test, .footprint_permille = VMM_FOOTPRINT_ANY);
        large_chunks_make(test, 96 * MIB, 1);
        for (int i = 0; i < PIECES; i++)
            pieces[i] = block_alloc(test, 3 * MIB, 1);
        for (int i = 0; i < PIECES; i += 2)
            block_free(test, pieces[i]);
        for (int i = 1; i < PIECES && is_pinned; i += 2)
            (void)pinned(test, pieces[i]);
        struct parts before = parts_whole(test->cache, pieces[5]);
        assert_ok(vmm_compact(test->cache, 0, NULL, NULL));
        assert_int_equal(cache_stats(test).compactions, is_pinned ? 0 : 1);
        struct parts after = parts_whole(test->cache, pieces[5]);
        assert_int_equal(is_same_memory(&before, &after), is_pinned);
        for (int i = 1; i < PIECES; i += 2)
            block_free(test, pieces[i]);
    }
}

CACHE_TEST(a_block_that_grows_in_place_keeps_its_parts)
{
    vmm_pool *pool = pool_make(test, .no_split = 1);
    void *block = pinned(test, pool_alloc(test, pool, 4 * MIB, 1));
    struct parts before = parts_whole(test->cache, block);
    void *grown = NULL;
    assert_ok(vmm_resize(test->cache, block, 8 * MIB, &grown));
    assert_ptr_equal(grown, block);
    struct parts after = parts_whole(test->cache, block);
    assert_int_equal(after.count, before.count + 1);
    after.count = before.count;
    assert_true(is_same_memory(&before, &after));
}

CACHE_TEST(units_without_memory_are_gaps)
{
    void *block = NULL;
    assert_ok(vmm_reserve(vmm_cache_pool(test->cache), 64 * MIB, 4 * MIB, NULL, &block));
    assert_int_equal(parts_of(test->cache, block).count, 0);
    assert_ok(vmm_commit(test->cache, block, 4 * MIB, 8 * MIB));
    assert_ok(vmm_commit(test->cache, block, 60 * MIB, 4 * MIB));
    struct parts parts = parts_of(test->cache, block);
    assert_int_equal(parts.count, 3);
    assert_int_equal(parts.bytes, 12 * MIB);
    assert_int_equal(parts.items[0].address, (uintptr_t)block + 4 * MIB);
    assert_int_equal(parts.items[2].address, (uintptr_t)block + 60 * MIB);
    (void)pinned(test, block);
    assert_status(vmm_decommit(test->cache, block, 4 * MIB, 4 * MIB), VMM_ERR_INVALID_ARGUMENT);
    assert_export_refused(test->cache, block, 0, 8 * MIB, "has no memory");
    assert_export_refused(test->cache, block, 8 * MIB, 8 * MIB, "has no memory");
    assert_export_refused(test->cache, block, 60 * MIB, 5 * MIB, "beyond the block");
    assert_ok(vmm_unpin(test->cache, block));
    assert_ok(vmm_decommit(test->cache, block, 4 * MIB, 4 * MIB)); /* in limbo, or gone */
    assert_int_equal(parts_of(test->cache, block).count, 2);
    block_free(test, block);
    assert_status(vmm_parts_walk(test->cache, block, part_keep, &parts), VMM_ERR_UNKNOWN_POINTER);
}

CACHE_TEST(a_block_of_a_sleeping_pool_has_no_parts)
{
    int fd = NO_FD;
    struct parts parts = { .count = 0 };
    vmm_pool *pool = pool_make(test, .name = "tenant");
    void *reserved = NULL;
    void *blocks[2] = { pool_alloc(test, pool, 600, 1), pool_alloc(test, pool, 5 * MIB, 1) };
    struct parts before = parts_whole(test->cache, pinned(test, blocks[1]));
    assert_ok(vmm_reserve(pool, 4 * MIB, 0, NULL, &reserved));
    assert_ok(vmm_commit(test->cache, reserved, 0, 4 * MIB));
    assert_ok(vmm_pool_sleep(&pool, 1, NULL, NULL));
    void *const asleep[] = { blocks[0], blocks[1], reserved };
    for (size_t i = 0; i < sizeof asleep / sizeof *asleep; i++) {
        assert_status(vmm_parts_walk(test->cache, asleep[i], part_keep, &parts), VMM_ERR_ASLEEP);
        assert_non_null(strstr(vmm_last_error(), "vmm_parts_walk: pool tenant sleeps"));
        assert_status(vmm_dmabuf_export(test->cache, asleep[i], 0, PAGE, &fd), VMM_ERR_ASLEEP);
        assert_non_null(strstr(vmm_last_error(), "vmm_dmabuf_export: pool tenant sleeps"));
    }
    assert_int_equal(parts.count, 0);
    assert_int_equal(fd, NO_FD);
    assert_ok(vmm_pool_wake(&pool, 1, NULL, NULL));
    assert_int_equal(parts_whole(test->cache, blocks[1]).bytes, before.bytes);
    assert_int_equal(parts_of(test->cache, reserved).count, 2);
}

/* ---- Memory of others ------------------------------------------------------------------------ */

CACHE_TEST(an_imported_block_has_parts_and_no_descriptor)
{
    vmm_share *share;
    void *imported;
    vmm_pool *pool = shared_make(test);
    void *block = pool_alloc(test, pool, 5 * MIB, 1);
    assert_ok(vmm_share_export(test->cache, block, &share));
    assert_ok(vmm_share_import(test->cache, share, test->streams[1], &imported));
    struct parts own = parts_whole(test->cache, block);
    struct parts parts = parts_whole(test->cache, imported);
    assert_int_equal(parts.count, 1);
    assert_int_equal(parts.items[0].handle_bytes, own.items[0].handle_bytes);
    assert_int_not_equal(parts.items[0].handle, own.items[0].handle);
    assert_ok(vmm_pin(test->cache, imported));
    assert_export_refused(test->cache, imported, 0, 6 * MIB, "is imported");
    int fd = export(test->cache, block, 0, 6 * MIB); /* a share keeps it in place, too */
    export_end(fd);
    block_free(test, imported);
    assert_ok(vmm_share_close(share, 1));
    block_free(test, block);
    assert_ok(vmm_wait(test->cache));
    assert_ok(vmm_poll(test->cache));
}

CACHE_TEST(a_block_of_a_source_is_a_part_of_its_segment)
{
    struct source *source = source_open(test);
    vmm_pool *pool = pool_make(test, .source = source_of(source, 20 * MIB));
    void *first = pool_alloc(test, pool, 5 * MIB, 1);
    void *second = pinned(test, pool_alloc(test, pool, 6 * MIB, 1));
    struct parts parts = parts_whole(test->cache, second);
    assert_int_equal(parts.count, 1);
    assert_int_equal(parts.items[0].handle, 0);
    assert_int_equal(parts.items[0].handle_bytes, 20 * MIB);
    assert_int_equal(parts.items[0].offset - parts_whole(test->cache, first).items[0].offset,
                     (char *)second - (char *)first);
    assert_export_refused(test->cache, second, 0, PAGE, "memory of a source");
    block_free(test, first);
    block_free(test, second);
    assert_ok(vmm_pool_destroy(pool, 0));
    source_close(source);
}

/* ---- The visitor ----------------------------------------------------------------------------- */

struct visit {
    vmm_cache *cache;
    void *block;
    unsigned calls;
    unsigned most;
};

static int part_free(void *context, const vmm_part *part)
{
    struct visit *visit = context;
    vmm_item item = VMM_ITEM_INIT;
    if (visit->calls == 0) {
        assert_ok(vmm_find(visit->cache, (void *)(uintptr_t)part->address, &item));
        assert_ok(vmm_free(visit->cache, visit->block));
        assert_ok(vmm_trim(visit->cache, 0, NULL));
    }
    return ++visit->calls == visit->most;
}

CACHE_TEST(a_visitor_may_call_the_cache_and_end_the_walk)
{
    for (unsigned most = 1; most <= 4; most++) {
        struct visit visit = { .cache = test->cache, .most = most };
        assert_ok(vmm_reserve(vmm_cache_pool(test->cache), 6 * MIB, 0, NULL, &visit.block));
        assert_ok(vmm_commit(test->cache, visit.block, 0, 6 * MIB));
        assert_ok(vmm_parts_walk(test->cache, visit.block, part_free, &visit));
        assert_int_equal(visit.calls, most < 3 ? most : 3);
    }
}

CACHE_TEST(without_host_memory_nothing_is_visited)
{
    struct parts parts = { .count = 0 };
    void *block = block_alloc(test, 3 * MIB, 1);
    (void)vmm__host_fail_at(1);
    vmm_status status = vmm_parts_walk(test->cache, block, part_keep, &parts);
    (void)vmm__host_fail_at(0);
    assert_status(status, VMM_ERR_HOST_OOM);
    assert_non_null(strstr(vmm_last_error(), "no host memory to list "));
    assert_int_equal(parts.count, 0);
    (void)parts_whole(test->cache, block);
}

/* ---- Descriptors ----------------------------------------------------------------------------- */

/* Whether a mapping of the descriptor and the block are the same bytes. */
static void bytes_are_shared(int fd, void *block, size_t bytes)
{
    unsigned char *seen = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    assert_ptr_not_equal(seen, MAP_FAILED);
    unsigned char *own = block;
    own[0] = 11;
    own[bytes - 1] = 12;
    assert_int_equal(seen[0] + seen[bytes - 1], 23);
    seen[bytes / 2] = 13;
    assert_int_equal(own[bytes / 2], 13);
    assert_int_equal(munmap(seen, bytes), 0);
}

CACHE_TEST(a_descriptor_has_the_bytes_of_the_range)
{
    vmm_pool *pool = shared_make(test);
    int descriptors = descriptors_open();
    void *block = pinned(test, pool_alloc(test, pool, 5 * MIB, 1));
    struct parts parts = parts_whole(test->cache, block);
    assert_int_equal(parts.count, 1);
    int fd = export(test->cache, block, 0, 6 * MIB);
    int again = export(test->cache, block, 0, 6 * MIB);
    if (is_driver(VMM_DRIVER_HOST))
        bytes_are_shared(fd, block, 6 * MIB);
    export_end(again);
    export_end(fd);
    block_free(test, block);
    pool_end(test, pool);
    assert_int_equal(descriptors_open(), descriptors);
}

/* A dma-buf has any pages, of several parts, too. A file has all bytes of one allocation, or none. */
CACHE_TEST(a_dma_buf_may_have_some_pages_and_several_parts)
{
    int fd = NO_FD;
    const uint64_t ranges[][2] = {
        { 0, 12 * MIB }, { 0, 8 * MIB }, { 6 * MIB, 4 * MIB }, { 8 * MIB, 2 * MIB }, { PAGE, PAGE }
    };
    vmm_pool *pool = shared_make(test);
    void *block = pinned(test, pool_alloc(test, pool, 8 * MIB, 1));
    void *grown = NULL;
    assert_ok(vmm_resize(test->cache, block, 12 * MIB, &grown));
    assert_ptr_equal(grown, block);
    assert_int_equal(parts_whole(test->cache, block).count, 2);
    for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++) {
        bool is_whole = ranges[i][0] == 0 && ranges[i][1] == 8 * MIB;
        if (is_driver(VMM_DRIVER_HOST) && !is_whole) {
            assert_status(vmm_dmabuf_export(test->cache, block, ranges[i][0], ranges[i][1], &fd),
                          VMM_ERR_UNSUPPORTED);
            assert_non_null(strstr(vmm_last_error(), "not one whole exportable allocation"));
            assert_int_equal(fd, NO_FD);
        } else {
            export_end(export(test->cache, block, ranges[i][0], ranges[i][1]));
        }
    }
}

CACHE_TEST(memory_that_is_not_exportable_has_no_file_of_its_own)
{
    int fd = NO_FD;
    vmm_pool *pool = pool_make(test, .no_split = 1);
    void *block = pinned(test, pool_alloc(test, pool, 4 * MIB, 1));
    if (is_driver(VMM_DRIVER_HOST))
        assert_status(vmm_dmabuf_export(test->cache, block, 0, 4 * MIB, &fd), VMM_ERR_UNSUPPORTED);
    else
        export_end(export(test->cache, block, 0, 4 * MIB));
    assert_int_equal(fd, NO_FD);
}

/* The fake libcuda has none. */
static bool is_dma_buf(int fd)
{
    char link[64];
    char target[64] = "";
    (void)snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    return readlink(link, target, sizeof target - 1) > 0 && strncmp(target, "/dmabuf:", 8) == 0;
}

CACHE_TEST(a_descriptor_keeps_the_memory)
{
    unsigned char byte = 0;
    uint64_t before;
    uint64_t after;
    uint64_t total;
    vmm_pool *pool = shared_make(test);
    void *block = pinned(test, pool_alloc(test, pool, 64 * MIB, 1));
    int fd = export(test->cache, block, 0, 64 * MIB);
    bool is_file = is_driver(VMM_DRIVER_HOST);
    bool is_on_device = is_dma_buf(fd);
    if (is_file)
        *(unsigned char *)block = 21;
    block_free(test, block);
    assert_ok(vmm_wait(test->cache));
    assert_int_equal(pool_trim(pool, 0), 64 * MIB);
    assert_true(!is_file || (pread(fd, &byte, 1, 0) == 1 && byte == 21));
    assert_ok(vmm_device_memory(test->cache, &before, &total));
    export_end(fd);
    assert_ok(vmm_device_memory(test->cache, &after, &total));
    assert_true(!is_on_device || after >= before + 60 * MIB); /* others use the GPU, too */
}

CACHE_TEST(a_range_that_cannot_be_exported_is_refused)
{
    void *block = block_alloc(test, 3 * MIB, 1);
    vmm_item item = VMM_ITEM_INIT;
    assert_ok(vmm_find(test->cache, block, &item));
    size_t bytes = item.bytes;
    int descriptors = descriptors_open();
    assert_export_refused(test->cache, block, 0, PAGE, "call vmm_pin() before");
    (void)pinned(test, block);
    assert_export_refused(test->cache, block, 0, 0, "that is nothing");
    assert_export_refused(test->cache, block, bytes, PAGE, "beyond the block");
    assert_export_refused(test->cache, block, PAGE, bytes, "beyond the block");
    assert_export_refused(test->cache, block, SIZE_MAX - PAGE + 1, PAGE, "beyond the block");
    assert_export_refused(test->cache, block, 0, SIZE_MAX, "beyond the block");
    assert_export_refused(test->cache, block, 512, PAGE, "not whole pages");
    assert_export_refused(test->cache, block, 0, PAGE + 512, "not whole pages");
    assert_refused(vmm_dmabuf_export(test->cache, block, 0, PAGE, NULL), "fd is NULL");
    assert_ok(vmm_unpin(test->cache, block));
    assert_export_refused(test->cache, block, 0, PAGE, "call vmm_pin() before");
    assert_int_equal(descriptors_open(), descriptors);
}

/* What the default pool has adopted from a shareable one lies beside its own memory in a view. CUDA wants memory of one
 * kind. */
CACHE_TEST(memory_of_two_kinds_has_a_descriptor_for_each_part)
{
    cache_restart_with(test, .limit_bytes = 8 * MIB);
    vmm_pool *pool = shared_make(test);
    void *shared = pool_alloc(test, pool, 4 * MIB, 1);
    void *own = block_alloc(test, 4 * MIB, 2);
    assert_ok(vmm_pool_destroy(pool, 1));
    block_free(test, shared);
    block_free(test, own);
    assert_ok(vmm_wait(test->cache));
    void *block = pinned(test, block_alloc(test, 8 * MIB, 2));
    struct parts parts = parts_whole(test->cache, block);
    assert_true(parts.count > 1);
    assert_export_refused(test->cache, block, 0, 8 * MIB, "export each part");
    for (size_t i = 0; i < parts.count && !is_driver(VMM_DRIVER_HOST); i++)
        export_end(export(test->cache, block, parts.items[i].address - (uintptr_t)block,
                          parts.items[i].bytes));
}

CACHE_TEST(during_a_capture_both_calls_work)
{
    vmm_pool *pool = shared_make(test);
    void *block = pinned(test, pool_alloc(test, pool, 4 * MIB, 1));
    capture_begin(test, 1);
    assert_int_equal(parts_whole(test->cache, block).count, 1);
    export_end(export(test->cache, block, 0, 4 * MIB));
    capture_end(test, 1);
}

/* ---- Debug mode ------------------------------------------------------------------------------ */

CACHE_TEST(in_debug_mode_the_parts_are_those_of_the_programs_block)
{
    static const vmm_debug_mode modes[] = { VMM_DEBUG_RECORD, VMM_DEBUG_ON };
    static const size_t sizes[] = { 100, 4096, 300000, 3 * MIB, 4 * MIB };
    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++) {
        cache_restart_with(test, .debug = modes[i]);
        for (size_t j = 0; j < sizeof sizes / sizeof *sizes; j++) {
            void *block = block_alloc(test, sizes[j], 1);
            (void)parts_whole(test->cache, block);
            block_free(test, block);
            assert_status(vmm_parts_walk(test->cache, block, part_keep, NULL),
                          VMM_ERR_UNKNOWN_POINTER);
        }
        void *reserved = NULL;
        assert_ok(vmm_reserve(vmm_cache_pool(test->cache), 4 * MIB, 0, NULL, &reserved));
        assert_ok(vmm_commit(test->cache, reserved, 2 * MIB, 2 * MIB));
        assert_int_equal(parts_of(test->cache, reserved).count, 1);
        block_free(test, reserved);
    }
}

CACHE_TEST(in_debug_mode_a_block_need_not_begin_at_a_page)
{
    cache_restart_with(test, .debug = VMM_DEBUG_ON);
    void *odd = pinned(test, block_alloc(test, 3 * MIB + 512, 1)); /* it ends before a guard page */
    assert_export_refused(test->cache, odd, 0, PAGE, "not whole pages");
    block_free(test, odd);
    struct source *source = source_open(test);
    vmm_pool *pool = pool_make(test, .source = source_of(source, 20 * MIB));
    void *block = pinned(test, pool_alloc(test, pool, 3 * MIB, 1));
    assert_int_equal(parts_whole(test->cache, block).items[0].handle, 0);
    assert_export_refused(test->cache, block, 0, PAGE, "memory of a source");
    block_free(test, block);
    assert_ok(vmm_pool_destroy(pool, 0));
    source_close(source);
}

CACHE_MAIN()
