/*
 * test_life_cuda_lost [STEP]: the cuda driver if CUDA breaks under a cache, is reset, or belongs to a parent process.
 * Each STEPth (default 29) call of libcuda fails once, with each result. Whatever broke, vmm_destroy() must release all
 * memory that the device still allows it to release.
 */
#define _GNU_SOURCE
#include "life/cuda_support.h"

enum { DEINITIALIZED = 4, LAUNCH_FAILED = 719 };

static uint64_t step = 29;

/* ---- Broken contexts ----------------------------------------------------------------------------- */

static void lost_cache_destroy(vmm_cache *cache, void *blocks[BLOCKS], uint64_t calls)
{
    void *out;
    vmm_stream unknown = (vmm_stream)64; /* the cache has not seen it */
    CHILD_REQUIRES(vmm_record_stream(cache, blocks[2], unknown) == VMM_OK);
    for (int i = 0; i < 3; i++) {
        CHILD_REQUIRES(vmm_alloc(cache, 700, NULL, &out) == VMM_ERR_LOST);
        CHILD_REQUIRES(vmm_trim(cache, 0, NULL) == VMM_ERR_LOST);
        CHILD_REQUIRES(vmm_wait(cache) == VMM_ERR_LOST);
    }
    blocks_free(cache, blocks);
    CHILD_REQUIRES(fake->calls == calls);
    char line[512];
    (void)snprintf(line, sizeof line, "%s", vmm_last_error());
    CHILD_REQUIRES(vmm_destroy(cache) == VMM_ERR_LOST);
    CHILD_REQUIRES(strcmp(vmm_last_error(), line) == 0);
}

static void device_break(void *context)
{
    int result = *(const int *)context;
    char number[16];
    (void)snprintf(number, sizeof number, "(%d)", result);
    fake_open();
    void *blocks[BLOCKS];
    void *out;
    vmm_cache *cache = cache_create(0);
    blocks_allocate(cache, blocks);
    fault_set("cuMemCreate", result, 1, false);
    CHILD_REQUIRES(vmm_alloc(cache, 50 * MIB, NULL, &out) == VMM_ERR_LOST);
    CHILD_REQUIRES(strstr(vmm_last_error(), number) != NULL);
    calls_succeed(); /* the cache stays lost even if CUDA works again */
    uint64_t calls = fake->calls;
    bool has_ended = result == DEINITIALIZED;
    lost_cache_destroy(cache, blocks, calls);
    CHILD_REQUIRES((fake->calls == calls) == has_ended);
    CHILD_REQUIRES((fake->taken(0) > 0) == has_ended && fake->holds[0] == has_ended);
    CHILD_REQUIRES(vmm__host_outstanding() == 0);
    fake_check_misuses();
    if (has_ended)
        CHILD_REQUIRES(cache_try_create(VMM_DRIVER_CUDA, 0, &cache) == VMM_ERR_NO_DEVICE);
    else
        cache_check_works(0);
}

TEST(lost_cache_makes_no_calls)
{
    static const int results[] = { 4,   201, 214, 220, 226, 700, 702, 709, 710,
                                   714, 715, 716, 717, 718, 719, 721, 810, 911 };
    for (unsigned i = 0; i < sizeof results / sizeof *results; i++) {
        int result = results[i];
        child_runs(device_break, &result);
    }
}

/* The first call that releases memory finds that the device releases nothing. */
static void device_refuse_releases(void *context)
{
    const char *call = context;
    fake_open();
    void *blocks[BLOCKS];
    void *out;
    vmm_cache *cache = cache_create(0);
    blocks_allocate(cache, blocks);
    fault_set("cuMemCreate", LAUNCH_FAILED, 1, false);
    CHILD_REQUIRES(vmm_alloc(cache, 50 * MIB, NULL, &out) == VMM_ERR_LOST);
    fault_set(call, 999, 1, false);
    uint64_t taken = fake->taken(0);
    uint64_t calls = fake->calls;
    lost_cache_destroy(cache, blocks, calls);
    CHILD_REQUIRES(strcmp(call, "*") == 0 || fake->fail_count == 1);
    /* Two calls that set the capture mode, the failed call, and the release of the context. */
    CHILD_REQUIRES(fake->calls == calls + 4 && fake->taken(0) == taken);
    CHILD_REQUIRES(vmm__host_outstanding() == 0);
    fake_check_misuses();
}

TEST(refused_release_is_tried_once)
{
    char calls[][FAKE_NAME_BYTES] = { "cuMemUnmap", "*" };
    child_runs(device_refuse_releases, calls[0]);
    child_runs(device_refuse_releases, calls[1]);
}

/* In debug mode a free releases a large block at once, but not if the device is lost; vmm_destroy() does then. The same
 * holds for a handle whose map failed. */
