/*
 * Statistics of one device, separate for small and large requests, as PyTorch reports them.
 *
 * Owns: the statistics. Invariants:
 *  1. active = allocated + blocks that were freed and that other streams still use; blocks released by those
 *     streams since the last change or read are subtracted at the next one (`returned`);
 *  2. `reserved` and `returned` change in vmm__torch_stats_change() only, which the cache calls with its own locks
 *     held: they are atomic. The lock guards all other fields.
 * May be called by: torch. Locks: its own, a leaf; vmm__torch_stats_change() takes none.
 */
#ifndef VMM_TORCH_STATS_H
#define VMM_TORCH_STATS_H

#include "base/biased.h"
#include "base/stat.h"
#include "vmmcache/torch.h"

#define VMM_TORCH_SMALL_BYTES (UINT64_C(1) << 20) /* the largest small request */

enum { TORCH_SMALL, TORCH_LARGE, TORCH_KINDS };

static inline int vmm__torch_kind(uint64_t requested_bytes)
{
    return requested_bytes <= VMM_TORCH_SMALL_BYTES ? TORCH_SMALL : TORCH_LARGE;
}

/* Blocks that were freed while other streams used them, and that those streams have released. */
struct returned {
    _Atomic uint64_t bytes;
    _Atomic uint64_t blocks;
};

struct stats {
    struct biased_lock lock;
    vmm_torch_kind_stats kinds[TORCH_KINDS]; /* without reserved_bytes */
    struct atomic_stat reserved[TORCH_KINDS];
    vmm_stat reserved_before[TORCH_KINDS]; /* at the last reset of the totals */
    struct returned returned[TORCH_KINDS]; /* not yet subtracted from `kinds` */
    _Atomic bool has_returned;
};

void vmm__torch_stats_init(struct stats *stats);

/* Count an allocation served by a block of block_bytes, and its free. `waits`: other streams still use it. */
void vmm__torch_stats_alloc(struct stats *stats, uint64_t requested_bytes, uint64_t block_bytes);
void vmm__torch_stats_free(struct stats *stats, uint64_t requested_bytes, uint64_t block_bytes,
                           bool waits);

/* Counts a change that the cache reports; FREE: block_bytes are those of a block of its requested_bytes. */
void vmm__torch_stats_change(struct stats *stats, const vmm_change *change, uint64_t block_bytes);

void vmm__torch_stats_read(struct stats *stats, vmm_torch_stats *out);
void vmm__torch_stats_reset(struct stats *stats, bool accumulated);

#endif
