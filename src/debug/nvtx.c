/* Registers blocks with NVTX: see nvtx.h. */
#define _GNU_SOURCE
#include "debug/nvtx.h"
#include "base/error.h"
#include "base/hostmem.h"
#include "cache/alloc/alloc.h"

#ifdef VMM_WITH_NVTX
#include <stdlib.h>

/* NVTX reads the path of its tool from an environment variable. A set-user-ID program must ignore it. */
#define getenv secure_getenv
#include <nvtx3/nvToolsExtMem.h>
#undef getenv

struct nvtx {
    nvtxDomainHandle_t domain;
    nvtxMemHeapHandle_t heap; /* NULL: no tool is attached */
};

/* ---- NVTX calls ------------------------------------------------------------------------------ */

static nvtxMemVirtualRangeDesc_t range_of(uint64_t address, uint64_t bytes)
{
    return (nvtxMemVirtualRangeDesc_t){ .size = bytes, .ptr = (const void *)(uintptr_t)address };
}

static nvtxMemHeapHandle_t heap_register(nvtxDomainHandle_t domain, const struct arena *arena)
{
    nvtxMemVirtualRangeDesc_t range = range_of(arena->address, arena->bytes);
    nvtxMemHeapDesc_t heap = { .extCompatID = NVTX_EXT_COMPATID_MEM,
                               .structSize = sizeof heap,
                               .usage = NVTX_MEM_HEAP_USAGE_TYPE_SUB_ALLOCATOR,
                               .type = NVTX_MEM_TYPE_VIRTUAL_ADDRESS,
                               .typeSpecificDescSize = sizeof range,
                               .typeSpecificDesc = &range };
    return nvtxMemHeapRegister(domain, &heap);
}

static void region_register(const struct nvtx *nvtx, uint64_t address, uint64_t bytes)
{
    nvtxMemVirtualRangeDesc_t range = range_of(address, bytes);
    const nvtxMemRegionsRegisterBatch_t batch = { .extCompatID = NVTX_EXT_COMPATID_MEM,
                                                  .structSize = sizeof batch,
                                                  .regionType = NVTX_MEM_TYPE_VIRTUAL_ADDRESS,
                                                  .heap = nvtx->heap,
                                                  .regionCount = 1,
                                                  .regionDescElementSize = sizeof range,
                                                  .regionDescElements = &range };
    nvtxMemRegionsRegister(nvtx->domain, &batch);
}

static void region_unregister(const struct nvtx *nvtx, uint64_t address)
{
    nvtxMemRegionRef_t reference = { .pointer = (const void *)(uintptr_t)address };
    const nvtxMemRegionsUnregisterBatch_t batch = { .extCompatID = NVTX_EXT_COMPATID_MEM,
                                                    .structSize = sizeof batch,
                                                    .refType = NVTX_MEM_REGION_REF_TYPE_POINTER,
                                                    .refCount = 1,
                                                    .refElementSize = sizeof reference,
                                                    .refElements = &reference };
    nvtxMemRegionsUnregister(nvtx->domain, &batch);
}

static void region_name(const struct nvtx *nvtx, uint64_t address, const char *name)
{
    const nvtxMemRegionNameDesc_t named = { .regionRefType = NVTX_MEM_REGION_REF_TYPE_POINTER,
                                            .nameType = NVTX_MESSAGE_TYPE_ASCII,
                                            .region.pointer = (const void *)(uintptr_t)address,
                                            .name.ascii = name };
    const nvtxMemRegionsNameBatch_t batch = { .extCompatID = NVTX_EXT_COMPATID_MEM,
                                              .structSize = sizeof batch,
                                              .regionCount = 1,
                                              .regionElementSize = sizeof named,
                                              .regionElements = &named };
    nvtxMemRegionsName(nvtx->domain, &batch);
}

/* ---- Open, close ----------------------------------------------------------------------------- */

vmm_status vmm__nvtx_open(struct vmm_cache *cache)
{
    struct nvtx *nvtx = vmm__host_alloc(1, sizeof *nvtx);
    if (nvtx == NULL)
        return vmm__error(VMM_ERR_HOST_OOM, "create: no host memory for NVTX annotations");
    nvtx->domain = nvtxDomainCreateA("vmmcache");
    nvtx->heap = heap_register(nvtx->domain, &cache->vm.arena);
    cache->nvtx = nvtx;
    return VMM_OK;
}

