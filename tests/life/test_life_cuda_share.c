/*
 * The cuda driver's self-test of sharing: a device that cannot share still opens, and says why. What
 * an import does when CUDA refuses a call.
 */
#define _GNU_SOURCE
#include "life/cuda_support.h"
#include "support/folder_support.h"

#include "base/error.h"

#include <fcntl.h>

/* ---- The self-test ------------------------------------------------------------------------------- */

FAKE_TEST(a_device_that_can_share_is_known)
{
    unsigned char uuid[DRIVER_UUID_BYTES];
    struct driver *driver = driver_open();
    int descriptors = descriptors_open();
    vmm__driver_close(driver);
    driver = driver_open();
    CHILD_REQUIRES(descriptors_open() == descriptors);
    memset(uuid, 1, sizeof uuid);
    CHILD_REQUIRES(driver->has_sharing && driver->sharing_failure[0] == '\0');
    CHILD_REQUIRES(memcmp(driver->uuid, uuid, sizeof uuid) == 0);
    vmm__driver_close(driver);
    nothing_is_left(0);
}

/* The first calls of these names are those of memory that is not shared. */
static const struct test_call share_calls[] = {
    { "cuDeviceGetUuid_v2", 1, "read the UUID" },
    { "cuMemCreate", 2, "create" },
    { "cuMemAddressReserve", 3, "reserve" },
    { "cuMemMap", 3, "map" },
    { "cuMemSetAccess", 3, "set access" },
    { "cuMemsetD8Async", 4, "write and read" },
    { "cuMemcpyDtoHAsync_v2", 4, "write and read" },
    { "cuMemExportToShareableHandle", 1, "export" },
    { "cuMemImportFromShareableHandle", 1, "import" },
    { "cuMemAddressReserve", 4, "import" },
    { "cuMemMap", 4, "import" },
    { "cuMemSetAccess", 4, "import" },
    { "cuMemAddressReserve", 5, "reserve" },
    { "cuMemMap", 5, "map" },
    { "cuMemSetAccess", 5, "set access" },
    { "cuMemsetD8Async", 5, "write and read" },
    { "cuMemcpyDtoHAsync_v2", 5, "write and read" },
    { "cuMemsetD8Async", 6, "write and read" },
    { "cuMemUnmap", 4, "unmap the first" },
    { "cuMemcpyDtoHAsync_v2", 6, "read after the unmap" },
    { "cuMemUnmap", 5, "unmap the second" },
    { "cuMemRelease", 2, "release the import" },
    { "cuMemRelease", 3, "release" },
    { "cuMemAddressFree", 4, "address free" },
    { "cuMemAddressFree", 5, "address free" },
};

enum { SHARE_CALLS = sizeof share_calls / sizeof *share_calls };

static void sharing_is_missing(const struct test_call *call)
{
    uint64_t handle = 5;
    struct driver *driver = driver_open();
    calls_succeed();
    step_is_told(call, "", driver->sharing_failure);
    CHILD_REQUIRES(!driver->has_sharing);
    CHILD_REQUIRES(driver->has_aliases);
    CHILD_REQUIRES(vmm__driver_create(driver, 2 * MIB, true, &handle) == VMM_ERR_UNSUPPORTED);
    step_is_told(call, "", vmm_last_error());
    CHILD_REQUIRES(vmm__driver_share_import(driver, 0, 2 * MIB, &handle) == VMM_ERR_UNSUPPORTED);
    CHILD_REQUIRES(handle == 5);
    vmm__driver_close(driver);
    nothing_is_left(0);
}

FAKE_TEST(a_refused_call_only_costs_the_sharing)
{
    static const int results[] = { CUDA_OOM, CUDA_NOT_SUPPORTED, CUDA_UNKNOWN };
    for (unsigned i = 0; i < SHARE_CALLS; i++) {
        for (unsigned j = 0; j < sizeof results / sizeof *results; j++) {
            call_fail(&share_calls[i], results[j]);
            sharing_is_missing(&share_calls[i]);
        }
    }
}

