/* The shim's pools: routes, uses, allocators of their own, and the states that graph trees save and restore. */
#include "torch/shim/shim_support.hpp"

#include "torch/shim/foreign_allocator.hpp"

#include <atomic>
#include <thread>

#include <dlfcn.h>

/* Whether a call throws if it gets memory so many times. */
static bool is_refused(int news, const std::function<void()> &call)
{
    news_left = news;
    try {
        call();
        news_left = -1;
        return false;
    } catch (...) {
        news_left = -1;
        return true;
    }
}

static const MempoolId_t graph(0, 7);
static const MempoolId_t other_graph(3, 0);

static MempoolId_t pool_of(const void *block)
{
    vmm_item item = VMM_ITEM_INIT;
    int device;
    assert_ok(provider().find(block, &item, &device));
    return { item.pool_id.first, item.pool_id.second };
}

static caching::CUDAAllocator &capturing(const MempoolId_t &id, cudaStream_t captured)
{
    shim().beginAllocateToPool(0, id,
                               [captured](cudaStream_t stream) { return stream == captured; });
    return shim();
}

TEST(a_filter_selects_requests)
{
    cudaStream_t captured = stream_of(0x40);
    capturing(graph, captured);
    assert_int_equal(shim().getPoolUseCount(0, graph), 1);
    void *inside = shim().raw_alloc_with_stream(MIB, captured);
    void *outside = shim().raw_alloc_with_stream(MIB, stream_of(0x50));
    shim().endAllocateToPool(0, graph);
    void *later = shim().raw_alloc_with_stream(MIB, captured);
    assert_true(pool_of(inside) == graph);
    assert_true(pool_of(outside) == MempoolId_t(0, 0));
    assert_true(pool_of(later) == MempoolId_t(0, 0));
    blocks_delete({ inside, outside, later });
    shim().releasePool(0, graph);
    assert_int_equal(shim().getPoolUseCount(0, graph), 0);
}

static void *take_on(cudaStream_t stream)
{
    return shim().raw_alloc_with_stream(MIB, stream);
}

/* A capture that failed leaves such a begin behind; the next one begins in the same pool. */
TEST(a_second_begin_inside_a_region_takes_over)
{
    void *library = dlopen(VMM_TORCH_LIBRARY, RTLD_NOW | RTLD_LOCAL);
    auto *region_begin =
        hook_find<vmm_status(int, const char *, int)>(library, "vmm_torch_region_begin");
    auto *region_end = hook_find<vmm_status(int)>(library, "vmm_torch_region_end");
    cudaStream_t captured = stream_of(0x40);
    capturing(graph, captured);
    assert_ok(region_begin(0, "weights", 0));
    void *before = take_on(captured);
    capturing(graph, captured);
    void *inside = take_on(captured);
    shim().endAllocateToPool(0, graph);
    void *after = take_on(captured);
    assert_ok(region_end(0));
    void *left = take_on(captured);
    shim().endAllocateToPool(0, graph);
    assert_true(pool_of(inside) == graph);
    assert_true(pool_of(left) == graph);
    assert_true(pool_of(before) != graph);
    assert_true(pool_of(after) == pool_of(before));
    blocks_delete({ before, inside, after, left });
    for (int use = 0; use < 2; use++)
        shim().releasePool(0, graph);
    assert_int_equal(shim().getPoolUseCount(0, graph), 0);
}

TEST(the_filter_is_dropped_at_the_end)
{
    auto witness = std::make_shared<int>(0);
    shim().beginAllocateToPool(0, graph, [witness](cudaStream_t) { return true; });
    assert_int_equal(witness.use_count(), 2);
    shim().endAllocateToPool(0, graph);
    assert_int_equal(witness.use_count(), 1);
    shim().releasePool(0, graph);
}

