/* A tool that listens to marks: see listener.h. */
#include "listener.h"

#include <nvtx3/nvToolsExtMem.h>

#include <pthread.h>
#include <stdbool.h>
#include <string.h>

enum { REGIONS = 4096 };

struct range {
    uint64_t address;
    uint64_t bytes;
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct listener_heard heard;
static struct range heap;
static struct range regions[REGIONS];

static struct range range_of(const void *described)
{
    const nvtxMemVirtualRangeDesc_t *range = described;
    return (struct range){ .address = (uintptr_t)range->ptr, .bytes = range->size };
}

static bool ranges_meet(struct range one, struct range other)
{
    return one.address < other.address + other.bytes && other.address < one.address + one.bytes;
}

static bool is_inside(struct range inner, struct range outer)
{
    return inner.address >= outer.address &&
           inner.address + inner.bytes <= outer.address + outer.bytes;
}

static bool meets_any(struct range range)
{
    for (uint64_t i = 0; i < heard.regions; i++) {
        if (ranges_meet(range, regions[i]))
            return true;
    }
    return false;
}

static uint64_t region_at(uint64_t address)
{
    uint64_t i = 0;
    while (i < heard.regions && regions[i].address != address)
        i++;
    return i;
}

/* ---- What the library tells ------------------------------------------------------------------ */

static nvtxMemHeapHandle_t heap_registered(nvtxDomainHandle_t domain, const nvtxMemHeapDesc_t *told)
{
    (void)domain;
    pthread_mutex_lock(&mutex);
    bool is_sound = heard.heaps == 0 && told->usage == NVTX_MEM_HEAP_USAGE_TYPE_SUB_ALLOCATOR &&
                    told->type == NVTX_MEM_TYPE_VIRTUAL_ADDRESS &&
                    told->extCompatID == NVTX_EXT_COMPATID_MEM && told->structSize == sizeof *told;
    if (is_sound) {
        heap = range_of(told->typeSpecificDesc);
        heard.heaps++;
        heard.heap_address = heap.address;
        heard.heap_bytes = heap.bytes;
    } else {
        heard.refused++;
    }
    pthread_mutex_unlock(&mutex);
    return is_sound ? (nvtxMemHeapHandle_t)(uintptr_t)heap.address : NULL;
}

static void heap_unregistered(nvtxDomainHandle_t domain, nvtxMemHeapHandle_t handle)
{
    (void)domain;
    pthread_mutex_lock(&mutex);
    if (heard.heaps == 1 && (uintptr_t)handle == heap.address) {
        heard.heaps = 0;
        heard.regions = 0;
    } else {
        heard.refused++;
    }
    pthread_mutex_unlock(&mutex);
}

static void regions_registered(nvtxDomainHandle_t domain, const nvtxMemRegionsRegisterBatch_t *told)
{
    (void)domain;
    struct range range = range_of(told->regionDescElements);
    pthread_mutex_lock(&mutex);
    if (told->regionCount == 1 && heard.heaps == 1 && (uintptr_t)told->heap == heap.address &&
        range.bytes > 0 && is_inside(range, heap) && !meets_any(range) && heard.regions < REGIONS) {
        regions[heard.regions++] = range;
        heard.registered++;
    } else {
        heard.refused++;
    }
    pthread_mutex_unlock(&mutex);
}

static void regions_unregistered(nvtxDomainHandle_t domain,
                                 const nvtxMemRegionsUnregisterBatch_t *told)
{
    (void)domain;
    pthread_mutex_lock(&mutex);
    uint64_t found = region_at((uintptr_t)told->refElements->pointer);
    if (told->refType == NVTX_MEM_REGION_REF_TYPE_POINTER && told->refCount == 1 &&
        found < heard.regions)
        regions[found] = regions[--heard.regions];
    else
        heard.refused++;
    pthread_mutex_unlock(&mutex);
}

/* ---- What tests ask -------------------------------------------------------------------------- */

__attribute__((visibility("default"))) struct listener_heard listener_heard(void)
{
    pthread_mutex_lock(&mutex);
    struct listener_heard now = heard;
    pthread_mutex_unlock(&mutex);
    return now;
}

__attribute__((visibility("default"))) uint64_t listener_region(uint64_t address)
{
    pthread_mutex_lock(&mutex);
    uint64_t found = region_at(address);
    uint64_t bytes = found < heard.regions ? regions[found].bytes : 0;
    pthread_mutex_unlock(&mutex);
    return bytes;
}

/* ---- How NVTX finds them --------------------------------------------------------------------- */

__attribute__((visibility("default"))) int
InitializeInjectionNvtxExtension(nvtxExtModuleInfo_t *module)
{
    if (module->moduleId != NVTX_EXT_MODULEID_MEM)
        return 0;
    intptr_t *slots = module->segments[0].functionSlots;
    slots[NVTX3EXT_CBID_nvtxMemHeapRegister] = (intptr_t)heap_registered;
    slots[NVTX3EXT_CBID_nvtxMemHeapUnregister] = (intptr_t)heap_unregistered;
    slots[NVTX3EXT_CBID_nvtxMemRegionsRegister] = (intptr_t)regions_registered;
    slots[NVTX3EXT_CBID_nvtxMemRegionsUnregister] = (intptr_t)regions_unregistered;
    return 1;
}

/* NVTX asks for this one too, for what is not about memory. */
__attribute__((visibility("default"))) int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t get)
{
    (void)get;
    return 1;
}
