/*
 * Device attributes and the self-test of every memory call. On some systems the calls fail although the attributes
 * promise support.
 *
 * Owns: nothing. Called by: cuda.c during open, with the context current; fabric_check and peers_check by the driver
 * table, any thread.
 */
#define _GNU_SOURCE
#include "base/arith.h"
#include "base/error.h"
#include "driver/cuda/internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* ---- Device attributes ----------------------------------------------------------------------- */

static vmm_status attribute_read(const struct cuda_driver *cuda, CUdevice_attribute attribute,
                                 int *value)
{
    CUresult result = cuda->api->cuDeviceGetAttribute(value, attribute, cuda->device);
    return vmm__cuda_status(cuda->api, result, VMM_ERR_HOST_OOM, "cuDeviceGetAttribute(%d)",
                            (int)attribute);
}

/* A driver that does not know an attribute does not support what it stands for either. */
static bool is_offered(const struct cuda_driver *cuda, CUdevice_attribute attribute)
{
    int offered = 0;
    CUresult result = cuda->api->cuDeviceGetAttribute(&offered, attribute, cuda->device);
    return result == CUDA_SUCCESS && offered != 0;
}

/* "580.159.03 (CUDA 13.0)"; without the first part if the kernel module does not report it. */
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

/* Describes pinned device memory that cannot be exported. */
static void memory_describe(struct cuda_driver *cuda, bool rdma_capable)
{
    CUmemLocation here = { .type = CU_MEM_LOCATION_TYPE_DEVICE, .id = cuda->device };
    cuda->property = (CUmemAllocationProp){ .type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                            .requestedHandleTypes = CU_MEM_HANDLE_TYPE_NONE,
                                            .location = here };
    cuda->property.allocFlags.gpuDirectRDMACapable = rdma_capable;
}

/* Whether a device, which is not this one, can access this device's memory. */
static vmm_status peer_read(const struct cuda_driver *cuda, int ordinal, int *can)
{
    CUdevice peer;
    CUresult result = cuda->api->cuDeviceGet(&peer, ordinal);
    if (result == CUDA_SUCCESS)
        result = cuda->api->cuDeviceCanAccessPeer(can, peer, cuda->device);
    return vmm__cuda_status(cuda->api, result, VMM_ERR_HOST_OOM, "peer_devices: device %d",
                            ordinal);
}

/* Skips devices that cannot access this device's memory: copies between them go through the host. */
static vmm_status peers_read(struct cuda_driver *cuda, uint64_t wanted)
{
    int count = 0;
    uint64_t peers = 0;
    vmm_status status = vmm__cuda_device_count(cuda->api, &count);
    for (int i = 0; i < count && status == VMM_OK; i++) {
        int can = 0;
        if (i != cuda->device && (wanted & vmm__driver_device_bit(i)) != 0)
            status = peer_read(cuda, i, &can);
        peers |= can != 0 ? vmm__driver_device_bit(i) : 0;
    }
    vmm__driver_peers_set(&cuda->base, peers);
    return status;
}

static vmm_status peer_check(const struct cuda_driver *cuda, int ordinal, int count)
{
    int can = 0;
    vmm_status status = ordinal < count ? peer_read(cuda, ordinal, &can) : VMM_OK;
    if (status != VMM_OK || can != 0)
        return status;
    return vmm__error(VMM_ERR_UNSUPPORTED, "device %d %s device %d", ordinal,
                      ordinal < count ? "cannot access memory of" : "does not exist beside",
                      (int)cuda->device);
}

