/* The driver calls of blocks that grow, counted on the sim driver. Prints them; tests/cost/growing.c times them. */
#include "support/made_support.h"
#include "support/sim_support.h"

#include "api/create_on.h"

enum { RESIZES = 100, COMMITS = 1000 };

static vmm_cache *cache_make(struct driver *driver)
{
    return cache_on(driver, .zero = VMM_OFF);
}

static void *block_alloc(vmm_cache *cache, size_t bytes)
{
    return block_in(cache, bytes, NULL);
}

/* Grows a block of 4 GiB by 512 MiB a hundred times. Returns how often it moved; each move maps all chunks of the
 * moment at most once more. */
static unsigned block_grow(vmm_cache *cache, void **block, uint64_t *remaps_most)
{
    unsigned moves = 0;
    size_t bytes = 4 * GIB;
    *remaps_most = 0;
    for (int i = 0; i < RESIZES; i++) {
        void *before = *block;
        uint64_t chunks = stats_of(cache).chunks.current;
        bytes += 512 * MIB;
        assert_ok(vmm_resize(cache, *block, bytes, block));
        moves += *block != before;
        *remaps_most += *block != before ? chunks : 0;
    }
    return moves;
}

static void calls_print(const char *what, unsigned moves, const vmm_stats *from,
                        const vmm_stats *to)
{
    print_message(
        "%s: %u moves; %llu create, %llu map, %llu access, %llu unmap, %llu bytes copied\n", what,
        moves, (unsigned long long)(to->create_calls - from->create_calls),
        (unsigned long long)(to->map_calls - from->map_calls),
        (unsigned long long)(to->access_calls - from->access_calls),
        (unsigned long long)(to->unmap_calls - from->unmap_calls),
        (unsigned long long)(to->resize_copied_bytes - from->resize_copied_bytes));
}

static void assert_added_only(const vmm_stats *from, const vmm_stats *to, uint64_t remaps_most)
{
    uint64_t creates = to->create_calls - from->create_calls;
    uint64_t maps = to->map_calls - from->map_calls;
    assert_true(maps >= creates && maps - creates <= remaps_most);
    assert_true(to->access_calls - from->access_calls <= maps);
    assert_true(to->unmap_calls - from->unmap_calls <= maps - creates);
    assert_int_equal(to->release_calls, from->release_calls);
    assert_int_equal(to->resize_copied_bytes, from->resize_copied_bytes);
}

SIM_TEST(a_block_with_room_behind_it_grows_without_a_remap)
{
    uint64_t remaps_most;
    vmm_cache *cache = cache_make(driver);
    void *block = block_alloc(cache, 4 * GIB);
    vmm_stats before = stats_of(cache);
    unsigned moves = block_grow(cache, &block, &remaps_most);
    vmm_stats after = stats_of(cache);
    calls_print("4 GiB by 512 MiB, in place", moves, &before, &after);
    assert_int_equal(moves, 0);
    assert_added_only(&before, &after, 0);
    assert_ok(vmm_destroy(cache));
}

/* From 4 to 54 GiB the size doubles less than four times. */
SIM_TEST(an_enclosed_block_is_mapped_again_once_a_doubling)
{
    uint64_t remaps_most;
    vmm_cache *cache = cache_make(driver);
    void *block = block_alloc(cache, 4 * GIB);
    (void)block_alloc(cache, 4 * GIB); /* directly behind it */
    vmm_stats before = stats_of(cache);
    unsigned moves = block_grow(cache, &block, &remaps_most);
    vmm_stats after = stats_of(cache);
    calls_print("4 GiB by 512 MiB, enclosed", moves, &before, &after);
    assert_true(moves >= 1 && moves <= 4);
    assert_added_only(&before, &after, remaps_most);
    assert_ok(vmm_destroy(cache));
}

/* Such a driver cannot map memory at a new address before it is unmapped at the old one. */
SIM_TEST(memory_that_has_one_address_only_is_copied_or_stays)
{
    driver->has_aliases = false;
    vmm_cache *cache = cache_make(driver);
    void *block = block_alloc(cache, 4 * GIB);
    void *behind = block_alloc(cache, 4 * GIB);
    void *moved;
    assert_ok(vmm_resize(cache, block, 8 * GIB, &moved));
    assert_ptr_not_equal(moved, block);
    assert_int_equal(stats_of(cache).resize_copied_bytes, 4 * GIB);
    assert_ok(vmm_free(cache, moved));
    assert_ok(vmm_free(cache, behind));
    assert_ok(vmm_reserve(vmm_cache_pool(cache), GIB, 0, NULL, &block));
    for (int i = 0; i < 64; i++)
        assert_ok(vmm_reserve(vmm_cache_pool(cache), GIB, 0, NULL, &behind));
    assert_status(vmm_resize(cache, block, 256 * GIB, &moved), VMM_ERR_UNSUPPORTED);
    assert_non_null(strstr(vmm_last_error(), "one address only"));
    assert_ok(vmm__cache_check(cache));
    assert_int_equal(vmm_destroy(cache), VMM_OK);
}

SIM_TEST(a_commit_is_one_create_map_and_access_a_unit)
{
    void *block;
    vmm_cache *cache = cache_make(driver);
    assert_ok(vmm_reserve(vmm_cache_pool(cache), 64 * GIB, 16 * MIB, NULL, &block));
    vmm_stats before = stats_of(cache);
    for (size_t i = 0; i < COMMITS; i++)
        assert_ok(vmm_commit(cache, block, i * 16 * MIB, 16 * MIB));
    vmm_stats after = stats_of(cache);
    calls_print("16 MiB of 64 GiB", 0, &before, &after);
    assert_int_equal(after.create_calls - before.create_calls, COMMITS);
    assert_int_equal(after.map_calls - before.map_calls, COMMITS);
    assert_int_equal(after.access_calls - before.access_calls, COMMITS);
    assert_int_equal(after.unmap_calls - before.unmap_calls, 0);
    assert_int_equal(after.event_calls - before.event_calls, 0);
    assert_int_equal(after.active_bytes.current, COMMITS * 16 * MIB);
    assert_ok(vmm_free(cache, block));
    assert_ok(vmm_destroy(cache));
}
