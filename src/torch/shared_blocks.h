/*
 * The blocks that other processes may open.
 *
 * A block is exported at its first share, and keeps its export and its token until it is freed; then the token is not
 * valid any more. PyTorch frees a block that it has sent only after the receivers have dropped it.
 *
 * Owns: the exports, by address and by token. Invariants:
 *  1. a block is in both maps from its first share until its free; its export lives as long, and longer only while the
 *     server sends it;
 *  2. TORCH_SHARES is set if a block was ever shared.
 * May be called by: hooks, share, share_server. Locks: a leaf guards the maps. It is not held while anything is
 * exported, closed or sent.
 */
#ifndef VMM_TORCH_SHARED_BLOCKS_H
#define VMM_TORCH_SHARED_BLOCKS_H

#include "torch/device.h"
#include "torch/share_socket.h"

struct shared_block;

/* The token of the live block at an address; exports the block at the first call. Errors: as vmm_share_export(), but
 * ERR_UNSUPPORTED if the device's blocks cannot be shared. */
vmm_status vmm__shared_block_token(const struct torch_device *device, uint64_t address,
                                   struct share_token *token);

/* Finds the export of a token, and keeps it from being closed until the end of the send. NULL: there is none. */
struct shared_block *vmm__shared_block_send_begin(const struct share_token *token,
                                                  vmm_share **share);
void vmm__shared_block_send_end(struct shared_block *block);

/* Ends the export of a block that is about to be freed, if it has one. */
void vmm__shared_block_drop(const void *ptr);

#endif
