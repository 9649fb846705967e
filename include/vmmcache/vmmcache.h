/*
 * libvmmcache: device memory for CUDA programs, without fragmentation.
 *
 * A cache reserves one huge range of device addresses once and maps physical memory into it on
 * demand. Every function is thread-safe on one cache, except that vmm_destroy() must be the last
 * call. Sizes are bytes. Results come through out-parameters, which are written only on success.
 * A call that fails changes nothing that the caller can see, unless its own text says so; vmm_last_error()
 * then tells, for the calling thread, what was wrong in one line.
 *
 *   vmm_cache *cache;
 *   void *p;
 *   if (vmm_create(NULL, &cache) == VMM_OK && vmm_alloc(cache, 1 << 20, NULL, &p) == VMM_OK) {
 *       ... launch kernels on the default stream ...
 *       vmm_free(cache, p);
 *       vmm_destroy(cache);
 *   }
 *
 * With the cuda driver a cache lives in the device's primary context (the one that the CUDA runtime
 * uses), whatever context is current on the calling thread, and leaves that as it was. A stream is
 * known by its handle: call vmm_stream_end() before you destroy one that the cache has seen, and do not use
 * the per-thread default stream, whose handle means another stream on each thread.
 *
 * After fork() a cache belongs to the parent alone. In the child every call on it, vmm_destroy()
 * included, returns ERR_FORKED at once and touches nothing, and vmm_free(cache, NULL) does nothing; what
 * the child has of its records is given back by its exec() or exit. It may make caches of its own: not
 * with the cuda driver, if the parent had started CUDA (ERR_FORKED).
 *
 * Once a driver call has found the device lost (the context was destroyed or reset, or a kernel broke it) the
 * cache makes no driver call any more. vmm_alloc(), vmm_trim(), vmm_wait(), vmm_tick(), vmm_stream_end(),
 * vmm_device_memory(), vmm_guard_check() and vmm_pool_begin() return ERR_LOST at once, with the line of the
 * first call that found it; blocks can be freed, which makes no driver call either, and reports work.
 * vmm_destroy() gives back all host memory and, with the cuda driver, the device memory: it outlives the
 * context, and stays taken until the process ends if the cache is left alive, or if the driver refuses to take
 * something back, after which vmm_destroy() asks for no more. A new cache may then be made if CUDA gives the
 * process a context again: after a reset it does; after a kernel's error a process has to end.
 *
 * A program may end with caches alive: the driver takes their memory back. Exit handlers and destructors
 * may free blocks and destroy caches; with the cuda driver those that run after the one that was registered
 * by the first vmm_create() find the device lost. No call may be made by a signal handler; nor by exit handlers,
 * if exit() was called by a signal handler that came in the middle of a call.
 *
 * What the program gives a cache to call (log, clock, filter, visitor, watch function) is called with locks
 * held and must not call that cache. A call of it from there does nothing and returns ERR_INVALID_ARGUMENT,
 * vmm_destroy() included; only vmm_block_bytes() answers. The pressure function and the misuse function may
 * call all but vmm_destroy(), which is refused; what they ask for is not asked of the pressure function. Of a
 * misuse that vmm_destroy() finds the function is told while the cache ends: every call of that cache is refused then.
 *
 * Plain C11 that also compiles as C++17; needs no CUDA header.
 */
#ifndef VMMCACHE_H
#define VMMCACHE_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define VMM_VERSION_MAJOR 0
#define VMM_VERSION_MINOR 1
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

/* X(name, value, text). Values never change meaning. NOT_READY is the library's own: no function below
 * returns it. ERR_INTERNAL comes only from builds of the library that check themselves (VMM_CHECK). */
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
      "the device context is gone or broken; only vmm_free() and vmm_destroy() are of use")        \
    X(NOT_READY, 10, "work in flight has not finished yet")                                        \
    X(ERR_INTERNAL, 11, "the library found its own records inconsistent")                          \
    X(ERR_FORKED, 12, "the cache belongs to the process that forked")                              \
    X(ERR_CORRUPTED, 13, "memory beyond a block, or after its free, was written")

typedef enum vmm_status {
#define VMM_STATUS_ENUM(name, value, text) VMM_##name = value,
    VMM_STATUS_MAP(VMM_STATUS_ENUM)
#undef VMM_STATUS_ENUM
} vmm_status;

/* Returns the symbolic name of a status, such as "VMM_ERR_DEVICE_OOM". Never NULL. Any thread. */
VMM_API const char *vmm_status_name(vmm_status status);

/* Returns one sentence about a status. Never NULL. Any thread. */
VMM_API const char *vmm_status_text(vmm_status status);

/*
 * Returns one line about the last call that failed on this thread: what was asked, what was wrong
 * and, for a driver call, its name and native code. Empty if none has failed. Owned by the library
 * and valid until the thread's next failing call.
 */
