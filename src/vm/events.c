/* A pool of events: see events.h. */
#include "vm/events.h"
#include "base/error.h"
#include "base/hostmem.h"

void vmm__events_init(struct events *events, struct driver *driver)
{
    *events = (struct events){ .driver = driver };
    vmm__mutex_init(&events->lock);
}

/* The driver may refuse once. */
static vmm_status handle_destroy(struct driver *driver, void *handle)
{
    vmm_status status = vmm__driver_event_destroy(driver, handle);
    return status == VMM_OK ? VMM_OK : vmm__driver_event_destroy(driver, handle);
}

vmm_status vmm__events_fini(struct events *events)
{
    vmm_status first = VMM_OK;
    while (events->newest != NULL) {
        struct event *event = events->newest;
        events->newest = event->made_before;
        vmm_status status = handle_destroy(events->driver, event->handle);
        first = first == VMM_OK ? status : first;
        vmm__host_free(event, sizeof *event);
    }
    vmm__mutex_fini(&events->lock);
    return first;
}

static vmm_status event_make(struct events *events, struct event **out)
{
    struct event *event = vmm__host_alloc(1, sizeof *event);
    if (event == NULL)
        return vmm__error(VMM_ERR_HOST_OOM, "event: no host memory for its record");
    vmm_status status = vmm__driver_event_create(events->driver, &event->handle);
    if (status != VMM_OK) {
        vmm__host_free(event, sizeof *event);
        return status;
    }
    event->holders = 1;
    vmm__mutex_lock(&events->lock);
    event->made_before = events->newest;
    events->newest = event;
    vmm__mutex_unlock(&events->lock);
    *out = event;
    return VMM_OK;
}

vmm_status vmm__event_take(struct events *events, struct event **out)
{
    vmm__mutex_lock(&events->lock);
    struct event *event = events->idle;
    if (event != NULL) {
        events->idle = event->next;
        event->holders = 1;
    }
    vmm__mutex_unlock(&events->lock);
    if (event == NULL)
        return event_make(events, out);
    *out = event;
    return VMM_OK;
}

void vmm__event_hold(struct events *events, struct event *event)
{
    vmm__mutex_lock(&events->lock);
    event->holders++;
    vmm__mutex_unlock(&events->lock);
}

void vmm__event_drop(struct events *events, struct event *event)
{
    if (event == NULL)
        return;
    vmm__mutex_lock(&events->lock);
    if (--event->holders == 0) {
        event->next = events->idle;
        events->idle = event;
    }
    vmm__mutex_unlock(&events->lock);
}
