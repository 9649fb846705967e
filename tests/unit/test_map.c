/* The hash map. */
#include "support/test_support.h"

#include "base/hostmem.h"
#include "base/map.h"

#include <string.h>

enum { RECORDS = 5000 };

struct record {
    int value;
    struct map_node node;
};

static struct record records[RECORDS];
static int dropped;

/* Keys as the library has them: addresses of blocks, 512 bytes apart. */
static uint64_t key_of(int i)
{
    return UINT64_C(0x302000000000) + (uint64_t)i * 512;
}

static void records_add(struct map *map)
{
    for (int i = 0; i < RECORDS; i++) {
        records[i] = (struct record){ .value = i, .node.key = key_of(i) };
        vmm__map_add(map, &records[i].node);
    }
}

static void assert_found(const struct map *map, int i)
{
    struct map_node *node = vmm__map_find(map, key_of(i));
    assert_ptr_equal(node, &records[i].node);
    assert_int_equal(VMM_MAP_RECORD(node, struct record, node)->value, i);
    assert_null(vmm__map_find_next(node));
}

static void drop_count(struct map_node *node)
{
    dropped++;
    memset(node, 0, sizeof *node);
}

TEST(an_empty_map_has_nothing)
{
    struct map map = { .count = 0 };
    assert_null(vmm__map_find(&map, 0));
    assert_null(vmm__map_find(&map, 512));
    assert_null(vmm__map_next(&map, NULL));
    vmm__map_clear(&map, drop_count);
    assert_int_equal(vmm__host_outstanding(), 0);
}

TEST(every_record_is_found_until_it_is_removed)
{
    struct map map = { .count = 0 };
    records_add(&map);
    assert_int_equal(map.count, RECORDS);
    for (int i = 0; i < RECORDS; i++)
        assert_found(&map, i);
    assert_null(vmm__map_find(&map, key_of(RECORDS)));
    for (int i = 0; i < RECORDS; i += 2)
        vmm__map_remove(&map, &records[i].node);
    for (int i = 0; i < RECORDS; i += 2) {
        assert_null(vmm__map_find(&map, key_of(i)));
        assert_found(&map, i + 1);
    }
    assert_int_equal(map.count, RECORDS / 2);
    vmm__map_clear(&map, NULL);
    assert_int_equal(map.count, 0);
    assert_null(vmm__map_find(&map, key_of(1)));
    assert_int_equal(vmm__host_outstanding(), 0);
}

TEST(records_with_the_same_key_are_all_found)
{
    struct map map = { .count = 0 };
    bool seen[3] = { false };
    records_add(&map);
    struct record same[3] = { { .value = 0 }, { .value = 1 }, { .value = 2 } };
    for (int i = 0; i < 3; i++)
        vmm__map_add(&map, &same[i].node); /* key 0 is a key like any other */
    for (struct map_node *node = vmm__map_find(&map, 0); node != NULL;
         node = vmm__map_find_next(node))
        seen[VMM_MAP_RECORD(node, struct record, node)->value] = true;
    assert_true(seen[0] && seen[1] && seen[2]);
    vmm__map_remove(&map, &same[1].node);
    for (struct map_node *node = vmm__map_find(&map, 0); node != NULL;
         node = vmm__map_find_next(node))
        assert_ptr_not_equal(node, &same[1].node);
    vmm__map_clear(&map, NULL);
}

TEST(a_walk_visits_every_record_once)
{
    struct map map = { .count = 0 };
    int visits[RECORDS] = { 0 };
    records_add(&map);
    for (struct map_node *node = vmm__map_next(&map, NULL); node != NULL;
         node = vmm__map_next(&map, node))
        visits[VMM_MAP_RECORD(node, struct record, node)->value]++;
    for (int i = 0; i < RECORDS; i++)
        assert_int_equal(visits[i], 1);
    vmm__map_clear(&map, NULL);
}

TEST(clearing_drops_every_record_once)
{
    struct map map = { .count = 0 };
    dropped = 0;
    records_add(&map);
    vmm__map_clear(&map, drop_count);
    assert_int_equal(dropped, RECORDS);
    assert_int_equal(vmm__host_outstanding(), 0);
}

TEST(without_host_memory_records_are_still_added)
{
    for (uint64_t failing = 1; failing <= 3; failing++) {
        struct map map = { .count = 0 };
        (void)vmm__host_fail_at(failing);
        records_add(&map);
        assert_true(vmm__host_fail_at(0) > failing); /* it tries again */
        for (int i = 0; i < RECORDS; i++)
            assert_found(&map, i);
        vmm__map_clear(&map, NULL);
    }
    assert_int_equal(vmm__host_outstanding(), 0);
}

TEST(buckets_stay_short)
{
    struct map map = { .count = 0 };
    int longest = 0;
    records_add(&map);
    assert_true(map.mask + 1 >= RECORDS / 2);
    for (int i = 0; i < RECORDS; i++) {
        int steps = 0;
        for (const struct map_node *node = &records[i].node; node != NULL; node = node->next)
            steps++;
        longest = steps > longest ? steps : longest;
    }
    assert_true(longest <= 8);
    vmm__map_clear(&map, NULL);
}
