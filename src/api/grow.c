/*
 * The public functions for blocks with an alignment, with addresses of their own, and of another size: see "Growing" in
 * include/vmmcache/vmmcache.h.
 */
#include "api/internal.h"
#include "base/arith.h"
#include "base/error.h"
#include "base/handle.h"
#include "cache/alloc/alloc.h"
#include "cache/alloc/commit.h"
#include "cache/alloc/resize.h"
#include "cache/pool/pools.h"
#include "cache/reserve/reserve.h"
#include "cache/share/import.h"
#include "cache/streams.h"
#include "debug/debug_mode.h"
#include "debug/nvtx.h"
#include "lane/block_ref.h"

#include <string.h>

enum { UNIT_BYTES_DEFAULT = 2 << 20 };

/* ---- Alignment ----------------------------------------------------------------------------- */

vmm_status vmm_alloc_aligned(vmm_pool *handle, size_t bytes, size_t alignment, vmm_stream stream,
                             void **out)
{
    struct pool *pool;
    vmm_status status = vmm__api_pool_work(handle, "vmm_alloc_aligned", out, "out", &pool);
    if (status == VMM_OK && (alignment == 0 || (alignment & (alignment - 1)) != 0))
        status =
            vmm__error(VMM_ERR_INVALID_ARGUMENT,
                       "vmm_alloc_aligned: alignment is %zu, which is no power of two", alignment);
    if (status != VMM_OK)
        return status;
    struct api_call call = API_CALL(pool->cache, "vmm_alloc_aligned");
    struct request request = { .pool = pool,
                               .bytes = bytes,
                               .stream = stream,
                               .alignment = alignment > LARGE_UNIT_BYTES ? alignment : 0 };
    return vmm__api_alloc(&call, &request, out);
}

/* ---- Reserved blocks ----------------------------------------------------------------------- */

static vmm_status reserve_check(const struct pool *pool, size_t bytes, uint64_t unit_bytes)
{
    const struct vmm_cache *cache = pool->cache;
    uint64_t granule_bytes = cache->vm.arena.granule_bytes;
    uint64_t rounded;
    if (vmm__pool_has_source(pool))
        return vmm__error(VMM_ERR_UNSUPPORTED,
                          "vmm_reserve: pool %s has a source, whose memory cannot be mapped",
                          pool->name);
    if (cache->nvtx != NULL)
        return vmm__error(VMM_ERR_UNSUPPORTED, "vmm_reserve: nvtx cannot show reserved blocks");
    if (bytes == 0 || unit_bytes % granule_bytes != 0)
        return vmm__error(
            VMM_ERR_INVALID_ARGUMENT,
            "vmm_reserve: %zu bytes in units of %llu: bytes must be above 0, a unit a "
            "multiple of %llu",
            bytes, (unsigned long long)unit_bytes, (unsigned long long)granule_bytes);
    if (!vmm__round_up_checked(bytes, unit_bytes, &rounded) ||
        rounded > cache->vm.arena.limit_bytes)
        return vmm__error(
            VMM_ERR_ADDRESS_SPACE,
            "vmm_reserve: %zu bytes in units of %llu are more than the arena has: see arena_bytes",
            bytes, (unsigned long long)unit_bytes);
    return VMM_OK;
}

vmm_status vmm_reserve(vmm_pool *handle, size_t bytes, size_t unit_bytes, vmm_stream stream,
                       void **out)
{
    struct pool *pool;
    struct lane *lane;
    uint64_t unit = unit_bytes == 0 ? UNIT_BYTES_DEFAULT : unit_bytes;
    vmm_status status = vmm__api_pool_work(handle, "vmm_reserve", out, "out", &pool);
    if (status == VMM_OK)
        status = vmm__stream_resolve("vmm_reserve", &stream);
    if (status == VMM_OK)
        status = reserve_check(pool, bytes, unit);
    if (status == VMM_OK)
        status = vmm__pool_lane(pool, stream, &lane);
    if (status == VMM_OK)
        status = vmm__reserve(pool->cache, lane, bytes, unit, out);
    if (status == VMM_OK)
        vmm__record_note(pool->cache, "vmm_reserve: %zu bytes at %llu in units of %llu", bytes,
                         (unsigned long long)(uintptr_t)*out, (unsigned long long)unit);
    return status;
}