TEST(a_filter_that_throws_selects_nothing)
{
    shim().beginAllocateToPool(0, graph,
                               [](cudaStream_t) -> bool { throw std::runtime_error("no"); });
    void *block = shim().raw_alloc(MIB);
    assert_true(pool_of(block) == MempoolId_t(0, 0));
    shim().raw_delete(block);
    shim().endAllocateToPool(0, graph);
    shim().releasePool(0, graph);
    assert_int_equal(shim().getPoolUseCount(0, graph), 0);
}

TEST(a_pool_that_ends_takes_its_route_with_it)
{
    shim().beginAllocateToPool(0, graph, nullptr);
    shim().releasePool(0, graph); /* the capture failed and was not ended */
    (void)thrown<c10::Error>([] { shim().endAllocateToPool(0, graph); });
    capturing(graph, stream_of(0x40));
    void *block = shim().raw_alloc_with_stream(MIB, stream_of(0x40));
    assert_true(pool_of(block) == graph);
    shim().raw_delete(block);
    shim().endAllocateToPool(0, graph);
    shim().releasePool(0, graph);
}

/* Wherever it fails. */
TEST(a_begin_without_host_memory_leaves_nothing)
{
    int news = 0;
    while (is_refused(news, [] { shim().beginAllocateToPool(0, graph, nullptr); })) {
        assert_int_equal(shim().getPoolUseCount(0, graph), 0);
        (void)thrown<c10::Error>([] { shim().endAllocateToPool(0, graph); });
        news++;
    }
    assert_true(news > 0);
    shim().endAllocateToPool(0, graph);
    shim().releasePool(0, graph);
}

/* As torch.cuda.use_mem_pool() begins a pool. */
static void thread_begin()
{
    shim().beginAllocateToPool(0, graph, [thread = std::this_thread::get_id()](cudaStream_t) {
        return std::this_thread::get_id() == thread;
    });
}

static bool is_routed()
{
    void *block = shim().raw_alloc(MIB);
    bool is_inside = pool_of(block) == graph;
    shim().raw_delete(block);
    return is_inside;
}

TEST(threads_use_one_pool_at_once)
{
    thread_begin();
    std::thread(thread_begin).join();
    assert_int_equal(shim().getPoolUseCount(0, graph), 2);
    assert_true(is_routed());
    shim().endAllocateToPool(0, graph); /* ends what this thread began */
    assert_false(is_routed());
    shim().endAllocateToPool(0, graph);
    shim().releasePool(0, graph);
    assert_int_equal(shim().getPoolUseCount(0, graph), 1);
    shim().releasePool(0, graph);
}

/* As two threads that destroy what uses one pool. */
TEST(threads_end_the_uses_of_a_pool_at_once)
{
    for (int round = 0; round < 100; round++) {
        std::atomic<int> waiting{ 2 };
        auto release = [&waiting] {
            for (waiting--; waiting > 0;)
                continue;
            shim().releasePool(0, graph);
            shim().emptyCache(graph);
        };
        for (int use = 0; use < 2; use++)
            shim().createOrIncrefPool(0, graph);
        std::thread other(release);
        release();
        other.join();
        assert_int_equal(shim().getPoolUseCount(0, graph), 0);
    }
}

TEST(a_capture_may_lie_in_the_use_of_its_pool)
{
    thread_begin();
    capturing(graph, stream_of(0x40));
    shim().endAllocateToPool(0, graph); /* of the capture */
    assert_true(is_routed());
    shim().endAllocateToPool(0, graph);
    assert_false(is_routed());
    shim().releasePool(0, graph);
    shim().releasePool(0, graph);
}

static MempoolId_t pool_now(cudaStream_t stream)
{
    void *block = shim().raw_alloc_with_stream(MIB, stream);
    MempoolId_t id = pool_of(block);
    shim().raw_delete(block);
    return id;
}

