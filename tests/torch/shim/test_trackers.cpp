/* Trackers that register memory, as PyTorch's NCCL does: in pools that grow, lend, end, sleep and wake. */
#include "torch/shim/shim_support.hpp"

#include "torch/shim/foreign_allocator.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <utility>

using action = caching::TraceEntry::Action;

/* PyTorch never uses an id twice. */
static MempoolId_t pool_id()
{
    static unsigned long long last = 100;
    return { 0, ++last };
}

/* A communicator as ProcessGroupNCCL keeps it: it registers a segment of its pools once by address, and deregistering
 * one that it does not have is an error. */
struct communicator {
    std::set<MempoolId_t> pools;
    std::map<size_t, size_t> registered; /* address: bytes */
    std::vector<size_t> order;           /* addresses, as they were registered by events */
    int errors = 0;

    void hear(const caching::TraceEntry &entry)
    {
        bool is_free = entry.action_ == action::SEGMENT_FREE;
        if ((entry.action_ != action::SEGMENT_ALLOC && !is_free) ||
            pools.count(entry.mempool_) == 0)
            return;
        if (!is_free) {
            order.push_back(entry.addr_);
            registered.emplace(entry.addr_, entry.size_);
        } else if (registered.erase(entry.addr_) == 0) {
            errors++;
        }
    }

    /* register_mem_pool() */
    void add(const MempoolId_t &id)
    {
        pools.insert(id);
        for (const caching::SegmentInfo &segment : snapshot_of(id).segments) {
#if VMM_TEST_TORCH >= 211
            assert_true(segment.registration_counter >= 0);
#endif
            registered.emplace(segment.address, segment.total_size);
        }
    }

    /* deregister_mem_pool() */
    void remove(const MempoolId_t &id)
    {
        pools.erase(id);
        for (const caching::SegmentInfo &segment : snapshot_of(id).segments)
            errors += registered.erase(segment.address) == 0;
    }

    bool has_all(const std::map<size_t, size_t> &wanted) const
    {
        return std::includes(registered.begin(), registered.end(), wanted.begin(), wanted.end());
    }

    size_t bytes() const
    {
        size_t sum = 0;
        for (const auto &segment : registered)
            sum += segment.second;
        return sum;
    }

    bool has(const void *block, size_t bytes) const
    {
        auto address = reinterpret_cast<size_t>(block);
        auto next = registered.upper_bound(address);
        return next != registered.begin() &&
               address + bytes <= std::prev(next)->first + std::prev(next)->second;
    }
};

static void nothing_is_left(const communicator &ranks)
{
    assert_int_equal(ranks.registered.size(), 0);
    assert_int_equal(ranks.errors, 0);
}

/* Trackers stay, so there is one for all tests. */
static std::vector<std::unique_ptr<communicator>> &communicators()
{
    static auto *all = new std::vector<std::unique_ptr<communicator>>;
    static bool is_attached = false;
    if (!is_attached)
        shim().attachAllocatorTraceTracker([](const caching::TraceEntry &entry) {
            for (const std::unique_ptr<communicator> &each : *all)
                each->hear(entry);
        });
    is_attached = true;
    return *all;
}

/* A communicator that hears of changes until the next test begins. */
static communicator &communicator_make()
{
    communicators().push_back(std::make_unique<communicator>());
    return *communicators().back();
}

static communicator &first_communicator()
{
    communicators().clear(); /* those of a test before */
    shim().emptyCache();     /* which may have left large chunks */
    return communicator_make();
}

static void *allocate_in(const MempoolId_t &id, size_t bytes)
{
    return alloc_in(id, bytes, stream_of(0x40));
}

/* Makes a pool with one block, and registers it. */
static void *register_in(const MempoolId_t &id, size_t bytes, communicator &ranks)
{
    shim().createOrIncrefPool(0, id);
    void *block = allocate_in(id, bytes);
    ranks.add(id);
    return block;
}

/* ---- Sleep ---------------------------------------------------------------------------------- */

/* As Python's sleep() and wake() call the library. */
struct sleeper {
    decltype(&vmm_pool_sleep) sleep;
    decltype(&vmm_pool_wake) wake;
    decltype(&vmm_pool_find) find;
    decltype(&vmm_cache_pool) cache_pool;
    vmm_sleep_options options = VMM_SLEEP_OPTIONS_INIT;

