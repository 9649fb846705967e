/*
 * Streams of green contexts on a GPU: work that they still do keeps memory from other streams, as work of the primary
 * context's streams does, with each kind of clock and each way of reuse.
 *
 * Skipped (77) without a GPU, unless VMM_REQUIRE_GPU=1, and with a cuda.h or libcuda before CUDA 12.5.
 */
#define _GNU_SOURCE
#include "driver/driver.h"
#include "libcuda.h"
#include "support/test_support.h"

#define BLOCK_BYTES (48 * MIB)
#define LIMIT_BYTES (64 * MIB) /* one block: the next one can only get its memory */

enum { DELAY_NS = 200000000, OLD = 7, NEW = 9, SM_LEAST = 8 };

#if CUDA_VERSION >= 12050
#define GREEN_CALL_MAP(X)                                                                          \
    X(cuDeviceGetDevResource)                                                                      \
    X(cuDevSmResourceSplitByCount)                                                                 \
    X(cuDevResourceGenerateDesc)                                                                   \
    X(cuGreenCtxCreate)                                                                            \
    X(cuGreenCtxDestroy)                                                                           \
    X(cuGreenCtxStreamCreate)                                                                      \
    X(cuCtxFromGreenCtx)                                                                           \
    X(cuStreamGetCtx_v2)

static struct {
#define GREEN_MEMBER(name) __typeof__(name) *name;
    GREEN_CALL_MAP(GREEN_MEMBER)
#undef GREEN_MEMBER
} calls;

static struct driver *driver;
static CUdevice device;
static CUgreenCtx context;
static CUstream green;
static CUstream own;   /* of the primary context */
static CUstream other; /* the same */

static void context_make(CUgreenCtx *made, CUstream *stream)
{
    CUdevResource all;
    CUdevResource part;
    CUdevResource rest;
    CUdevResourceDesc described;
    unsigned parts = 1;
    assert_int_equal(calls.cuDeviceGetDevResource(device, &all, CU_DEV_RESOURCE_TYPE_SM), 0);
    assert_int_equal(calls.cuDevSmResourceSplitByCount(&part, &parts, &all, &rest, 0, SM_LEAST), 0);
    assert_int_equal(calls.cuDevResourceGenerateDesc(&described, &part, 1), 0);
    assert_int_equal(calls.cuGreenCtxCreate(made, described, device, CU_GREEN_CTX_DEFAULT_STREAM),
                     0);
    assert_int_equal(calls.cuGreenCtxStreamCreate(stream, *made, CU_STREAM_NON_BLOCKING, 0), 0);
}

static int device_open(void **state)
{
    (void)state;
    CUcontext primary;
    struct driver_options options = { .device = device };
    assert_int_equal(cuda.cuDevicePrimaryCtxRetain(&primary, device), 0);
    assert_int_equal(cuda.cuCtxPushCurrent(primary), 0);
    assert_int_equal(cuda.cuStreamCreate(&own, CU_STREAM_NON_BLOCKING), 0);
    assert_int_equal(cuda.cuStreamCreate(&other, CU_STREAM_NON_BLOCKING), 0);
    assert_ok(vmm__driver_cuda_open(&options, &driver));
    context_make(&context, &green);
    return 0;
}

static int device_close(void **state)
{
    (void)state;
    vmm__driver_close(driver);
    assert_int_equal(calls.cuGreenCtxDestroy(context), 0);
    return 0;
}

/* ---- Who reads wrong bytes ---------------------------------------------------------------------- */

struct way {
    vmm_reuse reuse;
    vmm_clock_kind clock;
    bool is_owner;    /* the block belongs to the stream that reads it */
    bool is_declared; /* vmm_record_stream() names the stream that reads */
};