FAKE_TEST(debug_mode_releases_at_destroy)
{
    vmm_config config = VMM_CONFIG_INIT;
    void *blocks[BLOCKS];
    void *out;
    vmm_cache *cache;
    config.driver = VMM_DRIVER_CUDA;
    config.arena_bytes = GIB;
    config.debug = VMM_DEBUG_ON;
    CHILD_REQUIRES(vmm_create(&config, &cache) == VMM_OK);
    blocks_allocate(cache, blocks);
    uint64_t taken = fake->taken(0);
    fault_set("cuMemMap", LAUNCH_FAILED, 1, false);
    CHILD_REQUIRES(vmm_alloc(cache, 50 * MIB, NULL, &out) == VMM_ERR_LOST);
    calls_succeed();
    CHILD_REQUIRES(fake->taken(0) > taken);
    lost_cache_destroy(cache, blocks, fake->calls);
    CHILD_REQUIRES(fake->taken(0) == 0 && vmm__host_outstanding() == 0);
}

static void require_documented(vmm_status status, const char *call)
{
    bool is_known = status == VMM_OK || status == VMM_ERR_DEVICE_OOM ||
                    status == VMM_ERR_HOST_OOM || status == VMM_ERR_ADDRESS_SPACE ||
                    status == VMM_ERR_DRIVER || status == VMM_ERR_LOST;
    if (!is_known)
        (void)fprintf(stderr, "%s: %s: %s; call %llu\n", call, vmm_status_name(status),
                      vmm_last_error(), (unsigned long long)fake->fail_from);
    CHILD_REQUIRES(is_known);
}

/* Returns the number of libcuda calls before vmm_destroy(). */
static uint64_t work_with_fault(int result, uint64_t from)
{
    void *blocks[BLOCKS];
    calls_succeed();
    vmm_cache *cache = cache_create(0);
    uint64_t begin = fake->calls;
    fault_set(from == 0 ? "" : "*", result, from, true);
    blocks_allocate(cache, blocks);
    require_documented(vmm_trim(cache, 0, NULL), "vmm_trim");
    require_documented(vmm_wait(cache), "vmm_wait");
    require_documented(vmm_trim(cache, 0, NULL), "vmm_trim");
    for (unsigned i = 0; i < BLOCKS; i++) {
        vmm_status status = vmm_free(cache, blocks[i]);
        require_documented(status, "vmm_free");
        CHILD_REQUIRES(status == VMM_OK || vmm_free(cache, blocks[i]) == VMM_OK);
    }
    uint64_t calls = fake->calls - begin;
    require_documented(vmm_destroy(cache), "vmm_destroy");
    CHILD_REQUIRES(vmm__host_outstanding() == 0 && fake->taken(0) == 0);
    calls_succeed();
    while (fake->holds[0] > 0) /* the release itself failed */
        (void)device_call_by_name("cuDevicePrimaryCtxRelease_v2", 0);
    return calls;
}

/* If any single call of libcuda fails, calls return only statuses that the header documents. */
FAKE_TEST(any_call_may_fail_once)
{
    static const int results[] = { 1, 2, 100, 101, 700, 719, 999 };
    (void)alarm(600);
    uint64_t calls = work_with_fault(0, 0);
    CHILD_REQUIRES(calls > 300);
    fake_check_misuses();
    uint64_t runs = 0;
    for (unsigned i = 0; i < sizeof results / sizeof *results; i++) {
        for (uint64_t from = step == 1 ? 1 : 1 + i; from <= calls; from += step, runs++)
            (void)work_with_fault(results[i], from);
    }
    (void)dprintf(STDOUT_FILENO, "%llu calls of libcuda, %llu runs with one failed call\n",
                  (unsigned long long)calls, (unsigned long long)runs);
}

/* ---- Contexts that end --------------------------------------------------------------------------- */

struct ending {
    const char *call;
    bool is_made_anew;
};

static void context_end(void *context)
{
    const struct ending *ending = context;
    fake_open();
    bool has_ids = dlsym(library, "cuCtxGetId") != NULL;
    void *blocks[BLOCKS];
    void *out;
    vmm_cache *other = cache_create(1);
    vmm_cache *cache = cache_create(0);
    blocks_allocate(cache, blocks);
    CHILD_REQUIRES(device_call_by_name(ending->call, 0) == 0);
    if (ending->is_made_anew)
        context_retain(0);
    vmm_status status = vmm_alloc(cache, 50 * MIB, NULL, &out);
    CHILD_REQUIRES(status == VMM_ERR_LOST || !has_ids);
    if (has_ids && ending->is_made_anew)
        CHILD_REQUIRES(strstr(vmm_last_error(), "the context was reset") != NULL);
    if (status == VMM_ERR_LOST)
        lost_cache_destroy(cache, blocks, fake->calls);
    else
        CHILD_REQUIRES(vmm_destroy(cache) != VMM_OK);
    CHILD_REQUIRES(fake->taken(0) == 0);
    if (has_ids)
        fake_check_misuses();
    cache_check_works(0);
    CHILD_REQUIRES(vmm_alloc(other, 50 * MIB, NULL, &out) == VMM_OK);
    CHILD_REQUIRES(vmm_destroy(other) == VMM_OK);
    CHILD_REQUIRES(vmm__host_outstanding() == 0);
}

