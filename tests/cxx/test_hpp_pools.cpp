// vmmcache.hpp: owners of pools and of pushes.
#include "hpp_support.hpp"

#include <cstdlib>
#include <optional>
#include <type_traits>

namespace
{

static_assert(!std::is_copy_constructible_v<vmm::pool> && !std::is_copy_assignable_v<vmm::pool>);
static_assert(std::is_nothrow_move_constructible_v<vmm::pool>);
static_assert(std::is_nothrow_move_assignable_v<vmm::pool>);
static_assert(!std::is_move_constructible_v<vmm::pool_push>);
static_assert(noexcept(std::declval<vmm::pool &>().try_allocate(1)));

vmm_pool_options limited_pool()
{
    vmm_pool_options options = vmm::make_pool_options();
    options.name = "tenant";
    options.limit_bytes = 8 * MIB;
    return options;
}

vmm_pool *pool_of(const vmm::cache &cache, const vmm::block &block)
{
    vmm_item item = VMM_ITEM_INIT;
    EXPECT(vmm_find(cache.get(), block.data(), &item) == VMM_OK);
    return item.pool;
}

void blocks_outlive_their_pool()
{
    vmm::cache cache(limited());
    vmm::block block;
    {
        vmm::pool pool(cache);
        block = pool.allocate(MIB, stream_named(1));
        EXPECT(pool_of(cache, block) == pool.get() && block.stream() == stream_named(1));
        EXPECT(pool.stats().allocations.current == 1);
    }
    EXPECT(pool_of(cache, block) == vmm_cache_pool(cache.get()));
    EXPECT(cache.take_error() == nullptr);
    block.reset();
    EXPECT(live_blocks(cache) == 0);
}

void a_walk_visits_its_pool()
{
    vmm::cache cache(limited());
    vmm::pool pool(cache);
    vmm::block other = cache.allocate(MIB);
    vmm::block block = pool.allocate(MIB);
    int live = 0;
    pool.walk([&](const vmm_item &item) {
        EXPECT(item.pool == pool.get());
        live += item.kind == VMM_ITEM_BLOCK && item.state == VMM_ITEM_LIVE ? 1 : 0;
        return true;
    });
    EXPECT(live == 1);
    EXPECT(thrown_by<int>([&] { pool.walk([](const vmm_item &) -> bool { throw 7; }); }) == 7);
    pool.close();
    EXPECT(refused([&] { pool.walk([](const vmm_item &) { return true; }); }) ==
           VMM_ERR_INVALID_ARGUMENT);
}

void a_limit_throws_and_names_the_pool()
{
    vmm::cache cache(limited());
    vmm::pool pool(cache, limited_pool());
    bool is_thrown = false;
    try {
        (void)pool.allocate(16 * MIB);
    } catch (const vmm::out_of_memory &error) {
        is_thrown = std::string(error.what()).find("pool tenant") != std::string::npos;
    }
    EXPECT(is_thrown);
    vmm_status status = VMM_OK;
    EXPECT(!pool.try_allocate(16 * MIB, nullptr, &status) && status == VMM_ERR_DEVICE_OOM);
    pool.set_limit(0);
    EXPECT(pool.allocate(16 * MIB).size() == 16 * MIB);
    EXPECT(pool.trim() == 16 * MIB && pool.trim() == 0);
}

void options_reach_the_pool()
{
    vmm::cache cache(limited());
    vmm_pool_options options = vmm::make_pool_options();
    options.no_split = 1;
    options.use_on_oom = 1;
    options.reserve_bytes = cache.stats().limit_bytes;
    vmm::pool pool(cache, options);
    (void)pool.allocate(options.reserve_bytes - 4 * MIB);
    vmm::block whole = pool.allocate(1);
    EXPECT(pool.stats().chunks.current == 2);
    whole = vmm::block();
    vmm::block borrowed = cache.allocate(MIB);
    EXPECT(pool_of(cache, borrowed) == pool.get());
}

void a_push_ends_with_its_scope()
{
    vmm::cache cache(limited());
    vmm::pool outer(cache);
    vmm::pool inner(cache);
    auto outer_push = outer.push();
    {
        auto inner_push = inner.push();
        EXPECT(pool_of(cache, cache.allocate(MIB)) == inner.get());
    }
    EXPECT(pool_of(cache, cache.allocate(MIB)) == outer.get());
}

void a_pool_moves()
{
    vmm::cache cache(limited());
    vmm::pool first(cache);
    vmm_pool *handle = first.get();
    vmm::pool second(std::move(first));
    EXPECT(first.get() == nullptr && second.get() == handle);
    vmm::pool third(cache);
    third = std::move(second);
    EXPECT(third.get() == handle);
    vmm::cache moved(std::move(cache));
    EXPECT(third.allocate(MIB).size() == MIB);
    third.close(); /* before its cache, which is declared after it, ends */
    EXPECT(moved.take_error() == nullptr);
}

template <typename Call> bool is_refused(Call &&call)
{
    try {
        call();
    } catch (const vmm::error &error) {
        return error.status() == VMM_ERR_INVALID_ARGUMENT;
    }
    return false;
}

void a_block_is_placed_where_it_was()
{
    vmm::cache cache(limited());
    vmm_pool_options options = vmm::make_pool_options();
    options.kind = VMM_POOL_GRAPH;
    vmm::pool pool(cache, options);
    vmm::block block = pool.allocate(3 * MIB, stream_named(1));
    void *address = block.data();
    EXPECT(is_refused([&] { (void)pool.place(address, 3 * MIB, stream_named(1)); }));
    block.reset();
    block = pool.place(address, 3 * MIB, stream_named(1));
    EXPECT(block.data() == address && block.size() == 3 * MIB && block.stream() == stream_named(1));
    EXPECT(pool_of(cache, block) == pool.get() && live_blocks(cache) == 1);
    block.reset();
    EXPECT(live_blocks(cache) == 0);
}

void a_close_says_what_is_wrong()
{
    vmm::cache cache(limited());
    vmm::pool pool(cache);
    vmm::block block = pool.allocate(MIB);
    EXPECT(is_refused([&] { pool.close(false); }) && pool.get() != nullptr);
    pool.close();
    EXPECT(is_refused([&] { (void)pool.allocate(1); }));
    EXPECT(is_refused([&] { (void)pool.push(); }));
    EXPECT(is_refused([&] { pool.close(); }));
    EXPECT(cache.take_error() == nullptr);
}

void a_failure_of_the_destructor_is_kept()
{
    vmm::cache cache(limited());
    std::optional<vmm::pool> pool(std::in_place, cache);
    vmm_pool *handle = pool->get();
    EXPECT(vmm_pool_retain(handle) == VMM_OK);
    pool.reset();
    EXPECT(cache.take_error() != nullptr);
    EXPECT(vmm_pool_drop(handle) == VMM_OK && vmm_pool_destroy(handle, 0) == VMM_OK);
}

void a_pool_of_a_closed_cache_is_gone()
{
    vmm::cache cache(limited());
    {
        vmm::pool pool(cache);
        cache.close();
    }
    EXPECT(cache.take_error() == nullptr);
}

// Segments of host memory: a cache of the sim driver does not touch them.
struct segments {
    int allocated = 0;
    int freed = 0;
    bool throws = false;

