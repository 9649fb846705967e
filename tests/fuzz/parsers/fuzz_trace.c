/* The reader of traces: any bytes, as text or as gzip. */
#include "parser.h"

#include "fragtest/trace/trace.h"

#include <sys/mman.h>
#include <unistd.h>

/* T1, T2 and T4 of trace.h, by doing what the trace says. */
static void trace_check(const struct trace *trace)
{
    uint64_t live_bytes = 0;
    uint64_t peak_bytes = 0;
    uint32_t taken = 0;
    bool *is_live = calloc((size_t)trace->block_count + 1, sizeof *is_live);
    must(is_live != NULL && trace->op_count > 0);
    for (uint32_t i = 0; i < trace->op_count; i++) {
        uint32_t block = trace_op_block(trace->ops[i]);
        must(block < trace->block_count);
        bool frees = trace_op_frees(trace->ops[i]);
        uint64_t bytes = trace->blocks[block].bytes;
        must(is_live[block] == frees && bytes > 0 && bytes <= TRACE_MAX_BYTES);
        must(frees || block == taken++);
        is_live[block] = !frees;
        live_bytes = frees ? live_bytes - bytes : live_bytes + bytes;
        peak_bytes = live_bytes > peak_bytes ? live_bytes : peak_bytes;
    }
    must(taken == trace->block_count && live_bytes == trace->live_bytes);
    must(peak_bytes == trace->peak_live_bytes && peak_bytes <= TRACE_MAX_LIVE_BYTES);
    for (uint32_t i = 0; i < trace->block_count; i++) {
        must(trace->blocks[i].live == is_live[i]);
        must(trace->blocks[i].stream < trace->stream_count);
    }
    must(trace->stream_count <= TRACE_MAX_STREAM + 1);
    must(trace_peak_busy(trace, 0) == peak_bytes && trace_peak_busy(trace, 3) >= peak_bytes);
    free(is_live);
}

/* A refusal names the file and the line. */
static void refusal_check(const char *path, const struct trace_error *error)
{
    size_t length = strlen(path);
    must(is_one_line(error->text));
    must(strncmp(error->text, path, length) == 0 && error->text[length] == ':');
    char *end;
    must(strtoull(error->text + length + 1, &end, 10) > 0 && strncmp(end, ": ", 2) == 0);
    must(end[2] != '\0');
}

static void content_read(const uint8_t *data, size_t bytes)
{
    static int file = -1;
    char path[64];
    struct trace trace;
    struct trace_error error = { "" };
    if (file < 0)
        file = memfd_create("trace", MFD_CLOEXEC);
    must(file >= 0 && ftruncate(file, 0) == 0);
    must(pwrite(file, data, bytes, 0) == (ssize_t)bytes);
    (void)snprintf(path, sizeof path, "/proc/self/fd/%d", file);
    if (!trace_read(path, &trace, &error)) {
        refusal_check(path, &error);
        return;
    }
    trace_check(&trace);
    trace_free(&trace);
}

/* A file that is not there, under any name. */
static void name_read(const uint8_t *data, size_t bytes)
{
    static const char folder[] = "/proc/self/fd/none/";
    char path[512];
    struct trace trace;
    struct trace_error error = { "" };
    if (bytes > sizeof path - sizeof folder)
        bytes = sizeof path - sizeof folder;
    memcpy(path, folder, sizeof folder - 1);
    memcpy(path + sizeof folder - 1, data, bytes);
    path[sizeof folder - 1 + bytes] = '\0';
    must(!trace_read(path, &trace, &error));
    must(is_one_line(error.text));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    if (bytes > 0 && data[0] == '/')
        name_read(data, bytes);
    else if (bytes > 0)
        content_read(data, bytes);
    return 0;
}