VMM_API const char *vmm_last_error(void);

/* Returns the version of the library in use, "major.minor.patch". Any thread. */
VMM_API const char *vmm_version(void);

/* ---- Configuration ------------------------------------------------------------------------ */

typedef struct vmm_cache vmm_cache;

/* A CUstream / cudaStream_t; NULL is the default stream. Other drivers take any value as a name. */
typedef void *vmm_stream;

typedef enum vmm_driver_kind {
    VMM_DRIVER_AUTO = 0, /* CUDA where there is a GPU, else the host driver */
    VMM_DRIVER_CUDA = 1, /* an NVIDIA GPU through libcuda.so.1 */
    VMM_DRIVER_HOST = 2, /* ordinary memory of this machine; for tests, tools and examples */
    VMM_DRIVER_SIM = 3   /* rules and costs only: addresses must not be touched */
} vmm_driver_kind;

/* Returns whether this build of the library has a driver: without the toolkit's headers it has none for
 * CUDA. Asks no device. Any thread. */
VMM_API int vmm_has_driver(vmm_driver_kind driver);

/* Receives one line of text without a newline. May be called by several threads at once, with locks
 * held: must not call the cache. */
typedef void (*vmm_log_fn)(void *context, const char *line);

/* Memory that another stream freed and its work still uses: see vmm_config.sharing. */
typedef enum vmm_sharing {
    VMM_SHARING_FINISHED = 0, /* left alone; new memory is taken instead: streams stay concurrent */
    VMM_SHARING_WAIT = 1      /* taken, and the stream that needs it waits for that work: streams
                                 may run one after the other, but share one memory */
} vmm_sharing;

/*
 * Compaction moves live bytes to other physical memory under their own addresses, so that memory
 * pinned by a few live bytes comes free: before a request fails for want of memory, and in
 * vmm_trim(). It first waits for all work of the device's context.
 *
 * If another thread submits work on blocks of the cache while a call compacts, live data is silently
 * corrupted, or the work faults. The library cannot see who submits work; therefore it is off unless
 * the program asks for it. Nor may it be on where a wait for the whole context can deadlock: kernels
 * that wait for the host, or for another process that waits for this thread. What knows a block by its
 * physical place (exported, registered with a network card) is kept out of it with vmm_pin(), called
 * before it is registered.
 */
typedef enum vmm_compaction {
    VMM_COMPACTION_OFF = 0,
    VMM_COMPACTION_AUTO = 1, /* as long as only one thread has allocated, freed, used, pinned or
                                trimmed; from the first call of a second one on no more. vmm_trim()
                                compacts only if all streams that the cache knows are idle. For
                                programs in which that thread also submits all work */
    VMM_COMPACTION_ON = 2    /* the program promises that no thread submits work on blocks of the
                                cache while any vmm_alloc() or vmm_trim() is under way */
} vmm_compaction;

/* No footprint target: idle chunks never move, only before out-of-memory. */
#define VMM_FOOTPRINT_ANY UINT32_MAX

/*
 * Asked for memory before a request fails for want of `bytes` bytes more. Called without locks: may
 * free blocks of the cache and trim it. Returns non-zero if it freed something: the request is then
 * tried again, and this function asked again should it still fail, at most 64 times a request.
 * May be called by several threads at once. May allocate from the cache, but what it asks for itself
 * fails without this function being called again on the same thread.
 */
typedef int (*vmm_pressure_fn)(void *context, size_t bytes);

/*
 * Modes for hunting bugs of the program, which cost time and memory: docs/reliability.md, section 6.
 *
 * RECORD: who allocated and freed each block, with stacks, which misuse is told with.
 * ON: and memory around blocks and after their end is watched, for which vmm_free() waits for the block's work.
 *     Blocks above 1 MiB end where the device faults, and do so as a whole once they are freed. Nothing is
 *     compacted.
 * STOP: and the first misuse stops the process with SIGTRAP, once its story is in the log.
 */
typedef enum vmm_guard {
    VMM_GUARD_OFF = 0,
    VMM_GUARD_RECORD = 1,
    VMM_GUARD_ON = 2,
    VMM_GUARD_STOP = 3
} vmm_guard;

/*
 * Told of the first misuse that is found with vmm_config.guard: a pointer that names no live block, or memory that
 * was written beyond a block or after its end. The line is that of vmm_last_error(). Called on the thread whose
 * call found it, without locks: may call the cache, unless vmm_destroy() found it. The cache is ending then, and each
 * call of it does nothing and returns ERR_INVALID_ARGUMENT; the story is in the log.
 */
typedef void (*vmm_misuse_fn)(void *context, const char *line);

/* Nanoseconds of a clock that never goes back. Called with locks held: must not call the cache. */
typedef uint64_t (*vmm_clock_fn)(void *context);

