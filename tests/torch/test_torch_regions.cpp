/*
 * Regions through the library's interface and PyTorch's hooks: which pool a request goes to, and what becomes of the
 * pools of captures that begin inside a region or end while they sleep.
 */
#include "torch/hooks.hpp"

#include <algorithm>
#include <string>
#include <thread>
#include <vector>

static hooks plugin;
static decltype(&vmm_torch_region_begin) region_begin;
static decltype(&vmm_torch_region_end) region_end;
static decltype(&vmm_torch_pools_list) pools_list;
static decltype(&vmm_pool_sleep) pool_sleep;
static decltype(&vmm_pool_wake) pool_wake;
static decltype(&vmm_find) find;
static std::string logged; /* all lines */
static vmm_driver_kind driver;

static const cuda_stream captured = reinterpret_cast<cuda_stream>(0x40);
static const mempool_id graph(0, 7);

static void log_store(void *, const char *line)
{
    logged += line;
    logged += '\n';
}

static std::vector<vmm_torch_pool> pools(int device)
{
    std::vector<vmm_torch_pool> found(64);
    size_t count = 0;
    assert_ok(pools_list(device, found.data(), found.size(), &count));
    found.resize(count);
    return found;
}

static const vmm_torch_pool *pool_of(const std::vector<vmm_torch_pool> &found, void *block)
{
    vmm_item item = VMM_ITEM_INIT;
    assert_ok(find(plugin.cache(found[0].device), block, &item));
    auto pool = std::find_if(found.begin(), found.end(),
                             [&item](const auto &one) { return one.pool == item.pool; });
    assert_true(pool != found.end());
    return &*pool;
}

static std::string tag_of(void *block, int device = 0)
{
    auto found = pools(device);
    return pool_of(found, block)->tag;
}

static void *take(int device = 0, cuda_stream stream = nullptr)
{
    return plugin.alloc(MIB, device, stream);
}

static void give(void *block, int device = 0)
{
    plugin.free(block, MIB, device, nullptr);
}

TEST(region_leads_to_the_pool_of_its_tag)
{
    void *before = take();
    assert_ok(region_begin(0, "weights", 0));
    void *inside = take();
    assert_ok(region_begin(0, "cache", 1));
    void *nested = take();
    assert_ok(region_end(0));
    void *again = take();
    assert_ok(region_end(0));
    void *after = take();
    assert_string_equal(tag_of(before).c_str(), "");
    assert_string_equal(tag_of(inside).c_str(), "weights");
    assert_string_equal(tag_of(nested).c_str(), "cache");
    assert_string_equal(tag_of(again).c_str(), "weights");
    assert_string_equal(tag_of(after).c_str(), "");
    for (void *block : { before, inside, nested, again, after })
        give(block);
    assert_true(logged.find("vmm_torch_") == std::string::npos);
}

TEST(tag_has_one_pool_for_kept_and_one_for_discarded_contents)
{
    void *blocks[3];
    for (int i = 0; i < 3; i++) {
        assert_ok(region_begin(0, "mixed", i == 1));
        blocks[i] = take();
        assert_ok(region_end(0));
    }
    auto found = pools(0);
    assert_ptr_equal(pool_of(found, blocks[0])->pool, pool_of(found, blocks[2])->pool);
    assert_ptr_not_equal(pool_of(found, blocks[0])->pool, pool_of(found, blocks[1])->pool);
    assert_int_equal(pool_of(found, blocks[1])->discards, 1);
    for (void *block : blocks)
        give(block);
}

TEST(region_is_of_its_thread_and_device)
{
    assert_ok(region_begin(0, "weights", 0));
    void *other = nullptr;
    std::thread([&other] { other = take(); }).join();
    void *far = take(1);
    assert_ok(region_end(0));
    assert_string_equal(tag_of(other).c_str(), "");
    assert_string_equal(tag_of(far, 1).c_str(), "");
    give(other);
    give(far, 1);
}

TEST(threads_share_the_pool_of_a_tag)
{
    constexpr size_t THREADS = 6;
    std::vector<std::thread> threads;
    std::vector<void *> blocks(THREADS);
    for (size_t i = 0; i < THREADS; i++)
        threads.emplace_back([&blocks, i] {
            assert_ok(region_begin(0, "shared", 0));
            blocks[i] = take();
            assert_ok(region_end(0));
        });
    for (std::thread &thread : threads)
        thread.join();
    auto found = pools(0);
    for (void *block : blocks)
        assert_ptr_equal(pool_of(found, block)->pool, pool_of(found, blocks[0])->pool);
    assert_int_equal(
        std::count_if(found.begin(), found.end(),
                      [](const auto &pool) { return pool.tag == std::string("shared"); }),
        1);
    for (void *block : blocks)
        give(block);
}

