/* A pool whose memory another library allocates. */
#include "gpu.h"

#define MIB ((size_t)1 << 20)

/* Stands for a library that allocates memory in its own way, such as ncclMemAlloc() and ncclMemFree(). */
static vmm_cache *library;

static int library_alloc(void **memory, size_t bytes)
{
    return vmm_alloc(library, bytes, NULL, memory) == VMM_OK ? 0 : 1;
}

static void library_free(void *memory)
{
    check(vmm_free(library, memory));
}

/* [functions] */
static void *segment_alloc(void *context, size_t bytes, vmm_stream stream)
{
    void *segment = NULL;
    unsigned *segments = context;
    (void)stream; /* the memory is ready for all streams */
    if (library_alloc(&segment, bytes) != 0)
        return NULL; /* out of memory */
    ++*segments;
    return segment;
}

static void segment_free(void *context, void *segment, size_t bytes)
{
    unsigned *segments = context;
    (void)bytes;
    library_free(segment);
    --*segments;
}
/* [end] */

static vmm_pool *create_pool(vmm_cache *cache, unsigned *segments)
{
    vmm_pool *pool;
    /* [pool] */
    vmm_pool_options options = VMM_POOL_OPTIONS_INIT;
    options.name = "registered";
    options.source.alloc = segment_alloc;
    options.source.free = segment_free;
    options.source.context = segments;
    options.source.segment_bytes = 64 * MIB; /* room for many blocks: each call is slow */
    check(vmm_pool_create(cache, &options, &pool));
    /* [end] */
    return pool;
}

int main(void)
{
    unsigned segments = 0;
    vmm_cache *cache;
    void *first;
    void *second;
    check(vmm_create(NULL, &library));
    check(vmm_create(NULL, &cache));
    vmm_stream stream = gpu_stream_create();
    vmm_pool *pool = create_pool(cache, &segments);
    check(vmm_alloc_from(pool, 20 * MIB, stream, &first));
    check(vmm_alloc_from(pool, 30 * MIB, stream, &second));
    EXPECT(segments == 1);
    gpu_fill(first, 1, 20 * MIB, stream);
    EXPECT(gpu_byte(first, stream) == 1);
    check(vmm_free(cache, first));
    check(vmm_free(cache, second));
    check(vmm_wait(cache));
    check(vmm_pool_trim(pool, 0, NULL)); /* gives the segment back */
    EXPECT(segments == 0);
    check(vmm_pool_destroy(pool, 0));
    check(vmm_destroy(cache));
    check(vmm_destroy(library));
    gpu_stream_destroy(stream);
    return 0;
}
