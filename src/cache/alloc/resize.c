/* Blocks of another size: see resize.h. */
#include "cache/alloc/resize.h"
#include "base/arith.h"
#include "base/error.h"
#include "base/hostmem.h"
#include "cache/alloc/alloc.h"
#include "cache/alloc/refill.h"
#include "cache/grow/fill.h"
#include "cache/grow/placement.h"
#include "cache/grow/source.h"
#include "cache/grow/target.h"
#include "cache/reserve/reserve.h"
#include "lane/block_ref.h"

struct resize {
    uint64_t address;
    uint64_t bytes;         /* as the program asks for */
    uint64_t block_bytes;   /* of the block */
    struct request request; /* for more memory */
    struct lane *lane;
    struct heap *heap; /* set by block_find() */
    struct block *block;
    struct reserved *reserved; /* the block, if it is one; else NULL */
};

/* ---- In place ------------------------------------------------------------------------------ */

/* In a trace the block is freed, and one of the new size is allocated. */
static void size_record(const struct resize *resize)
{
    struct directory *directory = resize->heap->directory;
    const struct block *block = resize->block;
    struct recorder *recorder = atomic_load_explicit(&directory->recorder, memory_order_acquire);
    bool is_same = block->address == resize->address && block->requested_bytes == resize->bytes;
    char name[VMM_NAME_BYTES] = "";
    struct trace_event event = { .kind = TRACE_ALLOC,
                                 .address = vmm__views_outer(resize->heap, block->address),
                                 .bytes = resize->bytes,
                                 .stream = (uint64_t)(uintptr_t)resize->lane->owner.stream,
                                 .pool = (uint64_t)(uintptr_t)resize->lane->owner.pool->handle };
    if (recorder == NULL || is_same)
        return;
    vmm__recorder_push_block(recorder, TRACE_FREE, vmm__views_outer(resize->heap, resize->address));
    vmm__recorder_push(recorder, event);
    event.kind = TRACE_NAME;
    if (block->is_noted)
        vmm__notes_name_read(&resize->lane->notes, block->address, name);
    if (name[0] != '\0')
        vmm__recorder_push_text(recorder, event, name);
}

/* The block has another size now. */
static void size_note(const struct resize *resize, uint64_t before)
{
    size_record(resize);
    struct block *block = resize->block;
    struct counters *counters = &resize->lane->counters;
    struct totals *totals = &resize->lane->owner.pool->totals;
    uint64_t now = block->node.size;
    if (block->pins != 0)
        atomic_fetch_add_explicit(&resize->heap->unmovable_bytes, now - before,
                                  memory_order_relaxed);
    if (now > before)
        vmm__counters_grow(counters, totals, 0, now - before);
    else
        vmm__counters_shrink(counters, totals, 0, before - now);
    if (resize->bytes > block->requested_bytes)
        vmm__counters_grow(counters, totals, resize->bytes - block->requested_bytes, 0);
    else
        vmm__counters_shrink(counters, totals, block->requested_bytes - resize->bytes, 0);
    block->requested_bytes = resize->bytes;
}

/* Whether other streams use the block. */
static bool block_is_used(const struct resize *resize)
{
    return vmm__notes_has_uses(&resize->lane->notes, resize->address);
}

/* Gives the end of the block up; but a block in a view, and one that other streams use, keeps all of its bytes, and so
 * does any block without host memory. */
static void block_shrink(const struct resize *resize)
{
    uint64_t before = resize->block->node.size;
    VMM_QUIET();
    if (!resize->block->is_in_view && !block_is_used(resize))
        (void)vmm__heap_shorten(resize->heap, resize->block, resize->block_bytes);
    size_note(resize, before);
}

/* Creates memory behind the extent that ends with the block, or with a free block of free_bytes behind it. VMM__NO_FIT
 * if the addresses there are too few. */
