/* A key-value cache that grows at one address: addresses for the longest context, memory for the tokens there are. */
#include "gpu.h"

#include <stdint.h>

enum { UNIT_BYTES = 16 << 20, TOKEN_BYTES = 64 << 10 };

/* [kv] */
/* The keys and values of one sequence, at one address for as long as it lives. */
struct kv {
    char *base;
    size_t bytes;     /* of its tokens */
    size_t committed; /* with memory: whole units */
};

static vmm_status kv_begin(vmm_cache *cache, struct kv *kv, size_t longest, vmm_stream stream)
{
    void *base;
    vmm_pool *pool = vmm_cache_pool(cache);
    vmm_status status = vmm_reserve(pool, longest, UNIT_BYTES, stream, &base);
    if (status == VMM_OK)
        *kv = (struct kv){ .base = base };
    return status;
}

/* Makes room for more tokens. Nothing is copied, and kernels keep the address that they have. */
static vmm_status kv_grow(vmm_cache *cache, struct kv *kv, size_t bytes)
{
    size_t needed = (kv->bytes + bytes + UNIT_BYTES - 1) / UNIT_BYTES * UNIT_BYTES;
    if (needed > kv->committed) {
        vmm_status status = vmm_commit(cache, kv->base, kv->committed, needed - kv->committed);
        if (status != VMM_OK)
            return status; /* nothing has changed: end another sequence, and try again */
        kv->committed = needed;
    }
    kv->bytes += bytes;
    return VMM_OK;
}

/* Drops the tokens behind the first `bytes`. Work that was submitted before may still use them. */
static void kv_shorten(vmm_cache *cache, struct kv *kv, size_t bytes)
{
    size_t keep = (bytes + UNIT_BYTES - 1) / UNIT_BYTES * UNIT_BYTES;
    check(vmm_decommit(cache, kv->base, keep, kv->committed - keep));
    kv->bytes = bytes;
    kv->committed = keep;
}
/* [end] */

static uint64_t reserved_bytes(vmm_cache *cache)
{
    vmm_stats stats = VMM_STATS_INIT;
    check(vmm_stats_get(cache, &stats));
    return stats.reserved_bytes.current;
}

/* Appends tokens until memory ends. Returns how many. */
static size_t kv_fill(vmm_cache *cache, struct kv *kv, vmm_stream stream)
{
    size_t tokens = 0;
    vmm_status status;
    while ((status = kv_grow(cache, kv, TOKEN_BYTES)) == VMM_OK)
        gpu_fill(kv->base + TOKEN_BYTES * tokens++, 7, TOKEN_BYTES, stream);
    if (status != VMM_ERR_DEVICE_OOM)
        check(status);
    return tokens;
}

int main(void)
{
    vmm_config config = VMM_CONFIG_INIT;
    vmm_cache *cache;
    struct kv kv = { .base = NULL };
    config.limit_bytes = 128 << 20;
    check(vmm_create(&config, &cache));
    vmm_stream stream = gpu_stream_create();
    check(kv_begin(cache, &kv, (size_t)8 << 30, stream));
    size_t tokens = kv_fill(cache, &kv, stream);
    EXPECT(tokens == (128 << 20) / TOKEN_BYTES);
    EXPECT(gpu_byte(kv.base, stream) == 7);
    kv_shorten(cache, &kv, 20 << 20);
    check(vmm_wait(cache));
    check(vmm_poll(cache));
    EXPECT(reserved_bytes(cache) == 2 * UNIT_BYTES);
    EXPECT(gpu_byte(kv.base + kv.bytes - 1, stream) == 7);
    check(vmm_free(cache, kv.base));
    check(vmm_stream_end(cache, stream));
    gpu_stream_destroy(stream);
    check(vmm_destroy(cache));
    return 0;
}
