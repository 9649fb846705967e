/*
 * Stream captures of the sim driver.
 *
 * No graph is built: a stream under capture accepts no work except clear, which has no effect. Operations that would
 * invalidate a capture in CUDA are refused and recorded as violations, and the capture then ends with an error.
 */
#include "driver/sim/internal.h"

#include "base/error.h"

vmm_status vmm__sim_capturing(struct sim *sim, const vmm_stream *streams, unsigned count,
                              bool *is_capturing)
{
    vmm_status status = VMM_OK;
    bool is_any = false;
    for (unsigned i = 0; i < count && !is_any; i++) {
        const struct sim_stream *found = vmm__sim_stream_find(&sim->order, streams[i]);
        is_any = found != NULL && found->is_captured;
        if (found == NULL && status == VMM_OK)
            status = vmm__stream_names_check(&sim->order.names, "sim: capturing", streams[i]);
    }
    if (status == VMM_OK || is_any)
        *is_capturing = is_any;
    return is_any ? VMM_OK : status;
}

vmm_status vmm__sim_capture_begin(struct sim *sim, vmm_stream stream)
{
    struct sim_stream *found;
    vmm_status status = vmm__sim_stream_get(sim, "sim: capture begin", stream, &found);
    if (status != VMM_OK)
        return status;
    if (found->is_captured)
        return vmm__error(VMM_ERR_DRIVER, "sim: capture begin: stream %p is already being captured",
                          stream);
    found->is_captured = true;
    found->is_broken = false;
    return VMM_OK;
}

vmm_status vmm__sim_capture_end(struct sim *sim, vmm_stream stream)
{
    struct sim_stream *found = vmm__sim_stream_find(&sim->order, stream);
    if (found == NULL || !found->is_captured)
        return vmm__error(VMM_ERR_DRIVER, "sim: capture end: stream %p is not being captured",
                          stream);
    found->is_captured = false;
    if (found->is_broken)
        return vmm__error(VMM_ERR_DRIVER,
                          "sim: capture end: an operation broke the capture of stream %p", stream);
    return VMM_OK;
}

vmm_status vmm__sim_capture_break(struct sim *sim, struct sim_stream *stream, const char *verb)
{
    if (!stream->is_captured)
        return VMM_OK;
    stream->is_broken = true;
    vmm__soft_report_add(&sim->soft.violations, 1, "%s during the capture of stream %p", verb,
                         stream->name);
    return vmm__error(VMM_ERR_DRIVER, "sim: %s: stream %p is being captured", verb, stream->name);
}

vmm_status vmm__sim_capture_break_event(struct sim *sim, const struct sim_event *event,
                                        const char *verb)
{
    struct sim_stream *stream = event->captured;
    if (stream == NULL)
        return VMM_OK;
    stream->is_broken = stream->is_broken || stream->is_captured;
    vmm__soft_report_add(&sim->soft.violations, 1, "%s of an event captured on stream %p", verb,
                         stream->name);
    return vmm__error(VMM_ERR_DRIVER, "sim: %s: the event was captured on stream %p", verb,
                      stream->name);
}