vmm_status vmm__cuda_peers_check(struct driver *driver, uint64_t devices)
{
    const struct cuda_driver *cuda = vmm__cuda_of(driver);
    struct cuda_scope scope;
    int count = 0;
    vmm_status status = vmm__cuda_enter(cuda, &scope);
    if (status != VMM_OK)
        return status;
    status = vmm__cuda_device_count(cuda->api, &count);
    for (; devices != 0 && status == VMM_OK; devices &= devices - 1)
        status = peer_check(cuda, __builtin_ctzll(devices), count);
    vmm__cuda_leave(cuda, &scope);
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

/*
 * A device that is coherent with the host and has memory of its own, as GH200, is not integrated: its memory is a node
 * beside that of the system, whose MemAvailable counts both, so cuMemGetInfo() stands.
 */
static vmm_status integrated_read(struct cuda_driver *cuda)
{
    int integrated = 0;
    vmm_status status = attribute_read(cuda, CU_DEVICE_ATTRIBUTE_INTEGRATED, &integrated);
    cuda->is_integrated = integrated != 0;
    return status;
}

vmm_status vmm__cuda_device_read(struct cuda_driver *cuda, uint64_t peer_devices)
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
    if (status == VMM_OK)
        status = integrated_read(cuda);
    if (status != VMM_OK)
        return status;
    memory_describe(cuda,
                    is_offered(cuda, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED));
    cuda->has_dmabuf = is_offered(cuda, CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED);
    cuda->blocks_limit = (unsigned)(processors > 0 ? processors : 1) * 8;
    version_read(cuda);
    status = granularity_read(cuda);
    if (status == VMM_OK)
        status = peers_read(cuda, peer_devices);
    if (status != VMM_OK)
        return status;
    return vmm__cuda_memory_info(&cuda->base, &free_bytes, &cuda->base.total_bytes);
}

/* ---- Every memory call once ------------------------------------------------------------------ */

struct probe_failure {
    vmm_status status; /* VMM_OK: no failure so far */
    const char *step;
    char reason[320];
};

struct probe_range {
    uint64_t address; /* 0: not reserved */
    bool is_mapped;
};

/* One piece of memory. Every device must support its mapping at `home`; `alias` is a second mapping, of the same handle
 * or of an imported one. */
struct probe {
    const char *step;      /* the current step */
    vmm_share_reach reach; /* not NONE: the memory is exported and imported */
    vmm_stream stream;     /* of the work on it; NULL: the default one, else its own */
    uint64_t handle;
    bool is_created;
    uint64_t import;
    bool is_imported;
    struct probe_range home;
    struct probe_range alias;
    struct probe_failure failure;       /* of what every device must support */
    struct probe_failure extra_failure; /* of the second mapping or of sharing */
};

static vmm_status range_map(struct cuda_driver *cuda, struct probe *probe, uint64_t handle,
                            struct probe_range *range)
{
    struct driver *driver = &cuda->base;
    uint64_t bytes = driver->granule_bytes;
    probe->step = "reserve";
    vmm_status status = vmm__cuda_reserve(driver, bytes, 0, &range->address);
    if (status != VMM_OK)
        return status;
    probe->step = "map";
    status = vmm__cuda_map(driver, range->address, bytes, handle);
    range->is_mapped = status == VMM_OK;
    if (status != VMM_OK)
        return status;
    probe->step = "set access";
    return vmm__cuda_access(driver, range->address, bytes);
}

static vmm_status range_unmap(struct cuda_driver *cuda, struct probe_range *range)
{
    vmm_status status = vmm__cuda_unmap(&cuda->base, range->address, cuda->base.granule_bytes);
    range->is_mapped = status != VMM_OK;
    return status;
}

static vmm_status word_compare(uint32_t written, uint32_t read)
{
    if (read != written)
        return vmm__error(VMM_ERR_UNSUPPORTED, "wrote 0x%" PRIx32 " but read 0x%" PRIx32, written,
                          read);
    return VMM_OK;
}

static vmm_status word_round_trip(struct cuda_driver *cuda, uint64_t address)
{
    const uint32_t written = 0xC0FFEE42U;
    uint32_t read = 0;
    CUresult result = cuda->api->cuMemcpyHtoD_v2(address, &written, sizeof written);
    if (result == CUDA_SUCCESS)
        result = cuda->api->cuMemcpyDtoH_v2(&read, address, sizeof read);
    if (result != CUDA_SUCCESS)
        return vmm__cuda_status(cuda->api, result, VMM_ERR_DEVICE_OOM, "copy of a word");
    return word_compare(written, read);
}

static vmm_status memory_open(struct cuda_driver *cuda, struct probe *probe)
{
    probe->step = "create";
    vmm_status status =
        vmm__cuda_create(&cuda->base, cuda->base.granule_bytes, probe->reach, &probe->handle);
    probe->is_created = status == VMM_OK;
    return status == VMM_OK ? range_map(cuda, probe, probe->handle, &probe->home) : status;
}

static vmm_status memory_try(struct cuda_driver *cuda, struct probe *probe)
{
    vmm_status status = memory_open(cuda, probe);
    if (status != VMM_OK)
        return status;
    probe->step = "write and read";
    return word_round_trip(cuda, probe->home.address);
}

