/* The cuda driver if CUDA cannot start, or refuses any call of the driver's self-test. */
#define _GNU_SOURCE
#include "life/cuda_support.h"

#include "driver/driver.h"

#include <unistd.h>

/* ---- Refusals ----------------------------------------------------------------------------------- */

struct refusal {
    const char *call;
    const char *text;
    bool leaves; /* the refused call was to release memory, which stays */
};

/* Creates a cache, which must fail with an error that names the call. Returns the time that it took. */
static uint64_t refusal_check(const struct refusal *refusal, int result)
{
    vmm_cache *out = NULL;
    fault_set(refusal->call, result, 1, false);
    uint64_t host_bytes = vmm__host_outstanding();
    uint64_t holds = fake->holds[0];
    uint64_t begin = thread_ns();
    vmm_status status = cache_try_create(VMM_DRIVER_CUDA, 0, &out);
    uint64_t took = thread_ns() - begin;
    CHILD_REQUIRES(status == VMM_ERR_UNSUPPORTED && out == NULL);
    if (strstr(vmm_last_error(), refusal->text) == NULL)
        (void)fprintf(stderr, "'%s' is missing in: %s\n", refusal->text, vmm_last_error());
    CHILD_REQUIRES(strstr(vmm_last_error(), refusal->text) != NULL);
    CHILD_REQUIRES(vmm__host_outstanding() == host_bytes && fake->holds[0] == holds);
    CHILD_REQUIRES(refusal->leaves || fake->outstanding(0) == 0);
    calls_succeed();
    return took;
}

/* The thread's own time to create a cache that works, and to destroy it. */
static uint64_t create_take_time(void)
{
    uint64_t begin = thread_ns();
    CHILD_REQUIRES(vmm_destroy(cache_create(0)) == VMM_OK);
    return thread_ns() - begin;
}

/* A refusal takes at most four times as long as a cache that works (measured: up to 2): it does not spin. Both are
 * measured side by side, because the pages of the fake cost most of the time, which differs between machines. Other
 * processes also slow the thread's own time while they are busy, so a slow refusal is tried again. */
static void refusal_check_time(const struct refusal *refusal, int result)
{
    enum { TRIES = 20, RATIO_MOST = 4, PAUSE_US = 20000 };
    bool is_quick = false;
    for (int i = 0; i < TRIES && !is_quick; i++) {
        if (i > 0)
            (void)usleep(PAUSE_US);
        uint64_t most_ns = RATIO_MOST * create_take_time();
        context_retain(0); /* keeps what a refused call leaves, until the reset below */
        is_quick = refusal_check(refusal, result) < most_ns;
        (void)device_call_by_name("cuDevicePrimaryCtxReset_v2", 0);
        (void)device_call_by_name("cuDevicePrimaryCtxRelease_v2", 0);
    }
    CHILD_REQUIRES(is_quick);
}

FAKE_TEST(refused_self_test_call_is_named)
{
    static const struct refusal refusals[] = {
        { .call = "cuMemGetAllocationGranularity", .text = "cuMemGetAllocationGranularity" },
        { .call = "cuMemAddressReserve", .text = "'reserve': cuMemAddressReserve" },
        { .call = "cuMemCreate", .text = "'create': cuMemCreate" },
        { .call = "cuMemMap", .text = "'map': cuMemMap" },
        { .call = "cuMemSetAccess", .text = "'set access': cuMemSetAccess" },
        { .call = "cuMemsetD8Async", .text = "'write and read'" },
        { .call = "cuMemcpyDtoHAsync_v2", .text = "'write and read'" },
        { .call = "cuStreamSynchronize", .text = "'write and read'" },
        { .call = "cuMemUnmap", .text = "'unmap': cuMemUnmap", .leaves = true },
        { .call = "cuMemRelease", .text = "'release': cuMemRelease", .leaves = true },
        { .call = "cuMemAddressFree", .text = "'address free': cuMemAddressFree", .leaves = true },
    };
    static const int results[] = { 801, 800, 999 };
    cache_check_works(0);
    for (unsigned i = 0; i < sizeof refusals / sizeof *refusals; i++) {
        for (unsigned j = 0; j < 3; j++)
            refusal_check_time(&refusals[i], results[j]);
    }
    cache_check_works(0);
}