    vmm::segment_source source()
    {
        return { [this](std::size_t bytes, vmm_stream) {
                    if (throws)
                        throw std::runtime_error("no segment");
                    allocated++;
                    return memory_take(bytes);
                },
                 [this](void *segment, std::size_t) {
                     freed++;
                     std::free(segment);
                     if (throws)
                         throw std::runtime_error("no way back");
                 },
                 8 * MIB };
    }
    static void *memory_take(std::size_t bytes)
    {
        void *memory = std::aligned_alloc(512, bytes);
        EXPECT(memory != nullptr);
        return memory;
    }
};

void a_source_gives_segments_and_gets_them_back()
{
    segments from;
    vmm::cache cache(limited());
    {
        vmm::pool first(cache, from.source());
        vmm::pool pool(std::move(first));
        vmm::block block = pool.allocate(3 * MIB);
        vmm::block next = pool.allocate(4 * MIB);
        EXPECT(from.allocated == 1 && pool_of(cache, next) == pool.get());
        block.reset();
        next.reset();
        EXPECT(pool.trim() == 8 * MIB && from.freed == 1);
        (void)pool.allocate(3 * MIB);
    }
    EXPECT(from.allocated == 2 && from.freed == 2);
    EXPECT(cache.take_error() == nullptr);
}

void what_a_source_throws_is_kept()
{
    segments from;
    vmm::cache cache(limited());
    vmm::pool pool(cache, from.source());
    (void)pool.allocate(3 * MIB);
    from.throws = true;
    vmm_status status = VMM_OK;
    EXPECT(!pool.try_allocate(16 * MIB, nullptr, &status) && status == VMM_ERR_DEVICE_OOM);
    EXPECT(from.freed == 1); // what was idle
    EXPECT(cache.take_error() != nullptr && cache.take_error() == nullptr);
    from.throws = false;
    vmm::block block = pool.allocate(3 * MIB);
    block.reset();
    from.throws = true;
    EXPECT(pool.trim() == 8 * MIB && from.freed == 2);
    EXPECT(cache.take_error() != nullptr);
}

void a_pool_with_live_blocks_keeps_its_source_until_the_cache_ends()
{
    segments from;
    {
        vmm::cache cache(limited());
        vmm::block block;
        {
            vmm::pool pool(cache, from.source());
            block = pool.allocate(3 * MIB);
            (void)thrown_by<vmm::error>([&] { pool.close(); });
            EXPECT(pool.get() != nullptr);
        }
        EXPECT(cache.take_error() != nullptr && from.freed == 0);
        (void)block.release();
    }
    EXPECT(from.freed == 1);
}

} // namespace

int main(int argc, char **argv)
{
    read_driver(argc, argv);
    blocks_outlive_their_pool();
    a_walk_visits_its_pool();
    a_limit_throws_and_names_the_pool();
    options_reach_the_pool();
    a_push_ends_with_its_scope();
    a_pool_moves();
    a_block_is_placed_where_it_was();
    a_close_says_what_is_wrong();
    a_failure_of_the_destructor_is_kept();
    a_pool_of_a_closed_cache_is_gone();
    a_source_gives_segments_and_gets_them_back();
    what_a_source_throws_is_kept();
    a_pool_with_live_blocks_keeps_its_source_until_the_cache_ends();
    return 0;
}