/*
 * Zero in a field means its default. Set struct_size with VMM_CONFIG_INIT; a library older than
 * the caller refuses fields that it does not know unless they are zero.
 */
typedef struct vmm_config {
    size_t struct_size;
    int device;             /* ordinal of the device */
    vmm_driver_kind driver; /* environment: VMM_DRIVER=auto|cuda|host|sim, when this is AUTO */
    uint64_t device_bytes;  /* host and sim, cuda with marks: capacity of the pretended device */
    uint64_t limit_bytes;   /* most physical memory to hold; environment: VMM_LIMIT=SIZE|N% */
    uint64_t arena_bytes;   /* device addresses to reserve; default 2^44, halved on refusal */
    int no_caching;         /* 1: every allocation goes to the driver and back, to hunt bugs;
                               environment: VMM_NO_CACHING=1 */
    vmm_log_fn log;         /* gets a line for each growth, trim and failure;
                               environment: VMM_LOG=stderr|FILE */
    void *log_context;
    uint32_t footprint_permille; /* how far reserved memory may exceed the peak of active memory, in
                                    thousandths, before idle chunks move rather than new memory is
                                    taken: 1 (tight; more driver calls) to 1000, default 10, or
                                    VMM_FOOTPRINT_ANY; docs/footprint.md has what each costs;
                                    environment: VMM_FOOTPRINT=N|any */
    vmm_sharing sharing;         /* environment: VMM_SHARING=finished|wait */
    vmm_compaction compaction;   /* environment: VMM_COMPACTION=off|auto|on */
    uint32_t decay_ms;           /* memory idle for this long (at most twice) goes back to the
                                    driver; 0: only when asked; environment: VMM_DECAY_MS=N */
    uint64_t decay_keep_bytes;   /* idle memory that decay leaves */
    int decay_thread;            /* 1: a thread of the library calls vmm_tick() in time; 0: calls of
                                    the cache notice the time by themselves, and vmm_tick() is
                                    there for programs that pause */
    vmm_clock_fn clock;          /* for decay; NULL: the host's monotonic clock */
    void *clock_context;
    vmm_pressure_fn pressure; /* NULL: none */
    void *pressure_context;
    uint64_t peer_devices; /* cuda: bit n: device n may read and write the cache's memory; ordinals
                              beyond the last device, and the cache's own, are ignored */
    int zero; /* 1: every block reads as zeros when it is handed out, so that nobody sees what others
                 left. They are written in order of the block's stream: other streams that use it
                 come after that; environment: VMM_ZERO=1 */
    vmm_guard guard; /* environment: VMM_GUARD=off|record|on|stop */
    vmm_misuse_fn misuse;
    void *misuse_context;
    int marks; /* 1: blocks are marked for tools such as compute-sanitizer, which then report an access beyond
                  the end of one, or after vmm_free(), which waits for the device; cuda: twice limit_bytes
                  (0: 3/4 of free memory) is allocated at once; not with compaction, zero or guard;
                  environment: VMM_MARKS=1 */
} vmm_config;

/* clang-format off */
#ifdef __cplusplus
#define VMM_CONFIG_INIT { sizeof(vmm_config), 0, VMM_DRIVER_AUTO, 0, 0, 0, 0, NULL, NULL, 0, \
    VMM_SHARING_FINISHED, VMM_COMPACTION_OFF, 0, 0, 0, NULL, NULL, NULL, NULL, 0, 0, VMM_GUARD_OFF, \
    NULL, NULL, 0 }
#else
#define VMM_CONFIG_INIT { .struct_size = sizeof(vmm_config) }
#endif
/* clang-format on */

/* ---- Life --------------------------------------------------------------------------------- */

/*
 * Does:     opens a device and reserves the cache's address range; maps no memory yet.
 * Takes:    config, or NULL for device 0 and all defaults; environment variables fill in fields
 *           that are zero.
 * Returns:  VMM_OK and the new cache in *out.
 * Owns:     the caller owns the cache and ends it with vmm_destroy().
 * Threads:  any.
 * On failure: ERR_INVALID_ARGUMENT (a field or an environment variable, named in the message),
 *           ERR_NO_DEVICE, ERR_UNSUPPORTED (the step that the device refused is named),
 *           ERR_HOST_OOM, ERR_DEVICE_OOM, ERR_ADDRESS_SPACE, ERR_DRIVER, ERR_LOST, ERR_FORKED (CUDA
 *           was started before fork()). Nothing is left behind.
 */
VMM_API VMM_NODISCARD vmm_status vmm_create(const vmm_config *config, vmm_cache **out);