static vmm_status extent_grow(struct vmm_cache *cache, const struct resize *resize,
                              uint64_t free_bytes, uint64_t need_bytes)
{
    const struct arena *arena = &cache->vm.arena;
    const struct block *next = resize->block->next;
    uint64_t end = vmm__block_end(resize->block) + free_bytes;
    bool has_more = next != NULL && (free_bytes == 0 || next->next != NULL);
    if (has_more || resize->lane->owner.has_source) /* a segment has its size */
        return VMM__NO_FIT;
    uint64_t granule = vmm__arena_granule(arena, end);
    uint64_t bytes = vmm__align_up(need_bytes - free_bytes, arena->granule_bytes);
    if (vmm__arena_room_after(arena, granule) < bytes >> arena->granule_shift)
        return VMM__NO_FIT;
    vmm_status status =
        vmm__fill(cache, resize->heap, resize->block_bytes, granule, bytes >> arena->granule_shift);
    if (status == VMM_OK && vmm__placement_is_at_home(resize->heap, end, end + bytes))
        vmm__placement_note(resize->heap, end, end + bytes, resize->block_bytes);
    return status;
}

/* A block in a view stays as it is; so does one that serves another stream than its lane's: that one has not waited for
 * the work on what lies behind. If the lane's stream has ended, free bytes behind the block are left alone for the same
 * reason. Where blocks have chunks of their own, a free block is taken as a whole. */
static bool may_extend(const struct resize *resize, uint64_t free_bytes, uint64_t need_bytes)
{
    bool would_split = resize->lane->owner.has_own_chunks && free_bytes > need_bytes;
    vmm_stream stream;
    bool has_ended;
    bool is_borrowed =
        vmm__notes_borrower(&resize->lane->notes, resize->address, &stream, &has_ended);
    bool is_clear = free_bytes == 0 || !vmm__lane_has_ended(resize->lane);
    return !resize->block->is_in_view && !is_borrowed && !would_split && is_clear;
}

static vmm_status block_extend(struct vmm_cache *cache, const struct resize *resize)
{
    struct block *block = resize->block;
    uint64_t before = block->node.size;
    uint64_t need_bytes = resize->block_bytes - before;
    bool has_free = block->next != NULL && block->next->state == BLOCK_FREE;
    uint64_t free_bytes = has_free ? block->next->node.size : 0;
    vmm_status status = VMM_OK;
    if (!may_extend(resize, free_bytes, need_bytes))
        return VMM__NO_FIT;
    if (free_bytes < need_bytes)
        status = extent_grow(cache, resize, free_bytes, need_bytes);
    if (status == VMM_OK)
        status = vmm__heap_extend(resize->heap, block, need_bytes);
    if (status == VMM_OK)
        size_note(resize, before);
    return status;
}

/* ---- Reserved blocks in place --------------------------------------------------------------- */

static vmm_status reserved_refuse(const struct resize *resize, const char *what, vmm_status status,
                                  const char *why)
{
    return vmm__error(status, "vmm_resize: the block at 0x%llx cannot %s: %s",
                      (unsigned long long)resize->address, what, why);
}

/* Whether its memory need not stay. */
static vmm_status reserved_check(const struct resize *resize, const char *what)
{
    bool stays = resize->block->pins != 0 || vmm__lane_is_retained(resize->lane);
    return stays ? reserved_refuse(resize, what, VMM_ERR_INVALID_ARGUMENT,
                                   "it is under vmm_pin(), or its pool is retained")
                 : VMM_OK;
}

/* Gives up the addresses behind its new size, with their memory. */
static vmm_status reserved_shrink(struct vmm_cache *cache, const struct resize *resize)
{
    uint64_t end = vmm__reserved_end(cache, resize->reserved);
    uint64_t from = vmm__arena_granule(&cache->vm.arena, resize->address + resize->block_bytes);
    vmm_status status = reserved_check(resize, "shrink");
    if (status != VMM_OK)
        return status;
    vmm__reserved_decommit(cache, resize->reserved, from, end - from);
    vmm__reserved_range_set(resize->reserved, resize->address, resize->block_bytes);
    vmm__range_end(&cache->vm, from, end - from);
    return VMM_OK;
}