/* The latest begin whose filter accepts the stream counts, also if its pool was begun before. */
TEST(uses_of_pools_nest)
{
    cudaStream_t stream = stream_of(0x40), other = stream_of(0x50);
    capturing(graph, stream);
    capturing(other_graph, stream);
    assert_true(pool_now(stream) == other_graph);
    thread_begin();
    assert_true(pool_now(stream) == graph && pool_now(other) == graph);
    capturing(other_graph, other);
    assert_true(pool_now(stream) == graph && pool_now(other) == other_graph);
    shim().endAllocateToPool(0, other_graph);
    assert_true(pool_now(stream) == graph && pool_now(other) == graph);
    shim().endAllocateToPool(0, graph);
    assert_true(pool_now(stream) == other_graph && pool_now(other) == MempoolId_t(0, 0));
    shim().endAllocateToPool(0, other_graph);
    assert_true(pool_now(stream) == graph);
    shim().endAllocateToPool(0, graph);
    assert_true(pool_now(stream) == MempoolId_t(0, 0));
    for (int uses = 0; uses < 2; uses++) {
        shim().releasePool(0, graph);
        shim().releasePool(0, other_graph);
    }
    assert_int_equal(shim().getPoolUseCount(0, graph), 0);
    assert_int_equal(shim().getPoolUseCount(0, other_graph), 0);
    shim().emptyCache({ 0, 0 });
}

TEST(a_use_may_end_before_one_inside_it)
{
    cudaStream_t stream = stream_of(0x40);
    capturing(graph, stream);
    capturing(other_graph, stream);
    shim().endAllocateToPool(0, graph);
    assert_true(pool_now(stream) == other_graph);
    shim().endAllocateToPool(0, other_graph);
    assert_true(pool_now(stream) == MempoolId_t(0, 0));
    shim().releasePool(0, graph);
    shim().releasePool(0, other_graph);
    shim().emptyCache({ 0, 0 });
}

/* A capture that failed was not ended. */
TEST(a_pool_that_ends_takes_all_its_begins_with_it)
{
    cudaStream_t stream = stream_of(0x40);
    capturing(graph, stream);
    capturing(other_graph, stream);
    capturing(graph, stream);
    shim().releasePool(0, graph);
    shim().releasePool(0, graph);
    assert_true(pool_now(stream) == other_graph);
    shim().endAllocateToPool(0, other_graph);
    shim().releasePool(0, other_graph);
    assert_true(pool_now(stream) == MempoolId_t(0, 0));
    shim().emptyCache({ 0, 0 });
}

TEST(misuse_of_a_pool_is_reported)
{
    assert_true(has(thrown<c10::Error>([] { shim().endAllocateToPool(0, graph); }),
                    "nothing allocates to pool (0, 7)"));
    assert_true(has(thrown<c10::Error>([] {
                        shim().beginAllocateToPool(0, { 0, 0 }, nullptr);
                    }),
                    "zeros"));
    logged().clear();
    shim().releasePool(0, graph); /* PyTorch calls it in destructors */
    assert_true(has(logged(), "releasePool: VMM_ERR_INVALID_ARGUMENT"));
    (void)thrown<c10::Error>([] { (void)shim().getCheckpointState(0, graph); });
}

TEST(a_pool_of_the_program_lives_by_its_uses)
{
    shim().createOrIncrefPool(0, graph);
    assert_int_equal(shim().getPoolUseCount(0, graph), 1);
    shim().beginAllocateToPool(0, graph, nullptr);
    assert_int_equal(shim().getPoolUseCount(0, graph), 2);
    void *block = shim().raw_alloc(4 * MIB);
    shim().endAllocateToPool(0, graph);
    shim().releasePool(0, graph);
    assert_true(pool_of(block) == graph);
    shim().emptyCache(graph);
    shim().releasePool(0, graph);
    shim().emptyCache(graph); /* PyTorch empties a pool that it has released */
    assert_true(pool_of(block) == MempoolId_t(0, 0));
    shim().raw_delete(block);
}

#if VMM_TEST_TORCH >= 210
static void pool_share(bool is_shared)
{
    shim().setUseOnOOM(0, graph, is_shared);
}
#else
static void pool_share(bool)
{
    shim().setUseOnOOM(0, graph);
}
#endif

