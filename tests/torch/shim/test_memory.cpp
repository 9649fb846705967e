/* The shim's functions for memory, devices, limits and statistics. */
#include "torch/shim/shim_support.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <thread>

TEST(it_is_pytorchs_allocator)
{
    assert_true(shim().initialized());
    assert_string_equal(shim().name().c_str(), "vmmcache");
    assert_ptr_equal(c10::GetAllocator(c10::kCUDA), &shim());
    assert_int_equal(fake().priority, 255);
    assert_true(shim().isEnabled());
}

/* torch.cuda.caching_allocator_enable(False) */
TEST(tensors_can_bypass_the_library)
{
    auto before = std::make_unique<c10::DataPtr>(shim().allocate(MIB));
    shim().enable(false);
    assert_false(shim().isEnabled());
    auto direct = std::make_unique<c10::DataPtr>(shim().allocate(MIB));
    assert_true(direct->get_deleter() == shim().raw_deleter());
    assert_int_equal(fake().blocks, 1);
    assert_int_equal(live_blocks(), 1);
    shim().recordStream(*direct, c10::cuda::CUDAStream(c10::Stream(stream_of(0x40))));
    before.reset();
    assert_int_equal(live_blocks(), 0);
    shim().enable(true);
    direct.reset();
    assert_int_equal(fake().blocks, 0);
    assert_true(shim().isEnabled());
    assert_true(shim().allocate(MIB).get_deleter() == shim().raw_deleter());
}

/* torch.cuda.caching_allocator_alloc() and caching_allocator_delete(): who made a block frees it. */
TEST(raw_blocks_can_bypass_the_library)
{
    void *cached = shim().raw_alloc(MIB);
    shim().enable(false);
    void *direct[] = { shim().raw_alloc(MIB), shim().raw_alloc_with_stream(MIB, stream_of(0x40)) };
    assert_int_equal(fake().blocks, 2);
    assert_int_equal(live_blocks(), 1);
    shim().raw_delete(cached);
    assert_int_equal(live_blocks(), 0);
    shim().raw_delete(direct[0]);
    shim().enable(true);
    shim().raw_delete(direct[1]);
    assert_int_equal(fake().blocks, 0);
    (void)thrown<c10::Error>([&] { shim().raw_delete(direct[1]); });
    assert_int_equal(fake().blocks, 0);
    shim().enable(false);
    assert_null(shim().raw_alloc(0));
    shim().enable(true);
}

TEST(a_data_pointer_owns_its_block)
{
    fake().stream = stream_of(0x40);
    {
        c10::DataPtr block = shim().allocate(3 * MIB);
        assert_non_null(block.get());
        assert_ptr_equal(block.get(), block.get_context());
        assert_true(block.get_deleter() == shim().raw_deleter());
        assert_int_equal(block.device().index(), 0);
        assert_int_equal(live_blocks(), 1);
        vmm_item item = VMM_ITEM_INIT;
        int device = -1;
        assert_ok(provider().find(block.get(), &item, &device));
        assert_ptr_equal(item.stream, stream_of(0x40));
        assert_int_equal(item.requested_bytes, 3 * MIB);
    }
    assert_int_equal(live_blocks(), 0);
    fake().stream = nullptr;
}

TEST(no_bytes_are_no_block)
{
    c10::DataPtr nothing = shim().allocate(0);
    assert_null(nothing.get());
    assert_null(shim().raw_alloc(0));
    shim().raw_delete(nullptr);
    shim().recordStream(nothing, c10::cuda::CUDAStream(c10::Stream(stream_of(0x50))));
    assert_int_equal(live_blocks(), 0);
}

TEST(devices_have_separate_memory)
{
    fake().device = 1;
    c10::DataPtr block = shim().allocate(MIB);
    void *raw = shim().raw_alloc(MIB);
    fake().device = 0;
    assert_int_equal(block.device().index(), 1);
    assert_int_equal(live_blocks(1), 2);
    assert_int_equal(live_blocks(0), 0);
    shim().raw_delete(raw); /* whatever the current device is */
    assert_int_equal(live_blocks(1), 1);
}