/* VMM__NO_FIT if the addresses behind it are too few. */
static vmm_status reserved_extend(struct vmm_cache *cache, const struct resize *resize)
{
    const struct arena *arena = &cache->vm.arena;
    uint64_t end = vmm__reserved_end(cache, resize->reserved);
    uint64_t more = (resize->block_bytes - resize->block->node.size) >> arena->granule_shift;
    if (vmm__arena_room_after(arena, end) < more)
        return VMM__NO_FIT;
    vmm__range_take(&cache->vm, end, more);
    vmm__reserved_range_set(resize->reserved, resize->address, resize->block_bytes);
    return VMM_OK;
}

/* ---- Move ---------------------------------------------------------------------------------- */

/*
 * The destination of a move, in this order: granules for the bytes before the first chunk that the block has alone, the
 * chunks that it has alone, and granules for the bytes after them and for the new ones. The block begins within the
 * first granules, so that it meets its chunks. Only a reserved block has granules without memory between the chunks; it
 * has all of its chunks alone.
 */
struct move {
    struct memory_part *parts; /* the chunks that the block has alone */
    uint64_t capacity;
    uint32_t count;
    uint64_t lead_bytes; /* of the block before them, and after them: to be copied */
    uint64_t tail_bytes;
    uint64_t own_bytes; /* from the first of them to the last */
    uint64_t to;        /* granule */
    uint64_t granules;
    uint64_t address; /* of the block */
    uint32_t aliases;
};

/* Sets which bytes of the block lie between the first part and the last: all of a reserved one. */
static void span_set(const struct vm *vm, const struct resize *resize, struct move *move)
{
    const struct block *block = resize->block;
    if (resize->reserved != NULL) {
        move->own_bytes = block->node.size;
        return;
    }
    const struct memory_part *last = &move->parts[move->count - 1];
    uint64_t from = vmm__arena_address(&vm->arena, move->parts->granule);
    uint64_t end = vmm__arena_address(&vm->arena, last->granule + last->chunk->granules);
    move->own_bytes = end - from;
    move->lead_bytes = from - block->address;
    move->tail_bytes = vmm__block_end(block) - end;
}

/* Lists the chunks that the block has alone, where they are mapped. VMM__NO_FIT if there are none. */
static vmm_status parts_list(const struct vm *vm, const struct resize *resize, struct move *move)
{
    const struct arena *arena = &vm->arena;
    const struct block *block = resize->block;
    uint64_t at = vmm__arena_granule(arena, block->address);
    uint64_t end = vmm__arena_granule(arena, vmm__block_end(block) - 1) + 1;
    *move = (struct move){ .capacity = resize->reserved == NULL
                                           ? end - at
                                           : resize->reserved->committed_granules + 1 };
    move->parts = vmm__host_alloc(move->capacity, sizeof *move->parts);
    if (move->parts == NULL)
        return vmm__error(VMM_ERR_HOST_OOM, "vmm_resize: no host memory to list the chunks");
    while (at < end) {
        struct chunk *chunk = vmm__vm_chunk(vm, at);
        uint64_t first = chunk == NULL ? at : vmm__chunk_mapping(vm, chunk, at);
        at = first + (chunk == NULL ? 1 : chunk->granules);
        if (chunk != NULL && chunk->state == CHUNK_HELD &&
            vmm__arena_address(arena, first) >= block->address &&
            vmm__arena_address(arena, at) <= vmm__block_end(block))
            move->parts[move->count++] = (struct memory_part){ .chunk = chunk, .granule = first };
    }
    if (move->count == 0 && resize->reserved == NULL)
        return VMM__NO_FIT;
    span_set(vm, resize, move);
    return VMM_OK;
}

