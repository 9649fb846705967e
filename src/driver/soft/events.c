/* Events of the drivers without a GPU, and waits for them and for the device. See soft.h, S5. */
#include "base/error.h"
#include "base/hostmem.h"
#include "driver/soft/soft.h"

/* ---- Life ------------------------------------------------------------------------------------ */

vmm_status vmm__soft_event_create(struct soft *soft, void **event)
{
    struct soft_event *created = vmm__host_alloc(1, sizeof *created);
    if (created == NULL)
        return vmm__error(VMM_ERR_HOST_OOM, "%s: event create: out of host memory for its record",
                          soft->driver.ops->name);
    created->node.key = ++soft->last_id;
    vmm__map_add(&soft->events, &created->node);
    soft_charge(soft, DRIVER_CALL_event_create, 0, NULL);
    *event = (void *)(uintptr_t)created->node.key;
    return VMM_OK;
}

static vmm_status event_find(struct soft *soft, const char *verb, void *event,
                             struct soft_event **out)
{
    *out = (struct soft_event *)vmm__map_find(&soft->events, (uint64_t)(uintptr_t)event);
    if (*out != NULL)
        return VMM_OK;
    vmm__soft_report_add(&soft->violations, 1,
                         "%s of event %p, which was destroyed or never created", verb, event);
    return vmm__error(VMM_ERR_DRIVER, "%s: %s: %p is not an event", soft->driver.ops->name, verb,
                      event);
}

static void event_remove(struct soft *soft, struct soft_event *event)
{
    vmm__map_remove(&soft->events, &event->node);
    vmm__host_free(event->positions, event->capacity * soft->backing->position_bytes);
    vmm__host_free(event, sizeof *event);
}

/* Streams that wait for the event go on waiting. */
vmm_status vmm__soft_event_destroy(struct soft *soft, void *event)
{
    struct soft_event *found;
    vmm_status status = event_find(soft, "event destroy", event, &found);
    if (status != VMM_OK)
        return status;
    event_remove(soft, found);
    soft_charge(soft, DRIVER_CALL_event_destroy, 0, NULL);
    return VMM_OK;
}

void vmm__soft_events_close(struct soft *soft)
{
    struct map_node *node;
    while ((node = vmm__map_next(&soft->events, NULL)) != NULL)
        event_remove(soft, (struct soft_event *)node);
    vmm__map_clear(&soft->events, NULL);
}

/* ---- Records --------------------------------------------------------------------------------- */

vmm_status vmm__soft_event_clear(struct soft *soft, struct soft_event *event, uint64_t count)
{
    size_t each = soft->backing->position_bytes;
    if (event->capacity < count) {
        void *grown =
            vmm__host_resize(event->positions, event->capacity * each, (size_t)count * each);
        if (grown == NULL)
            return vmm__error(VMM_ERR_HOST_OOM,
                              "%s: event record: out of host memory for its positions",
                              soft->driver.ops->name);
        event->positions = grown;
        event->capacity = (uint32_t)count;
    }
    event->count = 0;
    return VMM_OK;
}

vmm_status vmm__soft_event_record(struct soft *soft, void *event, vmm_stream stream)
{
    struct soft_event *found;
    struct soft_stream *recorded;
    vmm_status status = event_find(soft, "event record", event, &found);
    if (status == VMM_OK)
        status = vmm__soft_stream_get(soft, "event record", stream, &recorded);
    if (status == VMM_OK)
        status = soft->backing->event_record(soft, found, recorded);
    if (status != VMM_OK)
        return status;
    found->capture = recorded->is_captured ? recorded->capture : 0;
    found->captured = stream;
    soft_charge(soft, DRIVER_CALL_event_record, 0, NULL);
    return VMM_OK;
}

