/* Free in debug mode, and the quarantine: see debug_mode.h. */
#include "cache/alloc/alloc.h"
#include "cache/grow/guard_page.h"
#include "cache/reserve/reserve.h"
#include "cache/share/export.h"
#include "debug/internal.h"

enum { KEPT_MOST = 4096 }; /* blocks in quarantine, at most */

/* Returns a block to its lane. On failure the block stays where it was. */
static vmm_status block_return(struct debug *debug, struct record *record, bool *should_poll)
{
    bool is_hidden = vmm__debug_watches_memory(debug);
    if (is_hidden)
        vmm__debug_count_lane(debug, record, true);
    vmm_status status = vmm__free_slow(debug->cache, record->inner, should_poll);
    if (status != VMM_OK && is_hidden)
        vmm__debug_count_lane(debug, record, false);
    if (status == VMM_OK)
        vmm__records_add_freed(&debug->records, record);
    return status;
}

/* Checks a block in quarantine and returns it to its lane. A block that is doubtful then stays. */
static vmm_status kept_return(const struct api_call *call, struct record *record,
                              struct finding *finding)
{
    struct debug *debug = call->cache->debug;
    bool should_poll;
    uint64_t wrong;
    vmm_status status = vmm__canary_check(debug, record, debug->stream, &wrong);
    if (status == VMM_ERR_CORRUPTED && record->is_watched)
        vmm__finding_note(call, record, wrong, finding);
    if (record->is_doubtful)
        return status;
    status = block_return(debug, record, &should_poll);
    if (status == VMM_OK)
        atomic_fetch_add_explicit(&debug->given, 1, memory_order_relaxed);
    return status;
}

/* Checks and returns blocks in quarantine, the oldest first, until at most so many are left. */
static void quarantine_shrink(const struct api_call *call, uint64_t count, uint64_t bytes,
                              struct finding *finding)
{
    struct debug *debug = call->cache->debug;
    struct record *record;
    vmm_status status = VMM_OK;
    VMM_QUIET();
    while (status == VMM_OK &&
           (record = vmm__records_evict(&debug->records, count, bytes)) != NULL) {
        status = kept_return(call, record, finding);
        if (status != VMM_OK)
            vmm__records_add_kept(&debug->records, record);
    }
}

vmm_status vmm__debug_flush(const struct api_call *call)
{
    struct debug *debug = call->cache->debug;
    struct finding finding = { .first = { .text = "" } };
    if (debug == NULL || !vmm__debug_watches_memory(debug))
        return VMM_OK;
    vmm__mutex_lock(&debug->gate);
    quarantine_shrink(call, 0, 0, &finding);
    vmm__mutex_unlock(&debug->gate);
    return vmm__finding_end(call, &finding, VMM_OK);
}

/* Returns whether graphs, or other processes, may use a block's memory even after its free. */
static bool is_retained(vmm_cache *cache, uint64_t inner)
{
    VMM_HOLD_FAIR(&cache->grow_lock);
    const struct heap *heap = vmm__alloc_owner(cache, &inner);
    return heap != NULL &&
           (vmm__lane_is_retained(heap->lane) || vmm__export_has_locked(cache, inner));
}

/* Waits for the work of other streams on a block. Returns false if it cannot wait for all of that work. */
static bool uses_wait(vmm_cache *cache, uint64_t inner)
{
    struct heap *heap = vmm__free_lane_lock(cache, &inner);
    if (heap == NULL)
        return false;
    vmm__notes_record(&heap->lane->notes, inner);
    vmm__biased_unlock(&heap->lane->lock);
    if (vmm__cache_wait(cache) != VMM_OK)
        return false;
    heap = vmm__free_lane_lock(cache, &inner);
    if (heap == NULL)
        return false;
    bool have_ended = vmm__notes_forget(&heap->lane->notes, inner);
    vmm__biased_unlock(&heap->lane->lock);
    return have_ended;
}

/* Checks a freed block after its work. Returns whether it is poisoned now and may enter the quarantine. Writes the
 * poison first, so that one wait covers both; writes none on a closed stream. */