void vmm__nvtx_close(struct vmm_cache *cache)
{
    struct nvtx *nvtx = cache->nvtx;
    if (nvtx == NULL)
        return;
    if (nvtx->heap != NULL)
        nvtxMemHeapUnregister(nvtx->domain, nvtx->heap);
    if (nvtx->domain != NULL)
        nvtxDomainDestroy(nvtx->domain);
    vmm__host_free(nvtx, sizeof *nvtx);
    cache->nvtx = NULL;
}

/* ---- Blocks ---------------------------------------------------------------------------------- */

/* A block of 0 bytes has no bytes that the program may access, so it has no region. */
static bool has_region(const struct vmm_cache *cache, uint64_t bytes)
{
    return cache->nvtx->heap != NULL && bytes > 0;
}

/* Without a name of its own, a block has that of its pool and its stream. */
static void block_name(struct vmm_cache *cache, uint64_t address, const char *text)
{
    char name[POOL_NAME_BYTES + 40] = "";
    uint64_t inner = address;
    const struct heap *heap = vmm__free_lane_lock(cache, &inner);
    if (heap != NULL) {
        (void)snprintf(name, sizeof name, "pool %s, stream 0x%llx", heap->lane->owner.pool->name,
                       (unsigned long long)(uintptr_t)heap->lane->owner.stream);
        vmm__biased_unlock(&heap->lane->lock);
    }
    region_name(cache->nvtx, address, text == NULL || *text == '\0' ? name : text);
}

void vmm__nvtx_register(struct vmm_cache *cache, const void *block, uint64_t bytes)
{
    uint64_t address = (uint64_t)(uintptr_t)block;
    if (!has_region(cache, bytes))
        return;
    region_register(cache->nvtx, address, bytes);
    block_name(cache, address, NULL);
}

/* Reads the requested bytes of a live block; false if the pointer is not the start of one. */
static bool requested_bytes_read(struct vmm_cache *cache, const void *block, uint64_t *bytes)
{
    vmm_item item = VMM_ITEM_INIT;
    if (vmm_find(cache, block, &item) != VMM_OK || item.address != (uint64_t)(uintptr_t)block)
        return false;
    *bytes = item.requested_bytes;
    return true;
}

void vmm__nvtx_name(struct vmm_cache *cache, const void *block, const char *text)
{
    uint64_t bytes;
    if (cache->nvtx != NULL && cache->debug == NULL && requested_bytes_read(cache, block, &bytes) &&
        has_region(cache, bytes))
        block_name(cache, (uint64_t)(uintptr_t)block, text);
}

vmm_status vmm__nvtx_unregister(struct vmm_cache *cache, const void *block, bool *should_poll)
{
    uint64_t address = (uint64_t)(uintptr_t)block;
    uint64_t bytes;
    struct error_line line;
    vmm__error_save(&line);
    if (!requested_bytes_read(cache, block, &bytes)) {
        vmm__error_restore(&line);
        return VMM__NOT_FOUND;
    }
    if (has_region(cache, bytes)) {
        (void)vmm__cache_wait(cache); /* if it fails, the tool may report work that is correct */
        region_unregister(cache->nvtx, address);
    }
    vmm__error_restore(&line);
    vmm_status status = vmm__free_slow(cache, address, should_poll);
    if (status != VMM_OK && has_region(cache, bytes))
        region_register(cache->nvtx, address, bytes);
    return status;
}

#else /* no NVTX */

vmm_status vmm__nvtx_open(struct vmm_cache *cache)
{
    (void)cache;
    return vmm__error(VMM_ERR_UNSUPPORTED,
                      "create: this build has no NVTX annotations: it was built "
                      "without the headers of NVTX's memory extension");
}

void vmm__nvtx_close(struct vmm_cache *cache)
{
    (void)cache;
}

void vmm__nvtx_register(struct vmm_cache *cache, const void *block, uint64_t bytes)
{
    (void)cache;
    (void)block;
    (void)bytes;
}

void vmm__nvtx_name(struct vmm_cache *cache, const void *block, const char *text)
{
    (void)cache;
    (void)block;
    (void)text;
}

vmm_status vmm__nvtx_unregister(struct vmm_cache *cache, const void *block, bool *should_poll)
{
    return vmm__free_slow(cache, (uint64_t)(uintptr_t)block, should_poll);
}

#endif
