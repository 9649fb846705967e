/*
 * libvmmcache_torch: the interface that PyTorch, CuPy and the Python package `vmmcache` use.
 *
 * The shared library contains all of libvmmcache and exports its interface too. It keeps one cache per device
 * and creates it at the device's first use: an allocation, a limit or a graph pool. Every function here is
 * thread-safe.
 *
 * The hooks have the signatures that torch.cuda.memory.CUDAPluggableAllocator expects. The three hooks that
 * begin, end and release graph pools have a C++ ABI and are declared where they are defined
 * (src/torch/abi.cpp): vmm_torch_pool_begin, vmm_torch_pool_end, vmm_torch_pool_release.
 */
#ifndef VMMCACHE_TORCH_H
#define VMMCACHE_TORCH_H

#include "vmmcache/vmmcache.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Set-up ------------------------------------------------------------------------------- */

/*
 * Does:     sets the configuration of the caches; ignores the field `device`. Without this call, caches use
 *           the defaults and the environment.
 * Returns:  VMM_OK.
 * On failure: ERR_INVALID_ARGUMENT: a field is wrong, or a cache exists already.
 */
VMM_API vmm_status vmm_torch_configure(const vmm_config *config);

/*
 * Does:     limits each cache created from now on to a share of its device's memory. The share overrides
 *           vmm_config.limit_bytes and VMM_LIMIT; a share of 0 restores them.
 * Returns:  VMM_OK.
 * On failure: ERR_INVALID_ARGUMENT: the share is not from 0 to 1, or a cache exists already.
 */
VMM_API vmm_status vmm_torch_limit_share(double share);

/* Returns the cache of a device, or NULL before the device's first use. It lives as long as the process. */
VMM_API vmm_cache *vmm_torch_cache(int device);

/* ---- Hooks -------------------------------------------------------------------------------- */

/* Allocates on a device. Returns NULL for 0 bytes only. A failure throws an exception with the library's report:
 * if memory or addresses ran out, c10::OutOfMemoryError where PyTorch is loaded and defines it, else
 * std::bad_alloc; for any other failure std::runtime_error. */
VMM_API void *vmm_torch_alloc(size_t bytes, int device, vmm_stream stream);

/* The same without exceptions: returns NULL on failure, and vmm_last_error() holds the report. */
VMM_API void *vmm_torch_try_alloc(size_t bytes, int device, vmm_stream stream);

/* Frees a block. `bytes` is the size requested; if it is 0, the function looks the size up. PyTorch's interface has
 * no way to return an error, so this hook and those below write it to the log and keep it for vmm_last_error(). */
VMM_API void vmm_torch_free(void *ptr, size_t bytes, int device, vmm_stream stream);

/* The same, but ignores `bytes` and looks the size up, which takes longer. For PyTorch 2.5 to 2.8: these may pass
 * the size of an earlier block at the same address, which would falsify the statistics for good. */
VMM_API void vmm_torch_free_unsized(void *ptr, size_t bytes, int device, vmm_stream stream);

/* Sets the number of devices: later calls for other devices fail. 0: the number is unknown. */
VMM_API void vmm_torch_init(int device_count);

/* empty_cache(): waits for the work of every cache's streams, as PyTorch's own allocator does, so that blocks just
 * freed are released too; then trims every cache. */
VMM_API void vmm_torch_reset(void);

/* Limits a device's cache to a share of the device's memory, from 0 to 1; 1 removes the limit. */
VMM_API void vmm_torch_memory_fraction(double fraction, int device);

/* Returns the start of the block that contains an address, and the block's size in *bytes. If no block contains
 * it, returns the address itself and a size of 0. */
VMM_API void *vmm_torch_base(void *ptr, size_t *bytes);

VMM_API void vmm_torch_record_stream(void *ptr, vmm_stream stream);

/* Receives each request that ran out of memory, before the program sees the failure: the device, the bytes
 * requested, the limit (or the device's memory), and how much of it is free on the device. Called without locks and
 * by several threads at once; it may take snapshots, free and allocate. */
typedef void (*vmm_torch_oom_fn)(int device, uint64_t bytes, uint64_t most_bytes,
                                 uint64_t free_bytes);

/* Sets that function; NULL removes it. Requests under way may still call the previous one. */
VMM_API void vmm_torch_oom_listen(vmm_torch_oom_fn watch);

/* Stops calls of vmm_config.pressure for good, for a program whose function can no longer be called. Calls under
 * way may still finish. */
VMM_API void vmm_torch_pressure_end(void);

