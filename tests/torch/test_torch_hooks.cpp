/*
 * Each hook, called as PyTorch calls it, and with wrong arguments.
 *
 * usage: test_torch_hooks sim|host
 */
#include "torch/hooks.hpp"

#include <cstring>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <sys/wait.h>
#include <unistd.h>

static hooks plugin;
static vmm_driver_kind driver;
static std::string logged;                     /* the last line */
static std::function<int(size_t)> on_pressure; /* the pressure function of the running test */

static constexpr uint64_t device_bytes = 256 * MIB;

static void log_store(void *, const char *line)
{
    logged = line;
}

static int pressure_forward(void *, vmm_pool *, size_t bytes)
{
    return on_pressure ? on_pressure(bytes) : 0;
}

/* ---- As much of Python as the library uses: an exception is a number ------------------------- */

static uintptr_t python_error; /* the calling thread's */
static bool is_python_thread;
static int python_locks;
static bool is_consumed;

static void *number_pointer(uintptr_t number)
{
    return reinterpret_cast<void *>(number);
}

#define PYTHON extern "C" __attribute__((visibility("default")))

PYTHON int PyGILState_Check()
{
    return is_python_thread;
}

PYTHON void *PyGILState_GetThisThreadState()
{
    return number_pointer(is_python_thread);
}

PYTHON int PyGILState_Ensure()
{
    bool before = is_python_thread;
    is_python_thread = true;
    python_locks++;
    return before;
}

PYTHON void PyGILState_Release(int before)
{
    is_python_thread = before != 0;
    python_locks--;
}

PYTHON void PyErr_Fetch(void **kind, void **value, void **trace)
{
    assert_true(is_python_thread);
    *kind = number_pointer(python_error);
    *value = *trace = nullptr;
    python_error = 0;
}

PYTHON void PyErr_Restore(void *kind, void *, void *)
{
    python_error = reinterpret_cast<uintptr_t>(kind);
}

PYTHON int PyCapsule_IsValid(void *, const char *name)
{
    return !is_consumed && std::strcmp(name, "dltensor") == 0;
}

PYTHON void *PyCapsule_GetPointer(void *capsule, const char *)
{
    return capsule;
}

/* A function of Python, which ctypes calls. */
static int python_calls;

static void python_call()
{
    assert_int_equal(python_error, 0);
    python_calls++;
}

static uint64_t python_stack()
{
    python_call();
    return 1;
}

static vmm_torch_stats torch_stats_of(int device)
{
    vmm_torch_stats torch_stats = {};
    torch_stats.struct_size = sizeof torch_stats;
    assert_ok(plugin.torch_stats_get(device, &torch_stats));
    return torch_stats;
}

static vmm_stats stats_of(int device)
{
    vmm_stats stats = VMM_STATS_INIT;
    assert_ok(plugin.stats_get(plugin.cache(device), &stats));
    return stats;
}

static std::string alloc_failure(size_t bytes, int device)
{
    try {
        (void)plugin.alloc(bytes, device, stream_of(0));
    } catch (const std::bad_alloc &error) {
        return error.what();
    } catch (const std::runtime_error &error) {
        return error.what();
    }
    fail_msg("an allocation of %zu bytes on device %d did not fail", bytes, device);
    return "";
}

/* ---- Before the first cache ----------------------------------------------------------------- */

