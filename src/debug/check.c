/* Checks of all blocks, and what a call has found: see internal.h. */
#include "cache/alloc/alloc.h"
#include "cache/streams.h"
#include "debug/internal.h"

void vmm__finding_note(const struct api_call *call, const struct record *record, uint64_t wrong,
                       struct finding *finding)
{
    struct misuse misuse;
    vmm__misuse_begin(call, record, &misuse);
    vmm__misuse_format_byte(call, wrong, &misuse);
    vmm__misuse_note(call, &misuse);
    if (finding->first.text[0] == '\0')
        finding->first = misuse.line;
}

vmm_status vmm__finding_end(const struct api_call *call, const struct finding *finding,
                            vmm_status status)
{
    if (finding->first.text[0] == '\0')
        return status;
    vmm__misuse_report_first(call, &finding->first);
    return vmm__error(VMM_ERR_CORRUPTED, "%s", finding->first.text);
}

vmm_status vmm__debug_unknown(const struct api_call *call, uint64_t address)
{
    struct record record;
    struct misuse misuse;
    bool is_known = vmm__records_suspect(&call->cache->debug->records, address, &record);
    vmm__misuse_begin(call, is_known ? &record : NULL, &misuse);
    vmm__misuse_format_pointer(call, address, &misuse);
    vmm__misuse_note(call, &misuse);
    vmm__misuse_report_first(call, &misuse.line);
    return vmm__error(VMM_ERR_UNKNOWN_POINTER, "%s", misuse.line.text);
}

bool vmm__debug_is_captured(const struct debug *debug, vmm_stream stream)
{
    bool is_capturing = true;
    VMM_QUIET();
    (void)vmm__driver_stream_capturing(debug->cache->driver, stream, &is_capturing);
    return is_capturing;
}

/* Returns the next record: first the live ones, then those in quarantine. No record leaves its list while the caller
 * holds the gate. */
static struct record *record_after(struct records *records, const struct record *record)
{
    VMM_HOLD(&records->lock);
    struct record *next = record == NULL ? records->live.oldest : record->newer;
    if (next == NULL && (record == NULL || !record->is_kept))
        next = records->kept.oldest;
    return next;
}

/* VMM_OK if the canaries of a live block are written. VMM__PENDING: not yet, because the block is new, or because its
 * stream is being captured and cannot be waited for. */
static vmm_status canaries_query(const struct debug *debug, const struct record *record)
{
    uint64_t inner = record->inner;
    const struct heap *heap = vmm__alloc_owner(debug->cache, &inner);
    return vmm__clock_query(heap->clock, record->epoch);
}

static vmm_status record_check(const struct api_call *call, struct record *record,
                               bool work_has_ended, struct finding *finding)
{
    struct debug *debug = call->cache->debug;
    uint64_t wrong = 0;
    bool has_ended = record->is_kept || record->is_left || work_has_ended;
    vmm_status status = has_ended ? VMM_OK : canaries_query(debug, record);
    if (status == VMM_OK)
        status = vmm__canary_check(debug, record, debug->stream, &wrong);
    if (status == VMM_ERR_CORRUPTED)
        vmm__finding_note(call, record, wrong, finding);
    return status == VMM_ERR_CORRUPTED || status == VMM__PENDING ? VMM_OK : status;
}

vmm_status vmm__debug_check_all(const struct api_call *call, bool work_has_ended,
                                struct finding *finding)
{
    struct records *records = &call->cache->debug->records;
    vmm_status first = VMM_OK;
    for (struct record *record = record_after(records, NULL); record != NULL;
         record = record_after(records, record)) {
        vmm_status status = VMM_OK;
        if (record->is_watched)
            status = record_check(call, record, work_has_ended, finding);
        first = first == VMM_OK ? status : first;
    }
    return first;
}

/* Waits for the work of a closed stream on a block. Returns whether that work has ended. */
static bool closed_stream_wait(const struct debug *debug, const struct record *record)
{
    uint64_t inner = record->inner;
    struct clock *clock = vmm__alloc_owner(debug->cache, &inner)->lane->clock;
    VMM_QUIET();
    vmm_status status = vmm__clock_wait(clock, vmm__clock_now(clock));
    return status == VMM_OK;
}

/* Separates the stream's blocks from its handle, which a new stream may get. Stops watching a block whose work
 * it cannot wait for. */
static void blocks_detach(struct debug *debug, vmm_stream stream)
{
    for (struct record *record = record_after(&debug->records, NULL);
         record != NULL && !record->is_kept; record = record_after(&debug->records, record)) {
        if (record->stream != stream || record->is_left)
            continue;
        bool is_watched = record->is_watched && closed_stream_wait(debug, record);
        VMM_HOLD(&debug->records.lock);
        record->is_watched = is_watched;
        record->is_left = true;
    }
}

/* Holds the gate all the time, so that no free submits work of debug mode to the stream after its end. */
vmm_status vmm__debug_stream_end(vmm_cache *cache, vmm_stream stream)
{
    struct debug *debug = cache->debug;
    if (debug == NULL || !vmm__debug_watches_memory(debug))
        return vmm__stream_end(cache, stream);
    VMM_HOLD(&debug->gate);
    vmm_status status = vmm__stream_end(cache, stream);
    if (status == VMM_OK)
        blocks_detach(debug, stream);
    return status;
}

/* Checks a doubtful block up to twice more, because no read may still run when its memory is released. */
vmm_status vmm__debug_settle(struct debug *debug)
{
    vmm_status first = VMM_OK;
    uint64_t wrong;
    for (struct record *record = record_after(&debug->records, NULL); record != NULL;
         record = record_after(&debug->records, record)) {
        vmm_status status = VMM_OK;
        for (int i = 0; i < 2 && record->is_doubtful; i++)
            status = vmm__canary_check(debug, record, debug->stream, &wrong);
        if (record->is_doubtful && first == VMM_OK)
            first = status;
    }
    return first;
}

vmm_status vmm__debug_check(const struct api_call *call)
{
    struct debug *debug = call->cache->debug;
    struct finding finding = { .first = { .text = "" } };
    if (debug == NULL || !vmm__debug_watches_memory(debug))
        return VMM_OK;
    vmm__mutex_lock(&debug->gate);
    vmm_status status = vmm__cache_wait_all(debug->cache);
    if (status == VMM_OK)
        status = vmm__debug_check_all(call, false, &finding);
    vmm__mutex_unlock(&debug->gate);
    return vmm__finding_end(call, &finding, status);
}
