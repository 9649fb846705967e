/*
 * Graph pools through the hooks that have a C++ ABI: which requests a filter selects, and how long the library
 * keeps the filter.
 */
#include "torch/hooks.hpp"

#include <atomic>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

static hooks plugin;
static std::string logged; /* the last line */

static void log_store(void *, const char *line)
{
    logged = line;
}

struct pool_query {
    uint64_t address;
    vmm_pool_id pool;
};

static mempool_id pool_of(const void *block)
{
    pool_query query = { reinterpret_cast<uint64_t>(block), { 0, 0 } };
    vmm_visitor visit = [](void *context, const vmm_item *item) {
        auto *wanted = static_cast<pool_query *>(context);
        if (item->kind != VMM_ITEM_BLOCK || item->address != wanted->address)
            return 0;
        wanted->pool = item->pool_id;
        return 1;
    };
    assert_ok(plugin.walk(plugin.cache(0), visit, &query));
    return mempool_id(query.pool.first, query.pool.second);
}

static const mempool_id none(0, 0);
static const mempool_id graph(0, 42);

static void assert_pool(void *block, const mempool_id &wanted)
{
    mempool_id got = pool_of(block);
    assert_int_equal(got.first, wanted.first);
    assert_int_equal(got.second, wanted.second);
}

TEST(filter_selects_requests)
{
    cuda_stream captured = stream_of(0x40);
    auto witness = std::make_shared<int>(0);
    plugin.pool_begin(0, graph, [captured, witness](cuda_stream stream) {
        ++*witness;
        return stream == captured;
    });
    assert_int_equal(witness.use_count(), 2); /* the library keeps a copy */
    void *inside = plugin.alloc(MIB, 0, captured);
    void *outside = plugin.alloc(MIB, 0, stream_of(0x50));
    assert_true(*witness >= 2);
    assert_pool(inside, graph);
    assert_pool(outside, none);
    plugin.pool_end(0, graph);
    assert_int_equal(witness.use_count(), 1); /* it has dropped the copy */
    void *later = plugin.alloc(MIB, 0, captured);
    assert_pool(later, none);
    for (void *block : { inside, outside, later })
        plugin.free(block, MIB, 0, stream_of(0));
    plugin.pool_release(0, graph);
    assert_true(logged.find("pool") == std::string::npos);
}

TEST(no_filter_selects_all_requests)
{
    plugin.pool_begin(0, graph, nullptr);
    void *block = plugin.alloc(MIB, 0, stream_of(0x60));
    assert_pool(block, graph);
    plugin.pool_end(0, graph);
    plugin.free(block, MIB, 0, stream_of(0x60));
    plugin.pool_release(0, graph);
}

TEST(throwing_filter_selects_no_request)
{
    plugin.pool_begin(0, graph, [](cuda_stream) -> bool { throw std::runtime_error("no"); });
    void *block = plugin.alloc(MIB, 0, stream_of(0x40));
    assert_pool(block, none);
    plugin.pool_end(0, graph);
    plugin.free(block, MIB, 0, stream_of(0x40));
    plugin.pool_release(0, graph);
}

static std::string begin_failure(int device, const mempool_id &id)
{
    auto witness = std::make_shared<int>(0);
    std::string text;
    try {
        plugin.pool_begin(device, id, [witness](cuda_stream) { return true; });
    } catch (const std::runtime_error &error) {
        text = error.what();
    }
    assert_int_equal(witness.use_count(), 1);
    return text;
}

TEST(misuse_is_reported)
{
    assert_true(has(begin_failure(0, none), "cannot begin a graph pool on GPU 0"));
    assert_true(has(begin_failure(99, graph), "no device 99"));
    plugin.pool_begin(0, graph, nullptr);
    assert_true(has(begin_failure(0, graph), "has a route already"));
    plugin.pool_end(0, graph);
    plugin.pool_end(0, graph);
    assert_true(has(logged, "vmm_torch_pool_end: VMM_ERR_INVALID_ARGUMENT"));
    plugin.pool_release(0, graph);
    plugin.pool_release(0, graph);
    assert_true(has(logged, "vmm_torch_pool_release: VMM_ERR_INVALID_ARGUMENT"));
    plugin.pool_release(99, graph);
    assert_true(has(logged, "device 99 has no cache"));
}

TEST(devices_have_separate_pools)
{
    auto first = std::make_shared<int>(0);
    auto second = std::make_shared<int>(0);
    plugin.pool_begin(0, graph, [first](cuda_stream) { return true; });
    plugin.pool_begin(1, graph, [second](cuda_stream) { return true; });
    plugin.pool_end(0, graph);
    assert_int_equal(first.use_count(), 1);
    assert_int_equal(second.use_count(), 2);
    plugin.pool_end(1, graph);
    assert_int_equal(second.use_count(), 1);
    plugin.pool_release(0, graph);
    plugin.pool_release(1, graph);
}

/* Begins and ends the pool, unless another thread has begun it. Returns false if a filter was not kept while open. */
static bool pool_contend(unsigned rounds)
{
    auto witness = std::make_shared<int>(0);
    bool is_kept = true;
    for (unsigned round = 0; round < rounds && is_kept; round++) {
        try {
            plugin.pool_begin(0, graph, [witness](cuda_stream) { return false; });
        } catch (const std::runtime_error &) {
            continue; /* another thread has begun it */
        }
        is_kept = witness.use_count() == 2;
        plugin.pool_end(0, graph);
        is_kept = is_kept && witness.use_count() == 1;
    }
    return is_kept;
}

TEST(threads_may_begin_the_same_pool)
{
    enum { THREADS = 6, ROUNDS = 4000 };
    std::vector<std::thread> threads;
    std::atomic<int> kept{ 0 };
    for (int i = 0; i < THREADS; i++)
        threads.emplace_back([&kept] { kept += pool_contend(ROUNDS) ? 1 : 0; });
    for (std::thread &thread : threads)
        thread.join();
    assert_int_equal(kept, THREADS);
    plugin.pool_release(0, graph);
}

/* Whether each begin succeeds, or is refused because another thread has begun the pool. */
static bool graphs_capture(unsigned rounds)
{
    for (unsigned round = 0; round < rounds; round++) {
        try {
            plugin.pool_begin(0, graph, nullptr);
        } catch (const std::runtime_error &error) {
            if (std::string(error.what()).find("has a route already") == std::string::npos)
                return false;
            continue;
        }
        plugin.pool_end(0, graph);
        plugin.pool_release(0, graph);
    }
    return true;
}

TEST(threads_may_release_the_pool_that_another_begins)
{
    enum { THREADS = 6, ROUNDS = 4000 };
    std::vector<std::thread> threads;
    std::atomic<int> finished{ 0 };
    logged.clear();
    for (int i = 0; i < THREADS; i++)
        threads.emplace_back([&finished] { finished += graphs_capture(ROUNDS) ? 1 : 0; });
    for (std::thread &thread : threads)
        thread.join();
    assert_int_equal(finished, THREADS);
    assert_true(logged.find("pool") == std::string::npos);
}

static int plugin_open(void **)
{
    plugin = hooks_open(VMM_TORCH_LIBRARY);
    vmm_config config = VMM_CONFIG_INIT;
    config.driver = VMM_DRIVER_SIM;
    config.log = log_store;
    return plugin.configure(&config);
}

int main()
{
    return tests_run(plugin_open, nullptr);
}
