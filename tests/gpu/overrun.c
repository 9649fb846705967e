/*
 * overrun: makes accesses that a tool must report, and work that it must not report, on a GPU.
 *
 * usage: overrun clean|beyond|beyond-large|after-free|unwritten
 *
 *   clean         blocks of many sizes on several streams are written and read from the first to the last byte, freed
 *                 while that runs, and allocated again; a limit makes memory move between streams
 *   beyond        writes one byte behind a block of 1000 bytes
 *   beyond-large  writes one byte behind a block of 3 MiB and 1000 bytes
 *   after-free    writes the first byte of a block after its free
 *   unwritten     reads the first byte of a block that no work has written
 *
 * The cache annotates its memory (VMM_NVTX). Prints the seeded bug: "planted: 1 byte at ADDRESS behind/in BYTES bytes
 * at ADDRESS". Without a tool the GPU reports none of this. compute-sanitizer must report the seeded bug and nothing
 * else: the last one with --tool initcheck, the others with --tool memcheck.
 *
 * Exit status: 0 all calls succeeded, 1 a call failed, 2 wrong arguments, 77 no GPU.
 */
#define _GNU_SOURCE
#include "libcuda.h"
#include "vmmcache/vmmcache.h"

#include <inttypes.h>

#define MIB UINT64_C(1048576)

enum { EXIT_FAILED = 1, EXIT_USAGE = 2 };
enum { STREAMS = 3, BLOCKS = 24, ROUNDS = 600, VALUE = 7 };

static CUfunction writes;
static CUfunction reads;
static CUstream streams[STREAMS];

static void must(const char *call, bool succeeded)
{
    if (succeeded)
        return;
    (void)fprintf(stderr, "overrun: %s failed: %s\n", call, vmm_last_error());
    exit(EXIT_FAILED);
}

#define MUST(name, ...) must(#name, cuda.name(__VA_ARGS__) == CUDA_SUCCESS)

static void cuda_open(void)
{
    CUcontext context;
    CUmodule module;
    CUdevice device = libcuda_start("overrun");
    MUST(cuDevicePrimaryCtxRetain, &context, device);
    MUST(cuCtxPushCurrent, context);
    MUST(cuModuleLoadData, &module, libcuda_kernels);
    MUST(cuModuleGetFunction, &writes, module, "test_write");
    MUST(cuModuleGetFunction, &reads, module, "test_read");
    for (unsigned i = 0; i < STREAMS; i++)
        MUST(cuStreamCreate, &streams[i], CU_STREAM_NON_BLOCKING);
}

static void bytes_write(void *address, uint64_t bytes, unsigned stream)
{
    must("cuLaunchKernel",
         libcuda_write(writes, address, bytes, VALUE, streams[stream]) == CUDA_SUCCESS);
}

static void bytes_load(void *address, uint64_t bytes, unsigned stream)
{
    CUdeviceptr at = (CUdeviceptr)(uintptr_t)address;
    void *parameters[] = { &at, &bytes };
    must("cuLaunchKernel", libcuda_launch(reads, streams[stream], parameters) == CUDA_SUCCESS);
}

/* ---- Blocks ---------------------------------------------------------------------------------- */

static vmm_cache *cache_create(void)
{
    vmm_cache *cache;
    vmm_config config = VMM_CONFIG_INIT;
    config.driver = VMM_DRIVER_CUDA;
    config.nvtx = 1;
    config.limit_bytes = 64 * MIB;
    must("vmm_create", vmm_create(&config, &cache) == VMM_OK);
    return cache;
}

static void *block_allocate(vmm_cache *cache, uint64_t bytes, unsigned stream)
{
    void *block;
    must("vmm_alloc", vmm_alloc(cache, bytes, streams[stream], &block) == VMM_OK);
    return block;
}

static void block_free(vmm_cache *cache, void *block)
{
    must("vmm_free", vmm_free(cache, block) == VMM_OK);
}

typedef void (*access_fn)(void *address, uint64_t bytes, unsigned stream);

