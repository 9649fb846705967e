/* Free under a guard, and the quarantine: see guard.h. */
#include "guard/canary.h"
#include "guard/guard_internal.h"
#include "policy/fence.h"
#include "policy/handout.h"

enum { KEPT_MOST = 4096 }; /* blocks in quarantine */

/* Gives the pool a block back; on failure it stays where it was. */
static vmm_status record_end(struct guard *guard, struct record *record, bool *looks)
{
    vmm_status status = vmm__handout_return(guard->cache, record->inner, looks);
    if (status == VMM_OK)
        vmm__records_add_freed(&guard->records, record);
    return status;
}

/* Looks at a kept block a last time, and gives it back. One that is doubtful then stays. */
static vmm_status kept_give(const struct guard_call *call, struct record *record,
                            struct finding *finding)
{
    struct guard *guard = call->cache->guard;
    bool looks;
    uint64_t wrong;
    vmm_status status = vmm__canary_check(guard, record, guard->stream, &wrong);
    if (status == VMM_ERR_CORRUPTED && record->is_watched)
        vmm__finding_note(call, record, wrong, finding);
    if (record->is_doubtful)
        return status;
    status = record_end(guard, record, &looks);
    if (status == VMM_OK)
        atomic_fetch_add_explicit(&guard->given, 1, memory_order_relaxed);
    return status;
}

/* Looks at kept blocks, the oldest first, and gives them back until so many are left. */
static void kept_end(const struct guard_call *call, uint64_t count, uint64_t bytes,
                     struct finding *finding)
{
    struct guard *guard = call->cache->guard;
    struct error_line line;
    struct record *record;
    vmm_status status = VMM_OK;
    vmm__error_save(&line);
    while (status == VMM_OK &&
           (record = vmm__records_evict(&guard->records, count, bytes)) != NULL) {
        status = kept_give(call, record, finding);
        if (status != VMM_OK)
            vmm__records_add_kept(&guard->records, record);
    }
    vmm__error_restore(&line);
}

vmm_status vmm__guard_flush(const struct guard_call *call)
{
    struct guard *guard = call->cache->guard;
    struct finding finding = { .first = { .text = "" } };
    if (guard == NULL || !vmm__guard_watches(guard))
        return VMM_OK;
    vmm__lock_take(&guard->gate);
    kept_end(call, 0, 0, &finding);
    vmm__lock_drop(&guard->gate);
    return vmm__finding_end(call, &finding, VMM_OK);
}

/* Whether graphs use a block's memory, also when it is free. */
static bool is_held(vmm_cache *cache, uint64_t inner)
{
    vmm__fair_take(&cache->grow_lock);
    const struct heap *heap = vmm__handout_heap(cache, inner);
    bool held = heap != NULL && heap->pool->is_held;
    vmm__fair_drop(&cache->grow_lock);
    return held;
}

/* Waits for what other streams do with a block. False if not all of that can be waited for. */
static bool uses_wait(vmm_cache *cache, uint64_t inner)
{
    struct heap *heap = vmm__handout_owner(cache, inner);
    if (heap == NULL)
        return false;
    vmm__uses_stamp(&heap->pool->uses, inner);
    vmm__biased_drop(&heap->pool->lock);
    if (vmm__cache_wait(cache) != VMM_OK)
        return false;
    heap = vmm__handout_owner(cache, inner);
    if (heap == NULL)
        return false;
    bool have_ended = vmm__uses_forget(&heap->pool->uses, inner);
    vmm__biased_drop(&heap->pool->lock);
    return have_ended;
}

/*
 * Looks at a block that the program gives back, after its work. VMM_OK: it may be kept, as it is poison now.
 * VMM_NOT_READY: it cannot, or has nothing to show. Poison comes first, so that the one wait is for both; a stream
 * that has ended writes none.
 */