/*
 * Does:     waits for the device to finish work that may touch the cache's memory, gives all memory
 *           and addresses back and ends the cache. Live blocks end with it. NULL does nothing.
 * Returns:  VMM_OK, also if the driver refused something once; else the first error of the driver that
 *           stayed, ERR_LOST if the device is lost (its memory went back all the same, if the driver took it),
 *           or ERR_CORRUPTED (VMM_GUARD_ON looks at all blocks a last time). The cache is gone in any of these
 *           cases.
 *           ERR_FORKED: nothing was done, the cache is a parent process's.
 * Threads:  no other call on this cache may be under way or follow.
 * On failure: ERR_INVALID_ARGUMENT, and nothing has happened: it is no cache (any more), or calls this
 *           program's function right now. Other calls on what is no cache any more are refused, too,
 *           except vmm_alloc(), vmm_free() and vmm_block_bytes(), which must not be made.
 */
VMM_API vmm_status vmm_destroy(vmm_cache *cache);

/* ---- Memory ------------------------------------------------------------------------------- */

/*
 * Does:     hands out a block of at least `bytes` bytes for use on `stream`, in stream order: work
 *           submitted to the stream before a block was freed is ordered before its next use.
 * Takes:    bytes; 0 gives a unique pointer that must not be dereferenced.
 * Returns:  VMM_OK and in *out a device address, a multiple of 512. Contents are undefined, or zeros if
 *           vmm_config.zero says so.
 * Owns:     the caller owns the block until vmm_free().
 * Threads:  any.
 * On failure: ERR_DEVICE_OOM after idle memory of every stream was given up for this request, the
 *           host waited for work in flight, the program was asked (vmm_config.pressure) and live
 *           bytes were moved together where vmm_config.compaction allows it (vmm_last_error() says
 *           what there was and what would help), ERR_ADDRESS_SPACE, ERR_HOST_OOM,
 *           ERR_INVALID_ARGUMENT (NULL cache or out, more bytes than the arena), ERR_DRIVER,
 *           ERR_LOST.
 */
VMM_API VMM_NODISCARD vmm_status vmm_alloc(vmm_cache *cache, size_t bytes, vmm_stream stream,
                                           void **out);

/*
 * Does:     takes a block back, in order of the stream that it was allocated on: work submitted to
 *           that stream may still be using it. Never waits for the device, but with marks, and with VMM_GUARD_ON: for
 *           that stream, or all if vmm_use() told of others, and behind other threads' calls that do. NULL does
 *           nothing.
 * Returns:  VMM_OK.
 * Owns:     the block is the cache's again.
 * Threads:  any; not only the thread that allocated.
 * On failure: ERR_UNKNOWN_POINTER (not the start of a live block of this cache: freed before,
 *           inside a block, or foreign; the pointer is looked up, never followed),
 *           ERR_INVALID_ARGUMENT (NULL cache), ERR_HOST_OOM or ERR_DRIVER (a block marked with vmm_use()
 *           needs events; the block stays live); with VMM_GUARD_ON ERR_CORRUPTED (what the guard found while
 *           it took the block back: the block is freed). A lost device is no failure.
 */
VMM_API vmm_status vmm_free(vmm_cache *cache, void *ptr);

/*
 * Does:     tells the cache that work on another stream uses the block (PyTorch: record_stream).
 *           After vmm_free() it is not handed out before that stream's work up to the free is done.
 * Returns:  VMM_OK, also when `other` is the block's own stream.
 * Threads:  any, while the block is live.
 * On failure: ERR_UNKNOWN_POINTER, ERR_HOST_OOM, ERR_INVALID_ARGUMENT (NULL cache).
 */
VMM_API vmm_status vmm_use(vmm_cache *cache, void *ptr, vmm_stream other);

/*
 * Does:     tells the cache that a stream is about to be destroyed; its work need not be done. Marks the moment on
 *           the stream, and asks the driver nothing about the handle from then on. What is free of the
 *           stream's memory goes to others once that work has ended. Its live blocks stay valid: free them
 *           as ever; work of other streams on them is told with vmm_use(), also of one that has the same
 *           handle. A later stream with that handle is another one: its work is made to wait, on the device, for
 *           what was submitted before the mark as soon as it is to have that memory.
 *           Never waits for the device; with VMM_GUARD_ON it waits for the stream, if blocks of it are live, and
 *           behind other threads' frees.
 * Takes:    stream; no call with it may be under way, nor follow until the handle is another stream's, and no
 *           work may be submitted to it that uses blocks of the cache. One that the cache has never seen: nothing
 *           is done.
 * Returns:  VMM_OK: the stream may be destroyed.
 * Threads:  any.
 * On failure: ERR_INVALID_ARGUMENT (NULL cache; the default stream, which has no end; a stream that is being
 *           captured, or was destroyed before), ERR_DRIVER, ERR_LOST, ERR_HOST_OOM (the moment could not be
 *           marked).
 *
 * A program that destroys streams without this call must see to it itself that their work is done before. With
 * cuda it must also keep them as long as the cache: what CUDA does with a handle that is none is undefined.
 * Where the driver notices (host and sim do, CUDA often), nothing fails: what is free of the stream's
 * memory stays until the host waits for the device, as vmm_wait() does, and a request before it fails.
 */
