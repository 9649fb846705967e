/*
 * test_life_cuda_lost [STEP]: the cuda driver where CUDA breaks under a cache, is reset, or belongs to a parent
 * process. Of the calls of libcuda each STEPth (29) fails once, with each result. Whatever broke, the end of the cache
 * gives back all memory that the device still takes.
 */
#define _GNU_SOURCE
#include "life/cuda_support.h"

enum { DEINITIALIZED = 4, LAUNCH_FAILED = 719 };

static uint64_t step = 29;

/* ---- What breaks --------------------------------------------------------------------------------- */

static void lost_cache_ended(vmm_cache *cache, void *blocks[BLOCKS], uint64_t calls)
{
    void *out;
    for (int i = 0; i < 3; i++) {
        CHILD_REQUIRES(vmm_alloc(cache, 700, NULL, &out) == VMM_ERR_LOST);
        CHILD_REQUIRES(vmm_trim(cache, 0, NULL) == VMM_ERR_LOST);
        CHILD_REQUIRES(vmm_wait(cache) == VMM_ERR_LOST);
    }
    blocks_left(cache, blocks);
    CHILD_REQUIRES(fake->calls == calls);
    char line[512];
    (void)snprintf(line, sizeof line, "%s", vmm_last_error());
    CHILD_REQUIRES(vmm_destroy(cache) == VMM_ERR_LOST);
    CHILD_REQUIRES(strcmp(vmm_last_error(), line) == 0);
}

static void device_breaks(void *context)
{
    int result = *(const int *)context;
    char number[16];
    (void)snprintf(number, sizeof number, "(%d)", result);
    fake_opened();
    void *blocks[BLOCKS];
    void *out;
    vmm_cache *cache = cache_made(0);
    blocks_had(cache, blocks);
    fault_set("cuMemCreate", result, 1, false);
    CHILD_REQUIRES(vmm_alloc(cache, 50 * MIB, NULL, &out) == VMM_ERR_LOST);
    CHILD_REQUIRES(strstr(vmm_last_error(), number) != NULL);
    fault_set("", 0, 1, false); /* even if CUDA came back */
    uint64_t calls = fake->calls;
    bool has_ended = result == DEINITIALIZED;
    lost_cache_ended(cache, blocks, calls);
    CHILD_REQUIRES((fake->calls == calls) == has_ended);
    CHILD_REQUIRES((fake->taken(0) > 0) == has_ended && fake->holds[0] == has_ended);
    CHILD_REQUIRES(vmm__host_outstanding() == 0);
    nothing_misused();
    if (has_ended)
        CHILD_REQUIRES(cache_wanted(VMM_DRIVER_CUDA, 0, &cache) == VMM_ERR_NO_DEVICE);
    else
        all_works(0);
}

static void a_broken_context_is_left_alone(void **state)
{
    static const int results[] = { 4,   201, 214, 220, 226, 700, 702, 709, 710,
                                   714, 715, 716, 717, 718, 719, 721, 810, 911 };
    (void)state;
    for (unsigned i = 0; i < sizeof results / sizeof *results; i++) {
        int result = results[i];
        child_runs(device_breaks, &result);
    }
}

/* The first call that is to give something back finds that the device takes nothing. */
static void device_takes_nothing(void *context)
{
    const char *call = context;
    fake_opened();
    void *blocks[BLOCKS];
    void *out;
    vmm_cache *cache = cache_made(0);
    blocks_had(cache, blocks);
    fault_set("cuMemCreate", LAUNCH_FAILED, 1, false);
    CHILD_REQUIRES(vmm_alloc(cache, 50 * MIB, NULL, &out) == VMM_ERR_LOST);
    fault_set(call, 999, 1, false);
    uint64_t taken = fake->taken(0);
    uint64_t calls = fake->calls;
    lost_cache_ended(cache, blocks, calls);
    CHILD_REQUIRES(strcmp(call, "*") == 0 || fake->fail_count == 1);
    /* What is allowed during a capture, that call, what was allowed before; and the hold on the context. */
    CHILD_REQUIRES(fake->calls == calls + 4 && fake->taken(0) == taken);
    CHILD_REQUIRES(vmm__host_outstanding() == 0);
    nothing_misused();
}

static void a_device_that_takes_nothing_is_asked_once(void **state)
{
    char calls[][FAKE_NAME_BYTES] = { "cuMemUnmap", "*" };
    (void)state;
    child_runs(device_takes_nothing, calls[0]);
    child_runs(device_takes_nothing, calls[1]);
}

/* Of a guard's blocks the large ones go back when they are freed: not those of a lost device. Nor does what could not
 * be mapped. */