/* Chooses the new addresses, also of the parts. */
static vmm_status destination_choose(struct vmm_cache *cache, const struct resize *resize,
                                     struct move *move)
{
    struct arena *arena = &cache->vm.arena;
    uint64_t lead = vmm__align_up(move->lead_bytes, arena->granule_bytes);
    uint64_t rest = resize->block_bytes - move->lead_bytes - move->own_bytes;
    uint64_t bytes = lead + move->own_bytes + vmm__align_up(rest, arena->granule_bytes);
    move->granules = bytes >> arena->granule_shift;
    vmm_status status = vmm__arena_find_row(arena, move->granules, &move->to);
    if (status != VMM_OK)
        return status;
    move->address = vmm__arena_address(arena, move->to) + lead - move->lead_bytes;
    uint64_t from = vmm__arena_granule(arena, resize->address + move->lead_bytes);
    for (uint32_t i = 0; i < move->count; i++)
        move->parts[i].granule += move->to + (lead >> arena->granule_shift) - from;
    return VMM_OK;
}

/* Creates memory at the granules of the destination that no part has. */
static vmm_status ends_fill(struct vmm_cache *cache, const struct resize *resize,
                            const struct move *move)
{
    struct account *account = &resize->lane->owner.pool->account;
    uint32_t chunk_granules = vmm__target_chunk_granules(cache, resize->heap, resize->block_bytes);
    uint64_t own_granules = move->own_bytes >> cache->vm.arena.granule_shift;
    uint64_t first = move->parts[0].granule;
    uint64_t end = move->to + move->granules;
    vmm_status status = VMM_OK;
    if (first > move->to)
        status = vmm__range_map(&cache->vm, account, move->to, first - move->to, chunk_granules);
    if (status == VMM_OK && first + own_granules < end)
        status = vmm__range_map(&cache->vm, account, first + own_granules,
                                end - first - own_granules, chunk_granules);
    return status;
}

/* Copies the parts of chunks that the block shares. */
static vmm_status ends_copy(struct vmm_cache *cache, const struct resize *resize,
                            const struct move *move)
{
    vmm_stream stream = resize->lane->owner.stream;
    uint64_t tail = move->lead_bytes + move->own_bytes;
    vmm_status status = VMM_OK;
    if (move->lead_bytes > 0)
        status = vmm__driver_copy(cache->driver, move->address, resize->address, move->lead_bytes,
                                  stream);
    if (status == VMM_OK && move->tail_bytes > 0)
        status = vmm__driver_copy(cache->driver, move->address + tail, resize->address + tail,
                                  move->tail_bytes, stream);
    return status;
}

/* The records that a settle at a destination needs: each chunk that leaves the heap splits a free block. */
static vmm_status records_keep(struct heap *heap, const struct move *move)
{
    vmm_status status = vmm__heap_records_keep(heap, (uint64_t)move->count + 8);
    if (status != VMM_OK)
        return status;
    return vmm__heap_attach_keep(heap, move->granules << heap->directory->granule_shift);
}

static void parts_tell(struct vmm_cache *cache, const struct resize *resize,
                       const struct move *move, vmm_change_kind kind)
{
    for (uint32_t i = 0; i < move->count; i++)
        vmm__reserved_tell(cache, resize->reserved, kind, move->parts[i].chunk);
}

/* Makes the new addresses those of a reserved block. Cannot fail. */
static void reserved_settle(struct vmm_cache *cache, const struct resize *resize,
                            const struct move *move)
{
    struct clock *clock = vmm__reserved_clock(cache, resize->reserved);
    uint64_t first = vmm__reserved_first(cache, resize->reserved);
    uint64_t count = vmm__reserved_end(cache, resize->reserved) - first;
    parts_tell(cache, resize, move, VMM_CHANGE_UNMAP);
    vmm__move_settle(&cache->vm, move->parts, move->count, move->aliases, clock,
                     vmm__clock_now(clock));
    parts_tell(cache, resize, move, VMM_CHANGE_MAP);
    vmm__reserved_range_set(resize->reserved, move->address, resize->block_bytes);
    vmm__range_end(&cache->vm, first, count);
    vmm__notes_move(&resize->lane->notes, resize->address, move->address);
}

