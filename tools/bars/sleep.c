/*
 * Measures sleep and wake of pools beside what the device and the host can do in the same run, and checks that contents
 * survive and that nothing is left. Writes a table; the exit status is 0 if all checks hold.
 *
 * usage: bars_sleep sim|host|cuda [MIB]      MIB: live bytes of the pool, 32768 on cuda, else 64
 *
 * Times are the driver's: on sim those of its model.
 */
#include "api/create_on.h"
#include "base/arith.h"
#include "base/hostmem.h"

#include <dlfcn.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MIB (UINT64_C(1) << 20)

enum { BLOCK_MIB = 64, CYCLES = 100, CYCLE_BLOCKS = 16, MEASURED_MIB = 256, HOST_ALLOC_MIB = 2048 };

struct scene {
    struct driver *driver;
    vmm_cache *cache;
    vmm_stream stream;
    uint64_t bytes;
    uint64_t save_rate; /* bytes a second */
    uint64_t load_rate;
    bool is_cuda;
};

/* The live blocks of a pool. */
struct live {
    vmm_pool *pool;
    void **blocks;
    uint64_t count;
    uint64_t bytes_each;
};

static void require(bool holds, const char *what)
{
    if (holds)
        return;
    (void)fprintf(stderr, "bars_sleep: %s: %s\n", what, vmm_last_error());
    exit(1);
}

#define REQUIRE_OK(call) require((call) == VMM_OK, #call)

/* ---- Rows -------------------------------------------------------------------------------------- */

static uint64_t rate_of(uint64_t bytes, uint64_t ns)
{
    return ns == 0 ? 0 : (uint64_t)((double)bytes / (double)ns * 1e9);
}

static void time_show(const char *name, uint64_t bytes, uint64_t ns)
{
    (void)printf("%-44s %10.3f ms %9.2f GB/s", name, (double)ns / 1e6,
                 (double)rate_of(bytes, ns) / 1e9);
}

/* A time, and how near it is to the pinned copies of this run. */
static void copy_show(const char *name, uint64_t bytes, uint64_t ns, uint64_t pinned_rate)
{
    time_show(name, bytes, ns);
    if (pinned_rate > 0)
        (void)printf(" %6.1f %% of the pinned rate",
                     100.0 * (double)rate_of(bytes, ns) / (double)pinned_rate);
    (void)printf("\n");
}

/* ---- Blocks ------------------------------------------------------------------------------------ */

static struct live live_make(struct scene *scene, uint64_t bytes, vmm_on_sleep on_sleep)
{
    vmm_pool_options options = VMM_POOL_OPTIONS_INIT;
    struct live live = { .bytes_each = vmm__min(bytes, BLOCK_MIB * MIB) };
    live.count = bytes / live.bytes_each;
    options.on_sleep = on_sleep;
    live.blocks = calloc(live.count, sizeof *live.blocks);
    require(live.blocks != NULL, "memory");
    REQUIRE_OK(vmm_pool_create(scene->cache, &options, &live.pool));
    for (uint64_t i = 0; i < live.count; i++)
        REQUIRE_OK(vmm_alloc_from(live.pool, live.bytes_each, scene->stream, &live.blocks[i]));
    return live;
}

static void live_fill(struct scene *scene, const struct live *live)
{
    for (uint64_t i = 0; i < live->count; i++)
        REQUIRE_OK(vmm__driver_fill(scene->driver, (uintptr_t)live->blocks[i], live->bytes_each,
                                    (uint32_t)i + 1, scene->stream));
}

static void faults_check(struct scene *scene)
{
    uint64_t wrong;
    REQUIRE_OK(vmm__driver_device_wait(scene->driver));
    REQUIRE_OK(vmm__driver_mismatches(scene->driver, &wrong));
    require(wrong == 0, "contents were lost");
}

static void live_check(struct scene *scene, const struct live *live)
{
    for (uint64_t i = 0; i < live->count; i++)
        REQUIRE_OK(vmm__driver_check(scene->driver, (uintptr_t)live->blocks[i], live->bytes_each,
                                     (uint32_t)i + 1, scene->stream));
    faults_check(scene);
}

