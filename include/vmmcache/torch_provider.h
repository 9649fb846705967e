/*
 * What libvmmcache_torch gives to an allocator class of PyTorch: one table of C functions.
 *
 * The class (src/torch/shim) is C++ and is compiled against the user's PyTorch. It uses the library through this table
 * only, so it needs no symbol of the library, and one library serves every PyTorch. vmm_torch_provider() returns the
 * table.
 *
 * Conventions are those of vmmcache.h: out-parameters are written on success only, and last_error() describes a
 * failure. Every function is thread-safe. A function that takes a device creates the device's cache if that is said,
 * else it treats a device without a cache as empty.
 */
#ifndef VMMCACHE_TORCH_PROVIDER_H
#define VMMCACHE_TORCH_PROVIDER_H

#include "vmmcache/torch.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Raised whenever a member changes its meaning. A later version of the library may add members at the end. */
#define VMM_TORCH_PROVIDER_VERSION 1

/* Room for the text of failure_write(). */
#define VMM_TORCH_FAILURE_BYTES 1536

/* Frees memory that the program holds in caches of its own, and returns whether it did. A request calls it before it
 * fails, like vmm_config.pressure and before that. */
typedef int (*vmm_torch_reclaim_fn)(void);

/* Receives each change of a device's cache: see vmm_listen(). Called with locks held: it must not call the library. */
typedef void (*vmm_torch_watch_fn)(int device, const vmm_change *change);

/* Says that a range of a pool is about to be unmapped by a sleep, or was mapped by a wake: see vmm_torch_unmapping().
 * Called without locks. */
typedef void (*vmm_torch_sleep_fn)(int device, vmm_pool_id pool, uint64_t address, uint64_t bytes,
                                   int is_mapped);

/* Says that the library has stored (change 1) or dropped (change -1) a copy of a number that vmm_torch_stack_fn
 * returned. The number begins with one copy. Called with locks held: it must not call the library. */
typedef void (*vmm_torch_stack_use_fn)(uint64_t stack, int change);

/* What history_start() records. See vmm_torch_history_start(). */
typedef struct vmm_torch_recording {
    size_t struct_size;
    uint64_t entries;
    vmm_torch_stack_fn stack;      /* of allocations; NULL: no stacks */
    vmm_torch_stack_fn free_stack; /* of frees, releases and snapshots; NULL: no stacks */
    vmm_torch_stack_use_fn use;    /* NULL: none */
    int keeps; /* a recording of as many entries goes on, with these settings; 0: it begins anew */
    vmm_torch_stack_fn
        texts; /* of changes that no call makes; called with locks held; NULL: none */
} vmm_torch_recording;

/* A block that was freed. */
typedef struct vmm_torch_freed {
    int device;
    uint64_t bytes; /* as requested */
} vmm_torch_freed;