/* Whether a graph may use the memory, as after beginAllocateToPool(), or not. */
TEST(a_pool_may_lend_its_memory)
{
    shim().createOrIncrefPool(0, graph);
    pool_share(true);
    shim().raw_delete(begin_alloc(graph, 200 * MIB));
    pool_share(true); /* it is so already */
    void *block = shim().raw_alloc(200 * MIB);
    assert_true(pool_of(block) == graph);
    shim().raw_delete(block);
    shim().releasePool(0, graph);
    block = shim().raw_alloc(200 * MIB);
    assert_true(pool_of(block) == MempoolId_t(0, 0));
    shim().raw_delete(block);
    shim().releasePool(0, graph);
}

TEST(a_pool_lends_nothing_unless_asked)
{
    shim().createOrIncrefPool(0, graph);
#if VMM_TEST_TORCH >= 210
    pool_share(true);
    pool_share(false);
#endif
    shim().raw_delete(begin_alloc(graph, 200 * MIB));
    (void)thrown<c10::OutOfMemoryError>([] { (void)shim().raw_alloc(200 * MIB); });
    shim().releasePool(0, graph);
    shim().releasePool(0, graph);
}

#if VMM_TEST_TORCH >= 210
/* What the destructor of a MemPool does, which ends the process if any of it throws. */
static void pool_destroy()
{
    pool_share(false);
    shim().releasePool(0, graph);
    shim().emptyCache(graph);
}

TEST(a_pool_that_lends_ends_with_its_blocks)
{
    shim().createOrIncrefPool(0, graph);
    pool_share(true);
    void *block = begin_alloc(graph, 4 * MIB);
    shim().releasePool(0, graph);
    pool_destroy();
    assert_int_equal(shim().getPoolUseCount(0, graph), 0);
    assert_true(pool_of(block) == MempoolId_t(0, 0));
    shim().raw_delete(block);
}

static size_t pool_bytes()
{
    size_t bytes = 0;
    for (const caching::SegmentInfo &segment : snapshot_of(graph).segments)
        bytes += segment.total_size;
    return bytes;
}

TEST(a_graph_keeps_the_memory_of_a_pool_that_lends)
{
    shim().createOrIncrefPool(0, graph);
    pool_share(true);
    shim().raw_delete(begin_alloc(graph, 40 * MIB));
    pool_destroy();
    assert_int_equal(shim().getPoolUseCount(0, graph), 1);
    shim().emptyCache();
    assert_int_equal(pool_bytes(), 40 * MIB);
    void *block = shim().raw_alloc(40 * MIB);
    assert_true(pool_of(block) == MempoolId_t(0, 0));
    shim().raw_delete(block);
    shim().releasePool(0, graph);
    assert_int_equal(shim().getPoolUseCount(0, graph), 0);
    assert_int_equal(pool_bytes(), 0);
}

TEST(a_pool_that_is_gone_can_be_ended)
{
    pool_destroy();
}
#endif

/* A request of 2 MiB does not get a part of the freed block. */
static void blocks_are_whole()
{
    shim().beginAllocateToPool(0, graph, nullptr);
    void *first = shim().raw_alloc(20 * MIB);
    shim().raw_delete(first);
    void *part = shim().raw_alloc(2 * MIB);
    assert_true(part < first || static_cast<char *>(part) >= static_cast<char *>(first) + 20 * MIB);
    void *again = shim().raw_alloc(20 * MIB);
    assert_true(again == first);
    blocks_delete({ part, again });
    shim().endAllocateToPool(0, graph);
    shim().releasePool(0, graph);
}

TEST(a_pool_may_have_no_split)
{
    shim().createOrIncrefPool(0, graph);
    shim().setNoSplit(0, graph);
    blocks_are_whole();
    shim().setNoSplit(0, graph);
    assert_true(has(thrown<c10::Error>([] { pool_share(true); }), "is in use"));
    shim().releasePool(0, graph);
}

