/* A tool that receives NVTX annotations: see listener.h. */
#include "listener.h"

#include <nvtx3/nvToolsExtMem.h>

#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

enum { REGIONS = 4096, NAME_BYTES = 128 };

struct range {
    uint64_t address;
    uint64_t bytes;
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct listener_heard state;
static struct range heap;
static struct range regions[REGIONS];
static char names[REGIONS][NAME_BYTES];

static struct range range_of(const void *described)
{
    const nvtxMemVirtualRangeDesc_t *range = described;
    return (struct range){ .address = (uintptr_t)range->ptr, .bytes = range->size };
}

static bool ranges_overlap(struct range one, struct range other)
{
    return one.address < other.address + other.bytes && other.address < one.address + one.bytes;
}

static bool is_inside(struct range inner, struct range outer)
{
    return inner.address >= outer.address &&
           inner.address + inner.bytes <= outer.address + outer.bytes;
}

static bool overlaps_any(struct range range)
{
    for (uint64_t i = 0; i < state.regions; i++) {
        if (ranges_overlap(range, regions[i]))
            return true;
    }
    return false;
}

static uint64_t region_at(uint64_t address)
{
    uint64_t i = 0;
    while (i < state.regions && regions[i].address != address)
        i++;
    return i;
}

/* ---- Calls of the library -------------------------------------------------------------------- */

static nvtxMemHeapHandle_t heap_register(nvtxDomainHandle_t domain,
                                         const nvtxMemHeapDesc_t *description)
{
    (void)domain;
    pthread_mutex_lock(&mutex);
    bool is_valid = state.heaps == 0 &&
                    description->usage == NVTX_MEM_HEAP_USAGE_TYPE_SUB_ALLOCATOR &&
                    description->type == NVTX_MEM_TYPE_VIRTUAL_ADDRESS &&
                    description->extCompatID == NVTX_EXT_COMPATID_MEM &&
                    description->structSize == sizeof *description;
    if (is_valid) {
        heap = range_of(description->typeSpecificDesc);
        state.heaps++;
        state.heap_address = heap.address;
        state.heap_bytes = heap.bytes;
    } else {
        state.refused++;
    }
    pthread_mutex_unlock(&mutex);
    return is_valid ? (nvtxMemHeapHandle_t)(uintptr_t)heap.address : NULL;
}

static void heap_unregister(nvtxDomainHandle_t domain, nvtxMemHeapHandle_t handle)
{
    (void)domain;
    pthread_mutex_lock(&mutex);
    if (state.heaps == 1 && (uintptr_t)handle == heap.address) {
        state.heaps = 0;
        state.regions = 0;
    } else {
        state.refused++;
    }
    pthread_mutex_unlock(&mutex);
}

static void regions_register(nvtxDomainHandle_t domain,
                             const nvtxMemRegionsRegisterBatch_t *description)
{
    (void)domain;
    struct range range = range_of(description->regionDescElements);
    pthread_mutex_lock(&mutex);
    if (description->regionCount == 1 && state.heaps == 1 &&
        (uintptr_t)description->heap == heap.address && range.bytes > 0 && is_inside(range, heap) &&
        !overlaps_any(range) && state.regions < REGIONS) {
        names[state.regions][0] = '\0';
        regions[state.regions++] = range;
        state.registered++;
    } else {
        state.refused++;
    }
    pthread_mutex_unlock(&mutex);
}

static void regions_unregister(nvtxDomainHandle_t domain,
                               const nvtxMemRegionsUnregisterBatch_t *description)
{
    (void)domain;
    pthread_mutex_lock(&mutex);
    uint64_t found = region_at((uintptr_t)description->refElements->pointer);
    if (description->refType == NVTX_MEM_REGION_REF_TYPE_POINTER && description->refCount == 1 &&
        found < state.regions) {
        regions[found] = regions[--state.regions];
        memcpy(names[found], names[state.regions], NAME_BYTES);
    } else {
        state.refused++;
    }
    pthread_mutex_unlock(&mutex);
}

/* compute-sanitizer takes names of type ASCII only. */
static void regions_name(nvtxDomainHandle_t domain, const nvtxMemRegionsNameBatch_t *description)
{
    (void)domain;
    const nvtxMemRegionNameDesc_t *named = description->regionElements;
    pthread_mutex_lock(&mutex);
    uint64_t found = region_at((uintptr_t)named->region.pointer);
    if (description->regionCount == 1 && description->regionElementSize == sizeof *named &&
        named->regionRefType == NVTX_MEM_REGION_REF_TYPE_POINTER &&
        named->nameType == NVTX_MESSAGE_TYPE_ASCII && found < state.regions)
        (void)snprintf(names[found], NAME_BYTES, "%s", named->name.ascii);
    else
        state.refused++;
    pthread_mutex_unlock(&mutex);
}

/* ---- Calls of the tests ---------------------------------------------------------------------- */

__attribute__((visibility("default"))) struct listener_heard listener_heard(void)
{
    pthread_mutex_lock(&mutex);
    struct listener_heard now = state;
    pthread_mutex_unlock(&mutex);
    return now;
}

__attribute__((visibility("default"))) uint64_t listener_region(uint64_t address)
{
    pthread_mutex_lock(&mutex);
    uint64_t found = region_at(address);
    uint64_t bytes = found < state.regions ? regions[found].bytes : 0;
    pthread_mutex_unlock(&mutex);
    return bytes;
}

__attribute__((visibility("default"))) uint64_t listener_name(uint64_t address, char *name,
                                                              uint64_t bytes)
{
    pthread_mutex_lock(&mutex);
    uint64_t found = region_at(address);
    int length = snprintf(name, bytes, "%s", found < state.regions ? names[found] : "");
    pthread_mutex_unlock(&mutex);
    return (uint64_t)length;
}

/* ---- Entry points for NVTX ------------------------------------------------------------------- */

__attribute__((visibility("default"))) int
InitializeInjectionNvtxExtension(nvtxExtModuleInfo_t *module)
{
    if (module->moduleId != NVTX_EXT_MODULEID_MEM)
        return 0;
    intptr_t *slots = module->segments[0].functionSlots;
    slots[NVTX3EXT_CBID_nvtxMemHeapRegister] = (intptr_t)heap_register;
    slots[NVTX3EXT_CBID_nvtxMemHeapUnregister] = (intptr_t)heap_unregister;
    slots[NVTX3EXT_CBID_nvtxMemRegionsRegister] = (intptr_t)regions_register;
    slots[NVTX3EXT_CBID_nvtxMemRegionsUnregister] = (intptr_t)regions_unregister;
    slots[NVTX3EXT_CBID_nvtxMemRegionsName] = (intptr_t)regions_name;
    return 1;
}

/* NVTX also calls this one, for annotations other than memory. */
__attribute__((visibility("default"))) int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t get)
{
    (void)get;
    return 1;
}
