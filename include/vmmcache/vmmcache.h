/*
 * libvmmcache: device memory for CUDA programs, without fragmentation.
 *
 * A cache reserves a large range of device addresses (its arena) and maps physical memory into it
 * on demand. vmm_alloc() and vmm_free() work in stream order, like cudaMallocAsync() and
 * cudaFreeAsync().
 *
 *   vmm_cache *cache;
 *   void *p;
 *   if (vmm_create(NULL, &cache) == VMM_OK && vmm_alloc(cache, 1 << 20, NULL, &p) == VMM_OK) {
 *       ... launch kernels on the default stream ...
 *       vmm_free(cache, p);
 *       vmm_destroy(cache);
 *   }
 *
 * Conventions. Sizes are bytes. A function writes its out-parameters only on success. A function
 * that fails changes nothing that the caller can see, unless its text says otherwise;
 * vmm_last_error() then describes the failure in one line. Every call with a NULL cache fails with
 * ERR_INVALID_ARGUMENT, unless its text says otherwise. ERR_FORKED, and ERR_ASLEEP of a call that needs memory of a
 * pool that is not awake, are not listed at each function.
 *
 * Threads. Any thread may call any function on any cache at any time, with one exception:
 * vmm_destroy() must be the last call on its cache. Signal handlers must not call the library. If a
 * signal handler that interrupted a call of the library calls exit(), exit handlers must not call
 * the library either. A thread must not be cancelled (pthread_cancel()) inside a call: locks would
 * stay locked.
 *
 * Context. With the CUDA driver, a cache lives in the device's primary context, which the CUDA
 * runtime also uses. A call may run under any current context and leaves the current context
 * unchanged.
 *
 * Streams. A cache identifies a stream by its handle. Call vmm_stream_end() before you destroy a
 * stream that the cache has seen: the next stream may get the same handle, and CUDA may end the
 * process if the cache asks it about a destroyed stream. That function's text says what becomes of a
 * stream without the call. The per-thread default stream is not supported: its handle means another
 * stream on each thread.
 *
 * Captures. Call vmm_capture_announce() before a capture begins while other threads may call the
 * cache: an event that the cache records would otherwise spoil the capture.
 *
 * Callbacks. A cache calls the program's functions (log, clock, filter, visitor, listener) with locks
 * held. Such a function must not call the same cache: a call does nothing and returns
 * ERR_INVALID_ARGUMENT; only vmm_block_bytes() works. The pressure function, the misuse function,
 * those of a source (vmm_segment_source), those of a sleep (vmm_sleep_options) and the visitors of
 * vmm_parts_walk() and vmm_neighbours_walk() are called without locks and may call every function
 * except vmm_destroy(), those of a source not vmm_pool_destroy() either. A request that one of them
 * makes does not call the pressure function. If vmm_destroy() detects a misuse, it calls the misuse
 * function during teardown; calls that the function makes on the same cache fail. A callback must
 * return to the library. If it throws an exception, calls longjmp() or ends its thread, locks stay
 * locked and the cache may be left inconsistent: the next call on the cache can hang or crash. A C++
 * callback must catch all exceptions.
 *
 * fork(). A cache belongs to the process that created it. In a child process, every call on the
 * cache returns ERR_FORKED and does nothing, except vmm_free(cache, NULL), which returns VMM_OK, and
 * vmm_block_bytes(), which answers as in the parent. The child's copy of the cache's records is
 * released when the child calls exec() or exits. The child may create its own caches, but with the
 * CUDA driver only if the parent had not started CUDA before fork() (ERR_FORKED).
 *
 * Lost device. A device is lost if its context was destroyed or reset, or if a kernel broke it.
 * After a driver call reports this, the cache makes no further driver call. Functions that need the
 * device then return ERR_LOST, which their texts name, and the line of the first call that failed.
 * vmm_free() and the functions that report or change only records still work. vmm_destroy() releases
 * all host memory and, with the CUDA driver, the device memory, which outlives the context. If the program
 * does not destroy the cache, or if the driver refuses to release something, that device memory
 * stays allocated until the process ends. A new cache can be created if CUDA gives the process a
 * new context: it does after a reset, but not after an error in a kernel.
 *
 * Exit. A program may exit without destroying its caches: the driver releases their memory. Exit
 * handlers and destructors may free blocks and destroy caches. With the CUDA driver, a handler that
 * runs after the handler that the first vmm_create() registered finds the device lost.
 *
 * This header is C11 and C++17, and needs no CUDA header.
 */
#ifndef VMMCACHE_H
#define VMMCACHE_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define VMM_VERSION_MAJOR 0
#define VMM_VERSION_MINOR 2
#define VMM_VERSION_PATCH 0

#if defined(__GNUC__)
#define VMM_API       __attribute__((visibility("default")))
#define VMM_NODISCARD __attribute__((warn_unused_result))
#else
#define VMM_API
#define VMM_NODISCARD
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Status ------------------------------------------------------------------------------- */

/* X(name, value, text). The value of a name never changes. The value 10 is unused. Only builds of
 * the library with VMM_CHECK return ERR_INTERNAL. */
#define VMM_STATUS_MAP(X)                                                                          \
    X(OK, 0, "success")                                                                            \
    X(ERR_INVALID_ARGUMENT, 1, "an argument is outside what the call accepts")                     \
    X(ERR_UNKNOWN_POINTER, 2, "the pointer is not the start of a live block of this cache")        \
    X(ERR_DEVICE_OOM, 3, "out of device memory, or the cache's limit is reached")                  \
    X(ERR_HOST_OOM, 4, "out of host memory for the library's own records")                         \
    X(ERR_ADDRESS_SPACE, 5, "out of device address space")                                         \
    X(ERR_UNSUPPORTED, 6, "the device, driver or build cannot do this")                            \
    X(ERR_NO_DEVICE, 7, "no such device, or the driver library is missing")                        \
    X(ERR_DRIVER, 8, "a driver call failed; vmm_last_error() names the call and its code")         \
    X(ERR_LOST, 9,                                                                                 \
      "the device context is gone or broken; free blocks, report, and destroy the cache")          \
    X(ERR_INTERNAL, 11, "the library found its own records inconsistent")                          \
    X(ERR_FORKED, 12, "the cache belongs to the process that forked")                              \
    X(ERR_CORRUPTED, 13, "memory beyond a block, or after its free, was written")                  \
    X(ERR_ASLEEP, 14, "the pool sleeps; wake it first")

typedef enum vmm_status {
#define VMM_STATUS_ENUM(name, value, text) VMM_##name = value,
    VMM_STATUS_MAP(VMM_STATUS_ENUM)
#undef VMM_STATUS_ENUM
} vmm_status;

/*
 * Returns:  the name of a status, such as "VMM_ERR_DEVICE_OOM"; never NULL.
 * Threads:  any.
 */
VMM_API const char *vmm_status_name(vmm_status status);

/*
 * Returns:  one sentence that explains a status; never NULL.
 * Threads:  any.
 */
VMM_API const char *vmm_status_text(vmm_status status);

/*
 * Returns:  one line that describes the last failed call of the calling thread: the request, the
 *           cause and, for a driver call, its name and error code. Empty if no call of the thread
 *           has failed.
 * Owns:     the library. The string is valid until the thread's next call that fails.
 * Threads:  any.
 */
VMM_API const char *vmm_last_error(void);

/*
 * Returns:  the version of the linked library, "major.minor.patch".
 * Threads:  any.
 */
VMM_API const char *vmm_version(void);

/* ---- Configuration ------------------------------------------------------------------------ */

typedef struct vmm_cache vmm_cache;
typedef struct vmm_pool vmm_pool;   /* see "Pools" */
typedef struct vmm_share vmm_share; /* see "Sharing" */

/* CUstream and cudaStream_t are this type, so both convert without a cast. NULL is the default
 * stream. The host and sim drivers accept any value as the name of a stream. */
typedef struct CUstream_st *vmm_stream;

typedef enum vmm_driver_kind {
    VMM_DRIVER_DEFAULT = 0, /* the value of VMM_DRIVER, else CUDA; never host memory by default */
    VMM_DRIVER_CUDA = 1,    /* an NVIDIA GPU, through libcuda.so.1 */
    VMM_DRIVER_HOST = 2,    /* ordinary memory of this machine, for tests, tools and examples */
    VMM_DRIVER_SIM = 3      /* a simulation without memory: do not access the addresses */
} vmm_driver_kind;

/*
 * Returns:  non-zero if this build of the library contains a driver. A build without the headers of
 *           the CUDA toolkit has no CUDA driver. Does not query a device.
 * Threads:  any.
 */
VMM_API int vmm_has_driver(vmm_driver_kind driver);

/* Receives one line of text without a newline. Several threads may call it at once, with locks
 * held: it must not call the cache. */
typedef void (*vmm_log_fn)(void *context, const char *line);

/* A setting that is on or off. ON is 1, so that `config.zero = 1` works. OFF differs from DEFAULT:
 * it overrides the environment. */
typedef enum vmm_switch {
    VMM_DEFAULT = 0, /* the value of the environment variable, else off */
    VMM_ON = 1,
    VMM_OFF = 2
} vmm_switch;

/*
 * When memory that a stream has freed may serve another stream, or go back to the driver. The
 * stream itself may reuse it at once: that is stream order.
 *
 * ANY_USE: after all work that was submitted before the free has ended, on any stream of the
 * device's primary context or its green contexts, or of another device's that is active: whether
 * the program has declared the use or not. Until then a request maps new memory. Streams stay
 * concurrent. While a kernel does not end, freed memory stays with its stream. A program must order
 * the work of other contexts itself.
 *
 * DECLARED: after the work of the freeing stream, and of the streams that vmm_record_stream() named.
 * The program declares every use by another stream. For programs that run kernels that never end.
 *
 * STREAM_WAIT: at once; the stream that reuses it waits, on the device, for the freeing stream's
 * work. Streams share memory, but may run one after the other. The program declares every use by
 * another stream, and no additional wait between its streams can deadlock. A counterexample: two
 * processes run the collectives A and B on two streams each. If memory that A freed serves B, B
 * waits for A in one process; in the other one A may wait for B, and neither collective ends. If a
 * stream has ended, or a capture of one of the two is announced or under way, memory passes as with
 * DECLARED.
 */
typedef enum vmm_reuse {
    VMM_REUSE_DEFAULT = 0, /* the value of VMM_REUSE, else ANY_USE */
    VMM_REUSE_ANY_USE = 1,
    VMM_REUSE_DECLARED = 2,
    VMM_REUSE_STREAM_WAIT = 3
} vmm_reuse;

/*
 * What the events of a cache cover, with which it knows that work has ended.
 *
 * CONTEXT: all work (cuCtxRecordEvent(), CUDA 12.5).
 *
 * STREAMS: the work of the streams that the cache has seen. So it is with older drivers, and for
 * good after a capture that the cache met without vmm_capture_announce(), which the log says. The
 * promise of ANY_USE then holds for work on streams that allocate from the cache, or that
 * vmm_record_stream() has named; call vmm_stream_end() before you destroy one.
 */
typedef enum vmm_clock_kind {
    VMM_CLOCK_DEFAULT = 0, /* the value of VMM_CLOCK, else CONTEXT */
    VMM_CLOCK_CONTEXT = 1,
    VMM_CLOCK_STREAMS = 2
} vmm_clock_kind;

/*
 * Compaction (vmm_config.compaction) copies live bytes to other physical memory and maps that at
 * their old addresses. It releases memory that a few live bytes pin. It first waits for all work of
 * the device's context.
 *
 * If another thread submits work on blocks of the cache while a call compacts, live data is
 * silently corrupted, or the work faults. The library cannot detect this. Therefore compaction is
 * off by default. A program enables it for every request and trim, or runs it once with
 * vmm_compact(). Do neither where waiting for the whole context can deadlock: for example if a
 * kernel waits for the host, or for another process that waits for this thread. If something
 * identifies a block by its physical memory, such as a registration with a network card, call
 * vmm_pin() on the block first. vmm_share_export() needs no pin.
 *
 * When it is on, vmm_alloc() compacts before it returns ERR_DEVICE_OOM, and vmm_trim() compacts if
 * releasing idle memory is not enough. The program guarantees that no thread submits work on blocks
 * of the cache during these two calls.
 */

/* Values of limit_bytes and decay_ms that override the environment: no limit, no decay. */
#define VMM_NO_LIMIT UINT64_MAX
#define VMM_NO_DECAY UINT32_MAX

/* No footprint target: views are made only if a request would otherwise run out of memory. */
#define VMM_FOOTPRINT_ANY UINT32_MAX

/*
 * The pressure function. A request calls it if its pool needs `bytes` more bytes and it would
 * otherwise fail. It returns non-zero if it freed something: the request then retries, and calls it again if
 * the retry fails, at most 64 times per request. Called without locks; several threads may call it
 * at once. It may free blocks, trim and allocate. A request that it makes does not call it again on
 * the same thread. With neighbours_pressure a thread of the library also calls it for claims: see
 * "Neighbours". Another thread may destroy `pool` meanwhile, such as that of a block under vmm_resize():
 * unless the program prevents this, the function must not use the handle.
 */
typedef int (*vmm_pressure_fn)(void *context, vmm_pool *pool, size_t bytes);

/*
 * Modes that find bugs of the program. They cost time and memory: docs/guide.md, "Debug mode". ON
 * also does what RECORD does, and STOP what ON does. ON and OFF are those of vmm_switch.
 *
 * With VMM_DEBUG_ON, vmm_free() waits for the block's work and the cache does not compact. An
 * access beyond the end of a block of more than 1 MiB faults on the device, and so does an access
 * to such a block after its free.
 */
typedef enum vmm_debug_mode {
    VMM_DEBUG_DEFAULT = VMM_DEFAULT, /* the value of VMM_DEBUG, else OFF */
    VMM_DEBUG_ON = VMM_ON,           /* detects writes beyond blocks and into freed blocks */
    VMM_DEBUG_OFF = VMM_OFF,
    VMM_DEBUG_RECORD = 3, /* records the stacks that allocated and freed each block, for reports */
    VMM_DEBUG_STOP = 4    /* the first misuse also raises SIGTRAP, after its report is in the log */
} vmm_debug_mode;

/*
 * The misuse function. The cache calls it for the first misuse that vmm_config.debug detects: a
 * pointer that is not a live block, or a write beyond a block or into a freed block. `line` is the
 * text that vmm_last_error() returns; the log has the full report. Called without locks, on the
 * thread whose call detected the misuse. It may call the cache, unless vmm_destroy() detected the
 * misuse: calls on the cache then return ERR_INVALID_ARGUMENT.
 */
typedef void (*vmm_misuse_fn)(void *context, const char *line);

/* Returns the nanoseconds of a monotonic clock. Called with locks held: must not call the cache. */
typedef uint64_t (*vmm_clock_fn)(void *context);

/*
 * The configuration of a cache. Zero in a field selects the default: the value of the field's
 * environment variable if it is set, else the default stated here. Any other value overrides the
 * environment. Initialize with VMM_CONFIG_INIT, which sets struct_size. A library older than the
 * caller accepts a field that it does not know only if the field is zero.
 */
