/*
 * Shared by the files of libvmmcache_preload only: the library that LD_PRELOAD puts between a program and libcuda.
 *
 *   symbols.c  dlsym() and cuGetProcAddress(): how programs, and the CUDA runtime in them, find libcuda's functions
 *   real.c     libcuda's own functions
 *   hooks.h    the list of the functions that are replaced
 *   memory.c   allocations and frees
 *   streams.c  streams that end, captures
 *   query.c    questions about memory: how much is free, whose an address is, handles for other processes
 *   pools.c    memory pools of the program
 *   devices.c  a cache for each device, and whose an address is
 *   record.c   VMM_PRELOAD=record
 *
 * It works at the layer of the driver, because every allocator above it, the CUDA runtime included, ends there.
 *
 * Invariants:
 *  1. a function of libcuda that this library calls is libcuda's own, never the replacement: they are taken from the
 *     table of real.c, and while `vmm__preload_inside` is not 0 every replacement only passes its call on;
 *  2. a call that the cache cannot serve goes to libcuda, unless memory ran out: then the program gets that error;
 *  3. memory that cuMemAlloc() returns is not in use by any work, and memory that cuMemFree() frees is reused only
 *     after all work of the device.
 * Owns: nothing. May be called by: preload. Locks: one for each device, one for all caches, one for captures and
 * deferred frees, one for pools. A device's lock is held while its cache is created or destroyed, that of all caches
 * while one is destroyed or all are searched; under the others nothing is called.
 */
#ifndef VMM_PRELOAD_H
#define VMM_PRELOAD_H

#include "base/mutex.h"
#include "preload/hooks.h"
#include "vmmcache/vmmcache.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

/* ---- real.c ---------------------------------------------------------------------------------- */

/* libcuda's functions; a function that the driver does not have is NULL. */
struct preload_real {
#define PRELOAD_MEMBER(name, like, asked, version, flags) __typeof__(like) *name;
    PRELOAD_HOOK_MAP(PRELOAD_MEMBER)
    PRELOAD_USED_MAP(PRELOAD_MEMBER)
#undef PRELOAD_MEMBER
};

/* Loads libcuda at the first call. NULL: there is none. */
const struct preload_real *vmm__preload_real(void);

/* Whether a function of that name is replaced. It does not take libcuda to tell. */
bool vmm__preload_has_name(const char *exported);

/* The library's own function that replaces a function which dlsym() or cuGetProcAddress() found by this name; NULL:
 * none does. `found` is not NULL. */
void *vmm__preload_replacement(const char *name, const void *found);

typedef void *(*preload_dlsym_fn)(void *handle, const char *name);

/* The C library's dlsym(). */
preload_dlsym_fn vmm__preload_dlsym(void);

/* More than 0 while the thread is inside this library. */
extern _Thread_local unsigned vmm__preload_inside;

enum preload_mode {
    PRELOAD_SERVE,  /* the cache serves allocations */
    PRELOAD_RECORD, /* libcuda serves them, and they are recorded */
    PRELOAD_OFF     /* libcuda serves them */
};

/* As VMM_PRELOAD says; off in a child of a process with caches or recordings, and if libcuda is too old for caches. */
enum preload_mode vmm__preload_mode(void);

/* Before the first cache or recording: a child of fork() leaves both alone. It cannot use CUDA, other threads of its
 * parent may have held the locks, and a recording's file is its parent's. ERR_HOST_OOM. */
vmm_status vmm__preload_leave_children(void);

/* Whether a replacement should do more than pass its call on. */
static inline bool vmm__preload_serves(void)
{
    return vmm__preload_inside == 0 && vmm__preload_mode() != PRELOAD_OFF;
}

/* Defines a replacement, whose result `serve` computes, inside this library and with libcuda's functions in `real`. */
#define PRELOAD_CALL(name, parameters, arguments, serve)                                           \
    __attribute__((visibility("default"))) CUresult name parameters                                \
    {                                                                                              \
        const struct preload_real *real = vmm__preload_real();                                     \
        if (real == NULL)                                                                          \
            return CUDA_ERROR_NOT_INITIALIZED;                                                     \
        if (real->name == NULL)                                                                    \
            return CUDA_ERROR_NOT_SUPPORTED;                                                       \
        if (!vmm__preload_serves())                                                                \
            return real->name arguments;                                                           \
        vmm__preload_inside++;                                                                     \
        CUresult result = serve;                                                                   \
        vmm__preload_inside--;                                                                     \
        return result;                                                                             \
    }