/* ---- Regions ------------------------------------------------------------------------------- */

/*
 * A region gives a tag to the memory that a thread allocates, so that the program can put it to sleep apart from the
 * rest: vmm_pool_sleep(), vmm_pool_wake().
 */

#define VMM_TORCH_TAG_BYTES 64

/* A pool of a device. */
typedef struct vmm_torch_pool {
    vmm_pool *pool;
    vmm_pool_id id; /* PyTorch's, for a pool of graphs or a MemPool; else the library's */
    char tag[VMM_TORCH_TAG_BYTES]; /* empty: none */
    int device;
    int discards; /* as in vmm_torch_region_begin() */
} vmm_torch_pool;

/*
 * Does:     leads requests of the calling thread on a device to the pool of a tag, until vmm_torch_region_end(), and
 *           opens the device. Regions nest; the innermost one counts. Pools that PyTorch begins inside a region (for a
 *           captured graph, for a MemPool) take over until their end; new ones get the tag. Do not begin a region
 *           during a capture: its blocks would not belong to the graph.
 * Takes:    tag, of 1 to 63 bytes. discards: not 0 if vmm_pool_sleep() need not keep the
 *           contents. A tag has one pool for either case.
 * Returns:  VMM_OK.
 * Threads:  any. End the region on the same thread.
 * On failure: ERR_INVALID_ARGUMENT (a wrong tag), ERR_HOST_OOM, and as vmm_create().
 */
VMM_API vmm_status vmm_torch_region_begin(int device, const char *tag, int discards);

/* Ends the innermost region of the calling thread. ERR_INVALID_ARGUMENT: there is none, or it is of another device. */
VMM_API vmm_status vmm_torch_region_end(int device);

/*
 * Does:     lists the pools of a device that can sleep, the default pool first: not those with an allocator of their
 *           own.
 * Takes:    pools: room for so many.
 * Returns:  VMM_OK and in *count how many there are, which may be more than `room`; 0 if the device has no cache.
 * Threads:  any.
 * On failure: ERR_INVALID_ARGUMENT (NULL).
 */
VMM_API vmm_status vmm_torch_pools_list(int device, vmm_torch_pool *pools, size_t room,
                                        size_t *count);

/*
 * Does:     tells PyTorch's allocator class which memory a sleep is about to unmap, and a wake has mapped. The class
 *           tells PyTorch, which has NCCL drop its registration of the memory, and register it again. Set both in the
 *           vmm_sleep_options of each vmm_pool_sleep() and vmm_pool_wake() of pools of this library. A sleep that fails
 *           calls the second one for what is awake again.
 * Takes:    what vmm_sleep_fn takes; context is ignored. Without the class they do nothing.
 * Threads:  any.
 */
VMM_API void vmm_torch_unmapping(void *context, vmm_pool *pool, uint64_t address, uint64_t bytes);
VMM_API void vmm_torch_mapped(void *context, vmm_pool *pool, uint64_t address, uint64_t bytes);

/* ---- Statistics --------------------------------------------------------------------------- */

/* Statistics that vmm_stats does not separate: requests of up to 1 MiB (small), and larger ones. */
typedef struct vmm_torch_kind_stats {
    vmm_stat requested_bytes;
    vmm_stat allocated_bytes;
    vmm_stat active_bytes;
    vmm_stat reserved_bytes;
    vmm_stat allocations;
    vmm_stat active; /* blocks */
} vmm_torch_kind_stats;

typedef struct vmm_torch_stats {
    size_t struct_size;
    vmm_torch_kind_stats small;
    vmm_torch_kind_stats large;
} vmm_torch_stats;

/* Reads the statistics of a device; all are zero if it has no cache yet. ERR_INVALID_ARGUMENT: `out` is NULL, or
 * its struct_size is too small. */
VMM_API vmm_status vmm_torch_stats_get(int device, vmm_torch_stats *out);

/* Sets peaks to the current values; if `accumulated`, also sets the totals of allocated and freed to zero. */
VMM_API vmm_status vmm_torch_stats_reset(int device, int accumulated);

/* ---- History and snapshots ---------------------------------------------------------------- */

/* X(name, value, PyTorch's word) */
#define VMM_TORCH_ACTION_MAP(X)                                                                    \
    X(ALLOC, 0, "alloc")                                                                           \
    X(FREE_REQUESTED, 1, "free_requested")                                                         \
    X(FREE_COMPLETED, 2, "free_completed")                                                         \
    X(SEGMENT_MAP, 3, "segment_map")                                                               \
    X(SEGMENT_UNMAP, 4, "segment_unmap")                                                           \
    X(SNAPSHOT, 5, "snapshot")                                                                     \
    X(OOM, 6, "oom")