/* PyTorch sets one after the other, each before the first request. */
TEST(a_pool_keeps_what_was_set_before)
{
    for (bool lends_first : { false, true }) {
        shim().createOrIncrefPool(0, graph);
        if (lends_first)
            pool_share(true);
        shim().setNoSplit(0, graph);
        if (!lends_first)
            pool_share(true);
        blocks_are_whole();
        shim().raw_delete(begin_alloc(graph, 200 * MIB));
        void *block = shim().raw_alloc(200 * MIB);
        assert_true(pool_of(block) == graph);
        shim().raw_delete(block);
        shim().releasePool(0, graph);
        shim().releasePool(0, graph);
    }
}

/* ---- Pools with an allocator of their own ---- */

TEST(a_pool_has_its_segments_from_an_allocator_of_its_own)
{
    foreign_counts counts;
    auto own = foreign::pool_make(graph, &counts);
    void *first = alloc_in(graph, 3 * MIB);
    assert_int_equal(counts.last_bytes, 20 * MIB);
    void *second = alloc_in(graph, 4 * MIB);
    void *small = alloc_in(graph, 1000);
    assert_int_equal(counts.last_bytes, 2 * MIB);
    assert_int_equal(counts.allocs, 2);
    assert_true(pool_of(first) == graph && pool_of(small) == graph);
    assert_true(shim().checkPoolLiveAllocations(0, graph, { first, second, small }));
    caching::SnapshotInfo one = snapshot_of(graph);
    assert_int_equal(one.segments.size(), 2);
    shim().raw_delete(first);
    assert_ptr_equal(alloc_in(graph, 3 * MIB), first); /* cached */
    blocks_delete({ first, second, small });
    assert_int_equal(counts.frees, 0);
#if VMM_TEST_TORCH >= 211
    own.reset();
    assert_false(counts.is_ended); /* the pool uses it */
#endif
    shim().releasePool(0, graph);
    assert_int_equal(counts.frees, 2);
    assert_true(counts.is_relaxed);
#if VMM_TEST_TORCH >= 211
    assert_true(counts.is_ended);
#endif
}

/* Also if they lie side by side: the allocator may register each. */
TEST(segments_of_an_allocator_are_not_joined)
{
    foreign_counts counts;
    std::unique_ptr<char, void (*)(void *)> arena(
        static_cast<char *>(std::aligned_alloc(4096, 64 * MIB)), std::free);
    counts.arena = arena.get();
    auto own = foreign::pool_make(graph, &counts);
    void *first = alloc_in(graph, 20 * MIB), *second = alloc_in(graph, 20 * MIB);
    caching::SnapshotInfo snapshot = snapshot_of(graph);
    assert_int_equal(snapshot.segments.size(), 2);
    for (const caching::SegmentInfo &segment : snapshot.segments) {
        assert_int_equal(segment.total_size, 20 * MIB);
        assert_int_equal(segment.allocated_size, 20 * MIB);
        assert_true(segment.is_large && !segment.is_expandable);
    }
    blocks_delete({ first, second });
    shim().releasePool(0, graph);
    assert_int_equal(snapshot_of(graph).segments.size(), 0);
}

/* By CUDA's own handles, as with PyTorch's own allocator. */
TEST(memory_of_another_allocator_is_shared)
{
    foreign_counts counts;
    auto own = foreign::pool_make(graph, &counts);
    char *first = static_cast<char *>(alloc_in(graph, 3 * MIB));
    char *second = static_cast<char *>(alloc_in(graph, 4 * MIB));
    caching::ShareableHandle one = shim().shareIpcHandle(first);
    caching::ShareableHandle other = shim().shareIpcHandle(second + 1024);
    assert_true(one.handle == other.handle); /* of the segment */
    std::shared_ptr<void> opened = shim().getIpcDevPtr(one.handle);
    assert_ptr_equal(static_cast<char *>(opened.get()) + one.offset, first);
    assert_ptr_equal(static_cast<char *>(opened.get()) + other.offset, second + 1024);
    assert_ptr_equal(shim().getIpcDevPtr(other.handle).get(), opened.get());
    assert_int_equal(fake().ipc_opened, 1);
    opened.reset();
    assert_int_equal(fake().ipc_opened, 0);
    fake().ipc_error = cudaErrorPeerAccessAlreadyEnabled; /* any */
    (void)thrown<c10::Error>([&] { (void)shim().shareIpcHandle(first); });
    fake().ipc_error = cudaSuccess;
    std::string cut = one.handle.substr(0, one.handle.size() - 1);
    assert_true(
        has(thrown<c10::Error>([&] { (void)shim().getIpcDevPtr(cut); }), "not one of vmmcache"));
    blocks_delete({ first, second });
    shim().releasePool(0, graph);
    assert_int_equal(counts.frees, 1);
    assert_int_equal(fake().device, 0);
}

