/* A program under libvmmcache_preload: usage test_preload linked|dlsym|proc */
#define _GNU_SOURCE
#include "preload_support.h"

#include <pthread.h>
#include <stdint.h>

/* ---- cuMemAlloc, cuMemFree ------------------------------------------------------------------- */

static void cache_serves_allocations(void **state)
{
    (void)state;
    CUdeviceptr block = block_alloc(3 * MIB);
    assert_int_equal(fake->plain_blocks, 0);
    assert_true(fake->taken(0) > 0);
    memset((void *)(uintptr_t)block, 7, 3 * MIB);
    block_free(block);
    assert_int_equal(cuda.cuMemFree_v2(block), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuda.cuMemFree_v2(0), CUDA_SUCCESS);
    assert_int_equal(cuda.cuMemAlloc_v2(&block, 0), CUDA_ERROR_INVALID_VALUE);
}

static void small_blocks_do_not_overlap(void **state)
{
    enum { BLOCKS = 300 };
    CUdeviceptr blocks[BLOCKS];
    (void)state;
    for (unsigned i = 0; i < BLOCKS; i++) {
        blocks[i] = block_alloc(100 + i * 37);
        memset((void *)(uintptr_t)blocks[i], (int)i, 100 + i * 37);
    }
    for (unsigned i = 0; i < BLOCKS; i++) {
        const unsigned char *bytes = (const unsigned char *)(uintptr_t)blocks[i];
        assert_true(bytes[0] == (unsigned char)i && bytes[99 + i * 37] == (unsigned char)i);
        block_free(blocks[i]);
    }
}

/* libcuda's error of the wait is the result, and the block stays live. */
static void free_waits_for_the_device(void **state)
{
    (void)state;
    CUdeviceptr block = block_alloc(MIB);
    fault_set("cuCtxSynchronize", 700);
    assert_int_equal(cuda.cuMemFree_v2(block), 700);
    fault_set("", 0);
    block_free(block);
}

static void memory_that_runs_out_is_an_error(void **state)
{
    (void)state;
    CUdeviceptr large = 0;
    assert_int_equal(cuda.cuMemAlloc_v2(&large, (size_t)1 << 40), CUDA_ERROR_OUT_OF_MEMORY);
    assert_int_equal(cuda.cuMemAllocAsync(&large, (size_t)1 << 40, NULL), CUDA_ERROR_OUT_OF_MEMORY);
    assert_true(large == 0);
    block_free(block_alloc(MIB));
}

static void pitch_is_as_libcuda_makes_it(void **state)
{
    (void)state;
    CUdeviceptr block = 0;
    size_t pitch = 0;
    assert_int_equal(cuda.cuMemAllocPitch_v2(&block, &pitch, 1000, 10, 4), CUDA_SUCCESS);
    assert_int_equal(pitch, 1024);
    assert_int_equal(fake->plain_blocks, 0);
    memset((void *)(uintptr_t)block, 1, 10 * pitch);
    block_free(block);
    assert_int_equal(cuda.cuMemAllocPitch_v2(&block, &pitch, 1000, 10, 3),
                     CUDA_ERROR_INVALID_VALUE);
}

/* libcuda knows what it does with other arguments. */
static void odd_pitches_are_left_to_libcuda(void **state)
{
    static const struct {
        size_t width;
        size_t height;
        unsigned element;
    } odd[] = {
        { 0, 10, 4 }, { 10, 0, 4 }, { SIZE_MAX, 10, 4 }, { SIZE_MAX / 4, 1000, 4 }, { 10, 10, 5 }
    };
    (void)state;
    CUdeviceptr block = 0;
    size_t pitch = 0;
    fault_set("cuMemAllocPitch_v2", 77);
    for (unsigned i = 0; i < sizeof odd / sizeof *odd; i++)
        assert_int_equal(
            cuda.cuMemAllocPitch_v2(&block, &pitch, odd[i].width, odd[i].height, odd[i].element),
            77);
    for (unsigned element = 8; element <= 16; element *= 2) {
        assert_int_equal(cuda.cuMemAllocPitch_v2(&block, &pitch, 513, 3, element), CUDA_SUCCESS);
        assert_int_equal(pitch, 1024);
        block_free(block);
    }
    pitch = 0;
    assert_int_equal(cuda.cuMemAllocPitch_v2(&block, &pitch, MIB, MIB, 4),
                     CUDA_ERROR_OUT_OF_MEMORY);
    assert_int_equal(pitch, 0);
    fault_set("", 0);
}

