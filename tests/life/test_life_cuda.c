/* The cuda driver where CUDA refuses to begin, or refuses any call of its self-test. */
#define _GNU_SOURCE
#include "life/cuda_support.h"

#include <time.h>
#include <unistd.h>

/* Of the thread's own time. */
enum { REFUSED_NS = IS_SLOW_BUILD ? 50000000 : 5000000 };

/* ---- Refusals ----------------------------------------------------------------------------------- */

static uint64_t thread_ns(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

struct refusal {
    const char *call;
    const char *told;
    bool leaves; /* what it refuses to take back */
};

/* Returns how long it took. */
static uint64_t refusal_told(const struct refusal *refusal, int result)
{
    vmm_cache *out = NULL;
    fault_set(refusal->call, result, 1, false);
    uint64_t host_bytes = vmm__host_outstanding();
    uint64_t holds = fake->holds[0];
    uint64_t begin = thread_ns();
    vmm_status status = cache_wanted(VMM_DRIVER_CUDA, 0, &out);
    uint64_t took = thread_ns() - begin;
    CHILD_REQUIRES(status == VMM_ERR_UNSUPPORTED && out == NULL);
    if (strstr(vmm_last_error(), refusal->told) == NULL)
        (void)fprintf(stderr, "%s is not told in: %s\n", refusal->told, vmm_last_error());
    CHILD_REQUIRES(strstr(vmm_last_error(), refusal->told) != NULL);
    CHILD_REQUIRES(vmm__host_outstanding() == host_bytes && fake->holds[0] == holds);
    CHILD_REQUIRES(refusal->leaves || fake->outstanding(0) == 0);
    fault_set("", 0, 1, false);
    return took;
}

/* Others on the machine cost a thread of its own time, too, for as long as they are busy: so one that took long has more
 * tries, a while later each. */
static void refusal_is_quick(const struct refusal *refusal, int result)
{
    enum { TRIES = 20, PAUSE_US = 20000 };
    bool is_quick = false;
    for (int i = 0; i < TRIES && !is_quick; i++) {
        hold_taken(0); /* so that the context stays, with what was left in it */
        if (i > 0)
            (void)usleep(PAUSE_US);
        is_quick = refusal_told(refusal, result) < REFUSED_NS;
        (void)device_called("cuDevicePrimaryCtxReset_v2", 0);
        (void)device_called("cuDevicePrimaryCtxRelease_v2", 0);
    }
    CHILD_REQUIRES(is_quick);
}

static void every_refusal(void *context)
{
    static const struct refusal refusals[] = {
        { .call = "cuMemGetAllocationGranularity", .told = "cuMemGetAllocationGranularity" },
        { .call = "cuMemAddressReserve", .told = "'reserve': cuMemAddressReserve" },
        { .call = "cuMemCreate", .told = "'create': cuMemCreate" },
        { .call = "cuMemMap", .told = "'map': cuMemMap" },
        { .call = "cuMemSetAccess", .told = "'set access': cuMemSetAccess" },
        { .call = "cuMemcpyHtoD_v2", .told = "'write and read'" },
        { .call = "cuMemcpyDtoH_v2", .told = "'write and read'" },
        { .call = "cuMemUnmap", .told = "'unmap': cuMemUnmap", .leaves = true },
        { .call = "cuMemRelease", .told = "'release': cuMemRelease", .leaves = true },
        { .call = "cuMemAddressFree", .told = "'address free': cuMemAddressFree", .leaves = true },
    };
    static const int results[] = { 801, 800, 999 };
    (void)context;
    fake_opened();
    all_works(0);
    for (unsigned i = 0; i < sizeof refusals / sizeof *refusals; i++) {
        for (unsigned j = 0; j < 3; j++)
            refusal_is_quick(&refusals[i], results[j]);
    }
    all_works(0);
}

static void a_device_that_refuses_a_call_is_named(void **state)
{
    (void)state;
    child_runs(every_refusal, NULL);
}

/* Whether a cache can be made where a call, its fromth, gives a result; nothing is left of it, or of the attempt. */
static bool begins_with_fault(const char *call, int result, uint64_t from, bool once)
{
    vmm_cache *cache = NULL;
    fault_set(call, result, from, once);
    vmm_status status = cache_wanted(VMM_DRIVER_CUDA, 0, &cache);
    bool was_made = fake->fail_count >= from;
    if (status == VMM_OK)
        (void)vmm_destroy(cache);
    fault_set("", 0, 1, true);
    while (fake->holds[0] > 0) /* the fault was in letting go */
        (void)device_called("cuDevicePrimaryCtxRelease_v2", 0);
    if (fake->taken(0) != 0)
        (void)fprintf(stderr, "%s %d from %llu\n", call, result, (unsigned long long)from);
    CHILD_REQUIRES(fake->taken(0) == 0 && vmm__host_outstanding() == 0);
    return !was_made;
}

static void every_beginning(void *context)
{
    static const int results[] = { 1, 2, 709, 719, 999 };
    (void)context;
    fake_opened();
    all_works(0);
    for (unsigned i = 0; i < sizeof results / sizeof *results; i++) {
        for (uint64_t from = 1; !begins_with_fault("*", results[i], from, true); from++)
            continue;
    }
    bool has_ids = dlsym(library, "cuCtxGetId") != NULL;
    for (uint64_t from = 1; has_ids && !begins_with_fault("cuCtxGetId", 709, from, false); from++)
        continue;
    nothing_misused();
}

static void a_beginning_that_fails_leaves_nothing(void **state)
{
    (void)state;
    child_runs(every_beginning, NULL);
}

struct beginning {
    const char *environment;
    const char *value;
    vmm_status status;
    const char *told;
};

static void beginning_fails(void *context)
{
    const struct beginning *beginning = context;
    vmm_cache *cache = NULL;
    (void)setenv(beginning->environment, beginning->value, 1);
    vmm_status status = cache_wanted(VMM_DRIVER_CUDA, 0, &cache);
    if (status != beginning->status || strstr(vmm_last_error(), beginning->told) == NULL)
        (void)fprintf(stderr, "%s: %s\n", beginning->value, vmm_status_name(status));
    CHILD_REQUIRES(status == beginning->status && cache == NULL);
    CHILD_REQUIRES(strstr(vmm_last_error(), beginning->told) != NULL);
    CHILD_REQUIRES(vmm__host_outstanding() == 0);
    status = cache_wanted(VMM_DRIVER_AUTO, 0, &cache);
    bool is_none =
        beginning->status == VMM_ERR_NO_DEVICE || beginning->status == VMM_ERR_UNSUPPORTED;
    CHILD_REQUIRES(status == (is_none ? VMM_OK : beginning->status));
    if (status == VMM_OK)
        CHILD_REQUIRES(vmm_destroy(cache) == VMM_OK);
    fake_opened();
    CHILD_REQUIRES(fake->holds[0] == 0);
    nothing_misused();
}

static void a_device_that_does_not_begin_is_told(void **state)
{
    static const struct beginning beginnings[] = {
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
    (void)state;
    for (unsigned i = 0; i < sizeof beginnings / sizeof *beginnings; i++) {
        struct beginning beginning = beginnings[i];
        child_runs(beginning_fails, &beginning);
    }
}

static void devices_and_peers(void *context)
{
    (void)context;
    vmm_cache *out = NULL;
    CHILD_REQUIRES(cache_wanted(VMM_DRIVER_CUDA, 2, &out) == VMM_ERR_NO_DEVICE);
    CHILD_REQUIRES(strstr(vmm_last_error(), "no device 2; there are 2") != NULL);
    CHILD_REQUIRES(cache_wanted(VMM_DRIVER_CUDA, -1, &out) != VMM_OK && out == NULL);
    all_works(0);
    all_works(1);
    fake_opened();
    CHILD_REQUIRES(fake->holds[0] == 0 && fake->holds[1] == 0);
    nothing_misused();
}

static void devices_without_peers(void *context)
{
    (void)setenv("FAKE_CUDA_NO_PEERS", "1", 1);
    devices_and_peers(context);
}

static void devices_are_told_apart(void **state)
{
    (void)state;
    child_runs(devices_and_peers, NULL);
    child_runs(devices_without_peers, NULL);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_device_that_refuses_a_call_is_named),
        cmocka_unit_test(a_beginning_that_fails_leaves_nothing),
        cmocka_unit_test(a_device_that_does_not_begin_is_told),
        cmocka_unit_test(devices_are_told_apart),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