TEST(a_pool_keeps_its_allocator_when_options_are_set)
{
    foreign_counts counts;
    auto own = foreign::pool_make(graph, &counts);
    pool_share(true);
    shim().setNoSplit(0, graph);
    void *block = alloc_in(graph, 3 * MIB);
    assert_int_equal(counts.last_bytes, 4 * MIB);
    shim().raw_delete(block);
    shim().releasePool(0, graph);
    assert_int_equal(counts.allocs, 1);
    assert_int_equal(counts.frees, 1);
}

/* As PyTorch's own allocator does: a request that would fail gets the segment, and the pool gets it back. */
TEST(a_pool_keeps_the_segments_that_it_lends)
{
    foreign_counts counts;
    auto own = std::make_shared<foreign::allocator>(&counts);
    shim().emptyCache();
    shim().createOrIncrefPool(0, graph, foreign::handle_of(own));
    pool_share(true);
    shim().setMemoryFraction(0.25, 0);
    void *first = alloc_in(graph, 40 * MIB);
    assert_int_equal(shim().getPoolUseCount(0, graph), 1);
    shim().raw_delete(first);
    void *borrowed = shim().raw_alloc(30 * MIB);
    assert_ptr_equal(borrowed, first);
    assert_false(snapshot_of(graph).segments[0].is_expandable);
    shim().raw_delete(borrowed);
    assert_ptr_equal(alloc_in(graph, 20 * MIB), first);
    shim().raw_delete(first);
    assert_int_equal(counts.allocs, 1);
    shim().setMemoryFraction(1.0, 0);
#if VMM_TEST_TORCH >= 210
    pool_destroy();
#else
    shim().releasePool(0, graph);
#endif
    assert_int_equal(counts.frees, 1);
}

TEST(an_allocator_that_throws_is_out_of_memory)
{
    foreign_counts counts;
    auto own = foreign::pool_make(graph, &counts);
    counts.throws = true;
    shim().beginAllocateToPool(0, graph, nullptr);
    assert_true(
        has(thrown<c10::OutOfMemoryError>([] { (void)shim().raw_alloc(3 * MIB); }), "source"));
    counts.throws = false;
    shim().raw_delete(shim().raw_alloc(3 * MIB));
    shim().endAllocateToPool(0, graph);
    shim().releasePool(0, graph);
    shim().releasePool(0, graph);
    assert_int_equal(counts.frees, 1);
}

TEST(a_segment_goes_back_if_it_cannot_be_noted)
{
    foreign_counts counts;
    auto own = foreign::pool_make(graph, &counts);
    shim().beginAllocateToPool(0, graph, nullptr);
    counts.on_alloc = [] { news_left = 0; };
    assert_true(is_refused(-1, [] { (void)shim().raw_alloc(3 * MIB); }));
    assert_true(counts.allocs > 0);
    assert_int_equal(counts.frees, counts.allocs);
    counts.on_alloc = nullptr;
    shim().raw_delete(shim().raw_alloc(3 * MIB));
    shim().endAllocateToPool(0, graph);
    shim().releasePool(0, graph);
    shim().releasePool(0, graph);
    assert_int_equal(counts.frees, counts.allocs);
}