/* ---- The same memory at two addresses ------------------------------------------------------------- */

enum { ALIAS_WORD_BYTES = 4 };

static vmm_status byte_write(struct cuda_driver *cuda, const struct probe *probe, uint64_t address,
                             uint8_t value)
{
    return vmm__cuda_clear(&cuda->base, address, ALIAS_WORD_BYTES, value, probe->stream);
}

/* Only stream order places this read after byte_write(). */
static vmm_status byte_expect(struct cuda_driver *cuda, const struct probe *probe, uint64_t address,
                              uint8_t value)
{
    uint32_t read = 0;
    struct driver_piece piece = { .address = address, .bytes = sizeof read, .host = &read };
    vmm_status status = vmm__cuda_read(&cuda->base, &piece, 1, probe->stream);
    return status == VMM_OK ? word_compare(value * 0x01010101U, read) : status;
}

/* Unmaps the older mapping while a write through the younger one may be in progress. Reads even if the unmap fails,
 * because the read waits for that write. */
static vmm_status alias_outlives_home(struct cuda_driver *cuda, struct probe *probe)
{
    const uint8_t value = 0xA7;
    vmm_status status = byte_write(cuda, probe, probe->alias.address, value);
    if (status != VMM_OK)
        return status;
    probe->step = "unmap the first";
    vmm_status unmapped = range_unmap(cuda, &probe->home);
    struct error_line line;
    vmm__error_save(&line);
    status = byte_expect(cuda, probe, probe->alias.address, value);
    if (unmapped != VMM_OK) {
        vmm__error_restore(&line);
        return unmapped;
    }
    probe->step = "read after the unmap";
    return status;
}

static vmm_status alias_try(struct cuda_driver *cuda, struct probe *probe, uint64_t handle)
{
    const uint8_t value = 0x5B;
    vmm_status status = range_map(cuda, probe, handle, &probe->alias);
    if (status != VMM_OK)
        return status;
    probe->step = "write and read";
    status = byte_write(cuda, probe, probe->home.address, value);
    if (status == VMM_OK)
        status = byte_expect(cuda, probe, probe->alias.address, value);
    return status == VMM_OK ? alias_outlives_home(cuda, probe) : status;
}

/* ---- An exported handle ---------------------------------------------------------------------- */

static vmm_status uuid_read(struct cuda_driver *cuda)
{
    CUuuid uuid;
    if (cuda->api->cuDeviceGetUuid_v2 == NULL)
        return vmm__error(VMM_ERR_UNSUPPORTED, "the driver is older than CUDA 11.4");
    CUresult result = cuda->api->cuDeviceGetUuid_v2(&uuid, cuda->device);
    if (result == CUDA_SUCCESS)
        memcpy(cuda->base.uuid, uuid.bytes, sizeof cuda->base.uuid);
    cuda->base.is_shared = result == CUDA_SUCCESS;
    return vmm__cuda_status(cuda->api, result, VMM_ERR_HOST_OOM, "cuDeviceGetUuid");
}

/* Exports the granule, in the way of its reach, and imports it. */
static vmm_status granule_pass(struct cuda_driver *cuda, struct probe *probe)
{
    struct driver *driver = &cuda->base;
    struct driver_fabric fabric;
    int descriptor = -1;
    bool is_fabric = probe->reach == VMM_SHARE_FABRIC;
    probe->step = "export";
    vmm_status status = is_fabric ? vmm__cuda_fabric_export(driver, probe->handle, &fabric)
                                  : vmm__cuda_share_export(driver, probe->handle, &descriptor);
    if (status != VMM_OK)
        return status;
    probe->step = "import";
    if (is_fabric)
        status = vmm__cuda_fabric_import(driver, &fabric, driver->granule_bytes, &probe->import);
    else
        status = vmm__cuda_share_import(driver, descriptor, driver->granule_bytes, &probe->import);
    probe->is_imported = status == VMM_OK;
    if (descriptor >= 0)
        (void)close(descriptor);
    return status;
}

static vmm_status sharing_try(struct cuda_driver *cuda, struct probe *probe)
{
    probe->step = "read the UUID";
    vmm_status status = uuid_read(cuda);
    if (status == VMM_OK)
        status = memory_try(cuda, probe);
    if (status == VMM_OK)
        status = granule_pass(cuda, probe);
    return status == VMM_OK ? alias_try(cuda, probe, probe->import) : status;
}

