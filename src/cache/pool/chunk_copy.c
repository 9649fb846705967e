/* Copies of chunks: see chunk_copy.h. */
#include "cache/pool/chunk_copy.h"
#include "base/arith.h"

/* The block that covers the start of a chunk. */
static const struct block *chunk_first(const struct vmm_cache *cache, const struct chunk *chunk)
{
    uint64_t address = vmm__chunk_address(&cache->vm, chunk);
    return vmm__heap_cover(vmm__directory_heap(&cache->directory, address), address);
}

static bool has_contents(const struct block *block)
{
    return block->state == BLOCK_LIVE || block->state == BLOCK_SLAB ||
           block->state == BLOCK_RESERVED;
}

/* The address of the entry that has the contents of a block: each unit of a reserved block has its own. */
static uint64_t entry_address(const struct block *user, uint64_t chunk_start)
{
    return user->state == BLOCK_RESERVED ? chunk_start : user->address;
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
    if (block->state == BLOCK_RESERVED)
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
    uint64_t from = entry_address(user, start);
    const struct backup_entry *entry = vmm__backup_find(copy->backup, from);
    if (entry == NULL)
        return false;
    uint64_t shown = block == user ? block->address : vmm__views_piece_address(block);
    out->offset = entry->offset + (shown + (address - block->address) - from);
    return true;
}

vmm_status vmm__chunk_copy(struct chunk_copy *copy, const struct chunk *chunk)
{
    const struct block *block = chunk_first(copy->cache, chunk);
    const struct vm *vm = &copy->cache->vm;
    uint64_t start = vmm__chunk_address(vm, chunk);
    uint64_t end = start + vmm__chunk_bytes(vm, chunk);
    struct range joined = { .bytes = 0 };
    vmm_status status = VMM_OK;
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