VMM_API vmm_status vmm_stream_end(vmm_cache *cache, vmm_stream stream);

/*
 * Does:     gives idle physical memory back to the driver until at most keep_bytes stay reserved,
 *           or nothing more is idle. Live blocks and their addresses stay. Idle memory whose last
 *           work is still running stays usable for its stream, and goes back by itself once that
 *           has ended (at a later call that needs the driver, or vmm_tick()); it is not counted in
 *           *released. If more than keep_bytes stay reserved, live bytes are moved together where
 *           vmm_config.compaction allows it. Never waits for work in flight, except to compact: with
 *           VMM_COMPACTION_AUTO only if the streams that the cache knows are idle, so that only others'
 *           work can make it wait; and with VMM_GUARD_ON, which has it wait behind other threads' frees.
 * Takes:    keep_bytes; released, may be NULL.
 * Returns:  VMM_OK and in *released the bytes given back by this call.
 * Threads:  any.
 * On failure: ERR_DRIVER, ERR_LOST, ERR_HOST_OOM, ERR_INVALID_ARGUMENT (NULL cache). Memory that
 *           could go back has gone back; what the driver refused to take is tried again later. With
 *           VMM_GUARD_ON ERR_CORRUPTED (found in freed blocks; all else was done).
 */
VMM_API vmm_status vmm_trim(vmm_cache *cache, size_t keep_bytes, size_t *released);

/*
 * Does:     makes the host wait until the work has ended that was submitted so far to the streams that the cache
 *           knows, but for those that are being captured. A vmm_trim() after it finds everything that is idle
 *           finished, and so what released private pools held, unless a capture is under way.
 * Returns:  VMM_OK.
 * Threads:  any; others go on meanwhile.
 * On failure: ERR_DRIVER, ERR_LOST, ERR_HOST_OOM, ERR_INVALID_ARGUMENT (NULL cache).
 */
VMM_API vmm_status vmm_wait(vmm_cache *cache);

/*
 * Does:     what has become due: gives back memory that was idle for vmm_config.decay_ms, and memory
 *           that an earlier vmm_trim() found in use by work that has ended since. For timers and
 *           event loops of programs that pause; never waits for the device, nor for another thread that
 *           allocates or trims (it then leaves what is due to the next occasion).
 * Returns:  VMM_OK.
 * Threads:  any.
 * On failure: as vmm_trim().
 */
VMM_API vmm_status vmm_tick(vmm_cache *cache);

/*
 * Does:     keeps a block's bytes in the physical memory where they are, for as long as the block is
 *           live: for memory that something else than work of this device knows by its physical
 *           place (exported, registered with a network card, part of a captured graph that runs
 *           while others allocate). vmm_unpin() ends that, and so does vmm_free(); pinning twice is
 *           pinning once.
 * Returns:  VMM_OK.
 * Threads:  any, while the block is live.
 * On failure: ERR_UNKNOWN_POINTER, ERR_INVALID_ARGUMENT (NULL cache).
 */
VMM_API vmm_status vmm_pin(vmm_cache *cache, void *ptr);
VMM_API vmm_status vmm_unpin(vmm_cache *cache, void *ptr);

/*
 * Does:     changes the most physical memory that the cache may hold (vmm_config.limit_bytes). What it
 *           holds already is not given back by this call; trim for that.
 * Takes:    limit_bytes; 0: no limit.
 * Returns:  VMM_OK.
 * Threads:  any.
 * On failure: ERR_INVALID_ARGUMENT (NULL cache).
 */
VMM_API vmm_status vmm_limit_set(vmm_cache *cache, uint64_t limit_bytes);

/* ---- Hunting bugs ------------------------------------------------------------------------- */

/*
 * Does:     with VMM_GUARD_ON, looks whether anything was written beyond live blocks, or into freed ones that nobody
 *           has got yet. Waits for the work of all streams, but for those that are being captured.
 * Returns:  VMM_OK; also without a guard, when there is nothing to look at.
 * Threads:  any; frees of others wait meanwhile.
 * On failure: ERR_CORRUPTED (the line says where, and whose memory it is; the rest was looked at too),
 *           ERR_DRIVER, ERR_LOST, ERR_HOST_OOM, ERR_INVALID_ARGUMENT (NULL cache).
 */
VMM_API vmm_status vmm_guard_check(vmm_cache *cache);

