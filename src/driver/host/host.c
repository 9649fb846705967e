/*
 * The host driver: ordinary memory of this machine, for systems without a GPU.
 *
 * Owns: the driver object; its parts own the rest (see internal.h). Physical memory is one memfd, a mapping is a shared
 * mmap of parts of it over reserved addresses, kernels are host functions that worker threads run in stream order.
 * Called by: vmm__driver_open() and through the driver table, any thread.
 */
#define _GNU_SOURCE
#include "base/arith.h"
#include "base/error.h"
#include "base/hostmem.h"
#include "driver/host/internal.h"

#include <inttypes.h>
#include <unistd.h>

static void host_close(struct driver *driver)
{
    struct host_driver *host = vmm__host_of(driver);
    vmm__host_work_close(&host->work);
    vmm__mutex_lock(&host->memory_lock);
    vmm__soft_close(&host->soft);
    vmm__mutex_unlock(&host->memory_lock);
    vmm__host_file_close(&host->file);
    vmm__host_device_close(&host->device);
    vmm__mutex_fini(&host->memory_lock);
    vmm__driver_fini(driver);
    vmm__host_free(host, sizeof *host);
}

#define HOST_CALL_OF(lock, name, parameters, arguments)                                            \
    static vmm_status host_##name parameters                                                       \
    {                                                                                              \
        struct host_driver *self = vmm__host_of(driver);                                           \
        VMM_HOLD(&self->lock);                                                                     \
        return vmm__soft_##name arguments;                                                         \
    }
#define HOST_MEMORY_CALL(name, parameters, arguments)                                              \
    HOST_CALL_OF(memory_lock, name, parameters, arguments)
#define HOST_WORK_CALL(name, parameters, arguments)                                                \
    HOST_CALL_OF(work.lock, name, parameters, arguments)
VMM_DRIVER_MEMORY_MAP(HOST_MEMORY_CALL, struct driver *driver, &self->soft)
VMM_DRIVER_SHARE_MAP(HOST_MEMORY_CALL, struct driver *driver, &self->soft)
VMM_DRIVER_EVENT_MAP(HOST_WORK_CALL, struct driver *driver, &self->soft)
VMM_DRIVER_CAPTURE_MAP(HOST_WORK_CALL, struct driver *driver, &self->soft)

#define HOST_OP_LOCKED(name, parameters, arguments) .name = host_##name,
#define HOST_OP(name, parameters, arguments)        .name = vmm__host_##name,
/* clang-format off */
static const struct driver_ops host_ops = {
    .name = "host",
    .close = host_close,
    VMM_DRIVER_MEMORY_MAP(HOST_OP_LOCKED, , )
    VMM_DRIVER_SHARE_MAP(HOST_OP_LOCKED, , )
    VMM_DRIVER_EVENT_MAP(HOST_OP_LOCKED, , )
    VMM_DRIVER_CONTENTS_MAP(HOST_OP, , )
    VMM_DRIVER_WORK_MAP(HOST_OP, , )
    VMM_DRIVER_CAPTURE_MAP(HOST_OP_LOCKED, , )
};
/* clang-format on */

static uint64_t half_of_ram(void)
{
    long pages = sysconf(_SC_PHYS_PAGES);
    long page_bytes = sysconf(_SC_PAGESIZE);
    if (pages <= 0 || page_bytes <= 0)
        return 0;
    return (uint64_t)pages / 2 * (uint64_t)page_bytes;
}

static vmm_status capacity_choose(const struct driver_options *options, uint64_t *bytes)
{
    uint64_t wanted = options->device_bytes != 0 ? options->device_bytes : half_of_ram();
    uint64_t whole = vmm__align_down(wanted, SOFT_GRANULE_BYTES);
    if (whole == 0 || whole > INT64_MAX / 2)
        return vmm__error(VMM_ERR_INVALID_ARGUMENT,
                          "host driver: device_bytes %" PRIu64
                          " is less than one granule or more than a file can hold",
                          wanted);
    *bytes = whole;
    return VMM_OK;
}

vmm_status vmm__driver_host_open(const struct driver_options *options, struct driver **out)
{
    uint64_t bytes = 0;
    vmm_status status = capacity_choose(options, &bytes);
    if (status != VMM_OK)
        return status;
    struct host_driver *host = vmm__host_alloc(1, sizeof *host);
    if (host == NULL)
        return vmm__error(VMM_ERR_HOST_OOM, "host driver: out of host memory for the driver");
    struct driver *driver = &host->soft.driver;
    vmm__soft_open(&host->soft, &host_ops, &vmm__host_backing, options, bytes, "host memory");
    host->device.descriptor = -1;
    if (options->file != NULL)
        status = vmm__host_device_open(options->file, driver, &host->device);
    if (status != VMM_OK)
        goto fail_device;
    status = vmm__host_file_open(&host->file, driver->total_bytes);
    if (status != VMM_OK)
        goto fail_file;
    vmm__mutex_init(&host->memory_lock);
    vmm__host_work_open(&host->work, &host->soft);
    *out = driver;
    return VMM_OK;

fail_file:
    vmm__host_device_close(&host->device);
fail_device:
    vmm__driver_fini(driver);
    vmm__host_free(host, sizeof *host);
    return status;
}