/* What cuMemGetInfo() counts as free is there for all allocations. */
static void idle_memory_is_for_libcuda_too(void **state)
{
    CUmemAllocationProp property = { .type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                     .location = { .type = CU_MEM_LOCATION_TYPE_DEVICE } };
    CUmemGenericAllocationHandle handle;
    CUresult (*release)(CUmemGenericAllocationHandle);
    CUdeviceptr block = 0;
    (void)state;
    void *found = dlsym(RTLD_DEFAULT, "cuMemRelease");
    assert_non_null(found);
    memcpy(&release, &found, sizeof found);
    uint64_t before = fake->taken(0);
    block_free(block_alloc(64 * MIB));
    fake->fails_once = true;
    fault_set("cuMemCreate", CUDA_ERROR_OUT_OF_MEMORY);
    assert_int_equal(cuda.cuMemCreate(&handle, 2 * MIB, &property, 0), CUDA_SUCCESS);
    assert_int_equal(release(handle), CUDA_SUCCESS);
    assert_true(fake->taken(0) < before + 64 * MIB); /* given back */
    fault_set("cuMemCreate", CUDA_ERROR_OUT_OF_MEMORY);
    assert_int_equal(cuda.cuMemCreate(&handle, 2 * MIB, &property, 0), CUDA_ERROR_OUT_OF_MEMORY);
    block_free(block_alloc(64 * MIB));
    fault_set("cuMemAllocAsync", CUDA_ERROR_OUT_OF_MEMORY);
    assert_int_equal(cuda.cuMemAllocAsync_ptsz(&block, MIB, NULL), CUDA_SUCCESS);
    fault_set("", 0);
    fake->fails_once = false;
    assert_int_equal(fake->plain_blocks, 1);
    block_free(block);
}

/* ---- Questions ------------------------------------------------------------------------------- */

static void idle_memory_counts_as_free(void **state)
{
    (void)state;
    block_free(block_alloc(MIB)); /* makes the cache */
    size_t before = free_bytes();
    CUdeviceptr block = block_alloc(64 * MIB);
    assert_int_equal(free_bytes(), before - 64 * MIB);
    block_free(block);
    assert_int_equal(free_bytes(), before);
}

static void addresses_belong_to_their_block(void **state)
{
    (void)state;
    CUdeviceptr block = block_alloc(5 * MIB);
    CUdeviceptr base = 0;
    size_t bytes = 0;
    CUcontext context = NULL;
    assert_int_equal(cuda.cuMemGetAddressRange_v2(&base, &bytes, block + MIB), CUDA_SUCCESS);
    assert_true(base == block && bytes == 5 * MIB);
    assert_int_equal(cuda.cuMemGetAddressRange_v2(NULL, &bytes, block), CUDA_SUCCESS);
    assert_int_equal(
        cuda.cuPointerGetAttribute(&base, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, block + 512),
        CUDA_SUCCESS);
    assert_true(base == block);
    assert_int_equal(cuda.cuPointerGetAttribute(&context, CU_POINTER_ATTRIBUTE_CONTEXT, block),
                     CUDA_SUCCESS);
    assert_ptr_equal(context, contexts[0]);
    block_free(block);
    assert_int_equal(cuda.cuMemGetAddressRange_v2(&base, &bytes, block), CUDA_ERROR_INVALID_VALUE);
}

static void errors_of_libcuda_pass(void **state)
{
    (void)state;
    size_t bytes = 5;
    size_t total = 0;
    unsigned type = 0;
    void *data[] = { &type };
    CUpointer_attribute attribute = CU_POINTER_ATTRIBUTE_MEMORY_TYPE;
    CUdeviceptr block = block_alloc(MIB);
    fault_set("cuMemGetInfo_v2", 77);
    assert_int_equal(cuda.cuMemGetInfo_v2(&bytes, &total), 77);
    assert_int_equal(bytes, 5);
    fault_set("cuPointerGetAttributes", 77);
    assert_int_equal(cuda.cuPointerGetAttributes(1, &attribute, data, block), 77);
    fault_set("cuPointerGetAttribute", 77);
    assert_int_equal(cuda.cuPointerGetAttribute(&type, attribute, block), 77);
    assert_int_equal(cuda.cuPointerGetAttribute(&bytes, CU_POINTER_ATTRIBUTE_RANGE_SIZE, 0), 77);
    assert_int_equal(cuda.cuPointerGetAttribute(&bytes, CU_POINTER_ATTRIBUTE_RANGE_SIZE, block),
                     CUDA_SUCCESS);
    assert_int_equal(bytes, MIB);
    fault_set("cuMemGetAddressRange_v2", 77);
    assert_int_equal(cuda.cuMemGetAddressRange_v2(&block, &bytes, 0), 77);
    fault_set("", 0);
    assert_int_equal(cuda.cuMemGetAddressRange_v2(NULL, NULL, block), CUDA_SUCCESS);
    block_free(block);
}