    sleeper()
    {
        void *library = dlopen(VMM_TORCH_LIBRARY, RTLD_NOW | RTLD_LOCAL);
        sleep = hook_find<decltype(vmm_pool_sleep)>(library, "vmm_pool_sleep");
        wake = hook_find<decltype(vmm_pool_wake)>(library, "vmm_pool_wake");
        find = hook_find<decltype(vmm_pool_find)>(library, "vmm_pool_find");
        cache_pool = hook_find<decltype(vmm_cache_pool)>(library, "vmm_cache_pool");
        options.unmapping =
            hook_find<decltype(vmm_torch_unmapping)>(library, "vmm_torch_unmapping");
        options.mapped = hook_find<decltype(vmm_torch_mapped)>(library, "vmm_torch_mapped");
    }

    vmm_pool *of(const MempoolId_t &id) const
    {
        vmm_pool *found = find(plugin().cache(0), { id.first, id.second });
        assert_non_null(found);
        return found;
    }
};

struct watched_sleep {
    const vmm_sleep_options *forwarded;
    const communicator *ranks;
    size_t mappings;
};

/* No memory of the pool is registered when its first mapping goes, nor before all of them are back. */
static void unmapping_watch(void *context, vmm_pool *pool, uint64_t address, uint64_t bytes)
{
    auto *watched = static_cast<watched_sleep *>(context);
    vmm_stats stats = VMM_STATS_INIT;
    assert_ok(plugin().stats_get(plugin().cache(0), &stats));
    assert_int_equal(stats.asleep_bytes, 0);
    watched->forwarded->unmapping(nullptr, pool, address, bytes);
    assert_int_equal(watched->ranks->registered.size(), 0);
    watched->mappings++;
}

static void mapped_watch(void *context, vmm_pool *pool, uint64_t address, uint64_t bytes)
{
    auto *watched = static_cast<watched_sleep *>(context);
    vmm_stats stats = VMM_STATS_INIT;
    assert_ok(plugin().stats_get(plugin().cache(0), &stats));
    assert_int_equal(stats.asleep_bytes, 0);
    watched->forwarded->mapped(nullptr, pool, address, bytes);
    assert_true(watched->ranks->has(reinterpret_cast<void *>(static_cast<uintptr_t>(address)), 1));
    watched->mappings++;
}

TEST(a_pool_that_sleeps_is_not_registered)
{
    const MempoolId_t pool = pool_id();
    sleeper sleeper;
    communicator &ranks = first_communicator();
    void *block = register_in(pool, 20 * MIB, ranks);
    auto before = ranks.registered;
    assert_true(ranks.has(block, 20 * MIB));
    vmm_pool *sleeping = sleeper.of(pool);
    watched_sleep watched = { &sleeper.options, &ranks, 0 };
    vmm_sleep_options options = sleeper.options;
    options.unmapping = unmapping_watch;
    options.mapped = mapped_watch;
    options.context = &watched;
    for (int i = 0; i < 3; i++) {
        assert_ok(sleeper.sleep(&sleeping, 1, &options, nullptr));
        assert_int_equal(ranks.registered.size(), 0);
        assert_int_equal(snapshot_of(pool).segments.size(), 0); /* for one that is added now */
        assert_ok(sleeper.wake(&sleeping, 1, &options, nullptr));
        assert_true(ranks.registered == before);
    }
    assert_true(watched.mappings >= 6 * before.size());
    assert_int_equal(ranks.errors, 0);
    ranks.remove(pool);
    nothing_is_left(ranks);
    shim().raw_delete(block);
    shim().releasePool(0, pool);
}

/* It is destroyed when it is awake and its blocks are freed. */
TEST(a_pool_may_end_while_it_sleeps)
{
    sleeper sleeper;
    const MempoolId_t pool = pool_id();
    communicator &ranks = first_communicator();
    void *block = register_in(pool, 20 * MIB, ranks);
    vmm_pool *sleeping = sleeper.of(pool);
    assert_ok(sleeper.sleep(&sleeping, 1, &sleeper.options, nullptr));
    shim().releasePool(0, pool);
    assert_ok(sleeper.wake(&sleeping, 1, &sleeper.options, nullptr));
    assert_true(ranks.has(block, 20 * MIB));
    shim().raw_delete(block);
    shim().emptyCache();
    assert_int_equal(shim().getPoolUseCount(0, pool), 0);
    nothing_is_left(ranks);
}

