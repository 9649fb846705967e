/* Telling a tool of blocks: see marks.h. */
#define _GNU_SOURCE
#include "marks.h"
#include "base/error.h"
#include "base/hostmem.h"
#include "policy/handout.h"

#ifdef VMM_WITH_NVTX
#include <stdlib.h>

/* NVTX finds its tool by a variable, which must not count in programs that run with more rights than their user. */
#define getenv secure_getenv
#include <nvtx3/nvToolsExtMem.h>
#undef getenv

struct marks {
    nvtxDomainHandle_t domain;
    nvtxMemHeapHandle_t heap; /* NULL: no tool listens */
};

/* ---- What the tool is told ------------------------------------------------------------------- */

static nvtxMemVirtualRangeDesc_t range_of(uint64_t address, uint64_t bytes)
{
    return (nvtxMemVirtualRangeDesc_t){ .size = bytes, .ptr = (const void *)(uintptr_t)address };
}

static nvtxMemHeapHandle_t heap_told(nvtxDomainHandle_t domain, const struct arena *arena)
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

static void region_told(const struct marks *marks, uint64_t address, uint64_t bytes)
{
    nvtxMemVirtualRangeDesc_t range = range_of(address, bytes);
    const nvtxMemRegionsRegisterBatch_t batch = { .extCompatID = NVTX_EXT_COMPATID_MEM,
                                                  .structSize = sizeof batch,
                                                  .regionType = NVTX_MEM_TYPE_VIRTUAL_ADDRESS,
                                                  .heap = marks->heap,
                                                  .regionCount = 1,
                                                  .regionDescElementSize = sizeof range,
                                                  .regionDescElements = &range };
    nvtxMemRegionsRegister(marks->domain, &batch);
}

static void region_gone_told(const struct marks *marks, uint64_t address)
{
    nvtxMemRegionRef_t reference = { .pointer = (const void *)(uintptr_t)address };
    const nvtxMemRegionsUnregisterBatch_t batch = { .extCompatID = NVTX_EXT_COMPATID_MEM,
                                                    .structSize = sizeof batch,
                                                    .refType = NVTX_MEM_REGION_REF_TYPE_POINTER,
                                                    .refCount = 1,
                                                    .refElementSize = sizeof reference,
                                                    .refElements = &reference };
    nvtxMemRegionsUnregister(marks->domain, &batch);
}

/* ---- The cache's life ------------------------------------------------------------------------ */

vmm_status vmm__marks_open(struct vmm_cache *cache)
{
    struct marks *marks = vmm__host_alloc(1, sizeof *marks);
    if (marks == NULL)
        return vmm__error(VMM_ERR_HOST_OOM, "create: no host memory for marks");
    marks->domain = nvtxDomainCreateA("vmmcache");
    marks->heap = heap_told(marks->domain, &cache->memory.arena);
    cache->marks = marks;
    return VMM_OK;
}

void vmm__marks_close(struct vmm_cache *cache)
{
    struct marks *marks = cache->marks;
    if (marks == NULL)
        return;
    if (marks->heap != NULL)
        nvtxMemHeapUnregister(marks->domain, marks->heap);
    if (marks->domain != NULL)
        nvtxDomainDestroy(marks->domain);
    vmm__host_free(marks, sizeof *marks);
    cache->marks = NULL;
}

/* ---- Blocks ---------------------------------------------------------------------------------- */

/* Nothing may be read or written in a block of no bytes. */
static bool is_told(const struct vmm_cache *cache, uint64_t bytes)
{
    return cache->marks->heap != NULL && bytes > 0;
}

void vmm__marks_set(const struct vmm_cache *cache, const void *block, uint64_t bytes)
{
    if (is_told(cache, bytes))
        region_told(cache->marks, (uint64_t)(uintptr_t)block, bytes);
}

/* Whether the pointer is the start of a live block, and how many bytes were asked for. */
static bool block_read(struct vmm_cache *cache, const void *block, uint64_t *bytes)
{
    vmm_item item = VMM_ITEM_INIT;
    if (vmm_find(cache, block, &item) != VMM_OK || item.address != (uint64_t)(uintptr_t)block)
        return false;
    *bytes = item.requested_bytes;
    return true;
}

vmm_status vmm__marks_return(struct vmm_cache *cache, const void *block, bool *looks)
{
    uint64_t address = (uint64_t)(uintptr_t)block;
    uint64_t bytes;
    struct error_line line;
    vmm__error_save(&line);
    if (!block_read(cache, block, &bytes)) {
        vmm__error_restore(&line);
        return VMM_NOT_READY;
    }
    if (is_told(cache, bytes)) {
        (void)vmm__cache_wait(cache); /* if that fails, the tool may name work that was in time */
        region_gone_told(cache->marks, address);
    }
    vmm__error_restore(&line);
    vmm_status status = vmm__handout_return(cache, address, looks);
    if (status != VMM_OK && is_told(cache, bytes))
        region_told(cache->marks, address, bytes);
    return status;
}

#else /* no NVTX */

vmm_status vmm__marks_open(struct vmm_cache *cache)
{
    (void)cache;
    return vmm__error(VMM_ERR_UNSUPPORTED, "create: this build cannot mark blocks: the headers of "
                                           "NVTX's memory extension were missing");
}

void vmm__marks_close(struct vmm_cache *cache)
{
    (void)cache;
}

void vmm__marks_set(const struct vmm_cache *cache, const void *block, uint64_t bytes)
{
    (void)cache;
    (void)block;
    (void)bytes;
}

vmm_status vmm__marks_return(struct vmm_cache *cache, const void *block, bool *looks)
{
    return vmm__handout_return(cache, (uint64_t)(uintptr_t)block, looks);
}

#endif