/* Whether creating a cache makes fewer than `from` calls of this name, so that the fault never occurs. The cache, or
 * the failed attempt, must leave nothing. */
static bool create_misses_fault(const char *call, int result, uint64_t from, bool once)
{
    vmm_cache *cache = NULL;
    fault_set(call, result, from, once);
    vmm_status status = cache_try_create(VMM_DRIVER_CUDA, 0, &cache);
    bool was_made = fake->fail_count >= from;
    if (status == VMM_OK)
        (void)vmm_destroy(cache);
    calls_succeed();
    while (fake->holds[0] > 0) /* the release itself failed */
        (void)device_call_by_name("cuDevicePrimaryCtxRelease_v2", 0);
    if (fake->taken(0) != 0)
        (void)fprintf(stderr, "%s %d from %llu\n", call, result, (unsigned long long)from);
    CHILD_REQUIRES(fake->taken(0) == 0 && vmm__host_outstanding() == 0);
    return !was_made;
}

FAKE_TEST(failed_create_leaves_nothing)
{
    static const int results[] = { 1, 2, 709, 719, 999 };
    cache_check_works(0);
    for (unsigned i = 0; i < sizeof results / sizeof *results; i++) {
        for (uint64_t from = 1; !create_misses_fault("*", results[i], from, true); from++)
            continue;
    }
    bool has_ids = dlsym(library, "cuCtxGetId") != NULL;
    for (uint64_t from = 1; has_ids && !create_misses_fault("cuCtxGetId", 709, from, false); from++)
        continue;
}

/* Without them no importer could tell devices apart. */
FAKE_TEST(only_drivers_with_uuids_share)
{
    struct driver_options options = { .device = 0 };
    struct driver *driver = NULL;
    bool has_uuids = dlsym(library, "cuDeviceGetUuid_v2") != NULL;
    CHILD_REQUIRES(vmm__driver_cuda_open(&options, &driver) == VMM_OK);
    CHILD_REQUIRES(driver->has_sharing == has_uuids);
    CHILD_REQUIRES(has_uuids || strstr(driver->sharing_failure, "older than CUDA 11.4") != NULL);
    vmm__driver_close(driver);
    CHILD_REQUIRES(fake->taken(0) == 0);
}

FAKE_TEST(only_drivers_with_dma_bufs_export_them)
{
    struct driver_options options = { .device = 0 };
    struct driver *driver = NULL;
    uint64_t handle;
    uint64_t address;
    int fd = -7;
    bool has_dmabuf = dlsym(library, "cuMemGetHandleForAddressRange") != NULL;
    CHILD_REQUIRES(vmm__driver_cuda_open(&options, &driver) == VMM_OK);
    CHILD_REQUIRES(vmm__driver_create(driver, 2 * MIB, VMM_SHARE_NONE, &handle) == VMM_OK);
    CHILD_REQUIRES(vmm__driver_reserve(driver, 2 * MIB, 0, &address) == VMM_OK);
    CHILD_REQUIRES(vmm__driver_map(driver, address, 2 * MIB, handle) == VMM_OK);
    CHILD_REQUIRES(vmm__driver_access(driver, address, 2 * MIB) == VMM_OK);
    vmm_status status = vmm__driver_dmabuf_export(driver, address, 2 * MIB, &fd);
    CHILD_REQUIRES(status == (has_dmabuf ? VMM_OK : VMM_ERR_UNSUPPORTED));
    CHILD_REQUIRES(has_dmabuf || strstr(vmm_last_error(), "older than CUDA 11.7") != NULL);
    CHILD_REQUIRES(has_dmabuf ? close(fd) == 0 : fd == -7);
    CHILD_REQUIRES(vmm__driver_unmap(driver, address, 2 * MIB) == VMM_OK);
    CHILD_REQUIRES(vmm__driver_release(driver, handle, 2 * MIB) == VMM_OK);
    CHILD_REQUIRES(vmm__driver_address_free(driver, address, 2 * MIB) == VMM_OK);
    vmm__driver_close(driver);
    CHILD_REQUIRES(fake->taken(0) == 0);
}

struct start {
    const char *environment;
    const char *value;
    vmm_status status;
    const char *text;
};

