/* Segments of pools in snapshots. A program by itself: once there is a tracker, snapshots show what trackers know. */
#include "torch/shim/shim_support.hpp"

static const MempoolId_t graph(0, 7);

static size_t blocks_in(const caching::SnapshotInfo &snapshot)
{
    size_t count = 0;
    for (const caching::SegmentInfo &segment : snapshot.segments)
        count += segment.blocks.size();
    return count;
}

/* A pool that gets only new memory. */
static void new_pool()
{
    shim().emptyCache();
    shim().createOrIncrefPool(0, graph);
}

/* As with PyTorch's own allocator, for which each is one cudaMalloc(), also when they are free. */
TEST(large_growths_of_a_pool_are_segments)
{
    new_pool();
    void *first = alloc_in(graph, 20 * MIB), *second = alloc_in(graph, 20 * MIB);
    assert_int_equal(snapshot_of(graph).segments.size(), 2);
    blocks_delete({ first, second });
    caching::SnapshotInfo idle = snapshot_of(graph);
    assert_int_equal(idle.segments.size(), 2);
    assert_int_equal(blocks_in(idle), 2);
    for (const caching::SegmentInfo &segment : idle.segments) {
        assert_int_equal(segment.total_size, 20 * MIB);
        assert_int_equal(segment.active_size, 0);
        assert_int_equal(segment.blocks[0].size, 20 * MIB);
    }
    shim().releasePool(0, graph);
    assert_int_equal(snapshot_of(graph).segments.size(), 0);
}

TEST(a_block_lies_in_one_segment)
{
    new_pool();
    void *first = alloc_in(graph, 20 * MIB), *second = alloc_in(graph, 20 * MIB);
    blocks_delete({ first, second });
    void *both = alloc_in(graph, 30 * MIB);
    caching::SnapshotInfo joined = snapshot_of(graph);
    assert_int_equal(joined.segments.size(), 1);
    assert_int_equal(joined.segments[0].total_size, 40 * MIB);
    assert_int_equal(joined.segments[0].requested_size, 30 * MIB);
    shim().raw_delete(both);
    assert_int_equal(snapshot_of(graph).segments.size(), 2);
    shim().releasePool(0, graph);
}

TEST(small_growths_are_joined)
{
    new_pool();
    void *first = alloc_in(graph, 4 * MIB), *second = alloc_in(graph, 4 * MIB);
    assert_int_equal(snapshot_of(graph).segments.size(), 1);
    blocks_delete({ first, second });
    shim().releasePool(0, graph);
}

TEST(blocks_of_a_pool_with_no_split_are_segments)
{
    new_pool();
    shim().setNoSplit(0, graph);
    void *first = alloc_in(graph, 4 * MIB), *second = alloc_in(graph, 4 * MIB),
         *small = alloc_in(graph, 1000);
    for (bool is_expandable : { false, true }) {
        fake().is_expandable = is_expandable;
        caching::SnapshotInfo snapshot = snapshot_of(graph);
        assert_int_equal(snapshot.segments.size(), 3);
        assert_int_equal(blocks_in(snapshot), 3);
    }
    fake().is_expandable = false;
    blocks_delete({ first, second, small });
    assert_int_equal(snapshot_of(graph).segments.size(), 3);
    shim().releasePool(0, graph);
}

TEST(expandable_segments_are_joined)
{
    fake().is_expandable = true;
    new_pool();
    void *first = alloc_in(graph, 20 * MIB), *second = alloc_in(graph, 20 * MIB);
    caching::SnapshotInfo snapshot = snapshot_of(graph);
    assert_int_equal(snapshot.segments.size(), 1);
    assert_true(snapshot.config_metadata.expandable_segments);
    fake().is_expandable = false;
    assert_false(snapshot_of(graph).config_metadata.expandable_segments);
    blocks_delete({ first, second });
    shim().releasePool(0, graph);
}

/* What a snapshot says of segments adds up, whatever lies where. */
TEST(segments_hold_all_memory_once)
{
    new_pool();
    void *blocks[24];
    for (int i = 0; i < 24; i++)
        blocks[i] = alloc_in(graph, i % 3 == 0 ? 20 * MIB / 2 : 3 * MIB);
    for (int i = 0; i < 24; i += 2)
        shim().raw_delete(blocks[i]);
    void *large = alloc_in(graph, 14 * MIB); /* in a view, or over two segments */
    size_t total = 0, sum = 0, requested = 0, end = 0;
    for (const caching::SegmentInfo &segment : snapshot_of().segments) {
        assert_true(segment.address >= end);
        end = segment.address + segment.total_size;
        total += segment.total_size;
        requested += segment.requested_size;
        for (const caching::BlockInfo &block : segment.blocks)
            sum += block.size;
    }
    auto stats = shim().getDeviceStats(0);
    assert_int_equal(total, stats.reserved_bytes[0].current);
    assert_int_equal(sum, total);
    assert_int_equal(requested, stats.requested_bytes[0].current);
    for (int i = 1; i < 24; i += 2)
        shim().raw_delete(blocks[i]);
    shim().raw_delete(large);
    shim().releasePool(0, graph);
}
