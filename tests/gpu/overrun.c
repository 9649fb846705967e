/*
 * overrun: accesses that a tool has to report, and work that it must not, on a GPU.
 *
 * usage: overrun clean|beyond|beyond-large|after-free
 *
 *   clean         blocks of many sizes on several streams are written from their first to their last byte, given back
 *                 while that runs, and had again; memory moves between streams under a limit
 *   beyond        one byte is written behind a block of 1000 bytes
 *   beyond-large  one byte is written behind a block of 3 MiB and 1000 bytes
 *   after-free    the first byte of a block is written after the block was given back
 *
 * The cache has marks (VMM_MARKS). Prints what is planted: "planted: 1 byte at ADDRESS behind/in BYTES bytes at
 * ADDRESS". By itself the GPU lets all of this pass; under compute-sanitizer --tool memcheck a planted access is
 * reported, and nothing else.
 *
 * Exit status: 0 all calls were well, 1 one failed, 2 wrong arguments, 77 no GPU.
 */
#define _GNU_SOURCE
#include "vmmcache/vmmcache.h"

#include <cuda.h>
#include <dlfcn.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define MIB UINT64_C(1048576)

enum { EXIT_FAILED = 1, EXIT_USAGE = 2, EXIT_SKIPPED = 77 };
enum { STREAMS = 3, BLOCKS = 24, ROUNDS = 600, THREADS = 64 };

/* Each thread writes the bytes at its number, its number and the number of threads, and so on. */
static const char kernel_text[] =
    ".version 6.0\n"
    ".target sm_52\n"
    ".address_size 64\n"
    ".visible .entry write(.param .u64 address_, .param .u64 bytes_)\n"
    "{\n"
    "    .reg .pred more;\n"
    "    .reg .u16 value;\n"
    "    .reg .u32 thread, threads;\n"
    "    .reg .u64 address, bytes, place, step, at;\n"
    "    ld.param.u64 address, [address_];\n"
    "    ld.param.u64 bytes, [bytes_];\n"
    "    cvta.to.global.u64 address, address;\n"
    "    mov.u32 thread, %tid.x;\n"
    "    mov.u32 threads, %ntid.x;\n"
    "    cvt.u64.u32 place, thread;\n"
    "    cvt.u64.u32 step, threads;\n"
    "    mov.u16 value, 7;\n"
    "next:\n"
    "    setp.lt.u64 more, place, bytes;\n"
    "    @!more bra done;\n"
    "    add.u64 at, address, place;\n"
    "    st.global.u8 [at], value;\n"
    "    add.u64 place, place, step;\n"
    "    bra next;\n"
    "done:\n"
    "    ret;\n"
    "}\n";

/* ---- libcuda --------------------------------------------------------------------------------- */

/* X(name, exported name) */
#define CALL_MAP(X)                                                                                \
    X(cuInit, "cuInit")                                                                            \
    X(cuDeviceGet, "cuDeviceGet")                                                                  \
    X(cuDevicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain")                                        \
    X(cuCtxSetCurrent, "cuCtxSetCurrent")                                                          \
    X(cuCtxSynchronize, "cuCtxSynchronize")                                                        \
    X(cuStreamCreate, "cuStreamCreate")                                                            \
    X(cuModuleLoadData, "cuModuleLoadData")                                                        \
    X(cuModuleGetFunction, "cuModuleGetFunction")                                                  \
    X(cuLaunchKernel, "cuLaunchKernel")

static struct {
#define CALL_MEMBER(name, exported) __typeof__(name) *name;
    CALL_MAP(CALL_MEMBER)
#undef CALL_MEMBER
} cuda;

static CUfunction kernel;
static CUstream streams[STREAMS];

static void must(const char *call, bool is_well)
{
    if (is_well)
        return;
    (void)fprintf(stderr, "overrun: %s failed: %s\n", call, vmm_last_error());
    exit(EXIT_FAILED);
}

#define MUST(name, ...) must(#name, cuda.name(__VA_ARGS__) == CUDA_SUCCESS)

static void call_find(void *library, const char *exported, void *member)
{
    void *found = dlsym(library, exported);
    must(exported, found != NULL);
    memcpy(member, &found, sizeof found);
}

static _Noreturn void no_gpu(const char *why)
{
    const char *required = getenv("VMM_REQUIRE_GPU");
    (void)fprintf(stderr, "overrun: no GPU: %s\n", why);
    exit(required != NULL && strcmp(required, "1") == 0 ? EXIT_FAILED : EXIT_SKIPPED);
}

static void cuda_opened(void)
{
    CUdevice device;
    CUcontext context;
    CUmodule module;
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library == NULL)
        no_gpu("libcuda.so.1 cannot be opened");
#define CALL_FIND(name, exported) call_find(library, exported, &cuda.name);
    CALL_MAP(CALL_FIND)
#undef CALL_FIND
    if (cuda.cuInit(0) != CUDA_SUCCESS || cuda.cuDeviceGet(&device, 0) != CUDA_SUCCESS)
        no_gpu("cuInit or cuDeviceGet failed");
    MUST(cuDevicePrimaryCtxRetain, &context, device);
    MUST(cuCtxSetCurrent, context);
    MUST(cuModuleLoadData, &module, kernel_text);
    MUST(cuModuleGetFunction, &kernel, module, "write");
    for (unsigned i = 0; i < STREAMS; i++)
        MUST(cuStreamCreate, &streams[i], CU_STREAM_NON_BLOCKING);
}

static void bytes_written(void *address, uint64_t bytes, unsigned stream)
{
    CUdeviceptr at = (CUdeviceptr)(uintptr_t)address;
    void *parameters[] = { &at, &bytes };
    MUST(cuLaunchKernel, kernel, 1, 1, 1, THREADS, 1, 1, 0, streams[stream], parameters, NULL);
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

static void planted(void *at, void *block, uint64_t bytes, const char *where)
{
    (void)printf("planted: 1 byte at %#" PRIx64 " %s %" PRIu64 " bytes at %#" PRIx64 "\n",
                 (uint64_t)(uintptr_t)at, where, bytes, (uint64_t)(uintptr_t)block);
    (void)fflush(stdout);
    bytes_written(at, 1, 0);
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
    planted(block + bytes, block, bytes, "behind");
    block_given(cache, neighbour);
    block_given(cache, block);
}

static void run_after_free(vmm_cache *cache)
{
    enum { BYTES = 1000 };
    void *block = block_taken(cache, BYTES, 0);
    bytes_written(block, BYTES, 0);
    block_given(cache, block);
    planted(block, block, BYTES, "in what was");
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
        (void)fprintf(stderr, "usage: %s clean|beyond|beyond-large|after-free\n", argv[0]);
        return EXIT_USAGE;
    }
    must("vmm_destroy", vmm_destroy(cache) == VMM_OK);
    (void)printf("overrun: %s: done\n", argv[1]);
    return 0;
}
