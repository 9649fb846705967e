/*
 * A cache in the middle of its work on a GPU, or on the fake libcuda (fake/fake_cuda.h), and what must hold of it
 * once its device is lost. For a program that has a process for each scene: what goes wrong ends that (child.h).
 *
 * Owns: the program's own hold on the device's primary context, and streams and kernels there.
 * Define _GNU_SOURCE before the first header.
 */
#ifndef VMM_LIFE_GPU_SCENE_H
#define VMM_LIFE_GPU_SCENE_H

#include "gpu/libcuda.h"
#include "life/child.h"
#include "life/fake/fake_cuda.h"
#include "life/lost_support.h"

#include "base/clock.h"
#include "base/hostmem.h"
#include "cache_on.h"
#include "policy/cache.h"

#include <pthread.h>

enum { BLOCKS = 24, BLOCK_STREAMS = 3, THREADS = 2, STREAMS = BLOCK_STREAMS + THREADS };
enum { SPIN_MS = 100, ROUNDS_LEAST = 1000, WRITTEN_MOST = 4096, ENDS_IN_S = 10 };
/* What a cache holds at least is clearly more than what a context takes one time and not the other. */
enum { HELD_MIB = 256, CONTEXT_MIB = 64 };

struct scene_thread {
    struct scene *scene;
    pthread_t thread;
    vmm_stream stream;
    _Atomic uint64_t rounds;
    vmm_status status; /* of what ended it */
};

struct scene {
    const struct fake_cuda *fake; /* NULL: a GPU */
    CUdevice device;
    CUcontext context;
    CUmodule module;
    CUfunction write;
    CUstream streams[STREAMS];
    uint64_t free_bytes; /* of the device, before there was a cache */
    vmm_cache *cache;
    void *blocks[BLOCKS];
    void *kept[2]; /* of a private pool */
    void *held;    /* HELD_MIB */
    struct scene_thread threads[THREADS];
    char line[512];          /* of the first cause */
    _Atomic bool is_noticed; /* threads are refused from now on */
};

#define CUDA_REQUIRES(call) CHILD_REQUIRES((call) == CUDA_SUCCESS)

/* ---- The device ---------------------------------------------------------------------------------- */

static inline CUfunction kernel_of(const struct scene *scene, const char *name)
{
    CUfunction kernel;
    CUDA_REQUIRES(cuda.cuModuleGetFunction(&kernel, scene->module, name));
    return kernel;
}

/* A hold of the program's own, with streams and kernels: anew after the last ones went with their context. */
static inline void device_held(struct scene *scene)
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

static inline void device_opened(struct scene *scene)
{
    scene->device = libcuda_started("test_life_gpu_lost");
    scene->fake = dlsym(cuda.library, "fake_cuda");
    device_held(scene);
    scene->free_bytes = device_free();
}

/* So many milliseconds of work. */
static inline void stream_spins(const struct scene *scene, CUstream stream, uint64_t ms)
{
    uint64_t ns = ms * 1000000;
    void *parameters[] = { &ns };
    CUDA_REQUIRES(libcuda_launched(kernel_of(scene, "test_spin"), stream, parameters));
}

/* ---- The cache ----------------------------------------------------------------------------------- */

static inline vmm_status cache_wanted(const struct scene *scene, vmm_cache **out)
{
    vmm_config config = VMM_CONFIG_INIT;
    config.driver = VMM_DRIVER_CUDA;
    config.device = scene->device;
    config.arena_bytes = 4 * GIB;
    return vmm_create(&config, out);
}

static inline void block_written(const struct scene *scene, void *block, size_t bytes,
                                 uint32_t value, CUstream stream)
{
    size_t written = bytes < WRITTEN_MOST ? bytes : WRITTEN_MOST;
    CUDA_REQUIRES(libcuda_written(scene->write, block, written, value, stream));
}

static inline void block_verified(void *block, size_t bytes, uint32_t value)
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