typedef struct vmm_torch_functions {
    size_t struct_size;
    uint32_t version; /* VMM_TORCH_PROVIDER_VERSION */

    const char *(*last_error)(void);
    /* Writes a failure that the caller cannot report, and last_error(), to the log. */
    void (*log_failure)(const char *call, vmm_status status);

    /* ---- Devices ---- */

    void (*init)(int device_count); /* vmm_torch_init() */
    /* Creates the cache. */
    vmm_status (*memory_get)(int device, uint64_t *free_bytes, uint64_t *total_bytes);
    /* The largest size that one request could get now. Creates the cache. */
    vmm_status (*largest_get)(int device, uint64_t *bytes);
    /* Bit n: device n can access this device's memory, or will from the beginning. */
    uint64_t (*peers_get)(int device);

    /* ---- Memory ---- */

    /* Creates the cache. 0 bytes: a NULL block. */
    vmm_status (*allocate)(size_t bytes, int device, vmm_stream stream, void **out);
    /* Frees a block of any device. In a child of fork() it does nothing: VMM_OK and 0 bytes. */
    vmm_status (*release)(void *ptr, vmm_torch_freed *out);
    /* Finds the live block of any device that contains an address. */
    vmm_status (*find)(const void *address, vmm_item *item, int *device);
    vmm_status (*stream_record)(void *ptr, vmm_stream stream);

    /* ---- Limits ---- */

    vmm_status (*empty)(
        void); /* vmm_torch_reset(), but stops at the first failure and returns it */
    /* A fraction of 1 is no limit. Set creates the cache. */
    vmm_status (*fraction_set)(int device, double fraction);
    vmm_status (*fraction_get)(int device, double *fraction);

    /* ---- Statistics ---- */

    /* Both are zeros if the device has no cache. */
    vmm_status (*stats_get)(int device, vmm_stats *stats, vmm_torch_stats *kinds);
    vmm_status (*stats_reset_peak)(int device);

    /* ---- Pools, by the device and PyTorch's id, which is not zeros ---- */

    /* Counts one more use; the first one creates a pool of the kind VMM_POOL_GRAPH, and the cache. */
    vmm_status (*pool_use)(int device, vmm_pool_id id);
    /* Ends one use; the last one destroys the pool, and the default pool adopts its live blocks. */
    vmm_status (*pool_leave)(int device, vmm_pool_id id);
    /* Number of uses; 0: there is no such pool. */
    uint64_t (*pool_uses)(int device, vmm_pool_id id);
    /* Sets or clears vmm_pool_options.use_on_oom of an empty pool with one use. While it is set, the pool is one of the
     * kind VMM_POOL_GENERAL: while it has one use only, its idle memory serves all requests of other pools; with more,
     * such as graphs, its free memory serves those that would fail. ERR_INVALID_ARGUMENT: it is in use. */
    vmm_status (*pool_use_on_oom)(int device, vmm_pool_id id, int is_on);
    /* The same for vmm_pool_options.no_split, which cannot be cleared. */
    vmm_status (*pool_no_split)(int device, vmm_pool_id id);
    vmm_status (*pool_route)(int device, vmm_pool_id id, vmm_pool_filter filter, void *context);
    vmm_status (*pool_unroute)(int device, vmm_pool_id id);
    /* Releases idle memory of the pool. Without such a pool it does nothing. */
    vmm_status (*pool_trim)(int device, vmm_pool_id id);
    vmm_status (*pool_walk)(int device, vmm_pool_id id, vmm_visitor visit, void *context);
    /* Allocates a block where the pool had one of the same size and stream: see vmm_pool_place(). */
    vmm_status (*pool_place)(int device, vmm_pool_id id, uint64_t address, size_t bytes,
                             vmm_stream stream);

    /* ---- Sharing with other processes of the same user, on the same machine ---- */

    /* Writes a handle of the block that contains an address, and the address's offset in it. *handle_bytes: the room
     * for the handle (64), then its size. The handle is valid until the block is freed, and the same for each call. A
     * thread of the library gives the memory to processes that have the handle. They can also access other blocks
     * beside it: see vmm_config.shareable, which caches have by default. ERR_UNSUPPORTED: the device cannot share, or
     * shareable is off. */
    vmm_status (*share)(const void *address, void *handle, size_t *handle_bytes,
                        uint64_t *offset_bytes);
    /* Maps the memory of a handle of another process, or of this one; each call maps it again. The caller makes sure
     * that the memory has what it should before it is used. ERR_INVALID_ARGUMENT: not a handle of this version, or its
     * block was freed, or its process has ended; ERR_DRIVER: the process does not answer. */
    vmm_status (*share_open)(const void *handle, size_t handle_bytes, int device, void **out);
    /* Waits for the work of the device, unless a capture is under way, and unmaps the memory. ERR_UNKNOWN_POINTER. */
    vmm_status (*share_close)(void *ptr);

    /* ---- Listeners. NULL removes one; a call under way may still reach the previous one. ---- */

    /* Beside the listener of vmm_torch_oom_listen(). */
    void (*oom_watch)(vmm_torch_oom_fn watch);
    /* Before the first cache exists. */
    vmm_status (*reclaim_watch)(vmm_torch_reclaim_fn reclaim);
    void (*change_watch)(vmm_torch_watch_fn watch);

    /* ---- History ---- */

    vmm_status (*history_start)(const vmm_torch_recording *recording);
    vmm_status (*history_stop)(void);
    vmm_status (*snapshot_take)(int device, const vmm_torch_snapshot **out);
    void (*snapshot_drop)(const vmm_torch_snapshot *snapshot);

    /* ---- Pools, continued ---- */

    /* Gives an empty pool with one use a source: see vmm_pool_options.source. Its functions are called, and *source
     * must stay as it is, until pool_uses() is 0. A pool with live blocks stays after its last use, until they are
     * freed and empty() or pool_trim() is called. ERR_INVALID_ARGUMENT: it is in use. */
    vmm_status (*pool_source)(int device, vmm_pool_id id, const vmm_segment_source *source);

    /* ---- Listeners, continued ---- */

    void (*sleep_watch)(vmm_torch_sleep_fn watch);

    /* ---- History, continued ---- */

    /* The stack that was recorded when the live block that contains an address was allocated; 0: none. */
    uint64_t (*stack_find)(const void *address);

    /* ---- Devices, continued ---- */

    /* From now on, a vmm_config.peer_devices that names all devices (UINT64_MAX) gives new caches no peers: peers_add()
     * does. */
    void (*peers_defer)(void);
    /* Gives devices access to the memory of one, as vmm_peers_add() does. Creates the cache. ERR_INVALID_ARGUMENT:
     * vmm_config.peer_devices does not name one of them. */
    vmm_status (*peers_add)(int device, uint64_t devices);

    /* ---- Limits, continued ---- */

    /* The fraction, from 0 to 1, that devices have until fraction_set(). A device that has a cache keeps its own. */
    void (*fraction_begin)(double fraction);

    /* ---- Memory, continued ---- */

    /* Writes the text of PyTorch's error for a request that failed: in PyTorch's words what it wanted and, if memory
     * has run out, how much the device has; then last_error(). VMM_TORCH_FAILURE_BYTES are enough. */
    void (*failure_write)(int device, size_t bytes, vmm_status status, char *text,
                          size_t text_bytes);

    /* ---- Captures ---- */

    /* See vmm_capture_announce(). Who asks for this table announces every capture: caches ask no stream. Without a
     * cache of the device they do nothing. */
    vmm_status (*capture_announce)(int device, vmm_stream stream);
    void (*capture_retract)(int device, vmm_stream stream);
    /* Lists the stream of a freed block that other streams still use, then those streams, as far as there is
     * `room`. Returns their number; 0: no block waits there. */
    unsigned (*wait_streams)(int device, const void *ptr, vmm_stream *streams, unsigned room);
    /* Frees such a block for its stream: the caller knows that what the stream does next comes after the uses. */
    void (*wait_end)(int device, const void *ptr);
    /* A further use of a pool that has a route begins on the calling thread, and ends: inside a region the thread's
     * requests go to that pool meanwhile. The first use, pool_route, and the last, pool_unroute, do so themselves. */
    vmm_status (*pool_cover)(int device, vmm_pool_id id);
    void (*pool_uncover)(int device, vmm_pool_id id);
} vmm_torch_functions;

/* Returns the table. It lives as long as the process. */
VMM_API const vmm_torch_functions *vmm_torch_provider(void);

#ifdef __cplusplus
}
#endif

#endif
