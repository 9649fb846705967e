/* The two-level index: it finds every fit, the fit is close, and iteration goes from large to small. */
#include "support/test_support.h"

#include "base/size_index.h"

#include <stdlib.h>

enum { NODES = 3000 };

static uint64_t seed = 1;

static uint64_t number_next(void)
{
    seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return seed >> 20;
}

static struct size_index *index_empty(void)
{
    struct size_index *index = calloc(1, sizeof *index);
    assert_non_null(index);
    vmm__size_index_init(index, 1);
    assert_true(vmm__size_index_check(index));
    assert_null(vmm__size_index_find(index, 1, SEARCH_QUICK));
    assert_true(vmm__size_index_open(index, UINT64_MAX));
    assert_true(vmm__size_index_check(index));
    return index;
}

static void index_free(struct size_index *index)
{
    vmm__size_index_close(index);
    assert_true(vmm__size_index_check(index));
    free(index);
}

TEST(empty_index_finds_nothing)
{
    struct size_index *index = index_empty();
    assert_null(vmm__size_index_find(index, 1, SEARCH_QUICK));
    assert_null(vmm__size_index_find(index, UINT64_MAX, SEARCH_QUICK));
    assert_null(vmm__size_index_largest(index));
    index_free(index);
}

TEST(sizes_at_powers_of_two_are_found)
{
    struct size_index *index = index_empty();
    for (unsigned bit = 0; bit < 64; bit++) {
        for (int off = -1; off <= 1; off++) {
            uint64_t size = (UINT64_C(1) << bit) + (uint64_t)off;
            if (size == 0)
                continue;
            struct size_node node = { .size = size };
            vmm__size_index_insert(index, &node);
            assert_true(vmm__size_index_check(index));
            assert_ptr_equal(vmm__size_index_find(index, size, SEARCH_QUICK), &node);
            assert_ptr_equal(vmm__size_index_find(index, 1, SEARCH_QUICK), &node);
            if (size < UINT64_MAX)
                assert_null(vmm__size_index_find(index, size + 1, SEARCH_QUICK));
            assert_ptr_equal(vmm__size_index_largest(index), &node);
            assert_null(vmm__size_index_smaller(index, &node));
            vmm__size_index_remove(index, &node);
        }
    }
    assert_int_equal(index->rows, 0);
    index_free(index);
}

static uint64_t best_size(const struct size_node *nodes, const bool *is_in, uint64_t size)
{
    uint64_t best = UINT64_MAX;
    for (int i = 0; i < NODES; i++) {
        if (is_in[i] && nodes[i].size >= size && nodes[i].size < best)
            best = nodes[i].size;
    }
    return best;
}

/* Each request that fits gets a node at most 1/16 larger than the best one. */
TEST(fit_is_close)
{
    struct size_index *index = index_empty();
    struct size_node *nodes = calloc(NODES, sizeof *nodes);
    bool *is_in = calloc(NODES, sizeof *is_in);
    for (int round = 0; round < 20000; round++) {
        uint64_t i = number_next() % NODES;
        if (is_in[i]) {
            vmm__size_index_remove(index, &nodes[i]);
        } else {
            unsigned shift = (unsigned)(number_next() % 40);
            nodes[i].size = 1 + (number_next() >> shift);
            vmm__size_index_insert(index, &nodes[i]);
        }
        is_in[i] = !is_in[i];
        if (round % 10 != 0)
            continue;
        unsigned shift = (unsigned)(number_next() % 40);
        uint64_t size = 1 + (number_next() >> shift);
        uint64_t best = best_size(nodes, is_in, size);
        struct size_node *found = vmm__size_index_find(index, size, SEARCH_QUICK);
        assert_true((found != NULL) == (best != UINT64_MAX));
        if (found != NULL)
            assert_true(found->size >= size && found->size <= best + best / 16);
    }
    assert_true(vmm__size_index_check(index));
    free(is_in);
    free(nodes);
    index_free(index);
}

TEST(last_node_of_a_list_is_found)
{
    struct size_index *index = index_empty();
    struct size_node nodes[40];
    for (int i = 0; i < 40; i++) {
        nodes[i] = (struct size_node){ .size = i == 0 ? 4100 : 4096 };
        vmm__size_index_insert(index, &nodes[i]);
    }
    assert_ptr_equal(vmm__size_index_find(index, 4100, SEARCH_QUICK), &nodes[0]);
    assert_null(vmm__size_index_find(index, 4101, SEARCH_QUICK));
    index_free(index);
}

/* Lists are from young to old. What the first sixteen are is decided by age alone: so is placement. */
TEST(newest_of_the_best_is_found)
{
    for (int count = 1; count <= 20; count++) {
        for (int best = 0; best < count; best++) {
            struct size_index *index = index_empty();
            struct size_node nodes[20];
            for (int i = count - 1; i >= 0; i--) { /* from oldest to newest */
                uint64_t size = i < best ? (i % 2 == 0 ? 8195 : 8194) : 8192;
                nodes[i] = (struct size_node){ .size = size };
                vmm__size_index_insert(index, &nodes[i]);
            }
            struct size_node *found = vmm__size_index_find(index, 8192, SEARCH_QUICK);
            assert_ptr_equal(found, &nodes[best < 16 ? best : 1]);
            index_free(index);
        }
    }
}

TEST(iteration_goes_from_large_to_small)
{
    struct size_index *index = index_empty();
    struct size_node nodes[500];
    for (int i = 0; i < 500; i++) {
        unsigned shift = (unsigned)(number_next() % 44);
        nodes[i] = (struct size_node){ .size = 1 + (number_next() >> shift) };
        vmm__size_index_insert(index, &nodes[i]);
    }
    int visited = 0;
    uint64_t last = UINT64_MAX;
    struct size_node *node = vmm__size_index_largest(index);
    while (node != NULL) {
        assert_true(node->size <= last || node->size - last <= last / 32);
        last = node->size;
        visited++;
        struct size_node *next = vmm__size_index_smaller(index, node);
        vmm__size_index_remove(index, node);
        node = next;
    }
    assert_int_equal(visited, 500);
    assert_int_equal(index->rows, 0);
    index_free(index);
}

TEST(check_finds_damage)
{
    struct size_index *index = index_empty();
    struct size_node node = { .size = 100 };
    vmm__size_index_insert(index, &node);
    node.size = 1000;
    assert_false(vmm__size_index_check(index));
    node.size = 100;
    struct size_node **link = node.link;
    node.link = &node.next;
    assert_false(vmm__size_index_check(index));
    node.link = link;
    assert_true(vmm__size_index_check(index));
    index->rows = 0;
    assert_false(vmm__size_index_check(index));
    index_free(index);
}
