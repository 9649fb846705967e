/* Key-value caches that grow: a table of pages, and one contiguous block. */
#include "gpu.h"

enum { PAGE_BYTES = 2 << 20, PAGES_MOST = 64, SEQUENCES = 8 };

/* [pages] */
struct sequence {
    unsigned count;
    void *pages[PAGES_MOST];
};

/* Adds a page. The pages of a sequence need not be neighbours: kernels get the table. */
static vmm_status sequence_grow(vmm_cache *cache, struct sequence *sequence, vmm_stream stream)
{
    vmm_status status = vmm_alloc(cache, PAGE_BYTES, stream, &sequence->pages[sequence->count]);
    if (status == VMM_OK)
        sequence->count++;
    return status;
}

static void sequence_end(vmm_cache *cache, struct sequence *sequence)
{
    while (sequence->count > 0)
        check(vmm_free(cache, sequence->pages[--sequence->count]));
}
/* [end] */

/* [contiguous] */
/* Moves a block to a larger one. Work that uses the old address comes earlier on the same stream. */
static vmm_status grow(vmm_cache *cache, void **block, size_t *bytes, vmm_stream stream)
{
    void *larger;
    vmm_status status = vmm_alloc(cache, 2 * *bytes, stream, &larger);
    if (status != VMM_OK)
        return status; /* the old block is as it was */
    gpu_copy(larger, *block, *bytes, stream);
    check(vmm_free(cache, *block)); /* reused only after the copy, in stream order */
    *block = larger;
    *bytes *= 2;
    return VMM_OK;
}
/* [end] */

/* Each sequence gets a page in turn; when memory ends, the oldest sequence ends. Returns how many ended. */
static unsigned serve(vmm_cache *cache, vmm_stream stream)
{
    struct sequence sequences[SEQUENCES] = { { 0 } };
    unsigned ended = 0;
    for (unsigned turn = 0; turn < SEQUENCES * PAGES_MOST / 2; turn++) {
        struct sequence *grown = &sequences[turn % SEQUENCES];
        vmm_status status;
        while ((status = sequence_grow(cache, grown, stream)) == VMM_ERR_DEVICE_OOM)
            sequence_end(cache, &sequences[ended++ % SEQUENCES]);
        check(status);
        gpu_fill(grown->pages[grown->count - 1], 1, PAGE_BYTES, stream);
    }
    for (unsigned i = 0; i < SEQUENCES; i++)
        sequence_end(cache, &sequences[i]);
    return ended;
}

static void grow_to(vmm_cache *cache, size_t most, vmm_stream stream)
{
    size_t bytes = PAGE_BYTES;
    void *block;
    check(vmm_alloc(cache, bytes, stream, &block));
    gpu_fill(block, 9, bytes, stream);
    while (bytes < most)
        check(grow(cache, &block, &bytes, stream));
    EXPECT(gpu_byte((char *)block + PAGE_BYTES - 1, stream) == 9);
    check(vmm_free(cache, block));
}

int main(void)
{
    vmm_config config = VMM_CONFIG_INIT;
    vmm_cache *cache;
    config.limit_bytes = 256 << 20;
    check(vmm_create(&config, &cache));
    vmm_stream stream = gpu_stream_create();
    EXPECT(serve(cache, stream) > 0);
    grow_to(cache, 128 << 20, stream);
    check(vmm_stream_end(cache, stream));
    gpu_stream_destroy(stream);
    check(vmm_destroy(cache));
    return 0;
}