/* Breaks every capture. VMM_OK: there is none. */
static vmm_status captures_break(struct soft *soft, const char *verb)
{
    vmm_status status = VMM_OK;
    struct map_node *node = NULL;
    while ((node = vmm__map_next(&soft->streams.named, node)) != NULL) {
        vmm_status broken = vmm__soft_capture_break(soft, (struct soft_stream *)node, verb);
        status = broken != VMM_OK ? broken : status;
    }
    return status;
}

vmm_status vmm__soft_clock_record(struct soft *soft, void *event)
{
    struct soft_event *found;
    vmm_status status = event_find(soft, "clock record", event, &found);
    if (status != VMM_OK)
        return status;
    if (captures_break(soft, "clock record") != VMM_OK)
        return VMM__PENDING;
    status = soft->backing->event_record(soft, found, NULL);
    if (status != VMM_OK)
        return status;
    found->capture = 0;
    soft_charge(soft, DRIVER_CALL_clock_record, 0, NULL);
    return VMM_OK;
}

/* ---- Queries and waits ----------------------------------------------------------------------- */

/* Refuses an event that was captured, and breaks the capture. */
static vmm_status captured_refuse(struct soft *soft, const struct soft_event *event,
                                  const char *verb)
{
    if (event->capture == 0)
        return VMM_OK;
    struct soft_stream *stream = soft_stream_find(&soft->streams, event->captured);
    if (stream != NULL && stream->capture == event->capture)
        stream->is_broken = true;
    vmm__soft_report_add(&soft->violations, 1, "%s of an event captured on stream %p", verb,
                         event->captured);
    return vmm__error(VMM_ERR_DRIVER, "%s: %s: the event was captured on stream %p",
                      soft->driver.ops->name, verb, event->captured);
}

static vmm_status event_find_usable(struct soft *soft, const char *verb, void *event,
                                    struct soft_event **out)
{
    vmm_status status = event_find(soft, verb, event, out);
    return status == VMM_OK ? captured_refuse(soft, *out, verb) : status;
}

vmm_status vmm__soft_event_query(struct soft *soft, void *event)
{
    struct soft_event *found;
    vmm_status status = event_find_usable(soft, "event query", event, &found);
    if (status != VMM_OK)
        return status;
    soft_charge(soft, DRIVER_CALL_event_query, 0, NULL);
    if (!soft->backing->event_is_complete(soft, found))
        return VMM__PENDING;
    soft->backing->event_wait(soft, found);
    return VMM_OK;
}

vmm_status vmm__soft_event_wait(struct soft *soft, void *event)
{
    struct soft_event *found;
    vmm_status status = event_find_usable(soft, "event wait", event, &found);
    if (status != VMM_OK)
        return status;
    soft_charge(soft, DRIVER_CALL_event_wait, 0, NULL);
    soft->backing->event_wait(soft, found);
    return VMM_OK;
}

vmm_status vmm__soft_stream_wait(struct soft *soft, vmm_stream stream, void *event)
{
    struct soft_event *found;
    struct soft_stream *waiting;
    vmm_status status = event_find(soft, "stream wait", event, &found);
    if (status == VMM_OK)
        status = vmm__soft_stream_use(soft, "stream wait", stream, &waiting);
    if (status == VMM_OK)
        status = captured_refuse(soft, found, "stream wait");
    if (status == VMM_OK)
        status = soft->backing->stream_wait(soft, waiting, found);
    if (status == VMM_OK)
        soft_charge(soft, DRIVER_CALL_stream_wait, 0, NULL);
    return status;
}

vmm_status vmm__soft_device_wait(struct soft *soft)
{
    vmm_status status = captures_break(soft, "device wait");
    if (status != VMM_OK)
        return status;
    soft->backing->device_wait(soft);
    soft_charge(soft, DRIVER_CALL_device_wait, 0, NULL);
    return VMM_OK;
}

vmm_status vmm__soft_mismatches(struct soft *soft, uint64_t *places)
{
    soft->backing->device_wait(soft);
    *places = soft->mismatches.count;
    return VMM_OK;
}