typedef struct vmm_config {
    size_t struct_size;
    int device;             /* ordinal of the device */
    vmm_driver_kind driver; /* environment: VMM_DRIVER=cuda|host|sim */
    uint64_t device_bytes; /* host, sim, and cuda with nvtx: capacity of the simulated device. host:
                               processes with one environment VMM_HOST_DEVICE=FILE share a device of
                               that file's size; who makes the file gives it this one */
    uint64_t
        limit_bytes; /* most physical memory to reserve, at least a granule (2 MiB); default: no
                               limit, or with CUDA that of MPS, CUDA_MPS_PINNED_DEVICE_MEM_LIMIT;
                               environment: VMM_LIMIT=SIZE|N%|N%free, a share of the device or of
                               what is free on it when the cache is created */
    uint64_t arena_bytes;  /* most device addresses to reserve; default 2^44. The cache starts with
                               at most 4 times the device's memory and reserves more on demand */
    vmm_switch no_caching; /* on: every allocation maps memory and every free releases it, to find
                               bugs; environment: VMM_NO_CACHING=0|1 */
    vmm_log_fn log; /* receives a line for each growth, trim and failure, and for blocks that are
                       live at vmm_destroy(); environment: VMM_LOG=stderr|FILE */
    void *log_context;
    uint32_t footprint_permille; /* how far reserved memory may exceed the peak of active memory, in
                                    thousandths, before the cache makes views of free memory instead
                                    of taking new memory; up to 50, chunks grow with it: 1 (least
                                    memory, most driver calls) to 1000, or VMM_FOOTPRINT_ANY;
                                    default 10. docs/results/footprint.md shows the cost of each;
                                    environment: VMM_FOOTPRINT=N|any */
    vmm_reuse reuse;             /* environment: VMM_REUSE=any_use|declared|stream_wait */
    vmm_switch compaction;       /* see above; environment: VMM_COMPACTION=off|on */
    uint32_t decay_ms;           /* the cache releases memory that was idle for this long, at the
                                    latest after twice as long; default: no decay;
                                    environment: VMM_DECAY_MS=N */
    uint64_t decay_keep_bytes;   /* idle memory that decay does not release */
    vmm_switch decay_thread;     /* on: a thread of the library calls vmm_poll() on time; off: slow
                                    paths and one free in 64 check the time; a program that pauses
                                    should call vmm_poll(). Default: on if decay_ms is set and clock
                                    is not. The thread calls log, the listener and sources, too */
    vmm_clock_fn clock;          /* for decay and time budgets; NULL: the host's monotonic clock */
    void *clock_context;
    vmm_pressure_fn pressure; /* NULL: none */
    void *pressure_context;
    uint64_t peer_devices; /* if bit n is set, device n may access the cache's memory. The cache
                              ignores its own device and those that do not exist, or cannot;
                              later: vmm_peers_add() */
    vmm_switch zero; /* on: a block contains zeros when vmm_alloc() returns it. cuda, sim: the zeros
                        are written in stream order; order other streams that use the block after
                        the allocation. A capture records the write, and each launch of the graph
                        repeats it. host: vmm_alloc() waits for the stream's work, during a capture
                        for that of all streams, and returns after writing the zeros; environment:
                        VMM_ZERO=0|1 */
    vmm_debug_mode debug; /* environment: VMM_DEBUG=off|record|on|stop */
    vmm_misuse_fn misuse; /* NULL: none */
    void *misuse_context;
    vmm_switch nvtx; /* on: registers blocks through NVTX for tools such as compute-sanitizer, which
                        then report an access beyond the end of a block or after vmm_free().
                        vmm_free() waits for the device. cuda: allocates twice limit_bytes at once
                        (without a limit: 3/4 of the free memory). Excludes compaction, zero and
                        debug; environment: VMM_NVTX=0|1 */
    /* On: any block but reserved ones can be exported: see "Sharing". New memory then costs the
     * driver 1.3 to 2 times as long; environment: VMM_SHAREABLE=0|1. */
    vmm_switch shareable;
    /* Off: no chunk is mapped at a second address. A request that fits in no free block then gets
     * new memory, whatever footprint_permille says. Default on, unless vmm_create() finds that the
     * driver cannot do it, which the log says; environment: VMM_VIEWS=0|1. */
    vmm_switch views;
    vmm_clock_kind clock_kind; /* environment: VMM_CLOCK=context|streams */
    /* On: the program announces every capture in the process. The cache then does not ask CUDA whether
     * streams that have live blocks are being captured; environment: VMM_ANNOUNCES_CAPTURES=0|1. */
    vmm_switch announces_captures;
    /* On: this cache and those of other processes of the user, on the same device, that have it on
     * give each other idle memory: see "Neighbours"; environment: VMM_NEIGHBOURS=0|1. */
    vmm_switch neighbours;
    uint32_t neighbours_wait_ms;     /* how long a request waits for others before it goes on, up to
                                        60 000; default (also for 0) 200; environment:
                                        VMM_NEIGHBOURS_WAIT_MS=N */
    uint64_t neighbours_floor_bytes; /* reserved memory that others never get; environment:
                                        VMM_NEIGHBOURS_FLOOR=SIZE */
    uint32_t neighbours_priority;    /* lower ones give first; environment:
                                        VMM_NEIGHBOURS_PRIORITY=N */
    vmm_switch neighbours_pressure; /* on: the pressure function may serve others, if their priority
                                        is not lower; environment: VMM_NEIGHBOURS_PRESSURE=0|1 */
    const char *neighbours_name;    /* what others see; copied; NULL: the program's name;
                                        environment: VMM_NEIGHBOURS_NAME */
} vmm_config;

/* clang-format off */
#ifdef __cplusplus
#define VMM_CONFIG_INIT { sizeof(vmm_config), 0, VMM_DRIVER_DEFAULT, 0, 0, 0, VMM_DEFAULT, NULL,   \
    NULL, 0, VMM_REUSE_DEFAULT, VMM_DEFAULT, 0, 0, VMM_DEFAULT, NULL, NULL, NULL, NULL,            \
    0, VMM_DEFAULT, VMM_DEBUG_DEFAULT, NULL, NULL, VMM_DEFAULT, VMM_DEFAULT, VMM_DEFAULT,          \
    VMM_CLOCK_DEFAULT, VMM_DEFAULT, VMM_DEFAULT, 0, 0, 0, VMM_DEFAULT, NULL }
#else
#define VMM_CONFIG_INIT { .struct_size = sizeof(vmm_config) }
#endif
/* clang-format on */

/* ---- Life --------------------------------------------------------------------------------- */

/*
 * Does:     opens a device and reserves the cache's arena; maps no memory yet.
 * Takes:    config; NULL: device 0 and all defaults. Environment variables fill in fields that are
 *           zero.
 * Returns:  VMM_OK and the new cache in *out. The cache is on a GPU unless the program or
 *           VMM_DRIVER selects another driver.
 * Owns:     the caller, until vmm_destroy().
 * Threads:  any.
 * On failure: ERR_INVALID_ARGUMENT (a wrong field or environment variable; the line names it),
 *           ERR_NO_DEVICE (no GPU is usable; the line says how to select host memory),
 *           ERR_UNSUPPORTED (the selected driver cannot do what the cache needs; the line names the
 *           step), ERR_HOST_OOM, ERR_DEVICE_OOM, ERR_ADDRESS_SPACE, ERR_DRIVER, ERR_LOST,
 *           ERR_FORKED (the parent process started CUDA before fork()). The call leaves nothing
 *           behind.
 */
VMM_API VMM_NODISCARD vmm_status vmm_create(const vmm_config *config, vmm_cache **out);

/*
 * Does:     waits until the device has finished work that may use the cache's memory, releases all
 *           memory and addresses and destroys the cache, including its live blocks. NULL does
 *           nothing.
 * Returns:  VMM_OK, also if the driver refused a release once and a retry succeeded. Each of the
 *           following also destroys the cache: the first error of the driver that persisted;
 *           ERR_LOST if the device is lost (its memory was released if the driver allowed that);
 *           ERR_CORRUPTED if the last check with VMM_DEBUG_ON found a misuse.
 * Threads:  no other call on this cache may be under way or follow. A later call on the pointer
 *           fails with ERR_INVALID_ARGUMENT, except vmm_alloc(), vmm_free() and vmm_block_bytes(),
 *           whose behaviour is then undefined.
 * On failure: ERR_INVALID_ARGUMENT (not a cache, or called inside one of the cache's own
 *           callbacks), ERR_FORKED (the cache belongs to a parent process). The call has done
 *           nothing.
 */
VMM_API vmm_status vmm_destroy(vmm_cache *cache);

/* ---- Memory ------------------------------------------------------------------------------- */

/*
 * Does:     allocates a block of at least `bytes` bytes for use on `stream`, in stream order: work
 *           submitted to the stream before a block was freed runs before work that uses the same
 *           memory next.
 * Takes:    bytes; 0 returns a unique pointer that must not be dereferenced. stream: of the device's
 *           primary context or, from CUDA 12.5 on, of a green context; NULL and CU_STREAM_LEGACY are
 *           the primary context's default stream, which does not wait for that of a green one.
 *           CU_STREAM_PER_THREAD is refused.
 * Returns:  VMM_OK and a device address in *out, a multiple of 512. The contents are undefined, or
 *           zeros if vmm_config.zero is on. A block larger than 1 MiB may consist of parts of
 *           several chunks that also have other addresses; a write beyond its end may then change a
 *           block at a distant address (VMM_DEBUG_ON prevents this).
 * Owns:     the caller, until vmm_free().
 * Costs:    each stream with live blocks has its own granules (2 MiB): at least one for blocks of
 *           up to 1 MiB and one for larger blocks. Memory that a stream has freed serves other
 *           streams once its work has completed. When memory runs out, a block may lie in any hole
 *           that holds it: between blocks of other sizes, and in another stream's granule.
 *           vmm_find() then reports that stream, and after vmm_free() the block waits for the work
 *           of both streams. A stream without memory costs about 2 KiB on the host.
 * Threads:  any. A request that needs more than its stream's cached memory waits for such requests
 *           of other threads, also while one of them waits for the device.
 * On failure: ERR_DEVICE_OOM: memory ran out after the call released the idle memory of all
 *           streams, waited for work in flight, called vmm_config.pressure and, if
 *           vmm_config.compaction is on, compacted; vmm_last_error() says how the memory is used
 *           and what would help.
 *           ERR_ADDRESS_SPACE: the arena has no free range that is large enough. If the request
 *           exceeds the whole arena, the call fails at once: see vmm_config.arena_bytes.
 *           ERR_INVALID_ARGUMENT (NULL cache or out; an unusable stream), ERR_HOST_OOM, ERR_DRIVER,
 *           ERR_LOST.
 */
VMM_API VMM_NODISCARD vmm_status vmm_alloc(vmm_cache *cache, size_t bytes, vmm_stream stream,
                                           void **out);

/*
 * Does:     frees a block in order of the stream that it was allocated on: work already submitted
 *           to that stream may still use it. Until that work has ended, the memory stays mapped,
 *           and serves only the same stream, or another one that waits for the work on the device.
 *           NULL does nothing. The call does not wait for the device, except with nvtx and with
 *           VMM_DEBUG_ON. VMM_DEBUG_ON waits for the block's stream, or for all streams if
 *           vmm_record_stream() named others, and for frees of other threads.
 * Returns:  VMM_OK, also if the device is lost.
 * Owns:     the cache owns the block again.
 * Threads:  any, not only the thread that allocated the block.
 * On failure: ERR_UNKNOWN_POINTER (not the start of a live block of this cache: already freed,
 *           inside a block, the home of memory that a block in a view occupies, or foreign; the
 *           call looks the pointer up and does not dereference it), ERR_INVALID_ARGUMENT (NULL
 *           cache). ERR_CORRUPTED (VMM_DEBUG_ON): the call detected a misuse; the block is free.
 */
VMM_API vmm_status vmm_free(vmm_cache *cache, void *ptr);

/*
 * Does:     prevents compaction from moving a live block's bytes to other physical memory. Use it
 *           if something other than this device's work identifies the memory physically: a
 *           registration with a network card, an export that is not one of vmm_share_export(), a
 *           captured graph that runs while other threads allocate. Pinning a pinned block again has
 *           no effect. vmm_unpin() and vmm_free() end the pin.
 * Returns:  VMM_OK.
 * Threads:  any, while the block is live.
 * On failure: ERR_UNKNOWN_POINTER, ERR_INVALID_ARGUMENT (NULL cache).
 */
VMM_API vmm_status vmm_pin(vmm_cache *cache, void *ptr);

/*
 * Does:     ends the pin of a live block; a block that is not pinned stays unpinned.
 * Returns:  VMM_OK.
 * Threads:  any, while the block is live.
 * On failure: ERR_UNKNOWN_POINTER, ERR_INVALID_ARGUMENT (NULL cache).
 */
VMM_API vmm_status vmm_unpin(vmm_cache *cache, void *ptr);

/*
 * Does:     sets the most physical memory that the cache may reserve (vmm_config.limit_bytes). The
 *           call releases no memory; call vmm_trim() for that.
 * Takes:    limit_bytes; 0 or VMM_NO_LIMIT: no limit. Below what is reserved, or what pools were promised
 *           (reserve_bytes), it refuses all that needs new memory, also to those pools.
 * Returns:  VMM_OK.
 * Threads:  any.
 * On failure: ERR_INVALID_ARGUMENT (NULL cache).
 */
VMM_API vmm_status vmm_limit_set(vmm_cache *cache, uint64_t limit_bytes);

/*
 * Does:     gives further devices access to the cache's memory, as vmm_config.peer_devices does when a cache is
 *           created: to all that is mapped now, whatever pool, view, range or import it belongs to, and to all that
 *           will be mapped, such as the memory of a pool that wakes. Memory of a source (vmm_pool_options.source) has
 *           the access that its source gives it. Access cannot be taken back. It makes each later mapping more
 *           expensive.
 * Takes:    devices: bit n stands for device n. The cache's own device and those that have access already are ignored.
 * Returns:  VMM_OK. vmm_peers_get() tells all devices that have access.
 * Costs:    25 us in the driver for each mapping that exists.
 * Threads:  any. Requests of other threads that need the driver wait for it. Work on the memory goes on, also during a
 *           capture.
 * On failure: ERR_UNSUPPORTED (a device cannot access this device's memory, or does not exist: the line names it, and
 *           no memory was touched; with vmm_config.nvtx no other device can, whichever it is), ERR_DRIVER (also if
 *           imported memory is of a device that one of them cannot access), ERR_DEVICE_OOM, ERR_LOST, ERR_HOST_OOM,
 *           ERR_INVALID_ARGUMENT (NULL cache). The devices with access are the same as before; do not rely on what
 *           others can access.
 */
VMM_API vmm_status vmm_peers_add(vmm_cache *cache, uint64_t devices);

/*
 * Does:     tells which other devices may access the cache's memory: those of vmm_config.peer_devices that exist and
 *           can, and those of vmm_peers_add().
 * Returns:  VMM_OK; in *devices bit n stands for device n. With the host and sim drivers every device exists and can.
 * Threads:  any. The call waits for a vmm_peers_add() that is under way.
 * On failure: ERR_INVALID_ARGUMENT (NULL).
 */
VMM_API vmm_status vmm_peers_get(vmm_cache *cache, uint64_t *devices);

/*
 * Does:     releases idle physical memory to the driver until at most keep_bytes stay reserved or
 *           no idle memory is left. Live blocks keep their addresses. Idle memory whose work is
 *           still running stays usable for its stream; a later call that needs the driver, or
 *           vmm_poll(), releases it after the work has ended. If more than keep_bytes stay reserved
 *           and vmm_config.compaction is on, the call compacts. The call waits for the device only
 *           to compact. With VMM_DEBUG_ON it waits for frees of other threads.
 * Takes:    keep_bytes; released, may be NULL.
 * Returns:  VMM_OK and the bytes that this call released in *released.
 * Threads:  any. Requests of other threads that need the driver have their turn after each 64 chunks.
 * On failure: ERR_DRIVER, ERR_LOST, ERR_HOST_OOM, ERR_INVALID_ARGUMENT (NULL cache). The call
 *           released what it could; a later call retries the rest. ERR_CORRUPTED (VMM_DEBUG_ON): a
 *           freed block was written to; the trim itself succeeded.
 */
