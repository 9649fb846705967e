/* Exports blocks: see export.h. */
#include "cache/share/export.h"
#include "base/arith.h"
#include "base/error.h"
#include "base/hostmem.h"
#include "cache/share/message.h"

#include <errno.h>
#include <string.h>
#include <sys/random.h>

/* ---- The map ------------------------------------------------------------------------------- */

bool vmm__export_has_locked(const struct vmm_cache *cache, uint64_t address)
{
    return vmm__map_find(&cache->exports, address) != NULL;
}

static void share_leave(struct map_node *node)
{
    VMM_MAP_RECORD(node, struct share, node)->cache = NULL;
}

void vmm__exports_leave(struct vmm_cache *cache)
{
    vmm__map_clear(&cache->exports, share_leave);
}

/* ---- Chunks -------------------------------------------------------------------------------- */

/* The granule where the first chunk under an exported block is mapped. The next ones follow it, in a view, too. */
static uint64_t first_granule(const struct vm *vm, uint64_t address)
{
    uint64_t granule = vmm__arena_granule(&vm->arena, address);
    return vmm__chunk_mapping(vm, vmm__vm_chunk(vm, granule), granule);
}

/* The chunk that is mapped at a granule; moves on to the granule behind it. */
static struct chunk *chunk_next(const struct vm *vm, uint64_t *granule)
{
    struct chunk *chunk = vmm__vm_chunk(vm, *granule);
    *granule += chunk->granules;
    return chunk;
}

/* Counts the chunks of a range that begins with a chunk. 0: other processes cannot import one of them. */
static uint32_t chunks_count(const struct vm *vm, uint64_t granule, uint64_t end)
{
    uint32_t count = 0;
    for (; granule < end; count++) {
        if (chunk_next(vm, &granule)->reach == VMM_SHARE_NONE)
            return 0;
    }
    return count;
}

/* Whether a block may be exported: without vmm_config.shareable only one that has its chunks alone, so that importers
 * see no other block. */
static bool block_may(const struct vm *vm, uint64_t address, uint64_t bytes)
{
    const struct arena *arena = &vm->arena;
    bool is_whole = vmm__is_aligned(address | bytes, arena->granule_bytes) &&
                    first_granule(vm, address) == vmm__arena_granule(arena, address);
    return vm->is_exportable || is_whole;
}

/* Lets a share use the record that other shares have of a chunk. */
static void chunk_join(const struct chunk *chunk, struct shared_chunk *shared)
{
    shared->exported = chunk->exported;
    atomic_fetch_add_explicit(&shared->exported->shares, 1, memory_order_relaxed);
}

/* Lets a share use the records that other shares have of its chunks. */
static void chunks_join_locked(const struct vmm_cache *cache, struct share *share)
{
    VMM_ASSERT_HELD(&cache->grow_lock);
    uint64_t granule = first_granule(&cache->vm, share->node.key);
    for (uint32_t i = 0; i < share->head.count; i++) {
        const struct chunk *chunk = chunk_next(&cache->vm, &granule);
        share->chunks[i].bytes = vmm__chunk_bytes(&cache->vm, chunk);
        if (chunk->exported != NULL)
            chunk_join(chunk, &share->chunks[i]);
    }
}

/* Lets other shares use the records that a share has made of its chunks. If another share was faster, this one uses
 * that one's record. */
static void chunks_offer_locked(const struct vmm_cache *cache, struct share *share)
{
    VMM_ASSERT_HELD(&cache->grow_lock);
    uint64_t granule = first_granule(&cache->vm, share->node.key);
    for (uint32_t i = 0; i < share->head.count; i++) {
        struct chunk *chunk = chunk_next(&cache->vm, &granule);
        struct shared_chunk *shared = &share->chunks[i];
        if (chunk->exported == NULL) {
            chunk->exported = shared->exported;
        } else if (shared->exported != chunk->exported) {
            vmm__share_chunk_close(shared);
            chunk_join(chunk, shared);
        }
    }
}

/* Closes the chunks of a share. A record that no other share uses leaves its chunk. */
static void chunks_leave_locked(const struct vmm_cache *cache, struct share *share)
{
    VMM_ASSERT_HELD(&cache->grow_lock);
    uint64_t granule = first_granule(&cache->vm, share->node.key);
    for (uint32_t i = 0; i < share->head.count; i++) {
        struct chunk *chunk = chunk_next(&cache->vm, &granule);
        struct shared_chunk *shared = &share->chunks[i];
        if (shared->exported != NULL && shared->exported == chunk->exported &&
            atomic_load_explicit(&shared->exported->shares, memory_order_relaxed) == 1)
            chunk->exported = NULL;
        vmm__share_chunk_close(shared);
    }
}

/* ---- Export -------------------------------------------------------------------------------- */

/* Makes a share of the chunks of an exported block. VMM__NO_FIT: it must not be exported. */
static vmm_status chunks_share(const struct vm *vm, uint64_t address, uint64_t bytes,
                               struct share **out)
{
    const struct arena *arena = &vm->arena;
    uint64_t first = first_granule(vm, address);
    uint64_t end = vmm__arena_granule(arena, address + bytes + arena->granule_bytes - 1);
    uint32_t count = block_may(vm, address, bytes) ? chunks_count(vm, first, end) : 0;
    if (count == 0 || count > SHARE_CHUNKS_MOST)
        return VMM__NO_FIT;
    vmm_status status = vmm__share_open("vmm_share_export", count, out);
    if (status == VMM_OK)
        (*out)->head.offset = address - vmm__arena_address(arena, first);
    return status;
}

