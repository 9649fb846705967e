/*
 * Captures of the sim driver: streams whose work would become part of a graph.
 *
 * Nothing is captured: the stream takes no work meanwhile. What CUDA punishes with the loss of a capture is
 * refused, told as a violation, and the capture ends with an error.
 */
#include "driver/sim_internal.h"

#include "base/error.h"

vmm_status vmm__sim_capturing(struct sim *sim, vmm_stream stream, bool *is_capturing)
{
    const struct sim_stream *known = vmm__sim_stream_find(&sim->order, stream);
    vmm_status status = VMM_OK;
    if (known == NULL)
        status = vmm__stream_names_check(&sim->order.names, "sim: capturing", stream);
    if (status == VMM_OK)
        *is_capturing = known != NULL && known->is_captured;
    return status;
}

vmm_status vmm__sim_capture_begin(struct sim *sim, vmm_stream stream)
{
    struct sim_stream *known;
    vmm_status status = vmm__sim_stream_get(sim, "sim: capture begin", stream, &known);
    if (status != VMM_OK)
        return status;
    if (known->is_captured)
        return vmm__error(VMM_ERR_DRIVER, "sim: capture begin: stream %p is captured already",
                          stream);
    known->is_captured = true;
    known->is_spoilt = false;
    return VMM_OK;
}

vmm_status vmm__sim_capture_end(struct sim *sim, vmm_stream stream)
{
    struct sim_stream *known = vmm__sim_stream_find(&sim->order, stream);
    if (known == NULL || !known->is_captured)
        return vmm__error(VMM_ERR_DRIVER, "sim: capture end: stream %p is not captured", stream);
    known->is_captured = false;
    if (known->is_spoilt)
        return vmm__error(VMM_ERR_DRIVER, "sim: capture end: the capture of %p is broken", stream);
    return VMM_OK;
}

vmm_status vmm__sim_capture_spoil(struct sim *sim, struct sim_stream *stream, const char *verb)
{
    if (!stream->is_captured)
        return VMM_OK;
    stream->is_spoilt = true;
    vmm__sim_tell(&sim->violations, 1, "%s concerns stream %p, which is being captured", verb,
                  stream->name);
    return vmm__error(VMM_ERR_DRIVER, "sim: %s: stream %p is being captured", verb, stream->name);
}

vmm_status vmm__sim_capture_spoil_event(struct sim *sim, const struct sim_event *event,
                                        const char *verb)
{
    struct sim_stream *stream = event->captured;
    if (stream == NULL)
        return VMM_OK;
    stream->is_spoilt = stream->is_spoilt || stream->is_captured;
    vmm__sim_tell(&sim->violations, 1, "%s of an event that was captured on stream %p", verb,
                  stream->name);
    return vmm__error(VMM_ERR_DRIVER, "sim: %s: the event was captured on stream %p", verb,
                      stream->name);
}