static void live_end(struct scene *scene, struct live *live)
{
    for (uint64_t i = 0; i < live->count; i++)
        REQUIRE_OK(vmm_free(scene->cache, live->blocks[i]));
    free(live->blocks);
    REQUIRE_OK(vmm_pool_destroy(live->pool, 0));
}

static uint64_t driver_ns(struct scene *scene)
{
    vmm_stats stats = VMM_STATS_INIT;
    REQUIRE_OK(vmm_stats_get(scene->cache, &stats));
    return stats.driver_ns;
}

static uint64_t sleep_ns(struct scene *scene, vmm_pool *pool)
{
    REQUIRE_OK(vmm__driver_device_wait(scene->driver));
    uint64_t begin = vmm__driver_clock(scene->driver);
    REQUIRE_OK(vmm_pool_sleep(&pool, 1, NULL, NULL));
    return vmm__driver_clock(scene->driver) - begin;
}

static uint64_t wake_ns(struct scene *scene, vmm_pool *pool)
{
    uint64_t begin = vmm__driver_clock(scene->driver);
    REQUIRE_OK(vmm_pool_wake(&pool, 1, NULL, NULL));
    return vmm__driver_clock(scene->driver) - begin;
}

/* ---- Measurements ------------------------------------------------------------------------------ */

static uint64_t copies_ns(struct scene *scene, const struct driver_piece *piece, bool is_save)
{
    enum { COPIES = 4 };
    REQUIRE_OK(vmm__driver_device_wait(scene->driver));
    uint64_t begin = vmm__driver_clock(scene->driver);
    for (unsigned i = 0; i < COPIES; i++)
        REQUIRE_OK(is_save ? vmm__driver_save(scene->driver, piece, 1, scene->stream)
                           : vmm__driver_load(scene->driver, piece, 1, scene->stream));
    REQUIRE_OK(vmm__driver_device_wait(scene->driver));
    return (vmm__driver_clock(scene->driver) - begin) / COPIES;
}

/* The rate of pinned copies each way, and the cost of pinning memory that one thread touches first. */
static void pinned_measure(struct scene *scene)
{
    uint64_t bytes = vmm__min(scene->bytes, MEASURED_MIB * MIB);
    struct live live = live_make(scene, bytes, VMM_ON_SLEEP_DISCARD);
    uint64_t begin = vmm__driver_clock(scene->driver);
    char *memory = vmm__host_huge_alloc(bytes);
    require(memory != NULL, "host memory");
    memset(memory, 1, bytes);
    REQUIRE_OK(vmm__driver_pin(scene->driver, memory, bytes));
    uint64_t pin_ns = vmm__driver_clock(scene->driver) - begin;
    struct driver_piece piece = { .address = (uintptr_t)live.blocks[0],
                                  .bytes = live.bytes_each,
                                  .host = memory };
    live_fill(scene, &live);
    uint64_t save_ns = copies_ns(scene, &piece, true);
    uint64_t load_ns = copies_ns(scene, &piece, false);
    scene->save_rate = rate_of(piece.bytes, save_ns);
    scene->load_rate = rate_of(piece.bytes, load_ns);
    copy_show("pinned copy to the host", piece.bytes, save_ns, 0);
    copy_show("pinned copy to the device", piece.bytes, load_ns, 0);
    copy_show("touch with one thread, and pin", bytes, pin_ns, 0);
    REQUIRE_OK(vmm__driver_unpin(scene->driver, memory, bytes));
    vmm__host_table_free(memory, bytes);
    live_end(scene, &live);
}

/* What cudaMallocHost() takes for `bytes` bytes of pinned memory, measured with less. CUdevice and CUresult are
 * ints. */
static uint64_t host_alloc_ns(const struct scene *scene, uint64_t bytes)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    int (*retain)(void **, int);
    int (*set)(void *);
    int (*alloc)(void **, size_t);
    int (*release)(void *);
    void *context = NULL;
    void *memory = NULL;
    require(library != NULL, "libcuda.so.1");
    *(void **)&retain = dlsym(library, "cuDevicePrimaryCtxRetain");
    *(void **)&set = dlsym(library, "cuCtxSetCurrent");
    *(void **)&alloc = dlsym(library, "cuMemAllocHost_v2");
    *(void **)&release = dlsym(library, "cuMemFreeHost");
    require(retain(&context, 0) == 0 && set(context) == 0, "the context");
    uint64_t begin = vmm__driver_clock(scene->driver);
    require(alloc(&memory, HOST_ALLOC_MIB * MIB) == 0, "cuMemAllocHost");
    uint64_t ns = vmm__driver_clock(scene->driver) - begin;
    require(release(memory) == 0, "cuMemFreeHost");
    return (uint64_t)((double)ns * (double)bytes / (double)(HOST_ALLOC_MIB * MIB));
}