/* Any thread may ask, also while a stream is under capture: all work is on a stream of its own. */
static vmm_status fabric_try(struct cuda_driver *cuda, struct probe *probe)
{
    probe->step = "create a stream";
    vmm_status status = vmm__cuda_stream_create(&cuda->base, &probe->stream);
    if (status == VMM_OK)
        status = memory_open(cuda, probe);
    if (status == VMM_OK)
        status = granule_pass(cuda, probe);
    return status == VMM_OK ? alias_try(cuda, probe, probe->import) : status;
}

/* ---- The whole self-test --------------------------------------------------------------------- */

/* Records the first failure with its line. After a lost device, releases run without its context. */
static void failure_note(struct cuda_driver *cuda, struct probe_failure *failure, const char *step,
                         vmm_status status)
{
    if (status == VMM_ERR_LOST)
        vmm__lost_note(&cuda->base.lost);
    if (status == VMM_OK || failure->status != VMM_OK)
        return;
    failure->status = status;
    failure->step = step;
    (void)snprintf(failure->reason, sizeof failure->reason, "%s", vmm_last_error());
}

/* A lost device fails the whole self-test, whichever part lost it. */
static void extra_note(struct cuda_driver *cuda, struct probe *probe, const char *step,
                       vmm_status status)
{
    failure_note(cuda, status == VMM_ERR_LOST ? &probe->failure : &probe->extra_failure, step,
                 status);
}

/* Of shared memory, every step is part of sharing. */
static void home_note(struct cuda_driver *cuda, struct probe *probe, const char *step,
                      vmm_status status)
{
    if (probe->reach != VMM_SHARE_NONE)
        extra_note(cuda, probe, step, status);
    else
        failure_note(cuda, &probe->failure, step, status);
}

static vmm_status range_free(struct cuda_driver *cuda, struct probe_range *range)
{
    if (range->address == 0 || range->is_mapped)
        return VMM_OK;
    vmm_status status =
        vmm__cuda_address_free(&cuda->base, range->address, cuda->base.granule_bytes);
    range->address = status == VMM_OK ? 0 : range->address;
    return status;
}

/* Undoes the remaining steps, newest mapping first: addresses that are still mapped cannot be freed, but memory can be
 * released. */
static void probe_undo(struct cuda_driver *cuda, struct probe *probe)
{
    uint64_t bytes = cuda->base.granule_bytes;
    vmm_status status;
    if (probe->alias.is_mapped)
        extra_note(cuda, probe, "unmap the second", range_unmap(cuda, &probe->alias));
    if (probe->home.is_mapped)
        home_note(cuda, probe, "unmap", range_unmap(cuda, &probe->home));
    if (probe->is_imported) {
        status = vmm__cuda_share_release(&cuda->base, probe->import, bytes);
        probe->is_imported = status != VMM_OK;
        extra_note(cuda, probe, "release the import", status);
    }
    if (probe->is_created) {
        status = vmm__cuda_release(&cuda->base, probe->handle, bytes);
        probe->is_created = status != VMM_OK;
        home_note(cuda, probe, "release", status);
    }
    extra_note(cuda, probe, "address free", range_free(cuda, &probe->alias));
    home_note(cuda, probe, "address free", range_free(cuda, &probe->home));
    if (probe->stream != NULL && !vmm__driver_is_lost(&cuda->base)) {
        status = vmm__cuda_stream_destroy(&cuda->base, probe->stream);
        probe->stream = status == VMM_OK ? NULL : probe->stream;
        extra_note(cuda, probe, "destroy the stream", status);
    }
}

static void probe_end(struct cuda_driver *cuda, struct probe *probe)
{
    probe_undo(cuda, probe);
    probe_undo(cuda, probe); /* retries what the driver refused */
}

static void memory_probe(struct cuda_driver *cuda, struct probe *probe)
{
    vmm_status status = memory_try(cuda, probe);
    failure_note(cuda, &probe->failure, probe->step, status);
    if (status == VMM_OK) {
        status = alias_try(cuda, probe, probe->handle);
        extra_note(cuda, probe, probe->step, status);
    }
    probe_end(cuda, probe);
}

