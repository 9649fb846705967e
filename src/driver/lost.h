/*
 * The lost device. Once a driver call reports ERR_LOST, no other call is made, because none can succeed and some hang
 * or crash. Each call fails with the line of the first failure instead. Only releases may still reach the driver
 * (driver.h).
 *
 * Owns: that line and the list of listeners. Invariants:
 *  1. a lost device stays lost, and its line never changes;
 *  2. each listener is called once, after the device is lost.
 * May be called by: driver; vm and cache, to refuse a call; api, to register listeners. Locks: `lock` guards the list,
 * and the line until the device is lost.
 */
#ifndef VMM_DRIVER_LOST_H
#define VMM_DRIVER_LOST_H

#include "base/error.h"
#include "base/mutex.h"

#include <stdatomic.h>

/* Embedded in the listener's own struct. notify() runs with `lock` held and must not call the driver. */
struct lost_listener {
    void (*notify)(struct lost_listener *listener);
    struct lost_listener *next;
};

struct lost {
    _Atomic bool is_lost;
    struct error_line line;
    struct mutex lock;
    struct lost_listener *listeners;
};

void vmm__lost_init(struct lost *lost);
void vmm__lost_fini(struct lost *lost);

static inline bool vmm__lost_is(const struct lost *lost)
{
    return atomic_load_explicit(&lost->is_lost, memory_order_seq_cst);
}

/* Marks the device as lost, with the calling thread's last error as the reason. Does nothing if it is already lost. */
void vmm__lost_note(struct lost *lost);

/* Returns ERR_LOST with the line of the first failure. */
vmm_status vmm__lost_refuse(const struct lost *lost);

/* Registers a listener; calls it immediately if the device is already lost. */
void vmm__lost_listen(struct lost *lost, struct lost_listener *listener);
void vmm__lost_unlisten(struct lost *lost, struct lost_listener *listener);

#endif