/* The first sleep makes its backup. A program could also allocate it with cudaMallocHost() first, and then copy. */
static void first_sleep_show(const struct scene *scene, uint64_t ns)
{
    time_show("KEEP: first sleep, with a new backup", scene->bytes, ns);
    if (scene->is_cuda) {
        uint64_t alloc_ns = host_alloc_ns(scene, scene->bytes);
        uint64_t copy_ns = (uint64_t)((double)scene->bytes / (double)scene->save_rate * 1e9);
        (void)printf(" %6.1f times as fast as cudaMallocHost() and a copy",
                     (double)(alloc_ns + copy_ns) / (double)ns);
    }
    (void)printf("\n");
}

static void keep_measure(struct scene *scene)
{
    struct live live = live_make(scene, scene->bytes, VMM_ON_SLEEP_KEEP);
    live_fill(scene, &live);
    first_sleep_show(scene, sleep_ns(scene, live.pool));
    copy_show("KEEP: first wake", scene->bytes, wake_ns(scene, live.pool), scene->load_rate);
    live_check(scene, &live);
    for (int turn = 0; turn < 3; turn++) {
        copy_show("KEEP: sleep", scene->bytes, sleep_ns(scene, live.pool), scene->save_rate);
        copy_show("KEEP: wake", scene->bytes, wake_ns(scene, live.pool), scene->load_rate);
    }
    live_check(scene, &live);
    live_end(scene, &live);
}

static void driver_share_show(const char *name, uint64_t bytes, uint64_t ns, uint64_t in_driver_ns)
{
    time_show(name, bytes, ns);
    (void)printf(" %10.3f ms of it in the driver\n", (double)in_driver_ns / 1e6);
}

/* Discarded contents cost nothing but the driver's calls. */
static void discard_measure(struct scene *scene)
{
    struct live live = live_make(scene, 2 * scene->bytes, VMM_ON_SLEEP_DISCARD);
    for (int turn = 0; turn < 2; turn++) {
        uint64_t begin = driver_ns(scene);
        uint64_t ns = sleep_ns(scene, live.pool);
        uint64_t between = driver_ns(scene);
        driver_share_show("DISCARD: sleep", 2 * scene->bytes, ns, between - begin);
        ns = wake_ns(scene, live.pool);
        driver_share_show("DISCARD: wake", 2 * scene->bytes, ns, driver_ns(scene) - between);
    }
    live_fill(scene, &live);
    live_check(scene, &live);
    live_end(scene, &live);
}

/* A wake that finds no memory changes nothing; the next one succeeds. */
static void oom_check(struct scene *scene)
{
    struct live live = live_make(scene, scene->bytes, VMM_ON_SLEEP_KEEP);
    live_fill(scene, &live);
    (void)sleep_ns(scene, live.pool);
    REQUIRE_OK(vmm_limit_set(scene->cache, scene->bytes / 2));
    for (int turn = 0; turn < 3; turn++)
        require(vmm_pool_wake(&live.pool, 1, NULL, NULL) == VMM_ERR_DEVICE_OOM,
                "a wake without memory");
    REQUIRE_OK(vmm_limit_set(scene->cache, 0));
    (void)wake_ns(scene, live.pool);
    live_check(scene, &live);
    live_end(scene, &live);
    (void)printf("%-44s %10s\n", "wake after 3 that found no memory", "whole");
}

