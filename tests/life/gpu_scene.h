/*
 * A cache with work under way on a GPU, or on the fake libcuda (fake/fake_cuda.h), and checks for it after its device
 * is lost. Each scene runs in a process of its own; a failed check ends that process (child.h).
 *
 * Owns: the program's own reference to the device's primary context, and streams and kernels in it.
 * Define _GNU_SOURCE before the first header.
 */
#ifndef VMM_LIFE_GPU_SCENE_H
#define VMM_LIFE_GPU_SCENE_H

#include "gpu/libcuda.h"
#include "life/child.h"
#include "life/fake/fake_cuda.h"
#include "life/lost_support.h"

#include "api/create_on.h"
#include "base/hostmem.h"
#include "base/time.h"
#include "cache/cache.h"
#include "support/pool_calls.h"

#include <pthread.h>

enum { BLOCKS = 24, BLOCK_STREAMS = 3, THREADS = 2, STREAMS = BLOCK_STREAMS + THREADS };
enum { SPIN_MS = 100, ROUNDS_LEAST = 1000, WRITTEN_MOST = 4096, ENDS_IN_S = 10 };
/* HELD_MIB, which the cache holds at least, is clearly more than CONTEXT_MIB, by which a context's size may vary. */
enum { HELD_MIB = 256, CONTEXT_MIB = 64 };

struct scene_thread {
    struct scene *scene;
    pthread_t thread;
    vmm_stream stream;
    _Atomic uint64_t rounds;
    vmm_status status; /* of its last call */
};

struct scene {
    const struct fake_cuda *fake; /* NULL: a GPU */
    CUdevice device;
    CUcontext context;
    CUmodule module;
    CUfunction write;
    CUstream streams[STREAMS];
    uint64_t free_bytes; /* of the device, before the cache was created */
    vmm_cache *cache;
    void *blocks[BLOCKS];
    void *kept[2]; /* of a graph pool */
    void *held;    /* HELD_MIB */
    struct scene_thread threads[THREADS];
    char line[512];           /* the error of the call that detected the loss */
    _Atomic bool is_detected; /* the loss is detected: calls of the threads fail from now on */
};

#define CUDA_REQUIRES(call) CHILD_REQUIRES((call) == CUDA_SUCCESS)

/* ---- The device ---------------------------------------------------------------------------------- */

static inline CUfunction kernel_of(const struct scene *scene, const char *name)
{
    CUfunction kernel;
    CUDA_REQUIRES(cuda.cuModuleGetFunction(&kernel, scene->module, name));
    return kernel;
}

/* Retains the primary context and creates streams and kernels in it; again after their context ended. */
static inline void device_retain(struct scene *scene)
{
    CUDA_REQUIRES(cuda.cuDevicePrimaryCtxRetain(&scene->context, scene->device));
    CUDA_REQUIRES(cuda.cuCtxPushCurrent(scene->context));
    CUDA_REQUIRES(cuda.cuModuleLoadData(&scene->module, libcuda_kernels));
    scene->write = kernel_of(scene, "test_write");
    for (unsigned i = 0; i < STREAMS; i++)
        CUDA_REQUIRES(cuda.cuStreamCreate(&scene->streams[i], CU_STREAM_NON_BLOCKING));
}

static inline uint64_t device_free(void)
{
    size_t free_bytes = 0;
    size_t total_bytes = 0;
    CUDA_REQUIRES(cuda.cuMemGetInfo(&free_bytes, &total_bytes));
    return free_bytes;
}

static inline void device_open(struct scene *scene)
{
    scene->device = libcuda_start("test_life_gpu_lost");
    scene->fake = dlsym(cuda.library, "fake_cuda");
    device_retain(scene);
    scene->free_bytes = device_free();
}

/* Launches work of so many milliseconds. */
static inline void stream_spin(const struct scene *scene, CUstream stream, uint64_t ms)
{
    uint64_t ns = ms * 1000000;
    void *parameters[] = { &ns };
    CUDA_REQUIRES(libcuda_launch(kernel_of(scene, "test_spin"), stream, parameters));
}

/* ---- The cache ----------------------------------------------------------------------------------- */

static inline vmm_status cache_try_create(const struct scene *scene, vmm_cache **out)
{
    vmm_config config =
        CONFIG(.driver = VMM_DRIVER_CUDA, .device = scene->device, .arena_bytes = 4 * GIB);
    return vmm_create(&config, out);
}

static inline void block_write(const struct scene *scene, void *block, size_t bytes, uint32_t value,
                               CUstream stream)
{
    size_t written = bytes < WRITTEN_MOST ? bytes : WRITTEN_MOST;
    CUDA_REQUIRES(libcuda_write(scene->write, block, written, value, stream));
}