/* Frees the block, and gives the heap its chunks at their new addresses. Cannot fail after records_keep(). */
static void block_settle(struct vmm_cache *cache, struct resize *resize, const struct move *move)
{
    struct vm *vm = &cache->vm;
    struct heap *heap = resize->heap;
    struct clock *clock = resize->lane->clock;
    uint64_t epoch = vmm__clock_now(clock);
    uint64_t before = resize->block->node.size;
    uint64_t requested = resize->block->requested_bytes;
    bool is_noted = resize->block->is_noted;
    resize->block->is_noted = false;
    (void)vmm__heap_give(heap, resize->block);
    for (uint32_t i = 0; i < move->count; i++) {
        uint64_t home = vmm__chunk_address(vm, move->parts[i].chunk);
        (void)vmm__heap_detach(heap, vmm__heap_cover(heap, home), home,
                               vmm__chunk_bytes(vm, move->parts[i].chunk));
    }
    vmm__move_settle(vm, move->parts, move->count, move->aliases, clock, epoch);
    vmm__range_end(vm, move->to, move->granules);
    (void)vmm__heap_attach(heap, vmm__arena_address(&vm->arena, move->to),
                           move->granules << vm->arena.granule_shift, epoch);
    resize->block = vmm__heap_take_at(heap, move->address, resize->block_bytes);
    resize->block->requested_bytes = requested;
    resize->block->is_noted = is_noted;
    if (is_noted)
        vmm__notes_move(&resize->lane->notes, resize->address, move->address);
    size_note(resize, before);
    uint64_t copied_bytes = move->lead_bytes + move->tail_bytes;
    vmm__count(&cache->counts.resize_copied_bytes, copied_bytes);
}

/* Undoes what a failed move had created. Copies may be under way to it. */
static void move_undo(struct vmm_cache *cache, const struct resize *resize, const struct move *move)
{
    struct clock *clock = resize->lane->clock;
    uint64_t end = move->to + move->granules;
    for (uint64_t at = move->to; at < end;) {
        struct chunk *chunk = vmm__vm_chunk(&cache->vm, at);
        at += chunk == NULL ? 1 : chunk->granules;
        if (chunk != NULL && chunk->state == CHUNK_HELD)
            vmm__limbo_put(&cache->vm, chunk, clock, vmm__clock_now(clock));
    }
    vmm__move_cancel(&cache->vm, move->parts, move->count, move->aliases);
}

static vmm_status parts_move(struct vmm_cache *cache, struct resize *resize, struct move *move)
{
    bool is_reserved = resize->reserved != NULL;
    vmm_status status = destination_choose(cache, resize, move);
    if (status == VMM_OK && !is_reserved)
        status = records_keep(resize->heap, move);
    if (status != VMM_OK)
        return status;
    vmm__range_take(&cache->vm, move->to, move->granules);
    status = vmm__move_begin(&cache->vm, move->parts, move->count, &move->aliases);
    if (status != VMM_OK)
        goto fail_begin;
    if (!is_reserved)
        status = ends_fill(cache, resize, move);
    if (status == VMM_OK)
        status = ends_copy(cache, resize, move);
    if (status != VMM_OK)
        goto fail_fill;
    if (is_reserved)
        reserved_settle(cache, resize, move);
    else
        block_settle(cache, resize, move);
    return VMM_OK;

fail_fill:
    move_undo(cache, resize, move);
fail_begin:
    vmm__range_end(&cache->vm, move->to, move->granules);
    return status;
}