vmm_status vmm_commit(vmm_cache *cache, void *ptr, size_t offset, size_t bytes)
{
    vmm_status status = vmm__cache_admit_work(cache, "vmm_commit");
    if (status != VMM_OK)
        return status;
    return vmm__commit(cache, (uint64_t)(uintptr_t)ptr, offset, bytes);
}

vmm_status vmm_decommit(vmm_cache *cache, void *ptr, size_t offset, size_t bytes)
{
    vmm_status status = vmm__cache_admit(cache, "vmm_decommit");
    if (status != VMM_OK)
        return status;
    return vmm__decommit(cache, (uint64_t)(uintptr_t)ptr, offset, bytes);
}

/* ---- Size ---------------------------------------------------------------------------------- */

/* A block that is copied to another one. */
struct copy {
    void *from;
    uint64_t from_bytes; /* as requested */
    void *to;
    uint64_t bytes;       /* as requested */
    const vmm_pool *pool; /* another thread may destroy it: see struct request */
    vmm_stream stream;
    char name[VMM_NAME_BYTES];
};

static vmm_status copy_refuse(const void *block, const char *why)
{
    return vmm__error(VMM_ERR_INVALID_ARGUMENT,
                      "vmm_resize: the block at %p cannot be copied to a larger place: %s", block,
                      why);
}

/* Finds the stream of a block, and whether the block may get another address and the stream more work. `inner`: the
 * lane's block. */
static vmm_status copy_check(vmm_cache *cache, struct copy *copy, const void *inner)
{
    uint64_t address = (uint64_t)(uintptr_t)inner;
    struct block_ref ref;
    bool is_captured = false;
    struct heap *heap = vmm__free_lane_lock(cache, &address);
    if (heap == NULL)
        return vmm__block_ref_none("vmm_resize", NULL, address);
    struct lane *lane = heap->lane;
    bool is_live = vmm__lane_find_live_locked(lane, heap, address, &ref);
    bool is_pinned = is_live && vmm__block_ref_is_pinned(&ref);
    bool has_ended = vmm__lane_has_ended(lane);
    copy->stream = atomic_load_explicit(&lane->owner.stream, memory_order_relaxed);
    (void)vmm__notes_borrower(&lane->notes, address, &copy->stream, &has_ended);
    vmm__biased_unlock(&lane->lock);
    if (is_pinned)
        return copy_refuse(copy->from, "it is under vmm_pin() or exported");
    if (has_ended)
        return copy_refuse(copy->from, "its stream has ended");
    vmm_status status = vmm__driver_stream_capturing(cache->driver, copy->stream, &is_captured);
    if (status == VMM_OK && is_captured)
        return copy_refuse(copy->from, "its stream is being captured");
    return status;
}

/* Finds the block as the program knows it. */
static vmm_status copy_begin(const struct api_call *call, void *ptr, struct copy *copy)
{
    vmm_item item = VMM_ITEM_INIT;
    void *inner = ptr;
    vmm_status status = vmm__debug_inner(call, &inner);
    if (status == VMM_OK && vmm_find(call->cache, ptr, &item) != VMM_OK)
        status = vmm__block_ref_none("vmm_resize", NULL, (uint64_t)(uintptr_t)ptr);
    if (status == VMM_OK && item.address != (uint64_t)(uintptr_t)ptr)
        status = vmm__error(VMM_ERR_UNKNOWN_POINTER,
                            "vmm_resize: %p is not the start of a live block", ptr);
    if (status != VMM_OK)
        return status;
    copy->from = ptr;
    copy->from_bytes = item.requested_bytes;
    memcpy(copy->name, item.name, sizeof copy->name);
    copy->pool = item.pool;
    return copy_check(call->cache, copy, inner);
}

/* Submits the copy, unless another thread has put the pool to sleep. */
static vmm_status contents_copy(vmm_cache *cache, const struct copy *copy, uint64_t bytes)
{
    struct lane *lane;
    uint64_t from = (uint64_t)(uintptr_t)copy->from;
    vmm_status status = vmm__awake_lane_lock(cache, "vmm_resize", from, &lane);
    if (status != VMM_OK)
        return status;
    status =
        vmm__driver_copy(cache->driver, (uint64_t)(uintptr_t)copy->to, from, bytes, copy->stream);
    vmm__biased_unlock(&lane->lock);
    return status;
}