FAKE_TEST(a_device_that_is_lost_meanwhile_is_told)
{
    struct driver_options options = { .device = 0 };
    for (unsigned i = 0; i < SHARE_CALLS; i++) {
        struct driver *driver = NULL;
        call_fail(&share_calls[i], CUDA_ILLEGAL_ADDRESS);
        CHILD_REQUIRES(vmm__driver_cuda_open(&options, &driver) == VMM_ERR_LOST && driver == NULL);
        CHILD_REQUIRES(strstr(vmm_last_error(), share_calls[i].step) != NULL);
        calls_succeed();
        nothing_is_left(0);
    }
}

CHILD_TEST(plain_memory_is_not_shared)
{
    uint64_t handle = 5;
    struct driver *driver = NULL;
    struct driver_options options = { .device_bytes = 64 * MIB, .is_plain = true };
    CHILD_REQUIRES(vmm__driver_cuda_open(&options, &driver) == VMM_OK);
    CHILD_REQUIRES(!driver->has_sharing);
    CHILD_REQUIRES(vmm__driver_create(driver, 2 * MIB, true, &handle) == VMM_ERR_UNSUPPORTED);
    CHILD_REQUIRES(strstr(vmm_last_error(), "memory is plain") != NULL);
    CHILD_REQUIRES(vmm__driver_share_import(driver, 0, 2 * MIB, &handle) == VMM_ERR_UNSUPPORTED);
    CHILD_REQUIRES(handle == 5 && driver->handles == 0);
    vmm__driver_close(driver);
}

/* ---- Dma-bufs -------------------------------------------------------------------------------------- */

struct mapped {
    struct driver *driver;
    uint64_t handle;
    uint64_t address;
};

static struct mapped mapped_open(void)
{
    struct mapped mapped = { .driver = driver_open() };
    struct driver *driver = mapped.driver;
    CHILD_REQUIRES(vmm__driver_create(driver, 4 * MIB, VMM_SHARE_NONE, &mapped.handle) == VMM_OK);
    CHILD_REQUIRES(vmm__driver_reserve(driver, 4 * MIB, 0, &mapped.address) == VMM_OK);
    CHILD_REQUIRES(vmm__driver_map(driver, mapped.address, 4 * MIB, mapped.handle) == VMM_OK);
    CHILD_REQUIRES(vmm__driver_access(driver, mapped.address, 4 * MIB) == VMM_OK);
    return mapped;
}

static void mapped_close(const struct mapped *mapped)
{
    CHILD_REQUIRES(vmm__driver_unmap(mapped->driver, mapped->address, 4 * MIB) == VMM_OK);
    CHILD_REQUIRES(vmm__driver_release(mapped->driver, mapped->handle, 4 * MIB) == VMM_OK);
    CHILD_REQUIRES(vmm__driver_address_free(mapped->driver, mapped->address, 4 * MIB) == VMM_OK);
    vmm__driver_close(mapped->driver);
    nothing_is_left(0);
    fake_check_misuses();
}

static void dmabuf_is_refused(const struct mapped *mapped, vmm_status status, const char *words)
{
    int fd = -7;
    CHILD_REQUIRES(vmm__driver_dmabuf_export(mapped->driver, mapped->address, 4096, &fd) == status);
    CHILD_REQUIRES(fd == -7 && strstr(vmm_last_error(), words) != NULL);
}

FAKE_TEST(a_dma_buf_is_closed_on_exec)
{
    int fd = -7;
    struct mapped mapped = mapped_open();
    CHILD_REQUIRES(vmm__driver_dmabuf_export(mapped.driver, mapped.address + 4096, 8192, &fd) ==
                   VMM_OK);
    CHILD_REQUIRES((fcntl(fd, F_GETFD) & FD_CLOEXEC) != 0 && lseek(fd, 0, SEEK_END) == 8192);
    CHILD_REQUIRES(close(fd) == 0);
    mapped_close(&mapped);
}