/* The handle by which the thread's own default stream is named, and the stream that the second form of a call names. */
#define PRELOAD_PER_THREAD          ((CUstream)CU_STREAM_PER_THREAD)
#define PRELOAD_SECOND_FORM(stream) ((stream) == NULL ? PRELOAD_PER_THREAD : (stream))

/* Writes a line to stderr: why a program that was started under this library runs without it. */
void vmm__preload_complain(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* ---- devices.c ------------------------------------------------------------------------------- */

enum { PRELOAD_DEVICES = 64 };

/* A device with a cache. Blocks of cuMemAlloc() belong to a stream of their own, on which no work runs, because memory
 * that a stream freed but still uses must not serve them. */
struct preload_device {
    struct mutex lock;
    _Atomic(CUcontext) context; /* the primary one; NULL: there is no cache */
    vmm_cache *cache;
    CUstream idle_stream;  /* of the blocks of cuMemAlloc() */
    CUstream order_stream; /* waits for work on streams that the cache cannot know */
    bool is_refused;       /* no cache can be made */
};

/* The device whose primary context is current, with a cache that is made now if there is none; NULL: libcuda serves the
 * call, as always in PRELOAD_RECORD. */
struct preload_device *vmm__preload_device(void);

/* The same, but makes no cache. */
struct preload_device *vmm__preload_device_if_made(void);

/* Between these two no cache ends: another thread may reset a device that this one does not use. */
void vmm__preload_caches_hold(void);
void vmm__preload_caches_release(void);

/* The device of that number; NULL: it has no cache. Hold the caches, unless the program uses the device. */
struct preload_device *vmm__preload_device_at(int ordinal);
int vmm__preload_ordinal(const struct preload_device *device);

/* A live block of a cache. */
struct preload_block {
    CUdeviceptr address;
    size_t bytes; /* as the program requested them */
    struct preload_device *device;
};

/* Finds the block that contains an address. False: it is no memory of a cache, or the program has freed it. */
bool vmm__preload_block_find(CUdeviceptr address, struct preload_block *out);

/* The same for a block that starts at an address. */
bool vmm__preload_block_at(CUdeviceptr address, struct preload_block *out);

/* Ends the cache and all of its blocks: the program resets the device. */
void vmm__preload_device_end(int ordinal);

/* Gives back what the cache of a device, or of the current one, holds and no block uses, because libcuda ran out of
 * memory. False: nothing. */
bool vmm__preload_give_back(int ordinal);
bool vmm__preload_give_back_current(void);

/* Makes a context current on the thread, and relaxes what captures forbid, until restore. */
struct preload_scope {
    bool is_pushed;
    CUstreamCaptureMode mode;
};
struct preload_scope vmm__preload_scope(const struct preload_device *device);
void vmm__preload_restore(const struct preload_scope *scope);

/* ---- streams.c ------------------------------------------------------------------------------- */

/* If captures are under way, keeps a block that the program frees until none is, and returns true with the result of
 * the call: to wait for the device would invalidate them. */
bool vmm__preload_defer(const struct preload_block *block, CUresult *result);

/* Whether a block is kept. */
bool vmm__preload_is_deferred(CUdeviceptr address);

/* Frees the blocks that were kept, if no capture is under way. */
void vmm__preload_deferred_free(void);

/* Forgets those of a device. */
void vmm__preload_deferred_drop(const struct preload_device *device);

/* ---- pools.c --------------------------------------------------------------------------------- */

/* The device whose cache serves allocations from a pool, of the current device's current pool if it is NULL. Returns
 * NULL: libcuda serves them. */
struct preload_device *vmm__preload_pool_device(CUmemoryPool pool);

/* ---- record.c -------------------------------------------------------------------------------- */

void vmm__preload_record_alloc(CUdeviceptr address, size_t bytes, CUstream stream,
                               const void *caller);
void vmm__preload_record_free(CUdeviceptr address);

#endif