/*
 * Does:     writes the last misuse that vmm_config.guard found: its line, and who allocated and freed the block,
 *           with stacks.
 * Returns:  VMM_OK; also when there was none, which it then says.
 * Threads:  any.
 * On failure: ERR_INVALID_ARGUMENT (NULL, or the file could not be written).
 */
VMM_API vmm_status vmm_misuse_write(vmm_cache *cache, FILE *out);

/* ---- Private pools: memory of captured graphs --------------------------------------------- */

/*
 * A captured graph uses the same addresses each time that it is launched, on any stream, without the
 * allocator being asked. So what is allocated while it is captured comes from a private pool: until that is
 * released nothing of it, live or free, is handed to anybody else, moved or given back.
 *
 *   vmm_pool_begin(cache, id, filter, context);
 *   ... cuStreamBeginCapture, work, vmm_alloc, vmm_free, cuStreamEndCapture ...
 *   vmm_pool_end(cache, id);
 *   ... cuGraphLaunch, as often as you like ...
 *   vmm_pool_release(cache, id);      once the graph is gone
 *
 * No event is recorded on a stream that is being captured, nor waited for; memory that only such an
 * event would tell to be free stays where it is until the capture has ended.
 */

/* Names a private pool: two numbers of the program's own (PyTorch's MempoolId_t), not both 0. */
typedef struct vmm_pool_id {
    uint64_t first;
    uint64_t second;
} vmm_pool_id;

/* Returns non-zero if requests of a stream belong to the pool. Called with a lock held, by any thread that
 * allocates: must not call the cache. */
typedef int (*vmm_pool_filter)(void *context, vmm_stream stream);

/*
 * Does:     from now on, until vmm_pool_end(), requests whose stream passes the filter come from the private
 *           pool of that id, which is made by its first vmm_pool_begin(). Each vmm_pool_begin() is a use of
 *           the pool, which one vmm_pool_release() ends. If several pools are begun, the one that was begun
 *           last is asked first. Marks the moment on each stream that is not being captured, so that
 *           memory whose work has ended can be told from other while the capture is under way: best
 *           called before the capture begins.
 * Takes:    filter; NULL: every stream.
 * Returns:  VMM_OK.
 * Threads:  any.
 * On failure: ERR_INVALID_ARGUMENT (NULL cache, an id of zeros, an id that is begun and not ended),
 *           ERR_HOST_OOM, ERR_LOST.
 */
VMM_API vmm_status vmm_pool_begin(vmm_cache *cache, vmm_pool_id id, vmm_pool_filter filter,
                                  void *context);

/* Ends what vmm_pool_begin() began. The filter is not called any more when this returns. Waits for the device if
 * the capture put off what vmm_pool_release() does; should that wait fail, a later call tries again.
 * ERR_INVALID_ARGUMENT: NULL cache, or nothing of that id is begun. Any thread. */
VMM_API vmm_status vmm_pool_end(vmm_cache *cache, vmm_pool_id id);

/*
 * Does:     ends one use of a private pool. With the last one its free memory becomes like any other, once
 *           the device has finished all work (graphs may have been launched on any stream): the call
 *           waits for that, unless a capture is under way, which forbids it; then a vmm_pool_end() or
 *           vmm_wait() after that capture does, or a request that would fail. Blocks that are still live
 *           stay until they are freed.
 * Returns:  VMM_OK.
 * Threads:  any; what needs more than is cached waits meanwhile.
 * On failure: ERR_INVALID_ARGUMENT (NULL cache, or no such pool in use), ERR_DRIVER, ERR_LOST, ERR_HOST_OOM
 *           (the wait failed: the use has ended, and one of those calls waits).
 */
VMM_API vmm_status vmm_pool_release(vmm_cache *cache, vmm_pool_id id);

/* ---- Reports ------------------------------------------------------------------------------ */

/* One figure over time: now, its highest value, and all that was ever added and taken away. */
typedef struct vmm_figure {
    uint64_t current;
    uint64_t peak;
    uint64_t allocated;
    uint64_t freed;
} vmm_figure;

/* X(name, unit, label): figures with current, peak, allocated, freed. */
#define VMM_FIGURE_MAP(X)                                                                          \
    X(requested_bytes, BYTES, "Requested (live)") /* asked for and not freed */                    \
    X(allocated_bytes, BYTES, "Allocated")        /* the same, rounded up to blocks */             \
    X(active_bytes, BYTES, "Active")              /* allocated, or freed and used elsewhere */     \
    X(reserved_bytes, BYTES, "Reserved")          /* physical memory held from the driver */       \
    X(allocations, COUNT, "Allocations")          /* live blocks */                                \
    X(chunks, COUNT, "Chunks")                    /* physical handles held */

