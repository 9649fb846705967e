#include <string.h>
#include <vmmcache/vmmcache.h>

int main(void)
{
    vmm_config config = VMM_CONFIG_INIT;
    size_t bytes = 64 << 20;
    vmm_cache *cache;
    void *block;

    config.driver = VMM_DRIVER_HOST; /* runs anywhere; VMM_DRIVER_CUDA is the GPU */
    if (vmm_create(&config, &cache) || vmm_alloc(cache, bytes, NULL, &block)) {
        fprintf(stderr, "%s\n", vmm_last_error());
        return 1;
    }
    memset(block, 1, bytes);  /* on a GPU: launch kernels on the default stream */
    vmm_free(cache, block);   /* kept: the next vmm_alloc() costs no driver call */
    vmm_trim(cache, 0, NULL); /* given back; live blocks would stay */
    vmm_summary_write(cache, stdout);
    return vmm_destroy(cache);
}