/* What debug mode finds as it frees the block is reported, and does not keep the block. */
static vmm_status old_free(vmm_cache *cache, void *block)
{
    vmm_status status = vmm_free(cache, block);
    return status == VMM_ERR_CORRUPTED ? VMM_OK : status;
}

/* The new block is unborrowed, so that it is of the old one's pool. */
static vmm_status copy_run(const struct api_call *call, struct copy *copy)
{
    vmm_cache *cache = call->cache;
    struct request request = { .pool =
                                   copy->pool == NULL ? &cache->pool : NULL, /* else it is gone */
                               .handle = copy->pool,
                               .bytes = copy->bytes,
                               .stream = copy->stream,
                               .is_unborrowed = true };
    uint64_t bytes = vmm__min(copy->from_bytes, copy->bytes);
    vmm_status status = vmm__api_alloc(call, &request, &copy->to);
    if (status != VMM_OK)
        return status;
    if (bytes > 0)
        status = contents_copy(cache, copy, bytes);
    if (status == VMM_OK && copy->name[0] != '\0')
        status = vmm_name(cache, copy->to, copy->name);
    if (status == VMM_OK)
        status = old_free(cache, copy->from);
    if (status == VMM_OK) {
        vmm__count(&cache->counts.resize_copied_bytes, bytes);
        return VMM_OK;
    }
    VMM_QUIET();
    (void)vmm_free(cache, copy->to);
    return status;
}

/* Allocates a block, copies the contents and frees the old one, in stream order. */
static vmm_status resize_by_copy(const struct api_call *call, void *ptr, size_t bytes, void **out)
{
    struct copy copy = { .bytes = bytes };
    vmm_status status = copy_begin(call, ptr, &copy);
    if (status == VMM_OK)
        status = copy_run(call, &copy);
    if (status == VMM_OK)
        *out = copy.to;
    return status;
}

static vmm_status resize_check(vmm_cache *cache, const void *ptr, size_t bytes, void **out)
{
    vmm_status status = vmm__api_admit_work(cache, "vmm_resize", out, "out");
    if (status == VMM_OK && ptr == NULL)
        status = vmm__cache_missing("vmm_resize", "ptr");
    if (status == VMM_OK && bytes == 0)
        status = vmm__error(VMM_ERR_INVALID_ARGUMENT, "vmm_resize: bytes is 0: use vmm_free()");
    if (status == VMM_OK && vmm__import_owns(cache, (uint64_t)(uintptr_t)ptr))
        status =
            vmm__error(VMM_ERR_INVALID_ARGUMENT, "vmm_resize: the block at %p is imported", ptr);
    return status;
}

vmm_status vmm_resize(vmm_cache *cache, void *ptr, size_t bytes, void **out)
{
    vmm_status status = resize_check(cache, ptr, bytes, out);
    if (status != VMM_OK)
        return status;
    uint64_t address = (uint64_t)(uintptr_t)ptr;
    struct api_call call = API_CALL(cache, "vmm_resize");
    struct error_line line;
    vmm__error_save(&line);
    if (vmm__reserved_owns(cache, address) || (cache->debug == NULL && cache->nvtx == NULL))
        status = vmm__resize(cache, address, bytes, out);
    else
        status = VMM__NO_FIT;
    if (status == VMM__NO_FIT || status == VMM__NOT_FOUND)
        status = resize_by_copy(&call, ptr, bytes, out);
    if (status == VMM_OK)
        vmm__api_trim_without_caching(cache); /* the bytes that a shorter block gave up */
    /* the driver may have refused to release memory */
    return vmm__error_end(&line, status);
}

/* ---- Names --------------------------------------------------------------------------------- */

vmm_status vmm_name(vmm_cache *cache, const void *ptr, const char *text)
{
    void *block = (void *)(uintptr_t)ptr;
    struct api_call call = API_CALL(cache, "vmm_name");
    vmm_status status = vmm__cache_admit(cache, "vmm_name");
    if (status == VMM_OK)
        status = vmm__debug_inner(&call, &block);
    if (status == VMM_OK)
        status = vmm__name_slow(cache, (uint64_t)(uintptr_t)block, text);
    if (status == VMM_OK) {
        vmm__record_name(cache, ptr, text == NULL ? "" : text);
        vmm__nvtx_name(cache, ptr, text);
    }
    return status == VMM__NOT_FOUND
               ? vmm__block_ref_none("vmm_name", NULL, (uint64_t)(uintptr_t)ptr)
               : status;
}
