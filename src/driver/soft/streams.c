/* Streams of the drivers without a GPU: their names and captures. See soft.h, S6. */
#include "base/error.h"
#include "base/hostmem.h"
#include "driver/soft/soft.h"

/* Generated names count up from here, far from the names that tests invent. */
#define FIRST_NAME UINT64_C(0x51a0000000000000)

/* ---- Names ----------------------------------------------------------------------------------- */

/* The last stream of that name was destroyed, and no other one has it. */
struct stale_name {
    struct map_node node; /* its key is the name */
    struct stale_name *older;
};

/* False: out of host memory, nothing changed. */
static bool name_drop(struct soft_streams *streams, vmm_stream name)
{
    struct stale_name *dropped = vmm__host_alloc(1, sizeof *dropped);
    if (dropped == NULL)
        return false;
    dropped->node.key = (uint64_t)(uintptr_t)name;
    dropped->older = streams->youngest;
    streams->youngest = dropped;
    vmm__map_add(&streams->stale, &dropped->node);
    return true;
}

/* The name that the next stream gets. */
static vmm_stream name_next(const struct soft_streams *streams)
{
    uint64_t name = streams->youngest != NULL ? streams->youngest->node.key
                                              : FIRST_NAME + streams->generated + 1;
    return (vmm_stream)(uintptr_t)name;
}

static void name_take(struct soft_streams *streams)
{
    struct stale_name *taken = streams->youngest;
    if (taken == NULL) {
        streams->generated++;
        return;
    }
    streams->youngest = taken->older;
    vmm__map_remove(&streams->stale, &taken->node);
    vmm__host_free(taken, sizeof *taken);
}

static void name_free(struct map_node *node)
{
    vmm__host_free(node, sizeof(struct stale_name));
}

/* ---- Streams --------------------------------------------------------------------------------- */

/* Sets *out to the stream, or to NULL if it is not known yet. Fails if it was destroyed. */
static vmm_status stream_find(const struct soft *soft, const char *verb, vmm_stream name,
                              struct soft_stream **out)
{
    *out = soft_stream_find(&soft->streams, name);
    if (*out == NULL && vmm__map_find(&soft->streams.stale, (uint64_t)(uintptr_t)name) != NULL)
        return vmm__error(VMM_ERR_INVALID_ARGUMENT, "%s: %s: stream %p was destroyed",
                          soft->driver.ops->name, verb, name);
    return VMM_OK;
}

static vmm_status stream_new(struct soft *soft, vmm_stream name, struct soft_stream **out)
{
    vmm_status status = soft->backing->stream_new(soft, name, out);
    if (status != VMM_OK)
        return status;
    **out = (struct soft_stream){ .node.key = (uint64_t)(uintptr_t)name, .is_named = true };
    vmm__map_add(&soft->streams.named, &(*out)->node);
    return VMM_OK;
}

static void stream_unname(struct soft *soft, struct soft_stream *stream)
{
    vmm__map_remove(&soft->streams.named, &stream->node);
    stream->is_named = false;
    stream->is_captured = false;
}

vmm_status vmm__soft_stream_get(struct soft *soft, const char *verb, vmm_stream name,
                                struct soft_stream **out)
{
    vmm_status status = stream_find(soft, verb, name, out);
    return status == VMM_OK && *out == NULL ? stream_new(soft, name, out) : status;
}

vmm_status vmm__soft_stream_use(struct soft *soft, const char *verb, vmm_stream name,
                                struct soft_stream **out)
{
    vmm_status status = vmm__soft_stream_get(soft, verb, name, out);
    return status == VMM_OK ? vmm__soft_capture_break(soft, *out, verb) : status;
}

void vmm__soft_stream_forget(struct soft *soft, struct soft_stream *stream)
{
    soft->streams.has_forgotten = true;
    stream_unname(soft, stream);
}