static vmm_cache *cache_make(const struct way *way)
{
    vmm_cache *cache = NULL;
    vmm_config config =
        CONFIG(.driver = VMM_DRIVER_CUDA, .device = device, .arena_bytes = 4 * GIB,
               .limit_bytes = LIMIT_BYTES, .reuse = way->reuse, .clock_kind = way->clock);
    assert_ok(vmm_create(&config, &cache));
    return cache;
}

/* A stream reads a block late; its owner frees it at once, and another stream allocates and writes. Returns how many
 * words the reader saw that were not the old ones. */
static uint64_t wrong_words(const struct way *way, CUstream reader)
{
    static uint64_t known; /* the driver counts since it was opened */
    uint64_t places = 0;
    void *block = NULL;
    void *next = NULL;
    CUstream owner = way->is_owner ? reader : own;
    vmm_cache *cache = cache_make(way);
    assert_ok(vmm_alloc(cache, BLOCK_BYTES, owner, &block));
    assert_ok(vmm__driver_fill(driver, (uintptr_t)block, BLOCK_BYTES, OLD, owner));
    assert_ok(vmm__driver_device_wait(driver));
    assert_ok(vmm__driver_delay(driver, DELAY_NS, reader));
    assert_ok(vmm__driver_check(driver, (uintptr_t)block, BLOCK_BYTES, OLD, reader));
    if (way->is_declared)
        assert_ok(vmm_record_stream(cache, block, reader));
    assert_ok(vmm_free(cache, block));
    assert_ok(vmm_alloc(cache, BLOCK_BYTES, other, &next));
    assert_ok(vmm__driver_fill(driver, (uintptr_t)next, BLOCK_BYTES, NEW, other));
    assert_ok(vmm_free(cache, next));
    assert_ok(vmm_wait_stream(cache, reader));
    assert_ok(vmm_destroy(cache));
    assert_ok(vmm__driver_device_wait(driver));
    assert_ok(vmm__driver_mismatches(driver, &places));
    uint64_t wrong = places - known;
    known = places;
    return wrong;
}

/* As the mode says, and as it would be if the clock did not cover the stream. */
TEST(a_use_that_must_be_declared_and_is_not_reads_wrong_bytes)
{
    const struct way way = { .reuse = VMM_REUSE_DECLARED };
    assert_true(wrong_words(&way, own) == 0 && wrong_words(&way, green) > 0);
}

static const struct way ways[] = {
    { .reuse = VMM_REUSE_ANY_USE },
    { .reuse = VMM_REUSE_ANY_USE, .is_owner = true },
    { .reuse = VMM_REUSE_ANY_USE, .is_declared = true },
    { .reuse = VMM_REUSE_ANY_USE, .clock = VMM_CLOCK_STREAMS, .is_owner = true },
    { .reuse = VMM_REUSE_ANY_USE, .clock = VMM_CLOCK_STREAMS, .is_declared = true },
    { .reuse = VMM_REUSE_DECLARED, .is_owner = true },
    { .reuse = VMM_REUSE_DECLARED, .is_declared = true },
    { .reuse = VMM_REUSE_STREAM_WAIT, .is_owner = true },
    { .reuse = VMM_REUSE_STREAM_WAIT, .is_declared = true },
};

static void stream_is_covered(CUstream reader)
{
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        uint64_t wrong = wrong_words(&ways[i], reader);
        if (wrong != 0)
            print_error("way %zu: %llu words are wrong\n", i, (unsigned long long)wrong);
        assert_true(wrong == 0);
    }
}

TEST(work_on_a_stream_of_a_green_context_keeps_memory)
{
    stream_is_covered(green);
}

TEST(so_does_work_on_a_stream_that_was_created_while_the_context_was_current)
{
    CUcontext current;
    CUstream stream;
    assert_int_equal(calls.cuCtxFromGreenCtx(&current, context), 0);
    assert_int_equal(cuda.cuCtxPushCurrent(current), 0);
    assert_int_equal(cuda.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), 0);
    stream_is_covered(stream); /* the calls of the cache, too, are made beside that context */
}