static void start_fail(void *context)
{
    const struct start *start = context;
    vmm_cache *cache = NULL;
    (void)setenv(start->environment, start->value, 1);
    vmm_status status = cache_try_create(VMM_DRIVER_CUDA, 0, &cache);
    if (status != start->status || strstr(vmm_last_error(), start->text) == NULL)
        (void)fprintf(stderr, "%s: %s\n", start->value, vmm_status_name(status));
    CHILD_REQUIRES(status == start->status && cache == NULL);
    CHILD_REQUIRES(strstr(vmm_last_error(), start->text) != NULL);
    CHILD_REQUIRES(vmm__host_outstanding() == 0);
    status = cache_try_create(VMM_DRIVER_DEFAULT, 0, &cache);
    bool is_none = start->status == VMM_ERR_NO_DEVICE || start->status == VMM_ERR_UNSUPPORTED;
    CHILD_REQUIRES(status == (is_none ? VMM_ERR_NO_DEVICE : start->status) && cache == NULL);
    CHILD_REQUIRES(strstr(vmm_last_error(), start->text) != NULL);
    CHILD_REQUIRES(is_none == (strstr(vmm_last_error(), "VMM_DRIVER=host") != NULL));
    fake_open();
    CHILD_REQUIRES(fake->holds[0] == 0);
    fake_check_misuses();
}

TEST(failed_start_is_reported)
{
    static const struct start starts[] = {
        { "FAKE_CUDA_DEVICES", "0", VMM_ERR_NO_DEVICE, "cuInit" },
        { "FAKE_CUDA_NO_VMM", "1", VMM_ERR_UNSUPPORTED, "no virtual memory management" },
        { "FAKE_CUDA_FAIL", "cuInit:999", VMM_ERR_NO_DEVICE, "cuInit" },
        { "FAKE_CUDA_FAIL", "cuInit:100", VMM_ERR_NO_DEVICE, "cuInit" },
        { "FAKE_CUDA_FAIL", "cuInit:803", VMM_ERR_NO_DEVICE, "cuInit" },
        { "FAKE_CUDA_FAIL", "cuDeviceGetCount:999", VMM_ERR_DRIVER, "cuDeviceGetCount" },
        { "FAKE_CUDA_FAIL", "cuDeviceGet:101", VMM_ERR_NO_DEVICE, "cuDeviceGet(0)" },
        { "FAKE_CUDA_FAIL", "cuDeviceGetName:1", VMM_ERR_DRIVER, "cuDeviceGetName" },
        { "FAKE_CUDA_FAIL", "cuDeviceGetAttribute:1", VMM_ERR_DRIVER, "cuDeviceGetAttribute" },
        { "FAKE_CUDA_FAIL", "cuDeviceCanAccessPeer:1", VMM_ERR_DRIVER, "peer_devices: device 1" },
        { "FAKE_CUDA_FAIL", "cuDevicePrimaryCtxRetain:2", VMM_ERR_DEVICE_OOM, "Retain" },
        { "FAKE_CUDA_FAIL", "cuDevicePrimaryCtxRetain:46", VMM_ERR_DRIVER, "Retain" },
        { "FAKE_CUDA_FAIL", "cuCtxGetCurrent:1", VMM_ERR_DRIVER, "cuCtxGetCurrent" },
        { "FAKE_CUDA_FAIL", "cuCtxPushCurrent_v2:201", VMM_ERR_LOST, "cuCtxPushCurrent" },
        { "FAKE_CUDA_FAIL", "cuMemGetInfo_v2:719", VMM_ERR_LOST, "(719)" },
        { "FAKE_CUDA_FAIL", "cuMemCreate:2", VMM_ERR_DEVICE_OOM, "'create': cuMemCreate" },
        { "FAKE_CUDA_FAIL", "cuMemCreate:700", VMM_ERR_LOST, "'create': cuMemCreate" },
    };
    for (unsigned i = 0; i < sizeof starts / sizeof *starts; i++) {
        struct start start = starts[i];
        child_runs(start_fail, &start);
    }
}

static void devices_and_peers(void *context)
{
    (void)context;
    vmm_cache *out = NULL;
    CHILD_REQUIRES(cache_try_create(VMM_DRIVER_CUDA, 2, &out) == VMM_ERR_NO_DEVICE);
    CHILD_REQUIRES(strstr(vmm_last_error(), "no device 2; there are 2") != NULL);
    CHILD_REQUIRES(cache_try_create(VMM_DRIVER_CUDA, -1, &out) != VMM_OK && out == NULL);
    cache_check_works(0);
    cache_check_works(1);
    fake_open();
    CHILD_REQUIRES(fake->holds[0] == 0 && fake->holds[1] == 0);
    fake_check_misuses();
}