TEST(a_wrong_pointer_is_refused)
{
    void *block = shim().raw_alloc_with_stream(2 * MIB, stream_of(0x40));
    char *inside = static_cast<char *>(block) + 512;
    assert_true(has(thrown<c10::Error>([&] { shim().raw_delete(inside); }), "free"));
    shim().raw_delete(block);
    assert_true(has(thrown<c10::Error>([&] { shim().raw_delete(block); }), "free"));
    logged().clear();
    shim().raw_deleter()(block); /* a deleter must not throw */
    assert_true(has(logged(), "VMM_ERR_UNKNOWN_POINTER"));
}

TEST(a_block_of_the_plug_in_is_freed_too)
{
    void *block = plugin().try_alloc(3 * MIB, 0, nullptr); /* the provider has no note of it */
    shim().raw_delete(block);
    assert_int_equal(live_blocks(), 0);
    block = shim().raw_alloc(3 * MIB);
    plugin().free(block, 3 * MIB, 0, nullptr); /* its note stays */
    void *other = shim().raw_alloc(2 * MIB + 1);
    shim().raw_delete(other);
    assert_int_equal(shim().getDeviceStats(0).requested_bytes[0].current, 0);
}

TEST(a_fraction_is_read_as_it_was_set)
{
    for (double fraction : { 0.0, 0.3, 0.5, 1.0 }) {
        shim().setMemoryFraction(fraction, 0);
        assert_true(shim().getMemoryFraction(0) == fraction);
    }
    provider().fraction_begin(0.0);
    assert_true(shim().getMemoryFraction(9) == 0.0); /* before its first use */
    provider().fraction_begin(1.0);
    assert_true(shim().getMemoryFraction(9) == 1.0);
}

TEST(each_empty_cache_counts_as_one_wait)
{
    int64_t before = shim().getDeviceStats(0).num_sync_all_streams;
    for (int i = 1; i <= 3; i++) {
        shim().raw_delete(shim().raw_alloc(5 * MIB));
        shim().emptyCache();
        assert_int_equal(shim().getDeviceStats(0).num_sync_all_streams, before + i);
    }
}

TEST(out_of_memory_is_pytorchs_error)
{
    static std::vector<size_t> observed; /* observers stay for good */
    shim().attachOutOfMemoryObserver(
        [](int64_t device, size_t bytes, size_t total, size_t free_bytes) {
            observed = { static_cast<size_t>(device), bytes, total, free_bytes };
        });
    fake().profiler.is_enabled = true;
    std::string text =
        thrown<c10::OutOfMemoryError>([] { (void)shim().raw_alloc(2 * device_bytes); });
    fake().profiler.is_enabled = false;
    assert_true(has(text, "CUDA out of memory. Tried to allocate 512.00 MiB. GPU 0 has a total "
                          "capacity of 256.00 MiB of"));
    assert_true(has(text, " is reserved by PyTorch but unallocated. vmmcache: "));
    assert_true(has(text, provider().last_error()));
    assert_int_equal(fake().profiler.oom_bytes, 2 * device_bytes);
    assert_int_equal(observed.size(), 4);
    assert_int_equal(observed[1], 2 * device_bytes);
    assert_int_equal(observed[2], device_bytes);
    shim().attachOutOfMemoryObserver(
        [](int64_t, size_t, size_t, size_t) { throw std::runtime_error("observer"); });
    static int called;
    shim().attachOutOfMemoryObserver([](int64_t, size_t, size_t, size_t) { called++; });
    text = thrown<c10::OutOfMemoryError>([] { (void)shim().raw_alloc(20 * device_bytes); });
    assert_true(has(text, "CUDA out of memory. Tried to allocate 5.00 GiB. GPU 0"));
    text = thrown<c10::OutOfMemoryError>([] { (void)shim().raw_alloc(size_t{ 7 } << 60); });
    assert_true(has(text, "Tried to allocate more than 1EB memory. vmmcache: "));
    assert_int_equal(called, 2); /* whatever the one before it throws */
}