static inline void block_verify(void *block, size_t bytes, uint32_t value)
{
    unsigned char read[WRITTEN_MOST];
    size_t written = bytes < WRITTEN_MOST ? bytes : WRITTEN_MOST;
    CUDA_REQUIRES(cuda.cuMemcpyDtoH(read, (CUdeviceptr)(uintptr_t)block, written));
    for (size_t i = 0; i < written; i++)
        CHILD_REQUIRES(read[i] == (unsigned char)value);
}

static inline size_t block_bytes(unsigned number)
{
    return number % 2 == 0 ? 600 * ((size_t)number + 1) : 2 * MIB;
}

/* Allocates blocks on three streams, fills them by kernels, reads them back and frees them; all must succeed. */
static inline void cache_check_works(const struct scene *scene, vmm_cache *cache)
{
    void *blocks[BLOCKS];
    for (unsigned i = 0; i < BLOCKS; i++) {
        CUstream stream = scene->streams[i % BLOCK_STREAMS];
        CHILD_REQUIRES(vmm_alloc(cache, block_bytes(i), stream, &blocks[i]) == VMM_OK);
        block_write(scene, blocks[i], block_bytes(i), i + 1, stream);
    }
    CUDA_REQUIRES(cuda.cuCtxSynchronize());
    for (unsigned i = 0; i < BLOCKS; i++) {
        block_verify(blocks[i], block_bytes(i), i + 1);
        CHILD_REQUIRES(vmm_free(cache, blocks[i]) == VMM_OK);
    }
    CHILD_REQUIRES(vmm_wait(cache) == VMM_OK && vmm_trim(cache, 0, NULL) == VMM_OK);
}

static inline int pool_filter(void *context, vmm_stream stream)
{
    return stream == *(CUstream *)context;
}

/* Allocates two blocks of a graph pool, and frees one of them. */
static inline void pool_fill(struct scene *scene)
{
    vmm_pool_id id = { 1, 0 };
    CUstream stream = scene->streams[1];
    CHILD_REQUIRES(graph_pool_begin(scene->cache, id, pool_filter, &scene->streams[1]) == VMM_OK);
    for (unsigned i = 0; i < 2; i++)
        CHILD_REQUIRES(vmm_alloc(scene->cache, MIB, stream, &scene->kept[i]) == VMM_OK);
    CHILD_REQUIRES(graph_pool_end(scene->cache, id) == VMM_OK);
    CHILD_REQUIRES(vmm_free(scene->cache, scene->kept[1]) == VMM_OK);
    scene->kept[1] = NULL;
}

/* Fills the cache with live blocks, one of them large, blocks that other streams use, freed blocks that wait for those
 * streams, and idle memory, all with work under way. */
static inline void cache_fill(struct scene *scene)
{
    void *large;
    vmm_cache *cache = scene->cache;
    pool_fill(scene);
    CHILD_REQUIRES(vmm_alloc(cache, HELD_MIB * MIB, scene->streams[1], &scene->held) == VMM_OK);
    CHILD_REQUIRES(vmm_alloc(cache, 8 * MIB, scene->streams[0], &large) == VMM_OK);
    for (unsigned i = 0; i < BLOCKS; i++) {
        CUstream stream = scene->streams[i % BLOCK_STREAMS];
        CHILD_REQUIRES(vmm_alloc(cache, block_bytes(i), stream, &scene->blocks[i]) == VMM_OK);
        block_write(scene, scene->blocks[i], block_bytes(i), i, stream);
        stream = scene->streams[(i + 1) % BLOCK_STREAMS];
        CHILD_REQUIRES(vmm_record_stream(cache, scene->blocks[i], stream) == VMM_OK);
    }
    for (unsigned i = 0; i < BLOCK_STREAMS; i++)
        stream_spin(scene, scene->streams[i], SPIN_MS);
    for (unsigned i = 0; i < BLOCKS; i += 4) {
        CHILD_REQUIRES(vmm_free(cache, scene->blocks[i]) == VMM_OK);
        scene->blocks[i] = NULL;
    }
    CHILD_REQUIRES(vmm_free(cache, large) == VMM_OK);
    CHILD_REQUIRES(vmm_trim(cache, 0, NULL) == VMM_OK);
}

/* ---- Threads on the fast path -------------------------------------------------------------------- */

/* Allocates and frees until a call fails, or until many rounds after the loss was detected. */
static inline void *blocks_cycle(void *context)
{
    unsigned late_rounds = 0;
    struct scene_thread *thread = context;
    do {
        void *block;
        thread->status = vmm_alloc(thread->scene->cache, 700, thread->stream, &block);
        if (thread->status == VMM_OK)
            CHILD_REQUIRES(vmm_free(thread->scene->cache, block) == VMM_OK);
        atomic_fetch_add(&thread->rounds, 1);
        late_rounds += atomic_load(&thread->scene->is_detected);
    } while (thread->status == VMM_OK && late_rounds < ROUNDS_LEAST);
    return NULL;
}

