/* Exports blocks: see export.h. */
#include "cache/share/export.h"
#include "base/arith.h"
#include "base/error.h"
#include "cache/share/message.h"

#include <errno.h>
#include <string.h>
#include <sys/random.h>

/* ---- The list ------------------------------------------------------------------------------ */

bool vmm__export_has_locked(const struct vmm_cache *cache, uint64_t address)
{
    const struct share *share = cache->exports;
    while (share != NULL && share->block != address)
        share = share->next;
    return share != NULL;
}

static void list_remove(struct vmm_cache *cache, const struct share *share)
{
    struct share **link = &cache->exports;
    while (*link != share)
        link = &(*link)->next;
    *link = share->next;
}

void vmm__exports_leave(struct vmm_cache *cache)
{
    for (struct share *share = cache->exports; share != NULL; share = share->next)
        share->cache = NULL;
    cache->exports = NULL;
}

/* ---- Export -------------------------------------------------------------------------------- */

/* Counts the chunks of a range. 0: it is not made of whole chunks that other processes can import. */
static uint32_t chunks_count(const struct vm *vm, uint64_t granule, uint64_t end)
{
    uint32_t count = 0;
    uint64_t at = granule;
    while (at < end) {
        const struct chunk *chunk = vmm__vm_chunk(vm, at);
        if (chunk->first != at || !chunk->is_exportable)
            return 0;
        at += chunk->granules;
        count++;
    }
    return at == end ? count : 0;
}

/* Makes a share of the chunks of an exported block. VMM__NO_FIT: it shares chunks with others. */
static vmm_status chunks_share(const struct vm *vm, uint64_t address, uint64_t bytes,
                               struct share **out)
{
    const struct arena *arena = &vm->arena;
    uint64_t granule = vmm__arena_granule(arena, address);
    uint64_t end = vmm__arena_granule(arena, address + bytes);
    bool is_whole = vmm__is_aligned(address | bytes, arena->granule_bytes);
    uint32_t count = is_whole ? chunks_count(vm, granule, end) : 0;
    if (count == 0 || count > SHARE_CHUNKS_MOST)
        return VMM__NO_FIT;
    struct share *share;
    vmm_status status = vmm__share_open("vmm_share_export", count, &share);
    if (status != VMM_OK)
        return status;
    for (uint32_t i = 0; i < count; i++) {
        const struct chunk *chunk = vmm__vm_chunk(vm, granule);
        share->chunks[i].bytes = vmm__chunk_bytes(vm, chunk);
        granule += chunk->granules;
    }
    *out = share;
    return VMM_OK;
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

/* Marks a live block, and adds a share of its chunks to the list. */
static vmm_status begin_locked(struct vmm_cache *cache, uint64_t address, struct share **out)
{
    VMM_ASSERT_HELD(&cache->grow_lock);
    uint64_t bytes;
    uint64_t requested_bytes;
    struct heap *heap = NULL;
    if (vmm__arena_contains(&cache->vm.arena, address))
        heap = vmm__directory_heap(&cache->directory, address);
    if (heap == NULL)
        return VMM__NOT_FOUND;
    vmm__lane_lock(heap->lane);
    vmm_status status = vmm__lane_asleep_check("vmm_share_export", heap->lane);
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
    share->block = address;
    share->cache = cache;
    share->next = cache->exports;
    cache->exports = share;
    return VMM_OK;
}

static vmm_status nonce_draw(uint64_t *nonce)
{
    if (getrandom(nonce, sizeof *nonce, 0) == (ssize_t)sizeof *nonce)
        return VMM_OK;
    return vmm__error(VMM_ERR_DRIVER, "vmm_share_export: getrandom(): %s (%d)", strerror(errno),
                      errno);
}

/* Fills in a share. The block stays where it is, so this needs no lock. */
static vmm_status share_fill(struct vmm_cache *cache, struct share *share)
{
    struct vm *vm = &cache->vm;
    uint64_t granule = vmm__arena_granule(&vm->arena, share->block);
    memcpy(share->head.uuid, cache->driver->uuid, sizeof share->head.uuid);
    vmm_status status = nonce_draw(&share->head.nonce);
    for (uint32_t i = 0; i < share->head.count && status == VMM_OK; i++) {
        struct shared_chunk *shared = &share->chunks[i];
        status = vmm__driver_share_export(vm->driver, vmm__vm_chunk(vm, granule)->handle,
                                          &shared->descriptor);
        granule += shared->bytes >> vm->arena.granule_shift;
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
    vmm__message_head_set(&share->head);
    share->head.offset = offset;
    share->head.bytes = bytes != 0 ? bytes : share->head.bytes;
    status = share_fill(cache, share);
    if (status == VMM_OK)
        *out = share;
    else
        vmm__export_end(share);
    return status;
}

void vmm__export_end(struct share *share)
{
    struct vmm_cache *cache = share->cache;
    vmm__fair_lock(&cache->grow_lock);
    list_remove(cache, share);
    block_unmark_locked(cache, share->block);
    vmm__fair_unlock(&cache->grow_lock);
    vmm__share_close(share);
}
