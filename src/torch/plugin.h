/*
 * The caches of a process, one a device, each made with its device's first use.
 *
 * Owns: the devices' records; their caches live as long as the process. Invariants:
 *  1. a device that has a cache has all else of its record, and never loses it;
 *  2. settings do not change once a cache was made;
 *  3. after fork() the child touches no cache of its parent: frees are ignored, all else fails.
 * May be called by: torch. Locks: `opening` (settings, and the making of caches); lookups take none.
 */
#ifndef VMM_TORCH_PLUGIN_H
#define VMM_TORCH_PLUGIN_H

#include "torch/abi.h"
#include "torch/figures.h"
#include "torch/record.h"

enum { TORCH_DEVICES = 64 };

struct torch_device {
    _Atomic(vmm_cache *) cache; /* NULL: none was made yet */
    int ordinal;
    bool has_guard;           /* or may have one */
    vmm_pressure_fn pressure; /* the program's */
    void *pressure_context;
    vmm_misuse_fn misuse; /* and this */
    void *misuse_context;
    struct figures figures;
    struct history history;
    _Atomic uint64_t waits; /* blocks that were freed and that other streams still use */
};

extern struct torch_device vmm__torch_devices[TORCH_DEVICES];

/* What hooks look at in passing: 0 almost always. */
enum { TORCH_RECORDS = 1, TORCH_FORKED = 2 };
extern _Atomic unsigned vmm__torch_mode;

static inline unsigned vmm__torch_mode_now(void)
{
    return atomic_load_explicit(&vmm__torch_mode, memory_order_relaxed);
}

static inline bool vmm__torch_records(void)
{
    return (vmm__torch_mode_now() & TORCH_RECORDS) != 0;
}

/* ERR_FORKED, and the line that says why. */
vmm_status vmm__torch_forked_error(void);

static inline vmm_cache *vmm__torch_cache_of(const struct torch_device *device)
{
    return atomic_load_explicit(&device->cache, memory_order_relaxed);
}

/* The device's record if it has a cache that this process may use; else NULL. */
static inline struct torch_device *vmm__torch_find(int ordinal)
{
    if ((unsigned)ordinal >= TORCH_DEVICES || (vmm__torch_mode_now() & TORCH_FORKED) != 0)
        return NULL;
    struct torch_device *device = &vmm__torch_devices[ordinal];
    bool has_cache = atomic_load_explicit(&device->cache, memory_order_acquire) != NULL;
    return has_cache ? device : NULL;
}

/* The same, and makes the cache if there is none. As vmm_create(). */
vmm_status vmm__torch_open(int ordinal, struct torch_device **out);

/* Limits a cache to a share of its device's memory; of none of it no request keeps the limit. */
vmm_status vmm__torch_limit(vmm_cache *cache, double share);

/* Tells vmm_torch_shortage_watch()'s function of a request that failed, if it was for want of memory. */
void vmm__torch_shortage_tell(const struct torch_device *device, vmm_status status, uint64_t bytes);

/* Whether the block that the thread has just freed still waits for other streams. */
bool vmm__torch_waits(const void *ptr);

#endif
