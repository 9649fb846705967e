/* Records of shares: see share.h. */
#include "cache/share/share.h"
#include "base/error.h"
#include "base/fork.h"
#include "base/handle.h"
#include "base/hostmem.h"

#include <unistd.h>

static size_t record_bytes(uint32_t count)
{
    return sizeof(struct share) + count * sizeof(struct shared_chunk);
}

vmm_status vmm__share_open(const char *function, uint32_t count, struct share **out)
{
    struct share *share = vmm__host_alloc(1, record_bytes(count));
    if (share == NULL)
        return vmm__error(VMM_ERR_HOST_OOM, "%s: no host memory for the share", function);
    share->generation = vmm__fork_generation();
    share->head.count = count;
    share->handle = vmm__handle_open(HANDLE_SHARE, share);
    if (share->handle == NULL) {
        vmm__share_close(share);
        return vmm__error(VMM_ERR_HOST_OOM, "%s: the process has no handle left for another share",
                          function);
    }
    *out = share;
    return VMM_OK;
}

vmm_status vmm__share_chunk_open(const char *function, struct shared_chunk *shared)
{
    struct chunk_export *exported = vmm__host_alloc(1, sizeof *exported);
    if (exported == NULL)
        return vmm__error(VMM_ERR_HOST_OOM, "%s: no host memory for a chunk of the share",
                          function);
    atomic_init(&exported->shares, 1);
    exported->descriptor = NO_DESCRIPTOR;
    shared->exported = exported;
    return VMM_OK;
}

void vmm__share_chunk_close(struct shared_chunk *shared)
{
    struct chunk_export *exported = shared->exported;
    shared->exported = NULL;
    if (exported == NULL ||
        atomic_fetch_sub_explicit(&exported->shares, 1, memory_order_acq_rel) != 1)
        return;
    if (exported->descriptor != NO_DESCRIPTOR)
        (void)close(exported->descriptor);
    vmm__host_free(exported, sizeof *exported);
}

void vmm__share_close(struct share *share)
{
    if (share->handle != NULL)
        (void)vmm__handle_close(share->handle);
    for (uint32_t i = 0; i < share->head.count; i++)
        vmm__share_chunk_close(&share->chunks[i]);
    vmm__host_free(share, record_bytes(share->head.count));
}

uint64_t vmm__share_memory_bytes(const struct share *share)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < share->head.count; i++)
        bytes += share->chunks[i].bytes;
    return bytes;
}
