/*
 * libvmmcache_torch: what PyTorch, CuPy and the Python package `vmmcache` need of the library.
 *
 * The shared library contains all of libvmmcache and exports its interface, too. It keeps one cache a
 * device, made with that device's first use: an allocation, a limit or a private pool. Where neither
 * vmm_config.driver nor VMM_DRIVER names a driver it is CUDA: unlike vmm_create() it never takes host memory
 * because there is no GPU. Everything here is thread-safe.
 *
 * The hooks have the signatures that torch.cuda.memory.CUDAPluggableAllocator wants; the three that
 * begin, end and release private pools speak a C++ ABI and are declared where they are defined
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
 * Does:     sets what caches are made with; the field `device` is ignored. Without this call they are made
 *           with all defaults and the environment.
 * Returns:  VMM_OK.
 * On failure: ERR_INVALID_ARGUMENT: a field is wrong, or a cache was made already.
 */
VMM_API vmm_status vmm_torch_configure(const vmm_config *config);

/*
 * Does:     limits caches that are made from now on to a share of their device's memory, whatever
 *           vmm_config.limit_bytes and VMM_LIMIT say; 0: they count again.
 * Returns:  VMM_OK.
 * On failure: ERR_INVALID_ARGUMENT: the share is not from 0 to 1, or a cache was made already.
 */
VMM_API vmm_status vmm_torch_limit_share(double share);

/* Returns the cache of a device; NULL if it was not used yet. It lives as long as the
 * process. */
VMM_API vmm_cache *vmm_torch_cache(int device);

/* ---- Hooks -------------------------------------------------------------------------------- */

/* Allocates on a device. Returns NULL for 0 bytes, and never for more: a failure is thrown with our report.
 * Want of memory, or of addresses, is a c10::OutOfMemoryError where PyTorch is loaded and has it, else a
 * std::bad_alloc; all else is a std::runtime_error. */
VMM_API void *vmm_torch_alloc(size_t bytes, int device, vmm_stream stream);

/* The same without exceptions: NULL on failure, and vmm_last_error() has the report. */
VMM_API void *vmm_torch_try_alloc(size_t bytes, int device, vmm_stream stream);

/* Takes a block back; `bytes` as it was asked for, or 0: then they are looked up. An error is kept for
 * vmm_last_error() and told to the log, as those of all hooks below: PyTorch cannot be told. */
VMM_API void vmm_torch_free(void *ptr, size_t bytes, int device, vmm_stream stream);

/* Says how many devices there are: others are refused from then on. 0: nobody knows. */
VMM_API void vmm_torch_init(int device_count);

/* empty_cache(): waits for the work of every cache's streams, as PyTorch's own allocator does, so that what was
 * just freed goes back too, and trims it. */
VMM_API void vmm_torch_reset(void);

/* Limits a device's cache to a share of the device's memory, from 0 to 1, which is no limit. */
VMM_API void vmm_torch_memory_fraction(double fraction, int device);

/* The start of the block that an address lies in, and its bytes; the address itself and 0 if there is
 * none. */
VMM_API void *vmm_torch_base(void *ptr, size_t *bytes);

VMM_API void vmm_torch_record_stream(void *ptr, vmm_stream stream);

/* The most that one request could get on a device now; 0 if that is not known. PyTorch has no hook for
 * this: it stands in the place of a member function, whose object is the first argument. */
VMM_API void vmm_torch_cache_info(void *allocator, int8_t device, size_t *largest_bytes);

/* Is told of a request that failed for want of memory, before the program is: the device, the bytes that
 * were asked for, the limit or what the device has, and what of that nobody has taken. Called without locks,
 * by several threads at once: may take snapshots, free and allocate. */
typedef void (*vmm_torch_shortage_fn)(int device, uint64_t bytes, uint64_t most_bytes,
                                      uint64_t free_bytes);

/* Sets who is told; NULL: nobody. The one before may be called still by requests that are under way. */
VMM_API void vmm_torch_shortage_watch(vmm_torch_shortage_fn watch);