TEST(a_communicator_may_come_and_go_while_a_pool_sleeps)
{
    const MempoolId_t pool = pool_id();
    sleeper sleeper;
    communicator &early = first_communicator();
    communicator &late = communicator_make();
    void *block = register_in(pool, 20 * MIB, early);
    vmm_pool *sleeping = sleeper.of(pool);
    assert_ok(sleeper.sleep(&sleeping, 1, &sleeper.options, nullptr));
    late.add(pool);
    early.remove(pool);
    assert_int_equal(late.registered.size(), 0);
    assert_ok(sleeper.wake(&sleeping, 1, &sleeper.options, nullptr));
    assert_int_equal(early.registered.size(), 0);
    assert_true(late.has(block, 20 * MIB));
    late.remove(pool);
    assert_int_equal(early.errors + late.errors, 0);
    shim().raw_delete(block);
    shim().releasePool(0, pool);
}

/* The device has too little memory for the second pool to wake, so the first one sleeps again. */
TEST(registration_follows_all_pools_or_none)
{
    const MempoolId_t pool = pool_id();
    const MempoolId_t other_pool = pool_id();
    sleeper sleeper;
    communicator &ranks = first_communicator();
    shim().createOrIncrefPool(0, pool);
    shim().createOrIncrefPool(0, other_pool);
    void *block = allocate_in(pool, 60 * MIB);
    void *other = allocate_in(other_pool, 60 * MIB);
    ranks.add(pool);
    ranks.add(other_pool);
    auto before = ranks.registered;
    vmm_pool *both[] = { sleeper.of(pool), sleeper.of(other_pool) };
    assert_ok(sleeper.sleep(both, 2, &sleeper.options, nullptr));
    assert_int_equal(ranks.registered.size(), 0);
    void *filler = shim().raw_alloc_with_stream(device_bytes - 90 * MIB, stream_of(0x60));
    assert_int_equal(sleeper.wake(both, 2, &sleeper.options, nullptr), VMM_ERR_DEVICE_OOM);
    assert_int_equal(ranks.registered.size(), 0);
    assert_int_equal(snapshot_of(pool).segments.size(), 0);
    shim().raw_delete(filler);
    assert_ok(sleeper.wake(both, 2, &sleeper.options, nullptr));
    assert_true(ranks.registered == before);
    assert_int_equal(ranks.errors, 0);
    ranks.remove(pool);
    ranks.remove(other_pool);
    assert_int_equal(ranks.errors, 0);
    blocks_delete({ block, other });
    shim().releasePool(0, pool);
    shim().releasePool(0, other_pool);
}

/* Other memory changes, and snapshots are taken, while a pool sleeps and wakes. */
TEST(threads_allocate_while_a_pool_sleeps)
{
    sleeper sleeper;
    const MempoolId_t pool = pool_id();
    communicator &ranks = first_communicator();
    void *block = register_in(pool, 20 * MIB, ranks);
    auto before = ranks.registered;
    std::vector<std::thread> threads;
    for (unsigned number = 0; number < 2; number++)
        threads.emplace_back([number] {
            for (unsigned i = 1; i < 60; i++) {
                shim().raw_delete(
                    shim().raw_alloc_with_stream(i * MIB / 4, stream_of(0x200 + number)));
                (void)snapshot_of();
                shim().emptyCache();
            }
        });
    vmm_pool *sleeping = sleeper.of(pool);
    vmm_status status = VMM_OK;
    for (int i = 0; i < 20 && status == VMM_OK; i++) {
        status = sleeper.sleep(&sleeping, 1, &sleeper.options, nullptr);
        if (status == VMM_OK)
            status = sleeper.wake(&sleeping, 1, &sleeper.options, nullptr);
    }
    for (std::thread &thread : threads)
        thread.join();
    assert_ok(status);
    assert_true(ranks.registered == before);
    shim().raw_delete(block);
    shim().releasePool(0, pool);
    nothing_is_left(ranks);
}

/* Of memory that is not of a pool of PyTorch, as of expandable segments. */
static int unmaps, maps;

