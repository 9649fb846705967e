/*
 * A device that is lost: once a driver call has said so, no other call is made, because none can succeed, some
 * hang and some crash. Each is refused with the line of the first cause instead. Only memory may still be given back
 * (driver.h).
 *
 * Owns: that line, and the list of who wants to be told. Invariants:
 *  1. a device that is lost stays lost, and its line does not change any more;
 *  2. whoever watches is told once, after that.
 * May be called by: driver; policy watches. `lock` guards the line until the device is lost, and the list.
 */
#ifndef VMM_DRIVER_LOST_H
#define VMM_DRIVER_LOST_H

#include "base/error.h"
#include "base/lock.h"

#include <stdatomic.h>

/* Embedded in what wants to be told. tell() is called with a lock held: it must not call the driver. */
struct lost_watch {
    void (*tell)(struct lost_watch *watch);
    struct lost_watch *next;
};

struct lost {
    _Atomic bool is_lost;
    struct error_line line;
    struct lock lock;
    struct lost_watch *watches;
};

void vmm__lost_init(struct lost *lost);
void vmm__lost_fini(struct lost *lost);

static inline bool vmm__lost_is(const struct lost *lost)
{
    return atomic_load_explicit(&lost->is_lost, memory_order_seq_cst);
}

/* The calling thread's last error is why the device is lost, unless one was before. */
void vmm__lost_note(struct lost *lost);

/* ERR_LOST, with the line of the first cause. */
vmm_status vmm__lost_refuse(const struct lost *lost);

/* Whoever comes too late is told at once. */
void vmm__lost_watch(struct lost *lost, struct lost_watch *watch);
void vmm__lost_unwatch(struct lost *lost, struct lost_watch *watch);

#endif
