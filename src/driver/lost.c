/* The lost device: see lost.h. */
#include "driver/lost.h"
#include "base/list.h"

#include <stddef.h>

void vmm__lost_init(struct lost *lost)
{
    atomic_init(&lost->is_lost, false);
    vmm__mutex_init(&lost->lock);
    lost->listeners = NULL;
}

void vmm__lost_fini(struct lost *lost)
{
    vmm__mutex_fini(&lost->lock);
}

void vmm__lost_note(struct lost *lost)
{
    VMM_HOLD(&lost->lock);
    if (!vmm__lost_is(lost)) {
        vmm__error_save(&lost->line);
        atomic_store_explicit(&lost->is_lost, true, memory_order_seq_cst);
        for (struct lost_listener *listener = lost->listeners; listener != NULL;
             listener = listener->next)
            listener->notify(listener);
    }
}

vmm_status vmm__lost_refuse(const struct lost *lost)
{
    vmm__error_restore(&lost->line);
    return VMM_ERR_LOST;
}

void vmm__lost_listen(struct lost *lost, struct lost_listener *listener)
{
    VMM_HOLD(&lost->lock);
    listener->next = lost->listeners;
    lost->listeners = listener;
    if (vmm__lost_is(lost))
        listener->notify(listener);
}

void vmm__lost_unlisten(struct lost *lost, struct lost_listener *listener)
{
    VMM_HOLD(&lost->lock);
    VMM_LIST_REMOVE(&lost->listeners, listener, next);
}