FAKE_TEST(a_refused_dma_buf_is_told)
{
    static const struct {
        int result;
        vmm_status status;
    } results[] = { { CUDA_INVALID_VALUE, VMM_ERR_DRIVER },
                    { CUDA_OOM, VMM_ERR_HOST_OOM },
                    { CUDA_NOT_SUPPORTED, VMM_ERR_UNSUPPORTED },
                    { CUDA_UNKNOWN, VMM_ERR_DRIVER },
                    { CUDA_ILLEGAL_ADDRESS, VMM_ERR_LOST } };
    struct mapped mapped = mapped_open();
    for (unsigned i = 0; i < sizeof results / sizeof *results; i++) {
        fault_set("cuMemGetHandleForAddressRange", results[i].result, 1, true);
        dmabuf_is_refused(&mapped, results[i].status, "cuMemGetHandleForAddressRange(0x");
        calls_succeed();
    }
    mapped_close(&mapped);
}

FAKE_TEST(a_device_without_dma_bufs_says_so)
{
    fake->lacks_dmabuf = true;
    struct mapped mapped = mapped_open();
    dmabuf_is_refused(&mapped, VMM_ERR_UNSUPPORTED, "open kernel modules");
    mapped_close(&mapped);
}

/* ---- Import ---------------------------------------------------------------------------------------- */

/* Imports while one call fails. */
static void import_is_refused(struct driver *driver, int descriptor, const char *call, int result)
{
    uint64_t import = 5;
    uint64_t taken = fake->taken(0);
    fault_set(call, result, 1, true);
    vmm_status status = vmm__driver_share_import(driver, descriptor, 2 * MIB, &import);
    calls_succeed();
    CHILD_REQUIRES(status == (result == CUDA_OOM && strcmp(call, "cuMemAddressReserve") != 0
                                  ? VMM_ERR_DEVICE_OOM
                                  : VMM_ERR_DRIVER));
    CHILD_REQUIRES(strstr(vmm_last_error(), "mport") != NULL);
    CHILD_REQUIRES(import == 5 && driver->imports == 0 && fake->taken(0) == taken);
}

FAKE_TEST(a_failed_import_leaves_nothing)
{
    static const char *const calls[] = { "cuMemImportFromShareableHandle", "cuMemAddressReserve",
                                         "cuMemMap", "cuMemSetAccess" };
    static const int results[] = { CUDA_INVALID_VALUE, CUDA_OOM, CUDA_INVALID_DEVICE,
                                   CUDA_UNKNOWN };
    uint64_t handle;
    int descriptor;
    struct driver *driver = driver_open();
    CHILD_REQUIRES(vmm__driver_create(driver, 2 * MIB, true, &handle) == VMM_OK);
    CHILD_REQUIRES(vmm__driver_share_export(driver, handle, &descriptor) == VMM_OK);
    for (unsigned i = 0; i < sizeof calls / sizeof *calls; i++) {
        for (unsigned j = 0; j < sizeof results / sizeof *results; j++)
            import_is_refused(driver, descriptor, calls[i], results[j]);
    }
    CHILD_REQUIRES(close(descriptor) == 0);
    CHILD_REQUIRES(vmm__driver_release(driver, handle, 2 * MIB) == VMM_OK);
    vmm__driver_close(driver);
    nothing_is_left(0);
}