static void devices_without_peers(void *context)
{
    (void)setenv("FAKE_CUDA_NO_PEERS", "1", 1);
    devices_and_peers(context);
}

TEST(devices_and_peers_work)
{
    child_runs(devices_and_peers, NULL);
    child_runs(devices_without_peers, NULL);
}

static void peers_refuse(vmm_cache *cache, uint64_t devices, vmm_status status, const char *text)
{
    uint64_t after = 7;
    CHILD_REQUIRES(vmm_peers_add(cache, devices) == status);
    CHILD_REQUIRES(strstr(vmm_last_error(), text) != NULL);
    CHILD_REQUIRES(vmm_peers_get(cache, &after) == VMM_OK && after == 0);
}

/* The fake refuses access of a device that is not listed after its own. */
static void peers_added_later(void *context)
{
    const bool *has_peers = context;
    uint64_t devices = 0;
    void *block = NULL;
    vmm_config config = VMM_CONFIG_INIT;
    vmm_cache *cache = NULL;
    fake_open();
    config.driver = VMM_DRIVER_CUDA;
    config.arena_bytes = GIB;
    CHILD_REQUIRES(vmm_create(&config, &cache) == VMM_OK);
    CHILD_REQUIRES(vmm_alloc(cache, 3 * MIB, (vmm_stream)16, &block) == VMM_OK);
    peers_refuse(cache, 6, VMM_ERR_UNSUPPORTED,
                 *has_peers ? "device 2 does not exist" : "device 1");
    if (*has_peers) {
        fault_set("cuDeviceCanAccessPeer", 1, 1, true);
        peers_refuse(cache, 2, VMM_ERR_DRIVER, "peer_devices: device 1");
        fault_set("cuMemSetAccess", 101, 1, true);
        peers_refuse(cache, 2, VMM_ERR_DRIVER, "cuMemSetAccess");
        CHILD_REQUIRES(vmm_peers_add(cache, 3) == VMM_OK);
        CHILD_REQUIRES(vmm_peers_get(cache, &devices) == VMM_OK && devices == 2);
    } else {
        peers_refuse(cache, 2, VMM_ERR_UNSUPPORTED, "device 1 cannot access memory of device 0");
    }
    CHILD_REQUIRES(vmm_free(cache, block) == VMM_OK && vmm_destroy(cache) == VMM_OK);
    fake_check_misuses();
}

TEST(peers_can_be_added_later)
{
    bool has_peers = true;
    child_runs(peers_added_later, &has_peers);
    has_peers = false;
    (void)setenv("FAKE_CUDA_NO_PEERS", "1", 1);
    child_runs(peers_added_later, &has_peers);
    (void)unsetenv("FAKE_CUDA_NO_PEERS");
}

/* ---- Streams ------------------------------------------------------------------------------------ */

/* The call fails with a line that names the cause, and the cache keeps no record of the stream. */
FAKE_TEST(a_stream_of_another_context_is_refused)
{
    vmm_stream foreign = (vmm_stream)(uintptr_t)FAKE_FOREIGN_STREAM;
    void *block = NULL;
    void *none = NULL;
    vmm_stats stats = VMM_STATS_INIT;
    vmm_cache *cache = cache_create(0);
    CHILD_REQUIRES(vmm_alloc(cache, 512, (vmm_stream)16, &block) == VMM_OK);
    CHILD_REQUIRES(vmm_alloc(cache, 512, foreign, &none) == VMM_ERR_INVALID_ARGUMENT);
    CHILD_REQUIRES(strstr(vmm_last_error(), "belongs to another context") != NULL);
    CHILD_REQUIRES(vmm_record_stream(cache, block, foreign) == VMM_ERR_INVALID_ARGUMENT);
    CHILD_REQUIRES(strstr(vmm_last_error(), "primary context of device 0") != NULL);
    CHILD_REQUIRES(none == NULL && vmm_stats_get(cache, &stats) == VMM_OK);
    CHILD_REQUIRES(stats.streams == 1);
    CHILD_REQUIRES(vmm_free(cache, block) == VMM_OK && vmm_destroy(cache) == VMM_OK);
}