static void all_attributes_are_right_at_once(void **state)
{
    (void)state;
    CUdeviceptr block = block_alloc(5 * MIB);
    unsigned type = 0;
    size_t bytes = 0;
    CUdeviceptr device_pointer = 0;
    CUcontext context = NULL;
    CUpointer_attribute attributes[] = { CU_POINTER_ATTRIBUTE_CONTEXT,
                                         CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                         CU_POINTER_ATTRIBUTE_DEVICE_POINTER,
                                         CU_POINTER_ATTRIBUTE_RANGE_SIZE };
    void *data[] = { &context, &type, &device_pointer, &bytes };
    assert_int_equal(cuda.cuPointerGetAttributes(4, attributes, data, block + 1024), CUDA_SUCCESS);
    assert_ptr_equal(context, contexts[0]);
    assert_true(type == CU_MEMORYTYPE_DEVICE && bytes == 5 * MIB && device_pointer == block + 1024);
    block_free(block);
}

static void other_processes_get_no_handle(void **state)
{
    (void)state;
    CUipcMemHandle handle;
    CUmemGenericAllocationHandle allocation;
    CUdeviceptr block = block_alloc(MIB);
    assert_int_equal(cuda.cuIpcGetMemHandle(&handle, block), CUDA_ERROR_NOT_SUPPORTED);
    assert_int_equal(cuda.cuMemRetainAllocationHandle(&allocation, (void *)(uintptr_t)block),
                     CUDA_ERROR_INVALID_VALUE);
    block_free(block);
}

/* ---- Streams --------------------------------------------------------------------------------- */

