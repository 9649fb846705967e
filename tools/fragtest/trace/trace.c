/* Traces as arrays of operations: see trace.h. */
#include "fragtest/trace/trace.h"

#include "base/hostmem.h"

#include <stdlib.h>
#include <string.h>

#define NO_HOST_MEMORY "out of host memory"

bool trace_init(struct trace *trace, const char *name)
{
    *trace = (struct trace){ 0 };
    trace->name = strdup(name);
    return trace->name != NULL;
}

void trace_free(struct trace *trace)
{
    free(trace->name);
    vmm__host_free(trace->blocks, trace->block_capacity * sizeof(*trace->blocks));
    vmm__host_free(trace->ops, trace->op_capacity * sizeof(*trace->ops));
    *trace = (struct trace){ 0 };
}

static const char *op_reserve(struct trace *trace)
{
    if (trace->op_count == TRACE_MAX_OPS)
        return "more operations than a trace may have (2^26)";
    if (!vmm__host_array_grow((void **)&trace->ops, &trace->op_capacity, trace->op_count,
                              sizeof(*trace->ops)))
        return NO_HOST_MEMORY;
    return NULL;
}

static uint32_t stream_number(struct trace *trace, uint64_t stream)
{
    uint32_t *number = &trace->stream_numbers[stream];
    if (*number == 0)
        *number = ++trace->stream_count;
    return *number - 1;
}

static const char *alloc_refusal(const struct trace *trace, uint64_t bytes, uint64_t stream)
{
    if (bytes == 0)
        return "an allocation of 0 bytes";
    if (bytes > TRACE_MAX_BYTES)
        return "an allocation of more than 2^46 bytes";
    if (stream > TRACE_MAX_STREAM)
        return "a stream number above 1023";
    if (trace->live_count == TRACE_MAX_LIVE)
        return "more blocks live at once than a trace may have (2^22)";
    if (trace->live_bytes + bytes > TRACE_MAX_LIVE_BYTES)
        return "more than 2^60 bytes live at once";
    return NULL;
}

const char *trace_add_alloc(struct trace *trace, uint64_t bytes, uint64_t stream, uint32_t *block)
{
    const char *refusal = alloc_refusal(trace, bytes, stream);

    if (refusal == NULL)
        refusal = op_reserve(trace);
    if (refusal != NULL)
        return refusal;
    if (!vmm__host_array_grow((void **)&trace->blocks, &trace->block_capacity, trace->block_count,
                              sizeof(*trace->blocks)))
        return NO_HOST_MEMORY;
    trace->blocks[trace->block_count] = (struct trace_block){
        .bytes = bytes,
        .stream = stream_number(trace, stream),
        .live = true,
    };
    trace->ops[trace->op_count++] = trace->block_count << 1;
    trace->live_count++;
    trace->live_bytes += bytes;
    if (trace->live_bytes > trace->peak_live_bytes)
        trace->peak_live_bytes = trace->live_bytes;
    *block = trace->block_count++;
    return NULL;
}

const char *trace_add_free(struct trace *trace, uint32_t block)
{
    const char *refusal = op_reserve(trace);

    if (refusal != NULL)
        return refusal;
    trace->ops[trace->op_count++] = (block << 1) | 1U;
    trace->blocks[block].live = false;
    trace->live_count--;
    trace->live_bytes -= trace->blocks[block].bytes;
    return NULL;
}

uint64_t trace_peak_busy(const struct trace *trace, uint64_t lag)
{
    uint64_t busy_bytes = 0;
    uint64_t peak = 0;

    for (uint32_t i = 0; i < trace->op_count; i++) {
        if (!trace_op_frees(trace->ops[i]))
            busy_bytes += trace->blocks[trace_op_block(trace->ops[i])].bytes;
        if (busy_bytes > peak)
            peak = busy_bytes;
        if (i >= lag && trace_op_frees(trace->ops[i - (uint32_t)lag]))
            busy_bytes -= trace->blocks[trace_op_block(trace->ops[i - (uint32_t)lag])].bytes;
    }
    return peak;
}
