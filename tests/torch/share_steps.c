/* Steps of tests in which processes share memory: see share_steps.h. */
#define _GNU_SOURCE
#include "torch/share_steps.h"

#include <poll.h>
#include <string.h>

const vmm_torch_functions *torch;

void torch_open(vmm_switch shareable)
{
    vmm_config config =
        CONFIG(.driver = VMM_DRIVER_HOST, .device_bytes = 256 * MIB, .shareable = shareable);
    CHILD_REQUIRES(vmm_torch_configure(&config) == VMM_OK);
    torch = vmm_torch_provider();
}

unsigned char *block_make(size_t bytes, int byte)
{
    void *block = NULL;
    CHILD_REQUIRES(torch->allocate(bytes, 0, NULL, &block) == VMM_OK);
    memset(block, byte, bytes);
    return block;
}

void block_drop(void *block)
{
    vmm_torch_freed freed;
    assert_ok(torch->release(block, &freed));
}

struct share_handle handle_of(const void *address, uint64_t offset)
{
    struct share_handle handle;
    size_t bytes = sizeof handle;
    uint64_t got = UINT64_MAX;
    CHILD_REQUIRES(torch->share(address, &handle, &bytes, &got) == VMM_OK);
    CHILD_REQUIRES(bytes == sizeof handle && got == offset);
    return handle;
}

unsigned char *handle_open(const struct share_handle *handle)
{
    void *opened = NULL;
    CHILD_REQUIRES(torch->share_open(handle, sizeof *handle, 0, &opened) == VMM_OK);
    return opened;
}

vmm_status open_status(const void *handle, size_t bytes)
{
    void *opened = NULL;
    vmm_status status = torch->share_open(handle, bytes, 0, &opened);
    assert_null(opened);
    assert_null(strchr(vmm_last_error(), '\n'));
    return status;
}

bool bytes_are(const unsigned char *bytes, size_t count, int byte)
{
    for (size_t i = 0; i < count; i++) {
        if (bytes[i] != byte)
            return false;
    }
    return true;
}

/* Waits until no more descriptors are open than before. The server's thread may close a connection late: one that was
 * open before, too. */
void descriptors_are_closed(int before)
{
    int open = descriptors_open();
    for (int i = 0; i < 1000 && open > before; i++) {
        (void)poll(NULL, 0, 10);
        open = descriptors_open();
    }
    assert_in_range(open, 0, before);
}

vmm_stats stats_of(void)
{
    vmm_stats stats = VMM_STATS_INIT;
    vmm_torch_stats kinds = { 0 };
    assert_ok(torch->stats_get(0, &stats, &kinds));
    return stats;
}

/* A block that is freed while the server's thread sends it is active a little longer; memory that is closed while
 * another thread uses the cache is unmapped by a later poll. */
void all_is_freed(void)
{
    vmm_stats stats = stats_of();
    for (int i = 0; i < 1000; i++) {
        if (stats.active_bytes.current == stats.allocated_bytes.current &&
            stats.imported_bytes == 0)
            return;
        (void)poll(NULL, 0, 10);
        assert_ok(vmm_poll(vmm_torch_cache(0)));
        stats = stats_of();
    }
    assert_int_equal(stats.active_bytes.current, stats.allocated_bytes.current);
    assert_int_equal(stats.imported_bytes, 0);
}