static void streams_allocate_in_order(void **state)
{
    (void)state;
    CUstream stream = stream_create();
    CUstream other = stream_create();
    CUdeviceptr first = 0;
    CUdeviceptr second = 0;
    assert_int_equal(cuda.cuMemAllocAsync(&first, 4 * MIB, stream), CUDA_SUCCESS);
    assert_int_equal(cuda.cuMemsetD8Async(first, 5, 4 * MIB, stream), CUDA_SUCCESS);
    assert_int_equal(cuda.cuMemFreeAsync(first, stream), CUDA_SUCCESS);
    assert_int_equal(cuda.cuMemAllocAsync(&second, 4 * MIB, stream), CUDA_SUCCESS);
    assert_true(second == first); /* in order, so at once */
    assert_int_equal(cuda.cuMemFreeAsync(second, other), CUDA_SUCCESS);
    assert_int_equal(cuda.cuMemFreeAsync(second, other), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(fake->plain_blocks, 0);
    assert_int_equal(cuda.cuStreamDestroy_v2(stream), CUDA_SUCCESS);
    assert_int_equal(cuda.cuStreamDestroy_v2(other), CUDA_SUCCESS);
    block_free(block_alloc(4 * MIB));
}

/* What a stream has freed and still uses does not serve cuMemAlloc(), whose memory may be used anywhere at once. */
static void work_in_flight_keeps_its_memory(void **state)
{
    enum { BYTES = 64 * (int)MIB };
    (void)state;
    CUstream stream = stream_create();
    CUdeviceptr block = 0;
    for (unsigned round = 0; round < 20; round++) {
        assert_int_equal(cuda.cuMemAllocAsync(&block, BYTES, stream), CUDA_SUCCESS);
        assert_int_equal(cuda.cuMemsetD8Async(block, 1, BYTES, stream), CUDA_SUCCESS);
        assert_int_equal(cuda.cuMemsetD8Async(block, 2, BYTES, stream), CUDA_SUCCESS);
        assert_int_equal(cuda.cuMemFreeAsync(block, stream), CUDA_SUCCESS);
        unsigned char *bytes = (unsigned char *)(uintptr_t)block_alloc(BYTES);
        bytes[0] = bytes[BYTES - 1] = 9;
        assert_int_equal(cuda.cuStreamSynchronize(stream), CUDA_SUCCESS);
        assert_true(bytes[0] == 9 && bytes[BYTES - 1] == 9);
        block_free((CUdeviceptr)(uintptr_t)bytes);
    }
    assert_int_equal(cuda.cuStreamDestroy_v2(stream), CUDA_SUCCESS);
}

/* One handle names a stream for each thread, so libcuda serves it; a block of the cache can be freed on it. */
static void thread_streams_are_left_to_libcuda(void **state)
{
    (void)state;
    CUstream own = (CUstream)CU_STREAM_PER_THREAD;
    CUdeviceptr block = 0;
    assert_int_equal(cuda.cuMemAllocAsync(&block, MIB, own), CUDA_SUCCESS);
    assert_int_equal(fake->plain_blocks, 1);
    assert_int_equal(cuda.cuMemFreeAsync(block, own), CUDA_SUCCESS);
    assert_int_equal(cuda.cuMemAllocAsync_ptsz(&block, MIB, NULL), CUDA_SUCCESS);
    assert_int_equal(fake->plain_blocks, 1);
    block_free(block);
    block = block_alloc(MIB);
    assert_int_equal(cuda.cuMemFreeAsync_ptsz(block, NULL), CUDA_SUCCESS);
    assert_int_equal(fake->plain_blocks, 0);
}

/* Of another context: the cache waits for an event on it, or, if there can be none, the call waits. */
static void foreign_streams_free(void **state)
{
    (void)state;
    CUstream foreign = (CUstream)(uintptr_t)(FAKE_FOREIGN_STREAM + 16);
    CUdeviceptr block = block_alloc(MIB);
    assert_int_equal(cuda.cuMemFreeAsync(block, foreign), CUDA_SUCCESS);
    block = block_alloc(MIB);
    fault_set("cuEventRecord", 400);
    assert_int_equal(cuda.cuMemFreeAsync(block, foreign), CUDA_SUCCESS);
    fault_set("", 0);
    assert_int_equal(cuda.cuMemFree_v2(block), CUDA_ERROR_INVALID_VALUE);
    block = block_alloc(MIB);
    fault_set("cuEventCreate", 2);
    assert_int_equal(cuda.cuMemFreeAsync(block, foreign), CUDA_SUCCESS);
    block = block_alloc(MIB);
    fault_set("cuStreamIsCapturing", 400);
    assert_int_equal(cuda.cuMemFreeAsync(block, foreign), 400);
    fault_set("cuEventRecord", 400);
    assert_int_equal(cuda.cuMemFreeAsync(block, NULL), CUDA_SUCCESS);
    fault_set("", 0);
}

/* Of a green context of the device. */
static void green_streams_are_served(void **state)
{
    (void)state;
    CUstream green = (CUstream)(uintptr_t)(FAKE_GREEN_STREAM + 16);
    CUdeviceptr block = 0;
    assert_int_equal(cuda.cuMemAllocAsync(&block, MIB, green), CUDA_SUCCESS);
    assert_int_equal(fake->plain_blocks, 0);
    assert_int_equal(cuda.cuMemFreeAsync(block, green), CUDA_SUCCESS);
    block = block_alloc(MIB);
    assert_int_equal(cuda.cuMemFreeAsync(block, green), CUDA_SUCCESS);
}

static void named_streams_are_served_in_both_forms(void **state)
{
    (void)state;
    CUstream stream = stream_create();
    CUdeviceptr block = 0;
    assert_int_equal(cuda.cuMemAllocAsync_ptsz(&block, MIB, stream), CUDA_SUCCESS);
    assert_int_equal(fake->plain_blocks, 0);
    assert_int_equal(cuda.cuMemFreeAsync_ptsz(block, stream), CUDA_SUCCESS);
    assert_int_equal(cuda.cuStreamDestroy_v2(stream), CUDA_SUCCESS);
}

static void captures_are_left_to_libcuda(void **state)
{
    (void)state;
    CUstream stream = stream_create();
    CUgraph graph = NULL;
    CUdeviceptr node = 0;
    CUdeviceptr block = block_alloc(32 * MIB);
    assert_int_equal(cuda.cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED),
                     CUDA_SUCCESS);
    assert_int_equal(cuda.cuMemAllocAsync(&node, MIB, stream), CUDA_SUCCESS);
    assert_int_equal(fake->plain_blocks, 1);
    assert_int_equal(cuda.cuMemFreeAsync(block, stream), CUDA_ERROR_INVALID_VALUE);
    fault_set("cuCtxSynchronize", 906); /* it would invalidate the capture */
    block_free(block);                  /* so this waits for the end */
    block_free(block_alloc(MIB));
    assert_int_equal(cuda.cuMemFree_v2(block), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuda.cuMemFreeAsync(block, NULL), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuda.cuMemGetAddressRange_v2(NULL, NULL, block), CUDA_ERROR_INVALID_VALUE);
    fault_set("", 0);
    assert_int_equal(cuda.cuStreamEndCapture(stream, &graph), CUDA_SUCCESS);
    size_t before = free_bytes();
    block_free(block_alloc(MIB));
    assert_int_equal(free_bytes(), before + 33 * MIB);
    assert_int_equal(cuda.cuMemFree_v2(block), CUDA_ERROR_INVALID_VALUE);
    block_free(node);
    assert_int_equal(cuda.cuStreamDestroy_v2(stream), CUDA_SUCCESS);
}