static inline void threads_start(struct scene *scene)
{
    for (unsigned i = 0; i < THREADS; i++) {
        struct scene_thread *thread = &scene->threads[i];
        thread->scene = scene;
        thread->stream = scene->streams[BLOCK_STREAMS + i];
        CHILD_REQUIRES(pthread_create(&thread->thread, NULL, blocks_cycle, thread) == 0);
    }
    for (unsigned i = 0; i < THREADS; i++) {
        while (atomic_load(&scene->threads[i].rounds) < ROUNDS_LEAST)
            (void)usleep(100);
    }
}

static inline void threads_join_refused(struct scene *scene)
{
    atomic_store(&scene->is_detected, true);
    for (unsigned i = 0; i < THREADS; i++) {
        CHILD_REQUIRES(pthread_join(scene->threads[i].thread, NULL) == 0);
        CHILD_REQUIRES(scene->threads[i].status == VMM_ERR_LOST);
    }
}

static inline void scene_start(struct scene *scene)
{
    device_open(scene);
    CHILD_REQUIRES(cache_try_create(scene, &scene->cache) == VMM_OK);
    cache_fill(scene);
    threads_start(scene);
}

/* ---- After the loss ------------------------------------------------------------------------------ */

static inline uint64_t driver_calls(const vmm_cache *cache)
{
    uint64_t calls = 0;
    for (int call = 0; call < DRIVER_CALL_COUNT; call++)
        calls += vmm__driver_calls(cache->driver, (enum driver_call)call);
    return calls;
}

static inline void reports_check(vmm_cache *cache, void *block)
{
    vmm_stats stats = VMM_STATS_INIT;
    vmm_item item = VMM_ITEM_INIT;
    CHILD_REQUIRES(vmm_stats_get(cache, &stats) == VMM_OK);
    CHILD_REQUIRES(stats.reserved_bytes.current > 0);
    CHILD_REQUIRES(vmm_find(cache, block, &item) == VMM_OK);
    CHILD_REQUIRES(vmm_pin(cache, block) == VMM_OK && vmm_unpin(cache, block) == VMM_OK);
    CHILD_REQUIRES(vmm_record_stream(cache, block, NULL) == VMM_OK);
    CHILD_REQUIRES(vmm_limit_set(cache, GIB) == VMM_OK && vmm_limit_set(cache, 0) == VMM_OK);
    CHILD_REQUIRES(vmm__cache_check(cache) == VMM_OK);
}

static inline void blocks_free_all(struct scene *scene)
{
    vmm_cache *cache = scene->cache;
    for (unsigned i = 0; i < BLOCKS; i++) {
        CHILD_REQUIRES(vmm_free(cache, scene->blocks[i]) == VMM_OK);
        if (scene->blocks[i] != NULL)
            CHILD_REQUIRES(vmm_free(cache, scene->blocks[i]) == VMM_ERR_UNKNOWN_POINTER);
    }
    CHILD_REQUIRES(vmm_free(cache, scene->kept[0]) == VMM_OK);
    CHILD_REQUIRES(vmm_free(cache, scene->held) == VMM_OK);
    vmm_status status = graph_pool_release(cache, (vmm_pool_id){ 1, 0 });
    CHILD_REQUIRES(status == VMM_OK || status == VMM_ERR_LOST);
}

/* Requires that calls that need the device fail, that all other calls work, and that no call reaches the driver. */
static inline void lost_cache_check(struct scene *scene)
{
    uint64_t calls = driver_calls(scene->cache);
    uint64_t fake_calls = scene->fake != NULL ? scene->fake->calls : 0;
    const char *fault_text = refused_calls_check(scene->cache, scene->line);
    if (fault_text != NULL)
        (void)fprintf(stderr, "%s\n", fault_text);
    CHILD_REQUIRES(fault_text == NULL);
    reports_check(scene->cache, scene->blocks[1]);
    blocks_free_all(scene);
    CHILD_REQUIRES(refused_calls_check(scene->cache, scene->line) == NULL);
    CHILD_REQUIRES(driver_calls(scene->cache) == calls);
    CHILD_REQUIRES(scene->fake == NULL || scene->fake->calls == fake_calls);
}

/* Destroys the lost cache; returns the time that it took. */
static inline uint64_t lost_cache_destroy(const struct scene *scene)
{
    uint64_t begin = vmm__time_ns();
    CHILD_REQUIRES(vmm_destroy(scene->cache) == VMM_ERR_LOST);
    uint64_t took = vmm__time_ns() - begin;
    CHILD_REQUIRES(strcmp(vmm_last_error(), scene->line) == 0 || scene->line[0] == '\0');
    CHILD_REQUIRES(took < (uint64_t)ENDS_IN_S * 1000000000);
    return took;
}

#endif