/* Its settings are those of the tests below. */
TEST(settings_are_checked)
{
    vmm_config config = VMM_CONFIG_INIT;
    assert_status(plugin.configure(nullptr), VMM_ERR_INVALID_ARGUMENT);
    config.struct_size = 4;
    assert_status(plugin.configure(&config), VMM_ERR_INVALID_ARGUMENT);
    config.struct_size = 5000;
    assert_status(plugin.configure(&config), VMM_ERR_INVALID_ARGUMENT);
    config.struct_size = sizeof config;
    config.footprint_permille = 2000;
    assert_status(plugin.configure(&config), VMM_ERR_INVALID_ARGUMENT);
    assert_true(has(plugin.last_error(), "footprint_permille"));
    config.footprint_permille = 0;
    config.device_bytes = device_bytes;
    config.log = log_store;
    config.pressure = pressure_forward;
    config.driver = driver;
    assert_ok(plugin.configure(&config));
    /* A later version's struct: accepted while its new field is 0, else unsupported. */
    std::vector<unsigned char> later(sizeof config + 16);
    std::memcpy(later.data(), &config, sizeof config);
    reinterpret_cast<vmm_config *>(later.data())->struct_size = later.size();
    assert_ok(plugin.configure(reinterpret_cast<vmm_config *>(later.data())));
    later.back() = 1;
    assert_status(plugin.configure(reinterpret_cast<vmm_config *>(later.data())),
                  VMM_ERR_UNSUPPORTED);
}

TEST(hooks_work_before_first_use)
{
    int local = 0;
    size_t bytes = 7;
    assert_null(plugin.cache(0));
    assert_int_equal(torch_stats_of(0).small.allocations.allocated, 0);
    assert_ok(plugin.torch_stats_reset(0, 1));
    plugin.reset();
    plugin.free(nullptr, 1, 0, stream_of(0));
    plugin.free(&local, 4, 0, stream_of(0));
    assert_true(has(logged, "vmm_torch_free: VMM_ERR_UNKNOWN_POINTER"));
    assert_true(has(logged, "nothing was allocated on device 0"));
    plugin.record_stream(&local, stream_of(1));
    assert_true(has(logged, "vmm_torch_record_stream: VMM_ERR_UNKNOWN_POINTER"));
    assert_ptr_equal(plugin.base(&local, &bytes), &local);
    assert_int_equal(bytes, 0);
    plugin.pool_end(0, mempool_id(1, 1));
    assert_true(has(logged, "vmm_torch_pool_end: VMM_ERR_INVALID_ARGUMENT"));
}

/* ---- Blocks --------------------------------------------------------------------------------- */

TEST(alloc_and_free_update_statistics)
{
    void *small = plugin.alloc(1000, 0, stream_of(0));
    void *large = plugin.alloc(3 * MIB, 0, stream_of(0x40));
    assert_non_null(small);
    assert_non_null(large);
    if (driver == VMM_DRIVER_HOST)
        std::memset(large, 7, 3 * MIB);
    vmm_torch_stats torch_stats = torch_stats_of(0);
    assert_int_equal(torch_stats.small.requested_bytes.current, 1000);
    assert_int_equal(torch_stats.small.allocated_bytes.current, 1024);
    assert_int_equal(torch_stats.large.requested_bytes.current, 3 * MIB);
    assert_int_equal(torch_stats.small.active.current, 1);
    assert_true(torch_stats.large.reserved_bytes.current >= 3 * MIB);
    assert_true(torch_stats.small.reserved_bytes.current >= 2 * MIB);
    plugin.free(small, 1000, 0, stream_of(0));
    plugin.free(large, 0, 0, stream_of(0)); /* 0: the hook looks the size up */
    torch_stats = torch_stats_of(0);
    assert_int_equal(torch_stats.small.allocated_bytes.current, 0);
    assert_int_equal(torch_stats.large.active_bytes.current, 0);
    assert_int_equal(torch_stats.large.requested_bytes.freed, 3 * MIB);
    assert_int_equal(torch_stats.large.requested_bytes.peak, 3 * MIB);
    assert_ok(plugin.torch_stats_reset(0, 1));
    torch_stats = torch_stats_of(0);
    assert_int_equal(torch_stats.large.requested_bytes.peak, 0);
    assert_int_equal(torch_stats.large.requested_bytes.allocated, 0);
    assert_int_equal(torch_stats.large.reserved_bytes.allocated, 0);
    assert_int_equal(torch_stats.large.reserved_bytes.peak,
                     torch_stats.large.reserved_bytes.current);
}

