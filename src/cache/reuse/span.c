/* Joins adjacent free addresses of several heaps: see span.h. */
#include "cache/reuse/span.h"

/* Free blocks of each heap that spans are tried from, the largest first, and the most pieces that a
 * span is followed over. */
enum { SPAN_PROBES = 16, SPAN_PIECES = 16 };

/* Pieces are runs of idle chunks of other heaps, and whole free blocks of the heap that grows. */
struct span {
    uint64_t end;       /* address */
    uint64_t bytes;     /* pieces and gap */
    uint64_t gap_bytes; /* of the one gap */
    bool has_gap;
    unsigned count;
    struct idle_run pieces[SPAN_PIECES];
};

/* A search under way. */
struct scan {
    struct vmm_cache *cache;
    struct heap *heap; /* the one that grows */
    uint64_t bytes;
    enum idle_when when;
    struct span best;
};

static bool piece_add(struct span *span, const struct idle_run *piece)
{
    if (span->count == SPAN_PIECES)
        return false;
    span->pieces[span->count++] = *piece;
    span->bytes += piece->bytes;
    span->end = piece->address + piece->bytes;
    return true;
}

/* The part of a free block that may join a span: all of an own block, whole chunks of another. */
static bool piece_of(const struct scan *scan, struct heap *heap, struct block *block,
                     uint64_t bytes, struct idle_run *piece)
{
    *piece = (struct idle_run){
        .heap = heap, .block = block, .address = block->address, .bytes = block->node.size
    };
    if (heap == scan->heap)
        return true;
    if (heap->pool->is_in_use)
        return false;
    return vmm__whole_chunks(&scan->cache->vm, block, bytes, &piece->address, &piece->bytes) &&
           (scan->when == IDLE_FOLLOW ||
            vmm__idle_clear(scan->cache, piece, scan->heap->pool, scan->when) == VMM_OK);
}

/* Goes on at the end of a span: with the free block that starts there, if one does. */
static bool block_follow(const struct scan *scan, struct span *span)
{
    const struct directory *directory = &scan->cache->directory;
    if (!vmm__arena_contains(directory->arena, span->end))
        return false;
    struct heap *heap = vmm__directory_heap(directory, span->end);
    struct block *block = heap == NULL ? NULL : *vmm__directory_slot(directory, span->end);
    struct idle_run piece;
    return block != NULL && block->address == span->end && block->state == BLOCK_FREE &&
           piece_of(scan, heap, block, scan->bytes - span->bytes, &piece) &&
           piece.address == span->end && piece_add(span, &piece);
}

static bool gap_follow(const struct scan *scan, struct span *span)
{
    const struct arena *arena = &scan->cache->vm.arena;
    uint64_t granule = vmm__arena_granule(arena, span->end);
    uint64_t room =
        vmm__arena_contains(arena, span->end) ? vmm__arena_room_after(arena, granule) : 0;
    uint64_t missing =
        (scan->bytes - span->bytes + arena->granule_bytes - 1) >> arena->granule_shift;
    if (span->has_gap || room == 0)
        return false;
    span->has_gap = true;
    span->gap_bytes = (room < missing ? room : missing) << arena->granule_shift;
    span->bytes += span->gap_bytes;
    span->end += span->gap_bytes;
    return true;
}

/* Follows a span from its first piece to the right until it is long enough. */
static void span_try(struct scan *scan, const struct idle_run *first)
{
    struct span span = { .count = 0 };
    bool going = piece_add(&span, first);
    while (going && span.bytes < scan->bytes)
        going = block_follow(scan, &span) || gap_follow(scan, &span);
    if (going && span.gap_bytes < scan->best.gap_bytes)
        scan->best = span;
}

static void heap_try(struct scan *scan, struct heap *heap)
{
    struct size_node *node = vmm__size_index_largest(&heap->index);
    for (int probe = 0; node != NULL && probe < SPAN_PROBES; probe++) {
        struct idle_run piece;
        if (piece_of(scan, heap, (struct block *)node, scan->bytes, &piece))
            span_try(scan, &piece);
        node = vmm__size_index_smaller(&heap->index, node);
    }
}

static vmm_status span_join(struct scan *scan)
{
    vmm_status status = VMM_OK;
    for (unsigned i = 0; i < scan->best.count && status == VMM_OK; i++) {
        const struct idle_run *piece = &scan->best.pieces[i];
        if (piece->heap == scan->heap)
            continue;
        status = vmm__idle_clear(scan->cache, piece, scan->heap->pool, scan->when);
        if (status == VMM_OK)
            status = vmm__idle_hand(scan->cache, piece, scan->heap);
    }
    return status;
}

vmm_status vmm__span_join(struct vmm_cache *cache, struct heap *heap, uint64_t bytes,
                          uint64_t most_bytes, enum idle_when when)
{
    bool sees_all = vmm__cache_pools_most(cache, heap) >= cache->pools.stocked.count;
    if (heap->is_small || !sees_all) /* it needs the locks of all pools */
        return VMM__NO_FIT;
    struct scan scan = { .cache = cache, .heap = heap, .bytes = bytes, .when = when };
    scan.best.gap_bytes = most_bytes;
    vmm__cache_pools_lock_refilling(cache, heap->pool);
    for (struct pool *pool = cache->pools.stocked.first; pool != NULL; pool = pool->list_next)
        heap_try(&scan, &pool->large);
    vmm_status status = scan.best.count == 0 ? VMM__NO_FIT : span_join(&scan);
    vmm__cache_pools_unlock(cache, heap->pool);
    return status;
}