struct hoard final : c10::FreeMemoryCallback {
    static void *block;
    bool Execute() override
    {
        bool has_block = block != nullptr;
        shim().raw_delete(block);
        block = nullptr;
        return has_block;
    }
};
void *hoard::block;

TEST(pytorch_frees_memory_before_a_request_fails)
{
    auto &entries = c10::FreeCudaMemoryCallbacksRegistry()->entries;
    entries["hoard"] = [] { return std::make_unique<hoard>(); };
    entries["other"] = []() -> std::unique_ptr<c10::FreeMemoryCallback> {
        throw std::runtime_error("callback");
    };
    hoard::block = shim().raw_alloc(200 * MIB);
    bool is_asked = false;
    on_pressure = [&is_asked](size_t) {
        is_asked = true;
        return 0;
    };
    void *block = shim().raw_alloc(200 * MIB);
    assert_null(hoard::block);
    assert_false(is_asked); /* the program's function is the last resort */
    on_pressure = nullptr;
    entries.clear();
    shim().raw_delete(block);
}

TEST(other_streams_are_recorded)
{
    c10::DataPtr block = shim().allocate(MIB);
    c10::Stream other(stream_of(0x60));
    shim().recordStream(block, c10::cuda::CUDAStream(other));
    static_cast<c10::DeviceAllocator &>(shim()).recordStream(block, other);
    int foreign;
    c10::DataPtr elsewhere(
        &foreign, &foreign, [](void *) {}, c10::Device(c10::kCUDA, 0));
    shim().recordStream(elsewhere, c10::cuda::CUDAStream(other)); /* not ours: nothing happens */
}

TEST(the_base_of_an_address_is_found)
{
    char *block = static_cast<char *>(shim().raw_alloc(3 * MIB));
    size_t bytes = 0;
    assert_ptr_equal(shim().getBaseAllocation(block + MIB, &bytes), block);
    assert_true(bytes >= 3 * MIB);
    shim().raw_delete(block);
    (void)thrown<c10::Error>([&] { (void)shim().getBaseAllocation(&bytes, nullptr); });
}

TEST(copies_take_the_way_that_works)
{
    int from = 1, to = 0;
    shim().copy_data(&to, &from, 4);
    assert_string_equal(fake().copy.function, "cudaMemcpy");
    assert_int_equal(shim().memcpyAsync(&to, 0, &from, 0, 4, nullptr, false), 0);
    assert_string_equal(fake().copy.function, "cudaMemcpyAsync");
}

static const char *copy_between(int from, int to, bool has_access = true)
{
    int number = 1;
    assert_int_equal(shim().memcpyAsync(&number, to, &number, from, 4, nullptr, has_access), 0);
    return fake().copy.function;
}

/* What CUDA may access, the library's memory is not part of. A copy runs on the device that it reads. */
TEST(devices_get_access_when_pytorch_asks)
{
    void *block = shim().raw_alloc(MIB);
    assert_string_equal(copy_between(1, 0), "cudaMemcpyPeerAsync");
    shim().enablePeerAccess(1, 0);
    assert_int_equal(fake().peer, 0);
    assert_int_equal(provider().peers_get(0), 1 << 1);
    assert_int_equal(provider().peers_get(1), 0);
    assert_string_equal(copy_between(1, 0), "cudaMemcpyAsync");
    assert_string_equal(copy_between(1, 0, false), "cudaMemcpyPeerAsync");
    assert_string_equal(copy_between(0, 1), "cudaMemcpyPeerAsync");
    fake().peer_error = cudaErrorPeerAccessAlreadyEnabled;
    shim().enablePeerAccess(0, 1);
    fake().peer_error = cudaSuccess;
    assert_string_equal(copy_between(0, 1), "cudaMemcpyAsync");
    assert_string_equal(copy_between(5, 0), "cudaMemcpyPeerAsync");
    assert_string_equal(copy_between(0, 5), "cudaMemcpyPeerAsync");
    constexpr c10::DeviceIndex wrong[] = { 5, -1, 64 };
    for (c10::DeviceIndex device : wrong) {
        (void)thrown<c10::Error>([device] { shim().enablePeerAccess(device, 0); });
        (void)thrown<c10::Error>([device] { shim().enablePeerAccess(0, device); });
    }
    assert_int_equal(fake().device, 0);
    shim().raw_delete(block);
}