static void bug_run(access_fn access, void *at, void *block, uint64_t bytes, const char *where)
{
    (void)printf("planted: 1 byte at %#" PRIx64 " %s %" PRIu64 " bytes at %#" PRIx64 "\n",
                 (uint64_t)(uintptr_t)at, where, bytes, (uint64_t)(uintptr_t)block);
    (void)fflush(stdout);
    access(at, 1, 0);
    (void)cuda.cuCtxSynchronize(); /* a tool may end the context here, so the result is ignored */
}

/* ---- Programs -------------------------------------------------------------------------------- */

/* Sizes up to 4 MiB, odd ones among them, so that blocks lie close to each other. */
static uint64_t bytes_choose(unsigned round)
{
    static const uint64_t sizes[] = { 1,     511,     512,      1000,          8192,
                                      8193,  100001,  1 << 20,  (1 << 20) + 1, (3 << 20) + 1000,
                                      70000, 4 << 20, 2000000U, 65536,         333 };
    return sizes[round * 7 % (sizeof sizes / sizeof *sizes)];
}

static void run_clean(vmm_cache *cache)
{
    void *blocks[BLOCKS] = { NULL };
    for (unsigned round = 0; round < ROUNDS; round++) {
        unsigned slot = round * 11 % BLOCKS;
        unsigned stream = round % STREAMS;
        if (blocks[slot] != NULL)
            block_free(cache, blocks[slot]);
        uint64_t bytes = bytes_choose(round);
        blocks[slot] = block_allocate(cache, bytes, stream);
        bytes_write(blocks[slot], bytes, stream);
        bytes_load(blocks[slot], bytes, stream);
        if (round % 5 == 0) { /* while the work runs */
            block_free(cache, blocks[slot]);
            blocks[slot] = NULL;
        }
    }
    for (unsigned slot = 0; slot < BLOCKS; slot++)
        block_free(cache, blocks[slot]);
    MUST(cuCtxSynchronize);
}

static void run_beyond(vmm_cache *cache, uint64_t bytes)
{
    char *block = block_allocate(cache, bytes, 0);
    void *neighbour = block_allocate(cache, bytes, 0); /* the byte lies in front of it, not in it */
    bytes_write(block, bytes, 0);
    MUST(cuCtxSynchronize);
    bug_run(bytes_write, block + bytes, block, bytes, "behind");
    block_free(cache, neighbour);
    block_free(cache, block);
}

static void run_after_free(vmm_cache *cache)
{
    enum { BYTES = 1000 };
    void *block = block_allocate(cache, BYTES, 0);
    bytes_write(block, BYTES, 0);
    block_free(cache, block);
    bug_run(bytes_write, block, block, BYTES, "in what was");
}

static void run_unwritten(vmm_cache *cache)
{
    enum { BYTES = 1000 };
    void *block = block_allocate(cache, BYTES, 0);
    bug_run(bytes_load, block, block, BYTES, "in");
    block_free(cache, block);
}

static bool run(vmm_cache *cache, const char *what)
{
    if (strcmp(what, "clean") == 0)
        run_clean(cache);
    else if (strcmp(what, "beyond") == 0)
        run_beyond(cache, 1000);
    else if (strcmp(what, "beyond-large") == 0)
        run_beyond(cache, 3 * MIB + 1000);
    else if (strcmp(what, "after-free") == 0)
        run_after_free(cache);
    else if (strcmp(what, "unwritten") == 0)
        run_unwritten(cache);
    else
        return false;
    return true;
}

int main(int argc, char **argv)
{
    if (argc == 2)
        cuda_open();
    vmm_cache *cache = argc == 2 ? cache_create() : NULL;
    if (cache == NULL || !run(cache, argv[1])) {
        (void)fprintf(stderr, "usage: %s clean|beyond|beyond-large|after-free|unwritten\n",
                      argv[0]);
        return EXIT_USAGE;
    }
    must("vmm_destroy", vmm_destroy(cache) == VMM_OK);
    (void)printf("overrun: %s: done\n", argv[1]);
    return 0;
}