/* Events of the primary context cover the work of the device's green contexts. A driver that cannot tell these from
 * other contexts has no such events either. */
FAKE_TEST(streams_of_green_contexts_are_served)
{
    vmm_stream green = (vmm_stream)(uintptr_t)FAKE_GREEN_STREAM;
    vmm_stream elsewhere = (vmm_stream)(uintptr_t)(FAKE_GREEN_STREAM + FAKE_GREEN_STEP);
    bool has_green = dlsym(library, "cuStreamGetCtx_v2") != NULL;
    vmm_status expected = has_green ? VMM_OK : VMM_ERR_INVALID_ARGUMENT;
    void *block = NULL;
    void *own = NULL;
    vmm_cache *cache = cache_create(0);
    CHILD_REQUIRES(vmm_alloc(cache, 512, (vmm_stream)16, &block) == VMM_OK);
    CHILD_REQUIRES(vmm_record_stream(cache, block, green) == expected);
    CHILD_REQUIRES(vmm_wait_stream(cache, green) == expected);
    CHILD_REQUIRES(vmm_alloc(cache, 3 * MIB, green, &own) == expected);
    CHILD_REQUIRES(has_green ? vmm_free(cache, own) == VMM_OK : own == NULL);
    CHILD_REQUIRES(vmm_alloc(cache, 512, elsewhere, &own) == VMM_ERR_INVALID_ARGUMENT);
    CHILD_REQUIRES(vmm_free(cache, block) == VMM_OK && vmm_destroy(cache) == VMM_OK);
}

/* Submits work of a kind to a stream, whose call of libcuda fails. */
static vmm_status work_submit(struct driver *driver, const char *call)
{
    const uint64_t address = UINT64_C(1) << 30;
    char host[64];
    struct driver_piece piece = { .address = address, .bytes = sizeof host, .host = host };
    vmm_stream stream = (vmm_stream)16;
    if (strcmp(call, "cuMemsetD8Async") == 0)
        return vmm__driver_clear(driver, address, sizeof host, 0, stream);
    if (strcmp(call, "cuMemcpyDtoDAsync_v2") == 0)
        return vmm__driver_copy(driver, address, 2 * address, sizeof host, stream);
    if (strcmp(call, "cuMemcpyHtoDAsync_v2") == 0)
        return vmm__driver_load(driver, &piece, 1, stream);
    if (strcmp(call, "cuMemcpyDtoHAsync_v2") == 0)
        return vmm__driver_save(driver, &piece, 1, stream);
    if (strcmp(call, "cuStreamSynchronize") == 0)
        return vmm__driver_read(driver, &piece, 0, stream);
    return vmm__driver_fill(driver, address, sizeof host, 7, stream);
}

/* CUDA reports a destroyed stream as an invalid handle or as a destroyed context. Work on one says so, as on the other
 * drivers, and the device is not lost. */
FAKE_TEST(work_on_a_destroyed_stream_is_refused)
{
    static const char *const calls[] = { "cuMemsetD8Async",      "cuMemcpyDtoDAsync_v2",
                                         "cuMemcpyHtoDAsync_v2", "cuMemcpyDtoHAsync_v2",
                                         "cuStreamSynchronize",  "cuLaunchKernel" };
    static const int results[] = { 400, 709, 201 };
    struct driver_options options = { .device = 0 };
    struct driver *driver = NULL;
    CHILD_REQUIRES(vmm__driver_cuda_open(&options, &driver) == VMM_OK);
    for (unsigned i = 0; i < sizeof calls / sizeof *calls; i++) {
        for (unsigned j = 0; j < sizeof results / sizeof *results; j++) {
            fault_set(calls[i], results[j], 1, true);
            vmm_status status = work_submit(driver, calls[i]);
            if (status != VMM_ERR_INVALID_ARGUMENT)
                (void)fprintf(stderr, "%s %d: %s\n", calls[i], results[j], vmm_status_name(status));
            CHILD_REQUIRES(status == VMM_ERR_INVALID_ARGUMENT && !vmm__driver_is_lost(driver));
        }
    }
    calls_succeed();
    vmm__driver_close(driver);
    CHILD_REQUIRES(fake->taken(0) == 0);
}
