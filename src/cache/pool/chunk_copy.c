/* Copies of chunks: see chunk_copy.h. */
#include "cache/pool/chunk_copy.h"
#include "base/arith.h"
#include "cache/reserve/reserve.h"

/* The block that covers the start of a chunk; NULL: the chunk is a unit of a reserved block. */
static const struct block *chunk_first(const struct vmm_cache *cache, const struct chunk *chunk)
{
    uint64_t address = vmm__chunk_address(&cache->vm, chunk);
    const struct heap *heap = vmm__directory_heap(&cache->directory, address);
    return heap == NULL ? NULL : vmm__heap_cover(heap, address);
}

/* Whether a chunk is a unit of a reserved block that the program has not freed. */
static bool is_live_unit(const struct vmm_cache *cache, const struct chunk *chunk)
{
    uint64_t address = vmm__chunk_address(&cache->vm, chunk);
    const struct reserved *block = vmm__reserved_around_locked(cache, address);
    return block != NULL && !block->is_freed;
}

static bool has_contents(const struct block *block)
{
    return block->state == BLOCK_LIVE || block->state == BLOCK_SLAB;
}

/* Whether an occupied block is the first piece of its block in a view. */
static bool is_first_piece(const struct block *piece)
{
    return vmm__block_piece(piece->user) == piece;
}

/* A block counts where it starts, so that each is listed once. */
vmm_status vmm__chunk_list(struct vmm_cache *cache, const struct chunk *chunk,
                           struct backup *backup)
{
    const struct block *block = chunk_first(cache, chunk);
    uint64_t start = vmm__chunk_address(&cache->vm, chunk);
    uint64_t end = start + vmm__chunk_bytes(&cache->vm, chunk);
    vmm_status status = VMM_OK;
    if (block == NULL && is_live_unit(cache, chunk))
        return vmm__backup_add(backup, start, end - start);
    for (; block != NULL && block->address < end && status == VMM_OK; block = block->next) {
        if (block->address < start)
            continue;
        const struct block *user = block->state == BLOCK_OCCUPIED ? block->user : block;
        if (block->state == BLOCK_OCCUPIED && !is_first_piece(block))
            continue;
        if (has_contents(user))
            status = vmm__backup_add(backup, user->address, user->node.size);
    }
    return status;
}

/* A range of the device, and where its bytes are in the backup. */
struct range {
    uint64_t address;
    uint64_t bytes;
    uint64_t offset;
};

static vmm_status piece_copy(struct chunk_copy *copy, const struct driver_piece *piece)
{
    struct driver *driver = copy->cache->driver;
    if (copy->way == CHUNK_SAVE)
        return vmm__driver_save(driver, piece, 1, copy->stream);
    return vmm__driver_load(driver, piece, 1, copy->stream);
}

/* Copies a range, in parts that each lie in one segment of the backup. */
static vmm_status range_copy(struct chunk_copy *copy, struct range range)
{
    vmm_status status = VMM_OK;
    copy->bytes += range.bytes;
    if (range.bytes > 0 && copy->way == CHUNK_CLEAR)
        return vmm__driver_clear(copy->cache->driver, range.address, range.bytes, 0, copy->stream);
    while (range.bytes > 0 && status == VMM_OK) {
        uint64_t bytes = vmm__min(range.bytes, vmm__backup_segment_left(range.offset));
        struct driver_piece piece = { .address = range.address,
                                      .bytes = bytes,
                                      .host = copy->backup->memory + range.offset };
        status = piece_copy(copy, &piece);
        range.address += bytes;
        range.offset += bytes;
        range.bytes -= bytes;
    }
    return status;
}

/* The part of a block that lies in the chunk, from `start` to `end`. False if it has no contents to copy. */
static bool range_of(const struct chunk_copy *copy, const struct block *block, uint64_t start,
                     uint64_t end, struct range *out)
{
    const struct block *user = block->state == BLOCK_OCCUPIED ? block->user : block;
    if (!has_contents(user))
        return false;
    uint64_t address = vmm__max(start, block->address);
    *out = (struct range){ .address = address,
                           .bytes = vmm__min(end, vmm__block_end(block)) - address };
    out->offset = address; /* so that neighbours join */
    if (copy->way == CHUNK_CLEAR)
        return true;
    const struct backup_entry *entry = vmm__backup_find(copy->backup, user->address);
    if (entry == NULL)
        return false;
    uint64_t shown = block == user ? block->address : vmm__views_piece_address(block);
    out->offset = entry->offset + (shown - user->address) + (address - block->address);
    return true;
}

/* Each unit has an entry of its own. */
static vmm_status unit_copy(struct chunk_copy *copy, const struct chunk *chunk)
{
    struct range range = { .address = vmm__chunk_address(&copy->cache->vm, chunk),
                           .bytes = vmm__chunk_bytes(&copy->cache->vm, chunk) };
    const struct backup_entry *entry =
        copy->way == CHUNK_CLEAR ? NULL : vmm__backup_find(copy->backup, range.address);
    if (!is_live_unit(copy->cache, chunk) || (entry == NULL && copy->way != CHUNK_CLEAR))
        return VMM_OK;
    range.offset = entry == NULL ? 0 : entry->offset;
    return range_copy(copy, range);
}

vmm_status vmm__chunk_copy(struct chunk_copy *copy, const struct chunk *chunk)
{
    const struct block *block = chunk_first(copy->cache, chunk);
    const struct vm *vm = &copy->cache->vm;
    uint64_t start = vmm__chunk_address(vm, chunk);
    uint64_t end = start + vmm__chunk_bytes(vm, chunk);
    struct range joined = { .bytes = 0 };
    vmm_status status = VMM_OK;
    if (block == NULL)
        return unit_copy(copy, chunk);
    for (; block != NULL && block->address < end && status == VMM_OK; block = block->next) {
        struct range range;
        if (!range_of(copy, block, start, end, &range))
            continue;
        bool is_next = joined.bytes > 0 && joined.address + joined.bytes == range.address &&
                       joined.offset + joined.bytes == range.offset;
        if (is_next) {
            joined.bytes += range.bytes;
            continue;
        }
        status = range_copy(copy, joined);
        joined = range;
    }
    return status == VMM_OK ? range_copy(copy, joined) : status;
}