/* Blocks of random sizes come and go between sleeps. */
static void cycles_check(struct scene *scene)
{
    struct live live = { .blocks = calloc(CYCLE_BLOCKS, sizeof *live.blocks) };
    uint64_t sizes[CYCLE_BLOCKS];
    uint64_t slept = 0;
    uint32_t seed = 1;
    require(live.blocks != NULL, "memory");
    REQUIRE_OK(vmm_pool_create(scene->cache, NULL, &live.pool));
    for (unsigned cycle = 0; cycle < CYCLES; cycle++) {
        for (unsigned i = cycle % 3; i < CYCLE_BLOCKS; i += 3) {
            seed = seed * 1664525 + 1013904223;
            sizes[i] = (seed >> 8) % (scene->bytes / CYCLE_BLOCKS) + 1;
            REQUIRE_OK(vmm_free(scene->cache, live.blocks[i]));
            REQUIRE_OK(vmm_alloc_from(live.pool, sizes[i], scene->stream, &live.blocks[i]));
            REQUIRE_OK(vmm__driver_fill(scene->driver, (uintptr_t)live.blocks[i], sizes[i], i + 1,
                                        scene->stream));
        }
        (void)sleep_ns(scene, live.pool);
        (void)wake_ns(scene, live.pool);
        for (unsigned i = 0; i < CYCLE_BLOCKS; i++) {
            slept += live.blocks[i] == NULL ? 0 : sizes[i];
            if (live.blocks[i] != NULL)
                REQUIRE_OK(vmm__driver_check(scene->driver, (uintptr_t)live.blocks[i], sizes[i],
                                             i + 1, scene->stream));
        }
        faults_check(scene);
    }
    live.count = CYCLE_BLOCKS;
    live_end(scene, &live);
    (void)printf("%-44s %10.1f MiB slept and woke\n", "100 cycles of random sizes",
                 (double)slept / (double)MIB);
}

/* ---- main() ------------------------------------------------------------------------------------ */

static void scene_run(struct scene *scene)
{
    vmm_config config = VMM_CONFIG_INIT;
    REQUIRE_OK(vmm__driver_stream_create(scene->driver, &scene->stream));
    REQUIRE_OK(vmm__cache_create_on(&config, scene->driver, &scene->cache));
    pinned_measure(scene);
    keep_measure(scene);
    discard_measure(scene);
    oom_check(scene);
    cycles_check(scene);
    REQUIRE_OK(vmm_destroy(scene->cache));
    REQUIRE_OK(vmm__driver_stream_destroy(scene->driver, scene->stream));
}

/* Closes the driver. */
static void residue_check(const struct scene *scene, uint64_t host_bytes)
{
    uint64_t device_bytes = scene->driver->created_bytes + scene->driver->mapped_bytes;
    uint64_t left_bytes = scene->driver->pinned_bytes;
    vmm__driver_close(scene->driver);
    left_bytes += vmm__host_outstanding() - host_bytes;
    (void)printf("%-44s %10" PRIu64 " B on the device, %" PRIu64 " B on the host\n",
                 "left after all", device_bytes, left_bytes);
    require(device_bytes == 0 && left_bytes == 0, "residue");
}

/* A whole number of blocks. */
static uint64_t bytes_read(vmm_driver_kind kind, const char *text)
{
    uint64_t mib = kind == VMM_DRIVER_CUDA ? 32768 : BLOCK_MIB;
    if (text != NULL)
        mib = vmm__max(strtoull(text, NULL, 10) / BLOCK_MIB * BLOCK_MIB, BLOCK_MIB);
    return mib * MIB;
}

int main(int argc, char **argv)
{
    vmm_driver_kind kind;
    struct scene scene = { .stream = NULL };
    if (argc < 2 || !vmm__driver_kind_parse(argv[1], &kind)) {
        (void)fprintf(stderr, "usage: bars_sleep sim|host|cuda [MIB]\n");
        return 2;
    }
    scene.is_cuda = kind == VMM_DRIVER_CUDA;
    scene.bytes = bytes_read(kind, argc > 2 ? argv[2] : NULL);
    struct driver_options options = { 0 };
    if (kind != VMM_DRIVER_CUDA)
        options.device_bytes = 4 * scene.bytes;
    uint64_t host_bytes = vmm__host_outstanding();
    REQUIRE_OK(vmm__driver_open(kind, &options, &scene.driver));
    scene_run(&scene);
    residue_check(&scene, host_bytes);
    return 0;
}
