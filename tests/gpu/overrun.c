/*
 * overrun: accesses that a tool has to report, and work that it must not, on a GPU.
 *
 * usage: overrun clean|beyond|beyond-large|after-free|unwritten
 *
 *   clean         blocks of many sizes on several streams are written and read from their first to their last byte,
 *                 given back while that runs, and had again; memory moves between streams under a limit
 *   beyond        one byte is written behind a block of 1000 bytes
 *   beyond-large  one byte is written behind a block of 3 MiB and 1000 bytes
 *   after-free    the first byte of a block is written after the block was given back
 *   unwritten     the first byte of a block is read that nobody has written
 *
 * The cache has marks (VMM_MARKS). Prints what is planted: "planted: 1 byte at ADDRESS behind/in BYTES bytes at
 * ADDRESS". By itself the GPU lets all of this pass; under compute-sanitizer a planted access is reported, and nothing
 * else: the last one by --tool initcheck, the others by --tool memcheck.
 *
 * Exit status: 0 all calls were well, 1 one failed, 2 wrong arguments, 77 no GPU.
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

static void must(const char *call, bool is_well)
{
    if (is_well)
        return;
    (void)fprintf(stderr, "overrun: %s failed: %s\n", call, vmm_last_error());
    exit(EXIT_FAILED);
}

#define MUST(name, ...) must(#name, cuda.name(__VA_ARGS__) == CUDA_SUCCESS)

static void cuda_opened(void)
{
    CUcontext context;
    CUmodule module;
    CUdevice device = libcuda_started("overrun");
    MUST(cuDevicePrimaryCtxRetain, &context, device);
    MUST(cuCtxPushCurrent, context);
    MUST(cuModuleLoadData, &module, libcuda_kernels);
    MUST(cuModuleGetFunction, &writes, module, "test_write");
    MUST(cuModuleGetFunction, &reads, module, "test_read");
    for (unsigned i = 0; i < STREAMS; i++)
        MUST(cuStreamCreate, &streams[i], CU_STREAM_NON_BLOCKING);
}

static void bytes_written(void *address, uint64_t bytes, unsigned stream)
{
    must("cuLaunchKernel",
         libcuda_written(writes, address, bytes, VALUE, streams[stream]) == CUDA_SUCCESS);
}

static void bytes_read(void *address, uint64_t bytes, unsigned stream)
{
    CUdeviceptr at = (CUdeviceptr)(uintptr_t)address;
    void *parameters[] = { &at, &bytes };
    must("cuLaunchKernel", libcuda_launched(reads, streams[stream], parameters) == CUDA_SUCCESS);
}

/* ---- Blocks ---------------------------------------------------------------------------------- */

static vmm_cache *cache_made(void)
{
    vmm_cache *cache;
    vmm_config config = VMM_CONFIG_INIT;
    config.driver = VMM_DRIVER_CUDA;
    config.marks = 1;
    config.limit_bytes = 64 * MIB;
    must("vmm_create", vmm_create(&config, &cache) == VMM_OK);
    return cache;
}

static void *block_taken(vmm_cache *cache, uint64_t bytes, unsigned stream)
{
    void *block;
    must("vmm_alloc", vmm_alloc(cache, bytes, streams[stream], &block) == VMM_OK);
    return block;
}

static void block_given(vmm_cache *cache, void *block)
{
    must("vmm_free", vmm_free(cache, block) == VMM_OK);
}

typedef void (*access_fn)(void *address, uint64_t bytes, unsigned stream);

static void planted(access_fn access, void *at, void *block, uint64_t bytes, const char *where)
{
    (void)printf("planted: 1 byte at %#" PRIx64 " %s %" PRIu64 " bytes at %#" PRIx64 "\n",
                 (uint64_t)(uintptr_t)at, where, bytes, (uint64_t)(uintptr_t)block);
    (void)fflush(stdout);
    access(at, 1, 0);
    (void)cuda.cuCtxSynchronize(); /* a tool may end the context there */
}

/* ---- What is run ----------------------------------------------------------------------------- */

/* Some of any size up to 4 MiB; neighbours of other blocks, so that no gap hides anything. */
static uint64_t bytes_drawn(unsigned round)
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
            block_given(cache, blocks[slot]);
        uint64_t bytes = bytes_drawn(round);
        blocks[slot] = block_taken(cache, bytes, stream);
        bytes_written(blocks[slot], bytes, stream);
        bytes_read(blocks[slot], bytes, stream);
        if (round % 5 == 0) { /* while the work runs */
            block_given(cache, blocks[slot]);
            blocks[slot] = NULL;
        }
    }
    for (unsigned slot = 0; slot < BLOCKS; slot++)
        block_given(cache, blocks[slot]);
    MUST(cuCtxSynchronize);
}

static void run_beyond(vmm_cache *cache, uint64_t bytes)
{
    char *block = block_taken(cache, bytes, 0);
    void *neighbour = block_taken(cache, bytes, 0); /* not where the byte falls */
    bytes_written(block, bytes, 0);
    MUST(cuCtxSynchronize);
    planted(bytes_written, block + bytes, block, bytes, "behind");
    block_given(cache, neighbour);
    block_given(cache, block);
}

static void run_after_free(vmm_cache *cache)
{
    enum { BYTES = 1000 };
    void *block = block_taken(cache, BYTES, 0);
    bytes_written(block, BYTES, 0);
    block_given(cache, block);
    planted(bytes_written, block, block, BYTES, "in what was");
}

static void run_unwritten(vmm_cache *cache)
{
    enum { BYTES = 1000 };
    void *block = block_taken(cache, BYTES, 0);
    planted(bytes_read, block, block, BYTES, "in");
    block_given(cache, block);
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
        cuda_opened();
    vmm_cache *cache = argc == 2 ? cache_made() : NULL;
    if (cache == NULL || !run(cache, argv[1])) {
        (void)fprintf(stderr, "usage: %s clean|beyond|beyond-large|after-free|unwritten\n",
                      argv[0]);
        return EXIT_USAGE;
    }
    must("vmm_destroy", vmm_destroy(cache) == VMM_OK);
    (void)printf("overrun: %s: done\n", argv[1]);
    return 0;
}