VMM_API vmm_status vmm_trim(vmm_cache *cache, size_t keep_bytes, size_t *released);

/*
 * Does:     releases physical memory that a few live bytes pin. Call it when the program submits no
 *           work: at the end of a training step, in an idle server. The call waits for all work of
 *           the device's context, releases idle memory, and copies the live bytes of partly free
 *           chunks to new memory, which it maps at their old addresses. Blocks, pointers and
 *           contents stay. It skips chunks that contain a block under vmm_pin(), memory of graph
 *           pools in use, and chunks whose copy does not fit. It works with any value of
 *           vmm_config.compaction. The caller guarantees that no thread submits work on blocks of
 *           this cache during the call.
 * Takes:    budget_ms: after so many milliseconds the call starts no further copy; 0: no limit. The
 *           budget interrupts neither the wait for the device nor a copy under way (tens of MiB).
 *           The call relocates first the chunks that release most memory. moved_bytes and
 *           released_bytes may be NULL.
 * Returns:  VMM_OK, also if there was nothing to gain; the bytes copied in *moved_bytes; the
 *           decrease of reserved memory in *released_bytes.
 * Threads:  any. Other calls that need more than cached memory wait for this call.
 * On failure: ERR_INVALID_ARGUMENT (NULL cache, or a capture is under way that the wait would
 *           invalidate), ERR_UNSUPPORTED (nvtx or VMM_DEBUG_ON prevent moves), ERR_DRIVER,
 *           ERR_LOST, ERR_HOST_OOM. Memory that the call released stays released; no live byte is
 *           lost. If the driver refuses to map live memory again (ERR_DRIVER, ERR_DEVICE_OOM), work
 *           on that memory faults until a later call that releases memory has mapped it.
 */
VMM_API vmm_status vmm_compact(vmm_cache *cache, uint32_t budget_ms, uint64_t *moved_bytes,
                               uint64_t *released_bytes);

/*
 * Does:     does the work that is due: releases memory that was idle for vmm_config.decay_ms, and
 *           memory that an earlier vmm_trim(), vmm_decommit() or vmm_free() of a reserved or imported block found in
 *           use by work that has ended since. For timers and event loops of programs that pause. The call waits neither
 *           for the device nor for a thread that allocates or trims; in that case a later call does the work.
 * Returns:  VMM_OK.
 * Threads:  any.
 * On failure: as vmm_trim().
 */
VMM_API vmm_status vmm_poll(vmm_cache *cache);

/* ---- Streams ------------------------------------------------------------------------------ */

/*
 * Does:     declares that work on another stream uses a block (PyTorch: record_stream). After
 *           vmm_free(), the block's own stream, too, gets it back only after the work that the other
 *           stream had at the free has ended. If that stream has ended or is being captured, the
 *           block waits for all work of the device. It counts in active_bytes until a later
 *           allocation of its stream, or vmm_trim(), finds that this work has ended.
 * Returns:  VMM_OK, also if `other` is the block's own stream.
 * Threads:  any, while the block is live.
 * On failure: ERR_UNKNOWN_POINTER, ERR_HOST_OOM, ERR_INVALID_ARGUMENT (NULL cache; a stream that
 *           vmm_alloc() would refuse).
 */
VMM_API vmm_status vmm_record_stream(vmm_cache *cache, void *ptr, vmm_stream other);

/*
 * Does:     declares that the program is about to destroy a stream; the stream's work may still
 *           run. Afterwards the cache does not pass the handle to the driver. Other streams get the
 *           stream's free memory as any memory of another stream. The stream's live blocks stay
 *           valid: free them as usual, and declare work of other streams on them with
 *           vmm_record_stream(), also for a new stream with the same handle. If freed blocks of the
 *           stream wait for other streams, the call asks the driver whether these have finished. It
 *           makes no other driver call if vmm_config.reuse is ANY_USE and the clock is of kind
 *           CONTEXT, otherwise it records events. It does not wait for the device, except with
 *           VMM_DEBUG_ON: it then waits for the stream's work if the stream has live blocks, and
 *           for frees of other threads.
 * Takes:    stream. No other call may use it until the handle belongs to a new stream, and the
 *           program must not submit work to it that uses blocks of the cache. If the cache has
 *           never seen the stream, the call does nothing.
 * Returns:  VMM_OK: the program may destroy the stream.
 * Threads:  any.
 * On failure: the stream goes on as before. ERR_INVALID_ARGUMENT (NULL cache; the default stream;
 *           CU_STREAM_PER_THREAD; with DECLARED or STREAM_WAIT a stream whose capture is announced
 *           or under way); ERR_DRIVER, ERR_LOST, ERR_HOST_OOM (no event could be recorded).
 *
 * If a program destroys a stream without this call, its free memory still passes to others, once the
 * stream's work has ended. But:
 *   - a new stream that gets the same handle also gets the old one's free memory at once, as its own:
 *     so the program must itself order the two streams;
 *   - the cache may ask the driver about the stream, and CUDA may end the process then (measured with
 *     driver 580.159 on an H200): if the stream has live blocks, if vmm_record_stream() named it, if
 *     vmm_wait() or another call waits while a capture is under way, and at any time with DECLARED,
 *     STREAM_WAIT or a clock of kind STREAMS;
 *   - a clock of kind STREAMS cannot tell when the stream's work has ended. If CUDA answers that it
 *     does not know the stream, memory passes no more until a call waits for the device: vmm_wait(),
 *     or a request that would otherwise fail.
 */
VMM_API vmm_status vmm_stream_end(vmm_cache *cache, vmm_stream stream);

/*
 * Does:     waits until all work submitted so far has ended; while a capture is announced, or the
 *           cache sees one, that of the streams that the cache has seen and that are not being
 *           captured. A vmm_trim() after it can release all idle memory and, unless there was a
 *           capture, the free memory of released graph pools. A clock of kind STREAMS waits for the
 *           device: a capture that another thread begins meanwhile, or that the cache cannot see,
 *           is spoiled.
 * Returns:  VMM_OK.
 * Threads:  any; calls of other threads proceed meanwhile.
 * On failure: ERR_DRIVER, ERR_LOST, ERR_HOST_OOM, ERR_INVALID_ARGUMENT (NULL cache).
 */
VMM_API vmm_status vmm_wait(vmm_cache *cache);

/*
 * Does:     waits until the work submitted to one stream so far has ended, as cuStreamSynchronize() does, with any
 *           driver: that of vmm_resize() and vmm_config.zero included. Memory that the stream has freed passes to other
 *           streams, and can be released, once all work of the device has ended (ANY_USE), or at once (DECLARED,
 *           STREAM_WAIT). While another stream is being captured, the capture goes on, and nothing of the call becomes
 *           part of the graph.
 * Takes:    stream: as vmm_alloc(); the cache need not have seen it, and gives it no record.
 * Returns:  VMM_OK.
 * Threads:  any; calls of other threads proceed meanwhile.
 * On failure: ERR_INVALID_ARGUMENT (NULL cache; a stream that vmm_alloc() would refuse; a capture of the stream is
 *           announced or under way; the driver does not know the stream), ERR_DRIVER, ERR_LOST, ERR_HOST_OOM.
 */
VMM_API vmm_status vmm_wait_stream(vmm_cache *cache, vmm_stream stream);

/*
 * Does:     announces that the calling thread is about to capture a stream: immediately before
 *           cuStreamBeginCapture() or the like. An event of all work that a cache records beside a
 *           capture, on any thread and of any stream, spoils the capture. So from now on no cache of
 *           the process records one, and memory that needs such an event stays where it is. Before
 *           that the call records an event of what was submitted until now. The announcement ends
 *           with vmm_capture_retract(); also once a cache sees that the capture is over: the stream
 *           was captured and no longer is, or the calling thread makes another call, or ends (but the
 *           main thread before its process), without having begun the capture.
 * Takes:    stream, of the cache's device; here also CU_STREAM_PER_THREAD. A call for each capture.
 * Returns:  VMM_OK.
 * Threads:  any. retract: any, after the capture has ended, or was not begun.
 * On failure: ERR_INVALID_ARGUMENT (NULL cache). announce: ERR_HOST_OOM, ERR_LOST. retract of a capture
 *           that is not announced, or whose announcement has ended, does nothing.
 */
VMM_API vmm_status vmm_capture_announce(vmm_cache *cache, vmm_stream stream);
VMM_API vmm_status vmm_capture_retract(vmm_cache *cache, vmm_stream stream);

/* ---- Pools -------------------------------------------------------------------------------- */

/*
 * A pool is a part of a cache with physical memory of its own: a chunk serves one pool at a time.
 * Chunks without live blocks may go to another pool, unless the pool is retained or has
 * reserve_bytes. A pool has a name, a limit and statistics. Every cache has a default pool, which
 * serves vmm_alloc() unless the thread pushed another pool or a route leads elsewhere. vmm_free()
 * frees blocks of every pool.
 *
 *   vmm_pool_options options = VMM_POOL_OPTIONS_INIT;
 *   options.name = "weights";
 *   vmm_pool *pool;
 *   vmm_pool_create(cache, &options, &pool);
 *   vmm_alloc_from(pool, bytes, stream, &p);
 *
 * A pool handle is looked up, not followed: a call with the handle of a destroyed pool fails with
 * ERR_INVALID_ARGUMENT. Calls of several threads on one pool are allowed, but no other call on a
 * pool may be under way when vmm_pool_destroy() is called.
 *
 * What these calls do, unless their texts say otherwise, when
 *   a capture is under way: they work, and nothing of them becomes part of the graph. What would
 *           wait for the device is left to a later call.
 *   a pool is pushed or routed: the same as without. Only vmm_alloc() follows pushes and routes.
 *   blocks are under vmm_pin() or exported: the same as without. They stay so if the default pool
 *           adopts them.
 *   the pool is asleep: requests return ERR_ASLEEP, and trims release nothing of it; the others work.
 *   the process is a child of fork(): they return ERR_FORKED; those that return no status, NULL or 0.
 *   the device is lost: requests, vmm_pool_create(), vmm_pool_route(), vmm_pool_trim() and
 *           vmm_pool_place() return ERR_LOST; the others change records only, and work.
 */

/* Two numbers that the program chooses, such as PyTorch's MempoolId_t. Zeros: none. */
typedef struct vmm_pool_id {
    uint64_t first;
    uint64_t second;
} vmm_pool_id;

/*
 * GENERAL: ordinary memory.
 *
 * GRAPH: memory of captured graphs. A captured graph uses the same addresses at each launch, on any
 * stream, without calling the allocator. Until the pool is destroyed, its memory is therefore not
 * moved, released or given to another stream, whether blocks in it are live or free. Blocks that
 * are allocated during a capture belong into such a pool:
 *
 *   options.kind = VMM_POOL_GRAPH;
 *   vmm_pool_create(cache, &options, &pool);
 *   vmm_pool_route(pool, filter, context);
 *   vmm_capture_announce(cache, stream);
 *   ... cuStreamBeginCapture, work, vmm_alloc, vmm_free, cuStreamEndCapture ...
 *   vmm_capture_retract(cache, stream);
 *   vmm_pool_unroute(pool);
 *   ... cuGraphLaunch, any number of times ...
 *   vmm_pool_destroy(pool, 1);        after the graph has been destroyed
 *
 * The cache neither records events beside a capture nor waits for one. Memory that needs an event
 * before its reuse stays unused until the capture has ended.
 */
typedef enum vmm_pool_kind { VMM_POOL_GENERAL = 0, VMM_POOL_GRAPH = 1 } vmm_pool_kind;

/* What becomes of the contents of live blocks when their pool sleeps: see vmm_pool_sleep(). */
typedef enum vmm_on_sleep {
    VMM_ON_SLEEP_KEEP = 0,    /* the sleep saves them in host memory, the wake restores them */
    VMM_ON_SLEEP_DISCARD = 1, /* they are lost: undefined after the wake, or zeros if
                                 vmm_config.zero is on */
    VMM_ON_SLEEP_AS_POOL = 2  /* in vmm_sleep_options: what the options of the pool say */
} vmm_on_sleep;

/*
 * The functions of a source: see vmm_pool_options.source. The library calls them without locks, on the thread of the
 * call that needs or releases the memory, on several threads at once, and with vmm_config.decay_thread on a thread of
 * its own. They may call CUDA and every function of the library except vmm_destroy() and vmm_pool_destroy(). A request
 * that `alloc` makes of its own pool asks it again, without end. They must return, as all callbacks must.
 *
 * alloc: returns a segment, which is memory of `bytes` bytes, a multiple of the granule (2 MiB), that the cache's
 *     device can use, at a multiple of 512; NULL: there is none. `stream` is that of the request, but the memory must
 *     be ready for work of every stream. During a capture it must not make calls that invalidate the capture
 *     (cudaThreadExchangeStreamCaptureMode() allows cudaMalloc()).
 * free: takes back a segment, and the size with which it was asked for. All work that used its blocks has ended.
 */
typedef void *(*vmm_segment_alloc_fn)(void *context, size_t bytes, vmm_stream stream);
typedef void (*vmm_segment_free_fn)(void *context, void *segment, size_t bytes);

typedef struct vmm_segment_source {
    vmm_segment_alloc_fn alloc; /* NULL: none; the pool's memory is that of the cache */
    vmm_segment_free_fn free;   /* not NULL if alloc is not */
    void *context;              /* of both functions */
    /* The least to ask for, for a block above 1 MiB; 0: as much as the block needs. A segment for
     * smaller blocks has one granule. */
    size_t segment_bytes;
} vmm_segment_source;

/* Which processes may import the blocks of a pool: see "Sharing". */
typedef enum vmm_share_reach {
    VMM_SHARE_NONE = 0,
    VMM_SHARE_MACHINE = 1, /* those of this machine */
    VMM_SHARE_FABRIC = 2   /* also those of other machines, as far as NVLink reaches */
} vmm_share_reach;