TEST(capture_inside_a_region_takes_over_and_gets_the_tag)
{
    assert_ok(region_begin(0, "graphs", 1));
    void *before = take(0, captured);
    plugin.pool_begin(0, graph, [](cuda_stream stream) { return stream == captured; });
    void *inside = take(0, captured);
    plugin.pool_end(0, graph);
    void *after = take(0, captured);
    assert_ok(region_end(0));
    auto found = pools(0);
    const vmm_torch_pool *pool = pool_of(found, inside);
    assert_int_equal(pool->id.second, graph.second);
    assert_string_equal(pool->tag, "graphs");
    assert_int_equal(pool->discards, 1);
    assert_ptr_not_equal(pool_of(found, before)->pool, pool->pool);
    assert_ptr_equal(pool_of(found, before)->pool, pool_of(found, after)->pool);
    for (void *block : { before, inside, after })
        give(block);
    plugin.pool_release(0, graph);
    assert_int_equal(pools(0).size(), found.size() - 1);
}

TEST(capture_outside_has_no_tag)
{
    plugin.pool_begin(0, graph, nullptr);
    void *inside = take();
    plugin.pool_end(0, graph);
    assert_string_equal(tag_of(inside).c_str(), "");
    give(inside);
    plugin.pool_release(0, graph);
}

TEST(capture_that_failed_leaves_the_region_usable)
{
    assert_ok(region_begin(0, "weights", 0));
    plugin.pool_begin(0, graph, nullptr);
    assert_ok(region_end(0)); /* the route is left */
    plugin.pool_release(0, graph);
    assert_ok(region_begin(0, "weights", 0));
    void *block = take();
    assert_ok(region_end(0));
    assert_string_equal(tag_of(block).c_str(), "weights");
    give(block);
    assert_true(logged.find("vmm_torch_") == std::string::npos);
}

TEST(graph_that_ends_asleep_is_destroyed_when_it_is_awake)
{
    size_t count = pools(0).size();
    plugin.pool_begin(0, graph, nullptr);
    void *output = take();
    plugin.pool_end(0, graph);
    vmm_pool *pool = pools(0)[1].pool;
    assert_ok(pool_sleep(&pool, 1, nullptr, nullptr));
    plugin.pool_release(0, graph);
    assert_int_equal(pools(0).size(), count + 1); /* its output is live */
    assert_ok(pool_wake(&pool, 1, nullptr, nullptr));
    assert_int_equal(pools(0).size(), count);
    assert_string_equal(tag_of(output).c_str(), "");
    give(output);
    assert_true(logged.find("vmm_torch_") == std::string::npos);
}

TEST(misuse_is_refused)
{
    size_t count = 0;
    assert_int_equal(region_begin(0, "", 0), VMM_ERR_INVALID_ARGUMENT);
    assert_int_equal(region_begin(0, nullptr, 0), VMM_ERR_INVALID_ARGUMENT);
    assert_int_equal(region_begin(0, std::string(64, 'x').c_str(), 0), VMM_ERR_INVALID_ARGUMENT);
    assert_int_equal(region_begin(99, "weights", 0), VMM_ERR_NO_DEVICE);
    assert_int_equal(region_end(0), VMM_ERR_INVALID_ARGUMENT);
    assert_ok(region_begin(0, "weights", 0));
    assert_int_equal(region_end(1), VMM_ERR_INVALID_ARGUMENT);
    assert_ok(region_end(0));
    assert_int_equal(pools_list(0, nullptr, 1, &count), VMM_ERR_INVALID_ARGUMENT);
    assert_int_equal(pools_list(0, nullptr, 0, nullptr), VMM_ERR_INVALID_ARGUMENT);
    assert_ok(pools_list(5, nullptr, 0, &count));
    assert_int_equal(count, 0);
    vmm_torch_pool one;
    assert_ok(pools_list(0, &one, 1, &count));
    assert_true(count > 1);
}

static int plugin_open(void **)
{
    plugin = hooks_open(VMM_TORCH_LIBRARY);
    void *library = dlopen(VMM_TORCH_LIBRARY, RTLD_NOW | RTLD_LOCAL);
#define CALL_FIND(member, name)                                                                    \
    member = hook_find<std::remove_pointer_t<decltype(member)>>(library, #name)
    CALL_FIND(region_begin, vmm_torch_region_begin);
    CALL_FIND(region_end, vmm_torch_region_end);
    CALL_FIND(pools_list, vmm_torch_pools_list);
    CALL_FIND(pool_sleep, vmm_pool_sleep);
    CALL_FIND(pool_wake, vmm_pool_wake);
    CALL_FIND(find, vmm_find);
#undef CALL_FIND
    vmm_config config = VMM_CONFIG_INIT;
    config.driver = driver;
    config.log = log_store;
    vmm_status status = plugin.configure(&config);
    give(take());
    logged.clear();
    return status;
}

int main(int argc, char **argv)
{
    driver = argc > 1 && std::string(argv[1]) == "host" ? VMM_DRIVER_HOST : VMM_DRIVER_SIM;
    return tests_run(plugin_open, nullptr);
}