TEST(the_default_pool_s_sleep_is_told)
{
    sleeper sleeper;
    static bool listens = true;
    shim().attachAllocatorTraceTracker([](const caching::TraceEntry &entry) {
        unmaps += listens && entry.action_ == action::SEGMENT_UNMAP;
        maps += listens && entry.action_ == action::SEGMENT_MAP;
    });
    void *block = shim().raw_alloc_with_stream(20 * MIB, stream_of(0x40));
    vmm_pool *sleeping = sleeper.cache_pool(plugin().cache(0));
    maps = unmaps = 0;
    assert_ok(sleeper.sleep(&sleeping, 1, &sleeper.options, nullptr));
    assert_true(unmaps > 0);
    assert_int_equal(maps, 0);
    assert_ok(sleeper.wake(&sleeping, 1, &sleeper.options, nullptr));
    assert_true(maps > 0);
    listens = false;
    shim().raw_delete(block);
}

/* ---- Pools ---------------------------------------------------------------------------------- */

/* Windows are registered by all processes at once, whatever their addresses. */
TEST(a_wake_keeps_the_order_of_registration)
{
    sleeper sleeper;
    const MempoolId_t pool = pool_id();
    communicator &ranks = first_communicator();
    shim().createOrIncrefPool(0, pool);
    ranks.add(pool);
    void *blocks[] = { allocate_in(pool, 5 * MIB), allocate_in(pool, 100),
                       allocate_in(pool, 30 * MIB), allocate_in(pool, 3 * MIB) };
    std::vector<size_t> grown = ranks.order;
    assert_true(grown.size() >= 3);
    vmm_pool *sleeping = sleeper.of(pool);
    assert_ok(sleeper.sleep(&sleeping, 1, &sleeper.options, nullptr));
    ranks.order.clear();
    assert_ok(sleeper.wake(&sleeping, 1, &sleeper.options, nullptr));
    assert_true(ranks.order == grown);
    blocks_delete(blocks);
    shim().releasePool(0, pool);
    nothing_is_left(ranks);
}

TEST(registered_pools_grow)
{
    const MempoolId_t pool = pool_id();
    communicator &ranks = first_communicator();
    shim().createOrIncrefPool(0, pool);
    void *first = allocate_in(pool, 4 * MIB);
    ranks.add(pool);
    void *second = allocate_in(pool, 30 * MIB);
    assert_true(ranks.has(first, 4 * MIB));
    assert_true(ranks.bytes() >= 34 * MIB);
    blocks_delete({ first, second });
    ranks.remove(pool);
    nothing_is_left(ranks);
    shim().releasePool(0, pool);
}

/* A block may lie in both, and NCCL wants it in one. */
TEST(large_growths_are_registered_together)
{
    const MempoolId_t pool = pool_id();
    communicator &ranks = first_communicator();
    shim().emptyCache();
    shim().createOrIncrefPool(0, pool);
    void *first = allocate_in(pool, 20 * MIB), *second = allocate_in(pool, 20 * MIB);
    blocks_delete({ first, second });
    ranks.add(pool);
    assert_int_equal(ranks.registered.size(), 1);
    void *both = allocate_in(pool, 30 * MIB);
    assert_true(ranks.has(both, 30 * MIB));
    ranks.remove(pool);
    assert_int_equal(ranks.errors, 0);
    shim().raw_delete(both);
    shim().releasePool(0, pool);
}

/* Blocks that move into views and back while two communicators hold the pool. */
TEST(views_do_not_change_what_is_registered)
{
    const MempoolId_t pool = pool_id();
    communicator &ranks = first_communicator();
    shim().createOrIncrefPool(0, pool);
    void *kept[16];
    for (void *&each : kept)
        each = allocate_in(pool, 3 * MIB);
    ranks.add(pool);
    for (int i = 0; i < 16; i += 2)
        shim().raw_delete(kept[i]);
    void *large = allocate_in(pool, 14 * MIB);
    communicator &late = communicator_make();
    late.add(pool);
    assert_true(late.registered == ranks.registered);
    shim().raw_delete(large);
    large = allocate_in(pool, 9 * MIB);
    ranks.remove(pool);
    late.remove(pool);
    assert_int_equal(ranks.errors + late.errors, 0);
    assert_int_equal(ranks.registered.size() + late.registered.size(), 0);
    for (int i = 1; i < 16; i += 2)
        shim().raw_delete(kept[i]);
    shim().raw_delete(large);
    shim().releasePool(0, pool);
}

