/* The callbacks that a thread is in: see callback.h. */
#include "base/callback.h"
#include "base/thread_slot.h"

#include <stddef.h>

static _Thread_local const struct callback *innermost;

static bool any_holds_locks(void)
{
    const struct callback *each = innermost;
    while (each != NULL && !each->holds_locks)
        each = each->outer;
    return each != NULL;
}

void vmm__callback_begin(struct callback *callback, const void *owner, bool holds_locks)
{
    *callback = (struct callback){ .owner = owner, .holds_locks = holds_locks, .outer = innermost };
    innermost = callback;
    VMM_LOCK_SET_RANK(callback, LOCK_RANK_CALLBACK);
    VMM_LOCK_TAKE(callback);
    if (holds_locks)
        vmm__thread_slot_leave();
}

void vmm__callback_end(const struct callback *callback)
{
    VMM_LOCK_RELEASE(callback);
    innermost = callback->outer;
    if (callback->holds_locks && !any_holds_locks())
        vmm__thread_slot_return();
}

bool vmm__callback_is_in(const void *owner, bool holds_locks)
{
    const struct callback *each = innermost;
    while (each != NULL && (each->owner != owner || each->holds_locks != holds_locks))
        each = each->outer;
    return each != NULL;
}
