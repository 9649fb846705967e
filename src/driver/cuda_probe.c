/*
 * What a CUDA device can do: its attributes, and a test of every memory call, because there are
 * systems on which the attributes promise what the calls refuse.
 *
 * Owns: nothing. Called by: cuda.c while it opens the driver, with the context current.
 */
#ifdef VMM_WITH_CUDA
#define _GNU_SOURCE
#include "base/arith.h"
#include "base/error.h"
#include "driver/cuda_internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* ---- What the device tells ------------------------------------------------------------------- */

static vmm_status attribute_read(const struct cuda_driver *cuda, CUdevice_attribute attribute,
                                 int *value)
{
    CUresult result = cuda->api->cuDeviceGetAttribute(value, attribute, cuda->device);
    return vmm__cuda_status(cuda->api, result, VMM_ERR_HOST_OOM, "cuDeviceGetAttribute(%d)",
                            (int)attribute);
}

/* Drivers that do not know this attribute do not offer it either. */
static bool rdma_is_offered(const struct cuda_driver *cuda)
{
    int offered = 0;
    CUresult result = cuda->api->cuDeviceGetAttribute(
        &offered, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED, cuda->device);
    return result == CUDA_SUCCESS && offered != 0;
}

/* "580.159.03 (CUDA 13.0)"; without the first part where the kernel module does not tell it. */
static void version_read(struct cuda_driver *cuda)
{
    char module[40] = "";
    int cuda_version = 0;
    FILE *file = fopen("/sys/module/nvidia/version", "re");
    if (file != NULL) {
        if (fgets(module, sizeof module, file) == NULL)
            module[0] = '\0';
        module[strcspn(module, "\n")] = '\0';
        (void)fclose(file);
    }
    (void)cuda->api->cuDriverGetVersion(&cuda_version);
    (void)snprintf(cuda->base.version, sizeof cuda->base.version,
                   module[0] != '\0' ? "%s (CUDA %d.%d)" : "%sCUDA %d.%d", module,
                   cuda_version / 1000, cuda_version % 1000 / 10);
}

/* Pinned device memory that cannot be exported. */
static void memory_describe(struct cuda_driver *cuda, bool rdma_capable)
{
    CUmemLocation here = { .type = CU_MEM_LOCATION_TYPE_DEVICE, .id = cuda->device };
    cuda->property = (CUmemAllocationProp){ .type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                            .requestedHandleTypes = CU_MEM_HANDLE_TYPE_NONE,
                                            .location = here };
    cuda->property.allocFlags.gpuDirectRDMACapable = rdma_capable;
    cuda->access[0] =
        (CUmemAccessDesc){ .location = here, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE };
    cuda->access_count = 1;
}

/* Devices that cannot reach this one's memory get no access to it: copies go through the host then. */
static vmm_status peer_add(struct cuda_driver *cuda, int ordinal)
{
    CUdevice peer;
    int can = 0;
    CUresult result = cuda->api->cuDeviceGet(&peer, ordinal);
    if (result == CUDA_SUCCESS && peer != cuda->device)
        result = cuda->api->cuDeviceCanAccessPeer(&can, peer, cuda->device);
    if (result != CUDA_SUCCESS)
        return vmm__cuda_status(cuda->api, result, VMM_ERR_HOST_OOM, "peer_devices: device %d",
                                ordinal);
    if (can != 0) {
        CUmemAccessDesc access = cuda->access[0];
        access.location.id = peer;
        cuda->access[cuda->access_count++] = access;
    }
    return VMM_OK;
}

static vmm_status peers_read(struct cuda_driver *cuda)
{
    int count = 0;
    CUresult result = cuda->api->cuDeviceGetCount(&count);
    vmm_status status = vmm__cuda_status(cuda->api, result, VMM_ERR_HOST_OOM, "cuDeviceGetCount");
    for (int i = 0; i < count && i < CUDA_PEERS_MOST && status == VMM_OK; i++) {
        if ((cuda->peer_devices >> i & 1) != 0)
            status = peer_add(cuda, i);
    }
    return status;
}

static vmm_status granularity_read(struct cuda_driver *cuda)
{
    size_t granularity = 0;
    CUresult result = cuda->api->cuMemGetAllocationGranularity(&granularity, &cuda->property,
                                                               CU_MEM_ALLOC_GRANULARITY_MINIMUM);
    if (result == CUDA_SUCCESS && (granularity == 0 || (granularity & (granularity - 1)) != 0))
        return vmm__error(VMM_ERR_UNSUPPORTED,
                          "cuMemGetAllocationGranularity: %zu is not a power of two", granularity);
    cuda->base.granule_bytes = granularity;
    vmm_status status =
        vmm__cuda_status(cuda->api, result, VMM_ERR_HOST_OOM, "cuMemGetAllocationGranularity");
    return status == VMM_ERR_DRIVER ? VMM_ERR_UNSUPPORTED : status;
}

