/*
 * The cuda driver's test of fabric handles, which runs when a pool asks for them, and only then: a device without them
 * refuses the pool, and says why.
 */
#define _GNU_SOURCE
#include "life/cuda_support.h"

/* ---- Each call of the test fails ------------------------------------------------------------------ */

static const struct test_call fabric_calls[] = {
    { "cuStreamCreate", 1, "create a stream" },
    { "cuMemCreate", 1, "create" },
    { "cuMemAddressReserve", 1, "reserve" },
    { "cuMemMap", 1, "map" },
    { "cuMemSetAccess", 1, "set access" },
    { "cuMemExportToShareableHandle", 1, "export" },
    { "cuMemImportFromShareableHandle", 1, "import" },
    { "cuMemAddressReserve", 2, "import" },
    { "cuMemMap", 2, "import" },
    { "cuMemSetAccess", 2, "import" },
    { "cuMemAddressReserve", 3, "reserve" },
    { "cuMemMap", 3, "map" },
    { "cuMemSetAccess", 3, "set access" },
    { "cuMemsetD8Async", 1, "write and read" },
    { "cuMemcpyDtoHAsync_v2", 1, "write and read" },
    { "cuMemsetD8Async", 2, "write and read" },
    { "cuMemUnmap", 2, "unmap the first" },
    { "cuMemcpyDtoHAsync_v2", 2, "read after the unmap" },
    { "cuMemUnmap", 3, "unmap the second" },
    { "cuMemRelease", 1, "release the import" },
    { "cuMemRelease", 2, "release" },
    { "cuMemAddressFree", 2, "address free" },
    { "cuMemAddressFree", 3, "address free" },
    { "cuStreamDestroy_v2", 1, "destroy the stream" },
};

enum { FABRIC_CALLS = sizeof fabric_calls / sizeof *fabric_calls };

/* Memory that is missing may be there later; every other refusal means that there are no fabric handles. */
static void fabric_is_missing(const struct test_call *call, int result)
{
    struct driver *driver = driver_open();
    call_fail(call, result);
    vmm_status status = vmm__driver_fabric_check(driver);
    calls_succeed();
    step_is_told(call, "has no fabric handles: ", vmm_last_error());
    CHILD_REQUIRES(status == VMM_ERR_UNSUPPORTED ||
                   (status == VMM_ERR_DEVICE_OOM && result == CUDA_OOM));
    CHILD_REQUIRES(driver->handles == 0 && driver->imports == 0 && fake->outstanding(0) == 0);
    CHILD_REQUIRES(vmm__driver_fabric_check(driver) == VMM_OK); /* asked anew */
    vmm__driver_close(driver);
    nothing_is_left(0);
}

FAKE_TEST(a_refused_call_costs_the_fabric_handles)
{
    static const int results[] = { CUDA_OOM, CUDA_NOT_PERMITTED, CUDA_UNKNOWN };
    for (unsigned i = 0; i < FABRIC_CALLS; i++) {
        for (unsigned j = 0; j < sizeof results / sizeof *results; j++)
            fabric_is_missing(&fabric_calls[i], results[j]);
    }
}

FAKE_TEST(a_device_that_is_lost_meanwhile_is_told)
{
    for (unsigned i = 0; i < FABRIC_CALLS; i++) {
        struct driver *driver = driver_open();
        call_fail(&fabric_calls[i], CUDA_ILLEGAL_ADDRESS);
        CHILD_REQUIRES(vmm__driver_fabric_check(driver) == VMM_ERR_LOST);
        CHILD_REQUIRES(strstr(vmm_last_error(), fabric_calls[i].step) != NULL);
        calls_succeed();
        CHILD_REQUIRES(vmm__driver_fabric_check(driver) == VMM_ERR_LOST);
        vmm__driver_close(driver);
        nothing_is_left(0);
    }
}

CHILD_TEST(plain_memory_has_no_fabric_handles)
{
    uint64_t handle = 5;
    struct driver_fabric fabric = { { 0 } };
    struct driver *driver = NULL;
    struct driver_options options = { .device_bytes = 64 * MIB, .is_plain = true };
    CHILD_REQUIRES(vmm__driver_cuda_open(&options, &driver) == VMM_OK);
    CHILD_REQUIRES(vmm__driver_fabric_check(driver) == VMM_ERR_UNSUPPORTED);
    CHILD_REQUIRES(strstr(vmm_last_error(), "memory is plain") != NULL);
    CHILD_REQUIRES(vmm__driver_fabric_import(driver, &fabric, 2 * MIB, &handle) ==
                   VMM_ERR_UNSUPPORTED);
    CHILD_REQUIRES(handle == 5 && driver->handles == 0);
    vmm__driver_close(driver);
}

/* ---- Pools ------------------------------------------------------------------------------------------ */

static vmm_status pool_create(vmm_cache *cache, vmm_share_reach reach)
{
    vmm_pool *pool;
    vmm_pool_options options = VMM_POOL_OPTIONS_INIT;
    options.shareable = (int)reach;
    return vmm_pool_create(cache, &options, &pool);
}

/* As on a machine without IMEX: all else works. */
FAKE_TEST(a_pool_is_refused_where_no_process_may_use_fabric_handles)
{
    vmm_cache *cache = NULL;
    fake->lacks_fabric = true;
    CHILD_REQUIRES(cache_try_create(VMM_DRIVER_CUDA, 0, &cache) == VMM_OK);
    CHILD_REQUIRES(pool_create(cache, VMM_SHARE_FABRIC) == VMM_ERR_UNSUPPORTED);
    CHILD_REQUIRES(strncmp(vmm_last_error(), "vmm_pool_create: shareable: ", 28) == 0);
    CHILD_REQUIRES(strstr(vmm_last_error(), "has no fabric handles: 'create': cuMemCreate(") !=
                   NULL);
    CHILD_REQUIRES(strstr(vmm_last_error(), "(800)") != NULL);
    CHILD_REQUIRES(pool_create(cache, VMM_SHARE_MACHINE) == VMM_OK);
    CHILD_REQUIRES(pool_create(cache, VMM_SHARE_NONE) == VMM_OK);
    fake->lacks_fabric = false;
    CHILD_REQUIRES(pool_create(cache, VMM_SHARE_FABRIC) == VMM_OK);
    CHILD_REQUIRES(vmm_destroy(cache) == VMM_OK);
    nothing_is_left(0);
}

/* A cache and a pool of a machine make no call that fabric handles need. */
FAKE_TEST(only_a_pool_with_fabric_handles_is_tested)
{
    vmm_cache *cache = NULL;
    CHILD_REQUIRES(cache_try_create(VMM_DRIVER_CUDA, 0, &cache) == VMM_OK);
    uint64_t calls = fake->calls;
    CHILD_REQUIRES(pool_create(cache, VMM_SHARE_NONE) == VMM_OK);
    CHILD_REQUIRES(pool_create(cache, VMM_SHARE_MACHINE) == VMM_OK);
    CHILD_REQUIRES(fake->calls == calls);
    CHILD_REQUIRES(pool_create(cache, VMM_SHARE_FABRIC) == VMM_OK);
    CHILD_REQUIRES(fake->calls > calls);
    CHILD_REQUIRES(vmm_destroy(cache) == VMM_OK);
    nothing_is_left(0);
}
