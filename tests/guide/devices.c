/* A cache for each device, whose memory the other devices can read and write. */
#include "gpu.h"

enum { DEVICES_MOST = 8 };

/* [devices] */
/* Makes a cache for each device; returns how many there are. */
static int create_all(vmm_cache **caches)
{
    for (int device = 0; device < DEVICES_MOST; device++) {
        vmm_config config = VMM_CONFIG_INIT;
        config.device = device;
        config.peer_devices =
            UINT64_MAX; /* every device that can; ordinals beyond the last are ignored */
        vmm_status status = vmm_create(&config, &caches[device]);
        if (status == VMM_ERR_NO_DEVICE)
            return device;
        check(status);
    }
    return DEVICES_MOST;
}
/* [end] */

int main(void)
{
    vmm_cache *caches[DEVICES_MOST];
    int count = create_all(caches);
    EXPECT(count > 0);
    for (int i = 0; i < count; i++) {
        void *block;
        check(vmm_alloc(caches[i], 1 << 20, NULL, &block));
        check(vmm_free(caches[i], block));
    }
    for (int i = 0; i < count; i++)
        check(vmm_destroy(caches[i]));
    return 0;
}