/* libcuda has ended a capture that it calls invalid, and begun none that it refuses. */
static void captures_that_fail_are_over(void **state)
{
    (void)state;
    CUstream stream = stream_create();
    CUgraph graph = NULL;
    CUdeviceptr block = block_alloc(32 * MIB);
    fault_set("cuStreamBeginCapture_v2", 401);
    assert_int_equal(cuda.cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED), 401);
    fault_set("", 0);
    size_t before = free_bytes();
    block_free(block); /* at once */
    assert_int_equal(free_bytes(), before + 32 * MIB);
    block = block_alloc(32 * MIB);
    assert_int_equal(cuda.cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED),
                     CUDA_SUCCESS);
    fault_set("cuStreamEndCapture", CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    assert_int_equal(cuda.cuStreamEndCapture(stream, &graph),
                     CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    fault_set("", 0);
    assert_int_equal(cuda.cuStreamEndCapture(stream, &graph), CUDA_SUCCESS); /* counts once */
    block_free(block);
    assert_int_equal(free_bytes(), before + 32 * MIB);
    assert_int_equal(cuda.cuStreamDestroy_v2(stream), CUDA_SUCCESS);
}

static void capture_begin(CUstream stream)
{
    assert_int_equal(cuda.cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED),
                     CUDA_SUCCESS);
}

/* A free is not kept for the end of a capture. */
static void check_frees_at_once(void)
{
    CUdeviceptr block = block_alloc(32 * MIB);
    size_t before = free_bytes();
    block_free(block);
    assert_int_equal(free_bytes(), before + 32 * MIB);
}