typedef enum vmm_torch_action {
#define VMM_TORCH_ACTION_ENUM(name, value, word) VMM_TORCH_##name = value,
    VMM_TORCH_ACTION_MAP(VMM_TORCH_ACTION_ENUM)
#undef VMM_TORCH_ACTION_ENUM
} vmm_torch_action;

/* PyTorch's word for an action; NULL if it is none. */
VMM_API const char *vmm_torch_action_word(int action);

typedef struct vmm_torch_event {
    uint64_t address; /* OOM: bytes that are free on the device */
    uint64_t bytes;   /* ALLOC, FREE: as requested; SEGMENT: of memory */
    uint64_t stream;
    uint64_t time_us; /* since 1970 */
    uint64_t stack;   /* the result of vmm_torch_stack_fn; 0: none */
    vmm_pool_id pool;
    int32_t action;
    int32_t device;
} vmm_torch_event;

typedef struct vmm_torch_block {
    uint64_t address;
    uint64_t bytes;
    uint64_t requested_bytes;
    uint64_t stack; /* of its allocation, if recorded; else 0 */
    int32_t state;  /* vmm_item_state */
    int32_t reserved;
} vmm_torch_block;

/* Contiguous mapped memory of one stream, pool and kind. Its blocks tile it. */
typedef struct vmm_torch_segment {
    uint64_t address;
    uint64_t bytes;
    uint64_t stream;
    vmm_pool_id pool;
    uint64_t first_block; /* in vmm_torch_snapshot.blocks */
    uint64_t block_count;
    int32_t is_small;
    int32_t device;
} vmm_torch_segment;

typedef struct vmm_torch_snapshot {
    size_t struct_size;
    const vmm_torch_segment *segments; /* by ascending address */
    const vmm_torch_block *blocks;
    const vmm_torch_event *events; /* oldest first */
    uint64_t segment_count;
    uint64_t block_count;
    uint64_t event_count;
    uint64_t lost_events; /* events overwritten because the history was full */
} vmm_torch_snapshot;

/* Returns a number, not 0, that identifies the calling thread's stack. Called without locks. Allocations and frees
 * under way may still call it just after recording has stopped. */
typedef uint64_t (*vmm_torch_stack_fn)(void);

/*
 * Does:     starts recording the events of all devices and keeps the last `entries` of each; a recording under
 *           way is stopped first. While recording, allocations and frees of a device run one at a time.
 * Takes:    entries > 0; stack, called at each allocation, and at each free too if `free_stacks`; NULL records
 *           no stacks.
 * Returns:  VMM_OK.
 * On failure: ERR_INVALID_ARGUMENT, ERR_HOST_OOM.
 */
VMM_API vmm_status vmm_torch_history_start(uint64_t entries, vmm_torch_stack_fn stack,
                                           int free_stacks);

/* Stops recording and discards the histories, including the stacks of live blocks; only the allocator class for PyTorch
 * keeps those, until the blocks are freed. */
VMM_API vmm_status vmm_torch_history_stop(void);

/*
 * Does:     takes a snapshot of a device's memory and history. The two agree: a replay of the events that ends at
 *           the snapshot finds every block and segment that an event changes. What the program allocates on
 *           vmm_torch_cache() itself has the ALLOC event of the first snapshot that shows it; a block that it frees,
 *           moves or resizes there vanishes from the history. Each unit with memory of a reserved block is a block.
 * Returns:  VMM_OK and the snapshot in *out; it is empty if the device has no cache.
 * Owns:     the caller, until vmm_torch_snapshot_drop().
 * On failure: ERR_INVALID_ARGUMENT (NULL), ERR_HOST_OOM.
 */
VMM_API vmm_status vmm_torch_snapshot_take(int device, const vmm_torch_snapshot **out);
VMM_API void vmm_torch_snapshot_drop(const vmm_torch_snapshot *snapshot);

/*
 * For vmmcache.Cache of the Python package: the deleter of a DLManagedTensor, and the destructor of the capsule that
 * owns one until a consumer takes it. They call the function that the structure's context points to, with the
 * structure, and keep an exception of Python that is on its way: ctypes alone loses it. Any thread, with or without
 * Python's lock. Without Python in the process they do nothing.
 */
VMM_API void vmm_torch_dlpack_delete(void *managed);
VMM_API void vmm_torch_dlpack_end(void *capsule);

#ifdef __cplusplus
}
#endif

#endif