FAKE_TEST(another_device_imports)
{
    struct driver_options options = { .device = 1 };
    struct driver *other = NULL;
    uint64_t handle;
    uint64_t import;
    uint64_t address;
    int descriptor;
    struct driver *driver = driver_open();
    CHILD_REQUIRES(vmm__driver_cuda_open(&options, &other) == VMM_OK);
    CHILD_REQUIRES(memcmp(driver->uuid, other->uuid, sizeof driver->uuid) != 0);
    CHILD_REQUIRES(vmm__driver_create(driver, 2 * MIB, true, &handle) == VMM_OK);
    CHILD_REQUIRES(vmm__driver_share_export(driver, handle, &descriptor) == VMM_OK);
    CHILD_REQUIRES(vmm__driver_share_import(other, descriptor, 2 * MIB, &import) == VMM_OK);
    CHILD_REQUIRES(vmm__driver_reserve(other, 2 * MIB, 0, &address) == VMM_OK);
    CHILD_REQUIRES(vmm__driver_map(other, address, 2 * MIB, import) == VMM_OK);
    CHILD_REQUIRES(vmm__driver_access(other, address, 2 * MIB) == VMM_OK);
    CHILD_REQUIRES(vmm__driver_unmap(other, address, 2 * MIB) == VMM_OK);
    CHILD_REQUIRES(vmm__driver_address_free(other, address, 2 * MIB) == VMM_OK);
    CHILD_REQUIRES(vmm__driver_share_release(other, import, 2 * MIB) == VMM_OK);
    CHILD_REQUIRES(vmm__driver_release(driver, handle, 2 * MIB) == VMM_OK &&
                   close(descriptor) == 0);
    CHILD_REQUIRES(fake->taken(1) == 0);
    vmm__driver_close(other);
    vmm__driver_close(driver);
    nothing_is_left(0);
}

/* A driver that refuses to undo a step once is asked again. */
FAKE_TEST(an_import_survives_one_refusal_to_undo)
{
    static const char *const calls[] = { "cuMemUnmap", "cuMemAddressFree" };
    uint64_t handle;
    uint64_t import;
    int descriptor;
    struct driver *driver = driver_open();
    for (unsigned i = 0; i < sizeof calls / sizeof *calls; i++) {
        CHILD_REQUIRES(vmm__driver_create(driver, 2 * MIB, true, &handle) == VMM_OK);
        CHILD_REQUIRES(vmm__driver_share_export(driver, handle, &descriptor) == VMM_OK);
        (void)vmm__error(VMM_ERR_DRIVER, "before");
        fault_set(calls[i], CUDA_UNKNOWN, 1, true);
        CHILD_REQUIRES(vmm__driver_share_import(driver, descriptor, 2 * MIB, &import) == VMM_OK);
        CHILD_REQUIRES(strcmp(vmm_last_error(), "before") == 0);
        calls_succeed();
        CHILD_REQUIRES(close(descriptor) == 0);
        CHILD_REQUIRES(vmm__driver_share_release(driver, import, 2 * MIB) == VMM_OK);
        CHILD_REQUIRES(vmm__driver_release(driver, handle, 2 * MIB) == VMM_OK);
        CHILD_REQUIRES(fake->taken(0) == 0);
    }
    vmm__driver_close(driver);
}

/* A device that is lost takes the import back without its context, which each call but a release asks for its id. */
static void import_loses_device(uint64_t from)
{
    uint64_t handle;
    uint64_t import = 5;
    int descriptor;
    struct driver *driver = driver_open();
    CHILD_REQUIRES(vmm__driver_create(driver, 2 * MIB, true, &handle) == VMM_OK);
    CHILD_REQUIRES(vmm__driver_share_export(driver, handle, &descriptor) == VMM_OK);
    fault_set("cuCtxGetId", CUDA_DESTROYED, from, false);
    CHILD_REQUIRES(vmm__driver_share_import(driver, descriptor, 2 * MIB, &import) == VMM_ERR_LOST);
    calls_succeed();
    CHILD_REQUIRES(strstr(vmm_last_error(), "(709)") != NULL);
    CHILD_REQUIRES(close(descriptor) == 0 && import == 5);
    CHILD_REQUIRES(vmm__driver_release(driver, handle, 2 * MIB) == VMM_OK);
    vmm__driver_close(driver);
    nothing_is_left(0);
}

FAKE_TEST(an_import_that_loses_the_device_leaves_nothing)
{
    enum { CALLS = 6 }; /* import, reserve, map, set access, unmap, address free */
    for (uint64_t from = 1; from <= CALLS; from++)
        import_loses_device(from);
}