/*
 * Options of a pool. Initialize with VMM_POOL_OPTIONS_INIT, which sets struct_size.
 *
 * no_split: each block of the pool has chunks of its own, in whole granules (2 MiB), so that what is
 *     done to the memory of one block (registered with another library, advised, given to a peer) is
 *     done to no other. A new block is one chunk. A freed block is not split: it serves only requests
 *     of the same size in granules. The pool neither takes the idle memory of other pools nor gives
 *     them its own; requests that find no other memory release it, as vmm_trim() does. vmm_resize()
 *     adds a chunk to a block, and copies a block that gets fewer granules; vmm_alloc_aligned()
 *     aligns to the granule at most; vmm_pool_place() places a block only as it was.
 *
 * shareable: the blocks can be exported: see "Sharing". Includes no_split. With VMM_SHARE_FABRIC the
 *     call tries on the device whether memory can be created, exported, imported and used that way.
 *
 * use_on_oom: free memory of the pool serves a request of another pool that would fail otherwise. It
 *     matters for memory that other pools do not get anyway: free memory of a retained pool, what
 *     reserve_bytes keeps, and free bytes beside live blocks. It is the last attempt of a request
 *     that the device or the limit of the cache refuses, after the pressure function and compaction.
 *     The block is one of this pool, in its statistics, reports and limit: it sleeps with the pool,
 *     and vmm_pool_destroy() adopts it. Its stream waits on the device for the work of the pool's
 *     stream that had the memory. A captured graph writes to free memory of its pool at each launch:
 *     set use_on_oom for a pool with graphs only if they do not run while others have its memory.
 *     A pool with no_split lends the smallest block that is large enough. The option has no effect
 *       for requests whose own pool's limit refuses them, or whose pool is retained, shareable or has
 *           no_split or a source; for vmm_alloc_aligned(), vmm_commit() and vmm_resize() in place;
 *       in debug mode and with vmm_config.zero;
 *       during a capture of one of the two streams, unless the work on the memory has ended before;
 *       while the pool is asleep.
 *
 * source: a pair of functions that gives the pool its memory, such as that of ncclMemAlloc() or
 *     NVSHMEM. The memory keeps its addresses; the cache maps nothing there. Blocks lie inside its
 *     segments: a block never consists of two, nor moves, so choose segment_bytes with room for
 *     several blocks. With no_split each block has a segment of its own. Freed blocks stay in the
 *     pool and are used again in stream order, also by other streams once their work has ended.
 *     Segments without a live block go back when the cache releases idle memory: vmm_trim(),
 *     vmm_pool_trim(), decay, and before a request of any pool would fail. They count as reserved
 *     memory, in the limits of the pool and of the cache. The pool neither takes the idle memory of
 *     other pools nor gives them its own.
 *     If the source has no segment, the request releases idle memory and asks again; it fails with
 *     ERR_DEVICE_OOM, and the line names the pool. A segment that cannot be used (no multiple of 512,
 *     or overlapping other memory of the cache) goes back at once: ERR_INVALID_ARGUMENT.
 *     Refused, because they need mappings of the cache: vmm_pool_sleep(); vmm_share_export(), also
 *     with vmm_config.shareable, and the option shareable; vmm_reserve(); vmm_alloc_aligned() above
 *     512; a cache with nvtx. vmm_resize() uses free bytes behind a block, or copies it.
 *     vmm_compact() leaves the pool alone. A large block has no guard page in debug mode.
 *     vmm_pool_destroy() refuses live blocks, also with adopt. It waits for all work that the cache
 *     knows, for the device if the pool was retained, and gives every segment back: after VMM_OK no
 *     thread runs the functions. vmm_destroy() gives back those of live blocks, too.
 *     A retained pool, or one of the kind GRAPH, keeps its segments. In a child of fork() no function
 *     of the source is called. On a lost device neither; vmm_pool_destroy() returns ERR_LOST, and
 *     vmm_destroy() gives the segments back.
 *
 * Where nothing else is said, such pools are as others of their kind.
 */
typedef struct vmm_pool_options {
    size_t struct_size;
    const char *name;       /* for reports; copied, up to 63 bytes; NULL: "#N" */
    uint64_t limit_bytes;   /* most physical memory that the pool may reserve; 0: no limit */
    uint64_t reserve_bytes; /* memory that other pools leave free for this one, below the limit of
                               the cache or the size of the device */
    vmm_pool_kind kind;
    vmm_on_sleep on_sleep;
    vmm_pool_id user_id; /* reported in vmm_item and vmm_change; not the same as in another pool;
                            zeros: none */
    int shareable; /* vmm_share_reach: its blocks can be exported, and share no memory with others */
    int no_split;  /* its blocks share no chunk: see above */
    int use_on_oom; /* its free memory serves requests of other pools that would fail: see above */
    vmm_segment_source source; /* where its memory comes from: see above; zeros: from the driver */
} vmm_pool_options;

/* clang-format off */
#ifdef __cplusplus
#define VMM_POOL_OPTIONS_INIT { sizeof(vmm_pool_options), NULL, 0, 0, VMM_POOL_GENERAL, VMM_ON_SLEEP_KEEP, { 0, 0 }, \
                                0, 0, 0, { NULL, NULL, NULL, 0 } }
#else
#define VMM_POOL_OPTIONS_INIT { .struct_size = sizeof(vmm_pool_options) }
#endif
/* clang-format on */

/*
 * Does:     creates a pool. It has no memory yet.
 * Takes:    options; NULL: all defaults.
 * Returns:  VMM_OK and the pool in *out.
 * Owns:     the cache. vmm_destroy() destroys the pools that are left.
 * Threads:  any.
 * On failure: ERR_INVALID_ARGUMENT (NULL cache or out; a wrong option; another pool has the user
 *           id), ERR_UNSUPPORTED (an option that this version does not know is set; source, and nvtx is on; shareable,
 *           and the device cannot share memory so far: the line names the step that failed), ERR_DEVICE_OOM
 *           (reserve_bytes of all pools exceed the limit of the cache or the device; VMM_SHARE_FABRIC, and the device
 *           has no granule left to try it), ERR_HOST_OOM, ERR_LOST.
 */
VMM_API VMM_NODISCARD vmm_status vmm_pool_create(vmm_cache *cache, const vmm_pool_options *options,
                                                 vmm_pool **out);

/*
 * Does:     destroys a pool. The default pool adopts its live blocks, and its free memory once the
 *           work on it has ended. If the pool was retained or is of the kind GRAPH, graphs may have been launched on
 *           any stream: its free memory is available once all work of the device that was submitted before has ended,
 *           which later calls find out. A pool with a source gives all segments back, and waits for work on them.
 * Takes:    adopt: 0 refuses a pool with live blocks.
 * Returns:  VMM_OK.
 * Threads:  any; no other call on the pool may be under way.
 * On failure: the pool is as before: ERR_INVALID_ARGUMENT (not a pool; the default pool; a route or a push leads to it;
 *           it is retained; it has live blocks and adopt is 0; it sleeps and has live blocks, or freed ones that wait
 *           for streams; it goes to sleep or wakes; it has a source and live blocks, or a capture forbids to wait for
 *           the work on its memory); ERR_HOST_OOM, ERR_DRIVER (it sleeps, and its chunks could not be released);
 *           with a source ERR_DRIVER, ERR_LOST, ERR_HOST_OOM.
 *           The pool is destroyed: without a source ERR_DRIVER, ERR_LOST, ERR_HOST_OOM (a later call asks the driver
 *           again); ERR_CORRUPTED (VMM_DEBUG_ON: a freed block was written to).
 *           vmm_pool_state() returns ERR_INVALID_ARGUMENT exactly if it is destroyed.
 */
VMM_API vmm_status vmm_pool_destroy(vmm_pool *pool, int adopt);

/*
 * Does:     frees every live block of a pool, reserved ones and those that other pools have by
 *           use_on_oom too, each as vmm_free() does. Memory stays with the pool.
 * Takes:    a pool; vmm_cache_pool() for the default one, whose imported blocks stay.
 * Returns:  VMM_OK.
 * Threads:  any; no other call on the pool or its blocks may be under way.
 * On failure: ERR_INVALID_ARGUMENT (not a pool), ERR_HOST_OOM (no host memory to list the blocks): no
 *           block is freed. Otherwise the first error of vmm_free(); all blocks that can be are freed.
 */
VMM_API vmm_status vmm_pool_free_all(vmm_pool *pool);

/*
 * Returns:  the default pool of a cache; NULL if the cache is NULL or was destroyed.
 * Threads:  any.
 */
VMM_API vmm_pool *vmm_cache_pool(vmm_cache *cache);

/*
 * Returns:  the pool of a cache that has this user id; NULL if there is none.
 * Threads:  any.
 */
VMM_API vmm_pool *vmm_pool_find(vmm_cache *cache, vmm_pool_id id);

/*
 * Does:     vmm_alloc() from a pool, whatever is pushed or routed.
 * Returns, Owns, Threads: as vmm_alloc().
 * On failure: as vmm_alloc(); ERR_INVALID_ARGUMENT also if `pool` is not a pool. ERR_DEVICE_OOM
 *           also if the limit of the pool is reached; the line then names the pool.
 */
VMM_API VMM_NODISCARD vmm_status vmm_alloc_from(vmm_pool *pool, size_t bytes, vmm_stream stream,
                                                void **out);

/*
 * Does:     from now on, vmm_alloc() of the calling thread on the pool's cache allocates from the
 *           pool, until vmm_pool_pop(). Pushes nest; a push comes before every route.
 * Returns:  VMM_OK.
 * Threads:  any. Pop before the thread ends: the pool cannot be destroyed while it is pushed.
 * On failure: ERR_INVALID_ARGUMENT (not a pool), ERR_HOST_OOM.
 */
VMM_API vmm_status vmm_pool_push(vmm_pool *pool);

/*
 * Does:     ends the last push of the calling thread.
 * Returns:  VMM_OK.
 * Threads:  any.
 * On failure: ERR_INVALID_ARGUMENT (`pool` is not what the thread pushed last).
 */
VMM_API vmm_status vmm_pool_pop(vmm_pool *pool);

/* Returns non-zero if requests of a stream belong to the pool. Any thread that allocates may call
 * it, with a lock held: it must not call the cache. */
typedef int (*vmm_pool_filter)(void *context, vmm_stream stream);

/*
 * Does:     leads vmm_alloc() of all threads to a pool, until vmm_pool_unroute(), if its stream
 *           passes the filter. If several routes match, the latest wins. A route says nothing about
 *           captures: see vmm_capture_announce().
 * Takes:    filter; NULL: every stream.
 * Returns:  VMM_OK.
 * Threads:  any.
 * On failure: ERR_INVALID_ARGUMENT (not a pool, or a route leads to it already), ERR_HOST_OOM,
 *           ERR_LOST.
 */
VMM_API vmm_status vmm_pool_route(vmm_pool *pool, vmm_pool_filter filter, void *context);

/*
 * Does:     ends the route to a pool. The cache does not call the filter after the return.
 * Returns:  VMM_OK.
 * Threads:  any.
 * On failure: ERR_INVALID_ARGUMENT (not a pool, or no route leads to it).
 */
VMM_API vmm_status vmm_pool_unroute(vmm_pool *pool);

/*
 * Does:     declares that something besides live blocks relies on the addresses of a pool, such as
 *           a captured graph. Until as many vmm_pool_drop(), the pool's memory is not moved,
 *           released or given to another stream, live or free. A pool of the kind GRAPH is treated
 *           so all its life; retaining it only refuses vmm_pool_destroy().
 * Returns:  VMM_OK.
 * Threads:  any.
 * On failure: ERR_INVALID_ARGUMENT (not a pool).
 */
VMM_API vmm_status vmm_pool_retain(vmm_pool *pool);

/*
 * Does:     ends one use that vmm_pool_retain() declared. After the last one the pool's memory
 *           becomes available again as after vmm_pool_destroy(): once all work of the device that
 *           was submitted before has ended.
 * Returns:  VMM_OK.
 * Threads:  any.
 * On failure: ERR_INVALID_ARGUMENT (not a pool, or it is not retained); ERR_DRIVER, ERR_LOST,
 *           ERR_HOST_OOM: the use has ended, and a later call asks the driver again.
 */
VMM_API vmm_status vmm_pool_drop(vmm_pool *pool);

/*
 * Returns:  how often a pool was retained and not dropped; 0 if it is not a pool.
 * Threads:  any.
 */
VMM_API uint64_t vmm_pool_uses(vmm_pool *pool);

/*
 * Does:     sets the most physical memory that a pool may reserve. The call releases no memory.
 *           For the default pool this is a limit besides that of the cache (vmm_limit_set()).
 * Takes:    limit_bytes; 0 or VMM_NO_LIMIT: no limit.
 * Returns:  VMM_OK.
 * Threads:  any.
 * On failure: ERR_INVALID_ARGUMENT (not a pool; below the pool's reserve_bytes): nothing has changed.
 */
VMM_API vmm_status vmm_pool_limit_set(vmm_pool *pool, uint64_t limit_bytes);

/*
 * Does:     vmm_trim() of one pool: releases its idle memory until at most keep_bytes of the pool
 *           stay reserved. Idle memory whose work still runs stays. Does not compact. A retained
 *           pool keeps everything.
 * Returns:  VMM_OK and the bytes that this call released in *released, which may be NULL.
 * Threads:  any.
 * On failure: as vmm_trim().
 */
VMM_API vmm_status vmm_pool_trim(vmm_pool *pool, size_t keep_bytes, size_t *released);

/* ---- Sleep -------------------------------------------------------------------------------- */

/*
 * A pool that sleeps has no physical memory. Its blocks stay live and keep their addresses; work
 * must not use them. A wake gives them other memory at the same addresses, so pointers and captured
 * graphs stay valid.
 *
 * With KEEP, the sleep copies the contents of live blocks to a backup in pinned host memory, and
 * the wake copies them back. The backup stays for the next sleep until vmm_backup_drop() or the end
 * of the pool.
 *
 * While a pool sleeps, or is about to sleep or wake: requests from it return ERR_ASLEEP, also those
 * of vmm_alloc() that a push or a route leads to it. vmm_free() of its blocks works: the wake does not restore them,
 * and their host memory stays with the backup. vmm_record_stream(), vmm_pin(), vmm_find() and the reports work.
 * vmm_trim(), vmm_compact() and requests of other pools leave it alone. It counts in no limit and not in
 * reserved_bytes; its asleep_bytes is what a wake needs at most, and that of the cache what a wake of all pools needs:
 * chunks whose blocks were all freed meanwhile do not wake, unless the pool is retained.
 *
 * Both calls wait for all work of the device, if a pool is to sleep or to wake. No capture may begin before such a
 * call, or its ticket's work, has ended. The program must not submit work on the pool's blocks from the
 * call of vmm_pool_sleep() until the end of the wake.
 *
 * Offers. With vmm_sleep_options.on_claim a pool is only offered: it keeps its memory until other processes need it
 * and claim it: see "Neighbours". A thread of the library then puts it to sleep, once its work has ended. A program
 * offers what it does not use for a while, and wakes it before the next use:
 *
 *   options.on_claim = 1;
 *   vmm_pool_sleep(&pool, 1, &options, NULL);
 *   ... no work on the blocks of the pool; perhaps it sleeps, perhaps not ...
 *   vmm_pool_wake(&pool, 1, NULL, NULL);
 *
 * So from the offer to the wake the same holds as of a pool that sleeps, whether a claim came or not: requests from
 * it return ERR_ASLEEP, and so on. But until it sleeps, its idle memory may go to others, and is trimmed, as that of a
 * pool that is awake, and it counts in limits and in reserved_bytes. The wake of a pool that is still offered waits for
 * nothing, and calls no function of its options; calls that sleep, wake or destroy a pool that a claim is putting to
 * sleep first wait for that, also with a ticket. Work on other pools, and its captures, may go on meanwhile.
 *
 * What these calls do when
 *   a capture is under way: vmm_pool_sleep() and vmm_pool_wake() return ERR_INVALID_ARGUMENT; the
 *           others work.
 *   a pool is pushed or routed: the same as without.
 *   blocks are exported: the pool does not sleep.
 *   blocks are under vmm_pin(): they sleep, too, and have other memory after the wake. End what
 *           identifies the old memory in vmm_sleep_options.unmapping.
 *   the process is a child of fork(): they return ERR_FORKED, also with a ticket of the parent.
 *   the device is lost: vmm_pool_sleep() and vmm_pool_wake() return ERR_LOST; the others work, so
 *           vmm_backup_find() still finds what a sleeping pool has saved.
 */