/* Whatever the end of a capture returns, and if its stream ends before it. */
static void captures_end_in_other_ways(void **state)
{
    (void)state;
    CUstream stream = stream_create();
    CUgraph graph = NULL;
    capture_begin(stream);
    fake->capture_result = CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
    assert_int_equal(cuda.cuStreamEndCapture(stream, &graph), CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
    fake->capture_result = 0;
    check_frees_at_once();
    capture_begin(stream);
    assert_int_equal(cuda.cuStreamDestroy_v2(stream), CUDA_SUCCESS);
    check_frees_at_once();
}

/* The end of the cache waits for the device, which breaks the capture. */
static void reset_ends_captures(void **state)
{
    (void)state;
    capture_begin(stream_create());
    assert_int_equal(cuda.cuDevicePrimaryCtxReset_v2(0), CUDA_SUCCESS);
    assert_int_equal(cuda.cuDevicePrimaryCtxRetain(&contexts[0], 0), CUDA_SUCCESS);
    check_frees_at_once();
}

/* ---- Pools ----------------------------------------------------------------------------------- */

static void pool_check(CUmemoryPool pool, uint64_t plain)
{
    CUdeviceptr block = 0;
    assert_int_equal(cuda.cuMemAllocFromPoolAsync(&block, MIB, pool, NULL), CUDA_SUCCESS);
    assert_int_equal(fake->plain_blocks, plain);
    assert_int_equal(cuda.cuMemFreeAsync(block, NULL), CUDA_SUCCESS);
    assert_int_equal(fake->plain_blocks, 0);
}

static void pools_without_handles_are_served(void **state)
{
    (void)state;
    CUmemPoolProps properties = { .allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                                  .location = { .type = CU_MEM_LOCATION_TYPE_DEVICE } };
    CUmemoryPool pool = NULL;
    assert_int_equal(cuda.cuDeviceGetDefaultMemPool(&pool, 0), CUDA_SUCCESS);
    pool_check(pool, 0);
    assert_int_equal(cuda.cuMemPoolCreate(&pool, &properties), CUDA_SUCCESS);
    pool_check(pool, 0);
    assert_int_equal(cuda.cuMemPoolTrimTo(pool, 0), CUDA_SUCCESS);
    assert_int_equal(cuda.cuMemPoolDestroy(pool), CUDA_SUCCESS);
    properties.handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    assert_int_equal(cuda.cuMemPoolCreate(&pool, &properties), CUDA_SUCCESS);
    pool_check(pool, 1);
    assert_int_equal(cuda.cuMemPoolDestroy(pool), CUDA_SUCCESS);
}

static void other_pools_are_left_to_libcuda(void **state)
{
    CUmemPoolProps odd[] = {
        { .allocType = CU_MEM_ALLOCATION_TYPE_INVALID,
          .location = { .type = CU_MEM_LOCATION_TYPE_DEVICE } },
        { .allocType = CU_MEM_ALLOCATION_TYPE_PINNED },
        { .allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
          .location = { .type = CU_MEM_LOCATION_TYPE_DEVICE, .id = -1 } },
        { .allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
          .location = { .type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 1000 } },
        { .allocType = CU_MEM_ALLOCATION_TYPE_PINNED, /* asks for what only newer drivers know */
          .location = { .type = CU_MEM_LOCATION_TYPE_DEVICE } },
#if CUDA_VERSION >= 12020
        { .allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
          .location = { .type = CU_MEM_LOCATION_TYPE_DEVICE },
          .maxSize = 64 * MIB },
#endif
    };
    CUmemoryPool pool = NULL;
    (void)state;
    memset((unsigned char *)&odd[4] + sizeof odd[4] - 1, 1, 1);
    for (unsigned i = 0; i < sizeof odd / sizeof *odd; i++) {
        assert_int_equal(cuda.cuMemPoolCreate(&pool, &odd[i]), CUDA_SUCCESS);
        pool_check(pool, 1);
        assert_int_equal(cuda.cuMemPoolTrimTo(pool, 0), CUDA_SUCCESS);
        assert_int_equal(cuda.cuMemPoolDestroy(pool), CUDA_SUCCESS);
    }
    fault_set("cuMemPoolCreate", 77);
    assert_int_equal(cuda.cuMemPoolCreate(&pool, &odd[0]), 77);
    fault_set("cuMemPoolTrimTo", 77);
    assert_int_equal(cuda.cuMemPoolTrimTo(pool, 0), 77);
    fault_set("", 0);
}

/* ---- Devices, contexts ----------------------------------------------------------------------- */

static void devices_have_caches_of_their_own(void **state)
{
    (void)state;
    CUcontext popped;
    CUdeviceptr first = block_alloc(MIB);
    assert_int_equal(cuda.cuCtxPushCurrent_v2(contexts[1]), CUDA_SUCCESS);
    uint64_t before = fake->taken(1);
    CUdeviceptr second = block_alloc(MIB);
    assert_true(fake->taken(1) > before);
    assert_int_equal(fake->plain_blocks, 0);
    block_free(first); /* of the other device */
    CUdeviceptr third = block_alloc(MIB);
    assert_int_equal(cuda.cuMemFreeAsync(third, NULL), CUDA_SUCCESS);
    assert_int_equal(cuda.cuCtxPopCurrent_v2(&popped), CUDA_SUCCESS);
    assert_int_equal(cuda.cuMemFreeAsync(second, NULL), CUDA_SUCCESS);
}

/* Without a stream, the work is in the order of the current device's default stream, which the cache of another device
 * does not know. */
static void pools_of_other_devices_are_left_to_libcuda(void **state)
{
    CUmemPoolProps properties = { .allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                                  .location = { .type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 1 } };
    CUmemoryPool pool = NULL;
    CUcontext popped;
    (void)state;
    assert_int_equal(cuda.cuMemPoolCreate(&pool, &properties), CUDA_SUCCESS);
    pool_check(pool, 1);
    assert_int_equal(cuda.cuCtxPushCurrent_v2(contexts[1]), CUDA_SUCCESS);
    pool_check(pool, 0);
    assert_int_equal(cuda.cuCtxPopCurrent_v2(&popped), CUDA_SUCCESS);
    assert_int_equal(cuda.cuMemPoolDestroy(pool), CUDA_SUCCESS);
}

static void reset_ends_all_blocks(void **state)
{
    (void)state;
    CUdeviceptr block = block_alloc(MIB);
    assert_true(fake->taken(0) > 0);
    assert_int_equal(cuda.cuDevicePrimaryCtxReset_v2(0), CUDA_SUCCESS);
    assert_int_equal(fake->taken(0), 0);
    assert_int_equal(cuda.cuDevicePrimaryCtxRetain(&contexts[0], 0), CUDA_SUCCESS);
    assert_int_equal(cuda.cuMemFree_v2(block), CUDA_ERROR_INVALID_VALUE);
    block_free(block_alloc(MIB));
    assert_int_equal(fake->plain_blocks, 0);
}

/* A device that refused gets a cache after the reset, which may have ended the reason. */
static void reset_lets_a_device_try_again(void **state)
{
    (void)state;
    assert_int_equal(cuda.cuDevicePrimaryCtxReset_v2(0), CUDA_SUCCESS);
    assert_int_equal(cuda.cuDevicePrimaryCtxRetain(&contexts[0], 0), CUDA_SUCCESS);
    fault_set("cuMemCreate", CUDA_ERROR_LAUNCH_FAILED);
    CUdeviceptr block = block_alloc(MIB);
    assert_int_equal(fake->plain_blocks, 1);
    fault_set("", 0);
    block_free(block);
    block_free(block_alloc(MIB));
    assert_int_equal(fake->plain_blocks, 0);
    assert_int_equal(fake->taken(0), 0); /* still refused */
    assert_int_equal(cuda.cuDevicePrimaryCtxReset_v2(0), CUDA_SUCCESS);
    assert_int_equal(cuda.cuDevicePrimaryCtxRetain(&contexts[0], 0), CUDA_SUCCESS);
    block_free(block_alloc(MIB));
    assert_true(fake->taken(0) > 0);
}

static void own_contexts_are_left_to_libcuda(void **state)
{
    CUresult (*create)(CUcontext *, unsigned, CUdevice);
    void *found = dlsym(RTLD_DEFAULT, "cuCtxCreate_v2");
    CUcontext own = NULL;
    CUcontext popped;
    (void)state;
    assert_non_null(found);
    memcpy(&create, &found, sizeof found);
    assert_int_equal(create(&own, 0, 0), CUDA_SUCCESS);
    fault_set("cuMemAlloc_v2", 77); /* shows that libcuda is asked */
    CUdeviceptr block = 0;
    assert_int_equal(cuda.cuMemAlloc_v2(&block, MIB), 77);
    fault_set("", 0);
    assert_int_equal(cuda.cuCtxPopCurrent_v2(&popped), CUDA_SUCCESS);
}

static void nothing_is_current(void **state)
{
    (void)state;
    CUcontext popped;
    CUdeviceptr block = 0;
    assert_int_equal(cuda.cuCtxPopCurrent_v2(&popped), CUDA_SUCCESS);
    assert_int_equal(cuda.cuMemAlloc_v2(&block, MIB), CUDA_ERROR_INVALID_CONTEXT);
    assert_int_equal(cuda.cuCtxPushCurrent_v2(popped), CUDA_SUCCESS);
}

/* ---- Threads --------------------------------------------------------------------------------- */

/* Checks nothing with cmocka, which is for one thread. */
static void *thread_run(void *failures)
{
    CUstream stream = NULL;
    (void)cuda.cuCtxPushCurrent_v2(contexts[0]);
    (void)cuda.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING);
    for (unsigned i = 0; i < 300; i++) {
        CUdeviceptr block = 0;
        CUdeviceptr other = 0;
        size_t bytes = 1 + (i * 7919) % (3 * MIB);
        bool is_right = cuda.cuMemAlloc_v2(&block, bytes) == CUDA_SUCCESS &&
                        cuda.cuMemAllocAsync(&other, bytes, stream) == CUDA_SUCCESS;
        if (is_right)
            memset((void *)(uintptr_t)block, (int)i, bytes);
        is_right = is_right && cuda.cuMemFreeAsync(other, stream) == CUDA_SUCCESS &&
                   ((unsigned char *)(uintptr_t)block)[bytes - 1] == (unsigned char)i &&
                   cuda.cuMemFree_v2(block) == CUDA_SUCCESS;
        if (!is_right)
            atomic_fetch_add((_Atomic unsigned *)failures, 1);
    }
    (void)cuda.cuStreamDestroy_v2(stream);
    return NULL;
}

