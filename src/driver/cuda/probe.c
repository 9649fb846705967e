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

/* Takes back what a step made of one granule. */
typedef vmm_status probe_undo_fn(struct driver *driver, uint64_t subject, uint64_t bytes);

struct probe_made {
    probe_undo_fn *undo; /* NULL: it is undone */
    const char *step;    /* that undoes it */
    uint64_t subject;
    bool is_extra;
};

enum { PROBE_MADE_MOST = 8 };

/* One piece of memory. Every device must support its mapping at `home`; the second mapping, of the same handle or of an
 * imported one, is extra. */
struct probe {
    const char *step;      /* the current step */
    bool is_extra;         /* a cache can do without it */
    vmm_share_reach reach; /* not NONE: the memory is exported and imported */
    vmm_stream stream;     /* of the work on it; NULL: the default one, else its own */
    uint64_t handle;
    uint64_t home;  /* address */
    uint64_t alias; /* address */
    unsigned made_count;
    struct probe_made made[PROBE_MADE_MOST];
    struct probe_failure failure;       /* of what every device must support */
    struct probe_failure extra_failure; /* of the rest */
};

/* Records the first failure with its line. After a lost device, releases run without its context, and it fails the
 * whole self-test, whichever part lost it. */
static void failure_note(struct cuda_driver *cuda, struct probe *probe, bool is_extra,
                         const char *step, vmm_status status)
{
    bool is_lost = status == VMM_ERR_LOST;
    struct probe_failure *failure = is_extra && !is_lost ? &probe->extra_failure : &probe->failure;
    if (is_lost)
        vmm__lost_note(&cuda->base.lost);
    if (status == VMM_OK || failure->status != VMM_OK)
        return;
    failure->status = status;
    failure->step = step;
    (void)snprintf(failure->reason, sizeof failure->reason, "%s", vmm_last_error());
}

/* Lists what a step that succeeded made. */
static vmm_status made_add(struct probe *probe, vmm_status status, uint64_t subject,
                           const char *step, probe_undo_fn *undo)
{
    if (status == VMM_OK)
        probe->made[probe->made_count++] = (struct probe_made){
            .undo = undo, .step = step, .subject = subject, .is_extra = probe->is_extra
        };
    return status;
}

/* Addresses that are mapped cannot be freed; their mapping was made next. */
static bool is_mapped(const struct probe *probe, unsigned index)
{
    return probe->made[index].undo == vmm__cuda_address_free && index + 1 < probe->made_count &&
           probe->made[index + 1].undo == vmm__cuda_unmap;
}

static vmm_status made_undo(struct cuda_driver *cuda, struct probe_made *made)
{
    vmm_status status = made->undo(&cuda->base, made->subject, cuda->base.granule_bytes);
    made->undo = status == VMM_OK ? NULL : made->undo;
    return status;
}

/* Undoes the remaining steps, the last one first. */
static void probe_undo(struct cuda_driver *cuda, struct probe *probe)
{
    for (unsigned i = probe->made_count; i-- > 0;) {
        struct probe_made *made = &probe->made[i];
        if (made->undo != NULL && !is_mapped(probe, i))
            failure_note(cuda, probe, made->is_extra, made->step, made_undo(cuda, made));
    }
}

static void probe_run(struct cuda_driver *cuda, struct probe *probe,
                      vmm_status (*try)(struct cuda_driver *cuda, struct probe *probe))
{
    vmm_status status = try(cuda, probe);
    failure_note(cuda, probe, probe->is_extra, probe->step, status);
    probe_undo(cuda, probe);
    probe_undo(cuda, probe); /* retries what the driver refused */
}

static vmm_status range_map(struct cuda_driver *cuda, struct probe *probe, uint64_t handle,
                            const char *unmap_step, uint64_t *address)
{
    struct driver *driver = &cuda->base;
    uint64_t bytes = driver->granule_bytes;
    probe->step = "reserve";
    vmm_status status = vmm__cuda_reserve(driver, bytes, 0, address);
    status = made_add(probe, status, *address, "address free", vmm__cuda_address_free);
    if (status != VMM_OK)
        return status;
    probe->step = "map";
    status = vmm__cuda_map(driver, *address, bytes, handle);
    status = made_add(probe, status, *address, unmap_step, vmm__cuda_unmap);
    if (status != VMM_OK)
        return status;
    probe->step = "set access";
    return vmm__cuda_access(driver, *address, bytes);
}

