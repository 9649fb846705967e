/* A device that is lost: see lost.h. */
#include "driver/lost.h"

#include <stddef.h>

void vmm__lost_init(struct lost *lost)
{
    atomic_init(&lost->is_lost, false);
    vmm__lock_init(&lost->lock);
    lost->watches = NULL;
}

void vmm__lost_fini(struct lost *lost)
{
    vmm__lock_fini(&lost->lock);
}

void vmm__lost_note(struct lost *lost)
{
    vmm__lock_take(&lost->lock);
    if (!vmm__lost_is(lost)) {
        vmm__error_save(&lost->line);
        atomic_store_explicit(&lost->is_lost, true, memory_order_seq_cst);
        for (struct lost_watch *watch = lost->watches; watch != NULL; watch = watch->next)
            watch->tell(watch);
    }
    vmm__lock_drop(&lost->lock);
}

vmm_status vmm__lost_refuse(const struct lost *lost)
{
    vmm__error_restore(&lost->line);
    return VMM_ERR_LOST;
}

void vmm__lost_watch(struct lost *lost, struct lost_watch *watch)
{
    vmm__lock_take(&lost->lock);
    watch->next = lost->watches;
    lost->watches = watch;
    if (vmm__lost_is(lost))
        watch->tell(watch);
    vmm__lock_drop(&lost->lock);
}

void vmm__lost_unwatch(struct lost *lost, struct lost_watch *watch)
{
    vmm__lock_take(&lost->lock);
    struct lost_watch **link = &lost->watches;
    while (*link != NULL && *link != watch)
        link = &(*link)->next;
    if (*link != NULL)
        *link = watch->next;
    vmm__lock_drop(&lost->lock);
}