static void threads_allocate_at_once(void **state)
{
    enum { THREADS = 4 };
    pthread_t threads[THREADS];
    _Atomic unsigned failures = 0;
    (void)state;
    for (unsigned i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, thread_run, (void *)&failures), 0);
    for (unsigned i = 0; i < THREADS; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    assert_int_equal(failures, 0);
}

/* Asked on device 1. */
struct questions {
    _Atomic bool must_stop;
    _Atomic unsigned asked;
    _Atomic unsigned failures;
};

static void *questions_run(void *argument)
{
    struct questions *questions = argument;
    CUdeviceptr block = 0;
    (void)cuda.cuCtxPushCurrent_v2(contexts[1]);
    (void)cuda.cuMemAlloc_v2(&block, MIB);
    for (; !questions->must_stop; questions->asked++) {
        CUdeviceptr base = 0;
        CUstream stream = NULL;
        bool is_right = cuda.cuMemGetAddressRange_v2(&base, NULL, block + 1024) == CUDA_SUCCESS &&
                        base == block &&
                        cuda.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS &&
                        cuda.cuStreamDestroy_v2(stream) == CUDA_SUCCESS;
        questions->failures += !is_right;
    }
    (void)cuda.cuMemFree_v2(block);
    return NULL;
}

/* Questions about addresses and the ends of streams go to the caches of all devices. */
static void device_is_reset_while_others_work(void **state)
{
    struct questions questions = { .must_stop = false };
    pthread_t thread;
    (void)state;
    assert_int_equal(pthread_create(&thread, NULL, questions_run, &questions), 0);
    for (unsigned i = 0; i < 50 || questions.asked < 50; i++) {
        (void)block_alloc(MIB);
        assert_int_equal(cuda.cuDevicePrimaryCtxReset_v2(0), CUDA_SUCCESS);
        assert_int_equal(cuda.cuDevicePrimaryCtxRetain(&contexts[0], 0), CUDA_SUCCESS);
    }
    questions.must_stop = true;
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(questions.failures, 0);
}