static vmm_status byte_write(struct cuda_driver *cuda, const struct probe *probe, uint64_t address,
                             uint8_t value)
{
    return vmm__cuda_clear(&cuda->base, address, sizeof(uint32_t), value, probe->stream);
}

/* Only stream order places this read after byte_write(). */
static vmm_status byte_expect(struct cuda_driver *cuda, const struct probe *probe, uint64_t address,
                              uint8_t value)
{
    uint32_t read = 0;
    uint32_t written = value * 0x01010101U;
    struct driver_piece piece = { .address = address, .bytes = sizeof read, .host = &read };
    vmm_status status = vmm__cuda_read(&cuda->base, &piece, 1, probe->stream);
    if (status == VMM_OK && read != written)
        return vmm__error(VMM_ERR_UNSUPPORTED, "wrote 0x%" PRIx32 " but read 0x%" PRIx32, written,
                          read);
    return status;
}

/* Writes through one address and reads through the other, or the same. */
static vmm_status byte_pass(struct cuda_driver *cuda, struct probe *probe, uint64_t from,
                            uint64_t to, uint8_t value)
{
    probe->step = "write and read";
    vmm_status status = byte_write(cuda, probe, from, value);
    return status == VMM_OK ? byte_expect(cuda, probe, to, value) : status;
}

static vmm_status memory_open(struct cuda_driver *cuda, struct probe *probe)
{
    probe->step = "create";
    vmm_status status =
        vmm__cuda_create(&cuda->base, cuda->base.granule_bytes, probe->reach, &probe->handle);
    status = made_add(probe, status, probe->handle, "release", vmm__cuda_release);
    if (status != VMM_OK)
        return status;
    return range_map(cuda, probe, probe->handle, "unmap", &probe->home);
}

static vmm_status memory_try(struct cuda_driver *cuda, struct probe *probe)
{
    vmm_status status = memory_open(cuda, probe);
    return status == VMM_OK ? byte_pass(cuda, probe, probe->home, probe->home, 0x42) : status;
}

/* ---- The same memory at two addresses ------------------------------------------------------------- */

/* Unmaps the older mapping while a write through the younger one may be in progress. Reads even if the unmap fails,
 * because the read waits for that write. */
static vmm_status alias_outlives_home(struct cuda_driver *cuda, struct probe *probe)
{
    const uint8_t value = 0xA7;
    struct probe_made *first = probe->made;
    vmm_status status = byte_write(cuda, probe, probe->alias, value);
    if (status != VMM_OK)
        return status;
    while (first->undo != vmm__cuda_unmap)
        first++;
    probe->step = "unmap the first";
    vmm_status unmapped = made_undo(cuda, first);
    struct error_line line;
    vmm__error_save(&line);
    status = byte_expect(cuda, probe, probe->alias, value);
    if (unmapped != VMM_OK) {
        vmm__error_restore(&line);
        return unmapped;
    }
    probe->step = "read after the unmap";
    return status;
}

static vmm_status alias_try(struct cuda_driver *cuda, struct probe *probe, uint64_t handle)
{
    vmm_status status = range_map(cuda, probe, handle, "unmap the second", &probe->alias);
    if (status == VMM_OK)
        status = byte_pass(cuda, probe, probe->home, probe->alias, 0x5B);
    return status == VMM_OK ? alias_outlives_home(cuda, probe) : status;
}