static bool block_inspect(const struct api_call *call, struct record *record,
                          struct finding *finding)
{
    struct debug *debug = call->cache->debug;
    vmm_stream stream = record->is_left ? debug->stream : record->stream;
    VMM_QUIET();
    if (!record->is_watched || vmm__debug_is_captured(debug, stream))
        return false;
    if (record->is_used && !uses_wait(debug->cache, record->inner))
        return false;
    bool is_kept = !record->is_left && !vmm__debug_is_large(record->bytes) &&
                   !is_retained(debug->cache, record->inner);
    if (is_kept && vmm__canary_poison(debug, record) != VMM_OK)
        return false;
    uint64_t wrong;
    vmm_status status = vmm__canary_check(debug, record, stream, &wrong);
    if (status == VMM_ERR_CORRUPTED) {
        vmm__finding_note(call, record, wrong, finding);
        record->is_watched = false; /* a later check would report the same write again */
        return false;
    }
    return status == VMM_OK && is_kept;
}

/* Frees a block without quarantine. The memory of a block with a guard page is released to the driver. */
static vmm_status block_free(struct debug *debug, struct record *record, bool *should_poll)
{
    bool is_alone = record->is_alone;
    vmm_status status = block_return(debug, record, should_poll);
    if (status == VMM_OK && is_alone)
        vmm__guard_page_sweep(debug->cache);
    return status;
}

static vmm_status watched_free(const struct api_call *call, struct record *record,
                               bool *should_poll, struct finding *finding)
{
    struct debug *debug = call->cache->debug;
    record->is_poison = block_inspect(call, record, finding);
    if (!record->is_poison && !record->is_doubtful)
        return block_free(debug, record, should_poll);
    /* A block in quarantine stays live to its lane, but the program's pin and name end with its free. */
    (void)vmm__pin_slow(debug->cache, record->inner, false);
    (void)vmm__name_slow(debug->cache, record->inner, NULL);
    vmm__debug_count_kept(debug, record);
    vmm__records_add_kept(&debug->records, record);
    quarantine_shrink(call, KEPT_MOST, debug->kept_bytes_most, finding);
    return VMM_OK;
}

static vmm_status recorded_free(const struct api_call *call, uint64_t address, bool *should_poll,
                                struct finding *finding)
{
    struct debug *debug = call->cache->debug;
    struct record *record = vmm__records_claim(&debug->records, address);
    if (record == NULL)
        return VMM__NOT_FOUND;
    vmm__records_call_site(&debug->records, &record->freed, call->caller);
    vmm_status status = watched_free(call, record, should_poll, finding);
    if (status == VMM_OK)
        return VMM_OK;
    record->freed.operation = 0;
    vmm__records_add_live(&debug->records, record);
    return status;
}

vmm_status vmm__debug_free(const struct api_call *call, uint64_t address, bool *should_poll)
{
    struct debug *debug = call->cache->debug;
    struct finding finding = { .first = { .text = "" } };
    if (debug->mode == VMM_DEBUG_OFF || vmm__reserved_has(call->cache, address))
        return vmm__free_slow(call->cache, address, should_poll);
    if (vmm__debug_watches_memory(debug))
        vmm__mutex_lock(&debug->gate);
    vmm_status status = recorded_free(call, address, should_poll, &finding);
    if (vmm__debug_watches_memory(debug))
        vmm__mutex_unlock(&debug->gate);
    if (status == VMM__NOT_FOUND)
        return vmm__debug_unknown(call, address);
    return vmm__finding_end(call, &finding, status);
}

vmm_status vmm__debug_inner(const struct api_call *call, void **block)
{
    struct debug *debug = call->cache->debug;
    uint64_t address = (uint64_t)(uintptr_t)*block;
    if (debug == NULL || debug->mode == VMM_DEBUG_OFF || vmm__reserved_has(call->cache, address) ||
        vmm__alloc_is_import(call->cache, address))
        return VMM_OK;
    vmm__mutex_lock(&debug->records.lock);
    struct record *record = vmm__records_find_locked(&debug->records, address);
    uint64_t inner = 0;
    if (record != NULL) {
        inner = record->inner;
        record->is_used = record->is_used || call->is_use;
    }
    vmm__mutex_unlock(&debug->records.lock);
    if (record == NULL)
        return vmm__debug_unknown(call, address);
    *block = (void *)(uintptr_t)inner;
    return VMM_OK;
}
