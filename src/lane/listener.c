/* Calls to the listeners, and to the recorder: see listener.h. */
#include "lane/listener.h"
#include "base/callback.h"
#include "lane/views.h"

/* Whether a block in a view begins at an address of a heap, or such a block was there until now. */
static bool is_view(const struct heap *heap, uint64_t address)
{
    const struct views *views = heap->directory->views;
    if (views == NULL)
        return false;
    uint64_t granule = vmm__arena_granule(heap->directory->arena, address);
    const struct chunk *chunk = vmm__vm_chunk(views->vm, granule); /* NULL: relocated */
    return chunk != NULL && !vmm__chunk_is_home(chunk, granule);
}

static void change_record(const struct heap *heap, vmm_change_kind kind, uint64_t address,
                          uint64_t bytes)
{
    static const enum trace_kind kinds[] = { [VMM_CHANGE_MAP] = TRACE_MAP,
                                             [VMM_CHANGE_UNMAP] = TRACE_UNMAP,
                                             [VMM_CHANGE_WAIT] = TRACE_WAIT,
                                             [VMM_CHANGE_FREE] = TRACE_DONE };
    struct recorder *recorder =
        atomic_load_explicit(&heap->directory->recorder, memory_order_acquire);
    if (recorder == NULL || heap->owner->is_imported)
        return;
    struct trace_event event = { .kind = kinds[kind],
                                 .address = address,
                                 .bytes = bytes,
                                 .stream = (uint64_t)(uintptr_t)heap->owner->stream,
                                 .pool = (uint64_t)(uintptr_t)heap->owner->pool->handle };
    vmm__recorder_push(recorder, event);
}

static void listener_tell(const struct listener *listener, const vmm_change *change)
{
    bool is_of_block = change->kind == VMM_CHANGE_WAIT || change->kind == VMM_CHANGE_FREE;
    if (listener->tell == NULL || (is_of_block && listener->is_of_memory))
        return;
    struct callback callback;
    vmm__callback_begin(&callback, listener->owner, true);
    listener->tell(listener->context, change);
    vmm__callback_end(&callback);
}

void vmm__listener_call(const struct heap *heap, vmm_change_kind kind, uint64_t inner,
                        uint64_t bytes)
{
    vmm__listener_call_block(heap, kind, inner, bytes, 0);
}

void vmm__listener_call_block(const struct heap *heap, vmm_change_kind kind, uint64_t inner,
                              uint64_t bytes, uint64_t requested_bytes)
{
    uint64_t address = vmm__views_outer(heap, inner);
    const struct listener *listeners = heap->directory->listeners;
    change_record(heap, kind, address, bytes);
    if (listeners[LISTENER_OF_ADAPTER].tell == NULL && listeners[LISTENER_OF_PROGRAM].tell == NULL)
        return;
    vmm_change change = { .struct_size = sizeof change,
                          .kind = kind,
                          .address = address,
                          .bytes = bytes,
                          .stream = heap->owner->stream,
                          .pool = heap->owner->pool->handle,
                          .pool_id = heap->owner->pool->id,
                          .is_small = heap->is_small,
                          .is_view = is_view(heap, inner),
                          .is_imported = heap->owner->is_imported,
                          .requested_bytes = requested_bytes };
    for (int i = 0; i < LISTENERS; i++)
        listener_tell(&listeners[i], &change);
}