static void guarded_blocks_freed(void *context)
{
    vmm_config config = VMM_CONFIG_INIT;
    void *blocks[BLOCKS];
    void *out;
    vmm_cache *cache;
    (void)context;
    fake_opened();
    config.driver = VMM_DRIVER_CUDA;
    config.arena_bytes = GIB;
    config.guard = VMM_GUARD_ON;
    CHILD_REQUIRES(vmm_create(&config, &cache) == VMM_OK);
    blocks_had(cache, blocks);
    uint64_t taken = fake->taken(0);
    fault_set("cuMemMap", LAUNCH_FAILED, 1, false);
    CHILD_REQUIRES(vmm_alloc(cache, 50 * MIB, NULL, &out) == VMM_ERR_LOST);
    fault_set("", 0, 1, false);
    CHILD_REQUIRES(fake->taken(0) > taken);
    lost_cache_ended(cache, blocks, fake->calls);
    CHILD_REQUIRES(fake->taken(0) == 0 && vmm__host_outstanding() == 0);
    nothing_misused();
}

static void a_guard_gives_back_in_the_end(void **state)
{
    (void)state;
    child_runs(guarded_blocks_freed, NULL);
}

static void documented(vmm_status status, const char *call)
{
    bool is_known = status == VMM_OK || status == VMM_ERR_DEVICE_OOM ||
                    status == VMM_ERR_HOST_OOM || status == VMM_ERR_ADDRESS_SPACE ||
                    status == VMM_ERR_DRIVER || status == VMM_ERR_LOST;
    if (!is_known)
        (void)fprintf(stderr, "%s: %s: %s; call %llu\n", call, vmm_status_name(status),
                      vmm_last_error(), (unsigned long long)fake->fail_from);
    CHILD_REQUIRES(is_known);
}

/* Returns how many calls were made before the cache ended. */
static uint64_t worked_with_fault(int result, uint64_t from)
{
    void *blocks[BLOCKS];
    fault_set("", 0, 1, true);
    vmm_cache *cache = cache_made(0);
    uint64_t begin = fake->calls;
    fault_set(from == 0 ? "" : "*", result, from, true);
    blocks_had(cache, blocks);
    documented(vmm_trim(cache, 0, NULL), "vmm_trim");
    documented(vmm_wait(cache), "vmm_wait");
    documented(vmm_trim(cache, 0, NULL), "vmm_trim");
    for (unsigned i = 0; i < BLOCKS; i++) {
        vmm_status status = vmm_free(cache, blocks[i]);
        documented(status, "vmm_free");
        CHILD_REQUIRES(status == VMM_OK || vmm_free(cache, blocks[i]) == VMM_OK);
    }
    uint64_t calls = fake->calls - begin;
    documented(vmm_destroy(cache), "vmm_destroy");
    CHILD_REQUIRES(vmm__host_outstanding() == 0 && fake->taken(0) == 0);
    fault_set("", 0, 1, true);
    while (fake->holds[0] > 0) /* the fault was in letting go */
        (void)device_called("cuDevicePrimaryCtxRelease_v2", 0);
    return calls;
}

/* Whatever call of libcuda fails once, statuses are those that the header names. */
static void every_call_fails(void *context)
{
    static const int results[] = { 1, 2, 100, 101, 700, 719, 999 };
    (void)context;
    (void)alarm(600);
    fake_opened();
    uint64_t calls = worked_with_fault(0, 0);
    CHILD_REQUIRES(calls > 300);
    nothing_misused();
    uint64_t runs = 0;
    for (unsigned i = 0; i < sizeof results / sizeof *results; i++) {
        for (uint64_t from = step == 1 ? 1 : 1 + i; from <= calls; from += step, runs++)
            (void)worked_with_fault(results[i], from);
    }
    (void)dprintf(STDOUT_FILENO, "%llu calls of libcuda, %llu runs in which one failed\n",
                  (unsigned long long)calls, (unsigned long long)runs);
}

static void any_call_may_fail_once(void **state)
{
    (void)state;
    child_runs(every_call_fails, NULL);
}

/* ---- Contexts that go ---------------------------------------------------------------------------- */

static void context_gone(const char *call, bool comes_back)
{
    fake_opened();
    bool has_ids = dlsym(library, "cuCtxGetId") != NULL;
    void *blocks[BLOCKS];
    void *out;
    vmm_cache *other = cache_made(1);
    vmm_cache *cache = cache_made(0);
    blocks_had(cache, blocks);
    CHILD_REQUIRES(device_called(call, 0) == 0);
    if (comes_back)
        hold_taken(0);
    vmm_status status = vmm_alloc(cache, 50 * MIB, NULL, &out);
    CHILD_REQUIRES(status == VMM_ERR_LOST || !has_ids);
    if (has_ids && comes_back)
        CHILD_REQUIRES(strstr(vmm_last_error(), "the context was reset") != NULL);
    if (status == VMM_ERR_LOST)
        lost_cache_ended(cache, blocks, fake->calls);
    else
        CHILD_REQUIRES(vmm_destroy(cache) != VMM_OK);
    CHILD_REQUIRES(fake->taken(0) == 0);
    if (has_ids)
        nothing_misused();
    all_works(0);
    CHILD_REQUIRES(vmm_alloc(other, 50 * MIB, NULL, &out) == VMM_OK);
    CHILD_REQUIRES(vmm_destroy(other) == VMM_OK);
    CHILD_REQUIRES(vmm__host_outstanding() == 0);
}

static void context_reset(void *context)
{
    (void)context;
    context_gone("cuDevicePrimaryCtxReset_v2", false);
}