/* The default stream of the primary context does not wait for it. */
TEST(an_event_of_all_work_covers_the_stream)
{
    void *all;
    void *of_default;
    assert_ok(vmm__driver_event_create(driver, &all));
    assert_ok(vmm__driver_event_create(driver, &of_default));
    assert_ok(vmm__driver_delay(driver, DELAY_NS, green));
    assert_ok(vmm__driver_clock_record(driver, all));
    assert_ok(vmm__driver_event_record(driver, of_default, NULL));
    assert_ok(vmm__driver_event_wait(driver, of_default));
    assert_status(vmm__driver_event_query(driver, all), VMM__PENDING);
    assert_ok(vmm__driver_device_wait(driver));
    assert_ok(vmm__driver_event_query(driver, all));
    assert_ok(vmm__driver_event_destroy(driver, of_default));
    assert_ok(vmm__driver_event_destroy(driver, all));
}

/* ---- Other contexts ----------------------------------------------------------------------------- */

TEST(streams_of_other_contexts_are_still_refused)
{
    CUresult (*create)(CUcontext * made, unsigned flags, CUdevice on);
    CUcontext made;
    CUstream stream;
    void *block = NULL;
    vmm_cache *cache = cache_make(&ways[0]);
    assert_true(libcuda_find("cuCtxCreate_v2", &create));
    assert_int_equal(create(&made, 0, device), 0);
    assert_int_equal(cuda.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), 0);
    assert_status(vmm_alloc(cache, MIB, stream, &block), VMM_ERR_INVALID_ARGUMENT);
    assert_int_equal(cuda.cuCtxDestroy(made), 0);
    assert_ok(vmm_destroy(cache));
}

/* ---- A context that ends ------------------------------------------------------------------------ */

/* Its stream has no live blocks. Where the cache asks the driver about it, the program ends it first. */
static void context_end_beside(const struct way *way)
{
    CUgreenCtx gone;
    CUstream stream;
    void *block = NULL;
    bool is_told =
        way->is_declared || way->reuse != VMM_REUSE_ANY_USE || way->clock == VMM_CLOCK_STREAMS;
    vmm_cache *cache = cache_make(way);
    context_make(&gone, &stream);
    assert_ok(vmm_alloc(cache, BLOCK_BYTES, way->is_owner ? stream : own, &block));
    assert_ok(vmm__driver_fill(driver, (uintptr_t)block, BLOCK_BYTES, OLD, stream));
    if (way->is_declared)
        assert_ok(vmm_record_stream(cache, block, stream));
    assert_ok(vmm_free(cache, block));
    if (is_told)
        assert_ok(vmm_stream_end(cache, stream));
    assert_ok(vmm__driver_device_wait(driver));
    assert_int_equal(calls.cuGreenCtxDestroy(gone), 0);
    assert_ok(vmm_alloc(cache, BLOCK_BYTES, other, &block));
    assert_ok(vmm__driver_fill(driver, (uintptr_t)block, BLOCK_BYTES, NEW, other));
    assert_ok(vmm_free(cache, block));
    assert_ok(vmm_poll(cache));
    assert_ok(vmm_trim(cache, 0, NULL));
    assert_ok(vmm_destroy(cache));
}

TEST(a_green_context_may_end_before_the_cache)
{
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        context_end_beside(&ways[i]);
        print_message("way %zu ends well\n", i);
    }
}

int main(void)
{
    device = libcuda_start("test_green");
#define GREEN_FIND(name)                                                                           \
    if (!libcuda_find(#name, &calls.name))                                                         \
        libcuda_missing("test_green", "libcuda has no " #name);
    GREEN_CALL_MAP(GREEN_FIND)
#undef GREEN_FIND
    return tests_run(device_open, device_close);
}

#else

int main(void)
{
    libcuda_missing("test_green", "built with a cuda.h before CUDA 12.5");
}

#endif