/* free_unsized() ignores the caller's size, which may be the size of another block. */
TEST(free_unsized_looks_the_size_up)
{
    void *large = plugin.alloc(3 * MIB, 0, stream_of(0));
    void *small = plugin.alloc(1000, 0, stream_of(0));
    plugin.free_unsized(large, 512, 0, stream_of(0));
    plugin.free_unsized(small, 3 * MIB, 0, stream_of(0));
    plugin.free_unsized(nullptr, 512, 0, stream_of(0));
    vmm_torch_stats torch_stats = torch_stats_of(0);
    for (const vmm_torch_kind_stats *kind : { &torch_stats.small, &torch_stats.large }) {
        assert_int_equal(kind->requested_bytes.current, 0);
        assert_int_equal(kind->allocated_bytes.current, 0);
        assert_int_equal(kind->active_bytes.current, 0);
        assert_int_equal(kind->allocations.current, 0);
        assert_int_equal(kind->active.current, 0);
    }
}

TEST(zero_bytes_give_null)
{
    uint64_t before = torch_stats_of(0).small.allocations.allocated;
    assert_null(plugin.alloc(0, 0, stream_of(0)));
    assert_null(plugin.try_alloc(0, 0, nullptr));
    assert_null(plugin.alloc(0, 999, stream_of(0)));
    assert_int_equal(torch_stats_of(0).small.allocations.allocated, before);
}

TEST(foreign_pointers_change_nothing)
{
    char local[64];
    auto *block = static_cast<char *>(plugin.alloc(5000, 0, stream_of(0)));
    vmm_torch_stats before = torch_stats_of(0);
    for (void *wrong : { static_cast<void *>(local), static_cast<void *>(block + 512) }) {
        logged.clear();
        plugin.free(wrong, 5000, 0, stream_of(0));
        assert_true(has(logged, "vmm_torch_free: VMM_ERR_UNKNOWN_POINTER"));
        plugin.free(wrong, 0, 0, stream_of(0));
        plugin.record_stream(wrong, stream_of(1));
    }
    vmm_torch_stats after = torch_stats_of(0);
    assert_memory_equal(&before, &after, sizeof before);
    plugin.free(block, 5000, 0, stream_of(0));
    logged.clear();
    plugin.free(block, 5000, 0, stream_of(0));
    assert_true(has(logged, "VMM_ERR_UNKNOWN_POINTER"));
    plugin.free(block, 5000, 1000000, stream_of(0));
    assert_int_equal(torch_stats_of(0).small.allocations.current, 0);
}

TEST(base_finds_a_block_by_any_address)
{
    auto *block = static_cast<char *>(plugin.alloc(3 * MIB, 0, stream_of(0)));
    size_t bytes = 0;
    assert_ptr_equal(plugin.base(block + MIB, &bytes), block);
    assert_int_equal(bytes, 3 * MIB);
    assert_ptr_equal(plugin.base(block, nullptr), block);
    plugin.free(block, 3 * MIB, 0, stream_of(0));
    assert_ptr_equal(plugin.base(block, &bytes), block);
    assert_int_equal(bytes, 0);
}

TEST(recorded_blocks_stay_active)
{
    void *block = plugin.alloc(2 * MIB, 0, stream_of(0x40));
    logged.clear();
    plugin.record_stream(block, stream_of(0x50));
    assert_true(logged.empty());
    plugin.free(block, 2 * MIB, 0, stream_of(0x40));
    vmm_torch_stats torch_stats = torch_stats_of(0);
    assert_int_equal(torch_stats.large.allocated_bytes.current, 0);
    assert_int_equal(torch_stats.large.active_bytes.current, stats_of(0).active_bytes.current);
    plugin.reset(); /* the other stream has no work */
    assert_int_equal(torch_stats_of(0).large.active_bytes.current, 0);
    assert_int_equal(torch_stats_of(0).large.active.current, 0);
}

/* ---- Failures ------------------------------------------------------------------------------- */

