/* Telling who watches: see watch.h. */
#include "heap/watch.h"
#include "base/callback.h"
#include "heap/pool.h"

void vmm__watch_tell(const struct heap *heap, vmm_change_kind kind, uint64_t address,
                     uint64_t bytes)
{
    const struct watch *watch = &heap->directory->watch;
    bool is_of_block = kind == VMM_CHANGE_WAIT || kind == VMM_CHANGE_FREE;
    if (watch->tell == NULL || (is_of_block && watch->is_of_memory))
        return;
    vmm_change change = { .struct_size = sizeof change,
                          .kind = kind,
                          .address = address,
                          .bytes = bytes,
                          .stream = heap->pool->stream,
                          .pool = heap->pool->id,
                          .is_small = heap->is_small };
    struct callback callback;
    vmm__callback_begin(&callback, watch->owner, true);
    watch->tell(watch->context, &change);
    vmm__callback_end(&callback);
}