/* Whether the memory of a block may get other addresses. VMM__NO_FIT: it does not, but may be copied. */
static vmm_status move_check(const struct vmm_cache *cache, const struct resize *resize)
{
    bool has_aliases = cache->driver->has_aliases;
    if (resize->reserved == NULL) {
        bool may = has_aliases && resize->block->pins == 0 && !block_is_used(resize) &&
                   !vmm__lane_is_retained(resize->lane) && !resize->lane->owner.has_source;
        return may ? VMM_OK : VMM__NO_FIT;
    }
    vmm_status status = reserved_check(resize, "move");
    if (status != VMM_OK || has_aliases)
        return status;
    return reserved_refuse(resize, "move", VMM_ERR_UNSUPPORTED,
                           "the driver maps memory at one address only");
}

/* VMM__PENDING if no work can be submitted to the lane's stream. */
static vmm_status stream_query(struct vmm_cache *cache, const struct lane *lane)
{
    bool is_captured = false;
    if (vmm__lane_has_ended(lane))
        return VMM__PENDING;
    vmm_status status =
        vmm__driver_stream_capturing(cache->driver, lane->owner.stream, &is_captured);
    return status == VMM_OK && is_captured ? VMM__PENDING : status;
}

static vmm_status block_move(struct vmm_cache *cache, struct resize *resize)
{
    struct move move;
    vmm_status status = move_check(cache, resize);
    if (status != VMM_OK)
        return status;
    status = parts_list(&cache->vm, resize, &move);
    if (status == VMM_OK && move.lead_bytes + move.tail_bytes > 0)
        status = stream_query(cache, resize->lane);
    if (status == VMM__PENDING)
        status = VMM__NO_FIT;
    if (status == VMM_OK)
        status = parts_move(cache, resize, &move);
    vmm__host_free(move.parts, move.capacity * sizeof *move.parts);
    return status;
}

/* ---- Both ---------------------------------------------------------------------------------- */

/* Finds the block again: a reclaim step may have let other threads run, or moved its memory. */
static vmm_status block_find(struct vmm_cache *cache, struct resize *resize)
{
    struct block_ref ref;
    resize->heap = vmm__cache_heap_of(cache, resize->address);
    if (resize->heap == NULL || resize->heap->lane != resize->lane)
        return VMM__NOT_FOUND;
    if (!vmm__lane_find_live_locked(resize->lane, resize->heap, resize->address, &ref))
        return vmm__block_ref_unknown("vmm_resize", resize->heap, resize->address);
    resize->block = ref.block;
    bool is_small = resize->heap->is_small || ref.block->node.size < LANE_LARGE_LEAST_BYTES;
    return is_small ? VMM__NO_FIT : VMM_OK; /* a misfit may be small in a large heap */
}

static vmm_status resize_locked(struct vmm_cache *cache, struct resize *resize)
{
    vmm_status status = block_find(cache, resize);
    if (status != VMM_OK)
        return status;
    bool is_exported = (resize->block->pins & PIN_EXPORT) != 0;
    if ((resize->lane->owner.has_own_chunks || is_exported) &&
        resize->block_bytes < resize->block->node.size)
        return VMM__NO_FIT; /* the rest would serve another block, which importers would write to */
    if (resize->block_bytes <= resize->block->node.size) {
        block_shrink(resize);
        return VMM_OK;
    }
    resize->request.new_bytes = resize->block_bytes - resize->block->node.size;
    (void)vmm__limbo_drain(&cache->vm, NULL); /* old mappings may have the addresses */
    status = block_extend(cache, resize);
    return status == VMM__NO_FIT ? block_move(cache, resize) : status;
}

/* A reserved block needs no memory, so no refill. */
static vmm_status reserved_resize_locked(struct vmm_cache *cache, struct resize *resize)
{
    uint64_t before = resize->block->node.size;
    vmm_status status = VMM_OK;
    if (resize->block_bytes < before)
        status = reserved_shrink(cache, resize);
    else if (resize->block_bytes > before)
        status = reserved_extend(cache, resize);
    if (status == VMM__NO_FIT)
        status = block_move(cache, resize);
    if (status == VMM_OK)
        resize->block->requested_bytes = resize->bytes;
    return status;
}