TEST(a_snapshot_of_registered_memory_adds_up)
{
    const MempoolId_t pool = pool_id();
    communicator &ranks = first_communicator();
    shim().createOrIncrefPool(0, pool);
    void *blocks[] = { allocate_in(pool, 3 * MIB), allocate_in(pool, 5 * MIB),
                       allocate_in(pool, 100) };
    ranks.add(pool);
    size_t requested = 0;
    for (const caching::SegmentInfo &segment : snapshot_of(pool).segments) {
        size_t sum = 0;
        for (const caching::BlockInfo &block : segment.blocks) {
            sum += block.size;
            requested += block.requested_size;
        }
        assert_int_equal(sum, segment.total_size);
        assert_true(segment.owner_private_pool_id == pool);
    }
    assert_int_equal(requested, 8 * MIB + 100);
    blocks_delete(blocks);
    shim().releasePool(0, pool);
}

/* Memory of a pool that has ended goes to other pools. Nothing may stay registered once it is unmapped. */
TEST(memory_that_leaves_its_pool_is_not_registered)
{
    const MempoolId_t pool = pool_id();
    communicator &ranks = first_communicator();
    void *block = register_in(pool, 40 * MIB, ranks);
    shim().raw_delete(block);
    shim().releasePool(0, pool); /* without deregister_mem_pool() */
    shim().emptyCache();
    nothing_is_left(ranks);
}

/* With use_on_oom. Once its memory is registered, it lends it where it is. */
TEST(a_registered_pool_that_lends_keeps_its_memory)
{
    const MempoolId_t pool = pool_id();
    communicator &ranks = first_communicator();
    shim().createOrIncrefPool(0, pool);
    use_on_oom_set(pool);
    void *block = allocate_in(pool, 140 * MIB);
    void *small = allocate_in(pool, 4 * MIB);
    ranks.add(pool);
    auto before = ranks.registered;
    assert_true(ranks.has(block, 140 * MIB));
    assert_int_equal(shim().getPoolUseCount(0, pool), 1);
    shim().raw_delete(block);
    shim().emptyCache();
    assert_true(ranks.has_all(before)); /* and what was a view's at home */
    void *borrowed = shim().raw_alloc_with_stream(130 * MIB, stream_of(0x40));
    vmm_item item = VMM_ITEM_INIT;
    int device;
    assert_ok(provider().find(borrowed, &item, &device));
    assert_true(MempoolId_t(item.pool_id.first, item.pool_id.second) == pool);
    assert_true(ranks.has_all(before));
    blocks_delete({ borrowed, small });
    shim().releasePool(0, pool);
    assert_int_equal(shim().getPoolUseCount(0, pool), 0);
    shim().emptyCache();
    nothing_is_left(ranks);
}

TEST(a_pool_that_lends_is_not_held_before)
{
    const MempoolId_t pool = pool_id();
    communicator &ranks = first_communicator();
    shim().createOrIncrefPool(0, pool);
    use_on_oom_set(pool);
    void *block = allocate_in(pool, 40 * MIB);
    void *small = allocate_in(pool, 4 * MIB);
    shim().raw_delete(block);
    shim().emptyCache();
    ranks.add(pool);
    assert_true(ranks.has(small, 4 * MIB));
    assert_true(ranks.bytes() < 40 * MIB);
    ranks.remove(pool);
    shim().raw_delete(small);
    shim().releasePool(0, pool);
    assert_int_equal(ranks.errors, 0);
}

/* As MemPool(backend.mem_allocator), whose memory is ncclMemAlloc()'s. */
TEST(segments_of_an_allocator_are_registered_until_it_has_them_back)
{
    const MempoolId_t pool = pool_id();
    foreign_counts counts;
    auto source = std::make_shared<foreign::allocator>(&counts);
    communicator &ranks = first_communicator();
    counts.on_free = [&ranks](void *segment) { assert_false(ranks.has(segment, 1)); };
    shim().createOrIncrefPool(0, pool, foreign::handle_of(source));
    void *first = allocate_in(pool, 5 * MIB);
    ranks.add(pool);
    assert_int_equal(ranks.registered.size(), 1);
    assert_true(ranks.has(first, 5 * MIB));
    void *second = allocate_in(pool, 30 * MIB); /* a segment of its own */
    assert_int_equal(ranks.registered.size(), 2);
    assert_true(ranks.has(second, 30 * MIB));
    assert_int_equal(snapshot_of(pool).segments.size(), 2);
    blocks_delete({ first, second });
    assert_int_equal(ranks.registered.size(), 2);
    shim().releasePool(0, pool);
    assert_int_equal(counts.frees, 2);
    nothing_is_left(ranks);
}