static void context_reset_and_made_anew(void *context)
{
    (void)context;
    context_gone("cuDevicePrimaryCtxReset_v2", true);
}

static void context_released(void *context)
{
    (void)context;
    context_gone("cuDevicePrimaryCtxRelease_v2", false);
}

static void context_released_and_made_anew(void *context)
{
    (void)context;
    context_gone("cuDevicePrimaryCtxRelease_v2", true);
}

static void a_context_that_is_gone_is_noticed(void **state)
{
    (void)state;
    child_runs(context_reset, NULL);
    child_runs(context_released, NULL);
}

/* It has the same address, and knows nothing of what the old one had. */
static void so_is_one_that_came_back(void **state)
{
    (void)state;
    child_runs(context_reset_and_made_anew, NULL);
    child_runs(context_released_and_made_anew, NULL);
}

static void reset_noticed(vmm_cache *cache)
{
    CHILD_REQUIRES(vmm_wait(cache) == VMM_ERR_LOST);
}

/* Of two caches each gives back its own; one that was made after the reset keeps what it has. */
static void caches_end_one_by_one(void *context)
{
    enum { CACHES = 3 };
    void *blocks[CACHES][BLOCKS];
    vmm_cache *caches[CACHES];
    uint64_t taken[CACHES];
    (void)context;
    fake_opened();
    if (dlsym(library, "cuCtxGetId") == NULL)
        return; /* a context that came back cannot be told from the old one */
    for (unsigned i = 0; i < CACHES; i++) {
        taken[i] = fake->taken(0);
        caches[i] = cache_made(0);
        blocks_had(caches[i], blocks[i]);
        taken[i] = fake->taken(0) - taken[i];
        if (i == 1)
            CHILD_REQUIRES(device_called("cuDevicePrimaryCtxReset_v2", 0) == 0);
    }
    reset_noticed(caches[0]);
    lost_cache_ended(caches[0], blocks[0], fake->calls);
    CHILD_REQUIRES(fake->taken(0) == taken[1] + taken[2]);
    reset_noticed(caches[1]);
    lost_cache_ended(caches[1], blocks[1], fake->calls);
    CHILD_REQUIRES(fake->taken(0) == taken[2]);
    blocks_left(caches[2], blocks[2]);
    CHILD_REQUIRES(vmm_wait(caches[2]) == VMM_OK && vmm_trim(caches[2], 0, NULL) == VMM_OK);
    CHILD_REQUIRES(vmm_destroy(caches[2]) == VMM_OK);
    CHILD_REQUIRES(fake->taken(0) == 0 && vmm__host_outstanding() == 0);
    nothing_misused();
}

static void each_cache_gives_back_its_own(void **state)
{
    (void)state;
    child_runs(caches_end_one_by_one, NULL);
}

/* ---- fork ----------------------------------------------------------------------------------------- */

static void cuda_refused(void *cache)
{
    uint64_t calls = fake->calls;
    void *out;
    vmm_cache *own = NULL;
    CHILD_REQUIRES(vmm_alloc(cache, 700, NULL, &out) == VMM_ERR_FORKED);
    CHILD_REQUIRES(vmm_destroy(cache) == VMM_ERR_FORKED);
    CHILD_REQUIRES(cache_wanted(VMM_DRIVER_CUDA, 0, &own) == VMM_ERR_FORKED);
    CHILD_REQUIRES(strstr(vmm_last_error(), "started CUDA") != NULL);
    CHILD_REQUIRES(cache_wanted(VMM_DRIVER_AUTO, 0, &own) == VMM_ERR_FORKED && own == NULL);
    CHILD_REQUIRES(fake->calls == calls);
    CHILD_REQUIRES(cache_wanted(VMM_DRIVER_HOST, 0, &own) == VMM_OK);
    CHILD_REQUIRES(vmm_destroy(own) == VMM_OK);
}

static void parent_lives(void *context)
{
    (void)context;
    fake_opened();
    void *blocks[BLOCKS];
    vmm_cache *cache = cache_made(0);
    blocks_had(cache, blocks);
    CHILD_REQUIRES(child_ended(child_begun(cuda_refused, cache), 0));
    blocks_left(cache, blocks);
    CHILD_REQUIRES(vmm_destroy(cache) == VMM_OK);
    nothing_misused();
}

static void a_child_does_not_call_cuda(void **state)
{
    (void)state;
    child_runs(parent_lives, NULL);
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_broken_context_is_left_alone),
        cmocka_unit_test(a_device_that_takes_nothing_is_asked_once),
        cmocka_unit_test(a_guard_gives_back_in_the_end),
        cmocka_unit_test(any_call_may_fail_once),
        cmocka_unit_test(a_context_that_is_gone_is_noticed),
        cmocka_unit_test(so_is_one_that_came_back),
        cmocka_unit_test(each_cache_gives_back_its_own),
        cmocka_unit_test(a_child_does_not_call_cuda),
    };
    if (argc > 1)
        step = strtoull(argv[1], NULL, 10);
    return step == 0 ? 2 : cmocka_run_group_tests(tests, NULL, NULL);
}