/* X(name, unit, label): plain numbers. Calls are counted since vmm_create(). */
#define VMM_NUMBER_MAP(X)                                                                          \
    X(idle_bytes, BYTES, "Idle")      /* reserved, in chunks under no active block or slab */      \
    X(limbo_bytes, BYTES, "In limbo") /* waits for an event, then goes back */                     \
    X(largest_free_bytes, BYTES, "Largest hole")    /* the largest free mapped block */            \
    X(pinned_bytes, BYTES, "Pinned by live blocks") /* free, in chunks that are not idle */        \
    X(unmovable_bytes, BYTES, "Must not move")      /* of blocks under vmm_pin() */                \
    X(compactions, COUNT, "Compactions")            /* that moved live bytes */                    \
    X(pressure_calls, COUNT, "Pressure calls")      /* times that the program was asked */         \
    X(limit_bytes, BYTES, "Limit (0: none)")        /* most to hold */                             \
    X(streams, COUNT, "Streams")                    /* pools in use */                             \
    X(retries, COUNT, "Retries")           /* allocations that first had to free memory */         \
    X(ooms, COUNT, "Out of memory")        /* allocations that failed for want of memory */        \
    X(stalls, COUNT, "Stalls")             /* waits of the host for the device */                  \
    X(stream_waits, COUNT, "Stream waits") /* waits put into one stream for another */             \
    X(reserve_calls, COUNT, "reserve")                                                             \
    X(address_free_calls, COUNT, "address free")                                                   \
    X(create_calls, COUNT, "create")                                                               \
    X(map_calls, COUNT, "map")                                                                     \
    X(access_calls, COUNT, "set access")                                                           \
    X(unmap_calls, COUNT, "unmap")                                                                 \
    X(release_calls, COUNT, "release")                                                             \
    X(event_calls, COUNT, "events")                                                                \
    X(driver_ns, NANOSECONDS, "Driver time")                                                       \
    X(kept_bytes, BYTES, "Kept for graphs") /* free, in private pools that are in use */

/*
 * Set struct_size with VMM_STATS_INIT. From version 1.0 on both lists are closed: what later versions
 * count comes at the end, and callers get as much as they know.
 */
typedef struct vmm_stats {
    size_t struct_size;
#define VMM_STATS_FIGURE(name, unit, label) vmm_figure name;
    VMM_FIGURE_MAP(VMM_STATS_FIGURE)
#undef VMM_STATS_FIGURE
#define VMM_STATS_NUMBER(name, unit, label) uint64_t name;
    VMM_NUMBER_MAP(VMM_STATS_NUMBER)
#undef VMM_STATS_NUMBER
} vmm_stats;

/* clang-format off */
#define VMM_STATS_NO_FIGURE(name, unit, label) , { 0, 0, 0, 0 }
#define VMM_STATS_NO_NUMBER(name, unit, label) , 0
#define VMM_STATS_INIT { sizeof(vmm_stats)                                                         \
    VMM_FIGURE_MAP(VMM_STATS_NO_FIGURE) VMM_NUMBER_MAP(VMM_STATS_NO_NUMBER) }
/* clang-format on */

/*
 * Does:     fills *out; out->struct_size tells how much of it the caller knows.
 * Returns:  VMM_OK. Figures agree with each other when no other thread is allocating. Peaks are exact as
 *           long as one thread makes all calls. Others may come out too high: where threads wait for each
 *           other on one stream, by what each keeps of it (64 MiB at most, or one block); where they
 *           work on several streams at once, by 4 MiB and 1/256 of the peak for each stream, or
 *           up to 1/8 while megabytes are taken and given back every few microseconds.
 * Threads:  any.
 * On failure: ERR_INVALID_ARGUMENT (NULL, or a struct_size too small for any figure, or too large).
 */
VMM_API vmm_status vmm_stats_get(vmm_cache *cache, vmm_stats *out);

/*
 * Does:     asks the driver how much memory the device has, and how much of it nobody has taken: neither
 *           this program nor another one.
 * Returns:  VMM_OK and bytes in *free_bytes and *total_bytes.
 * Threads:  any.
 * On failure: ERR_INVALID_ARGUMENT (NULL), ERR_DRIVER, ERR_LOST, ERR_HOST_OOM.
 */
VMM_API vmm_status vmm_device_memory(vmm_cache *cache, uint64_t *free_bytes, uint64_t *total_bytes);

/* Sets the peak of every figure to its current value. ERR_INVALID_ARGUMENT for NULL. Any thread. */
VMM_API vmm_status vmm_stats_reset_peak(vmm_cache *cache);

/*
 * Does:     writes the table of all statistics that a person reads.
 * Returns:  VMM_OK. The file stays the caller's.
 * Threads:  any.
 * On failure: ERR_INVALID_ARGUMENT (NULL, or the file could not be written).
 */
VMM_API vmm_status vmm_summary_write(vmm_cache *cache, FILE *out);