TEST(out_of_memory_is_reported)
{
    std::string text = alloc_failure(2 * device_bytes, 0);
    assert_int_equal(text.find("CUDA out of memory. Tried to allocate 512.00 MiB. GPU 0 has a "
                               "total capacity of 256.00 MiB of "
                               "which "),
                     0);
    assert_true(has(text, " is free. Of the allocated memory "));
    assert_true(has(text, " is allocated by PyTorch, and "));
    assert_true(has(text, " is reserved by PyTorch but unallocated. vmmcache: needed 512.0 MiB"));
    assert_null(plugin.try_alloc(2 * device_bytes, 0, nullptr));
    assert_true(has(text, plugin.last_error()));
    void *block = plugin.alloc(MIB, 0, stream_of(0));
    plugin.free(block, MIB, 0, stream_of(0));
}

TEST(missing_devices_are_reported)
{
    assert_true(has(alloc_failure(MIB, -1), "no device -1"));
    assert_true(has(alloc_failure(MIB, 64), "vmmcache: cannot allocate 1.0 MiB. GPU 64: "));
    plugin.init(2);
    assert_true(has(alloc_failure(MIB, 2), "no device 2: devices are 0 to 1"));
    plugin.init(0);
    assert_null(plugin.cache(64));
    assert_null(plugin.cache(-1));
    logged.clear();
    plugin.memory_fraction(0.5, 64);
    assert_true(has(logged, "no device 64"));
}

TEST(fraction_limits_memory)
{
    plugin.reset();
    plugin.memory_fraction(0.25, 0);
    assert_int_equal(stats_of(0).limit_bytes, device_bytes / 4);
    std::string text = alloc_failure(device_bytes / 2, 0);
    assert_true(has(text, "out of memory"));
    assert_true(has(text, " is free. 64.00 MiB allowed; Of the allocated memory "));
    plugin.memory_fraction(0.0, 0);
    assert_true(has(alloc_failure(4 * MIB, 0), "out of memory"));
    logged.clear();
    plugin.memory_fraction(1.5, 0);
    assert_true(has(logged, "1.5 is not from 0 to 1"));
    plugin.memory_fraction(1.0, 0);
    assert_int_equal(stats_of(0).limit_bytes, 0);
    void *block = plugin.alloc(device_bytes / 2, 0, stream_of(0));
    plugin.free(block, device_bytes / 2, 0, stream_of(0));
}

TEST(reset_releases_memory_of_all_devices)
{
    for (int device = 0; device < 2; device++) {
        void *block = plugin.alloc(8 * MIB, device, stream_of(0));
        plugin.free(block, 8 * MIB, device, stream_of(0));
        assert_true(stats_of(device).reserved_bytes.current > 0);
    }
    plugin.reset();
    for (int device = 0; device < 2; device++) {
        assert_int_equal(stats_of(device).reserved_bytes.current, 0);
        assert_int_equal(torch_stats_of(device).large.reserved_bytes.current, 0);
    }
}

TEST(settings_are_fixed_after_first_use)
{
    vmm_config config = VMM_CONFIG_INIT;
    assert_status(plugin.configure(&config), VMM_ERR_INVALID_ARGUMENT);
    assert_true(has(plugin.last_error(), "opened before"));
}

/* The pressure function may use the hooks, on any thread, also while calls are recorded one at a time. */
TEST(an_exception_of_python_stays_on_its_way)
{
    struct {
        unsigned char tensor[48];
        void (*context)(void *);
        void (*deleter)(void *);
    } managed = { {}, [](void *) { python_call(); }, nullptr };
    python_calls = 0;
    for (bool is_python : { true, false }) {
        is_python_thread = is_python;
        assert_ok(plugin.history_start(10, python_stack, 1));
        void *block = plugin.alloc(MIB, 0, nullptr);
        python_error = is_python ? 7 : 0;
        plugin.free(block, MIB, 0, nullptr);
        plugin.dlpack_delete(&managed);
        plugin.dlpack_end(&managed);
        is_consumed = true;
        plugin.dlpack_end(&managed);
        is_consumed = false;
        assert_int_equal(python_error, is_python ? 7 : 0);
        assert_ok(plugin.history_stop());
        python_error = 0;
    }
    is_python_thread = false;
    assert_int_equal(python_calls, 2 * 4);
    assert_int_equal(python_locks, 0);
}