typedef enum vmm_pool_phase {
    VMM_POOL_AWAKE = 0,
    VMM_POOL_SLEEPING = 1, /* on its way to sleep */
    VMM_POOL_ASLEEP = 2,
    VMM_POOL_WAKING = 3,
    VMM_POOL_OFFERED = 4 /* goes to sleep when another process claims its memory */
} vmm_pool_phase;

/* Called for each mapping of each chunk of a pool, so a block may get several calls; for registrations such as NCCL's
 * or a network card's. Called without locks. */
typedef void (*vmm_sleep_fn)(void *context, vmm_pool *pool, uint64_t address, uint64_t bytes);

/* Options of a sleep or a wake. Initialize with VMM_SLEEP_OPTIONS_INIT. */
typedef struct vmm_sleep_options {
    size_t struct_size;
    vmm_on_sleep on_sleep;  /* AS_POOL, or what holds for this sleep; any of them does for a wake */
    uint64_t staging_bytes; /* a sleep copies so much, then releases that memory while it copies the
                               next part; 0: 256 MiB */
    vmm_sleep_fn unmapping; /* of a sleep: before the ranges are unmapped; NULL: none */
    vmm_sleep_fn mapped; /* of a wake, or a failed sleep: after they are mapped again; NULL: none */
    void *context;       /* of both functions */
    int on_claim; /* of a sleep, non-zero: the pool is only offered, see above. If it sleeps, a thread
                     of the library calls the functions */
} vmm_sleep_options;

/* clang-format off */
#ifdef __cplusplus
#define VMM_SLEEP_OPTIONS_INIT { sizeof(vmm_sleep_options), VMM_ON_SLEEP_AS_POOL, 0, NULL, NULL, NULL, 0 }
#else
#define VMM_SLEEP_OPTIONS_INIT { .struct_size = sizeof(vmm_sleep_options), .on_sleep = VMM_ON_SLEEP_AS_POOL }
#endif
/* clang-format on */

/* A sleep or wake that a thread of the library carries out. The handle is looked up in a table and never dereferenced,
 * so a stale one is refused. vmm_ticket_wait() ends it; vmm_destroy() waits for those that are left, and ends them. */
typedef struct vmm_ticket vmm_ticket;

/*
 * Does:     puts pools to sleep, in the order of the array, or with on_claim offers them. A pool that
 *           sleeps already stays as it is; one that is offered sleeps, or is offered with the new
 *           options.
 * Takes:    pools, all of one cache; options, NULL: defaults; ticket, NULL: the call returns when
 *           all pools sleep. Otherwise a thread of the library does the work, and *ticket must end
 *           with vmm_ticket_wait(). The options' functions then run on that thread.
 * Returns:  VMM_OK.
 * Threads:  any; calls on other pools proceed meanwhile.
 * Costs:    with KEEP, the first sleep pins host memory of the size of the live blocks, which takes several times as
 *           long as the copy. So does a later sleep with more live bytes than any before; fewer use the old memory.
 * On failure: all pools are awake and whole, and nothing is lost, except as said below.
 *           ERR_INVALID_ARGUMENT (no pools, not pools, of several caches, named twice, on their way
 *           to sleep or wake by another call, with exported blocks or a source, a wrong option, or a
 *           capture is under way),
 *           ERR_UNSUPPORTED (nvtx or VMM_DEBUG_ON; an option that this version does not know is set),
 *           ERR_HOST_OOM (no memory for the backup), ERR_DRIVER, ERR_LOST.
 *           If the driver fails after part of the memory was released and gives no new memory for
 *           it, the pool stays asleep; its backup has what was released, and a wake can be tried
 *           again. Contents that were to be discarded may be lost.
 */
VMM_API vmm_status vmm_pool_sleep(vmm_pool *const *pools, size_t count,
                                  const vmm_sleep_options *options, vmm_ticket **ticket);

/*
 * Does:     wakes pools, in the order of the array: all, or none. A pool that is awake stays as it
 *           is; one that is only offered is awake at once, whatever becomes of the others. If memory
 *           is short, the call releases idle memory of other pools, and claims what is missing as a
 *           request does: see "Neighbours". It neither gives segments back to sources, as
 *           vmm_trim() does, nor calls the pressure function.
 * Takes:    as vmm_pool_sleep().
 * Returns:  VMM_OK.
 * Threads:  any; calls on other pools proceed meanwhile.
 * On failure: the pools sleep as before with their backups whole; the wake can be tried again.
 *           ERR_DEVICE_OOM (the device is full, or a limit or the reserve_bytes of other pools
 *           leaves too little), and as vmm_pool_sleep().
 */
VMM_API vmm_status vmm_pool_wake(vmm_pool *const *pools, size_t count,
                                 const vmm_sleep_options *options, vmm_ticket **ticket);

/*
 * Does:     tells whether a pool is awake. A claim may put an offered one to sleep at any moment.
 * Returns:  VMM_OK and the phase in *out.
 * Threads:  any.
 * On failure: ERR_INVALID_ARGUMENT (not a pool, NULL).
 */
VMM_API vmm_status vmm_pool_state(vmm_pool *pool, vmm_pool_phase *out);

/*
 * Does:     tells whether the work of a ticket has ended, with success or not.
 * Returns:  VMM_OK, and non-zero in *done if it has.
 * Threads:  any.
 * On failure: ERR_INVALID_ARGUMENT (not a ticket, NULL).
 */
VMM_API vmm_status vmm_ticket_poll(vmm_ticket *ticket, int *done);

/*
 * Does:     waits for the work of a ticket, and ends the ticket.
 * Returns:  what the work returned; vmm_last_error() has its line.
 * Threads:  any; one thread waits for a ticket, others may poll it meanwhile.
 * On failure: ERR_INVALID_ARGUMENT (not a ticket; another thread waits for it; called by a function of its sleep or
 *           wake).
 */
VMM_API vmm_status vmm_ticket_wait(vmm_ticket *ticket);

/*
 * Does:     finds the saved contents of a block whose pool sleeps. The program may read and replace
 *           them until the wake.
 * Takes:    ptr: an address inside a live block of the pool.
 * Returns:  VMM_OK, and in *host the address of the byte that the wake copies to ptr. The bytes of
 *           one block are contiguous.
 * Owns:     the pool; valid until the wake, the block's vmm_free() or the end of the pool.
 * Threads:  any.
 * On failure: ERR_INVALID_ARGUMENT (not a pool, NULL, the pool is not asleep), ERR_UNKNOWN_POINTER
 *           (no live block of the pool contains ptr; its contents were discarded, or are still on
 *           the device after a sleep that failed).
 */
VMM_API vmm_status vmm_backup_find(vmm_pool *pool, const void *ptr, void **host);

/*
 * Does:     gives the host memory back that a pool keeps for its next sleep.
 * Returns:  VMM_OK.
 * Threads:  any.
 * On failure: ERR_INVALID_ARGUMENT (not a pool), ERR_ASLEEP (the pool needs it to wake), ERR_DRIVER
 *           (the driver refuses to unpin it: it stays, and a later call tries again).
 */
VMM_API vmm_status vmm_backup_drop(vmm_pool *pool);

/* ---- Growing ------------------------------------------------------------------------------ */

/*
 * A reserved block has addresses, and gets physical memory in units: a KV cache, or any array that grows and shrinks
 * without a new address.
 *
 *   vmm_reserve(pool, 64 << 30, 16 << 20, stream, &p);    64 GiB of addresses
 *   vmm_commit(cache, p, 0, 256 << 20);                   memory for the first 256 MiB
 *   vmm_commit(cache, p, 256 << 20, 16 << 20);            and for 16 MiB more
 *   vmm_decommit(cache, p, 16 << 20, 16 << 20);           a hole
 *   vmm_free(cache, p);
 *
 * Its memory counts as reserved and active, under the limits of the pool and the cache; its addresses count nowhere but
 * in arena_bytes. Access to a unit without memory faults. vmm_free(), vmm_find(), vmm_walk(), vmm_record_stream(),
 * vmm_pin() and vmm_resize() take a reserved block like any other. Compaction never moves one. After vmm_free() the
 * memory is released to the driver once the work of the block's streams has ended; it is not cached.
 *
 * A reserved block sleeps with its pool: the wake gives memory to the units that had some. vmm_backup_find() finds the
 * bytes of such a unit; adjacent ones follow each other in the backup. While a pool sleeps, vmm_alloc_aligned(), and
 * vmm_reserve(), vmm_commit(), vmm_decommit() and vmm_resize() of its blocks return ERR_ASLEEP. After fork(), the
 * functions return ERR_FORKED in the child.
 */

/*
 * Does:     vmm_alloc_from() for a block whose address is a multiple of `alignment`. The block has at least 12 KiB if
 *           `alignment` is above 512. vmm_resize() does not keep the alignment.
 * Takes:    alignment, a power of two. Above the granule (2 MiB) the request may need as much more memory, which
 *           stays free for others.
 * Returns, Owns, Threads: as vmm_alloc_from(). Pushes and routes do not apply. During a capture: as vmm_alloc_from().
 *           With VMM_DEBUG_ON, a block with an alignment above 512 has canaries and no guard page.
 * On failure: as vmm_alloc_from(); ERR_INVALID_ARGUMENT also if `alignment` is no power of two; ERR_UNSUPPORTED also if
 *           it is above the granule and the pool is shareable or has no_split, or above 512 and the pool has a source.
 */
VMM_API VMM_NODISCARD vmm_status vmm_alloc_aligned(vmm_pool *pool, size_t bytes, size_t alignment,
                                                   vmm_stream stream, void **out);

/*
 * Does:     reserves addresses for a block, without memory. The call does not touch the stream, so it may run during a
 *           capture. Pushes and routes do not apply: the pool is the argument.
 * Takes:    bytes, above 0, also more than the device has. unit_bytes: a multiple of the granule (2 MiB); 0: 2 MiB.
 *           One unit is one chunk: larger units need fewer driver calls.
 * Returns:  VMM_OK and the address in *out, a multiple of the granule.
 * Owns:     the caller, until vmm_free(). Freeing a block whose pool is retained keeps its memory until the pool is
 *           not.
 * Costs:    no driver call; for each GiB of addresses 7 us and 32 KiB of host memory.
 * Threads:  any.
 * On failure: ERR_ADDRESS_SPACE (see vmm_config.arena_bytes), ERR_INVALID_ARGUMENT (not a pool; NULL out; bytes is 0; a
 *           wrong unit; an unusable stream), ERR_UNSUPPORTED (with nvtx; the pool has a source), ERR_HOST_OOM,
 *           ERR_DRIVER, ERR_LOST.
 */
VMM_API VMM_NODISCARD vmm_status vmm_reserve(vmm_pool *pool, size_t bytes, size_t unit_bytes,
                                             vmm_stream stream, void **out);

/*
 * Does:     gives memory to all units of a part of a reserved block. Units that have memory keep it, with their
 *           contents; new ones have undefined contents, or zeros if vmm_config.zero is on, written in order of the
 *           block's stream. A unit that vmm_decommit() took and that has not been unmapped yet gets its memory back
 *           without a driver call; but if vmm_record_stream() named other streams, the block's stream first waits, on
 *           the device, for the work that they had at the decommit; if a capture prevents that, the call fails until
 *           that work has ended. The memory can be used at once on the block's stream, and on others that are ordered
 *           after what that one has now; also during a capture (where vmm_config.zero makes the clear a part of the
 *           graph). vmm_pin() does not prevent a commit. VMM_DEBUG_ON neither checks nor poisons the memory.
 * Takes:    ptr: the start of a live block of vmm_reserve(). offset and bytes: whole units.
 * Returns:  VMM_OK.
 * Costs:    one create and one map for each new unit, and one set access for all that are adjacent.
 * Threads:  any.
 * On failure: ERR_DEVICE_OOM as vmm_alloc_from(), after the same attempts; ERR_UNKNOWN_POINTER (not such a block),
 *           ERR_INVALID_ARGUMENT (not whole units; beyond the block; NULL cache; the block's stream has ended, and
 *           earlier work on a unit that was taken is unfinished, or vmm_config.zero is on; if a new stream has its
 *           handle, that one clears the memory; work of another stream on a unit that was taken is unfinished, and a
 *           capture of the block's stream is announced or under way, or of any stream if the other one had ended or
 *           was being captured at the decommit), ERR_HOST_OOM, ERR_DRIVER, ERR_LOST.
 */
VMM_API vmm_status vmm_commit(vmm_cache *cache, void *ptr, size_t offset, size_t bytes);

/*
 * Does:     takes the memory of all units of a part of a reserved block, in stream order: the memory is unmapped once
 *           the work that the block's stream, and those of vmm_record_stream(), have now has ended; the contents are
 *           lost. A call that needs the driver, vmm_trim() or vmm_poll() then does it; this call does not wait. Units
 *           without memory stay as they are. During a capture of one of the streams, the memory stays until its end. A
 *           captured graph must not use the units later.
 * Takes:    as vmm_commit().
 * Returns:  VMM_OK, also if the device is lost: the memory then stays until vmm_destroy().
 * Threads:  any.
 * On failure: ERR_UNKNOWN_POINTER (not a live block of vmm_reserve()), ERR_INVALID_ARGUMENT (not whole units; beyond
 *           the block; the block is under vmm_pin(), or its pool is retained or of the kind GRAPH; NULL cache),
 *           ERR_HOST_OOM.
 */
VMM_API vmm_status vmm_decommit(vmm_cache *cache, void *ptr, size_t offset, size_t bytes);

/*
 * Does:     changes the size of a live block and keeps its contents, as far as the new size reaches. Contents that were
 *           not there before are undefined. Work that is submitted to the block's stream after the call sees the
 *           contents at *out; order work of other streams after it. If the address changes, the old one is no longer a
 *           block; work submitted before the call may still use it. host: the contents are at *out when the call
 *           returns; where bytes are copied, it waits for the stream's work.
 *
 *           A block above 1 MiB grows in place if there are free bytes or addresses behind it. Otherwise its chunks are
 *           mapped at other addresses, with as many free ones behind them: a block that grows step by step moves at
 *           most once each time its size doubles. Only the parts of its first and last chunk that it shares with other
 *           blocks are copied, in stream order. It shrinks in place, to 1 MiB at least.
 *
 *           A reserved block gets more addresses, or fewer: units beyond the new size lose their memory as with
 *           vmm_decommit(). It moves, with all of its memory, if the addresses behind it are taken. Nothing is copied.
 *
 *           These blocks are copied to a new one: those of up to 1 MiB; large ones that cannot grow in place and that
 *           vmm_record_stream() named, or whose pool is retained, of the kind GRAPH or has a source; all with debug
 *           mode, zero or nvtx. The old block is then freed, and waits for the streams of vmm_record_stream(), which do
 *           not go over to the new one. The new block is not taken from another stream's memory, where vmm_alloc()
 *           might find one before it fails. resize_copied_bytes counts what is copied. With VMM_DEBUG_ON, the call
 *           succeeds also if the free of the old block detects a misuse, which is reported.
 * Takes:    ptr; bytes, above 0.
 * Returns:  VMM_OK and the block's address in *out, which may be ptr. out may be &ptr.
 * Threads:  any, while the block is live; no other call on the block may be under way.
 * On failure: the block is unchanged. ERR_DEVICE_OOM, ERR_ADDRESS_SPACE as vmm_alloc(); ERR_UNKNOWN_POINTER;
 *           ERR_INVALID_ARGUMENT (NULL; bytes is 0; the block is imported; it would have to move and is
 *           under vmm_pin(), exported, or reserved in a retained pool; it is reserved, would shrink, and is under
 *           vmm_pin() or in a retained pool; bytes must be copied and the block's stream has
 *           ended or is being captured),
 *           ERR_UNSUPPORTED (a reserved block must move, and the driver maps memory at one address only), ERR_HOST_OOM,
 *           ERR_DRIVER, ERR_LOST.
 */