/* In this process: tests/torch/test_torch_share.c has two. */
TEST(memory_is_shared)
{
    char *block = static_cast<char *>(shim().raw_alloc(MIB));
    caching::ShareableHandle whole = shim().shareIpcHandle(block);
    caching::ShareableHandle part = shim().shareIpcHandle(block + 1024);
    assert_int_equal(whole.offset, 0);
    assert_int_equal(part.offset, 1024);
    assert_true(whole.handle == part.handle);
    std::shared_ptr<void> opened = shim().getIpcDevPtr(whole.handle);
    assert_ptr_not_equal(opened.get(), block);
    assert_ptr_equal(shim().getIpcDevPtr(part.handle).get(), opened.get());
    if (is_host_driver()) {
        block[MIB - 1] = 7;
        assert_int_equal(static_cast<char *>(opened.get())[MIB - 1], 7);
    }
    void *address = opened.get();
    c10::DataPtr other(
        address, address, [](void *) {}, c10::Device(c10::DeviceType::CUDA, 0));
    shim().recordStream(other,
                        c10::cuda::getCurrentCUDAStream(0)); /* of another allocator: nothing */
    assert_true(has(thrown<c10::NotImplementedError>([&] { (void)shim().shareIpcHandle(address); }),
                    "belongs to another process"));
    assert_true(
        has(thrown<c10::Error>([&] { shim().raw_delete(address); }), "memory of another process"));
    opened.reset();
    shim().raw_delete(block);
    assert_true(has(thrown<c10::Error>([&] { (void)shim().getIpcDevPtr(whole.handle); }),
                    "has freed this memory"));
    assert_true(has(thrown<c10::Error>([] { (void)shim().getIpcDevPtr("handle"); }),
                    "not one of vmmcache"));
    assert_int_equal(live_blocks(), 0);
}

TEST(threads_open_one_handle_at_once)
{
    void *block = shim().raw_alloc(3 * MIB);
    std::string handle = shim().shareIpcHandle(block).handle;
    std::vector<std::shared_ptr<void>> opened(8);
    std::vector<std::thread> threads;
    for (std::shared_ptr<void> &each : opened)
        threads.emplace_back([&each, &handle] { each = shim().getIpcDevPtr(handle); });
    for (std::thread &thread : threads)
        thread.join();
    for (const std::shared_ptr<void> &each : opened)
        assert_ptr_equal(each.get(), opened[0].get());
    opened.clear();
    shim().raw_delete(block);
}

TEST(limits_are_fractions)
{
    shim().raw_delete(shim().raw_alloc(1));
    shim().emptyCache(); /* a limit does not take back what is there */
    assert_true(shim().getMemoryFraction(0) == 1.0);
    shim().setMemoryFraction(0.25, 0);
    assert_true(shim().getMemoryFraction(0) == 0.25);
    (void)thrown<c10::OutOfMemoryError>([] { (void)shim().raw_alloc(100 * MIB); });
    shim().setMemoryFraction(1.0, 0);
    assert_true(has(thrown<c10::Error>([] { shim().setMemoryFraction(2.0, 0); }), "fraction of 2"));
    size_t largest = 0;
    shim().cacheInfo(0, &largest);
    assert_in_range(largest, MIB, device_bytes);
#if VMM_TEST_TORCH >= 210
    std::pair<size_t, size_t> memory = shim().getMemoryInfo(0);
    assert_int_equal(memory.second, device_bytes);
    assert_in_range(memory.first, 1, device_bytes);
#endif
}