vmm_status vmm__soft_stream_create(struct soft *soft, vmm_stream *stream)
{
    struct soft_stream *created;
    vmm_stream name = name_next(&soft->streams);
    vmm_status status = stream_new(soft, name, &created);
    if (status != VMM_OK)
        return status;
    name_take(&soft->streams);
    soft_charge(soft, DRIVER_CALL_stream_create, 0, NULL);
    *stream = name;
    return VMM_OK;
}

/* Once the driver has forgotten a stream, any name that was not destroyed may be that of one. */
vmm_status vmm__soft_stream_destroy(struct soft *soft, vmm_stream stream)
{
    struct soft_stream *found;
    vmm_status status = stream_find(soft, "stream destroy", stream, &found);
    if (status != VMM_OK)
        return status;
    if (found == NULL && !soft->streams.has_forgotten)
        return vmm__error(VMM_ERR_DRIVER, "%s: stream destroy: no stream %p",
                          soft->driver.ops->name, stream);
    if (!name_drop(&soft->streams, stream))
        return vmm__error(VMM_ERR_HOST_OOM, "%s: stream destroy: out of host memory for its name",
                          soft->driver.ops->name);
    if (found != NULL)
        stream_unname(soft, found);
    soft_charge(soft, DRIVER_CALL_stream_destroy, 0, NULL);
    return VMM_OK;
}

void vmm__soft_streams_close(struct soft *soft)
{
    vmm__soft_events_close(soft);
    vmm__map_clear(&soft->streams.named, NULL);
    vmm__map_clear(&soft->streams.stale, name_free);
}

/* ---- Captures -------------------------------------------------------------------------------- */

vmm_status vmm__soft_capturing(struct soft *soft, const vmm_stream *streams, unsigned count,
                               bool *is_capturing)
{
    vmm_status status = VMM_OK;
    bool is_any = false;
    for (unsigned i = 0; i < count && !is_any; i++) {
        struct soft_stream *found;
        vmm_status known = stream_find(soft, "capturing", streams[i], &found);
        is_any = found != NULL && found->is_captured;
        status = status == VMM_OK ? known : status;
    }
    if (status == VMM_OK || is_any)
        *is_capturing = is_any;
    return is_any ? VMM_OK : status;
}

static vmm_status capture_refuse(const struct soft *soft, const char *verb, vmm_stream stream,
                                 const char *what)
{
    return vmm__error(VMM_ERR_DRIVER, "%s: %s: stream %p %s", soft->driver.ops->name, verb, stream,
                      what);
}

vmm_status vmm__soft_capture_begin(struct soft *soft, vmm_stream stream)
{
    struct soft_stream *found;
    vmm_status status = vmm__soft_stream_get(soft, "capture begin", stream, &found);
    if (status != VMM_OK)
        return status;
    if (found->is_captured)
        return capture_refuse(soft, "capture begin", stream, "is already being captured");
    found->is_captured = true;
    found->capture = ++soft->streams.captures;
    found->is_broken = false;
    return VMM_OK;
}

vmm_status vmm__soft_capture_end(struct soft *soft, vmm_stream stream)
{
    struct soft_stream *found = soft_stream_find(&soft->streams, stream);
    if (found == NULL || !found->is_captured)
        return capture_refuse(soft, "capture end", stream, "is not being captured");
    found->is_captured = false;
    return found->is_broken ? capture_refuse(soft, "capture end", stream,
                                             "was captured, and an operation broke the capture")
                            : VMM_OK;
}

vmm_status vmm__soft_capture_break(struct soft *soft, struct soft_stream *stream, const char *verb)
{
    vmm_stream name = soft_stream_name(stream);
    if (!stream->is_captured)
        return VMM_OK;
    stream->is_broken = true;
    vmm__soft_report_add(&soft->violations, 1, "%s during the capture of stream %p", verb, name);
    return capture_refuse(soft, verb, name, "is being captured");
}