TEST(pressure_function_may_free)
{
    void *block = plugin.alloc(device_bytes / 2, 0, stream_of(0));
    for (bool records : { false, true }) {
        int calls = 0;
        if (records)
            assert_ok(plugin.history_start(100, nullptr, 0));
        on_pressure = [&](size_t) {
            if (calls++ > 0)
                return 0;
            std::thread([&] { plugin.free(block, device_bytes / 2, 0, stream_of(0)); }).join();
            void *other = plugin.try_alloc(MIB, 0, nullptr);
            plugin.free(other, MIB, 0, stream_of(0));
            return 1;
        };
        block = plugin.alloc(device_bytes * 3 / 4, 0, stream_of(0));
        assert_int_equal(calls, 1);
        plugin.free(block, device_bytes * 3 / 4, 0, stream_of(0));
        block = plugin.alloc(device_bytes / 2, 0, stream_of(0));
    }
    on_pressure = nullptr;
    plugin.free(block, device_bytes / 2, 0, stream_of(0));
    assert_ok(plugin.history_stop());
}

/* A child of fork() has no caches: a hook called there must not hang, crash or log. */
TEST(forked_child_has_no_caches)
{
    void *block = plugin.alloc(MIB, 0, stream_of(0));
    pid_t child = fork();
    if (child == 0) {
        bool fails = false;
        try {
            (void)plugin.alloc(MIB, 0, stream_of(0));
        } catch (const std::runtime_error &error) {
            fails = std::strstr(error.what(), "fork") != nullptr;
        }
        plugin.free(block, MIB, 0, stream_of(0));
        plugin.record_stream(block, stream_of(1));
        plugin.memory_fraction(0.5, 0);
        plugin.reset();
        bool has_none = plugin.cache(0) == nullptr && plugin.base(block, nullptr) == block;
        has_none = has_none && plugin.history_start(1, nullptr, 0) == VMM_ERR_FORKED;
        _exit(fails && has_none ? 0 : 1);
    }
    int status = -1;
    assert_true(waitpid(child, &status, 0) == child);
    assert_int_equal(status, 0);
    plugin.free(block, MIB, 0, stream_of(0));
}

TEST(hooks_are_thread_safe)
{
    std::vector<std::thread> workers;
    for (unsigned number = 0; number < 4; number++) {
        workers.emplace_back([number] {
            std::vector<void *> blocks(16);
            for (unsigned i = 0; i < 4000; i++) {
                size_t bytes = (i % 16 == 0 ? 2 * MIB : 512) + (number + 1) * (i % 16 + 1);
                void *&block = blocks[i % blocks.size()];
                if (block != nullptr)
                    plugin.free(block, bytes, 0, stream_of(0x10 + number));
                block = plugin.alloc(bytes, 0, stream_of(0x10 + number));
            }
            for (unsigned i = 0; i < 16; i++)
                plugin.free(blocks[i], 0, 0, stream_of(0x10 + number));
        });
    }
    for (std::thread &thread : workers)
        thread.join();
    vmm_torch_stats torch_stats = torch_stats_of(0);
    vmm_stats stats = stats_of(0);
    assert_int_equal(torch_stats.small.allocations.current + torch_stats.large.allocations.current,
                     0);
    assert_int_equal(stats.allocations.current, 0);
    assert_int_equal(torch_stats.large.requested_bytes.current, 0);
    assert_int_equal(torch_stats.small.active_bytes.current, 0);
    assert_true(torch_stats.small.allocations.allocated >= 4 * 3750);
}

int main(int argc, char **argv)
{
    driver = argc > 1 && std::strcmp(argv[1], "host") == 0 ? VMM_DRIVER_HOST : VMM_DRIVER_SIM;
    plugin = hooks_open(VMM_TORCH_LIBRARY);
    return tests_run(nullptr, nullptr);
}
