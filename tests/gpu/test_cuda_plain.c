/* Plain memory of the cuda driver, on a fake libcuda that allocates host memory. */
#define _GNU_SOURCE
#include "api/create_on.h"
#include "base/time.h"
#include "driver/cuda/internal.h"
#include "support/cache_support.h"

#include <string.h>
#include <sys/mman.h>

#define GRANULE (2 * MIB)
#define FREE    (160 * MIB)
#define DEVICE  (32 * MIB)

enum { BLOCKS = 200, ROUNDS = 20000 };

/* ---- The fake libcuda ------------------------------------------------------------------------ */

static uint64_t allocated_bytes; /* by cuMemAlloc */
static uint64_t offset_bytes;    /* of allocations from the start of a granule */
static unsigned calls;

static CUresult memory_allocate(CUdeviceptr *address, size_t bytes)
{
    calls++;
    if (bytes > FREE)
        return CUDA_ERROR_OUT_OF_MEMORY;
    char *memory = mmap(NULL, bytes + 2 * GRANULE, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    assert_ptr_not_equal(memory, MAP_FAILED);
    uint64_t aligned = ((uint64_t)(uintptr_t)memory + GRANULE - 1) / GRANULE * GRANULE;
    *address = aligned + offset_bytes; /* the mapping stays until the process ends */
    allocated_bytes = bytes;
    return CUDA_SUCCESS;
}

static CUresult memory_free(CUdeviceptr address)
{
    assert_true(address != 0);
    allocated_bytes = 0;
    return CUDA_SUCCESS;
}

static CUresult memory_info(size_t *free_bytes, size_t *total_bytes)
{
    *free_bytes = FREE;
    *total_bytes = 2 * FREE;
    return CUDA_SUCCESS;
}

static CUresult context_get(CUcontext *context)
{
    *context = NULL; /* the context of the driver below */
    return CUDA_SUCCESS;
}

static CUresult mode_exchange(CUstreamCaptureMode *mode)
{
    (void)mode;
    return CUDA_SUCCESS;
}

static CUresult text_get(CUresult result, const char **text)
{
    (void)result;
    *text = "a result of this test";
    return CUDA_SUCCESS;
}

static const struct cuda_api api = {
    .cuMemAlloc_v2 = memory_allocate,
    .cuMemFree_v2 = memory_free,
    .cuMemGetInfo_v2 = memory_info,
    .cuCtxGetCurrent = context_get,
    .cuThreadExchangeStreamCaptureMode = mode_exchange,
    .cuGetErrorName = text_get,
    .cuGetErrorString = text_get,
};

/* ---- The rest of the driver: all work finishes at once --------------------------------------- */

static vmm_status event_create(struct driver *driver, void **event)
{
    *event = driver;
    return VMM_OK;
}

static vmm_status event_done(struct driver *driver, void *event)
{
    (void)driver;
    (void)event;
    return VMM_OK;
}

static vmm_status event_record(struct driver *driver, void *event, vmm_stream stream)
{
    (void)stream;
    return event_done(driver, event);
}

static vmm_status stream_wait(struct driver *driver, vmm_stream stream, void *event)
{
    return event_record(driver, event, stream);
}

static vmm_status device_wait(struct driver *driver)
{
    (void)driver;
    return VMM_OK;
}

static vmm_status capture_get(struct driver *driver, const vmm_stream *streams, unsigned count,
                              bool *is_capturing)
{
    (void)driver;
    (void)streams;
    (void)count;
    *is_capturing = false;
    return VMM_OK;
}

static const struct driver_ops ops = {
    .name = "cuda",
    .event_create = event_create,
    .event_destroy = event_done,
    .event_record = event_record,
    .clock_record = event_done,
    .event_query = event_done,
    .event_wait = event_done,
    .stream_wait = stream_wait,
    .device_wait = device_wait,
    .capturing = capture_get,
};

static struct cuda_driver cuda;

static struct driver *plain_start(uint64_t device_bytes)
{
    memset(&cuda, 0, sizeof cuda);
    cuda.api = &api;
    cuda.base.granule_bytes = GRANULE;
    cuda.base.total_bytes = FREE;
    cuda.base.has_clock = true;
    assert_ok(vmm__cuda_plain_begin(&cuda, &ops, device_bytes));
    assert_true(cuda.base.is_plain);
    return &cuda.base;
}

/* ---- Addresses ------------------------------------------------------------------------------- */

TEST(addresses_are_one_allocation)
{
    struct driver *driver = plain_start(DEVICE);
    uint64_t address = 0;
    uint64_t other = 0;
    calls = 0;
    assert_ok(vmm__driver_reserve(driver, 2 * DEVICE, 0, &address));
    assert_int_equal(calls, 1);
    assert_int_equal(allocated_bytes, 2 * DEVICE);
    assert_int_equal(address, cuda.plain_allocation); /* where an NVTX heap must start */
    assert_int_equal(address % GRANULE, 0);
    assert_status(vmm__driver_reserve(driver, GRANULE, 0, &other), VMM_ERR_ADDRESS_SPACE);
    assert_ok(vmm__driver_address_free(driver, address, 2 * DEVICE));
    assert_int_equal(allocated_bytes, 0);
}

TEST(unaligned_allocation_is_enlarged)
{
    struct driver *driver = plain_start(DEVICE);
    uint64_t address = 0;
    offset_bytes = 512;
    assert_ok(vmm__driver_reserve(driver, 2 * DEVICE, 0, &address));
    offset_bytes = 0;
    assert_int_equal(allocated_bytes, 2 * DEVICE + GRANULE);
    assert_int_equal(address % GRANULE, 0);
    assert_true(address >= cuda.plain_allocation);
    assert_ok(vmm__driver_address_free(driver, address, 2 * DEVICE));
}

TEST(request_beyond_the_device_is_refused)
{
    uint64_t address = 7;
    struct driver *driver = plain_start(DEVICE);
    assert_status(vmm__driver_reserve(driver, 2 * DEVICE + GRANULE, 0, &address),
                  VMM_ERR_ADDRESS_SPACE);
    driver = plain_start(FREE); /* twice as many addresses are more than the device has */
    assert_status(vmm__driver_reserve(driver, 2 * FREE, 0, &address), VMM_ERR_ADDRESS_SPACE);
    assert_int_equal(address, 7);
    assert_int_equal(cuda.plain_allocation, 0);
}

/* ---- Memory ---------------------------------------------------------------------------------- */

TEST(handles_are_counted)
{
    struct driver *driver = plain_start(DEVICE);
    uint64_t free_bytes = 0;
    uint64_t total_bytes = 0;
    uint64_t one = 0;
    uint64_t other = 0;
    assert_ok(vmm__driver_create(driver, DEVICE - GRANULE, false, &one));
    assert_status(vmm__driver_create(driver, 2 * GRANULE, false, &other), VMM_ERR_DEVICE_OOM);
    assert_status(vmm__driver_create(driver, UINT64_MAX - GRANULE + 1, false, &other),
                  VMM_ERR_DEVICE_OOM);
    assert_ok(vmm__driver_create(driver, GRANULE, false, &other));
    assert_true(one != 0 && other != 0 && one != other);
    assert_ok(vmm__driver_memory_info(driver, &free_bytes, &total_bytes));
    assert_int_equal(free_bytes, 0);
    assert_int_equal(total_bytes, DEVICE);
    assert_ok(vmm__driver_release(driver, one, DEVICE - GRANULE));
    assert_ok(vmm__driver_memory_info(driver, &free_bytes, &total_bytes));
    assert_int_equal(free_bytes, DEVICE - GRANULE);
}

TEST(default_size_is_most_of_free_memory)
{
    assert_int_equal(plain_start(0)->total_bytes, FREE / 4 * 3 / 2);
    assert_int_equal(plain_start(GRANULE + 1)->total_bytes, GRANULE);
    assert_status(vmm__cuda_plain_begin(&cuda, &ops, GRANULE - 1), VMM_ERR_DEVICE_OOM);
}

/* ---- A cache --------------------------------------------------------------------------------- */

struct written {
    unsigned char *address;
    size_t bytes;
    unsigned char byte;
};

static void block_verify(const struct written *block)
{
    assert_int_equal(block->address[0], block->byte);
    assert_int_equal(memcmp(block->address, block->address + 1, block->bytes - 1), 0);
}

static void block_toggle(vmm_cache *cache, struct written *block, uint64_t *seed)
{
    if (block->address != NULL) {
        block_verify(block);
        assert_ok(vmm_free(cache, block->address));
        block->address = NULL;
        return;
    }
    void *address;
    block->bytes = 1 + random_next(seed) % (random_next(seed) % 8 == 0 ? 3 * MIB : 30000);
    vmm_stream stream = (vmm_stream)(uintptr_t)(16 + random_next(seed) % 4); /* NOLINT */
    vmm_status status = vmm_alloc(cache, block->bytes, stream, &address);
    if (status == VMM_ERR_DEVICE_OOM)
        return;
    assert_ok(status);
    block->address = address;
    block->byte = (unsigned char)random_next(seed);
    memset(address, block->byte, block->bytes);
}

/* Each block keeps its contents while chunks move. */
TEST(cache_works_on_plain_memory)
{
    static struct written blocks[BLOCKS];
    struct driver *driver = plain_start(DEVICE);
    vmm_cache *cache;
    uint64_t seed = 5;
    assert_ok(vmm__cache_create_on(NULL, driver, &cache));
    assert_int_equal(allocated_bytes, 2 * DEVICE);
    for (unsigned i = 0; i < ROUNDS; i++) {
        block_toggle(cache, &blocks[random_next(&seed) % BLOCKS], &seed);
        if (i % 512 == 0)
            assert_ok(vmm_trim(cache, 0, NULL));
    }
    assert_ok(vmm__cache_check(cache));
    vmm_stats stats = VMM_STATS_INIT;
    assert_ok(vmm_stats_get(cache, &stats));
    assert_int_equal(stats.map_calls,
                     stats.create_calls); /* no views: they need a second address */
    assert_ok(vmm_destroy(cache));
    assert_int_equal(allocated_bytes, 0);
    assert_int_equal(cuda.plain_bytes, 0);
    assert_int_equal(driver->handles, 0);
}