#if VMM_TEST_TORCH >= 210
/* PYTORCH_ALLOC_CONF=per_process_memory_fraction:0.25, for a device that nothing has used yet. */
TEST(pytorchs_settings_may_have_a_fraction)
{
    fake().memory_fraction = 0.25;
    shim().init(shim_devices + 1);
    assert_int_equal(shim().getMemoryInfo(shim_devices).second, device_bytes);
    assert_true(shim().getMemoryFraction(shim_devices) == 0.25);
    shim().setMemoryFraction(1.0, shim_devices);
    assert_true(shim().getMemoryFraction(shim_devices) == 1.0);
    fake().memory_fraction = 1.0;
    shim().init(shim_devices);
    assert_true(shim().getMemoryFraction(0) == 1.0);
}
#endif

TEST(an_empty_cache_has_no_memory)
{
    shim().raw_delete(shim().raw_alloc(32 * MIB));
    assert_true(shim().getDeviceStats(0).reserved_bytes[0].current > 0);
    shim().emptyCache();
    assert_int_equal(shim().getDeviceStats(0).reserved_bytes[0].current, 0);
}

TEST(statistics_have_three_parts)
{
    shim().emptyCache();
    shim().resetAccumulatedStats(0);
    shim().resetPeakStats(0);
    void *small = shim().raw_alloc(1000);
    void *large = shim().raw_alloc(5 * MIB);
    auto stats = shim().getDeviceStats(0);
    assert_int_equal(stats.allocation[0].current, 2);
    assert_int_equal(stats.allocation[1].current, 1);
    assert_int_equal(stats.allocation[2].current, 1);
    assert_int_equal(stats.requested_bytes[0].current, 1000 + 5 * MIB);
    assert_int_equal(stats.allocated_bytes[1].current, 1024);
    assert_int_equal(stats.reserved_bytes[0].current,
                     stats.reserved_bytes[1].current + stats.reserved_bytes[2].current);
    assert_int_equal(stats.segment[0].current, stats.segment[1].current + stats.segment[2].current);
    assert_int_equal(stats.max_split_size, -1);
    blocks_delete({ small, large });
    stats = shim().getDeviceStats(0);
    assert_int_equal(stats.allocation[0].current, 0);
    assert_int_equal(stats.allocation[0].peak, 2);
    assert_int_equal(stats.allocation[0].allocated, 2);
    assert_int_equal(stats.allocation[0].freed, 2);
    shim().resetPeakStats(0);
    shim().resetAccumulatedStats(0);
    stats = shim().getDeviceStats(0);
    assert_int_equal(stats.allocation[0].peak, 0);
    assert_int_equal(stats.allocated_bytes[2].freed, 0);
    assert_int_equal(stats.num_ooms, 0);
}

TEST(a_device_without_a_cache_has_zeros)
{
    auto stats = shim().getDeviceStats(5);
    assert_int_equal(stats.reserved_bytes[0].peak, 0);
    assert_true(shim().getMemoryFraction(5) == 1.0);
    shim().resetPeakStats(5);
}

TEST(the_profiler_hears_of_memory)
{
    fake().profiler = {};
    fake().profiler.is_enabled = true;
    void *block = shim().raw_alloc(MIB);
    assert_int_equal(fake().profiler.bytes, MIB);
    assert_int_equal(fake().profiler.allocated, MIB);
    shim().raw_delete(block);
    assert_int_equal(fake().profiler.bytes, 0);
    assert_int_equal(fake().profiler.allocated, 0);
    fake().profiler.is_enabled = false;
}

TEST(python_hears_of_memory)
{
    fake().has_interpreter = true;
    void *block = shim().raw_alloc(MIB);
    assert_int_equal(fake().trace.allocated, reinterpret_cast<uintptr_t>(block));
    shim().raw_delete(block);
    assert_int_equal(fake().trace.freed, reinterpret_cast<uintptr_t>(block));
    fake().has_interpreter = false;
}

TEST(threads_share_the_allocator)
{
    std::vector<std::thread> threads;
    for (unsigned number = 0; number < 4; number++)
        threads.emplace_back([number] {
            cudaStream_t stream = stream_of(0x100 + number);
            for (unsigned i = 1; i < 2000; i++)
                shim().raw_delete(shim().raw_alloc_with_stream(i * 64, stream));
        });
    for (std::thread &thread : threads)
        thread.join();
    assert_int_equal(live_blocks(), 0);
}

/* ---- roundup_power2_divisions ---- */