vmm_status vmm__cuda_device_read(struct cuda_driver *cuda)
{
    int supported = 0;
    int processors = 0;
    uint64_t free_bytes;
    vmm_status status =
        attribute_read(cuda, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, &supported);
    if (status == VMM_OK && supported == 0)
        status = vmm__error(VMM_ERR_UNSUPPORTED,
                            "%s: the device has no virtual memory management (attribute %d is 0)",
                            cuda->base.device_name,
                            (int)CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED);
    if (status == VMM_OK)
        status = attribute_read(cuda, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, &processors);
    if (status != VMM_OK)
        return status;
    memory_describe(cuda, rdma_is_offered(cuda));
    cuda->blocks_limit = (unsigned)(processors > 0 ? processors : 1) * 8;
    version_read(cuda);
    status = granularity_read(cuda);
    if (status == VMM_OK)
        status = peers_read(cuda);
    if (status != VMM_OK)
        return status;
    return vmm__cuda_memory_info(&cuda->base, &free_bytes, &cuda->base.total_bytes);
}

/* ---- Every memory call once ------------------------------------------------------------------ */

struct probe {
    const char *step; /* that was made last, or that failed first */
    vmm_status status;
    char reason[320]; /* the line of that failure */
    uint64_t address; /* 0: not reserved */
    uint64_t handle;
    bool is_created;
    bool is_mapped;
};

static vmm_status word_round_trip(struct cuda_driver *cuda, uint64_t address)
{
    const uint32_t written = 0xC0FFEE42U;
    uint32_t read = 0;
    CUresult result = cuda->api->cuMemcpyHtoD_v2(address, &written, sizeof written);
    if (result == CUDA_SUCCESS)
        result = cuda->api->cuMemcpyDtoH_v2(&read, address, sizeof read);
    if (result != CUDA_SUCCESS)
        return vmm__cuda_status(cuda->api, result, VMM_ERR_DEVICE_OOM, "copy of a word");
    if (read != written)
        return vmm__error(VMM_ERR_UNSUPPORTED, "wrote 0x%" PRIx32 " and read 0x%" PRIx32, written,
                          read);
    return VMM_OK;
}

static vmm_status probe_make(struct cuda_driver *cuda, struct probe *probe)
{
    struct driver *driver = &cuda->base;
    uint64_t bytes = driver->granule_bytes;
    probe->step = "reserve";
    vmm_status status = vmm__cuda_reserve(driver, bytes, &probe->address);
    if (status != VMM_OK)
        return status;
    probe->step = "create";
    status = vmm__cuda_create(driver, bytes, &probe->handle);
    probe->is_created = status == VMM_OK;
    if (status != VMM_OK)
        return status;
    probe->step = "map";
    status = vmm__cuda_map(driver, probe->address, bytes, probe->handle);
    probe->is_mapped = status == VMM_OK;
    if (status != VMM_OK)
        return status;
    probe->step = "set access";
    status = vmm__cuda_access(driver, probe->address, bytes);
    if (status != VMM_OK)
        return status;
    probe->step = "write and read";
    return word_round_trip(cuda, probe->address);
}

/* Keeps the first failure of all, and its line. A lost device takes back what it has without its context. */
static void probe_note(struct cuda_driver *cuda, struct probe *probe, const char *step,
                       vmm_status status)
{
    if (status == VMM_ERR_LOST)
        vmm__lost_note(&cuda->base.lost);
    if (status == VMM_OK || probe->status != VMM_OK)
        return;
    probe->status = status;
    probe->step = step;
    (void)snprintf(probe->reason, sizeof probe->reason, "%s", vmm_last_error());
}

/* Tries what is left to do: addresses that are still mapped cannot be given back, memory can. */
static void probe_undo(struct cuda_driver *cuda, struct probe *probe)
{
    struct driver *driver = &cuda->base;
    uint64_t bytes = driver->granule_bytes;
    vmm_status status;
    if (probe->is_mapped) {
        status = vmm__cuda_unmap(driver, probe->address, bytes);
        probe->is_mapped = status != VMM_OK;
        probe_note(cuda, probe, "unmap", status);
    }
    if (probe->is_created) {
        status = vmm__cuda_release(driver, probe->handle, bytes);
        probe->is_created = status != VMM_OK;
        probe_note(cuda, probe, "release", status);
    }
    if (probe->address != 0 && !probe->is_mapped) {
        status = vmm__cuda_address_free(driver, probe->address, bytes);
        probe->address = status == VMM_OK ? 0 : probe->address;
        probe_note(cuda, probe, "address free", status);
    }
}

static vmm_status probe_run(struct cuda_driver *cuda)
{
    struct probe probe = { .step = "start" };
    vmm_status status = probe_make(cuda, &probe);
    probe_note(cuda, &probe, probe.step, status);
    probe_undo(cuda, &probe);
    probe_undo(cuda, &probe); /* what the driver refused is tried once more */
    status = probe.status;
    if (status == VMM_OK)
        return VMM_OK;
    if (status != VMM_ERR_DEVICE_OOM && status != VMM_ERR_LOST)
        status = VMM_ERR_UNSUPPORTED;
    return vmm__error(status, "%s failed its self-test at '%s': %s", cuda->base.device_name,
                      probe.step, probe.reason);
}

/* Where memory with the flag is refused though the device offers it, memory without it will do. */
vmm_status vmm__cuda_self_test(struct cuda_driver *cuda)
{
    struct error_line before;
    vmm__error_save(&before);
    vmm_status status = probe_run(cuda);
    if (status == VMM_ERR_UNSUPPORTED && cuda->property.allocFlags.gpuDirectRDMACapable) {
        cuda->property.allocFlags.gpuDirectRDMACapable = 0;
        status = probe_run(cuda);
        if (status == VMM_OK)
            vmm__error_restore(&before);
    }
    return status;
}

#endif
