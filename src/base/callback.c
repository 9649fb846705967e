/* Functions of the program that a thread is in: see callback.h. */
#include "base/callback.h"
#include "base/seat.h"

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
    if (holds_locks)
        vmm__seat_leave();
}

void vmm__callback_end(const struct callback *callback)
{
    innermost = callback->outer;
    if (callback->holds_locks && !any_holds_locks())
        vmm__seat_return();
}

bool vmm__callback_is_in(const void *owner, bool holds_locks)
{
    const struct callback *each = innermost;
    while (each != NULL && (each->owner != owner || each->holds_locks != holds_locks))
        each = each->outer;
    return each != NULL;
}