static vmm_status memory_and_alias_try(struct cuda_driver *cuda, struct probe *probe)
{
    vmm_status status = memory_try(cuda, probe);
    if (status != VMM_OK)
        return status;
    probe->is_extra = true;
    return alias_try(cuda, probe, probe->handle);
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

/* Exports the granule, in the way of its reach, imports it, and maps it at a second address. */
static vmm_status granule_pass(struct cuda_driver *cuda, struct probe *probe)
{
    struct driver *driver = &cuda->base;
    struct driver_fabric fabric;
    uint64_t import = 0;
    int descriptor = -1;
    bool is_fabric = probe->reach == VMM_SHARE_FABRIC;
    probe->step = "export";
    vmm_status status = is_fabric ? vmm__cuda_fabric_export(driver, probe->handle, &fabric)
                                  : vmm__cuda_share_export(driver, probe->handle, &descriptor);
    if (status != VMM_OK)
        return status;
    probe->step = "import";
    if (is_fabric)
        status = vmm__cuda_fabric_import(driver, &fabric, driver->granule_bytes, &import);
    else
        status = vmm__cuda_share_import(driver, descriptor, driver->granule_bytes, &import);
    status = made_add(probe, status, import, "release the import", vmm__cuda_share_release);
    if (descriptor >= 0)
        (void)close(descriptor);
    return status == VMM_OK ? alias_try(cuda, probe, import) : status;
}

static vmm_status sharing_try(struct cuda_driver *cuda, struct probe *probe)
{
    probe->step = "read the UUID";
    vmm_status status = uuid_read(cuda);
    if (status == VMM_OK)
        status = memory_try(cuda, probe);
    return status == VMM_OK ? granule_pass(cuda, probe) : status;
}

/* A lost device's stream went with its context. */
static vmm_status stream_undo(struct driver *driver, uint64_t subject, uint64_t bytes)
{
    (void)bytes;
    if (vmm__driver_is_lost(driver))
        return VMM_OK;
    return vmm__cuda_stream_destroy(driver, (vmm_stream)(uintptr_t)subject);
}

/* Any thread may ask, also while a stream is under capture: all work is on a stream of its own. */
static vmm_status fabric_try(struct cuda_driver *cuda, struct probe *probe)
{
    probe->step = "create a stream";
    vmm_status status = vmm__cuda_stream_create(&cuda->base, &probe->stream);
    status = made_add(probe, status, (uint64_t)(uintptr_t)probe->stream, "destroy the stream",
                      stream_undo);
    if (status == VMM_OK)
        status = memory_open(cuda, probe);
    return status == VMM_OK ? granule_pass(cuda, probe) : status;
}

/* ---- The whole self-test --------------------------------------------------------------------- */

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

/* Returns whether the extra part of a probe worked. If not, stores the step and the reason: a cache works without
 * aliases, sharing, or events of all work. */
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

static vmm_status probes_run(struct cuda_driver *cuda)
{
    struct driver *driver = &cuda->base;
    struct probe memory = { .reach = VMM_SHARE_NONE };
    struct probe sharing = { .reach = VMM_SHARE_MACHINE, .is_extra = true };
    struct probe clock = { .reach = VMM_SHARE_NONE, .is_extra = true };
    const struct probe_failure *failure = &memory.failure;
    probe_run(cuda, &memory, memory_and_alias_try);
    if (failure->status == VMM_OK) {
        probe_run(cuda, &sharing, sharing_try);
        failure = &sharing.failure;
    }
    if (failure->status == VMM_OK) {
        probe_run(cuda, &clock, clock_try);
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
    vmm_status status = probes_run(cuda);
    if (status == VMM_ERR_UNSUPPORTED && cuda->property.allocFlags.gpuDirectRDMACapable) {
        cuda->property.allocFlags.gpuDirectRDMACapable = 0;
        status = probes_run(cuda);
    }
    if (status == VMM_OK)
        vmm__error_restore(&before);
    return status;
}

/* ---- Fabric handles: when a pool asks for them -------------------------------------------------- */

vmm_status vmm__cuda_fabric_check(struct driver *driver)
{
    struct probe probe = { .reach = VMM_SHARE_FABRIC, .is_extra = true };
    const struct probe_failure *failure = &probe.failure;
    struct error_line before;
    if (!driver->has_sharing)
        return vmm__cuda_sharing_refuse(driver);
    vmm__error_save(&before);
    probe_run(vmm__cuda_of(driver), &probe, fabric_try);
    if (failure->status == VMM_OK)
        failure = &probe.extra_failure;
    if (failure->status == VMM_OK) {
        vmm__error_restore(&before);
        return VMM_OK;
    }
    return vmm__error(failure_status(failure), "%s has no fabric handles: '%s': %s",
                      driver->device_name, failure->step, failure->reason);
}