/* Blocks on three streams, filled by kernels, read back, given back: all is well. */
static inline void cache_works(const struct scene *scene, vmm_cache *cache)
{
    void *blocks[BLOCKS];
    for (unsigned i = 0; i < BLOCKS; i++) {
        CUstream stream = scene->streams[i % BLOCK_STREAMS];
        CHILD_REQUIRES(vmm_alloc(cache, block_bytes(i), stream, &blocks[i]) == VMM_OK);
        block_written(scene, blocks[i], block_bytes(i), i + 1, stream);
    }
    CUDA_REQUIRES(cuda.cuCtxSynchronize());
    for (unsigned i = 0; i < BLOCKS; i++) {
        block_verified(blocks[i], block_bytes(i), i + 1);
        CHILD_REQUIRES(vmm_free(cache, blocks[i]) == VMM_OK);
    }
    CHILD_REQUIRES(vmm_wait(cache) == VMM_OK && vmm_trim(cache, 0, NULL) == VMM_OK);
}

static inline int pool_takes(void *context, vmm_stream stream)
{
    return stream == *(CUstream *)context;
}

/* Blocks of a private pool, of which one is free. */
static inline void pool_filled(struct scene *scene)
{
    vmm_pool_id id = { 1, 0 };
    CUstream stream = scene->streams[1];
    CHILD_REQUIRES(vmm_pool_begin(scene->cache, id, pool_takes, &scene->streams[1]) == VMM_OK);
    for (unsigned i = 0; i < 2; i++)
        CHILD_REQUIRES(vmm_alloc(scene->cache, MIB, stream, &scene->kept[i]) == VMM_OK);
    CHILD_REQUIRES(vmm_pool_end(scene->cache, id) == VMM_OK);
    CHILD_REQUIRES(vmm_free(scene->cache, scene->kept[1]) == VMM_OK);
    scene->kept[1] = NULL;
}

/* Live blocks, a large one among them, blocks that other streams use, and that wait for those, and memory to be given
 * back, all with work under way. */
static inline void cache_filled(struct scene *scene)
{
    void *large;
    vmm_cache *cache = scene->cache;
    pool_filled(scene);
    CHILD_REQUIRES(vmm_alloc(cache, HELD_MIB * MIB, scene->streams[1], &scene->held) == VMM_OK);
    CHILD_REQUIRES(vmm_alloc(cache, 8 * MIB, scene->streams[0], &large) == VMM_OK);
    for (unsigned i = 0; i < BLOCKS; i++) {
        CUstream stream = scene->streams[i % BLOCK_STREAMS];
        CHILD_REQUIRES(vmm_alloc(cache, block_bytes(i), stream, &scene->blocks[i]) == VMM_OK);
        block_written(scene, scene->blocks[i], block_bytes(i), i, stream);
        stream = scene->streams[(i + 1) % BLOCK_STREAMS];
        CHILD_REQUIRES(vmm_use(cache, scene->blocks[i], stream) == VMM_OK);
    }
    for (unsigned i = 0; i < BLOCK_STREAMS; i++)
        stream_spins(scene, scene->streams[i], SPIN_MS);
    for (unsigned i = 0; i < BLOCKS; i += 4) {
        CHILD_REQUIRES(vmm_free(cache, scene->blocks[i]) == VMM_OK);
        scene->blocks[i] = NULL;
    }
    CHILD_REQUIRES(vmm_free(cache, large) == VMM_OK);
    CHILD_REQUIRES(vmm_trim(cache, 0, NULL) == VMM_OK);
}

/* ---- Threads on the fast path -------------------------------------------------------------------- */

/* Ends with the first refusal, or when that has been due for many rounds. */
static inline void *blocks_turned(void *context)
{
    unsigned late_rounds = 0;
    struct scene_thread *thread = context;
    do {
        void *block;
        thread->status = vmm_alloc(thread->scene->cache, 700, thread->stream, &block);
        if (thread->status == VMM_OK)
            CHILD_REQUIRES(vmm_free(thread->scene->cache, block) == VMM_OK);
        atomic_fetch_add(&thread->rounds, 1);
        late_rounds += atomic_load(&thread->scene->is_noticed);
    } while (thread->status == VMM_OK && late_rounds < ROUNDS_LEAST);
    return NULL;
}

static inline void threads_begun(struct scene *scene)
{
    for (unsigned i = 0; i < THREADS; i++) {
        struct scene_thread *thread = &scene->threads[i];
        thread->scene = scene;
        thread->stream = scene->streams[BLOCK_STREAMS + i];
        CHILD_REQUIRES(pthread_create(&thread->thread, NULL, blocks_turned, thread) == 0);
    }
    for (unsigned i = 0; i < THREADS; i++) {
        while (atomic_load(&scene->threads[i].rounds) < ROUNDS_LEAST)
            (void)usleep(100);
    }
}

