/* Free addresses in a row, of several heaps: see span.h. */
#include "policy/span.h"

/* Free blocks of each heap that spans are tried from, the largest first, and the most pieces that a
 * span is followed over. */
enum { SPAN_PROBES = 16, SPAN_PIECES = 16 };

/* Pieces are runs of idle chunks of other heaps, and whole free blocks of the heap that grows. */
struct span {
    uint64_t end;        /* address */
    uint64_t bytes;      /* pieces and void */
    uint64_t void_bytes; /* of the one void */
    bool has_void;
    unsigned count;
    struct idle_run pieces[SPAN_PIECES];
};

/* A search under way. */
struct quest {
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
static bool piece_of(const struct quest *quest, struct heap *heap, struct block *block,
                     uint64_t bytes, struct idle_run *piece)
{
    *piece = (struct idle_run){
        .heap = heap, .block = block, .address = block->address, .bytes = block->node.size
    };
    if (heap == quest->heap)
        return true;
    if (heap->pool->is_held)
        return false;
    return vmm__whole_chunks(&quest->cache->memory, block, bytes, &piece->address, &piece->bytes) &&
           (quest->when == IDLE_FOLLOW ||
            vmm__idle_clear(quest->cache, piece, quest->heap->pool, quest->when) == VMM_OK);
}

/* Goes on at the end of a span: with the free block that starts there, if one does. */
static bool block_follow(const struct quest *quest, struct span *span)
{
    const struct directory *directory = &quest->cache->directory;
    if (!vmm__arena_contains(directory->arena, span->end))
        return false;
    struct heap *heap = vmm__directory_heap(directory, span->end);
    struct block *block = heap == NULL ? NULL : *vmm__directory_slot(directory, span->end);
    struct idle_run piece;
    return block != NULL && block->address == span->end && block->state == BLOCK_FREE &&
           piece_of(quest, heap, block, quest->bytes - span->bytes, &piece) &&
           piece.address == span->end && piece_add(span, &piece);
}

static bool void_follow(const struct quest *quest, struct span *span)
{
    const struct arena *arena = &quest->cache->memory.arena;
    uint64_t granule = vmm__arena_granule(arena, span->end);
    uint64_t room =
        vmm__arena_contains(arena, span->end) ? vmm__arena_room_after(arena, granule) : 0;
    uint64_t missing =
        (quest->bytes - span->bytes + arena->granule_bytes - 1) >> arena->granule_shift;
    if (span->has_void || room == 0)
        return false;
    span->has_void = true;
    span->void_bytes = (room < missing ? room : missing) << arena->granule_shift;
    span->bytes += span->void_bytes;
    span->end += span->void_bytes;
    return true;
}

/* Follows a span from its first piece to the right until it is long enough. */
static void span_try(struct quest *quest, const struct idle_run *first)
{
    struct span span = { .count = 0 };
    bool going = piece_add(&span, first);
    while (going && span.bytes < quest->bytes)
        going = block_follow(quest, &span) || void_follow(quest, &span);
    if (going && span.void_bytes < quest->best.void_bytes)
        quest->best = span;
}

static void heap_try(struct quest *quest, struct heap *heap)
{
    struct size_node *node = vmm__size_index_largest(&heap->index);
    for (int probe = 0; node != NULL && probe < SPAN_PROBES; probe++) {
        struct idle_run piece;
        if (piece_of(quest, heap, (struct block *)node, quest->bytes, &piece))
            span_try(quest, &piece);
        node = vmm__size_index_smaller(&heap->index, node);
    }
}

static vmm_status span_join(struct quest *quest)
{
    vmm_status status = VMM_OK;
    for (unsigned i = 0; i < quest->best.count && status == VMM_OK; i++) {
        const struct idle_run *piece = &quest->best.pieces[i];
        if (piece->heap == quest->heap)
            continue;
        status = vmm__idle_clear(quest->cache, piece, quest->heap->pool, quest->when);
        if (status == VMM_OK)
            status = vmm__idle_hand(quest->cache, piece, quest->heap);
    }
    return status;
}

vmm_status vmm__span_join(struct vmm_cache *cache, struct heap *heap, uint64_t bytes,
                          uint64_t most_bytes, enum idle_when when)
{
    if (heap->is_small)
        return VMM_NOT_READY;
    struct quest quest = { .cache = cache, .heap = heap, .bytes = bytes, .when = when };
    quest.best.void_bytes = most_bytes;
    vmm__cache_pools_lock_supplying(cache, heap->pool);
    for (struct pool *pool = cache->pools.first; pool != NULL; pool = pool->next)
        heap_try(&quest, &pool->large);
    vmm_status status = quest.best.count == 0 ? VMM_NOT_READY : span_join(&quest);
    vmm__cache_pools_unlock(cache, heap->pool);
    return status;
}