VMM_API VMM_NODISCARD vmm_status vmm_resize(vmm_cache *cache, void *ptr, size_t bytes, void **out);

/* Room for a name, with the zero at its end. */
#define VMM_NAME_BYTES 64

/*
 * Does:     gives a live block a name for reports: vmm_find() and vmm_walk() show it in vmm_item.name, a recording has
 *           it, and the log with the largest blocks that were not freed. The name ends with the block; vmm_resize()
 *           keeps it. It has no other effect: blocks without a name cost nothing, and one with a name is freed under
 *           its stream's lock.
 * Takes:    text; the first 63 bytes are copied. NULL removes the name.
 * Returns:  VMM_OK, also on a lost device and during a capture.
 * Threads:  any, while the block is live.
 * On failure: ERR_UNKNOWN_POINTER, ERR_HOST_OOM, ERR_INVALID_ARGUMENT (NULL cache).
 */
VMM_API vmm_status vmm_name(vmm_cache *cache, const void *ptr, const char *text);

/* ---- Sharing ------------------------------------------------------------------------------ */

/*
 * Processes share the memory of a block through a socket:
 *
 *   one process:   vmm_share_export(cache, p, &share);
 *                  vmm_share_send(share, socket);
 *   another one:   vmm_share_receive(socket, &share);
 *                  vmm_share_import(cache, share, stream, &q);     the same bytes at another address
 *                  vmm_share_close(share, 0);
 *                  ... use q; vmm_free(cache, q);
 *   the first:     vmm_share_close(share, 1);                      after all importers have finished
 *
 * The driver shares chunks of memory, each as a whole. There are two ways to make a block that can be exported:
 *
 *   vmm_pool_options.shareable: each block of the pool has chunks of its own, in whole granules (2 MiB), so an importer
 *       sees no other block. The pool neither gives idle memory to other pools nor takes theirs, and it reuses a freed
 *       block only for a request of the same size in granules. vmm_resize() copies such a block if it gets fewer
 *       granules.
 *   vmm_config.shareable: any block of the cache. Blocks lie as in any cache. An export shares all chunks that the
 *       block touches, so THE IMPORTER CAN READ AND WRITE OTHER BLOCKS THERE, as with cudaIpcGetMemHandle(): share with
 *       processes that you trust.
 *
 * A block of vmm_reserve() cannot be exported.
 *
 * An exported block stays in place until the last share of it is closed: it is not moved, released
 * or given to another request, also after vmm_free(). A freed one counts as active until then. If
 * the exporter exits or destroys its cache, importers keep the memory: the driver releases it after
 * the last mapping. An importer that ends, in whatever way, changes nothing for the others.
 *
 * The library orders nothing between processes. The program makes sure that the importer's work
 * sees what the exporter's has written (for example by waiting for the stream before it sends), and
 * that the exporter closes the share only when the importers' work has ended.
 *
 * A share handle is looked up, not followed: a call with one that was closed fails with
 * ERR_INVALID_ARGUMENT. Calls of several threads on one share are allowed, but no other call on it
 * may be under way when it is closed. Recordings (vmm_trace_start()) leave imported memory out.
 *
 * A share is a set of file descriptors, which are closed on exec(). They need a Unix socket. Memory of a
 * pool with VMM_SHARE_FABRIC has fabric handles, too (CU_MEM_HANDLE_TYPE_FABRIC): 64 bytes for each
 * chunk, which any stream socket can carry. They reach the processes of a machine and of the machines
 * that NVLink joins to it, if these have access to the same IMEX channel. A share that came as fabric
 * handles keeps no memory: import it while the exporter's share is open. Any process that gets the
 * bytes can import the memory, and vmm_share_send() does not encrypt them: use a network that you
 * trust. No GPU with fabric handles was at hand: the tests use host memory, between processes of one
 * machine, and a libcuda of their own.
 *
 * What these calls do when
 *   a capture is under way: all work, and nothing of them becomes part of the graph. Keep imported
 *           memory until every graph that uses it is destroyed.
 *   a pool is pushed or routed: the same as without. An export is of the block's own pool, and
 *           imported memory is in no pool of the program.
 *   the block is under vmm_pin(): the same as without. An export keeps a block in place, too; each
 *           ends by itself.
 *   the pool is asleep: vmm_share_export() returns ERR_ASLEEP. A pool with exported blocks cannot
 *           sleep. Imported memory never sleeps.
 *   the process is a child of fork(): with a cache or share of the parent, all return ERR_FORKED. The
 *           child's copies of the descriptors keep the memory until it ends or calls exec().
 *           vmm_share_receive() works.
 *   the device is lost: vmm_share_export() and vmm_share_import() return ERR_LOST; the others work.
 */

/*
 * Does:     exports a live block. A block can be exported more than once.
 * Takes:    ptr: the start of a block of a shareable pool, or of a shareable cache.
 * Returns:  VMM_OK and the share in *out.
 * Owns:     the caller, until vmm_share_close(). Shares have one file descriptor for each chunk, which all shares of
 *           blocks in the chunk use. A share outlives the cache.
 * Costs:    0.7 ms in the driver for each chunk that no other share has; with VMM_SHARE_FABRIC two exports of each.
 * Threads:  any, while the block is live.
 * On failure: ERR_UNKNOWN_POINTER, ERR_INVALID_ARGUMENT (NULL; neither the block's pool nor the cache is shareable; the
 *           block is imported, or reserved), ERR_ASLEEP, ERR_DRIVER (also if the process has too many open files),
 *           ERR_LOST, ERR_HOST_OOM.
 */
VMM_API VMM_NODISCARD vmm_status vmm_share_export(vmm_cache *cache, void *ptr, vmm_share **out);

/*
 * Does:     sends a share to another process, any number of times. A received share can be sent on.
 *           Waits until the socket has taken all of it, also if the socket is in non-blocking mode.
 * Takes:    socket: a connected Unix socket of the type SOCK_STREAM or SOCK_SEQPACKET; for a share with
 *           fabric handles any connected stream socket, such as TCP. It stays the caller's. The program
 *           may use it for other data before and after. A received share goes on as it came, with
 *           descriptors or with fabric handles.
 * Returns:  VMM_OK; the other side may not have received it yet.
 * Threads:  any; one at a time on a socket.
 * On failure: ERR_DRIVER (the socket; the line has the cause): a part may have been sent, so close
 *           the socket. ERR_INVALID_ARGUMENT (not a share; a socket of another type; the socket is not a
 *           Unix socket, and the share has no fabric handles): nothing was sent.
 */
VMM_API vmm_status vmm_share_send(vmm_share *share, int socket);

/*
 * Does:     receives what vmm_share_send() sends. Waits for it, also if the socket is in non-blocking
 *           mode. A time limit of the socket (SO_RCVTIMEO) holds in blocking mode.
 * Takes:    socket: as vmm_share_send().
 * Returns:  VMM_OK and the share in *out.
 * Owns:     the caller, until vmm_share_close().
 * Threads:  any; one at a time on a socket.
 * On failure: ERR_INVALID_ARGUMENT (NULL; a socket of another type; the other side has closed the
 *           socket, or sent something else; the line says what is wrong), ERR_DRIVER (the socket; the
 *           process has no descriptors left), ERR_HOST_OOM. Close the socket then. The call leaves no
 *           descriptor behind.
 */
VMM_API VMM_NODISCARD vmm_status vmm_share_receive(int socket, vmm_share **out);

/*
 * Does:     maps the memory of a share into a cache, for use on `stream`; any number of times, also
 *           in the process that exported it. The memory counts in imported_bytes only, and in no
 *           limit. vmm_find(), vmm_walk(), vmm_record_stream(), vmm_listen() treat it as a block,
 *           with is_imported. vmm_free() ends it. It is unmapped after the work of its streams, by
 *           vmm_free() itself if that work has ended, else by a later vmm_poll(), vmm_trim() or
 *           vmm_share_import(). vmm_compact() and debug mode leave it alone.
 * Takes:    stream: as vmm_alloc(). The memory may be on another device if this device can access
 *           it as a peer.
 * Returns:  VMM_OK and the address of the block's first byte in *out, a multiple of 512. The share
 *           may be closed at once. vmm_find() has the size that the exporter requested, in requested_bytes.
 * Owns:     the caller, until vmm_free().
 * Threads:  any.
 * On failure: ERR_INVALID_ARGUMENT (NULL; not a share; an unusable stream; sizes that the device
 *           cannot map), ERR_UNSUPPORTED (the device cannot share memory), ERR_DRIVER (also if the
 *           share is of another driver, or of a device out of reach; the line says so),
 *           ERR_ADDRESS_SPACE, ERR_DEVICE_OOM, ERR_LOST, ERR_HOST_OOM.
 */
VMM_API VMM_NODISCARD vmm_status vmm_share_import(vmm_cache *cache, vmm_share *share,
                                                  vmm_stream stream, void **out);

/*
 * Does:     closes a share. Memory that was imported from it stays. After the last share of an
 *           exported block, the block may move and, if it was freed, be used again.
 * Takes:    force: 0 refuses the share of an export if vmm_share_send() has sent any byte of it, because
 *           the exporter cannot know whether importers still use the block. Any other value says that
 *           they do not, or that they may see other contents. For a share that was received, or
 *           whose cache was destroyed, it has no meaning.
 * Returns:  VMM_OK.
 * Threads:  any; no other call on the share may be under way.
 * On failure: ERR_INVALID_ARGUMENT (not a share; it was sent, and force is 0): nothing has changed.
 */
VMM_API vmm_status vmm_share_close(vmm_share *share, int force);

/* ---- Registration ------------------------------------------------------------------------- */

/*
 * A network card, or a library such as NCCL, registers the physical memory behind an address. That of a block is one or
 * several parts, each a piece of one physical allocation of the driver. These functions list the parts, and make
 * descriptors of them:
 *
 *   vmm_pin(cache, p);                                      from now on p keeps its parts
 *   vmm_dmabuf_export(cache, p, 0, bytes, &fd);             bytes: whole pages
 *   mr = ibv_reg_dmabuf_mr(pd, 0, bytes, (uint64_t)p, fd, access);
 *   close(fd);                                              the registration has the memory
 *   ... transfers ...
 *   ibv_dereg_mr(mr);
 *   vmm_unpin(cache, p);
 *
 * The library does not know what is registered. While something is, the program keeps the block live and under
 * vmm_pin(), and does not let its pool sleep, which gives the memory up: vmm_sleep_options.unmapping is the moment to
 * end registrations, vmm_sleep_options.mapped to make them again. A transfer is no work of a stream: order both.
 *
 * What these calls do when
 *   a capture is under way: they work, and nothing of them becomes part of the graph.
 *   a pool is pushed or routed: the same as without.
 *   the pool is asleep: they return ERR_ASLEEP, for the block has no memory.
 *   the process is a child of fork(): they return ERR_FORKED. A descriptor from before stays open there.
 *   the device is lost: vmm_dmabuf_export() returns ERR_LOST; vmm_parts_walk() works.
 */

/* A part of a block. */
typedef struct vmm_part {
    size_t struct_size; /* how much of the struct the library has filled in */
    uint64_t address;
    uint64_t bytes;
    /* The physical allocation, as the driver names it: with CUDA a CUmemGenericAllocationHandle, which stays the
     * cache's. Parts of one allocation have the same. If it differs from an earlier one, the block has got other
     * memory; but the driver may use the number of one that is gone again. 0: memory of a source, or with nvtx. */
    uint64_t handle;
    uint64_t handle_bytes; /* of the allocation; of a source: of the segment */
    uint64_t offset;       /* of the part's first byte in it */
} vmm_part;

/* Returns 0 to continue the walk; any other value ends it. Called without locks: may call the
 * cache. */
typedef int (*vmm_part_visitor)(void *context, const vmm_part *part);

/*
 * Does:     visits the parts of a live block, as they were at one moment, in ascending order of addresses. Their sizes
 *           add up to vmm_item.bytes; those of a reserved block to its committed_bytes, and units without memory leave
 *           gaps. With VMM_DEBUG_ON it leaves out what debug mode adds to the block. An imported block has the
 *           exporter's memory.
 * Takes:    ptr: the start of the block.
 * Returns:  VMM_OK, also if the visitor ended the walk.
 * Owns:     the library: a part is valid until the visitor returns.
 * Threads:  any, while the block is live; other calls wait while it lists the parts.
 * On failure: ERR_UNKNOWN_POINTER, ERR_INVALID_ARGUMENT (NULL cache or visitor), ERR_ASLEEP, ERR_HOST_OOM: nothing was
 *           visited.
 */
VMM_API vmm_status vmm_parts_walk(vmm_cache *cache, const void *ptr, vmm_part_visitor visit,
                                  void *context);

/*
 * Does:     makes a file descriptor of a range of a block, with which devices and other processes can have its memory.
 *           CUDA: a dma-buf of these bytes, and no others of the chunks. The range may consist of several parts.
 *           host: the file of one whole allocation that is exportable, which mmap() maps; no dma-buf.
 * Takes:    ptr: the start of a live block under vmm_pin(), or exported by vmm_share_export(). offset, bytes: the range
 *           in the block, above 0 bytes; address and size are multiples of the host's page (sysconf(_SC_PAGESIZE)). Of
 *           a reserved block, all of it has memory.
 * Returns:  VMM_OK and the descriptor in *fd. It is closed on exec().
 * Owns:     the caller, who closes it; it may outlive block and cache. WHILE IT IS OPEN, or something of it exists,
 *           such as a registration, THE DEVICE DOES NOT GET THAT MEMORY BACK: statistics do not count what the cache
 *           has released and a descriptor still holds. It gives access also after vmm_free(), when the bytes are
 *           another block's.
 * Threads:  any, while the block is live.
 * On failure: ERR_UNKNOWN_POINTER; ERR_INVALID_ARGUMENT, with a line that says why (NULL; beyond the block; 0 bytes;
 *           not whole pages; a unit without memory; parts that other processes can import beside others that they
 *           cannot: export each part; the block is neither under vmm_pin() nor exported, is imported, or is memory of a
 *           source: ask who made that memory); ERR_UNSUPPORTED (CUDA: the driver is older than 11.7, or
 *           CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED is 0, as without NVIDIA's open kernel modules; host: the range is not
 *           one whole exportable allocation, such as a block of a shareable pool; sim: always), ERR_ASLEEP, ERR_DRIVER
 *           (also if the process has too many open files), ERR_LOST, ERR_HOST_OOM.
 */
VMM_API VMM_NODISCARD vmm_status vmm_dmabuf_export(vmm_cache *cache, const void *ptr, size_t offset,
                                                   size_t bytes, int *fd);

/* ---- Statistics --------------------------------------------------------------------------- */

/*
 * The environment variable VMM_MONITOR=1 publishes the statistics of every cache that vmm_create()
 * makes, in a file in /dev/shm that only the same user can read; VMM_MONITOR=/a/folder does so in a
 * folder. A thread of the library writes it twice a second, without the locks of the caches;
 * vmmtop shows it.
 */

/* A statistic over time. allocated and freed are the sums of all increases and decreases. */
typedef struct vmm_stat {
    uint64_t current;
    uint64_t peak;
    uint64_t allocated;
    uint64_t freed;
} vmm_stat;

