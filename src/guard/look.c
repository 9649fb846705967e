/* Looking at memory, and what a call has found: see guard_internal.h. */
#include "guard/canary.h"
#include "guard/guard_internal.h"
#include "policy/handout.h"
#include "policy/streams.h"

void vmm__finding_note(const struct guard_call *call, const struct record *record, uint64_t wrong,
                       struct finding *finding)
{
    struct misuse misuse;
    vmm__misuse_begin(call, record, &misuse);
    vmm__misuse_word_byte(call, wrong, &misuse);
    vmm__misuse_note(call, &misuse);
    if (finding->first.text[0] == '\0')
        finding->first = misuse.line;
}

vmm_status vmm__finding_end(const struct guard_call *call, const struct finding *finding,
                            vmm_status status)
{
    if (finding->first.text[0] == '\0')
        return status;
    vmm__misuse_tell(call, &finding->first);
    return vmm__error(VMM_ERR_CORRUPTED, "%s", finding->first.text);
}

vmm_status vmm__guard_unknown(const struct guard_call *call, uint64_t address)
{
    struct record record;
    struct misuse misuse;
    bool is_known = vmm__records_suspect(&call->cache->guard->records, address, &record);
    vmm__misuse_begin(call, is_known ? &record : NULL, &misuse);
    vmm__misuse_word_pointer(call, address, &misuse);
    vmm__misuse_note(call, &misuse);
    vmm__misuse_tell(call, &misuse.line);
    return vmm__error(VMM_ERR_UNKNOWN_POINTER, "%s", misuse.line.text);
}

bool vmm__guard_is_captured(const struct guard *guard, vmm_stream stream)
{
    bool is_capturing = true;
    struct error_line line;
    vmm__error_save(&line);
    (void)vmm__driver_capturing(guard->cache->driver, stream, &is_capturing);
    vmm__error_restore(&line);
    return is_capturing;
}

/* The record after one: live ones first, then kept ones. Nothing leaves its list while the gate is held. */
static struct record *record_after(struct records *records, const struct record *record)
{
    vmm__lock_take(&records->lock);
    struct record *next = record == NULL ? records->live.oldest : record->newer;
    if (next == NULL && (record == NULL || !record->is_kept))
        next = records->kept.oldest;
    vmm__lock_drop(&records->lock);
    return next;
}

/* Whether the canaries of a live block are there. VMM_NOT_READY: they may be on their way, on a stream that is being
 * captured and was not waited for, or as the block is new. */
static vmm_status canaries_await(const struct guard *guard, const struct record *record)
{
    const struct heap *heap = vmm__handout_heap(guard->cache, record->inner);
    return vmm__timeline_query(&heap->pool->timeline, record->epoch);
}

static vmm_status record_check(const struct guard_call *call, struct record *record,
                               bool work_has_ended, struct finding *finding)
{
    struct guard *guard = call->cache->guard;
    uint64_t wrong = 0;
    bool has_ended = record->is_kept || record->is_left || work_has_ended;
    vmm_status status = has_ended ? VMM_OK : canaries_await(guard, record);
    if (status == VMM_OK)
        status = vmm__canary_check(guard, record, guard->stream, &wrong);
    if (status == VMM_ERR_CORRUPTED)
        vmm__finding_note(call, record, wrong, finding);
    return status == VMM_ERR_CORRUPTED || status == VMM_NOT_READY ? VMM_OK : status;
}

vmm_status vmm__guard_check_all(const struct guard_call *call, bool work_has_ended,
                                struct finding *finding)
{
    struct records *records = &call->cache->guard->records;
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

/* Whether the work of a stream that has ended has, too, on the block of one of its records. The mark is there already:
 * nothing more comes on the stream. */
static bool stream_wait(const struct guard *guard, const struct record *record)
{
    struct timeline *timeline = &vmm__handout_heap(guard->cache, record->inner)->pool->timeline;
    struct error_line line;
    vmm__error_save(&line);
    vmm_status status = vmm__timeline_wait(timeline, vmm__timeline_now(timeline));
    vmm__error_restore(&line);
    return status == VMM_OK;
}

/* The handle may be another stream's from now on. What cannot be waited for is watched no more. */
static void blocks_leave(struct guard *guard, vmm_stream stream)
{
    for (struct record *record = record_after(&guard->records, NULL);
         record != NULL && !record->is_kept; record = record_after(&guard->records, record)) {
        if (record->stream != stream || record->is_left)
            continue;
        bool is_watched = record->is_watched && stream_wait(guard, record);
        vmm__lock_take(&guard->records.lock);
        record->is_watched = is_watched;
        record->is_left = true;
        vmm__lock_drop(&guard->records.lock);
    }
}

/* One step for whoever frees: nothing of the guard's is submitted to the stream after its last mark. */
vmm_status vmm__guard_stream_end(vmm_cache *cache, vmm_stream stream, bool *is_gone)
{
    struct guard *guard = cache->guard;
    if (guard == NULL || !vmm__guard_watches(guard))
        return vmm__stream_end(cache, stream, is_gone);
    vmm__lock_take(&guard->gate);
    vmm_status status = vmm__stream_end(cache, stream, is_gone);
    if (status == VMM_OK)
        blocks_leave(guard, stream);
    vmm__lock_drop(&guard->gate);
    return status;
}

/* A block that was looked at in vain is looked at twice more: nothing may be under way when its memory goes. */
vmm_status vmm__guard_settle(struct guard *guard)
{
    vmm_status first = VMM_OK;
    uint64_t wrong;
    for (struct record *record = record_after(&guard->records, NULL); record != NULL;
         record = record_after(&guard->records, record)) {
        vmm_status status = VMM_OK;
        for (int i = 0; i < 2 && record->is_doubtful; i++)
            status = vmm__canary_check(guard, record, guard->stream, &wrong);
        if (record->is_doubtful && first == VMM_OK)
            first = status;
    }
    return first;
}

vmm_status vmm__guard_check(const struct guard_call *call)
{
    struct guard *guard = call->cache->guard;
    struct finding finding = { .first = { .text = "" } };
    if (guard == NULL || !vmm__guard_watches(guard))
        return VMM_OK;
    vmm__lock_take(&guard->gate);
    vmm_status status = vmm__cache_wait(guard->cache);
    if (status == VMM_OK)
        status = vmm__guard_check_all(call, false, &finding);
    vmm__lock_drop(&guard->gate);
    return vmm__finding_end(call, &finding, status);
}