static size_t size_given(size_t bytes)
{
    auto before = shim().getDeviceStats(0);
    void *block = shim().raw_alloc(bytes);
    auto after = shim().getDeviceStats(0);
    assert_int_equal(after.requested_bytes[0].allocated - before.requested_bytes[0].allocated,
                     bytes);
    size_t requested = 0;
    for (const caching::SegmentInfo &segment : snapshot_of().segments)
        requested += segment.requested_size;
    assert_int_equal(requested, after.requested_bytes[0].current);
    shim().raw_delete(block);
    assert_int_equal(shim().getDeviceStats(0).requested_bytes[0].current,
                     before.requested_bytes[0].current);
    return static_cast<size_t>(after.allocated_bytes[0].allocated -
                               before.allocated_bytes[0].allocated);
}

TEST(sizes_are_rounded_as_settings_say)
{
    assert_int_equal(size_given(21 * MIB), 21 * MIB);
    fake().divisions = { { 0, 4 } };
    assert_int_equal(size_given(21 * MIB), 24 * MIB);
    assert_int_equal(size_given(24 * MIB), 24 * MIB);
    assert_int_equal(size_given(24 * MIB + 1), 28 * MIB);
    assert_int_equal(size_given(31 * MIB), 32 * MIB);
    assert_int_equal(size_given(32 * MIB), 32 * MIB);
    assert_int_equal(size_given(2049), 2560);
    assert_int_equal(size_given(1500), 1536); /* a quarter of 1024 is less than 512 bytes */
    fake().divisions = { { 0, 8 }, { 32 * MIB, 2 }, { 64 * MIB, 1 } };
    assert_int_equal(size_given(21 * MIB), 22 * MIB);
    assert_int_equal(size_given(33 * MIB), 48 * MIB);
    assert_int_equal(size_given(65 * MIB), 65 * MIB);
    fake().divisions = { { 0, 0 } };
    assert_int_equal(size_given(21 * MIB), 21 * MIB);
    fake().divisions.clear();
}

/* Not for a block that the library has refused, nor for one whose free it refuses. */
TEST(requested_bytes_are_those_of_the_program)
{
    fake().divisions = { { 0, 1 }, { MIB, 4 } };
    auto before = shim().getDeviceStats(0).requested_bytes;
    (void)thrown<c10::OutOfMemoryError>([] { (void)shim().raw_alloc(900 * MIB); });
    (void)thrown<c10::OutOfMemoryError>([] { (void)shim().raw_alloc(SIZE_MAX - MIB); });
    char *block = static_cast<char *>(shim().raw_alloc(9 * MIB));
    fake().divisions.clear();
    (void)thrown<c10::Error>([&] { shim().raw_delete(block + 512); });
    auto now = shim().getDeviceStats(0).requested_bytes;
    for (size_t kind : { size_t{ 0 }, size_t{ 2 } }) {
        assert_int_equal(now[kind].current - before[kind].current, 9 * MIB);
        assert_int_equal(now[kind].allocated - before[kind].allocated, 9 * MIB);
        assert_true(now[kind].peak >= now[kind].current);
    }
    shim().raw_delete(block);
    assert_int_equal(shim().getDeviceStats(0).requested_bytes[0].freed - before[0].freed, 9 * MIB);
}

/* Another thread may change what is known of rounded blocks when the process forks. */
TEST(a_child_of_fork_may_drop_a_rounded_block)
{
    fake().divisions = { { 0, 4 } };
    void *block = shim().raw_alloc(9 * MIB);
    std::atomic<bool> ends{ false };
    std::thread other([&ends] {
        while (!ends)
            shim().raw_delete(shim().raw_alloc_with_stream(3000, stream_of(0x40)));
    });
    for (int i = 0; i < 20; i++) {
        pid_t child = fork();
        if (child == 0) {
            alarm(10); /* ends a child that hangs */
            shim().raw_deleter()(block);
            _exit(0);
        }
        int status = -1;
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_int_equal(status, 0);
    }
    ends = true;
    other.join();
    fake().divisions.clear();
    shim().raw_delete(block);
}