/*
 * The statistics. Each is declared once, here: X(name, unit, kind, of, label, text).
 *
 * kind: OVER_TIME is a vmm_stat, all others are one number: a GAUGE may fall; a PEAK is the highest value, and a TOTAL
 * the sum, since vmm_create(); a SCAN is a gauge that is read from the heaps, under their locks, so vmmtop does not
 * have it. of: POOL is also a statistic of a pool; CACHE is 0 there. label: of vmm_summary_write(), up to 21
 * characters. unit: only names of BYTES end in _bytes, only those of NANOSECONDS in _ns. text: what it counts, up to 60
 * characters, with a capital letter and no full stop.
 */
#define VMM_STAT_MAP(X)                                                                            \
    X(requested_bytes, BYTES, OVER_TIME, POOL, "Requested (live)",                                 \
      "Requested sizes of live blocks")                                                            \
    X(allocated_bytes, BYTES, OVER_TIME, POOL, "Allocated", "Sizes of live blocks")                \
    X(active_bytes, BYTES, OVER_TIME, POOL, "Active",                                              \
      "Sizes of blocks that are live or in use by other streams")                                  \
    X(reserved_bytes, BYTES, OVER_TIME, POOL, "Reserved", "Physical memory")                       \
    X(allocations, COUNT, OVER_TIME, POOL, "Allocations", "Live blocks")                           \
    X(chunks, COUNT, OVER_TIME, POOL, "Chunks", "Physical handles")

#define VMM_VALUE_MAP(X)                                                                           \
    X(idle_bytes, BYTES, SCAN, POOL, "Idle",                                                       \
      "Reserved, in chunks without an active block or a slab")                                     \
    X(limbo_bytes, BYTES, GAUGE, POOL, "In limbo", "Waits for an event before its release")        \
    X(largest_free_bytes, BYTES, SCAN, POOL, "Largest hole", "The largest free mapped block")      \
    X(pinned_bytes, BYTES, SCAN, POOL, "Pinned by live blocks",                                    \
      "Free, beside live blocks; not vmm_pin()")                                                   \
    X(unmovable_bytes, BYTES, SCAN, POOL, "Must not move",                                         \
      "Blocks under vmm_pin(), exported blocks")                                                   \
    X(compactions, COUNT, TOTAL, CACHE, "Compactions", "Compactions that moved live bytes")        \
    X(pressure_calls, COUNT, TOTAL, CACHE, "Pressure calls", "Calls of vmm_config.pressure")       \
    X(limit_bytes, BYTES, GAUGE, POOL, "Limit (0: none)", "Most bytes to reserve; 0: no limit")    \
    X(streams, COUNT, GAUGE, POOL, "Streams", "Known streams; of a cache: in all pools")           \
    X(retries, COUNT, TOTAL, CACHE, "Retries", "Requests that memory was reclaimed for")           \
    X(ooms, COUNT, TOTAL, CACHE, "Out of memory",                                                  \
      "Allocations that failed because memory ran out")                                            \
    X(stalls, COUNT, TOTAL, CACHE, "Stalls", "Waits of the host for the device")                   \
    X(stream_waits, COUNT, TOTAL, CACHE, "Stream waits", "Waits of one stream for another")        \
    X(reserve_calls, COUNT, TOTAL, CACHE, "reserve", "Driver calls: reserve addresses")            \
    X(address_free_calls, COUNT, TOTAL, CACHE, "address free", "Driver calls: free addresses")     \
    X(create_calls, COUNT, TOTAL, CACHE, "create", "Driver calls: create")                         \
    X(map_calls, COUNT, TOTAL, CACHE, "map", "Driver calls: map")                                  \
    X(access_calls, COUNT, TOTAL, CACHE, "set access", "Driver calls: set access")                 \
    X(unmap_calls, COUNT, TOTAL, CACHE, "unmap", "Driver calls: unmap")                            \
    X(release_calls, COUNT, TOTAL, CACHE, "release", "Driver calls: release")                      \
    X(event_calls, COUNT, TOTAL, CACHE, "events", "Driver calls: events")                          \
    X(driver_ns, NANOSECONDS, TOTAL, CACHE, "Driver time", "Time in driver calls")                 \
    X(retained_bytes, BYTES, SCAN, POOL, "Kept for graphs",                                        \
      "Free, in graph pools that are in use")                                                      \
    X(clock_ticks, COUNT, TOTAL, CACHE, "Clock ticks", "Events recorded to know what has ended")   \
    X(clock_pauses, COUNT, TOTAL, CACHE, "Clock pauses", "Events that could not be recorded")      \
    X(clock_kind, COUNT, GAUGE, CACHE, "Clock kind", "A vmm_clock_kind")                           \
    X(views, COUNT, SCAN, CACHE, "Views", "Rows of mappings beyond chunks' homes")                 \
    X(places, COUNT, GAUGE, CACHE, "Places in views", "Mappings in views")                         \
    X(places_max, COUNT, PEAK, CACHE, "Most places a chunk",                                       \
      "The most places that one chunk has had")                                                    \
    X(view_bytes, BYTES, GAUGE, CACHE, "Mapped in views", "Addresses of all places")               \
    X(occupied_bytes, BYTES, SCAN, POOL, "Used in views", "Active blocks in views")                \
    X(view_hits, COUNT, TOTAL, CACHE, "View hits", "Allocations in views that were there before")  \
    X(stitches, COUNT, TOTAL, CACHE, "Stitches",                                                   \
      "Views made or extended, each for one allocation")                                           \
    X(plans, COUNT, TOTAL, CACHE, "Plans", "Searches for the view to make or extend")              \
    X(planning_ns, NANOSECONDS, TOTAL, CACHE, "Planning time", "Host time in these searches")      \
    X(evictions, COUNT, TOTAL, CACHE, "Evictions",                                                 \
      "Places unmapped because one chunk had too many")                                            \
    X(asleep_bytes, BYTES, GAUGE, POOL, "Asleep",                                                  \
      "Memory that sleeping pools gave back and need to wake")                                     \
    X(backup_bytes, BYTES, SCAN, POOL, "Backups",                                                  \
      "Host memory that pools keep for their contents")                                            \
    X(resize_copied_bytes, BYTES, TOTAL, CACHE, "Copied by resizes", "Copied by vmm_resize()")     \
    X(imported_bytes, BYTES, GAUGE, CACHE, "Imported",                                             \
      "Memory of other caches, in no other statistic")                                             \
    X(free_bytes, BYTES, SCAN, POOL, "Free", "Of reserved_bytes, for any request: see below")      \
    X(host_bytes, BYTES, GAUGE, CACHE, "Host memory",                                              \
      "Memory of the library's records: see below")                                                \
    X(neighbour_claims, COUNT, TOTAL, CACHE, "Claims", "Requests that asked other processes")      \
    X(neighbour_misses, COUNT, TOTAL, CACHE, "Claims failed",                                      \
      "Of these, without enough memory at the end")                                                \
    X(neighbour_wait_ns, NANOSECONDS, TOTAL, CACHE, "Claim time", "Waits for other processes")     \
    X(neighbour_given_bytes, BYTES, TOTAL, CACHE, "Given", "Released for claims and for headroom") \
    X(neighbour_turns, COUNT, TOTAL, CACHE, "Claims in turn",                                      \
      "Claims less than 1 s after this cache gave memory")                                         \
    X(driver_calls, COUNT, TOTAL, CACHE, "Driver calls", "Driver calls of all kinds")              \
    X(neighbour_sleeps, COUNT, TOTAL, CACHE, "Sleeps for claims",                                  \
      "Offered pools that slept: see vmm_pool_sleep()")

/* Initialize with VMM_STATS_INIT, which sets struct_size. From version 1.0 on, a later version adds
 * statistics only at the end of VMM_VALUE_MAP, and a caller gets those that it knows. */
typedef struct vmm_stats {
    size_t struct_size;
#define VMM_STATS_STAT(name, unit, kind, of, label, text) vmm_stat name;
    VMM_STAT_MAP(VMM_STATS_STAT)
#undef VMM_STATS_STAT
#define VMM_STATS_VALUE(name, unit, kind, of, label, text) uint64_t name;
    VMM_VALUE_MAP(VMM_STATS_VALUE)
#undef VMM_STATS_VALUE
} vmm_stats;

/* clang-format off */
#define VMM_STATS_NO_STAT(name, unit, kind, of, label, text) , { 0, 0, 0, 0 }
#define VMM_STATS_NO_VALUE(name, unit, kind, of, label, text) , 0
#define VMM_STATS_INIT { sizeof(vmm_stats)                                                         \
    VMM_STAT_MAP(VMM_STATS_NO_STAT) VMM_VALUE_MAP(VMM_STATS_NO_VALUE) }
/* clang-format on */

/*
 * Does:     reads all statistics into *out, as far as out->struct_size reaches.
 * Returns:  VMM_OK. Statistics are consistent with each other if no other thread allocates. Peaks
 *           are exact if one thread makes all calls. Otherwise they may be too high: if threads
 *           share a stream, by what each thread caches of it (at most 64 MiB, or one block); if
 *           threads use several streams, by 4 MiB and 1/256 of the peak per stream, or by up to 1/8
 *           if threads allocate and free megabytes every few microseconds, and by the block that each
 *           stream freed last. With VMM_DEBUG_ON, peaks may be too high by what debug mode adds to one
 *           block, and active_bytes counts all that it adds and blocks in quarantine.
 *           reserved_bytes = active_bytes + free_bytes + limbo_bytes while no pool sleeps, and
 *           free_bytes = idle_bytes + pinned_bytes + retained_bytes.
 *           host_bytes is of all caches of the process, without backups, and without tables by address:
 *           of these only the pages of addresses that were used take memory. A stream with one live block of
 *           up to 1 MiB takes at most 8 KiB of it; a slab for blocks of up to 8 KiB adds 256 bytes, and events
 *           of the stream's own, which only ANY_USE does without, 3 KiB.
 * Threads:  any.
 * On failure: ERR_INVALID_ARGUMENT (NULL, or a struct_size that is too small for any statistic or
 *           too large).
 */
VMM_API vmm_status vmm_stats_get(vmm_cache *cache, vmm_stats *out);

/*
 * Does:     reads the statistics of one pool. Those that only a whole cache has are 0: CACHE in the maps above.
 * Returns, Threads, On failure: as vmm_stats_get(); ERR_INVALID_ARGUMENT also if it is not a pool.
 */
VMM_API vmm_status vmm_pool_stats_get(vmm_pool *pool, vmm_stats *out);

/* What a statistic is: see VMM_STAT_MAP. */
typedef enum vmm_stat_unit {
    VMM_UNIT_BYTES = 0,
    VMM_UNIT_COUNT = 1,
    VMM_UNIT_NANOSECONDS = 2
} vmm_stat_unit;

typedef enum vmm_stat_kind {
    VMM_STAT_OVER_TIME = 0,
    VMM_STAT_GAUGE = 1,
    VMM_STAT_PEAK = 2,
    VMM_STAT_TOTAL = 3,
    VMM_STAT_SCAN = 4
} vmm_stat_kind;

typedef struct vmm_stat_description {
    const char *name;
    vmm_stat_unit unit;
    vmm_stat_kind kind;
    int of_pools;  /* pools have it, too */
    size_t offset; /* in vmm_stats: of a vmm_stat, or of a uint64_t */
    const char *label;
    const char *text;
} vmm_stat_description;

/*
 * Does:     describes a statistic, for programs that show all of them: also those of a later version.
 * Takes:    number: from 0 on, in the order of vmm_stats.
 * Returns:  the description; NULL: there is none of this number.
 * Owns:     the library. It never changes.
 * Threads:  any; callbacks may call it too.
 */
VMM_API const vmm_stat_description *vmm_stat_describe(unsigned number);

/*
 * Does:     sets the peak of every statistic to its current value.
 * Returns:  VMM_OK.
 * Threads:  any.
 * On failure: ERR_INVALID_ARGUMENT (NULL cache).
 */
VMM_API vmm_status vmm_stats_reset_peak(vmm_cache *cache);

/*
 * Does:     asks the driver for the size of the device's memory, and for the part that is free:
 *           allocated neither by this program nor by another. Where the device uses the system's memory
 *           (GB10, Jetson), that is what the system can give, less a sixteenth of all, which stays its
 *           own: there cuMemGetInfo() counts the page cache as used.
 * Returns:  VMM_OK and bytes in *free_bytes and *total_bytes.
 * Threads:  any.
 * On failure: ERR_INVALID_ARGUMENT (NULL), ERR_DRIVER, ERR_LOST, ERR_HOST_OOM.
 */
VMM_API vmm_status vmm_device_memory(vmm_cache *cache, uint64_t *free_bytes, uint64_t *total_bytes);

/*
 * Does:     returns the size of the block that a request of `bytes` bytes gets: a multiple of 512 up to 4 KiB, and of
 *           1 KiB up to 8 KiB; above a multiple of 4 KiB, from 2 MiB on of 8 KiB, from 4 MiB on of 16 KiB. When memory
 *           has run out, a block of up to 8 KiB may be one of a larger size.
 * Returns:  bytes, also on a lost device and in a child of fork(): the answer follows from the configuration of the
 *           cache alone. 0 if the request is larger than any block can be, or if the cache is NULL.
 * Threads:  any; callbacks may call it too.
 */
VMM_API uint64_t vmm_block_bytes(vmm_cache *cache, uint64_t bytes);

/*
 * Does:     writes a table of all statistics, for people to read.
 * Takes:    out, which stays open.
 * Returns:  VMM_OK.
 * Threads:  any.
 * On failure: ERR_INVALID_ARGUMENT (NULL, or writing to the file failed).
 */
VMM_API vmm_status vmm_summary_write(vmm_cache *cache, FILE *out);

/*
 * Does:     writes a line to the cache's log, for libraries built on the cache. Without a log it
 *           does nothing.
 * Returns:  VMM_OK.
 * Threads:  any.
 * On failure: ERR_INVALID_ARGUMENT (NULL).
 */
VMM_API vmm_status vmm_log_write(vmm_cache *cache, const char *line);

/* ---- Debug mode --------------------------------------------------------------------------- */

/*
 * Does:     with VMM_DEBUG_ON, checks whether the program wrote beyond live blocks, or into freed
 *           blocks that the cache has not reused. Waits for the work of all streams except those
 *           that are being captured.
 * Returns:  VMM_OK, also in the other modes, where there is nothing to check.
 * Threads:  any; frees of other threads wait for this call.
 * On failure: ERR_CORRUPTED (the line names the address and the block; the call checked the rest
 *           too), ERR_DRIVER, ERR_LOST, ERR_HOST_OOM, ERR_INVALID_ARGUMENT (NULL cache).
 */
VMM_API vmm_status vmm_debug_check(vmm_cache *cache);

/*
 * Does:     writes a report of the last misuse that vmm_config.debug detected: its line, and the
 *           stacks that allocated and freed the block. If there was no misuse, it writes that.
 * Takes:    out, which stays open.
 * Returns:  VMM_OK.
 * Threads:  any.
 * On failure: ERR_INVALID_ARGUMENT (NULL, or writing to the file failed).
 */
VMM_API vmm_status vmm_debug_report(vmm_cache *cache, FILE *out);

/* ---- Recording ---------------------------------------------------------------------------- */