/* As PyTorch does: the memory of a tensor outlives its MemPool. */
TEST(blocks_outlive_a_pool_with_an_allocator)
{
    foreign_counts counts;
    auto own = foreign::pool_make(graph, &counts);
    void *block = alloc_in(graph, 3 * MIB);
    logged().clear();
    shim().releasePool(0, graph);
    shim().emptyCache(graph);
    assert_false(has(logged(), "releasePool"));
    assert_int_equal(counts.frees, 0);
    shim().raw_delete(block);
    shim().emptyCache({ 0, 0 });
    assert_int_equal(counts.frees, 1);
    assert_int_equal(shim().getPoolUseCount(0, graph), 0);
}

TEST(a_pool_cannot_have_this_allocator_as_its_own)
{
#if VMM_TEST_TORCH >= 211
    foreign::handle own(&shim(), [](caching::CUDAAllocator *) {});
#else
    foreign::handle own = &shim();
#endif
    assert_true(
        has(thrown<c10::NotImplementedError>([&] { shim().createOrIncrefPool(0, graph, own); }),
            "an allocator of its own"));
    assert_int_equal(shim().getPoolUseCount(0, graph), 0);
}

TEST(live_blocks_of_a_pool_are_compared)
{
    shim().beginAllocateToPool(0, graph, nullptr);
    void *first = shim().raw_alloc(MIB);
    void *second = shim().raw_alloc(3 * MIB);
    shim().endAllocateToPool(0, graph);
    void *outside = shim().raw_alloc(MIB);
    assert_true(shim().checkPoolLiveAllocations(0, graph, { first, second }));
    assert_false(shim().checkPoolLiveAllocations(0, graph, { first }));
    assert_false(shim().checkPoolLiveAllocations(0, graph, { first, outside }));
    shim().raw_delete(second);
    assert_true(shim().checkPoolLiveAllocations(0, graph, { first }));
    blocks_delete({ first, outside });
    shim().releasePool(0, graph);
}

static void delta_release(caching::CheckpointDelta &delta)
{
    for (c10::DataPtr &block : delta.dataptrs_allocd)
        (void)block.release_context(); /* as PyTorch does with those that no tensor takes */
}

TEST(a_later_state_returns_to_an_earlier_one)
{
    shim().beginAllocateToPool(0, graph, nullptr);
    void *first = shim().raw_alloc(MIB);
    auto state = shim().getCheckpointState(0, graph);
    void *second = shim().raw_alloc(3 * MIB);
    shim().endAllocateToPool(0, graph);
    caching::CheckpointDelta delta = shim().setCheckpointPoolState(0, state);
    assert_int_equal(delta.ptrs_freed.size(), 2); /* PyTorch expects every block here */
    assert_int_equal(delta.dataptrs_allocd.size(), 1);
    assert_ptr_equal(delta.dataptrs_allocd[0].get(), first);
    assert_true(delta.dataptrs_allocd[0].get_deleter() == shim().raw_deleter());
    assert_true(shim().checkPoolLiveAllocations(0, graph, { first }));
    delta_release(delta);
    (void)thrown<c10::Error>([&] { shim().raw_delete(second); });
    shim().raw_delete(first);
    shim().releasePool(0, graph);
}

TEST(blocks_that_are_gone_are_placed_where_they_were)
{
    shim().beginAllocateToPool(0, graph, nullptr);
    void *first = shim().raw_alloc(MIB);
    void *second = shim().raw_alloc(3 * MIB);
    shim().endAllocateToPool(0, graph);
    auto state = shim().getCheckpointState(0, graph);
    shim().raw_delete(second);
    caching::CheckpointDelta delta = shim().setCheckpointPoolState(0, state);
    assert_int_equal(delta.ptrs_freed.size(), 1);
    assert_int_equal(delta.dataptrs_allocd.size(), 2);
    assert_true(shim().checkPoolLiveAllocations(0, graph, { first, second }));
    delta_release(delta);
    blocks_delete({ second, first });
    shim().releasePool(0, graph);
}

