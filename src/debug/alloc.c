/* Allocation in debug mode: see debug_mode.h. */
#include "cache/alloc/alloc.h"
#include "cache/grow/guard_page.h"
#include "cache/pool/place.h"
#include "cache/streams.h"
#include "debug/internal.h"

/* Allocates the lane's block for a record. */
static vmm_status inner_take(const struct api_call *call, struct request *request,
                             struct record *record)
{
    void *inner;
    request->stream = record->stream;
    vmm_status status = vmm__alloc_request(call->cache, request, &inner);
    if (status == VMM_OK)
        record->inner = (uint64_t)(uintptr_t)inner;
    return status;
}

/* A block with canaries at an alignment lies inside a larger block; it has no guard page. */
static vmm_status inner_alloc_aligned(const struct api_call *call, struct request *request,
                                      struct record *record)
{
    bool is_watching = vmm__debug_watches_memory(call->cache->debug);
    uint64_t alignment = request->alignment;
    uint64_t front_bytes = is_watching ? DEBUG_FRONT_BYTES : 0;
    uint64_t back_bytes = is_watching ? DEBUG_BACK_BYTES : 0;
    uint64_t bytes;
    if (!vmm__add_checked(record->bytes, front_bytes + alignment + back_bytes, &bytes))
        bytes = UINT64_MAX;
    if (is_watching) {
        request->bytes = bytes;
        request->alignment = 0;
    }
    vmm_status status = inner_take(call, request, record);
    if (status != VMM_OK)
        return status;
    record->address = vmm__align_up(record->inner + front_bytes, alignment);
    uint64_t end = record->address + vmm__align_up(record->bytes + back_bytes, LARGE_UNIT_BYTES);
    record->inner_bytes = vmm__min(end - record->inner, bytes);
    return VMM_OK;
}

/* A block at an address that the program names has no guard page. */
static vmm_status inner_place(const struct api_call *call, const struct request *request,
                              struct record *record)
{
    bool is_watching = vmm__debug_watches_memory(call->cache->debug);
    uint64_t front_bytes = is_watching ? DEBUG_FRONT_BYTES : 0;
    uint64_t bytes = is_watching ? vmm__debug_padded_bytes(record->bytes) : record->bytes;
    (void)vmm__debug_give(call->cache->debug); /* what is in quarantine is not live */
    record->address = request->address;
    record->inner = request->address - front_bytes;
    record->inner_bytes = is_watching ? bytes : vmm__cache_block_bytes(call->cache, bytes);
    return vmm__place(request->pool, record->inner, bytes, record->stream);
}

static vmm_status inner_alloc(const struct api_call *call, const struct request *asked,
                              struct record *record)
{
    vmm_cache *cache = call->cache;
    struct request request = *asked;
    if (request.address != 0)
        return inner_place(call, &request, record);
    if (request.alignment > 0)
        return inner_alloc_aligned(call, &request, record);
    uint64_t padded = vmm__debug_padded_bytes(record->bytes);
    bool is_watching =
        vmm__debug_watches_memory(cache->debug) && padded <= cache->vm.arena.limit_bytes;
    request.wants_guards = is_watching && vmm__debug_is_large(record->bytes);
    request.padded_bytes = padded;
    request.bytes = is_watching && !request.wants_guards ? padded : record->bytes;
    vmm_status status = inner_take(call, &request, record);
    if (status != VMM_OK)
        return status;
    record->is_alone = request.wants_guards;
    record->inner_bytes = is_watching ? padded : vmm__cache_block_bytes(cache, record->bytes);
    record->address = record->inner + (is_watching ? DEBUG_FRONT_BYTES : 0);
    if (!record->is_alone)
        return VMM_OK;
    record->inner_bytes = vmm__align_up(record->bytes, cache->vm.arena.granule_bytes);
    record->address =
        record->inner + record->inner_bytes - vmm__align_up(record->bytes, LARGE_UNIT_BYTES);
    return VMM_OK;
}

/* The call for which the thread allocates from a lane now; NULL: none. */
static _Thread_local const struct api_call *current_call;

/* Reports misuse that it finds in the quarantine, but does not fail the request that needs the memory. */
uint64_t vmm__debug_give(struct debug *debug)
{
    const struct api_call *call = current_call;
    if (!vmm__debug_watches_memory(debug) || call == NULL || call->cache != debug->cache)
        return 0;
    VMM_QUIET();
    (void)vmm__debug_flush(call);
    return atomic_load_explicit(&debug->given, memory_order_relaxed);
}

/* Another thread may have put the pool to sleep. */
static vmm_status zeros_write(struct debug *debug, const struct record *record, uint64_t bytes)
{
    struct lane *lane;
    vmm_status status = vmm__awake_lane_lock(debug->cache, "alloc", record->inner, &lane);
    if (status != VMM_OK)
        return status;
    status = vmm__driver_clear(debug->cache->driver, record->address, bytes, 0, record->stream);
    vmm__biased_unlock(&lane->lock);
    return status;
}

/* Writes the canaries around the block, and zeros into it. */
static vmm_status block_prepare(struct debug *debug, struct record *record)
{
    vmm_status status = VMM_OK;
    if (vmm__debug_watches_memory(debug))
        record->is_watched = !vmm__debug_is_captured(debug, record->stream);
    if (record->is_watched)
        status = vmm__canary_put(debug, record);
    uint64_t end = record->inner + record->inner_bytes;
    uint64_t zeros = record->is_watched ? record->bytes : end - record->address;
    if (status == VMM_OK && debug->zero && zeros > 0)
        status = zeros_write(debug, record, zeros);
    return status;
}

static vmm_status record_begin(const struct api_call *call, const struct request *request,
                               struct record *record)
{
    struct debug *debug = call->cache->debug;
    const struct api_call *outer = current_call;
    current_call = call;
    vmm_status status = inner_alloc(call, request, record);
    current_call = outer; /* not NULL: that call runs a callback, which has made this one */
    if (status != VMM_OK)
        return status;
    status = block_prepare(debug, record);
    if (status == VMM_OK) {
        uint64_t inner = record->inner;
        const struct heap *heap = vmm__alloc_owner(debug->cache, &inner);
        record->epoch = vmm__clock_now(heap->clock);
        return VMM_OK;
    }
    bool should_poll;
    VMM_QUIET();
    (void)vmm__free_slow(debug->cache, record->inner, &should_poll);
    if (record->is_alone)
        vmm__guard_page_sweep(debug->cache);
    return status;
}

vmm_status vmm__debug_alloc(const struct api_call *call, const struct request *request, void **out)
{
    struct debug *debug = call->cache->debug;
    vmm_stream stream = request->stream;
    struct record unlisted = { .address = 0 };
    struct record *record = &unlisted;
    vmm_status status = vmm__stream_resolve(call->function, &stream);
    if (status != VMM_OK)
        return status;
    bool keeps_records = debug->mode != VMM_DEBUG_OFF;
    if (keeps_records)
        record = vmm__record_take(&debug->records);
    if (record == NULL)
        return vmm__error(VMM_ERR_HOST_OOM, "vmm_alloc: no host memory for the block's record");
    record->bytes = request->bytes;
    record->stream = stream;
    status = record_begin(call, request, record);
    if (status == VMM_OK && keeps_records) {
        vmm__records_call_site(&debug->records, &record->allocated, call->caller);
        if (vmm__debug_watches_memory(debug))
            vmm__debug_count(debug, record);
        vmm__records_add_live(&debug->records, record);
    } else if (keeps_records) {
        vmm__record_drop(record);
    }
    if (status == VMM_OK)
        *out = (void *)(uintptr_t)record->address;
    return status;
}