/* Ends asking the program for memory (vmm_config.pressure), for good: for a program whose function cannot be
 * called any more. Questions that are under way may go on. */
VMM_API void vmm_torch_pressure_end(void);

/* ---- Figures ------------------------------------------------------------------------------ */

/* What vmm_stats does not tell apart: requests of up to 1 MiB, and larger ones. */
typedef struct vmm_torch_kind_figures {
    vmm_figure requested_bytes;
    vmm_figure allocated_bytes;
    vmm_figure active_bytes;
    vmm_figure reserved_bytes;
    vmm_figure allocations;
    vmm_figure active; /* blocks */
} vmm_torch_kind_figures;

typedef struct vmm_torch_figures {
    size_t struct_size;
    vmm_torch_kind_figures small;
    vmm_torch_kind_figures large;
} vmm_torch_figures;

/* Figures of a device; all zero if it has no cache yet. ERR_INVALID_ARGUMENT: NULL, or a struct_size that
 * is too small. */
VMM_API vmm_status vmm_torch_figures_get(int device, vmm_torch_figures *out);

/* Sets peaks to current values, and of `accumulated` also what was ever allocated and freed to zero. */
VMM_API vmm_status vmm_torch_figures_reset(int device, int accumulated);

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
    uint64_t address; /* oom: bytes that the device has free */
    uint64_t bytes;   /* alloc, free: as requested; segments: of memory */
    uint64_t stream;
    uint64_t time_us; /* since 1970 */
    uint64_t stack;   /* what vmm_torch_stack_fn returned; 0: none */
    vmm_pool_id pool;
    int32_t action;
    int32_t device;
} vmm_torch_event;

typedef struct vmm_torch_block {
    uint64_t address;
    uint64_t bytes;
    uint64_t requested_bytes;
    uint64_t stack; /* of its allocation, if recorded */
    int32_t state;  /* vmm_item_state */
    int32_t reserved;
} vmm_torch_block;

/* Mapped memory without a gap, of one stream, pool and kind. Its blocks tile it. */
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
    const vmm_torch_segment *segments; /* by rising address */
    const vmm_torch_block *blocks;
    const vmm_torch_event *events; /* oldest first */
    uint64_t segment_count;
    uint64_t block_count;
    uint64_t event_count;
    uint64_t lost_events; /* older than the history holds */
} vmm_torch_snapshot;

/* Names the calling thread's stack by a number that is not 0. Called without locks, by allocations and
 * frees that are under way also when recording has just ended. */
typedef uint64_t (*vmm_torch_stack_fn)(void);

/*
 * Does:     begins to record events of all devices, the last `entries` of each; a history that is recorded
 *           already ends first. Recording makes allocations and frees of a device one at a time.
 * Takes:    entries > 0; stack, asked at each allocation, and at each free too if `free_stacks`; NULL: no
 *           stacks.
 * Returns:  VMM_OK.
 * On failure: ERR_INVALID_ARGUMENT, ERR_HOST_OOM.
 */
VMM_API vmm_status vmm_torch_history_start(uint64_t entries, vmm_torch_stack_fn stack,
                                           int free_stacks);

/* Ends recording and forgets what was recorded, stacks of live blocks too. */
VMM_API vmm_status vmm_torch_history_stop(void);

/*
 * Does:     takes a picture of a device's memory and history, which agree with each other: played back from
 *           the picture, each event finds what it changes.
 * Returns:  VMM_OK and the picture in *out; empty if the device has no cache.
 * Owns:     the caller, until vmm_torch_snapshot_drop().
 * On failure: ERR_INVALID_ARGUMENT (NULL), ERR_HOST_OOM.
 */
VMM_API vmm_status vmm_torch_snapshot_take(int device, const vmm_torch_snapshot **out);
VMM_API void vmm_torch_snapshot_drop(const vmm_torch_snapshot *snapshot);

#ifdef __cplusplus
}
#endif

#endif
