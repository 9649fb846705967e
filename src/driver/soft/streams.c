/* Names and captures of the streams of the drivers without a GPU. See soft.h. */
#include "base/error.h"
#include "base/hostmem.h"
#include "driver/soft/soft.h"

/* Generated names count up from here, far from the names that tests invent. */
#define FIRST_NAME UINT64_C(0x51a0000000000000)

/* ---- Names ----------------------------------------------------------------------------------- */

struct stream_name {
    struct map_node node; /* its key is the name */
    bool is_stale;        /* the last stream of that name was destroyed and the name not reused */
    struct stream_name *next_stale;
};

static struct stream_name *name_find(const struct soft_streams *streams, vmm_stream name)
{
    return (struct stream_name *)vmm__map_find(&streams->names, (uint64_t)(uintptr_t)name);
}

/* Finds or adds a name. Returns NULL without host memory. */
static struct stream_name *name_get(struct soft_streams *streams, vmm_stream name)
{
    struct stream_name *found = name_find(streams, name);
    if (found != NULL)
        return found;
    found = vmm__host_alloc(1, sizeof *found);
    if (found == NULL)
        return NULL;
    found->node.key = (uint64_t)(uintptr_t)name;
    vmm__map_add(&streams->names, &found->node);
    return found;
}

vmm_stream vmm__soft_stream_name_take(struct soft_streams *streams)
{
    struct stream_name *taken = streams->stale;
    if (taken == NULL)
        return (vmm_stream)(uintptr_t)(FIRST_NAME + ++streams->generated);
    streams->stale = taken->next_stale;
    taken->is_stale = false;
    return (vmm_stream)(uintptr_t)taken->node.key;
}

bool vmm__soft_stream_name_drop(struct soft_streams *streams, vmm_stream name)
{
    struct stream_name *dropped = name_get(streams, name);
    if (dropped == NULL)
        return false;
    dropped->is_stale = true;
    dropped->next_stale = streams->stale;
    streams->stale = dropped;
    return true;
}

vmm_status vmm__soft_stream_get(const struct soft *soft, const char *verb, vmm_stream name,
                                struct soft_stream **out)
{
    const struct stream_name *known = name_find(&soft->streams, name);
    *out = soft_stream_find(&soft->streams, name);
    if (*out == NULL && known != NULL && known->is_stale)
        return vmm__error(VMM_ERR_INVALID_ARGUMENT, "%s: %s: stream %p was destroyed",
                          soft->driver.ops->name, verb, name);
    return VMM_OK;
}

void vmm__soft_stream_add(struct soft_streams *streams, struct soft_stream *stream, vmm_stream name)
{
    *stream = (struct soft_stream){ .is_named = true };
    stream->node.key = (uint64_t)(uintptr_t)name;
    vmm__map_add(&streams->named, &stream->node);
}

void vmm__soft_stream_unname(struct soft_streams *streams, struct soft_stream *stream)
{
    vmm__map_remove(&streams->named, &stream->node);
    stream->is_named = false;
}

static void name_free(struct map_node *node)
{
    vmm__host_free(node, sizeof(struct stream_name));
}

void vmm__soft_streams_close(struct soft_streams *streams)
{
    vmm__map_clear(&streams->named, NULL);
    vmm__map_clear(&streams->names, name_free);
}

/* ---- Captures -------------------------------------------------------------------------------- */

vmm_status vmm__soft_capturing(const struct soft *soft, const vmm_stream *streams, unsigned count,
                               bool *is_capturing)
{
    vmm_status status = VMM_OK;
    bool is_any = false;
    for (unsigned i = 0; i < count && !is_any; i++) {
        struct soft_stream *found;
        vmm_status known = vmm__soft_stream_get(soft, "capturing", streams[i], &found);
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

vmm_status vmm__soft_capture_begin(struct soft *soft, struct soft_stream *stream)
{
    if (stream->is_captured)
        return capture_refuse(soft, "capture begin", soft_stream_name(stream),
                              "is already being captured");
    stream->is_captured = true;
    stream->is_broken = false;
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

vmm_status vmm__soft_captured_refuse(struct soft *soft, struct soft_stream *captured,
                                     const char *verb)
{
    if (captured == NULL)
        return VMM_OK;
    vmm_stream name = soft_stream_name(captured);
    captured->is_broken = captured->is_broken || captured->is_captured;
    vmm__soft_report_add(&soft->violations, 1, "%s of an event captured on stream %p", verb, name);
    return vmm__error(VMM_ERR_DRIVER, "%s: %s: the event was captured on stream %p",
                      soft->driver.ops->name, verb, name);
}
