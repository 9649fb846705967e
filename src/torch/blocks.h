/*
 * What the provider knows of the blocks that it allocated: PyTorch frees a block by its address alone, and a search in
 * the caches would wait for requests of other threads.
 *
 * Owns: a note for each block, in parts by address, so that threads seldom meet. Without host memory a block has no
 * note.
 * May be called by: provider. Locks: each part's own, a leaf.
 */
#ifndef VMM_TORCH_BLOCKS_H
#define VMM_TORCH_BLOCKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct block_note {
    uint64_t requested_bytes;
    int device;
};

/* Adds the note of a block, or replaces the one that its address has. */
void vmm__blocks_put(const void *block, const struct block_note *note);

/* Removes a block's note and returns it in *out; false: it has none. */
bool vmm__blocks_take(const void *block, struct block_note *out);

#endif
