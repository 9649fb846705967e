/*
 * The devices of a process, each with its cache, statistics and history.
 *
 * Owns: the devices' records; their caches live as long as the process. Invariants:
 *  1. a device with a cache has all other fields of its record set, and never loses its cache;
 *  2. in a child of fork() vmm__torch_find() finds no device whose cache is the parent's.
 * May be called by: torch; plugin alone fills in a record. Locks: none; a record's cache is stored last, with release.
 */
#ifndef VMM_TORCH_DEVICE_H
#define VMM_TORCH_DEVICE_H

#include "base/error.h"
#include "torch/history.h"
#include "torch/stats.h"

enum { TORCH_DEVICES = 64 };

struct torch_device {
    _Atomic(vmm_cache *) cache; /* NULL before the first use */
    int ordinal;
    uint64_t limit_bytes;    /* of the settings or the environment; 0: none */
    _Atomic double fraction; /* that PyTorch has set; negative: limit_bytes counts instead */
    _Atomic uint64_t fraction_limit_bytes; /* what the two mean; 0: none */
    _Atomic int64_t calls_beyond_stalls;   /* of empty_cache(): PyTorch counts each as one wait */
    /* Why the device cannot share its blocks; empty: it can, or need not. */
    struct error_line sharing_failure;
    vmm_pressure_fn pressure; /* the program's */
    void *pressure_context;
    vmm_misuse_fn misuse; /* the program's */
    void *misuse_context;
    struct stats stats;
    struct history history;
    _Atomic uint64_t waits; /* number of frees so far that other streams' use delayed */
};

extern struct torch_device vmm__torch_devices[TORCH_DEVICES];

/* Flags that the hooks test; usually 0. */
enum {
    TORCH_RECORDS = 1,
    TORCH_FORKED = 2,
    TORCH_SHARES = 4 /* see shared_blocks.h */
};
extern _Atomic unsigned vmm__torch_mode;

static inline unsigned vmm__torch_mode_now(void)
{
    return atomic_load_explicit(&vmm__torch_mode, memory_order_relaxed);
}

static inline bool vmm__torch_records(void)
{
    return (vmm__torch_mode_now() & TORCH_RECORDS) != 0;
}

/* A child of fork(), whose parent has caches: it must not touch them, nor take a lock that one of its parent's threads
 * may have held. The error is ERR_FORKED. */
static inline bool vmm__torch_is_forked(void)
{
    return (vmm__torch_mode_now() & TORCH_FORKED) != 0;
}
vmm_status vmm__torch_forked_error(void);

static inline vmm_cache *vmm__torch_cache_of(const struct torch_device *device)
{
    return atomic_load_explicit(&device->cache, memory_order_relaxed);
}

/* Returns the device's record if it has a cache that this process may use; else NULL. */
static inline struct torch_device *vmm__torch_find(int ordinal)
{
    if ((unsigned)ordinal >= TORCH_DEVICES || vmm__torch_is_forked())
        return NULL;
    struct torch_device *device = &vmm__torch_devices[ordinal];
    bool has_cache = atomic_load_explicit(&device->cache, memory_order_acquire) != NULL;
    return has_cache ? device : NULL;
}

/* Iterates over the devices that vmm__torch_find() finds: the one after `device`, or the first one if that is NULL. */
static inline struct torch_device *vmm__torch_next(const struct torch_device *device)
{
    int ordinal = device == NULL ? 0 : device->ordinal + 1;
    while (ordinal < TORCH_DEVICES && vmm__torch_find(ordinal) == NULL)
        ordinal++;
    return vmm__torch_find(ordinal);
}

#endif
