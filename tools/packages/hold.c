/* A program to look at: holds a block on the host driver until the end of its standard input. */
#include <stdio.h>
#include <vmmcache/vmmcache.h>

int main(void)
{
    vmm_config config = VMM_CONFIG_INIT;
    vmm_cache *cache = NULL;
    void *block = NULL;

    config.driver = VMM_DRIVER_HOST;
    if (vmm_create(&config, &cache) || vmm_alloc(cache, 8 << 20, NULL, &block)) {
        fprintf(stderr, "%s\n", vmm_last_error());
        return 1;
    }
    while (getchar() != EOF)
        continue;
    return vmm_free(cache, block) || vmm_destroy(cache);
}
