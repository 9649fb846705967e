/*
 * Blocks of PyTorch that other processes use: the members share, share_open and share_close of the provider.
 *
 * A block is exported at its first share, and keeps its export and its token until it is freed; then the token is not
 * valid any more. PyTorch frees a block that it has sent only after the receivers have dropped it.
 *
 * Owns: the exports, by address and by token. Invariants:
 *  1. a block is in both maps from its first share until its free; its export lives as long, and longer only while the
 *     server sends it;
 *  2. TORCH_SHARES is set if a block was ever shared.
 * Called by: hooks, provider; share_server finds exports. Locks: a leaf guards the maps. It is not held while anything is
 * exported, closed or sent.
 */
#ifndef VMM_TORCH_SHARE_H
#define VMM_TORCH_SHARE_H

#include "torch/device.h"

/* See vmm_torch_functions. */
vmm_status vmm__torch_share(const void *address, void *handle, size_t *handle_bytes,
                            uint64_t *offset_bytes);
vmm_status vmm__torch_share_open(const void *handle, size_t handle_bytes, int device, void **out);
vmm_status vmm__torch_share_close(void *ptr);

/* Ends the export of a block that is about to be freed. */
void vmm__torch_share_end(const void *ptr);
static inline void vmm__torch_share_free(const void *ptr)
{
    if ((vmm__torch_mode_now() & TORCH_SHARES) != 0)
        vmm__torch_share_end(ptr);
}

#endif