/* Writes a line to the cache's log, for what is built on it; nothing where nobody asked for a log.
 * ERR_INVALID_ARGUMENT: NULL. Any thread. */
VMM_API vmm_status vmm_log_write(vmm_cache *cache, const char *line);

typedef enum vmm_item_kind {
    VMM_ITEM_CHUNK = 0, /* one mapped physical handle */
    VMM_ITEM_BLOCK = 1, /* a run of arena bytes, handed out or free */
    VMM_ITEM_TWIN = 2   /* a second address of a chunk: blocks at both live in one memory */
} vmm_item_kind;

typedef enum vmm_item_state {
    VMM_ITEM_FREE = 0,    /* block: free; chunk: idle */
    VMM_ITEM_LIVE = 1,    /* block: handed out; chunk: under an active block, or a slab */
    VMM_ITEM_WAITING = 2, /* block: freed, used by another stream; chunk: in limbo */
    VMM_ITEM_LENT = 3     /* block: free, but the memory serves a block at a twin's address */
} vmm_item_state;

typedef struct vmm_item {
    size_t struct_size;
    vmm_item_kind kind;
    vmm_item_state state;
    uint64_t address;
    uint64_t bytes;
    uint64_t requested_bytes; /* blocks handed out: as asked for; else 0 */
    vmm_stream stream;        /* whose pool it is in */
    vmm_pool_id pool;         /* of a private pool; else zeros */
    int is_small; /* among the blocks of up to 1 MiB, which lie apart from larger ones */
} vmm_item;

/* clang-format off */
#ifdef __cplusplus
#define VMM_ITEM_INIT { sizeof(vmm_item), VMM_ITEM_CHUNK, VMM_ITEM_FREE, 0, 0, 0, NULL, { 0, 0 }, 0 }
#else
#define VMM_ITEM_INIT { .struct_size = sizeof(vmm_item) }
#endif
/* clang-format on */

/* Returns 0 to go on; any other value ends the walk. Called with locks held: must not call the
 * cache. */
typedef int (*vmm_visitor)(void *context, const vmm_item *item);

/*
 * Does:     visits every chunk and every block in rising order of address: a chunk before the
 *           blocks that start in it. Small blocks that share a slab are visited one by one.
 * Returns:  VMM_OK, also when the visitor ended the walk.
 * Threads:  any; other calls wait meanwhile.
 * On failure: ERR_INVALID_ARGUMENT (NULL cache or visitor).
 */
VMM_API vmm_status vmm_walk(vmm_cache *cache, vmm_visitor visit, void *context);

/*
 * Does:     finds the live block that an address lies in.
 * Takes:    address; item, whose struct_size (VMM_ITEM_INIT) says how much of it the caller knows.
 * Returns:  VMM_OK and the block in *item.
 * Threads:  any.
 * On failure: ERR_UNKNOWN_POINTER (no live block is there), ERR_INVALID_ARGUMENT (NULL, or a struct_size
 *           too small or too large).
 */
VMM_API vmm_status vmm_find(vmm_cache *cache, const void *address, vmm_item *item);

/* Returns the bytes that a block for a request of so many bytes has; 0 if no block can have as many. */
VMM_API uint64_t vmm_block_bytes(vmm_cache *cache, uint64_t bytes);

/* With VMM_GUARD_ON all freed blocks are shown as free, so that the last two are not told. */
typedef enum vmm_change_kind {
    VMM_CHANGE_MAP = 0,   /* memory is there from now on, for blocks of a stream */
    VMM_CHANGE_UNMAP = 1, /* it is there no more */
    VMM_CHANGE_WAIT = 2,  /* a block was freed that other streams still use */
    VMM_CHANGE_FREE = 3   /* such a block has come free */
} vmm_change_kind;

/* A change that the caller of vmm_alloc() and vmm_free() does not see. */
typedef struct vmm_change {
    size_t struct_size; /* how much of it the library fills */
    vmm_change_kind kind;
    uint64_t address;
    uint64_t bytes;
    vmm_stream stream;
    vmm_pool_id pool; /* as in vmm_item, and so is the next */
    int is_small;
} vmm_change;

/* Receives a change, on the thread whose call brings it about, with locks held: must not call the cache. */
typedef void (*vmm_watch_fn)(void *context, const vmm_change *change);

/*
 * Does:     tells every change to a function from now on; NULL ends that. A new function takes the place
 *           of the one before.
 * Returns:  VMM_OK. When this returns, the function before is not called any more.
 * Threads:  any.
 * On failure: ERR_INVALID_ARGUMENT (NULL cache).
 */
VMM_API vmm_status vmm_watch(vmm_cache *cache, vmm_watch_fn watch, void *context);

#ifdef __cplusplus
}
#endif

#endif