/* ---- dlsym() --------------------------------------------------------------------------------- */

/* RTLD_NEXT begins after the object that calls. If the replacement were seen as the caller, the search would begin
 * after the preload library, which follows this program. */
static void dlsym_knows_its_caller(void **state)
{
    (void)state;
    __typeof__(cuMemAlloc_v2) *linked = cuMemAlloc_v2;
    void *next = dlsym(RTLD_NEXT, "cuMemAlloc_v2");
    void *address;
    memcpy(&address, &linked, sizeof address);
    assert_ptr_equal(next, address);
    assert_null(dlsym(RTLD_DEFAULT, "cuNoSuchFunction"));
    assert_non_null(dlerror());
    assert_non_null(dlsym(RTLD_DEFAULT, "qsort"));
}

static void nothing_was_misused(void **state)
{
    (void)state;
    if (fake->misuses != 0)
        (void)fprintf(stderr, "misuse: %s\n", fake->misuse);
    assert_int_equal(fake->misuses, 0);
    assert_int_equal(fake->plain_blocks, 0);
}

int main(int count, char **arguments)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cache_serves_allocations),
        cmocka_unit_test(small_blocks_do_not_overlap),
        cmocka_unit_test(free_waits_for_the_device),
        cmocka_unit_test(memory_that_runs_out_is_an_error),
        cmocka_unit_test(pitch_is_as_libcuda_makes_it),
        cmocka_unit_test(odd_pitches_are_left_to_libcuda),
        cmocka_unit_test(idle_memory_counts_as_free),
        cmocka_unit_test(idle_memory_is_for_libcuda_too),
        cmocka_unit_test(errors_of_libcuda_pass),
        cmocka_unit_test(addresses_belong_to_their_block),
        cmocka_unit_test(all_attributes_are_right_at_once),
        cmocka_unit_test(other_processes_get_no_handle),
        cmocka_unit_test(streams_allocate_in_order),
        cmocka_unit_test(work_in_flight_keeps_its_memory),
        cmocka_unit_test(thread_streams_are_left_to_libcuda),
        cmocka_unit_test(foreign_streams_free),
        cmocka_unit_test(green_streams_are_served),
        cmocka_unit_test(named_streams_are_served_in_both_forms),
        cmocka_unit_test(captures_are_left_to_libcuda),
        cmocka_unit_test(captures_that_fail_are_over),
        cmocka_unit_test(captures_end_in_other_ways),
        cmocka_unit_test(pools_without_handles_are_served),
        cmocka_unit_test(other_pools_are_left_to_libcuda),
        cmocka_unit_test(devices_have_caches_of_their_own),
        cmocka_unit_test(pools_of_other_devices_are_left_to_libcuda),
        cmocka_unit_test(threads_allocate_at_once),
        cmocka_unit_test(dlsym_knows_its_caller),
        cmocka_unit_test(reset_ends_all_blocks),
        cmocka_unit_test(device_is_reset_while_others_work),
        cmocka_unit_test(reset_lets_a_device_try_again),
        cmocka_unit_test(own_contexts_are_left_to_libcuda),
        cmocka_unit_test(nothing_was_misused),
        cmocka_unit_test(reset_ends_captures),
        cmocka_unit_test(nothing_is_current),
    };
    if (count != 2)
        return 2;
    cuda_start(arguments[1]);
    return cmocka_run_group_tests_name(arguments[1], tests, NULL, NULL);
}
