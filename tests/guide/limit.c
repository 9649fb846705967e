/* A limit, and what to do when it is reached. */
#include "gpu.h"

enum { SAMPLE_BYTES = 8 << 20 };

/* [limit] */
static vmm_cache *create_limited(void)
{
    vmm_config config = VMM_CONFIG_INIT;
    vmm_cache *cache;
    config.limit_bytes = 256 << 20;
    check(vmm_create(&config, &cache));
    return cache;
}
/* [end] */

/* [smaller] */
/* Takes a batch of as many samples as fit; returns how many. */
static unsigned batch_alloc(vmm_cache *cache, unsigned samples, vmm_stream stream, void **batch)
{
    for (; samples > 0; samples /= 2) {
        vmm_status status = vmm_alloc(cache, (size_t)samples * SAMPLE_BYTES, stream, batch);
        if (status == VMM_OK)
            return samples;
        if (status != VMM_ERR_DEVICE_OOM)
            check(status); /* a lost device, a driver error: smaller batches do not help */
        (void)fprintf(stderr, "%u samples: %s\n", samples, vmm_last_error());
    }
    return 0;
}
/* [end] */

int main(void)
{
    vmm_cache *cache = create_limited();
    vmm_stream stream = gpu_stream_create();
    void *batch;
    EXPECT(batch_alloc(cache, 100, stream, &batch) == 25);
    gpu_fill(batch, 1, 25 * (size_t)SAMPLE_BYTES, stream);
    EXPECT(gpu_byte(batch, stream) == 1);
    check(vmm_free(cache, batch));
    check(vmm_limit_set(cache, 64 << 20));
    check(vmm_wait(cache));
    check(vmm_trim(cache, 64 << 20, NULL)); /* a lower limit gives nothing back by itself */
    EXPECT(batch_alloc(cache, 25, stream, &batch) == 6);
    check(vmm_destroy(cache));
    gpu_stream_destroy(stream);
    return 0;
}