TEST(ended_context_is_detected)
{
    child_runs(context_end, &(struct ending){ "cuDevicePrimaryCtxReset_v2", false });
    child_runs(context_end, &(struct ending){ "cuDevicePrimaryCtxRelease_v2", false });
}

/* A new primary context has the address of the old one, but none of its objects. */
TEST(renewed_context_is_detected)
{
    child_runs(context_end, &(struct ending){ "cuDevicePrimaryCtxReset_v2", true });
    child_runs(context_end, &(struct ending){ "cuDevicePrimaryCtxRelease_v2", true });
}

static void reset_detect(vmm_cache *cache)
{
    CHILD_REQUIRES(vmm_wait(cache) == VMM_ERR_LOST);
}

/* Each lost cache releases its own memory; the one that was created after the reset keeps its memory. */
FAKE_TEST(each_cache_releases_its_own_memory)
{
    enum { CACHES = 3 };
    void *blocks[CACHES][BLOCKS];
    vmm_cache *caches[CACHES];
    uint64_t taken[CACHES];
    if (dlsym(library, "cuCtxGetId") == NULL)
        return; /* without ids a new context looks like the old one */
    for (unsigned i = 0; i < CACHES; i++) {
        taken[i] = fake->taken(0);
        caches[i] = cache_create(0);
        blocks_allocate(caches[i], blocks[i]);
        taken[i] = fake->taken(0) - taken[i];
        if (i == 1)
            CHILD_REQUIRES(device_call_by_name("cuDevicePrimaryCtxReset_v2", 0) == 0);
    }
    reset_detect(caches[0]);
    lost_cache_destroy(caches[0], blocks[0], fake->calls);
    CHILD_REQUIRES(fake->taken(0) == taken[1] + taken[2]);
    reset_detect(caches[1]);
    lost_cache_destroy(caches[1], blocks[1], fake->calls);
    CHILD_REQUIRES(fake->taken(0) == taken[2]);
    blocks_free(caches[2], blocks[2]);
    CHILD_REQUIRES(vmm_wait(caches[2]) == VMM_OK && vmm_trim(caches[2], 0, NULL) == VMM_OK);
    CHILD_REQUIRES(vmm_destroy(caches[2]) == VMM_OK);
    CHILD_REQUIRES(fake->taken(0) == 0 && vmm__host_outstanding() == 0);
}

/* ---- fork ----------------------------------------------------------------------------------------- */

static void cuda_try(void *cache)
{
    uint64_t calls = fake->calls;
    void *out;
    vmm_cache *own = NULL;
    CHILD_REQUIRES(vmm_alloc(cache, 700, NULL, &out) == VMM_ERR_FORKED);
    CHILD_REQUIRES(vmm_destroy(cache) == VMM_ERR_FORKED);
    CHILD_REQUIRES(cache_try_create(VMM_DRIVER_CUDA, 0, &own) == VMM_ERR_FORKED);
    CHILD_REQUIRES(strstr(vmm_last_error(), "started CUDA") != NULL);
    CHILD_REQUIRES(cache_try_create(VMM_DRIVER_DEFAULT, 0, &own) == VMM_ERR_FORKED && own == NULL);
    CHILD_REQUIRES(fake->calls == calls);
    CHILD_REQUIRES(cache_try_create(VMM_DRIVER_HOST, 0, &own) == VMM_OK);
    CHILD_REQUIRES(vmm_destroy(own) == VMM_OK);
}

FAKE_TEST(forked_child_does_not_call_cuda)
{
    void *blocks[BLOCKS];
    vmm_cache *cache = cache_create(0);
    blocks_allocate(cache, blocks);
    CHILD_REQUIRES(child_ended(child_begun(cuda_try, cache), 0));
    blocks_free(cache, blocks);
    CHILD_REQUIRES(vmm_destroy(cache) == VMM_OK);
}

int main(int argc, char **argv)
{
    if (argc > 1)
        step = strtoull(argv[1], NULL, 10);
    return step == 0 ? 2 : tests_run(NULL, NULL);
}
