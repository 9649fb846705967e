#include <stdio.h>
#include <string.h>
#include <vmmcache/vmmcache.h>

int main(void)
{
    vmm_config config = VMM_CONFIG_INIT;
    size_t bytes = 64 << 20;
    vmm_cache *cache = NULL;
    void *block = NULL;

    config.driver = VMM_DRIVER_HOST; /* runs anywhere; VMM_DRIVER_CUDA is the GPU */
    if (vmm_create(&config, &cache) || vmm_alloc(cache, bytes, NULL, &block))
        fprintf(stderr, "%s\n", vmm_last_error());
    if (block != NULL)
        memset(block, 1, bytes); /* on a GPU: launch kernels on the default stream */
    if (cache != NULL) {
        vmm_free(cache, block);   /* kept: the next vmm_alloc() costs no driver call */
        vmm_trim(cache, 0, NULL); /* given back; live blocks would stay */
        vmm_summary_write(cache, stdout);
    }
    vmm_destroy(cache);
    return block == NULL;
}