/* The library's blocks have the rounded size, also those that are placed. */
TEST(states_keep_how_sizes_were_rounded)
{
    fake().divisions = { { 0, 4 } };
    void *block = begin_alloc(graph, 9 * MIB);
    fake().divisions.clear();
    auto state = shim().getCheckpointState(0, graph);
    shim().raw_delete(block);
    caching::CheckpointDelta delta = shim().setCheckpointPoolState(0, state);
    delta_release(delta);
    auto stats = shim().getDeviceStats(0);
    assert_int_equal(stats.requested_bytes[0].current, 9 * MIB);
    assert_int_equal(stats.allocated_bytes[0].current, 10 * MIB);
    shim().raw_delete(block);
    assert_int_equal(shim().getDeviceStats(0).requested_bytes[0].current, 0);
    shim().releasePool(0, graph);
}

static std::vector<void *> branch_alloc(std::initializer_list<size_t> sizes)
{
    std::vector<void *> blocks;
    shim().beginAllocateToPool(0, graph, nullptr);
    for (size_t bytes : sizes)
        blocks.push_back(shim().raw_alloc(bytes));
    shim().endAllocateToPool(0, graph);
    return blocks;
}

static bool branch_is(const std::shared_ptr<caching::AllocatorState> &state,
                      const std::vector<void *> &blocks)
{
    caching::CheckpointDelta delta = shim().setCheckpointPoolState(0, state);
    delta_release(delta);
    return shim().checkPoolLiveAllocations(0, graph, { blocks.begin(), blocks.end() });
}

/* As a tree of graphs does whose branches use the same memory. Their blocks are not in the same places. */
TEST(branches_of_a_tree_restore_the_memory_that_they_share)
{
    shim().createOrIncrefPool(0, graph);
    auto root = shim().getCheckpointState(0, graph);
    std::vector<void *> one = branch_alloc({ 600, 3 * MIB, 600, 9000, 2 * MIB, 4000 });
    auto one_state = shim().getCheckpointState(0, graph);
    assert_true(branch_is(root, {}));
    std::vector<void *> two = branch_alloc({ 5 * MIB, 12000, 4000, 600, 600, MIB });
    auto two_state = shim().getCheckpointState(0, graph);
    for (int round = 0; round < 4; round++) {
        assert_true(branch_is(one_state, one));
        assert_true(branch_is(two_state, two));
        assert_true(branch_is(root, {}));
    }
    assert_int_equal(shim().getDeviceStats(0).requested_bytes[0].current, 0);
    shim().releasePool(0, graph);
    shim().releasePool(0, graph);
    shim().releasePool(0, graph);
}

struct foreign_state final : caching::AllocatorState {
};

TEST(a_state_of_another_allocator_is_refused)
{
    auto foreign = std::make_shared<foreign_state>();
    assert_true(has(thrown<c10::Error>([&] { (void)shim().setCheckpointPoolState(0, foreign); }),
                    "of another allocator"));
}

TEST(a_state_of_another_device_is_refused_before_anything_changes)
{
    shim().createOrIncrefPool(1, graph);
    auto state = shim().getCheckpointState(1, graph);
    shim().createOrIncrefPool(0, graph);
    void *block = alloc_in(graph, MIB);
    assert_true(has(thrown<c10::Error>([&] { (void)shim().setCheckpointPoolState(0, state); }),
                    "the state is of device 1, not 0"));
    assert_true(shim().checkPoolLiveAllocations(0, graph, { block }));
    shim().raw_delete(block);
    shim().releasePool(0, graph);
    shim().releasePool(1, graph);
}

TEST(a_snapshot_shows_one_pool)
{
    void *inside = begin_alloc(other_graph, MIB);
    void *outside = shim().raw_alloc(3 * MIB);
    caching::SnapshotInfo one = snapshot_of(other_graph);
    caching::SnapshotInfo all = snapshot_of();
    assert_int_equal(one.segments.size(), 1);
    assert_true(one.segments[0].owner_private_pool_id == other_graph);
    assert_true(all.segments.size() >= 2);
    blocks_delete({ inside, outside });
    shim().releasePool(0, other_graph);
}
