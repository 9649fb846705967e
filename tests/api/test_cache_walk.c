/* Walking over every chunk and block. */
#include "support/cache_support.h"

struct counter {
    int seen;
    int most;
};

static int visits_counted(void *context, const vmm_item *item)
{
    struct counter *counter = context;
    (void)item;
    counter->seen++;
    return counter->seen == counter->most ? 7 : 0;
}

CACHE_TEST(a_walk_can_end_early)
{
    for (unsigned i = 0; i < 20; i++)
        (void)block_alloc(test, i % 2 == 0 ? 512 : 3 * MIB, i % 3);
    struct counter all = { 0 };
    assert_ok(vmm_walk(test->cache, visits_counted, &all));
    assert_true(all.seen > 40);
    for (int most = 1; most <= all.seen; most++) {
        struct counter some = { .most = most };
        assert_ok(vmm_walk(test->cache, visits_counted, &some));
        assert_int_equal(some.seen, most);
    }
}

struct search {
    uint64_t address;
    vmm_item found;
    int hits;
};

static int block_searched(void *context, const vmm_item *item)
{
    struct search *search = context;
    if (item->kind == VMM_ITEM_BLOCK && item->address == search->address) {
        search->found = *item;
        search->hits++;
    }
    return 0;
}

CACHE_TEST(every_block_is_visited_once)
{
    static const size_t sizes[] = { 0, 1, 777, 8192, 8193, MIB, MIB + 1, 5 * MIB + 3 };
    for (unsigned i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        unsigned stream = i % CACHE_STREAMS;
        struct search search = { .address = (uintptr_t)block_alloc(test, sizes[i], stream) };
        assert_ok(vmm_walk(test->cache, block_searched, &search));
        assert_int_equal(search.hits, 1);
        assert_int_equal(search.found.state, VMM_ITEM_LIVE);
        assert_int_equal(search.found.requested_bytes, sizes[i]);
        assert_true(search.found.bytes >= sizes[i]);
        assert_ptr_equal(search.found.stream, test->streams[stream]);
    }
}

/* Slabs of odd sizes cross the borders of chunks. */
CACHE_TEST(slabs_over_chunk_borders_are_walked_in_order)
{
    enum { OBJECTS = 3000 };
    void **objects = calloc(OBJECTS, sizeof *objects);
    for (size_t i = 0; i < OBJECTS; i++)
        objects[i] = block_alloc(test, 1 + i * 2711 % 8192, 0);
    cache_verify(test);
    for (size_t i = 0; i < OBJECTS; i += 2)
        block_free(test, objects[i]);
    cache_verify(test);
    for (size_t i = 1; i < OBJECTS; i += 2)
        block_free(test, objects[i]);
    cache_verify(test);
    free(objects);
}

CACHE_MAIN()