/* NCCL refuses to free memory that is registered. Neighbours may come from other calls of the allocator. */
TEST(segments_that_go_back_are_deregistered_first)
{
    const MempoolId_t pool = pool_id();
    foreign_counts counts;
    std::unique_ptr<char, void (*)(void *)> arena(
        static_cast<char *>(std::aligned_alloc(4096, 128 * MIB)), std::free);
    counts.arena = arena.get();
    auto source = std::make_shared<foreign::allocator>(&counts);
    communicator &ranks = first_communicator();
    counts.on_free = [&ranks](void *segment) { assert_false(ranks.has(segment, 1)); };
    shim().createOrIncrefPool(0, pool, foreign::handle_of(source));
    use_on_oom_set(pool);
    void *blocks[] = { allocate_in(pool, 30 * MIB), allocate_in(pool, 26 * MIB) };
    ranks.add(pool);
    void *later = allocate_in(pool, 24 * MIB);
    assert_int_equal(ranks.registered.size(), 3);
    shim().raw_delete(blocks[0]);
    shim().emptyCache(); /* the pool keeps them */
    assert_int_equal(counts.frees, 0);
    assert_true(ranks.has(blocks[0], 30 * MIB) && ranks.has(blocks[1], 26 * MIB) &&
                ranks.has(later, 24 * MIB));
    ranks.remove(pool);
    assert_int_equal(ranks.registered.size(), 0);
    ranks.add(pool);
    blocks_delete({ blocks[1], later });
    shim().releasePool(0, pool);
    assert_int_equal(counts.frees, 3);
    nothing_is_left(ranks);
}

/* ---- Refusals ------------------------------------------------------------------------------- */

TEST(registration_of_all_memory_is_refused)
{
    for (const char *name : { "TORCH_NCCL_USE_TENSOR_REGISTER_ALLOCATOR_HOOK",
                              "NCCL_USE_TENSOR_REGISTER_ALLOCATOR_HOOK" }) {
        assert_int_equal(setenv(name, "True", 1), 0);
        std::string said = thrown<c10::NotImplementedError>(
            [] { shim().attachAllocatorTraceTracker([](const caching::TraceEntry &) {}); });
        assert_true(has(said, "TORCH_NCCL_USE_TENSOR_REGISTER_ALLOCATOR_HOOK does not work"));
        assert_int_equal(setenv(name, "0", 1), 0);
        shim().attachAllocatorTraceTracker([](const caching::TraceEntry &) {});
        assert_int_equal(unsetenv(name), 0);
    }
}

/* A child of a fork that happens while trackers hear finds their lock held, and still ends its MemPools. */
TEST(a_child_of_fork_ends_pools_without_the_lock_of_trackers)
{
    static int child_status;
    static bool forks;
    static MempoolId_t pool;
    pool = pool_id();
    shim().createOrIncrefPool(0, pool);
    shim().attachAllocatorTraceTracker([](const caching::TraceEntry &) {
        if (!std::exchange(forks, false))
            return;
        pid_t child = fork();
        if (child == 0) {
            alarm(10); /* ends a child that hangs */
            shim().emptyCache(pool);
            shim().releasePool(0, pool);
            _exit(0);
        }
        (void)waitpid(child, &child_status, 0);
    });
    child_status = -1;
    forks = true;
    shim().raw_delete(shim().raw_alloc(MIB));
    assert_false(forks);
    assert_int_equal(child_status, 0);
    shim().releasePool(0, pool);
}

/* One that throws keeps no other from hearing. */
TEST(each_tracker_hears)
{
    static bool throws = true;
    static int heard = 0;
    shim().attachAllocatorTraceTracker([](const caching::TraceEntry &) {
        if (throws)
            throw std::runtime_error("tracker");
    });
    shim().attachAllocatorTraceTracker([](const caching::TraceEntry &) { heard++; });
    shim().raw_delete(shim().raw_alloc(MIB));
    assert_true(heard > 0);
    throws = false;
}
