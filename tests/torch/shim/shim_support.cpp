/* The program of the shim's tests: see shim_support.hpp. usage: PROGRAM sim|host */
#include "torch/shim/shim_support.hpp"

#include <cstdlib>
#include <cstring>
#include <mutex>
#include <new>

std::function<int(size_t)> on_pressure;

static hooks opened_hooks;
static const vmm_torch_functions *functions;
static vmm_driver_kind driver;

thread_local int news_left = -1;

[[gnu::noinline]] void *operator new(size_t bytes)
{
    void *memory = news_left != 0 ? std::malloc(bytes) : nullptr;
    if (memory == nullptr)
        throw std::bad_alloc();
    news_left -= news_left > 0 ? 1 : 0;
    return memory;
}

[[gnu::noinline]] void operator delete(void *memory) noexcept
{
    std::free(memory);
}

[[gnu::noinline]] void operator delete(void *memory, size_t) noexcept
{
    std::free(memory);
}

extern "C" const char *vmm_shim_install(const vmm_torch_functions *functions);

caching::CUDAAllocator &shim()
{
    return *caching::allocator.load();
}

const hooks &plugin()
{
    return opened_hooks;
}

const vmm_torch_functions &provider()
{
    return *functions;
}

std::string &logged()
{
    static std::string line;
    return line;
}

bool is_host_driver()
{
    return driver == VMM_DRIVER_HOST;
}

void *begin_alloc(const MempoolId_t &pool, size_t bytes, cudaStream_t stream)
{
    shim().beginAllocateToPool(0, pool, nullptr);
    void *block = shim().raw_alloc_with_stream(bytes, stream);
    shim().endAllocateToPool(0, pool);
    return block;
}

void *alloc_in(const MempoolId_t &pool, size_t bytes, cudaStream_t stream)
{
    void *block = begin_alloc(pool, bytes, stream);
    shim().releasePool(0, pool);
    return block;
}

struct fake_context final : c10::GatheredContext {
};

static std::shared_ptr<c10::GatheredContext> context_gather()
{
    return std::make_shared<fake_context>();
}

void history_record(bool is_enabled, caching::RecordContext when, size_t entries, bool clears,
                    const std::vector<std::string> &skipped)
{
#if VMM_TEST_TORCH >= 210
    shim().recordHistory(is_enabled, context_gather, entries, when, clears, skipped);
#else
    (void)skipped;
    shim().recordHistory(is_enabled, context_gather, entries, when, clears);
#endif
}

uint64_t live_blocks(int device)
{
    vmm_stats stats = VMM_STATS_INIT;
    vmm_torch_stats kinds = {};
    assert_ok(provider().stats_get(device, &stats, &kinds));
    return stats.allocations.current;
}

static void log_store(void *, const char *line)
{
    static std::mutex lock;
    std::lock_guard<std::mutex> guard(lock);
    logged() = line;
}

static int pressure_forward(void *, vmm_pool *, size_t bytes)
{
    return on_pressure ? on_pressure(bytes) : 0;
}

/* A list of devices gives access at once, and to no others. So do all devices, without the allocator class. */
static void peers_check(vmm_config config)
{
    config.peer_devices = 3;
    assert_ok(opened_hooks.configure(&config));
    assert_int_equal(functions->peers_get(0), 3);
    assert_status(functions->peers_add(0, 1 << 2), VMM_ERR_INVALID_ARGUMENT);
    assert_true(has(functions->last_error(), "device 2 may not access memory of device 0"));
    config.peer_devices = UINT64_MAX;
    assert_ok(opened_hooks.configure(&config));
    assert_int_equal(functions->peers_get(0), UINT64_MAX);
}

static int shim_install(void **)
{
    opened_hooks = hooks_open(VMM_TORCH_LIBRARY);
    void *library = dlopen(VMM_TORCH_LIBRARY, RTLD_NOW | RTLD_LOCAL);
    functions = hook_find<const vmm_torch_functions *()>(library, "vmm_torch_provider")();
    vmm_config config = VMM_CONFIG_INIT;
    config.driver = driver;
    config.device_bytes = device_bytes;
    config.log = log_store;
    config.pressure = pressure_forward;
    vmm_torch_functions old = *functions;
    old.version++;
    assert_true(has(vmm_shim_install(&old), "of another version"));
    peers_check(config);
    assert_null(vmm_shim_install(functions));
    assert_int_equal(functions->peers_get(0), 0); /* those that PyTorch asks for */
    assert_false(shim().initialized());
    shim().init(shim_devices);
    return 0;
}

int main(int argc, char **argv)
{
    driver = argc > 1 && std::strcmp(argv[1], "host") == 0 ? VMM_DRIVER_HOST : VMM_DRIVER_SIM;
    return tests_run(shim_install, nullptr);
}
