/* Allocation under a guard: see guard.h. */
#include "base/hostmem.h"
#include "guard/canary.h"
#include "guard/guard_internal.h"
#include "policy/fence.h"
#include "policy/handout.h"

static vmm_status inner_take(struct guard *guard, struct record *record)
{
    vmm_cache *cache = guard->cache;
    uint64_t padded = vmm__guard_padded_bytes(record->bytes);
    bool is_watching = vmm__guard_watches(guard) && padded <= cache->memory.arena.bytes;
    void *inner;
    vmm_status status;
    if (!is_watching)
        status = vmm__handout_visit(cache, record->bytes, record->stream, &inner);
    else if (vmm__guard_is_large(record->bytes))
        status = vmm__handout_alone(cache, record->bytes, padded, record->stream, &inner,
                                    &record->is_alone);
    else
        status = vmm__handout_visit(cache, padded, record->stream, &inner);
    if (status != VMM_OK)
        return status;
    record->inner = (uint64_t)(uintptr_t)inner;
    record->inner_bytes = is_watching ? padded : vmm__cache_block_bytes(cache, record->bytes);
    record->address = record->inner + (is_watching ? GUARD_FRONT_BYTES : 0);
    if (!record->is_alone)
        return VMM_OK;
    record->inner_bytes = vmm__align_up(record->bytes, cache->memory.arena.granule_bytes);
    record->address =
        record->inner + record->inner_bytes - vmm__align_up(record->bytes, LARGE_UNIT_BYTES);
    return VMM_OK;
}

/* The request that the thread makes of the pools; NULL: none. */
static _Thread_local const struct guard_call *under_way;

/* What is found in quarantine is told; it is no fault of the request that needs the memory. */
uint64_t vmm__guard_give(struct guard *guard)
{
    const struct guard_call *call = under_way;
    struct error_line line;
    if (!vmm__guard_watches(guard) || call == NULL || call->cache != guard->cache)
        return 0;
    vmm__error_save(&line);
    (void)vmm__guard_flush(call);
    vmm__error_restore(&line);
    return atomic_load_explicit(&guard->given, memory_order_relaxed);
}

/* Writes what the block is to hold, and what is to be around it. */
static vmm_status block_prepare(struct guard *guard, struct record *record)
{
    vmm_status status = VMM_OK;
    if (vmm__guard_watches(guard))
        record->is_watched = !vmm__guard_is_captured(guard, record->stream);
    if (record->is_watched)
        status = vmm__canary_put(guard, record);
    uint64_t end = record->inner + record->inner_bytes;
    uint64_t zeros = record->is_watched ? record->bytes : end - record->address;
    if (status == VMM_OK && guard->zero && zeros > 0)
        status = vmm__driver_clear(guard->cache->driver, record->address, zeros, 0, record->stream);
    return status;
}

static vmm_status record_begin(const struct guard_call *call, struct record *record)
{
    struct guard *guard = call->cache->guard;
    const struct guard_call *outer = under_way;
    under_way = call;
    vmm_status status = inner_take(guard, record);
    under_way = outer; /* of a request that asked the program for memory, or told it of misuse */
    if (status != VMM_OK)
        return status;
    status = block_prepare(guard, record);
    if (status == VMM_OK) {
        const struct heap *heap = vmm__handout_heap(guard->cache, record->inner);
        record->epoch = vmm__timeline_now(&heap->pool->timeline);
        return VMM_OK;
    }
    struct error_line line;
    bool looks;
    vmm__error_save(&line);
    (void)vmm__handout_return(guard->cache, record->inner, &looks);
    if (record->is_alone)
        vmm__fence_sweep(guard->cache);
    vmm__error_restore(&line);
    return status;
}

vmm_status vmm__guard_alloc(const struct guard_call *call, size_t bytes, vmm_stream stream,
                            void **out)
{
    struct guard *guard = call->cache->guard;
    struct record apart = { .address = 0 };
    struct record *record = &apart;
    bool records = guard->mode != VMM_GUARD_OFF;
    if (records)
        record = vmm__record_take(&guard->records);
    if (record == NULL)
        return vmm__error(VMM_ERR_HOST_OOM, "vmm_alloc: no host memory for the block's record");
    record->bytes = bytes;
    record->stream = stream;
    vmm_status status = record_begin(call, record);
    if (status == VMM_OK && records) {
        vmm__records_deed(&guard->records, &record->allocated, call->caller);
        vmm__records_add_live(&guard->records, record);
    } else if (records) {
        vmm__record_drop(record);
    }
    if (status == VMM_OK)
        *out = (void *)(uintptr_t)record->address;
    return status;
}
