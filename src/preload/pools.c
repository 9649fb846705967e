/*
 * Memory pools of the program: see preload.h. The cache of the current device serves allocations from the device's
 * default pool, and from pools that the program made for it without handles for other processes and with nothing else
 * that is special.
 *
 * Owns: records of these pools, which `lock` guards.
 */
#include "base/hostmem.h"
#include "base/map.h"
#include "preload/preload.h"

struct pool_record {
    struct map_node node; /* the pool's handle */
    int ordinal;
};

static struct mutex lock = VMM_MUTEX_INIT;
static struct map pools;

static uint64_t key_of(CUmemoryPool pool)
{
    return (uint64_t)(uintptr_t)pool;
}

/* The number of the device of a pool that the program made; -1: libcuda serves it. */
static int pool_ordinal(CUmemoryPool pool)
{
    VMM_HOLD(&lock);
    struct map_node *node = vmm__map_find(&pools, key_of(pool));
    return node == NULL ? -1 : VMM_MAP_RECORD(node, struct pool_record, node)->ordinal;
}

/* Without host memory for a record libcuda serves the pool. */
static void pool_add(CUmemoryPool pool, int ordinal)
{
    struct pool_record *record = vmm__host_alloc(1, sizeof *record);
    if (record == NULL)
        return;
    *record = (struct pool_record){ .node.key = key_of(pool), .ordinal = ordinal };
    VMM_HOLD(&lock);
    vmm__map_add(&pools, &record->node);
}

static void pool_remove(CUmemoryPool pool)
{
    vmm__mutex_lock(&lock);
    struct map_node *node = vmm__map_find(&pools, key_of(pool));
    if (node != NULL)
        vmm__map_remove(&pools, node);
    vmm__mutex_unlock(&lock);
    if (node != NULL)
        vmm__host_free(VMM_MAP_RECORD(node, struct pool_record, node), sizeof(struct pool_record));
}

static bool is_default(CUmemoryPool pool, int ordinal)
{
    CUmemoryPool found = NULL;
    const struct preload_real *real = vmm__preload_real();
    return real->cuDeviceGetDefaultMemPool != NULL &&
           real->cuDeviceGetDefaultMemPool(&found, ordinal) == CUDA_SUCCESS && found == pool;
}

struct preload_device *vmm__preload_pool_device(CUmemoryPool pool)
{
    const struct preload_real *real = vmm__preload_real();
    struct preload_device *device = vmm__preload_device();
    if (device == NULL)
        return NULL;
    int current = vmm__preload_ordinal(device);
    if (pool == NULL && (real->cuDeviceGetMemPool == NULL ||
                         real->cuDeviceGetMemPool(&pool, current) != CUDA_SUCCESS))
        return NULL;
    if (is_default(pool, current))
        return device;
    return pool_ordinal(pool) == current ? device : NULL;
}

/* ---- Calls ----------------------------------------------------------------------------------- */

/* Whether the fields after the location are zero; newer drivers know more of them. They limit the size, or ask for
 * memory of a certain use. */
static bool has_plain_rest(const CUmemPoolProps *properties)
{
    const unsigned char *end = (const unsigned char *)(properties + 1);
    const unsigned char *byte = (const unsigned char *)(&properties->location + 1);
    while (byte < end && *byte == 0)
        byte++;
    return byte == end;
}

static bool is_served(const CUmemPoolProps *properties)
{
    return properties->allocType == CU_MEM_ALLOCATION_TYPE_PINNED &&
           properties->handleTypes == CU_MEM_HANDLE_TYPE_NONE &&
           properties->location.type == CU_MEM_LOCATION_TYPE_DEVICE &&
           properties->location.id >= 0 && properties->location.id < PRELOAD_DEVICES &&
           has_plain_rest(properties);
}

static CUresult pool_create(const struct preload_real *real, CUmemoryPool *pool,
                            const CUmemPoolProps *properties)
{
    CUresult result = real->cuMemPoolCreate(pool, properties);
    if (result == CUDA_SUCCESS && is_served(properties))
        pool_add(*pool, properties->location.id);
    return result;
}

PRELOAD_CALL(cuMemPoolCreate, (CUmemoryPool * pool, const CUmemPoolProps *properties),
             (pool, properties), pool_create(real, pool, properties))

PRELOAD_CALL(cuMemPoolDestroy, (CUmemoryPool pool), (pool),
             (pool_remove(pool), real->cuMemPoolDestroy(pool)))

static struct preload_device *trimmed_device(CUmemoryPool pool)
{
    for (int i = 0; i < PRELOAD_DEVICES; i++) {
        struct preload_device *device = vmm__preload_device_at(i);
        if (device != NULL && (is_default(pool, i) || pool_ordinal(pool) == i))
            return device;
    }
    return NULL;
}

static CUresult pool_trim(const struct preload_real *real, CUmemoryPool pool, size_t keep_bytes)
{
    CUresult result = real->cuMemPoolTrimTo(pool, keep_bytes);
    if (result != CUDA_SUCCESS)
        return result;
    vmm__preload_caches_hold();
    struct preload_device *device = trimmed_device(pool);
    if (device != NULL)
        (void)vmm_trim(device->cache, keep_bytes, NULL);
    vmm__preload_caches_release();
    return result;
}

PRELOAD_CALL(cuMemPoolTrimTo, (CUmemoryPool pool, size_t keep_bytes), (pool, keep_bytes),
             pool_trim(real, pool, keep_bytes))