static vmm_status block_inspect(const struct guard_call *call, struct record *record,
                                struct finding *finding)
{
    struct guard *guard = call->cache->guard;
    vmm_stream stream = record->is_left ? guard->stream : record->stream;
    if (!record->is_watched || vmm__guard_is_captured(guard, stream))
        return VMM_NOT_READY;
    if (record->is_used && !uses_wait(guard->cache, record->inner))
        return VMM_NOT_READY;
    bool is_kept = !record->is_left && !vmm__guard_is_large(record->bytes) &&
                   !is_held(guard->cache, record->inner);
    if (is_kept && vmm__canary_poison(guard, record) != VMM_OK)
        return VMM_NOT_READY;
    uint64_t wrong;
    vmm_status status = vmm__canary_check(guard, record, stream, &wrong);
    if (status == VMM_ERR_CORRUPTED) {
        vmm__finding_note(call, record, wrong, finding);
        record->is_watched = false; /* it would only be found again */
        return VMM_NOT_READY;
    }
    return status == VMM_OK && is_kept ? VMM_OK : VMM_NOT_READY;
}

/* What lay alone goes on to the driver. */
static vmm_status unkept_give(struct guard *guard, struct record *record, bool *looks)
{
    bool is_alone = record->is_alone;
    vmm_status status = record_end(guard, record, looks);
    if (status == VMM_OK && is_alone)
        vmm__fence_sweep(guard->cache);
    return status;
}

static vmm_status watched_free(const struct guard_call *call, struct record *record, bool *looks,
                               struct finding *finding)
{
    struct guard *guard = call->cache->guard;
    struct error_line line;
    vmm__error_save(&line);
    vmm_status status = block_inspect(call, record, finding);
    vmm__error_restore(&line);
    record->is_poison = status == VMM_OK;
    if (!record->is_poison && !record->is_doubtful)
        return unkept_give(guard, record, looks);
    /* To the pool a kept block is live; that its bytes stay where they are was the program's wish. */
    (void)vmm__handout_pin(guard->cache, record->inner, false);
    vmm__records_add_kept(&guard->records, record);
    kept_end(call, KEPT_MOST, guard->kept_bytes_most, finding);
    return VMM_OK;
}

static vmm_status recorded_free(const struct guard_call *call, uint64_t address, bool *looks,
                                struct finding *finding)
{
    struct guard *guard = call->cache->guard;
    struct record *record = vmm__records_claim(&guard->records, address);
    if (record == NULL)
        return VMM_NOT_READY;
    vmm__records_deed(&guard->records, &record->freed, call->caller);
    vmm_status status = watched_free(call, record, looks, finding);
    if (status == VMM_OK)
        return VMM_OK;
    record->freed.operation = 0;
    vmm__records_add_live(&guard->records, record);
    return status;
}

vmm_status vmm__guard_free(const struct guard_call *call, uint64_t address, bool *looks)
{
    struct guard *guard = call->cache->guard;
    struct finding finding = { .first = { .text = "" } };
    if (guard->mode == VMM_GUARD_OFF)
        return vmm__handout_return(call->cache, address, looks);
    if (vmm__guard_watches(guard))
        vmm__lock_take(&guard->gate);
    vmm_status status = recorded_free(call, address, looks, &finding);
    if (vmm__guard_watches(guard))
        vmm__lock_drop(&guard->gate);
    if (status == VMM_NOT_READY)
        return vmm__guard_unknown(call, address);
    return vmm__finding_end(call, &finding, status);
}

vmm_status vmm__guard_inner(const struct guard_call *call, void **block)
{
    struct guard *guard = call->cache->guard;
    uint64_t address = (uint64_t)(uintptr_t)*block;
    if (guard == NULL || guard->mode == VMM_GUARD_OFF)
        return VMM_OK;
    vmm__lock_take(&guard->records.lock);
    struct record *record = vmm__records_find_locked(&guard->records, address);
    uint64_t inner = 0;
    if (record != NULL) {
        inner = record->inner;
        record->is_used = record->is_used || call->is_use;
    }
    vmm__lock_drop(&guard->records.lock);
    if (record == NULL)
        return vmm__guard_unknown(call, address);
    *block = (void *)(uintptr_t)inner;
    return VMM_OK;
}
