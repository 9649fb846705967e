/*
 * Figures of one device that tell small requests from large ones, as PyTorch does.
 *
 * Owns: the figures. Invariants:
 *  1. active = allocated + what was freed and is still used by other streams, but for what has come free
 *     since the figures were last changed or read;
 *  2. `reserved` changes with the cache's changes only, which come with the cache's locks held: it is
 *     atomic, all else is under the lock.
 * May be called by: torch. Locks: its own, which is a leaf; the functions for changes take none.
 */
#ifndef VMM_TORCH_FIGURES_H
#define VMM_TORCH_FIGURES_H

#include "base/biased.h"
#include "base/figure.h"
#include "vmmcache/torch.h"

#define VMM_TORCH_SMALL_BYTES (UINT64_C(1) << 20) /* the largest small request */

enum { TORCH_SMALL, TORCH_LARGE, TORCH_KINDS };

static inline int vmm__torch_kind(uint64_t requested_bytes)
{
    return requested_bytes <= VMM_TORCH_SMALL_BYTES ? TORCH_SMALL : TORCH_LARGE;
}

/* Blocks that other streams used and that have come free. */
struct returned {
    _Atomic uint64_t bytes;
    _Atomic uint64_t blocks;
};

struct figures {
    struct biased_lock lock;
    vmm_torch_kind_figures kinds[TORCH_KINDS]; /* but for reserved_bytes */
    struct figure reserved[TORCH_KINDS];
    vmm_figure reserved_before[TORCH_KINDS]; /* the last reset of what was accumulated */
    struct returned returned[TORCH_KINDS];   /* not subtracted from `kinds` yet */
    _Atomic bool has_returned;
};

void vmm__figures_init(struct figures *figures);

/* A request was served by a block of so many bytes; and taken back. `waits`: other streams use it. */
void vmm__figures_take(struct figures *figures, uint64_t requested_bytes, uint64_t block_bytes);
void vmm__figures_give(struct figures *figures, uint64_t requested_bytes, uint64_t block_bytes,
                       bool waits);

/* What a change says of figures. */
void vmm__figures_change(struct figures *figures, const vmm_change *change);

void vmm__figures_read(struct figures *figures, vmm_torch_figures *out);
void vmm__figures_reset(struct figures *figures, bool accumulated);

#endif
