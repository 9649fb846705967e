/*
 * Events of a cache, which clocks and uses share. An event is returned to the pool when its last holder drops it.
 *
 * Owns: all events that it has made. Invariants:
 *  1. an event is in the list of idle events exactly if it has no holder.
 * May be called by: vm, lane, cache. Locks: its own, a leaf.
 */
#ifndef VMM_VM_EVENTS_H
#define VMM_VM_EVENTS_H

#include "base/mutex.h"
#include "driver/driver.h"

struct event {
    struct event *next; /* in the list of idle events */
    struct event *made_before;
    void *handle;
    uint64_t holders;
};

struct events {
    struct driver *driver;
    struct mutex lock;
    struct event *idle; /* list */
    struct event *newest;
};

void vmm__events_init(struct events *events, struct driver *driver);

/* Destroys all events, even if work is pending. Tries each twice, and returns the first error. */
vmm_status vmm__events_fini(struct events *events);

/* An event with one holder, which may be recorded. ERR_HOST_OOM, or the driver's error. */
vmm_status vmm__event_take(struct events *events, struct event **out);

/* Add a holder, and drop one; drop accepts NULL. */
void vmm__event_hold(struct events *events, struct event *event);
void vmm__event_drop(struct events *events, struct event *event);

#endif
