/*
 * Memory that processes share: the members share, share_open and share_close of vmm_torch_functions.
 *
 * Owns: nothing. May be called by: provider. Locks: none of its own.
 */
#ifndef VMM_TORCH_SHARE_H
#define VMM_TORCH_SHARE_H

#include "vmmcache/vmmcache.h"

vmm_status vmm__torch_share(const void *address, void *handle, size_t *handle_bytes,
                            uint64_t *offset_bytes);
vmm_status vmm__torch_share_open(const void *handle, size_t handle_bytes, int device, void **out);
vmm_status vmm__torch_share_close(void *ptr);

#endif