/*
 * A recording is a file with every allocation, free, use of a block by another stream, name of a
 * block, and change of reserved memory, in order: a trace, as docs/trace-format.md describes it. Each
 * unit of a reserved block that has memory is a block there, and vmm_resize() frees a block and
 * allocates one of the new size. vmmcache-report shows it
 * and fragtest replays it. The file is plain text, and a thread of the library writes it twice a
 * second: a program that is killed leaves a file that can be read, in which less than a second is
 * missing.
 *
 * If the name ends with ".gz", the file is that text as gzip, which zcat and both tools read. The
 * thread that writes packs it, with the libz.so.1 of the machine, which only such recordings need.
 * Each write is whole lines that can be unpacked without the rest, so the same holds of a program
 * that is killed: at most the last write is cut.
 *
 * The environment variable VMM_TRACE=FILE records every cache that vmm_create() makes: the first to
 * FILE, others to FILE.2, FILE.3 and so on; VMM_TRACE_STACKS=1 adds stacks. "%p" in FILE becomes the
 * number of the process. A ".gz" stays at the end: run.gz, run.2.gz. If the recording cannot start,
 * vmm_create() fails as vmm_trace_start() does.
 *
 * A recording fails no other call. If the disk is full, the file ends with the last page that fit, a
 * packed one with the last write that did, and vmm_trace_stop() says so. A call waits only if it is
 * ahead of the file by 65536 events. In a child of fork(), nothing is recorded.
 */

/* Options of a recording. Initialize with VMM_TRACE_OPTIONS_INIT, which sets struct_size. */
typedef struct vmm_trace_options {
    size_t struct_size;
    int stacks; /* non-zero: with the host's stack of each allocation, which costs microseconds */
} vmm_trace_options;

/* clang-format off */
#ifdef __cplusplus
#define VMM_TRACE_OPTIONS_INIT { sizeof(vmm_trace_options), 0 }
#else
#define VMM_TRACE_OPTIONS_INIT { .struct_size = sizeof(vmm_trace_options) }
#endif
/* clang-format on */

/*
 * Does:     records the cache to a file from now on. It first records the blocks that are live and
 *           the memory that is reserved. Calls of other threads that are under way may be left out.
 * Takes:    path: a regular file, which is replaced, packed if its name ends with ".gz"; options,
 *           NULL: defaults.
 * Returns:  VMM_OK.
 * Threads:  any; other calls wait while it reads the cache.
 * On failure: ERR_INVALID_ARGUMENT (NULL, a wrong option, the cache is recorded already, another
 *           recording writes the file, or it cannot be written: the line says why), ERR_UNSUPPORTED
 *           (the name ends with ".gz", and there is no libz.so.1; the file is left alone),
 *           ERR_HOST_OOM.
 */
VMM_API vmm_status vmm_trace_start(vmm_cache *cache, const char *path,
                                   const vmm_trace_options *options);

/*
 * Does:     ends the recording and closes its file. vmm_destroy() does it, too.
 * Returns:  VMM_OK: the file is complete.
 * Threads:  any.
 * On failure: ERR_INVALID_ARGUMENT (NULL cache; the cache is not recorded; the file could not be
 *           written: the line says why), ERR_HOST_OOM (there was no host memory for some events). In
 *           the last two cases the recording has ended, and its file is a trace, but not complete.
 */
VMM_API vmm_status vmm_trace_stop(vmm_cache *cache);

/*
 * Does:     marks this moment in the recording, such as the start of a step. Without a recording it
 *           does nothing.
 * Takes:    text; the recording keeps its first 199 bytes.
 * Returns:  VMM_OK.
 * Threads:  any.
 * On failure: ERR_INVALID_ARGUMENT (NULL).
 */
VMM_API vmm_status vmm_trace_note(vmm_cache *cache, const char *text);

/* ---- Walk and listener -------------------------------------------------------------------- */

/*
 * Physical memory has a first address, its home, and may have further ones. If a request fits in no
 * free block, the cache maps chunks that have free memory also at consecutive addresses, a view,
 * and serves the request there. While such a block is live or waiting, it occupies memory that is
 * free at its home. The walk and the listener report each byte of physical memory once, where it is
 * in use: the memory of blocks in views at their addresses there, all other memory at its home.
 * These ranges are multiples of 512 bytes.
 */

typedef enum vmm_item_kind {
    VMM_ITEM_CHUNK = 0, /* a range of mapped memory: a chunk (one physical handle) at its home, or a
                           part of one, or all of a block in a view */
    VMM_ITEM_BLOCK = 1  /* a range of arena addresses, live or free */
} vmm_item_kind;

typedef enum vmm_item_state {
    VMM_ITEM_FREE = 0, /* block: free; chunk: idle */
    VMM_ITEM_LIVE = 1, /* block: allocated; chunk: contains part of an active block or of a slab */
    VMM_ITEM_WAITING = 2, /* block: freed, but in use by other streams; chunk: in limbo */
    VMM_ITEM_ASLEEP = 3   /* chunk: addresses of a sleeping pool, without memory */
} vmm_item_state;

typedef struct vmm_item {
    size_t struct_size;
    vmm_item_kind kind;
    vmm_item_state state;
    uint64_t address;
    uint64_t bytes;
    uint64_t requested_bytes; /* live blocks: the requested size; else 0 */
    vmm_stream stream;        /* whose memory it is */
    vmm_pool *pool;           /* NULL: a pool that is being destroyed, or imported memory */
    vmm_pool_id pool_id;      /* its user id; zeros: none */
    int is_small;             /* in chunks for blocks of up to 1 MiB */
    int is_view;              /* a block in a view, or its range */
    int is_reserved; /* a block of vmm_reserve(), whose `bytes` are addresses; its memory */
    int is_imported; /* memory of another cache: see "Sharing" */
    uint64_t committed_bytes;  /* of a reserved block: its physical memory; else 0 */
    char name[VMM_NAME_BYTES]; /* of vmm_name(), or "" */
} vmm_item;

/* clang-format off */
#ifdef __cplusplus
#define VMM_ITEM_INIT { sizeof(vmm_item), VMM_ITEM_CHUNK, VMM_ITEM_FREE, 0, 0, 0, NULL, NULL, { 0, 0 }, \
                        0, 0, 0, 0, 0, "" }
#else
#define VMM_ITEM_INIT { .struct_size = sizeof(vmm_item) }
#endif
/* clang-format on */

/* Returns 0 to continue the walk; any other value ends it. Called with locks held: must not call
 * the cache. */
typedef int (*vmm_visitor)(void *context, const vmm_item *item);

/*
 * Does:     visits all mapped memory and every block in ascending order of addresses, each range of
 *           memory (VMM_ITEM_CHUNK) before the blocks that start in it. A block in a view has a range of its own, of
 *           exactly its size, or several, if only a part of it is asleep. Ranges do not overlap, and the sizes of those
 *           that are not asleep add up to reserved_bytes and imported_bytes; a chunk may be reported as several ranges.
 *           Memory that the driver refused to map or to take back is one range of each pool, waiting, at address 0. It
 *           visits each block of a slab on its own. A reserved block comes after the range at its start, or before its
 *           first range if there is no memory at its start.
 * Returns:  VMM_OK, also if the visitor ended the walk.
 * Threads:  any; other calls wait for this call.
 * On failure: ERR_INVALID_ARGUMENT (NULL cache or visitor).
 */
VMM_API vmm_status vmm_walk(vmm_cache *cache, vmm_visitor visit, void *context);

/*
 * Does:     vmm_walk() of one pool.
 */
VMM_API vmm_status vmm_pool_walk(vmm_pool *pool, vmm_visitor visit, void *context);

/*
 * Does:     makes a live block at an address where the pool has free memory, at home or in a view.
 *           So a program can restore the blocks that vmm_pool_walk() has listed, where they were:
 *           as long as the pool is of the kind GRAPH, or was retained from the walk on, blocks that
 *           were live in it at one moment can be placed again, in any order, once all others are
 *           free and their work has ended on other streams. This does not hold for the default
 *           pool, nor for vmm_alloc_aligned() under VMM_DEBUG_ON, nor for a block above about
 *           1 MiB that VMM_DEBUG_ON allocated before the pool was retained; blocks of vmm_reserve() cannot be
 *           placed. The call costs no driver call, changes no mapping and keeps what the memory
 *           contains, except with vmm_config.zero.
 * Takes:    address, bytes, stream: as of a block that vmm_alloc_from() returned, its
 *           vmm_item.requested_bytes. For a block of vmm_alloc_aligned(), or one that vmm_resize()
 *           has shortened, bytes are its vmm_item.bytes.
 * Returns:  VMM_OK. vmm_free() frees the block.
 * Owns, Threads: as vmm_alloc().
 * On failure: ERR_INVALID_ARGUMENT, and one line that says why: not a pool; NULL; the pool has no
 *           memory there; another stream has; some of the bytes are not free, not mapped, or freed
 *           while other streams still use them; no block of this size begins there. ERR_ASLEEP,
 *           ERR_HOST_OOM, ERR_DRIVER, ERR_FORKED, ERR_LOST. Nothing has changed.
 */
VMM_API VMM_NODISCARD vmm_status vmm_pool_place(vmm_pool *pool, void *address, size_t bytes,
                                                vmm_stream stream);

/*
 * Does:     finds the live block that contains an address.
 * Takes:    address; item, initialized with VMM_ITEM_INIT.
 * Returns:  VMM_OK and the block in *item, as far as item->struct_size reaches.
 * Threads:  any.
 * On failure: ERR_UNKNOWN_POINTER (no live block contains the address), ERR_INVALID_ARGUMENT (NULL,
 *           or a struct_size that is too small or too large).
 */
VMM_API vmm_status vmm_find(vmm_cache *cache, const void *address, vmm_item *item);

/* Kinds of changes. With VMM_DEBUG_ON the cache reports every freed block as free, and no WAIT or
 * FREE. */
typedef enum vmm_change_kind {
    VMM_CHANGE_MAP = 0,   /* a range became memory of a stream */
    VMM_CHANGE_UNMAP = 1, /* a range, or part of one, no longer is */
    VMM_CHANGE_WAIT = 2,  /* a block was freed that other streams still use */
    VMM_CHANGE_FREE = 3   /* such a block became free */
} vmm_change_kind;

/* A change that the callers of vmm_alloc() and vmm_free() cannot observe. */
typedef struct vmm_change {
    size_t struct_size; /* how much of the struct the library has filled in */
    vmm_change_kind kind;
    uint64_t address;
    uint64_t bytes;
    vmm_stream stream;
    vmm_pool *pool; /* as in vmm_item */
    vmm_pool_id pool_id;
    int is_small;             /* as in vmm_item */
    int is_view;              /* as in vmm_item */
    int is_imported;          /* as in vmm_item */
    uint64_t requested_bytes; /* WAIT, FREE: as in vmm_item; otherwise 0 */
} vmm_change;

/* Receives a change, on the thread whose call causes it. Called with locks held: must not call the
 * cache. */
typedef void (*vmm_listener)(void *context, const vmm_change *change);

/*
 * Does:     sets the function that receives every change from now on; it replaces the previous
 *           function. NULL removes it. What was mapped and not unmapped since is what vmm_walk()
 *           visits, except memory in limbo; the walk may cut the ranges differently. When a block
 *           in a view is allocated, the memory that it occupies changes its address: UNMAP of each
 *           range at its home, then MAP of the block's range, with is_view; the reverse when the
 *           block becomes free. No physical memory is created or released then.
 * Returns:  VMM_OK. After the return, the cache does not call the previous function.
 * Threads:  any.
 * On failure: ERR_INVALID_ARGUMENT (NULL cache).
 */
VMM_API vmm_status vmm_listen(vmm_cache *cache, vmm_listener watch, void *context);

/* ---- Neighbours --------------------------------------------------------------------------- */

/*
 * Caches of the processes of one user, on one device, that have vmm_config.neighbours on, share a
 * record: a file in /dev/shm, or in the folder VMM_NEIGHBOURS_DIR (a path that begins with /), which
 * containers can share. A request that the device refuses, not a limit, then claims the memory that
 * is missing, and waits for at most neighbours_wait_ms. The others give, above their floor and until
 * nothing is missing:
 *   1. idle memory whose work has finished, or finishes in that time;
 *   2. after half of that time, what their pressure function frees, if they allow that: it is called
 *      on a thread of the library, with the default pool;
 *   3. after three quarters, pools that they have offered (vmm_sleep_options.on_claim): the smallest
 *      that is large enough goes to sleep, or else the largest. A sleep that has begun is not cut short;
 *      copies take time, so let claims wait for seconds where large pools are to sleep.
 * A cache does 2 and 3 only for claimants whose priority is at least its own. All other blocks
 * stay, and so does the memory of sources, of graph pools that are not offered, and what pools were
 * promised. Caches of the lowest priority give first; of equal ones, the one that has most.
 * Together they give hardly more than is missing. Then the request is tried again; it can fail if
 * another process was quicker. Other threads of the claimant use the cache meanwhile. The wake of
 * pools claims like a request; of two that need the same memory, the one that claimed first gets
 * it.
 *
 * Also without a claim, caches give idle memory above their floor while less than a 128th of the
 * device is free: headroom for what allocates without a cache.
 *
 * A process that is stopped gives nothing. The record is no authority: a process of the same user can
 * only make others give up idle memory, put to sleep what they have offered, or wait. If the record
 * cannot be used, the log says why, and the cache works without. Each cache with neighbours has a
 * thread; without, there is no thread and no file. host: only with VMM_HOST_DEVICE; sim: never.
 */

/* A cache, as it has shown itself last: at most half a second ago, unless its process is stopped.
 * Another process's word. */
typedef struct vmm_neighbour {
    size_t struct_size;
    uint64_t pid; /* in its own namespace */
    int is_self;  /* the cache of the call */
    uint32_t priority;
    uint64_t floor_bytes;
    uint64_t limit_bytes;    /* 0: none */
    uint64_t live_bytes;     /* of blocks */
    uint64_t reserved_bytes; /* physical memory */
    uint64_t idle_bytes;     /* part of it: could be given, but for the floor */
    uint64_t asleep_bytes;
    uint64_t given_bytes; /* so far, to claims and headroom; that of pools that slept, too */
    uint64_t claims;      /* so far */
    uint64_t want_bytes;  /* how much free memory it claims the device to have now; 0: no claim */
    char name[VMM_NAME_BYTES];
} vmm_neighbour;

/* Returns 0 to continue the walk; any other value ends it. Called without locks: may call the
 * cache. */
typedef int (*vmm_neighbour_visitor)(void *context, const vmm_neighbour *neighbour);

/*
 * Does:     visits the cache itself, then all others on the device. Visits none if the cache has no
 *           neighbours, because it is configured so or the record cannot be used.
 * Returns:  VMM_OK, also if the visitor ended the walk.
 * Owns:     the library: the structure is valid until the visitor returns.
 * Threads:  any.
 * On failure: ERR_INVALID_ARGUMENT (NULL cache or visitor).
 */
VMM_API vmm_status vmm_neighbours_walk(vmm_cache *cache, vmm_neighbour_visitor visit,
                                       void *context);

/*
 * Does:     estimates what the cache could get now, for programs that size something at their start:
 *           what the device has free and what neighbours have idle above their floors, both as far as
 *           the limit allows, and the cache's own idle memory, but not that of graph pools. Offered pools
 *           of neighbours do not count. The headroom does: leave a 128th of the device for other libraries.
 *           So does what a stopped process has idle, although it gives nothing.
 * Returns:  VMM_OK and the bytes in *bytes. They are no promise: others may take them.
 * Threads:  any; other calls wait for this call.
 * On failure: ERR_INVALID_ARGUMENT, ERR_LOST, ERR_DRIVER.
 */
VMM_API vmm_status vmm_available_get(vmm_cache *cache, uint64_t *bytes);

#ifdef __cplusplus
}
#endif

#endif