static vmm_status reserved_begin(struct vmm_cache *cache, struct resize *resize)
{
    const struct arena *arena = &cache->vm.arena;
    struct reserved *block = vmm__reserved_find_locked(cache, resize->address);
    if (block == NULL)
        return VMM__NOT_FOUND;
    resize->reserved = block;
    resize->block = &block->block;
    resize->lane = block->lane;
    uint64_t unit_bytes = (uint64_t)block->unit_granules << arena->granule_shift;
    if (!vmm__round_up_checked(resize->bytes, unit_bytes, &resize->block_bytes) ||
        resize->block_bytes > arena->limit_bytes)
        return vmm__error(VMM_ERR_ADDRESS_SPACE,
                          "vmm_resize: %llu bytes are more than the arena has: see arena_bytes",
                          (unsigned long long)resize->bytes);
    return vmm__lane_asleep_check("vmm_resize", block->lane);
}

static vmm_status reserved_resize(struct vmm_cache *cache, struct resize *resize, void **out)
{
    struct error_line line;
    vmm__error_save(&line);
    vmm__fair_lock(&cache->grow_lock);
    vmm_status status = reserved_begin(cache, resize);
    if (status == VMM_OK) {
        (void)vmm__limbo_drain(&cache->vm, NULL); /* old mappings may have the addresses */
        vmm__cache_lane_lock_slow(cache, resize->lane);
        status = reserved_resize_locked(cache, resize);
        vmm__biased_unlock(&resize->lane->lock);
    }
    if (status == VMM_OK)
        *out = (void *)(uintptr_t)resize->block->address;
    if (status != VMM__NOT_FOUND)
        status = vmm__cache_checked(cache, CHECK_REFILL_EVERY, status);
    vmm__fair_unlock(&cache->grow_lock);
    return vmm__error_end(&line, status);
}

/* For a refill, which must not see an internal outcome as a failure: NULL in *out stands for VMM__NO_FIT, which the
 * caller gets also if the block was not found. */
static vmm_status resize_serve(struct vmm_cache *cache, void *context, void **out)
{
    struct resize *resize = context;
    vmm_status status = resize_locked(cache, resize);
    *out = NULL;
    if (status == VMM_OK)
        *out = (void *)(uintptr_t)resize->block->address;
    return status == VMM__NO_FIT || status == VMM__NOT_FOUND ? VMM_OK : status;
}

vmm_status vmm__resize(struct vmm_cache *cache, uint64_t address, uint64_t bytes, void **out)
{
    const struct heap *heap = vmm__alloc_owner(cache, &address);
    struct resize resize = { .address = address, .bytes = bytes };
    void *found = NULL;
    if (heap == NULL)
        return VMM__NOT_FOUND;
    if (heap->is_reserved)
        return reserved_resize(cache, &resize, out);
    resize.block_bytes = vmm__cache_block_bytes(cache, vmm__max(bytes, LANE_LARGE_LEAST_BYTES));
    resize.lane = heap->lane;
    if (resize.lane->owner
            .has_own_chunks) /* what cannot be rounded up is beyond any arena as it is */
        (void)vmm__align_up_checked(bytes, cache->vm.arena.granule_bytes, &resize.block_bytes);
    resize.request = (struct request){
        .lane = heap->lane, .bytes = bytes, .serve = resize_serve, .context = &resize
    };
    vmm_status status = vmm__refill_request(cache, &resize.request, &found);
    if (status == VMM_OK && found != NULL)
        *out = resize.lane->owner.has_source ? vmm__source_outer(cache, found) : found;
    return status == VMM_OK && found == NULL ? VMM__NO_FIT : status;
}