static inline void threads_refused(struct scene *scene)
{
    atomic_store(&scene->is_noticed, true);
    for (unsigned i = 0; i < THREADS; i++) {
        CHILD_REQUIRES(pthread_join(scene->threads[i].thread, NULL) == 0);
        CHILD_REQUIRES(scene->threads[i].status == VMM_ERR_LOST);
    }
}

static inline void scene_begun(struct scene *scene)
{
    device_opened(scene);
    CHILD_REQUIRES(cache_wanted(scene, &scene->cache) == VMM_OK);
    cache_filled(scene);
    threads_begun(scene);
}

/* ---- Once it is lost ----------------------------------------------------------------------------- */

static inline uint64_t driver_calls(const vmm_cache *cache)
{
    uint64_t calls = 0;
    for (int call = 0; call < DRIVER_CALL_COUNT; call++)
        calls += vmm__driver_calls(cache->driver, (enum driver_call)call);
    return calls;
}

static inline void reports_work(vmm_cache *cache, void *block)
{
    vmm_stats stats = VMM_STATS_INIT;
    vmm_item item = VMM_ITEM_INIT;
    CHILD_REQUIRES(vmm_stats_get(cache, &stats) == VMM_OK);
    CHILD_REQUIRES(stats.reserved_bytes.current > 0);
    CHILD_REQUIRES(vmm_find(cache, block, &item) == VMM_OK);
    CHILD_REQUIRES(vmm_pin(cache, block) == VMM_OK && vmm_unpin(cache, block) == VMM_OK);
    CHILD_REQUIRES(vmm_use(cache, block, NULL) == VMM_OK);
    CHILD_REQUIRES(vmm_limit_set(cache, GIB) == VMM_OK && vmm_limit_set(cache, 0) == VMM_OK);
    CHILD_REQUIRES(vmm__cache_check(cache) == VMM_OK);
}

static inline void all_freed(struct scene *scene)
{
    vmm_cache *cache = scene->cache;
    for (unsigned i = 0; i < BLOCKS; i++) {
        CHILD_REQUIRES(vmm_free(cache, scene->blocks[i]) == VMM_OK);
        if (scene->blocks[i] != NULL)
            CHILD_REQUIRES(vmm_free(cache, scene->blocks[i]) == VMM_ERR_UNKNOWN_POINTER);
    }
    CHILD_REQUIRES(vmm_free(cache, scene->kept[0]) == VMM_OK);
    CHILD_REQUIRES(vmm_free(cache, scene->held) == VMM_OK);
    vmm_status status = vmm_pool_release(cache, (vmm_pool_id){ 1, 0 });
    CHILD_REQUIRES(status == VMM_OK || status == VMM_ERR_LOST);
}

/* What needs the device is refused, all else works, and nobody asks the driver. */
static inline void lost_cache_obeys(struct scene *scene)
{
    uint64_t calls = driver_calls(scene->cache);
    uint64_t fake_calls = scene->fake != NULL ? scene->fake->calls : 0;
    const char *trouble = refusal_trouble(scene->cache, scene->line);
    if (trouble != NULL)
        (void)fprintf(stderr, "%s\n", trouble);
    CHILD_REQUIRES(trouble == NULL);
    reports_work(scene->cache, scene->blocks[1]);
    all_freed(scene);
    CHILD_REQUIRES(refusal_trouble(scene->cache, scene->line) == NULL);
    CHILD_REQUIRES(driver_calls(scene->cache) == calls);
    CHILD_REQUIRES(scene->fake == NULL || scene->fake->calls == fake_calls);
}

/* Returns the time that it took. */
static inline uint64_t lost_cache_ended(const struct scene *scene)
{
    uint64_t begin = vmm__clock_ns();
    CHILD_REQUIRES(vmm_destroy(scene->cache) == VMM_ERR_LOST);
    uint64_t took = vmm__clock_ns() - begin;
    CHILD_REQUIRES(strcmp(vmm_last_error(), scene->line) == 0 || scene->line[0] == '\0');
    CHILD_REQUIRES(took < (uint64_t)ENDS_IN_S * 1000000000);
    return took;
}

#endif
