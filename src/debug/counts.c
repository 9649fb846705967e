/* What statistics count of a block: see internal.h. */
#include "cache/alloc/alloc.h"
#include "debug/internal.h"
#include "lane/block_ref.h"

uint64_t vmm__debug_shown_bytes(const struct debug *debug, const struct record *record)
{
    uint64_t bytes = debug->cache->debug_view->block_bytes(debug, record->bytes);
    return vmm__min(bytes, record->inner + record->inner_bytes - record->address);
}

void vmm__debug_count(struct debug *debug, struct record *record)
{
    struct block_ref ref;
    uint64_t inner = record->inner;
    struct heap *heap = vmm__free_lane_lock(debug->cache, &inner);
    if (heap == NULL)
        return;
    if (vmm__block_ref_find(heap, inner, &ref)) {
        record->hidden.requested_bytes = vmm__block_ref_requested_bytes(&ref) - record->bytes;
        record->hidden.bytes = vmm__block_ref_bytes(&ref) - vmm__debug_shown_bytes(debug, record);
        vmm__counters_hide(&heap->lane->counters, &record->hidden);
    }
    vmm__biased_unlock(&heap->lane->lock);
}

void vmm__debug_count_kept(struct debug *debug, struct record *record)
{
    const struct hidden all = { .requested_bytes = record->bytes,
                                .bytes = vmm__debug_shown_bytes(debug, record),
                                .blocks = 1 };
    uint64_t inner = record->inner;
    struct heap *heap = vmm__free_lane_lock(debug->cache, &inner);
    if (heap == NULL)
        return;
    vmm__counters_shift(&heap->lane->counters, &all, true);
    record->hidden.requested_bytes += all.requested_bytes;
    record->hidden.bytes += all.bytes;
    record->hidden.blocks += all.blocks;
    vmm__biased_unlock(&heap->lane->lock);
}

void vmm__debug_count_lane(struct debug *debug, const struct record *record, bool is_freeing)
{
    uint64_t inner = record->inner;
    struct heap *heap = vmm__free_lane_lock(debug->cache, &inner);
    if (heap == NULL)
        return;
    vmm__counters_shift(&heap->lane->counters, &record->hidden, !is_freeing);
    vmm__biased_unlock(&heap->lane->lock);
}