/* A capture that is under way would be spoiled: then the events are believed to work. */
static vmm_status clock_try(struct cuda_driver *cuda, struct probe *probe)
{
    struct driver *driver = &cuda->base;
    void *event;
    bool is_capturing = false;
    probe->step = "record all work";
    vmm_status status = vmm__cuda_capturing(driver, &(vmm_stream){ NULL }, 1, &is_capturing);
    if (status != VMM_OK || is_capturing)
        return status;
    status = vmm__cuda_event_create(driver, &event);
    if (status != VMM_OK)
        return status;
    status = vmm__cuda_clock_record(driver, event);
    if (status == VMM_OK)
        status = vmm__cuda_event_wait(driver, event);
    vmm_status ended = vmm__cuda_event_destroy(driver, event);
    if (status == VMM__PENDING)
        status = VMM_OK;
    return status != VMM_OK ? status : ended;
}

/* Tries what a cache can do without. */
static void extra_probe(struct cuda_driver *cuda, struct probe *probe,
                        vmm_status (*try)(struct cuda_driver *cuda, struct probe *probe))
{
    vmm_status status = try(cuda, probe);
    extra_note(cuda, probe, probe->step, status);
    probe_end(cuda, probe);
}

/* Stores the step and the reason: a cache works without aliases, and without sharing. Returns whether it has them. */
static bool extra_store(const struct probe *probe, char *text, size_t text_bytes)
{
    const struct probe_failure *failure = &probe->extra_failure;
    if (failure->status == VMM_OK)
        return true;
    (void)snprintf(text, text_bytes, "'%s': %s", failure->step, failure->reason);
    return false;
}

static vmm_status failure_status(const struct probe_failure *failure)
{
    bool passes_through = failure->status == VMM_ERR_DEVICE_OOM || failure->status == VMM_ERR_LOST;
    return passes_through ? failure->status : VMM_ERR_UNSUPPORTED;
}

static vmm_status probe_run(struct cuda_driver *cuda)
{
    struct driver *driver = &cuda->base;
    struct probe memory = { .reach = VMM_SHARE_NONE };
    struct probe sharing = { .reach = VMM_SHARE_MACHINE };
    struct probe clock = { .reach = VMM_SHARE_NONE };
    const struct probe_failure *failure = &memory.failure;
    memory_probe(cuda, &memory);
    if (failure->status == VMM_OK) {
        extra_probe(cuda, &sharing, sharing_try);
        failure = &sharing.failure;
    }
    if (failure->status == VMM_OK) {
        extra_probe(cuda, &clock, clock_try);
        failure = &clock.failure;
    }
    driver->has_clock = extra_store(&clock, driver->clock_failure, sizeof driver->clock_failure);
    driver->has_aliases = extra_store(&memory, driver->alias_failure, sizeof driver->alias_failure);
    driver->has_sharing =
        extra_store(&sharing, driver->sharing_failure, sizeof driver->sharing_failure);
    if (failure->status == VMM_OK)
        return VMM_OK;
    return vmm__error(failure_status(failure), "%s failed its self-test at '%s': %s",
                      cuda->base.device_name, failure->step, failure->reason);
}

/* If the device reports support for the RDMA flag but refuses such memory, retries without the flag. */
vmm_status vmm__cuda_self_test(struct cuda_driver *cuda)
{
    struct error_line before;
    vmm__error_save(&before);
    vmm_status status = probe_run(cuda);
    if (status == VMM_ERR_UNSUPPORTED && cuda->property.allocFlags.gpuDirectRDMACapable) {
        cuda->property.allocFlags.gpuDirectRDMACapable = 0;
        status = probe_run(cuda);
    }
    if (status == VMM_OK)
        vmm__error_restore(&before);
    return status;
}

/* ---- Fabric handles: when a pool asks for them -------------------------------------------------- */

vmm_status vmm__cuda_fabric_check(struct driver *driver)
{
    struct probe probe = { .reach = VMM_SHARE_FABRIC };
    const struct probe_failure *failure = &probe.failure;
    struct error_line before;
    if (!driver->has_sharing)
        return vmm__cuda_sharing_refuse(driver);
    vmm__error_save(&before);
    extra_probe(vmm__cuda_of(driver), &probe, fabric_try);
    if (failure->status == VMM_OK)
        failure = &probe.extra_failure;
    if (failure->status == VMM_OK) {
        vmm__error_restore(&before);
        return VMM_OK;
    }
    return vmm__error(failure_status(failure), "%s has no fabric handles: '%s': %s",
                      driver->device_name, failure->step, failure->reason);
}