/* Ends the export of a block, unless another share names it, too. */
static void block_unmark_locked(struct vmm_cache *cache, uint64_t address)
{
    VMM_ASSERT_HELD(&cache->grow_lock);
    if (vmm__export_has_locked(cache, address))
        return;
    struct heap *heap = vmm__directory_heap(&cache->directory, address);
    vmm__lane_lock(heap->lane);
    vmm__lane_unexport_locked(heap->lane, heap, address);
    vmm__lane_unlock(heap->lane);
}

/* Marks a live block, and adds a share of its chunks to the map. */
static vmm_status begin_locked(struct vmm_cache *cache, uint64_t address, struct share **out)
{
    VMM_ASSERT_HELD(&cache->grow_lock);
    uint64_t bytes;
    uint64_t requested_bytes;
    struct heap *heap = vmm__cache_heap_of(cache, address);
    if (heap == NULL && vmm__sourced_inner(&cache->vm, address) != address)
        return VMM__NO_FIT;
    if (heap == NULL)
        return VMM__NOT_FOUND;
    vmm__lane_lock(heap->lane);
    vmm_status status = VMM_OK;
    if (!heap->is_reserved) /* which waking its pool would not help */
        status = vmm__lane_asleep_check("vmm_share_export", heap->lane);
    if (status == VMM_OK)
        status = vmm__lane_export_locked(heap->lane, heap, address, &bytes, &requested_bytes);
    vmm__lane_unlock(heap->lane);
    if (status != VMM_OK)
        return status;
    status = chunks_share(&cache->vm, address, bytes, out);
    if (status != VMM_OK) {
        block_unmark_locked(cache, address);
        return status;
    }
    struct share *share = *out;
    share->head.bytes = requested_bytes;
    share->node.key = address;
    share->cache = cache;
    vmm__map_add(&cache->exports, &share->node);
    chunks_join_locked(cache, share);
    return VMM_OK;
}

static vmm_status nonce_draw(uint64_t *nonce)
{
    if (getrandom(nonce, sizeof *nonce, 0) == (ssize_t)sizeof *nonce)
        return VMM_OK;
    return vmm__error(VMM_ERR_DRIVER, "vmm_share_export: getrandom(): %s (%d)", strerror(errno),
                      errno);
}

/* Exports a chunk. */
static vmm_status chunk_fill(struct driver *driver, const struct chunk *chunk,
                             struct shared_chunk *shared)
{
    vmm_status status = vmm__share_chunk_open("vmm_share_export", shared);
    if (status != VMM_OK)
        return status;
    struct chunk_export *exported = shared->exported;
    status = vmm__driver_share_export(driver, chunk->handle, &exported->descriptor);
    if (status != VMM_OK || chunk->reach != VMM_SHARE_FABRIC)
        return status;
    status = vmm__driver_fabric_export(driver, chunk->handle, &exported->fabric);
    exported->has_fabric = status == VMM_OK;
    return status;
}

/* Fills in a share. The block stays where it is, so this needs no lock. */
static vmm_status share_fill(struct vmm_cache *cache, struct share *share)
{
    struct vm *vm = &cache->vm;
    uint64_t granule = first_granule(vm, share->node.key);
    memcpy(share->head.uuid, cache->driver->uuid, sizeof share->head.uuid);
    vmm__message_head_set(&share->head);
    vmm_status status = nonce_draw(&share->head.nonce);
    for (uint32_t i = 0; i < share->head.count && status == VMM_OK; i++) {
        const struct chunk *chunk = chunk_next(vm, &granule);
        if (share->chunks[i].exported == NULL)
            status = chunk_fill(vm->driver, chunk, &share->chunks[i]);
    }
    return status;
}

vmm_status vmm__export(struct vmm_cache *cache, uint64_t address, uint64_t offset, uint64_t bytes,
                       struct share **out)
{
    struct share *share;
    vmm__fair_lock(&cache->grow_lock);
    vmm_status status = begin_locked(cache, address, &share);
    vmm__fair_unlock(&cache->grow_lock);
    if (status != VMM_OK)
        return status;
    share->head.offset += offset;
    share->head.bytes = bytes != 0 ? bytes : share->head.bytes;
    status = share_fill(cache, share);
    if (status != VMM_OK) {
        vmm__export_end(share);
        return status;
    }
    vmm__fair_lock(&cache->grow_lock);
    chunks_offer_locked(cache, share);
    vmm__fair_unlock(&cache->grow_lock);
    *out = share;
    return VMM_OK;
}

void vmm__export_end(struct share *share)
{
    struct vmm_cache *cache = share->cache;
    vmm__fair_lock(&cache->grow_lock);
    chunks_leave_locked(cache, share);
    vmm__map_remove(&cache->exports, &share->node);
    block_unmark_locked(cache, share->node.key);
    vmm__fair_unlock(&cache->grow_lock);
    vmm__share_close(share);
}
